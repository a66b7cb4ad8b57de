//! `handover run`: measures benchmarks, and stores and shows the results.

use crate::app::{ResultOptions, RunArgs, RunOptions, StoreOption};
use crate::commands::pool::pool_runs;
use crate::commands::{doctor, stored};
use crate::exit::{self, Interrupted, InterruptedBeforeResults, to_usage_error};
use crate::live::{self, Live};
use anyhow::Context;
use handover_harness::{DATE_OUT_OF_RANGE, Fault, Lab, Profile, RunLog, RunObserver, unix_ns};
use handover_program::child::{self, EndedChild};
use handover_program::{console, files};
use handover_record::{Document, Host, Record, Run};
use handover_store::{RunRow, Store, StoreError, db_option};
use rustix::fs::OFlags;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

pub fn run(args: &RunArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    // Every error of the command line is detected before anything is measured.
    let RunOptions { plan, nth, plain, results, node_db, .. } = &args.options;
    let lab =
        Lab::new(handover_suite::SUITES, &args.patterns, plan.plan()).map_err(exit::plan_error)?;
    if let Some(db) = node_db {
        // The rank that started this process stores and shows the records.
        let display = ProgressDisplay { is_quiet: true, is_plain: true, swept_argument: None };
        let db = StoreOption { db: Some(db.clone()) };
        return measure(&lab, &plan.profile.to_string(), &db, display, None)?.into_result(Ok(()));
    }
    let page = report_path(results)?;
    if nth.is_none() {
        check_name(results)?;
        if results.repeat > 1 {
            return measure_repeatedly(results, page.as_deref(), out);
        }
    }
    let display =
        ProgressDisplay { is_quiet: results.json, is_plain: *plain, swept_argument: None };
    let measured = measure(
        &lab,
        &plan.profile.to_string(),
        &results.db,
        display,
        results.name.name.as_deref(),
    )?;
    if nth.is_some() {
        // The process that started this one shows the table and the page of all runs.
        if measured.store.is_some() {
            console::print_error(format_args!("run {} is stored", measured.document.run.id));
        }
        return measured.into_result(Ok(()));
    }
    let store = measured.store.as_deref();
    let shown = show(
        &measured.document,
        store,
        results,
        page.as_deref(),
        handover_suite::peers_not_built(),
        out,
    );
    measured.into_result(shown)
}

/// Checks that a new run can get its name. Prints a warning if stored runs already have it.
pub(super) fn check_name(options: &ResultOptions) -> anyhow::Result<()> {
    let Some(name) = &options.name.name else { return Ok(()) };
    let store =
        Store::open(stored::writable_store_path(&options.db)?).map_err(exit::store_error)?;
    store.check_new_tag(name).map_err(exit::store_error)?;
    let have = match store.ids_with_tag(name)?.len() {
        0 => return Ok(()),
        1 => format!("1 run already has the name {name}"),
        count => format!("{count} runs already have the name {name}"),
    };
    console::print_error(format_args!(
        "{have}, and `compare` will use all of them; to start anew, run `handover delete {name}{}` first",
        db_option(store.path())
    ));
    Ok(())
}

/// Measures `--repeat` runs in separate processes, and shows them combined into one.
fn measure_repeatedly(
    options: &ResultOptions,
    page: Option<&Path>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let began_unix_ns = unix_ns(SystemTime::now()).context(DATE_OUT_OF_RANGE)?;
    let mut id_suffixes = Vec::new();
    let ended = run_processes(options, &mut id_suffixes);
    let is_own = |run: &RunRow| {
        run.started_unix_ns >= began_unix_ns
            && id_suffixes.iter().any(|suffix| run.id.ends_with(suffix))
    };
    exit::join_results(ended, show_repeated(options, is_own, page, out))
}

