//! `--connect`: opens many connections, holds them, and reports time and memory.

use super::Signals;
use super::live::LiveView;
use super::options::{EvhPerf, PROCESSES_MAX};
use super::parts::{self, OrderReceiver, Worker, WorkerProcess};
use super::printer::{Printer, format_with_commas};
use super::{secret, stages};
use crate::load::hold::{HeldConnections, HoldOptions, OpenFailure};
use crate::load::process;
use crate::raise_descriptors_limit;
use anyhow::{Context as _, bail};
use handover_base::units::format_ns;
use handover_program::exit;
use hdrhistogram::Histogram;
use rustix::fs::{FileType, fstat};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io::{IsTerminal as _, Read as _, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Interval between printed progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(3);
/// Default number of connections that echo a message when all connections are open.
const SAMPLED_DEFAULT: u64 = 1000;
/// Maximum wait for the report of one process before signals and the other processes are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Minimum plausible kernel memory of a connection, in bytes. It is for the socket, inode and file.
/// A smaller figure means that other processes have freed memory meanwhile.
const SOCKET_BYTES_MIN: u64 = 1024;
/// Interval at which a worker process reports its progress to the main process.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);
/// Time allowed for the server to close the connections that it rejects.
const REJECT_DELAY: Duration = Duration::from_millis(50);
/// Interval between checks for connections that the server has closed.
const CLOSED_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Time limit for the answer of a worker process to an order.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// Report of one process on the connections that it opened, and on what stopped it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct OpenResult {
    /// Number of open connections.
    open: u64,
    /// Time that opening took.
    took_ns: u64,
    /// Description of the limit or error that prevented further connections.
    limit: Option<String>,
    /// Advice for the user: the command that raises the limit, or another remedy.
    remedy: Option<String>,
}

/// Open connections of this process.
struct Holder {
    /// Open connections of each thread.
    held: Vec<HeldConnections>,
}

impl Holder {
    /// Opens `count` connections with the threads that `args` requests. Their numbers start at
    /// `first`.
    fn open(
        args: &EvhPerf,
        count: u64,
        first: u64,
        stop: &AtomicBool,
        opened: &AtomicU64,
    ) -> anyhow::Result<Self> {
        let address = args.address()?;
        let encryption = secret::client_tls(args)?;
        let wanted = |thread: u64| {
            let from = count * thread / args.threads;
            let until = count * (thread + 1) / args.threads;
            let (first, count) = (first + from, until - from);
            HoldOptions {
                address,
                count,
                first,
                timeout: args.timeout,
                encryption: encryption.clone(),
            }
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..args.threads)
                .map(|thread| {
                    scope.spawn(move || HeldConnections::open(&wanted(thread), stop, opened))
                })
                .collect();
            let mut held = Vec::new();
            for thread in threads {
                held.push(
                    thread.join().map_err(|_| {
                        anyhow::anyhow!("a thread that opens connections panicked")
                    })??,
                );
            }
            Ok(Self { held })
        })
    }

    /// Returns the report on the opened connections.
    fn result(&self, args: &EvhPerf) -> OpenResult {
        let failure = self.held.iter().find_map(|held| held.failure.as_ref());
        let open = self.held.iter().map(HeldConnections::open_count).sum();
        OpenResult {
            open,
            took_ns: self
                .held
                .iter()
                .map(|held| held.open_duration.as_nanos() as u64)
                .max()
                .unwrap_or(0),
            limit: failure.map(OpenFailure::to_string),
            remedy: failure.map(|failure| remedy(failure, args, open)),
        }
    }

    /// Sends a message over `count` of the connections, one after another. Passes the time until
    /// each echo, in ns, to `on_echo`.
    fn sample(
        &mut self,
        count: u64,
        timeout: Duration,
        on_echo: &mut dyn FnMut(u64),
    ) -> anyhow::Result<()> {
        let threads = self.held.len().max(1) as u64;
        for (held, index) in self.held.iter_mut().zip(0..) {
            let share = count * (index + 1) / threads - count * index / threads;
            held.sample(share, timeout, on_echo)?;
        }
        Ok(())
    }

    /// Returns the number of connections that the server has closed since the last call.
    fn count_closed(&mut self) -> anyhow::Result<u64> {
        let mut closed = 0;
        for held in &mut self.held {
            closed += held.count_closed()?;
        }
        Ok(closed)
    }
}

