//! Timers of an endpoint, and callbacks at its end.

use super::calling::{self, after, sealed};
use super::state::State;
use crate::engine::PeerKey;
use crate::{Address, EndpointError, TimersFull};
use handover_timer::{TimerId, Wheel};
use std::fmt;
use std::time::Duration;

/// Callback of a timer, or of the end of an endpoint.
pub(crate) type Callback = Box<dyn FnOnce(&mut Moment<'_>) + Send>;

/// Endpoint while none of its handlers runs, as passed to the callbacks of timers and of the
/// endpoint's end: for calls ([`Calling`](crate::Calling)), bulk transfers ([`Bulk`](crate::Bulk)),
/// and further timers ([`Timing`]).
#[derive(Debug)]
pub struct Moment<'a> {
    pub(crate) state: &'a mut State,
}

impl Moment<'_> {
    /// Connects to a peer, as [`Endpoint::connect`](crate::Endpoint::connect) does; requests are
    /// put off meanwhile.
    ///
    /// # Errors
    /// The errors of [`Endpoint::connect`](crate::Endpoint::connect).
    ///
    /// # Blocking
    /// Blocks as [`Endpoint::connect`](crate::Endpoint::connect) does.
    pub fn connect(&mut self, address: &Address) -> Result<PeerKey, EndpointError> {
        calling::connect(self, address)
    }

    /// Ends [`Endpoint::serve`](crate::Endpoint::serve).
    pub fn stop(&mut self) {
        self.state.inbox.stop();
    }
}

impl sealed::Turning for Moment<'_> {
    fn state(&mut self) -> &mut State {
        self.state
    }

    fn turn_until(&mut self, deadline_ns: u64, done: impl FnMut(&mut State, bool) -> bool) -> bool {
        self.state.turn_until(&mut super::state::PutOff, deadline_ns, done)
    }
}

/// Timer that was started. It is only a number: dropping it does not cancel the timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Timer {
    id: TimerId,
}

/// Timers, for an [`Endpoint`](crate::Endpoint), a handler's [`Context`](crate::Context), and a
/// [`Moment`].
///
/// ```
/// use handover_rpc::{Config, Endpoint, Timing};
/// use std::time::Duration;
///
/// let mut endpoint = Endpoint::new(Config::default())?;
/// endpoint.start_timer(Duration::from_millis(1), |moment| moment.stop())?;
/// let never = endpoint.start_timer(Duration::from_secs(3600), |_| unreachable!())?;
/// endpoint.serve(); // Until the first has told it to stop.
/// assert!(endpoint.cancel_timer(never) && !endpoint.cancel_timer(never));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Timing: sealed::Turning {
    /// Starts a timer, which calls `callback` once, after `timeout` and never before: in this
    /// endpoint's thread, while it is in one of its methods and in no handler.
    ///
    /// A sleeping endpoint wakes up for it. An endpoint that spins, or has work all the time,
    /// checks timers once a millisecond.
    ///
    /// # Errors
    /// [`TimersFull`] if `timers_max` timers are running.
    ///
    /// # Cost
    /// Constant time ([`handover_timer`]), and the allocation of the callback.
    fn start_timer(
        &mut self,
        timeout: Duration,
        callback: impl FnOnce(&mut Moment<'_>) + Send + 'static,
    ) -> Result<Timer, TimersFull> {
        let deadline_ns = after(timeout);
        let timers_max = self.state().config.timers_max;
        self.state().timers.start(deadline_ns, Box::new(callback), timers_max)
    }

    /// Cancels a timer. Returns `false` if it is not running.
    fn cancel_timer(&mut self, timer: Timer) -> bool {
        self.state().timers.cancel(timer)
    }
}

impl<T: sealed::Turning + ?Sized> Timing for T {}

/// Timers of an endpoint. The wheel is created for the first timer.
#[derive(Default)]
pub(crate) struct Timers {
    wheel: Option<Wheel<Callback>>,
}

impl fmt::Debug for Timers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timers").field("count", &self.count()).finish()
    }
}

impl Timers {
    pub(super) fn start(
        &mut self,
        deadline_ns: u64,
        callback: Callback,
        timers_max: u32,
    ) -> Result<Timer, TimersFull> {
        let wheel = match &mut self.wheel {
            Some(wheel) => wheel,
            none => {
                let config = handover_timer::Config { timers_max, timers_reserved: 0 };
                // The wheel refuses values out of range, which Config::validate has excluded.
                let made = Wheel::new(config, crate::clock::now_ns());
                none.insert(made.map_err(|_| TimersFull { timers_max })?)
            }
        };
        let started = wheel.start(deadline_ns, callback);
        started.map(|id| Timer { id }).map_err(|_| TimersFull { timers_max })
    }

    pub(super) fn cancel(&mut self, timer: Timer) -> bool {
        self.wheel.as_mut().is_some_and(|wheel| wheel.cancel(timer.id).is_some())
    }

    pub(crate) fn count(&self) -> usize {
        self.wheel.as_ref().map_or(0, Wheel::len)
    }

    /// Returns the time at which the next timer is due.
    pub(crate) fn next_ns(&mut self) -> Option<u64> {
        self.wheel.as_mut()?.next_deadline_ns()
    }

    /// Removes and returns the callback of a timer that is due.
    pub(crate) fn take_due(&mut self, now_ns: u64) -> Option<Callback> {
        self.wheel.as_mut()?.pop_due(now_ns).map(|it| it.payload)
    }
}

/// Callbacks at an endpoint's end. This is the last field of the endpoint, and so is dropped last.
#[derive(Default)]
pub(crate) struct Ends {
    /// Run while peers are still connected.
    pub(crate) before: Vec<Callback>,
    /// Run when no peer is connected any more.
    pub(crate) after: Vec<Box<dyn FnOnce() + Send>>,
}

impl fmt::Debug for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = (self.before.len(), self.after.len());
        f.debug_tuple("Ends").field(&counts.0).field(&counts.1).finish()
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        while let Some(end) = self.after.pop() {
            end();
        }
    }
}
