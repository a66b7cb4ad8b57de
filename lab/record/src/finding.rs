//! What on a machine disturbs measurement.

use serde::{Deserialize, Serialize};
use std::fmt;

/// One thing that was looked at: what was found, why it matters to figures, and the command that mends
/// it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What was looked at: `governor`, `steal`.
    pub code: String,
    /// How much it disturbs.
    pub level: Level,
    /// What was found.
    pub found: String,
    /// Why it matters here.
    pub why: String,
    /// A command, or a word for the kernel's command line, that mends it, where something does.
    pub mend: Option<String>,
}

/// How much a finding disturbs, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Figures are wider or slower for it than they need be.
    Disturbs,
    /// Worth knowing when figures of two machines are compared.
    Note,
    /// It cannot be seen from here.
    Unknown,
    /// As it should be.
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
