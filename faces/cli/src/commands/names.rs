//! `handover tag`, `handover delete`, `handover vacuum`: maintenance of the store.

use crate::app::StoreOption;
use crate::commands::stored;
use crate::exit::{self, usage};
use clap::Args;
use handover_program::console::printable;
use handover_store::{Store, StoreError};
use std::io::Write;

/// Arguments of `handover tag`.
#[derive(Debug, Args)]
#[command(
    after_help = "A name stands for all runs that have it; where a command takes one run, for the latest of them."
)]
pub struct Tag {
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
pub struct Delete {
    /// Runs: ids, prefixes of ids, names, or positions from the end (-1 is the last)
    #[arg(value_name = "RUN", allow_negative_numbers = true, required = true)]
    runs: Vec<String>,
    #[command(flatten)]
    db: StoreOption,
}

/// Arguments of `handover vacuum`.
#[derive(Debug, Args)]
pub struct Vacuum {
    #[command(flatten)]
    db: StoreOption,
}

/// Opens an existing store for writing.
fn to_change(db: &StoreOption) -> anyhow::Result<Store> {
    // Opened for reading first, so that no store is created at a path without one.
    drop(stored::open_existing(db)?);
    Store::open(stored::path(db)?).map_err(exit::store_error)
}

pub fn tag(args: &Tag, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut store = to_change(&args.db)?;
    let ids = store.matching_ids(&args.run).map_err(usage_error)?;
    if args.remove {
        let mut had = false;
        for id in &ids {
            had |= store.remove_tag(id, &args.name).map_err(usage_error)?;
        }
        return match had {
            true => Ok(writeln!(out, "{} is removed", printable(&args.name))?),
            false => Err(usage(format!("run {} has no name {:?}", args.run, args.name))),
        };
    }
    for id in &ids {
        store.add_tag(id, &args.name).map_err(usage_error)?;
        writeln!(out, "run {} is {}", printable(id), args.name)?;
    }
    Ok(())
}

pub fn delete(args: &Delete, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut store = to_change(&args.db)?;
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
    for id in ids {
        writeln!(out, "run {} is deleted", printable(&store.delete_run(&id)?))?;
    }
    Ok(())
}

pub fn vacuum(args: &Vacuum, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut store = to_change(&args.db)?;
    let (before, after) = store.vacuum()?;
    Ok(writeln!(out, "{}: {before} bytes, now {after}", store.path().display())?)
}

fn usage_error(refused: StoreError) -> anyhow::Error {
    match refused {
        StoreError::BadTag { .. } | StoreError::TagIsId { .. } => usage(refused),
        other => stored::usage_error(other),
    }
}
