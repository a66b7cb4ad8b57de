//! `sched`: clients hand packets to an arbiter, which alone owns the scheduling algorithm.

mod experiments;
mod options;
mod record;
mod recorder;
mod shares;
mod summary;
mod tester;
mod udp;
mod watched;

use super::available_memory_bytes;
use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use handover_base::units::BitRate;
use handover_base::usage::{self as cpu, Usage};
use handover_base::{affinity, clock, file, topology};
use handover_program::console::{self, print_error};
use handover_program::exit::{interrupt_error, join_results, to_usage_error};
use handover_sched::Scheduler;
use handover_sched::drive::{
    Arbiter, ArbiterConfig, Client, ClientFlows, ClientRun, CopySink, FLOWS_MAX, IdlePolicy,
    LENGTH_MAX_BYTES, Ledger, Load, LoadSection, NullSink, Record, Sink, Stamping, StopMode, Token,
    run_client,
};
use handover_sched::engine::{PACKETS_LIMIT, Visitor};
use handover_sched::fairness::FairnessIndex;
use handover_suite::sched::program::{self, LoadProgram};
use options::SchedulerOptions;
use record::{PacketWaits, RecordFiles, WriteResults};
use recorder::{Recorder, WhenFull, new_buffer};
use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use summary::{ChartFiles, ResultRow, Share};
use udp::UdpSink;
use watched::WatchedScheduler;

/// Maximum number of clients.
const THREADS_MAX: u64 = 4096;
/// Stack size of a client: enough for its driver and a sink's buffers.
const CLIENT_STACK_BYTES: usize = 256 << 10;
/// Maximum of `-q`, the size of the queue between each client and the scheduler.
const QUEUE_MAX: u64 = 65536;
/// Maximum polling interval of the scheduler and of the clients, in µs.
const INTERVAL_US_MAX: u64 = 1_000_000;
/// Default duration in seconds, if neither the command line nor a client's program gives one.
const SECONDS_DEFAULT: f64 = 10.0;
const CONFIG_FILE_DEFAULT: &str = "sched.txt";
/// Ratio of the available memory to the maximum memory for unwritten time stamps.
const STAMPS_MEMORY_DIVISOR: u64 = 4;
/// Maximum memory for the unwritten time stamps of all clients, in bytes.
const STAMPS_BYTES_MAX: u64 = 4 << 30;
/// Minimum number of packets per client whose time stamps are buffered in memory. It applies
/// however little memory is available.
const STAMPS_KEPT_MIN: u64 = 1 << 10;
/// Number of clock readings for each stamped packet or batch. Client and arbiter make two each.
const STAMPS_COUNT: u32 = 4;
/// Maximum time for which a client waits for its last packets after the run has ended.
const LAST_PACKETS_TIMEOUT: Duration = Duration::from_secs(2);

/// Clients hand packets to an arbiter, which alone runs the scheduling algorithm; the waits of
/// packets are measured.
#[derive(Clone, Debug, Args)]
#[command(
    override_usage = "handover sched [OPTIONS] [-- [-alg NAME] [-flowsets W:L:F[,...]] [-qmax N]]",
    after_help = "Scheduler options stand after `--`, and may stand before it too:
  -alg NAME      fifo, rr (drr), rr1, prio, wf2q+ (wf2qp), qfq, qfq+ (qfqp)
                 or pacing [default: rr]
  -flowsets W:L:F[,...]
                 flows: weights W and packet lengths L, each
                 MIN[-MAX[-STEPS]], F flows of each [default: 1:1500:16, or as
                 many flows as threads]
  -qmax N        packets that a flow may have queued; one more is dropped
                 [default: no limit]

Flow f belongs to client f mod t; a client cycles through equal flows. In the configuration file a line is \
DURATION BANDWIDTH PACKET_SIZE BURST (1s 100M 64 1); the words `thread n` anywhere in a line begin those of \
another client; a client without a line sends as fast as it can.

PREFIXqueue-i.txt appears at the end, with a line for each packet: cli_enq (absolute ticks of the clock), \
sch_enq, sch_deq, cli_deq (each since the one before), pkt_len, flags (D: dropped).

