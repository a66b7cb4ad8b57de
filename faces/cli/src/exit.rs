//! Exit codes of the lab's errors, in addition to those common to all programs.

pub use handover_program::exit::*;

use handover_harness::{ParticipantError, PlanError};
use handover_store::StoreError;
use std::io::{self, ErrorKind, Write};

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

/// Converts the error of starting a command to a usage error if its program does not exist, or this
/// process may not execute it.
pub fn start_error(error: anyhow::Error) -> anyhow::Error {
    match error.root_cause().downcast_ref::<io::Error>().map(io::Error::kind) {
        Some(ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
            to_usage_error(format!("{error:#}"))
        }
        _ => error,
    }
}

/// Converts an error of a participant process to a usage error if its environment variable is
/// malformed.
pub fn participant_error(error: ParticipantError) -> anyhow::Error {
    match error {
        ParticipantError::NotAnAssignment(_) => to_usage_error(error),
        other => other.into(),
    }
}

/// Converts an error of a plan to a usage error, except if the machine's topology cannot be read.
pub fn plan_error(error: PlanError) -> anyhow::Error {
    match error {
        PlanError::Topology(_) => error.into(),
        other => to_usage_error(other),
    }
}

/// Converts an error of opening a store to a usage error, except if descriptors or space ran out.
pub fn store_error(error: StoreError) -> anyhow::Error {
    match error {
        StoreError::NoDescriptors { .. } | StoreError::Full { .. } => error.into(),
        other => to_usage_error(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

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
