//! `hello1` to `hello5`: machines that send messages to themselves, to each other, and from one to
//! many.

mod log;
mod memory;
mod policy;
#[allow(unsafe_code)]
mod raw;
pub mod two_processes;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use handover_base::topology::{self, Placement, Topology};
use handover_base::units::{format_ns, format_rate};
use handover_base::usage::{self, Usage};
use handover_event::{
    Config, EndReason, Handler, HandlerTable, KIND_MAX, Machine, MachineError, ParkOn, RunError,
    Signals, SpawnError, Stopper, ThreadConfig, ThreadHandle, Verbosity, WakeWhen,
};
use handover_program::exit::{InterruptedUnstored, to_usage_error as wrong};
use handover_suite::event::drive::{
    self, HandlerLookup, KindMessage, KindPartner, LinearHandlerTable,
};
use log::{DemoLog, TRACING_TARGET};
use policy::{DemoPolicy, FirstMessage, SentLineFormat};
use rustix::event::{PollFd, PollFlags, poll};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum number of threads that hello4 and hello5 serve.
const THREADS_MAX: u64 = 1024;
/// Stack size of a client's thread in bytes: enough for its handler and a printed line.
const CLIENT_STACK_BYTES: usize = 128 << 10;
/// Pause before a message is answered, in all demos except hello3.
const ANSWER_PAUSE: Duration = Duration::from_secs(10);
/// Pause of hello3 before a message is answered.
const ANSWER_PAUSE_OF_HELLO3: Duration = Duration::from_millis(1);
/// Number of messages that a machine sends to itself between two checks of its timers. They take
/// about 10 µs.
const MESSAGES_PER_TIMER_CHECK: u32 = 4096;
/// Maximum number of message ids. The table of ids has two more entries, for the timers.
const IDS_MAX: u64 = KIND_MAX as u64 - 1;
/// Default number of message ids, as in the original's last measurements.
const IDS_DEFAULT: u64 = 20;

/// Text below the options in each demo's help. Explains the last output lines and the precedence of
/// -v, -t and -g.
const DEMO_AFTER_HELP: &str = "The last lines show the number of messages handled in all threads, each counted \
once, the rate, and the CPU time and context switches of the whole process. A message holds its number, which is \
formatted only when it is printed. Of -v, -t and -g, the one with the most output takes effect; none goes with -q.";

/// Options that the five demos `hello1` to `hello5` share.
#[derive(Debug, Args)]
pub struct DemoOptions {
    /// Disable all output except errors
    #[arg(short = 'q', long, conflicts_with_all = ["verbose", "trace", "debug"])]
    quiet: bool,
    /// Enable verbose output: a line for each callback
    #[arg(short = 'v', long)]
    verbose: bool,
    /// Enable liveloop measurement mode: answer at once, and print no message
    #[arg(short = 'l', long)]
    liveloop: bool,
    /// Enable trace output: verbose output, and a line for each stage of a message
    #[arg(short = 't', long)]
    trace: bool,
    /// Enable debug output: all lines
    #[arg(short = 'g', long)]
    debug: bool,
    /// Enable syslog output (instead of stdout, stderr)
    #[arg(short = 's', long)]
    syslog: bool,
    /// No header added to each line
    #[arg(short = 'n', long = "no-header")]
    no_header: bool,
    /// Time until the QUIT timer expires, with or without a fraction
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = super::number_parser(super::SECONDS_RANGE))]
    seconds: f64,
    /// Pin the threads to CPUs by their distance: near, far, smt or same [default: not pinned]
    #[arg(long, value_name = "NAME")]
    place: Option<Placement>,
}

impl DemoOptions {
    /// Returns the amount of output that the options select.
    fn verbosity(&self) -> Verbosity {
        match self {
            DemoOptions { quiet: true, .. } => Verbosity::Quiet,
            DemoOptions { debug: true, .. } => Verbosity::Debug,
            DemoOptions { trace: true, .. } => Verbosity::Trace,
            DemoOptions { verbose: true, .. } => Verbosity::Verbose,
            _ => Verbosity::Normal,
        }
    }

