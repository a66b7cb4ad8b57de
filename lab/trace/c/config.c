/* What to record, as the environment says; and saying things. */
#include "recorder.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct config handover_config;

static const char *variable(char **environment, const char *name)
{
	size_t bytes = strlen(name);
	for (; environment && *environment; environment++)
		if (!strncmp(*environment, name, bytes) && (*environment)[bytes] == '=')
			return *environment + bytes + 1;
	return NULL;
}

/* Bytes of the character that begins here: `?` stands for a whole one. */
static size_t character(const char *text)
{
	size_t bytes = 1;
	while (((unsigned char)text[bytes] & 0xc0) == 0x80)
		bytes++;
	return bytes;
}

/* As handover_probe::matches does it, with one part of a pattern. */
static bool glob(const char *p, const char *p_end, const char *n)
{
	const char *star = NULL, *star_n = NULL;
	while (*n) {
		if (p < p_end && *p == '*') {
			star = p++;
			star_n = n;
		} else if (p < p_end && *p == '?') {
			p++;
			n += character(n);
		} else if (p < p_end && *p == *n) {
			p++;
			n++;
		} else if (star) {
			p = star + 1;
			n = ++star_n;
		} else {
			return false;
		}
	}
	while (p < p_end && *p == '*')
		p++;
	return p == p_end;
}

bool handover_matches(const char *pattern, const char *name)
{
	bool decided = false, is_first = true;
	while (*pattern) {
		const char *end = strchrnul(pattern, ','), *stop = end;
		while (pattern < stop && *pattern == ' ')
			pattern++;
		while (stop > pattern && stop[-1] == ' ')
			stop--;
		if (pattern < stop) {
			bool excludes = *pattern == '-';
			if (is_first)
				decided = excludes;
			is_first = false;
			if (glob(pattern + excludes, stop, name))
				decided = !excludes;
		}
		pattern = *end ? end + 1 : end;
	}
	return decided;
}

void handover_say(const char *format, ...)
{
	char text[1024];
	va_list arguments;
	va_start(arguments, format);
	int bytes = vsnprintf(text, sizeof text - 1, format, arguments);
	va_end(arguments);
	if (bytes < 0)
		return;
	if ((size_t)bytes > sizeof text - 2)
		bytes = sizeof text - 2;
	text[bytes] = '\n';
	/* Nobody is left to be told that stderr is closed. */
	ssize_t written = write(STDERR_FILENO, text, bytes + 1);
	(void)written;
}

