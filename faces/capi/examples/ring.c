/* A ring between two threads: one pushes samples, the other adds them up. The receiver sleeps while
 * the ring is empty, and is notified after each batch. */
#include "check.h"
#include <pthread.h>

struct sample {
    uint32_t sensor;
    float celsius;
};

enum { SAMPLES_COUNT = 100000, BATCH_MAX = 32 };

struct ends {
    handover_ring_producer *producer;
    handover_notify_sender *sender;
};

static void *measure(void *argument)
{
    struct ends *ends = argument;
    struct sample batch[BATCH_MAX];
    for (uint32_t done = 0; done < SAMPLES_COUNT;) {
        size_t count = 0, pushed = 0;
        for (; count < BATCH_MAX && done < SAMPLES_COUNT; count++, done++)
            batch[count] = (struct sample){ .sensor = done % 4, .celsius = 20.5f };
        while (pushed < count) {
            size_t now = 0;
            handover_status status = handover_ring_push_batch(ends->producer, batch + pushed, count - pushed, &now);
            pushed += now;
            CHECK(handover_notify_send(ends->sender));
            if (status == HANDOVER_FULL)
                handover_fiber_yield();
            else
                CHECK(status);
        }
    }
    handover_ring_producer_destroy(ends->producer);
    CHECK(handover_notify_send(ends->sender));
    return NULL;
}

int main(void)
{
    struct ends ends;
    handover_ring_consumer *consumer;
    handover_notify_receiver *receiver;
    CHECK(handover_ring_create(HANDOVER_RING_SPSC, sizeof(struct sample), 1024, &ends.producer, &consumer));
    CHECK(handover_notify_create(HANDOVER_NOTIFY_FUTEX, 50000, &ends.sender, &receiver));

    pthread_t thread;
    if (pthread_create(&thread, NULL, measure, &ends))
        return 1;
    uint32_t counts[4] = { 0 };
    for (;;) {
        struct sample batch[BATCH_MAX];
        size_t count;
        handover_status status = handover_ring_pop_batch(consumer, batch, BATCH_MAX, &count);
        if (status == HANDOVER_CLOSED)
            break;
        if (status == HANDOVER_EMPTY)
            CHECK(handover_notify_wait(receiver, HANDOVER_FOREVER));
        for (size_t at = 0; at < count; at++)
            counts[batch[at].sensor]++;
    }
    pthread_join(thread, NULL);
    printf("samples: %u %u %u %u\n", counts[0], counts[1], counts[2], counts[3]);
    handover_ring_consumer_destroy(consumer);
    handover_notify_sender_destroy(ends.sender);
    CHECK(handover_notify_receiver_destroy(receiver));
    return 0;
}