/// Returns the command that raises a limit, or other advice for the user. `open` is the number of
/// connections that a process has opened.
fn remedy(failure: &OpenFailure, args: &EvhPerf, open: u64) -> String {
    let count = args.count();
    match failure {
        OpenFailure::ProcessDescriptors => {
            let max = format_with_commas(raise_descriptors_limit());
            let descriptors = count.div_ceil(args.processes) + 100;
            let raise = format!("its limit is {max}; raise it with `ulimit -n {descriptors}`");
            // A process without a descriptor left holds as many connections as it can.
            match count.div_ceil(open.max(1)) {
                processes @ ..=PROCESSES_MAX => {
                    format!("{raise}, or share the connections with --processes {processes}")
                }
                _ => raise,
            }
        }
        OpenFailure::SystemDescriptors => {
            let files_max = count * 2 + 100_000;
            format!("raise the limit with `sysctl -w fs.file-max={files_max}`")
        }
        OpenFailure::Ports => {
            "allow more ports with `sysctl -w net.ipv4.ip_local_port_range=\"1024 65535\"`; \
                         within 127.0.0.0/8 further source addresses are used too"
                .to_string()
        }
        OpenFailure::Memory => {
            "allow TCP more with `sysctl -w net.ipv4.tcp_mem=...` (in pages), or add memory".to_string()
        }
        OpenFailure::Refused => "start a server there: evh_perf -e".to_string(),
        OpenFailure::Unanswered => {
            "check that the server runs, and lengthen its queue with `sysctl -w net.core.somaxconn=65535`"
                .to_string()
        }
        OpenFailure::ClosedByServer => {
            "raise a limit of the server: its --max_handles_per_thread, its `ulimit -n`, \
                              its --threads, or its --processes"
                .to_string()
        }
        OpenFailure::Tls(_) | OpenFailure::TlsSetup(_) => "check --ca, and the server's --cert".to_string(),
        _ => "no remedy is known".to_string(),
    }
}

/// Opens and holds connections as one of several processes, on the main process's orders.
pub fn run_as_worker(args: &EvhPerf) -> anyhow::Result<()> {
    raise_descriptors_limit();
    let mut orders = OrderReceiver::new()?;
    parts::write_line(&json!({ "ready": true }))?;
    let mut holder = Holder { held: Vec::new() };
    while let Some(order) = orders.next_order() {
        let words: Vec<&str> = order.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        match (words[0], number(1), number(2)) {
            ("open", Some(count), Some(first)) => {
                holder = open_and_report(args, count, first, &mut orders)?;
                parts::write_line(&json!({ "done": holder.result(args) }))?;
            }
            ("sample", Some(count), _) => {
                // A line for each echo shows that the process is alive, however long all of them
                // take.
                let mut written = Ok(());
                let mut on_echo = |took_ns: u64| {
                    if written.is_ok() {
                        written = parts::write_line(&json!({ "took_ns": took_ns }));
                    }
                };
                let sampled = holder.sample(count, args.timeout, &mut on_echo);
                written?;
                parts::write_line(&match sampled {
                    Ok(()) => json!({ "sampled": true }),
                    Err(error) => json!({ "fault": error.to_string() }),
                })?
            }
            ("closed", ..) => parts::write_line(&json!({ "closed": holder.count_closed()? }))?,
            _ => {}
        }
    }
    Ok(())
}

/// Opens connections, and reports their number to the main process at intervals.
fn open_and_report(
    args: &EvhPerf,
    count: u64,
    first: u64,
    orders: &mut OrderReceiver,
) -> anyhow::Result<Holder> {
    let (stop, opened) = (&AtomicBool::new(false), &AtomicU64::new(0));
    let (sender, ended) = channel::<()>();
    thread::scope(|scope| {
        let opening = scope.spawn(move || {
            let _sender = sender; // dropped when the thread ends, also by a panic
            Holder::open(args, count, first, stop, opened)
        });
        while ended.recv_timeout(REPORT_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            // Relaxed: neither the flag nor the counter publishes other data.
            stop.fetch_or(orders.is_stopped(), Ordering::Relaxed);
            parts::write_line(&json!({ "opened": opened.load(Ordering::Relaxed) }))?;
        }
        opening.join().map_err(|_| anyhow::anyhow!("a thread that opens connections panicked"))?
    })
}

