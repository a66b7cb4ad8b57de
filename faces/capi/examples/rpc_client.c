/* Sends 1 MiB to a server, which pulls it from this process's memory and returns the sum of its
 * bytes. */
#include "check.h"

int main(int argc, char **argv)
{
    enum { BYTES = 1 << 20 };
    handover_rpc_endpoint *client;
    handover_rpc_peer server;
    handover_rpc_memory *memory;
    handover_rpc_bulk bulk;
    const uint64_t limit_ns = 60000000000;
    if (argc < 2) {
        fprintf(stderr, "usage: %s ADDRESS\n", argv[0]);
        return 2;
    }
    CHECK(handover_rpc_create(NULL, &client));
    CHECK(handover_rpc_connect(client, argv[1], &server));

    CHECK(handover_rpc_memory_create(BYTES, &memory));
    for (uint32_t at = 0; at < BYTES; at += sizeof at)
        CHECK(handover_rpc_memory_write(memory, at, &at, sizeof at));
    CHECK(handover_rpc_expose(client, memory, HANDOVER_RPC_READ, &bulk));

    uint64_t sum;
    size_t sum_bytes = sizeof sum;
    CHECK(handover_rpc_call(client, server, "sum", 0, &bulk, sizeof bulk, &sum, &sum_bytes, limit_ns));
    printf("the sum of %d bytes is %llu\n", BYTES, (unsigned long long)sum);

    if (handover_rpc_call(client, server, "sum", 0, NULL, 0, NULL, NULL, limit_ns) == HANDOVER_HANDLER_FAILED)
        printf("%d: %s\n", handover_rpc_failure_code(client), handover_last_error());

    CHECK(handover_rpc_withdraw(client, &bulk, limit_ns));
    CHECK(handover_rpc_stop_peer(client, server));
    CHECK(handover_rpc_destroy(client));
    handover_rpc_memory_destroy(memory);
    return 0;
}