    /// Chooses a CPU for each participant. Without `--place`, returns `None` for each, which is not
    /// pinned.
    fn cpus(&self, participants_count: usize) -> anyhow::Result<Vec<Option<u32>>> {
        let Some(place) = self.place else { return Ok(vec![None; participants_count]) };
        let placed =
            Topology::read()?.choose_cpus(place, &topology::allowed_cpus(), participants_count);
        for note in &placed.notes {
            handover_program::console::print_error(format_args!("hello: warning: {note}"));
        }
        Ok(placed.cpus.into_iter().map(Some).collect())
    }

    /// Returns the behaviour of a machine without the QUIT timer.
    fn machine_policy(&self, opener: FirstMessage, cpu: Option<u32>, idle: Duration) -> DemoPolicy {
        DemoPolicy::new(self.liveloop, opener, None, cpu, idle)
    }

    /// Returns the behaviour of the machine that has the QUIT timer.
    fn main_machine_policy(
        &self,
        opener: FirstMessage,
        cpu: Option<u32>,
        idle: Duration,
    ) -> DemoPolicy {
        let stops_after = Duration::from_secs_f64(self.seconds);
        DemoPolicy::new(self.liveloop, opener, Some(stops_after), cpu, idle)
    }
}

/// One machine sends itself a message (EVM's hello1).
#[derive(Debug, Args)]
#[command(after_help = DEMO_AFTER_HELP)]
pub struct Hello1 {
    #[command(flatten)]
    shared_options: DemoOptions,
    /// Way in which the machine sends the message to itself
    #[arg(long, value_enum, default_value_t = SendMethod::Call)]
    via: SendMethod,
    /// Wake policy of `--via pass` [default: always]
    #[arg(long, value_enum, value_name = "WHEN")]
    wake: Option<WakePolicy>,
}

/// Ways in which a machine sends itself a message: with a notification of its thread, or without.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum SendMethod {
    /// Add the message to the queue of the machine's thread
    Call,
    /// Add the message to the queue, and notify the thread
    Pass,
}

/// Condition under which a message wakes the receiving thread: always, or only if it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum WakePolicy {
    /// Write to an eventfd for each message, as in the original
    Always,
    /// Notify the thread only if it sleeps
    Asleep,
}

impl From<WakePolicy> for WakeWhen {
    fn from(wake: WakePolicy) -> WakeWhen {
        match wake {
            WakePolicy::Always => WakeWhen::EachMessage,
            WakePolicy::Asleep => WakeWhen::Asleep,
        }
    }
}

/// Options for notifying the thread that receives a message: the mechanism, and the wake policy.
#[derive(Debug, Args)]
struct NotifyOptions {
    /// Wait in epoll without spinning, and notify through an eventfd, as evm_message_pass() does
    #[arg(long)]
    fds: bool,
    /// Wake policy; `always` implies --fds [default: always with --fds, else asleep]
    #[arg(long, value_enum, value_name = "WHEN")]
    wake: Option<WakePolicy>,
}

impl NotifyOptions {
    /// Returns the machines' configuration that these options select.
    fn config(&self) -> Config {
        let default = if self.fds { WakePolicy::Always } else { WakePolicy::Asleep };
        let wake = self.wake.unwrap_or(default);
        if !self.fds && wake == WakePolicy::Asleep {
            return Config::default();
        }
        let thread = ThreadConfig::default()
            .spin(handover_notify::Config::never_spin())
            .park_on(ParkOn::Descriptor)
            .wake_when(wake.into());
        Config::default().thread(thread)
    }
}

/// Two processes send each other a message over a socket pair (EVM's hello2).
#[derive(Debug, Args)]
#[command(after_help = DEMO_AFTER_HELP)]
pub struct Hello2 {
    #[command(flatten)]
    shared_options: DemoOptions,
    /// Run as the second process, with the socket as standard input
    #[arg(long, hide = true)]
    child: bool,
}

