//! `hello2`: this program and a second process of it, over a socket pair.

use super::log::TRACING_TARGET;
use super::policy::{DemoPolicy, FirstMessage};
use super::{ANSWER_PAUSE, DemoOptions, Environment, Hello2, Outcome, run_error};
use anyhow::{Context as _, bail};
use handover_base::usage::{self, Usage};
use handover_event::{Config, Context, Handler, Interest, Machine, Ready};
use handover_program::exit::to_usage_error;
use handover_suite::event::drive::{Reaction, ReplyPolicy};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{AddressFamily, SendFlags, Shutdown, SocketFlags, SocketType};
use rustix::net::{send, shutdown, socketpair};
use std::fmt::Display;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum size of a message in bytes. The final report is the longest message.
const MESSAGE_BYTES_MAX: usize = 128;
/// Number of messages answered between two checks of the timers.
const MESSAGES_PER_TIMER_CHECK: u32 = 1024;
/// Maximum time for which a process in a live loop spins before it sleeps. It is about the cost of
/// falling asleep and of being woken from another CPU.
const SPIN_MAX: Duration = Duration::from_micros(50);
/// Maximum time for which the first process waits for the final report of the second one.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time for which an interrupted first process waits for that report.
const REPORT_AFTER_INTERRUPT_MAX: Duration = Duration::from_secs(1);

pub fn run(args: &Hello2) -> anyhow::Result<()> {
    if args.child {
        return run_second(&args.shared_options);
    }
    let environment = Environment::new("DEMO2EVM", &args.shared_options, 0)?;
    let used = usage::process_usage();
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let made = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let (mine, theirs) = made.context("cannot create the socket pair of the two processes")?;
    let mut child = start(theirs)?;
    let mine = Arc::new(mine);
    let cpu = args.shared_options.cpus(2)?[0];
    let policy = args.shared_options.main_machine_policy(FirstMessage::First, cpu, ANSWER_PAUSE);
    let side = ConversationEnd::new(Arc::clone(&mine), policy, true);
    let mut machine = Machine::new(side, Config::default())?;
    environment.stop_on_signal(&machine.stopper())?;
    let began = Instant::now();
    let ended = machine.run();
    let took = began.elapsed();
    let timeout = match environment.is_interrupted() {
        true => REPORT_AFTER_INTERRUPT_MAX,
        false => REPORT_TIMEOUT,
    };
    let report = await_report(&mine, &mut child, timeout);
    if let Some(fault) = run_error(ended) {
        return Err(fault);
    }
    let side = machine.handler();
    if let Some(error) = &side.loss_reason {
        bail!("the second process has disconnected: {error}");
    }
    let report = match report {
        // The second process may be stopped. The interrupt may come during the wait for its report.
        Err(missing) if environment.is_interrupted() => {
            tracing::warn!(target: TRACING_TARGET, "Figures of the first process only: {missing}");
            FinalReport::default()
        }
        report => report?,
    };
    environment.print_outcome(&Outcome {
        handled_count: side.handled_count + report.handled_count,
        duration: took,
        usage: usage::process_usage() - used + report.usage,
        has_timer_ended_demo: side.policy.has_quit(),
    })
}

/// Starts the second process, with its end of the socket pair as standard input.
fn start(socket: OwnedFd) -> anyhow::Result<Child> {
    let mut command = crate::own_program_command("hello2")?;
    command.arg("--child").args(crate::own_arguments("hello2")).stdin(Stdio::from(socket));
    handover_program::signal_on_parent_exit(&mut command, rustix::process::Signal::KILL);
    command.spawn().context("cannot start the second process")
}

