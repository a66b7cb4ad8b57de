//! The client: generates the load and reports the results.

use super::document::{self, HistogramLog};
use super::live::LiveView;
use super::options::{EvhPerf, LoadMode, RateRamp};
use super::outcome::format_percentiles;
use super::parts::{self, OrderReceiver, Worker, WorkerProcess};
use super::printer::{Printer, format_micros, format_seconds, format_with_commas};
use super::stages::{LoadCosts, UsageBaseline, sum_usage, sum_usages, usage_since};
use super::{Signals, secret};
use crate::load::process::ProcessUsage;
use crate::load::{Event, Load, LoadAmount, LoadPlan, LoadReport, Progress};
use anyhow::{Context as _, bail};
use handover_base::units::format_ns;
use handover_program::exit::interrupt_error;
use serde_json::{Value, json};
use std::io::Write;
use std::time::{Duration, Instant};

/// Interval between printed progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(3);
/// Maximum wait for an event of the load before signals and progress are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Interval at which a worker process reports its progress to the main process.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);
/// First rate of a search for the highest rate, in messages a second.
const SEARCH_RATE_FIRST: f64 = 1000.0;
/// Upper limit of the rates of a search, in messages a second.
const SEARCH_RATE_MAX: f64 = 1e8;
/// Factor between successive rates at the start of a search. It applies until one rate has held the
/// latency bounds, and another has exceeded one.
const SEARCH_STRIDE: f64 = 4.0;
/// Ratio of the lowest failing rate to the highest passing rate at which a search stops. A rate
/// fails if it is not reached or exceeds a latency bound.
const SEARCH_PRECISION: f64 = 1.05;
/// Number of measured messages for each unsent message that is tolerated. The messages of
/// [`UNSENT_S`] are tolerated in addition.
const UNSENT_DIVISOR: u64 = 100;
/// Duration in seconds whose messages may remain unsent without failing the rate.
/// [`UNSENT_DIVISOR`] allows further unsent messages.
const UNSENT_S: f64 = 0.01;

/// Returns the client's settings to print, as names and values.
fn settings(args: &EvhPerf) -> Vec<(&'static str, String)> {
    let mut settings = vec![
        ("clients", format_with_commas(args.clients())),
        ("count", format_with_commas(args.count())),
        ("debug", args.debug.to_string()),
        ("histo", args.histo.to_string()),
        ("histo_delta_micros", format_with_commas(histogram_bucket_micros(args))),
        ("host", args.host.clone()),
        ("iterations", format_with_commas(args.itt.unwrap_or(1))),
        ("max", format_with_commas(args.max())),
        ("max_handles_per_thread", format_with_commas(args.max_handles_setting())),
        ("min", format_with_commas(args.min())),
        ("port", args.port.to_string()),
        ("read_slab_count", format_with_commas(args.read_slab_count)),
        ("reconns", format_with_commas(args.reconns.unwrap_or(1))),
        ("sleep", format_with_commas(args.sleep.unwrap_or(0))),
        ("stats", args.stats.to_string()),
        ("threads", format_with_commas(args.threads)),
    ];
    if args.tls {
        settings.push(("tls", args.tls.to_string()));
    }
    // Settings that the classic program does not have come last, and only if given.
    if let Some(each) = args.load_duration() {
        settings.push(("duration", format!("{} s", each.as_secs_f64())));
        settings.push(("warm-up", format!("{} s", args.warm_up(each).as_secs_f64())));
    }
    settings.extend(args.ramp.map(|ramp| ("ramp", ramp.to_string())));
    settings.extend(args.depth.map(|depth| ("depth", format_with_commas(depth))));
    settings.extend(args.rate.map(|rate| ("rate", format_with_commas(rate as u64))));
    settings.extend(args.slo.as_ref().map(|slo| ("slo", slo.text.clone())));
    if args.processes > 1 {
        settings.push(("processes", args.processes.to_string()));
    }
    settings
}

/// Returns the width of the buckets of the printed histogram, in µs.
fn histogram_bucket_micros(args: &EvhPerf) -> u64 {
    args.histo_delta_micros.unwrap_or(10)
}

