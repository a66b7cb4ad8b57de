/* A function of the same source file. */
#include "call.h"

uint64_t LOOP(uint64_t n);

static CALLED uint64_t next(uint64_t i)
{
    return i + 1;
}

uint64_t LOOP(uint64_t n)
{
    uint64_t i = 0;
    while (i < n)
        i = next(i);
    return i;
}
