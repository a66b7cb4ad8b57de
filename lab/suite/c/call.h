/* What the measured calls have in common. Every loop does `i = next(i)` until i is n, where next
 * adds one: n calls, and the result proves that each of them happened. The names of the functions
 * come from build.rs, which compiles each file once for every way and level. */
#include <stdint.h>

/* Not inlined, not cloned, not looked into. */
#if defined(__has_attribute)
#if __has_attribute(noipa)
#define CALLED __attribute__((noipa))
#endif
#endif
#ifndef CALLED
#define CALLED __attribute__((noinline))
#endif

/* The compiler forgets what it knows about i, at no cost. Without optimisation it knows nothing,
 * and the operand would cost a load and a store. */
#ifdef __OPTIMIZE__
#define FORGET(i) __asm__ volatile("" : "+r"(i))
#else
#define FORGET(i) ((void)0)
#endif
