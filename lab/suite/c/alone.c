/* The loop alone: what every other loop here pays beside its calls. */
#include "call.h"

uint64_t LOOP(uint64_t n);

uint64_t LOOP(uint64_t n)
{
    uint64_t i = 0;
    while (i < n) {
        i = i + 1;
        FORGET(i);
    }
    return i;
}