/// Memory in use by the clients, the server and the kernel.
struct MemoryUsage {
    /// Memory of the clients; `None` if one has exited.
    client_bytes: Option<u64>,
    /// Memory of the server; `None` if its processes are not found, or one has exited.
    server_bytes: Option<u64>,
    kernel_bytes: u64,
}

impl MemoryUsage {
    /// Measures the memory in use now.
    fn now(processes: &[WorkerProcess], servers: &[u32]) -> Self {
        let clients: Vec<u32> = processes.iter().map(WorkerProcess::process_id).collect();
        Self {
            client_bytes: stages::sum_usage(&clients).map(|usage| usage.anon_bytes),
            server_bytes: stages::sum_usage(servers).map(|usage| usage.anon_bytes),
            kernel_bytes: process::kernel_memory_bytes(),
        }
    }

    /// Prints the memory that each of `open` connections has added since `before`, and returns it
    /// as JSON. Prints nothing, and returns null, without connections.
    fn print_increase(
        &self,
        before: &Self,
        open: u64,
        printer: &mut Printer<'_>,
    ) -> std::io::Result<Value> {
        if open == 0 {
            return Ok(Value::Null);
        }
        let each = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?) / open);
        let client = each(self.client_bytes, before.client_bytes);
        let server = each(self.server_bytes, before.server_bytes);
        let kernel = each(Some(self.kernel_bytes), Some(before.kernel_bytes))
            .filter(|kernel| *kernel >= SOCKET_BYTES_MIN);
        let in_bytes = |bytes| format!("{} bytes", format_with_commas(bytes));
        let in_user_space = |bytes: Option<u64>| bytes.map_or("unknown".to_string(), in_bytes);
        let of_kernel = match (kernel, server) {
            (Some(kernel), Some(_)) => {
                format!("{} in the kernel, both ends together", in_bytes(kernel))
            }
            (Some(kernel), None) => format!("{} in the kernel", in_bytes(kernel)),
            (None, _) => "kernel unknown, as other connections were freed meanwhile".to_string(),
        };
        printer.print_info(format_args!(
            "memory per connection: client {}, server {} in user space; {of_kernel}",
            in_user_space(client),
            in_user_space(server),
        ))?;
        Ok(json!({ "client": client, "server": server, "kernel": kernel }))
    }
}

/// Returns the settings to print, as names and values.
fn settings(args: &EvhPerf) -> Vec<(&'static str, String)> {
    let mut settings = vec![
        ("count", format_with_commas(args.count())),
        ("host", args.host.clone()),
        ("port", args.port.to_string()),
        ("threads", args.threads.to_string()),
    ];
    if args.tls {
        settings.push(("tls", args.tls.to_string()));
    }
    if args.processes > 1 {
        settings.push(("processes", args.processes.to_string()));
    }
    settings
}

