//! `rpc-scale`: calls of many ranks to one (incast), or of each rank to all others.
//!
//! Every rank listens, and the ranks exchange their addresses, by MPI or through the process that
//! has started them. From then on they use calls alone: rank 0 counts the ranks that have arrived
//! at each stage, and the others ask it.

mod exchange;

use crate::ranks::Rank;
use anyhow::{Context as _, bail, ensure};
use clap::{Args, ValueEnum};
use exchange::Exchange;
use handover_base::clock;
use handover_program::console;
use handover_program::exit::{
    ChildExit, check_interrupt, interrupt_error, is_interrupt, to_usage_error,
};
use handover_rpc::{
    Address, CallError, Calling, Config, Context, Endpoint, Failure, Method, Peer, Transport,
};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Procedure that returns its payload.
const NOOP: Method = Method::new("noop");
/// Procedure of rank 0 by which a rank reports its arrival at a stage.
const ARRIVE: Method = Method::new("arrive");
/// Procedure of rank 0 that returns `true` once all ranks have arrived at a stage.
const HAVE_ARRIVED: Method = Method::new("have-arrived");

/// Maximum interval at which a waiting rank checks if all ranks have arrived.
const BARRIER_POLL: Duration = Duration::from_millis(1);
/// Number of significant digits of the times in histograms.
const SIGNIFICANT_DIGITS: u8 = 3;
/// Duration of the warm-up, as a share of the measuring time.
const WARMUP_SHARE: f64 = 0.1;
/// Maximum time for which an interrupted rank waits for the others, so that rank 0 can print what
/// has been measured.
const STOP_WAIT: Duration = Duration::from_secs(2);
/// Maximum number of ranks.
const RANKS_MAX: u32 = 1024;
/// Maximum of `-x`, the size of a call's payload.
const PAYLOAD_BYTES_MAX: u64 = 1 << 20;
/// Maximum of `--wait`, in seconds: an hour.
const WAIT_S_MAX: u64 = 3600;

/// Ranks that each rank calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Pattern {
    /// All ranks call rank 0
    Incast,
    /// Each rank calls all others in turn
    AllToAll,
}

/// Rate and latency of no-op RPCs among many processes: all to one, or all to all.
#[derive(Debug, Args)]
#[command(
    after_help = "Rank 0 prints tab-separated columns, times in seconds: a line for all ranks, with the quantiles of all \
calls and Jain's index of the ranks' rates, (sum x)^2 / (n sum x^2), which is 1 if all have the same; then, as comments, \
a line for each calling rank. Each rank has one call under way.\n\n\
By mpiexec or srun with an MPI library, each rank of the job takes part; alone, --ranks starts as many processes on this \
host."
)]
pub struct Scale {
    /// Transport: sm://, tcp:// or uds://. Each rank listens at a free address
    #[arg(short = 'n', value_name = "TRANSPORT")]
    transport: Address,
    /// Ranks that each rank calls
    #[arg(long, value_enum, default_value_t = Pattern::Incast)]
    pattern: Pattern,
    /// Number of ranks to start if no launcher starts them
    #[arg(long, value_name = "COUNT")]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=i64::from(RANKS_MAX)))]
    ranks: Option<u32>,
    /// Bytes that each call carries in each direction
    #[arg(short = 'x', value_name = "BYTES", default_value_t = 0)]
    #[arg(value_parser = crate::whole_number_parser(0..=PAYLOAD_BYTES_MAX))]
    payload_bytes: u64,
    /// Measuring time in seconds, after a warm-up of a tenth of it
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = parse_seconds)]
    seconds: f64,
    /// Maximum wait for the other ranks, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    #[arg(value_parser = crate::whole_number_parser(1..=WAIT_S_MAX))]
    wait: u64,
    /// Run as this rank of --ranks, started by another process
    #[arg(long, value_name = "NUMBER", hide = true, requires = "ranks")]
    rank: Option<u32>,
}

impl Scale {
    /// Name of the program.
    const NAME: &'static str = "rpc-scale";
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.01..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("must be a number of seconds, 0.01 to 3600".to_string()),
    }
}

/// Times of the calls of one rank.
#[derive(Debug, Serialize, Deserialize)]
struct RankResult {
    rank: u32,
    /// Measuring time in ns.
    took_ns: u64,
    /// Histogram: times of calls in ns, each with the number of calls that took this long.
    times: Vec<(u64, u64)>,
}

