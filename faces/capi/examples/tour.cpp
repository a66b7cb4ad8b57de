/* A tour of handover.hpp: a ring, event machines, fibers, a packet scheduler, and an RPC whose
 * handler throws. */
#include <handover.hpp>

#include <iostream>
#include <mutex>
#include <thread>

using namespace std::chrono_literals;

struct point {
    double x, y;
};

static void rings()
{
    auto [producer, consumer] = handover::make_ring<point>(HANDOVER_RING_MPMC, 64);
    auto second = consumer.another();
    std::thread other([clone = producer.another()]() mutable {
        for (int at = 0; at < 10; at++)
            clone.push({ 1.0 * at, 0.5 });
    });
    other.join();
    point point{};
    double sum = 0;
    while (consumer.pop(point) == handover::outcome::done || second.pop(point) == handover::outcome::done)
        sum += point.x * point.y;
    std::cout << "sum " << sum << '\n';
}

static void events()
{
    int count = 0;
    handover::event_machine machine([&](handover::event_machine &self, const handover_event_message &message) {
        if (++count == 3)
            self.stop();
        else
            self.after(1ms, message);
    });
    handover::event_machine moved = std::move(machine);
    moved.send({});
    moved.run();
    std::cout << count << " messages\n";
}

struct question {
    int number;
    int square;
    handover::event_reply<int> reply;
};

static void requests()
{
    auto [reply, pending] = handover::make_reply<int>();
    question asked{ 7, 0, std::move(reply) };
    handover::event_machine machine([](handover::event_machine &self, const handover_event_message &message) {
        auto &request = *static_cast<question *>(message.data);
        request.square = request.number * request.number;
        request.reply.send(&request.square);
        self.stop();
    });
    const auto weak = machine.address().downgrade();
    weak.upgrade().value().send({ 0, 0, &asked });
    machine.run();
    std::cout << *pending.wait(60s).value() << " is the square\n";
}

static void schedulers()
{
    handover::scheduler scheduler("qfq", "wf2q+", 4, 8);
    handover_sched_flow flow;
    handover::check(handover_sched_flow_init(&flow));
    const auto tenant = scheduler.add_tenant(1, flow.length_bytes_max);
    const auto number = scheduler.add_flow_of(tenant, flow);
    scheduler.set_tenant_weight(0, tenant, 3);
    scheduler.set_weight(0, number, 2);
    scheduler.enqueue(0, { number, 100, nullptr });
    std::cout << scheduler.remove_flow(number).size() << " packet of the removed flow\n";
}

static void fibers()
{
    int value = 42;
    handover::eventual<int> answer;
    handover::mutex mutex;
    handover::fiber_runtime runtime(2);
    auto asks = runtime.spawn([&] {
        const int *found = answer.wait(60s).value();
        const std::lock_guard guard(mutex);
        std::cout << "the answer is " << *found << '\n';
    });
    auto answers = runtime.spawn([&] { answer.set(&value); });
    answers.join();
    asks.join();
}

static void calls()
{
    handover::rpc_endpoint server, client;
    server.register_procedure("half", [](auto &, auto, const void *arguments, std::size_t count) {
        std::uint64_t number;
        if (count != sizeof number)
            throw std::invalid_argument("not a number");
        std::memcpy(&number, arguments, sizeof number);
        number /= 2;
        const auto *bytes = reinterpret_cast<const unsigned char *>(&number);
        return handover::rpc_endpoint::bytes(bytes, bytes + sizeof number);
    });
    const std::string address = server.listen("sm://");
    std::thread serving([&] { server.serve(); });
    const auto peer = client.connect(address);
    std::uint64_t number = 84;
    const auto result = client.call(peer, "half", &number, sizeof number, sizeof number, 60s);
    std::memcpy(&number, result.data(), result.size());
    std::cout << "half is " << number << '\n';
    try {
        client.call(peer, "half", nullptr, 0);
    } catch (const handover::error &error) {
        std::cout << error.what() << '\n';
    }
    server.stop();
    serving.join();
}

int main()
{
    try {
        rings();
        events();
        requests();
        schedulers();
        fibers();
        calls();
        handover::make_ring<point>(HANDOVER_RING_SPSC, 0);
    } catch (const handover::error &error) {
        std::cout << error.what() << '\n';
    }
    return 0;
}
