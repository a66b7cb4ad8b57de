//! Errors, with their reasons.

use crate::engine::Packet;

/// Reason why a packet was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The flow holds as many packets as its limit allows (and its policy is to drop the newest).
    #[error("the flow's queue is full")]
    FlowFull,
    /// The scheduler holds as many packets as its configuration allows.
    #[error("the scheduler is full")]
    Full,
    /// No flow has this number, and there is no template to make flows from.
    #[error("no such flow")]
    UnknownFlow,
    /// The packet is longer than its flow's longest packet, on which the fairness bound depends.
    #[error("longer than the flow's longest packet")]
    TooLong,
    /// No flow has this number, and no more can be made: the limit of flows or of the sum of
    /// weights is reached.
    #[error("no such flow, and no more can be made")]
    NoMoreFlows,
    /// A packet without bytes, which has no place in an order by bytes.
    #[error("a packet of no bytes")]
    Empty,
}

/// Error of a refused packet; contains the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a packet of flow {}, {} bytes: {why}", .packet.flow, .packet.length_bytes)]
pub struct Refused<T: core::fmt::Debug> {
    /// The packet, unchanged.
    pub packet: Packet<T>,
    /// The reason.
    #[source]
    pub why: Refusal,
}

/// Error of adding a flow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlowError {
    /// The weight is outside the algorithm's range.
    #[error("weight {weight}: must lie in 1..={weight_max}")]
    Weight {
        /// The requested weight.
        weight: u64,
        /// The greatest valid weight.
        weight_max: u64,
    },
    /// The longest packet is outside the algorithm's range.
    #[error("longest packet {length_max_bytes} bytes: must lie in 1..={limit_bytes}")]
    Length {
        /// The requested length.
        length_max_bytes: u32,
        /// The greatest valid length.
        limit_bytes: u32,
    },
    /// With this flow the sum of the weights would exceed the algorithm's limit.
    #[error("the weights would sum to {sum}: the algorithm holds at most {sum_max}")]
    WeightSum {
        /// The sum including this flow.
        sum: u64,
        /// The greatest valid sum.
        sum_max: u64,
    },
    /// The flow could not hold a single packet.
    #[error("packets_max=0: a flow must have room for a packet")]
    Packets,
    /// A scheduler of two levels has no tenant of this number.
    #[error("no tenant {tenant}: there are {tenants_count}")]
    Tenant {
        /// The requested tenant; 0 if there is no tenant yet.
        tenant: u32,
        /// The number of tenants.
        tenants_count: u32,
    },
    /// The scheduler has as many flows as its configuration allows.
    #[error("{flows_max} flows are there already: no more were asked for")]
    Flows {
        /// The limit of flows.
        flows_max: u32,
    },
}
