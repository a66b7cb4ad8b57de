//! The experiments of the classic table: aggregate rates by the number of clients.

use super::options::SchedulerOptions;
use super::{Sched, SchedPlan, Stamp};
use anyhow::Context;
use handover_base::topology;
use handover_base::units::BitRate;
use handover_program::console::print_error;
use handover_program::exit::{interrupt_error, to_usage_error};
use handover_suite::sched::program;
use std::io::Write;

/// Numbers of clients in the rows of the classic table.
pub const CLIENT_COUNTS: [u64; 12] = [1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 17, 23];
/// Default duration of one experiment, in seconds.
const SECONDS_DEFAULT: f64 = 0.5;
/// Length of the packets.
const LENGTH_BYTES: u32 = 1500;
/// Bandwidth of the link, in bit/s.
const LINK_BPS: u64 = 500_000_000_000;

/// Experiment that measures a packet rate: one column of the classic table.
#[derive(Clone, Copy, Debug)]
struct Experiment {
    letter: char,
    /// Bit rate at which each client sends packets, such as `200G`.
    offered_rate: &'static str,
    /// Number of packets in each burst of a client.
    burst_packets: u32,
    /// Size of the queue between each client and the scheduler, in packets.
    queue_packets: u64,
    /// Polling interval of the scheduler.
    interval_us: u64,
}

/// Experiments of the classic table. A to E share one configuration of the arbiter; F and G share
/// another.
const EXPERIMENTS: [Experiment; 7] = {
    const fn with_short_queue(letter: char, burst_packets: u32) -> Experiment {
        Experiment {
            letter,
            offered_rate: "200G",
            burst_packets,
            queue_packets: 500,
            interval_us: 5,
        }
    }
    const fn with_long_queue(letter: char, burst_packets: u32) -> Experiment {
        Experiment {
            letter,
            offered_rate: "500G",
            burst_packets,
            queue_packets: 14_000,
            interval_us: 20,
        }
    }
    [
        with_short_queue('A', 1),
        with_short_queue('B', 10),
        with_short_queue('C', 50),
        with_short_queue('D', 200),
        with_short_queue('E', 1000),
        with_long_queue('F', 100),
        with_long_queue('G', 1000),
    ]
};

/// Experiments that were chosen by their letters.
#[derive(Clone, Debug)]
pub struct SelectedExperiments(Vec<Experiment>);

/// Parses the letters of experiments, with or without commas between them.
pub fn parse_experiments(text: &str) -> Result<SelectedExperiments, String> {
    let chosen = text.chars().filter(|letter| *letter != ',').map(|letter| {
        let found = EXPERIMENTS.iter().find(|it| it.letter == letter.to_ascii_uppercase());
        found
            .copied()
            .ok_or_else(|| format!("unknown experiment {letter:?}: choose from A to G, as in A,F"))
    });
    let chosen: Vec<Experiment> = chosen.collect::<Result<_, _>>()?;
    match chosen.is_empty() {
        true => Err("no experiment given: choose from A to G, as in A,F".into()),
        false => Ok(SelectedExperiments(chosen)),
    }
}

/// Runs each selected experiment with each number of clients, and prints the packet rates as a
/// table.
pub fn run(
    args: &Sched,
    selected: &SelectedExperiments,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let seconds = args.seconds.unwrap_or(SECONDS_DEFAULT);
    let algorithm =
        SchedulerOptions::parse(&args.scheduler_options, 1).map_err(to_usage_error)?.algorithm;
    for it in &selected.0 {
        writeln!(
            out,
            "{}:\t{}, {LENGTH_BYTES}, {}, -b 500G -q {} -i {} -alg {algorithm}",
            it.letter, it.offered_rate, it.burst_packets, it.queue_packets, it.interval_us
        )?;
    }
    let cpus = topology::allowed_cpus().len();
    if args.clients.iter().any(|threads| *threads >= cpus as u64) {
        print_error(format_args!(
            "sched: warning: {cpus} CPUs: from {cpus} clients on, clients share CPUs with each other or with \
             the arbiter, which lowers the figures"
        ));
    }
    writeln!(out, "\nClients\t\taggregate Mpps\n")?;
    let heads: Vec<String> = selected.0.iter().map(|it| it.letter.to_string()).collect();
    writeln!(out, "\t\t{}", heads.join("\t"))?;
    let mut has_printed = false;
    for &threads in &args.clients {
        write!(out, "{threads}\t")?;
        for experiment in &selected.0 {
            let measured = experiment.measure_mpps(args, threads, seconds, has_printed);
            if measured.is_err() {
                writeln!(out)?; // ends the incomplete row
            }
            write!(out, "\t{:.1}", measured?)?;
            out.flush()?;
            has_printed = true;
        }
        writeln!(out)?;
    }
    Ok(())
}

impl Experiment {
    /// Runs the experiment with `threads` clients. Returns their total packet rate in Mpps.
    /// `has_printed` is `true` if other rates were printed before.
    fn measure_mpps(
        self,
        args: &Sched,
        threads: u64,
        seconds: f64,
        has_printed: bool,
    ) -> anyhow::Result<f64> {
        let args = Sched {
            threads,
            bandwidth: BitRate(LINK_BPS),
            queue: self.queue_packets,
            interval: self.interval_us,
            stamp: Stamp::None,
            ..args.clone()
        };
        let Experiment { offered_rate: rate, burst_packets, .. } = self;
        let duration_ns = (seconds * 1e9) as u64;
        let line = format!("{duration_ns}ns {rate} {LENGTH_BYTES} {burst_packets}\n");
        let text: String = (0..threads).map(|it| format!("thread {it}\n{line}")).collect();
        let program = program::parse_load_program(&text)
            .context("cannot parse the load of the experiment")?;
        let plan = SchedPlan::new(&args, program)?;
        let played = plan.run()?;
        if let Some(failed) = played.error {
            return Err(failed);
        }
        if played.is_interrupted {
            return Err(interrupt_error(has_printed, false));
        }
        let packets: u64 = played.ledgers.iter().map(|it| it.counts.transmitted).sum();
        Ok(packets as f64 / played.duration.as_secs_f64() / 1e6)
    }
}
