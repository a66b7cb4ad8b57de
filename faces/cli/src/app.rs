//! The command line: one definition, from which help, completions and man page are derived.

use crate::commands;
use crate::exit::{self, to_usage_error};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use handover_base::topology::Placement;
use handover_base::units::TimeSpan;
use handover_classic::names;
use handover_harness::{Plan, Profile};
use handover_program::console;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Measures the cost of handing work over on this machine, from a function call to an RPC.
///
/// Without a command it does `handover run`: it measures the ladder in a minute and a half, prints
/// the table, stores the run, and writes report.html.
#[derive(Debug, Parser)]
#[command(name = "handover", version = version(), max_term_width = 100, propagate_version = true)]
#[command(args_conflicts_with_subcommands = true)]
pub struct App {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run_options: RunOptions,
}

/// Returns the version, followed by the commit in parentheses if it is known.
fn version() -> &'static str {
    match env!("HANDOVER_COMMIT") {
        "" => env!("CARGO_PKG_VERSION"),
        _ => concat!(env!("CARGO_PKG_VERSION"), " (", env!("HANDOVER_COMMIT"), ")"),
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure the ladder, or the benchmarks that match the patterns
    Run(RunArgs),
    /// Measure one benchmark for several values of one argument
    Sweep(commands::sweep::SweepArgs),
    /// Check the measuring method on this machine, by measuring code with known costs
    Prove(commands::prove::ProveArgs),
    /// Draw charts of a sweep: times and rates of the contenders, and the fitted scalability law
    Plot(commands::plot::PlotArgs),
    /// Measure the workloads of the package in this folder, as `cargo handover` does
    Bench(commands::bench::BenchArgs),
    /// Compare runs or builds: each figure is better, worse, the same or too noisy. Exit 1 if a
    /// figure is worse
    Compare(commands::compare::CompareArgs),
    /// Show a figure over all stored runs, and its change points
    History(commands::history::HistoryArgs),
    /// Compare the nodes of a fleet (measured by `run --fleet`), and mark those that differ
    Fleet(commands::fleet::FleetArgs),
    /// Divide the time of one hand-off into stages, measured by probes inside the mechanism
    Anatomy(commands::anatomy::AnatomyArgs),
    /// Time whole commands in rounds: each round runs every command once, in random order
    Time(commands::time::TimeArgs),
    /// List the causes of noise on this machine, and the commands that remove them
    Doctor(commands::doctor::DoctorArgs),
    /// List the benchmarks: id, what is timed, floor, contenders, classic tool
    List(ListArgs),
    /// Explain benchmarks: what is timed and where, the floor, the contenders and how each waits
    Explain(commands::explain::ExplainArgs),
    /// Show a stored run, by default the last
    Show(ShowArgs),
    /// Write the HTML report of a stored run: ladder, distributions, and other runs for comparison
    Report(ReportArgs),
    /// List the stored runs
    Runs(RunsArgs),
    /// Show the stored runs in a browser: list, reports, comparisons and histories
    Serve(commands::serve::ServeArgs),
    /// Add a name to a run, or remove it
    Tag(commands::names::TagArgs),
    /// Delete runs
    Delete(commands::names::DeleteArgs),
    /// Return the space of deleted runs to the file system
    Vacuum(commands::names::VacuumArgs),
    /// Write stored runs as JSON Lines to standard output
    Export(ExportArgs),
    /// Read runs from JSON Lines into the store
    Import(ImportArgs),
    /// Trace a program: record calls, enable probes, and show, export or summarise traces
    #[command(subcommand)]
    Trace(commands::trace::TraceCommand),
    /// Create links with the classic programs' names, so that their command lines work unchanged
    Links(LinksArgs),
    #[command(flatten)]
    Classic(handover_classic::Program),
    /// Print shell completions
    Completions {
        /// Shell that reads the completions
        shell: clap_complete::Shell,
    },
    /// Print the manual page of handover or of a command, or write all pages to a folder
    Man(commands::man::ManArgs),
}

/// Option that all commands with a store share: the path of the store.
#[derive(Debug, Args)]
pub struct StoreOption {
    /// File of the store [default: handover/results.db in the user's data folder]
    #[arg(long, value_name = "FILE")]
    pub db: Option<PathBuf>,
}