/// Opens the connections, samples and holds them, and reports the results.
pub fn run(args: &EvhPerf, signals: &Signals, out: &mut dyn Write) -> anyhow::Result<()> {
    // Certificate files are checked before anything is opened.
    secret::client_tls(args)?;
    let began = Instant::now();
    raise_descriptors_limit();
    let address = args.address()?;
    let mut printer = Printer::new(out, args.json);
    printer.print_settings("Connect", &settings(args))?;
    let mut processes = Vec::new();
    for index in 0..args.processes {
        processes.push(WorkerProcess::start(index, &[])?);
    }
    for part in &mut processes {
        part.expect_line(ANSWER_TIMEOUT)?;
    }
    printer.print_info(format_args!("Client started in {} ms.", began.elapsed().as_millis()))?;
    printer.flush()?;
    let servers = process::listening_processes(address);
    let before = MemoryUsage::now(&processes, &servers);
    let (opened, took) = open_in_processes(args, &mut processes, signals, &mut printer)?;
    let mut failed = print_opened(args, &opened, took, &mut printer)?;
    let open: u64 = opened.iter().map(|result| result.open).sum();
    let memory = MemoryUsage::now(&processes, &servers);
    let bytes_per_connection = memory.print_increase(&before, open, &mut printer)?;
    let mut document = json!({
        "schema": 1,
        "program": "evh_perf",
        "wanted": args.count(),
        "opened": open,
        "elapsed_s": took.as_secs_f64(),
        "connections_per_second": open as f64 / took.as_secs_f64().max(1e-9),
        "bytes_per_connection": bytes_per_connection,
        "limit": failed,
    });
    let mut closed = 0;
    if !signals.is_any_received() {
        // The server closes the connections that it rejects at about this time.
        thread::sleep(REJECT_DELAY);
        closed = closed_since(&mut processes)?;
        let sampled = sample(args, &mut processes, address, signals, &mut printer);
        if sampled.is_err() {
            thread::sleep(REJECT_DELAY);
            closed += closed_since(&mut processes)?;
        }
        let why = match sampled {
            Ok(sampled) => {
                document["echo_ns"] = sampled.unwrap_or(Value::Null);
                rejection_error(args, closed, open)
            }
            Err(error) => rejection_error(args, closed, open).or(Some(exit::format_chain(&error))),
        };
        if let (None, Some(closed)) = (&failed, why) {
            printer.print_error(format_args!("{closed}"))?;
            failed = Some(closed);
        }
        document["limit"] = json!(failed);
    }
    if args.json {
        printer.print_document(&document)?;
    }
    let held = open - closed;
    let closed = match open {
        0 => 0,
        // A process whose sampling was interrupted does not answer.
        _ if signals.is_any_received() => 0,
        _ => hold(args, &mut processes, held, signals, &mut printer)?,
    };
    let left = held.saturating_sub(closed);
    if left > 0 {
        // Closing takes the kernel some microseconds per connection.
        printer.print_info(format_args!("Closing {} connections.", format_with_commas(left)))?;
        printer.flush()?;
    }
    // All parts close at the same time.
    processes.iter_mut().for_each(Worker::stop);
    drop(processes);
    signals.exit_result()?;
    match failed {
        Some(failed) => bail!("{failed}"),
        None if closed > 0 => {
            let count = format_with_commas(closed);
            bail!("the server has closed {count} of the connections")
        }
        None => Ok(()),
    }
}

/// Orders each process to open its share of the connections, and waits until all have done so.
fn open_in_processes(
    args: &EvhPerf,
    processes: &mut [WorkerProcess],
    signals: &Signals,
    printer: &mut Printer<'_>,
) -> anyhow::Result<(Vec<OpenResult>, Duration)> {
    let (count, processes_count) = (args.count(), processes.len() as u64);
    let began = Instant::now();
    for (process, index) in processes.iter_mut().zip(0..) {
        let first_index = count * index / processes_count;
        let count = count * (index + 1) / processes_count - first_index;
        process.send_order(&format!("open {count} {first_index}"))?;
    }
    let mut so_far = vec![0; processes.len()];
    let mut done: Vec<Option<OpenResult>> = vec![None; processes.len()];
    let mut next = began + PROGRESS_INTERVAL;
    let mut is_stopped = false;
    let (mut view, mut shown) = (LiveView::new(), 0);
    while done.iter().any(Option::is_none) {
        // Waits for the first process that is not done, and then polls the others.
        let mut within = CHECK_INTERVAL;
        for ((process, so_far), done) in processes.iter_mut().zip(&mut so_far).zip(&mut done) {
            if done.is_none()
                && let Some(mut line) = process.next_line(std::mem::take(&mut within))?
            {
                *done = serde_json::from_value(line["done"].take())?;
                let result = done.as_ref().map(|result| result.open);
                *so_far = result.or(line["opened"].as_u64()).unwrap_or(*so_far);
            }
        }
        if signals.is_any_received() && !is_stopped {
            is_stopped = true;
            processes.iter_mut().try_for_each(|process| process.send_order("stop"))?;
        }
        let open: u64 = so_far.iter().sum();
        if let Some(since) = view.take_time_since_update() {
            let rate = open.saturating_sub(shown) as f64 / since.as_secs_f64();
            shown = open;
            view.update(&[
                (rate, format!("{} connections/s", format_with_commas(rate as u64))),
                (open as f64, format!("{} connections", format_with_commas(open))),
            ]);
        }
        if Instant::now() >= next {
            next += PROGRESS_INTERVAL;
            view.print_above(|| {
                printer.print_rule()?;
                printer.print_info(format_args!(
                    "{} of {} connections open. [{:.2}% complete]",
                    format_with_commas(open),
                    format_with_commas(count),
                    open as f64 * 100.0 / count as f64
                ))?;
                printer.flush()
            })?;
        }
    }
    Ok((done.into_iter().flatten().collect(), began.elapsed()))
}