/// Returns the amount of the load: a duration, or numbers of messages. A ramp or a search sets it
/// for each rate.
fn load_amount(args: &EvhPerf) -> LoadAmount {
    match args.mode() {
        LoadMode::Timed { duration, rate } => timed_load(args, duration, rate),
        _ => LoadAmount::Counted {
            count: args.count(),
            iterations: args.itt.unwrap_or(1),
            reconns: args.reconns.unwrap_or(1),
            pause: Duration::from_millis(args.sleep.unwrap_or(0)),
        },
    }
}

/// Returns the amount of a load with the given measured duration.
fn timed_load(args: &EvhPerf, duration: Duration, rate: Option<f64>) -> LoadAmount {
    LoadAmount::Timed { warm_up: args.warm_up(duration), duration, rate }
}

/// Returns the validated plan of a load of the amount `work`.
fn plan(args: &EvhPerf, work: LoadAmount) -> anyhow::Result<LoadPlan> {
    let all = match work {
        // In a closed loop, the count bounds the messages under way.
        LoadAmount::Timed { rate: None, .. } => args.count(),
        _ => u64::MAX,
    };
    let step = Duration::from_micros(histogram_bucket_micros(args));
    let plan = LoadPlan {
        // The options' parsers bound these values.
        threads_count: args.threads as u32,
        clients_count: args.clients() as u32,
        work,
        depth: args.depth.unwrap_or(all),
        letters_min: args.min() as u32,
        letters_max: args.max() as u32,
        read_bytes: args.read_bytes(),
        timeout: args.timeout,
        linear_bucket: args.histo.then_some(step),
        salt: args.part.unwrap_or(0),
        ..LoadPlan::new(args.address()?)
    };
    plan.validate().map_err(handover_program::exit::to_usage_error)?;
    Ok(plan)
}

/// Reporter of a load's progress: prints lines every 3 s, and draws the live view.
struct ProgressReporter {
    began: Instant,
    /// Time of the last printed report.
    last_printed_at: Instant,
    /// Progress in the last printed report.
    last_printed: Progress,
    /// Expected number of messages; `None` for a timed load.
    expected_count: Option<u64>,
    /// Expected duration; zero if the load ends after a number of messages.
    expected_duration: Duration,
    view: LiveView,
    /// Progress when the live view was last drawn.
    last_drawn: Progress,
}

impl ProgressReporter {
    fn new(plan: &LoadPlan, processes: u64) -> Self {
        let whole = match plan.work {
            LoadAmount::Timed { warm_up, duration, .. } => warm_up + duration,
            LoadAmount::Counted { .. } => Duration::ZERO,
        };
        let total = plan.total_count().map(|total| total.saturating_mul(processes));
        let now = Instant::now();
        Self {
            began: now,
            last_printed_at: now,
            last_printed: Progress::default(),
            expected_count: total,
            expected_duration: whole,
            view: LiveView::new(),
            last_drawn: Progress::default(),
        }
    }

    /// Draws the live view if its interval has passed.
    fn draw_if_due(&mut self, so_far: Progress) {
        let Some(since) = self.view.take_time_since_update() else { return };
        let fresh = so_far.received_count.saturating_sub(self.last_drawn.received_count);
        let latency_ns = so_far.latency_ns.wrapping_sub(self.last_drawn.latency_ns);
        let rate = fresh as f64 / since.as_secs_f64();
        let mean_ns = latency_ns as f64 / fresh.max(1) as f64;
        let (latency, open) = (format_ns(mean_ns), so_far.open_count);
        self.view.update(&[
            (rate, format!("{} messages/s", format_with_commas(rate as u64))),
            (mean_ns, format!("{latency} mean latency")),
            (open as f64, format!("{} connections", format_with_commas(open))),
        ]);
        self.last_drawn = so_far;
    }

    /// Draws the live view and prints the progress, each if its interval has passed.
    fn update_and_print(
        &mut self,
        so_far: Progress,
        printer: &mut Printer<'_>,
    ) -> std::io::Result<()> {
        self.draw_if_due(so_far);
        let now = Instant::now();
        if now - self.last_printed_at < PROGRESS_INTERVAL {
            return Ok(());
        }
        self.view.print_above(|| self.print_progress_lines(now, so_far, printer))?;
        self.last_printed = so_far;
        self.last_printed_at += PROGRESS_INTERVAL;
        Ok(())
    }

