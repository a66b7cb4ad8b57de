/* A function that does nothing and is not inlined: without a probe inside, an optimising compiler
 * removes the calls all the same. */
#include "call.h"
#include "probe.h"

uint64_t LOOP(uint64_t n);

static __attribute__((noinline)) void empty(void)
{
#ifdef PROBE_INSIDE
    PROBE("empty");
#endif
}

uint64_t LOOP(uint64_t n)
{
    uint64_t i = 0;
    while (i < n) {
        empty();
        i = i + 1;
        FORGET(i);
    }
    return i;
}