/// Prints the number of open connections. Returns the limit that was reached if some are missing.
fn print_opened(
    args: &EvhPerf,
    opened: &[OpenResult],
    took: Duration,
    printer: &mut Printer<'_>,
) -> anyhow::Result<Option<String>> {
    let open: u64 = opened.iter().map(|result| result.open).sum();
    printer.print_rule()?;
    printer.print_info(format_args!(
        "{} of {} connections open in {:.2} s.",
        format_with_commas(open),
        format_with_commas(args.count()),
        took.as_secs_f64()
    ))?;
    let rate = open as f64 / took.as_secs_f64().max(1e-9);
    printer
        .print_info(format_args!("connections_per_second=[{}]", format_with_commas(rate as u64)))?;
    let Some(result) = opened.iter().find(|result| result.limit.is_some()) else { return Ok(None) };
    let why = format!(
        "{} of {} connections are open: {}; {}",
        format_with_commas(open),
        format_with_commas(args.count()),
        result.limit.as_deref().unwrap_or_default(),
        result.remedy.as_deref().unwrap_or_default()
    );
    printer.print_error(format_args!("{why}"))?;
    Ok(Some(why))
}

/// Returns the number of connections that the server has closed since the last check. All processes
/// check at the same time.
fn closed_since(processes: &mut [WorkerProcess]) -> anyhow::Result<u64> {
    processes.iter_mut().try_for_each(|process| process.send_order("closed"))?;
    let mut closed = 0;
    for process in processes {
        closed += process.expect_line(ANSWER_TIMEOUT)?["closed"].as_u64().unwrap_or(0);
    }
    Ok(closed)
}

/// Returns the error for connections that the server closed right after it accepted them. Returns
/// `None` if there are none.
fn rejection_error(args: &EvhPerf, closed: u64, open: u64) -> Option<String> {
    let (failure, remedy) =
        (OpenFailure::ClosedByServer, remedy(&OpenFailure::ClosedByServer, args, open));
    let text = format!(
        "{} of {} connections were closed: {failure}; {remedy}",
        format_with_commas(closed),
        format_with_commas(open)
    );
    (closed > 0).then_some(text)
}

/// Sends a message over some of the connections. Prints the echo times, and returns them as JSON.
/// Returns `None` without echoes, and after a signal.
fn sample(
    args: &EvhPerf,
    processes: &mut [WorkerProcess],
    address: SocketAddr,
    signals: &Signals,
    printer: &mut Printer<'_>,
) -> anyhow::Result<Option<Value>> {
    let wanted = args.sample.unwrap_or(SAMPLED_DEFAULT);
    let processes_count = processes.len() as u64;
    // Range up to an hour, with three significant digits.
    let mut echoes: Histogram<u64> = Histogram::new_with_bounds(1, 3_600_000_000_000, 3)
        .context("cannot create the histogram of echo times")?;
    for (process, index) in processes.iter_mut().zip(0..) {
        let share = wanted * (index + 1) / processes_count - wanted * index / processes_count;
        process.send_order(&format!("sample {share}"))?;
        loop {
            let limit = ANSWER_TIMEOUT + args.timeout;
            let Some(line) = next_line_or_signal(process, limit, signals)? else {
                return Ok(None);
            };
            if let Some(fault) = line["fault"].as_str() {
                bail!("a connection to {address} does not echo: {fault}");
            }
            let Some(took_ns) = line["took_ns"].as_u64() else { break };
            echoes.saturating_record(took_ns);
        }
    }
    if echoes.is_empty() {
        return Ok(None);
    }
    let at = |percentile| format_ns(echoes.value_at_percentile(percentile) as f64);
    printer.print_info(format_args!(
        "{} of them echoed: p50 {}, p99 {}, max {}",
        format_with_commas(echoes.len()),
        at(50.0),
        at(99.0),
        at(100.0)
    ))?;
    Ok(Some(json!({
        "count": echoes.len(),
        "p50": echoes.value_at_percentile(50.0),
        "p99": echoes.value_at_percentile(99.0),
        "max": echoes.max(),
    })))
}

