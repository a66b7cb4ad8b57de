//! `sched`: clients hand packets to an arbiter, which alone owns the scheduling algorithm.

mod options;
mod record;
mod summary;
mod tester;
mod watched;

use crate::console::{self, tell};
use crate::exit::{Interrupted, usage};
use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use handover_base::units::Rate;
use handover_base::usage::{self as cpu, Usage};
use handover_base::{affinity, clock, topology};
use handover_sched::drive::{
    self, Arbiter, Client, Config, FLOWS_MAX, Flows, Ledger, Load, Null, Patience, Program,
    Recorder, Sink, Stamping, Stop, Token, Udp, Work, program, recorder,
};
use handover_sched::engine::{PACKETS_LIMIT, Visitor};
use handover_sched::{FlowSpec, Scheduler};
use options::Options;
use record::{Streams, Waits};
use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use summary::{Row, Share};
use watched::Watched;

/// Maximum number of client threads.
const THREADS_MAX: u64 = 4096;
/// Stack size of a client: enough for its driver and a sink's buffers.
const CLIENT_STACK_BYTES: usize = 256 << 10;
/// Maximum number of packets queued between a client and the scheduler.
const QUEUE_MAX: u64 = 65536;
/// Maximum polling interval, in µs.
const INTERVAL_US_MAX: u64 = 1_000_000;
/// Range of the duration, in seconds.
const SECONDS: RangeInclusive<f64> = 0.001..=31_536_000.0;
/// Default duration in seconds, if neither the command line nor a client's program gives one.
const SECONDS_DEFAULT: f64 = 10.0;
/// Default configuration file.
const FILE: &str = "sched.txt";
/// Maximum number of records by which all clients together may be ahead of the writing thread, and
/// the minimum for each client.
const RECORDS_AHEAD_MAX: u32 = 1 << 17;
const RECORDS_AHEAD_MIN: u32 = 1 << 10;
/// Maximum time that a client waits at the end for its packets to come back.
const LINGER: Duration = Duration::from_secs(2);

