/* handover_probe.h: trace probes for C and C++ that cost a no-op while they are off.
 *
 *     HANDOVER_PROBE("parse.length", length);          an event, with up to two integers
 *     HANDOVER_SPAN("parse");                          from here to the end of the scope
 *     HANDOVER_SPAN_BEGIN("read", fd);                 from here ...
 *     HANDOVER_SPAN_END("read");                       ... to here, in the same file
 *
 * Names are string literals of letters, digits and ., :, _, -, /. Sites lie in a link section as
 * those of the Rust crate handover-probe do, and are switched in the same way: on x86-64 a site is
 * `test eax, imm32` while it is off, and `jmp rel32` while it is on, which differ in one byte; on
 * aarch64 it is `nop` and `b`.
 *
 * Nothing is recorded unless the recording library is loaded: the program was started by
 * `handover trace record -- PROG`, with the library in LD_PRELOAD and HANDOVER_TRACE=PATTERN, or
 * was linked with it (`handover trace library DIR` writes it out). Then HANDOVER_TRACE=PATTERN
 * switches sites on before main, and `handover trace on PID PATTERN` switches them on at any time.
 * libhandover records and switches sites too. Both libraries keep a shared object that has sites
 * loaded after dlclose().
 *
 * For GCC and Clang on x86-64 and aarch64 with ELF; elsewhere, and with HANDOVER_PROBE_NONE
 * defined, the macros evaluate their values and do nothing. A site is not for functions that are
 * inlined by hand-written assembly. Licence: MIT OR Apache-2.0.
 */
#ifndef HANDOVER_PROBE_H
#define HANDOVER_PROBE_H

#include <stdint.h>

#define HANDOVER_JOIN_(a, b) a##b
#define HANDOVER_JOIN(a, b) HANDOVER_JOIN_(a, b)
/* The fourth argument: selects the macro for three, two or one arguments. */
#define HANDOVER_FOURTH_(a, b, c, d, ...) d

#if (defined(__x86_64__) || defined(__aarch64__)) && defined(__ELF__) && defined(__GNUC__) && \
	!defined(HANDOVER_PROBE_NONE)

#ifdef __cplusplus
extern "C" {
#endif

/* Data of a site, followed by its name and its file's name; as handover_probe::site::SiteData. */
struct handover_probe_meta {
	uint32_t code;
	uint32_t line;
	uint8_t state;
	uint8_t kind;
	uint8_t values_count;
	uint8_t version;
	uint16_t name_bytes;
	uint16_t file_bytes;
};

/* Addresses of a site's instruction and data, and on aarch64 of the code to which it jumps while it
 * is on, each relative to its own field. */
struct handover_probe_entry {
	int32_t at;
	int32_t meta;
#ifdef __aarch64__
	int32_t target;
#endif
};

/* Functions of the recording library; null if it is not loaded. */
extern void handover_probe_record(struct handover_probe_meta *meta, unsigned form, uint64_t first, uint64_t second)
	__attribute__((weak, cold));
extern void handover_probe_register(const struct handover_probe_entry *start,
				    const struct handover_probe_entry *stop) __attribute__((weak));

extern const struct handover_probe_entry __start_handover_probes[] __attribute__((weak, visibility("hidden")));
extern const struct handover_probe_entry __stop_handover_probes[] __attribute__((weak, visibility("hidden")));

/* Attributes of functions that are not traced as those of the program, by either kind of function
 * entry. */
#ifdef __has_attribute
#if __has_attribute(patchable_function_entry)
#define HANDOVER_UNTRACED_ no_instrument_function, patchable_function_entry(0)
#endif
#endif
#ifndef HANDOVER_UNTRACED_
#define HANDOVER_UNTRACED_ no_instrument_function
#endif

#ifndef HANDOVER_PROBE_LIBRARY
static __attribute__((constructor, used, HANDOVER_UNTRACED_)) void handover_probe_register_(void)
{
	if (handover_probe_register && __start_handover_probes)
		handover_probe_register(__start_handover_probes, __stop_handover_probes);
}
#endif

static inline __attribute__((always_inline, HANDOVER_UNTRACED_)) void
handover_probe_hit_(struct handover_probe_meta *meta, unsigned form, uint64_t first, uint64_t second)
{
	if (handover_probe_record)
		handover_probe_record(meta, form, first, second);
}

static inline __attribute__((always_inline, HANDOVER_UNTRACED_)) void
handover_probe_leave_(struct handover_probe_meta **entered)
{
	if (__builtin_expect(*entered != 0, 0))
		handover_probe_hit_(*entered, 3, 0, 0);
}

#ifdef __cplusplus
}
#endif

