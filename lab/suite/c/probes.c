/* A function with one probe or two, which are no-ops without a tool. */
#include "call.h"
#include "probe.h"

uint64_t LOOP(uint64_t n);

static CALLED uint64_t next(uint64_t i)
{
    PROBE("enter");
    i = i + 1;
#ifdef TWO_PROBES
    PROBE("leave");
#endif
    return i;
}

uint64_t LOOP(uint64_t n)
{
    uint64_t i = 0;
    while (i < n)
        i = next(i);
    return i;
}
