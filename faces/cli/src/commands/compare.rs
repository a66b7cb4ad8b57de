//! `handover compare`: figures that became better or worse between two sets of runs.

use crate::app::{StoreOption, TableOptions};
use crate::commands::files::{RunsFileContent, read_runs_file};
use crate::commands::stored;
use crate::exit::{
    self, Interrupted, InterruptedBeforeResults, InterruptedUnstored, check_interrupt,
    to_usage_error,
};
use anyhow::{Context, bail};
use clap::Args;
use globset::Glob;
use handover_harness::ScratchFolder;
use handover_program::{child, console};
use handover_record::{Document, JSON_SCHEMA_VERSION, command_without_nth};
use handover_report::compare::{self, Comparison, Rules};
use handover_store::{Store, StoreError, db_option};
use serde_json::Value;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

/// Maximum number of bytes read from the standard output of a build.
const OUTPUT_BYTES_MAX: u64 = 1 << 28;
/// Maximum number of bytes read from the standard error of a build.
const MESSAGES_BYTES_MAX: u64 = 1 << 16;
/// Names of the two sides of `--ab`, in the names of stored runs.
const SIDES: [&str; 2] = ["old", "new"];

/// Arguments of `handover compare`.
#[derive(Debug, Args)]
#[command(
    after_help = "A side is a name (all runs that have it: `handover tag`, `handover run --name`), a run, a file of \
`handover export` or `show --json`, or several of these with commas between. Each run is a process, and each side \
needs five: `handover run --repeat 7 --name before` makes seven.

A figure is called worse when its ratio is above the threshold and above what ours \
against ours shows in the same processes; when Mann and Whitney's test calls it different at 5 %; and when at \
most 0.8 % of all ways to divide the processes between the two sides make any figure look as much worse (Westfall \
and Young, step-down maxT)."
)]
pub struct CompareArgs {
    /// Sides A and B to compare. With --baseline, only B [default: the last run, and all runs of
    /// its name or its --repeat]; with --ab, the benchmarks to measure [default: the ladder]
    #[arg(value_name = "SIDE|PATTERN", allow_negative_numbers = true)]
    words: Vec<String>,
    /// Side A, with which side B is compared: name, run or file
    #[arg(long, value_name = "SIDE", conflicts_with = "ab", allow_negative_numbers = true)]
    baseline: Option<String>,
    /// Measure two builds of handover alternately and compare them. OLD and NEW are program files,
    /// or patterns such as 'old/*' for several builds per side
    #[arg(long, num_args = 2, value_names = ["OLD", "NEW"])]
    ab: Vec<String>,
    /// With --ab: number of processes per build; a verdict needs five
    #[arg(long, value_name = "COUNT", default_value = "7", requires = "ab")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=50))]
    pairs: u32,
    /// With --ab: time for each benchmark in each process
    #[arg(long, value_name = "TIME", requires = "ab")]
    time: Option<String>,
    /// With --ab: store the runs under the names NAME/old and NAME/new
    #[arg(long, value_name = "NAME", requires = "ab")]
    name: Option<String>,
    /// Smallest relative difference that counts as a change, 0% to 100%
    #[arg(long, value_name = "SHARE", default_value = "2%", value_parser = parse_share)]
    #[arg(allow_hyphen_values = true)]
    threshold: f64,
    /// Exit with 1 also if any figure has no verdict, or side B lacks a figure of side A
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    table: TableOptions,
}

/// Parses a share, written as a percentage or a plain number.
pub(super) fn parse_share(text: &str) -> Result<f64, String> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let value = match text.strip_suffix('%') {
        Some(percent) => number(percent).map(|it| it / 100.0),
        None => number(text),
    };
    let value = value.ok_or("must be a share, such as 5% or 0.05")?;
    match (0.0..=1.0).contains(&value) {
        true => Ok(value),
        false => Err("the share must be between 0% and 100%".to_string()),
    }
}

pub fn compare(args: &CompareArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let MeasuredSides { sides: [(a_name, a), (b_name, b)], kept, ended } = match args.ab.as_slice()
    {
        [old, new] => measure_alternately(args, old, new)?,
        _ => MeasuredSides { sides: load_sides(args)?, kept: Ok(()), ended: Ok(()) },
    };
    let rules = Rules { threshold: args.threshold, all: args.table.all };
    let mut comparison = compare::compare((&a_name, &a), (&b_name, &b), rules);
    if has_single_build_side(&args.ab)? {
        comparison.notes.push(SINGLE_BUILD_NOTE.to_string());
    }
    let shown = show(&comparison, &args.table, out);
    let kept =
        kept.context("the comparison above is complete, but not all of its runs could be stored");
    let judged = kept.and(ended).and_then(|()| judge(args, &comparison, &a_name, &b_name));
    exit::join_results(judged, shown)
}