/// Options that the tables of comparisons and fleets share.
#[derive(Debug, Args)]
pub struct TableOptions {
    /// Show a row for every contender
    #[arg(long)]
    pub all: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub db: StoreOption,
}

/// Options that all measuring commands share.
#[derive(Debug, Args)]
pub struct PlanOptions {
    /// Length of the measurement: smoke (once, to check that it works), quick, full
    #[arg(long, value_name = "NAME", default_value = "quick")]
    pub profile: Profile,
    /// Measuring time of each benchmark (in a sweep, of each value): 100ms to 1h. A smoke run does
    /// not use it [default: given by the profile]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    pub time: Option<Duration>,
    /// Do not measure the peers (alternative implementations)
    #[arg(long)]
    pub no_peers: bool,
    /// Placement of the participants relative to each other: near, far, smt or same
    #[arg(long, value_name = "NAME", default_value = "near")]
    pub place: Placement,
    /// Pause before each hand-over, 0 to 100ms, to measure hand-overs with cold caches
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = parse_duration)]
    #[arg(allow_hyphen_values = true)]
    pub idle_gap: Duration,
    /// Run a busy thread on a CPU next to those of the participants
    #[arg(long)]
    pub neighbour: bool,
    /// Run participants as processes instead of threads
    #[arg(long)]
    pub processes: bool,
    /// Set an argument of every selected benchmark that has it
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_assignment)]
    pub set: Vec<(String, String)>,
}

impl PlanOptions {
    /// Converts these options to the harness's plan.
    pub fn plan(&self) -> Plan {
        Plan {
            profile: self.profile,
            place: self.place,
            idle_gap: self.idle_gap,
            time: self.time,
            neighbour: self.neighbour,
            processes: self.processes,
            peers: !self.no_peers,
            set: self.set.clone(),
            ..Plan::default()
        }
    }
}

/// Option of measuring commands that gives the new run a name.
#[derive(Debug, Args)]
pub struct NameOption {
    /// Name of the run, for `compare` and `show`; several runs may share a name
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    pub name: Option<String>,
}

/// Options for the results of `handover run` and `handover bench`.
#[derive(Debug, Args)]
pub struct ResultOptions {
    #[command(flatten)]
    pub name: NameOption,
    /// Number of runs, each in a separate process; `compare` needs five per side
    #[arg(long, value_name = "COUNT", default_value = "1", conflicts_with = "json")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeat: u32,
    /// Print one JSON document instead of the table
    #[arg(long)]
    pub json: bool,
    /// Show a row for every contender
    #[arg(long)]
    pub all: bool,
    /// File that the HTML report is written to
    #[arg(long, short = 'o', value_name = "FILE", default_value = "report.html")]
    pub report: PathBuf,
    /// Write no HTML report
    #[arg(long, conflicts_with = "report")]
    pub no_report: bool,
    #[command(flatten)]
    pub db: StoreOption,
}

/// Options of `handover run`.
#[derive(Debug, Args)]
pub struct RunOptions {
    #[command(flatten)]
    pub plan: PlanOptions,
    /// Position of this process in the sequence of `--repeat`, from 1
    #[arg(long, value_name = "NTH", hide = true)]
    pub nth: Option<u32>,
    /// Print a line for each benchmark instead of the live view
    #[arg(long)]
    pub plain: bool,
    /// Measure every node of an MPI job: `mpiexec -n NODES --map-by node handover run --fleet`.
    /// Rank 0 stores the records of all nodes, for `handover fleet`
    #[arg(long, conflicts_with_all = ["repeat", "report"])]
    pub fleet: bool,
    /// Store for this node's records, in a process that a rank of `--fleet` starts
    #[arg(long, value_name = "FILE", hide = true)]
    pub node_db: Option<PathBuf>,
    #[command(flatten)]
    pub results: ResultOptions,
}

impl RunOptions {
    /// Returns `true` for a rank of `--fleet`; `false` for the child process that measures its
    /// node.
    fn is_fleet_rank(&self) -> bool {
        self.fleet && self.node_db.is_none()
    }
}

#[derive(Debug, Args)]
pub struct RunArgs {
    /// Benchmarks: id (lock/busy), prefix of ids (lock) or glob ('*/busy') [default: the ladder]
    #[arg(value_name = "PATTERN")]
    pub patterns: Vec<String>,
    #[command(flatten)]
    pub options: RunOptions,
}