/// Stage at which a rank has arrived. The ranks wait for one another at each stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Stage {
    /// The rank has connected to the others.
    Connected,
    /// The rank has measured its calls.
    Measured,
    /// The rank will disconnect.
    Leaving,
}

/// Stages and results of all ranks, which they report to rank 0.
#[derive(Default)]
struct Arrivals {
    /// Last stage at which each rank has arrived.
    stages: BTreeMap<u32, Stage>,
    /// Connection of each other rank.
    peers: BTreeMap<u32, Peer>,
    /// Measurements of the ranks that have reported them.
    results: Vec<RankResult>,
}

impl Arrivals {
    /// Records that a rank has arrived at a stage, and its result if there is one.
    fn record_arrival(&mut self, rank: u32, stage: Stage, result: Option<RankResult>) {
        self.stages.insert(rank, stage);
        self.results.extend(result);
    }

    /// Returns the number of the `ranks_count` ranks that have not arrived at `stage` yet.
    fn missing_ranks_count(&self, stage: Stage, ranks_count: u32) -> usize {
        let arrived = self.stages.values().filter(|it| **it >= stage).count();
        (ranks_count as usize).saturating_sub(arrived)
    }
}

/// This rank, with its connections to others.
struct RunningRank<'a> {
    args: &'a Scale,
    rank: u32,
    ranks_count: u32,
    endpoint: Endpoint,
    /// Connection to rank 0; `None` in rank 0.
    rank_0_peer: Option<Peer>,
    /// Ranks that this rank calls, and the connections to them.
    targets: Vec<(u32, Peer)>,
    /// Arrivals of all ranks; used in rank 0 only.
    arrivals: Arc<Mutex<Arrivals>>,
    interrupted: &'a AtomicBool,
    /// Time at which this rank has noticed that it is interrupted.
    interrupted_at: Option<Instant>,
    /// `true` once rank 0 has printed results, or another rank has measured.
    has_results: bool,
}

/// Runs as a rank, or starts the ranks if no launcher has started this process.
pub fn run(args: &Scale, out: &mut dyn Write) -> anyhow::Result<()> {
    if args.transport.transport() == Transport::Tls || args.transport.is_complete() {
        return Err(to_usage_error(format!(
            "-n {}: each rank listens at a free address; use sm://, tcp:// or uds://",
            args.transport
        )));
    }
    let interrupted = console::interrupt_flag().context("cannot install the signal handlers")?;
    if let (Some(number), Some(count)) = (args.rank, args.ranks) {
        let exchange = Exchange::Starter { ranks_count: count };
        let ended = run_rank(args, (number, count), exchange, &interrupted, out);
        return match ended {
            // The process that has started the ranks reports the interrupt.
            Err(error) if is_interrupt(&error) => Err(ChildExit(130).into()),
            ended => ended,
        };
    }
    match (Rank::from_environment(|name| std::env::var(name).ok())?, args.ranks) {
        (None, None) => Err(to_usage_error(
            "rpc-scale: no launcher has started this process as a rank; use --ranks COUNT or mpiexec",
        )),
        (None, Some(count)) => exchange::start_ranks(count, &interrupted, out),
        (Some(_), Some(count)) => Err(to_usage_error(format!(
            "--ranks {count}: the number of ranks is that of the launcher, which has started this process"
        ))),
        (Some(rank), None) => {
            if !(2..=RANKS_MAX).contains(&rank.ranks_count) {
                return Err(to_usage_error(format!(
                    "rank {} of {}: 2 to {RANKS_MAX} are needed, as in mpiexec -n 8 rpc-scale",
                    rank.number, rank.ranks_count
                )));
            }
            let exchange = Exchange::by_mpi(&rank)?;
            run_rank(args, (rank.number, rank.ranks_count), exchange, &interrupted, out)
        }
    }
}

