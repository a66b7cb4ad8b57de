/* Whatever function a pointer names. */
#include "call.h"

uint64_t LOOP(uint64_t n, uint64_t (*next)(uint64_t));

uint64_t LOOP(uint64_t n, uint64_t (*next)(uint64_t))
{
    uint64_t i = 0;
    while (i < n)
        i = next(i);
    return i;
}
