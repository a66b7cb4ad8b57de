use std::fmt;

/// Violation of a rule at a place in the workspace, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// Path of the file, relative to the workspace root.
    pub path: String,
    /// Line in the file, counted from 1.
    pub line: usize,
    /// Name of the rule, as in [`rules::RULES`](crate::rules::RULES).
    pub rule: &'static str,
    /// Description of the violation.
    pub problem: String,
    /// Description of the remedy, such as the replacement to use.
    pub remedy: String,
}

impl Violation {
    /// Creates a violation of `rule` at `path:line`.
    pub fn new(
        rule: &'static str,
        path: impl Into<String>,
        line: usize,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { path: path.into(), line, rule, problem: problem.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, rule, problem, remedy } = self;
        write!(f, "{path}:{line}: [{rule}] {problem}; instead: {remedy}")
    }
}
