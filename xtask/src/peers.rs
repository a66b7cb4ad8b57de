//! `cargo xtask peers`: runs other tracers and handover's own on the same C program; or compares
//! the classic programs with C loops and the originals.

mod classics;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::run::CommandLine;
use crate::steps::binary::build_release_binary;
use crate::steps::prerequisites::install_debian_packages;
use crate::workspace::Workspace;

/// Options of `peers`.
#[derive(clap::Args, Debug)]
pub struct PeersOptions {
    /// Number of calls that are traced in each run
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    calls: u64,
    /// Number of runs of each tracer, in alternation; the table has their medians
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Do not install missing tracers; leave them out
    #[arg(long)]
    no_install: bool,
    /// Binary of handover to measure [default: a new release build]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Compare handover's classic programs with plain C loops and with --originals, instead of
    /// tracers
    #[arg(long)]
    classics: bool,
    /// Folder with the original programs (node-microbench, margo-p2p-latency, ...), built from
    /// source
    #[arg(long, value_name = "FOLDER", requires = "classics")]
    originals: Option<PathBuf>,
}

/// C source of the traced program.
const PROGRAM_SOURCE: &str = include_str!("../c/peers.c");
/// Maximum duration of one run of a program.
const RUN_MAX: Duration = Duration::from_secs(120);

/// Compiler option that adds patchable entries to all functions.
const PATCHABLE_OPTION: &str = "-fpatchable-function-entry=5";
/// Compiler option that adds calls of two hooks to all functions.
const HOOKS_OPTION: &str = "-finstrument-functions";
/// Compiler option that adds calls of `mcount` to all functions.
const MCOUNT_OPTION: &str = "-pg";

/// LTTng's library with hooks for programs compiled with `-finstrument-functions`.
const LTTNG_HOOKS: &str = "liblttng-ust-cyg-profile-fast.so.1";
/// Arguments of `lttng` that create the channel for the events.
const LTTNG_CHANNEL: &str = "enable-channel --userspace --subbuf-size=4M --num-subbuf=8 calls";

/// Tracer with its options, and the compiler flag that it needs.
struct Tracer {
    /// Name in the table.
    name: &'static str,
    /// Compiler flag for the C program.
    flag: &'static str,
    kind: TracerKind,
}

/// Tracer of the C program, and its options.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TracerKind {
    /// The program runs without a tracer.
    Plain,
    /// Handover's recorder traces the program, with these options.
    Ours(&'static [&'static str]),
    /// Uftrace traces the program, with these options.
    Uftrace(&'static [&'static str]),
    /// LTTng-UST traces the program.
    Lttng,
}

/// Compared tracers, in the order of the table.
const TRACERS: [Tracer; 9] = [
    Tracer { name: "nobody", flag: "-O2", kind: TracerKind::Plain },
    Tracer { name: "handover", flag: PATCHABLE_OPTION, kind: TracerKind::Ours(&[]) },
    Tracer { name: "handover", flag: HOOKS_OPTION, kind: TracerKind::Ours(&[]) },
    Tracer {
        name: "handover, filtered",
        flag: PATCHABLE_OPTION,
        kind: TracerKind::Ours(&["--exclude", "work"]),
    },
    Tracer {
        name: "handover, filtered",
        flag: HOOKS_OPTION,
        kind: TracerKind::Ours(&["--exclude", "work"]),
    },
    Tracer { name: "uftrace", flag: MCOUNT_OPTION, kind: TracerKind::Uftrace(&[]) },
    Tracer {
        name: "uftrace -P",
        flag: PATCHABLE_OPTION,
        kind: TracerKind::Uftrace(&["-P", "work"]),
    },
    Tracer {
        name: "uftrace, filtered",
        flag: MCOUNT_OPTION,
        kind: TracerKind::Uftrace(&["-N", "work"]),
    },
    Tracer { name: "LTTng-UST", flag: HOOKS_OPTION, kind: TracerKind::Lttng },
];

/// Figures of one run of a tracer.
#[derive(Clone, Copy, Debug, Default)]
struct TracerFigures {
    /// CPU cycles per call without tracing.
    bare_cycles: f64,
    /// CPU cycles per call with tracing.
    traced_cycles: f64,
    /// Duration of the run.
    wall_ns: f64,
    /// Size of the trace.
    bytes: f64,
}

