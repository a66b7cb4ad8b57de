//! A single machine: one handler on one thread.

use super::address::{Address, Stopper};
use super::context::Context;
use super::machine_state::MachineState;
use super::member::{Handler, Member};
use super::shared_thread_state::{RunGuard, SharedThreadState};
use super::thread_state::{self, ThreadState};
use crate::{Config, EndReason, MachineError, RoundResult, RunError, Signals, Stats, WatchError};
use std::sync::Arc;

/// Event-driven actor: a handler with an inbox, timers and descriptors. It runs on the thread that
/// calls [`run`](Self::run), [`run_once`](Self::run_once) or [`poll`](Self::poll).
///
/// See [`Handler`] for an example.
///
/// # Fairness
/// Work is done in rounds: up to `messages_per_round_max` messages, at most half of them from the
/// machine's own thread while others wait; then up to `timers_per_round_max` due timers; then up to
/// `descriptors_per_round_max` ready descriptors. No kind of work delays another by more than one
/// round.
///
/// # Sleeping
/// An idle run polls for some 0.1 µs, then spins for as long as spinning has paid recently (see
/// [`ThreadConfig::spin`](crate::ThreadConfig)), then sleeps until a message is sent, a
/// descriptor is ready, or the next timer is due. There are no ticks.
pub struct Machine<H: Handler> {
    /// Handler and state of the machine.
    member: Member<H>,
    thread: ThreadState,
}

/// Result of closing a machine: its handler, unhandled messages and counters.
#[derive(Debug)]
#[non_exhaustive]
pub struct ClosedMachine<H: Handler> {
    /// Handler of the closed machine.
    pub handler: H,
    /// Messages that were sent and not handled. Those from the machine's own thread are first, then
    /// those from other threads, each in the order in which they were sent.
    pub messages: Vec<H::Message>,
    /// Final counters of the machine.
    pub stats: Stats,
}

impl<H: Handler> ClosedMachine<H> {
    /// Closes a machine, and takes its handler, its unhandled messages and its counters.
    pub(crate) fn from_member(mut member: Member<H>, thread: &ThreadState) -> Self {
        let messages = member.state.close();
        let stats = member.state.stats(thread);
        Self { handler: member.handler, messages, stats }
    }
}

impl<H: Handler> Machine<H> {
    /// Creates a machine, which does nothing until it is run. Before that, it accepts messages, and
    /// its [`context`](Self::context) can start timers.
    ///
    /// # Errors
    /// [`MachineError`]: the configuration is not valid, or memory or descriptors are exhausted.
    pub fn new(handler: H, config: Config) -> Result<Self, MachineError> {
        config.validate()?;
        let shared_thread = SharedThreadState::new(None, config.thread.wake_when);
        let state = MachineState::new(config, &shared_thread, 0)?;
        let thread = ThreadState::new(config.thread, shared_thread)?;
        Ok(Self { member: Member::new(handler, state), thread })
    }

    /// Returns the machine's address; clone it to hand it out.
    #[must_use]
    pub fn address(&self) -> &Address<H::Message> {
        &self.member.state.address
    }