    /// Prints the lines of a progress report in the classic program's format.
    fn print_progress_lines(
        &self,
        now: Instant,
        so_far: Progress,
        printer: &mut Printer<'_>,
    ) -> std::io::Result<()> {
        let (since, elapsed) = (now - self.last_printed_at, now - self.began);
        let received = so_far.received_count;
        printer.print_rule()?;
        match self.expected_count {
            Some(total) => printer.print_info(format_args!(
                "{} of {} messages received. [{:.2}% complete]",
                format_with_commas(received),
                format_with_commas(total),
                received as f64 * 100.0 / total as f64
            ))?,
            None => printer.print_info(format_args!(
                "{} messages received. [{:.2}% complete]",
                format_with_commas(received),
                (elapsed.as_secs_f64() * 100.0 / self.expected_duration.as_secs_f64()).min(100.0)
            ))?,
        }
        let fresh = received - self.last_printed.received_count;
        let latency_ns = so_far.latency_ns.wrapping_sub(self.last_printed.latency_ns);
        let lines = [
            ("incremental", fresh, since, latency_ns),
            ("total", received, elapsed, so_far.latency_ns),
        ];
        for (name, count, time, latency_ns) in lines {
            let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            let rate = count as f64 / time.as_secs_f64();
            printer.print_info(format_args!(
                "{name}_messages=[{}],elapsed_time=[{}]",
                format_with_commas(count),
                format_seconds(time_ns)
            ))?;
            printer.print_info(format_args!(
                "{name}_mps=[{}],{name}_avg_latency=[{}]",
                format_with_commas(rate.round() as u64),
                format_micros(latency_ns as f64 / count.max(1) as f64)
            ))?;
        }
        printer.flush()
    }
}

/// Runs one load to completion; returns its report and costs.
fn run_load(
    args: &EvhPerf,
    plan: &LoadPlan,
    signals: &Signals,
    printer: &mut Printer<'_>,
    is_alone: bool,
) -> anyhow::Result<(LoadReport, LoadCosts)> {
    let watch = UsageBaseline::start(vec![std::process::id()], plan.address);
    let began = Instant::now();
    let load = Load::start(plan, secret::client_tls(args)?)?;
    if is_alone {
        printer
            .print_info(format_args!("Client started in {} ms.", began.elapsed().as_millis()))?;
        printer.flush()?;
    }
    let mut ticker = ProgressReporter::new(plan, 1);
    loop {
        let is_finished = load.is_finished();
        let mut within = if is_finished { Duration::ZERO } else { CHECK_INTERVAL };
        while let Some(event) = load.wait_for_event(within) {
            within = Duration::ZERO;
            ticker.view.print_above(|| match event {
                Event::Pausing(pause) => {
                    printer.print_info(format_args!("sleeping for {} ms.", pause.as_millis()))
                }
                Event::Failed(fault) if args.debug => printer.print_debug(format_args!("{fault}")),
                Event::Connected { count } if args.debug => {
                    printer.print_debug(format_args!("{count} connected"))
                }
                _ => Ok(()),
            })?;
        }
        // Also after the load: this thread may have been late for a report that was due during it.
        match is_alone {
            true => ticker.update_and_print(load.progress(), printer)?,
            false => ticker.draw_if_due(load.progress()),
        }
        if is_finished {
            break;
        }
        if signals.is_any_received() {
            load.stop();
        }
    }
    let costs = watch.costs_since_start();
    drop(ticker);
    Ok((load.finish()?, costs))
}

pub fn run(args: &EvhPerf, signals: &Signals, out: &mut dyn Write) -> anyhow::Result<()> {
    let first = plan(args, load_amount(args))?;
    // Certificate files are checked before anything is printed, and before the log is created.
    secret::client_tls(args)?;
    let log = HistogramLog::new(args)?;
    let mut printer = Printer::new(out, args.json);
    printer.print_settings("Client", &settings(args))?;
    let (loads, more) = match args.mode() {
        LoadMode::RateRamp { ramp, each } => run_ramp(args, ramp, each, signals, &mut printer)?,
        LoadMode::Search { each } => search_highest_rate(args, each, signals, &mut printer)?,
        LoadMode::Counted | LoadMode::Timed { .. } => {
            let load = run_load(args, &first, signals, &mut printer, true)?;
            (vec![load], json!({}))
        }
    };
    report_results(args, loads, more, signals, printer, log)
}

