/* handover.h: rings, notifications, locks, timers, event machines, fibers, packet schedulers, remote
 * procedure calls and probes, for C. README.md has an example, and the rules on ownership and threads.
 *
 * Each function that can fail returns a handover_status; handover_last_error() returns the details. A handle is
 * opaque: it is created by a function of its module, and destroyed by another. Pointers to handles and structures
 * must be valid for the function's type, or null where its description allows that. Other null pointers, and numbers
 * outside their range, are errors.
 *
 * "Threads" in a description says which threads may call a function for one handle at the same time; calls for
 * different handles are independent. Strings are UTF-8 and end with a zero byte. Output parameters are only written
 * if the function succeeds, unless its description says otherwise.
 *
 * "Ownership" in a description says which handles, pointers and memory a function returns, keeps or invalidates.
 * Otherwise it uses its arguments only until it returns, copies what it needs later, and leaves them to the program.
 * A pointer that the library keeps for the program (context, data, payload, token, value) is never read or freed.
 *
 * Licence: MIT OR Apache-2.0. Generated from the library's sources: do not edit.
 */

#ifndef HANDOVER_H
#define HANDOVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Bit of readiness and interest: the descriptor has data, or the end of the stream, to read.
 */
#define HANDOVER_EVENT_READABLE 1

/**
 * Bit of readiness and interest: a write to the descriptor will not block.
 */
#define HANDOVER_EVENT_WRITABLE 2

/**
 * Bit of readiness: the peer has closed the connection, or its sending direction.
 */
#define HANDOVER_EVENT_HUNG_UP 4

/**
 * Bit of readiness: an error of the descriptor is pending.
 */
#define HANDOVER_EVENT_FAILED 8

/**
 * Bit of interest: only changes of readiness cause messages (edge-triggered). Data that the
 * handler leaves unread causes none.
 */
#define HANDOVER_EVENT_EDGE 16

/**
 * Time limit that never passes.
 */
#define HANDOVER_FOREVER UINT64_MAX

/**
 * Major version of this header; compare it with `handover_version()`.
 */
#define HANDOVER_VERSION_MAJOR 0

/**
 * Minor version of this header. While the major version is 0, another minor version is not
 * compatible.
 */
#define HANDOVER_VERSION_MINOR 1

/**
 * Patch version of this header.
 */
#define HANDOVER_VERSION_PATCH 0

/**
 * Maximum size of an element of a ring in bytes. Push pointers to larger values.
 */
#define HANDOVER_RING_ELEMENT_BYTES_MAX 4096

/**
 * Size of a bulk handle in bytes.
 */
#define HANDOVER_RPC_BULK_BYTES 40

/**
 * Result of a function: `HANDOVER_OK`, or the reason why the function did nothing.
 * `handover_strerror` returns a text for each value. Later versions may add values.
 */
typedef enum handover_status {
    /**
     * The function did what its description says.
     */
    HANDOVER_OK = 0,
    /**
     * A pointer that must not be null is null.
     */
    HANDOVER_NULL_ARGUMENT = 1,
    /**
     * An argument is outside its range, misaligned, or not valid UTF-8.
     */
    HANDOVER_INVALID_ARGUMENT = 2,
    /**
     * Memory could not be allocated.
     */
    HANDOVER_OUT_OF_MEMORY = 3,
    /**
     * The queue, table or ring is full; a later attempt can succeed.
     */
    HANDOVER_FULL = 4,
    /**
     * There is no element, packet or notification; a later attempt can succeed.
     */
    HANDOVER_EMPTY = 5,
    /**
     * The other end was closed or destroyed; no later attempt can succeed.
     */
    HANDOVER_CLOSED = 6,
    /**
     * The time limit passed.
     */
    HANDOVER_TIMED_OUT = 7,
    /**
     * The handle is in use by this thread, in a running call or callback. Also returned for a lock
     * that is held, a notification that is pending, and a recording that is running.
     */
    HANDOVER_BUSY = 8,
    /**
     * The handle is in use by another thread, or this thread may not call the function.
     */
    HANDOVER_WRONG_THREAD = 9,
    /**
     * No timer, flow, procedure, memory or pool has this name or number.
     */
    HANDOVER_NOT_FOUND = 10,
    /**
     * The name is already registered, or the value is already set.
     */
    HANDOVER_ALREADY_EXISTS = 11,
    /**
     * The buffer is too small, or the message is longer than the limit.
     */
    HANDOVER_TOO_LONG = 12,
    /**
     * The kernel refused a system call.
     */
    HANDOVER_SYSTEM = 13,
    /**
     * The connection to the peer ended. It is not known whether a handler has run.
     */
    HANDOVER_DISCONNECTED = 14,
    /**
     * The peer or the scheduler refused the request.
     */
    HANDOVER_REFUSED = 15,
    /**
     * The peer's handler returned an error, which `handover_last_error` contains.
     */
    HANDOVER_HANDLER_FAILED = 16,
    /**
     * The library panicked, which is a defect. The handle can only be destroyed.
     */
    HANDOVER_PANIC = 17,
} handover_status;

/**
 * Kind of a ring: the numbers of threads that may push and pop.
 */
typedef enum handover_ring_kind {
    /**
     * One thread at a time pushes, and one at a time pops. The cheapest.
     */
    HANDOVER_RING_SPSC = 0,
    /**
     * Any number of threads push, and one thread at a time pops. Threads can share a producer.
     */
    HANDOVER_RING_MPSC = 1,
    /**
     * Any number of threads push and pop. Each thread that pops needs its own consumer.
     */
    HANDOVER_RING_MPMC = 2,
} handover_ring_kind;

/**
 * Kind of a notification: the object on which the receiver sleeps.
 */
typedef enum handover_notify_kind {
    /**
     * The receiver sleeps on a futex.
     */
    HANDOVER_NOTIFY_FUTEX = 0,
    /**
     * The receiver sleeps on an eventfd, by itself or in an epoll set of the program.
     */
    HANDOVER_NOTIFY_EVENTFD = 1,
    /**
     * The receiver sleeps on a futex, and is also woken when the sender is destroyed. It never
     * spins.
     */
    HANDOVER_NOTIFY_CLOSING = 2,
} handover_notify_kind;

/**
 * Policy for messages that arrive from other threads while the inbox is full.
 */
typedef enum handover_event_when_full {
    /**
     * `handover_event_send` returns `HANDOVER_FULL`.
     */
    HANDOVER_EVENT_REFUSE = 0,
    /**
     * `handover_event_send` waits for at most `wait_ns_max`. On the machine's own thread, it
     * returns `HANDOVER_FULL` instead.
     */
    HANDOVER_EVENT_BLOCK = 1,
    /**
     * The oldest queued message is dropped silently.
     */
    HANDOVER_EVENT_DROP_OLDEST = 2,
} handover_event_when_full;

/**
 * Access rights that a bulk handle gives to a peer.
 */
typedef enum handover_rpc_rights {
    /**
     * The peer may pull from the memory.
     */
    HANDOVER_RPC_READ = 1,
    /**
     * The peer may push into the memory.
     */
    HANDOVER_RPC_WRITE = 2,
    /**
     * The peer may pull from the memory and push into it.
     */
    HANDOVER_RPC_READ_WRITE = 3,
} handover_rpc_rights;

/**
 * Sending end of a machine's inbox; opaque.
 */
typedef struct handover_event_address handover_event_address;

/**
 * Handler with an inbox, timers and descriptors; opaque.
 */
typedef struct handover_event_machine handover_event_machine;

/**
 * Handle with which a thread waits for a requested reply; opaque.
 */
typedef struct handover_event_pending_reply handover_event_pending_reply;

/**
 * Handle with which a handler replies to one request; opaque.
 */
typedef struct handover_event_reply handover_event_reply;

/**
 * Weak reference to a machine's inbox, which does not keep the memory of the inbox alive; opaque.
 */
typedef struct handover_event_weak_address handover_event_weak_address;

/**
 * Handle of a spawned fiber, with which it can be joined; opaque.
 */
typedef struct handover_fiber handover_fiber;

/**
 * Pointer that one fiber or thread sets, and for which others wait; opaque.
 */
typedef struct handover_fiber_eventual handover_fiber_eventual;

/**
 * Worker threads that run fibers; opaque.
 */
typedef struct handover_fiber_runtime handover_fiber_runtime;

/**
 * Lock of one word, for critical sections of some ns; opaque.
 */
typedef struct handover_lock handover_lock;

/**
 * Receiving end of a notification; opaque.
 */
typedef struct handover_notify_receiver handover_notify_receiver;

/**
 * Sending end of a notification; opaque.
 */
typedef struct handover_notify_sender handover_notify_sender;

/**
 * Recording of this process's events; opaque.
 */
typedef struct handover_probe_recording handover_probe_recording;

/**
 * End of a ring that pops elements; opaque.
 */
typedef struct handover_ring_consumer handover_ring_consumer;

/**
 * End of a ring that pushes elements; opaque.
 */
typedef struct handover_ring_producer handover_ring_producer;

/**
 * Endpoint that listens, connects, calls and serves; opaque.
 */
typedef struct handover_rpc_endpoint handover_rpc_endpoint;

/**
 * Memory for bulk transfers, which peers on this machine can map; opaque.
 */
typedef struct handover_rpc_memory handover_rpc_memory;

/**
 * Response to a call, which its handler fills in; opaque, and valid until the handler returns.
 */
typedef struct handover_rpc_response handover_rpc_response;

/**
 * Scheduler of packets; opaque.
 */
typedef struct handover_sched handover_sched;

/**
 * Set of timers, each with a deadline and a pointer of the program; opaque.
 */
