/* Destroys a machine, or an endpoint, within its own handler, which ends the program by
 * std::terminate(). */
#include <handover.hpp>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

using namespace std::chrono_literals;

static void destroy_machine()
{
    std::optional<handover::event_machine> machine;
    machine.emplace([&](handover::event_machine &, const handover_event_message &) { machine.reset(); });
    machine->send({});
    machine->run();
}

static void destroy_endpoint()
{
    std::optional<handover::rpc_endpoint> server;
    handover::rpc_endpoint client;
    server.emplace();
    server->register_procedure("destroy", [&](auto &, auto, const void *, std::size_t) {
        server.reset();
        return handover::rpc_endpoint::bytes();
    });
    const std::string address = server->listen("sm://");
    std::thread serving([&] { server->serve(); });
    client.call(client.connect(address), "destroy", nullptr, 0, 0, 60s);
    serving.join();
}

int main(int, char **words)
{
    std::set_terminate([] {
        std::puts("terminated");
        std::fflush(stdout);
        std::_Exit(0);
    });
    std::string(words[1]) == "machine" ? destroy_machine() : destroy_endpoint();
    return 1;
}