/// Clients, an arbiter that alone owns the scheduling algorithm, and where each packet waited.
#[derive(Debug, Args)]
#[command(
    override_usage = "handover sched [OPTIONS] [-- [-alg NAME] [-flowsets W:L:F[,...]] [-qmax N]]",
    after_help = "Scheduler options stand after `--`:\n\
  -alg NAME          fifo, rr (drr), rr1, prio, wf2q+ (wf2qp), qfq, qfq+ (qfqp), pacing [default: rr]\n\
  -flowsets W:L:F[,...]  flows: weights W and packet lengths L, each MIN[-MAX[-STEPS]], F flows of each\n\
                     [default: 1:1500:16]\n\
  -qmax N            packets that a flow may have queued; one more is dropped [default: no limit]\n\
\n\
Flow f belongs to client f mod t; a client cycles through its flows. In the configuration file a line is\n\
DURATION BANDWIDTH PACKET_SIZE BURST (1s 100M 64 1); `thread n` begins those of another client; a client\n\
without a line sends as fast as it can. PREFIXqueue-i.txt has a line for each stamped packet: cli_enq\n\
(absolute ticks of the clock), sch_enq, sch_deq, cli_deq (each since the one before), pkt_len, flags (D:\n\
dropped). The fair index is how many bytes a flow of the client had fallen behind what its weight\n\
entitles it to, at worst, when a packet of it went, since any moment from which it had packets queued."
)]
pub struct Sched {
    /// Number of client threads
    #[arg(short = 't', value_name = "THREADS", default_value_t = 1)]
    #[arg(value_parser = super::whole(1..=THREADS_MAX), allow_negative_numbers = true)]
    threads: u64,
    /// Client configuration file; it need not be there unless it is named [default: sched.txt]
    #[arg(short = 'f', value_name = "PATH")]
    file: Option<PathBuf>,
    /// Output bandwidth, in bit/s
    #[arg(short = 'b', value_name = "BANDWIDTH", default_value = "1G", value_parser = Rate::from_str)]
    #[arg(allow_negative_numbers = true)]
    bandwidth: Rate,
    /// Size of the queue between each client and the scheduler, in packets
    #[arg(short = 'q', value_name = "SIZE", default_value_t = 200)]
    #[arg(value_parser = super::whole(1..=QUEUE_MAX), allow_negative_numbers = true)]
    queue: u64,
    /// Scheduler polling interval, in us; 0: it polls all the time
    #[arg(short = 'i', value_name = "US", default_value_t = 20)]
    #[arg(value_parser = super::whole(0..=INTERVAL_US_MAX), allow_negative_numbers = true)]
    interval: u64,
    /// Client polling interval, in us; 0: they poll all the time
    #[arg(short = 'c', value_name = "US", default_value_t = 5)]
    #[arg(value_parser = super::whole(0..=INTERVAL_US_MAX), allow_negative_numbers = true)]
    client_interval: u64,
    /// Time-stamp files are called PREFIXqueue-i.txt
    #[arg(short = 'p', value_name = "PREFIX", default_value = "")]
    prefix: OsString,
    /// The core of the arbiter; one that is not here is replaced, with a warning
    #[arg(short = 'a', value_name = "CORE", allow_negative_numbers = true)]
    #[arg(value_parser = super::whole(0..=u64::from(u16::MAX)))]
    core: Option<u64>,
    /// Duration; a fraction will do [default: as long as the longest program, or 10]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    seconds: Option<f64>,
    /// Packets that the arbiter takes from a client, and marks, at once
    #[arg(long, value_name = "PACKETS", default_value_t = 32)]
    #[arg(value_parser = super::whole(1..=1024), allow_negative_numbers = true)]
    batch: u64,
    /// Events that get time stamps
    #[arg(long, value_enum, default_value_t = Stamp::Batch)]
    stamp: Stamp,
    /// Sink of transmitted packets: null, copy (a copy of their bytes), udp://HOST:PORT
    #[arg(long, value_name = "SINK", default_value = "null", value_parser = Target::from_str)]
    sink: Target,
    /// Draw PREFIXstages.svg and PREFIXshares.svg
    #[arg(long)]
    plot: bool,
    /// Test the algorithm alone, in dummynet's manner: one thread, no clients; options after `--`
    #[arg(long, conflicts_with_all = ["threads", "file", "sink", "plot", "stamp", "seconds", "core"])]
    test: bool,
    #[arg(last = true, allow_hyphen_values = true, value_name = "SCHEDULER OPTIONS")]
    scheduler: Vec<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Stamp {
    /// each packet: two readings of the clock on each side
    Packet,
    /// each batch: its packets share its stamps
    Batch,
    /// nothing: no files, no waits
    None,
}

/// Destination of transmitted packets.
#[derive(Clone, Copy, Debug)]
enum Target {
    Null,
    Copy,
    Udp(SocketAddr),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        match text {
            "null" => Ok(Target::Null),
            "copy" => Ok(Target::Copy),
            _ => {
                let address = text.strip_prefix("udp://").and_then(|it| it.parse().ok());
                address.map(Target::Udp).ok_or_else(|| {
                    "must be null, copy or udp://ADDRESS:PORT, as in udp://127.0.0.1:9000".into()
                })
            }
        }
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value| SECONDS.contains(value));
    value.ok_or_else(|| format!("must lie in {}..={}", SECONDS.start(), SECONDS.end()))
}

pub fn run(args: &Sched, out: &mut dyn Write) -> anyhow::Result<()> {
    if args.test {
        return tester::run(&args.scheduler, out);
    }
    let options = Options::read(&args.scheduler).map_err(usage)?;
    let plan = Plan::new(args, options)?;
    let algorithm = plan.options.algorithm;
    let played = algorithm.visit(&plan.scheduler(), Play { plan: &plan }).map_err(usage)??;
    plan.tell(played, out)
}

/// A run, before any thread is started.
struct Plan<'a> {
    args: &'a Sched,
    options: Options,
    program: Program,
    /// Packet length by flow, for clients without a program.
    lengths_bytes: Vec<u32>,
    cpus: Cpus,
    patience: Patience,
    /// Duration of the run; `None` to run until the longest program ends.
    span: Option<Duration>,
}

/// CPUs of the threads.
struct Cpus {
    arbiter: u32,
    clients: Vec<u32>,
}

