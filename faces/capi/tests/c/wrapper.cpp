/* What classes and functions of handover.hpp add to the C interface: moves, messages of errors, and
 * results. */
#include <handover.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#define EXPECT_TRUE(condition)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            std::fprintf(stderr, "line %d: %s is false\n", __LINE__, #condition);                  \
            std::exit(1);                                                                          \
        }                                                                                          \
    } while (0)

/* Returns the message with which `function` throws. */
template <class Function> static std::string thrown_by(Function function)
{
    try {
        function();
    } catch (const handover::error &error) {
        return error.what();
    }
    return "nothing was thrown";
}

/* Swaps and moves objects, some of them moved from. */
template <class T> static T moved(T first)
{
    std::swap(first, first);
    T second = std::move(first);
    T third = std::move(first);
    third = std::move(first);
    std::swap(first, second);
    return first;
}

static void moves()
{
    int count = 0;
    auto machine = moved(handover::event_machine([&](handover::event_machine &self, const handover_event_message &) {
        count++;
        self.stop();
    }));
    machine.send({});
    machine.run();
    EXPECT_TRUE(count == 1);
    auto server = moved(handover::rpc_endpoint());
    EXPECT_TRUE(server.listen("sm://").rfind("sm://", 0) == 0);
    auto moved_to = std::move(server);
    const auto message = thrown_by([&] { server.register_procedure("lost", {}); });
    EXPECT_TRUE(message.find("endpoint: must not be null") != std::string::npos);
}

static void messages()
{
    const auto message = thrown_by([] { handover::make_ring<int>(HANDOVER_RING_SPSC, 0); });
    EXPECT_TRUE(message == std::string("invalid argument: ") + handover_last_error());
    for (auto status : { HANDOVER_FULL, HANDOVER_EMPTY, HANDOVER_CLOSED, HANDOVER_TIMED_OUT, HANDOVER_BUSY })
        EXPECT_TRUE(thrown_by([=] { handover::check(status); }) == handover_strerror(status));
}

static void periods()
{
    handover::timer_wheel<int> wheel(1, 0);
    const auto message = thrown_by([&] { wheel.start_periodic(1, handover::nanoseconds(-1), nullptr); });
    EXPECT_TRUE(message.find("period_ns=0") != std::string::npos);
}

static void dropped_packets()
{
    handover::scheduler scheduler("rr", 1, 8);
    handover_sched_flow flow;
    handover::check(handover_sched_flow_init(&flow));
    flow.packets_max = 1;
    flow.drops_oldest = 1;
    const auto number = scheduler.add_flow(flow);
    int first, second;
    std::optional<handover_sched_packet> dropped;
    EXPECT_TRUE(scheduler.enqueue(0, { number, 100, &first }, dropped) && !dropped);
    EXPECT_TRUE(scheduler.enqueue(0, { number, 100, &second }, dropped) && dropped->token == &first);
    handover_sched_totals totals;
    handover::check(handover_sched_count(scheduler.get(), &totals));
    EXPECT_TRUE(totals.enqueued == 2 && totals.dropped == 1);
}

int main()
{
    moves();
    periods();
    dropped_packets();
    messages();
    std::puts("done");
    return 0;
}
