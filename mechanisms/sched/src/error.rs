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
    /// No flow has this number, and the configuration has no template for new flows.
    #[error("the flow does not exist")]
    UnknownFlow,
    /// The packet is longer than its flow's longest packet, on which the fairness bound depends.
    #[error("longer than the flow's length_max_bytes")]
    TooLong,
    /// No flow has this number, and no more can be made: the limit of flows or of the sum of
    /// weights is reached.
    #[error("the flow does not exist, and no flow can be added")]
    NoMoreFlows,
    /// A packet without bytes, which an order by bytes cannot contain.
    #[error("an empty packet")]
    Empty,
}

/// Error of a refused packet; contains the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot queue a packet of flow {}, {} bytes: {why}", .packet.flow, .packet.length_bytes)]
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
    #[error("weight={weight}: must lie in 1..={weight_max}")]
    Weight {
        /// The requested weight.
        weight: u64,
        /// The greatest valid weight.
        weight_max: u64,
    },
    /// The longest packet is outside the algorithm's range.
    #[error("length_max_bytes={length_max_bytes}: must lie in 1..={limit_bytes}")]
    Length {
        /// The requested length.
        length_max_bytes: u32,
        /// The greatest valid length.
        limit_bytes: u32,
    },
    /// With this flow the sum of the weights would exceed the algorithm's limit.
    #[error("the sum of the weights would be {sum}: must be at most {sum_max}")]
    WeightSum {
        /// The sum including this flow.
        sum: u64,
        /// The greatest valid sum.
        sum_max: u64,
    },
    /// The flow could not hold a single packet.
    #[error("packets_max=0: must be at least 1")]
    Packets,
    /// A scheduler of two levels has no tenant of this number.
    #[error("tenant {tenant} does not exist: the scheduler has {tenants_count} tenants")]
    Tenant {
        /// The requested tenant; 0 if there is no tenant yet.
        tenant: u32,
        /// The number of tenants.
        tenants_count: u32,
    },
    /// The scheduler has as many flows as its configuration allows.
    #[error("flows_max={flows_max} flows exist: configure a larger flows_max")]
    Flows {
        /// The limit of flows.
        flows_max: u32,
    },
}
