/* The way into and out of a function whose entry was patched: every register is as it was, flags apart.
 *
 *   function:  jmp stub            (where its NOPs were)
 *   stub:      push %r11; lea body(%rip),%r11; push $code; jmp *enter
 *   enter:     take an entry, remember the return address in it, record, jmp to the entry's landing
 *   landing:   call *target        (the body; its return address is this landing's)
 *              push where it was called from; push %r11; lea entry(%rip),%r11; jmp leave
 *   leave:     record, give the entry back, ret
 *
 * Calls and returns stay paired, so that the processor predicts each return, and a shadow stack of its
 * own (CET) agrees too. */
#include "layout.h"

	.section .note.GNU-stack,"",@progbits
	.text

	.hidden handover_self
	.hidden handover_enter_slow
	.hidden handover_enter_event_slow
	.hidden handover_leave_slow
	.hidden handover_xsave_mask

/* The thread's struct, or 0, in \to. */
.macro SELF to
	mov handover_self@gottpoff(%rip), \to
	mov %fs:(\to), \to
.endm

/* Calls a C function from anywhere, with every register kept but rax, in which its answer is. */
.macro CALL_C function
	push %rcx
	push %rdx
	push %rsi
	push %r8
	push %r9
	push %r10
	push %r11
	push %rbp
	mov %rsp, %rbp
	sub $XSAVE_BYTES, %rsp
	and $-64, %rsp
	/* rdi, rsi and rdx are the function's: saved by whoever comes here, but for what xsave needs. */
	mov %rdx, %r8
	mov handover_xsave_mask(%rip), %eax
	xor %edx, %edx
	test %eax, %eax
	jz 1f
	movq %rdx, 512(%rsp)
	movq %rdx, 520(%rsp)
	movq %rdx, 528(%rsp)
	movq %rdx, 536(%rsp)
	movq %rdx, 544(%rsp)
	movq %rdx, 552(%rsp)
	movq %rdx, 560(%rsp)
	movq %rdx, 568(%rsp)
	xsave64 (%rsp)
	jmp 2f
1:	fxsave64 (%rsp)
2:	mov %r8, %rdx
	cld
	call \function
	mov %rax, %r8
	mov handover_xsave_mask(%rip), %eax
	xor %edx, %edx
	test %eax, %eax
	jz 3f
	xrstor64 (%rsp)
	jmp 4f
3:	fxrstor64 (%rsp)
4:	mov %r8, %rax
	mov %rbp, %rsp
	pop %rbp
	pop %r11
	pop %r10
	pop %r9
	pop %r8
	pop %rsi
	pop %rdx
	pop %rcx
.endm

/* Comes with: code, r11, the return address; in r11 the body. */
	.globl handover_enter
	.hidden handover_enter
	.type handover_enter, @function
	.balign 64
handover_enter:
	push %rcx
	push %rdx
	push %rax
	/* 0 rax, 8 rdx, 16 rcx, 24 code, 32 r11, 40 the return address: the slot */
	SELF %rcx
	test %rcx, %rcx
	jz .Lenter_slow
	mov T_TOP(%rcx), %rdx
	lea 40(%rsp), %rax
	cmp %rax, E_SLOT-ENTRY_BYTES(%rdx)
	jbe .Lnot_below
.Lplaced:
	cmp T_END(%rcx), %rdx
	jae .Lskip
	cmp T_STACK_LO(%rcx), %rax
	jb .Lskip			/* another stack than the thread's */
	/* Taken before it is filled: a signal's handler in between takes the next. Its slot is 0 so far. */
	addq $ENTRY_BYTES, T_TOP(%rcx)
	mov %rax, E_SLOT(%rdx)
	mov 40(%rsp), %rax
	mov %rax, E_RETURN(%rdx)
	mov %r11, E_TARGET(%rdx)
	mov 24(%rsp), %r11d
	mov %r11d, E_CODE(%rdx)
	/* Where to go, in place of the code. */
	sub $LANDINGS_BYTES, %rdx
	mov %rdx, 24(%rsp)
	rdtsc
	shl $32, %rdx
	or %rdx, %rax
	sub T_BASE(%rcx), %rax
	mov %rax, %rdx
	shr $DELTA_BITS, %rdx
	jnz .Lenter_event_slow
	shl $CODE_BITS, %rax
	or %r11, %rax
	/* One instruction takes the word: a signal's handler cannot take the same. */
	mov $8, %edx
	xadd %rdx, T_CURSOR(%rcx)
	cmp T_LIMIT(%rcx), %rdx
	jae .Lenter_event_slow
	mov %rax, (%rdx)
.Lentered:
	pop %rax
	pop %rdx
	pop %rcx
	mov 8(%rsp), %r11
	lea 24(%rsp), %rsp
	jmp *-24(%rsp)

.Lnot_below:
	jb .Lenter_slow			/* frames that are gone */
	/* A tail call returns to the last call's landing; otherwise that call is gone. */
	lea -(ENTRY_BYTES+RETURN_TO_ENTRY)(%rdx), %rax
	cmp %rax, 40(%rsp)
	jne .Lenter_slow
	lea 40(%rsp), %rax
	jmp .Lplaced

.Lskip:
	mov T_PAGE(%rcx), %rdx
	test %rdx, %rdx
	jz .Lnot_hooked
	incq 8*P_UNTRACED(%rdx)
.Lnot_hooked:
	mov %r11, 24(%rsp)
	pop %rax
	pop %rdx
	pop %rcx
	mov 8(%rsp), %r11
	lea 16(%rsp), %rsp
	jmp *-16(%rsp)

