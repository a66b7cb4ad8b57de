//! Exit codes, decided in one place: 0 success, 1 a failure of the system or of a check, 2 an error
//! in the command line or in a file named on it, 130 after SIGINT.

use crate::console;
use std::fmt::Display;
use std::io::Write;
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

/// Joins the result of a measurement with that of showing it: neither error hides the other. If
/// both failed, the exit code is that of showing. Output that its reader has closed is no error.
pub fn join_results(measured: anyhow::Result<()>, shown: anyhow::Result<()>) -> anyhow::Result<()> {
    match (measured, shown) {
        (measured, Err(shown)) if is_output_closed(&shown) => measured,
        (Err(measured), Err(shown)) => {
            Err(shown.context(format!("{measured:#}; the result could not be shown")))
        }
        (measured, shown) => measured.and(shown),
    }
}

/// Prints the text of a result, and joins the results of both as [`join_results`] does.
pub fn print_and_join(
    measured: anyhow::Result<()>,
    text: &str,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let shown = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    join_results(measured, shown.map_err(anyhow::Error::from))
}

#[cfg(test)]
mod tests {
    use super::{UsageError, exit_code, format_chain, join_results, to_usage_error};
    use crate::console::to_output_error;
    use anyhow::{Context, anyhow};
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

    #[test]
    fn neither_the_failed_nodes_nor_the_error_of_the_output_are_hidden() {
        let failed = || Err(anyhow!("1 of 3 nodes failed: b: lost"));
        let joined = |measured, shown| {
            join_results(measured, shown)
                .map_err(|error| (format!("{error:#}"), error.is::<UsageError>()))
        };
        assert_eq!(joined(Ok(()), Ok(())), Ok(()));
        assert_eq!(joined(failed(), Ok(())), Err(("1 of 3 nodes failed: b: lost".into(), false)));
        let refused = || Err(to_usage_error("no space left"));
        assert_eq!(joined(Ok(()), refused()), Err(("no space left".into(), true)));
        let both = "1 of 3 nodes failed: b: lost; the result could not be shown: no space left";
        assert_eq!(joined(failed(), refused()), Err((both.into(), true)));
    }
}