typedef struct handover_timer_wheel handover_timer_wheel;

/**
 * Limits of a machine. `handover_event_config_init` fills in the defaults.
 */
typedef struct handover_event_config {
    /**
     * Size of this structure in bytes, set by `handover_event_config_init`. Another size is
     * refused.
     */
    size_t struct_bytes;
    /**
     * Maximum wait of a sender in ns under `HANDOVER_EVENT_BLOCK`. Default `HANDOVER_FOREVER`.
     */
    uint64_t wait_ns_max;
    /**
     * Maximum number of queued messages from other threads. Default 1,024.
     */
    uint32_t inbox_messages_max;
    /**
     * Maximum number of queued messages from the machine's own thread. Default 65,536.
     */
    uint32_t local_messages_max;
    /**
     * Maximum number of running timers. Default 1,048,576.
     */
    uint32_t timers_max;
    /**
     * Maximum time for which a wait spins before it sleeps, in ns. Default 50,000.
     */
    uint32_t spin_ns_max;
    /**
     * Timer slack of the thread in ns, at most 4 s; 0 leaves it unchanged. Default 0.
     */
    uint32_t timer_slack_ns;
    /**
     * Policy for a full inbox: a `handover_event_when_full`. Default `HANDOVER_EVENT_REFUSE`.
     */
    uint32_t when_full;
} handover_event_config;

/**
 * Message to a machine. The library copies it.
 */
typedef struct handover_event_message {
    /**
     * Kind of the message, chosen by the program.
     */
    uint32_t kind;
    /**
     * Readiness of a watched descriptor, as bits `HANDOVER_EVENT_*`; 0 in other messages.
     */
    uint32_t ready;
    /**
     * Pointer for the program's own use; the library only copies it.
     */
    void *data;
} handover_event_message;

/**
 * Function that handles a message of a machine, on the thread that runs the machine.
 *
 * It may call the functions that take this machine, except those that run or destroy it. `message`
 * is valid until it returns. Neither `longjmp` nor a C++ exception may leave it.
 */
typedef void (*handover_event_handler)(struct handover_event_machine *machine,
                                       const struct handover_event_message *message,
                                       void *context);

/**
 * Function called with each unhandled message when a machine is destroyed.
 */
typedef void (*handover_event_discard)(const struct handover_event_message *message, void *context);

/**
 * Function that a fiber runs. It must return: neither `longjmp` nor a C++ exception may leave it.
 * Thread-local variables of C are those of the worker thread.
 */
typedef void *(*handover_fiber_function)(void *argument);

/**
 * Summary of a finished recording.
 */
typedef struct handover_probe_summary {
    /**
     * Number of events in the file.
     */
    uint64_t recorded;
    /**
     * Number of events that were lost.
     */
    uint64_t lost;
    /**
     * Number of threads that recorded.
     */
    uint64_t threads_count;
    /**
     * Length of the file in bytes.
     */
    uint64_t bytes;
} handover_probe_summary;

/**
 * Limits of an endpoint. `handover_rpc_config_init` fills in the defaults. Strings are copied;
 * null means none.
 */
typedef struct handover_rpc_config {
    /**
     * Size of this structure in bytes, set by `handover_rpc_config_init`. Another size is refused.
     */
    size_t struct_bytes;
    /**
     * Path of the file with the shared secret for `tcp://`. Both ends of each `tcp://` connection
     * must prove that they know it. Default null: anybody who can reach the port can call.
     */
    const char *secret_path;
    /**
     * Path of a PEM file with this endpoint's certificate chain, for `tls://`. Default null.
     */
    const char *tls_certificates_path;
    /**
     * Path of a PEM file with this endpoint's private key, for `tls://`. Default null.
     */
    const char *tls_key_path;
    /**
     * Path of a PEM file with the root certificates that verify peers, for `tls://`. Default null.
     */
    const char *tls_roots_path;
    /**
     * Maximum number of connected peers. Default 4,096.
     */
    uint32_t peers_max;
    /**
     * Maximum number of unfinished calls from this endpoint. Default 65,536.
     */
    uint32_t calls_max;
    /**
     * Maximum length of arguments and results in bytes, up to 128 MiB. Default 1 MiB. Each
     * connection over `sm://` maps two buffers of twice this length, rounded up to a power of two
     * and at least 4 MiB.
     */
    uint32_t message_bytes_max;
    /**
     * Maximum time for which a wait spins before it sleeps, in ns. Default 20,000.
     */
    uint32_t spin_ns_max;
    /**
     * 1 to spin forever instead of sleeping, for a thread with a CPU of its own. Default 0.
     */
    uint32_t should_spin_forever;
    /**
     * Maximum time for a handshake, in ms. Default 5,000.
     */
    uint32_t handshake_timeout_ms;
    /**
     * Maximum time between the first and the last byte of a message on a stream, in ms. 0 sets no
     * limit. Default 30,000.
     */
    uint32_t message_timeout_ms;
    /**
     * 1 to let peers end `handover_rpc_serve` with `handover_rpc_stop_peer`. Default 0.
     */
    uint32_t allows_remote_stop;
} handover_rpc_config;

/**
 * Identifier of a connected peer of an endpoint. It is valid for that endpoint only, and never
 * used for another peer.
 */
typedef struct handover_rpc_peer {
    /**
     * Index of the peer's slot.
     */
    uint32_t slot;
    /**
     * Number of earlier uses of the slot.
     */
    uint32_t generation;
} handover_rpc_peer;

/**
 * Call that a handler answers.
 */
typedef struct handover_rpc_request {
    /**
     * Peer that made the call.
     */
    struct handover_rpc_peer peer;
    /**
     * Arguments, which may be misaligned; valid until the handler returns.
     */
    const void *arguments;
    /**
     * Length of the arguments in bytes.
     */
    size_t arguments_bytes;
} handover_rpc_request;

/**
 * Function that answers a call, on the thread that drives the endpoint. It returns 0 if it
 * succeeded, and otherwise a number that the caller gets with `HANDOVER_HANDLER_FAILED`.
 *
 * It may call peers and transfer memory through its endpoint, and must not serve, connect through
 * or destroy it. Neither `longjmp` nor a C++ exception may leave it.
 */
typedef int32_t (*handover_rpc_handler)(struct handover_rpc_endpoint *endpoint,
                                        const struct handover_rpc_request *request,
                                        struct handover_rpc_response *response,
                                        void *context);

/**
 * Handle of a registered memory, to be sent to peers in arguments and results. The length of its
 * encoding varies, and zeros follow it.
 */
typedef struct handover_rpc_bulk {
    /**
     * Encoded handle.
     */
    uint8_t bytes[HANDOVER_RPC_BULK_BYTES];
} handover_rpc_bulk;

/**
 * Offsets, length and time limit of a bulk transfer.
 */
typedef struct handover_rpc_range {
    /**
     * Offset in the peer's memory, in bytes.
     */
    uint64_t theirs;
    /**
     * Offset in the local memory, in bytes.
     */
    uint64_t ours;
    /**
     * Length of the range in bytes.
     */
    uint64_t bytes;
    /**
     * Time limit of the transfer in ns; `HANDOVER_FOREVER` for none.
     */
    uint64_t timeout_ns;
} handover_rpc_range;

/**
 * Properties of a flow. `handover_sched_flow_init` fills in the defaults.
 */
typedef struct handover_sched_flow {
    /**
     * Size of this structure in bytes, set by `handover_sched_flow_init`. Another size is refused.
     */
    size_t struct_bytes;
    /**
     * Weight of the flow; with `prio` its priority (smaller is first), with `pacing` its rate in
     * bit/s. Default 1.
     */
    uint64_t weight;
    /**
     * Maximum length of a packet of the flow in bytes. Default 65,535.
     */
    uint32_t length_bytes_max;
    /**
     * Maximum number of queued packets of the flow. Default 1,024.
     */
    uint32_t packets_max;
    /**
     * 1 to drop the oldest packet of a full flow, 0 to refuse the newest. Default 0.
     */
    uint32_t drops_oldest;
} handover_sched_flow;

/**
 * Packet of a flow.
 */
typedef struct handover_sched_packet {
    /**
     * Number of the flow, from `handover_sched_add_flow`.
     */
    uint32_t flow;
    /**
     * Length in bytes. Flows share bytes, not packets, by their weights.
     */
    uint32_t length_bytes;
    /**
     * Pointer with which the program identifies the packet.
     */
    void *token;
} handover_sched_packet;

/**
 * Function called with each queued packet of a flow that is removed.
 */
typedef void (*handover_sched_discard)(const struct handover_sched_packet *packet, void *context);

/**
 * Counters of a scheduler: `enqueued == dequeued + dropped + queued` at every moment.
 */
typedef struct handover_sched_totals {
    /**
     * Number of packets accepted.
     */
    uint64_t enqueued;
    /**
     * Number of packets dequeued.
     */
    uint64_t dequeued;
    /**
     * Number of accepted packets that were later dropped in favour of newer ones, or with their
     * flow.
     */
    uint64_t dropped;
    /**
     * Number of packets refused.
     */
    uint64_t refused;
} handover_sched_totals;

/**
 * Expired timer.
 */
typedef struct handover_timer_expired {
    /**
     * Number of the timer. That of a one-shot timer is no longer valid.
     */
    uint64_t timer;
    /**
     * Deadline that has passed; the earliest, if several deadlines of a periodic timer have
     * passed.
     */
    uint64_t deadline_ns;
    /**
     * Number of later deadlines of a periodic timer that have also passed. No other call reports
     * them.
     */
    uint64_t missed_count;
    /**
     * Pointer that was passed when the timer was started.
     */
    void *payload;
} handover_timer_expired;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Fills in the defaults of a machine's limits.
 *
 * Threads: any. Blocking: never.
 */
