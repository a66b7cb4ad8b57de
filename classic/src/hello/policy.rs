//! Message timing and output of the demos' machines: answers at once or after a pause, and a line
//! for each stage.

use super::log::TRACING_TARGET;
use handover_base::affinity;
use handover_suite::event::drive::{Reaction, ReplyPolicy, StartActions};
use std::time::Duration;
use tracing::Level;
use tracing::level_filters::LevelFilter;

/// Tracing target of the log lines about the stages of a message.
const STAGE_TARGET: &str = "handover::hello::stage";

/// Behaviour of a machine at the start: it sends the first message, or waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstMessage {
    /// The machine sends the first message at once.
    First,
    /// The machine sends the first message when an IDLE timer of 0 s expires.
    FirstWhenIdle,
    /// The machine waits for the first message.
    Second,
}

/// Format of the line that is printed for a sent message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SentLineFormat {
    /// `HELLO msg sent: "HELLO: 1"`.
    Plain,
    /// `HELLO msg sent to evm_id=0: "HELLO: 1"`.
    To {
        /// Number of the machine that receives the message.
        evm_id: u32,
    },
    /// `HELLO msg sent: "HELLO1"` for the first message, and [`Plain`](Self::Plain) for the others.
    FirstJoined,
}

impl SentLineFormat {
    /// Prints the line for the sent message `number`.
    fn print(self, number: u64) {
        match self {
            SentLineFormat::To { evm_id } => {
                tracing::info!(target: TRACING_TARGET, "HELLO msg sent to evm_id={evm_id}: \"HELLO: {number}\"");
            }
            SentLineFormat::FirstJoined if number == 1 => {
                tracing::info!(target: TRACING_TARGET, "HELLO msg sent: \"HELLO{number}\"");
            }
            SentLineFormat::Plain | SentLineFormat::FirstJoined => {
                tracing::info!(target: TRACING_TARGET, "HELLO msg sent: \"HELLO: {number}\"");
            }
        }
    }
}

/// Timing and output of one machine of a demo, and the CPU of its thread.
#[derive(Debug)]
pub struct DemoPolicy {
    /// `true` if messages are answered without a pause.
    is_live: bool,
    /// `true` if the next sent message is to be printed.
    should_print_next: bool,
    /// `true` if further messages are neither printed nor logged.
    is_silent: bool,
    sent_line_format: SentLineFormat,
    /// Behaviour at the start.
    opener: FirstMessage,
    /// Duration of the QUIT timer; `None` for a machine without it.
    stops_after: Option<Duration>,
    /// CPU to which the machine's thread is pinned.
    cpu: Option<u32>,
    /// Duration of the IDLE timer, which delays each answer unless `is_live`.
    idle: Duration,
    /// `true` once the QUIT timer has expired.
    has_quit: bool,
}

impl DemoPolicy {
    pub fn new(
        is_live: bool,
        opener: FirstMessage,
        stops_after: Option<Duration>,
        cpu: Option<u32>,
        idle: Duration,
    ) -> DemoPolicy {
        // A live loop prints only its first hello.
        let should_print_next = !is_live || opener != FirstMessage::Second;
        let sent_line_format = SentLineFormat::Plain;
        DemoPolicy {
            is_live,
            should_print_next,
            is_silent: !should_print_next && !are_messages_logged(),
            sent_line_format,
            opener,
            stops_after,
            cpu,
            idle,
            has_quit: false,
        }
    }

    /// Returns this policy with another format of the line that is printed for a sent message.
    pub fn with_sent_line_format(self, sent_line_format: SentLineFormat) -> DemoPolicy {
        DemoPolicy { sent_line_format, ..self }
    }

    /// Returns `true` if messages are answered without a pause.
    pub fn is_live(&self) -> bool {
        self.is_live
    }

    /// Returns `true` if the QUIT timer has expired.
    pub fn has_quit(&self) -> bool {
        self.has_quit
    }
}

/// Returns `true` if details of each message are logged.
fn are_messages_logged() -> bool {
    LevelFilter::current() >= Level::DEBUG
}

