/* Rings in a file: the format of handover_probe::format and ::lane, written from C. The numbers are
 * generated from handover_probe::layout by build.rs. */
#include "recorder.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define FUNCTIONS_EACH 4096
#define LANES_MAX 65536

/* The file, once there is one. */
static struct {
	bool is_made;
	bool has_failed;
	char path[PATH_BYTES + 32];
	uint64_t end;
	/* Its header, mapped. */
	uint64_t *header;
	uint64_t lanes;
	/* The parts of the list of functions, mapped. */
	uint64_t *functions[(FUNCTIONS_MAX + 1) / FUNCTIONS_EACH];
	uint32_t sites_count;
	uint32_t functions_written;
	uint32_t modules_written;
	/* Lanes whose threads have gone. */
	struct old_lane { uint64_t *page, recorded, lost; } *old;
	uint32_t old_count, old_room;
} file;

static uint64_t threads_refused;
static int lock_word;
static __thread bool is_mine __attribute__((tls_model("initial-exec")));

bool handover_lock(void)
{
	if (is_mine)
		return false;
	/* First: a signal's handler in between would wait for its own thread. */
	is_mine = true;
	/* Acquire: pairs with the release in handover_unlock(). */
	while (__atomic_exchange_n(&lock_word, 1, __ATOMIC_ACQUIRE))
		sched_yield();
	return true;
}

void handover_unlock(void)
{
	__atomic_store_n(&lock_word, 0, __ATOMIC_RELEASE);
	is_mine = false;
}

void handover_lock_forget(void)
{
	lock_word = 0;
	is_mine = false;
}

/* --- the format --- */

static uint64_t mix(uint64_t hash, uint64_t word)
{
	unsigned __int128 product = (unsigned __int128)(hash ^ word ^ MIX) * MIX;
	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

uint64_t handover_checksum(const uint8_t *bytes, size_t count)
{
	uint64_t hash = count, word;
	size_t at = 0;
	for (; at + 8 <= count; at += 8) {
		memcpy(&word, bytes + at, 8);
		hash = mix(hash, word);
	}
	word = 0;
	memcpy(&word, bytes + at, count - at);
	return mix(hash, word);
}

static uint64_t checksum_of_words(const uint64_t *words, size_t count)
{
	uint64_t hash = MIX;
	for (size_t at = 0; at < count; at++)
		hash = mix(hash, words[at]);
	return hash;
}

static void segment_encode(uint64_t *to, uint32_t kind, uint64_t bytes, uint64_t payload_checksum,
			   const uint64_t words[8])
{
	to[0] = SEGMENT_MAGIC | (uint64_t)kind << 32;
	to[1] = bytes;
	to[2] = payload_checksum;
	memcpy(to + 3, words, 64);
	to[SEGMENT_WORDS - 1] = checksum_of_words(to, SEGMENT_WORDS - 1);
}

/* --- the file --- */

/* Blocks all signals but those of faults. SIGXFSZ would end the program when a file grows beyond
 * its limit, and any other signal interrupts a long allocation in memory, which would start
 * anew. */
static void hold_signals(sigset_t *before)
{
	sigset_t set;
	sigfillset(&set);
	sigdelset(&set, SIGBUS);
	sigdelset(&set, SIGSEGV);
	sigdelset(&set, SIGFPE);
	sigdelset(&set, SIGILL);
	pthread_sigmask(SIG_BLOCK, &set, before);
}

static void let_signals(const sigset_t *before)
{
	sigset_t set;
	struct timespec now = { 0, 0 };
	if (!sigismember(before, SIGXFSZ)) {
		sigemptyset(&set);
		sigaddset(&set, SIGXFSZ);
		while (sigtimedwait(&set, NULL, &now) > 0)
			;
	}
	pthread_sigmask(SIG_SETMASK, before, NULL);
}

static bool failed(int error)
{
	if (!file.has_failed) {
		file.has_failed = true;
		handover_tell_failure(error);
		if (file.header) {
			file.header[H_ERRNO] = error;
			file.header[H_STATE] = STATE_FAILED;
		}
	}
	return false;
}

static bool write_all(int fd, const void *bytes, size_t count, uint64_t offset)
{
	const char *from = bytes;
	while (count) {
		ssize_t done = pwrite(fd, from, count, offset);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return failed(done ? errno : ENOSPC);
		from += done;
		count -= done;
		offset += done;
	}
	return true;
}

/* Room on the disk behind a stretch, so that touching it when it is mapped cannot fail. */
static bool reserve(int fd, uint64_t offset, uint64_t bytes)
{
	long result;
	do
		result = syscall(SYS_fallocate, fd, 0, offset, bytes);
	while (result && errno == EINTR);
	if (!result)
		return true;
	if (errno != EOPNOTSUPP && errno != ENOSYS)
		return failed(errno);
	static const char zeroes[PAGE];
	for (uint64_t at = 0; at < bytes; at += PAGE)
		if (!write_all(fd, zeroes, PAGE, offset + at))
			return false;
	return true;
}

static uint64_t ns_of(clockid_t clock)
{
	struct timespec now;
	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void anchor(uint64_t words[3])
{
	uint64_t best = UINT64_MAX;
	for (int try = 0; try < 5; try++) {
		uint64_t before = handover_ticks(), ns = ns_of(CLOCK_MONOTONIC), width = handover_ticks() - before;
		if (width < best) {
			best = width;
			words[0] = before + width / 2;
			words[1] = ns;
		}
	}
	words[2] = ns_of(CLOCK_REALTIME);
}

/* The time at which the process started, in clock ticks since the boot; 0 if it cannot be read. */
static uint64_t process_start(void)
{
	char text[512];
	int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
	ssize_t bytes = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
	if (fd >= 0)
		close(fd);
	text[bytes > 0 ? bytes : 0] = 0;
	/* The program's name, in parentheses, is the second field and may contain spaces. */
	const char *field = strrchr(text, ')');
	for (int number = 3; field && number <= 22; number++)
		field = strchr(field + 1, ' ');
	return field ? strtoull(field, NULL, 10) : 0;
}

/* A stretch of the file, mapped; MAP_FAILED where that cannot be done. */
static void *map(int fd, uint64_t offset, uint64_t bytes, int flags)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | flags, fd, offset);
	if (memory == MAP_FAILED || handover_bus_watch(memory, bytes))
		return memory;
	munmap(memory, bytes);
	return MAP_FAILED;
}

