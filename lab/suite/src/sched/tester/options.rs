//! Options of dummynet's tester.

use super::super::flowset::{FlowSet, FlowSetError};
use handover_sched::engine::{
    Algorithm, Config, LENGTH_LIMIT_BYTES, PACKETS_LIMIT, UnknownAlgorithm,
};
use std::str::FromStr;

/// Options `-n -d -alg -flowsets -len -burst -qmin -qmax -flows`, as in dummynet's tester.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TesterOptions {
    /// `-alg`: the algorithm; `rr` by default.
    pub algorithm: Algorithm,
    /// `-flowsets`: the set of flows. Without it, there are `-flows` flows with weight 1 and
    /// packets of `-len` bytes.
    pub flows: FlowSet,
    /// `-n`: the number of steps of a test; each offers a packet or takes one out.
    pub steps_count: u64,
    /// `-d`: the level of debug output.
    pub debug_level: u32,
    /// `-len`: upper limit of the packets' length, in bytes; `None` without a limit.
    pub length_bytes: Option<u32>,
    /// `-burst`: the number of consecutive packets of one flow.
    pub burst: u32,
    /// `-qmin`: the number of queued packets at which the generator starts to offer packets again.
    pub qmin: QueueThreshold,
    /// `-qmax`: the number of queued packets at which the generator stops offering packets.
    pub qmax: QueueThreshold,
}

/// Threshold of queued packets: in total, or for each flow (written with a trailing `n`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueThreshold {
    /// The threshold is a number of packets in total.
    Packets(u32),
    /// The threshold is a number of packets for each flow.
    PerFlow(u32),
}

impl QueueThreshold {
    /// Returns the threshold as a total number of packets of `flows_count` flows.
    pub fn total_packets(self, flows_count: u32) -> u64 {
        match self {
            Self::Packets(count) => count.into(),
            Self::PerFlow(count) => u64::from(count) * u64::from(flows_count),
        }
    }
}

impl FromStr for QueueThreshold {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_suffix('n') {
            Some(count) => Ok(Self::PerFlow(parse_number(count, PACKETS_LIMIT.into())? as u32)),
            None => Ok(Self::Packets(parse_number(text, PACKETS_LIMIT.into())? as u32)),
        }
    }
}

/// Error of parsing the options: an unknown option, or a missing or invalid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// No option has this name.
    #[error(
        "no option {name:?}: there are -n, -d, -alg, -flowsets, -len, -burst, -qmin, -qmax, -flows"
    )]
    Unknown {
        /// Text that is not an option.
        name: String,
    },
    /// The last option is not followed by a value.
    #[error("{name} needs a value")]
    NoValue {
        /// Name of the option.
        name: String,
    },
    /// The option does not accept this value.
    #[error("{name} {value}: {why}")]
    Value {
        /// Name of the option.
        name: String,
        /// Value of the option.
        value: String,
        /// Description of the valid values.
        why: String,
    },
    /// The algorithm is unknown.
    #[error("-alg: {0}")]
    Algorithm(UnknownAlgorithm),
    /// The set of flows is not valid.
    #[error("-flowsets: {0}")]
    Flows(FlowSetError),
    /// The test would queue more packets than a scheduler holds.
    #[error("-qmax: {packets} packets for {flows_count} flows exceed the limit of {PACKETS_LIMIT}")]
    Packets {
        /// Number of packets in total.
        packets: u64,
        /// Number of flows of the test.
        flows_count: u32,
    },
}

/// Parses a whole number up to `max`, with an optional suffix K, M, k or m.
fn parse_number(text: &str, max: u64) -> Result<u64, String> {
    let factors = [("K", 1_000), ("M", 1_000_000), ("k", 1 << 10), ("m", 1 << 20)];
    let (digits, factor) = factors
        .iter()
        .find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, *factor)))
        .unwrap_or((text, 1));
    let is_whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let value = is_whole.then(|| digits.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(factor));
    value.filter(|value| *value <= max).ok_or_else(|| {
        format!(
            "expected a whole number up to {max}, optionally followed by K (1000), M (1000000), k (1024) or m (1048576)"
        )
    })
}

