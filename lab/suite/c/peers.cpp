/* Queues and event loops of C++ and C libraries, as functions that Rust can call. build.rs compiles
 * this file once it has found a C++ compiler, and defines HAVE_* for each library whose headers it
 * has found. */
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#ifdef HAVE_MOODYCAMEL
#include <concurrentqueue/concurrentqueue.h>
#include <readerwriterqueue/readerwriterqueue.h>
#endif
#ifdef HAVE_BOOST_LOCKFREE
#include <boost/lockfree/queue.hpp>
#include <boost/lockfree/spsc_queue.hpp>
#endif
#ifdef HAVE_BOOST_ASIO
#include <boost/asio.hpp>
#endif
#ifdef HAVE_LIBUV
#include <uv.h>
#endif
#ifdef HAVE_OPENSSL
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/epoll.h>
#include <unistd.h>
#endif

/* A queue, its pushing ends and its popping end. The ends are deleted before the queue. No function
 * throws, and none but the constructors allocates: a push into a full queue fails. */
#define QUEUE(name, Queue, Sender, Receiver)                                                                           \
    extern "C" {                                                                                                       \
    void *handover_##name##_new(size_t slots_count) noexcept { return new (std::nothrow) Queue(slots_count); }         \
    void handover_##name##_delete(void *queue) noexcept { delete static_cast<Queue *>(queue); }                        \
    void *handover_##name##_sender(void *queue) noexcept { return new (std::nothrow) Sender(*static_cast<Queue *>(queue)); } \
    void handover_##name##_sender_delete(void *sender) noexcept { delete static_cast<Sender *>(sender); }              \
    void *handover_##name##_receiver(void *queue) noexcept { return new (std::nothrow) Receiver(*static_cast<Queue *>(queue)); } \
    void handover_##name##_receiver_delete(void *receiver) noexcept { delete static_cast<Receiver *>(receiver); }      \
    size_t handover_##name##_push(void *sender, const uint64_t *items, size_t count) noexcept                          \
    {                                                                                                                  \
        return static_cast<Sender *>(sender)->push(items, count);                                                      \
    }                                                                                                                  \
    size_t handover_##name##_pop(void *receiver, uint64_t *items, size_t count) noexcept                               \
    {                                                                                                                  \
        return static_cast<Receiver *>(receiver)->pop(items, count);                                                   \
    }                                                                                                                  \
    }