#[derive(Debug, Args)]
pub struct ListArgs {
    /// Benchmarks: id, prefix of ids, or glob [default: all]
    #[arg(value_name = "PATTERN")]
    pub patterns: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Run: id, prefix of an id, name, or position from the end (-1 is the last)
    #[arg(value_name = "RUN", allow_negative_numbers = true, default_value = "last")]
    pub run: String,
    /// Print the run as one JSON document instead of a table
    #[arg(long)]
    pub json: bool,
    /// Format of the table: text or markdown
    #[arg(long, value_name = "FORM", default_value = "text", conflicts_with = "json")]
    #[arg(value_parser = ["text", "markdown"])]
    pub format: String,
    /// Show a row for every contender
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub db: StoreOption,
}

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Run, and runs to show for comparison: ids, prefixes, names, or positions from the end (-1)
    #[arg(value_name = "RUN", allow_negative_numbers = true, default_value = "last")]
    pub runs: Vec<String>,
    /// File that the report is written to
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    pub output: PathBuf,
    #[command(flatten)]
    pub db: StoreOption,
}

#[derive(Debug, Args)]
pub struct RunsArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub db: StoreOption,
}

#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Runs to export: ids, prefixes of ids, names, or positions from the end (-1) [default: all]
    #[arg(value_name = "RUN", allow_negative_numbers = true)]
    pub runs: Vec<String>,
    /// Format: jsonl (which import reads), csv, openmetrics, hdr (an HdrHistogram log) or
    /// github-action
    #[arg(long, value_name = "FORM", default_value = "jsonl")]
    pub to: String,
    #[command(flatten)]
    pub db: StoreOption,
}

#[derive(Debug, Args)]
pub struct ImportArgs {
    /// JSON Lines file to import; `-` for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub db: StoreOption,
}

#[derive(Debug, Args)]
pub struct LinksArgs {
    /// Folder for the links; created if it does not exist. It also gets folders such as
    /// build/demos, with links that scripts expect there
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}

/// Parses a time with a unit, such as `100ms`, or `0`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let span: TimeSpan = text.parse().map_err(|error| format!("{error}"))?;
    Ok(Duration::from_nanos(span.0))
}

/// Checks that `text` can be the name of a run, and returns it.
fn parse_name(text: &str) -> Result<String, String> {
    handover_store::check_tag(text).map_err(|error| error.to_string())?;
    Ok(text.to_string())
}

/// Parses a duration of 0.1 to 600 seconds.
pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "must be a number of seconds".to_string())?;
    match (0.1..=600.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err("the duration must be between 0.1 and 600 seconds".to_string()),
    }
}

/// Splits `NAME=VALUE` into the name and the value.
pub(crate) fn parse_assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_string(), value.to_string())),
        _ => Err("must be NAME=VALUE, as in slots_count=128".to_string()),
    }
}

/// Makes the options of a command and of its subcommands accept negative numbers, so that the error
/// names the valid range.
fn accept_negative_numbers(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| match arg.get_action().takes_values() {
        true => arg.allow_negative_numbers(true),
        false => arg,
    });
    command.mut_subcommands(accept_negative_numbers)
}

/// Returns the parser of the command line.
fn parser() -> clap::Command {
    App::command().mut_subcommands(accept_negative_numbers)
}

fn parse(words: &[impl AsRef<OsStr>]) -> Result<App, clap::Error> {
    let mut parser = parser();
    let parsed = parser.try_get_matches_from_mut(words.iter().map(AsRef::as_ref));
    let parsed = parsed.and_then(|mut matches| App::from_arg_matches_mut(&mut matches));
    parsed.map_err(|error| error.format(&mut parser))
}

/// Parses and runs the command line. Returns the exit code, and the error to print.
pub fn main(words: impl Iterator<Item = OsString>) -> (ExitCode, Option<anyhow::Error>) {
    let mut words = expand_program_name(words.collect());
    handover_classic::Program::move_scheduler_options(&mut words);
    match parse(&words) {
        Ok(app) => exit::exit_code(dispatch(app)),
        Err(error) if error.use_stderr() => {
            exit::exit_code(Err(to_usage_error(format_in_one_line(&error, &words))))
        }
        Err(help) => exit::exit_code(console::print_help(&help).map_err(anyhow::Error::from)),
    }
}