/* A site's data: in assembly, under a name that no linker sees, so that a function that is inlined,
 * cloned or compiled several times has one site, whatever its linkage. */
#define HANDOVER_TEXT__(text) #text
#define HANDOVER_TEXT_(text) HANDOVER_TEXT__(text)
#define HANDOVER_NAME_(title, key) "\".Lhandover." key "." title "." __FILE__ "\""
#define HANDOVER_META_(title, key)                                                                                     \
	".ifndef " HANDOVER_NAME_(title, key) "\n\t"                                                                   \
	".pushsection .data.handover_probes,\"aw\",@progbits\n\t"                                                      \
	".balign 8\n"                                                                                                  \
	HANDOVER_NAME_(title, key) ":\n\t"                                                                             \
	".long 0, %c[line]\n\t"                                                                                        \
	".byte 0, %c[what], %c[count], 1\n\t"                                                                          \
	".short %c[name_bytes], %c[file_bytes]\n\t"                                                                    \
	".ascii \"" title "\", \"" __FILE__ "\"\n\t"                                                                   \
	".popsection\n\t"                                                                                              \
	".endif\n\t"

/* The site's instruction, what its entry has besides its address and that of its data, and the
 * instructions that load the address of its data. */
#ifdef __aarch64__
#define HANDOVER_INSTRUCTION_ "nop\n\t"
#define HANDOVER_TARGET_ "\n\t.long %l[handover_on_] - ."
#define HANDOVER_ADDRESS_(name) "adrp %0, " name "\n\tadd %0, %0, :lo12:" name
#else
#define HANDOVER_INSTRUCTION_ ".byte 0xa9\n\t.long %l[handover_on_] - (. + 4)\n\t"
#define HANDOVER_TARGET_
#define HANDOVER_ADDRESS_(name) "lea " name "(%%rip), %0"
#endif

/* The site's instruction, the code to which it jumps while it is on, and its entry: in the group of
 * its function's section, so that a linker drops both or neither. */
#define HANDOVER_SITE_(title, key, kind, values, statement)                                                            \
	do {                                                                                                           \
		__label__ handover_on_;                                                                                \
		__asm__ goto(HANDOVER_META_(title, key)                                                                \
			     "661:\n\t" HANDOVER_INSTRUCTION_                                                          \
			     ".pushsection handover_probes,\"aR?\",@progbits\n\t"                                      \
			     ".balign 4\n\t"                                                                           \
			     ".long 661b - .\n\t"                                                                      \
			     ".long " HANDOVER_NAME_(title, key) " - ." HANDOVER_TARGET_ "\n\t"                        \
			     ".popsection"                                                                             \
			     :                                                                                         \
			     : [line] "i"(__LINE__), [what] "i"(kind), [count] "i"(values),                            \
			       [name_bytes] "i"(sizeof(title) - 1), [file_bytes] "i"(sizeof(__FILE__) - 1)             \
			     : "cc"                                                                                    \
			     : handover_on_);                                                                          \
		if (0) {                                                                                               \
			struct handover_probe_meta *handover_meta_;                                                    \
		handover_on_:                                                                                          \
			__asm__(HANDOVER_ADDRESS_(HANDOVER_NAME_(title, key)) : "=r"(handover_meta_));                 \
			statement;                                                                                     \
		}                                                                                                      \
	} while (0)

