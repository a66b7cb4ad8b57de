//! Commands on stored runs: `show`, `report`, `runs`, `export`, `import`.

use crate::app::{ExportArgs, ImportArgs, ReportArgs, RunsArgs, ShowArgs, StoreOption};
use crate::commands::align_columns;
use crate::commands::pool::pool_runs;
use crate::exit::{self, to_usage_error};
use anyhow::Context;
use handover_program::console::{self, escape_control_characters};
use handover_program::files::FileReplacement;
use handover_record::{Document, command_without_nth};
use handover_report::NamedRun;
use handover_store::{
    ExportError, ImportError, RunRow, Store, StoreError, db_option, default_path,
};
use serde_json::json;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

/// Returns the store's path: the requested one, or the default.
pub fn store_path(db: &StoreOption) -> anyhow::Result<PathBuf> {
    match &db.db {
        Some(path) => Ok(path.clone()),
        None => default_path().map_err(to_usage_error),
    }
}

/// Returns the path of a store that may be created. The folder of a named file must exist.
pub fn writable_store_path(db: &StoreOption) -> anyhow::Result<PathBuf> {
    let path = store_path(db)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder {
        Some(folder) if db.db.is_some() && !folder.exists() => Err(to_usage_error(format!(
            "{}: cannot be written: there is no folder {}; create it, or name another file with --db FILE",
            path.display(),
            folder.display()
        ))),
        _ => Ok(path),
    }
}

/// Opens the store, which must exist.
pub(super) fn open_existing(db: &StoreOption) -> anyhow::Result<Store> {
    Store::open_existing(store_path(db)?).map_err(exit::store_error)
}

pub fn show(args: &ShowArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let store = open_existing(&args.db)?;
    let mut document = store.load_run(&args.run).map_err(usage_error)?;
    let named = store.ids_with_tag(&args.run)?.len();
    if named > 1 {
        console::print_error(format_args!(
            "{} is the last of {named} runs named {}; `export`, `report` and `compare` take all of them",
            document.run.id, args.run
        ));
    }
    if args.json {
        return write_json(&document, out);
    }
    prepare_for_display(&store, &mut document)?;
    if args.format == "markdown" {
        return Ok(write!(out, "{}", handover_report::render_markdown(&document, args.all))?);
    }
    let table = handover_report::render_table(
        &document,
        console::output_width(),
        console::output_style(args.all),
    );
    Ok(out.write_all(table.as_bytes())?)
}

/// Writes the report page of a run, compared with other runs. Several runs with the same name are
/// shown as one.
pub fn report(args: &ReportArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let named = args.output.display();
    let mut file = FileReplacement::create(&args.output).map_err(|error| {
        to_usage_error(format!("--output {named}: cannot write the file: {error}"))
    })?;
    let page = render_report(&open_existing(&args.db)?, &args.runs)?;
    let written = file.write_all(page.as_bytes()).and_then(|()| file.commit());
    written.with_context(|| format!("cannot write the report page {named}"))?;
    Ok(writeln!(out, "the report page is {named}")?)
}

/// Renders the report page of the first selected run, compared with the other ones.
pub(super) fn render_report(store: &Store, selectors: &[String]) -> anyhow::Result<String> {
    let mut runs = named_runs(store, selectors)?;
    let Some((first, others)) = runs.split_first_mut() else { return Ok(String::new()) };
    prepare_for_display(store, &mut first.document)?;
    Ok(handover_report::render_html_with_other_runs(first, others))
}

