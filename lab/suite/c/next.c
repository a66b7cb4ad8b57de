/* The function that stands elsewhere. */
#include "call.h"

uint64_t NEXT(uint64_t i);

uint64_t NEXT(uint64_t i)
{
    return i + 1;
}
