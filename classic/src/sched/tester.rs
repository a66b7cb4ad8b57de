//! `sched --test`: an algorithm alone, in the style of dummynet's tester.

use handover_base::{affinity, clock};
use handover_harness::stats::quantile_sorted;
use handover_program::exit::to_usage_error;
use handover_sched::engine::Visitor;
use handover_sched::{FlowError, Scheduler};
use handover_suite::sched::tester::{EmptyScheduler, Tester, TesterOptions, TesterReport};
use std::io::Write;

/// Number of parts of the test. After each, the same steps are timed without a scheduler.
const PARTS: u64 = 25;

/// Tests the algorithm alone. Prints the result line of dummynet's tester, and then the cost of the
/// algorithm without that of the packet generator.
pub fn run(words: &[String], out: &mut dyn Write) -> anyhow::Result<()> {
    let options = TesterOptions::parse(words).map_err(to_usage_error)?;
    clock::calibration();
    let _ = affinity::pin(affinity::current_cpu()); // a thread that cannot be pinned may migrate
    let (algorithm, config) = (options.algorithm, options.config());
    let fair = algorithm.visit(&config, FairnessVisitor(&options)).map_err(to_usage_error)??;
    let TimingResults { report, took_ns, mut net_ns } =
        algorithm.visit(&config, TimingVisitor(&options)).map_err(to_usage_error)??;
    let report = TesterReport { wfi_bytes: fair.wfi_bytes, ..report };
    writeln!(out, "{}", report.format_line(algorithm.name(), took_ns, &options.flows.to_string()))?;
    net_ns.sort_unstable_by(f64::total_cmp);
    writeln!(
        out,
        "\tnet of the generator: {:.2} nsec a packet (median of {PARTS} parts; quartiles {:.2} and \
         {:.2}); {} flows, {} dropped",
        quantile_sorted(&net_ns, 0.5),
        quantile_sorted(&net_ns, 0.25),
        quantile_sorted(&net_ns, 0.75),
        options.flows.flows_count(),
        report.dropped,
    )?;
    if options.debug_level > 0 {
        writeln!(out, "\t{options:?}")?;
    }
    Ok(())
}

/// Visitor that measures fairness but no times. Measuring fairness costs as much as scheduling.
struct FairnessVisitor<'a>(&'a TesterOptions);

impl Visitor<u64> for FairnessVisitor<'_> {
    type Output = anyhow::Result<TesterReport>;

    fn visit<S: Scheduler<u64> + Send + 'static>(self, mut scheduler: S) -> Self::Output {
        let mut tester = Tester::new(self.0, &mut scheduler).map_err(flows_error)?;
        Ok(tester.run(&mut scheduler, self.0.steps_count))
    }
}

/// Visitor that measures the time of scheduling, and of the same steps without a scheduler.
struct TimingVisitor<'a>(&'a TesterOptions);

/// Results of [`TimingVisitor`].
struct TimingResults {
    report: TesterReport,
    /// Total time of the scheduler and the packet generator.
    took_ns: u64,
    /// Time of the scheduler alone in each part of the test, in ns per packet.
    net_ns: Vec<f64>,
}

impl Visitor<u64> for TimingVisitor<'_> {
    type Output = anyhow::Result<TimingResults>;

    fn visit<S: Scheduler<u64> + Send + 'static>(self, mut scheduler: S) -> Self::Output {
        let options = self.0;
        let mut nothing = EmptyScheduler::<u64>::new(options.packets_max());
        let mut tester =
            Tester::new(options, &mut scheduler).map_err(flows_error)?.without_fairness();
        let mut generator =
            Tester::new(options, &mut nothing).map_err(flows_error)?.without_fairness();
        let mut timed =
            TimingResults { report: TesterReport::default(), took_ns: 0, net_ns: Vec::new() };
        for part in 0..PARTS {
            let steps = options.steps_count / PARTS + u64::from(part < options.steps_count % PARTS);
            let began = clock::ticks();
            timed.report = tester.run(&mut scheduler, steps);
            let between = clock::ticks();
            generator.run(&mut nothing, steps);
            let ended = clock::ticks();
            let (tested_ns, generator_ns) =
                (clock::ns_from_ticks(between - began), clock::ns_from_ticks(ended - between));
            timed.took_ns += tested_ns;
            // Half of the steps offer a packet.
            timed.net_ns.push((tested_ns as f64 - generator_ns as f64) * 2.0 / steps.max(1) as f64);
        }
        Ok(timed)
    }
}

/// Converts an error of the flows to a usage error.
fn flows_error(refused: FlowError) -> anyhow::Error {
    to_usage_error(format!("-flowsets: {refused}"))
}