enum handover_status handover_event_config_init(struct handover_event_config *config);

/**
 * Creates a machine whose messages `handler` handles; each call of `handler` gets `context`. A
 * null `config` stands for the defaults.
 *
 * Errors: `HANDOVER_INVALID_ARGUMENT` for a limit outside its range; `HANDOVER_OUT_OF_MEMORY`;
 * `HANDOVER_SYSTEM`. Threads: any; a machine may move between threads, and one at a time may use
 * it. Blocking: never. Ownership: the caller destroys the machine; `context` stays the program's,
 * and must live as long.
 */
enum handover_status handover_event_create(const struct handover_event_config *config,
                                           handover_event_handler handler,
                                           void *context,
                                           struct handover_event_machine **machine);

/**
 * Destroys a machine, and calls `discard`, unless that is null, for each message that was not
 * handled. Later sends to its addresses return `HANDOVER_CLOSED`. No callback runs afterwards.
 *
 * Errors: `HANDOVER_BUSY` within the machine's handler, `HANDOVER_WRONG_THREAD` while another
 * thread uses the machine; then nothing is destroyed. Threads: any. Blocking: while another thread
 * is in the middle of a send. Ownership: the handle is invalid afterwards; addresses stay valid;
 * descriptors stay open; `discard` does not get the messages of timers and watches.
 */
enum handover_status handover_event_destroy(struct handover_event_machine *machine,
                                            handover_event_discard discard,
                                            void *context);

/**
 * Creates an address of the machine, by which any thread can send messages to it.
 *
 * Threads: any. Blocking: never. Ownership: the caller destroys the address, before or after the
 * machine.
 */
enum handover_status handover_event_address_create(const struct handover_event_machine *machine,
                                                   struct handover_event_address **address);

/**
 * Destroys an address; null is ignored.
 *
 * Threads: any, while no other thread uses this address. Blocking: never. Ownership: the handle is
 * invalid afterwards.
 */
void handover_event_address_destroy(struct handover_event_address *address);

/**
 * Creates a weak address of the same machine, for tables of machines that may end.
 *
 * Threads: any number at the same time. Blocking: never. Ownership: the caller destroys the weak
 * address.
 */
enum handover_status handover_event_address_downgrade(const struct handover_event_address *address,
                                                      struct handover_event_weak_address **weak);

/**
 * Creates an address from a weak address.
 *
 * Errors: `HANDOVER_CLOSED`, which sets no last error, if the machine was destroyed. Threads: any
 * number at the same time. Blocking: never. Ownership: the caller destroys the address.
 */
enum handover_status handover_event_weak_address_upgrade(const struct handover_event_weak_address *weak,
                                                         struct handover_event_address **address);

/**
 * Destroys a weak address; null is ignored.
 *
 * Threads: any, while no other thread uses this weak address. Blocking: never. Ownership: the
 * handle is invalid afterwards.
 */
void handover_event_weak_address_destroy(struct handover_event_weak_address *weak);

/**
 * Creates both ends of one reply. The requester sends `reply` with its message, for example in a
 * structure that `data` points to, and waits for `pending`.
 *
 * Threads: any. Blocking: never. Ownership: the handler of the message calls
 * `handover_event_reply_send` or `handover_event_reply_destroy`, and so does the requester if the
 * message is not handled: after a refused send, and in the function that gets the messages of a
 * destroyed machine. The requester destroys `pending`.
 */
enum handover_status handover_event_reply_create(struct handover_event_reply **reply,
                                                 struct handover_event_pending_reply **pending);

/**
 * Sends the reply, a pointer of the program, and wakes the requester if it waits.
 *
 * Errors: `HANDOVER_CLOSED`, which sets no last error, if the requester has destroyed its end.
 * Threads: any. Blocking: never. Ownership: the handle is invalid afterwards, unless it was null;
 * after an error, what `data` points to is still the caller's.
 */
enum handover_status handover_event_reply_send(struct handover_event_reply *reply, void *data);

/**
 * Destroys the replier's end of a reply, so that the requester learns that no reply will come;
 * null is ignored.
 *
 * Threads: any. Blocking: never. Ownership: the handle is invalid afterwards.
 */
void handover_event_reply_destroy(struct handover_event_reply *reply);

/**
 * Waits for the reply, for at most `timeout_ns`; the pointer that was sent goes to `data`, unless
 * that is null. A reply can be received once. A handler that waits blocks its machine.
 *
 * Errors: `HANDOVER_TIMED_OUT`, after which the reply can still come; `HANDOVER_CLOSED` if none
 * will come, or it was received before; neither sets the last error. `HANDOVER_WRONG_THREAD` if
 * another thread waits. Threads: one at a time. Blocking: up to `timeout_ns`, at least for a spin
 * of 1 to 4 us unless that is 0. Ownership: what `data` points to is now the caller's; the handle
 * must still be destroyed.
 */
enum handover_status handover_event_pending_reply_wait(const struct handover_event_pending_reply *pending,
                                                       uint64_t timeout_ns,
                                                       void **data);

/**
 * Destroys the requester's end of a reply, so that the reply is refused, or lost if it has come.
 *
 * Errors: `HANDOVER_WRONG_THREAD` if another thread waits; then nothing is destroyed. Threads:
 * any. Blocking: never. Ownership: the handle is invalid afterwards; the pointer of a lost reply
 * is not returned.
 */
enum handover_status handover_event_pending_reply_destroy(struct handover_event_pending_reply *pending);

/**
 * Sends a copy of the message to the machine, and wakes it if it sleeps.
 *
 * Errors: `HANDOVER_FULL`, and `HANDOVER_CLOSED` if the machine was destroyed; neither sets the
 * last error. Threads: any number at the same time. Blocking: never, except under
 * `HANDOVER_EVENT_BLOCK`. Ownership: after an error, `data` is the sender's again; that of a
 * message that `HANDOVER_EVENT_DROP_OLDEST` drops is not returned.
 */
enum handover_status handover_event_send(const struct handover_event_address *address,
                                         const struct handover_event_message *message);

/**
 * Sends a copy of the message to the machine from its own thread: within its handler, or before it
 * is run.
 *
 * Errors: `HANDOVER_FULL`, which sets no last error; `HANDOVER_WRONG_THREAD` while another thread
 * runs the machine. Threads: one at a time. Blocking: never. Ownership: after an error, `data` is
 * the caller's again.
 */
enum handover_status handover_event_send_self(const struct handover_event_machine *machine,
                                              const struct handover_event_message *message);

/**
 * Starts a timer: a copy of the message is handled once `delay_ns` has passed, never before. Its
 * number goes to `timer`, unless that is null.
 *
 * Errors: `HANDOVER_FULL` if `timers_max` timers are running; `HANDOVER_WRONG_THREAD` while
 * another thread runs the machine. Threads: one at a time, within the handler too. Blocking:
 * never. Ownership: the machine keeps `data` until the timer expires or is cancelled, or the
 * machine is destroyed; only an expiry passes it to the handler.
 */
enum handover_status handover_event_after(const struct handover_event_machine *machine,
                                          uint64_t delay_ns,
                                          const struct handover_event_message *message,
                                          uint64_t *timer);

/**
 * Starts a timer that expires every `period_ns` (at least 1): each time a copy of the message is
 * handled. Its number goes to `timer`, unless that is null.
 *
 * Errors and threads: as `handover_event_after`. Blocking: never. Ownership: the machine keeps
 * `data`, and passes it to the handler each time, until the timer is cancelled or the machine
 * destroyed.
 */
enum handover_status handover_event_every(const struct handover_event_machine *machine,
                                          uint64_t period_ns,
                                          const struct handover_event_message *message,
                                          uint64_t *timer);

/**
 * Cancels a timer: its message is not handled any more.
 *
 * Errors: `HANDOVER_NOT_FOUND` if it has expired or was cancelled; `HANDOVER_WRONG_THREAD` while
 * another thread runs the machine. Threads: one at a time, within the handler too. Blocking:
 * never. Ownership: the machine no longer keeps the message's `data`, and does not return it.
 */
enum handover_status handover_event_cancel(const struct handover_event_machine *machine,
                                           uint64_t timer);

/**
 * Watches a descriptor for `interest_bits` of `HANDOVER_EVENT_*`. For each readiness, a copy of
 * the message is handled, with `ready` set. The number of the watch goes to `watch`, unless that
 * is null.
 *
 * Errors: `HANDOVER_INVALID_ARGUMENT` for a negative descriptor or another interest;
 * `HANDOVER_SYSTEM` if the kernel cannot poll the descriptor, or if it is watched already;
 * `HANDOVER_WRONG_THREAD` while another thread runs the machine. Threads: one at a time, within
 * the handler too. Blocking: never. Ownership: the descriptor stays the program's, and must be
 * open until the watch ends by `handover_event_unwatch` or `handover_event_destroy`; until then
 * the machine keeps `data`.
 */
enum handover_status handover_event_watch(const struct handover_event_machine *machine,
                                          int32_t descriptor,
                                          uint32_t interest_bits,
                                          const struct handover_event_message *message,
                                          uint64_t *watch);

/**
 * Changes the events that a watch waits for.
 *
 * Errors: `HANDOVER_NOT_FOUND` if the watch has ended; otherwise as `handover_event_watch`.
 * Threads: one at a time, within the handler too. Blocking: never.
 */
enum handover_status handover_event_set_interest(const struct handover_event_machine *machine,
                                                 uint64_t watch,
                                                 uint32_t interest_bits);