/// Measures the C program under each tracer, in turn, and prints a table of the costs. Installs
/// missing tracers; with `--classics`, compares the classic programs instead.
pub fn peers(options: &PeersOptions) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    let binary = || match &options.binary {
        Some(binary) => anyhow::Ok(std::path::absolute(binary)?),
        None => {
            build_release_binary(&workspace)?;
            Ok(workspace.binary_path("release"))
        }
    };
    if options.classics {
        classics::compare(options, &binary()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut left_out = Vec::new();
    if !CommandLine::new("cc --version").succeeds() {
        install(options, &["gcc", "libc6-dev"])?;
    }
    let has_uftrace =
        is_available_or_installed(options, "uftrace --version", &["uftrace"], &mut left_out);
    let has_lttng = is_available_or_installed(
        options,
        "lttng --version",
        &["lttng-tools", "liblttng-ust1"],
        &mut left_out,
    );
    left_out.push(margo_note().to_owned());
    let binary = binary()?;
    let folder = tempfile::tempdir()?;
    let session = if has_lttng { LttngSession::begin(&mut left_out) } else { None };
    let is_there = |tracer: &&Tracer| match tracer.kind {
        TracerKind::Uftrace(_) => has_uftrace,
        TracerKind::Lttng => session.is_some(),
        _ => true,
    };
    let tracers: Vec<&Tracer> = TRACERS.iter().filter(is_there).collect();
    let mut programs = Vec::new();
    for (index, tracer) in tracers.iter().enumerate() {
        programs.push(compile(folder.path(), index, tracer.flag)?);
    }
    let mut all = vec![Vec::new(); tracers.len()];
    for _ in 0..options.rounds {
        for (at, tracer) in tracers.iter().enumerate() {
            let run = TracedRun { binary: &binary, folder: folder.path(), calls: options.calls };
            let measure = run.measure(tracer.kind, &programs[at]);
            all[at].push(measure.with_context(|| format!("{}, {}", tracer.name, tracer.flag))?);
        }
    }
    drop(session);
    println!("\n{} calls of a C function, medians of {} runs:\n", options.calls, options.rounds);
    print!("{}", format_table(&tracers, &all, options.calls));
    for why in left_out {
        println!("left out: {why}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Installs Debian packages; fails if `--no-install` is given.
fn install(options: &PeersOptions, packages: &[&str]) -> Result<()> {
    ensure!(
        !options.no_install,
        "{} is not installed; install it, or leave out --no-install",
        packages.join(" and ")
    );
    install_debian_packages(packages)
}

/// Returns `true` if the command `check` succeeds, possibly after installing `packages`. Otherwise
/// adds the error to `left_out`.
fn is_available_or_installed(
    options: &PeersOptions,
    check: &str,
    packages: &[&str],
    left_out: &mut Vec<String>,
) -> bool {
    if CommandLine::new(check).succeeds() {
        return true;
    }
    let installed = install(options, packages);
    if let Err(error) = &installed {
        left_out.push(format!("{}: {error:#}", packages[0]));
    }
    installed.is_ok()
}

/// Returns a note on how to compare handover's `margo-*` programs with margo's own. Debian has no
/// package of margo.
fn margo_note() -> &'static str {
    match CommandLine::new("margo-p2p-latency -h").output() {
        Ok(_) => "margo: not a tracer; compare margo-p2p-latency with handover's by --classics",
        Err(_) => {
            "margo: no margo-p2p-latency on the PATH, and Debian has no package of it (from source: \
             spack install mochi-margo); handover's own margo-* programs take its options"
        }
    }
}

/// Compiles the C program with the flag; returns the path of the executable.
fn compile(folder: &Path, index: usize, flag: &str) -> Result<PathBuf> {
    let source = folder.join("peers.c");
    std::fs::write(&source, PROGRAM_SOURCE)?;
    let program = folder.join(format!("program-{index}"));
    CommandLine::new("cc -O2 -o").args([&program, &source]).args([flag]).capture_stdout()?;
    Ok(program)
}

/// Session daemon of LTTng that the traced runs use. Dropping this stops the daemon if it was
/// started here.
struct LttngSession {
    /// Daemon that was started; `None` if one was already running.
    daemon: Option<Child>,
}

impl LttngSession {
    /// Starts the daemon if none is running. On failure, returns `None` and adds the reason to
    /// `left_out`.
    fn begin(left_out: &mut Vec<String>) -> Option<Self> {
        if CommandLine::new("lttng --no-sessiond list --userspace").succeeds() {
            return Some(Self { daemon: None });
        }
        let mut command = Command::new("lttng-sessiond");
        command.arg("--no-kernel").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let started = command.spawn().context("cannot start lttng-sessiond");
        let mut session = match started {
            Ok(daemon) => Self { daemon: Some(daemon) },
            Err(error) => {
                left_out.push(format!("LTTng-UST: {error:#}"));
                return None;
            }
        };
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until {
            if CommandLine::new("lttng --no-sessiond list --userspace").succeeds() {
                return Some(session);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        session.end();
        left_out.push("LTTng-UST: lttng-sessiond does not respond".to_owned());
        None
    }

    /// Stops the daemon if this session has started it.
    fn end(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            // SIGTERM rather than SIGKILL: the daemon has child daemons to stop.
            let stopped = CommandLine::new("kill").args([daemon.id().to_string()]).succeeds();
            if !stopped {
                let _ = daemon.kill();
            }
            let _ = daemon.wait();
        }
    }
}

impl Drop for LttngSession {
    fn drop(&mut self) {
        self.end();
    }
}

/// Settings of a traced run of the C program.
struct TracedRun<'a> {
    /// Binary of handover.
    binary: &'a Path,
    /// Folder for the trace.
    folder: &'a Path,
    /// Number of calls in the C program.
    calls: u64,
}

impl TracedRun<'_> {
    /// Runs the C program under a tracer, and returns the figures of the run. The duration spans
    /// from before the tracer starts until its files are complete.
    fn measure(&self, kind: TracerKind, program: &Path) -> Result<TracerFigures> {
        let trace = self.folder.join("trace");
        let calls = self.calls.to_string();
        let begin = Instant::now();
        let output = match kind {
            TracerKind::Plain => self.run_for_figures(CommandLine::program(program).args([&calls])),
            TracerKind::Ours(options) => {
                let run = CommandLine::program(self.binary)
                    .args(["trace", "record", "-o"])
                    .args([&trace]);
                let run = run.args(options.iter().copied()).args(["--force", "--"]).args([program]);
                self.run_for_figures(run.args([&calls]))
            }
            TracerKind::Uftrace(options) => {
                let run = CommandLine::new("uftrace record --no-libcall -d").args([&trace]);
                self.run_for_figures(
                    run.args(options.iter().copied()).args([program]).args([&calls]),
                )
            }
            TracerKind::Lttng => self.run_with_lttng(program, &trace),
        }?;
        let wall_ns = begin.elapsed().as_nanos() as f64;
        let bytes = bytes_of(&trace)? as f64;
        remove_if_present(&trace)?;
        let numbers = output.lines().find_map(|line| line.strip_prefix("CYCLES "));
        let numbers: Vec<f64> = numbers
            .into_iter()
            .flat_map(str::split_whitespace)
            .filter_map(|number| number.parse().ok())
            .collect();
        let [bare_cycles, traced_cycles] = numbers[..] else {
            bail!("the traced program printed {output:?} instead of a line CYCLES with two numbers")
        };
        Ok(TracerFigures { bare_cycles, traced_cycles, wall_ns, bytes })
    }

    /// Runs a command and returns its output. Returns an error if the output lacks the figures.
    fn run_for_figures(&self, run: CommandLine) -> Result<String> {
        // The loop's figures are the program's only output.
        let output = run.timeout(RUN_MAX).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !text.contains("CYCLES ") {
            bail!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(text)
    }

    /// Runs the C program in an LTTng session that writes to `trace`; returns the output.
    fn run_with_lttng(&self, program: &Path, trace: &Path) -> Result<String> {
        let lttng = |arguments: &str| {
            CommandLine::new(&format!("lttng --no-sessiond {arguments}")).timeout(RUN_MAX)
        };
        lttng("create handover-peers --output").args([trace]).capture_stdout()?;
        let ready = lttng(LTTNG_CHANNEL).capture_stdout().and_then(|_| {
            lttng("enable-event --userspace --channel=calls lttng_ust_cyg_profile_fast:*")
                .capture_stdout()?;
            lttng("start").capture_stdout()
        });
        let output = ready.and_then(|_| {
            let run = CommandLine::program(program).env("LD_PRELOAD", LTTNG_HOOKS);
            self.run_for_figures(run.args([self.calls.to_string()]))
        });
        // The session is destroyed even after an error.
        let destroyed = lttng("destroy handover-peers").capture_stdout();
        let output = output?;
        destroyed?;
        Ok(output)
    }
}

/// Returns the size of a file, or the total size of the files in a folder.
fn bytes_of(path: &Path) -> Result<u64> {
    let Ok(data) = std::fs::symlink_metadata(path) else { return Ok(0) };
    if !data.is_dir() {
        return Ok(data.len());
    }
    let mut bytes = 0;
    for entry in std::fs::read_dir(path)? {
        bytes += bytes_of(&entry?.path())?;
    }
    Ok(bytes)
}

fn remove_if_present(path: &Path) -> Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(data) if data.is_dir() => Ok(std::fs::remove_dir_all(path)?),
        Ok(_) => Ok(std::fs::remove_file(path)?),
        Err(_) => Ok(()),
    }
}

/// Returns the median over the runs of the figure that `read` returns.
fn median(runs: &[TracerFigures], read: fn(&TracerFigures) -> f64) -> f64 {
    let mut all: Vec<f64> = runs.iter().map(read).collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or_default()
}

fn format_table(tracers: &[&Tracer], all: &[Vec<TracerFigures>], calls: u64) -> String {
    let mut text = format!(
        "{:<20} {:<30} {:>12} {:>14} {:>10}\n",
        "traced by", "compiled with", "cycles above", "whole, ns", "bytes an"
    );
    text +=
        &format!("{:<20} {:<30} {:>12} {:>14} {:>10}\n", "", "", "a bare call", "a call", "event");
    let plain_ns = all.first().map_or(0.0, |measure| median(measure, |it| it.wall_ns));
    for (tracer, measure) in tracers.iter().zip(all) {
        let above = median(measure, |it| it.traced_cycles - it.bare_cycles);
        let whole_ns = (median(measure, |it| it.wall_ns) - plain_ns) / calls as f64;
        let bytes = median(measure, |it| it.bytes) / (2 * calls) as f64;
        text += &format!(
            "{:<20} {:<30} {above:>12.1} {whole_ns:>14.1} {bytes:>10.2}\n",
            tracer.name, tracer.flag
        );
    }
    text += "\nWhole: from the tracer's start to its complete files, less the untraced program. Fewer \
             bytes an event than\nusual: events were lost, or filtered.\n";
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_medians_above_the_untraced_run() {
        let measure = |traced_cycles: f64, wall_ns: f64| TracerFigures {
            bare_cycles: 1.0,
            traced_cycles,
            wall_ns,
            bytes: 800.0,
        };
        let all = [
            vec![measure(1.0, 100.0)],
            vec![measure(9.0, 1100.0), measure(51.0, 2100.0), measure(60.0, 9e9)],
        ];
        let text = format_table(&[&TRACERS[0], &TRACERS[1]], &all, 100);
        let row = text.lines().find(|line| line.starts_with("handover")).unwrap_or_default();
        let words: Vec<_> = row.split_whitespace().collect();
        assert_eq!(words, ["handover", PATCHABLE_OPTION, "50.0", "20.0", "4.00"]);
    }

    #[test]
    fn folder_size_is_measured_and_a_missing_folder_has_none() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let trace = folder.path().join("trace");
        assert_eq!(bytes_of(&trace)?, 0);
        remove_if_present(&trace)?;
        std::fs::create_dir_all(trace.join("within"))?;
        std::fs::write(trace.join("within/file"), "four")?;
        assert_eq!(bytes_of(&trace)?, 4);
        remove_if_present(&trace)?;
        assert!(!trace.exists());
        Ok(())
    }
}
