//! Errors, with their reasons.

use crate::engine::Packet;

/// Reason for which a scheduler refuses a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The packet's flow has its maximum number of packets, and its policy is
    /// [`DropPolicy::Tail`](crate::DropPolicy::Tail).
    #[error("the flow's queue is full: dequeue packets, or raise the flow's packets_max")]
    FlowFull,
    /// The scheduler has its maximum number of packets, over all flows.
    #[error("the scheduler is full: dequeue packets, or raise the configuration's packets_max")]
    Full,
    /// The packet's flow does not exist, and the configuration has no template for new flows.
    #[error("the flow does not exist: add it, or configure a template for new flows")]
    UnknownFlow,
    /// The packet exceeds its flow's maximum length, on which the fairness bound depends.
    #[error(
        "the packet is longer than the flow's length_max_bytes: split it, or raise length_max_bytes"
    )]
    TooLong,
    /// The packet's flow does not exist and cannot be created. Its number is not below the maximum
    /// number of flows, the sum of weights would exceed its limit, or the scheduler refuses the
    /// template for another reason.
    #[error(
        "cannot create the flow: raise the configuration's flows_max above the flow's number, give \
         flows less weight, or correct the template: add_flow with it returns its error"
    )]
    NoMoreFlows,
    /// The packet's length is zero.
    #[error("the packet is empty: length_bytes must be at least 1")]
    Empty,
}

/// Error of [`Scheduler::enqueue`](crate::Scheduler::enqueue); contains the refused packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot queue a packet of flow {}, {} bytes: {reason}", .packet.flow, .packet.length_bytes)]
pub struct EnqueueError<T: core::fmt::Debug> {
    /// The refused packet, unchanged.
    pub packet: Packet<T>,
    /// Reason for the refusal.
    pub reason: Refusal,
}

/// Error of adding, changing or removing a flow of a [`Scheduler`](crate::Scheduler), or a tenant
/// of [`Tenants`](crate::engine::Tenants).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlowError {
    /// The flow's weight is outside the algorithm's range.
    #[error("weight={weight}: must lie in 1..={weight_max}")]
    Weight {
        /// Requested weight of the flow.
        weight: u64,
        /// Maximum weight of a flow with this algorithm.
        weight_max: u64,
    },
    /// The flow's maximum packet length is outside the algorithm's range.
    #[error("length_max_bytes={length_max_bytes}: must lie in 1..={limit_bytes}")]
    Length {
        /// Requested maximum packet length.
        length_max_bytes: u32,
        /// Maximum packet length with this algorithm.
        limit_bytes: u32,
    },
    /// The sum of all weights would exceed the algorithm's limit.
    #[error(
        "with this flow the sum of all weights would be {sum}, which exceeds the maximum of {sum_max}"
    )]
    WeightSum {
        /// Sum of all weights, including the new flow's.
        sum: u64,
        /// Maximum sum of weights.
        sum_max: u64,
    },
    /// The flow's maximum number of packets is zero.
    #[error("packets_max=0: must be at least 1")]
    Packets,
    /// The two-level scheduler has no tenant of this number.
    #[error("tenant {tenant} does not exist: the scheduler has {tenants_count} tenants")]
    Tenant {
        /// Number of the requested tenant; 0 if there is no tenant yet.
        tenant: u32,
        /// Number of tenants of the scheduler.
        tenants_count: u32,
    },
    /// The scheduler has no flow of this number.
    #[error("flow {flow} does not exist: it was not added, or it was removed")]
    Unknown {
        /// Number of the requested flow.
        flow: u32,
    },
    /// The scheduler supports neither removing flows nor changing weights.
    #[error("this scheduler neither removes flows nor changes their weights")]
    Fixed,
    /// The algorithm, `fifo` or `rr1`, has no weights.
    #[error(
        "this algorithm has no weights: choose one in which flows have a share, priority or rate"
    )]
    NoWeights,
    /// The flow cannot be added because the scheduler has its maximum number of flows.
    #[error("the scheduler already has flows_max={flows_max} flows: configure a larger flows_max")]
    Flows {
        /// Maximum number of flows of the scheduler.
        flows_max: u32,
    },
}