/**
 * Ends a watch: no message of it is handled any more, and the descriptor may be closed.
 *
 * Errors: `HANDOVER_NOT_FOUND` if the watch has ended; `HANDOVER_WRONG_THREAD` while another
 * thread runs the machine. Threads: one at a time, within the handler too. Blocking: never.
 * Ownership: the machine no longer keeps the message's `data`, and does not return it.
 */
enum handover_status handover_event_unwatch(const struct handover_event_machine *machine,
                                            uint64_t watch);

/**
 * Runs the machine until `handover_event_stop`. Messages that are queued then stay queued, and the
 * machine may be run again.
 *
 * Errors: `HANDOVER_BUSY` within the handler; `HANDOVER_WRONG_THREAD` while another thread runs
 * it; `HANDOVER_SYSTEM`. Threads: one at a time, which runs the handler. Blocking: until the
 * machine is stopped.
 */
enum handover_status handover_event_run(const struct handover_event_machine *machine);

/**
 * Runs one round of the machine, for a program that has a loop of its own; waits first if there is
 * no work and `should_wait` is not 0. The number of handled messages goes to `handled_count`,
 * unless that is null, also if the machine was asked to stop.
 *
 * Errors: `HANDOVER_CLOSED`, which sets no last error, if the machine was asked to stop; otherwise
 * as `handover_event_run`. Threads: one at a time, which runs the handler. Blocking: only if
 * `should_wait` is not 0.
 */
enum handover_status handover_event_run_once(const struct handover_event_machine *machine,
                                             uint32_t should_wait,
                                             uint32_t *handled_count);

/**
 * Asks the machine to stop: within its handler after this message, and from elsewhere after the
 * messages of the current round. If it is not running, its next run returns at once.
 *
 * Threads: any number at the same time, and within the handler. Blocking: never.
 */
enum handover_status handover_event_stop(const struct handover_event_machine *machine);

/**
 * Starts a runtime of `workers_count` threads, each fiber of which has a stack of `stack_bytes`
 * bytes (rounded up to pages, 0 for 64 KiB). A fiber that needs more than its stack is ended by
 * SIGSEGV, with a message.
 *
 * Errors: `HANDOVER_INVALID_ARGUMENT` for a number outside its range; `HANDOVER_SYSTEM` if a
 * thread cannot be started. Threads: any. Blocking: until the threads have started. Ownership: the
 * caller destroys the runtime.
 */
enum handover_status handover_fiber_runtime_create(uint32_t workers_count,
                                                   size_t stack_bytes,
                                                   struct handover_fiber_runtime **runtime);

/**
 * Waits until all fibers have finished, and stops the threads. Fibers can spawn others meanwhile.
 *
 * Errors: `HANDOVER_WRONG_THREAD` if a fiber calls; then nothing is destroyed. Threads: any thread
 * that is not a fiber, while no other thread uses the runtime. Blocking: until all fibers have
 * finished. Ownership: the handle is invalid afterwards; those of fibers stay valid.
 */
enum handover_status handover_fiber_runtime_destroy(struct handover_fiber_runtime *runtime);

/**
 * Spawns a fiber that runs `function(argument)`; its handle goes to `fiber`. If `fiber` is null,
 * nobody can join it.
 *
 * If `runtime` is null, the new fiber belongs to the runtime of the calling fiber, and starts on
 * its worker.
 *
 * Errors: `HANDOVER_OUT_OF_MEMORY`; `HANDOVER_SYSTEM` for too many mappings; `HANDOVER_CLOSED` if
 * the runtime is being destroyed; `HANDOVER_WRONG_THREAD` for a null runtime on a thread that is
 * no fiber. Threads: any. Blocking: never. Ownership: the caller joins or destroys the handle; the
 * argument stays the program's, and the fiber uses it on a worker thread.
 */
enum handover_status handover_fiber_spawn(const struct handover_fiber_runtime *runtime,
                                          handover_fiber_function function,
                                          void *argument,
                                          struct handover_fiber **fiber);

/**
 * Waits until the fiber has finished, for at most `timeout_ns`; its result goes to `result`,
 * unless that is null.
 *
 * Errors: `HANDOVER_TIMED_OUT`, which sets no last error, after which the fiber can be joined
 * again; `HANDOVER_CLOSED` if it was joined before; `HANDOVER_WRONG_THREAD` if another thread or
 * fiber joins it. Threads: any thread or fiber, one at a time. Blocking: up to `timeout_ns`; a
 * fiber's worker runs others meanwhile. Ownership: the result is now the caller's, as a fiber
 * returns it once; the handle must still be destroyed.
 */
enum handover_status handover_fiber_join(const struct handover_fiber *fiber,
                                         uint64_t timeout_ns,
                                         void **result);

/**
 * Destroys the handle of a fiber. A fiber that was not joined runs on, and its result is lost.
 *
 * Errors: `HANDOVER_WRONG_THREAD` if another thread or fiber joins it; then nothing is destroyed.
 * Threads: any, unless another is about to use it. Blocking: never. Ownership: the handle is
 * invalid afterwards.
 */
enum handover_status handover_fiber_destroy(struct handover_fiber *fiber);

/**
 * Lets other fibers that are ready run first; on a thread that is no fiber, yields the CPU.
 *
 * Threads: any. Blocking: until the fibers that are ahead in the queue have run.
 */
void handover_fiber_yield(void);

/**
 * Sleeps until `deadline_ns` on `CLOCK_MONOTONIC` (`handover_now_ns`).
 *
 * Threads: any. Blocking: until then; a fiber's worker runs others meanwhile.
 */
void handover_fiber_sleep_until(uint64_t deadline_ns);

/**
 * Waits until the descriptor is readable, or at its end, or has an error, for at most
 * `timeout_ns`. The descriptor should be non-blocking, as a wait may end without a reason.
 *
 * Errors: `HANDOVER_TIMED_OUT`, which sets no last error; `HANDOVER_INVALID_ARGUMENT` for a
 * negative descriptor; `HANDOVER_SYSTEM` for a descriptor that is not open, or on which a fiber
 * cannot wait in epoll, such as a regular file; on a thread that is no fiber, and for a
 * `timeout_ns` of 0, a regular file is ready at once. Threads: any number of threads and fibers at
 * the same time. Blocking: up to `timeout_ns`; a fiber's worker runs others meanwhile. Ownership:
 * the descriptor stays the program's, and must be open meanwhile.
 */
enum handover_status handover_fiber_wait_readable(int32_t descriptor, uint64_t timeout_ns);

/**
 * Waits like `handover_fiber_wait_readable` until the descriptor is writable, or has an error.
 *
 * Errors, threads, blocking and ownership: as `handover_fiber_wait_readable`.
 */
enum handover_status handover_fiber_wait_writable(int32_t descriptor, uint64_t timeout_ns);

/**
 * Returns the number of the calling fiber, which is unique in its runtime; `UINT64_MAX` on a
 * thread that is no fiber.
 *
 * Threads: any. Blocking: never.
 */
uint64_t handover_fiber_id(void);

/**
 * Creates an eventual without a value.
 *
 * Threads: any. Blocking: never. Ownership: the caller destroys the eventual.
 */
enum handover_status handover_fiber_eventual_create(struct handover_fiber_eventual **eventual);

/**
 * Sets the value, and wakes all waiters.
 *
 * Errors: `HANDOVER_ALREADY_EXISTS` if it is set. Threads: any number of threads and fibers at the
 * same time. Blocking: never. Ownership: the eventual keeps `value` until it is reset or
 * destroyed, and gives it to each waiter; after an error it does not keep it.
 */
enum handover_status handover_fiber_eventual_set(const struct handover_fiber_eventual *eventual,
                                                 void *value);

/**
 * Waits until the value is set, for at most `timeout_ns`; the value goes to `value`, unless that
 * is null. A time limit of 0 only checks whether it is set.
 *
 * Errors: `HANDOVER_TIMED_OUT`, which sets no last error. Threads: any number of threads and
 * fibers at the same time. Blocking: up to `timeout_ns`; a fiber's worker runs others meanwhile.
 * Ownership: `value` is the pointer that was set, which other waiters may get too.
 */
enum handover_status handover_fiber_eventual_wait(const struct handover_fiber_eventual *eventual,
                                                  uint64_t timeout_ns,
                                                  void **value);

/**
 * Makes the eventual unset. Participants that were waiting when it was set still continue; one
 * that has not read the value yet reads it now, or that of a later set.
 *
 * Errors: `HANDOVER_EMPTY`, which sets no last error, if it was not set. Threads: one at a time;
 * others may set and wait. Blocking: yields the CPU while a waiter whose time is up leaves.
 * Ownership: the eventual does not return the value. Participants that were waiting may still get
 * it: what it points to must stay valid until they have returned.
 */
enum handover_status handover_fiber_eventual_reset(const struct handover_fiber_eventual *eventual);

/**
 * Destroys an eventual; null is ignored.
 *
 * Threads: any, while nobody waits for it or sets it. Blocking: never. Ownership: the handle is
 * invalid afterwards.
 */
void handover_fiber_eventual_destroy(struct handover_fiber_eventual *eventual);

/**
 * Returns the version of the library: `major << 16 | minor << 8 | patch`.
 *
 * Threads: any. Blocking: never.
 */
uint32_t handover_version(void);

/**
 * Returns the text of a status: a constant string, never null. `status` is a `handover_status`; an
 * unknown number has a text too.
 *
 * Threads: any. Blocking: never. Ownership: the string belongs to the library, and is always
 * valid.
 */
