//! `handover time`: the times of whole commands, each run once a round, in random order.

use super::align_columns;
use crate::exit::{
    Interrupted, InterruptedBeforeResults, InterruptedUnstored, check_interrupt, join_results,
    start_error, to_usage_error,
};
use anyhow::{Context, bail};
use clap::Args;
use handover_base::random::SplitMix64;
use handover_base::units::format_ns;
use handover_base::usage::{Usage, children_usage};
use handover_harness::stats::{MedianEstimate, median, median_over_passes};
use handover_program::{child, console};
use serde_json::json;
use std::ffi::OsString;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Arguments of `handover time`.
#[derive(Debug, Args)]
#[command(
    after_help = "Each round runs every command once, in random order, so that a slower period of the machine affects all \
of them. The time is that from the start of the process to its end; no shell is started for it. A ratio is the median \
over rounds of the ratios within a round.\n\n\
    handover time --prepare 'rm -rf cache' --versus 'new/prog --fast' -- old/prog --fast"
)]
pub struct TimeArgs {
    /// Number of rounds; an interval needs six
    #[arg(long, value_name = "COUNT", default_value = "10")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    runs: u32,
    /// Number of warm-up rounds, whose times do not count
    #[arg(long, value_name = "COUNT", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=1000))]
    warm_up: u32,
    /// Shell command to run before each timed command; its time is not counted
    #[arg(long, value_name = "LINE")]
    prepare: Option<String>,
    /// Another command to time in each round, with arguments quoted as in a shell; may be repeated
    #[arg(long, value_name = "LINE")]
    versus: Vec<String>,
    /// Show the output of the commands instead of discarding it
    #[arg(long)]
    show_output: bool,
    /// Count runs that exit with an error
    #[arg(long)]
    ignore_failure: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Command to time, with its arguments
    #[arg(value_name = "CMD", last = true, required = true)]
    command: Vec<OsString>,
}

/// Command to time, and its measured times.
struct TimedCommand {
    /// Program and arguments.
    words: Vec<OsString>,
    /// Elapsed time of each counted run.
    wall_ns: Vec<f64>,
    /// User CPU time of each counted run.
    user_ns: Vec<f64>,
    /// System CPU time of each counted run.
    system_ns: Vec<f64>,
}

/// Runs every command once in each round, in random order. Prints the commands' wall and CPU times
/// and the ratios; after an interrupt or a failure, those of the completed runs.
pub fn time(args: &TimeArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut commands = vec![TimedCommand::new(args.command.clone())];
    for line in &args.versus {
        let words = shlex::split(line).filter(|words| !words.is_empty()).ok_or_else(|| {
            to_usage_error(format!(
                "--versus {line}: the command is empty or has an unclosed quote"
            ))
        })?;
        commands.push(TimedCommand::new(words.into_iter().map(OsString::from).collect()));
    }
    let measured = run_rounds(args, &mut commands);
    if commands.iter().any(|command| command.wall_ns.is_empty()) {
        return Err(match measured {
            Err(error) if !error.is::<Interrupted>() => error,
            _ => InterruptedBeforeResults.into(),
        });
    }
    let ratios: Vec<MedianEstimate> =
        commands.iter().map(|command| command.ratio_to(&commands[0])).collect();
    let shown = match args.json {
        true => print_json(&commands, &ratios, out),
        false => print_table(&commands, &ratios, out),
    };
    let measured = measured.map_err(|error| match error.is::<Interrupted>() {
        true => InterruptedUnstored.into(),
        false => error,
    });
    join_results(measured, shown)
}

/// Runs all rounds, and records the times of those after the warm-up.
fn run_rounds(args: &TimeArgs, commands: &mut [TimedCommand]) -> anyhow::Result<()> {
    let interrupted = console::interrupt_flag().context("cannot install the signal handlers")?;
    let mut random = SplitMix64::new(u64::from(std::process::id()));
    let mut order: Vec<usize> = (0..commands.len()).collect();
    for round in 0..args.warm_up + args.runs {
        random.shuffle(&mut order);
        for place in &order {
            run_preparation(args, &interrupted)?;
            commands[*place].run(args, &interrupted, round >= args.warm_up)?;
        }
    }
    Ok(())
}

/// Runs the shell command of `--prepare`, if given.
fn run_preparation(args: &TimeArgs, interrupted: &AtomicBool) -> anyhow::Result<()> {
    let Some(line) = &args.prepare else { return Ok(()) };
    let mut command = Command::new("sh");
    command.arg("-c").arg(line).stdout(Stdio::null());
    let status = child::run(&mut command, interrupted)?.status;
    check_interrupt(interrupted)?;
    if !status.success() {
        bail!("--prepare {line}: the command failed with {status}");
    }
    Ok(())
}

