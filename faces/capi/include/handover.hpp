/* handover.hpp: the C interface of handover.h for C++17, with owning classes, exceptions,
 * std::chrono and templates.
 *
 * Classes can be moved and not copied; each destroys its handle. Where the C interface refuses this
 * with HANDOVER_BUSY or HANDOVER_WRONG_THREAD, event_machine and rpc_endpoint call
 * std::terminate(), as the handlers that still run would use what the object owns; the handles of
 * other classes are then leaked. A function that fails throws handover::error, except for the
 * expected outcomes (full, empty, closed, timed out), which are results. What handover.h says on
 * threads, ownership and blocking holds here too. Callbacks must not throw, except those of
 * rpc_endpoint, whose exceptions are errors of the caller. get() of each class returns its handle,
 * for functions of handover.h that have no method.
 *
 * Licence: MIT OR Apache-2.0.
 */
#ifndef HANDOVER_HPP
#define HANDOVER_HPP

#include "handover.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace handover {

using std::chrono::nanoseconds;

/* Error of a function: its status, and a message with the details. */
class error : public std::runtime_error {
public:
    error(handover_status status, const std::string &message) : std::runtime_error(message), status_(status) {}

    /* Returns the status. */
    handover_status status() const noexcept { return status_; }

private:
    handover_status status_;
};

/* Throws an error unless `status` is HANDOVER_OK. Its message has no details for statuses that may
 * set no last error, as the last error may be that of an earlier function. */
inline void check(handover_status status)
{
    switch (status) {
    case HANDOVER_OK: return;
    case HANDOVER_FULL:
    case HANDOVER_EMPTY:
    case HANDOVER_CLOSED:
    case HANDOVER_TIMED_OUT:
    case HANDOVER_BUSY: throw error(status, handover_strerror(status));
    default: throw error(status, std::string(handover_strerror(status)) + ": " + handover_last_error());
    }
}

/* Returns true for HANDOVER_OK and false for the expected outcome; throws for any other status. */
inline bool check_unless(handover_status status, handover_status expected)
{
    if (status == expected)
        return false;
    check(status);
    return true;
}

/* Time limit that never passes. */
inline constexpr nanoseconds forever = nanoseconds::max();

namespace detail {

template <auto Destroy> struct deleter {
    template <class T> void operator()(T *handle) const noexcept { (void)Destroy(handle); }
};

template <class T, auto Destroy> using handle = std::unique_ptr<T, deleter<Destroy>>;

inline std::uint64_t limit_ns(nanoseconds limit)
{
    if (limit == forever)
        return HANDOVER_FOREVER;
    return limit.count() < 0 ? 0 : static_cast<std::uint64_t>(limit.count());
}

/* Ends the program if a handle was not destroyed whose handlers may still use the state that is
 * freed next. */
inline void terminate_unless_destroyed(handover_status status) noexcept
{
    if (status == HANDOVER_BUSY || status == HANDOVER_WRONG_THREAD)
        std::terminate();
}

inline void destroy_machine(handover_event_machine *machine) noexcept
{
    terminate_unless_destroyed(handover_event_destroy(machine, nullptr, nullptr));
}

inline void destroy_endpoint(handover_rpc_endpoint *endpoint) noexcept
{
    terminate_unless_destroyed(handover_rpc_destroy(endpoint));
}

inline handover_status finish_recording(handover_probe_recording *recording)
{
    return handover_probe_finish(recording, nullptr);
}

} // namespace detail

/* Result of pushing to a ring, or of popping from it. */
enum class outcome { done, full, empty, closed };

namespace detail {

inline outcome ring_outcome(handover_status status)
{
    switch (status) {
    case HANDOVER_FULL: return outcome::full;
    case HANDOVER_EMPTY: return outcome::empty;
    case HANDOVER_CLOSED: return outcome::closed;
    default: check(status); return outcome::done;
    }
}

} // namespace detail