/// Shows the runs for which `is_own` returns `true`, pooled.
fn show_repeated(
    options: &ResultOptions,
    is_own: impl Fn(&RunRow) -> bool,
    page: Option<&Path>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let store =
        Store::open_existing(stored::store_path(&options.db)?).map_err(exit::store_error)?;
    let own = store.runs()?.into_iter().filter(is_own);
    let runs: Vec<Document> = own.map(|run| store.load_run(&run.id)).collect::<Result<_, _>>()?;
    let note = handover_suite::peers_not_built();
    pool_runs(&runs)
        .map_or(Ok(()), |pooled| show(&pooled, Some(store.path()), options, page, note, out))
}

/// Runs this program `--repeat` times, each time with another `--nth`. Adds the suffixes of the ids
/// of their runs to `id_suffixes`. Returns an error if a process failed.
fn run_processes(options: &ResultOptions, id_suffixes: &mut Vec<String>) -> anyhow::Result<()> {
    let interrupted = console::interrupt_flag().context("cannot install the signal handlers")?;
    let binary = std::env::current_exe().context("cannot find the path of this program")?;
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    // `--nth` goes right after the subcommand, if there is one: all other words may be after a
    // `--`.
    let behind = usize::from(words.first().is_some_and(|word| word == "run"));
    let mut faulty = 0;
    for nth in 1..=options.repeat {
        console::print_error(format_args!("process {nth} of {}", options.repeat));
        let mut command = Command::new(&binary);
        command.args(&words[..behind]).arg(format!("--nth={nth}")).args(&words[behind..]);
        let EndedChild { id, status } = child::run(&mut command, &interrupted)?;
        id_suffixes.push(id_suffix(id));
        // Relaxed: the flag publishes no other data.
        if interrupted.load(Ordering::Relaxed) || status.code() == Some(130) {
            return Err(Interrupted.into());
        }
        match status.code() {
            Some(0) => {}
            // A benchmark could not be measured, or a result not stored: the others are kept, and
            // the remaining processes still run.
            Some(1) => faulty += 1,
            _ => anyhow::bail!(
                "process {nth} of {count} failed with {status}",
                count = options.repeat
            ),
        }
    }
    match faulty {
        0 => Ok(()),
        _ => anyhow::bail!("{faulty} of {} processes failed: see above", options.repeat),
    }
}

/// Measured run, and the errors that occurred.
pub(crate) struct MeasuredRun {
    pub document: Document,
    /// Path of the store; `None` if the run was not stored.
    pub store: Option<PathBuf>,
    /// Error of the store, if some results could not be stored.
    store_error: Option<StoreError>,
    pub is_interrupted: bool,
    /// Number of benchmarks that could not be measured.
    faults_count: usize,
}

/// Way to display the progress of a run: as a live view, as lines, or not at all.
#[derive(Clone, Copy, Default)]
pub(crate) struct ProgressDisplay<'a> {
    /// `true` to print nothing if there is no live view.
    pub is_quiet: bool,
    /// `true` to print lines instead of a live view.
    pub is_plain: bool,
    /// Name of the argument that a sweep varies; `None` in other runs.
    pub swept_argument: Option<&'a str>,
}

