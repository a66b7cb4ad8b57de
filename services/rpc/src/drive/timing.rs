//! Timers of an endpoint, and callbacks at its drop.

use super::calling;
use super::event_loop::{Callback, CallbackContext, EventLoop, sealed};
use super::timers::Timer;
use crate::clock::after;
use crate::engine::PeerKey;
use crate::{Address, EndpointError, TimersFull};
use std::time::Duration;

impl CallbackContext<'_> {
    /// Connects to a peer, as [`Endpoint::connect`](crate::Endpoint::connect) does; peers' requests
    /// are deferred meanwhile.
    ///
    /// # Errors
    /// The errors of [`Endpoint::connect`](crate::Endpoint::connect).
    ///
    /// # Blocking
    /// Blocks as [`Endpoint::connect`](crate::Endpoint::connect) does.
    pub fn connect(&mut self, address: &Address) -> Result<PeerKey, EndpointError> {
        calling::connect_and_wait(self, address)
    }

    /// Stops [`Endpoint::serve`](crate::Endpoint::serve).
    pub fn stop(&mut self) {
        self.event_loop.inbox.request_stop();
    }
}

impl sealed::Driver for CallbackContext<'_> {
    fn event_loop(&mut self) -> &mut EventLoop {
        self.event_loop
    }
}

/// Timers, for an [`Endpoint`](crate::Endpoint), a handler's [`Context`](crate::Context), and a
/// [`CallbackContext`].
///
/// ```
/// use handover_rpc::{Config, Endpoint, Timing};
/// use std::time::Duration;
///
/// let mut endpoint = Endpoint::new(Config::default())?;
/// endpoint.start_timer(Duration::from_millis(1), |moment| moment.stop())?;
/// let never = endpoint.start_timer(Duration::from_secs(3600), |_| unreachable!())?;
/// endpoint.serve(); // Until the first timer stops it.
/// assert!(endpoint.cancel_timer(never) && !endpoint.cancel_timer(never));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Timing: sealed::Driver {
    /// Starts a timer, which calls `callback` once, after `timeout` and never before. The callback
    /// runs in this endpoint's thread, while it is in one of its methods and in no handler.
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
        callback: impl FnOnce(&mut CallbackContext<'_>) + Send + 'static,
    ) -> Result<Timer, TimersFull> {
        self.event_loop().timers.start(after(timeout), Box::new(callback))
    }

    /// Cancels a timer; returns `false` if it is not running.
    fn cancel_timer(&mut self, timer: Timer) -> bool {
        self.event_loop().timers.cancel(timer)
    }
}

impl<T: sealed::Driver + ?Sized> Timing for T {}

/// Callbacks that run when an endpoint is dropped. This is the last field of the endpoint, and so
/// is dropped last.
#[derive(Default)]
pub(crate) struct ShutdownCallbacks {
    /// Callbacks that run while peers are still connected.
    pub(crate) before: Vec<Callback>,
    /// Callbacks that run after all peers are disconnected.
    pub(crate) after: Vec<Box<dyn FnOnce() + Send>>,
}

impl Drop for ShutdownCallbacks {
    fn drop(&mut self) {
        while let Some(end) = self.after.pop() {
            end();
        }
    }
}
