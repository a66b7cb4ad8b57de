//! A thread for a machine, or for a group of them.

use super::address::Stopper;
use super::group::Group;
use super::machine::Machine;
use super::member::Handler;
use crate::{Ended, RunError, SpawnError};
use core::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// A machine or a group that runs on a thread of its own. Dropping it lets the thread go on.
pub struct Running<T> {
    stopper: Stopper,
    thread: thread::JoinHandle<(T, Result<Ended, RunError>)>,
}

impl<T> Running<T> {
    /// What stops it from anywhere.
    #[must_use]
    pub fn stopper(&self) -> &Stopper {
        &self.stopper
    }

    /// Asks it to stop; see [`Stopper::stop`].
    pub fn stop(&self) {
        self.stopper.stop();
    }

    /// Whether its run has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits until its run has ended, and gives it back with why.
    ///
    /// # Blocking
    /// Until then: [`stop`](Self::stop) it first, unless it stops by itself.
    ///
    /// # Panics
    /// If what ran panicked outside a handler (a message's drop, say), with that panic.
    pub fn join(self) -> (T, Result<Ended, RunError>) {
        match self.thread.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl<T> fmt::Debug for Running<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("thread", self.thread.thread()).finish_non_exhaustive()
    }
}

/// Runs `goods` on a new thread; gives them back if there is none.
fn on_thread<T: Send + 'static>(
    thread: thread::Builder,
    goods: T,
    stopper: Stopper,
    run: fn(&mut T) -> Result<Ended, RunError>,
) -> Result<Running<T>, SpawnError<T>> {
    // A thread that is not started drops its closure; the goods are not to go with it.
    let slot = Arc::new(Mutex::new(Some(goods)));
    let taken = Arc::clone(&slot);
    let started = thread.spawn(move || {
        let goods = taken.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut goods = goods.expect("put there before the thread was started");
        let ended = run(&mut goods);
        (goods, ended)
    });
    match started {
        Ok(thread) => Ok(Running { stopper, thread }),
        Err(why) => {
            let goods = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
            let goods = goods.expect("only a started thread takes it");
            Err(SpawnError { goods: Box::new(goods), why })
        }
    }
}

impl<H: Handler + Send + 'static> Machine<H> {
    /// Runs it on a thread of its own, made by `thread`: its name, its stack.
    ///
    /// ```
    /// use handover_event::{Config, Machine, handler};
    /// let machine = Machine::new(handler(|(), cx| cx.stop()), Config::default())?;
    /// let address = machine.address().clone();
    /// let running = machine.spawn(std::thread::Builder::new().name("worker".into()))?;
    /// address.pass(())?;
    /// let (machine, ended) = running.join();
    /// assert_eq!(ended?, handover_event::Ended::Stopped);
    /// assert_eq!(machine.stats().handled, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SpawnError`] gives the machine back when there is no thread to be had.
    pub fn spawn(self, thread: thread::Builder) -> Result<Running<Self>, SpawnError<Self>> {
        let stopper = self.stopper();
        on_thread(thread, self, stopper, Self::run)
    }
}

impl Group {
    /// Runs it on a thread of its own, made by `thread`.
    ///
    /// # Errors
    /// [`SpawnError`] gives the group back when there is no thread to be had.
    pub fn spawn(self, thread: thread::Builder) -> Result<Running<Self>, SpawnError<Self>> {
        let stopper = self.stopper();
        on_thread(thread, self, stopper, Self::run)
    }
}