#define HANDOVER_LINE_ HANDOVER_TEXT_(__LINE__)
#define HANDOVER_MARK_(title, values, first, second)                                                                   \
	HANDOVER_SITE_(title, HANDOVER_LINE_, 0, values,                                                               \
		       handover_probe_hit_(handover_meta_, (values), (uint64_t)(first), (uint64_t)(second)))
#define HANDOVER_BEGIN_(title, values, first, second)                                                                  \
	HANDOVER_SITE_(title, "span", 1, values,                                                                       \
		       handover_probe_hit_(handover_meta_, (values), (uint64_t)(first), (uint64_t)(second)))
#define HANDOVER_END_(title) HANDOVER_SITE_(title, "span", 1, 0, handover_probe_hit_(handover_meta_, 3, 0, 0))
#define HANDOVER_SCOPE_(id, title, values, first, second)                                                              \
	__attribute__((cleanup(handover_probe_leave_), unused)) struct handover_probe_meta *HANDOVER_JOIN(             \
		handover_entered_, id) = 0;                                                                            \
	HANDOVER_SITE_(title, HANDOVER_LINE_, 1, values,                                                               \
		       (HANDOVER_JOIN(handover_entered_, id) = handover_meta_,                                         \
			handover_probe_hit_(handover_meta_, (values), (uint64_t)(first), (uint64_t)(second))))

#else

#define HANDOVER_MARK_(title, values, first, second) ((void)(first), (void)(second))
#define HANDOVER_BEGIN_(title, values, first, second) ((void)(first), (void)(second))
#define HANDOVER_SCOPE_(id, title, values, first, second) ((void)(first), (void)(second))
#define HANDOVER_END_(title) ((void)0)

#endif

#define HANDOVER_MARK_1(title) HANDOVER_MARK_(title, 0, 0, 0)
#define HANDOVER_MARK_2(title, first) HANDOVER_MARK_(title, 1, first, 0)
#define HANDOVER_MARK_3(title, first, second) HANDOVER_MARK_(title, 2, first, second)
#define HANDOVER_BEGIN_1(title) HANDOVER_BEGIN_(title, 0, 0, 0)
#define HANDOVER_BEGIN_2(title, first) HANDOVER_BEGIN_(title, 1, first, 0)
#define HANDOVER_BEGIN_3(title, first, second) HANDOVER_BEGIN_(title, 2, first, second)
#define HANDOVER_SCOPE_1(id, title) HANDOVER_SCOPE_(id, title, 0, 0, 0)
#define HANDOVER_SCOPE_2(id, title, first) HANDOVER_SCOPE_(id, title, 1, first, 0)
#define HANDOVER_SCOPE_3(id, title, first, second) HANDOVER_SCOPE_(id, title, 2, first, second)

/* HANDOVER_PROBE(name[, value[, value]]): an event. */
#define HANDOVER_PROBE(...)                                                                                            \
	HANDOVER_FOURTH_(__VA_ARGS__, HANDOVER_MARK_3, HANDOVER_MARK_2, HANDOVER_MARK_1, 0)(__VA_ARGS__)
/* HANDOVER_SPAN(name[, value[, value]]): an event here, and one when the scope is left, by an
 * exception too. */
#define HANDOVER_SPAN(...)                                                                                             \
	HANDOVER_FOURTH_(__VA_ARGS__, HANDOVER_SCOPE_3, HANDOVER_SCOPE_2, HANDOVER_SCOPE_1, 0)(__LINE__, __VA_ARGS__)
/* HANDOVER_SPAN_BEGIN(name[, value[, value]]) and HANDOVER_SPAN_END(name): both ends by hand, in
 * one file. */
#define HANDOVER_SPAN_BEGIN(...)                                                                                       \
	HANDOVER_FOURTH_(__VA_ARGS__, HANDOVER_BEGIN_3, HANDOVER_BEGIN_2, HANDOVER_BEGIN_1, 0)(__VA_ARGS__)
#define HANDOVER_SPAN_END(title) HANDOVER_END_(title)

#endif