/// Writes the log of histograms, then prints the results and warnings of all loads. Returns an
/// error for missing messages, an exceeded bound or an interrupt.
fn report_results(
    args: &EvhPerf,
    loads: Vec<(LoadReport, LoadCosts)>,
    more: Value,
    signals: &Signals,
    mut printer: Printer<'_>,
    log: Option<HistogramLog>,
) -> anyhow::Result<()> {
    // An interrupted start keeps an existing log.
    let is_measured = loads.iter().any(|(outcome, _)| outcome.latencies.count() > 0);
    let log = log.filter(|_| is_measured || !signals.is_any_received());
    // Before the results are printed: a failure to print must not lose the file.
    let logged = log.map(|log| log.write(loads.iter().map(|(outcome, _)| outcome)));
    let is_alone = matches!(args.mode(), LoadMode::Counted | LoadMode::Timed { .. });
    let mut warnings = Vec::new();
    if args.tls && args.ca.is_none() {
        let unverified = "The server's certificate is not verified: give --ca FILE to verify it.";
        warnings.push(unverified.to_string());
    }
    let mut failed = Vec::new();
    for (outcome, costs) in &loads {
        if is_alone {
            outcome.print_result(&mut printer)?;
            outcome.print_histogram(&mut printer)?;
            outcome.print_percentiles(&mut printer)?;
            costs.print(&mut printer)?;
            warnings.extend(costs.bottleneck_warning(args, outcome));
        }
        failed.extend(outcome.describe_missing());
        if outcome.unsent_count > 0 && is_alone {
            let unsent = format_with_commas(outcome.unsent_count);
            warnings.push(format!(
                "{unsent} messages were due, but were not sent before the end of the measured time"
            ));
        }
    }
    if let (true, Some(slo)) = (is_alone, &args.slo) {
        let misses = loads.iter().flat_map(|(outcome, _)| outcome.describe_exceeded_bounds(slo));
        failed.extend(misses.map(|exceeded_bound| format!("--slo is missed: {exceeded_bound}")));
    }
    for warning in &warnings {
        printer.print_warn(format_args!("{warning}"))?;
    }
    printer.flush()?;
    if args.json {
        let documents = loads.iter().map(|(outcome, costs)| document::load_to_json(outcome, costs));
        let whole = document::to_json(args, documents.collect(), more.clone(), &warnings);
        printer.print_document(&whole)?;
        printer.flush()?;
    }
    logged.transpose()?;
    match failed.first() {
        _ if signals.is_any_received() => {
            Err(interrupt_error(is_measured, is_measured && args.hdr.is_some()))
        }
        Some(why) => bail!("{why}"),
        None if more["holds"].as_bool() == Some(false) => {
            bail!("--slo: no measured rate was reached within the latency bounds")
        }
        None => Ok(()),
    }
}

/// Runs a load at one rate. Returns its report and costs, and `true` if the rate was reached within
/// the latency bounds.
fn try_rate(
    args: &EvhPerf,
    rate: f64,
    each: Duration,
    signals: &Signals,
    printer: &mut Printer<'_>,
) -> anyhow::Result<((LoadReport, LoadCosts), bool)> {
    let plan = plan(args, timed_load(args, each, Some(rate)))?;
    let load = run_load(args, &plan, signals, printer, false)?;
    let outcome = &load.0;
    let misses =
        args.slo.as_ref().map(|slo| outcome.describe_exceeded_bounds(slo)).unwrap_or_default();
    let unsent_max = outcome.latencies.count() / UNSENT_DIVISOR + (rate * UNSENT_S) as u64;
    let is_reached = outcome.unsent_count <= unsent_max;
    // If no message was received in time, the rate has no latencies to judge.
    let has_latencies = outcome.latencies.count() > 0;
    let is_whole = outcome.is_complete() && !outcome.is_stopped;
    let holds = has_latencies && is_whole && is_reached && misses.is_empty();
    let verdict = match (&args.slo, holds) {
        _ if outcome.is_stopped => ": interrupted".to_string(),
        (None, _) => String::new(),
        (Some(_), true) => ": holds".to_string(),
        (Some(_), false) => match misses.first() {
            _ if !has_latencies => ": no message in that time".to_string(),
            Some(miss) => format!(": {miss}"),
            None => ": is not reached".to_string(),
        },
    };
    printer.print_info(format_args!(
        "rate=[{}],messages_per_second=[{}],{}{verdict}",
        format_with_commas(rate as u64),
        format_with_commas(outcome.per_second() as u64),
        format_percentiles(outcome.judged_latencies())
    ))?;
    printer.flush()?;
    Ok((load, holds))
}

