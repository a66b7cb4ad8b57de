//! The event handler: a server that echoes every message.

use super::options::EvhPerf;
use super::parts;
use super::printer::{Printer, format_with_commas};
use super::{Signals, secret, warn};
use crate::load::wire::{HEADER_BYTES, LETTERS_MAX};
use crate::raise_descriptors_limit;
use anyhow::Context as _;
use handover_base::units::format_ns;
use handover_net::engine::LengthPrefixCodec;
use handover_net::{
    AcceptPolicy, CloseReason, Config, Conn, ConnKey, Connections, FullConnectionsPolicy, Handler,
    ListenOptions, Net, NetBuilder, Stats,
};
use handover_program::trim_heap;
use serde_json::{Value, json};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Interval between printed statistics.
const STATS_INTERVAL: Duration = Duration::from_secs(3);
/// Interval between checks whether heap memory should be returned to the system.
const TRIM_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum number of closed connections before heap memory is returned to the system. Returning it
/// briefly takes the allocator's locks.
const TRIM_CLOSED_MIN: u64 = 64;
/// Maximum time for the event handler to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of bytes queued for one connection: a few of the longest messages.
const QUEUED_BYTES_MAX: u32 = 8 << 20;
/// Size of the header without its length field. The length in that field does not include it.
const UNCOUNTED_HEADER_BYTES: u32 = HEADER_BYTES as u32 - 4;

/// Handler that sends back every message.
struct Echo {
    /// Channel for log lines about connections, if they are to be printed.
    log: Option<Sender<String>>,
}

impl Handler for Echo {
    type Codec = LengthPrefixCodec;
    type Data = ();

    fn on_accept(&mut self, conn: &mut Conn<'_, LengthPrefixCodec, ()>) {
        if let Some(log) = &self.log {
            let peer = conn.peer_address().map_or("a peer".to_string(), |peer| peer.to_string());
            let _ = log.send(format!("{peer} has connected"));
        }
    }

    fn on_message(&mut self, conn: &mut Conn<'_, LengthPrefixCodec, ()>, message: &[u8]) {
        // Fails only if the peer has closed or does not read; the connection is closed then.
        let _ = conn.send(message);
    }

    fn on_close(
        &mut self,
        _: &mut Connections<'_, LengthPrefixCodec, ()>,
        _: ConnKey,
        (): (),
        why: &CloseReason,
    ) {
        if let Some(log) = &self.log {
            let _ = log.send(format!("a connection was closed: {why}"));
        }
    }
}

/// Running server, with the channel of its log lines.
pub struct Server {
    net: Net<Echo>,
    /// Log lines of the connections, to be printed.
    log_lines: Receiver<String>,
    /// Time that starting the server took.
    pub start_duration: Duration,
    /// Number of closed connections when heap memory was last returned to the system.
    closed_count_at_trim: u64,
}

/// Returns the server's settings to print, as names and values.
pub fn settings(args: &EvhPerf) -> Vec<(&'static str, String)> {
    let mut settings = vec![
        ("debug", args.debug.to_string()),
        ("host", args.host.clone()),
        ("max_handles_per_thread", format_with_commas(args.max_handles_setting())),
        ("port", args.port.to_string()),
        ("read_slab_count", format_with_commas(args.read_slab_count)),
        ("reuse_port", args.reuse_port.to_string()),
        ("stats", args.stats.to_string()),
        ("threads", format_with_commas(args.threads)),
    ];
    if args.tls {
        settings.push(("tls", args.tls.to_string()));
    }
    // Settings that the classic program does not have come last, and only if given.
    if args.processes > 1 {
        settings.push(("processes", args.processes.to_string()));
    }
    settings.extend(args.spin.map(|spin| ("spin", format_ns(f64::from(spin)))));
    settings
}

