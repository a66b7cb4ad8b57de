/* The recording library: what its parts know of each other. */
#ifndef HANDOVER_RECORDER_H
#define HANDOVER_RECORDER_H

#include "layout.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))
#define COLD __attribute__((cold, noinline))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#define PATH_BYTES 4096

/* One call that is being traced. In the region; see layout.h. */
struct entry {
	uintptr_t returns_to;
	/* Where on the stack its return address was; 0 while it is free or being filled. */
	uintptr_t slot;
	/* The body to call; for the compiler's hooks, the function. */
	uintptr_t target;
	/* The site's number, shifted by two; 0 if it is not recorded. */
	uint64_t code;
};

/* A thread that records. The first fields are the assembly's. */
struct thread {
	uint64_t *cursor;
	uint64_t *limit;
	uint64_t base;
	struct entry *top;
	struct entry *end;
	uintptr_t stack_lo;
	/* The lane: its page, then its ring. */
	uint64_t *page;
	uint64_t min_ticks;
	/* From here to the cursor, each word is an event without values. Only such words may be taken
	 * back. */
	uint64_t *plain;

	struct entry *bottom;
	/* Calls deeper than there are entries, of the compiler's hooks. */
	uint64_t beyond;
	uint64_t *ring;
	uint64_t blocks;
	uint64_t recorded;
	uint64_t lost;
	/* Words of values in the block. */
	uint64_t values;
	bool is_used;
	/* Ticks that it has waited for room in its ring. */
	uint64_t waited;
	/* For room in its ring, and for as long as may be: it does not wait again until there is some. */
	bool has_waited_in_vain;
};

_Static_assert(offsetof(struct entry, returns_to) == E_RETURN, "layout");
_Static_assert(offsetof(struct entry, slot) == E_SLOT, "layout");
_Static_assert(offsetof(struct entry, target) == E_TARGET, "layout");
_Static_assert(offsetof(struct entry, code) == E_CODE, "layout");
_Static_assert(sizeof(struct entry) == ENTRY_BYTES, "layout");
_Static_assert(offsetof(struct thread, limit) == T_LIMIT, "layout");
_Static_assert(offsetof(struct thread, base) == T_BASE, "layout");
_Static_assert(offsetof(struct thread, top) == T_TOP, "layout");
_Static_assert(offsetof(struct thread, end) == T_END, "layout");
_Static_assert(offsetof(struct thread, stack_lo) == T_STACK_LO, "layout");
_Static_assert(offsetof(struct thread, page) == T_PAGE, "layout");
_Static_assert(offsetof(struct thread, min_ticks) == T_MIN, "layout");
_Static_assert(offsetof(struct thread, plain) == T_PLAIN, "layout");

/* What is to be recorded, and where to. */
struct config {
	bool is_on;
	/* Newest events overwrite the oldest, in the file itself; otherwise another process empties the
	 * rings in the folder `rings`. */
	bool overwrites;
	char file[PATH_BYTES];
	char rings[PATH_BYTES];
	/* Where to say what was found; empty: nowhere. */
	char log[PATH_BYTES];
	/* A file with room for the number of an error; empty: there is none. */
	char failure[PATH_BYTES];
	uint64_t ring_words;
	uint64_t depth;
	uint64_t min_ns;
	uint64_t min_ticks;
	/* So long a thread waits for room in its ring, rather than lose an event. */
	uint64_t wait_ns;
	uint64_t wait_ticks;
	double ticks_hz;
	uint64_t boot[2];
	/* Functions, by pattern: wanted is what include matches (or all, if it is empty) but for what
	 * exclude does. */
	char include[PATH_BYTES];
	char exclude[PATH_BYTES];
	/* Sites of handover_probe.h. */
	char probes[PATH_BYTES];
};

extern struct config handover_config;
extern __thread struct thread *handover_self __attribute__((tls_model("initial-exec")));
extern uint32_t handover_xsave_mask;

/* What is written before is there for a signal's handler on this thread before what is written
 * behind. */
static inline void handover_order(void)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* Takes words of the ring, in one instruction: a signal's handler cannot take the same. Whether
 * they lie within the block is for the caller to see. */
static inline uint64_t *handover_claim(struct thread *thread, uint64_t words)
{
	uint64_t bytes = words * 8;
	__asm__ volatile("xadd %0, %1" : "+r"(bytes), "+m"(thread->cursor) : : "memory", "cc");
	return (uint64_t *)bytes;
}

/* Counts a call that is not traced: it is too deep, or on another stack. In the lane, so that the
 * count outlives a process that is killed. */
static inline void handover_count_untraced(struct thread *thread)
{
	if (thread->page)
		thread->page[P_UNTRACED]++;
}

static inline uint64_t handover_ticks(void)
{
	uint32_t low, high;
	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	return (uint64_t)high << 32 | low;
}