namespace {

#ifdef HAVE_MOODYCAMEL
using ReaderWriter = moodycamel::ReaderWriterQueue<uint64_t>;

struct ReaderWriterEnd {
    ReaderWriter &queue;
    explicit ReaderWriterEnd(ReaderWriter &queue) : queue(queue) {}
    size_t push(const uint64_t *items, size_t) { return queue.try_enqueue(*items); }
    size_t pop(uint64_t *items, size_t) { return queue.try_dequeue(*items); }
};

/* Number of slots of each sender, as many as `slots_count` is by default. The library can limit
 * only the slots of each sender, and only by a constant. A sender keeps the blocks of slots that it
 * has once used, so that without the limit one sender may take all of them. */
struct ConcurrentTraits : moodycamel::ConcurrentQueueDefaultTraits {
    static const size_t MAX_SUBQUEUE_SIZE = 1024;
};

/* Preallocated for 64 senders. */
struct Concurrent : moodycamel::ConcurrentQueue<uint64_t, ConcurrentTraits> {
    explicit Concurrent(size_t) : ConcurrentQueue(ConcurrentTraits::MAX_SUBQUEUE_SIZE, 64, 0) {}
};

struct ConcurrentSender {
    Concurrent &queue;
    moodycamel::ProducerToken token;
    explicit ConcurrentSender(Concurrent &queue) : queue(queue), token(queue) {}
    size_t push(const uint64_t *items, size_t count)
    {
        return count == 1 ? queue.try_enqueue(token, *items) : queue.try_enqueue_bulk(token, items, count) ? count : 0;
    }
};

struct ConcurrentReceiver {
    Concurrent &queue;
    moodycamel::ConsumerToken token;
    explicit ConcurrentReceiver(Concurrent &queue) : queue(queue), token(queue) {}
    size_t pop(uint64_t *items, size_t count)
    {
        return count == 1 ? queue.try_dequeue(token, *items) : queue.try_dequeue_bulk(token, items, count);
    }
};
#endif

#ifdef HAVE_BOOST_LOCKFREE
using BoostSpsc = boost::lockfree::spsc_queue<uint64_t>;

struct BoostSpscEnd {
    BoostSpsc &queue;
    explicit BoostSpscEnd(BoostSpsc &queue) : queue(queue) {}
    size_t push(const uint64_t *items, size_t count) { return count == 1 ? queue.push(*items) : queue.push(items, count); }
    size_t pop(uint64_t *items, size_t count) { return count == 1 ? queue.pop(*items) : queue.pop(items, count); }
};

/* Its nodes have numbers of 16 bits, one of them for a node of its own. */
struct BoostMpmc : boost::lockfree::queue<uint64_t, boost::lockfree::fixed_sized<true>> {
    explicit BoostMpmc(size_t slots_count) : queue(std::min<size_t>(slots_count, 65534)) {}
};

struct BoostMpmcEnd {
    BoostMpmc &queue;
    explicit BoostMpmcEnd(BoostMpmc &queue) : queue(queue) {}
    size_t push(const uint64_t *items, size_t) { return queue.bounded_push(*items); }
    size_t pop(uint64_t *items, size_t) { return queue.pop(*items); }
};
#endif

/* Number of bytes of whole messages, each behind its length in four bytes; adds up the messages. */
[[maybe_unused]] size_t whole_bytes(const char *bytes, size_t count, int64_t &messages_count)
{
    size_t at = 0;
    while (count - at >= 4) {
        const unsigned char *length = reinterpret_cast<const unsigned char *>(bytes + at);
        size_t body = size_t(length[0]) << 24 | size_t(length[1]) << 16 | size_t(length[2]) << 8 | length[3];
        if (count - at - 4 < body)
            break;
        at += 4 + body;
        messages_count += 1;
    }
    return at;
}

} // namespace

#ifdef HAVE_MOODYCAMEL
QUEUE(reader_writer, ReaderWriter, ReaderWriterEnd, ReaderWriterEnd)
QUEUE(concurrent, Concurrent, ConcurrentSender, ConcurrentReceiver)
#endif
#ifdef HAVE_BOOST_LOCKFREE
QUEUE(boost_spsc, BoostSpsc, BoostSpscEnd, BoostSpscEnd)
QUEUE(boost_mpmc, BoostMpmc, BoostMpmcEnd, BoostMpmcEnd)
#endif

/* Each of the servers below owns the connections `fds`, echoes whole messages until all connections
 * have ended, and returns the number of messages, or a negated errno. It reads at most
 * `buffer_bytes` at a time, no message being longer, and calls `set_up` when all connections are
 * added. */

