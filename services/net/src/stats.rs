//! What a thread has done so far.

use handover_base::sync::shared::{AtomicU64, Ordering};

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// What a thread, or all threads of a service, have done so far.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)+
        }

        /// The same, for other threads to read.
        #[derive(Debug, Default)]
        pub(crate) struct Published {
            $($name: AtomicU64,)+
        }

        impl Stats {
            /// The sum of both.
            #[must_use]
            pub fn and(self, other: Self) -> Self {
                Self { $($name: self.$name + other.$name,)+ }
            }
        }

        impl Published {
            /// Relaxed, all of them: each number is right by itself, and none orders another.
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
    /// Connections made by us.
    connected_count,
    /// Connections closed, for whatever reason.
    closed_count,
    /// Connections open now.
    open_count,
    /// Connections turned away: too many of their address, or no room.
    turned_away_count,
    /// How often accepting paused because there were no descriptors or no room.
    accept_pauses_count,
    /// Handshakes of TLS that came to a good end.
    handshakes_count,
    /// Of these, those that resumed an earlier session.
    resumed_count,
    /// Connections closed because their TLS was wrong, most often in the handshake.
    tls_failed_count,
    /// Reads that brought something.
    reads_count,
    /// Bytes read.
    read_bytes,
    /// Messages handed to the handler.
    messages_count,
    /// Sends that took something.
    sends_count,
    /// Bytes sent.
    sent_bytes,
    /// Sends that the kernel did not take whole, so that bytes had to wait.
    delayed_count,
    /// Rounds of the loop.
    rounds_count,
    /// Rounds that found something to do while they spun.
    spun_count,
    /// Handlers that panicked.
    panics_count,
    /// Connections closed because their peer did not read.
    slow_readers_count,
    /// Connections closed because something took too long.
    timed_out_count,
}
