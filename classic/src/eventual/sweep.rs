//! `sweep-abt-eventual-bench`: runs the benchmark with several numbers of fibers and writes a file.

use super::{FIBERS_MAX, dat};
use anyhow::{Context, bail};
use clap::Args;
use handover_program::console::OptionalOutput;
use handover_program::exit::{interrupt_error, to_usage_error};
use handover_program::{child, console};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// Name of the benchmark program. It is added to a command that does not name it.
const PROGRAM: &str = "abt-eventual-bench";
/// Maximum number of points. At each, the benchmark runs with another number of fibers.
const POINTS_MAX: u64 = 10_000;
/// Maximum size of the output of one run, in bytes.
const PRINTED_BYTES_MAX: u64 = 1 << 20;

/// Runs abt-eventual-bench with one number of fibers after the other, and writes its lines to
/// sweep-abt-eventual-bench.PID.dat.
#[derive(Debug, Args)]
#[command(after_help = "COMMAND is the program, with its launcher if any, as in `mpiexec -n 1 \
build/abt-eventual-bench -d 2`; `-n FIBERS` is appended. If no word of COMMAND names an \
abt-eventual-bench, COMMAND is a launcher alone, as in `jsrun -r1 -n1 -a1`, and launches handover's. \
Without COMMAND, handover's is run.\n\n\
`--to 4850 --step 250` are the points of the original script. The points before an interrupt are kept.")]
pub struct Sweep {
    /// The first number of fibers
    #[arg(long, value_name = "FIBERS", default_value_t = 100)]
    #[arg(value_parser = crate::whole_number_parser(1..=FIBERS_MAX))]
    from: u64,
    /// The last number of fibers
    #[arg(long, value_name = "FIBERS", default_value_t = 1000)]
    #[arg(value_parser = crate::whole_number_parser(1..=FIBERS_MAX))]
    to: u64,
    /// Difference between two successive numbers of fibers
    #[arg(long, value_name = "FIBERS", default_value_t = 100)]
    #[arg(value_parser = crate::whole_number_parser(1..=FIBERS_MAX))]
    step: u64,
    /// The benchmark program, with its launcher if any
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

pub fn run(args: &Sweep, out: &mut dyn Write) -> anyhow::Result<()> {
    let points = fiber_counts(args)?;
    let command = complete_command(&args.command)?;
    let interrupted = console::interrupt_flag().context("cannot install the signal handlers")?;
    let name = format!("sweep-{PROGRAM}.{}.dat", std::process::id());
    let mut file =
        File::create(&name).with_context(|| format!("cannot write the results to {name}"))?;
    // The results are in the file.
    let mut out = OptionalOutput::new(out, true);
    let mut say = |line: &str| writeln!(out, "{line}").and_then(|()| out.flush());
    say(&format!("writing results to {name}"))?;
    let mut has_head = false;
    for (place, fibers) in points.into_iter().enumerate() {
        say(&format!("... running benchmark with {fibers} ULTs"))?;
        let printed = match measure(&command, fibers, &interrupted) {
            Ok(Some(printed)) => printed,
            ended => {
                let early_end = describe_early_end(place, &name)?;
                ended.with_context(|| {
                    format!("the benchmark with {fibers} ULTs failed ({early_end})")
                })?;
                say(&early_end)?;
                return Err(interrupt_error(false, place > 0));
            }
        };
        let lines = lines_to_write(&printed, &mut has_head);
        file.write_all(lines.as_bytes())
            .with_context(|| format!("cannot write the results to {name}"))?;
    }
    Ok(say(&format!("results are in {name}"))?)
}

/// Returns a message about the points that were measured before an early end. Names their file, or
/// deletes the file if there are none.
fn describe_early_end(points_count: usize, name: &str) -> anyhow::Result<String> {
    if points_count > 0 {
        return Ok(format!("the points measured before are in the file {name}"));
    }
    std::fs::remove_file(name).with_context(|| format!("cannot remove the file {name}"))?;
    Ok("no point was measured".to_string())
}

/// Returns the numbers of fibers to measure.
fn fiber_counts(args: &Sweep) -> anyhow::Result<Vec<u64>> {
    let Sweep { from, to, step, .. } = *args;
    if from > to {
        return Err(to_usage_error(format!("--from {from} is above --to {to}")));
    }
    let count = (to - from) / step + 1;
    if count > POINTS_MAX {
        return Err(to_usage_error(format!(
            "--step {step}: {count} points, above the maximum of {POINTS_MAX}; use a longer step"
        )));
    }
    Ok((0..count).map(|point| from + point * step).collect())
}

/// Appends this benchmark program to the requested command, unless the command names one.
fn complete_command(asked: &[OsString]) -> anyhow::Result<Vec<OsString>> {
    let mut words = asked.to_vec();
    let names_it = |word: &OsStr| {
        let name = Path::new(word).file_name();
        name.is_some_and(|name| name.to_string_lossy().contains(PROGRAM))
    };
    if !words.iter().any(|word| names_it(word)) {
        let own = std::env::current_exe().context("cannot find the path of this program")?;
        words.extend([own.into_os_string(), PROGRAM.into()]);
    }
    Ok(words)
}

/// Runs the benchmark with `fibers` fibers until it exits. Returns its output, or `None` if it was
/// interrupted.
fn measure(
    command: &[OsString],
    fibers: u64,
    interrupted: &AtomicBool,
) -> anyhow::Result<Option<String>> {
    let (program, words) =
        command.split_first().context("cannot run the benchmark: the command is empty")?;
    let program_name = program.to_string_lossy();
    // A file rather than a pipe: it takes any amount of output without a concurrent reader.
    let mut printed = tempfile::tempfile().with_context(|| {
        format!("cannot create a temporary file for the output of {program_name}")
    })?;
    let mut started = Command::new(program);
    started.args(words).arg("-n").arg(fibers.to_string());
    started.stdout(printed.try_clone()?);
    let ended = child::run(&mut started, interrupted).map_err(|error| {
        match error.downcast_ref::<io::Error>() {
            Some(refused) => to_usage_error(format!("{program_name}: {refused}")),
            None => error,
        }
    })?;
    // Relaxed: the flag publishes no other data.
    if interrupted.load(Ordering::Relaxed) {
        return Ok(None);
    }
    if !ended.status.success() {
        bail!("{program_name} failed: {}", ended.status);
    }
    printed.rewind()?;
    let mut text = Vec::new();
    printed.take(PRINTED_BYTES_MAX + 1).read_to_end(&mut text)?;
    let text = String::from_utf8(text)
        .with_context(|| format!("cannot read the output of {program_name} as UTF-8"))?;
    if text.len() as u64 > PRINTED_BYTES_MAX {
        bail!("{program_name} has printed more than {PRINTED_BYTES_MAX} bytes");
    }
    let mut rows = 0;
    for line in text.lines() {
        let row = dat::parse_row(line).map_err(anyhow::Error::msg);
        rows += usize::from(
            row.with_context(|| {
                format!("cannot parse the line {line:?} that {program_name} has printed")
            })?
            .is_some(),
        );
    }
    if rows == 0 {
        bail!("{program_name} has printed no row of figures");
    }
    Ok(Some(text))
}

/// Returns the printed lines to write to the file of results. Omits a column header that the
/// file already has.
fn lines_to_write(printed: &str, has_head: &mut bool) -> String {
    let mut kept = String::new();
    for line in printed.lines() {
        let is_head = line.starts_with("#<num_ults>");
        if !(is_head && *has_head) {
            kept.push_str(line);
            kept.push('\n');
        }
        *has_head |= is_head;
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(from: u64, to: u64, step: u64) -> Sweep {
        Sweep { from, to, step, command: Vec::new() }
    }

    #[test]
    fn default_points_match_the_original_script() {
        let points = fiber_counts(&args(100, 4850, 250)).expect("points");
        assert_eq!((points.len(), points[0], points[1], points[19]), (20, 100, 350, 4850));
    }

    #[test]
    fn zero_points_and_too_many_points_are_refused() {
        let refused = |args| fiber_counts(&args).expect_err("refused").to_string();
        assert!(refused(args(10, 9, 1)).contains("is above --to"));
        assert!(refused(args(1, 1_000_000, 1)).contains("longer step"));
    }

    #[test]
    fn launcher_alone_starts_this_program_and_a_full_command_is_unchanged() {
        let words = |text: &str| -> Vec<OsString> { text.split(' ').map(OsString::from).collect() };
        let words_run = complete_command(&words("mpiexec -n 1 perf/abt-eventual-bench -d 2"))
            .expect("build the command line");
        assert_eq!(words_run, words("mpiexec -n 1 perf/abt-eventual-bench -d 2"));
        let words_run =
            complete_command(&words("jsrun -r1 -n1 -a1")).expect("build the command line");
        assert_eq!(words_run[..4], words("jsrun -r1 -n1 -a1"));
        assert_eq!((words_run.len(), words_run[5].as_os_str()), (6, OsStr::new(PROGRAM)));
        assert_eq!(complete_command(&[]).expect("build the command line").len(), 2);
    }

    #[test]
    fn header_is_kept_once() {
        let mut has_head = false;
        let printed = "#<num_ults>\tx\n1\n#late\n";
        assert_eq!(lines_to_write(printed, &mut has_head), printed);
        assert_eq!(lines_to_write(printed, &mut has_head), "1\n#late\n");
    }
}