/* End of a ring that pushes elements. */
template <class T> class ring_producer {
    static_assert(std::is_trivially_copyable_v<T>, "a ring copies the bytes of its elements");

public:
    explicit ring_producer(handover_ring_producer *handle) : handle_(handle) {}

    outcome push(const T &element) { return detail::ring_outcome(handover_ring_push(handle_.get(), &element)); }

    /* Pushes the first of `count` elements, as many as there is room for; returns their number. */
    std::size_t push(const T *elements, std::size_t count)
    {
        std::size_t pushed = 0;
        detail::ring_outcome(handover_ring_push_batch(handle_.get(), elements, count, &pushed));
        return pushed;
    }

    /* Creates another producer of an MPSC or MPMC ring. */
    ring_producer another() const
    {
        handover_ring_producer *clone;
        check(handover_ring_producer_clone(handle_.get(), &clone));
        return ring_producer(clone);
    }

    void close() { check(handover_ring_producer_close(handle_.get())); }
    handover_ring_producer *get() const noexcept { return handle_.get(); }

private:
    detail::handle<handover_ring_producer, handover_ring_producer_destroy> handle_;
};

/* End of a ring that pops elements. */
template <class T> class ring_consumer {
    static_assert(std::is_trivially_copyable_v<T>, "a ring copies the bytes of its elements");

public:
    explicit ring_consumer(handover_ring_consumer *handle) : handle_(handle) {}

    outcome pop(T &element) { return detail::ring_outcome(handover_ring_pop(handle_.get(), &element)); }

    /* Pops at most `count` elements; returns their number. */
    std::size_t pop(T *elements, std::size_t count)
    {
        std::size_t popped = 0;
        detail::ring_outcome(handover_ring_pop_batch(handle_.get(), elements, count, &popped));
        return popped;
    }

    /* Creates another consumer of an MPMC ring. */
    ring_consumer another() const
    {
        handover_ring_consumer *clone;
        check(handover_ring_consumer_clone(handle_.get(), &clone));
        return ring_consumer(clone);
    }

    void close() { check(handover_ring_consumer_close(handle_.get())); }
    handover_ring_consumer *get() const noexcept { return handle_.get(); }

private:
    detail::handle<handover_ring_consumer, handover_ring_consumer_destroy> handle_;
};

/* Creates a ring; returns its two ends. */
template <class T>
std::pair<ring_producer<T>, ring_consumer<T>> make_ring(handover_ring_kind kind, std::uint32_t slots_count)
{
    handover_ring_producer *producer;
    handover_ring_consumer *consumer;
    check(handover_ring_create(kind, sizeof(T), slots_count, &producer, &consumer));
    return { ring_producer<T>(producer), ring_consumer<T>(consumer) };
}

/* Sending end of a notification. */
class notify_sender {
public:
    explicit notify_sender(handover_notify_sender *handle) : handle_(handle) {}

    void send() const { check(handover_notify_send(handle_.get())); }
    handover_notify_sender *get() const noexcept { return handle_.get(); }

private:
    detail::handle<handover_notify_sender, handover_notify_sender_destroy> handle_;
};

/* Receiving end of a notification. */
class notify_receiver {
public:
    explicit notify_receiver(handover_notify_receiver *handle) : handle_(handle) {}

    /* Waits for a notification; returns false if the limit passes first. Throws error
     * HANDOVER_CLOSED if the kind is HANDOVER_NOTIFY_CLOSING, the sender was destroyed and nothing
     * is pending. */
    bool wait(nanoseconds limit = forever)
    {
        return check_unless(handover_notify_wait(handle_.get(), detail::limit_ns(limit)), HANDOVER_TIMED_OUT);
    }

    /* Returns the descriptor of an eventfd receiver. */
    int descriptor() const
    {
        int number;
        check(handover_notify_descriptor(handle_.get(), &number));
        return number;
    }

    /* Returns true if the thread may now sleep on the descriptor. */
    bool prepare() { return check_unless(handover_notify_prepare(handle_.get()), HANDOVER_BUSY); }