/// Prints the comparison, as JSON or as a table.
fn show(comparison: &Comparison, table: &TableOptions, out: &mut dyn Write) -> anyhow::Result<()> {
    if table.json {
        serde_json::to_writer(&mut *out, comparison).map_err(std::io::Error::from)?;
        return Ok(writeln!(out)?);
    }
    let style = console::output_style(table.all);
    let drawn = compare::render_comparison(comparison, console::output_width(), style);
    Ok(out.write_all(drawn.as_bytes())?)
}

/// Returns an error if a figure regressed or if nothing could be compared; with `--strict`, also if
/// a figure has no verdict.
fn judge(
    args: &CompareArgs,
    comparison: &Comparison,
    a_name: &str,
    b_name: &str,
) -> anyhow::Result<()> {
    if comparison.rows.is_empty() {
        return Err(to_usage_error(format!(
            "{a_name} and {b_name} have no figure in common; compare runs of the same benchmarks"
        )));
    }
    let undecided_count = comparison.count(compare::Verdict::CannotSay)
        + comparison.count(compare::Verdict::TooNoisy);
    match comparison.count(compare::Verdict::Worse) {
        0 if args.strict && undecided_count > 0 => {
            bail!("--strict: {undecided_count} figures have no verdict, see above")
        }
        0 if args.strict && !comparison.only_a.is_empty() => bail!(
            "--strict: {b_name} lacks figures that {a_name} has: {}",
            comparison.only_a.join(", ")
        ),
        0 => Ok(()),
        1 => bail!("1 figure regressed"),
        count => bail!("{count} figures regressed"),
    }
}

/// Note below a comparison with only one build on a side.
const SINGLE_BUILD_NOTE: &str = "A side has only one build of its code, so the differences include the effect of the functions' \
addresses: some percent of a short figure. `cargo xtask layouts` makes several builds with different addresses, \
for `--ab 'old/*' 'new/*'`.";

/// Returns `true` if `--ab` compares different builds, of which a side has only one.
fn has_single_build_side(ab: &[String]) -> anyhow::Result<bool> {
    let [old, new] = ab else { return Ok(false) };
    Ok(old != new && (build_paths(old)?.len() == 1 || build_paths(new)?.len() == 1))
}

/// Compares this program with a copy of itself, as `--ab` does. Each side runs in `pairs`
/// processes, alternately.
pub(super) fn compare_with_copy(
    pairs: u32,
    time: &str,
    words: &[&str],
) -> anyhow::Result<Comparison> {
    let own = std::env::current_exe().context("cannot find the path of this program")?;
    let folder = ScratchFolder::new("handover-copy-", &std::env::temp_dir())?;
    let copy = folder.path().join("copy");
    std::fs::copy(&own, &copy).context("cannot copy this program")?;
    let args = CompareArgs {
        words: words.iter().map(|it| it.to_string()).collect(),
        baseline: None,
        ab: Vec::new(),
        pairs,
        time: Some(time.to_string()),
        name: None,
        threshold: Rules::default().threshold,
        strict: false,
        table: TableOptions { all: false, json: false, db: StoreOption { db: None } },
    };
    let [own, copy] = [own, copy].map(|it| it.display().to_string());
    let MeasuredSides { sides: [(_, a), (_, b)], ended, .. } =
        measure_alternately(&args, &own, &copy)?;
    ended?;
    Ok(compare::compare((&own, &a), (&copy, &b), Rules::default()))
}

/// Name of a side of a comparison, and its runs.
type NamedSide = (String, Vec<Document>);

/// Both sides of a comparison, and the errors that leave them comparable.
struct MeasuredSides {
    sides: [NamedSide; 2],
    /// Error of the store, if some runs could not be stored.
    kept: Result<(), StoreError>,
    /// Error that ended the measurement before its last process.
    ended: anyhow::Result<()>,
}

/// Loads both sides, in the order of the command line.
fn load_sides(args: &CompareArgs) -> anyhow::Result<[NamedSide; 2]> {
    let (a, b) = match (&args.baseline, args.words.as_slice()) {
        (Some(a), [b]) => (a, b.as_str()),
        (Some(a), []) => {
            let baseline = (a.clone(), load_side(a, &args.table.db, &mut None)?);
            let last = load_last_group(a, &stored::open_existing(&args.table.db)?)?;
            return Ok([baseline, last]);
        }
        (None, [a, b]) => (a, b.as_str()),
        (Some(_), _) => {
            return Err(to_usage_error(
                "--baseline: more than one other side is given; give at most one",
            ));
        }
        (None, _) => {
            return Err(to_usage_error(
                "two sides are compared: A B, --baseline A B, or --ab OLD NEW; a side is a name, a run \
                 or a file",
            ));
        }
    };
    let mut store = None;
    let mut of = |words: &str| -> anyhow::Result<NamedSide> {
        Ok((words.to_string(), load_side(words, &args.table.db, &mut store)?))
    };
    Ok([of(a)?, of(b)?])
}

