/* The libraries whose headers the C++ compiler finds: build.rs reads the preprocessor's output. */
#if __has_include(<concurrentqueue/concurrentqueue.h>) && __has_include(<readerwriterqueue/readerwriterqueue.h>)
found moodycamel
#endif
#if __has_include(<boost/lockfree/queue.hpp>) && __has_include(<boost/lockfree/spsc_queue.hpp>)
found boost_lockfree
#endif
#if __has_include(<boost/asio.hpp>)
found boost_asio
#endif
#if __has_include(<uv.h>)
found libuv
#endif
#if __has_include(<openssl/ssl.h>)
#include <openssl/opensslv.h>
#if OPENSSL_VERSION_NUMBER >= 0x30000000L
found openssl
#endif
#endif