/// Runs this process as a rank: connects, measures, and prints the results in rank 0.
fn run_rank(
    args: &Scale,
    (rank, ranks_count): (u32, u32),
    mut exchange: Exchange,
    interrupted: &AtomicBool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    ensure!(rank < ranks_count, "rank {rank} of {ranks_count} does not exist");
    let mut endpoint = Endpoint::new(args.config(ranks_count))?;
    let arrivals = Arc::new(Mutex::new(Arrivals::default()));
    register(&mut endpoint, &arrivals, ranks_count)?;
    let listened =
        exchange.listen_address(&args.transport).and_then(|at| Ok(endpoint.listen(&at)?))?;
    let addresses = exchange.all_gather(&listened.to_string())?;
    exchange.end()?;
    let mut running = RunningRank {
        args,
        rank,
        ranks_count,
        endpoint,
        rank_0_peer: None,
        targets: Vec::new(),
        arrivals,
        interrupted,
        interrupted_at: None,
        has_results: false,
    };
    running.connect(&addresses)?;
    running.arrive_and_wait(Stage::Connected, None)?;
    running.measure(args.seconds * WARMUP_SHARE)?;
    let result = running.measure(args.seconds)?;
    let has_measured = result.is_some();
    running.arrive_and_wait(Stage::Measured, result)?;
    running.has_results = if rank == 0 { running.print(out)? } else { has_measured };
    running.arrive_and_wait(Stage::Leaving, None)?;
    check_interrupt(interrupted).map_err(|_| interrupt_error(running.has_results, false))
}

/// Registers the procedures of a rank. Those for arrivals are called in rank 0 only.
fn register(
    endpoint: &mut Endpoint,
    arrivals: &Arc<Mutex<Arrivals>>,
    ranks_count: u32,
) -> anyhow::Result<()> {
    endpoint.register_bytes("noop", 0, |_, payload, answer| {
        answer.extend_from_slice(payload);
        Ok(())
    })?;
    let shared = Arc::clone(arrivals);
    /// Rank, its stage, and its measurement if the stage is [`Stage::Measured`].
    type Arrival = (u32, Stage, Option<RankResult>);
    endpoint.register("arrive", 0, move |context: &mut Context<'_>, arrival: Arrival| {
        let (rank, stage, result) = arrival;
        let mut arrivals = lock(&shared);
        arrivals.peers.insert(rank, context.peer());
        arrivals.record_arrival(rank, stage, result);
        Ok::<(), Failure>(())
    })?;
    let shared = Arc::clone(arrivals);
    endpoint.register("have-arrived", 0, move |_: &mut Context<'_>, stage: Stage| {
        Ok::<bool, Failure>(lock(&shared).missing_ranks_count(stage, ranks_count) == 0)
    })?;
    Ok(())
}

fn lock(arrivals: &Mutex<Arrivals>) -> MutexGuard<'_, Arrivals> {
    // A handler that panics leaves the numbers as they are.
    arrivals.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a function that names the rank in the error of a lost connection.
fn name_rank_in_error(rank: u32) -> impl FnOnce(CallError) -> anyhow::Error {
    move |error| match error {
        CallError::Disconnected(_) | CallError::Stale => {
            anyhow::Error::new(error).context(format!("rank {rank} has disconnected"))
        }
        other => other.into(),
    }
}