#ifdef HAVE_LIBUV
namespace {

struct UvLoop {
    uv_loop_t loop;
    std::vector<char> buffer;
    int64_t messages_count = 0;
    int error = 0;
};

/* A connection, and the beginning of a message. */
struct UvConnection {
    uv_tcp_t tcp;
    UvLoop *owner;
    std::vector<char> begun;
};

/* Bytes that the kernel did not take at once. */
struct UvUnsent {
    uv_write_t request;
    std::vector<char> bytes;
};

void uv_fail(uv_handle_t *handle, int error)
{
    auto *connection = static_cast<UvConnection *>(handle->data);
    if (error != UV_EOF && connection->owner->error == 0)
        connection->owner->error = error;
    if (!uv_is_closing(handle))
        uv_close(handle, nullptr);
}

void uv_buffer(uv_handle_t *handle, size_t, uv_buf_t *buffer)
{
    auto *connection = static_cast<UvConnection *>(handle->data);
    std::vector<char> &bytes = connection->owner->buffer;
    size_t begun_bytes = connection->begun.size();
    std::copy(connection->begun.begin(), connection->begun.end(), bytes.begin());
    *buffer = uv_buf_init(bytes.data() + begun_bytes, static_cast<unsigned>(bytes.size() - begun_bytes));
}

void uv_written(uv_write_t *request, int status)
{
    std::unique_ptr<UvUnsent> unsent(static_cast<UvUnsent *>(request->data));
    if (status < 0 && status != UV_ECANCELED)
        uv_fail(reinterpret_cast<uv_handle_t *>(request->handle), status);
}

void uv_came(uv_stream_t *stream, ssize_t count, const uv_buf_t *)
{
    auto *connection = static_cast<UvConnection *>(stream->data);
    if (count < 0)
        return uv_fail(reinterpret_cast<uv_handle_t *>(stream), static_cast<int>(count));
    char *bytes = connection->owner->buffer.data();
    size_t filled = connection->begun.size() + static_cast<size_t>(count);
    size_t whole = whole_bytes(bytes, filled, connection->owner->messages_count);
    connection->begun.assign(bytes + whole, bytes + filled);
    if (whole == 0)
        return;
    uv_buf_t echo = uv_buf_init(bytes, static_cast<unsigned>(whole));
    int sent = uv_try_write(stream, &echo, 1);
    if (sent < 0 && sent != UV_EAGAIN)
        return uv_fail(reinterpret_cast<uv_handle_t *>(stream), sent);
    size_t sent_bytes = sent < 0 ? 0 : static_cast<size_t>(sent);
    if (sent_bytes < whole) {
        auto *unsent = new UvUnsent{{}, std::vector<char>(bytes + sent_bytes, bytes + whole)};
        unsent->request.data = unsent;
        uv_buf_t rest = uv_buf_init(unsent->bytes.data(), static_cast<unsigned>(unsent->bytes.size()));
        int refused = uv_write(&unsent->request, stream, &rest, 1, uv_written);
        if (refused < 0) {
            delete unsent;
            uv_fail(reinterpret_cast<uv_handle_t *>(stream), refused);
        }
    }
}

} // namespace

extern "C" int64_t handover_libuv_serve(const int *fds, size_t count, size_t buffer_bytes, void (*set_up)(void *),
                                        void *context) noexcept
{
    UvLoop owner;
    owner.buffer.resize(buffer_bytes);
    int refused = uv_loop_init(&owner.loop);
    if (refused < 0)
        return refused;
    std::vector<UvConnection> connections(count);
    for (size_t at = 0; at < count; at++) {
        UvConnection &it = connections[at];
        it.owner = &owner;
        uv_tcp_init(&owner.loop, &it.tcp);
        it.tcp.data = &it;
        auto *stream = reinterpret_cast<uv_stream_t *>(&it.tcp);
        int error = uv_tcp_open(&it.tcp, fds[at]);
        if (error == 0)
            error = uv_read_start(stream, uv_buffer, uv_came);
        if (error < 0)
            uv_fail(reinterpret_cast<uv_handle_t *>(&it.tcp), error);
    }
    set_up(context);
    uv_run(&owner.loop, UV_RUN_DEFAULT);
    uv_loop_close(&owner.loop);
    return owner.error < 0 ? owner.error : owner.messages_count;
}
#endif

#ifdef HAVE_BOOST_ASIO
namespace {

namespace asio = boost::asio;

struct AsioConnection {
    asio::ip::tcp::socket socket;
    std::vector<char> buffer;
    size_t begun_bytes = 0;
    int64_t &messages_count;
    boost::system::error_code &error;

    void fail(boost::system::error_code why)
    {
        if (why != asio::error::eof && !error)
            error = why;
        boost::system::error_code ignored;
        socket.close(ignored);
    }

