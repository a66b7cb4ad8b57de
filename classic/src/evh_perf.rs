//! `evh_perf`: an event handler that echoes, its load client, and a mode that holds many idle
//! connections.

#[cfg(feature = "mpi")]
mod by_mpi;
mod client;
mod connect;
mod document;
mod live;
mod options;
mod outcome;
mod parts;
mod printer;
#[cfg(feature = "tls")]
mod secret;
#[cfg(not(feature = "tls"))]
#[path = "evh_perf/secret_disabled.rs"]
mod secret;
mod serve;
mod stages;

pub use options::EvhPerf;

use handover_program::console::{self, OptionalOutput};
use handover_program::exit::ChildExit;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub fn run(args: &EvhPerf, out: &mut dyn Write) -> anyhow::Result<()> {
    args.validate()?;
    let out = &mut OptionalOutput::new(out, args.hdr.is_some());
    #[cfg(feature = "mpi")]
    if let Some(rank) = by_mpi::rank_of_client(args)? {
        return by_mpi::run(args, &rank, &Signals::new()?, out);
    }
    if args.part.is_some() {
        return match (args.connect, args.eventhandler) {
            (true, _) => connect::run_as_worker(args),
            (_, true) => serve::run_as_worker(args),
            _ => client::run_as_worker(args),
        };
    }
    let signals = Signals::new()?;
    let is_split = args.processes > 1;
    match (args.connect, args.eventhandler, args.client) {
        (true, ..) => connect::run(args, &signals, out),
        (_, true, true) => run_server_and_client(args, &signals, out),
        (_, true, _) if is_split => parts::serve_in_processes(args, &signals, out),
        (_, true, _) => serve::run(args, &signals, out),
        _ if is_split => client::run_in_processes(args, &signals, out),
        _ => client::run(args, &signals, out),
    }
}

/// Serves and generates the load in this process.
fn run_server_and_client(
    args: &EvhPerf,
    signals: &Signals,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut args = args.clone();
    let server = serve::start(&args)?;
    args.port = server.address().port();
    let mut printer = printer::Printer::new(out, args.json);
    printer.print_settings("EventHandler", &serve::settings(&args))?;
    serve::print_started(&args, server.start_duration, &mut printer)?;
    let ran = client::run(&args, signals, out);
    server.stop(&args, &mut printer::Printer::new(out, args.json))?;
    ran
}

/// Flags that the signal handlers set.
pub struct Signals {
    /// `true` after SIGINT.
    interrupted: Arc<AtomicBool>,
    /// `true` after SIGTERM or SIGHUP.
    terminated: Arc<AtomicBool>,
}

impl Signals {
    /// Registers handlers of SIGINT, SIGTERM and SIGHUP. A second SIGINT or SIGTERM kills the
    /// process at once.
    fn new() -> anyhow::Result<Self> {
        let signals = Self { interrupted: Arc::default(), terminated: Arc::default() };
        console::set_on_stop_signal(SIGINT, &signals.interrupted)?;
        console::set_on_stop_signal(SIGTERM, &signals.terminated)?;
        console::set_on_hangup(&signals.terminated)?;
        Ok(signals)
    }

    /// Returns `true` after SIGINT, SIGTERM or SIGHUP.
    fn is_any_received(&self) -> bool {
        // Relaxed: the flags publish no other data.
        self.interrupted.load(Ordering::Relaxed) || self.terminated.load(Ordering::Relaxed)
    }

    /// Returns an error with exit code 130 if SIGINT was received. Returns `Ok` after SIGTERM or
    /// SIGHUP, and without a signal.
    fn exit_result(&self) -> anyhow::Result<()> {
        // Relaxed: the flag publishes no other data.
        match self.interrupted.load(Ordering::Relaxed) {
            true => Err(ChildExit(130).into()),
            false => Ok(()),
        }
    }
}

/// Prints a warning to standard error.
fn warn(text: impl std::fmt::Display) {
    console::print_error(format_args!("evh_perf: warning: {text}"));
}
