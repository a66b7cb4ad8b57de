/* Where traced functions come in: by their patched entries (the slow ways of entry.S), and by the
 * compiler's hooks of -finstrument-functions. */
#include "recorder.h"
#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

uint32_t handover_xsave_mask;

/* --- patched entries --- */

static struct entry *push(struct thread *thread, uintptr_t slot, uint64_t code, uintptr_t target)
{
	struct entry *entry = thread->top;
	/* Taken before it is filled: a signal's handler in between takes the next. */
	thread->top = entry + 1;
	handover_order();
	entry->slot = slot;
	entry->code = code;
	entry->target = target;
	return entry;
}

/* A call whose return address is at `slot`: where to go on, or 0 for the body itself. */
uintptr_t __attribute__((visibility("hidden")))
handover_enter_slow(uintptr_t *slot, uint64_t code, uintptr_t target)
{
	int error = errno;
	uintptr_t landing = 0;
	struct thread *thread = handover_self;
	if (!thread && !(thread = handover_attach()) && handover_config.is_on)
		handover_count_lost(1); /* its end, which does not come here */
	uintptr_t at = (uintptr_t)slot;
	/* On the thread's own stack? Elsewhere nothing can be told from addresses. */
	if (!thread)
		goto done;
	if (at < thread->stack_lo || at >= thread->bottom[-1].slot) {
		handover_count_untraced(thread);
		goto done;
	}
	handover_leave_frames_below(thread, at);
	struct entry *last = thread->top - 1;
	if (last >= thread->bottom && last->slot == at) {
		/* A tail call returns to the last call's landing; otherwise that call is gone. */
		uintptr_t its_landing = (uintptr_t)last - LANDINGS_BYTES + LANDING_CALL_BYTES;
		if (*slot != its_landing)
			handover_leave_frames_below(thread, at + 1);
	}
	if (thread->top >= thread->end) {
		handover_count_untraced(thread);
		goto done;
	}
	struct entry *entry = push(thread, at, code, target);
	entry->returns_to = *slot;
	handover_event(thread, code);
	landing = (uintptr_t)entry - LANDINGS_BYTES;
done:
	errno = error;
	return landing;
}

void __attribute__((visibility("hidden"))) handover_enter_event_slow(uint64_t code)
{
	int error = errno;
	handover_event(handover_self, (uint32_t)code);
	errno = error;
}

/* Records the end of a call, unless it was so short that not even its beginning is to be kept. */
static void leave(struct thread *thread, struct entry *entry)
{
	uint64_t code = entry->code;
	/* Free before it is given back. */
	entry->slot = 0;
	handover_order();
	thread->top = entry;
	handover_order();
	if (!code)
		return;
	if (thread->min_ticks && thread->limit) {
		uint64_t *last = thread->cursor - 1;
		if (last >= thread->plain && last < thread->limit && (*last & ((1u << CODE_BITS) - 1)) == code &&
		    handover_ticks() - thread->base - (*last >> CODE_BITS) < thread->min_ticks) {
			*last = 0;
			thread->cursor = last;
			return;
		}
	}
	handover_event(thread, code | FORM_LEAVE);
}

void __attribute__((visibility("hidden"))) handover_leave_slow(struct entry *entry)
{
	int error = errno;
	struct thread *thread = handover_self;
	/* Without one, the thread is about to end. */
	if (thread && entry >= thread->bottom && entry < thread->top) {
		handover_leave_frames_below(thread, entry->slot);
		leave(thread, entry);
	}
	errno = error;
}

/* --- the compiler's hooks --- */

/* Functions by their address: open addressing, entries are only ever added. A code of 0 is of a
 * function that is to be introduced anew. */
#define TABLE_BITS 19
struct known {
	uintptr_t function;
	/* The site's number shifted by two, or CODE_UNWANTED. */
	uint64_t code;
};
static struct known *table;

static inline size_t place(uintptr_t function)
{
	return (function * 0x9e3779b97f4a7c15ull) >> (64 - TABLE_BITS);
}

