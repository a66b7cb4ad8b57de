use std::fmt;

/// A place where a rule of the house is broken, and the way out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// The file, relative to the workspace root.
    pub path: String,
    /// The line in that file, counted from 1.
    pub line: usize,
    /// The rule's name, as in [`rules::RULES`](crate::rules::RULES).
    pub rule: &'static str,
    /// What is wrong there.
    pub what: String,
    /// What to do instead.
    pub instead: String,
}

impl Violation {
    /// A violation of `rule` at `path:line`.
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
