//! Exit codes, decided in one place: 0 success, 1 a failure of the system or of a check, 2 an error
//! in the command line or in a file named on it, 130 after SIGINT.

use crate::console;
use std::fmt::Display;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// Error in the command line, or in a file named on it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// Converts any error to a [`UsageError`], for which the process exits with code 2.
pub fn to_usage_error(error: impl Display) -> anyhow::Error {
    anyhow::Error::new(UsageError(error.to_string()))
}

/// Error of a measurement that was interrupted by SIGINT, SIGTERM or SIGHUP.
#[derive(Debug, thiserror::Error)]
#[error("interrupted; the completed measurements are kept")]
pub struct Interrupted;

/// Returns an error once `flag`, which is that of
/// [`interrupt_flag`](crate::console::interrupt_flag), is set.
///
/// # Errors
/// [`Interrupted`], if the flag is set.
#[inline]
pub fn check_interrupt(flag: &AtomicBool) -> Result<(), Interrupted> {
    // Relaxed: the flag publishes no other data.
    if flag.load(Ordering::Relaxed) { Err(Interrupted) } else { Ok(()) }
}

/// Error of a measurement that was interrupted, and whose results are not stored.
#[derive(Debug, thiserror::Error)]
#[error("interrupted; the completed measurements are shown, but not stored")]
pub struct InterruptedUnstored;

/// Error of a measurement that was interrupted before its first result.
#[derive(Debug, thiserror::Error)]
#[error("interrupted; no measurement was completed")]
pub struct InterruptedBeforeResults;

/// Returns the error of an interrupted program, by what it has done with its results.
pub fn interrupt_error(are_shown: bool, are_stored: bool) -> anyhow::Error {
    match (are_shown, are_stored) {
        (_, true) => Interrupted.into(),
        (true, false) => InterruptedUnstored.into(),
        (false, false) => InterruptedBeforeResults.into(),
    }
}

/// Returns `true` for the error of an interrupted program.
pub fn is_interrupt(error: &anyhow::Error) -> bool {
    error.is::<Interrupted>()
        || error.is::<InterruptedUnstored>()
        || error.is::<InterruptedBeforeResults>()
}

/// Failure of a child program. This process exits with the same code, without an error message.
#[derive(Debug, thiserror::Error)]
#[error("the program exited with code {0}")]
pub struct ChildExit(pub u8);

/// Converts the result of a command to an exit code and the error to print, if any.
pub fn exit_code(outcome: anyhow::Result<()>) -> (ExitCode, Option<anyhow::Error>) {
    let Err(error) = outcome else {
        return (ExitCode::SUCCESS, None);
    };
    if is_output_closed(&error) {
        // The reader of the output has closed it, which is not an error.
        return (ExitCode::SUCCESS, None);
    }
    if let Some(ChildExit(code)) = error.downcast_ref() {
        return (ExitCode::from(*code), None);
    }
    if is_interrupt(&error) {
        return (ExitCode::from(130), Some(error));
    }
    let code = if error.is::<UsageError>() { 2 } else { 1 };
    (ExitCode::from(code), Some(error))
}

/// Formats an error with its causes, the outermost first. A cause whose text its error already
/// contains is omitted.
pub fn format_chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(if text.is_empty() { "" } else { ": " });
            text.push_str(&cause);
        }
    }
    text
}

/// Returns `true` if standard output is a pipe without a reader, and this is the cause of the
/// error.
pub fn is_output_closed(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|cause| cause.downcast_ref()).any(console::is_output_closed)
}

#[cfg(test)]
mod tests {
    use super::{exit_code, format_chain};
    use crate::console::to_output_error;
    use anyhow::Context;
    use std::io;
    use std::process::ExitCode;

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
    fn only_a_closed_standard_output_is_a_success() {
        let closed = || io::Error::from(io::ErrorKind::BrokenPipe);
        let of_output = anyhow::Error::new(to_output_error(closed())).context("print the table");
        assert_eq!(exit_code(Err(of_output)).0, ExitCode::SUCCESS);
        let of_a_child = anyhow::Error::new(closed()).context("send the addresses to rank 2");
        let (code, error) = exit_code(Err(of_a_child));
        assert!(code == ExitCode::FAILURE && error.is_some());
    }

    #[test]
    fn cause_that_an_error_repeats_is_shown_once() {
        let error = || Repeats(io::Error::other("no space left"));
        assert_eq!(format_chain(&error().into()), "no.db: no space left");
        let result: anyhow::Result<()> = Err(error()).context("not all could be stored");
        assert_eq!(
            format_chain(&result.expect_err("refused")),
            "not all could be stored: no.db: no space left"
        );
    }
}
