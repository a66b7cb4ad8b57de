//! Driver of a scheduler: clients with a mailbox each, one arbiter thread that alone owns the
//! algorithm, and sinks that transmit the packets.
//!
//! ```text
//! client 0 ──mailbox──►┐           ┌──────────┐        ┌─returned──► client 0 ──► sink
//! client 1 ──mailbox──►┼─ arbiter ─┤ Scheduler├─ link ─┼─returned──► client 1 ──► sink
//! client 2 ──mailbox──►┘           └──────────┘        └─returned──► client 2 ──► sink
//! ```
//!
//! A client describes a packet by its flow, its length and a tag of 26 bits: eight bytes. The
//! packet itself stays where it is. The arbiter takes the descriptions out of the mailboxes, passes
//! them to the algorithm, and releases the packets that the algorithm returns, at the rate of the
//! link. The client receives the released packets and transmits them in order. The path of a packet
//! has no lock, and no thread blocks another.
//!
//! ```
//! use handover_sched::drive::{Arbiter, ArbiterConfig, NullSink, Offer, StopMode, Token};
//! use handover_sched::{Algorithm, FlowSpec, engine};
//!
//! let mut scheduler = Algorithm::Rr.build::<Token>(&engine::Config::default())?;
//! scheduler.add_flow(FlowSpec::default().weight(1).length_max_bytes(1500).packets_max(50))?;
//! let arbiter = Arbiter::new(scheduler, ArbiterConfig::default().bandwidth_bps(Some(1_000_000_000)))?;
//! let hub = arbiter.hub();
//! let running = arbiter.spawn(|| {})?;
//!
//! let mut client = hub.join()?;
//! client.send(Offer { flow: 0, length_bytes: 1500, tag: 7 })?;
//! while client.in_flight_count() > 0 {
//!     client.poll(32, &mut NullSink, &mut ())?;
//! }
//! assert_eq!(client.counts().transmitted, 1);
//!
//! drop(client);
//! hub.stop(StopMode::Drain);
//! assert_eq!(running.join().total_ledger().released_bytes, 1500);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Probes
//! The stages of a packet can be recorded ([`handover_probe`]): `sched.enqueued` when a client has
//! put packets into its mailbox, `sched.taken` when the arbiter has read them,
//! `sched.scheduled` when the algorithm has them, `sched.marked` when they have been released,
//! `sched.transmitted` when the client has transmitted them. Each event has the client's number and
//! the number of packets; a burst is one event.
//!
//! # Source
//! L. Rizzo, P. Valente, G. Lettieri, V. Maffione, "PSPAT: software packet scheduling at hardware
//! speed" (Computer Communications 2018): clients' mailboxes, an arbiter that owns the algorithm,
//! and release by the clients.

mod arbiter;
mod client;
mod clock;
mod config;
mod final_state;
mod hub;
pub mod lane;
mod ledger;
mod load;
mod port;
mod presence;
mod run;
mod sink;
mod stamps;
mod state;
mod sweep;
mod wait;
mod word;

pub use arbiter::{Arbiter, ArbiterThread};
pub use client::{BatchResult, Client, SendError};
pub use clock::{BANDWIDTH_MAX_BPS, BANDWIDTH_MIN_BPS, PacketClock, RateError};
pub use config::{ArbiterConfig, ArbiterConfigError, BATCH_MAX, DRAIN_MAX, INTERVAL_MAX};
pub use final_state::{FinalState, LEDGERS_MAX};
pub use hub::{CLIENTS_MAX, Hub, JoinError, StopMode};
pub use ledger::{Counts, Ledger};
pub use load::{ClientFlows, Load, LoadAction, LoadSection};
pub use run::{ClientRun, RunError, run_client};
pub use sink::{CopySink, FlowCounter, FlowCounts, NullSink, Sink, SinkError};
pub use stamps::{Record, Stamping, Trace};
pub use wait::IdlePolicy;
pub use word::{Departure, FLOWS_MAX, LENGTH_MAX_BYTES, Offer, TAGS_MAX, Token};