/// Formats an error in the command line `words` in one line, without the usage text.
fn format_in_one_line(error: &clap::Error, words: &[OsString]) -> String {
    if error.kind() == ErrorKind::InvalidUtf8 {
        // clap does not tell which one. Those of paths need not be UTF-8.
        let candidates: Vec<_> = words.iter().skip(1).filter(|it| it.to_str().is_none()).collect();
        if let [word] = candidates[..] {
            return format!("{word:?}: not UTF-8 text");
        }
    }
    let text = error.render().to_string();
    let said = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let said = said.filter(|line| !line.is_empty() && !line.starts_with("For more information"));
    let mut line = String::new();
    for part in said {
        let part = part.strip_prefix("error: ").or(part.strip_prefix("tip: ")).unwrap_or(part);
        line.push_str(match line.chars().last() {
            None => "",
            Some(':') => " ",
            Some(_) => "; ",
        });
        let listed = part.strip_prefix('[').and_then(|part| part.strip_suffix(']'));
        line.push_str(listed.unwrap_or(part));
    }
    if error.kind() == ErrorKind::ArgumentConflict && line.starts_with("the subcommand") {
        line.push_str("; place options after the command");
    }
    let unknown = matches!(error.kind(), ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand);
    if unknown && !line.contains("; ") {
        line.push_str(match error.kind() {
            ErrorKind::UnknownArgument => "; --help after the command lists its arguments",
            _ => "; --help lists the commands",
        });
    }
    line
}

/// Replaces the program name by `handover` and the subcommand that the name stands for. That is the
/// classic program of this name or, if called by cargo, `bench`.
fn expand_program_name(mut words: Vec<OsString>) -> Vec<OsString> {
    if words.first().is_some_and(|called| names::is_cargo_subcommand(called)) {
        // Cargo repeats the subcommand's name.
        let repeated = usize::from(words.get(1).is_some_and(|word| word == "handover"));
        words.splice(0..=repeated, ["handover".into(), "bench".into()]);
        return words;
    }
    let Some(classic) = words.first().and_then(|called| names::find_by_file_name(called)) else {
        return words;
    };
    words.splice(0..1, ["handover".into(), classic.command.into()]);
    words
}

#[cfg(feature = "mpi")]
fn run_fleet(args: &RunArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    commands::fleet_run::run_fleet(args, out)
}

#[cfg(not(feature = "mpi"))]
fn run_fleet(_: &RunArgs, _: &mut dyn Write) -> anyhow::Result<()> {
    Err(to_usage_error("--fleet: this build of handover has no MPI; build it with the feature mpi"))
}

