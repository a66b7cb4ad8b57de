use std::fmt;

/// A location that breaks a rule of the workspace, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// File, relative to the workspace root.
    pub path: String,
    /// Line in the file, counted from 1.
    pub line: usize,
    /// The rule's name, as in [`rules::RULES`](crate::rules::RULES).
    pub rule: &'static str,
    /// Description of the violation.
    pub what: String,
    /// Replacement or remedy.
    pub instead: String,
}

impl Violation {
    /// Creates a violation of `rule` at `path:line`.
    pub fn new(
        rule: &'static str,
        path: impl Into<String>,
        line: usize,
        what: impl Into<String>,
        instead: impl Into<String>,
    ) -> Self {
        Self { path: path.into(), line, rule, what: what.into(), instead: instead.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, rule, what, instead } = self;
        write!(f, "{path}:{line}: [{rule}] {what}; instead: {instead}")
    }
}
