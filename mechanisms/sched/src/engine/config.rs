//! How much a scheduler may hold.

use super::{Algorithm, FlowError, FlowSpec};

/// The longest packet that any flow may ask for, in bytes.
pub const LENGTH_LIMIT_BYTES: u32 = 1 << 20;

/// The largest weight for the algorithms that share by weight.
pub const WEIGHT_MAX: u64 = 1 << 20;

/// The largest sum of weights for the algorithms that keep a virtual time.
pub const WEIGHT_SUM_MAX: u64 = 1 << 40;

/// The most packets that one scheduler holds.
pub const PACKETS_LIMIT: u32 = 1 << 28;

/// The most flows that one scheduler holds.
pub const FLOWS_LIMIT: u32 = 1 << 24;

/// What a scheduler is made for.
///
/// Memory is reserved for all of it at once and touched as it is used: 16 bytes for each packet (with a
/// token of 8 bytes or fewer) and 64 or fewer for each flow. Nothing is allocated afterwards but for
/// flows that are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Packets that may be queued at once, in all flows together.
    pub packets_max: u32,
    /// Flows that there may be.
    pub flows_max: u32,
    /// What a flow is made with by its first packet; `None` refuses packets of unknown flows. All
    /// flows with smaller numbers are made as well, as numbers are dense.
    pub template: Option<FlowSpec>,
    /// What a turn of `rr` is worth for each unit of weight, in bytes: at least this, and more where a
    /// flow's longest packet would not fit its turn otherwise. Greater turns are cheaper and less
    /// fair.
    pub quantum_bytes: u32,
}

impl Default for Config {
    /// 65,536 packets, 65,536 flows, none made by a packet, and the fairest turns.
    fn default() -> Self {
        Self { packets_max: 1 << 16, flows_max: 1 << 16, template: None, quantum_bytes: 1 }
    }
}

/// Why a scheduler could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No packets, or more than can be numbered.
    #[error("packets_max={packets_max}: must lie in 1..={PACKETS_LIMIT}")]
    Packets {
        /// What was asked for.
        packets_max: u32,
    },
    /// No flows, or more than can be numbered.
    #[error("flows_max={flows_max}: must lie in 1..={FLOWS_LIMIT}")]
    Flows {
        /// What was asked for.
        flows_max: u32,
    },
    /// A turn of nothing, or longer than the longest packet.
    #[error("quantum_bytes={quantum_bytes}: must lie in 1..={LENGTH_LIMIT_BYTES}")]
    Quantum {
        /// What was asked for.
        quantum_bytes: u32,
    },
    /// No flow could ever be made with this template.
    #[error("the flows made by their first packets: {0}")]
    Template(#[from] FlowError),
    /// The flows of a tenant cannot be held back, as the tenant chooses its next packet ahead.
    #[error("flows within a tenant cannot be paced: only the tenants can")]
    HoldsBack,
    /// An algorithm that orders packets, not flows, where flows are to be ordered.
    #[error("{algorithm} cannot be a level of two: it does not order flows")]
    NoLevel {
        /// Which.
        algorithm: Algorithm,
    },
}

impl Config {
    /// Whether a scheduler can be made of this.
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

/// What every algorithm asks of a flow.
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