/// Two threads send each other a message (EVM's hello3).
#[derive(Debug, Args)]
#[command(after_help = DEMO_AFTER_HELP)]
pub struct Hello3 {
    #[command(flatten)]
    shared_options: DemoOptions,
    #[command(flatten)]
    notify_options: NotifyOptions,
    /// Method that finds a message's handler
    #[arg(long, value_enum, default_value_t = LookupKind::Direct, value_name = "HOW")]
    lookup: LookupKind,
    /// Number of registered message ids; each message has the last of them [default: 20]
    #[arg(long, value_name = "COUNT", value_parser = super::whole_number_parser(1..=IDS_MAX))]
    ids: Option<u64>,
}

/// Method that finds the handler of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LookupKind {
    /// Find the handler by index in a table
    Direct,
    /// Find the handler by linear search; the id that is sent is the last
    Search,
    /// Use no id: select the handler by a `match`, compiled into the loop
    Match,
}

/// One thread serves many other threads: each by its address (EVM's hello4), or all by topic
/// (hello5).
#[derive(Debug, Args)]
#[command(after_help = DEMO_AFTER_HELP)]
pub struct HelloMany {
    #[command(flatten)]
    shared_options: DemoOptions,
    #[command(flatten)]
    notify_options: NotifyOptions,
    /// Number of threads that are served
    #[arg(value_name = "num_additional_threads", default_value_t = 1)]
    #[arg(value_parser = super::whole_number_parser(0..=THREADS_MAX))]
    threads: u64,
}

pub fn run_hello1(args: &Hello1) -> anyhow::Result<()> {
    let (via, wake) = match (args.via, args.wake) {
        (SendMethod::Call, None) => (drive::SendMethod::Call, WakePolicy::Asleep),
        (SendMethod::Pass, wake) => (drive::SendMethod::Pass, wake.unwrap_or(WakePolicy::Always)),
        (SendMethod::Call, Some(wake)) => {
            let name = crate::value_name(wake);
            return Err(wrong(format!(
                "--wake {name}: --via call sends no notification; add --via pass, or omit --wake"
            )));
        }
    };
    let environment = Environment::new("DEMO1EVM", &args.shared_options, 0)?;
    let cpu = args.shared_options.cpus(1)?[0];
    let policy =
        args.shared_options.main_machine_policy(FirstMessage::FirstWhenIdle, cpu, ANSWER_PAUSE);
    let config = Config::default()
        .messages_per_round_max(MESSAGES_PER_TIMER_CHECK)
        .thread(ThreadConfig::default().wake_when(wake.into()));
    let machine = with_descriptor_hint(drive::new_self_sender(via, policy, config))?;
    run_machines(&environment, machine, no_others(), |it| &it.policy)
}

pub fn run_hello3(args: &Hello3) -> anyhow::Result<()> {
    if let (LookupKind::Match, Some(ids)) = (args.lookup, args.ids) {
        return Err(wrong(format!(
            "--ids {ids}: --lookup match uses no ids; choose --lookup direct or search"
        )));
    }
    let ids_count = args.ids.unwrap_or(IDS_DEFAULT) as usize; // at most IDS_MAX
    let environment = Environment::new("DEMO3EVM", &args.shared_options, 1)?;
    let options = &args.shared_options;
    let cpus = options.cpus(2)?;
    let to = |evm_id| match args.lookup {
        // Without ids, as in the oldest measurement, whose line does not name the receiver.
        LookupKind::Match => SentLineFormat::Plain,
        LookupKind::Direct | LookupKind::Search => SentLineFormat::To { evm_id },
    };
    let policies = [
        options
            .main_machine_policy(FirstMessage::Second, cpus[0], ANSWER_PAUSE_OF_HELLO3)
            .with_sent_line_format(to(1)),
        options
            .machine_policy(FirstMessage::First, cpus[1], ANSWER_PAUSE_OF_HELLO3)
            .with_sent_line_format(to(0)),
    ];
    let config = args.notify_options.config();
    match args.lookup {
        LookupKind::Direct => run_pair_by_id::<HandlerTable<KindPartner<DemoPolicy>, KindMessage>>(
            &environment,
            policies,
            ids_count,
            config,
        ),
        LookupKind::Search => run_pair_by_id::<
            LinearHandlerTable<KindPartner<DemoPolicy>, KindMessage>,
        >(&environment, policies, ids_count, config),
        LookupKind::Match => {
            run_pair(&environment, with_descriptor_hint(drive::new_pair(policies, config))?, |it| {
                &it.policy
            })
        }
    }
}

