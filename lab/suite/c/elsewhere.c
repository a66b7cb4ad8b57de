/* A function that stands elsewhere: in another object, a static library, a shared object. */
#include "call.h"

uint64_t LOOP(uint64_t n);
uint64_t NEXT(uint64_t i);

uint64_t LOOP(uint64_t n)
{
    uint64_t i = 0;
    while (i < n)
        i = NEXT(i);
    return i;
}
