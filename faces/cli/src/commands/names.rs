//! `handover tag`, `handover delete`, `handover vacuum`: maintenance of the store.

use crate::app::StoreOption;
use crate::commands::stored;
use crate::exit::{self, to_usage_error};
use clap::Args;
use handover_program::console::escape_control_characters;
use handover_store::{Store, StoreError};
use std::io::Write;

/// Arguments of `handover tag`.
#[derive(Debug, Args)]
#[command(
    after_help = "A name stands for all runs that have it; where a command takes one run, for the latest of them."
)]
pub struct TagArgs {
    /// Run: id, prefix of an id, name, or position from the end (-1 is the last)
    #[arg(value_name = "RUN", allow_negative_numbers = true)]
    run: String,
    /// Name to add: letters, digits, '-', '_', '.', '/', '+' or '@', the first a letter
    #[arg(value_name = "NAME")]
    name: String,
    /// Remove the name instead of adding it
    #[arg(long)]
    remove: bool,
    #[command(flatten)]
    db: StoreOption,
}

/// Arguments of `handover delete`.
#[derive(Debug, Args)]
#[command(after_help = "A name stands for all runs that have it.")]
pub struct DeleteArgs {
    /// Runs: ids, prefixes of ids, names, or positions from the end (-1 is the last)
    #[arg(value_name = "RUN", allow_negative_numbers = true, required = true)]
    runs: Vec<String>,
    #[command(flatten)]
    db: StoreOption,
}

/// Arguments of `handover vacuum`.
#[derive(Debug, Args)]
pub struct VacuumArgs {
    #[command(flatten)]
    db: StoreOption,
}

/// Opens an existing store for writing.
pub(super) fn open_for_writing(db: &StoreOption) -> anyhow::Result<Store> {
    // Opened for reading first, so that no store is created at a path without one.
    drop(stored::open_existing(db)?);
    Store::open(stored::store_path(db)?).map_err(exit::store_error)
}

pub fn tag(args: &TagArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut store = open_for_writing(&args.db)?;
    let ids = store.matching_ids(&args.run).map_err(usage_error)?;
    if args.remove {
        let mut had = false;
        for id in &ids {
            had |= store.remove_tag(id, &args.name).map_err(usage_error)?;
        }
        return match had {
            true => Ok(writeln!(out, "{} is removed", escape_control_characters(&args.name))?),
            false => Err(to_usage_error(format!(
                "run {run} has no name {name:?}",
                run = args.run,
                name = args.name
            ))),
        };
    }
    change_runs(&ids, &args.name, out, |id| {
        store.add_tag(id, &args.name).map(drop).map_err(usage_error)
    })
}

pub fn delete(args: &DeleteArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut store = open_for_writing(&args.db)?;
    // All runs are resolved before the first is deleted, as deleting shifts the positions from the
    // end.
    let mut ids: Vec<String> = Vec::new();
    for run in &args.runs {
        for id in store.matching_ids(run).map_err(usage_error)? {
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
    }
    change_runs(&ids, "deleted", out, |id| Ok(store.delete_run(id).map(drop)?))
}

/// Calls `change` for each run. Afterwards prints a line for each changed run, which says that it
/// is `now`: a reader that closes the output does not end the changes.
fn change_runs(
    ids: &[String],
    now: &str,
    out: &mut dyn Write,
    mut change: impl FnMut(&str) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut text = String::new();
    let changed = ids.iter().try_for_each(|id| {
        change(id)?;
        text += &format!("run {} is {now}\n", escape_control_characters(id));
        Ok(())
    });
    exit::print_and_join(changed, &text, out)
}

pub fn vacuum(args: &VacuumArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut store = open_for_writing(&args.db)?;
    let (before, after) = store.vacuum()?;
    Ok(writeln!(out, "{}: {before} bytes, now {after}", store.path().display())?)
}

/// Converts an error of the store to a usage error if the user gave an invalid name or an unknown
/// run.
fn usage_error(error: StoreError) -> anyhow::Error {
    match error {
        StoreError::BadTag { .. } | StoreError::TagIsId { .. } => to_usage_error(error),
        other => stored::usage_error(other),
    }
}
