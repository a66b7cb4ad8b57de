//! Several processes for one task: the main process, which talks to the user, and parts, which
//! receive orders as lines on standard input and report as JSON lines on standard output.

use super::options::EvhPerf;
use super::printer::Printer;
use super::{Signals, serve};
use crate::{own_arguments, own_program_command};
use anyhow::{Context as _, bail};
use handover_net::Stats;
use handover_program::signal_on_parent_exit;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write, stdin, stdout};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Receiver of the main process's orders, which are lines on standard input. At end of file this
/// process exits.
pub struct OrderReceiver {
    /// Channel of lines from the thread that reads standard input.
    lines: Receiver<String>,
    /// Orders received and not yet returned by [`OrderReceiver::next_order`].
    queued: VecDeque<String>,
}

impl OrderReceiver {
    /// Starts the thread that reads orders.
    pub fn new() -> anyhow::Result<Self> {
        // The thread ends with the process.
        let lines = spawn_line_reader(BufReader::new(stdin()), "orders")?;
        Ok(Self { lines, queued: VecDeque::new() })
    }

    /// Returns the next order; `None` when standard input is closed.
    pub fn next_order(&mut self) -> Option<String> {
        self.queued.pop_front().or_else(|| self.lines.recv().ok())
    }

    /// Waits until standard input is closed, and discards all orders.
    pub fn wait_until_closed(&mut self) {
        while self.next_order().is_some() {}
    }

    /// Returns `true` if the order `stop` was received or standard input is closed. Other orders
    /// remain queued.
    pub fn is_stopped(&mut self) -> bool {
        let is_closed = self.is_closed_within(Duration::ZERO);
        let stop = self.queued.iter().position(|order| order == "stop");
        stop.and_then(|at| self.queued.remove(at)).is_some() || is_closed
    }

    /// Waits up to `within` for the end of standard input; returns `true` if it was closed. Orders
    /// received meanwhile are queued.
    pub fn is_closed_within(&mut self, within: Duration) -> bool {
        let until = Instant::now() + within;
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(order) => self.queued.push_back(order),
                Err(error) => return error == RecvTimeoutError::Disconnected,
            }
        }
    }
}