/// Returns the selected runs, without duplicates. Runs selected by a name are combined into one,
/// which has this name; they must be of one host.
fn named_runs(store: &Store, selectors: &[String]) -> anyhow::Result<Vec<NamedRun>> {
    let mut seen = BTreeSet::new();
    let mut runs = Vec::new();
    for selector in selectors {
        let ids = store.matching_ids(selector).map_err(usage_error)?;
        let ids: Vec<String> = ids.into_iter().filter(|id| seen.insert(id.clone())).collect();
        let documents = load_runs(store, &ids)?;
        if documents.iter().any(|it| it.host.name != documents[0].host.name) {
            return Err(to_usage_error(format!(
                "{selector} names runs of several hosts; name one run by its id, or compare the hosts with \
                 `handover fleet {selector}{}`",
                db_option(store.path())
            )));
        }
        let Some(pooled) = pool_runs(&documents) else { continue };
        let mut run = NamedRun::from(pooled);
        if !store.ids_with_tag(selector)?.is_empty() {
            run.name = match ids.len() {
                1 => format!("{selector} ({})", run.name),
                count => format!("{selector} ({count} runs)"),
            };
        }
        runs.push(run);
    }
    Ok(runs)
}

/// Loads the selected runs, without duplicates. A name selects all runs that have it.
pub(super) fn load_selected(store: &Store, runs: &[String]) -> anyhow::Result<Vec<Document>> {
    load_runs(store, &store.all_matching_ids(runs).map_err(usage_error)?)
}

/// Loads the runs with these ids.
pub(super) fn load_runs(store: &Store, ids: &[String]) -> anyhow::Result<Vec<Document>> {
    ids.iter().map(|id| store.load_run(id)).collect::<Result<_, _>>().map_err(usage_error)
}

/// Maximum number of earlier runs with which a printed run is compared.
const EARLIER_RUNS_MAX: usize = 20;

