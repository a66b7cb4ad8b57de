//! Counters of a thread.

use handover_base::sync::shared::{AtomicU64, Ordering};

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// Counters of a thread, or of all threads of a service.
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
            /// Returns the sum of both.
            #[must_use]
            pub fn and(self, other: Self) -> Self {
                Self { $($name: self.$name + other.$name,)+ }
            }
        }

        impl Published {
            /// Relaxed, all of them: each counter is valid by itself and orders no other access.
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
    /// Connections turned away: too many from their address, or no space.
    turned_away_count,
    /// Pauses of accepting for lack of descriptors or space.
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
    /// Sends of which the kernel took at least one byte.
    sends_count,
    /// Bytes sent.
    sent_bytes,
    /// Sends of which the kernel took only a part, so that bytes had to be queued.
    delayed_count,
    /// Rounds of the event loop.
    rounds_count,
    /// Waits that found work while spinning.
    spun_count,
    /// Handler calls that panicked.
    panics_count,
    /// Connections closed because their peer did not read.
    slow_readers_count,
    /// Connections closed because a time limit was exceeded.
    timed_out_count,
}
