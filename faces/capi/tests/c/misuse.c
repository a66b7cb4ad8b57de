/* Wrong arguments, full and closed ends, passed time limits, and calls within callbacks: each is a
 * status. */
#include <handover.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPECT(call, wanted)                                                                                         \
    do {                                                                                                               \
        handover_status got_ = (call);                                                                                 \
        if (got_ != (wanted)) {                                                                                        \
            fprintf(stderr, "line %d: %s: %s instead of %s (%s)\n", __LINE__, #call, handover_strerror(got_),          \
                    handover_strerror(wanted), handover_last_error());                                                 \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define OK(call) EXPECT(call, HANDOVER_OK)
#define EXPECT_TRUE(condition)                                                                                         \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "line %d: %s is false (%s)\n", __LINE__, #condition, handover_last_error());               \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define MS 1000000ull

static void library(void)
{
    EXPECT_TRUE(handover_version() == (HANDOVER_VERSION_MAJOR << 16 | HANDOVER_VERSION_MINOR << 8 |
                                       HANDOVER_VERSION_PATCH));
    EXPECT_TRUE(strcmp(handover_last_error(), "") == 0);
    EXPECT_TRUE(strcmp(handover_strerror(HANDOVER_OK), "success") == 0);
    EXPECT_TRUE(strcmp(handover_strerror(-1), "unknown status") == 0);
    EXPECT_TRUE(strcmp(handover_strerror(1000), "unknown status") == 0);
    uint64_t before = handover_now_ns();
    handover_fiber_sleep_until(before + MS);
    EXPECT_TRUE(handover_now_ns() >= before + MS);
}

static void ring_of(uint32_t kind, size_t bytes)
{
    handover_ring_producer *producer;
    handover_ring_consumer *consumer;
    size_t count = 99;
    unsigned char *elements = malloc(4 * bytes), *popped = malloc(4 * bytes);
    for (size_t at = 0; at < 4 * bytes; at++)
        elements[at] = (unsigned char)(at * 7 + bytes);
    OK(handover_ring_create(kind, bytes, 3, &producer, &consumer));
    EXPECT(handover_ring_pop(consumer, popped), HANDOVER_EMPTY);
    OK(handover_ring_push(producer, elements));
    EXPECT(handover_ring_push_batch(producer, elements + bytes, 3, &count), HANDOVER_FULL);
    EXPECT_TRUE(count == 2);
    EXPECT(handover_ring_push(producer, elements), HANDOVER_FULL);
    OK(handover_ring_producer_len(producer, &count));
    EXPECT_TRUE(count == 3);
    OK(handover_ring_pop(consumer, popped));
    OK(handover_ring_pop_batch(consumer, popped + bytes, 3, &count));
    EXPECT_TRUE(count == 2 && memcmp(elements, popped, 3 * bytes) == 0);
    OK(handover_ring_push(producer, elements + 3 * bytes));
    OK(handover_ring_producer_close(producer));
    EXPECT(handover_ring_push(producer, elements), HANDOVER_CLOSED);
    EXPECT(handover_ring_push_batch(producer, elements, 1, &count), HANDOVER_CLOSED);
    OK(handover_ring_consumer_len(consumer, &count));
    EXPECT_TRUE(count == 1);
    OK(handover_ring_pop(consumer, popped));
    EXPECT_TRUE(memcmp(elements + 3 * bytes, popped, bytes) == 0);
    EXPECT(handover_ring_pop(consumer, popped), HANDOVER_CLOSED);
    EXPECT(handover_ring_pop_batch(consumer, popped, 1, &count), HANDOVER_CLOSED);
    OK(handover_ring_push_batch(producer, NULL, 0, &count));
    handover_ring_consumer_destroy(consumer);
    handover_ring_producer_destroy(producer);
    free(elements);
    free(popped);
}

static void rings(void)
{
    static const size_t sizes[] = { 1, 3, 4, 5, 8, 12, 16, 24, 31, 32, 48, 64, 100, 128, 200, 1000, 4096 };
    handover_ring_producer *producer = NULL, *clone;
    handover_ring_consumer *consumer = NULL, *second;
    uint32_t element = 1;
    for (size_t at = 0; at < sizeof sizes / sizeof *sizes; at++) {
        ring_of(HANDOVER_RING_SPSC, sizes[at]);
        ring_of(HANDOVER_RING_MPSC, sizes[at]);
        ring_of(HANDOVER_RING_MPMC, sizes[at]);
    }
    EXPECT(handover_ring_create(HANDOVER_RING_SPSC, 0, 4, &producer, &consumer), HANDOVER_INVALID_ARGUMENT);
    EXPECT_TRUE(strstr(handover_last_error(), "element_bytes=0: must lie in 1..=4096"));
    EXPECT(handover_ring_create(HANDOVER_RING_SPSC, 4097, 4, &producer, &consumer), HANDOVER_INVALID_ARGUMENT);
    EXPECT(handover_ring_create(HANDOVER_RING_SPSC, 4, 0, &producer, &consumer), HANDOVER_INVALID_ARGUMENT);
    EXPECT(handover_ring_create(7, 4, 4, &producer, &consumer), HANDOVER_INVALID_ARGUMENT);
    EXPECT(handover_ring_create(HANDOVER_RING_SPSC, 4, 4, NULL, &consumer), HANDOVER_NULL_ARGUMENT);
    EXPECT(handover_ring_create(HANDOVER_RING_SPSC, 4, 4, &producer, NULL), HANDOVER_NULL_ARGUMENT);
    EXPECT_TRUE(producer == NULL && consumer == NULL);
    EXPECT(handover_ring_push(NULL, &element), HANDOVER_NULL_ARGUMENT);
    EXPECT_TRUE(strstr(handover_last_error(), "producer: must not be null"));
    EXPECT(handover_ring_pop(NULL, &element), HANDOVER_NULL_ARGUMENT);
    EXPECT_TRUE(strstr(handover_last_error(), "consumer: must not be null"));

    OK(handover_ring_create(HANDOVER_RING_SPSC, 4, 4, &producer, &consumer));
    EXPECT(handover_ring_push(producer, NULL), HANDOVER_NULL_ARGUMENT);
    EXPECT_TRUE(strstr(handover_last_error(), "element: must not be null"));
    EXPECT(handover_ring_push_batch(producer, NULL, 1, NULL), HANDOVER_NULL_ARGUMENT);
    EXPECT(handover_ring_producer_clone(producer, &clone), HANDOVER_INVALID_ARGUMENT);
    EXPECT(handover_ring_consumer_clone(consumer, &second), HANDOVER_INVALID_ARGUMENT);
    size_t count;
    EXPECT(handover_ring_push_batch(producer, &element, SIZE_MAX / 2, &count), HANDOVER_INVALID_ARGUMENT);
    handover_ring_consumer_destroy(consumer);
    EXPECT(handover_ring_push(producer, &element), HANDOVER_CLOSED);
    handover_ring_producer_destroy(producer);

    OK(handover_ring_create(HANDOVER_RING_MPSC, 4, 4, &producer, &consumer));
    OK(handover_ring_producer_clone(producer, &clone));
    handover_ring_producer_destroy(producer);
    EXPECT(handover_ring_consumer_clone(consumer, &second), HANDOVER_INVALID_ARGUMENT);
    OK(handover_ring_push(clone, &element));
    OK(handover_ring_consumer_close(consumer));
    handover_ring_producer_destroy(clone);
    handover_ring_consumer_destroy(consumer);

    OK(handover_ring_create(HANDOVER_RING_MPMC, 4, 4, &producer, &consumer));
    OK(handover_ring_producer_clone(producer, &clone));
    OK(handover_ring_consumer_clone(consumer, &second));
    handover_ring_producer_destroy(producer);
    handover_ring_consumer_destroy(consumer);
    OK(handover_ring_push(clone, &element));
    OK(handover_ring_pop(second, &element));
    EXPECT(handover_ring_pop(second, &element), HANDOVER_EMPTY);
    handover_ring_consumer_destroy(second);
    EXPECT(handover_ring_push(clone, &element), HANDOVER_CLOSED);
    handover_ring_producer_destroy(clone);
    handover_ring_producer_destroy(NULL);
    handover_ring_consumer_destroy(NULL);
}

static void *wait_long(void *receiver)
{
    enum handover_status status;
    // The other thread has the receiver for a moment each time it tests whether this one waits.
    while ((status = handover_notify_wait(receiver, HANDOVER_FOREVER)) == HANDOVER_WRONG_THREAD)
        usleep(100);
    OK(status);
    return NULL;
}

static void notifications(void)
{
    handover_notify_sender *sender;
    handover_notify_receiver *receiver;
    int descriptor;
    for (uint32_t kind = 0; kind < 3; kind++) {
        OK(handover_notify_create(kind, 0, &sender, &receiver));
        EXPECT(handover_notify_wait(receiver, 0), HANDOVER_TIMED_OUT);
        EXPECT(handover_notify_wait(receiver, MS), HANDOVER_TIMED_OUT);
        OK(handover_notify_send(sender));
        OK(handover_notify_send(sender));
        OK(handover_notify_wait(receiver, HANDOVER_FOREVER));
        EXPECT(handover_notify_wait(receiver, 0), HANDOVER_TIMED_OUT);
        pthread_t thread;
        EXPECT_TRUE(pthread_create(&thread, NULL, wait_long, receiver) == 0);
        while (handover_notify_wait(receiver, 0) != HANDOVER_WRONG_THREAD)
            usleep(100);
        EXPECT(handover_notify_receiver_destroy(receiver), HANDOVER_WRONG_THREAD);
        OK(handover_notify_send(sender));
        pthread_join(thread, NULL);
        if (kind != HANDOVER_NOTIFY_EVENTFD) {
            EXPECT(handover_notify_descriptor(receiver, &descriptor), HANDOVER_INVALID_ARGUMENT);
        } else {
            OK(handover_notify_descriptor(receiver, &descriptor));
            OK(handover_notify_prepare(receiver));
            EXPECT(handover_notify_finish(receiver), HANDOVER_EMPTY);
            OK(handover_notify_send(sender));
            EXPECT(handover_notify_prepare(receiver), HANDOVER_BUSY);
            OK(handover_notify_finish(receiver));
        }
        OK(handover_notify_send(sender));
        handover_notify_sender_destroy(sender);
        OK(handover_notify_wait(receiver, 0));
        handover_status is_closed = kind == HANDOVER_NOTIFY_CLOSING ? HANDOVER_CLOSED : HANDOVER_TIMED_OUT;
        EXPECT(handover_notify_wait(receiver, 0), is_closed);
        EXPECT(handover_notify_wait(receiver, MS), is_closed);
        OK(handover_notify_receiver_destroy(receiver));
    }
    EXPECT(handover_notify_create(3, 0, &sender, &receiver), HANDOVER_INVALID_ARGUMENT);
    EXPECT(handover_notify_create(0, UINT32_MAX, &sender, &receiver), HANDOVER_INVALID_ARGUMENT);
    EXPECT(handover_notify_send(NULL), HANDOVER_NULL_ARGUMENT);
    EXPECT(handover_notify_wait(NULL, 0), HANDOVER_NULL_ARGUMENT);
    EXPECT(handover_notify_receiver_destroy(NULL), HANDOVER_NULL_ARGUMENT);
    handover_notify_sender_destroy(NULL);
}

static void locks(void)
{
    handover_lock *lock;
    OK(handover_lock_create(&lock));
    OK(handover_lock_try(lock));
    EXPECT(handover_lock_try(lock), HANDOVER_BUSY);
    EXPECT(handover_lock_take(lock, MS), HANDOVER_TIMED_OUT);
    OK(handover_lock_free(lock));
    EXPECT(handover_lock_free(lock), HANDOVER_INVALID_ARGUMENT);
    OK(handover_lock_take(lock, HANDOVER_FOREVER));
    OK(handover_lock_free(lock));
    EXPECT(handover_lock_take(NULL, 0), HANDOVER_NULL_ARGUMENT);
    EXPECT_TRUE(strstr(handover_last_error(), "lock: must not be null"));
    handover_lock_destroy(lock);
    handover_lock_destroy(NULL);
}

static void timers(void)
{
    handover_timer_wheel *wheel;
    handover_timer_expired expired;
    uint64_t first, second, periodic, deadline;
    size_t len;
    int payload;
    void *cancelled = NULL;
    OK(handover_timer_wheel_create(2, 1000, &wheel));
    EXPECT(handover_timer_next_deadline(wheel, &deadline), HANDOVER_EMPTY);
    OK(handover_timer_start(wheel, 5000, &payload, &first));
    OK(handover_timer_start(wheel, 3000, NULL, &second));
    EXPECT(handover_timer_start(wheel, 3000, NULL, NULL), HANDOVER_FULL);
    OK(handover_timer_next_deadline(wheel, &deadline));
    EXPECT_TRUE(deadline == 3000);
    EXPECT(handover_timer_expire(wheel, 2999, &expired), HANDOVER_EMPTY);
    OK(handover_timer_reschedule(wheel, first, 2000));
    OK(handover_timer_expire(wheel, 3000, &expired));
    EXPECT_TRUE(expired.timer == first && expired.deadline_ns == 2000 && expired.payload == &payload);
    OK(handover_timer_cancel(wheel, second, &cancelled));
    EXPECT(handover_timer_cancel(wheel, second, NULL), HANDOVER_NOT_FOUND);
    EXPECT(handover_timer_cancel(wheel, 0, NULL), HANDOVER_NOT_FOUND);
    EXPECT(handover_timer_reschedule(wheel, UINT64_MAX, 1), HANDOVER_NOT_FOUND);
    EXPECT(handover_timer_start_periodic(wheel, 1, 0, NULL, NULL), HANDOVER_INVALID_ARGUMENT);
    OK(handover_timer_start_periodic(wheel, 4000, 10, &payload, &periodic));
    OK(handover_timer_expire(wheel, 4025, &expired));
    EXPECT_TRUE(expired.timer == periodic && expired.missed_count == 2);
    OK(handover_timer_len(wheel, &len));
    EXPECT_TRUE(len == 1);
    EXPECT(handover_timer_expire(wheel, 1, NULL), HANDOVER_NULL_ARGUMENT);
    EXPECT(handover_timer_start(NULL, 1, NULL, NULL), HANDOVER_NULL_ARGUMENT);
    handover_timer_wheel_destroy(wheel);
    EXPECT(handover_timer_wheel_create(0, 0, &wheel), HANDOVER_INVALID_ARGUMENT);
}

static void discard_packet(const handover_sched_packet *packet, void *context)
{
    uintptr_t *count = context;
    EXPECT_TRUE((uintptr_t)packet->token == *count && packet->flow == 1);
    (*count)++;
}

static void schedulers(void)
{
    handover_sched *scheduler;
    handover_sched_flow flow;
    handover_sched_packet packet = { .length_bytes = 100 }, dropped;
    handover_sched_totals totals;
    uint32_t number;
    uint64_t ready_ns;
    bool has_dropped;
    EXPECT(handover_sched_create("fair", 4, 8, &scheduler), HANDOVER_NOT_FOUND);
    EXPECT(handover_sched_create(NULL, 4, 8, &scheduler), HANDOVER_NULL_ARGUMENT);
    EXPECT(handover_sched_create("\xff", 4, 8, &scheduler), HANDOVER_INVALID_ARGUMENT);
    EXPECT(handover_sched_create("qfq", 0, 8, &scheduler), HANDOVER_INVALID_ARGUMENT);
    OK(handover_sched_create("wf2q+", 2, 8, &scheduler));
    OK(handover_sched_flow_init(&flow));
    flow.packets_max = 2;
    OK(handover_sched_add_flow(scheduler, &flow, &number));
    EXPECT_TRUE(number == 0);
    flow.drops_oldest = 1;
    OK(handover_sched_add_flow(scheduler, &flow, &number));
    EXPECT(handover_sched_add_flow(scheduler, &flow, NULL), HANDOVER_FULL);
    flow.struct_bytes++;
    EXPECT(handover_sched_add_flow(scheduler, &flow, NULL), HANDOVER_INVALID_ARGUMENT);
    EXPECT_TRUE(strstr(handover_last_error(), "struct_bytes"));
    EXPECT(handover_sched_add_flow(scheduler, (void *)((char *)&flow + 1), NULL), HANDOVER_INVALID_ARGUMENT);
    EXPECT(handover_sched_ready_ns(scheduler, &ready_ns), HANDOVER_EMPTY);
    for (int at = 0; at < 2; at++)
        OK(handover_sched_enqueue(scheduler, 0, &packet, NULL, NULL));
    EXPECT(handover_sched_enqueue(scheduler, 0, &packet, NULL, NULL), HANDOVER_FULL);
    for (uintptr_t at = 0; at < 3; at++) {
        packet = (handover_sched_packet){ .flow = 1, .length_bytes = 50, .token = (void *)at };
        OK(handover_sched_enqueue(scheduler, 0, &packet, &has_dropped, &dropped));
    }
    EXPECT_TRUE(has_dropped && dropped.token == NULL && dropped.length_bytes == 50);
    packet.token = (void *)3;
    OK(handover_sched_enqueue(scheduler, 0, &packet, &has_dropped, &packet));
    EXPECT_TRUE(has_dropped && packet.token == (void *)1);
    EXPECT(handover_sched_enqueue(scheduler, 0, &packet, NULL, &dropped), HANDOVER_NULL_ARGUMENT);
    packet.flow = 9;
    EXPECT(handover_sched_enqueue(scheduler, 0, &packet, NULL, NULL), HANDOVER_NOT_FOUND);
    packet = (handover_sched_packet){ .length_bytes = 70000 };
    EXPECT(handover_sched_enqueue(scheduler, 0, &packet, NULL, NULL), HANDOVER_INVALID_ARGUMENT);
    for (int at = 0; at < 4; at++)
        OK(handover_sched_dequeue(scheduler, 0, &packet));
    EXPECT(handover_sched_dequeue(scheduler, 0, &packet), HANDOVER_EMPTY);
    OK(handover_sched_count(scheduler, &totals));
    EXPECT_TRUE(totals.enqueued == 6 && totals.dequeued == 4 && totals.dropped == 2 && totals.refused == 3);

    for (uintptr_t at = 0; at < 2; at++) {
        packet = (handover_sched_packet){ .flow = 1, .length_bytes = 50, .token = (void *)at };
        OK(handover_sched_enqueue(scheduler, 0, &packet, NULL, NULL));
    }
    OK(handover_sched_set_weight(scheduler, 0, 1, 7));
    EXPECT(handover_sched_set_weight(scheduler, 0, 1, 0), HANDOVER_INVALID_ARGUMENT);
    EXPECT(handover_sched_set_weight(scheduler, 0, 9, 1), HANDOVER_NOT_FOUND);
    uintptr_t discarded = 0;
    OK(handover_sched_remove_flow(scheduler, 1, discard_packet, &discarded));
    EXPECT_TRUE(discarded == 2);
    EXPECT(handover_sched_remove_flow(scheduler, 1, discard_packet, &discarded), HANDOVER_NOT_FOUND);
    EXPECT(handover_sched_enqueue(scheduler, 0, &packet, NULL, NULL), HANDOVER_NOT_FOUND);
    OK(handover_sched_remove_flow(scheduler, 0, NULL, NULL));
    EXPECT(handover_sched_add_tenant(scheduler, 1, 100, NULL), HANDOVER_INVALID_ARGUMENT);
    EXPECT(handover_sched_set_tenant_weight(scheduler, 0, 0, 1), HANDOVER_INVALID_ARGUMENT);
    handover_sched_destroy(scheduler);

    EXPECT(handover_sched_create_tenants("qfq", "fifo", 4, 8, &scheduler), HANDOVER_INVALID_ARGUMENT);
    EXPECT(handover_sched_create_tenants("qfq", NULL, 4, 8, &scheduler), HANDOVER_NULL_ARGUMENT);
    EXPECT(handover_sched_create_tenants("fair", "qfq", 4, 8, &scheduler), HANDOVER_NOT_FOUND);
    OK(handover_sched_create_tenants("qfq", "wf2q+", 4, 8, &scheduler));
    OK(handover_sched_flow_init(&flow));
    flow.length_bytes_max = 100;
    EXPECT(handover_sched_add_flow_of(scheduler, 0, &flow, NULL), HANDOVER_NOT_FOUND);
    OK(handover_sched_add_tenant(scheduler, 1, 100, &number));
    EXPECT_TRUE(number == 0);
    OK(handover_sched_add_flow_of(scheduler, 0, &flow, &number));
    OK(handover_sched_set_tenant_weight(scheduler, 0, 0, 3));
    EXPECT(handover_sched_set_tenant_weight(scheduler, 0, 1, 3), HANDOVER_NOT_FOUND);
    packet = (handover_sched_packet){ .flow = number, .length_bytes = 100 };
    OK(handover_sched_enqueue(scheduler, 0, &packet, NULL, NULL));
    OK(handover_sched_dequeue(scheduler, 0, &packet));
    handover_sched_destroy(scheduler);
}

struct seen {
    int calls;
    int discarded;
};

static void handle(handover_event_machine *machine, const handover_event_message *message, void *context)
{
    struct seen *seen = context;
    seen->calls++;
    EXPECT(handover_event_destroy(machine, NULL, NULL), HANDOVER_BUSY);
    EXPECT(handover_event_run(machine), HANDOVER_BUSY);
    EXPECT(handover_event_run_once(machine, 0, NULL), HANDOVER_BUSY);
    OK(handover_event_send_self(machine, message));
    OK(handover_event_stop(machine));
}

static void discard(const handover_event_message *message, void *context)
{
    struct seen *seen = context;
    EXPECT_TRUE(message->kind == 5);
    seen->discarded++;
}

static void replies(void)
{
    handover_event_reply *reply;
    handover_event_pending_reply *pending;
    int value;
    void *data = NULL;
    OK(handover_event_reply_create(&reply, &pending));
    EXPECT(handover_event_pending_reply_wait(pending, 0, NULL), HANDOVER_TIMED_OUT);
    EXPECT(handover_event_pending_reply_wait(pending, MS, &data), HANDOVER_TIMED_OUT);
    OK(handover_event_reply_send(reply, &value));
    OK(handover_event_pending_reply_wait(pending, HANDOVER_FOREVER, &data));
    EXPECT_TRUE(data == &value);
    EXPECT(handover_event_pending_reply_wait(pending, 0, NULL), HANDOVER_CLOSED);
    OK(handover_event_pending_reply_destroy(pending));

    OK(handover_event_reply_create(&reply, &pending));
    handover_event_reply_destroy(reply);
    EXPECT(handover_event_pending_reply_wait(pending, HANDOVER_FOREVER, NULL), HANDOVER_CLOSED);
    OK(handover_event_pending_reply_destroy(pending));

    OK(handover_event_reply_create(&reply, &pending));
    OK(handover_event_pending_reply_destroy(pending));
    EXPECT(handover_event_reply_send(reply, &value), HANDOVER_CLOSED);

    EXPECT(handover_event_reply_create(NULL, &pending), HANDOVER_NULL_ARGUMENT);
    EXPECT(handover_event_reply_send(NULL, &value), HANDOVER_NULL_ARGUMENT);
    EXPECT(handover_event_pending_reply_wait(NULL, 0, NULL), HANDOVER_NULL_ARGUMENT);
    EXPECT(handover_event_pending_reply_destroy(NULL), HANDOVER_NULL_ARGUMENT);
    handover_event_reply_destroy(NULL);
}

static void events(void)
{
    handover_event_config config;
    handover_event_machine *machine;
    handover_event_address *address, *upgraded;
    handover_event_weak_address *weak;
    struct seen seen = { 0 };
    handover_event_message message = { .kind = 5 };
    uint64_t timer, watch;
    uint32_t handled;
    int pipes[2];
    EXPECT(handover_event_create(NULL, NULL, NULL, &machine), HANDOVER_NULL_ARGUMENT);
    OK(handover_event_config_init(&config));
    config.when_full = 9;
    EXPECT(handover_event_create(&config, handle, NULL, &machine), HANDOVER_INVALID_ARGUMENT);
    config.when_full = HANDOVER_EVENT_REFUSE;
    config.inbox_messages_max = 1;
    config.timers_max = 1;
    OK(handover_event_create(&config, handle, &seen, &machine));
    OK(handover_event_address_create(machine, &address));
    OK(handover_event_send(address, &message));
    EXPECT(handover_event_send(address, &message), HANDOVER_FULL);
    EXPECT(handover_event_send(address, NULL), HANDOVER_NULL_ARGUMENT);
    OK(handover_event_address_downgrade(address, &weak));
    OK(handover_event_weak_address_upgrade(weak, &upgraded));
    EXPECT(handover_event_send(upgraded, &message), HANDOVER_FULL);
    handover_event_address_destroy(upgraded);
    OK(handover_event_after(machine, 60000 * MS, &message, &timer));
    EXPECT(handover_event_after(machine, MS, &message, NULL), HANDOVER_FULL);
    OK(handover_event_cancel(machine, timer));
    EXPECT(handover_event_cancel(machine, timer), HANDOVER_NOT_FOUND);
    EXPECT(handover_event_every(machine, 0, &message, NULL), HANDOVER_INVALID_ARGUMENT);
    EXPECT(handover_event_watch(machine, -1, HANDOVER_EVENT_READABLE, &message, NULL), HANDOVER_INVALID_ARGUMENT);
    EXPECT(handover_event_watch(machine, 0, 0, &message, NULL), HANDOVER_INVALID_ARGUMENT);
    EXPECT(handover_event_watch(machine, 0, 64, &message, NULL), HANDOVER_INVALID_ARGUMENT);
    EXPECT(handover_event_watch(machine, 12345, HANDOVER_EVENT_READABLE, &message, NULL), HANDOVER_SYSTEM);
    EXPECT_TRUE(pipe(pipes) == 0);
    OK(handover_event_watch(machine, pipes[0], HANDOVER_EVENT_READABLE, &message, &watch));
    OK(handover_event_set_interest(machine, watch, HANDOVER_EVENT_READABLE | HANDOVER_EVENT_EDGE));
    OK(handover_event_unwatch(machine, watch));
    EXPECT(handover_event_unwatch(machine, watch), HANDOVER_NOT_FOUND);
    EXPECT(handover_event_set_interest(machine, watch, HANDOVER_EVENT_READABLE), HANDOVER_NOT_FOUND);
    close(pipes[0]);
    close(pipes[1]);
    OK(handover_event_run(machine));
    EXPECT_TRUE(seen.calls == 1);
    EXPECT(handover_event_run_once(machine, 1, &handled), HANDOVER_CLOSED);
    EXPECT_TRUE(handled == 1 && seen.calls == 2);
    OK(handover_event_destroy(machine, discard, &seen));
    EXPECT_TRUE(seen.discarded == 1);
    EXPECT(handover_event_send(address, &message), HANDOVER_CLOSED);
    EXPECT(handover_event_weak_address_upgrade(weak, &upgraded), HANDOVER_CLOSED);
    handover_event_address_destroy(address);
    EXPECT(handover_event_weak_address_upgrade(weak, &upgraded), HANDOVER_CLOSED);
    handover_event_weak_address_destroy(weak);
    handover_event_weak_address_destroy(NULL);
    handover_event_address_destroy(NULL);
    EXPECT(handover_event_destroy(NULL, NULL, NULL), HANDOVER_NULL_ARGUMENT);
}

struct shared {
    int pipes[2];
    handover_fiber_runtime *runtime;
    handover_fiber_eventual *eventual;
    handover_fiber_eventual *started;
};

static void *waiter(void *argument)
{
    struct shared *shared = argument;
    void *value;
    EXPECT(handover_fiber_runtime_destroy(shared->runtime), HANDOVER_WRONG_THREAD);
    EXPECT_TRUE(handover_fiber_id() != UINT64_MAX);
    EXPECT(handover_fiber_eventual_wait(shared->eventual, MS, NULL), HANDOVER_TIMED_OUT);
    EXPECT(handover_fiber_wait_readable(shared->pipes[0], MS), HANDOVER_TIMED_OUT);
    OK(handover_fiber_eventual_set(shared->started, NULL));
    OK(handover_fiber_wait_readable(shared->pipes[0], HANDOVER_FOREVER));
    OK(handover_fiber_eventual_wait(shared->eventual, HANDOVER_FOREVER, &value));
    return value;
}

static void *join_long(void *fiber)
{
    handover_status status;
    // The other thread joins the fiber for a moment each time it tests whether this one does.
    while ((status = handover_fiber_join(fiber, HANDOVER_FOREVER, NULL)) == HANDOVER_WRONG_THREAD)
        usleep(100);
    OK(status);
    return NULL;
}

static void *wait_for_eventual(void *eventual)
{
    OK(handover_fiber_eventual_wait(eventual, HANDOVER_FOREVER, NULL));
    return NULL;
}

static void fiber_is_joined_by_another_thread(handover_fiber_runtime *runtime)
{
    handover_fiber_eventual *eventual;
    handover_fiber *fiber;
    handover_status status;
    pthread_t thread;
    OK(handover_fiber_eventual_create(&eventual));
    OK(handover_fiber_spawn(runtime, wait_for_eventual, eventual, &fiber));
    EXPECT_TRUE(pthread_create(&thread, NULL, join_long, fiber) == 0);
    while ((status = handover_fiber_join(fiber, 0, NULL)) == HANDOVER_TIMED_OUT)
        usleep(100);
    EXPECT(status, HANDOVER_WRONG_THREAD);
    EXPECT(handover_fiber_destroy(fiber), HANDOVER_WRONG_THREAD);
    OK(handover_fiber_eventual_set(eventual, NULL));
    pthread_join(thread, NULL);
    EXPECT(handover_fiber_join(fiber, 0, NULL), HANDOVER_CLOSED);
    OK(handover_fiber_destroy(fiber));
    handover_fiber_eventual_destroy(eventual);
}

static void fibers(void)
{
    struct shared shared;
    handover_fiber *fiber;
    int value;
    void *result = NULL;
    EXPECT_TRUE(pipe(shared.pipes) == 0);
    EXPECT(handover_fiber_wait_readable(shared.pipes[0], 0), HANDOVER_TIMED_OUT);
    OK(handover_fiber_wait_writable(shared.pipes[1], HANDOVER_FOREVER));
    EXPECT(handover_fiber_wait_writable(-1, 0), HANDOVER_INVALID_ARGUMENT);
    EXPECT(handover_fiber_wait_readable(12345, 0), HANDOVER_SYSTEM);
    EXPECT(handover_fiber_wait_writable(12345, HANDOVER_FOREVER), HANDOVER_SYSTEM);
    EXPECT(handover_fiber_runtime_create(0, 0, &shared.runtime), HANDOVER_INVALID_ARGUMENT);
    OK(handover_fiber_runtime_create(1, 256 << 10, &shared.runtime));
    OK(handover_fiber_eventual_create(&shared.eventual));
    OK(handover_fiber_eventual_create(&shared.started));
    EXPECT(handover_fiber_spawn(shared.runtime, NULL, NULL, NULL), HANDOVER_NULL_ARGUMENT);
    EXPECT(handover_fiber_spawn(NULL, waiter, NULL, NULL), HANDOVER_WRONG_THREAD);
    OK(handover_fiber_spawn(shared.runtime, waiter, &shared, &fiber));
    OK(handover_fiber_eventual_wait(shared.started, HANDOVER_FOREVER, NULL));
    EXPECT(handover_fiber_join(fiber, 20 * MS, &result), HANDOVER_TIMED_OUT);
    EXPECT_TRUE(write(shared.pipes[1], "", 1) == 1);
    OK(handover_fiber_eventual_set(shared.eventual, &value));
    EXPECT(handover_fiber_eventual_set(shared.eventual, NULL), HANDOVER_ALREADY_EXISTS);
    OK(handover_fiber_join(fiber, HANDOVER_FOREVER, &result));
    EXPECT_TRUE(result == &value);
    EXPECT(handover_fiber_join(fiber, 0, NULL), HANDOVER_CLOSED);
    OK(handover_fiber_destroy(fiber));
    OK(handover_fiber_eventual_reset(shared.eventual));
    EXPECT(handover_fiber_eventual_reset(shared.eventual), HANDOVER_EMPTY);
    EXPECT(handover_fiber_eventual_wait(shared.eventual, 0, NULL), HANDOVER_TIMED_OUT);
    handover_fiber_eventual_destroy(shared.eventual);
    handover_fiber_eventual_destroy(shared.started);
    EXPECT_TRUE(handover_fiber_id() == UINT64_MAX);
    fiber_is_joined_by_another_thread(shared.runtime);
    OK(handover_fiber_runtime_destroy(shared.runtime));
    close(shared.pipes[0]);
    close(shared.pipes[1]);
    EXPECT(handover_fiber_runtime_destroy(NULL), HANDOVER_NULL_ARGUMENT);
}

static int32_t busy(handover_rpc_endpoint *endpoint, const handover_rpc_request *request,
                    handover_rpc_response *response, void *context)
{
    handover_rpc_peer peer;
    (void)context;
    EXPECT(handover_rpc_destroy(endpoint), HANDOVER_BUSY);
    EXPECT(handover_rpc_serve(endpoint), HANDOVER_BUSY);
    EXPECT(handover_rpc_connect(endpoint, "sm://x", &peer), HANDOVER_BUSY);
    EXPECT(handover_rpc_respond(response, NULL, 3), HANDOVER_NULL_ARGUMENT);
    OK(handover_rpc_respond(response, request->arguments, request->arguments_bytes));
    return 0;
}

static int32_t slow(handover_rpc_endpoint *endpoint, const handover_rpc_request *request,
                    handover_rpc_response *response, void *context)
{
    char byte;
    (void)endpoint, (void)request, (void)response;
    EXPECT_TRUE(read(*(const int *)context, &byte, 1) == 1); /* until the caller's time limit has passed */
    return 0;
}

static int32_t fails(handover_rpc_endpoint *endpoint, const handover_rpc_request *request,
                     handover_rpc_response *response, void *context)
{
    (void)endpoint, (void)request, (void)context;
    OK(handover_rpc_respond(response, "lost", 4));
    OK(handover_rpc_fail(response, "on purpose"));
    return -7;
}

static int32_t doubles(handover_rpc_endpoint *endpoint, const handover_rpc_request *request,
                       handover_rpc_response *response, void *context)
{
    (void)endpoint, (void)context;
    for (int at = 0; at < 2; at++)
        OK(handover_rpc_respond(response, request->arguments, request->arguments_bytes));
    return 0;
}

static void *serve(void *server)
{
    OK(handover_rpc_serve(server));
    return NULL;
}

static void calls(void)
{
    handover_rpc_config config;
    handover_rpc_endpoint *server, *client;
    handover_rpc_peer peer;
    handover_rpc_memory *memory, *small;
    handover_rpc_bulk bulk, copy;
    char address[128], result[16];
    size_t bytes = sizeof result;
    uint64_t memory_bytes;
    pthread_t thread;
    int pipes[2];
    EXPECT_TRUE(pipe(pipes) == 0);
    OK(handover_rpc_config_init(&config));
    config.peers_max = 0;
    EXPECT(handover_rpc_create(&config, &server), HANDOVER_INVALID_ARGUMENT);
    OK(handover_rpc_config_init(&config));
    config.tls_key_path = "key.pem";
    EXPECT(handover_rpc_create(&config, &server), HANDOVER_INVALID_ARGUMENT);
    OK(handover_rpc_create(NULL, &server));
    OK(handover_rpc_create(NULL, &client));
    EXPECT(handover_rpc_listen(server, "nowhere", address, sizeof address), HANDOVER_INVALID_ARGUMENT);
    EXPECT(handover_rpc_listen(server, "sm://", address, 3), HANDOVER_TOO_LONG);
    OK(handover_rpc_listen(server, "tcp://127.0.0.1:0", address, sizeof address));
    OK(handover_rpc_register(server, "busy", 0, busy, NULL));
    EXPECT(handover_rpc_register(server, "busy", 0, busy, NULL), HANDOVER_ALREADY_EXISTS);
    EXPECT(handover_rpc_register(server, NULL, 0, busy, NULL), HANDOVER_NULL_ARGUMENT);
    EXPECT(handover_rpc_register(server, "null", 0, NULL, NULL), HANDOVER_NULL_ARGUMENT);
    OK(handover_rpc_register(server, "slow", 3, slow, &pipes[0]));
    OK(handover_rpc_register(server, "fails", 0, fails, NULL));
    OK(handover_rpc_register(server, "gone", 0, fails, NULL));
    OK(handover_rpc_unregister(server, "gone", 0));
    EXPECT(handover_rpc_unregister(server, "gone", 0), HANDOVER_NOT_FOUND);
    EXPECT(handover_rpc_progress(server, MS), HANDOVER_TIMED_OUT);
    EXPECT_TRUE(pthread_create(&thread, NULL, serve, server) == 0);
    EXPECT(handover_rpc_connect(client, "sm://no-such-handover-endpoint", &peer), HANDOVER_SYSTEM);
    OK(handover_rpc_connect(client, address, &peer));
    EXPECT(handover_rpc_destroy(server), HANDOVER_WRONG_THREAD);

    OK(handover_rpc_call(client, peer, "busy", 0, "echo", 4, result, &bytes, HANDOVER_FOREVER));
    EXPECT_TRUE(bytes == 4 && memcmp(result, "echo", 4) == 0);
    memcpy(result, "same", 4);
    OK(handover_rpc_call(client, peer, "busy", 0, result, 4, result, &bytes, HANDOVER_FOREVER));
    EXPECT_TRUE(bytes == 4 && memcmp(result, "same", 4) == 0);
    bytes = sizeof bytes; /* in the same place, the length replaces the result */
    OK(handover_rpc_call(client, peer, "busy", 0, "8 bytes!", sizeof bytes, &bytes, &bytes, HANDOVER_FOREVER));
    EXPECT_TRUE(bytes == sizeof bytes);
    bytes = 3;
    EXPECT(handover_rpc_call(client, peer, "busy", 0, "echo", 4, result, &bytes, HANDOVER_FOREVER), HANDOVER_TOO_LONG);
    EXPECT_TRUE(bytes == 4);
    OK(handover_rpc_call(client, peer, "busy", 0, NULL, 0, NULL, NULL, HANDOVER_FOREVER));
    EXPECT(handover_rpc_call(client, peer, "busy", 0, NULL, 1, NULL, NULL, 0), HANDOVER_NULL_ARGUMENT);
    EXPECT(handover_rpc_call(client, peer, "gone", 0, NULL, 0, NULL, NULL, HANDOVER_FOREVER), HANDOVER_NOT_FOUND);
    EXPECT(handover_rpc_call(client, peer, "fails", 0, NULL, 0, NULL, NULL, HANDOVER_FOREVER),
           HANDOVER_HANDLER_FAILED);
    EXPECT_TRUE(handover_rpc_failure_code(client) == -7 && strstr(handover_last_error(), "on purpose"));
    EXPECT(handover_rpc_call(client, peer, "slow", 3, NULL, 0, NULL, NULL, 10 * MS), HANDOVER_TIMED_OUT);
    EXPECT_TRUE(write(pipes[1], "", 1) == 1);
    EXPECT(handover_rpc_stop_peer(client, peer), HANDOVER_NOT_FOUND);

    OK(handover_rpc_memory_create(4096, &memory));
    OK(handover_rpc_memory_create(16, &small));
    EXPECT(handover_rpc_memory_read(memory, 4090, result, 7), HANDOVER_INVALID_ARGUMENT);
    EXPECT(handover_rpc_memory_write(memory, UINT64_MAX, result, 1), HANDOVER_INVALID_ARGUMENT);
    EXPECT(handover_rpc_memory_read(memory, 0, NULL, 1), HANDOVER_NULL_ARGUMENT);
    EXPECT(handover_rpc_expose(client, memory, 0, &bulk), HANDOVER_INVALID_ARGUMENT);
    OK(handover_rpc_expose(client, memory, HANDOVER_RPC_READ_WRITE, &bulk));
    OK(handover_rpc_bulk_read(bulk.bytes, sizeof bulk.bytes, &copy, &memory_bytes));
    EXPECT_TRUE(memory_bytes == 4096 && memcmp(&bulk, &copy, sizeof bulk) == 0);
    OK(handover_rpc_bulk_read(copy.bytes, sizeof copy.bytes, &copy, NULL));
    EXPECT_TRUE(memcmp(&bulk, &copy, sizeof bulk) == 0);
    memset(copy.bytes, 0xff, sizeof copy.bytes);
    EXPECT(handover_rpc_bulk_read("", 0, &copy, NULL), HANDOVER_INVALID_ARGUMENT);
    handover_rpc_range range = { .bytes = 17, .timeout_ns = 60000 * MS };
    EXPECT(handover_rpc_pull(client, peer, &copy, small, &range), HANDOVER_INVALID_ARGUMENT);
    EXPECT(handover_rpc_pull(client, peer, &bulk, small, &range), HANDOVER_INVALID_ARGUMENT);
    range.bytes = 16;
    EXPECT(handover_rpc_push(client, peer, &bulk, small, &range), HANDOVER_REFUSED); /* it is not the server's */
    OK(handover_rpc_withdraw(client, &bulk, 60000 * MS));
    EXPECT(handover_rpc_withdraw(client, &bulk, 0), HANDOVER_NOT_FOUND);
    handover_rpc_memory_destroy(memory);
    handover_rpc_memory_destroy(small);

    OK(handover_rpc_stop(server));
    pthread_join(thread, NULL);
    OK(handover_rpc_destroy(server));
    EXPECT(handover_rpc_call(client, peer, "busy", 0, NULL, 0, NULL, NULL, HANDOVER_FOREVER), HANDOVER_DISCONNECTED);
    EXPECT(handover_rpc_disconnect(client, peer), HANDOVER_DISCONNECTED);
    OK(handover_rpc_destroy(client));
    close(pipes[0]);
    close(pipes[1]);
    EXPECT(handover_rpc_destroy(NULL), HANDOVER_NULL_ARGUMENT);
}

static void long_messages(void)
{
    enum { BYTES = 3 << 20 };
    handover_rpc_config config;
    handover_rpc_endpoint *server, *client;
    handover_rpc_peer peer;
    char address[128], *arguments = calloc(1, BYTES + 1), *result = malloc(BYTES);
    size_t bytes = BYTES;
    pthread_t thread;
    OK(handover_rpc_config_init(&config));
    config.message_bytes_max = UINT32_MAX;
    EXPECT(handover_rpc_create(&config, &server), HANDOVER_INVALID_ARGUMENT);
    EXPECT_TRUE(strstr(handover_last_error(), "message_bytes_max"));
    config.message_bytes_max = BYTES;
    OK(handover_rpc_create(&config, &server));
    OK(handover_rpc_create(&config, &client));
    OK(handover_rpc_listen(server, "sm://", address, sizeof address));
    OK(handover_rpc_register(server, "busy", 0, busy, NULL));
    OK(handover_rpc_register(server, "doubles", 0, doubles, NULL));
    EXPECT_TRUE(pthread_create(&thread, NULL, serve, server) == 0);
    OK(handover_rpc_connect(client, address, &peer));
    arguments[BYTES - 1] = 7;
    OK(handover_rpc_call(client, peer, "busy", 0, arguments, BYTES, result, &bytes, HANDOVER_FOREVER));
    EXPECT_TRUE(bytes == BYTES && memcmp(arguments, result, BYTES) == 0);
    EXPECT(handover_rpc_call(client, peer, "busy", 0, arguments, BYTES + 1, result, &bytes, HANDOVER_FOREVER),
           HANDOVER_TOO_LONG);
    EXPECT_TRUE(bytes == 0);
    bytes = BYTES;
    EXPECT(handover_rpc_call(client, peer, "doubles", 0, arguments, BYTES, result, &bytes, HANDOVER_FOREVER),
           HANDOVER_TOO_LONG);
    EXPECT_TRUE(bytes == 0);
    OK(handover_rpc_stop(server));
    pthread_join(thread, NULL);
    OK(handover_rpc_destroy(server));
    OK(handover_rpc_destroy(client));
    free(arguments);
    free(result);
}

static void probes(void)
{
    handover_probe_recording *recording;
    EXPECT(handover_probe_start("/no-such-folder/x.trace", 1, &recording), HANDOVER_SYSTEM);
    EXPECT(handover_probe_start(NULL, 1, &recording), HANDOVER_NULL_ARGUMENT);
    EXPECT(handover_probe_enable(NULL, NULL), HANDOVER_NULL_ARGUMENT);
    EXPECT(handover_probe_finish(NULL, NULL), HANDOVER_NULL_ARGUMENT);
}

/* Arguments name the parts to leave out. */
int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*test)(void);
    } parts[] = { { "library", library },       { "rings", rings },   { "notifications", notifications },
                  { "locks", locks },           { "timers", timers }, { "schedulers", schedulers },
                  { "events", events },         { "replies", replies }, { "fibers", fibers },
                  { "calls", calls },           { "long_messages", long_messages }, { "probes", probes } };
    for (size_t at = 0; at < sizeof parts / sizeof *parts; at++) {
        int is_left_out = 0;
        for (int argument = 1; argument < argc; argument++)
            is_left_out |= strcmp(argv[argument], parts[at].name) == 0;
        if (!is_left_out)
            parts[at].test();
    }
    puts("every misuse was refused");
    return 0;
}