/// Measures the benchmarks of `lab`, and stores results as they become available. `name` becomes
/// the run's name at its start. Returns an error and deletes the run if it was interrupted before
/// its first figure.
pub(crate) fn measure(
    lab: &Lab,
    profile: &str,
    db: &StoreOption,
    display: ProgressDisplay<'_>,
    name: Option<&str>,
) -> anyhow::Result<MeasuredRun> {
    let store = Store::open(stored::writable_store_path(db)?).map_err(exit::store_error)?;
    let is_live = !display.is_plain && console::should_show_live_view();
    let interrupted = match is_live {
        true => console::interrupt_flag_with_cleanup(live::restore_terminal),
        // Without a live view there is no terminal to restore, so no descriptors or thread are
        // needed.
        false => console::interrupt_flag(),
    }
    .context("cannot install the signal handlers")?;

    let mut run = new_run(lab, profile.to_string())?;
    run.findings = doctor::examine_before_run(lab.plan().profile == Profile::Smoke);
    let mut watcher = RunWatcher::new(lab, store, &run.id, display);
    let is_begun = watcher.try_store(|store| store.begin_run(&run));
    watcher.try_store(|store| add_name(store, &run.id, name));
    if !is_live && !display.is_quiet {
        watcher.log.time_limit_line(lab).into_iter().for_each(console::print_error);
    }
    if is_live {
        watcher.live = Live::start(lab, profile, display.swept_argument, interrupted.clone());
    }
    let outcome = lab.run(&mut watcher, &interrupted);
    // Further lines are printed below the last lines of the live view.
    watcher.live = None;
    if watcher.has_missed_records || watcher.store_error.is_some() {
        // The cause, such as a full disk, may have passed. A run that was begun is not begun again:
        // another process may have deleted it.
        let begun = if is_begun { Ok(()) } else { watcher.store.begin_run(&run) };
        let stored = begun
            .and_then(|()| watcher.store.insert_or_replace_records(&run.id, &outcome.records))
            .and_then(|()| add_name(&mut watcher.store, &run.id, name));
        watcher.store_error = stored.err().map(|error| match error {
            StoreError::UnknownRun { .. } => error,
            // The first error names the cause.
            _ => watcher.store_error.unwrap_or(error),
        });
    }

    // Relaxed: the flag publishes no other data.
    let is_interrupted = outcome.interrupted || interrupted.load(Ordering::Relaxed);
    if is_interrupted && outcome.records.is_empty() {
        let deleted = match watcher.store_error {
            None => watcher.store.delete_run(&run.id).map(drop),
            Some(error) => Err(error),
        };
        return Err(match deleted {
            // Another process may have deleted the run already.
            Ok(()) | Err(StoreError::Empty { .. } | StoreError::UnknownRun { .. }) => {
                anyhow::Error::new(InterruptedBeforeResults).context("nothing is stored")
            }
            Err(error) => error.into(),
        });
    }

    run.complete = !outcome.interrupted && watcher.store_error.is_none();
    (run.null_one, run.null_several) = (outcome.null_one, outcome.null_several);
    watcher.try_store(|store| store.finish_run(&run));
    Ok(MeasuredRun {
        document: Document::new(run, outcome.records),
        store: watcher.store_error.is_none().then(|| watcher.store.path().to_path_buf()),
        store_error: watcher.store_error,
        is_interrupted,
        faults_count: outcome.faults.len(),
    })
}

/// Adds a name to a run, if one is given.
fn add_name(store: &mut Store, run_id: &str, name: Option<&str>) -> Result<(), StoreError> {
    name.map_or(Ok(()), |name| store.add_tag(run_id, name).map(drop))
}

impl MeasuredRun {
    /// Stores the description of the run again, with what was added to it since the run ended.
    pub fn store_description(&mut self) {
        let Some(path) = &self.store else { return };
        let stored = Store::open(path).and_then(|mut store| store.finish_run(&self.document.run));
        if let Err(error) = stored {
            (self.store, self.store_error) = (None, Some(error));
        }
    }

    /// Returns the most important error of the run. The order is the store, the output (`shown`),
    /// an interrupt, and failed benchmarks.
    pub fn into_result(self, shown: anyhow::Result<()>) -> anyhow::Result<()> {
        // The figures are out; errors are reported now.
        match self.store_error {
            None => {}
            Some(StoreError::UnknownRun { .. }) => {
                anyhow::bail!("the run was deleted while it was measured")
            }
            Some(error) => {
                let stored = "not all results above could be stored; earlier results are intact";
                return Err(anyhow::Error::new(error).context(stored));
            }
        }
        if let Err(error) = shown
            && !exit::is_output_closed(&error)
        {
            return Err(error);
        }
        if self.is_interrupted {
            return Err(Interrupted.into());
        }
        match self.faults_count {
            0 => Ok(()),
            1 => anyhow::bail!("1 benchmark could not be measured: see above"),
            count => anyhow::bail!("{count} benchmarks could not be measured: see above"),
        }
    }
}

