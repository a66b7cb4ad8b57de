/* A function that does nothing, in a shared object: the compiler cannot know that. */
#include "call.h"

uint64_t LOOP(uint64_t n);
void NEXT(void);

uint64_t LOOP(uint64_t n)
{
    uint64_t i = 0;
    while (i < n) {
        NEXT();
        i = i + 1;
        FORGET(i);
    }
    return i;
}
