/* An RPC server: "sum" pulls the memory whose handle it is sent, and returns the sum of its bytes.
 * It serves until a client stops it, and prints the address at which it listens. */
#include "check.h"

static int32_t sum(handover_rpc_endpoint *endpoint, const handover_rpc_request *request,
                   handover_rpc_response *response, void *context)
{
    handover_rpc_memory *memory = context;
    handover_rpc_bulk bulk;
    uint64_t bytes, total = 0;
    if (handover_rpc_bulk_read(request->arguments, request->arguments_bytes, &bulk, &bytes) ||
        bytes > handover_rpc_memory_bytes(memory)) {
        handover_rpc_fail(response, "send the handle of at most 1 MiB");
        return 22;
    }
    const handover_rpc_range range = { .bytes = bytes, .timeout_ns = 60000000000 };
    if (handover_rpc_pull(endpoint, request->peer, &bulk, memory, &range)) {
        handover_rpc_fail(response, handover_last_error());
        return 5;
    }
    for (uint64_t at = 0; at < bytes;) {
        uint8_t piece[4096];
        size_t count = bytes - at < sizeof piece ? (size_t)(bytes - at) : sizeof piece;
        CHECK(handover_rpc_memory_read(memory, at, piece, count));
        at += count;
        while (count > 0)
            total += piece[--count];
    }
    return handover_rpc_respond(response, &total, sizeof total);
}

int main(int argc, char **argv)
{
    handover_rpc_config config;
    handover_rpc_endpoint *server;
    handover_rpc_memory *memory;
    char address[128];
    CHECK(handover_rpc_config_init(&config));
    config.allows_remote_stop = 1;
    CHECK(handover_rpc_create(&config, &server));
    CHECK(handover_rpc_memory_create(1 << 20, &memory));
    CHECK(handover_rpc_register(server, "sum", 0, sum, memory));
    CHECK(handover_rpc_listen(server, argc > 1 ? argv[1] : "sm://", address, sizeof address));
    printf("%s\n", address);
    fflush(stdout);
    CHECK(handover_rpc_serve(server));
    CHECK(handover_rpc_destroy(server));
    handover_rpc_memory_destroy(memory);
    return 0;
}