/// Runs the second process. It answers messages until the first one closes its end of the socket
/// pair, and then reports.
fn run_second(options: &DemoOptions) -> anyhow::Result<()> {
    let used = usage::process_usage();
    let socket =
        std::io::stdin().as_fd().try_clone_to_owned().context("cannot duplicate standard input")?;
    if rustix::net::sockopt::socket_type(&socket) != Ok(SocketType::SEQPACKET) {
        return Err(to_usage_error(
            "--child: standard input is not a socket; only the first process uses this option",
        ));
    }
    let socket = Arc::new(socket);
    let environment = Environment::new("DEMO2EVM", options, 0)?;
    let cpu = options.cpus(2)?[1];
    let side = ConversationEnd::new(
        Arc::clone(&socket),
        options.machine_policy(FirstMessage::Second, cpu, ANSWER_PAUSE),
        false,
    );
    let mut machine = Machine::new(side, Config::default())?;
    // Signals are handled by the first process; this process ends with it.
    environment.log.set_failure_stopper(machine.stopper());
    let ended = machine.run();
    let handled_count = machine.handler().handled_count;
    let report = FinalReport { handled_count, usage: usage::process_usage() - used }.to_text();
    // Fails only if the first process is gone.
    let _ = send(&*socket, report.as_bytes(), SendFlags::NOSIGNAL);
    environment.log.take_write_error()?;
    run_error(ended).map_or(Ok(()), Err)
}

/// Final report of the second process: its number of messages, and its CPU time.
#[derive(Debug, Default, PartialEq)]
struct FinalReport {
    /// Number of messages received.
    handled_count: u64,
    usage: Usage,
}

impl FinalReport {
    fn to_text(&self) -> String {
        let Usage { user_ns, system_ns, switches_voluntary, switches_involuntary, .. } = self.usage;
        let numbers =
            [self.handled_count, user_ns, system_ns, switches_voluntary, switches_involuntary];
        format!("BYE: {}", numbers.map(|number| number.to_string()).join(" "))
    }

    /// Parses a report; returns `None` if the text is another message.
    fn parse(text: &str) -> Option<FinalReport> {
        let numbers = text.strip_prefix("BYE: ")?.split(' ').map(str::parse);
        let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().ok()?;
        let [handled_count, user_ns, system_ns, switches_voluntary, switches_involuntary] =
            numbers[..]
        else {
            return None;
        };
        let usage = Usage {
            user_ns,
            system_ns,
            switches_voluntary,
            switches_involuntary,
            ..Usage::default()
        };
        Some(FinalReport { handled_count, usage })
    }
}

/// Asks the second process to end; waits for its report, at most for `timeout`, and for its exit.
fn await_report(
    socket: &OwnedFd,
    child: &mut Child,
    timeout: Duration,
) -> anyhow::Result<FinalReport> {
    // Fails only if the other process is gone, which is detected below.
    let _ = shutdown(socket, Shutdown::Write);
    let until = Instant::now() + timeout;
    let found = loop {
        match receive(socket) {
            Ok(Some(text)) => {
                if let Some(report) = FinalReport::parse(&text) {
                    break Some(report); // messages before the report were still on their way
                }
            }
            Ok(None) => break None,
            Err(Errno::AGAIN) => {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break None;
                }
                let left = Timespec::try_from(left).unwrap_or_default();
                // The only possible error is EINTR: there is one descriptor, and it is open.
                let _ = poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&left));
            }
            Err(_) => break None,
        }
    };
    if found.is_none() {
        // The process may have ended by itself, which is not an error.
        let _ = child.kill();
    }
    let status = child.wait().context("cannot wait for the second process")?;
    found.with_context(|| format!("the second process has sent no report; it exited with {status}"))
}

/// Receives the next message; returns `None` if the other process has closed its end.
fn receive(socket: &OwnedFd) -> Result<Option<String>, Errno> {
    let mut buffer = [0; MESSAGE_BYTES_MAX];
    let count = retry_on_intr(|| rustix::io::read(socket, &mut buffer))?;
    Ok((count > 0).then(|| String::from_utf8_lossy(&buffer[..count]).into_owned()))
}

/// One end of the conversation, in one of the two processes.
struct ConversationEnd {
    socket: Arc<OwnedFd>,
    policy: DemoPolicy,
    /// `true` in the first process, which the user has started.
    is_first: bool,
    /// Number of messages received.
    handled_count: u64,
    /// Reason why the connection was lost; `None` while it works.
    loss_reason: Option<String>,
}

/// Event of one of the two processes.
enum DemoEvent {
    /// The socket is readable.
    Ready,
    /// The IDLE timer has expired: the message `number` is due.
    Idle { number: u64 },
    /// The QUIT timer has expired.
    Quit,
}

impl ConversationEnd {
    fn new(socket: Arc<OwnedFd>, policy: DemoPolicy, is_first: bool) -> ConversationEnd {
        ConversationEnd { socket, policy, is_first, handled_count: 0, loss_reason: None }
    }

