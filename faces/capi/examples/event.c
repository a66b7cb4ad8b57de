/* An event machine with timers and a descriptor: it ticks every millisecond, reads what another
 * thread writes into a pipe, and stops after a message of that thread. */
#include "check.h"
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum kind { TICK, LATE, INPUT, DONE };

struct state {
    uint32_t ticks;
    uint64_t ticker;
    uint64_t late;
    int pipe[2];
    char text[32];
    size_t text_bytes;
    handover_event_address *address;
};

static void handle(handover_event_machine *machine, const handover_event_message *message, void *context)
{
    struct state *state = context;
    switch (message->kind) {
    case TICK:
        if (++state->ticks == 5) {
            CHECK(handover_event_cancel(machine, state->ticker));
            CHECK(handover_event_cancel(machine, state->late));
        }
        break;
    case LATE:
        puts("a cancelled timer expired");
        break;
    case INPUT: {
        ssize_t count = read(state->pipe[0], state->text + state->text_bytes,
                             sizeof state->text - state->text_bytes - 1);
        if (count > 0)
            state->text_bytes += (size_t)count;
        break;
    }
    case DONE:
        if (state->ticks < 5 || state->text_bytes == 0) /* Not yet: look again in a millisecond. */
            CHECK(handover_event_after(machine, 1000000, message, NULL));
        else
            CHECK(handover_event_stop(machine));
        break;
    }
}

static void *other(void *argument)
{
    struct state *state = argument;
    const char *text = "from a pipe";
    if (write(state->pipe[1], text, strlen(text)) < 0)
        perror("write");
    handover_fiber_sleep_until(handover_now_ns() + 20000000);
    const handover_event_message done = { .kind = DONE };
    CHECK(handover_event_send(state->address, &done));
    return NULL;
}

int main(void)
{
    struct state state = { 0 };
    handover_event_machine *machine;
    CHECK(handover_event_create(NULL, handle, &state, &machine));
    CHECK(handover_event_address_create(machine, &state.address));
    if (pipe(state.pipe))
        return 1;
    const handover_event_message tick = { .kind = TICK }, late = { .kind = LATE }, input = { .kind = INPUT };
    CHECK(handover_event_every(machine, 1000000, &tick, &state.ticker));
    CHECK(handover_event_after(machine, 3600000000000, &late, &state.late));
    CHECK(handover_event_watch(machine, state.pipe[0], HANDOVER_EVENT_READABLE, &input, NULL));

    pthread_t thread;
    if (pthread_create(&thread, NULL, other, &state))
        return 1;
    CHECK(handover_event_run(machine));
    pthread_join(thread, NULL);
    printf("%u ticks, and \"%s\"\n", state.ticks, state.text);
    CHECK(handover_event_destroy(machine, NULL, NULL));
    handover_event_address_destroy(state.address);
    close(state.pipe[0]);
    close(state.pipe[1]);
    return 0;
}
