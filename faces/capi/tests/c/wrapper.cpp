/* What classes and functions of handover.hpp add to the C interface: moves and messages of errors. */
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
}

static void messages()
{
    const auto message = thrown_by([] { handover::make_ring<int>(HANDOVER_RING_SPSC, 0); });
    EXPECT_TRUE(message == std::string("invalid argument: ") + handover_last_error());
    for (auto status : { HANDOVER_FULL, HANDOVER_EMPTY, HANDOVER_CLOSED, HANDOVER_TIMED_OUT, HANDOVER_BUSY })
        EXPECT_TRUE(thrown_by([=] { handover::check(status); }) == handover_strerror(status));
}

int main()
{
    moves();
    messages();
    std::puts("done");
    return 0;
}
