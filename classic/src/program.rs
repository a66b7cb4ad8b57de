//! The classic programs as subcommands, and what several of them need.

use crate::{
    calls, eventual, evh_perf, hello, load, margo, node_microbench, notify, scale, sched, trylock,
};
use anyhow::Context;
use clap::{Subcommand, ValueEnum};
use handover_base::topology;
use std::ffi::OsString;
use std::io::Write;
use std::ops::RangeInclusive;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::OnceLock;
use std::thread;

/// Classic program with its arguments.
#[derive(Debug, Subcommand)]
pub enum Program {
    /// A machine sends itself a message (classic)
    Hello1(hello::Hello1),
    /// Two processes send each other a message over a socket pair (classic)
    Hello2(hello::Hello2),
    /// Two threads send each other a message (classic)
    Hello3(hello::Hello3),
    /// One thread serves many other threads, each by its address (classic)
    Hello4(hello::HelloMany),
    /// One thread posts to many other threads by topic (classic)
    Hello5(hello::HelloMany),
    /// Clients hand packets to a scheduler's arbiter, without a lock (classic)
    Sched(sched::Sched),
    /// Contention on a lock that is always busy, or passed around (classic)
    Trylock(trylock::Trylock),
    /// Cost of a notification to its receiver and its sender (classic)
    Notify(notify::NotifyArgs),
    /// Cost of a function call, by location of the function (classic)
    Calls(calls::Calls),
    /// Cost of calls, clock reads, locks and look-ups within one process (classic)
    #[command(name = "node-microbench")]
    NodeMicrobench(node_microbench::NodeMicrobench),
    /// Echo server, its load client, or a client with a million idle connections (classic)
    #[command(name = "evh_perf", disable_help_flag = true, args_override_self = true)]
    EvhPerf(Box<evh_perf::EvhPerf>),
    /// Round-trip time of a no-op RPC between two processes; started alone, by mpiexec or by srun
    /// (classic)
    #[command(name = "margo-p2p-latency")]
    MargoP2pLatency(margo::latency::Latency),
    /// Bandwidth of memory transfers between two processes; started alone, by mpiexec or by srun
    /// (classic)
    #[command(name = "margo-p2p-bw")]
    MargoP2pBw(margo::bw::Bandwidth),
    /// Rate and latency of no-op RPCs among many processes; started alone, by mpiexec or by srun
    #[command(name = "rpc-scale")]
    RpcScale(scale::Scale),
    /// Rate at which many concurrent eventuals are made, waited for and set (classic)
    #[command(name = "abt-eventual-bench")]
    AbtEventualBench(eventual::bench::Bench),
    /// Runs of abt-eventual-bench with several numbers of fibers; writes the results to a file
    /// (classic)
    #[command(name = "sweep-abt-eventual-bench")]
    SweepAbtEventualBench(eventual::sweep::Sweep),
    /// Charts of the results that sweep-abt-eventual-bench has written (classic)
    #[command(name = "plot-abt-eventual-bench")]
    PlotAbtEventualBench(eventual::plot::Plot),
}

impl Program {
    /// Runs the program, and writes its results to `out`.
    ///
    /// # Errors
    /// If an argument is wrong or a system call fails; see [`handover_program::exit`].
    pub fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        match self {
            Program::Hello1(args) => hello::run_hello1(args),
            Program::Hello2(args) => hello::two_processes::run(args),
            Program::Hello3(args) => hello::run_hello3(args),
            Program::Hello4(args) => hello::run_hello4(args),
            Program::Hello5(args) => hello::run_hello5(args),
            Program::Sched(args) => sched::run(args, out),
            Program::Trylock(args) => trylock::run(args, out),
            Program::Notify(args) => notify::run(args, out),
            Program::Calls(args) => calls::run(args, out),
            Program::NodeMicrobench(args) => node_microbench::run(args, out),
            Program::EvhPerf(args) => evh_perf::run(args, out),
            Program::MargoP2pLatency(args) => margo::run(args, out),
            Program::MargoP2pBw(args) => margo::bw::run(args, out),
            Program::RpcScale(args) => scale::run(args, out),
            Program::AbtEventualBench(args) => eventual::bench::run(args, out),
            Program::SweepAbtEventualBench(args) => eventual::sweep::run(args, out),
            Program::PlotAbtEventualBench(args) => eventual::plot::run(args),
        }
    }

    /// Moves the algorithm's options of sched to the end of the command line, after `--`. The
    /// manual of sched omits the `--`. Leaves the words of other programs unchanged.
    pub fn move_scheduler_options(words: &mut Vec<OsString>) {
        if words.get(1).is_some_and(|command| command == "sched") {
            sched::move_scheduler_options(words);
        }
    }
}