impl<'a> Plan<'a> {
    fn new(args: &'a Sched, options: Options) -> anyhow::Result<Plan<'a>> {
        let threads = args.threads as u32;
        let flows_count = options.flows.flows_count();
        if flows_count > FLOWS_MAX {
            return Err(usage(format!("-flowsets: {flows_count} flows, of at most {FLOWS_MAX}")));
        }
        let program = args.program()?;
        for absent in program.absent(threads) {
            tell(format_args!(
                "sched: warning: thread {absent} is not there: its lines are ignored"
            ));
        }
        if flows_count < threads {
            tell(format_args!(
                "sched: warning: {flows_count} flows for {threads} threads: those from {flows_count} on \
                 have none, and send nothing"
            ));
        }
        let endless = (0..threads.min(flows_count)).any(|thread| program.of(thread).is_empty());
        let span = match (args.seconds, endless) {
            (Some(seconds), _) => Some(seconds),
            // As long as the longest program, or the default duration without programs.
            (None, true) => {
                let longest = program.threads().filter(|(thread, _)| *thread < threads);
                let longest_ns = longest.map(|(_, specs)| duration_ns(specs)).max().unwrap_or(0);
                Some(if longest_ns == 0 { SECONDS_DEFAULT } else { longest_ns as f64 / 1e9 })
            }
            (None, false) => None,
        };
        let cpus = args.cpus();
        let patience = Patience::for_threads(threads as usize + 1);
        let span = span.map(Duration::from_secs_f64);
        let lengths_bytes = options.flows.flows().map(|(_, length)| length).collect();
        Ok(Plan { args, options, program, lengths_bytes, cpus, patience, span })
    }

    fn threads(&self) -> u32 {
        self.args.threads as u32
    }

    /// Returns a scheduler configuration with room for all packets that the clients can have in
    /// flight.
    fn scheduler(&self) -> handover_sched::Config {
        let in_flight = self.args.threads * self.args.queue;
        handover_sched::Config {
            packets_max: u32::try_from(in_flight).unwrap_or(u32::MAX).min(PACKETS_LIMIT),
            flows_max: self.options.flows.flows_count(),
            ..handover_sched::Config::default()
        }
    }

    fn arbiter(&self) -> Config {
        Config {
            bandwidth_bps: Some(self.args.bandwidth.0),
            mailbox_slots_count: self.args.queue as u32,
            interval: Duration::from_micros(self.args.interval),
            batch_max: self.args.batch as u32,
            stamping: match self.args.stamp {
                Stamp::Packet => Stamping::Packet,
                Stamp::Batch => Stamping::Batch,
                Stamp::None => Stamping::None,
            },
            patience: self.patience,
        }
    }

    /// Returns the maximum packet length of each flow: the length of the flow set, or a longer one
    /// in the client's program.
    fn lengths_max_bytes(&self) -> Vec<u32> {
        let longest: Vec<u32> = (0..self.threads())
            .map(|thread| {
                self.program.of(thread).iter().map(|spec| spec.length_bytes).max().unwrap_or(0)
            })
            .collect();
        let flows = self.options.flows.flows().enumerate();
        flows.map(|(flow, (_, length))| length.max(longest[flow % longest.len()])).collect()
    }

    /// Returns the load of a client: its program, or an endless load.
    fn load(&self, thread: u32) -> Load {
        match self.program.of(thread) {
            [] => Load::endless(self.options.flows.length_max_bytes(), self.args.batch as u32),
            specs => Load::program(specs),
        }
    }
}

fn duration_ns(specs: &[drive::Spec]) -> u64 {
    specs.iter().map(|spec| spec.duration_ns).fold(0, u64::saturating_add)
}

impl Sched {
    /// Reads the configuration file; an empty program if the default file does not exist.
    fn program(&self) -> anyhow::Result<Program> {
        let path = self.file.as_deref().unwrap_or(Path::new(FILE));
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(refused) if refused.kind() == ErrorKind::NotFound && self.file.is_none() => {
                return Ok(Program::default());
            }
            Err(refused) => return Err(usage(format!("-f: {}: {refused}", path.display()))),
        };
        program::parse(&text).map_err(|refused| usage(format!("-f: {}", refused.in_file(path))))
    }