/// Starts the server's threads, which listen at the address of the options.
pub fn start(args: &EvhPerf) -> anyhow::Result<Server> {
    let began = Instant::now();
    let handles_max = args.handles_max();
    let descriptors_max = raise_descriptors_limit();
    if handles_max > descriptors_max {
        warn(format_args!(
            "this process may open {descriptors_max} descriptors, fewer than \
             --max_handles_per_thread {handles_max}; raise that with: ulimit -n {}",
            handles_max.saturating_mul(args.threads) + 64
        ));
    }
    let config = Config::default()
        // At most 2^24.
        .connections_max(handles_max as u32)
        .when_full(FullConnectionsPolicy::Reject)
        .read_bytes(args.read_bytes())
        .queued_bytes_max(QUEUED_BYTES_MAX)
        .spin_max(Duration::from_nanos(args.spin.unwrap_or(0).into()));
    let codec = LengthPrefixCodec::new(LETTERS_MAX).with_header(UNCOUNTED_HEADER_BYTES);
    let is_shared = args.reuse_port || args.part.is_some();
    let accept_policy = if is_shared { AcceptPolicy::ReusePort } else { AcceptPolicy::RoundRobin };
    let address = args.address()?;
    let (sender, log_lines) = channel();
    let mut listen = ListenOptions::new(address);
    if let Some(server) = secret::server_tls(args)? {
        listen = listen.with_tls(&server);
    }
    // One of several processes prints no such lines.
    let logs = args.debug && args.part.is_none();
    let echo = |_| Echo { log: logs.then(|| sender.clone()) };
    let net = NetBuilder::new()
        .threads(args.threads as u32)
        .listen(listen)
        .accept_policy(accept_policy)
        .config(config)
        .start(codec, echo)
        .with_context(|| format!("cannot serve at {address}"))?;
    Ok(Server { net, log_lines, start_duration: began.elapsed(), closed_count_at_trim: 0 })
}

/// Prints that the server has started. Also prints the limit of connections, unless an option sets
/// it.
pub fn print_started(
    args: &EvhPerf,
    took: Duration,
    printer: &mut Printer<'_>,
) -> std::io::Result<()> {
    printer.print_info(format_args!("Server started in {} ms.", took.as_millis()))?;
    if args.max_handles_per_thread.is_none() {
        printer.print_info(format_args!(
            "A thread accepts up to {} connections; -h sets another limit.",
            format_with_commas(args.handles_max())
        ))?;
    }
    printer.flush()
}

impl Server {
    pub fn address(&self) -> SocketAddr {
        self.net.addresses()[0]
    }

    /// Returns free heap memory to the system if enough connections were closed since it was last
    /// returned. Enough are as many as are open, and at least `TRIM_CLOSED_MIN`.
    fn trim_if_enough_closed(&mut self) {
        let Stats { accepted_count, closed_count, .. } = self.net.stats();
        let open = accepted_count.saturating_sub(closed_count);
        if closed_count - self.closed_count_at_trim >= open.max(TRIM_CLOSED_MIN) {
            self.closed_count_at_trim = closed_count;
            trim_heap();
        }
    }

    /// Answers pending messages, stops the server, and prints the remaining lines and statistics.
    pub fn stop(self, args: &EvhPerf, printer: &mut Printer<'_>) -> anyhow::Result<Stats> {
        let (stats, _) = self.net.stop(STOP_TIMEOUT).context("cannot stop the event handler")?;
        for line in self.log_lines.try_iter() {
            printer.print_debug(format_args!("{line}"))?;
        }
        if args.stats {
            print_stats(&stats, printer)?;
        }
        printer.flush()?;
        Ok(stats)
    }
}

