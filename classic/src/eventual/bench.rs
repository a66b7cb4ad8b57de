//! `abt-eventual-bench`: the rate at which concurrent eventuals are made, waited for, set and
//! freed.

use super::{FIBERS_MAX, SECONDS_MAX};
use anyhow::Context;
use clap::Args;
use handover_base::topology;
use handover_program::console;
use handover_program::exit::InterruptedUnstored;
use handover_suite::fiber::{EventualsLoad, EventualsMeasurement, run_eventuals};
use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

const WORKERS_MAX: u64 = 1024;

/// Rate at which concurrent eventuals are made, waited for, set and freed. Each fiber, in a loop,
/// makes an eventual and starts a detached fiber that sleeps and then sets it.
#[derive(Debug, Args)]
#[command(
    after_help = "Prints two lines of tab-separated columns: the fibers, seconds and milliseconds asked \
for, eventuals a second, and the user CPU time in seconds. Then, as comments, the time by which a fiber's \
turn was longer than its sleep (of up to 16 fibers), the percentage of the ideal rate, the system CPU time, \
and the numbers of switches and sleeps.\n\n\
The ideal rate is FIBERS * 1000 / MSEC eventuals a second, at no CPU time."
)]
pub struct Bench {
    /// Duration in seconds
    #[arg(short = 'd', value_name = "SECONDS", default_value_t = 5)]
    #[arg(value_parser = crate::whole_number_parser(1..=SECONDS_MAX))]
    seconds: u64,
    /// Duration of each sleep in milliseconds, with or without a fraction
    #[arg(short = 'i', value_name = "MSEC", default_value = "1")]
    #[arg(value_parser = crate::number_parser(super::SLEEP_MS_RANGE))]
    interval_ms: f64,
    /// Number of fibers
    #[arg(short = 'n', value_name = "FIBERS", default_value_t = 1)]
    #[arg(value_parser = crate::whole_number_parser(1..=FIBERS_MAX))]
    fibers: u64,
    /// Number of threads that run the fibers [default: one for each 2,000,000 eventuals a second,
    /// at most one for each CPU]
    #[arg(long, value_name = "COUNT", value_parser = crate::whole_number_parser(1..=WORKERS_MAX))]
    workers: Option<u64>,
}

/// Ideal rate for which the default number of workers has one worker, in eventuals a second.
const RATE_PER_WORKER_PER_S: f64 = 2e6;

impl Bench {
    /// Returns the ideal rate, as if eventuals cost no time, in eventuals a second.
    fn ideal_per_s(&self) -> f64 {
        self.fibers as f64 * 1e3 / self.interval_ms
    }

    /// Returns the requested number of workers, or the default number.
    fn workers_count(&self) -> u64 {
        let cpus = topology::allowed_cpus().len().max(1) as f64;
        let wanted = (self.ideal_per_s() / RATE_PER_WORKER_PER_S).ceil();
        self.workers.unwrap_or_else(|| wanted.clamp(1.0, cpus) as u64)
    }
}

pub fn run(args: &Bench, out: &mut dyn Write) -> anyhow::Result<()> {
    let interrupted = console::interrupt_flag().context("cannot install the signal handlers")?;
    let load = EventualsLoad {
        fibers_count: u32::try_from(args.fibers)?,
        interval: Duration::from_secs_f64(args.interval_ms / 1e3),
        duration: Duration::from_secs(args.seconds),
        workers_count: u32::try_from(args.workers_count())?,
    };
    // Relaxed: the flag publishes no other data.
    let report = run_eventuals(&load, || !interrupted.load(Ordering::Relaxed))?;
    print_table(args, &report, out)?;
    if report.is_interrupted {
        return Err(InterruptedUnstored.into());
    }
    if report.eventuals_count < args.fibers {
        console::print_error(format_args!(
            "only {} eventuals of {} fibers were set: for a rate, measure for longer (-d)",
            report.eventuals_count, args.fibers
        ));
    }
    Ok(())
}

/// Prints the measured rate and CPU time, then further figures as comments.
fn print_table(
    args: &Bench,
    report: &EventualsMeasurement,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let Bench { seconds, interval_ms, fibers, .. } = args;
    // Rates are over the requested time, as in the original; after an interrupt, over the elapsed
    // time.
    let (time, over_s) = match report.is_interrupted {
        true => (format!("{:.3}", report.wall_s), report.wall_s),
        false => (seconds.to_string(), *seconds as f64),
    };
    let rate = report.eventuals_count as f64 / over_s;
    let s = |ns: u64| ns as f64 / 1e9;
    writeln!(out, "#<num_ults>\t<test_duration_sec>\t<interval_msec>\t<ops/s>\t<cpu_time_sec>")?;
    writeln!(out, "{fibers}\t{time}\t{interval_ms}\t{rate:.6}\t{:.6}", s(report.used.user_ns))?;

    let late_us = |quantile| report.late_ns.value_at_quantile(quantile) as f64 / 1e3;
    writeln!(
        out,
        "#<late_p50_usec>\t<late_p90_usec>\t<late_p99_usec>\t<late_p99.9_usec>\t<late_max_usec>"
    )?;
    write!(out, "#{:.1}\t{:.1}\t{:.1}", late_us(0.5), late_us(0.9), late_us(0.99))?;
    writeln!(out, "\t{:.1}\t{:.1}", late_us(0.999), report.late_ns.max() as f64 / 1e3)?;
    writeln!(
        out,
        "#<percent_of_ideal>\t<system_cpu_sec>\t<fiber_switches>\t<worker_sleeps>\t\
         <voluntary_switches>\t<involuntary_switches>"
    )?;
    writeln!(
        out,
        "#{:.2}\t{:.6}\t{}\t{}\t{}\t{}",
        100.0 * rate / args.ideal_per_s(),
        s(report.used.system_ns),
        report.switches_count,
        report.parks_count,
        report.used.switches_voluntary,
        report.used.switches_involuntary
    )?;
    Ok(())
}
