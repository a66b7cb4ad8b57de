//! Timers of an endpoint, with callbacks of type `C`.

use crate::TimersFull;
use handover_timer::{TimerId, Wheel};

/// Handle of a timer: only a number, so dropping it does not cancel the timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Timer {
    id: TimerId,
}

/// Timers of an endpoint. The timer wheel is created when the first timer starts.
pub(crate) struct Timers<C> {
    timers_max: u32,
    wheel: Option<Wheel<C>>,
}

impl<C> Timers<C> {
    pub(crate) fn new(timers_max: u32) -> Self {
        Self { timers_max, wheel: None }
    }

    pub(crate) fn start(&mut self, deadline_ns: u64, callback: C) -> Result<Timer, TimersFull> {
        let timers_max = self.timers_max;
        let wheel = match &mut self.wheel {
            Some(wheel) => wheel,
            none => {
                let config = handover_timer::Config::default().timers_max(timers_max);
                // The wheel refuses values out of range, which Config::validate has excluded.
                let made = Wheel::new(config, crate::clock::now_ns());
                none.insert(made.map_err(|_| TimersFull { timers_max })?)
            }
        };
        let started = wheel.start(deadline_ns, callback);
        started.map(|id| Timer { id }).map_err(|_| TimersFull { timers_max })
    }

    pub(crate) fn is_full(&self) -> bool {
        self.count() >= self.timers_max as usize
    }

    pub(crate) fn cancel(&mut self, timer: Timer) -> bool {
        self.wheel.as_mut().is_some_and(|wheel| wheel.cancel(timer.id).is_some())
    }

    pub(crate) fn count(&self) -> usize {
        self.wheel.as_ref().map_or(0, Wheel::len)
    }

    /// Returns the time, in ns, at which the next timer is due. Returns `None` if no timer is
    /// running.
    pub(crate) fn next_deadline_ns(&mut self) -> Option<u64> {
        self.wheel.as_mut()?.next_deadline_ns()
    }

    /// Removes the next timer that is due at `now_ns`, and returns its callback. Returns `None` if
    /// none is due.
    pub(crate) fn pop_due_callback(&mut self, now_ns: u64) -> Option<C> {
        self.wheel.as_mut()?.pop_due(now_ns).map(|it| it.payload)
    }
}
