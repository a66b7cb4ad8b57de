/* The sites of handover_probe.h: their numbers, their switching, and what they record. */
#define HANDOVER_PROBE_LIBRARY
#include "recorder.h"
#include "handover_probe.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define OFF 0xa9
#define ON 0xe9
#define STATE_OFF 1
#define STATE_ON 2
#define KIND_CONTROL 255
#define VERSION 1
#define WISHES_BYTES 1024
#define CHECKSUM_BYTES 17

/* Where another process leaves its wishes; see handover_probe::remote. It is found by its entry. */
__attribute__((visibility("hidden"), used)) struct {
	struct handover_probe_meta meta;
	char text[WISHES_BYTES];
} handover_control = { { 0, 0, STATE_OFF, KIND_CONTROL, 0, VERSION, WISHES_BYTES, 0 }, "" };

__asm__(".pushsection handover_probes,\"aR\",@progbits\n\t"
	".balign 4\n\t"
	".long 0\n\t"
	".long handover_control - .\n\t"
	".popsection");

static struct handover_probe_meta **sites;
static uint32_t sites_count, sites_room;

uint32_t handover_probes_count(void)
{
	return sites_count;
}

static const char *texts_of(const struct handover_probe_meta *meta)
{
	return (const char *)(meta + 1);
}

/* Numbers a site that was not known, unless no number or no memory is left. */
static void add_site(struct handover_probe_meta *meta)
{
	if (sites_count == sites_room) {
		uint32_t room = sites_room ? 2 * sites_room : 512;
		void *more = mmap(NULL, room * sizeof *sites, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (more == MAP_FAILED)
			return;
		if (sites) {
			memcpy(more, sites, sites_count * sizeof *sites);
			munmap(sites, sites_room * sizeof *sites);
		}
		sites = more;
		sites_room = room;
	}
	uint32_t number = handover_number_new(0, 0);
	if (!number)
		return;
	meta->code = number << 2;
	sites[sites_count++] = meta;
}

/* One byte, which no thread can see half of. */
static void flip(uint8_t *at, uint8_t to)
{
	int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	bool done = memory >= 0 && pwrite(memory, &to, 1, (off_t)(uintptr_t)at) == 1;
	if (memory >= 0)
		close(memory);
	void *page = (void *)((uintptr_t)at & ~(uintptr_t)(PAGE - 1));
	if (!done && !mprotect(page, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC)) {
		*at = to;
		mprotect(page, PAGE, PROT_READ | PROT_EXEC);
	}
}

/* Adds a reference to the object that contains `address`, so that dlclose() does not unload it. The
 * loader finds no object with the name of the program, which is never unloaded; the program does
 * not see that error. */
static void keep_loaded(const void *address)
{
	Dl_info object;
	if (dladdr(address, &object) &&
	    !handover_dlopen_untraced(object.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE))
		dlerror();
}

EXPORT void handover_probe_register(const struct handover_probe_entry *begin, const struct handover_probe_entry *end)
{
	int error = errno;
	handover_start(environ);
	/* Before the lock: a constructor has taken the loader's lock before this one. */
	keep_loaded(begin);
	if (!handover_lock()) {
		errno = error;
		return;
	}
	for (const struct handover_probe_entry *entry = begin; entry < end; entry++) {
		uint8_t *at = (uint8_t *)&entry->at + entry->at;
		struct handover_probe_meta *meta = (void *)((uint8_t *)&entry->meta + entry->meta);
		if (meta->version != VERSION || meta->kind == KIND_CONTROL)
			continue;
		/* Another process may have been here before us. */
		if (!meta->state)
			meta->state = *at == ON ? STATE_ON : STATE_OFF;
		if (!meta->code)
			add_site(meta);
		char name[512];
		snprintf(name, sizeof name, "%.*s", meta->name_bytes, texts_of(meta));
		if (*at == OFF && meta->code && handover_matches(handover_config.probes, name)) {
			flip(at, ON);
			meta->state = STATE_ON;
		}
	}
	handover_file_sites();
	handover_unlock();
	errno = error;
}

size_t handover_probes_encode(uint8_t *to, uint32_t from)
{
	if (!to) {
		size_t bytes = 10;
		for (uint32_t at = from; at < sites_count; at++)
			bytes += 40 + sites[at]->name_bytes + sites[at]->file_bytes;
		return bytes;
	}
	uint8_t *begin = to;
	to = handover_put_varint(to, sites_count - from);
	for (uint32_t at = from; at < sites_count; at++) {
		const struct handover_probe_meta *meta = sites[at];
		to = handover_put_varint(to, meta->code >> 2);
		to = handover_put_varint(to, meta->line);
		to = handover_put_varint(to, meta->kind);
		to = handover_put_varint(to, meta->values_count);
		to = handover_put_varint(to, meta->name_bytes);
		to = mempcpy(to, texts_of(meta), meta->name_bytes);
		to = handover_put_varint(to, meta->file_bytes);
		to = mempcpy(to, texts_of(meta) + meta->name_bytes, meta->file_bytes);
	}
	return to - begin;
}

/* What another process has asked for, if it has: the file, the policy, the size of a ring, a line
 * each. */
static COLD bool follow_wishes(void)
{
	char text[WISHES_BYTES + 1];
	memcpy(text, handover_control.text, WISHES_BYTES);
	text[WISHES_BYTES] = 0;
	/* The last line is the checksum of those before: it may be read while it is written. */
	size_t bytes = strlen(text);
	char sum[20];
	if (bytes < CHECKSUM_BYTES)
		return false;
	snprintf(sum, sizeof sum, "%016lx\n", handover_checksum((uint8_t *)text, bytes - CHECKSUM_BYTES));
	if (strcmp(text + bytes - CHECKSUM_BYTES, sum))
		return false;
	char *rest = text, *file = strsep(&rest, "\n"), *policy = rest ? strsep(&rest, "\n") : NULL;
	if (!policy || file[0] != '/')
		return false;
	return handover_configure_last(file, rest ? strtoull(rest, NULL, 10) : 0);
}

EXPORT void handover_probe_record(struct handover_probe_meta *meta, unsigned form, uint64_t first, uint64_t second)
{
	struct thread *thread = handover_self;
	if (unlikely(!thread)) {
		int error = errno;
		if (handover_config.is_on || follow_wishes())
			thread = handover_attach();
		errno = error;
		if (!thread)
			return;
	}
	const uint64_t values[2] = { first, second };
	bool leaves = form == FORM_LEAVE;
	handover_event_values(thread, meta->code | (leaves ? FORM_LEAVE : 0), values, leaves ? 0 : form & 3);
}