/// Runs the parsed command; without a command, measures the ladder.
fn dispatch(app: App) -> anyhow::Result<()> {
    let the_ladder = Command::Run(RunArgs { patterns: Vec::new(), options: app.run_options });
    let mut out = console::standard_output();
    match app.command.unwrap_or(the_ladder) {
        Command::Run(run) if run.options.is_fleet_rank() => run_fleet(&run, &mut out)?,
        Command::Run(run) => commands::run::run(&run, &mut out)?,
        Command::Sweep(args) => commands::sweep::sweep(&args, &mut out)?,
        Command::Prove(args) => commands::prove::prove(&args, &mut out)?,
        Command::Plot(args) => commands::plot::plot(&args, &mut out)?,
        Command::Bench(args) => commands::bench::bench(&args, &mut out)?,
        Command::Compare(args) => commands::compare::compare(&args, &mut out)?,
        Command::History(args) => commands::history::history(&args, &mut out)?,
        Command::Fleet(args) => commands::fleet::fleet(&args, &mut out)?,
        Command::Anatomy(args) => commands::anatomy::anatomy(&args, &mut out)?,
        Command::Time(args) => commands::time::time(&args, &mut out)?,
        Command::Doctor(args) => commands::doctor::doctor(&args, &mut out)?,
        Command::List(list) => commands::list::list(&list, &mut out)?,
        Command::Explain(args) => commands::explain::explain(&args, &mut out)?,
        Command::Show(show) => commands::stored::show(&show, &mut out)?,
        Command::Report(report) => commands::stored::report(&report, &mut out)?,
        Command::Runs(runs) => commands::stored::runs(&runs, &mut out)?,
        Command::Serve(args) => commands::serve::serve(&args, &mut out)?,
        Command::Tag(args) => commands::names::tag(&args, &mut out)?,
        Command::Delete(args) => commands::names::delete(&args, &mut out)?,
        Command::Vacuum(args) => commands::names::vacuum(&args, &mut out)?,
        Command::Export(export) => commands::stored::export(&export, &mut out)?,
        Command::Import(import) => commands::stored::import(&import, &mut out)?,
        Command::Trace(trace) => commands::trace::run(&trace, &mut out)?,
        Command::Links(links) => commands::links::links(&links, &mut out)?,
        Command::Classic(program) => program.run(&mut out)?,
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut App::command(), "handover", &mut text);
            out.write_all(&text)?;
        }
        Command::Man(args) => commands::man::man(&args, App::command(), &mut out)?,
    }
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use handover_harness::Lab;

    #[test]
    fn definition_of_the_command_line_is_valid() {
        parser().debug_assert();
        let app = App::parse_from(["handover", "run", "lock", "--set", "a=1"]);
        assert!(matches!(app.command, Some(Command::Run(run)) if run.patterns == ["lock"]));
    }

    #[test]
    fn link_of_a_classic_program_never_starts_the_ladder() {
        let words = expand_program_name(vec!["build/demos/hello1_evm".into()]);
        assert_eq!(words, ["handover", "hello1"]);
        assert_eq!(parse(&words).is_ok(), cfg!(feature = "classic"));
    }

    /// Splits a command line at whitespace and removes quotes, which must not contain whitespace.
    fn words_of(line: &str) -> Vec<String> {
        line.split_whitespace().map(|word| word.replace('\'', "")).collect()
    }

    #[test]
    fn documented_command_lines_give_valid_plans() {
        let pages = [
            include_str!("../../../README.md"),
            include_str!("../../../docs/compare.md"),
            include_str!("../../../docs/sweep.md"),
            include_str!("../../../lab/suite/README.md"),
            include_str!("../README.md"),
        ];
        let joined = pages.map(|page| page.replace('\n', "\n ")).join("\n");
        let mut planned = 0;
        for line in joined.split(['`', '\n', ';', '#', '&', '|', ')']) {
            let words = words_of(line.trim().trim_start_matches("$ "));
            if !words.starts_with(&["handover".to_string(), "run".to_string()]) {
                continue;
            }
            let app = App::try_parse_from(&words).unwrap_or_else(|why| panic!("{line}: {why}"));
            let Some(Command::Run(run)) = app.command else { panic!("{line}: no run") };
            let lab = Lab::new(handover_suite::SUITES, &run.patterns, run.options.plan.plan());
            assert!(lab.is_ok(), "{line}: {:?}", lab.err());
            planned += 1;
        }
        assert!(planned >= 5, "only {planned} command lines were found");
    }

    #[test]
    fn exact_id_selects_only_itself_even_if_it_is_a_prefix() {
        let chosen = |pattern: &str| -> Vec<&str> {
            let chosen = handover_harness::select(handover_suite::SUITES, &[pattern.to_string()]);
            chosen.expect("known").iter().map(|it| it.spec.id).collect()
        };
        assert_eq!(chosen("lock/busy"), ["lock/busy"]);
        assert_eq!(chosen("lock/bus"), ["lock/busy-alone", "lock/busy"]);
        assert_eq!(chosen("ring/stream"), ["ring/stream"]);
    }

    fn error(words: &[&str]) -> String {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let error = parse(&words).expect_err("the invalid command line was accepted");
        format_in_one_line(&error, &words)
    }

    #[test]
    fn parse_error_is_one_line_with_a_remedy() {
        for (words, line) in [
            (&["rnu"][..], "unrecognized subcommand 'rnu'; a similar subcommand exists: 'runs'"),
            (&["qqqq"], "unrecognized subcommand 'qqqq'; --help lists the commands"),
            (
                &["trylock", "--via", "rope"],
                "invalid value 'rope' for '--via <VIA>'; possible values: sem, mutex, spin, cas, handover",
            ),
            (
                &["trylock", "-n", "-1"],
                "invalid value '-1' for '-n <THREADS>': must lie in 1..=1024",
            ),
            (
                &["trylock", "-o", "dump.txt"],
                "the following required arguments were not provided: -F",
            ),
            (
                &["run", "--idle-gap", "-1ms"],
                "invalid value '-1ms' for '--idle-gap <TIME>': \"-1ms\" is negative: write for example 30us",
            ),
        ] {
            assert_eq!(error(&[&["handover"], words].concat()), line);
        }
    }
}
