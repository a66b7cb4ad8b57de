/* A traced program: the probes of handover_probe.h cost a no-op until they are switched on; then
 * the library records their events. `handover trace show FILE` prints them. */
#include "check.h"
#include <handover_probe.h>

static uint64_t collatz(uint64_t number)
{
    HANDOVER_SPAN("collatz", number);
    uint64_t steps = 0;
    for (; number != 1; steps++) {
        HANDOVER_PROBE("collatz.step", number);
        number = number % 2 ? 3 * number + 1 : number / 2;
    }
    return steps;
}

int main(int argc, char **argv)
{
    handover_probe_recording *recording;
    handover_probe_summary summary;
    size_t sites;
    if (argc < 2) {
        fprintf(stderr, "usage: %s TRACE\n", argv[0]);
        return 2;
    }
    printf("27 takes %llu steps, unrecorded\n", (unsigned long long)collatz(27));
    CHECK(handover_probe_start(argv[1], 1, &recording));
    CHECK(handover_probe_enable("collatz*", &sites));
    printf("6 takes %llu steps, ", (unsigned long long)collatz(6));
    CHECK(handover_probe_disable("*", NULL));
    collatz(27);
    CHECK(handover_probe_finish(recording, &summary));
    printf("of which %llu events of %zu sites were recorded\n", (unsigned long long)summary.recorded, sites);
    return 0;
}