impl RunningRank<'_> {
    /// Connects to rank 0 and to the ranks that this rank calls.
    fn connect(&mut self, addresses: &[String]) -> anyhow::Result<()> {
        ensure!(
            addresses.len() == self.ranks_count as usize,
            "{} addresses of {} ranks were exchanged",
            addresses.len(),
            self.ranks_count
        );
        // From the next rank on, so that not all ranks connect to one rank at the same time.
        for step in 1..self.ranks_count {
            let rank = (self.rank + step) % self.ranks_count;
            if self.args.pattern == Pattern::Incast && rank != 0 {
                continue;
            }
            if self.args.pattern == Pattern::Incast && self.rank == 0 {
                break;
            }
            let address: Address = addresses[rank as usize].parse()?;
            let connected = self.endpoint.connect(&address);
            let peer = connected.with_context(|| format!("cannot connect to rank {rank}"))?;
            self.targets.push((rank, peer));
            if rank == 0 {
                self.rank_0_peer = Some(peer);
            }
        }
        Ok(())
    }

    /// Measures calls to the targets for `seconds` or until an interrupt, one call at a time.
    /// Returns `None` without calls.
    fn measure(&mut self, seconds: f64) -> anyhow::Result<Option<RankResult>> {
        let payload = vec![b'a'; usize::try_from(self.args.payload_bytes)?];
        let mut times = Histogram::<u64>::new(SIGNIFICANT_DIGITS)?;
        let duration_ns = (seconds * 1e9) as u64;
        let began = clock::ticks();
        let mut took_ns = 0;
        for (rank, peer) in self.targets.iter().copied().cycle() {
            if check_interrupt(self.interrupted).is_err() {
                break;
            }
            let started = clock::ticks();
            let echoed = self.endpoint.call_bytes(peer, NOOP, &payload, <[u8]>::len);
            let bytes = echoed.map_err(name_rank_in_error(rank))?;
            let ended = clock::ticks();
            ensure!(bytes == payload.len(), "rank {rank} has answered with {bytes} bytes");
            times.record(clock::ns_from_ticks(ended - started))?;
            took_ns = clock::ns_from_ticks(ended - began);
            if took_ns >= duration_ns {
                break;
            }
        }
        let times = times.iter_recorded();
        let times: Vec<_> = times.map(|it| (it.value_iterated_to(), it.count_at_value())).collect();
        Ok((!times.is_empty()).then_some(RankResult { rank: self.rank, took_ns, times }))
    }

    /// Reports the arrival of this rank, then serves calls until all ranks have arrived at `stage`.
    /// At [`Stage::Leaving`], only rank 0 waits.
    fn arrive_and_wait(&mut self, stage: Stage, result: Option<RankResult>) -> anyhow::Result<()> {
        if let Some(rank_0_peer) = self.rank_0_peer {
            let arrival = (self.rank, stage, result);
            self.endpoint
                .call::<_, ()>(rank_0_peer, ARRIVE, &arrival)
                .map_err(name_rank_in_error(0))?;
            if stage == Stage::Leaving {
                return Ok(());
            }
            while !self
                .endpoint
                .call::<_, bool>(rank_0_peer, HAVE_ARRIVED, &stage)
                .map_err(name_rank_in_error(0))?
            {
                self.check_interrupt_at(stage)?;
                self.endpoint.progress(BARRIER_POLL);
            }
            return Ok(());
        }
        lock(&self.arrivals).record_arrival(0, stage, result);
        let measuring = Duration::from_secs_f64(self.args.seconds * (1.0 + WARMUP_SHARE));
        let wait_max = Duration::from_secs(self.args.wait) + measuring;
        let until = Instant::now() + wait_max;
        loop {
            let missing = lock(&self.arrivals).missing_ranks_count(stage, self.ranks_count);
            if missing == 0 {
                return Ok(());
            }
            self.check_interrupt_at(stage)?;
            self.check_connections()?;
            if Instant::now() > until {
                bail!(
                    "{missing} of {} ranks have not arrived within {:.1} s",
                    self.ranks_count,
                    wait_max.as_secs_f64()
                );
            }
            self.endpoint.progress(BARRIER_POLL);
        }
    }

    /// Returns an error if this rank is interrupted while it waits at `stage`. Once it has
    /// measured, it waits for the other ranks for up to [`STOP_WAIT`].
    fn check_interrupt_at(&mut self, stage: Stage) -> anyhow::Result<()> {
        if check_interrupt(self.interrupted).is_ok() {
            return Ok(());
        }
        let since = self.interrupted_at.get_or_insert_with(Instant::now);
        match stage > Stage::Connected && since.elapsed() < STOP_WAIT {
            true => Ok(()),
            false => Err(interrupt_error(self.has_results, false)),
        }
    }

    /// Returns an error if a rank has disconnected before [`Stage::Leaving`].
    fn check_connections(&mut self) -> anyhow::Result<()> {
        let arrivals = lock(&self.arrivals);
        for (rank, peer) in &arrivals.peers {
            let is_leaving = arrivals.stages.get(rank) == Some(&Stage::Leaving);
            if !is_leaving && !self.endpoint.is_connected(*peer) {
                bail!("rank {rank} has disconnected before the end");
            }
        }
        Ok(())
    }

    /// Prints the rates and times of calls: of all ranks together, then of each calling rank.
    /// Returns `false` if there are none.
    fn print(&self, out: &mut dyn Write) -> anyhow::Result<bool> {
        let arrivals = lock(&self.arrivals);
        let mut results: Vec<&RankResult> = arrivals.results.iter().collect();
        results.sort_by_key(|result| result.rank);
        if results.is_empty() {
            return Ok(false);
        }
        let mut all = Histogram::<u64>::new(SIGNIFICANT_DIGITS)?;
        let mut rows = Vec::new();
        for result in &results {
            let mut own = Histogram::<u64>::new(SIGNIFICANT_DIGITS)?;
            for (ns, count) in &result.times {
                own.record_n(*ns, *count)?;
            }
            all.add(&own)?;
            let rate = own.len() as f64 / (result.took_ns.max(1) as f64 / 1e9);
            rows.push((result.rank, rate, format_times(&own)));
        }
        let rates: Vec<f64> = rows.iter().map(|row| row.1).collect();
        let pattern = crate::value_name(self.args.pattern);
        writeln!(
            out,
            "# <pattern> <ranks> <callers> <size> <transport> <calls> <calls/s> <p50> <p99> <max> <jain>"
        )?;
        writeln!(
            out,
            "{pattern}\t{}\t{}\t{}\t{}\t{}\t{:.1}\t{}\t{:.6}",
            self.ranks_count,
            rows.len(),
            self.args.payload_bytes,
            self.args.transport.transport(),
            all.len(),
            rates.iter().sum::<f64>(),
            format_times(&all),
            jain_index(&rates)
        )?;
        writeln!(out, "# <rank> <calls/s> <p50> <p99> <max>")?;
        for (rank, rate, times) in rows {
            writeln!(out, "#{rank}\t{rate:.1}\t{times}")?;
        }
        out.flush()?;
        Ok(true)
    }
}

