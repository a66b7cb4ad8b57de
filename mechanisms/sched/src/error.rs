//! What is refused, and why.

use crate::engine::Packet;

/// Why a packet was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The flow holds as many packets as its limit allows (and its policy is to drop the newest).
    #[error("the flow's queue is full")]
    FlowFull,
    /// The scheduler holds as many packets as it was made for.
    #[error("the scheduler is full")]
    Full,
    /// No flow has this number, and flows are not made on their first packet.
    #[error("no such flow")]
    UnknownFlow,
    /// The packet is longer than its flow's longest, on which the fairness bound rests.
    #[error("longer than the flow's longest packet")]
    TooLong,
    /// No flow has this number, and no more can be made: their number or their weights have come to
    /// the limit.
    #[error("no such flow, and no more can be made")]
    NoMoreFlows,
    /// A packet of no bytes has no place in an order by bytes.
    #[error("a packet of no bytes")]
    Empty,
}

/// A packet that was not taken, given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a packet of flow {}, {} bytes: {why}", .packet.flow, .packet.length_bytes)]
pub struct Refused<T: core::fmt::Debug> {
    /// The packet, untouched.
    pub packet: Packet<T>,
    /// Why it was not taken.
    #[source]
    pub why: Refusal,
}

/// Why a flow could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlowError {
    /// A weight outside what the algorithm can represent.
    #[error("weight {weight}: must lie in 1..={weight_max}")]
    Weight {
        /// The weight asked for.
        weight: u64,
        /// The largest that the algorithm takes.
        weight_max: u64,
    },
    /// A longest packet outside what the algorithm can represent.
    #[error("longest packet {length_max_bytes} bytes: must lie in 1..={limit_bytes}")]
    Length {
        /// The length asked for.
        length_max_bytes: u32,
        /// The largest that the algorithm takes.
        limit_bytes: u32,
    },
    /// With this flow the weights would sum to more than the algorithm can represent.
    #[error("the weights would sum to {sum}: the algorithm holds at most {sum_max}")]
    WeightSum {
        /// The sum with this flow.
        sum: u64,
        /// The largest sum.
        sum_max: u64,
    },
    /// A flow that could not hold a single packet.
    #[error("packets_max=0: a flow must have room for a packet")]
    Packets,
    /// A scheduler of two levels has no such tenant.
    #[error("no tenant {tenant}: there are {tenants_count}")]
    Tenant {
        /// Which was named; 0 where there is none yet.
        tenant: u32,
        /// How many there are.
        tenants_count: u32,
    },
    /// There are as many flows as the scheduler was made for.
    #[error("{flows_max} flows are there already: no more were asked for")]
    Flows {
        /// How many flows the scheduler was made for.
        flows_max: u32,
    },
}