/// Runs two machines that find a message's handler by the message's id. `L` is the type of the
/// lookup.
fn run_pair_by_id<L>(
    environment: &Environment,
    policies: [DemoPolicy; 2],
    ids_count: usize,
    config: Config,
) -> anyhow::Result<()>
where
    L: HandlerLookup<DemoPolicy> + Send + 'static,
{
    let machines =
        with_descriptor_hint(drive::new_pair_by_id::<DemoPolicy, L>(policies, ids_count, config))?;
    run_pair(environment, machines, |it| &it.partner().policy)
}

/// Runs two machines until the QUIT timer expires. The first one is started before the second one's
/// thread, so that its line is printed first.
fn run_pair<H>(
    environment: &Environment,
    [mut first, second]: [Machine<H>; 2],
    policy: impl Fn(&H) -> &DemoPolicy,
) -> anyhow::Result<()>
where
    H: Handler + Send + 'static,
    H::Message: Send,
{
    if first.poll()?.end_reason.is_some() {
        first.stopper().stop(); // the QUIT timer has expired already: the run will end at once
    }
    run_machines(environment, first, vec![second], policy)
}

pub fn run_hello4(args: &HelloMany) -> anyhow::Result<()> {
    // With this tag and this text in all documented transcripts.
    let environment = Environment::new("DEMO3EVM", &args.shared_options, args.threads)?;
    let (server, clients) = args.policies()?;
    let clients =
        clients.into_iter().map(|client| client.with_sent_line_format(SentLineFormat::FirstJoined));
    let (server, clients) = with_descriptor_hint(drive::new_server_with_clients(
        server,
        clients,
        args.notify_options.config(),
    ))?;
    run_machines(&environment, server, clients, |it| &it.policy)
}

pub fn run_hello5(args: &HelloMany) -> anyhow::Result<()> {
    let environment = Environment::new("DEMO5EVM", &args.shared_options, args.threads)?;
    let (server, clients) = args.policies()?;
    let (server, clients) = with_descriptor_hint(drive::new_topic_server_with_clients(
        server,
        clients,
        args.notify_options.config(),
    ))?;
    run_machines(&environment, server, clients, |it| &it.policy)
}

/// Adds a hint about `ulimit -n` to a system-call error, as each machine needs descriptors.
fn with_descriptor_hint<T>(machines: Result<T, MachineError>) -> anyhow::Result<T> {
    machines.map_err(|refused| match refused {
        MachineError::SystemCall { .. } => anyhow::Error::new(refused).context(
            "cannot create a thread that is notified through an eventfd (it needs two descriptors; allow more with \
             `ulimit -n`, or ask for fewer threads)",
        ),
        refused => refused.into(),
    })
}

impl HelloMany {
    /// Returns the behaviour of the server and of each client.
    fn policies(&self) -> anyhow::Result<(DemoPolicy, Vec<DemoPolicy>)> {
        let options = &self.shared_options;
        let mut cpus = options.cpus(self.threads as usize + 1)?.into_iter();
        let server =
            options.main_machine_policy(FirstMessage::Second, cpus.next().flatten(), ANSWER_PAUSE);
        Ok((
            server,
            cpus.map(|cpu| options.machine_policy(FirstMessage::First, cpu, ANSWER_PAUSE))
                .collect(),
        ))
    }
}

/// Returns an empty list of other machines, for a demo with one machine. The machines' type is
/// arbitrary.
fn no_others() -> Vec<Machine<drive::SelfSendHandler<DemoPolicy>>> {
    Vec::new()
}

/// Environment of a demo: its log, and the signals that can stop it early.
struct Environment {
    log: Arc<DemoLog>,
    /// Blocked signals; `None` once the thread that waits for signals has taken them.
    signals: std::cell::Cell<Option<Signals>>,
    /// `true` after SIGINT or SIGTERM.
    interrupted: Arc<AtomicBool>,
}