    /* Ends that sleep; returns true if it consumed a notification. */
    bool finish() { return check_unless(handover_notify_finish(handle_.get()), HANDOVER_EMPTY); }
    handover_notify_receiver *get() const noexcept { return handle_.get(); }

private:
    detail::handle<handover_notify_receiver, handover_notify_receiver_destroy> handle_;
};

/* Creates a sender and a receiver. */
inline std::pair<notify_sender, notify_receiver>
make_notify(handover_notify_kind kind = HANDOVER_NOTIFY_FUTEX, std::uint32_t spin_ns_max = 50000)
{
    handover_notify_sender *sender;
    handover_notify_receiver *receiver;
    check(handover_notify_create(kind, spin_ns_max, &sender, &receiver));
    return { notify_sender(sender), notify_receiver(receiver) };
}

/* Lock for critical sections of some ns; works with std::lock_guard and std::unique_lock. */
class mutex {
public:
    mutex()
    {
        handover_lock *handle;
        check(handover_lock_create(&handle));
        handle_.reset(handle);
    }

    void lock() { check(handover_lock_take(handle_.get(), HANDOVER_FOREVER)); }
    bool try_lock() { return check_unless(handover_lock_try(handle_.get()), HANDOVER_BUSY); }
    bool try_lock_for(nanoseconds limit)
    {
        return check_unless(handover_lock_take(handle_.get(), detail::limit_ns(limit)), HANDOVER_TIMED_OUT);
    }
    void unlock() { check(handover_lock_free(handle_.get())); }
    handover_lock *get() const noexcept { return handle_.get(); }

private:
    detail::handle<handover_lock, handover_lock_destroy> handle_;
};

/* Timer wheel whose payloads are pointers to T. */
template <class T> class timer_wheel {
public:
    struct expired {
        std::uint64_t timer;
        std::uint64_t deadline_ns;
        std::uint64_t missed_count;
        T *payload;
    };

    timer_wheel(std::uint32_t timers_max, std::uint64_t now_ns)
    {
        handover_timer_wheel *handle;
        check(handover_timer_wheel_create(timers_max, now_ns, &handle));
        handle_.reset(handle);
    }

    std::uint64_t start(std::uint64_t deadline_ns, T *payload)
    {
        std::uint64_t timer;
        check(handover_timer_start(handle_.get(), deadline_ns, payload, &timer));
        return timer;
    }

    std::uint64_t start_periodic(std::uint64_t first_ns, nanoseconds period, T *payload)
    {
        std::uint64_t timer;
        check(handover_timer_start_periodic(handle_.get(), first_ns, detail::limit_ns(period), payload, &timer));
        return timer;
    }

    /* Cancels a timer; returns false if it is not running. */
    bool cancel(std::uint64_t timer)
    {
        return check_unless(handover_timer_cancel(handle_.get(), timer, nullptr), HANDOVER_NOT_FOUND);
    }

    /* Changes a deadline; returns false if the timer is not running. */
    bool reschedule(std::uint64_t timer, std::uint64_t deadline_ns)
    {
        return check_unless(handover_timer_reschedule(handle_.get(), timer, deadline_ns), HANDOVER_NOT_FOUND);
    }

    /* Returns the earliest timer that is due. */
    std::optional<expired> expire(std::uint64_t now_ns)
    {
        handover_timer_expired it;
        if (!check_unless(handover_timer_expire(handle_.get(), now_ns, &it), HANDOVER_EMPTY))
            return std::nullopt;
        return expired{ it.timer, it.deadline_ns, it.missed_count, static_cast<T *>(it.payload) };
    }

    std::optional<std::uint64_t> next_deadline_ns()
    {
        std::uint64_t deadline_ns;
        if (!check_unless(handover_timer_next_deadline(handle_.get(), &deadline_ns), HANDOVER_EMPTY))
            return std::nullopt;
        return deadline_ns;
    }

    handover_timer_wheel *get() const noexcept { return handle_.get(); }

private:
    detail::handle<handover_timer_wheel, handover_timer_wheel_destroy> handle_;
};

class event_weak_address;