void handover_log(const char *format, ...)
{
	if (!handover_config.log[0])
		return;
	char text[1024];
	va_list arguments;
	va_start(arguments, format);
	int bytes = vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	if (bytes < 0 || (size_t)bytes >= sizeof text)
		return;
	int file = open(handover_config.log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	if (file >= 0) {
		/* Without it, its reader knows less: no more than that. */
		ssize_t written = write(file, text, bytes);
		(void)written;
		close(file);
	}
}

/* Through a mapping: that needs no room where there is none any more. */
void handover_tell_failure(int error)
{
	int file = handover_config.failure[0] ? open(handover_config.failure, O_RDWR | O_CLOEXEC) : -1;
	if (file < 0)
		return;
	int *word = mmap(NULL, sizeof *word, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (word != MAP_FAILED) {
		*word = error;
		munmap(word, sizeof *word);
	}
	close(file);
}

static void copy(char *to, const char *from)
{
	snprintf(to, PATH_BYTES, "%s", from);
}

/* What `handover trace record` has written: a line for each setting. */
static bool read_settings(const char *folder)
{
	static char text[8 * PATH_BYTES];
	struct config *config = &handover_config;
	char path[PATH_BYTES];
	if ((size_t)snprintf(path, sizeof path, "%s/settings", folder) >= sizeof path)
		return false;
	int file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return false;
	ssize_t bytes = read(file, text, sizeof text - 1);
	close(file);
	if (bytes <= 0)
		return false;
	text[bytes] = 0;
	snprintf(config->log, sizeof config->log, "%s/log", folder);
	snprintf(config->failure, sizeof config->failure, "%s/failure", folder);
	char *rest = text, *line;
	while ((line = strsep(&rest, "\n"))) {
		char *value = strchr(line, '=');
		if (!value)
			continue;
		*value++ = 0;
		if (!strcmp(line, "file"))
			copy(config->file, value);
		else if (!strcmp(line, "rings"))
			copy(config->rings, value);
		else if (!strcmp(line, "include"))
			copy(config->include, value);
		else if (!strcmp(line, "exclude"))
			copy(config->exclude, value);
		else if (!strcmp(line, "ring_bytes"))
			config->ring_words = strtoull(value, NULL, 10) / 8;
		else if (!strcmp(line, "depth"))
			config->depth = strtoull(value, NULL, 10);
		else if (!strcmp(line, "min_ns"))
			config->min_ns = strtoull(value, NULL, 10);
		else if (!strcmp(line, "wait_ns"))
			config->wait_ns = strtoull(value, NULL, 10);
		else if (!strcmp(line, "ticks_hz"))
			config->ticks_hz = strtod(value, NULL);
	}
	config->overwrites = !config->rings[0];
	return config->file[0] != 0;
}

/* Without `handover trace record`: newest events, into a file of a fixed size. */
static bool read_variables(char **environment)
{
	struct config *config = &handover_config;
	const char *pattern = variable(environment, "HANDOVER_TRACE");
	if (!pattern || !*pattern)
		return false;
	const char *policy = variable(environment, "HANDOVER_TRACE_POLICY");
	if (policy && strcmp(policy, "last")) {
		handover_say("handover-trace: HANDOVER_TRACE_POLICY=%s: a C program records only with \"last\" "
			     "by itself; `handover trace record` streams", policy);
		return false;
	}
	copy(config->include, pattern);
	const char *file = variable(environment, "HANDOVER_TRACE_FILE");
	if (!file)
		file = "handover.%p.trace";
	size_t at = 0;
	for (; *file && at + 24 < sizeof config->file; file++) {
		if (file[0] == '%' && file[1] == 'p')
			at += sprintf(config->file + at, "%d", getpid()), file++;
		else
			config->file[at++] = *file;
	}
	config->file[at] = 0;
	const char *ring = variable(environment, "HANDOVER_TRACE_RING");
	config->ring_words = (ring ? strtoull(ring, NULL, 10) : 1 << 20) / 8;
	config->overwrites = true;
	return true;
}

/* The counter's rate, from some milliseconds of it. */
static double measured_hz(void)
{
	struct timespec begin, now;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	uint64_t first = handover_ticks();
	double ns;
	do {
		clock_gettime(CLOCK_MONOTONIC, &now);
		ns = (now.tv_sec - begin.tv_sec) * 1e9 + (now.tv_nsec - begin.tv_nsec);
	} while (ns < 5e6);
	return (handover_ticks() - first) / ns * 1e9;
}

static void read_boot(void)
{
	char text[64];
	int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return;
	ssize_t bytes = read(file, text, sizeof text);
	close(file);
	unsigned digits = 0;
	for (ssize_t at = 0; at < bytes; at++) {
		const char *all = "0123456789abcdef", *digit = text[at] ? strchr(all, text[at]) : NULL;
		if (digit && digits < 32) {
			uint64_t *half = &handover_config.boot[digits / 16];
			*half = *half << 4 | (uint64_t)(digit - all);
			digits++;
		}
	}
}

static void complete(void)
{
	struct config *config = &handover_config;
	uint64_t words = 1024;
	while (words < config->ring_words && words < (uint64_t)1 << 29)
		words <<= 1;
	config->ring_words = words;
	if (!(config->ticks_hz > 0))
		config->ticks_hz = measured_hz();
	config->min_ticks = (uint64_t)(config->min_ns * (config->ticks_hz / 1e9));
	config->wait_ticks = (uint64_t)(config->wait_ns * (config->ticks_hz / 1e9));
	if (!config->depth || config->depth > DEPTH_MAX - 1)
		config->depth = DEPTH_MAX - 1;
	read_boot();
	/* Release: pairs with nothing but order in this thread; others attach after they have seen it. */
	__atomic_store_n(&config->is_on, true, __ATOMIC_RELEASE);
}

void handover_configure(char **environment)
{
	struct config *config = &handover_config;
	const char *folder = variable(environment, "HANDOVER_TRACE_RECORD");
	const char *probes = variable(environment, "HANDOVER_TRACE");
	bool is_on = folder && *folder ? read_settings(folder) : read_variables(environment);
	copy(config->probes, probes ? probes : "");
	if (is_on)
		complete();
}

bool handover_configure_last(const char *file, uint64_t ring_bytes)
{
	struct config *config = &handover_config;
	if (!handover_lock())
		return false;
	if (!config->is_on) {
		copy(config->file, file);
		config->overwrites = true;
		config->ring_words = (ring_bytes ? ring_bytes : 1 << 20) / 8;
		complete();
	}
	handover_unlock();
	return true;
}
