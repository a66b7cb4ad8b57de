/* A function that is inlined at every level. */
#include "call.h"

uint64_t LOOP(uint64_t n);

static inline __attribute__((always_inline)) uint64_t next(uint64_t i)
{
    return i + 1;
}

uint64_t LOOP(uint64_t n)
{
    uint64_t i = 0;
    while (i < n) {
        i = next(i);
        FORGET(i);
    }
    return i;
}