A client whose flows differ keeps all of them queued, each with its part of SIZE packets, so that shares can \
follow the weights (due). The fair index is the maximum lag, in bytes, of a flow of the client behind the \
share that its weight gives it. It is measured when a packet of the flow leaves, over every period in which \
the flow had packets queued."
)]
pub struct Sched {
    /// Number of client threads
    #[arg(short = 't', value_name = "THREADS", default_value_t = 1)]
    #[arg(value_parser = super::whole_number_parser(1..=THREADS_MAX))]
    threads: u64,
    /// Client configuration file [default: sched.txt, if it exists]
    #[arg(short = 'f', value_name = "PATH")]
    file: Option<PathBuf>,
    /// Size of the queue between each client and the scheduler, in packets
    #[arg(short = 'q', value_name = "SIZE", default_value_t = 200)]
    #[arg(value_parser = super::whole_number_parser(1..=QUEUE_MAX))]
    queue: u64,
    /// Output bandwidth, in bit/s
    #[arg(short = 'b', value_name = "BANDWIDTH", default_value = "1G", value_parser = BitRate::from_str)]
    bandwidth: BitRate,
    /// Scheduler polling interval, in us; 0: it polls all the time
    #[arg(short = 'i', value_name = "US", default_value_t = 20)]
    #[arg(value_parser = super::whole_number_parser(0..=INTERVAL_US_MAX))]
    interval: u64,
    /// Client polling interval, in us; 0: they poll all the time
    #[arg(short = 'c', value_name = "US", default_value_t = 5)]
    #[arg(value_parser = super::whole_number_parser(0..=INTERVAL_US_MAX))]
    client_interval: u64,
    /// Prefix of the time-stamp files, which are called PREFIXqueue-i.txt
    #[arg(short = 'p', value_name = "PREFIX", default_value = "")]
    prefix: OsString,
    /// Core of the arbiter; if this process may not use it, another is taken, with a warning
    #[arg(short = 'a', value_name = "CORE", value_parser = super::whole_number_parser(0..=u64::from(u16::MAX)))]
    core: Option<u64>,
    /// Duration of the run in seconds, with or without a fraction [default: that of the longest
    /// program, or 10]
    #[arg(long, value_name = "SECONDS", value_parser = super::number_parser(super::SECONDS_RANGE))]
    seconds: Option<f64>,
    /// Maximum number of packets that the arbiter takes from a client, or marks for transmission,
    /// at once
    #[arg(long, value_name = "PACKETS", default_value_t = 32)]
    #[arg(value_parser = super::whole_number_parser(1..=1024))]
    batch: u64,
    /// Time stamps: of each packet, of each batch, or none
    #[arg(long, value_enum, default_value_t = Stamp::Packet)]
    stamp: Stamp,
    /// Reaction when there is no memory for more time stamps
    #[arg(long, value_name = "LOSS", value_enum, default_value_t = WhenFull::Block)]
    stamp_loss: WhenFull,
    /// Sink of transmitted packets: null, copy (a copy of their bytes), udp://HOST:PORT
    #[arg(long, value_name = "SINK", default_value = "null", value_parser = SinkTarget::from_str)]
    sink: SinkTarget,
    /// Draw PREFIXstages.svg and PREFIXshares.svg
    #[arg(long)]
    plot: bool,
    /// Test the algorithm alone, in dummynet's manner: one thread, no clients; options after `--`
    #[arg(long, conflicts_with_all = ["threads", "file", "sink", "plot", "stamp", "seconds", "core"])]
    #[arg(conflicts_with_all = ["bandwidth", "queue", "interval", "client_interval", "prefix", "batch", "stamp_loss"])]
    test: bool,
    /// Run experiments A to G of the classic table, and print the aggregate Mpps by the number of
    /// clients
    #[arg(long, value_name = "LETTERS", value_parser = experiments::parse_experiments)]
    #[arg(num_args = 0..=1, default_missing_value = "A,B,C,D,E,F,G")]
    #[arg(conflicts_with_all = ["threads", "file", "bandwidth", "queue", "interval", "plot", "stamp"])]
    #[arg(conflicts_with_all = ["stamp_loss", "prefix", "test"])]
    experiments: Option<experiments::SelectedExperiments>,
    /// Numbers of clients to run each experiment with
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "experiments")]
    #[arg(default_values_t = experiments::CLIENT_COUNTS, value_parser = super::whole_number_parser(1..=THREADS_MAX))]
    clients: Vec<u64>,
    #[arg(last = true, allow_hyphen_values = true, value_name = "SCHEDULER OPTIONS")]
    scheduler_options: Vec<String>,
}

