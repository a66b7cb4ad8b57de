/* What the C and the assembly agree on: offsets, and how a thread's chunk of the region is laid
 * out.
 *
 *   region   | chunk | chunk | ...                               one for each thread, in .bss
 *   chunk    | landing 0 | landing 1 | ... | entry 0 | entry 1 | ...
 *
 * Each depth of a thread has a landing (code, 32 bytes) and, LANDINGS_BYTES behind it, an entry
 * (data, 32 bytes). A landing calls the function's body, so that the return address on the stack is
 * its own: from it alone, the unwinder's rule in entry.S and the landing itself find the entry, and
 * in it where the function was really called from. Entry 0 is never used: it stands for the end of
 * the stack. */
#ifndef HANDOVER_LAYOUT_H
#define HANDOVER_LAYOUT_H

/* Numbers of the trace's format, by build.rs. */
#include "format.h"

#define DEPTH_MAX 1024
#define ENTRY_BYTES 32
#define LANDINGS_BYTES (DEPTH_MAX * ENTRY_BYTES)
#define CHUNK_BYTES (2 * LANDINGS_BYTES)
#define THREADS_MAX 512

/* A landing's call is six bytes: its return address is so far before its entry. */
#define LANDING_CALL_BYTES 6
#define RETURN_TO_ENTRY (LANDINGS_BYTES - LANDING_CALL_BYTES)

/* struct entry */
#define E_RETURN 0
#define E_SLOT 8
#define E_TARGET 16
#define E_CODE 24

/* struct thread */
#define T_CURSOR 0
#define T_LIMIT 8
#define T_BASE 16
#define T_TOP 24
#define T_END 32
#define T_STACK_LO 40
#define T_PAGE 48
#define T_MIN 56
#define T_PLAIN 64

/* Room for the wider registers: x87, SSE, AVX and AVX-512 in XSAVE's standard form. */
#define XSAVE_BYTES 2752
#define XSAVE_MASK 0xe7

#endif