/* Address of an event machine. */
class event_address {
public:
    explicit event_address(handover_event_address *handle) : handle_(handle) {}

    /* Creates a reference to the machine that does not keep its memory. */
    event_weak_address downgrade() const;

    /* Sends a message; the result is done, full or closed. */
    outcome send(const handover_event_message &message) const
    {
        return detail::ring_outcome(handover_event_send(handle_.get(), &message));
    }

    handover_event_address *get() const noexcept { return handle_.get(); }

private:
    detail::handle<handover_event_address, handover_event_address_destroy> handle_;
};

/* Reference to the inbox of an event machine that does not keep its memory. */
class event_weak_address {
public:
    explicit event_weak_address(handover_event_weak_address *handle) : handle_(handle) {}

    /* Creates an address; returns none if the machine was destroyed. */
    std::optional<event_address> upgrade() const
    {
        handover_event_address *address;
        if (!check_unless(handover_event_weak_address_upgrade(handle_.get(), &address), HANDOVER_CLOSED))
            return std::nullopt;
        return event_address(address);
    }

    handover_event_weak_address *get() const noexcept { return handle_.get(); }

private:
    detail::handle<handover_event_weak_address, handover_event_weak_address_destroy> handle_;
};

inline event_weak_address event_address::downgrade() const
{
    handover_event_weak_address *weak;
    check(handover_event_address_downgrade(handle_.get(), &weak));
    return event_weak_address(weak);
}

/* Means of replying to one request with a pointer to T. Its destructor tells the requester that no
 * reply will come. */
template <class T> class event_reply {
public:
    explicit event_reply(handover_event_reply *handle) : handle_(handle) {}

    /* Sends the reply; returns false if the requester has destroyed its end. Called once. */
    bool send(T *data) { return check_unless(handover_event_reply_send(handle_.release(), data), HANDOVER_CLOSED); }
    handover_event_reply *get() const noexcept { return handle_.get(); }

private:
    detail::handle<handover_event_reply, handover_event_reply_destroy> handle_;
};

/* Reply that was requested. */
template <class T> class event_pending_reply {
public:
    explicit event_pending_reply(handover_event_pending_reply *handle) : handle_(handle) {}

    /* Waits for the reply; returns none if the limit passes first. Throws error HANDOVER_CLOSED if
     * none will come. */
    std::optional<T *> wait(nanoseconds limit = forever)
    {
        void *data;
        const auto status = handover_event_pending_reply_wait(handle_.get(), detail::limit_ns(limit), &data);
        if (!check_unless(status, HANDOVER_TIMED_OUT))
            return std::nullopt;
        return static_cast<T *>(data);
    }

    handover_event_pending_reply *get() const noexcept { return handle_.get(); }

private:
    detail::handle<handover_event_pending_reply, handover_event_pending_reply_destroy> handle_;
};

/* Creates both ends of one reply: the first for the message, the second for the requester. */
template <class T> std::pair<event_reply<T>, event_pending_reply<T>> make_reply()
{
    handover_event_reply *reply;
    handover_event_pending_reply *pending;
    check(handover_event_reply_create(&reply, &pending));
    return { event_reply<T>(reply), event_pending_reply<T>(pending) };
}

/* Event machine whose messages a function handles; the function gets the machine, to start timers
 * for example. Its destruction within the handler, or while another thread runs it, ends the
 * program by std::terminate(). */
class event_machine {
public:
    using handler = std::function<void(event_machine &, const handover_event_message &)>;

    explicit event_machine(handler handle, const handover_event_config *config = nullptr)
        : state_(std::make_unique<state>())
    {
        state_->handle = std::move(handle);
        state_->machine = this;
        handover_event_machine *machine;
        check(handover_event_create(config, run_handler, state_.get(), &machine));
        handle_.reset(machine);
    }

    event_machine(event_machine &&other) noexcept : state_(std::move(other.state_)), handle_(std::move(other.handle_))
    {
        if (state_)
            state_->machine = this;
    }

