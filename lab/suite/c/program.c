/* A program that makes as many calls as its argument says. It is compiled several times: plainly,
 * with the compiler's hooks (-finstrument-functions), and with entries that can be patched
 * (-fpatchable-function-entry). Of its functions, only the called one can be traced. */
#include "call.h"
#include <stdlib.h>

#define UNTRACED __attribute__((no_instrument_function))
#if defined(__has_attribute)
#if __has_attribute(patchable_function_entry)
#undef UNTRACED
#define UNTRACED __attribute__((no_instrument_function, patchable_function_entry(0)))
#endif
#endif

static CALLED uint64_t next(uint64_t i)
{
    return i + 1;
}

UNTRACED int main(int count, char **arguments)
{
    uint64_t n = count > 1 ? strtoull(arguments[1], NULL, 10) : 0, i = 0;
    while (i < n)
        i = next(i);
    return i != n;
}