/// Loads the last run, and the other runs with its name or of its `--repeat`.
fn load_last_group(baseline: &str, store: &Store) -> anyhow::Result<NamedSide> {
    let rows = store.runs().map_err(stored::usage_error)?;
    let Some(last) = rows.last() else { return Ok(("last".to_string(), Vec::new())) };
    let of_baseline: Vec<&str> = baseline.split(',').collect();
    if last.tags.iter().chain([&last.id]).any(|it| of_baseline.contains(&it.as_str())) {
        let db = db_option(store.path());
        return Err(to_usage_error(format!(
            "--baseline {baseline}: the last run belongs to the baseline; measure the other side: `handover run \
             --repeat 7 --name this{db}`, then `handover compare --baseline {baseline} this{db}`"
        )));
    }
    if let Some(name) = last.tags.first() {
        return Ok((
            name.clone(),
            stored::load_runs(store, &store.ids_with_tag(name).map_err(stored::usage_error)?)?,
        ));
    }
    let mut group: Vec<Document> = Vec::new();
    for row in rows.iter().rev() {
        let belongs = group.last().is_none_or(|later| {
            are_consecutive_repeats(&row.command, &later.run.command) && row.tags.is_empty()
        });
        if !belongs {
            break;
        }
        group.push(store.load_run(&row.id).map_err(stored::usage_error)?);
    }
    Ok(("last".to_string(), group))
}

/// Returns `true` if `earlier` and `later` are command lines of consecutive processes of one
/// `--repeat`.
fn are_consecutive_repeats(earlier: &str, later: &str) -> bool {
    let nth = |command: &str| -> Option<u32> {
        command.split(' ').find_map(|word| word.strip_prefix("--nth="))?.parse().ok()
    };
    nth(later).is_some_and(|later| nth(earlier).and_then(|it| it.checked_add(1)) == Some(later))
        && command_without_nth(earlier) == command_without_nth(later)
}

/// Loads the runs of a side from a comma-separated list of names, runs and files. Opens the store
/// only if needed.
fn load_side(
    words: &str,
    db: &StoreOption,
    store: &mut Option<Store>,
) -> anyhow::Result<Vec<Document>> {
    let mut documents: Vec<Document> = Vec::new();
    for word in words.split(',') {
        let path = Path::new(word);
        let found = if std::fs::metadata(path).is_ok_and(|it| it.is_file()) {
            match read_runs_file(path)? {
                RunsFileContent::Runs(documents) => documents,
                RunsFileContent::NoRuns => {
                    return Err(to_usage_error(format!(
                        "{word}: no runs; `handover export` and `handover show --json` write them"
                    )));
                }
            }
        } else {
            if store.is_none() {
                *store = Some(stored::open_existing(db)?);
            }
            let Some(store) = store.as_ref() else { continue };
            stored::load_runs(store, &store.matching_ids(word).map_err(stored::usage_error)?)?
        };
        for document in found {
            if !documents.iter().any(|it| it.run.id == document.run.id) {
                documents.push(document);
            }
        }
    }
    Ok(documents)
}