    void read()
    {
        socket.async_read_some(asio::buffer(buffer.data() + begun_bytes, buffer.size() - begun_bytes),
                               [this](boost::system::error_code why, size_t count) {
                                   if (why)
                                       return fail(why);
                                   echo(begun_bytes + count);
                               });
    }

    void echo(size_t filled)
    {
        size_t whole = whole_bytes(buffer.data(), filled, messages_count);
        begun_bytes = filled - whole;
        if (whole == 0)
            return read();
        asio::async_write(socket, asio::buffer(buffer.data(), whole),
                          [this, whole](boost::system::error_code why, size_t) {
                              if (why)
                                  return fail(why);
                              std::memmove(buffer.data(), buffer.data() + whole, begun_bytes);
                              read();
                          });
    }
};

} // namespace

extern "C" int64_t handover_asio_serve(const int *fds, size_t count, size_t buffer_bytes, void (*set_up)(void *),
                                       void *context) noexcept
{
    asio::io_context loop(1);
    int64_t messages_count = 0;
    boost::system::error_code error;
    std::vector<std::unique_ptr<AsioConnection>> connections;
    for (size_t at = 0; at < count; at++) {
        connections.push_back(std::unique_ptr<AsioConnection>(new AsioConnection{
            asio::ip::tcp::socket(loop), std::vector<char>(buffer_bytes), 0, messages_count, error}));
        boost::system::error_code refused;
        connections.back()->socket.assign(asio::ip::tcp::v4(), fds[at], refused);
        if (refused)
            connections.back()->fail(refused);
        else
            connections.back()->read();
    }
    set_up(context);
    loop.run();
    return error ? -static_cast<int64_t>(error.value()) : messages_count;
}
#endif

#ifdef HAVE_OPENSSL
namespace {

struct EpollSet {
    int fd = epoll_create1(EPOLL_CLOEXEC);
    ~EpollSet()
    {
        if (fd >= 0)
            close(fd);
    }
};

struct SslConnection {
    int fd = -1;
    SSL *ssl = nullptr;
    /* The beginning of a message. */
    std::vector<char> begun;
    /* Bytes that the kernel did not take at once. */
    std::vector<char> unsent;
    int awaited_events = EPOLLIN;

    ~SslConnection()
    {
        SSL_free(ssl);
        close(fd);
    }

    /* Events without which the function that returned `result` cannot continue: 0 if the client has
     * closed the connection; a negated errno if the function failed. */
    int events_after(int result) const
    {
        switch (SSL_get_error(ssl, result)) {
        case SSL_ERROR_WANT_READ:
            return EPOLLIN;
        case SSL_ERROR_WANT_WRITE:
            return EPOLLOUT;
        case SSL_ERROR_ZERO_RETURN:
            return 0;
        case SSL_ERROR_SYSCALL:
            return errno != 0 ? -errno : -ECONNRESET;
        default:
            return -EPROTO;
        }
    }

    /* Sends bytes, and stores those that the kernel does not take. Returns the events to wait for,
     * as serve() does. */
    int send(const char *bytes, size_t count)
    {
        size_t at = 0;
        while (at < count) {
            size_t sent = 0;
            int result = SSL_write_ex(ssl, bytes + at, count - at, &sent);
            if (result != 1) {
                unsent.assign(bytes + at, bytes + count);
                return events_after(result);
            }
            at += sent;
        }
        return EPOLLIN;
    }