/// Starts a thread that sends each line of `reader` to the returned channel.
fn spawn_line_reader(
    reader: impl BufRead + Send + 'static,
    thread: &str,
) -> anyhow::Result<Receiver<String>> {
    let (sender, lines) = channel();
    let listen = move || {
        for line in reader.lines() {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    };
    let builder = thread::Builder::new().name(thread.into());
    builder
        .spawn(listen)
        .with_context(|| format!("cannot start the thread `{thread}`, which reads lines"))?;
    Ok(lines)
}

/// Writes a line to the main process, on standard output.
pub fn write_line(line: &Value) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Process that does a part of the work, controlled by the main process.
pub trait Worker {
    /// Returns the next line of the process; `None` if it writes none within this time.
    ///
    /// # Errors
    /// If the process has exited or has failed.
    fn next_line(&mut self, within: Duration) -> anyhow::Result<Option<Value>>;

    /// Returns the next line of the process; fails if it writes none within this time.
    fn expect_line(&mut self, within: Duration) -> anyhow::Result<Value> {
        self.next_line(within)?
            .with_context(|| format!("a worker process has not answered within {within:?}"))
    }

    /// Sends an order to the process.
    fn send_order(&mut self, order: &str) -> anyhow::Result<()>;

    /// Makes the process end its work, and report its result if it has one.
    fn stop(&mut self);

    /// Returns `false` if the process may be on another host.
    fn is_on_this_host(&self) -> bool;
}

/// Worker that is a child of this process. It receives orders on its standard input, and writes
/// lines to its standard output.
pub struct WorkerProcess {
    child: Child,
    /// Pipe for orders to the process; `None` once closed.
    orders: Option<ChildStdin>,
    /// Channel of lines that the process writes.
    lines: Receiver<String>,
}

impl WorkerProcess {
    /// Starts the process with a copy of this process's command line and the arguments `added`.
    pub fn start(index: u64, added: &[String]) -> anyhow::Result<Self> {
        let mut command = own_program_command("evh_perf")?;
        command.args(own_arguments("evh_perf")).args(added).arg("--part").arg(index.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // The terminal's signals go to the main process only, which ends its parts.
        command.process_group(0);
        signal_on_parent_exit(&mut command, Signal::KILL);
        let mut child = command.spawn().context("cannot start a worker process")?;
        let orders = child.stdin.take();
        let out = child
            .stdout
            .take()
            .context("cannot read the output of a worker process: it was started without a pipe")?;
        let lines = spawn_line_reader(BufReader::new(out), "part")?;
        Ok(Self { child, orders, lines })
    }

    pub fn process_id(&self) -> u32 {
        self.child.id()
    }
}

impl Worker for WorkerProcess {
    fn next_line(&mut self, within: Duration) -> anyhow::Result<Option<Value>> {
        match self.lines.recv_timeout(within) {
            Ok(line) => {
                Ok(Some(serde_json::from_str(&line).with_context(|| {
                    format!("cannot parse the line {line:?} of a worker process")
                })?))
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                bail!("a worker process has exited: {status}", status = self.child.wait()?)
            }
        }
    }

    fn send_order(&mut self, order: &str) -> anyhow::Result<()> {
        let orders = self.orders.as_mut().context(
            "cannot send an order to a worker process: its standard input is already closed",
        )?;
        writeln!(orders, "{order}")
            .with_context(|| format!("cannot send the order {order} to a worker process"))?;
        Ok(orders.flush()?)
    }

    /// Makes the process exit, by closing its standard input.
    fn stop(&mut self) {
        self.orders = None;
    }

    fn is_on_this_host(&self) -> bool {
        true
    }
}

/// Makes the process exit: waits 2 s for it, then kills it.
impl Drop for WorkerProcess {
    fn drop(&mut self) {
        self.stop();
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until && !matches!(self.child.try_wait(), Ok(Some(_))) {
            thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves with several processes on one port until a signal is received.
pub fn serve_in_processes(
    args: &EvhPerf,
    signals: &Signals,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let began = Instant::now();
    let soon = Duration::from_secs(20);
    let mut parts = vec![WorkerProcess::start(0, &[])?];
    let port = parts[0].expect_line(soon)?["port"]
        .as_u64()
        .context("cannot start the server: the first worker process has reported no port")?;
    let at = ["-p".to_string(), port.to_string()];
    for index in 1..args.processes {
        parts.push(WorkerProcess::start(index, &at)?);
    }
    for part in &mut parts[1..] {
        part.expect_line(soon)?;
    }
    let listed = EvhPerf { port: u16::try_from(port)?, ..args.clone() };
    let mut printer = Printer::new(out, false);
    printer.print_settings("EventHandler", &serve::settings(&listed))?;
    serve::print_started(args, began.elapsed(), &mut printer)?;
    while !signals.is_any_received() {
        for part in &mut parts {
            // Before the end, a part prints nothing; this call finds a part that has ended.
            part.next_line(Duration::ZERO)?;
        }
        thread::sleep(Duration::from_millis(50));
    }
    parts.iter_mut().for_each(Worker::stop);
    let mut stats = Stats::default();
    for part in &mut parts {
        stats = stats.plus(serve::stats_from_json(&part.expect_line(soon)?));
    }
    if args.stats {
        serve::print_stats(&stats, &mut printer)?;
    }
    serve::print_stopped(&stats, &mut printer)?;
    signals.exit_result()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns orders that have been received, and the sender of further ones.
    fn orders(received: &[&str]) -> (OrderReceiver, std::sync::mpsc::Sender<String>) {
        let (sender, lines) = channel();
        for order in received {
            sender.send(order.to_string()).expect("there is a receiver");
        }
        (OrderReceiver { lines, queued: VecDeque::new() }, sender)
    }

    #[test]
    fn check_for_stop_keeps_other_orders_in_sequence() {
        let (mut orders, sender) = orders(&["sample 3", "stop", "closed"]);
        assert!(orders.is_stopped());
        assert!(!orders.is_stopped(), "the stop order was not removed from the queue");
        assert_eq!(orders.next_order().as_deref(), Some("sample 3"));
        assert_eq!(orders.next_order().as_deref(), Some("closed"));
        drop(sender);
        assert!(orders.is_stopped());
        assert_eq!(orders.next_order(), None);
    }

    #[test]
    fn wait_for_end_keeps_orders_and_stop() {
        let (mut orders, sender) = orders(&["go", "stop"]);
        assert!(!orders.is_closed_within(Duration::from_millis(1)));
        assert!(orders.is_stopped());
        drop(sender);
        assert!(orders.is_closed_within(Duration::from_secs(100)));
        assert_eq!(orders.next_order().as_deref(), Some("go"));
        assert_eq!(orders.next_order(), None);
    }
}
