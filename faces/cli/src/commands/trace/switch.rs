//! `handover trace on`, `off` and `list`: probes enabled and disabled from another process.

use super::{no_match_error, trace_error};
use crate::commands::run::check_writable;
use crate::exit::to_usage_error;
use anyhow::Context;
use clap::{Args, ValueEnum};
use handover_probe::other_process::Process;
use handover_probe::{Config, OtherProcessError, Site, SiteKind, matches};
use handover_program::console;
use handover_trace::{Traces, nearest_name};
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, Args)]
pub struct TraceOn {
    /// Id of the process whose probes are enabled
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: u32,
    /// Probes to enable: * and ?, commas for "or", - for "but not", as in 'lock.*,-lock.spin'
    #[arg(value_name = "PATTERN", allow_hyphen_values = true)]
    pub pattern: String,
    /// File to record into, if the process does not yet record [default: PID.trace]
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Policy for events that overflow the ring; a C program always uses `last`
    #[arg(long, value_name = "NAME", default_value = "stream")]
    pub policy: KeepPolicy,
    /// Maximum time for which a thread waits for space in its full ring
    #[arg(long, value_name = "MS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=3_600_000))]
    pub wait: u32,
}

/// Policies for events that overflow the ring of a recording.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum KeepPolicy {
    /// Keep all events: the process writes them to the file while it runs
    Stream,
    /// Keep each thread's newest events, in bounded memory
    Last,
}

#[derive(Debug, Args)]
pub struct TraceOff {
    /// Id of the process whose probes are disabled
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: u32,
    /// Probes to disable, in the syntax of `trace on`
    #[arg(value_name = "PATTERN", default_value = "*", allow_hyphen_values = true)]
    pub pattern: String,
}

#[derive(Debug, Args)]
pub struct TraceList {
    /// Process id, or trace file, whose probes are listed
    #[arg(value_name = "PID|FILE")]
    pub source: PathBuf,
    /// List only probes that match this pattern
    #[arg(value_name = "PATTERN", default_value = "*", allow_hyphen_values = true)]
    pub pattern: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

pub fn on(args: &TraceOn, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut process = Process::attach(args.pid).map_err(other_process_error)?;
    check_pattern(&args.pattern, process.sites())?;
    let path = match &args.output {
        Some(path) => path.clone(),
        None => format!("{}.trace", args.pid).into(),
    };
    let path = std::path::absolute(path).context("cannot find the working directory")?;
    check_writable(&path, "-o")?;
    let config = match args.policy {
        KeepPolicy::Stream => Config::stream(&path),
        KeepPolicy::Last => Config::last(&path),
    };
    let config = config.wait_max(Duration::from_millis(args.wait.into()));
    let count = process.enable(&args.pattern, &config).map_err(other_process_error)?;
    let pid = args.pid;
    writeln!(
        out,
        "{count} probes of process {pid} are on; it records to {} from its first event",
        path.display()
    )?;
    Ok(())
}

pub fn off(args: &TraceOff, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut process = Process::attach(args.pid).map_err(other_process_error)?;
    check_pattern(&args.pattern, process.sites())?;
    let count = process.disable(&args.pattern).map_err(other_process_error)?;
    let left = process.sites().iter().filter(|site| site.is_on).count();
    writeln!(out, "{count} probes of process {} are off; {left} are on", args.pid)?;
    Ok(())
}

pub fn list(args: &TraceList, out: &mut dyn Write) -> anyhow::Result<()> {
    let pid = args.source.to_str().and_then(|text| text.parse().ok());
    let sites: Vec<Site> = match pid.filter(|_| !args.source.exists()) {
        Some(pid) => Process::attach(pid).map_err(other_process_error)?.sites().to_vec(),
        None => sites_of_trace(&args.source)?,
    };
    check_pattern(&args.pattern, &sites)?;
    let is_process = pid.is_some();
    let chosen = sites.iter().filter(|site| matches(&args.pattern, &site.name));
    if args.json {
        let all: Vec<_> = chosen.map(|site| site_json(site, is_process)).collect();
        writeln!(out, "{}", json!({"schema": 1, "sites": all}))?;
        return Ok(());
    }
    let line_width = console::cut_width();
    let longest = sites.iter().map(|site| site.name.chars().count()).max().unwrap_or_default();
    let width = line_width.map_or(longest, |width| longest.min(width / 2));
    // A function inlined in many places has as many sites of one name and line.
    let mut counts: Vec<(&Site, usize)> = Vec::new();
    for site in chosen {
        let same = |it: &Site| {
            (it.is_on, it.kind, &it.name, &it.file, it.line)
                == (site.is_on, site.kind, &site.name, &site.file, site.line)
        };
        match counts.last_mut() {
            Some((last, count)) if same(last) => *count += 1,
            _ => counts.push((site, 1)),
        }
    }
    for (site, count) in counts {
        let times = if count > 1 { format!("  ({count} sites)") } else { String::new() };
        let state = match (is_process, site.is_on) {
            (false, _) => "",
            (true, true) => "on   ",
            (true, false) => "off  ",
        };
        let kind = if site.kind == SiteKind::Span { "span" } else { "mark" };
        let name = console::cut_line(&site.name, 0, width);
        let columns = format!("{state}{kind}  {name:width$}  ");
        let line = format!("{columns}{}:{}{times}", site.file, site.line);
        let column = columns.chars().count();
        let limit = line_width.unwrap_or(usize::MAX);
        writeln!(out, "{}", console::cut_line(&line, column, limit))?;
    }
    Ok(())
}

/// Returns a probe site as JSON. If `is_process`, this includes its state, on or off.
fn site_json(site: &Site, is_process: bool) -> serde_json::Value {
    let mut it = json!({
        "name": site.name, "kind": if site.kind == SiteKind::Span { "span" } else { "mark" },
        "file": site.file, "line": site.line, "values": site.values_count,
    });
    if is_process {
        it["on"] = site.is_on.into();
    }
    it
}

/// Returns the probe sites that a trace file lists.
fn sites_of_trace(path: &Path) -> anyhow::Result<Vec<Site>> {
    let traces = Traces::open_without_children([path]).map_err(trace_error)?;
    Ok(traces.as_slice().iter().flat_map(|trace| trace.sites().into_iter().cloned()).collect())
}

/// Returns a usage error if the pattern matches no probe.
fn check_pattern(pattern: &str, sites: &[Site]) -> anyhow::Result<()> {
    if sites.is_empty() || sites.iter().any(|site| matches(pattern, &site.name)) {
        return Ok(());
    }
    let names = sites.iter().map(|site| site.name.as_str());
    Err(no_match_error(pattern, nearest_name(pattern, names), "handover trace list PID"))
}

/// Converts an error of attaching to a process to a usage error if the process cannot be traced. It
/// may not exist, or have no probes or no recorder.
fn other_process_error(error: OtherProcessError) -> anyhow::Error {
    match error {
        OtherProcessError::NoProcess { .. }
        | OtherProcessError::NoSites { .. }
        | OtherProcessError::NoRecorder { .. }
        | OtherProcessError::Path { .. } => to_usage_error(error),
        other => other.into(),
    }
}