/// Prepares a run for display. Adds warnings to figures whose interval excludes earlier runs on the
/// same machine, and removes the ratios of smoke runs. Damaged earlier runs are left out.
pub(super) fn prepare_for_display(store: &Store, document: &mut Document) -> anyhow::Result<()> {
    handover_report::remove_smoke_ratios(document);
    let rows = store.runs()?;
    let is_earlier = |it: &&RunRow| {
        it.host == document.host.name
            && it.started_unix_ns < document.run.started_unix_ns
            && it.profile != "smoke"
            && it.damage.is_none()
    };
    let mut earlier: Vec<&RunRow> = rows.iter().filter(is_earlier).collect();
    earlier.sort_by_key(|it| Reverse(it.started_unix_ns));
    let mut documents = Vec::new();
    for row in earlier.iter().take(EARLIER_RUNS_MAX) {
        match store.load_run(&row.id) {
            Ok(earlier) => documents.push(earlier),
            Err(StoreError::DamagedRun { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    handover_report::warn_of_differing_runs(document, &documents);
    Ok(())
}

pub fn write_json(document: &Document, out: &mut dyn Write) -> anyhow::Result<()> {
    serde_json::to_writer(&mut *out, document).map_err(std::io::Error::from)?;
    Ok(writeln!(out)?)
}

pub fn runs(args: &RunsArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let store = open_existing(&args.db)?;
    let rows = store.runs()?;
    if args.json {
        let all: Vec<_> = rows
            .iter()
            .map(|row| {
                json!({
                    "id": row.id, "started_unix_ns": row.started_unix_ns, "profile": row.profile,
                    "host": row.host, "command": row.command, "records": row.records_count, "complete": row.complete,
                    "names": row.tags, "damage": row.damage,
                })
            })
            .collect();
        writeln!(out, "{}", json!({"schema": 1, "runs": all}))?;
        return Ok(());
    }
    let table = console::cut_tables(&runs_table(&rows), console::cut_width());
    out.write_all(table.as_bytes())?;
    if rows.iter().any(|row| row.damage.is_some()) {
        let db = db_option(store.path());
        writeln!(out, "`handover delete RUN{db}` removes a damaged run")?;
    }
    Ok(())
}

/// Formats a table with a row for each run, below the columns' names.
fn runs_table(rows: &[RunRow]) -> String {
    let mut cells =
        vec![["run", "began", "profile", "figures", "host", "names", "command"].map(String::from)];
    cells.extend(rows.iter().map(run_cells));
    align_columns(&cells, &[0, 1, 2, 3, 4, 5])
}

/// Returns the cells of a run's row. They are id, time of its start, profile, number of figures,
/// host, names and command. Those of a damaged run have the damage instead of the command.
pub(super) fn run_cells(row: &RunRow) -> [String; 7] {
    let began = jiff::Timestamp::from_nanosecond(i128::from(row.started_unix_ns))
        .map_or_else(|_| "unknown".into(), |it| it.strftime("%Y-%m-%d %H:%M:%SZ").to_string());
    let unfinished = if row.complete { "" } else { " (not complete)" };
    // A store of an earlier version may have names with terminal control sequences.
    let last = match &row.damage {
        Some(damage) => format!("damaged: {damage}"),
        None => command_line(row),
    };
    let [id, profile, host, names, command] =
        [&row.id, &row.profile, &row.host, &row.tags.join(" "), &last]
            .map(|text| escape_control_characters(text));
    let figures = format!("{}{unfinished}", row.records_count);
    [id, began, profile, figures, host, names, command]
}

/// Returns the command line of a run as the user wrote it, without the folder of the program.
fn command_line(row: &RunRow) -> String {
    let command = command_without_nth(&row.command);
    let (program, words) = command.split_once(' ').unwrap_or((&command, ""));
    let program = program.rsplit('/').next().unwrap_or_default();
    format!("{program} {words}").trim_end().to_string()
}

pub fn export(args: &ExportArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    if args.to != "jsonl" {
        return export_to(args, out);
    }
    let store = open_existing(&args.db)?;
    let mut buffered = std::io::BufWriter::new(&mut *out);
    match store.export(&args.runs, &mut buffered) {
        Ok(_) => Ok(buffered.flush()?),
        Err(ExportError::Store(error)) => Err(usage_error(error)),
        Err(ExportError::Write(error)) => Err(error.into()),
        Err(other) => Err(other.into()),
    }
}

/// Exports runs in the format of another tool.
fn export_to(args: &ExportArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let format: handover_report::Format = args
        .to
        .parse()
        .map_err(|error| to_usage_error(format!("--to {format}: {error}", format = args.to)))?;
    let store = open_existing(&args.db)?;
    let runs = match &*args.runs {
        [] => store.runs()?.into_iter().map(|row| row.id).collect(),
        named => named.to_vec(),
    };
    let documents = load_selected(&store, &runs)?;
    Ok(out.write_all(handover_report::export(&documents, format).as_bytes())?)
}

pub fn import(args: &ImportArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let named = args.file.display();
    let mut input: Box<dyn BufRead> = if args.file == Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        let file =
            File::open(&args.file).map_err(|error| to_usage_error(format!("{named}: {error}")))?;
        Box::new(BufReader::new(file))
    };
    let failed = |error| match error {
        ImportError::Store(error) => exit::store_error(error).context("nothing was imported"),
        other => to_usage_error(format!("{named}: {other}")),
    };
    let path = match writable_store_path(&args.db) {
        Ok(path) => path,
        Err(error) => {
            // An error in the file is reported first, as for a store that can be created.
            Store::open_in_memory()?.import(&mut *input).map_err(failed)?;
            return Err(error);
        }
    };
    let imported = Store::import_into(path, &mut *input).map_err(failed)?;
    writeln!(
        out,
        "{} runs with {} figures imported, {} already in the store",
        imported.runs, imported.records, imported.skipped
    )?;
    Ok(())
}

/// Converts an error of the store to a usage error if the selected run or figure is unknown or
/// ambiguous. A failure of the store stays as it is.
pub(super) fn usage_error(error: StoreError) -> anyhow::Error {
    match error {
        StoreError::Empty { .. }
        | StoreError::UnknownRun { .. }
        | StoreError::UnknownFigure { .. }
        | StoreError::Ambiguous { .. } => to_usage_error(error),
        other => other.into(),
    }
}
