//! What is done with stored runs: `show`, `report`, `runs`, `export`, `import`.

use crate::app::{Db, Export, Import, Report, Runs, Show};
use crate::commands::files;
use crate::console;
use crate::exit::{self, usage};
use handover_record::Document;
use handover_store::{ExportError, ImportError, Store, StoreError, default_path};
use serde_json::json;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

/// The store's path: as named, or the default.
pub fn path(db: &Db) -> anyhow::Result<PathBuf> {
    match &db.db {
        Some(path) => Ok(path.clone()),
        None => default_path().map_err(usage),
    }
}

pub(super) fn existing(db: &Db) -> anyhow::Result<Store> {
    Store::open_existing(path(db)?).map_err(exit::of_store)
}

pub fn show(args: &Show, out: &mut dyn Write) -> anyhow::Result<()> {
    let store = existing(&args.db)?;
    let document = store.load(&args.run).map_err(asked)?;
    let named = store.named(&args.run)?.len();
    if named > 1 {
        console::tell(format_args!(
            "{} is the last of {named} runs named {}; `export`, `report` and `compare` take all of them",
            document.run.id, args.run
        ));
    }
    if args.json {
        return json(&document, out);
    }
    if args.format == "markdown" {
        return Ok(write!(out, "{}", handover_report::markdown(&document, args.all))?);
    }
    let table = handover_report::table(&document, console::width(), console::style(args.all));
    Ok(out.write_all(table.as_bytes())?)
}

/// The page of a run, the others laid over it.
pub fn report(args: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let store = existing(&args.db)?;
    let documents = meant(&store, &args.runs)?;
    let Some((first, others)) = documents.split_first() else { return Ok(()) };
    let page = handover_report::html_beside(first, others);
    let named = args.output.display();
    files::replace(&args.output, &page).map_err(|error| {
        usage(format!("--output {named}: {error}; name a file in a folder that can be written"))
    })?;
    Ok(writeln!(out, "the page is {named}")?)
}

/// The runs that are asked for, each once; a name stands for all runs that have it.
fn meant(store: &Store, asked_for: &[String]) -> anyhow::Result<Vec<Document>> {
    let ids = store.sides(asked_for).map_err(asked)?;
    ids.iter().map(|id| store.load(id)).collect::<Result<_, _>>().map_err(asked)
}

/// One JSON document and nothing else.
pub fn json(document: &Document, out: &mut dyn Write) -> anyhow::Result<()> {
    serde_json::to_writer(&mut *out, document).map_err(std::io::Error::from)?;
    Ok(writeln!(out)?)
}

pub fn runs(args: &Runs, out: &mut dyn Write) -> anyhow::Result<()> {
    let rows = existing(&args.db)?.runs()?;
    if args.json {
        let all: Vec<_> = rows
            .iter()
            .map(|row| {
                json!({
                    "id": row.id, "started_unix_ns": row.started_unix_ns, "profile": row.profile,
                    "host": row.host, "records": row.records_count, "complete": row.complete,
                    "names": row.tags,
                })
            })
            .collect();
        writeln!(out, "{}", json!({"schema": 1, "runs": all}))?;
        return Ok(());
    }
    let width = rows.iter().map(|row| row.profile.len()).max().unwrap_or(0);
    for row in rows {
        let started = jiff::Timestamp::from_nanosecond(i128::from(row.started_unix_ns))
            .map_or_else(
                |_| "unknown".to_string(),
                |it| it.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
            );
        let ended = if row.complete { "" } else { "  (not complete)" };
        let figures = row.records_count;
        let names =
            if row.tags.is_empty() { String::new() } else { format!("  {}", row.tags.join(" ")) };
        writeln!(
            out,
            "{}  {started}  {:<width$}  {figures:>4} {:<7}  {}{names}{ended}",
            row.id,
            row.profile,
            if figures == 1 { "figure" } else { "figures" },
            row.host
        )?;
    }
    Ok(())
}

pub fn export(args: &Export, out: &mut dyn Write) -> anyhow::Result<()> {
    if args.to != "jsonl" {
        return export_to(args, out);
    }
    let store = existing(&args.db)?;
    let mut buffered = std::io::BufWriter::new(&mut *out);
    match store.export(&args.runs, &mut buffered) {
        Ok(_) => Ok(buffered.flush()?),
        Err(ExportError::Store(refused)) => Err(asked(refused)),
        Err(ExportError::Write(refused)) => Err(refused.into()),
        Err(other) => Err(other.into()),
    }
}

/// In the form of somebody else's tool.
fn export_to(args: &Export, out: &mut dyn Write) -> anyhow::Result<()> {
    let format: handover_report::Format =
        args.to.parse().map_err(|refused| usage(format!("--to {}: {refused}", args.to)))?;
    let store = existing(&args.db)?;
    let runs = match &*args.runs {
        [] => store.runs()?.into_iter().map(|row| row.id).collect(),
        named => named.to_vec(),
    };
    let documents = meant(&store, &runs)?;
    Ok(out.write_all(handover_report::export(&documents, format).as_bytes())?)
}

pub fn import(args: &Import, out: &mut dyn Write) -> anyhow::Result<()> {
    let named = args.file.display();
    let mut input: Box<dyn BufRead> = if args.file == Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        let file = File::open(&args.file).map_err(|error| usage(format!("{named}: {error}")))?;
        Box::new(BufReader::new(file))
    };
    let imported =
        Store::import_into(path(&args.db)?, &mut *input).map_err(|refused| match refused {
            ImportError::Store(refused) => exit::of_store(refused).context("nothing was imported"),
            other => usage(format!("{named}: {other}")),
        })?;
    writeln!(
        out,
        "{} runs with {} figures imported, {} were there already",
        imported.runs, imported.records, imported.skipped
    )?;
    Ok(())
}

/// A run that is not there is the command line's fault; a store that fails is the world's.
pub(super) fn asked(refused: StoreError) -> anyhow::Error {
    match refused {
        StoreError::Empty { .. }
        | StoreError::UnknownRun { .. }
        | StoreError::UnknownFigure { .. }
        | StoreError::Ambiguous { .. } => usage(refused),
        other => other.into(),
    }
}
