//! Findings about what disturbs measurement on a machine.

use serde::{Deserialize, Serialize};
use std::fmt;

/// One examined fact: the observation, its effect on figures, and the command that repairs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The examined fact: `governor`, `steal`.
    pub code: String,
    /// Severity.
    pub level: Level,
    /// The observation.
    pub found: String,
    /// Its effect on figures.
    pub why: String,
    /// A command or a kernel command line word that repairs it, if there is one.
    pub mend: Option<String>,
}

/// Severity of a finding, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Makes intervals wider or figures slower than necessary.
    Disturbs,
    /// Matters when figures of two machines are compared.
    Note,
    /// Cannot be determined from here.
    Unknown,
    /// No problem.
    Fine,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Level::Disturbs => "disturbs",
            Level::Note => "note",
            Level::Unknown => "unknown",
            Level::Fine => "fine",
        })
    }
}