/// Measurements of a demo, printed at its end.
struct Outcome {
    /// Number of messages that all machines have handled.
    handled_count: u64,
    /// Time from the start of all threads to the end of the demo.
    duration: Duration,
    /// CPU time and context switches of this process during the demo.
    usage: Usage,
    /// `true` if the QUIT timer ended the demo.
    has_timer_ended_demo: bool,
}

impl Environment {
    /// Sets up the log and blocks the signals. Must be called before any thread is started, so that
    /// the signals are blocked in all threads, and before memory is allocated for `others_count`
    /// threads, as it checks that there is enough.
    fn new(
        tag: &'static str,
        options: &DemoOptions,
        others_count: u64,
    ) -> anyhow::Result<Environment> {
        memory::check_for_threads(others_count + 1)?; // one more thread waits for signals
        let log =
            Arc::new(DemoLog::new(tag, options.verbosity(), !options.no_header, options.syslog)?);
        tracing::subscriber::set_global_default(Arc::clone(&log))
            .context("cannot set the global tracing subscriber")?;
        let signals = Signals::block(&[Signals::INT, Signals::TERM])?;
        let signals = std::cell::Cell::new(Some(signals));
        Ok(Environment { log, signals, interrupted: Arc::default() })
    }

    /// Arranges that a signal, or a failure to write the log, stops the run. A separate thread
    /// waits for the signals.
    fn stop_on_signal(&self, stopper: &Stopper) -> anyhow::Result<()> {
        self.log.set_failure_stopper(stopper.clone());
        let Some(signals) = self.signals.take() else { return Ok(()) };
        let (interrupted, stopper) = (Arc::clone(&self.interrupted), stopper.clone());
        let watch = move || {
            loop {
                // The only possible error is EINTR: there is one descriptor, and it is open.
                let _ = poll(&mut [PollFd::new(&signals, PollFlags::IN)], None);
                if signals.take().is_none() {
                    continue;
                }
                // AcqRel: Release pairs with the Acquire in is_interrupted().
                if interrupted.swap(true, Ordering::AcqRel) {
                    std::process::exit(130); // second signal
                }
                stopper.stop();
            }
        };
        let watching = thread::Builder::new().name("signals".into()).stack_size(1 << 16);
        watching.spawn(watch).context("cannot start the thread that waits for signals")?;
        Ok(())
    }

    /// Returns `true` after SIGINT or SIGTERM.
    fn is_interrupted(&self) -> bool {
        // Acquire: pairs with the Release in stop_on_signal().
        self.interrupted.load(Ordering::Acquire)
    }

    /// Prints the last lines of a demo. Returns an error if the demo was interrupted.
    fn print_outcome(&self, outcome: &Outcome) -> anyhow::Result<()> {
        let interrupted = self.is_interrupted();
        let Outcome { handled_count: handled, duration, usage, has_timer_ended_demo } = outcome;
        if *has_timer_ended_demo {
            tracing::info!(target: TRACING_TARGET, "QUIT timer expired ({handled} messages sent)!");
        } else if interrupted {
            tracing::info!(target: TRACING_TARGET, "Interrupted ({handled} messages sent)!");
        }
        let took_s = duration.as_secs_f64();
        let each = |total_ns: f64| match handled {
            0 => String::new(),
            handled => format!(", {} each", format_ns(total_ns / *handled as f64)),
        };
        let rate = format_rate(*handled as f64 / took_s.max(1e-9));
        tracing::info!(target: TRACING_TARGET, "{handled} messages in {took_s:.3} s: {rate}{}", each(took_s * 1e9));
        let cpu_ns = (usage.user_ns + usage.system_ns).max(1) as f64;
        let part = |ns: u64| {
            let per_message = each(ns as f64);
            let (cpu_s, cpu_percent) = (ns as f64 / 1e9, ns as f64 / cpu_ns * 100.0);
            format!("{cpu_s:.3} s ({cpu_percent:.0} %{per_message})")
        };
        tracing::info!(
            target: TRACING_TARGET,
            "user {}, system {}; context switches: {} voluntary, {} involuntary",
            part(usage.user_ns),
            part(usage.system_ns),
            usage.switches_voluntary,
            usage.switches_involuntary
        );
        self.log.take_write_error()?;
        match (interrupted, *has_timer_ended_demo) {
            (true, _) => Err(InterruptedUnstored.into()),
            (false, true) => Ok(()),
            (false, false) => bail!("the demo stopped before the QUIT timer expired"),
        }
    }
}