    event_machine &operator=(event_machine &&other) noexcept
    {
        handle_ = std::move(other.handle_);
        state_ = std::move(other.state_);
        if (state_)
            state_->machine = this;
        return *this;
    }

    event_address address() const
    {
        handover_event_address *address;
        check(handover_event_address_create(handle_.get(), &address));
        return event_address(address);
    }

    /* Sends a message from the machine's own thread. */
    void send(const handover_event_message &message) { check(handover_event_send_self(handle_.get(), &message)); }

    std::uint64_t after(nanoseconds delay, const handover_event_message &message)
    {
        std::uint64_t timer;
        check(handover_event_after(handle_.get(), detail::limit_ns(delay), &message, &timer));
        return timer;
    }

    std::uint64_t every(nanoseconds period, const handover_event_message &message)
    {
        std::uint64_t timer;
        check(handover_event_every(handle_.get(), detail::limit_ns(period), &message, &timer));
        return timer;
    }

    /* Cancels a timer; returns false if it is not running. */
    bool cancel(std::uint64_t timer)
    {
        return check_unless(handover_event_cancel(handle_.get(), timer), HANDOVER_NOT_FOUND);
    }

    std::uint64_t watch(int descriptor, std::uint32_t interest, const handover_event_message &message)
    {
        std::uint64_t watch;
        check(handover_event_watch(handle_.get(), descriptor, interest, &message, &watch));
        return watch;
    }

    void unwatch(std::uint64_t watch) { check(handover_event_unwatch(handle_.get(), watch)); }
    void run() { check(handover_event_run(handle_.get())); }
    void stop() { check(handover_event_stop(handle_.get())); }
    handover_event_machine *get() const noexcept { return handle_.get(); }

private:
    struct state {
        handler handle;
        event_machine *machine;
    };

    static void run_handler(handover_event_machine *, const handover_event_message *message, void *context) noexcept
    {
        auto *it = static_cast<state *>(context);
        it->handle(*it->machine, *message);
    }

    // The machine is destroyed before the state that its handler uses.
    std::unique_ptr<state> state_;
    detail::handle<handover_event_machine, detail::destroy_machine> handle_;
};

/* Fiber that can be joined. */
class fiber {
public:
    explicit fiber(handover_fiber *handle) : handle_(handle) {}

    /* Waits for the end of the fiber; returns false if the limit passes first. */
    bool join(nanoseconds limit = forever)
    {
        const auto status = handover_fiber_join(handle_.get(), detail::limit_ns(limit), nullptr);
        return check_unless(status, HANDOVER_TIMED_OUT);
    }

    static void yield() { handover_fiber_yield(); }
    handover_fiber *get() const noexcept { return handle_.get(); }

private:
    detail::handle<handover_fiber, handover_fiber_destroy> handle_;
};

/* Suspends the fiber, or blocks the thread, until the descriptor is readable; returns false if the
 * limit passes first. */
inline bool wait_readable(int descriptor, nanoseconds limit = forever)
{
    return check_unless(handover_fiber_wait_readable(descriptor, detail::limit_ns(limit)), HANDOVER_TIMED_OUT);
}

/* Waits like wait_readable() until the descriptor is writable. */
inline bool wait_writable(int descriptor, nanoseconds limit = forever)
{
    return check_unless(handover_fiber_wait_writable(descriptor, detail::limit_ns(limit)), HANDOVER_TIMED_OUT);
}

/* Worker threads that run fibers. Its destructor waits until all fibers have finished. */
class fiber_runtime {
public:
    explicit fiber_runtime(std::uint32_t workers_count = 1, std::size_t stack_bytes = 0)
    {
        handover_fiber_runtime *handle;
        check(handover_fiber_runtime_create(workers_count, stack_bytes, &handle));
        handle_.reset(handle);
    }

    /* Spawns a fiber that calls `function`. */
    fiber spawn(std::function<void()> function)
    {
        auto argument = std::make_unique<std::function<void()>>(std::move(function));
        handover_fiber *fiber_handle;
        check(handover_fiber_spawn(handle_.get(), run_function, argument.get(), &fiber_handle));
        argument.release();
        return fiber(fiber_handle);
    }