static int open_file(void)
{
	int fd = open(file.path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		failed(errno);
	return fd;
}

/* The first who records in `file` has it; others have one beside it, with their number. */
static int create(uint64_t session)
{
	const struct config *config = &handover_config;
	const int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
	int fd = -1;
	if (!config->overwrites) {
		snprintf(file.path, sizeof file.path, "%s/%d.%016lx", config->rings, getpid(), session);
		fd = open(file.path, flags, 0600);
		goto made;
	}
	snprintf(file.path, sizeof file.path, "%s", config->file);
	fd = open(file.path, flags, 0644);
	for (int again = 1; fd < 0 && errno == EEXIST && again < 1000; again++) {
		if (again == 1)
			snprintf(file.path, sizeof file.path, "%s.%d", config->file, getpid());
		else
			snprintf(file.path, sizeof file.path, "%s.%d.%d", config->file, getpid(), again);
		fd = open(file.path, flags, 0644);
	}
made:
	if (fd < 0)
		failed(errno);
	return fd;
}

static bool make_file(void)
{
	if (file.is_made || file.has_failed)
		return file.is_made;
	static uint64_t page[PAGE / 8];
	memset(page, 0, sizeof page);
	uint64_t begin[3];
	anchor(begin);
	uint64_t session = (begin[0] ^ (uint64_t)getpid() << 40 ^ begin[2] << 8) | 1;
	page[H_MAGIC] = MAGIC;
	page[H_KIND] = FILE_RINGS;
	page[H_SESSION] = session;
	page[H_PIDS] = (uint32_t)getpid() | (uint64_t)(uint32_t)getppid() << 32;
	page[H_IS_TSC] = 1;
	memcpy(page + H_TICKS_HZ, &handover_config.ticks_hz, 8);
	memcpy(page + H_BEGIN, begin, 24);
	page[H_BOOT] = handover_config.boot[0];
	page[H_BOOT + 1] = handover_config.boot[1];
	page[H_RING_WORDS] = handover_config.ring_words;
	page[H_PROCESS_START] = process_start();
	page[H_CHECKSUM] = checksum_of_words(page, H_CHECKSUM);
	memcpy(page + H_END, begin, 24);
	ssize_t bytes = readlink("/proc/self/exe", (char *)page + H_PROGRAM, H_RINGS - H_PROGRAM - 1);
	(void)bytes;
	int fd = create(session);
	if (fd < 0)
		return false;
	void *header = MAP_FAILED;
	if (reserve(fd, 0, PAGE))
		header = map(fd, 0, PAGE, 0);
	close(fd);
	if (header == MAP_FAILED) {
		unlink(file.path);
		return failed(errno);
	}
	file.header = header;
	/* The first word last: who looks meanwhile sees no file yet. */
	memcpy(file.header + 1, page + 1, PAGE - 8);
	__atomic_store_n(file.header, page[0], __ATOMIC_RELEASE);
	file.end = PAGE;
	file.is_made = true;
	for (uint32_t module = 0; module < handover_modules_count; module++)
		handover_file_module(module);
	for (uint32_t number = 1; number <= handover_functions_count; number++)
		handover_file_function(number);
	handover_file_sites();
	return true;
}

/* Here, or where the rings are emptied. */
static bool has_failed(void)
{
	return file.has_failed || handover_bus_is_cut() ||
	       (file.header && __atomic_load_n(&file.header[H_STATE], __ATOMIC_RELAXED) == STATE_FAILED);
}

static bool is_closed(void)
{
	return file.header && __atomic_load_n(&file.header[H_CLOSED], __ATOMIC_RELAXED);
}

/* A segment around `bytes` of payload, up to the next page. */
static void add_segment(uint32_t kind, const uint8_t *payload, size_t bytes)
{
	if (!file.is_made || file.has_failed || is_closed())
		return;
	size_t all = (SEGMENT_BYTES + bytes + PAGE - 1) & ~(size_t)(PAGE - 1);
	uint8_t *whole = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (whole == MAP_FAILED)
		return;
	uint64_t words[8] = { bytes };
	segment_encode((uint64_t *)whole, kind, all, handover_checksum(payload, bytes), words);
	memcpy(whole + SEGMENT_BYTES, payload, bytes);
	sigset_t before;
	hold_signals(&before);
	int fd = open_file();
	if (fd >= 0 && write_all(fd, whole, all, file.end))
		file.end += all;
	if (fd >= 0)
		close(fd);
	let_signals(&before);
	munmap(whole, all);
}

/* Number, distance of its addresses from its file's, extent, build id, path. */
void handover_file_module(uint32_t index)
{
	const struct module *module = &handover_modules[index];
	uint8_t payload[1024], *to = payload;
	size_t path_bytes = strlen(module->path);
	if (!file.is_made || index < file.modules_written)
		return;
	file.modules_written = index + 1;
	to = handover_put_varint(to, index);
	to = handover_put_varint(to, module->bias);
	to = handover_put_varint(to, module->start);
	to = handover_put_varint(to, module->end);
	to = handover_put_varint(to, module->build_id_bytes);
	to = mempcpy(to, module->build_id, module->build_id_bytes);
	to = handover_put_varint(to, path_bytes);
	to = mempcpy(to, module->path, path_bytes);
	add_segment(SEGMENT_MODULES, payload, to - payload);
}

/* A table of addresses, of which one page says from which number on, mapped so that a word can be
 * added. */
void handover_file_function(uint32_t number)
{
	const struct function *function = &handover_functions[number];
	if (!file.is_made || !function->address)
		return;
	uint32_t part = number / FUNCTIONS_EACH;
	if (!file.functions[part]) {
		if (file.has_failed || is_closed())
			return;
		const uint64_t bytes = PAGE + FUNCTIONS_EACH * 8;
		sigset_t before;
		hold_signals(&before);
		int fd = open_file();
		void *memory = MAP_FAILED;
		if (fd >= 0 && reserve(fd, file.end, bytes))
			memory = map(fd, file.end, bytes, 0);
		if (fd >= 0)
			close(fd);
		let_signals(&before);
		if (memory == MAP_FAILED)
			return;
		uint64_t words[8] = { (uint64_t)part * FUNCTIONS_EACH, FUNCTIONS_EACH };
		segment_encode(memory, SEGMENT_FUNCTIONS, bytes, 0, words);
		file.functions[part] = (uint64_t *)memory + PAGE / 8;
		file.end += bytes;
	}
	uint64_t offset = function->address - handover_modules[function->module].bias;
	uint64_t word = FUNCTION_IS_SET | (uint64_t)function->module << MODULE_SHIFT |
			(offset & (((uint64_t)1 << MODULE_SHIFT) - 1));
	__atomic_store_n(&file.functions[part][number % FUNCTIONS_EACH], word, __ATOMIC_RELEASE);
}

/* The probes that have become known since. */
void handover_file_sites(void)
{
	uint32_t count = handover_probes_count();
	if (!file.is_made || count == file.sites_count)
		return;
	size_t bytes = handover_probes_encode(NULL, file.sites_count);
	uint8_t *payload = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (payload == MAP_FAILED)
		return;
	handover_probes_encode(payload, file.sites_count);
	add_segment(SEGMENT_SITES, payload, bytes);
	munmap(payload, bytes);
	file.sites_count = count;
}

/* --- lanes --- */

static void name_lane(struct thread *thread, uint64_t index)
{
	uint64_t words[8] = { 0 };
	char name[32] = "";
	int fd = open("/proc/thread-self/comm", O_RDONLY | O_CLOEXEC);
	ssize_t bytes = fd < 0 ? 0 : read(fd, name, sizeof name - 1);
	if (fd >= 0)
		close(fd);
	while (bytes > 0 && name[bytes - 1] == '\n')
		bytes--;
	words[L_LANE] = index;
	words[L_TID] = syscall(SYS_gettid);
	words[L_BEGIN] = handover_ticks();
	words[L_NAME_BYTES] = bytes > 0 ? bytes : 0;
	words[L_OVERWRITES] = handover_config.overwrites;
	memcpy((char *)thread->page + P_NAME, name, words[L_NAME_BYTES]);
	uint64_t header[SEGMENT_BYTES / 8];
	segment_encode(header, SEGMENT_LANE, PAGE + handover_config.ring_words * 8, 0, words);
	/* The word that makes it one is the last. */
	memcpy(thread->page + 1, header + 1, SEGMENT_BYTES - 8);
	__atomic_store_n(thread->page, header[0], __ATOMIC_RELEASE);
}

/* A lane that was emptied; with overwriting, only when there are too many. */
static bool take_old(struct thread *thread)
{
	bool may = !handover_config.overwrites || file.lanes >= LANES_MAX;
	for (uint32_t at = 0; may && at < file.old_count; at++) {
		struct old_lane old = file.old[at];
		if (!handover_config.overwrites && !__atomic_load_n(&old.page[P_FREE], __ATOMIC_ACQUIRE))
			continue;
		if (handover_config.overwrites) {
			file.header[H_OVERWRITTEN] += old.recorded;
			file.header[H_LOST] += old.lost;
		}
		file.old[at] = file.old[--file.old_count];
		__atomic_store_n(old.page, 0, __ATOMIC_RELEASE);
		memset(old.page, 0, PAGE + handover_config.ring_words * 8);
		thread->page = old.page;
		return true;
	}
	return false;
}

static bool take_new(struct thread *thread)
{
	const uint64_t bytes = PAGE + handover_config.ring_words * 8;
	int fd = open(file.path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		/* Without a free descriptor this thread has no ring, and later threads may have one. */
		return errno == EMFILE || errno == ENFILE ? false : failed(errno);
	void *memory = MAP_FAILED;
	if (reserve(fd, file.end, bytes)) {
		memory = map(fd, file.end, bytes, MAP_POPULATE);
		if (memory == MAP_FAILED)
			failed(errno);
	} else if (ftruncate(fd, file.end)) {
		/* What is left of the attempt is passed over by readers. */
	}
	close(fd);
	if (memory == MAP_FAILED)
		return false;
	thread->page = memory;
	file.end += bytes;
	return true;
}

bool handover_lane_take(struct thread *thread)
{
	if (!handover_lock())
		return false;
	sigset_t before;
	hold_signals(&before);
	bool has = !file.has_failed && make_file() && !is_closed() && (take_old(thread) || take_new(thread));
	if (has) {
		thread->ring = thread->page + PAGE / 8;
		thread->blocks = thread->recorded = thread->lost = thread->values = thread->waited = 0;
		thread->cursor = thread->limit = NULL;
		name_lane(thread, file.lanes++);
	} else if (file.header && !is_closed()) {
		file.header[H_REFUSED] = ++threads_refused;
	}
	let_signals(&before);
	handover_unlock();
	return has;
}

static uint64_t *block_start(const struct thread *thread)
{
	return (uint64_t *)(((uintptr_t)thread->limit - 8) & ~(uintptr_t)(BLOCK_BYTES - 1));
}

/* Counts what the current block has; it is read no further. */
static void close_block(struct thread *thread)
{
	if (!thread->blocks)
		return;
	uint64_t *end = thread->limit ? thread->limit : thread->cursor;
	uint64_t *cursor = thread->cursor < end ? thread->cursor : end;
	uint64_t *first = block_start(thread) + BLOCK_HEADER_BYTES / 8;
	if (thread->limit && cursor > first)
		thread->recorded += (uint64_t)(cursor - first) - thread->values;
	thread->values = 0;
	thread->limit = thread->cursor = NULL;
}

static void note(struct thread *thread)
{
	__atomic_store_n(&thread->page[P_RECORDED], thread->recorded, __ATOMIC_RELAXED);
	__atomic_store_n(&thread->page[P_LOST], thread->lost, __ATOMIC_RELAXED);
}

static bool is_full(const struct thread *thread)
{
	/* Acquire: pairs with whoever has read the block that is overwritten. */
	uint64_t drained = __atomic_load_n(&thread->page[P_DRAINED], __ATOMIC_ACQUIRE);
	return thread->blocks - drained >= handover_config.ring_words / (BLOCK_BYTES / 8);
}

/* Holds the thread up until its ring has room, what it waits for is over, or that takes too
 * long. */
static void wait_for_room(struct thread *thread)
{
	const struct timespec step = { 0, 20000 };
	const uint64_t begin = handover_ticks();
	const int kept = errno;
	/* A signal's handler that waits meanwhile adds to it: that is part of this wait. */
	const uint64_t waited = thread->waited;
	bool has_slept = false;
	while (thread->page && is_full(thread) && !thread->has_waited_in_vain && !is_closed() && !has_failed()) {
		if (handover_ticks() - begin > handover_config.wait_ticks)
			thread->has_waited_in_vain = true;
		else {
			/* No place where a thread is cancelled, unlike nanosleep(). */
			syscall(SYS_nanosleep, &step, NULL);
			has_slept = true;
		}
	}
	if (thread->page && has_slept) {
		thread->waited = waited + (handover_ticks() - begin);
		thread->page[P_WAITED_NS] = (uint64_t)(thread->waited / handover_config.ticks_hz * 1e9);
	}
	errno = kept;
}

/* false when there is no room, or nothing is recorded any more. */
static bool begin_block(struct thread *thread, uint64_t now)
{
	if (!thread->page && !handover_lane_take(thread))
		return handover_count_lost(1), false;
	const uint64_t words = BLOCK_BYTES / 8, blocks_max = handover_config.ring_words / words;
	close_block(thread);
	note(thread);
	if (is_closed())
		return false;
	if (handover_bus_is_cut()) {
		failed(ENODATA);
		return handover_count_lost(1), false;
	}
	if (!handover_config.overwrites && (is_full(thread) || has_failed())) {
		thread->lost++;
		note(thread);
		return false;
	}
	thread->has_waited_in_vain = false;
	uint64_t *start = thread->ring + (thread->blocks % blocks_max) * words;
	/* The number first: who reads meanwhile finds no block rather than a mixture. */
	__atomic_store_n(start, 0, __ATOMIC_RELEASE);
	memset(start, 0, BLOCK_BYTES);
	start[1] = now;
	start[2] = thread->recorded;
	start[3] = thread->lost;
	__atomic_store_n(start, thread->blocks + 1, __ATOMIC_RELEASE);
	thread->blocks++;
	thread->base = now;
	thread->cursor = thread->plain = start + BLOCK_HEADER_BYTES / 8;
	thread->limit = start + words;
	return true;
}

/* In the block that has begun; false when it is full, or too long ago. */
static bool put_event(struct thread *thread, uint64_t now, uint64_t code, const uint64_t *values, unsigned count)
{
	uint64_t delta = now - thread->base;
	/* Another CPU's counter may be behind by a hair: no time has passed, then. */
	if (thread->limit && (int64_t)delta < 0)
		delta = 0;
	if (delta >> DELTA_BITS)
		return false;
	uint64_t *at = handover_claim(thread, 1 + count);
	if (at + 1 + count > thread->limit) {
		/* Given back, unless somebody else was here meanwhile. */
		if (thread->cursor == at + 1 + count)
			thread->cursor = at;
		return false;
	}
	thread->values += count;
	if (count && thread->plain < at + 1 + count)
		thread->plain = at + 1 + count;
	for (unsigned value = 0; value < count; value++)
		at[1 + value] = values[value];
	/* Release: the values are there before what says that they are. */
	__atomic_store_n(at, delta << CODE_BITS | code | count, __ATOMIC_RELEASE);
	return true;
}

void handover_event_values(struct thread *thread, uint64_t code, const uint64_t *values, unsigned count)
{
	if (put_event(thread, handover_ticks(), code, values, count))
		return;
	/* Signals come through meanwhile, and may record what they call. */
	if (handover_config.wait_ticks && !handover_config.overwrites)
		wait_for_room(thread);
	/* A block is begun undisturbed: a signal's handler would find half of one. But a fault that is
	 * blocked would end the program: see bus.c. */
	uint64_t all = ~((uint64_t)1 << (SIGBUS - 1)), before;
	syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, &before, sizeof all);
	uint64_t now = handover_ticks();
	if (!put_event(thread, now, code, values, count) && begin_block(thread, now))
		put_event(thread, now, code, values, count);
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof all);
}