static inline uint64_t lookup(uintptr_t function)
{
	const struct known *all = table;
	if (unlikely(!all))
		return 0;
	for (size_t at = place(function);; at = (at + 1) & ((1u << TABLE_BITS) - 1)) {
		/* Acquire: pairs with the release in introduce(): its code is there. */
		uintptr_t found = __atomic_load_n(&all[at].function, __ATOMIC_ACQUIRE);
		if (likely(found == function))
			return all[at].code;
		if (!found)
			return 0;
	}
}

static COLD uint64_t introduce(uintptr_t function)
{
	handover_start(environ);
	if (!handover_config.is_on)
		return CODE_UNWANTED;
	int error = errno;
	if (!handover_lock())
		return CODE_UNWANTED; /* this once */
	if (!table) {
		void *memory = mmap(NULL, sizeof *table << TABLE_BITS, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (memory != MAP_FAILED)
			table = memory;
	}
	uint64_t code = table ? lookup(function) : CODE_UNWANTED;
	if (!code) {
		code = handover_function_introduce(function);
		if (!code)
			code = CODE_UNWANTED;
		size_t at = place(function);
		while (table[at].function && table[at].function != function)
			at = (at + 1) & ((1u << TABLE_BITS) - 1);
		/* A table that is full would be searched for ever: what comes then is looked up anew each
		 * time. */
		static size_t known_count;
		if (table[at].function || known_count < (1u << TABLE_BITS) * 3 / 4) {
			known_count += !table[at].function;
			table[at].code = code;
			__atomic_store_n(&table[at].function, function, __ATOMIC_RELEASE);
		}
	}
	handover_unlock();
	errno = error;
	return code;
}

void handover_functions_forget(uintptr_t start, uintptr_t end)
{
	for (size_t at = 0; table && at < (size_t)1 << TABLE_BITS; at++)
		if (table[at].function >= start && table[at].function < end)
			table[at].code = 0;
}

static COLD struct thread *attach(void)
{
	int error = errno;
	struct thread *thread = handover_attach();
	errno = error;
	return thread;
}

/* Everything but the usual: another stack, frames that are gone, too deep. */
static COLD void enter_slowly(struct thread *thread, uintptr_t function, uint64_t code, uintptr_t slot)
{
	int error = errno;
	if (slot < thread->stack_lo || slot >= thread->bottom[-1].slot) {
		/* Another stack: recorded as it comes, without depth. */
		handover_event(thread, code);
		goto done;
	}
	handover_leave_frames_below(thread, slot);
	if (thread->top >= thread->bottom + DEPTH_MAX - 1) {
		thread->beyond++;
		handover_count_untraced(thread);
		goto done;
	}
	thread->beyond = 0;
	bool is_deep = thread->top >= thread->end;
	if (is_deep)
		handover_count_untraced(thread);
	push(thread, slot, is_deep ? 0 : code, function)->returns_to = 0;
	if (!is_deep)
		handover_event(thread, code);
done:
	errno = error;
}

EXPORT void __cyg_profile_func_enter(void *this, void *site)
{
	(void)site;
	uintptr_t function = (uintptr_t)this;
	uint64_t code = lookup(function);
	if (unlikely(!code))
		code = introduce(function);
	if (code == CODE_UNWANTED)
		return;
	struct thread *thread = handover_self;
	if (unlikely(!thread) && !(thread = attach()))
		return;
	uintptr_t slot = (uintptr_t)__builtin_dwarf_cfa();
	struct entry *entry = thread->top;
	if (unlikely(entry[-1].slot < slot || entry >= thread->end || slot < thread->stack_lo)) {
		enter_slowly(thread, function, code, slot);
		return;
	}
	thread->top = entry + 1;
	handover_order();
	entry->slot = slot;
	entry->code = code;
	entry->target = function;
	uint64_t delta = handover_ticks() - thread->base, *at;
	if (unlikely(delta >> DELTA_BITS || (at = handover_claim(thread, 1)) >= thread->limit)) {
		int error = errno;
		handover_event(thread, code);
		errno = error;
		return;
	}
	__atomic_store_n(at, delta << CODE_BITS | code, __ATOMIC_RELEASE);
}

static COLD void leave_slowly(struct thread *thread, uintptr_t function, uint64_t code, uintptr_t slot)
{
	int error = errno;
	if (slot < thread->stack_lo || slot >= thread->bottom[-1].slot) {
		handover_event(thread, code | FORM_LEAVE);
	} else if (thread->beyond) {
		thread->beyond--;
	} else {
		struct entry *entry = thread->top;
		while (entry > thread->bottom && entry[-1].target != function)
			entry--;
		if (entry > thread->bottom) {
			/* What it had called is gone without having been left. */
			while (thread->top > entry)
				leave(thread, thread->top - 1);
			leave(thread, entry - 1);
		}
	}
	errno = error;
}

EXPORT void __cyg_profile_func_exit(void *this, void *site)
{
	(void)site;
	uintptr_t function = (uintptr_t)this;
	struct thread *thread = handover_self;
	if (unlikely(!thread)) {
		uint64_t code = lookup(function);
		if (handover_config.is_on && code && code != CODE_UNWANTED)
			handover_count_lost(1); /* as its beginning was */
		return;
	}
	uint64_t now = handover_ticks();
	uintptr_t slot = (uintptr_t)__builtin_dwarf_cfa();
	struct entry *entry = thread->top - 1;
	if (unlikely(entry->target != function || entry < thread->bottom || thread->beyond ||
		     slot < thread->stack_lo || thread->min_ticks)) {
		uint64_t code = lookup(function);
		if (code && code != CODE_UNWANTED)
			leave_slowly(thread, function, code, slot);
		return;
	}
	uint64_t code = entry->code;
	entry->slot = 0;
	handover_order();
	thread->top = entry;
	handover_order();
	if (unlikely(!code))
		return;
	uint64_t delta = now - thread->base, *at;
	if (unlikely(delta >> DELTA_BITS || (at = handover_claim(thread, 1)) >= thread->limit)) {
		int error = errno;
		handover_event(thread, code | FORM_LEAVE);
		errno = error;
		return;
	}
	__atomic_store_n(at, delta << CODE_BITS | code | FORM_LEAVE, __ATOMIC_RELEASE);
}

/* --- the library's own beginning and end --- */

static void find_registers(void)
{
	uint32_t a, b, c, d;
	__asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(1), "c"(0));
	if (!(c & 1u << 27)) /* OSXSAVE */
		return;
	__asm__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
	handover_xsave_mask = a & XSAVE_MASK;
}