    /* Continues the handshake, or echoes messages. Returns the events to wait for: 0 if the client
     * has closed the connection; a negated errno after an error. */
    int serve(std::vector<char> &buffer, int64_t &messages_count)
    {
        if (!SSL_is_init_finished(ssl)) {
            int result = SSL_accept(ssl);
            if (result != 1)
                return events_after(result);
        }
        std::vector<char> rest;
        rest.swap(unsent);
        int events = send(rest.data(), rest.size());
        while (unsent.empty()) {
            size_t filled = begun.size();
            std::copy(begun.begin(), begun.end(), buffer.begin());
            int result = 1;
            /* One call returns one record. */
            do {
                size_t count = 0;
                result = SSL_read_ex(ssl, buffer.data() + filled, buffer.size() - filled, &count);
                filled += count;
            } while (result == 1 && filled < buffer.size() && SSL_has_pending(ssl));
            events = result == 1 ? int{EPOLLIN} : events_after(result);
            if (events < 0)
                return events;
            size_t whole = whole_bytes(buffer.data(), filled, messages_count);
            begun.assign(buffer.data() + whole, buffer.data() + filled);
            int send_events = send(buffer.data(), whole);
            if (send_events != EPOLLIN)
                return send_events;
            /* Records that OpenSSL has read already cause no event: they are left only if the
             * buffer is full. */
            if (result != 1 || filled < buffer.size())
                return events;
        }
        return events;
    }
};

/* Creates a context for TLS 1.3 with the certificate and the key in `pem`; returns null if it
 * fails. Like the servers with rustls, it sends session tickets and stores no sessions. */
SSL_CTX *new_ssl_context(const char *pem, size_t buffer_bytes)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    BIO *bio = BIO_new_mem_buf(pem, -1);
    X509 *certificate = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, nullptr, nullptr, nullptr);
    bool is_usable = context != nullptr && certificate != nullptr && key != nullptr &&
                     SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
                     SSL_CTX_use_certificate(context, certificate) == 1 && SSL_CTX_use_PrivateKey(context, key) == 1;
    EVP_PKEY_free(key);
    X509_free(certificate);
    BIO_free(bio);
    if (!is_usable) {
        SSL_CTX_free(context);
        return nullptr;
    }
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    /* A system call reads as much as it can, instead of a record's header and then its body. */
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_default_read_buffer_len(context, buffer_bytes);
    return context;
}

} // namespace

/* The connections do not block. `pem` is the certificate and its key; `set_up` is called when all
 * handshakes are complete. */
extern "C" int64_t handover_openssl_serve(const int *fds, size_t count, size_t buffer_bytes, const char *pem,
                                          void (*set_up)(void *), void *context) noexcept
{
    std::vector<SslConnection> connections(count);
    for (size_t at = 0; at < count; at++)
        connections[at].fd = fds[at];
    /* Each call of OpenSSL requires that no earlier error is stored; the first error ends this
     * function. */
    ERR_clear_error();
    std::unique_ptr<SSL_CTX, void (*)(SSL_CTX *)> tls(new_ssl_context(pem, buffer_bytes), SSL_CTX_free);
    if (!tls)
        return -EINVAL;
    EpollSet set;
    for (size_t at = 0; at < count; at++) {
        SslConnection &it = connections[at];
        it.ssl = SSL_new(tls.get());
        if (it.ssl == nullptr || SSL_set_fd(it.ssl, it.fd) != 1)
            return -ENOMEM;
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.u64 = at;
        if (epoll_ctl(set.fd, EPOLL_CTL_ADD, it.fd, &event) < 0)
            return -errno;
    }
    std::vector<char> buffer(buffer_bytes);
    int64_t messages_count = 0;
    size_t securing_count = count, open_count = count;
    epoll_event events[256];
    while (open_count > 0) {
        int ready_count = epoll_wait(set.fd, events, 256, -1);
        if (ready_count < 0 && errno != EINTR)
            return -errno;
        for (int at = 0; at < ready_count; at++) {
            SslConnection &it = connections[events[at].data.u64];
            bool was_securing = !SSL_is_init_finished(it.ssl);
            int awaited = it.serve(buffer, messages_count);
            if (awaited < 0)
                return awaited;
            if (was_securing && SSL_is_init_finished(it.ssl) && --securing_count == 0)
                set_up(context);
            if (awaited == it.awaited_events)
                continue;
            it.awaited_events = awaited;
            open_count -= awaited == 0;
            events[at].events = static_cast<uint32_t>(awaited);
            if (epoll_ctl(set.fd, awaited == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD, it.fd, &events[at]) < 0)
                return -errno;
        }
    }
    return messages_count;
}
#endif
