/* A function that calls two others, where it begins and where it ends, as a tracing tool has it do.
 * Each does a sum whose result is used, or an optimising compiler would drop the call; the last
 * addition comes after the second call, or that would become a jump. */
#include "call.h"

uint64_t LOOP(uint64_t n);

static CALLED uint64_t enter(uint64_t i)
{
    return i + 1;
}

static CALLED uint64_t leave(uint64_t i)
{
    return i - 1;
}

static CALLED uint64_t next(uint64_t i)
{
    return leave(enter(i)) + 1;
}

uint64_t LOOP(uint64_t n)
{
    uint64_t i = 0;
    while (i < n)
        i = next(i);
    return i;
}