void handover_event(struct thread *thread, uint64_t code)
{
	handover_event_values(thread, code, NULL, 0);
}

/* The thread ends. */
void handover_lane_give(struct thread *thread)
{
	if (!thread->page)
		return;
	close_block(thread);
	note(thread);
	__atomic_store_n(&thread->page[P_END], handover_ticks(), __ATOMIC_RELEASE);
	if (!handover_lock())
		return handover_lane_forget(thread);
	if (file.old_count == file.old_room) {
		uint32_t room = file.old_room ? 2 * file.old_room : 256;
		void *more = mmap(NULL, room * sizeof *file.old, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (more != MAP_FAILED) {
			if (file.old) {
				memcpy(more, file.old, file.old_count * sizeof *file.old);
				munmap(file.old, file.old_room * sizeof *file.old);
			}
			file.old = more;
			file.old_room = room;
		}
	}
	if (file.old_count < file.old_room) {
		struct old_lane old = { thread->page, thread->recorded, thread->lost };
		file.old[file.old_count++] = old;
	}
	handover_unlock();
	handover_lane_forget(thread);
}

void handover_lane_forget(struct thread *thread)
{
	thread->page = thread->ring = NULL;
	thread->cursor = thread->limit = NULL;
	thread->blocks = thread->recorded = thread->lost = thread->values = thread->waited = 0;
	thread->base = 0;
}

void handover_count_lost(uint64_t count)
{
	if (file.header)
		__atomic_add_fetch(&file.header[H_LOST], count, __ATOMIC_RELAXED);
}

/* The rings are the parent's: the child begins a file of its own at its first event. */
void handover_lanes_fork(void)
{
	memset(&file, 0, sizeof file);
	handover_bus_fork();
	threads_refused = 0;
}

/* The process ends in order. What happens from here on is recorded still. */
void handover_finish(void)
{
	if (!file.is_made)
		return;
	anchor(file.header + H_END);
	if (handover_bus_is_cut())
		failed(ENODATA);
	if (file.header[H_STATE] == STATE_RECORDING)
		file.header[H_STATE] = STATE_FINISHED;
}