/// Measures two builds alternately. Every second pair starts with the new build. Returns the
/// results even if they could not be stored, or if an error or an interrupt leaves each side at
/// least one run.
fn measure_alternately(args: &CompareArgs, old: &str, new: &str) -> anyhow::Result<MeasuredSides> {
    if let Some(name) = &args.name {
        handover_store::check_tag(&format!("{name}/old")).map_err(to_usage_error)?;
    }
    let builds = [build_paths(old)?, build_paths(new)?];
    let most = builds[0].len().max(builds[1].len());
    if most > args.pairs as usize {
        return Err(to_usage_error(format!(
            "--pairs {}: a side has {most} builds, and each must run at least once; use --pairs {most} or more",
            args.pairs
        )));
    }
    let mut keep = match &args.name {
        Some(name) => {
            let store = Store::open(stored::writable_store_path(&args.table.db)?)
                .map_err(exit::store_error)?;
            for side in SIDES {
                store.check_new_tag(&format!("{name}/{side}")).map_err(exit::store_error)?;
            }
            Some(store)
        }
        None => None,
    };
    let interrupted = console::interrupt_flag().context("cannot install the signal handlers")?;
    let folder = ScratchFolder::new("handover-compare-", &std::env::temp_dir())
        .context("cannot create a temporary folder for the output of the builds")?;
    let mut sides = [Vec::new(), Vec::new()];
    let (mut kept, mut ended) = (Ok(()), Ok(()));
    let mut faulty_count = 0;
    'pairs: for pair in 0..args.pairs {
        for turn in 0..2 {
            let which = (turn + pair as usize) % 2;
            let of_side = &builds[which];
            let build = &of_side[pair as usize % of_side.len()];
            let document = match run_build(args, build, folder.path(), &interrupted) {
                Ok((document, is_faulty)) => {
                    faulty_count += usize::from(is_faulty);
                    document
                }
                Err(error) if !sides.iter().any(Vec::is_empty) => {
                    ended = Err(describe_early_end(error, args.name.is_some()));
                    break 'pairs;
                }
                // There is nothing to compare. With a name, a first run may be stored.
                Err(error)
                    if error.is::<Interrupted>()
                        && (args.name.is_none() || sides.iter().all(Vec::is_empty)) =>
                {
                    return Err(InterruptedBeforeResults.into());
                }
                Err(error) => return Err(error),
            };
            if let (Some(store), Some(name), Ok(())) = (&mut keep, &args.name, &kept) {
                kept = store_run(store, &document, &format!("{name}/{}", SIDES[which]));
            }
            sides[which].push(document);
        }
        console::print_error(format_args!("pair {} of {} measured", pair + 1, args.pairs));
    }
    if faulty_count > 0 && ended.is_ok() {
        ended = Err(anyhow::anyhow!(
            "{faulty_count} of {} processes could not measure all benchmarks",
            2 * args.pairs
        ));
    }
    let [a, b] = sides;
    Ok(MeasuredSides { sides: [(old.to_string(), a), (new.to_string(), b)], kept, ended })
}

/// Adds to an error that ended the measurement early what has become of the completed runs.
fn describe_early_end(error: anyhow::Error, are_stored: bool) -> anyhow::Error {
    match are_stored {
        true if error.is::<Interrupted>() => error,
        true => error.context("the completed runs are compared above and stored"),
        false if error.is::<Interrupted>() => InterruptedUnstored.into(),
        false => error.context("the completed runs are compared above, but not stored"),
    }
}

/// Returns the paths of the builds that a word of `--ab` selects. They are a file, or the files
/// that match a pattern, sorted by name.
fn build_paths(word: &str) -> anyhow::Result<Vec<PathBuf>> {
    let is_file = |path: &Path| std::fs::metadata(path).is_ok_and(|it| it.is_file());
    let path = Path::new(word);
    if is_file(path) {
        return Ok(vec![path.to_path_buf()]);
    }
    let (folder, name) = (path.parent().unwrap_or(Path::new("")), path.file_name());
    let pattern = name.and_then(|name| name.to_str()).unwrap_or_default();
    let Ok(glob) = Glob::new(pattern).map(|glob| glob.compile_matcher()) else {
        return Err(to_usage_error(format!(
            "--ab {word}: not a file, nor a pattern that matches files"
        )));
    };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let matches = |path: &PathBuf| path.file_name().is_some_and(|name| glob.is_match(name));
    let mut builds: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| is_file(path) && matches(path)).collect();
    builds.sort();
    match builds.is_empty() {
        true => Err(to_usage_error(format!(
            "--ab {word}: no such file; name a build of handover, or a pattern as in 'old/*'"
        ))),
        false => Ok(builds),
    }
}

/// Stores a measured run and adds a name to it.
fn store_run(store: &mut Store, document: &Document, name: &str) -> Result<(), StoreError> {
    store.begin_run(&document.run)?;
    store.insert_records(&document.run.id, &document.records)?;
    store.add_tag(&document.run.id, name).map(drop)
}