/// Runs `main` on this thread, and each of `others` on a separate thread. They run until the QUIT
/// timer expires or a signal is received. Then stops all of them and prints the number of messages
/// handled.
fn run_machines<M, O>(
    environment: &Environment,
    mut main: Machine<M>,
    others: Vec<Machine<O>>,
    policy: impl Fn(&M) -> &DemoPolicy,
) -> anyhow::Result<()>
where
    M: Handler,
    O: Handler + Send + 'static,
    O::Message: Send,
{
    let used = usage::process_usage();
    environment.stop_on_signal(&main.stopper())?;
    let others = start(others)?;
    let began = Instant::now();
    let ended = main.run();
    let took = began.elapsed();
    let mut handled = main.stats().handled;
    let mut fault = run_error(ended);
    for one in &others {
        one.stop();
    }
    for one in others {
        let (one, ended) = one.join();
        handled += one.stats().handled;
        fault = fault.or_else(|| run_error(ended));
    }
    let used = usage::process_usage() - used;
    let outcome = Outcome {
        handled_count: handled,
        duration: took,
        usage: used,
        has_timer_ended_demo: policy(main.handler()).has_quit(),
    };
    let printed = environment.print_outcome(&outcome);
    match fault {
        Some(fault) => Err(fault),
        None => printed,
    }
}

/// Starts each machine on its own thread. If one fails to start, stops those already started.
fn start<O>(others: Vec<Machine<O>>) -> anyhow::Result<Vec<ThreadHandle<Machine<O>>>>
where
    O: Handler + Send + 'static,
{
    let count = others.len();
    let mut running = Vec::with_capacity(count);
    for (index, machine) in others.into_iter().enumerate() {
        let thread = thread::Builder::new().stack_size(CLIENT_STACK_BYTES);
        match machine.spawn(thread) {
            Ok(started) => running.push(started),
            Err(SpawnError { error, .. }) => {
                running.iter().for_each(ThreadHandle::stop);
                for one in running {
                    drop(one.join()); // it was told to stop before it had any message
                }
                return Err(error).with_context(|| {
                    format!(
                        "cannot start thread {number} of {count} (ask for fewer, or allow more: with `ulimit -u`, \
                         or with the cgroup's pids.max)",
                        number = index + 1
                    )
                });
            }
        }
    }
    Ok(running)
}

/// Returns the error of a machine that failed or whose handler panicked; `None` otherwise.
fn run_error(ended: Result<EndReason, RunError>) -> Option<anyhow::Error> {
    match ended {
        Ok(EndReason::Panicked(message)) => Some(anyhow::anyhow!("a handler panicked: {message}")),
        Ok(_) => None,
        Err(refused) => Some(refused.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_used_with_fds_or_wake_always() {
        let asleep = (ParkOn::Auto, WakeWhen::Asleep);
        let always = (ParkOn::Descriptor, WakeWhen::EachMessage);
        for (fds, wake, expected) in [
            (false, None, asleep),
            (false, Some(WakePolicy::Asleep), asleep),
            (false, Some(WakePolicy::Always), always),
            (true, None, always),
            (true, Some(WakePolicy::Always), always),
            (true, Some(WakePolicy::Asleep), (ParkOn::Descriptor, WakeWhen::Asleep)),
        ] {
            let thread = NotifyOptions { fds, wake }.config().thread;
            assert_eq!((thread.park_on, thread.wake_when), expected, "{fds}, {wake:?}");
            let spins = !thread.spin.spin_max.is_zero();
            assert_eq!(spins, thread.park_on == ParkOn::Auto, "{fds}, {wake:?}");
        }
    }
}