const char *handover_strerror(int32_t status);

/**
 * Returns the detailed message of the last error of this thread: with the argument, the value and
 * the reason; an empty string if there was none, never null.
 *
 * A function that succeeds does not change it. Neither do the expected outcomes `HANDOVER_FULL`,
 * `HANDOVER_EMPTY`, `HANDOVER_CLOSED`, `HANDOVER_TIMED_OUT` and `HANDOVER_BUSY` of functions that
 * say so.
 *
 * Threads: any; each has its own. Blocking: never. Ownership: the string belongs to the library,
 * and is valid until the next error of this thread, or its end.
 */
const char *handover_last_error(void);

/**
 * Returns the time in ns on `CLOCK_MONOTONIC`, the clock of `handover_event` and `handover_fiber`.
 * It also suits `handover_timer`.
 *
 * Threads: any. Blocking: never.
 */
uint64_t handover_now_ns(void);

/**
 * Creates an unlocked lock.
 *
 * Threads: any. Blocking: never. Ownership: the caller destroys the lock.
 */
enum handover_status handover_lock_create(struct handover_lock **lock);

/**
 * Takes the lock if it is free.
 *
 * Errors: `HANDOVER_BUSY`, which sets no last error, if it is held, by this thread too.
 * Threads: any number at the same time. Blocking: never.
 */
enum handover_status handover_lock_try(const struct handover_lock *lock);

/**
 * Takes the lock, and waits for it for at most `timeout_ns`, by spinning and then by yielding the
 * CPU. It is neither fair nor recursive: a thread that holds the lock waits for itself.
 *
 * Errors: `HANDOVER_TIMED_OUT`, which sets no last error. Threads: any number at the same time.
 * Blocking: up to `timeout_ns`; without a limit with `HANDOVER_FOREVER`.
 */
enum handover_status handover_lock_take(const struct handover_lock *lock, uint64_t timeout_ns);

/**
 * Frees the lock.
 *
 * Errors: `HANDOVER_INVALID_ARGUMENT` if it is not held.
 * Threads: the one that took the lock, which is not checked. Blocking: never.
 */
enum handover_status handover_lock_free(const struct handover_lock *lock);

/**
 * Destroys a lock; null is ignored.
 *
 * Threads: any, while no other thread uses this lock. Blocking: never. Ownership: the handle is
 * invalid afterwards.
 */
void handover_lock_destroy(struct handover_lock *lock);

/**
 * Creates a sender and a receiver, with nothing pending. `kind` is a `handover_notify_kind`.
 *
 * A wait spins for at most `spin_ns_max` ns before it sleeps, and only while spinning pays; 0
 * never spins, 50,000 is a good value. `HANDOVER_NOTIFY_CLOSING` never spins.
 *
 * Errors: `HANDOVER_INVALID_ARGUMENT` for an unknown kind or a number outside its range;
 * `HANDOVER_SYSTEM` if the kernel gives no descriptor. Threads: any. Blocking: never. Ownership:
 * the caller destroys both ends, in any order.
 */
enum handover_status handover_notify_create(uint32_t kind,
                                            uint32_t spin_ns_max,
                                            struct handover_notify_sender **sender,
                                            struct handover_notify_receiver **receiver);

/**
 * Makes a notification pending, and wakes the receiver if it sleeps. Several pending notifications
 * count as one.
 *
 * Threads: any number at the same time. Blocking: never.
 */
enum handover_status handover_notify_send(const struct handover_notify_sender *sender);

/**
 * Waits until a notification is pending, for at most `timeout_ns`, and consumes all pending ones.
 * 0 does not wait, `HANDOVER_FOREVER` waits without a limit.
 *
 * Errors: `HANDOVER_TIMED_OUT`; for `HANDOVER_NOTIFY_CLOSING`, `HANDOVER_CLOSED` if the sender was
 * destroyed and nothing is pending; neither sets the last error. `HANDOVER_WRONG_THREAD` if
 * another thread waits. Threads: one at a time. Blocking: up to `timeout_ns`, and the timer slack
 * of the kernel.
 */
enum handover_status handover_notify_wait(const struct handover_notify_receiver *receiver,
                                          uint64_t timeout_ns);

/**
 * Stores the descriptor of an eventfd receiver, for an epoll set or `poll`: only wait for it to be
 * readable, between `handover_notify_prepare` and `handover_notify_finish`.
 *
 * Errors: `HANDOVER_INVALID_ARGUMENT` for a futex.
 * Threads: one at a time. Blocking: never. Ownership: the receiver closes the descriptor.
 */
enum handover_status handover_notify_descriptor(const struct handover_notify_receiver *receiver,
                                                int32_t *descriptor);

/**
 * Declares that the thread will now sleep on the descriptor.
 *
 * Errors: `HANDOVER_BUSY`, which sets no last error, if a notification is pending: do not sleep.
 * `HANDOVER_INVALID_ARGUMENT` for a futex.
 * Threads: one at a time. Blocking: never.
 */
enum handover_status handover_notify_prepare(const struct handover_notify_receiver *receiver);

/**
 * Ends a sleep on the descriptor, and consumes all pending notifications.
 *
 * Errors: `HANDOVER_EMPTY`, which sets no last error, if none is pending;
 * `HANDOVER_INVALID_ARGUMENT` for a futex. Threads: one at a time. Blocking: never.
 */
enum handover_status handover_notify_finish(const struct handover_notify_receiver *receiver);

/**
 * Destroys a sender; null is ignored. The receiver can still be used, and is not notified, unless
 * the kind is `HANDOVER_NOTIFY_CLOSING`.
 *
 * Threads: any, while no other thread uses this sender. Blocking: never. Ownership: the handle is
 * invalid afterwards.
 */
void handover_notify_sender_destroy(struct handover_notify_sender *sender);

/**
 * Destroys a receiver. The sender can still be used, without an effect.
 *
 * Errors: `HANDOVER_WRONG_THREAD` if another thread waits; then nothing is destroyed.
 * Threads: any. Blocking: never. Ownership: the handle is invalid afterwards.
 */
enum handover_status handover_notify_receiver_destroy(struct handover_notify_receiver *receiver);

/**
 * Switches on the probes whose names match `pattern` (`*` and `?`, commas for "or", `-` for "but
 * not"); the number of sites that match goes to `sites_count`, unless that is null.
 *
 * When it returns, every thread records their events, if there is a recording.
 *
 * Errors: `HANDOVER_SYSTEM` if the process may not change its code, or for too many sites.
 * Threads: any. Blocking: some 10 us, and while another thread switches.
 */
enum handover_status handover_probe_enable(const char *pattern, size_t *sites_count);

/**
 * Switches off the probes whose names match `pattern`, as `handover_probe_enable` switches them
 * on. A thread that is executing one of them may still record its event.
 *
 * Errors, threads and blocking: as `handover_probe_enable`.
 */
enum handover_status handover_probe_disable(const char *pattern, size_t *sites_count);

/**
 * Starts to record the events of all probes that are on, now or later, into the trace `path`; one
 * recording at a time for each process.
 *
 * If `is_stream` is not 0, all events are kept; otherwise each thread's newest 130,000.
 *
 * Errors: `HANDOVER_BUSY` if a recording is running; `HANDOVER_SYSTEM` if the file cannot be
 * created. Threads: any. Blocking: some 10 ms for the first one. Ownership: the caller finishes
 * the recording.
 */
enum handover_status handover_probe_start(const char *path,
                                          uint32_t is_stream,
                                          struct handover_probe_recording **recording);

/**
 * Stops a recording and writes all events that are not written yet; its summary goes to `summary`,
 * unless that is null, also if writing failed.
 *
 * Errors: `HANDOVER_SYSTEM` for the first error of writing. Threads: any, while no other thread
 * uses this handle. Blocking: until all events are written. Ownership: the handle is invalid
 * afterwards, after an error too.
 */
enum handover_status handover_probe_finish(struct handover_probe_recording *recording,
                                           struct handover_probe_summary *summary);

/**
 * Creates a ring of `slots_count` slots for elements of `element_bytes` bytes.
 *
 * Each element is copied in and out. `kind` is a `handover_ring_kind`.
 *
 * Errors: `HANDOVER_INVALID_ARGUMENT` for an unknown kind, a size outside
 * `1..=HANDOVER_RING_ELEMENT_BYTES_MAX` or a number of slots outside `1..=2^31`;
 * `HANDOVER_OUT_OF_MEMORY`. Threads: any. Blocking: never. Ownership: the caller destroys both
 * ends, in any order.
 */
enum handover_status handover_ring_create(uint32_t kind,
                                          size_t element_bytes,
                                          uint32_t slots_count,
                                          struct handover_ring_producer **producer,
                                          struct handover_ring_consumer **consumer);

/**
 * Creates another producer of the same MPSC or MPMC ring, so that each thread can own one.
 *
 * Errors: `HANDOVER_INVALID_ARGUMENT` for an SPSC ring.
 * Threads: any. Blocking: never. Ownership: the caller destroys the new producer.
 */
enum handover_status handover_ring_producer_clone(const struct handover_ring_producer *producer,
                                                  struct handover_ring_producer **clone);

/**
 * Creates another consumer of the same MPMC ring, for another thread.
 *
 * Errors: `HANDOVER_INVALID_ARGUMENT` for a ring of another kind.
 * Threads: one at a time. Blocking: never. Ownership: the caller destroys the new consumer.
 */
enum handover_status handover_ring_consumer_clone(const struct handover_ring_consumer *consumer,
                                                  struct handover_ring_consumer **clone);

