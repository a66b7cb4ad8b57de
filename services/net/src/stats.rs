//! Counters of an event-loop thread.

use handover_base::sync::shared::{AtomicU64, Ordering};

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// Counters of one event-loop thread, or sums over the threads of a [`Net`](crate::Net).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)+
        }

        /// Copy of a thread's [`Stats`] that other threads can read.
        #[derive(Debug, Default)]
        pub(crate) struct PublishedStats {
            $($name: AtomicU64,)+
        }

        impl Stats {
            /// Returns the sums of the counters of `self` and `other`.
            #[must_use]
            pub fn plus(self, other: Self) -> Self {
                Self { $($name: self.$name + other.$name,)+ }
            }
        }

        impl PublishedStats {
            /// Publishes the counters for other threads to read. All stores are Relaxed: each
            /// counter is valid by itself and orders no other access.
            pub(crate) fn publish(&self, stats: &Stats) {
                $(self.$name.store(stats.$name, Ordering::Relaxed);)+
            }

            pub(crate) fn load(&self) -> Stats {
                Stats { $($name: self.$name.load(Ordering::Relaxed),)+ }
            }
        }
    };
}

stats! {
    /// Number of accepted connections.
    accepted_count,
    /// Number of established outgoing connections.
    connected_count,
    /// Number of closed connections, for any reason.
    closed_count,
    /// Number of open connections.
    open_count,
    /// Number of connections that were accepted and closed at once. There were too many from their
    /// address, or no slot or descriptor was free.
    turned_away_count,
    /// Number of pauses of accepting because no descriptor or slot was free.
    accept_pauses_count,
    /// Number of completed TLS handshakes.
    handshakes_count,
    /// Number of TLS handshakes that resumed an earlier session; also in `handshakes_count`.
    resumed_count,
    /// Number of connections closed because TLS failed, usually in the handshake.
    tls_failed_count,
    /// Number of reads that returned bytes.
    reads_count,
    /// Number of bytes read.
    read_bytes,
    /// Number of messages passed to the handler.
    messages_count,
    /// Number of sends of which the kernel accepted at least one byte.
    sends_count,
    /// Number of bytes sent.
    sent_bytes,
    /// Number of sends of which the kernel did not accept all bytes. It may have accepted none.
    delayed_count,
    /// Number of iterations of the event loop.
    rounds_count,
    /// Number of waits during which spinning found work.
    spun_count,
    /// Number of handler calls that panicked.
    panics_count,
    /// Number of connections closed because their send queue would have exceeded its limit.
    slow_readers_count,
    /// Number of connections closed because a time limit was exceeded.
    timed_out_count,
}
