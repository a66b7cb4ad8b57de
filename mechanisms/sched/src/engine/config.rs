//! Limits of a scheduler.

use super::{Algorithm, FlowError, FlowSpec};

/// Maximum of a flow's [`length_max_bytes`](super::FlowSpec::length_max_bytes).
pub const LENGTH_LIMIT_BYTES: u32 = 1 << 20;

/// Maximum weight of a flow, for the algorithms that share by weight.
pub const WEIGHT_MAX: u64 = 1 << 20;

/// Maximum sum of all flows' weights, for the algorithms with a virtual time (`wf2q+`, `qfq` and
/// `qfq+`).
pub const WEIGHT_SUM_MAX: u64 = 1 << 40;

/// Maximum of [`Config::packets_max`].
pub const PACKETS_LIMIT: u32 = 1 << 28;

/// Maximum of [`Config::flows_max`].
pub const FLOWS_LIMIT: u32 = 1 << 24;

/// Configuration of a scheduler.
///
/// Memory for all packets and flows is reserved at once and touched as it is used: 16 bytes for
/// each packet (with a token of at most 8 bytes) and at most 64 for each flow. Afterwards only
/// adding flows allocates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Maximum number of queued packets, in all flows together.
    pub packets_max: u32,
    /// Maximum number of flows.
    pub flows_max: u32,
    /// Properties of a flow that is created by its first packet; `None` refuses packets of unknown
    /// flows. All flows with smaller numbers are created as well, also those that were removed. A
    /// packet of flow [`flows_max`](Self::flows_max) or a greater number is refused and creates no
    /// flow. If the sum of weights reaches its limit, the packet is refused, and the flows created
    /// until then remain.
    pub template: Option<FlowSpec>,
    /// Initial quantum of `rr`: bytes that a flow may send in a cycle, per unit of weight. The
    /// scheduler raises the quantum if a flow's longest packet would not fit otherwise. A greater
    /// quantum is cheaper and less fair.
    pub quantum_bytes: u32,
}

handover_base::setters!(Config {
    packets_max: u32,
    flows_max: u32,
    template: Option<FlowSpec>,
    quantum_bytes: u32,
});

impl Default for Config {
    /// Returns limits of 65,536 packets and 65,536 flows, no template, and the smallest quantum.
    fn default() -> Self {
        Self { packets_max: 1 << 16, flows_max: 1 << 16, template: None, quantum_bytes: 1 }
    }
}

/// Error of [`Config::validate`] and of creating a scheduler.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// [`Config::packets_max`] is outside its range.
    #[error("packets_max={packets_max}: must lie in 1..={PACKETS_LIMIT}")]
    Packets {
        /// Configured number of packets.
        packets_max: u32,
    },
    /// [`Config::flows_max`] is outside its range.
    #[error("flows_max={flows_max}: must lie in 1..={FLOWS_LIMIT}")]
    Flows {
        /// Configured number of flows.
        flows_max: u32,
    },
    /// [`Config::quantum_bytes`] is outside its range.
    #[error("quantum_bytes={quantum_bytes}: must lie in 1..={LENGTH_LIMIT_BYTES}")]
    Quantum {
        /// Configured quantum.
        quantum_bytes: u32,
    },
    /// [`Config::template`], the template for new flows, is not valid.
    #[error("template for new flows: {0}")]
    Template(FlowError),
    /// `pacing` was chosen for the flows of a tenant. It may hold packets back, but a tenant
    /// chooses its next packet in advance.
    #[error("pacing cannot schedule the flows within a tenant: use it for the tenants only")]
    HoldsBack,
    /// The chosen algorithm orders packets, not flows, so it cannot be a level of a two-level
    /// scheduler.
    #[error("{algorithm} cannot be a level of a two-level scheduler: it orders packets, not flows")]
    NoLevel {
        /// The algorithm that cannot be a level.
        algorithm: Algorithm,
    },
}

impl Config {
    /// Checks that every value is within its range.
    ///
    /// # Errors
    /// [`ConfigError`] names the field, its value and its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let Self { packets_max, flows_max, template, quantum_bytes } = *self;
        if !(1..=PACKETS_LIMIT).contains(&packets_max) {
            return Err(ConfigError::Packets { packets_max });
        }
        if !(1..=FLOWS_LIMIT).contains(&flows_max) {
            return Err(ConfigError::Flows { flows_max });
        }
        if !(1..=LENGTH_LIMIT_BYTES).contains(&quantum_bytes) {
            return Err(ConfigError::Quantum { quantum_bytes });
        }
        let checked = template.map_or(Ok(()), |spec| check_spec(&spec, u64::MAX));
        checked.map_err(ConfigError::Template)
    }
}

/// Checks a flow's properties against `weight_max` and the limits that all algorithms share.
pub(crate) fn check_spec(spec: &FlowSpec, weight_max: u64) -> Result<(), FlowError> {
    if !(1..=weight_max).contains(&spec.weight) {
        return Err(FlowError::Weight { weight: spec.weight, weight_max });
    }
    if !(1..=LENGTH_LIMIT_BYTES).contains(&spec.length_max_bytes) {
        return Err(FlowError::Length {
            length_max_bytes: spec.length_max_bytes,
            limit_bytes: LENGTH_LIMIT_BYTES,
        });
    }
    if spec.packets_max == 0 {
        return Err(FlowError::Packets);
    }
    Ok(())
}