/* Before main, or when another module's constructor has something to say. */
void handover_start(char **environment)
{
	static bool is_started;
	if (is_started)
		return;
	is_started = true;
	find_registers();
	handover_threads_start();
	handover_configure(environment);
	if (handover_config.is_on)
		handover_patch_new_modules();
}

static __attribute__((constructor)) void start(int count, char **arguments, char **environment)
{
	(void)count, (void)arguments;
	handover_start(environment);
}

static __attribute__((destructor)) void end(void)
{
	handover_finish();
}

/* Calls dlopen() of the C library. Found without a path, a file is looked for as this library
 * would, not as its caller. */
void *handover_dlopen_untraced(const char *path, int flags)
{
	static void *(*real)(const char *, int);
	if (!real)
		real = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
	return real ? real(path, flags) : NULL;
}

/* A module that is opened later has functions too. */
EXPORT void *dlopen(const char *path, int flags)
{
	void *opened = handover_dlopen_untraced(path, flags);
	if (opened && handover_config.is_on)
		handover_functions_more();
	return opened;
}

/* The next module may be loaded at the same addresses, and its constructors run before dlopen()
 * returns. */
EXPORT int dlclose(void *opened)
{
	static int (*real)(void *);
	if (!real)
		real = (int (*)(void *))dlsym(RTLD_NEXT, "dlclose");
	int result = real ? real(opened) : -1;
	if (handover_config.is_on)
		handover_forget_unloaded();
	return result;
}