/// Runs a build once. Returns the run that it prints as JSON, and `true` if it could not measure
/// all benchmarks.
fn run_build(
    args: &CompareArgs,
    build: &Path,
    folder: &Path,
    interrupted: &AtomicBool,
) -> anyhow::Result<(Document, bool)> {
    let build_path = build.display();
    let build =
        build.canonicalize().with_context(|| format!("cannot run the build {build_path}"))?;
    let mut stdout_file = tempfile::tempfile_in(folder)?;
    let mut stderr_file = tempfile::tempfile_in(folder)?;
    let mut command = Command::new(build);
    command.args(["run", "--json", "--no-report", "--db"]).arg(folder.join("results.db"));
    if !args.table.all {
        command.arg("--no-peers");
    }
    if let Some(time) = &args.time {
        command.args(["--time", time]);
    }
    command.arg("--").args(&args.words);
    let file = |file: &File| -> anyhow::Result<Stdio> { Ok(Stdio::from(file.try_clone()?)) };
    command.stdout(file(&stdout_file)?).stderr(file(&stderr_file)?);
    let status = child::run(&mut command, interrupted).map_err(exit::start_error)?.status;
    check_interrupt(interrupted)?;
    // Two versions may not be able to read each other's store.
    let _ = std::fs::remove_file(folder.join("results.db"));
    stdout_file.rewind()?;
    let mut bytes = Vec::new();
    stdout_file.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes)?;
    let document = Document::from_json(&bytes);
    // A run of another schema may lack fields, and then cannot be parsed.
    let schema = match &document {
        Ok(document) => Some(u64::from(document.schema)),
        Err(_) => serde_json::from_slice(&bytes).ok().and_then(|it: Value| it["schema"].as_u64()),
    };
    if let Some(schema) = schema.filter(|it| *it != u64::from(JSON_SCHEMA_VERSION)) {
        bail!(
            "the output of `{build_path} run --json` has schema {schema}; this handover reads {JSON_SCHEMA_VERSION}"
        );
    }
    if !status.success() {
        let mut text = String::new();
        stderr_file.rewind()?;
        let _ = stderr_file.take(MESSAGES_BYTES_MAX).read_to_string(&mut text);
        let messages: Vec<&str> =
            text.lines().filter_map(|it| it.strip_prefix("handover: ")).collect();
        // An error in the child's command line is an error in ours.
        if matches!(status.code(), Some(1 | 2)) && messages.is_empty() && document.is_err() {
            return Err(to_usage_error(format!(
                "--ab {build_path}: not a build of handover: `run --json` failed with {status}"
            )));
        }
        if status.code() == Some(2) {
            let messages = messages.join("; ");
            return Err(to_usage_error(format!(
                "`{build_path} run` refused its arguments: {messages}"
            )));
        }
        if document.is_err() {
            let messages = messages.join("; ");
            bail!("`{build_path} run` failed with {status}: {messages}");
        }
        // One figure could not be measured, but the others were.
        messages
            .iter()
            .for_each(|line| console::print_error(format_args!("`{build_path} run`: {line}")));
    }
    let document = document.map_err(|error| {
        to_usage_error(format!(
            "--ab {build_path}: not a build of handover: the output of `run --json` is not a run: {error}"
        ))
    })?;
    Ok((document, !status.success()))
}

#[cfg(test)]
mod tests {
    use super::{are_consecutive_repeats, build_paths, parse_share};

    #[test]
    fn consecutive_runs_of_one_command_line_form_one_repetition() {
        let of = |nth: u32| format!("handover run --nth={nth} lock --repeat 3");
        assert!(are_consecutive_repeats(&of(1), &of(2)) && are_consecutive_repeats(&of(2), &of(3)));
        assert!(
            !are_consecutive_repeats(&of(3), &of(1)),
            "a run of another repetition was accepted"
        );
        assert!(!are_consecutive_repeats("handover run --nth=1 ring --repeat 3", &of(2)));
        assert!(!are_consecutive_repeats("handover run lock", "handover run lock"));
    }

    #[test]
    fn ab_word_names_a_file_or_all_files_of_a_pattern() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b-2", "b-1", "other"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        std::fs::create_dir(folder.path().join("b-folder")).unwrap();
        let named = |name: &str| folder.path().join(name).display().to_string();
        let builds = |name: &str| build_paths(&named(name)).map_err(|error| error.to_string());
        let [first, second, other] = ["b-1", "b-2", "other"].map(|name| folder.path().join(name));
        assert_eq!(builds("b-*"), Ok(vec![first, second]));
        assert_eq!(builds("other"), Ok(vec![other]));
        for word in ["none", "c-*", "b-folder", "[", "nowhere/*"] {
            assert!(builds(word).is_err_and(|error| error.contains("--ab")), "{word}");
        }
    }

    #[test]
    fn share_is_parsed_from_a_percentage_or_a_number() {
        assert_eq!(parse_share("5%"), Ok(0.05));
        assert_eq!(parse_share("0.05"), Ok(0.05));
        assert_eq!(parse_share("0%"), Ok(0.0));
        for bad in ["", "%", "5 percent", "-1%", "101%", "NaN", "inf"] {
            assert!(parse_share(bad).is_err(), "{bad}");
        }
    }
}