/* A number as the trace's format has it: seven bits a byte, the lowest first. Where it ends. */
static inline uint8_t *handover_put_varint(uint8_t *to, uint64_t number)
{
	for (; number >= 0x80; number >>= 7)
		*to++ = (uint8_t)number | 0x80;
	*to++ = (uint8_t)number;
	return to;
}

/* An operand of an instruction. */
static inline void handover_put32(uint8_t *to, int64_t number)
{
	int32_t narrow = (int32_t)number;
	memcpy(to, &narrow, 4);
}

/* config.c */
bool handover_matches(const char *pattern, const char *name);
void handover_configure(char **environment);
/* Records newest events into `file`, as another process has asked. */
bool handover_configure_last(const char *file, uint64_t ring_bytes);
void handover_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void handover_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Leaves word of why nothing more can be recorded. */
void handover_tell_failure(int error);

/* thread.c */
/* The calling thread, with a place to record; NULL if it gets none, and then its event is lost. */
struct thread *handover_attach(void);
void handover_count_lost(uint64_t count);
void handover_threads_start(void);
void handover_leave_frames_below(struct thread *thread, uintptr_t slot);

/* lane.c */
/* Records an event at the present time; the ring's next block is begun, if need be. */
void handover_event(struct thread *thread, uint64_t code);
void handover_event_values(struct thread *thread, uint64_t code, const uint64_t *values, unsigned count);
uint64_t handover_checksum(const uint8_t *bytes, size_t count);
bool handover_lane_take(struct thread *thread);
void handover_lane_give(struct thread *thread);
void handover_lane_forget(struct thread *thread);
void handover_lanes_fork(void);
void handover_finish(void);
/* Site `number` is described at file `word`; and a set of sites with names. Locked by the
 * caller. */
void handover_file_function(uint32_t number);
void handover_file_module(uint32_t module);
void handover_file_sites(void);

/* false when this thread holds it already: what was interrupted, or has called us, is not to be
 * waited for. */
bool handover_lock(void) __attribute__((warn_unused_result));
void handover_unlock(void);
void handover_lock_forget(void);

/* bus.c */
/* Keeps the process alive where the file behind this mapping is cut short; false where that cannot
 * be done. Locked by the caller; the memory is never unmapped. */
bool handover_bus_watch(void *start, size_t bytes) __attribute__((warn_unused_result));
/* A mapped file was cut short: what is recorded reaches nobody. */
bool handover_bus_is_cut(void);
/* The child records into another file. */
void handover_bus_fork(void);

/* functions.c */
#define FUNCTIONS_MAX ((1u << 18) - 1)
#define MODULES_MAX 1024
struct function {
	/* In memory; 0 for what is no function. */
	uintptr_t address;
	uint32_t module;
	/* The number before this one of the same module; 0 for none. */
	uint32_t earlier;
};
struct file_id {
	uint64_t device, inode, bytes;
	struct timespec changed;
};
struct module {
	uintptr_t bias, start, end;
	uintptr_t eh_frame_hdr;
	uint8_t build_id[32];
	uint32_t build_id_bytes;
	char path[512];
	struct file_id file;
	bool is_loaded;
	/* Met by the present search for modules. */
	bool is_found;
	bool was_unloaded;
	uint32_t last_number;
	/* The jumps at its entries are written. */
	bool is_patched;
	struct jump *jumps;
	size_t jumps_count;
};
extern struct function *handover_functions;
extern uint32_t handover_functions_count;
extern struct module handover_modules[MODULES_MAX];
extern uint32_t handover_modules_count;
/* Finds modules that are new, and makes their patchable entries lead here. */
void handover_patch_new_modules(void);
void handover_functions_more(void);
/* Forgets the functions of modules that were unloaded, so that others may take their addresses. */
void handover_forget_unloaded(void);
/* A number for what is called at `address`: its code, or 0 if it is not wanted. */
uint64_t handover_function_introduce(uintptr_t address);
uint32_t handover_number_new(uintptr_t address, uint32_t module);

/* hooks.c */
/* Functions in this range are others from now on: their module was unloaded. Locked by the
 * caller. */
void handover_functions_forget(uintptr_t start, uintptr_t end);
void handover_start(char **environment);
/* dlopen() of the C library, without a search for new modules. */
void *handover_dlopen_untraced(const char *path, int flags);
#define CODE_UNWANTED 1u

/* probes.c */
/* Writes the sites of probes after the first `from` into `to`, as a trace does; how many bytes it
 * takes. Without `to`, how many it takes at most. */
size_t handover_probes_encode(uint8_t *to, uint32_t from);
uint32_t handover_probes_count(void);

/* entry.S */
extern uint8_t handover_region[];
void handover_enter(void);
void handover_leave(void);

#endif