/// Returns a parser of whole numbers within `bounds`.
pub(crate) fn whole_number_parser(
    bounds: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<u64, String> + Clone {
    move |text| {
        let value = text.parse().ok().filter(|value| bounds.contains(value));
        let is_fraction = text.parse().is_ok_and(|value: f64| value.fract() != 0.0);
        let must = if is_fraction { "must be a whole number in" } else { "must lie in" };
        value.ok_or_else(|| format!("{must} {}..={}", bounds.start(), bounds.end()))
    }
}

/// Returns a parser of numbers within `bounds`, with or without a fraction.
pub(crate) fn number_parser(
    bounds: RangeInclusive<f64>,
) -> impl Fn(&str) -> Result<f64, String> + Clone {
    move |text| {
        let must = if text.parse::<f64>().is_ok() { "must lie in" } else { "must be a number in" };
        let value = text.parse().ok().filter(|value| bounds.contains(value));
        value.ok_or_else(|| format!("{must} {}..={}", bounds.start(), bounds.end()))
    }
}

/// Returns the name on the command line of an option's value.
pub(crate) fn value_name(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |it| it.get_name().to_owned())
}

/// Range of the number of operations per table row, in millions. The maximum takes days. The
/// originals take whole numbers; a fraction is for a short test.
pub(crate) const MILLIONS_RANGE: RangeInclusive<f64> = 0.001..=1e6;
/// Range of the duration of a demo or of a run of sched, in seconds. The maximum is a year.
pub(crate) const SECONDS_RANGE: RangeInclusive<f64> = 0.001..=31_536_000.0;

/// Parses the number of a CPU that this process may use.
pub(crate) fn parse_cpu(text: &str) -> Result<u32, String> {
    let allowed = topology::allowed_cpus();
    text.parse().ok().filter(|core| allowed.contains(core)).ok_or_else(|| {
        let cpus: Vec<String> = allowed.iter().map(u32::to_string).collect();
        format!("this process may use CPUs {cpus} only", cpus = cpus.join(", "))
    })
}

/// Returns this machine's available memory in bytes; `None` if the kernel does not report it.
pub(crate) fn available_memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    load::process::bytes_in_line(&text, "MemAvailable:")
}

/// Returns a command that runs a classic program as a subcommand of this binary. The names of this
/// process and of its binary do not matter.
pub(crate) fn own_program_command(name: &str) -> anyhow::Result<Command> {
    let binary = std::env::current_exe().context("cannot find the path of this program")?;
    let mut command = Command::new(binary);
    command.arg0("handover").arg(name);
    Ok(command)
}

/// Returns the arguments of this process, without the name of the classic program.
pub(crate) fn own_arguments(name: &str) -> impl Iterator<Item = OsString> {
    let mut words = std::env::args_os().skip(1).peekable();
    words.next_if(|word| word == name);
    words
}

/// Runs `body(index)` on one thread for each of `cpus`, and waits for all. The threads are not
/// pinned: `body` must pin its thread. No thread runs `body` before all have been started; if one
/// cannot be started, none runs it, and the result is an error.
pub(crate) fn run_on_cpus<T: Send>(
    cpus: &[u32],
    body: &(dyn Fn(usize) -> anyhow::Result<T> + Sync),
) -> anyhow::Result<Vec<T>> {
    // A thread waits here until all have been started, so that a failed start leaves no thread
    // stuck at a barrier in the body.
    let gate = &OnceLock::<bool>::new();
    thread::scope(|scope| {
        let mut started = Vec::new();
        for index in 0..cpus.len() {
            let waiting = move || gate.wait().then(|| body(index));
            match thread::Builder::new().stack_size(1 << 18).spawn_scoped(scope, waiting) {
                Ok(thread) => started.push(thread),
                Err(error) => {
                    let _ = gate.set(false); // Set only once.
                    let count = cpus.len();
                    return Err(error).with_context(|| {
                        format!("cannot start thread {number} of {count}", number = index + 1)
                    });
                }
            }
        }
        let _ = gate.set(true); // Set only once.
        let mut results = Vec::new();
        for thread in started {
            let result = thread.join().map_err(|_| anyhow::anyhow!("a worker thread panicked"))?;
            results.push(result.context("a worker thread stopped before it began its work")??);
        }
        Ok(results)
    })
}