impl TimedCommand {
    fn new(words: Vec<OsString>) -> TimedCommand {
        TimedCommand { words, wall_ns: vec![], user_ns: vec![], system_ns: vec![] }
    }

    /// Runs the command once, and records its times if `is_counted`.
    fn run(
        &mut self,
        args: &TimeArgs,
        interrupted: &AtomicBool,
        is_counted: bool,
    ) -> anyhow::Result<()> {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        if !args.show_output {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
        let before = children_usage();
        let began = Instant::now();
        let status = child::run(&mut command, interrupted).map_err(start_error)?.status;
        let wall = began.elapsed();
        check_interrupt(interrupted)?;
        if !status.success() && !args.ignore_failure {
            bail!(
                "{} failed with {status}; --show-output shows its messages, --ignore-failure counts the run",
                self.line()
            );
        }
        if is_counted {
            let Usage { user_ns, system_ns, .. } = children_usage() - before;
            self.wall_ns.push(wall.as_nanos() as f64);
            self.user_ns.push(user_ns as f64);
            self.system_ns.push(system_ns as f64);
        }
        Ok(())
    }

    /// Returns the command as one line, with control characters escaped.
    fn line(&self) -> String {
        let words: Vec<_> = self.words.iter().map(|word| word.to_string_lossy()).collect();
        console::escape_control_characters(&words.join(" "))
    }

    /// Returns the ratio of the wall times of this command and `other`: the median over the rounds.
    fn ratio_to(&self, other: &TimedCommand) -> MedianEstimate {
        let ratios = self.wall_ns.iter().zip(&other.wall_ns).map(|(own, other)| own / other);
        median_over_passes(&ratios.collect::<Vec<f64>>())
    }
}

fn print_table(
    commands: &[TimedCommand],
    ratios: &[MedianEstimate],
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let head = ["median", "± 95 %", "min", "max", "user", "system", "× first", "command"];
    let mut rows = vec![head.map(str::to_string)];
    for (command, ratio) in commands.iter().zip(ratios) {
        let figure = median_over_passes(&command.wall_ns);
        let shown = |values: &[f64], pick: fn(f64, f64) -> f64| {
            format_ns(values.iter().copied().reduce(pick).unwrap_or(0.0))
        };
        let interval =
            figure.half_width().map_or("–".to_string(), |it| format!("{:.1} %", it * 100.0));
        rows.push([
            format_ns(figure.median),
            interval,
            shown(&command.wall_ns, f64::min),
            shown(&command.wall_ns, f64::max),
            format_ns(median(&command.user_ns)),
            format_ns(median(&command.system_ns)),
            if commands.len() > 1 { format!("{:.3}", ratio.median) } else { String::new() },
            command.line(),
        ]);
    }
    let table = align_columns(&rows, &[]);
    out.write_all(console::cut_tables(&table, console::cut_width()).as_bytes())?;
    for (command, ratio) in commands.iter().zip(ratios).skip(1) {
        let Some((low, high)) = ratio.interval else {
            writeln!(out, "\nToo few rounds for a verdict; it needs six.")?;
            break;
        };
        let verdict = match (low > 1.0, high < 1.0) {
            (true, _) => "slower than the first",
            (_, true) => "faster than the first",
            _ => "not seen to differ from the first",
        };
        writeln!(out, "\n{}: {verdict}, ratio {low:.3} to {high:.3} (95 %)", command.line())?;
    }
    Ok(())
}

fn print_json(
    commands: &[TimedCommand],
    ratios: &[MedianEstimate],
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let one = |(command, ratio): (&TimedCommand, &MedianEstimate)| {
        let figure = median_over_passes(&command.wall_ns);
        let words: Vec<_> = command.words.iter().map(|word| word.to_string_lossy()).collect();
        json!({
            "command": words, "wall_ns": command.wall_ns, "user_ns": command.user_ns,
            "system_ns": command.system_ns, "median_ns": figure.median,
            "interval_ns": figure.interval, "ratio_to_first": ratio.median,
            "ratio_interval": ratio.interval,
        })
    };
    let all: Vec<_> = commands.iter().zip(ratios).map(one).collect();
    Ok(writeln!(out, "{}", json!({"schema": 1, "commands": all}))?)
}