    handover_fiber_runtime *get() const noexcept { return handle_.get(); }

private:
    static void *run_function(void *argument) noexcept
    {
        const std::unique_ptr<std::function<void()>> function(static_cast<std::function<void()> *>(argument));
        (*function)();
        return nullptr;
    }

    detail::handle<handover_fiber_runtime, handover_fiber_runtime_destroy> handle_;
};

/* Pointer to T that one participant sets and others wait for. */
template <class T> class eventual {
public:
    eventual()
    {
        handover_fiber_eventual *handle;
        check(handover_fiber_eventual_create(&handle));
        handle_.reset(handle);
    }

    void set(T *value) { check(handover_fiber_eventual_set(handle_.get(), value)); }

    /* Waits for the value; returns none if the limit passes first. */
    std::optional<T *> wait(nanoseconds limit = forever) const
    {
        void *value;
        const auto status = handover_fiber_eventual_wait(handle_.get(), detail::limit_ns(limit), &value);
        if (!check_unless(status, HANDOVER_TIMED_OUT))
            return std::nullopt;
        return static_cast<T *>(value);
    }

    /* Makes it unset; returns false if it was not set. */
    bool reset() { return check_unless(handover_fiber_eventual_reset(handle_.get()), HANDOVER_EMPTY); }
    handover_fiber_eventual *get() const noexcept { return handle_.get(); }

private:
    detail::handle<handover_fiber_eventual, handover_fiber_eventual_destroy> handle_;
};

/* Packet scheduler. */
class scheduler {
public:
    scheduler(const std::string &discipline, std::uint32_t flows_max, std::uint32_t packets_max)
    {
        handover_sched *handle;
        check(handover_sched_create(discipline.c_str(), flows_max, packets_max, &handle));
        handle_.reset(handle);
    }

    /* Creates a scheduler of two levels: `discipline` orders the tenants, `flows_discipline` the
     * flows of each. */
    scheduler(const std::string &discipline, const std::string &flows_discipline, std::uint32_t flows_max,
              std::uint32_t packets_max)
    {
        handover_sched *handle;
        check(handover_sched_create_tenants(discipline.c_str(), flows_discipline.c_str(), flows_max, packets_max,
                                            &handle));
        handle_.reset(handle);
    }

    std::uint32_t add_tenant(std::uint64_t weight, std::uint32_t length_bytes_max)
    {
        std::uint32_t number;
        check(handover_sched_add_tenant(handle_.get(), weight, length_bytes_max, &number));
        return number;
    }

    std::uint32_t add_flow_of(std::uint32_t tenant, const handover_sched_flow &flow)
    {
        std::uint32_t number;
        check(handover_sched_add_flow_of(handle_.get(), tenant, &flow, &number));
        return number;
    }

    /* Removes a flow; returns its packets, oldest first. */
    std::vector<handover_sched_packet> remove_flow(std::uint32_t flow)
    {
        std::vector<handover_sched_packet> packets;
        check(handover_sched_remove_flow(handle_.get(), flow, collect, &packets));
        return packets;
    }

    void set_weight(std::uint64_t now_ns, std::uint32_t flow, std::uint64_t weight)
    {
        check(handover_sched_set_weight(handle_.get(), now_ns, flow, weight));
    }

    void set_tenant_weight(std::uint64_t now_ns, std::uint32_t tenant, std::uint64_t weight)
    {
        check(handover_sched_set_tenant_weight(handle_.get(), now_ns, tenant, weight));
    }

    std::uint32_t add_flow(std::uint64_t weight)
    {
        handover_sched_flow flow;
        check(handover_sched_flow_init(&flow));
        flow.weight = weight;
        return add_flow(flow);
    }

    std::uint32_t add_flow(const handover_sched_flow &flow)
    {
        std::uint32_t number;
        check(handover_sched_add_flow(handle_.get(), &flow, &number));
        return number;
    }