/// Returns the next line of a process, which must write one within `limit`. Returns `None` after a
/// signal.
fn next_line_or_signal(
    process: &mut WorkerProcess,
    limit: Duration,
    signals: &Signals,
) -> anyhow::Result<Option<Value>> {
    let until = Instant::now() + limit;
    while !signals.is_any_received() {
        if let Some(line) = process.next_line(CHECK_INTERVAL)? {
            return Ok(Some(line));
        }
        if Instant::now() >= until {
            bail!("a worker process has not answered within {limit:?}");
        }
    }
    Ok(None)
}

/// Holds `count` connections open. Ends at Enter, the end of standard input, a signal or the time
/// limit, or when the server has closed all of them. Returns the number of connections that the
/// server has closed.
fn hold(
    args: &EvhPerf,
    processes: &mut [WorkerProcess],
    count: u64,
    signals: &Signals,
    printer: &mut Printer<'_>,
) -> anyhow::Result<u64> {
    let entered = if args.hold.is_none() { start_waiting_for_enter()? } else { None };
    match (args.hold, &entered) {
        (Some(hold), _) => {
            printer.print_info(format_args!("Holding them for {} s.", hold.as_secs_f64()))?;
        }
        (None, Some(_)) => {
            printer.print_info(format_args!("Holding them. Press Enter to close them."))?;
        }
        (None, None) => printer.print_info(format_args!("Holding them. A signal closes them."))?,
    }
    printer.flush()?;
    let until = args.hold.map(|hold| Instant::now() + hold);
    let (mut closed, mut next) = (0, Instant::now() + CLOSED_CHECK_INTERVAL);
    while !signals.is_any_received()
        && until.is_none_or(|until| Instant::now() < until)
        && closed < count
    {
        if entered.as_ref().is_some_and(|entered| entered.try_recv() == Ok(())) {
            break;
        }
        thread::sleep(Duration::from_millis(20));
        if Instant::now() >= next {
            closed += closed_since(processes)?;
            next = Instant::now() + CLOSED_CHECK_INTERVAL;
        }
    }
    if closed < count {
        closed += closed_since(processes)?;
    }
    if closed > 0 {
        printer.print_error(format_args!(
            "the server has closed {} of the connections",
            format_with_commas(closed)
        ))?;
    }
    Ok(closed)
}

/// Returns a channel that receives a message when a line is entered or standard input is closed.
/// `None` if standard input is a device such as /dev/null, which stands for a closed one.
fn start_waiting_for_enter() -> anyhow::Result<Option<Receiver<()>>> {
    let stdin = std::io::stdin();
    let kind = FileType::from_raw_mode(
        fstat(&stdin).context("cannot read the type of standard input")?.st_mode,
    );
    if kind == FileType::CharacterDevice && !stdin.is_terminal() {
        return Ok(None);
    }
    let (sender, entered) = channel();
    let wait = move || {
        // A read error counts as an end, too.
        let _ = stdin.lock().bytes().find(|byte| !matches!(byte, Ok(byte) if *byte != b'\n'));
        let _ = sender.send(());
    };
    thread::Builder::new()
        .name("enter".into())
        .spawn(wait)
        .context("cannot start the thread that waits for Enter")?;
    Ok(Some(entered))
}
