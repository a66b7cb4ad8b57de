//! Limits of a scheduler.

use super::{Algorithm, FlowError, FlowSpec};

/// Greatest value of a flow's longest packet, in bytes.
pub const LENGTH_LIMIT_BYTES: u32 = 1 << 20;

/// Greatest weight, for the algorithms that share by weight.
pub const WEIGHT_MAX: u64 = 1 << 20;

/// Greatest sum of weights, for the algorithms with a virtual time.
pub const WEIGHT_SUM_MAX: u64 = 1 << 40;

/// Greatest number of packets that a scheduler holds.
pub const PACKETS_LIMIT: u32 = 1 << 28;

/// Greatest number of flows that a scheduler holds.
pub const FLOWS_LIMIT: u32 = 1 << 24;

/// Configuration of a scheduler.
///
/// Memory for all packets and flows is reserved at once and touched as it is used: 16 bytes for
/// each packet (with a token of at most 8 bytes) and at most 64 for each flow. Afterwards only
/// adding flows allocates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Maximum number of queued packets, in all flows together.
    pub packets_max: u32,
    /// Maximum number of flows.
    pub flows_max: u32,
    /// Specification of flows made by their first packet; `None` refuses packets of unknown flows.
    /// All flows with smaller numbers are made as well, as numbers are dense.
    pub template: Option<FlowSpec>,
    /// Bytes of a turn of `rr` for each unit of weight: at least this, and more if a flow's longest
    /// packet would not fit its turn otherwise. Greater turns are cheaper and less fair.
    pub quantum_bytes: u32,
}

impl Default for Config {
    /// Returns 65,536 packets, 65,536 flows, no template, and the shortest turns.
    fn default() -> Self {
        Self { packets_max: 1 << 16, flows_max: 1 << 16, template: None, quantum_bytes: 1 }
    }
}

/// Error of making a scheduler.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// `packets_max` is outside its range.
    #[error("packets_max={packets_max}: must lie in 1..={PACKETS_LIMIT}")]
    Packets {
        /// The configured value.
        packets_max: u32,
    },
    /// `flows_max` is outside its range.
    #[error("flows_max={flows_max}: must lie in 1..={FLOWS_LIMIT}")]
    Flows {
        /// The configured value.
        flows_max: u32,
    },
    /// `quantum_bytes` is outside its range.
    #[error("quantum_bytes={quantum_bytes}: must lie in 1..={LENGTH_LIMIT_BYTES}")]
    Quantum {
        /// The configured value.
        quantum_bytes: u32,
    },
    /// No flow can be made from this template.
    #[error("template: {0}")]
    Template(#[from] FlowError),
    /// The flows of a tenant cannot be paced, as the tenant chooses its next packet ahead.
    #[error("pacing cannot order the flows of a tenant: use it for the tenants")]
    HoldsBack,
    /// The algorithm orders packets, not flows, so it cannot be a level.
    #[error("{algorithm} cannot be one of two levels: it does not order flows")]
    NoLevel {
        /// The algorithm.
        algorithm: Algorithm,
    },
}

impl Config {
    /// Checks that a scheduler can be made with this configuration.
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
        template.map_or(Ok(()), |spec| Ok(check_spec(&spec, u64::MAX)?))
    }
}

/// Checks the limits that hold for every algorithm.
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