    /* Queues a packet; returns false if its flow or the scheduler is full. The oldest packet of a
     * flow with `drops_oldest` may be lost for it. */
    bool enqueue(std::uint64_t now_ns, const handover_sched_packet &packet)
    {
        return check_unless(handover_sched_enqueue(handle_.get(), now_ns, &packet, nullptr, nullptr), HANDOVER_FULL);
    }

    /* Queues a packet like the other enqueue(); the packet that was dropped for it, if any, goes to
     * `dropped`. */
    bool enqueue(std::uint64_t now_ns, const handover_sched_packet &packet,
                 std::optional<handover_sched_packet> &dropped)
    {
        bool has_dropped = false;
        handover_sched_packet oldest;
        const auto status = handover_sched_enqueue(handle_.get(), now_ns, &packet, &has_dropped, &oldest);
        dropped = has_dropped ? std::optional(oldest) : std::nullopt;
        return check_unless(status, HANDOVER_FULL);
    }

    std::optional<handover_sched_packet> dequeue(std::uint64_t now_ns)
    {
        handover_sched_packet packet;
        if (!check_unless(handover_sched_dequeue(handle_.get(), now_ns, &packet), HANDOVER_EMPTY))
            return std::nullopt;
        return packet;
    }

    handover_sched *get() const noexcept { return handle_.get(); }

private:
    static void collect(const handover_sched_packet *packet, void *packets) noexcept
    {
        static_cast<std::vector<handover_sched_packet> *>(packets)->push_back(*packet);
    }

    detail::handle<handover_sched, handover_sched_destroy> handle_;
};

/* Memory for bulk transfers. */
class rpc_memory {
public:
    explicit rpc_memory(std::size_t bytes)
    {
        handover_rpc_memory *handle;
        check(handover_rpc_memory_create(bytes, &handle));
        handle_.reset(handle);
    }

    void read(std::uint64_t offset, void *into, std::size_t count) const
    {
        check(handover_rpc_memory_read(handle_.get(), offset, into, count));
    }

    void write(std::uint64_t offset, const void *from, std::size_t count)
    {
        check(handover_rpc_memory_write(handle_.get(), offset, from, count));
    }

    std::uint64_t bytes() const noexcept { return handover_rpc_memory_bytes(handle_.get()); }
    handover_rpc_memory *get() const noexcept { return handle_.get(); }

private:
    detail::handle<handover_rpc_memory, handover_rpc_memory_destroy> handle_;
};

/* Endpoint of remote procedure calls. Its destruction within a procedure, or while another thread
 * uses it, ends the program by std::terminate(). */
class rpc_endpoint {
public:
    using bytes = std::vector<unsigned char>;
    /* Function that answers a call with a result; an exception is an error of the caller. */
    using procedure = std::function<bytes(rpc_endpoint &, handover_rpc_peer, const void *, std::size_t)>;

    explicit rpc_endpoint(const handover_rpc_config *config = nullptr) : state_(std::make_unique<state>())
    {
        state_->endpoint = this;
        handover_rpc_endpoint *handle;
        check(handover_rpc_create(config, &handle));
        handle_.reset(handle);
    }

    rpc_endpoint(rpc_endpoint &&other) noexcept : state_(std::move(other.state_)), handle_(std::move(other.handle_))
    {
        if (state_)
            state_->endpoint = this;
    }

    rpc_endpoint &operator=(rpc_endpoint &&other) noexcept
    {
        handle_ = std::move(other.handle_);
        state_ = std::move(other.state_);
        if (state_)
            state_->endpoint = this;
        return *this;
    }

    /* Listens; returns the address to connect to. */
    std::string listen(const std::string &address)
    {
        char resolved[256];
        check(handover_rpc_listen(handle_.get(), address.c_str(), resolved, sizeof resolved));
        return resolved;
    }

    handover_rpc_peer connect(const std::string &address)
    {
        handover_rpc_peer peer;
        check(handover_rpc_connect(handle_.get(), address.c_str(), &peer));
        return peer;
    }