/// Formats the median, the 99th percentile and the maximum of a histogram, in seconds.
fn format_times(times: &Histogram<u64>) -> String {
    let seconds = |ns: u64| format!("{:.9}", ns as f64 / 1e9);
    let [p50, p99] = [0.5, 0.99].map(|share| seconds(times.value_at_quantile(share)));
    format!("{p50}\t{p99}\t{}", seconds(times.max()))
}

/// Returns Jain's index of fairness of `rates`. It is 1 if all are equal, and 1/n if one rank has
/// all calls. Source: R. Jain et al., *A quantitative measure of fairness and discrimination*,
/// 1984.
fn jain_index(rates: &[f64]) -> f64 {
    let (sum, squares) =
        rates.iter().fold((0.0, 0.0), |it, rate| (it.0 + rate, it.1 + rate * rate));
    if squares == 0.0 { 1.0 } else { sum * sum / (rates.len() as f64 * squares) }
}

impl Scale {
    /// Returns the endpoint configuration for a run with `ranks_count` ranks.
    fn config(&self, ranks_count: u32) -> Config {
        let mut config = Config::default();
        let limits = &mut config.connections;
        // At most PAYLOAD_BYTES_MAX; the results of a rank are shorter than the usual maximum.
        limits.message_bytes_max = limits.message_bytes_max.max(self.payload_bytes as u32);
        limits.peers_max = limits.peers_max.max(2 * ranks_count);
        limits.handshakes_max = limits.handshakes_max.max(ranks_count);
        // Many ranks may start at the same time on few CPUs.
        limits.handshake_timeout = Duration::from_secs(self.wait);
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::FromArgMatches;
    use handover_program::exit::InterruptedUnstored;

    #[test]
    fn jain_index_is_1_for_equal_rates_and_1_over_n_for_one() {
        assert!((jain_index(&[5.0; 7]) - 1.0).abs() < 1e-12);
        assert!((jain_index(&[9.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
        assert!((jain_index(&[1.0, 2.0]) - 0.9).abs() < 1e-12);
        assert!((jain_index(&[0.0, 0.0]) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn ranks_have_arrived_at_a_stage_when_each_is_there_or_beyond() {
        let mut arrivals = Arrivals::default();
        arrivals.record_arrival(0, Stage::Connected, None);
        arrivals.record_arrival(1, Stage::Measured, None);
        assert_eq!(arrivals.missing_ranks_count(Stage::Connected, 2), 0);
        assert_eq!(arrivals.missing_ranks_count(Stage::Measured, 2), 1);
        assert_eq!(arrivals.missing_ranks_count(Stage::Connected, 3), 1, "rank 2 is missing");
    }

    #[test]
    fn interrupt_after_the_results_were_printed_says_so() -> anyhow::Result<()> {
        let command = Scale::augment_args(clap::Command::new(Scale::NAME));
        let args =
            Scale::from_arg_matches(&command.get_matches_from([Scale::NAME, "-n", "sm://"]))?;
        let mut rank_0 = RunningRank {
            args: &args,
            rank: 0,
            ranks_count: 2,
            endpoint: Endpoint::new(args.config(2))?,
            rank_0_peer: None,
            targets: Vec::new(),
            arrivals: Arc::default(),
            interrupted: &AtomicBool::new(true),
            interrupted_at: Some(Instant::now() - STOP_WAIT),
            has_results: true,
        };
        let error = rank_0.check_interrupt_at(Stage::Leaving).expect_err("an interrupt");
        assert!(error.is::<InterruptedUnstored>(), "{error}");
        Ok(())
    }
}