/**
 * Destroys a producer; null is ignored. The last one closes the ring: elements in the ring can
 * still be popped.
 *
 * Threads: any, while no other thread uses this producer. Blocking: never. Ownership: the handle
 * is invalid afterwards.
 */
void handover_ring_producer_destroy(struct handover_ring_producer *producer);

/**
 * Destroys a consumer; null is ignored. The last one closes the ring, and destroys the elements
 * that were not popped.
 *
 * Threads: any, while no other thread uses this consumer. Blocking: never. Ownership: the handle
 * is invalid afterwards; what the destroyed elements point to is not freed.
 */
void handover_ring_consumer_destroy(struct handover_ring_consumer *consumer);

/**
 * Pushes a copy of the element at `element`.
 *
 * Errors: `HANDOVER_FULL`; `HANDOVER_CLOSED` if the ring was closed or its consumers destroyed,
 * for ever. Neither sets the last error. Threads: one at a time for SPSC, any number otherwise.
 * Blocking: never. Ownership: the ring keeps a copy of the element until it is popped; after an
 * error it keeps none.
 */
enum handover_status handover_ring_push(const struct handover_ring_producer *producer,
                                        const void *element);

/**
 * Pushes copies of the first elements of an array of `elements_count`, as many as there is room
 * for; their number goes to `pushed_count`, which must not be null.
 *
 * Errors: `HANDOVER_FULL` or `HANDOVER_CLOSED`, without a last error, if not all elements were
 * pushed. Threads: one at a time for SPSC, any number otherwise. Blocking: never. Ownership: the
 * ring keeps copies of the first `*pushed_count` elements; the others are still the caller's.
 */
enum handover_status handover_ring_push_batch(const struct handover_ring_producer *producer,
                                              const void *elements,
                                              size_t elements_count,
                                              size_t *pushed_count);

/**
 * Pops the oldest element into the memory at `element`.
 *
 * Errors: `HANDOVER_EMPTY`; `HANDOVER_CLOSED` if the ring is empty and closed, so that no element
 * will follow. Neither sets the last error. Threads: one at a time. Blocking: never. Ownership:
 * the element is now the caller's.
 */
enum handover_status handover_ring_pop(struct handover_ring_consumer *consumer, void *element);

/**
 * Pops at most `elements_max` elements into the array `elements`; their number goes to
 * `popped_count`, which must not be null.
 *
 * Errors: `HANDOVER_EMPTY` or `HANDOVER_CLOSED`, as `handover_ring_pop`, if none was popped.
 * Threads: one at a time. Blocking: never. Ownership: the popped elements are now the caller's.
 */
enum handover_status handover_ring_pop_batch(struct handover_ring_consumer *consumer,
                                             void *elements,
                                             size_t elements_max,
                                             size_t *popped_count);

/**
 * Closes the ring for all its producers: later pushes fail, and elements in the ring can still be
 * popped.
 *
 * Threads: one at a time for SPSC, any number otherwise. Blocking: never.
 */
enum handover_status handover_ring_producer_close(const struct handover_ring_producer *producer);

/**
 * Closes the ring from a consumer's side: later pushes fail, and elements in the ring can still be
 * popped.
 *
 * Threads: one at a time. Blocking: never.
 */
enum handover_status handover_ring_consumer_close(struct handover_ring_consumer *consumer);

/**
 * Stores the number of elements in the ring, as seen by the producer. It may have decreased since.
 *
 * Threads: one at a time for SPSC, any number otherwise. Blocking: never.
 */
enum handover_status handover_ring_producer_len(const struct handover_ring_producer *producer,
                                                size_t *len);

/**
 * Stores the number of elements in the ring, as seen by the consumer. It may have increased since.
 *
 * Threads: one at a time. Blocking: never.
 */
enum handover_status handover_ring_consumer_len(const struct handover_ring_consumer *consumer,
                                                size_t *len);

/**
 * Fills in the defaults of an endpoint's limits.
 *
 * Threads: any. Blocking: never.
 */
enum handover_status handover_rpc_config_init(struct handover_rpc_config *config);

/**
 * Creates an endpoint. A null `config` stands for the defaults.
 *
 * Errors: `HANDOVER_INVALID_ARGUMENT` for a limit outside its range, or a file that cannot be
 * used; `HANDOVER_SYSTEM`. Threads: any; an endpoint may move between threads, and one at a time
 * may use it. Blocking: never. Ownership: the caller destroys the endpoint.
 */
enum handover_status handover_rpc_create(const struct handover_rpc_config *config,
                                         struct handover_rpc_endpoint **endpoint);

/**
 * Destroys an endpoint: closes its connections, and ends its registrations. No callback runs
 * afterwards.
 *
 * Errors: `HANDOVER_BUSY` within a handler of the endpoint, `HANDOVER_WRONG_THREAD` while another
 * thread uses it; then nothing is destroyed. Threads: any, while no other thread is about to use
 * it. Blocking: never. Ownership: the handle is invalid afterwards; memories stay valid.
 */
enum handover_status handover_rpc_destroy(struct handover_rpc_endpoint *endpoint);

/**
 * Listens at `sm://NAME`, `tcp://HOST:PORT`, `tls://HOST:PORT` or `uds://PATH`. The address to
 * connect to goes to `resolved`, a buffer of `resolved_bytes` bytes, as a string: `sm://` listens
 * at a new name, port 0 at a free port.
 *
 * Errors: `HANDOVER_INVALID_ARGUMENT` for an address that cannot be parsed; `HANDOVER_SYSTEM` if
 * it is in use, or needs UCX and its library is missing; `HANDOVER_TOO_LONG` if the buffer is too
 * small: 128 bytes are enough; the endpoint then listens all the same. Threads: one at a time, not
 * within a handler. Blocking: while a host name is looked up.
 */
enum handover_status handover_rpc_listen(const struct handover_rpc_endpoint *endpoint,
                                         const char *address,
                                         char *resolved,
                                         size_t resolved_bytes);

/**
 * Connects to the endpoint at `address`. The endpoint serves its own peers meanwhile.
 *
 * Errors: `HANDOVER_INVALID_ARGUMENT` for an address that cannot be parsed; `HANDOVER_SYSTEM` if
 * nobody listens there, or it needs UCX and its library is missing; `HANDOVER_DISCONNECTED` or
 * `HANDOVER_TIMED_OUT` for a failed handshake; `HANDOVER_REFUSED`; `HANDOVER_FULL`;
 * `HANDOVER_BUSY` within a handler. Threads: one at a time, not within a handler. Blocking: while
 * a host name is looked up, then up to `handshake_timeout_ms`.
 */
enum handover_status handover_rpc_connect(const struct handover_rpc_endpoint *endpoint,
                                          const char *address,
                                          struct handover_rpc_peer *peer);

/**
 * Closes the connection to a peer. Calls under way fail at both ends.
 *
 * Errors: `HANDOVER_DISCONNECTED` if the peer is not connected.
 * Threads: one at a time, within a handler too. Blocking: never.
 */
enum handover_status handover_rpc_disconnect(const struct handover_rpc_endpoint *endpoint,
                                             struct handover_rpc_peer peer);

/**
 * Registers a procedure: calls with this name and provider run `handler` with `context`.
 *
 * Errors: `HANDOVER_ALREADY_EXISTS` if the name and provider are taken. Threads: one at a time,
 * not within a handler. Blocking: never. Ownership: the name is copied; `context` stays the
 * program's, and must live until the procedure is unregistered or the endpoint destroyed.
 */
enum handover_status handover_rpc_register(const struct handover_rpc_endpoint *endpoint,
                                           const char *name,
                                           uint16_t provider,
                                           handover_rpc_handler handler,
                                           void *context);

/**
 * Removes a procedure. Its handler does not run afterwards.
 *
 * Errors: `HANDOVER_NOT_FOUND` if it is not registered; `HANDOVER_BUSY` within a handler. Threads:
 * one at a time, not within a handler. Blocking: never. Ownership: the endpoint no longer keeps
 * the procedure's `context`.
 */
enum handover_status handover_rpc_unregister(const struct handover_rpc_endpoint *endpoint,
                                             const char *name,
                                             uint16_t provider);

/**
 * Appends bytes to the result of a call.
 *
 * Errors: `HANDOVER_NULL_ARGUMENT`.
 * Threads: the handler's. Blocking: never. Ownership: the bytes are copied.
 */
enum handover_status handover_rpc_respond(struct handover_rpc_response *response,
                                          const void *bytes,
                                          size_t bytes_count);

/**
 * Sets the text of the error that the handler is going to return, in place of an earlier one.
 *
 * Errors: `HANDOVER_NULL_ARGUMENT`, and `HANDOVER_INVALID_ARGUMENT` if the text is not UTF-8.
 * Threads: the handler's. Blocking: never. Ownership: the text is copied.
 */
enum handover_status handover_rpc_fail(struct handover_rpc_response *response, const char *message);

/**
 * Serves peers until `handover_rpc_stop` is called, or a peer stops it (if `allows_remote_stop` is
 * 1).
 *
 * Errors: `HANDOVER_BUSY` within a handler; `HANDOVER_WRONG_THREAD` while another thread uses the
 * endpoint. Threads: one at a time, which runs the handlers. Blocking: until it is stopped.
 */
enum handover_status handover_rpc_serve(const struct handover_rpc_endpoint *endpoint);

/**
 * Serves peers until some work was done, for at most `timeout_ns`: for a program that has a loop
 * of its own.
 *
 * Errors: `HANDOVER_TIMED_OUT`, which sets no last error, if there was no work; otherwise as
 * `handover_rpc_serve`. Threads: one at a time, which runs the handlers. Blocking: up to
 * `timeout_ns`.
 */