/// Reports and costs of loads, and fields to add to the JSON document.
type LoadResults = (Vec<(LoadReport, LoadCosts)>, Value);

/// Runs the loads of a ramp, one rate after another; returns the reports and costs of the loads.
fn run_ramp(
    args: &EvhPerf,
    ramp: RateRamp,
    each: Duration,
    signals: &Signals,
    printer: &mut Printer<'_>,
) -> anyhow::Result<LoadResults> {
    let mut loads = Vec::new();
    let mut highest = None;
    for rate in ramp.rates() {
        let (load, holds) = try_rate(args, rate, each, signals, printer)?;
        highest = if holds { Some(rate) } else { highest };
        loads.push(load);
        if signals.is_any_received() {
            break;
        }
    }
    let summary = report_highest_rate(args, highest, &loads, printer)?;
    Ok((loads, summary))
}

/// Searches for the highest rate that is reached within the latency bounds.
fn search_highest_rate(
    args: &EvhPerf,
    each: Duration,
    signals: &Signals,
    printer: &mut Printer<'_>,
) -> anyhow::Result<LoadResults> {
    let mut loads = Vec::new();
    let (mut low, mut high) = (None, None);
    let mut rate = SEARCH_RATE_FIRST;
    while rate <= SEARCH_RATE_MAX {
        let (mut load, mut holds) = try_rate(args, rate, each, signals, printer)?;
        if !holds && !signals.is_any_received() {
            // A second attempt: another process may have disturbed the first.
            (load, holds) = try_rate(args, rate, each, signals, printer)?;
        }
        let is_complete = load.0.is_complete();
        loads.push(load);
        if signals.is_any_received() || !is_complete {
            break;
        }
        if holds {
            low = Some(rate)
        } else {
            high = Some(rate)
        }
        rate = match (low, high) {
            (Some(low), None) => low * SEARCH_STRIDE,
            (None, Some(high)) if high < 10.0 => break,
            (None, Some(high)) => high / SEARCH_STRIDE,
            (Some(low), Some(high)) if high / low <= SEARCH_PRECISION => break,
            (Some(low), Some(high)) => (low * high).sqrt(),
            (None, None) => break,
        };
    }
    let summary = report_highest_rate(args, low, &loads, printer)?;
    Ok((loads, summary))
}

/// Prints the highest rate that was reached within the latency bounds, and returns it as JSON.
/// Prints nothing, and returns an empty object, without bounds and if every load was interrupted.
fn report_highest_rate(
    args: &EvhPerf,
    highest: Option<f64>,
    loads: &[(LoadReport, LoadCosts)],
    printer: &mut Printer<'_>,
) -> anyhow::Result<Value> {
    let Some(slo) = &args.slo else { return Ok(json!({})) };
    if loads.iter().all(|(outcome, _)| outcome.is_stopped) {
        return Ok(json!({}));
    }
    printer.print_rule()?;
    match highest {
        Some(rate) => printer.print_info(format_args!(
            "the highest rate that holds {}: {} messages a second",
            slo.text,
            format_with_commas(rate as u64)
        ))?,
        None => printer.print_error(format_args!("no rate that was tried holds {}", slo.text))?,
    }
    Ok(json!({ "holds": highest.is_some(), "highest_rate": highest }))
}

