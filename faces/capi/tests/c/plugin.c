/* Shared object with a probe, which tests/c/unload.c opens and closes. */
#include <handover_probe.h>

void pass(void);

void pass(void)
{
    HANDOVER_PROBE("plugin.pass");
}