    /// Sends the message `number`.
    fn send(&mut self, number: u64, cx: &mut Context<'_, DemoEvent>) {
        let hello = format!("HELLO: {number}");
        match send(&*self.socket, hello.as_bytes(), SendFlags::NOSIGNAL) {
            Ok(_) => self.policy.sent(number),
            Err(errno) => self.record_loss(errno, cx),
        }
    }

    /// Receives and answers messages that have arrived, at most [`MESSAGES_PER_TIMER_CHECK`].
    fn answer_received(&mut self, cx: &mut Context<'_, DemoEvent>) {
        for _ in 0..MESSAGES_PER_TIMER_CHECK {
            let text = match self.receive_next() {
                Ok(Some(text)) => text,
                Ok(None) if self.is_first => {
                    return self.record_loss("it has closed its socket", cx);
                }
                Ok(None) => return cx.stop(),
                Err(Errno::AGAIN) => return,
                Err(errno) => return self.record_loss(errno, cx),
            };
            let number = text.strip_prefix("HELLO: ").and_then(|text| text.parse().ok());
            let Some(number) = number else {
                tracing::warn!(target: TRACING_TARGET, "No event decoded (unknown data: {text:?})");
                return;
            };
            self.handled_count += 1;
            match self.policy.received(number) {
                Reaction::AnswerAfter(pause) => {
                    return start_timer(pause, DemoEvent::Idle { number: number + 1 }, cx);
                }
                _ => self.send(number + 1, cx),
            }
            if self.loss_reason.is_some() {
                return;
            }
        }
    }

    /// Receives the next message; in a live loop, polls for it up to [`SPIN_MAX`]. While it polls,
    /// it yields to threads on the same CPU, including the other process.
    fn receive_next(&self) -> Result<Option<String>, Errno> {
        let mut found = receive(&self.socket);
        if found == Err(Errno::AGAIN) && self.policy.is_live() {
            let began = Instant::now();
            while found == Err(Errno::AGAIN) && began.elapsed() < SPIN_MAX {
                rustix::thread::sched_yield();
                found = receive(&self.socket);
            }
        }
        found
    }

    /// Records why the connection was lost, and stops the machine.
    fn record_loss(&mut self, why: impl Display, cx: &mut Context<'_, DemoEvent>) {
        self.loss_reason.get_or_insert(why.to_string());
        cx.stop();
    }
}

/// Starts a timer that delivers `event` after `delay`.
fn start_timer(delay: Duration, event: DemoEvent, cx: &mut Context<'_, DemoEvent>) {
    if cx.after(delay, event).is_err() {
        cx.stop(); // at most two timers run, so this is never reached
    }
}

impl Handler for ConversationEnd {
    type Message = DemoEvent;

    fn started(&mut self, cx: &mut Context<'_, DemoEvent>) {
        let watched =
            cx.watch(Arc::clone(&self.socket), Interest::READ, |_: Ready| DemoEvent::Ready);
        if let Err(refused) = watched {
            return self.record_loss(refused, cx);
        }
        let actions = self.policy.start_actions();
        if let Some(delay) = actions.stops_after {
            start_timer(delay, DemoEvent::Quit, cx);
        }
        if actions.sends_first_hello {
            self.send(1, cx);
        }
    }

    fn handle(&mut self, event: DemoEvent, cx: &mut Context<'_, DemoEvent>) {
        match event {
            DemoEvent::Ready => self.answer_received(cx),
            DemoEvent::Idle { number } => {
                self.policy.idle_over();
                self.send(number, cx);
            }
            DemoEvent::Quit => {
                self.policy.quit();
                cx.stop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_parses_back_and_other_text_is_refused() {
        let used = Usage { user_ns: 1, system_ns: 2, switches_voluntary: 3, ..Usage::default() };
        let report = FinalReport { handled_count: 7, usage: used };
        assert!(report.to_text().len() < MESSAGE_BYTES_MAX);
        assert_eq!(FinalReport::parse(&report.to_text()), Some(report));
        for text in ["HELLO: 1", "BYE: 1", "BYE: 1 2 3 4 x", ""] {
            assert_eq!(FinalReport::parse(text), None, "{text}");
        }
    }
}