/// Runs as one of several client processes. On the main process's order, generates its share of the
/// load and reports on it.
pub fn run_as_worker(args: &EvhPerf) -> anyhow::Result<()> {
    let mut args = args.clone();
    // Each process has as many threads and clients as requested; the rate is divided.
    args.rate = args.rate.map(|rate| rate / args.processes as f64);
    let plan = plan(&args, load_amount(&args))?;
    let mut orders = OrderReceiver::new()?;
    parts::write_line(&json!({ "ready": true }))?;
    if orders.next_order().is_none() {
        return Ok(());
    }
    let own = [std::process::id()];
    let usage_before = sum_usage(&own);
    let load = Load::start(&plan, secret::client_tls(&args)?)?;
    while !load.is_finished() {
        if orders.is_closed_within(REPORT_INTERVAL) {
            load.stop();
            break;
        }
        parts::write_line(&json!({ "progress": load.progress() }))?;
    }
    let usage = usage_since(&own, usage_before);
    parts::write_line(&json!({ "outcome": load.finish()?, "usage": usage }))?;
    orders.wait_until_closed();
    Ok(())
}

/// Generates the load with several processes.
pub fn run_in_processes(
    args: &EvhPerf,
    signals: &Signals,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    run_workers(args, signals, out, || {
        let start = |index| Ok(Box::new(WorkerProcess::start(index, &[])?) as Box<dyn Worker>);
        (0..args.processes).map(start).collect()
    })
}

/// Generates the load by the workers that `start` returns, `--processes` of them.
pub fn run_workers<'a>(
    args: &EvhPerf,
    signals: &Signals,
    out: &mut dyn Write,
    start: impl FnOnce() -> anyhow::Result<Vec<Box<dyn Worker + 'a>>>,
) -> anyhow::Result<()> {
    let soon = Duration::from_secs(20);
    let plan = plan(args, load_amount(args))?;
    secret::client_tls(args)?;
    let log = HistogramLog::new(args)?;
    let mut printer = Printer::new(out, args.json);
    printer.print_settings("Client", &settings(args))?;
    let began = Instant::now();
    let mut parts = start()?;
    for part in &mut parts {
        part.expect_line(soon)?;
    }
    let is_distributed = !parts.iter().all(|part| part.is_on_this_host());
    // The client's processes report their own usage.
    let watch = UsageBaseline::start(Vec::new(), plan.address);
    for part in &mut parts {
        part.send_order("go")?;
    }
    printer.print_info(format_args!("Client started in {} ms.", began.elapsed().as_millis()))?;
    printer.flush()?;
    let mut ticker = ProgressReporter::new(&plan, args.processes);
    let mut so_far = vec![Progress::default(); parts.len()];
    let mut outcomes: Vec<Option<LoadReport>> = parts.iter().map(|_| None).collect();
    let (mut costs, mut usages) = (None, Vec::<Option<ProcessUsage>>::new());
    while outcomes.iter().any(Option::is_none) {
        for ((part, so_far), outcome) in parts.iter_mut().zip(&mut so_far).zip(&mut outcomes) {
            while outcome.is_none()
                && let Some(mut line) = part.next_line(Duration::from_millis(1))?
            {
                match line["progress"].take() {
                    Value::Null => {
                        *outcome = Some(serde_json::from_value(line["outcome"].take())?);
                        usages.push(serde_json::from_value(line["usage"].take())?);
                    }
                    progress => *so_far = serde_json::from_value(progress)?,
                }
            }
        }
        if signals.is_any_received() {
            parts.iter_mut().for_each(|part| part.stop());
        }
        if outcomes.iter().all(Option::is_some) {
            costs = Some(watch.costs_since_start());
        }
        let sum = so_far.iter().copied().fold(Progress::default(), Progress::plus);
        ticker.update_and_print(sum, &mut printer)?;
    }
    let mut outcomes = outcomes.into_iter().flatten();
    let mut sum = outcomes
        .next()
        .context("cannot merge the results of the worker processes: none has reported a result")?;
    outcomes.for_each(|outcome| sum.add(&outcome));
    let costs = costs.unwrap_or_else(|| watch.costs_since_start());
    let costs = costs.with_client(sum_usages(usages), is_distributed);
    drop(ticker);
    report_results(args, vec![(sum, costs)], json!({}), signals, printer, log)
}