/// Formats a time as the demos print it: `10 s`, `1 ms`, `1.5 s`.
fn format_duration(time: Duration) -> String {
    match time.as_millis() {
        millis @ 1..1000 if time.subsec_nanos().is_multiple_of(1_000_000) => format!("{millis} ms"),
        _ => format!("{} s", time.as_secs_f64()),
    }
}

/// Output of each message. Out of line, so that a message of a silent loop costs a test of a flag.
impl DemoPolicy {
    /// Prints a received message, and returns the reaction to it.
    #[cold]
    fn log_received(&mut self, number: u64) -> Reaction {
        tracing::debug!(target: TRACING_TARGET, "(cb entry) HELLO: {number}");
        if self.is_live {
            return Reaction::Answer;
        }
        tracing::info!(target: TRACING_TARGET, "HELLO msg received: \"HELLO: {number}\"");
        tracing::info!(target: TRACING_TARGET, "IDLE timer set: {}", format_duration(self.idle));
        Reaction::AnswerAfter(self.idle)
    }

    /// Prints a message that a topic server has received, while others are still missing.
    #[cold]
    fn log_gathered(&mut self, number: u64) {
        tracing::debug!(target: TRACING_TARGET, "(cb entry) HELLO: {number}");
        if !self.is_live {
            tracing::info!(target: TRACING_TARGET, "HELLO msg received: \"HELLO: {number}\"");
        }
    }

    /// Prints a sent message, if sent messages are still printed.
    #[cold]
    fn log_sent(&mut self, number: u64) {
        tracing::trace!(target: STAGE_TARGET, "sent HELLO: {number}");
        if self.should_print_next {
            self.should_print_next = !self.is_live;
            self.sent_line_format.print(number);
        }
        self.is_silent = !self.should_print_next && !are_messages_logged();
    }
}

impl ReplyPolicy for DemoPolicy {
    fn start_actions(&mut self) -> StartActions {
        if let Some(Err(refused)) = self.cpu.map(affinity::pin) {
            tracing::warn!(target: TRACING_TARGET, "not pinned: {refused}");
        }
        let when_idle = self.opener == FirstMessage::FirstWhenIdle;
        if when_idle {
            tracing::info!(target: TRACING_TARGET, "IDLE timer set: 0 s");
        }
        if let Some(delay) = self.stops_after {
            tracing::info!(target: TRACING_TARGET, "QUIT timer set: {}", format_duration(delay));
        }
        StartActions {
            sends_first_hello: self.opener == FirstMessage::First,
            first_hello_after: when_idle.then_some(Duration::ZERO),
            stops_after: self.stops_after,
        }
    }

    #[inline(always)]
    fn received(&mut self, number: u64) -> Reaction {
        if self.is_silent { Reaction::Answer } else { self.log_received(number) }
    }

    #[inline(always)]
    fn gathered(&mut self, number: u64) {
        if !self.is_silent {
            self.log_gathered(number);
        }
    }

    #[inline(always)]
    fn sent(&mut self, number: u64) {
        if !self.is_silent {
            self.log_sent(number);
        }
    }

    fn idle_over(&mut self) {
        tracing::debug!(target: TRACING_TARGET, "(cb entry) IDLE timer");
        tracing::info!(target: TRACING_TARGET, "IDLE timer expired!");
    }

    fn quit(&mut self) {
        tracing::debug!(target: TRACING_TARGET, "(cb entry) QUIT timer");
        self.has_quit = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_print_in_seconds_and_milliseconds() {
        for (time, text) in [
            (Duration::ZERO, "0 s"),
            (Duration::from_millis(1), "1 ms"),
            (Duration::from_secs(10), "10 s"),
            (Duration::from_millis(200), "200 ms"),
            (Duration::from_millis(1500), "1.5 s"),
        ] {
            assert_eq!(format_duration(time), text);
        }
    }

    #[test]
    fn live_loop_answers_at_once_and_paced_loop_after_its_pause() {
        let pause = Duration::from_secs(10);
        let live = DemoPolicy::new(true, FirstMessage::First, None, None, pause).received(1);
        assert_eq!(live, Reaction::Answer);
        let slow = DemoPolicy::new(false, FirstMessage::First, None, None, pause).received(1);
        assert_eq!(slow, Reaction::AnswerAfter(pause));
    }
}
