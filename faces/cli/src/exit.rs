//! Exit codes, decided in one place: 0 fine, 1 the world or a check failed, 2 the command line or a
//! file named on it is wrong, 130 after SIGINT.

use handover_harness::{PartyError, PlanError};
use handover_store::StoreError;
use std::fmt;
use std::process::ExitCode;

/// The command line, or a file named on it, is wrong.
#[derive(Debug)]
pub struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Turns any refusal into one of the command line.
pub fn usage(refused: impl fmt::Display) -> anyhow::Error {
    anyhow::Error::new(Usage(refused.to_string()))
}

/// A party that could not be played: a variable set by hand is as wrong as an argument.
pub fn of_party(refused: PartyError) -> anyhow::Error {
    match refused {
        PartyError::NotAnAssignment(_) => usage(refused),
        other => other.into(),
    }
}

/// A plan that was refused: the command line's fault, unless the machine could not be read.
pub fn of_plan(refused: PlanError) -> anyhow::Error {
    match refused {
        PlanError::Topology(_) => refused.into(),
        other => usage(other),
    }
}

/// A store that was refused before anything was done with it: a file named wrongly, unless the system
/// has nothing left to open it with.
pub fn of_store(refused: StoreError) -> anyhow::Error {
    match refused {
        StoreError::NoDescriptors { .. } | StoreError::Full { .. } => refused.into(),
        other => usage(other),
    }
}

/// SIGINT or SIGTERM ended the work.
#[derive(Debug)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted; what was measured is kept")
    }
}

impl std::error::Error for Interrupted {}

/// The same, before there was anything to keep.
#[derive(Debug)]
pub struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted; nothing was measured to its end")
    }
}

impl std::error::Error for Stopped {}

/// A program that was run has ended so: its exit code is ours, and there is nothing to add.
#[derive(Debug)]
pub struct Passed(pub u8);

impl fmt::Display for Passed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the program has ended with {}", self.0)
    }
}

impl std::error::Error for Passed {}

/// The exit code and, if there is something to say about it, the error to show.
pub fn code(outcome: anyhow::Result<()>) -> (ExitCode, Option<anyhow::Error>) {
    let Err(error) = outcome else {
        return (ExitCode::SUCCESS, None);
    };
    if is_closed_pipe(&error) {
        // Whoever read our output has seen enough.
        return (ExitCode::SUCCESS, None);
    }
    if let Some(Passed(code)) = error.downcast_ref() {
        return (ExitCode::from(*code), None);
    }
    if error.is::<Interrupted>() || error.is::<Stopped>() {
        return (ExitCode::from(130), Some(error));
    }
    let code = if error.is::<Usage>() { 2 } else { 1 };
    (ExitCode::from(code), Some(error))
}

/// An error with its causes, the outermost first. A cause whose text is there already is left out: many
/// errors repeat theirs.
pub fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(if text.is_empty() { "" } else { ": " });
            text.push_str(&cause);
        }
    }
    text
}

/// Whether the output went to a pipe that nobody reads any more.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|it| it.kind() == std::io::ErrorKind::BrokenPipe)
    })
}

#[cfg(test)]
mod tests {
    use super::chain;
    use anyhow::Context;
    use std::io;

    #[derive(Debug)]
    struct Repeats(io::Error);

    impl std::fmt::Display for Repeats {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "no.db: {}", self.0)
        }
    }

    impl std::error::Error for Repeats {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn cause_that_an_error_repeats_is_shown_once() {
        let refused = || Repeats(io::Error::other("no space left"));
        assert_eq!(chain(&refused().into()), "no.db: no space left");
        let told: anyhow::Result<()> = Err(refused()).context("not all could be stored");
        assert_eq!(
            chain(&told.expect_err("refused")),
            "not all could be stored: no.db: no space left"
        );
    }
}