    /* Registers a procedure, for as long as the endpoint lives. */
    void register_procedure(const std::string &name, procedure run, std::uint16_t provider = 0)
    {
        std::list<registered> added;
        added.push_back({ state_.get(), std::move(run) });
        check(handover_rpc_register(handle_.get(), name.c_str(), provider, run_procedure, &added.back()));
        state_->procedures.splice(state_->procedures.end(), added); // its element stays where it is
    }

    /* Calls a procedure whose result has at most `result_bytes_max` bytes. */
    bytes call(handover_rpc_peer peer, const std::string &name, const void *arguments, std::size_t arguments_bytes,
               std::size_t result_bytes_max = 4096, nanoseconds limit = forever, std::uint16_t provider = 0)
    {
        bytes result(result_bytes_max);
        std::size_t result_bytes = result.size();
        check(handover_rpc_call(handle_.get(), peer, name.c_str(), provider, arguments, arguments_bytes, result.data(),
                                &result_bytes, detail::limit_ns(limit)));
        result.resize(result_bytes);
        return result;
    }

    handover_rpc_bulk expose(const rpc_memory &memory, handover_rpc_rights rights)
    {
        handover_rpc_bulk bulk;
        check(handover_rpc_expose(handle_.get(), memory.get(), rights, &bulk));
        return bulk;
    }

    void pull(handover_rpc_peer peer, const handover_rpc_bulk &bulk, rpc_memory &memory, const handover_rpc_range &range)
    {
        check(handover_rpc_pull(handle_.get(), peer, &bulk, memory.get(), &range));
    }

    void push(handover_rpc_peer peer, const handover_rpc_bulk &bulk, const rpc_memory &memory,
              const handover_rpc_range &range)
    {
        check(handover_rpc_push(handle_.get(), peer, &bulk, memory.get(), &range));
    }

    void serve() { check(handover_rpc_serve(handle_.get())); }
    void stop() { check(handover_rpc_stop(handle_.get())); }

    /* Serves until some work was done; returns false if the limit passes first. */
    bool progress(nanoseconds limit)
    {
        return check_unless(handover_rpc_progress(handle_.get(), detail::limit_ns(limit)), HANDOVER_TIMED_OUT);
    }

    handover_rpc_endpoint *get() const noexcept { return handle_.get(); }

private:
    struct state;
    struct registered {
        state *owner;
        procedure run;
    };
    struct state {
        rpc_endpoint *endpoint = nullptr;
        std::list<registered> procedures; // its elements stay where they are
    };

    static std::int32_t run_procedure(handover_rpc_endpoint *, const handover_rpc_request *request,
                                      handover_rpc_response *response, void *context) noexcept
    {
        auto *it = static_cast<registered *>(context);
        try {
            const bytes result =
                it->run(*it->owner->endpoint, request->peer, request->arguments, request->arguments_bytes);
            return handover_rpc_respond(response, result.data(), result.size());
        } catch (const error &failure) {
            (void)handover_rpc_fail(response, failure.what());
            return failure.status();
        } catch (const std::exception &failure) {
            (void)handover_rpc_fail(response, failure.what());
            return -1;
        } catch (...) {
            return -1;
        }
    }

    // The endpoint is destroyed before the state that its handlers use.
    std::unique_ptr<state> state_;
    detail::handle<handover_rpc_endpoint, detail::destroy_endpoint> handle_;
};

/* Recording of the events of handover_probe.h. */
class probe_recording {
public:
    explicit probe_recording(const std::string &path, bool is_stream = true)
    {
        handover_probe_recording *handle;
        check(handover_probe_start(path.c_str(), is_stream, &handle));
        handle_.reset(handle);
    }

    /* Stops the recording. */
    handover_probe_summary finish()
    {
        handover_probe_summary summary;
        check(handover_probe_finish(handle_.release(), &summary));
        return summary;
    }

    handover_probe_recording *get() const noexcept { return handle_.get(); }

private:
    detail::handle<handover_probe_recording, detail::finish_recording> handle_;
};

} // namespace handover

#endif