enum handover_status handover_rpc_progress(const struct handover_rpc_endpoint *endpoint,
                                           uint64_t timeout_ns);

/**
 * Asks the endpoint to stop serving. If it is not serving, its next `handover_rpc_serve` returns
 * at once.
 *
 * Threads: any number at the same time, and within a handler. Blocking: never.
 */
enum handover_status handover_rpc_stop(const struct handover_rpc_endpoint *endpoint);

/**
 * Asks a peer that allows it (`allows_remote_stop`) to stop serving, and waits for its answer.
 *
 * Errors: `HANDOVER_NOT_FOUND` if the peer does not allow it; otherwise as `handover_rpc_call`.
 * Threads: one at a time, within a handler too. Blocking: until the peer answers or the connection
 * ends.
 */
enum handover_status handover_rpc_stop_peer(const struct handover_rpc_endpoint *endpoint,
                                            struct handover_rpc_peer peer);

/**
 * Calls a procedure of a peer, and waits for its result for at most `timeout_ns`.
 *
 * `*result_bytes` is the size of the buffer `result` before the call, and the length of the result
 * after it. Both may be null if the result is not wanted. While the call waits, the endpoint
 * serves its own peers, except within a handler.
 *
 * Errors: `HANDOVER_TIMED_OUT`; `HANDOVER_DISCONNECTED`; `HANDOVER_NOT_FOUND` for no such
 * procedure; `HANDOVER_HANDLER_FAILED`, whose number `handover_rpc_failure_code` returns;
 * `HANDOVER_TOO_LONG` for a result that does not fit into the buffer (it is lost, and
 * `*result_bytes` is its length), and for arguments, a result or an error's text above the
 * `message_bytes_max` of either end (`*result_bytes` is then 0); `HANDOVER_FULL`;
 * `HANDOVER_REFUSED` by a peer that is full; `HANDOVER_INVALID_ARGUMENT` for arguments that a
 * procedure in Rust cannot decode. Threads: one at a time, within a handler too. Blocking: up to
 * `timeout_ns`, and while a handler runs. Ownership: all buffers stay the program's.
 */
enum handover_status handover_rpc_call(const struct handover_rpc_endpoint *endpoint,
                                       struct handover_rpc_peer peer,
                                       const char *name,
                                       uint16_t provider,
                                       const void *arguments,
                                       size_t arguments_bytes,
                                       void *result,
                                       size_t *result_bytes,
                                       uint64_t timeout_ns);

/**
 * Returns the number that the peer's handler returned for the last call that ended with
 * `HANDOVER_HANDLER_FAILED`; 0 if that handler panicked, if there was no such call, or if
 * `endpoint` is null.
 *
 * Threads: one at a time. Blocking: never.
 */
int32_t handover_rpc_failure_code(const struct handover_rpc_endpoint *endpoint);

/**
 * Allocates zeroed memory of `bytes` bytes, which peers on this machine can map.
 *
 * Errors: `HANDOVER_OUT_OF_MEMORY`. Threads: any. Blocking: while the pages are allocated.
 * Ownership: the caller destroys the memory.
 */
enum handover_status handover_rpc_memory_create(size_t bytes, struct handover_rpc_memory **memory);

/**
 * Copies `bytes_count` bytes from `offset` of the memory to `into`.
 *
 * Errors: `HANDOVER_INVALID_ARGUMENT` for a range beyond the end of the memory. Threads: any
 * number at the same time; bytes that a peer is writing may be old or new. Blocking: never.
 */
enum handover_status handover_rpc_memory_read(const struct handover_rpc_memory *memory,
                                              uint64_t offset,
                                              void *into,
                                              size_t bytes_count);

/**
 * Copies `bytes_count` bytes from `from` into the memory at `offset`.
 *
 * Errors: `HANDOVER_INVALID_ARGUMENT` for a range beyond the end of the memory.
 * Threads: any number at the same time; of bytes that several write, any may win. Blocking: never.
 */
enum handover_status handover_rpc_memory_write(const struct handover_rpc_memory *memory,
                                               uint64_t offset,
                                               const void *from,
                                               size_t bytes_count);

/**
 * Returns the length of the memory in bytes; 0 for null.
 *
 * Threads: any. Blocking: never.
 */
uint64_t handover_rpc_memory_bytes(const struct handover_rpc_memory *memory);

/**
 * Destroys a memory; null is ignored. If it is registered, or in use by a peer, its pages are
 * freed when that ends.
 *
 * Threads: any, while no other thread uses the handle. Blocking: never. Ownership: the handle is
 * invalid afterwards.
 */
void handover_rpc_memory_destroy(struct handover_rpc_memory *memory);

/**
 * Registers a memory with an endpoint, and stores its handle in `bulk`. Peers that have the handle
 * can use the memory as `rights` (a `handover_rpc_rights`) allow.
 *
 * Errors: `HANDOVER_INVALID_ARGUMENT` for other rights; `HANDOVER_FULL` for too many memories;
 * `HANDOVER_SYSTEM`. Threads: one at a time, within a handler too. Blocking: never. Ownership: the
 * endpoint keeps the memory until `handover_rpc_withdraw` or its end, even if the memory's handle
 * is destroyed.
 */
enum handover_status handover_rpc_expose(const struct handover_rpc_endpoint *endpoint,
                                         const struct handover_rpc_memory *memory,
                                         uint32_t rights,
                                         struct handover_rpc_bulk *bulk);

/**
 * Ends the registration of a memory, and notifies the peers that use it. Waits for at most
 * `timeout_ns` until peers that access it through UCX have released it.
 *
 * Peers that have mapped it use it until they have read the notification, and may write it until
 * then. Destroy it, or use it again only after each such peer has answered a call that began after
 * this one.
 *
 * Errors: `HANDOVER_NOT_FOUND` if this endpoint has registered no such memory;
 * `HANDOVER_TIMED_OUT` if a peer still accesses it through UCX: call again, or disconnect the
 * peer. Threads: one at a time, within a handler too. Blocking: up to `timeout_ns`. Ownership:
 * once this succeeds, the endpoint no longer keeps the memory; the program still destroys the
 * memory's handle.
 */
enum handover_status handover_rpc_withdraw(const struct handover_rpc_endpoint *endpoint,
                                           const struct handover_rpc_bulk *bulk,
                                           uint64_t timeout_ns);

/**
 * Reads a bulk handle from the bytes of a message, at most `HANDOVER_RPC_BULK_BYTES` of
 * `bytes_count`; stores it in `bulk`, and the length of its memory in `memory_bytes`, unless that
 * is null. `bytes` and `bulk` may overlap.
 *
 * Errors: `HANDOVER_INVALID_ARGUMENT` if the bytes are no handle.
 * Threads: any. Blocking: never. Ownership: the bytes are copied.
 */
enum handover_status handover_rpc_bulk_read(const void *bytes,
                                            size_t bytes_count,
                                            struct handover_rpc_bulk *bulk,
                                            uint64_t *memory_bytes);

/**
 * Copies a range of the peer's memory into the local memory, and waits until that is done.
 *
 * Errors: `HANDOVER_REFUSED` for a handle, range or right that the peer does not accept;
 * `HANDOVER_INVALID_ARGUMENT` for a range beyond the local memory; `HANDOVER_TIMED_OUT` and
 * `HANDOVER_DISCONNECTED`, after which a part may have been copied; `HANDOVER_SYSTEM`;
 * `HANDOVER_FULL`. Threads: one at a time, within a handler too. Blocking: up to
 * `range->timeout_ns`. Ownership: `memory` stays the program's.
 */
enum handover_status handover_rpc_pull(const struct handover_rpc_endpoint *endpoint,
                                       struct handover_rpc_peer peer,
                                       const struct handover_rpc_bulk *bulk,
                                       const struct handover_rpc_memory *memory,
                                       const struct handover_rpc_range *range);

/**
 * Copies a range of the local memory into the peer's, and waits until that is done.
 *
 * Errors, threads, blocking and ownership: as `handover_rpc_pull`.
 */
enum handover_status handover_rpc_push(const struct handover_rpc_endpoint *endpoint,
                                       struct handover_rpc_peer peer,
                                       const struct handover_rpc_bulk *bulk,
                                       const struct handover_rpc_memory *memory,
                                       const struct handover_rpc_range *range);

/**
 * Creates a scheduler without flows. `discipline` is one of `fifo`, `rr`, `rr1`, `prio`, `wf2q+`,
 * `qfq`, `qfq+` and `pacing`. The memory for `flows_max` flows and `packets_max` packets is
 * allocated here; the process is aborted if there is not enough.
 *
 * Errors: `HANDOVER_NOT_FOUND` for an unknown discipline; `HANDOVER_INVALID_ARGUMENT` for a limit
 * outside its range. Threads: any; a scheduler may move between threads, and one at a time may use
 * it. Blocking: never. Ownership: the caller destroys the scheduler.
 */
enum handover_status handover_sched_create(const char *discipline,
                                           uint32_t flows_max,
                                           uint32_t packets_max,
                                           struct handover_sched **scheduler);

/**
 * Creates a scheduler of two levels without tenants: `discipline` orders the tenants, and
 * `flows_discipline` the flows of each tenant. Both are names as for `handover_sched_create`, but
 * not `fifo`; `pacing` can order only the tenants.
 *
 * Errors, threads, blocking and ownership: as `handover_sched_create`.
 */
enum handover_status handover_sched_create_tenants(const char *discipline,
                                                   const char *flows_discipline,
                                                   uint32_t flows_max,
                                                   uint32_t packets_max,
                                                   struct handover_sched **scheduler);