    /// Chooses a CPU for each thread; warns if threads share CPUs.
    fn cpus(&self) -> Cpus {
        let allowed = topology::allowed();
        let first = allowed.first().copied().unwrap_or(0);
        let arbiter = match self.core.map(|core| core as u32) {
            None => first,
            Some(core) if allowed.contains(&core) => core,
            Some(core) => {
                tell(format_args!(
                    "sched: warning: -a: this process may not use CPU {core}: the arbiter runs on {first}"
                ));
                first
            }
        };
        let mut others: Vec<u32> = allowed.into_iter().filter(|cpu| *cpu != arbiter).collect();
        if others.is_empty() {
            others.push(arbiter);
        }
        let (threads, cpus) = (self.threads as usize, others.len());
        let clients = (0..threads).map(|thread| others[thread % cpus]).collect();
        if threads > cpus || others[0] == arbiter {
            tell(format_args!(
                "sched: warning: {threads} clients and the arbiter on {} CPUs: they share, and the figures \
                 are of sharing",
                cpus + usize::from(others[0] != arbiter)
            ));
        }
        Cpus { arbiter, clients }
    }
}

/// Visitor that runs the clients on a concrete scheduler type.
struct Play<'a> {
    plan: &'a Plan<'a>,
}

impl Visitor<Token> for Play<'_> {
    type Output = anyhow::Result<Played>;

    fn visit<S: Scheduler<Token> + Send + 'static>(self, scheduler: S) -> Self::Output {
        match self.plan.args.stamp {
            // Runs without stamps are about speed, so the scheduler is not watched.
            Stamp::None => self.plan.play(scheduler, |_| None),
            Stamp::Batch | Stamp::Packet => {
                let weights = self.plan.options.flows.flows().map(|(weight, _)| weight.into());
                self.plan.play(Watched::new(scheduler, weights), |watched| {
                    Some(watched.watch().flows_backlogged_bytes().collect())
                })
            }
        }
    }
}

/// Results of a run.
struct Played {
    ledgers: Vec<Ledger>,
    /// Waits by client, if there were stamps.
    waits: Vec<Waits>,
    /// Maximum lag by flow, in bytes, if the scheduler was watched.
    lags_bytes: Option<Vec<f64>>,
    took: Duration,
    used: Usage,
    sweeps: u64,
    sweeps_empty: u64,
    interrupted: bool,
    /// The first error that did not end the run.
    failed: Option<anyhow::Error>,
}