.Lenter_slow:
	push %rdi
	/* 8 more on the stack */
	lea 48(%rsp), %rdi
	mov %r11, %rdx
	mov 32(%rsp), %eax
	push %rsi
	mov %eax, %esi
	CALL_C handover_enter_slow	/* (slot, code, target): the landing, or 0 */
	pop %rsi
	pop %rdi
	test %rax, %rax
	jz .Lnot_hooked
	mov %rax, 24(%rsp)
	jmp .Lentered

.Lenter_event_slow:
	push %rdi
	mov %r11d, %edi
	CALL_C handover_enter_event_slow	/* (code) */
	pop %rdi
	jmp .Lentered
	.size handover_enter, .-handover_enter

/* Comes with: r11, the return address; in r11 the entry. */
	.globl handover_leave
	.hidden handover_leave
	.type handover_leave, @function
	.balign 64
handover_leave:
	push %rcx
	push %rdx
	push %rax
	SELF %rcx
	test %rcx, %rcx
	jz .Lleave_slow
	lea ENTRY_BYTES(%r11), %rdx
	cmp %rdx, T_TOP(%rcx)
	jne .Lleave_slow		/* frames that are gone are above it */
	rdtsc
	shl $32, %rdx
	or %rdx, %rax
	sub T_BASE(%rcx), %rax
	mov %rax, %rdx
	shr $DELTA_BITS, %rdx
	jnz .Lleave_slow
	cmpq $0, T_MIN(%rcx)
	jne .Lbriefly
.Lleave:
	shl $CODE_BITS, %rax
	mov E_CODE(%r11), %edx
	or %rdx, %rax
	/* Free before it is given back: see above. */
	movq $0, E_SLOT(%r11)
	mov %r11, T_TOP(%rcx)
	or $FORM_LEAVE, %rax
	mov $8, %edx
	xadd %rdx, T_CURSOR(%rcx)
	cmp T_LIMIT(%rcx), %rdx
	jae .Lleave_event_slow
	mov %rax, (%rdx)
.Lleft:
	pop %rax
	pop %rdx
	pop %rcx
	pop %r11
	ret

.Lbriefly:
	/* If nothing was recorded since it was entered, and that is not long ago, it was not. */
	push %rsi
	mov T_CURSOR(%rcx), %rsi
	sub $8, %rsi
	cmp T_PLAIN(%rcx), %rsi
	jb .Lat_length
	cmp T_LIMIT(%rcx), %rsi
	jae .Lat_length
	mov (%rsi), %rdx
	and $(1<<CODE_BITS)-1, %edx
	cmp %edx, E_CODE(%r11)
	jne .Lat_length
	mov (%rsi), %rdx
	shr $CODE_BITS, %rdx
	neg %rdx
	add %rax, %rdx			/* how long it took */
	cmp T_MIN(%rcx), %rdx
	jae .Lat_length
	movq $0, (%rsi)
	mov %rsi, T_CURSOR(%rcx)
	movq $0, E_SLOT(%r11)
	mov %r11, T_TOP(%rcx)
	pop %rsi
	jmp .Lleft
.Lat_length:
	pop %rsi
	jmp .Lleave

.Lleave_slow:
	push %rdi
	mov %r11, %rdi
	CALL_C handover_leave_slow	/* (entry) */
	pop %rdi
	jmp .Lleft

.Lleave_event_slow:
	push %rdi
	mov %eax, %edi
	and $(1<<CODE_BITS)-1, %edi
	CALL_C handover_enter_event_slow
	pop %rdi
	jmp .Lleft
	.size handover_leave, .-handover_leave

/* Where threads' chunks are. Its rules for unwinders: whoever returns to a landing was called from where
 * the landing's entry says, with the stack as it is. So exceptions, cancellation, backtraces and debuggers
 * walk through traced functions as if they were not. A function that was left by a tail call has a landing
 * too, to which the next one's entry leads: it has no frame, as in a program that is not traced. Frames are
 * told apart by their address, so that this one, which has none, claims the word behind the slot. */
	.section .bss.handover_region,"aw",@nobits
	.balign 4096
	.globl handover_region
	.hidden handover_region
	.type handover_region, @object
	.cfi_startproc simple
	/* DW_CFA_def_cfa_expression: r7 + 8, and 8 more for each of a landing's pushes, which end at its bytes 12 and 14 */
	.cfi_escape 0x0f, 16, 0x77, 8, 0x80, 0, 0x4f, 0x1a, 0x12, 0x3c, 0x2a, 0x16, 0x3e, 0x2a, 0x22, 0x33, 0x24, 0x22
	/* DW_CFA_val_expression: r7 is CFA - 8. DW_CFA_val_offset says the same, but LLVM's unwinder lacks it. */
	.cfi_escape 0x16, 7, 2, 0x38, 0x1c
	/* DW_CFA_expression: r16 is saved where these 27 bytes say (E_RETURN is 0).
	 * address = r16; do entry = (address & -ENTRY_BYTES) + LANDINGS_BYTES, address = *entry;
	 * while (|address - r16| < LANDINGS_BYTES); entry */
	.cfi_escape 0x10, 16, 27, 0x80, 0, 0x12, 0x16, 0x13, 0x09, -ENTRY_BYTES & 0xff, 0x1a
	.cfi_escape 0x23, (LANDINGS_BYTES & 0x7f) | 0x80, ((LANDINGS_BYTES >> 7) & 0x7f) | 0x80, LANDINGS_BYTES >> 14
	.cfi_escape 0x12, 0x06, 0x12, 0x80, 0, 0x1c, 0x19, 0x0a, LANDINGS_BYTES & 0xff, LANDINGS_BYTES >> 8, 0x2d
	.cfi_escape 0x28, -23 & 0xff, -1 & 0xff, 0x13
handover_region:
	.skip CHUNK_BYTES * THREADS_MAX
	.cfi_endproc
	.size handover_region, .-handover_region