/**
 * Fills in the defaults of a flow.
 *
 * Threads: any. Blocking: never.
 */
enum handover_status handover_sched_flow_init(struct handover_sched_flow *flow);

/**
 * Adds a flow; its number, 0 for the first, goes to `number`.
 *
 * Errors: `HANDOVER_INVALID_ARGUMENT` for a property outside the discipline's range;
 * `HANDOVER_FULL` for more than `flows_max` flows. Threads: one at a time. Blocking: never.
 */
enum handover_status handover_sched_add_flow(struct handover_sched *scheduler,
                                             const struct handover_sched_flow *flow,
                                             uint32_t *number);

/**
 * Adds a tenant, whose packets have at most `length_bytes_max` bytes, with a weight among the
 * tenants. Its number, 0 for the first, goes to `number`.
 *
 * Errors: `HANDOVER_INVALID_ARGUMENT` for a number outside the discipline's range, or a scheduler
 * without tenants; `HANDOVER_FULL` for more than `flows_max` tenants. Threads: one at a time.
 * Blocking: never.
 */
enum handover_status handover_sched_add_tenant(struct handover_sched *scheduler,
                                               uint64_t weight,
                                               uint32_t length_bytes_max,
                                               uint32_t *number);

/**
 * Adds a flow like `handover_sched_add_flow`, to a tenant. (That function adds to the tenant that
 * was added last.)
 *
 * Errors: `HANDOVER_NOT_FOUND` for an unknown tenant; `HANDOVER_INVALID_ARGUMENT` for a scheduler
 * without tenants; otherwise as `handover_sched_add_flow`. Threads: one at a time. Blocking:
 * never.
 */
enum handover_status handover_sched_add_flow_of(struct handover_sched *scheduler,
                                                uint32_t tenant,
                                                const struct handover_sched_flow *flow,
                                                uint32_t *number);

/**
 * Removes a flow, and calls `discard`, unless that is null, for each of its packets, oldest first.
 * A flow that is added later may get its number.
 *
 * Errors: `HANDOVER_NOT_FOUND` for an unknown flow. Threads: one at a time; `discard` must not use
 * the scheduler. Blocking: never. Ownership: the tokens are the program's.
 */
enum handover_status handover_sched_remove_flow(struct handover_sched *scheduler,
                                                uint32_t flow,
                                                handover_sched_discard discard,
                                                void *context);

/**
 * Changes the weight of a flow, which may have queued packets; with `prio` its priority, with
 * `pacing` its rate.
 *
 * Errors: `HANDOVER_NOT_FOUND` for an unknown flow; `HANDOVER_INVALID_ARGUMENT` for a weight
 * outside the discipline's range, or a discipline without weights. Threads: one at a time.
 * Blocking: never.
 */
enum handover_status handover_sched_set_weight(struct handover_sched *scheduler,
                                               uint64_t now_ns,
                                               uint32_t flow,
                                               uint64_t weight);

/**
 * Changes the weight of a tenant, as `handover_sched_set_weight` does that of a flow.
 *
 * Errors: `HANDOVER_NOT_FOUND` for an unknown tenant; `HANDOVER_INVALID_ARGUMENT` for a weight
 * outside the discipline's range, or a scheduler without tenants. Threads: one at a time.
 * Blocking: never.
 */
enum handover_status handover_sched_set_tenant_weight(struct handover_sched *scheduler,
                                                      uint64_t now_ns,
                                                      uint32_t tenant,
                                                      uint64_t weight);

/**
 * Queues a copy of the packet. `now_ns` is the current time on any clock that does not go back.
 *
 * If the oldest packet of the flow was dropped for it, `*has_dropped` is `true` and the dropped
 * packet goes to `dropped`, which may be `packet`. Both may be null; if `dropped` is not null,
 * `has_dropped` must not be null either.
 *
 * Errors: `HANDOVER_FULL`, which sets no last error; `HANDOVER_NOT_FOUND` for an unknown flow;
 * `HANDOVER_INVALID_ARGUMENT` for a length that the flow does not allow. Threads: one at a time.
 * Blocking: never. Ownership: the scheduler keeps the token until it gives the packet back; that
 * of a packet that is dropped while `dropped` is null is not returned.
 */
enum handover_status handover_sched_enqueue(struct handover_sched *scheduler,
                                            uint64_t now_ns,
                                            const struct handover_sched_packet *packet,
                                            bool *has_dropped,
                                            struct handover_sched_packet *dropped);

/**
 * Dequeues the next packet that may leave at `now_ns` into `packet`.
 *
 * Errors: `HANDOVER_EMPTY`, which sets no last error, if none may leave.
 * Threads: one at a time. Blocking: never. Ownership: the scheduler no longer keeps the token.
 */
enum handover_status handover_sched_dequeue(struct handover_sched *scheduler,
                                            uint64_t now_ns,
                                            struct handover_sched_packet *packet);

/**
 * Stores the earliest time at which a packet can be dequeued, if no packet is added before: 0 for
 * all disciplines but `pacing`.
 *
 * Errors: `HANDOVER_EMPTY`, which sets no last error, if no packet is queued.
 * Threads: one at a time. Blocking: never.
 */
enum handover_status handover_sched_ready_ns(const struct handover_sched *scheduler,
                                             uint64_t *ready_ns);

/**
 * Stores the counters of a scheduler.
 *
 * Threads: one at a time. Blocking: never.
 */
enum handover_status handover_sched_count(const struct handover_sched *scheduler,
                                          struct handover_sched_totals *totals);

/**
 * Destroys a scheduler; null is ignored. Tokens of queued packets are not returned.
 *
 * Threads: any, while no other thread uses it. Blocking: never. Ownership: the handle is invalid
 * afterwards.
 */
void handover_sched_destroy(struct handover_sched *scheduler);

/**
 * Creates a wheel for at most `timers_max` timers; `now_ns` is the current time on any clock that
 * does not go back.
 *
 * Errors: `HANDOVER_INVALID_ARGUMENT` if `timers_max` is outside its range. Threads: any; a wheel
 * may move between threads, and one at a time may use it. Blocking: never. Ownership: the caller
 * destroys the wheel.
 */
enum handover_status handover_timer_wheel_create(uint32_t timers_max,
                                                 uint64_t now_ns,
                                                 struct handover_timer_wheel **wheel);

/**
 * Starts a timer that expires once, at `deadline_ns`; its number goes to `timer`, unless that is
 * null.
 *
 * Errors: `HANDOVER_FULL` if `timers_max` timers are running. Threads: one at a time. Blocking:
 * never. Ownership: the wheel keeps the payload until the timer expires or is cancelled.
 */
enum handover_status handover_timer_start(struct handover_timer_wheel *wheel,
                                          uint64_t deadline_ns,
                                          void *payload,
                                          uint64_t *timer);

/**
 * Starts a timer that expires at `first_ns` and then every `period_ns`; its number goes to
 * `timer`, unless that is null.
 *
 * Errors: `HANDOVER_INVALID_ARGUMENT` for a period of 0; `HANDOVER_FULL` if `timers_max` timers
 * are running. Threads: one at a time. Blocking: never. Ownership: the wheel keeps the payload
 * until the timer is cancelled.
 */
enum handover_status handover_timer_start_periodic(struct handover_timer_wheel *wheel,
                                                   uint64_t first_ns,
                                                   uint64_t period_ns,
                                                   void *payload,
                                                   uint64_t *timer);

/**
 * Cancels a timer; its payload goes to `payload`, unless that is null.
 *
 * Errors: `HANDOVER_NOT_FOUND` if the timer is not running.
 * Threads: one at a time. Blocking: never. Ownership: the wheel no longer keeps the payload.
 */
enum handover_status handover_timer_cancel(struct handover_timer_wheel *wheel,
                                           uint64_t timer,
                                           void **payload);

/**
 * Changes the deadline of a running timer. A periodic timer continues from the new deadline, with
 * its period.
 *
 * Errors: `HANDOVER_NOT_FOUND` if the timer is not running.
 * Threads: one at a time. Blocking: never.
 */
enum handover_status handover_timer_reschedule(struct handover_timer_wheel *wheel,
                                               uint64_t timer,
                                               uint64_t deadline_ns);

/**
 * Ends or advances the earliest timer that is due at `now_ns`, and describes it in `expired`. Call
 * it until it returns `HANDOVER_EMPTY`.
 *
 * Errors: `HANDOVER_EMPTY`, which sets no last error, if no timer is due. Threads: one at a time.
 * Blocking: never. Ownership: the wheel no longer keeps the payload of a one-shot timer; it keeps
 * that of a periodic one.
 */
enum handover_status handover_timer_expire(struct handover_timer_wheel *wheel,
                                           uint64_t now_ns,
                                           struct handover_timer_expired *expired);

/**
 * Stores the earliest deadline of all running timers.
 *
 * Errors: `HANDOVER_EMPTY`, which sets no last error, if no timer is running.
 * Threads: one at a time. Blocking: never.
 */
enum handover_status handover_timer_next_deadline(struct handover_timer_wheel *wheel,
                                                  uint64_t *deadline_ns);

/**
 * Stores the number of running timers.
 *
 * Threads: one at a time. Blocking: never.
 */
enum handover_status handover_timer_len(const struct handover_timer_wheel *wheel, size_t *len);

/**
 * Destroys a wheel; null is ignored. Payloads of running timers are not returned.
 *
 * Threads: any, while no other thread uses the wheel. Blocking: never. Ownership: the handle is
 * invalid afterwards.
 */
void handover_timer_wheel_destroy(struct handover_timer_wheel *wheel);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* HANDOVER_H */