pub fn run(args: &EvhPerf, signals: &Signals, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut server = start(args)?;
    let listed = EvhPerf { port: server.address().port(), ..args.clone() };
    let mut printer = Printer::new(out, false);
    printer.print_settings("EventHandler", &settings(&listed))?;
    print_started(args, server.start_duration, &mut printer)?;
    let mut next = Instant::now() + STATS_INTERVAL;
    let mut next_trim = Instant::now() + TRIM_INTERVAL;
    while !signals.is_any_received() {
        if let Ok(line) = server.log_lines.recv_timeout(Duration::from_millis(50)) {
            printer.print_debug(format_args!("{line}"))?;
        } else if !args.debug {
            // Without --debug the channel has no senders, and receiving from it does not wait.
            std::thread::sleep(Duration::from_millis(50));
        }
        if Instant::now() >= next_trim {
            next_trim += TRIM_INTERVAL;
            server.trim_if_enough_closed();
        }
        if args.stats && Instant::now() >= next {
            next += STATS_INTERVAL;
            print_stats(&server.net.stats(), &mut printer)?;
        }
    }
    let stats = server.stop(args, &mut printer)?;
    print_stopped(&stats, &mut printer)?;
    signals.exit_result()
}

/// Prints that the server has stopped, and its numbers of connections and messages.
pub fn print_stopped(stats: &Stats, printer: &mut Printer<'_>) -> std::io::Result<()> {
    printer.print_info(format_args!(
        "Server stopped: {} connections, {} messages.",
        format_with_commas(stats.accepted_count),
        format_with_commas(stats.messages_count)
    ))?;
    printer.flush()
}

/// Runs as one of several servers on the same port. Reports the port, and serves until the main
/// process closes standard input.
pub fn run_as_worker(args: &EvhPerf) -> anyhow::Result<()> {
    let mut server = start(args)?;
    let mut orders = parts::OrderReceiver::new()?;
    parts::write_line(&json!({ "port": server.address().port() }))?;
    while !orders.is_closed_within(TRIM_INTERVAL) {
        server.trim_if_enough_closed();
    }
    let (mut stats, _) = server.net.stop(STOP_TIMEOUT).context("cannot stop the event handler")?;
    let named = printed_counters(&mut stats).map(|(name, count)| (name.to_string(), json!(*count)));
    parts::write_line(&Value::Object(named.into_iter().collect()))
}

/// Returns the counters that are printed or reported, with their JSON names.
fn printed_counters(stats: &mut Stats) -> [(&'static str, &mut u64); 9] {
    [
        ("accepted", &mut stats.accepted_count),
        ("closed", &mut stats.closed_count),
        ("reads", &mut stats.reads_count),
        ("delayed", &mut stats.delayed_count),
        ("rounds", &mut stats.rounds_count),
        ("read_bytes", &mut stats.read_bytes),
        ("sent_bytes", &mut stats.sent_bytes),
        ("turned_away", &mut stats.turned_away_count),
        ("messages", &mut stats.messages_count),
    ]
}

/// Parses the statistics of one of several servers.
pub fn stats_from_json(value: &Value) -> Stats {
    let mut stats = Stats::default();
    for (name, field) in printed_counters(&mut stats) {
        *field = value[name].as_u64().unwrap_or(0);
    }
    stats
}

pub fn print_stats(stats: &Stats, printer: &mut Printer<'_>) -> std::io::Result<()> {
    printer.print_rule()?;
    let Stats { accepted_count, closed_count, reads_count, delayed_count, .. } = *stats;
    printer.print_info(format_args!(
        "accepts=[{}],closes=[{}],reads=[{}],delayed_writes=[{}]",
        format_with_commas(accepted_count),
        format_with_commas(closed_count),
        format_with_commas(reads_count),
        format_with_commas(delayed_count)
    ))?;
    printer.print_info(format_args!(
        "event_loops=[{}],bytes_read=[{}],bytes_written=[{}],turned_away=[{}]",
        format_with_commas(stats.rounds_count),
        format_with_commas(stats.read_bytes),
        format_with_commas(stats.sent_bytes),
        format_with_commas(stats.turned_away_count)
    ))?;
    printer.flush()
}