/// Returns the suffix of the id of a run that was measured by the process `process_id`.
fn id_suffix(process_id: u32) -> String {
    format!("-{process_id:x}")
}

/// Creates the description of a run that starts now.
pub(crate) fn new_run(lab: &Lab, profile: String) -> anyhow::Result<Run> {
    let started_unix_ns = unix_ns(SystemTime::now()).context(DATE_OUT_OF_RANGE)?;
    let words: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    Ok(Run {
        id: format!("{:x}{}", started_unix_ns / 1000, id_suffix(std::process::id())),
        started_unix_ns,
        version: env!("CARGO_PKG_VERSION").to_string(),
        commit: env!("HANDOVER_COMMIT").to_string(),
        profile,
        command: words.join(" "),
        seed: lab.seed(),
        host: Host {
            compiler: env!("HANDOVER_COMPILER").to_string(),
            build_profile: format!(
                "{}, opt-level {}, {}",
                env!("HANDOVER_PROFILE"),
                handover_suite::OPT_LEVEL,
                env!("HANDOVER_TARGET")
            ),
            peers: env!("HANDOVER_PEERS").split_terminator(", ").map(str::to_string).collect(),
            features: env!("HANDOVER_FEATURES").split_whitespace().map(str::to_string).collect(),
            ..lab.host()
        },
        findings: Vec::new(),
        complete: false,
        null_one: None,
        null_several: None,
        proofs: Vec::new(),
    })
}

/// Returns the report's path, or `None` with `--no-report`. Returns an error if the file cannot be
/// written.
pub(super) fn report_path(options: &ResultOptions) -> anyhow::Result<Option<PathBuf>> {
    if options.no_report {
        return Ok(None);
    }
    check_writable(&options.report, "--report").map_err(|error| {
        to_usage_error(format!(
            "{error}; name another file with --report FILE, or give --no-report"
        ))
    })?;
    Ok(Some(options.report.clone()))
}

/// Checks that a file is writable, without changing an existing file; returns the path.
pub(crate) fn check_writable<'a>(path: &'a Path, option: &str) -> anyhow::Result<&'a Path> {
    let file = path.display();
    let refused = |error: std::io::Error| {
        to_usage_error(format!("{option} {file}: cannot resolve the path: {error}"))
    };
    let kind = files::resolve_links(path).map_err(refused)?.metadata().map(|it| it.file_type());
    files::check_output_path(path)
        .map_err(|error| to_usage_error(format!("{option} {file}: {error}")))?;
    let mut options = OpenOptions::new();
    // Opening a pipe without a reader would block.
    options.append(true).create(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let opened = options.open(path).map_err(|error| {
        to_usage_error(format!("{option} {file}: cannot write the file: {error}"))
    })?;
    match kind {
        // Open until this process ends: its reader would otherwise read the end of the file now.
        Ok(kind) if kind.is_fifo() => std::mem::forget(opened),
        Ok(_) => {}
        Err(_) => std::fs::remove_file(path)
            .with_context(|| format!("cannot remove the new empty file {file}"))?,
    }
    Ok(path)
}

/// Prints a run as a table or as JSON, and `note` below it. Also writes the report to `page`, if
/// given.
pub(super) fn show(
    document: &Document,
    store: Option<&Path>,
    options: &ResultOptions,
    page: Option<&Path>,
    note: Option<String>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut shown = document.clone();
    if let Some(path) = store {
        let opened = Store::open_existing(path).map_err(anyhow::Error::new);
        if let Err(error) = opened.and_then(|it| stored::prepare_for_display(&it, &mut shown)) {
            console::print_error(format_args!("cannot compare with earlier runs: {error:#}"));
        }
    }
    // The page is written first, as the reader of the output may have closed it.
    let written = match page {
        Some(page) => files::replace_file(page, handover_report::render_html(&shown))
            .with_context(|| format!("cannot write the report page {path}", path = page.display())),
        None => Ok(()),
    };
    let mut lines = Vec::new();
    if let Some(store) = store {
        let (run_id, store) = (&document.run.id, store.display());
        lines.push(format!("run {run_id} is in {store}"));
    }
    if let Some(page) = page.filter(|_| written.is_ok()) {
        let shown = page.canonicalize().unwrap_or_else(|_| page.to_path_buf());
        lines.push(format!("the report page is {path}", path = shown.display()));
    }
    lines.extend(note);
    exit::join_results(written, print(document, &shown, options, &lines, out))
}

