//! A single machine: one handler on one thread.

use super::address::{Address, Stopper};
use super::context::Context;
use super::desk::MachineState;
use super::door::{RunGuard, SharedThreadState};
use super::home::{self, ThreadState};
use super::member::{Handler, Member};
use crate::{Config, Ended, MachineError, Round, RunError, Signals, Stats, WatchError};
use core::fmt;
use std::sync::Arc;

/// Handler with an inbox, timers and descriptors, run by the thread that calls [`run`](Self::run),
/// [`run_once`](Self::run_once) or [`poll`](Self::poll).
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
    member: Member<H>,
    home: ThreadState,
}

/// Result of closing a machine: its handler, unhandled messages and counters.
#[derive(Debug)]
#[non_exhaustive]
pub struct Closed<H: Handler> {
    /// Handler of the machine.
    pub handler: H,
    /// Messages that were sent and not handled: those from the machine's own thread first, each
    /// kind in the order in which it was sent.
    pub messages: Vec<H::Message>,
    /// Final counters of the machine.
    pub stats: Stats,
}

impl<H: Handler> Closed<H> {
    pub(crate) fn of(mut member: Member<H>, home: &ThreadState) -> Self {
        let messages = member.desk.close();
        let mut stats = member.desk.stats();
        home.count(&mut stats);
        Self { handler: member.handler, messages, stats }
    }
}

impl<H: Handler> Machine<H> {
    /// Makes a machine, which does nothing until it is run; before that, messages can be sent to
    /// it, and timers started in its [`context`](Self::context).
    ///
    /// # Errors
    /// [`MachineError`]: the configuration is not valid, or memory or descriptors are exhausted.
    pub fn new(handler: H, config: Config) -> Result<Self, MachineError> {
        config.validate()?;
        let door = SharedThreadState::new(None, config.thread.wake_when);
        let desk = MachineState::new(config, &door, 0)?;
        let home = ThreadState::new(config.thread, door)?;
        Ok(Self { member: Member::new(handler, desk), home })
    }

    /// Returns the machine's address; clone it to hand it out.
    #[must_use]
    pub fn address(&self) -> &Address<H::Message> {
        &self.member.desk.address
    }

    /// Returns a handle that stops the machine from any thread.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper { door: Arc::clone(&self.home.door) }
    }

    /// Stops a run when one of these signals arrives.
    ///
    /// # Errors
    /// [`WatchError::Refused`] when no descriptor is available.
    pub fn stop_on(&mut self, signals: Signals) -> Result<(), WatchError> {
        self.home.stop_on(signals).map_err(|(call, errno)| WatchError::Refused { call, errno })
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

    /// Returns the context that handlers get: to send messages and to start timers before a run.
    pub fn context(&mut self) -> Context<'_, H::Message> {
        Context { desk: &mut self.member.desk, home: &mut self.home }
    }

    /// Returns the machine's counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = self.member.desk.stats();
        self.home.count(&mut stats);
        stats
    }

    /// Runs until stopped. Messages that are still queued stay queued, and the machine may be run again.
    ///
    /// # Errors
    /// [`RunError`] when the kernel refuses a system call that used to succeed.
    ///
    /// # Blocking
    /// Blocks until the machine is stopped.
    pub fn run(&mut self) -> Result<Ended, RunError> {
        let _inside = self.arrive();
        let count_max = self.member.desk.config.messages_per_round_max;
        // Messages since timers and descriptors were last served: two machines that exchange single
        // messages do not read the clock for each of them.
        let mut since = 0;
        loop {
            if let Some(ended) = self.home.take_ended() {
                return Ok(ended);
            }
            let handled = self.member.handle_messages(&mut self.home, count_max - since);
            since += handled;
            if handled > 0 && since < count_max {
                continue;
            }
            if handled == 0 && self.poll_eagerly() {
                continue;
            }
            since = 0;
            if self.others()? == 0 && handled == 0 {
                self.idle()?;
            }
        }
    }

    /// Runs one round; waits first if there is no work. See [`Machine`] for the extent of a round.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Blocking
    /// Blocks until something was handled or the machine is stopped.
    pub fn run_once(&mut self) -> Result<Round, RunError> {
        let _inside = self.arrive();
        loop {
            let round = self.round()?;
            if round.handled > 0 || round.ended.is_some() {
                return Ok(round);
            }
            if !self.poll_eagerly() {
                self.idle()?;
            }
        }
    }

    /// Runs one round of the work that is ready.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Blocking
    /// Never, unless a handler does.
    pub fn poll(&mut self) -> Result<Round, RunError> {
        let _inside = self.arrive();
        self.round()
    }

    /// Closes the inbox and returns the messages that were not handled; later messages are returned
    /// to their senders. (Dropping a machine closes it too, and drops these messages.)
    ///
    /// # Blocking
    /// For as long as another thread is in the middle of a send.
    #[must_use]
    pub fn close(self) -> Closed<H> {
        Closed::of(self.member, &self.home)
    }

    fn arrive(&mut self) -> RunGuard {
        let inside = self.home.door.enter();
        self.home.arrive();
        self.member.start(&mut self.home);
        inside
    }

    fn round(&mut self) -> Result<Round, RunError> {
        if let Some(ended) = self.home.take_ended() {
            return Ok(Round { handled: 0, ended: Some(ended) });
        }
        let count_max = self.member.desk.config.messages_per_round_max;
        let mut handled = self.member.handle_messages(&mut self.home, count_max);
        handled += self.others()?;
        Ok(Round { handled, ended: self.home.take_ended() })
    }

    /// Serves timers and descriptors; returns the number of those handled.
    fn others(&mut self) -> Result<u32, RunError> {
        let Self { member, home } = self;
        let mut count = 0;
        if !member.desk.wheel.is_empty() && !home.is_ending {
            count += member.handle_timers(home, home::now_ns());
        }
        if !home.is_ending && home.fetch_ready()? {
            while let Some((token, ready)) = home.next_ready() {
                count += member.handle_descriptor(home, token, ready);
                if home.is_ending {
                    break;
                }
            }
        }
        Ok(count)
    }

    #[inline]
    fn poll_eagerly(&mut self) -> bool {
        let inbox = &self.member.desk.inbox;
        self.home.poll_eagerly(&mut || !inbox.is_empty())
    }

    #[inline(always)]
    fn idle(&mut self) -> Result<(), RunError> {
        if self.home.is_ending {
            return Ok(());
        }
        let desk = &mut self.member.desk;
        let is_waited_for = desk.admit();
        let deadline_ns = home::sleep_deadline_ns(desk.wheel.next_deadline_ns(), is_waited_for);
        self.home.idle(deadline_ns, &mut desk.inbox)
    }
}

impl<H: Handler> fmt::Debug for Machine<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