/// Parses a whole number from 1 to `max`.
fn parse_count(text: &str, max: u64) -> Result<u64, String> {
    match parse_number(text, max)? {
        0 => Err(format!("must lie in 1..={max}")),
        count => Ok(count),
    }
}

/// Length of packets without the options `-len` and `-flowsets`, in bytes.
const LENGTH_DEFAULT_BYTES: u32 = 1500;

impl TesterOptions {
    /// Parses the words of a command line, each option followed by its value.
    ///
    /// # Errors
    /// [`OptionsError`] names the option, and the values that it accepts.
    pub fn parse<W: AsRef<str>>(words: &[W]) -> Result<Self, OptionsError> {
        let mut options = Self::default();
        let (mut flows, mut flows_count) = (None, 1);
        let mut words = words.iter().map(AsRef::as_ref);
        while let Some(name) = words.next() {
            const NAMES: [&str; 9] =
                ["-n", "-d", "-alg", "-flowsets", "-len", "-burst", "-qmin", "-qmax", "-flows"];
            if !NAMES.contains(&name) {
                return Err(OptionsError::Unknown { name: name.to_string() });
            }
            let value = words.next().ok_or(OptionsError::NoValue { name: name.to_string() })?;
            let refused = |why| {
                let (name, value) = (name.to_string(), value.to_string());
                OptionsError::Value { name, value, why }
            };
            let u32_max = u64::from(u32::MAX);
            match name {
                "-n" => options.steps_count = parse_count(value, 1 << 50).map_err(refused)?,
                "-d" => options.debug_level = parse_number(value, u32_max).map_err(refused)? as u32,
                "-alg" => options.algorithm = value.parse().map_err(OptionsError::Algorithm)?,
                "-flowsets" => flows = Some(value.parse().map_err(OptionsError::Flows)?),
                "-len" => {
                    let bytes = parse_count(value, LENGTH_LIMIT_BYTES.into()).map_err(refused)?;
                    options.length_bytes = Some(bytes as u32);
                }
                "-burst" => options.burst = parse_count(value, u32_max).map_err(refused)? as u32,
                "-qmin" => options.qmin = value.parse().map_err(refused)?,
                "-qmax" => options.qmax = value.parse().map_err(refused)?,
                _ => flows_count = parse_count(value, 1 << 24).map_err(refused)?,
            }
        }
        options.flows = match flows {
            Some(flows) => flows,
            None => {
                let length_bytes = options.length_bytes.unwrap_or(LENGTH_DEFAULT_BYTES);
                format!("1:{length_bytes}:{flows_count}").parse().map_err(OptionsError::Flows)?
            }
        };
        let flows_count = options.flows.flows_count();
        let packets = options.qmin_and_qmax_packets().1;
        if packets > PACKETS_LIMIT.into() {
            return Err(OptionsError::Packets { packets, flows_count });
        }
        Ok(options)
    }

    /// Returns the numbers of queued packets between which the generator alternates: `qmin` and
    /// `qmax`.
    pub fn qmin_and_qmax_packets(&self) -> (u64, u64) {
        let flows_count = self.flows.flows_count();
        let qmin = self.qmin.total_packets(flows_count);
        (qmin, self.qmax.total_packets(flows_count).max(qmin + 1))
    }

    /// Returns the maximum number of packets that the generator queues at a time.
    pub fn packets_max(&self) -> u32 {
        self.qmin_and_qmax_packets().1.min(PACKETS_LIMIT.into()) as u32
    }

    /// Returns the configuration of a scheduler for these flows and packets.
    pub fn config(&self) -> Config {
        Config::default().packets_max(self.packets_max()).flows_max(self.flows.flows_count())
    }
}

impl Default for TesterOptions {
    /// Returns options for one flow, the algorithm `rr`, 1 to 20 queued packets, and a million
    /// steps.
    fn default() -> Self {
        Self {
            algorithm: Algorithm::Rr,
            flows: FlowSet::equal(1, LENGTH_DEFAULT_BYTES, 1),
            steps_count: 1_000_000,
            debug_level: 0,
            length_bytes: None,
            burst: 1,
            qmin: QueueThreshold::PerFlow(1),
            qmax: QueueThreshold::PerFlow(20),
        }
    }
}