/// Prints `document` as JSON, or as a table with its values for display, `shown`. The `lines` are
/// below the table, or on standard error.
fn print(
    document: &Document,
    shown: &Document,
    options: &ResultOptions,
    lines: &[String],
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    if options.json {
        stored::write_json(document, out)?;
        lines.iter().for_each(console::print_error);
        return Ok(());
    }
    let style = console::output_style(options.all);
    let table = handover_report::render_table(shown, console::output_width(), style);
    out.write_all(table.as_bytes())?;
    lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    Ok(())
}

/// Observer of a run that stores its records and shows its progress.
struct RunWatcher {
    store: Store,
    /// Id of the run.
    run_id: String,
    /// First error of the store, after which nothing is stored before the end of the run.
    store_error: Option<StoreError>,
    /// `true` if records were not stored because the store was locked (by `vacuum`, for example).
    /// They are stored at the end.
    has_missed_records: bool,
    /// Live view; `None` if the progress is shown otherwise.
    live: Option<Live>,
    /// `true` to print no log lines.
    is_quiet: bool,
    log: RunLog,
}

impl RunWatcher {
    fn new(lab: &Lab, store: Store, run_id: &str, display: ProgressDisplay<'_>) -> RunWatcher {
        RunWatcher {
            store,
            run_id: run_id.to_string(),
            store_error: None,
            has_missed_records: false,
            live: None,
            is_quiet: display.is_quiet,
            log: RunLog::new(lab, display.swept_argument),
        }
    }

    /// Runs a store operation, unless an earlier operation failed. Returns `false` if this or an
    /// earlier one failed.
    fn try_store(&mut self, with: impl FnOnce(&mut Store) -> Result<(), StoreError>) -> bool {
        if self.store_error.is_none() {
            self.store_error = with(&mut self.store).err();
        }
        self.store_error.is_none()
    }
}

impl RunObserver for RunWatcher {
    fn begin(&mut self, visit: (usize, usize), group: usize) {
        let line = self.log.remaining_line(visit);
        match &mut self.live {
            Some(live) => {
                line.into_iter().for_each(|line| live.print_line(line));
                live.start_visit(visit, group);
            }
            None => line.filter(|_| !self.is_quiet).into_iter().for_each(console::print_error),
        }
    }

    fn block(&mut self, done: u32, most: u32) {
        if let Some(live) = &mut self.live {
            live.show_blocks(done, most);
        }
    }

    fn records(&mut self, records: &[Record]) -> bool {
        let run_id = self.run_id.clone();
        let mut has_missed_records = false;
        self.try_store(|store| match store.insert_or_replace_records(&run_id, records) {
            Err(StoreError::Locked { .. }) => {
                has_missed_records = true;
                Ok(())
            }
            other => other,
        });
        self.has_missed_records |= has_missed_records;
        let line = self.log.measured_line(records);
        match &mut self.live {
            Some(live) => live.show_records(records),
            None => line.filter(|_| !self.is_quiet).into_iter().for_each(console::print_error),
        }
        // A run continues without its store: the figures are still worth showing.
        true
    }

    fn fault(&mut self, id: &str, fault: &Fault) {
        let line = format!("handover: {benchmark}: {fault}", benchmark = id);
        match &mut self.live {
            Some(live) => live.print_line(line),
            None => console::print_error(line),
        }
    }
}
