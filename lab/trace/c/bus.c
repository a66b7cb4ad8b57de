/* Going on when a mapped file is cut short: the kernel sends SIGBUS to whoever touches what is
 * gone. As handover_probe does it in raw/sigbus.rs. */
#include "recorder.h"
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>

/* Mapped stretches of files, which stay mapped: only ever added. */
#define RANGES_EACH 255
struct ranges {
	struct ranges *before;
	size_t count;
	struct range { uintptr_t start; size_t bytes; } all[RANGES_EACH];
};
static struct ranges *last;
static bool is_cut;
static struct sigaction action_before;

/* Memory of our own in the place of the file's stretch that holds the address. */
static bool replace(uintptr_t at)
{
	/* Acquire, twice: pairs with the releases in handover_bus_watch(). */
	for (struct ranges *ranges = __atomic_load_n(&last, __ATOMIC_ACQUIRE); ranges; ranges = ranges->before) {
		size_t count = __atomic_load_n(&ranges->count, __ATOMIC_ACQUIRE);
		for (size_t index = 0; index < count; index++) {
			struct range range = ranges->all[index];
			if (at - range.start >= range.bytes)
				continue;
			/* First: what is stored from now on reaches nobody. */
			__atomic_store_n(&is_cut, true, __ATOMIC_RELAXED);
			return mmap((void *)range.start, range.bytes, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
		}
	}
	return false;
}

static void on_fault(int signal, siginfo_t *info, void *context)
{
	const int kept = errno;
	/* Negative or zero when another process has sent it: it has no address then. */
	const bool is_fault = info->si_code > 0;
	if (is_fault && replace((uintptr_t)info->si_addr)) {
		errno = kept;
		return;
	}
	errno = kept;
	/* As if this handler had not been there. */
	if (action_before.sa_flags & SA_SIGINFO) {
		action_before.sa_sigaction(signal, info, context);
	} else if (action_before.sa_handler == SIG_DFL || (action_before.sa_handler == SIG_IGN && is_fault)) {
		/* A fault comes again when this handler returns. */
		struct sigaction action = { .sa_handler = SIG_DFL };
		sigaction(signal, &action, NULL);
		if (!is_fault)
			raise(signal);
	} else if (action_before.sa_handler != SIG_IGN) {
		action_before.sa_handler(signal);
	}
}

bool handover_bus_watch(void *start, size_t bytes)
{
	static bool is_installed;
	if (!is_installed) {
		if (sigaction(SIGBUS, NULL, &action_before))
			return false;
		struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK };
		if (sigaction(SIGBUS, &action, NULL))
			return false;
		is_installed = true;
	}
	struct ranges *ranges = last;
	if (!ranges || ranges->count == RANGES_EACH) {
		ranges = mmap(NULL, sizeof *ranges, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (ranges == MAP_FAILED)
			return false;
		ranges->before = last;
		/* Release: pairs with the acquire in replace(); its link and its count of 0 are there. */
		__atomic_store_n(&last, ranges, __ATOMIC_RELEASE);
	}
	ranges->all[ranges->count] = (struct range){ (uintptr_t)start, bytes };
	/* Release: pairs with the acquire in replace(); the range is there. */
	__atomic_store_n(&ranges->count, ranges->count + 1, __ATOMIC_RELEASE);
	return true;
}

bool handover_bus_is_cut(void)
{
	return __atomic_load_n(&is_cut, __ATOMIC_RELAXED);
}

void handover_bus_fork(void)
{
	__atomic_store_n(&is_cut, false, __ATOMIC_RELAXED);
}