    /// Returns a handle that stops the machine from any thread.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper { shared_thread: Arc::clone(&self.thread.shared) }
    }

    /// Makes each later run stop when one of these signals arrives.
    ///
    /// # Errors
    /// [`WatchError::SystemCall`] when no descriptor is available.
    pub fn stop_on(&mut self, signals: Signals) -> Result<(), WatchError> {
        self.thread.stop_on(signals).map_err(|(call, error)| WatchError::SystemCall { call, error })
    }

    /// Returns the machine's handler.
    #[must_use]
    pub fn handler(&self) -> &H {
        &self.member.handler
    }

    /// Returns the machine's handler, mutably, to change it between runs.
    pub fn handler_mut(&mut self) -> &mut H {
        &mut self.member.handler
    }

    /// Returns the context that the handler gets, to send messages and start timers before or
    /// between runs.
    pub fn context(&mut self) -> Context<'_, H::Message> {
        Context { state: &mut self.member.state, thread: &mut self.thread }
    }

    /// Returns the machine's counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.member.state.stats(&self.thread)
    }

    /// Runs the machine until it is stopped. Messages that are still queued stay queued, and the
    /// machine may be run again.
    ///
    /// # Errors
    /// [`RunError`] when the kernel refuses a system call that used to succeed.
    ///
    /// # Blocking
    /// Blocks until the machine is stopped. While it is busy, it yields its CPU now and then if
    /// other threads of that CPU have been sent messages.
    pub fn run(&mut self) -> Result<EndReason, RunError> {
        let _guard = self.begin_run();
        let count_max = self.member.state.config.messages_per_round_max;
        // Messages since timers and descriptors were last served: two machines that exchange single
        // messages do not read the clock for each of them.
        let mut since = 0;
        loop {
            if let Some(ended) = self.thread.take_end_reason() {
                return Ok(ended);
            }
            let handled = self.member.handle_messages(&mut self.thread, count_max - since);
            since += handled;
            self.thread.share_cpu(handled);
            if handled > 0 && since < count_max {
                continue;
            }
            if handled == 0 && self.poll_eagerly() {
                continue;
            }
            since = 0;
            self.thread.publish_cpu();
            if self.handle_timers_and_descriptors()? == 0 && handled == 0 {
                self.idle()?;
            }
        }
    }

    /// Runs one round of the machine; waits first if there is no work. [`Machine`] describes a
    /// round.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Blocking
    /// Blocks until something was handled or the machine is stopped. A round after which it yields
    /// its CPU, as [`run`](Self::run) does, ends when the thread gets the CPU again.
    pub fn run_once(&mut self) -> Result<RoundResult, RunError> {
        let _guard = self.begin_run();
        loop {
            let round = self.round()?;
            self.thread.share_cpu(round.handled);
            if round.handled > 0 || round.end_reason.is_some() {
                return Ok(round);
            }
            if !self.poll_eagerly() {
                self.idle()?;
            }
        }
    }

    /// Runs one round of the machine with the work that is ready, without waiting.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Blocking
    /// Never, unless a handler does.
    pub fn poll(&mut self) -> Result<RoundResult, RunError> {
        let _guard = self.begin_run();
        self.round()
    }

    /// Closes the inbox and returns the messages that were not handled. Later messages are returned
    /// to their senders. (Dropping a machine closes it too, and drops these messages.)
    ///
    /// # Blocking
    /// For as long as another thread is in the middle of a send. Dropping a machine blocks
    /// likewise.
    #[must_use]
    pub fn close(self) -> ClosedMachine<H> {
        ClosedMachine::from_member(self.member, &self.thread)
    }

    /// Registers the calling thread as the one that runs the machine. Calls the handler's `started`
    /// before the first run.
    fn begin_run(&mut self) -> RunGuard {
        let guard = self.thread.shared.enter_run();
        self.thread.begin_run();
        self.member.start(&mut self.thread);
        guard
    }

    /// Handles the messages, timers and descriptors that are ready, up to the limits of a round.
    fn round(&mut self) -> Result<RoundResult, RunError> {
        if let Some(ended) = self.thread.take_end_reason() {
            return Ok(RoundResult { handled: 0, end_reason: Some(ended) });
        }
        let count_max = self.member.state.config.messages_per_round_max;
        let mut handled = self.member.handle_messages(&mut self.thread, count_max);
        handled += self.handle_timers_and_descriptors()?;
        Ok(RoundResult { handled, end_reason: self.thread.take_end_reason() })
    }

    /// Handles due timers and ready descriptors; returns their number.
    fn handle_timers_and_descriptors(&mut self) -> Result<u32, RunError> {
        let Self { member, thread } = self;
        let mut count = 0;
        if !member.state.wheel.is_empty() && !thread.is_ending {
            count += member.handle_timers(thread, thread_state::now_ns());
        }
        if !thread.is_ending && thread.fetch_ready()? {
            while let Some((token, ready)) = thread.next_ready() {
                count += member.handle_descriptor(thread, token, ready);
                if thread.is_ending {
                    break;
                }
            }
        }
        Ok(count)
    }

    /// Polls for messages for a fraction of a microsecond. Returns `true` if there are some or a
    /// stop was requested.
    #[inline]
    fn poll_eagerly(&mut self) -> bool {
        let inbox = &self.member.state.inbox;
        self.thread.poll_eagerly(&mut || !inbox.is_empty())
    }

    /// Spins, then sleeps, until there is work or a timer is due. Does nothing if the run is to
    /// end.
    #[inline(always)]
    fn idle(&mut self) -> Result<(), RunError> {
        if self.thread.is_ending {
            return Ok(());
        }
        let state = &mut self.member.state;
        let has_waiting_senders = state.admit(self.thread.has_async_senders());
        let deadline_ns =
            thread_state::sleep_deadline_ns(state.wheel.next_deadline_ns(), has_waiting_senders);
        self.thread.wait_for_work(deadline_ns, &mut state.inbox)
    }
}

handover_base::debug_struct!(Machine<H: Handler> as it { stats: it.stats() });
