/* Threads: their chunk of the region, their stack's bounds, their end; and forks. */
#include "recorder.h"
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

__thread struct thread *handover_self __attribute__((tls_model("initial-exec")));

/* What a thread without a struct is about. */
enum phase { READY, BUSY, REFUSED, GONE };
static __thread enum phase phase __attribute__((tls_model("initial-exec")));
static __thread unsigned endings __attribute__((tls_model("initial-exec")));

static struct thread threads[THREADS_MAX];
static bool is_prepared[THREADS_MAX];
static pthread_key_t key;
static bool has_key;

/* The landings of a chunk, and after them room for the entries. */
static bool prepare(size_t index)
{
	uint8_t *code = handover_region + index * CHUNK_BYTES;
	if (mmap(code, LANDINGS_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
	    code)
		return false;
	for (uint8_t *at = code; at < code + LANDINGS_BYTES; at += ENTRY_BYTES) {
		const uint8_t *entry = at + LANDINGS_BYTES;
		memset(at, 0xcc, ENTRY_BYTES);
		/* call *E_TARGET(entry) */
		at[0] = 0xff, at[1] = 0x15;
		handover_put32(at + 2, entry + E_TARGET - (at + 6));
		/* push E_RETURN(entry) */
		at[6] = 0xff, at[7] = 0x35;
		handover_put32(at + 8, entry + E_RETURN - (at + 12));
		/* push %r11 */
		at[12] = 0x41, at[13] = 0x53;
		/* lea entry(%rip), %r11 */
		at[14] = 0x4c, at[15] = 0x8d, at[16] = 0x1d;
		handover_put32(at + 17, entry - (at + 21));
		/* jmp handover_leave */
		at[21] = 0xe9;
		handover_put32(at + 22, (uint8_t *)handover_leave - (at + 26));
	}
	return !mprotect(code, LANDINGS_BYTES, PROT_READ | PROT_EXEC);
}

/* Where the thread's own stack ends, both ways; calls on any other are left alone. */
static bool stack_bounds(uintptr_t *low, uintptr_t *high)
{
	pthread_attr_t attributes;
	void *start;
	size_t bytes;
	if (pthread_getattr_np(pthread_self(), &attributes))
		return false;
	int error = pthread_attr_getstack(&attributes, &start, &bytes);
	pthread_attr_destroy(&attributes);
	*low = (uintptr_t)start;
	*high = *low + bytes;
	return !error;
}

struct thread *handover_attach(void)
{
	if (phase != READY || !handover_config.is_on) {
		if (handover_config.is_on)
			handover_count_lost(1);
		return NULL;
	}
	phase = BUSY;
	struct thread *found = NULL;
	uintptr_t low, high;
	bool has_bounds = stack_bounds(&low, &high);
	bool is_locked = has_bounds && handover_lock();
	for (size_t index = 0; is_locked && !found && index < THREADS_MAX; index++) {
		if (threads[index].is_used)
			continue;
		if (!is_prepared[index] && !prepare(index))
			break;
		is_prepared[index] = true;
		found = &threads[index];
		memset(found, 0, sizeof *found);
		found->is_used = true;
		found->bottom = (struct entry *)(handover_region + index * CHUNK_BYTES + LANDINGS_BYTES) + 1;
		memset(found->bottom - 1, 0, LANDINGS_BYTES);
	}
	if (is_locked)
		handover_unlock();
	if (found) {
		/* Below the first entry there is one that is never left. */
		found->bottom[-1].slot = high;
		found->top = found->bottom;
		found->end = found->bottom + handover_config.depth;
		found->stack_lo = low;
		found->min_ticks = handover_config.min_ticks;
		if (!handover_lane_take(found)) {
			found->is_used = false;
			found = NULL;
		}
	}
	if (found && has_key)
		pthread_setspecific(key, found);
	/* Whoever holds the lock may be served later. */
	phase = found || (has_bounds && !is_locked) ? READY : REFUSED;
	if (!found)
		handover_count_lost(1);
	/* Last: what was called on the way was not recorded. */
	handover_self = found;
	return found;
}

/* Leaves what longjmp or an exception has passed over: calls whose place on the stack is below
 * `slot`. */
void handover_leave_frames_below(struct thread *thread, uintptr_t slot)
{
	while (thread->top > thread->bottom) {
		struct entry *last = thread->top - 1;
		uint64_t code = last->code;
		/* 0: a signal's handler has interrupted who is filling it. */
		if (!last->slot || last->slot >= slot)
			break;
		last->slot = 0;
		handover_order();
		thread->top = last;
		handover_order();
		if (code)
			handover_event(thread, code | FORM_LEAVE);
	}
}

static void thread_ends(void *argument)
{
	struct thread *thread = argument;
	/* Other destructors may come after this one: let them, as long as there are any. */
	if (++endings < PTHREAD_DESTRUCTOR_ITERATIONS && !pthread_setspecific(key, thread))
		return;
	handover_leave_frames_below(thread, UINTPTR_MAX);
	handover_self = NULL;
	phase = GONE;
	handover_lane_give(thread);
	__atomic_store_n(&thread->is_used, false, __ATOMIC_RELEASE);
}

static __thread bool has_locked __attribute__((tls_model("initial-exec")));

static void before_fork(void)
{
	has_locked = handover_lock();
}

static void after_fork_in_parent(void)
{
	if (has_locked)
		handover_unlock();
}

static void after_fork_in_child(void)
{
	handover_lock_forget();
	handover_lanes_fork();
	for (size_t index = 0; index < THREADS_MAX; index++)
		if (&threads[index] != handover_self)
			threads[index].is_used = false;
	if (handover_self)
		handover_lane_forget(handover_self);
	else if (phase == REFUSED)
		phase = READY;
}

void handover_threads_start(void)
{
	has_key = !pthread_key_create(&key, thread_ends);
	pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}