/// Granularity of time stamps.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Stamp {
    /// Stamp each packet: two readings of the clock on each side
    Packet,
    /// Stamp each batch: its packets share its stamps
    Batch,
    /// Stamp nothing: write no files and measure no waits
    None,
}

/// Value of `--sink`: destination of transmitted packets.
#[derive(Clone, Copy, Debug)]
enum SinkTarget {
    Null,
    Copy,
    UdpSink(SocketAddr),
}

impl FromStr for SinkTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<SinkTarget, String> {
        match text {
            "null" => Ok(SinkTarget::Null),
            "copy" => Ok(SinkTarget::Copy),
            _ => {
                let address = text.strip_prefix("udp://").and_then(|it| it.parse().ok());
                address.map(SinkTarget::UdpSink).ok_or_else(|| {
                    "must be null, copy or udp://ADDRESS:PORT, as in udp://127.0.0.1:9000".into()
                })
            }
        }
    }
}

/// Moves the algorithm's options to the end of the command line, after `--`.
pub fn move_scheduler_options(words: &mut Vec<OsString>) {
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let mut theirs = words.split_off(end);
    let mut ours = std::mem::take(words).into_iter();
    let mut moved = Vec::new();
    while let Some(word) = ours.next() {
        if options::OPTION_NAMES.iter().any(|name| word == *name) {
            moved.push(word);
            moved.extend(ours.next());
        } else {
            words.push(word);
        }
    }
    if theirs.is_empty() && !moved.is_empty() {
        theirs.push("--".into());
    }
    words.append(&mut theirs);
    words.append(&mut moved);
}

pub fn run(args: &Sched, out: &mut dyn Write) -> anyhow::Result<()> {
    if args.test {
        return tester::run(&args.scheduler_options, out);
    }
    if let Some(selected) = &args.experiments {
        return experiments::run(args, selected, out);
    }
    let plan = SchedPlan::new(args, args.read_program()?)?;
    let has_stages = !matches!(args.stamp, Stamp::None);
    let charts = args.plot.then(|| ChartFiles::create(Path::new(&args.prefix), has_stages));
    let charts = charts.transpose()?;
    let result = plan.run()?;
    plan.print_result(result, charts, out)
}

/// Plan of a run, made before any thread is started.
struct SchedPlan<'a> {
    args: &'a Sched,
    options: SchedulerOptions,
    /// Load of each client, from the configuration file.
    program: LoadProgram,
    /// Packet lengths by flow, for clients without a program.
    flow_lengths_bytes: Vec<u32>,
    /// `true` for each client whose flows differ in weight or length. Such flows would not get
    /// their shares with one common window.
    flows_differ: Vec<bool>,
    cpus: Cpus,
    idle_policy: IdlePolicy,
    /// Duration of the run; `None` to run until the longest program ends.
    duration: Option<Duration>,
}

/// CPUs on which the threads of a run are pinned.
struct Cpus {
    arbiter: u32,
    clients: Vec<u32>,
}