impl Plan<'_> {
    fn play<S: Scheduler<Token> + Send + 'static>(
        &self,
        mut scheduler: S,
        lags_bytes: fn(&S) -> Option<Vec<f64>>,
    ) -> anyhow::Result<Played> {
        let specs = self.options.flows.specs(self.options.queued_max.unwrap_or(u32::MAX));
        for (spec, length_max_bytes) in specs.zip(self.lengths_max_bytes()) {
            let spec = FlowSpec { length_max_bytes, ..spec };
            scheduler.add_flow(spec).map_err(|refused| usage(format!("-flowsets: {refused}")))?;
        }
        let arbiter = Arbiter::new(scheduler, self.arbiter()).map_err(usage)?;
        let hub = arbiter.hub();
        let (mut crew, mut rings) = (Vec::new(), Vec::new());
        for _ in 0..self.threads() {
            let (recorder, records) = match self.args.stamp {
                Stamp::None => (None, None),
                _ => {
                    let (recorder, records) = recorder(self.records_ahead());
                    (Some(recorder), Some(records))
                }
            };
            rings.extend(records);
            crew.push(Member { client: hub.join()?, exit: self.exit()?, recorder });
        }
        // Registered before there is any file that a signal could leave half written.
        let stop = console::interrupted()?;
        let streams = match rings.is_empty() {
            true => None,
            false => Some(Streams::create(Path::new(&self.args.prefix), rings)?),
        };
        let (core, used) = (self.cpus.arbiter, cpu::process());
        let pin = move || drop(affinity::pin(core)); // best effort
        // Called here because the first calibration takes some 15 ms, which would count as the
        // run's.
        clock::calibration();
        let running = arbiter.spawn(pin).context("the arbiter's thread could not be started")?;
        let began = Instant::now();
        let (waits, failed, took) = thread::scope(|scope| {
            let writer = streams.map(|streams| scope.spawn(|| streams.write()));
            let mut failed = self.clients(crew, &stop);
            let took = began.elapsed();
            let (waits, unwritten) = match writer.map(thread::ScopedJoinHandle::join) {
                None => (Vec::new(), None),
                Some(Ok(written)) => written,
                Some(Err(_)) => {
                    (Vec::new(), Some(anyhow!("the thread that writes stamps panicked")))
                }
            };
            failed = failed.or(unwritten);
            (waits, failed, took)
        });
        // Acquire: pairs with nothing of ours; a store by the handler that is seen late no longer
        // interrupts.
        let interrupted = stop.load(Ordering::Acquire) && failed.is_none();
        hub.stop(Stop::Now);
        let closed = running.join();
        Ok(Played {
            ledgers: closed.clients(),
            waits,
            lags_bytes: lags_bytes(&closed.scheduler),
            took,
            used: cpu::process() - used,
            sweeps: closed.sweeps,
            sweeps_empty: closed.sweeps_empty,
            interrupted,
            failed,
        })
    }

    /// Returns the number of records by which each client may be ahead of the writing thread.
    fn records_ahead(&self) -> u32 {
        (RECORDS_AHEAD_MAX / self.threads()).max(RECORDS_AHEAD_MIN)
    }

    fn exit(&self) -> anyhow::Result<Exit> {
        Ok(match self.args.sink {
            Target::Null => Exit::Null(Null),
            Target::Copy => Exit::Copy(drive::Copy::new()),
            Target::Udp(to) => Exit::Udp(Udp::connect(to).context("--sink")?),
        })
    }

    /// Runs all clients until they end; returns the first error.
    fn clients(&self, crew: Vec<Member>, stop: &AtomicBool) -> Option<anyhow::Error> {
        let until_ns = self.span.map(|span| clock::now_ns() + span.as_nanos() as u64);
        thread::scope(|scope| {
            let (mut threads, mut failed) = (Vec::new(), None);
            for (thread, member) in crew.into_iter().enumerate() {
                let plays = move || self.client(thread as u32, member, stop, until_ns);
                let builder = thread::Builder::new().stack_size(CLIENT_STACK_BYTES);
                match builder.spawn_scoped(scope, plays) {
                    Ok(started) => threads.push(started),
                    Err(refused) => {
                        stop.store(true, Ordering::Relaxed); // the other clients end
                        let text = format!(
                            "client {thread} of {} could not be started; ask for fewer with -t, or \
                             allow more with `ulimit -u` and `ulimit -v`",
                            self.threads()
                        );
                        failed = Some(anyhow::Error::new(refused).context(text));
                        break;
                    }
                }
            }
            for (thread, running) in threads.into_iter().enumerate() {
                let ended = running.join().unwrap_or_else(|_| Err(anyhow!("it panicked")));
                if let Err(refused) = ended {
                    failed.get_or_insert(refused.context(format!("client {thread}")));
                }
            }
            failed
        })
    }

    fn client(
        &self,
        thread: u32,
        member: Member,
        stop: &AtomicBool,
        until_ns: Option<u64>,
    ) -> anyhow::Result<()> {
        let Member { client, exit, recorder } = member;
        let _ = affinity::pin(self.cpus.clients[thread as usize]); // best effort
        let flows = Flows::of(thread, self.threads(), self.options.flows.flows_count());
        let work = Work {
            load: self.load(thread),
            flows,
            lengths_bytes: match self.program.of(thread) {
                [] => &self.lengths_bytes,
                _ => &[],
            },
            in_flight_max: self.args.queue,
            poll_interval: Duration::from_micros(self.args.client_interval),
            patience: self.patience,
            stop,
            until_ns,
            linger: LINGER,
        };
        match exit {
            Exit::Null(sink) => send(client, work, sink, recorder),
            Exit::Copy(sink) => send(client, work, sink, recorder),
            Exit::Udp(sink) => send(client, work, sink, recorder),
        }
    }

    /// Prints the results.
    fn tell(&self, played: Played, out: &mut dyn Write) -> anyhow::Result<()> {
        let Played { ledgers, waits, lags_bytes, took, used, .. } = played;
        let rows = self.rows(&ledgers, waits, lags_bytes.as_deref());
        let seconds = took.as_secs_f64();
        summary::print(&rows, seconds, out)?;
        writeln!(
            out,
            "\n{}, {}, -b {}, stamps: {}; {seconds:.3} s, user {:.3} s, system {:.3} s; {} sweeps, {} of \
             them empty",
            self.options.algorithm,
            self.options.flows,
            self.args.bandwidth,
            self.arbiter().stamping,
            used.user_ns as f64 / 1e9,
            used.system_ns as f64 / 1e9,
            played.sweeps,
            played.sweeps_empty,
        )?;
        let unwritten: u64 =
            rows.iter().filter_map(|row| row.waits.as_ref()).map(|it| it.unwritten).sum();
        if rows.iter().any(|row| row.share.is_some_and(|it| it.due.is_none())) {
            writeln!(
                out,
                "due: told where each client has one flow; a client cycles through its flows"
            )?;
        }
        if unwritten > 0 {
            writeln!(
                out,
                "{unwritten} stamped packets were not written: the disk, or its thread, was late"
            )?;
        }
        if self.args.plot {
            for path in summary::draw(&rows, Path::new(&self.args.prefix))? {
                writeln!(out, "drawn: {}", path.display())?;
            }
        }
        match (played.failed, played.interrupted) {
            (Some(failed), _) => Err(failed),
            (None, true) => Err(Interrupted.into()),
            (None, false) => Ok(()),
        }
    }

    /// Returns a row for each client, and one for all clients together.
    fn rows(&self, ledgers: &[Ledger], waits: Vec<Waits>, lags_bytes: Option<&[f64]>) -> Vec<Row> {
        let threads = self.threads() as usize;
        let weights_sum = self.options.flows.weights_sum() as f64;
        let bytes: u64 = ledgers.iter().map(|ledger| ledger.counts.transmitted_bytes).sum();
        // A client cycles through its flows and has no others queued meanwhile: the share due to
        // several flows is not the sum of the shares due to each.
        let has_one_each = self.options.flows.flows_count() as usize <= threads;
        let mut due = vec![None; threads];
        for (flow, (weight, _)) in self.options.flows.flows().enumerate() {
            due[flow % threads] = has_one_each.then(|| f64::from(weight) / weights_sum);
        }
        let by_weight = self.options.algorithm.shares_by_weight();
        let mut all = Row { name: "all".into(), ..Row::default() };
        let mut waits = waits.into_iter();
        let mut rows = Vec::with_capacity(threads + 1);
        for (thread, ledger) in ledgers.iter().enumerate() {
            let counts = ledger.counts;
            let got = counts.transmitted_bytes as f64 / bytes.max(1) as f64;
            let own = |lags: &[f64]| {
                lags.iter().skip(thread).step_by(threads).copied().fold(0.0, f64::max)
            };
            let lag_bytes = lags_bytes.map(own);
            let waits = waits.next();
            all.counts.add(&counts);
            if let Some(lag) = lag_bytes {
                all.lag_bytes = Some(all.lag_bytes.unwrap_or(0.0).max(lag));
            }
            if let Some(waits) = &waits {
                all.waits.get_or_insert_with(Waits::default).add(waits);
            }
            let share = by_weight.then_some(Share { got, due: due[thread] });
            rows.push(Row { name: thread.to_string(), counts, share, lag_bytes, waits });
        }
        if threads > 1 {
            rows.push(all);
        }
        rows
    }
}

/// A client before its thread starts.
struct Member {
    client: Client,
    exit: Exit,
    recorder: Option<Recorder>,
}

/// Sink of one client's packets.
enum Exit {
    Null(Null),
    Copy(drive::Copy),
    Udp(Udp),
}

/// Runs a client. Generic over the sink, as a virtual call for every packet would show in the
/// figures.
fn send<K: Sink>(
    mut client: Client,
    work: Work<'_>,
    mut sink: K,
    recorder: Option<Recorder>,
) -> anyhow::Result<()> {
    match recorder {
        Some(mut recorder) => drive::work(&mut client, work, &mut sink, &mut recorder)?,
        None => drive::work(&mut client, work, &mut sink, &mut ())?,
    };
    Ok(())
}
