//! Counters of an event-loop thread.

use handover_base::sync::shared::{AtomicU64, Ordering};

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// Counters of an event-loop thread, or of all threads of a service.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)+
        }

        /// Copy of [`Stats`] that other threads can read.
        #[derive(Debug, Default)]
        pub(crate) struct Published {
            $($name: AtomicU64,)+
        }

        impl Stats {
            /// Returns the sum of the two threads' counters.
            #[must_use]
            pub fn plus(self, other: Self) -> Self {
                Self { $($name: self.$name + other.$name,)+ }
            }
        }

        impl Published {
            /// Publishes the counters. All stores are Relaxed: each counter is valid by itself and
            /// orders no other access.
            pub(crate) fn publish(&self, stats: &Stats) {
                $(self.$name.store(stats.$name, Ordering::Relaxed);)+
            }

            pub(crate) fn read(&self) -> Stats {
                Stats { $($name: self.$name.load(Ordering::Relaxed),)+ }
            }
        }
    };
}

stats! {
    /// Connections accepted.
    accepted_count,
    /// Outgoing connections established.
    connected_count,
    /// Connections closed, for any reason.
    closed_count,
    /// Connections open now.
    open_count,
    /// Connections rejected: too many from their address, or none can be opened.
    turned_away_count,
    /// Pauses of accepting because no descriptor or slot was free.
    accept_pauses_count,
    /// TLS handshakes completed.
    handshakes_count,
    /// TLS handshakes that resumed an earlier session; also in `handshakes_count`.
    resumed_count,
    /// Connections closed because TLS failed, usually in the handshake.
    tls_failed_count,
    /// Reads that returned bytes.
    reads_count,
    /// Bytes read.
    read_bytes,
    /// Messages handed to the handler.
    messages_count,
    /// Sends of which the kernel accepted at least one byte.
    sends_count,
    /// Bytes sent.
    sent_bytes,
    /// Sends of which the kernel accepted only a part, so that bytes had to be queued.
    delayed_count,
    /// Iterations of the event loop.
    rounds_count,
    /// Waits during which spinning found work.
    spun_count,
    /// Handler calls that panicked.
    panics_count,
    /// Connections closed because their peer did not read.
    slow_readers_count,
    /// Connections closed because a time limit was exceeded.
    timed_out_count,
}
