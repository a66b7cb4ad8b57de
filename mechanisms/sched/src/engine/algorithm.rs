//! Names of the algorithms.

use std::fmt::{self, Display};
use std::str::FromStr;

/// Scheduling algorithm, as selected by name at run time.
///
/// ```
/// use handover_sched::Algorithm;
///
/// assert_eq!("drr".parse(), Ok(Algorithm::Rr));
/// assert_eq!(Algorithm::QfqPlus.to_string(), "qfq+");
/// assert!("fair".parse::<Algorithm>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Algorithm {
    /// First in, first out (`fifo`): [`Fifo`](super::Fifo).
    Fifo,
    /// Deficit round robin (`rr` or `drr`): [`DeficitRoundRobin`](super::DeficitRoundRobin).
    Rr,
    /// Round robin by packets (`rr1`): [`RoundRobin`](super::RoundRobin).
    Rr1,
    /// Strict priority (`prio`): [`Priority`](super::Priority).
    Prio,
    /// Worst-case fair weighted fair queueing (`wf2q+` or `wf2qp`): [`Wf2qPlus`](super::Wf2qPlus).
    Wf2qPlus,
    /// Quick fair queueing (`qfq`): [`Qfq`](super::Qfq).
    Qfq,
    /// Quick fair queueing of aggregates (`qfq+` or `qfqp`): [`QfqPlus`](super::QfqPlus).
    QfqPlus,
    /// Pacing of each flow at its own rate (`pacing`): [`Pacing`](super::Pacing).
    Pacing,
}

/// Error of parsing the name of an unknown algorithm.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no algorithm is called {name:?}: there are fifo, rr (or drr), rr1, prio, wf2q+ (or wf2qp), qfq, qfq+ (or qfqp), pacing"
)]
pub struct UnknownAlgorithm {
    /// Name that was parsed.
    pub name: String,
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: &[Algorithm] = &[
        Self::Fifo,
        Self::Rr,
        Self::Rr1,
        Self::Prio,
        Self::Wf2qPlus,
        Self::Qfq,
        Self::QfqPlus,
        Self::Pacing,
    ];

    /// Names and aliases of all algorithms.
    pub const NAMES: &[(&str, Algorithm)] = &[
        ("fifo", Self::Fifo),
        ("rr", Self::Rr),
        ("drr", Self::Rr),
        ("rr1", Self::Rr1),
        ("prio", Self::Prio),
        ("wf2q+", Self::Wf2qPlus),
        ("wf2qp", Self::Wf2qPlus),
        ("qfq", Self::Qfq),
        ("qfq+", Self::QfqPlus),
        ("qfqp", Self::QfqPlus),
        ("pacing", Self::Pacing),
    ];

    /// Returns the primary name of the algorithm.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Rr => "rr",
            Self::Rr1 => "rr1",
            Self::Prio => "prio",
            Self::Wf2qPlus => "wf2q+",
            Self::Qfq => "qfq",
            Self::QfqPlus => "qfq+",
            Self::Pacing => "pacing",
        }
    }

    /// Returns `true` if the flows' shares follow their weights; `false` for `fifo`, `rr1`, `prio`
    /// and `pacing`.
    pub fn has_weights(self) -> bool {
        matches!(self, Self::Rr | Self::Wf2qPlus | Self::Qfq | Self::QfqPlus)
    }
}

impl Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|&(_, it)| it).ok_or_else(|| UnknownAlgorithm { name: name.to_string() })
    }
}
