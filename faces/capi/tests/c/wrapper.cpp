/* What classes and functions of handover.hpp add to the C interface: here the moves of objects. */
#include <handover.hpp>

#include <cstdio>
#include <cstdlib>
#include <utility>

#define EXPECT_TRUE(condition)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            std::fprintf(stderr, "line %d: %s is false\n", __LINE__, #condition);                  \
            std::exit(1);                                                                          \
        }                                                                                          \
    } while (0)

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

int main()
{
    moves();
    std::puts("done");
    return 0;
}
