//! `handover doctor`: sources of noise on this machine, and the commands that remove them.

use crate::app::parse_duration;
use clap::Args;
use handover_harness::doctor;
use handover_program::console;
use handover_record::{Finding, FindingLevel};
use serde_json::json;
use std::io::Write;
use std::time::Duration;

/// Maximum duration of the measurement of the CPUs' speed.
const TIME_MAX: Duration = Duration::from_secs(3600);
/// Duration of the measurement of the CPUs' speed before each run.
const TIME_BEFORE_RUN: Duration = Duration::from_millis(250);

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Duration of the measurement of the CPUs' speed, 0 to 1h (0: not measured)
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    #[arg(allow_hyphen_values = true)]
    time: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Parses a duration of at most [`TIME_MAX`].
fn parse_time(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        time if time <= TIME_MAX => Ok(time),
        time => Err(format!("{time:?} is too long: the maximum is 1h")),
    }
}

pub fn doctor(args: &DoctorArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let findings = doctor::examine_machine(args.time);
    if args.json {
        writeln!(out, "{}", json!({"schema": 1, "findings": findings}))?;
        return Ok(());
    }
    let widest = findings.iter().map(|it| it.code.len()).max().unwrap_or(0);
    for it in &findings {
        writeln!(out, "{:8}  {:widest$}  {}", it.level, it.code, it.found)?;
        if it.level == FindingLevel::Fine {
            continue;
        }
        for (word, text) in [("why", Some(&it.why)), ("fix", it.fix.as_ref())] {
            if let Some(text) = text {
                writeln!(out, "{:8}  {:widest$}  {word}: {text}", "", "")?;
            }
        }
    }
    let count = |level| findings.iter().filter(|it| it.level == level).count();
    let (disturbs, notes) = (count(FindingLevel::Disturbs), count(FindingLevel::Note));
    writeln!(out)?;
    match (disturbs, notes) {
        (0, 0) => writeln!(out, "No source of noise was found.")?,
        _ => writeln!(
            out,
            "{disturbs} of {} findings disturb measurements, {notes} are notes.",
            findings.len()
        )?,
    }
    Ok(())
}

/// Examines the machine before a run and returns the findings. Except before a smoke run, prints a
/// line if any finding disturbs measurements.
pub fn examine_before_run(is_smoke: bool) -> Vec<Finding> {
    let findings = doctor::examine_machine(if is_smoke { Duration::ZERO } else { TIME_BEFORE_RUN });
    let disturbing: Vec<&str> = findings
        .iter()
        .filter(|it| it.level == FindingLevel::Disturbs)
        .map(|it| &*it.code)
        .collect();
    if !disturbing.is_empty() && !is_smoke {
        console::print_error(format!(
            "this machine disturbs measurements ({}): see handover doctor",
            disturbing.join(", ")
        ));
    }
    findings
}
