//! The classic programs as subcommands.

use crate::{
    calls, eventual, evh_perf, hello, margo, node_microbench, notify, scale, sched, trylock,
};
use clap::Subcommand;
use std::ffi::OsString;
use std::io::Write;

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
