use std::fmt;

/// Location that violates a rule of the workspace, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// Path of the file, relative to the workspace root.
    pub path: String,
    /// Line in the file, counted from 1.
    pub line: usize,
    /// Name of the rule, as in [`rules::RULES`](crate::rules::RULES).
    pub rule: &'static str,
    /// Text that says what violates the rule.
    pub what: String,
    /// Text that says how to remedy it, for example with which replacement.
    pub remedy: String,
}

impl Violation {
    /// Creates a violation of `rule` at `path:line`.
    pub fn new(
        rule: &'static str,
        path: impl Into<String>,
        line: usize,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { path: path.into(), line, rule, what: what.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, rule, what: problem, remedy } = self;
        write!(f, "{path}:{line}: [{rule}] {problem}; instead: {remedy}")
    }
}