impl<'a> SchedPlan<'a> {
    /// Checks the options, and completes them with defaults.
    fn new(args: &'a Sched, program: LoadProgram) -> anyhow::Result<SchedPlan<'a>> {
        let threads = args.threads as u32;
        let options =
            SchedulerOptions::parse(&args.scheduler_options, threads).map_err(to_usage_error)?;
        let flows_count = options.flows.flows_count();
        if flows_count > FLOWS_MAX {
            return Err(to_usage_error(format!(
                "-flowsets: {flows_count} flows exceed the limit of {FLOWS_MAX}"
            )));
        }
        let length_bytes = options.flows.length_max_bytes();
        if length_bytes > LENGTH_MAX_BYTES {
            return Err(to_usage_error(format!(
                "-flowsets: packets of {length_bytes} bytes: clients send {LENGTH_MAX_BYTES} at most; \
                 --test takes longer ones"
            )));
        }
        for absent in program.ignored_clients(threads) {
            print_error(format_args!(
                "sched: warning: thread {absent} does not exist: its lines are ignored"
            ));
        }
        if flows_count < threads {
            print_error(format_args!(
                "sched: warning: {flows_count} flows for {threads} threads: the threads from {flows_count} on \
                 have no flow, and send nothing"
            ));
        }
        let endless =
            (0..threads.min(flows_count)).any(|thread| program.sections_of(thread).is_empty());
        let span = match (args.seconds, endless) {
            (Some(seconds), _) => Some(seconds),
            // As long as the longest program, or the default duration without programs.
            (None, true) => {
                let longest = program.clients().filter(|(thread, _)| *thread < threads);
                let longest = longest.map(|(_, specs)| duration(specs)).max().unwrap_or_default();
                Some(if longest.is_zero() { SECONDS_DEFAULT } else { longest.as_secs_f64() })
            }
            (None, false) => None,
        };
        let cpus = args.choose_cpus();
        let idle_policy = IdlePolicy::for_threads(threads as usize + 1);
        let span = span.map(Duration::from_secs_f64);
        let flow_lengths_bytes = options.flows.flows().map(|(_, length)| length).collect();
        let (mut firsts, mut flows_differ) =
            (vec![None; threads as usize], vec![false; threads as usize]);
        for (flow, spec) in options.flows.flows().enumerate() {
            let client = flow % threads as usize;
            flows_differ[client] |= *firsts[client].get_or_insert(spec) != spec;
        }
        Ok(SchedPlan {
            args,
            options,
            program,
            flow_lengths_bytes,
            flows_differ,
            cpus,
            idle_policy,
            duration: span,
        })
    }

    /// Runs the clients and the arbiter with the selected algorithm.
    fn run(&self) -> anyhow::Result<RunResult> {
        let play = SchedulerVisitor { plan: self };
        self.options.algorithm.visit(&self.scheduler_config(), play).map_err(to_usage_error)?
    }

    /// Returns the number of client threads.
    fn threads(&self) -> u32 {
        self.args.threads as u32
    }

    /// Returns the flows to which the client on thread number `thread` sends.
    fn flows_of(&self, thread: u32) -> ClientFlows {
        ClientFlows::new(thread, self.threads(), self.options.flows.flows_count())
    }

    /// Returns a scheduler configuration that has room for all packets that can be in flight.
    fn scheduler_config(&self) -> handover_sched::Config {
        let in_flight = self.args.threads * self.args.queue;
        handover_sched::Config::default()
            .packets_max(u32::try_from(in_flight).unwrap_or(u32::MAX).min(PACKETS_LIMIT))
            .flows_max(self.options.flows.flows_count())
    }

    /// Returns the arbiter's configuration that the options select.
    fn arbiter_config(&self) -> ArbiterConfig {
        ArbiterConfig::default()
            .bandwidth_bps(Some(self.args.bandwidth.0))
            .mailbox_slots_count(self.args.queue as u32)
            .interval(Duration::from_micros(self.args.interval))
            .batch_max(self.args.batch as u32)
            .stamping(match self.args.stamp {
                Stamp::Packet => Stamping::Packet,
                Stamp::Batch => Stamping::Batch,
                Stamp::None => Stamping::None,
            })
            .idle_policy(self.idle_policy)
    }

    /// Returns the maximum packet length of each flow. It is the length of the flow set, or a
    /// longer one in the client's program.
    fn lengths_max_bytes(&self) -> Vec<u32> {
        let longest: Vec<u32> = (0..self.threads())
            .map(|thread| {
                self.program
                    .sections_of(thread)
                    .iter()
                    .map(|spec| spec.length_bytes)
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let flows = self.options.flows.flows().enumerate();
        flows.map(|(flow, (_, length))| length.max(longest[flow % longest.len()])).collect()
    }

    /// Returns the load of a client's program, or an endless load for a client without a program.
    fn load(&self, thread: u32) -> Load {
        match self.program.sections_of(thread) {
            [] => Load::endless(self.options.flows.length_max_bytes(), self.args.batch as u32),
            specs => Load::from_sections(specs),
        }
    }
}

/// Returns the total duration of the sections of a client's load.
fn duration(specs: &[LoadSection]) -> Duration {
    specs.iter().map(|spec| spec.duration).fold(Duration::ZERO, Duration::saturating_add)
}

impl Sched {
    /// Reads the configuration file; returns an empty program if the default file does not exist.
    fn read_program(&self) -> anyhow::Result<LoadProgram> {
        let path = self.file.as_deref().unwrap_or(Path::new(CONFIG_FILE_DEFAULT));
        let text = match file::read_text(path, file::LENGTH_MAX_BYTES) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound && self.file.is_none() => {
                return Ok(LoadProgram::default());
            }
            Err(error) => {
                let path = path.display();
                return Err(to_usage_error(format!("-f: cannot read {path}: {error}")));
            }
        };
        program::parse_load_program(&text)
            .map_err(|refused| to_usage_error(format!("-f: {}", refused.display_in_file(path))))
    }

    /// Chooses a CPU for each thread; warns if threads share CPUs.
    fn choose_cpus(&self) -> Cpus {
        let allowed = topology::allowed_cpus();
        let first = allowed.first().copied().unwrap_or(0);
        let arbiter = match self.core.map(|core| core as u32) {
            None => first,
            Some(core) if allowed.contains(&core) => core,
            Some(core) => {
                print_error(format_args!(
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
        // The experiments have told it of all runs together.
        if (threads > cpus || others[0] == arbiter) && self.experiments.is_none() {
            print_error(format_args!(
                "sched: warning: {threads} clients and the arbiter share {} CPUs, which lowers the figures",
                cpus + usize::from(others[0] != arbiter)
            ));
        }
        Cpus { arbiter, clients }
    }
}

/// Visitor that runs the clients on a concrete scheduler type.
struct SchedulerVisitor<'a> {
    plan: &'a SchedPlan<'a>,
}

impl Visitor<Token> for SchedulerVisitor<'_> {
    type Output = anyhow::Result<RunResult>;

    fn visit<S: Scheduler<Token> + Send + 'static>(self, scheduler: S) -> Self::Output {
        match self.plan.args.stamp {
            // Runs without stamps are about speed, so the scheduler is not watched.
            Stamp::None => self.plan.run_on(scheduler, |_| None),
            Stamp::Batch | Stamp::Packet => {
                let weights = self.plan.options.flows.flows().map(|(weight, _)| weight.into());
                self.plan.run_on(WatchedScheduler::new(scheduler, weights), |watched| {
                    Some(watched.into_fairness_index())
                })
            }
        }
    }
}

/// Results of a run with one scheduler.
struct RunResult {
    /// Numbers of packets of each client, by outcome.
    ledgers: Vec<Ledger>,
    /// Waiting times of the packets, and the result of writing their time-stamp files; `None`
    /// without time stamps.
    written: Option<WriteResults>,
    /// Bytes by which flows fell behind their due shares; `None` if fairness was not measured.
    fairness: Option<FairnessIndex>,
    duration: Duration,
    /// CPU time of this process during the run.
    usage: Usage,
    /// Number of times that the arbiter read all clients' mailboxes (sweeps).
    sweeps_count: u64,
    /// Number of sweeps in which the arbiter found no packet.
    empty_sweeps_count: u64,
    /// `true` if a signal has ended the run.
    is_interrupted: bool,
    /// First error of a client or of a time-stamp file. The results are printed nevertheless.
    error: Option<anyhow::Error>,
}

impl SchedPlan<'_> {
    /// Runs the clients with `scheduler`. `fairness_index` is called after the run.
    fn run_on<S: Scheduler<Token> + Send + 'static>(
        &self,
        mut scheduler: S,
        fairness_index: fn(S) -> Option<FairnessIndex>,
    ) -> anyhow::Result<RunResult> {
        super::raise_descriptors_limit();
        let specs = self.options.flows.specs(self.options.queued_max.unwrap_or(u32::MAX));
        for (spec, length_max_bytes) in specs.zip(self.lengths_max_bytes()) {
            let spec = spec.length_max_bytes(length_max_bytes);
            scheduler
                .add_flow(spec)
                .map_err(|refused| to_usage_error(format!("-flowsets: {refused}")))?;
        }
        let arbiter = Arbiter::new(scheduler, self.arbiter_config()).map_err(to_usage_error)?;
        let hub = arbiter.hub();
        let (mut setups, mut buffers) = (Vec::new(), Vec::new());
        let (stamps_kept_max, when_full) = (self.stamps_kept_max(), self.args.stamp_loss);
        for _ in 0..self.threads() {
            let (recorder, records) = match self.args.stamp {
                Stamp::None => (None, None),
                _ => {
                    let (recorder, records) = new_buffer(stamps_kept_max, when_full);
                    (Some(recorder), Some(records))
                }
            };
            buffers.extend(records);
            setups.push(ClientSetup { client: hub.join()?, sink: self.new_sink()?, recorder });
        }
        // Registered before there is any file that a signal could leave half written.
        let stop = console::interrupt_flag()?;
        let streams = match buffers.is_empty() {
            true => None,
            false => Some(RecordFiles::create(Path::new(&self.args.prefix), buffers)?),
        };
        let (core, used) = (self.cpus.arbiter, cpu::process_usage());
        let pin = move || drop(affinity::pin(core)); // best effort
        // Called here because the first calibration takes some 15 ms, which would count as the
        // run's.
        clock::calibration();
        let running = arbiter.spawn(pin).context("cannot start the arbiter thread")?;
        let began = Instant::now();
        let (written, failed, took, used) = thread::scope(|scope| {
            let writer = streams.map(|streams| scope.spawn(|| streams.write()));
            let mut failed = self.run_clients(setups, &stop);
            let (took, used) = (began.elapsed(), cpu::process_usage() - used);
            hub.stop(StopMode::Now);
            let mut written = match writer.map(thread::ScopedJoinHandle::join) {
                None => None,
                Some(Ok(written)) => Some(written),
                Some(Err(_)) => {
                    failed.get_or_insert(anyhow!("the thread that writes time stamps panicked"));
                    None
                }
            };
            let unwritten = written.as_mut().and_then(|written| written.error.take());
            (written, failed.or(unwritten), took, used)
        });
        // Acquire: pairs with nothing of ours; a store by the handler that is seen late no longer
        // interrupts.
        let interrupted = stop.load(Ordering::Acquire) && failed.is_none();
        let closed = running.join();
        Ok(RunResult {
            ledgers: closed.client_ledgers(),
            written,
            duration: took,
            usage: used,
            sweeps_count: closed.sweeps,
            empty_sweeps_count: closed.sweeps_empty,
            fairness: fairness_index(closed.scheduler),
            is_interrupted: interrupted,
            error: failed,
        })
    }

    /// Returns the maximum number of packets per client whose unwritten time stamps are kept in
    /// memory.
    fn stamps_kept_max(&self) -> u32 {
        let bytes = available_memory_bytes().unwrap_or(0) / STAMPS_MEMORY_DIVISOR;
        let records = bytes.min(STAMPS_BYTES_MAX) / size_of::<Record>() as u64;
        let each = (records / self.args.threads).max(STAMPS_KEPT_MIN);
        u32::try_from(each).unwrap_or(u32::MAX) // STAMPS_BYTES_MAX is below
    }

    /// Creates a sink for one client, as `--sink` requests.
    fn new_sink(&self) -> anyhow::Result<ClientSink> {
        Ok(match self.args.sink {
            SinkTarget::Null => ClientSink::Null(NullSink),
            SinkTarget::Copy => ClientSink::Copy(CopySink::new()),
            SinkTarget::UdpSink(to) => ClientSink::UdpSink(UdpSink::connect(to).context("--sink")?),
        })
    }

    /// Runs all clients until they end; returns the first error.
    fn run_clients(&self, setups: Vec<ClientSetup>, stop: &AtomicBool) -> Option<anyhow::Error> {
        thread::scope(|scope| {
            let (mut threads, mut failed) = (Vec::new(), None);
            for (thread, setup) in setups.into_iter().enumerate() {
                let plays = move || self.run_one_client(thread as u32, setup, stop);
                let builder = thread::Builder::new().stack_size(CLIENT_STACK_BYTES);
                match builder.spawn_scoped(scope, plays) {
                    Ok(started) => threads.push(started),
                    Err(refused) => {
                        stop.store(true, Ordering::Relaxed); // the other clients end
                        let text = format!(
                            "cannot start the thread of client {thread} of {clients_count} (ask for fewer with -t, or \
                             allow more with `ulimit -u` and `ulimit -v`)",
                            clients_count = self.threads()
                        );
                        failed = Some(anyhow::Error::new(refused).context(text));
                        break;
                    }
                }
            }
            for (thread, running) in threads.into_iter().enumerate() {
                let ended =
                    running.join().unwrap_or_else(|_| Err(anyhow!("the client's thread panicked")));
                if let Err(refused) = ended {
                    failed.get_or_insert(refused.context(format!("client {thread} failed")));
                }
            }
            failed
        })
    }

    /// Runs the client with number `thread` on the calling thread, after pinning the thread.
    fn run_one_client(
        &self,
        thread: u32,
        setup: ClientSetup,
        stop: &AtomicBool,
    ) -> anyhow::Result<()> {
        let ClientSetup { client, sink, recorder } = setup;
        let _ = affinity::pin(self.cpus.clients[thread as usize]); // best effort
        let work = ClientRun {
            load: self.load(thread),
            flows: self.flows_of(thread),
            has_window_per_flow: self.flows_differ[thread as usize],
            flow_lengths_bytes: match self.program.sections_of(thread) {
                [] => &self.flow_lengths_bytes,
                _ => &[],
            },
            in_flight_max: self.args.queue,
            poll_interval: Duration::from_micros(self.args.client_interval),
            idle_policy: self.idle_policy,
            stop,
            // Counted from the start of its run: a thread that gets its CPU late sends for as long
            // as the others.
            duration_max: self.duration,
            linger: LAST_PACKETS_TIMEOUT,
        };
        match sink {
            ClientSink::Null(sink) => run_with_sink(client, work, sink, recorder),
            ClientSink::Copy(sink) => run_with_sink(client, work, sink, recorder),
            ClientSink::UdpSink(sink) => run_with_sink(client, work, sink, recorder),
        }
    }

    /// Draws the charts and prints the tables. Returns the first error of the run.
    fn print_result(
        &self,
        mut result: RunResult,
        charts: Option<ChartFiles>,
        out: &mut dyn Write,
    ) -> anyhow::Result<()> {
        let waits = result.written.as_mut().map(|it| std::mem::take(&mut it.waits));
        let rows = self.rows(&result.ledgers, waits.unwrap_or_default(), result.fairness.as_ref());
        // Before the results are printed: a failure to print must not lose the charts.
        let drawn = charts.map_or(Ok(Vec::new()), |charts| charts.draw(&rows));
        let drawn_paths = drawn.as_deref().unwrap_or_default();
        let printed = self.print_tables(&result, &rows, drawn_paths, out);
        let measured = match (result.error, result.is_interrupted) {
            (Some(failed), _) => Err(failed),
            (None, true) => Err(interrupt_error(true, result.written.is_some())),
            (None, false) => Ok(()),
        };
        join_results(drawn.and(measured), printed.map_err(anyhow::Error::from))
    }

    /// Prints the table of the clients and flows, the settings and costs of the run, and the paths
    /// of the drawn charts.
    fn print_tables(
        &self,
        result: &RunResult,
        rows: &[ResultRow],
        drawn_paths: &[PathBuf],
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let seconds = result.duration.as_secs_f64();
        summary::print_table(rows, seconds, out)?;
        writeln!(
            out,
            "\n{}, {}, -b {}, stamps: {}; {seconds:.3} s, user {:.3} s, system {:.3} s; {} sweeps, {} of \
             them empty",
            self.options.algorithm,
            self.options.flows,
            self.args.bandwidth,
            self.arbiter_config().stamping,
            result.usage.user_ns as f64 / 1e9,
            result.usage.system_ns as f64 / 1e9,
            result.sweeps_count,
            result.empty_sweeps_count,
        )?;
        if let Some(written) = &result.written {
            self.print_stamp_cost(rows, written, out)?;
        }
        for line in shares::share_notes(self, rows, seconds) {
            writeln!(out, "{line}")?;
        }
        drawn_paths.iter().try_for_each(|path| writeln!(out, "drawn: {}", path.display()))
    }

    /// Prints the cost of the time stamps, and the number of stamped packets not written to files.
    fn print_stamp_cost(
        &self,
        rows: &[ResultRow],
        written: &WriteResults,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let of_clients = rows[..self.threads() as usize].iter();
        let mut sum = PacketWaits::default();
        of_clients.filter_map(|row| row.waits.as_ref()).for_each(|waits| sum.add(waits));
        let of_each = match self.args.stamp {
            Stamp::Batch => "batch",
            Stamp::Packet | Stamp::None => "packet",
        };
        writeln!(
            out,
            "stamps: {STAMPS_COUNT} readings of the clock a {of_each}, {:.1} ns each; {} lines, the last of \
             them {:.3} s after the run; clients waited {:.3} s for room",
            clock::calibration().cost_ns,
            sum.written_count,
            written.duration_after_run.as_secs_f64(),
            sum.buffer_wait.as_secs_f64(),
        )?;
        if sum.unwritten_count > 0 {
            writeln!(
                out,
                "{} stamped packets were not written: there was no room for them, or the file failed",
                sum.unwritten_count
            )?;
        }
        Ok(())
    }

    /// Returns a table row for each client, and one for all clients together.
    fn rows(
        &self,
        ledgers: &[Ledger],
        waits: Vec<PacketWaits>,
        fairness: Option<&FairnessIndex>,
    ) -> Vec<ResultRow> {
        let threads = self.threads() as usize;
        let weights_sum = self.options.flows.weights_sum() as f64;
        let bytes: u64 = ledgers.iter().map(|ledger| ledger.counts.transmitted_bytes).sum();
        let mut due = vec![0.0; threads];
        for (flow, (weight, _)) in self.options.flows.flows().enumerate() {
            due[flow % threads] += f64::from(weight) / weights_sum;
        }
        let (mut lags_bytes, mut emptied) = (vec![0.0_f64; threads], vec![0; threads]);
        if let Some(index) = fairness {
            let of_flows = index.flows_backlogged_bytes().zip(index.flows_emptied_counts());
            for (flow, (lag_bytes, count)) in of_flows.enumerate() {
                lags_bytes[flow % threads] = lags_bytes[flow % threads].max(lag_bytes);
                emptied[flow % threads] += count;
            }
        }
        let by_weight = self.options.algorithm.has_weights();
        let mut all = ResultRow { name: "all".into(), ..ResultRow::default() };
        let mut waits = waits.into_iter();
        let mut rows = Vec::with_capacity(threads + 1);
        for (thread, ledger) in ledgers.iter().enumerate() {
            let counts = ledger.counts;
            let got = counts.transmitted_bytes as f64 / bytes.max(1) as f64;
            let lag_bytes = fairness.map(|_| lags_bytes[thread]);
            let emptied = fairness.map(|_| emptied[thread]);
            let waits = waits.next();
            all.counts.add(&counts);
            if let Some(lag) = lag_bytes {
                all.lag_bytes = Some(all.lag_bytes.unwrap_or(0.0).max(lag));
            }
            if let Some(waits) = &waits {
                all.waits.get_or_insert_with(PacketWaits::default).add(waits);
            }
            let share = by_weight.then_some(Share { obtained: got, due: due[thread] });
            rows.push(ResultRow {
                name: thread.to_string(),
                counts,
                share,
                lag_bytes,
                emptied_count: emptied,
                waits,
            });
        }
        if threads > 1 {
            rows.push(all);
        }
        rows
    }
}

/// Client whose thread has not started yet.
struct ClientSetup {
    client: Client,
    sink: ClientSink,
    recorder: Option<Recorder>,
}

/// Sink of one client's transmitted packets.
enum ClientSink {
    Null(NullSink),
    Copy(CopySink),
    UdpSink(UdpSink),
}

/// Runs a client with a sink of type `K`. A virtual call per packet would show in the
/// figures.
fn run_with_sink<K: Sink>(
    mut client: Client,
    work: ClientRun<'_>,
    mut sink: K,
    recorder: Option<Recorder>,
) -> anyhow::Result<()> {
    match recorder {
        Some(mut recorder) => run_client(&mut client, work, &mut sink, &mut recorder)?,
        None => run_client(&mut client, work, &mut sink, &mut ())?,
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_scheduler_move_behind_the_dashes() {
        for (typed, parsed) in [
            ("sched -b 5G -q 9 -i 5 -alg rr", "sched -b 5G -q 9 -i 5 -- -alg rr"),
            ("sched -alg rr -t 2 -- -qmax 3", "sched -t 2 -- -qmax 3 -alg rr"),
            ("sched -t 2 -flowsets 1:1:1 -alg", "sched -t 2 -- -flowsets 1:1:1 -alg"),
            ("sched -t 2 -- -alg rr", "sched -t 2 -- -alg rr"),
            ("sched -a 1", "sched -a 1"),
        ] {
            let mut words: Vec<OsString> = typed.split(' ').map(OsString::from).collect();
            move_scheduler_options(&mut words);
            assert_eq!(words, parsed.split(' ').map(OsString::from).collect::<Vec<_>>(), "{typed}");
        }
    }
}
