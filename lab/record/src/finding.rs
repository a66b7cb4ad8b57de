//! Findings about what disturbs measurement on a machine.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Result of one check of the machine: observation, effect on figures, and repair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Name of the checked fact: `governor`, `steal`.
    pub code: String,
    /// Severity of the finding.
    pub level: FindingLevel,
    /// Observation: the state of the checked fact.
    pub found: String,
    /// Effect of the observation on figures.
    pub why: String,
    /// Fix: a shell command or a kernel command line parameter; `None` if there is none. Its JSON
    /// key is `mend`.
    #[serde(rename = "mend")]
    pub fix: Option<String>,
}

/// Severity of a finding, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingLevel {
    /// The finding makes intervals wider or figures slower than necessary.
    Disturbs,
    /// The finding matters only when figures of different machines are compared.
    Note,
    /// The state cannot be determined on this machine.
    Unknown,
    /// The checked fact causes no problem.
    Fine,
}

impl fmt::Display for FindingLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            FindingLevel::Disturbs => "disturbs",
            FindingLevel::Note => "note",
            FindingLevel::Unknown => "unknown",
            FindingLevel::Fine => "fine",
        })
    }
}
