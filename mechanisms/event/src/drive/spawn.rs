//! Threads for machines and groups.

use super::address::Stopper;
use super::group::Group;
use super::machine::Machine;
use super::member::Handler;
use crate::{EndReason, RunError, SpawnError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Handle of a thread that runs a machine or group. Dropping it detaches the thread.
pub struct ThreadHandle<T> {
    stopper: Stopper,
    thread: thread::JoinHandle<(T, Result<EndReason, RunError>)>,
}

impl<T> ThreadHandle<T> {
    /// Returns the handle with which any thread stops the run.
    #[must_use]
    pub fn stopper(&self) -> &Stopper {
        &self.stopper
    }

    /// Requests the run to stop; see [`Stopper::stop`].
    pub fn stop(&self) {
        self.stopper.stop();
    }

    /// Returns `true` if the thread has finished.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits until the thread has finished. Returns the machine or group, and the reason why its
    /// run stopped.
    ///
    /// # Blocking
    /// Blocks until the run has ended: call [`stop`](Self::stop) first, unless it ends by itself.
    ///
    /// # Panics
    /// Panics if the thread panicked outside a handler (in a message's drop, for example), with the
    /// same payload.
    pub fn join(self) -> (T, Result<EndReason, RunError>) {
        match self.thread.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

handover_base::debug_struct!(ThreadHandle<T> as it { thread: it.thread.thread() });

/// Runs a machine or group on a new thread. Returns it as the error if the thread cannot be
/// started.
fn run_on_thread<T: Send + 'static>(
    thread: thread::Builder,
    machine: T,
    stopper: Stopper,
    run: fn(&mut T) -> Result<EndReason, RunError>,
) -> Result<ThreadHandle<T>, SpawnError<T>> {
    // A failed `Builder::spawn` drops its closure; the slot keeps the machine from being dropped
    // with it.
    let slot = Arc::new(Mutex::new(Some(machine)));
    let taken = Arc::clone(&slot);
    let started = thread.spawn(move || {
        let machine = taken.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut machine = machine.expect("the machine was not passed to its thread");
        let ended = run(&mut machine);
        (machine, ended)
    });
    match started {
        Ok(thread) => Ok(ThreadHandle { stopper, thread }),
        Err(error) => {
            let machine = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
            let machine = machine.expect("a thread that was not started has taken the machine");
            Err(SpawnError { machine: Box::new(machine), error })
        }
    }
}

impl<H: Handler + Send + 'static> Machine<H> {
    /// Runs the machine on a new thread, made by `thread` with its name and stack size.
    ///
    /// ```
    /// use handover_event::{Config, Machine, handler};
    /// let machine = Machine::new(handler(|(), cx| cx.stop()), Config::default())?;
    /// let address = machine.address().clone();
    /// let running = machine.spawn(std::thread::Builder::new().name("worker".into()))?;
    /// address.send(())?;
    /// let (machine, ended) = running.join();
    /// assert_eq!(ended?, handover_event::EndReason::Stopped);
    /// assert_eq!(machine.stats().handled, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SpawnError`] returns the machine when the thread cannot be started.
    pub fn spawn(self, thread: thread::Builder) -> Result<ThreadHandle<Self>, SpawnError<Self>> {
        let stopper = self.stopper();
        run_on_thread(thread, self, stopper, Self::run)
    }
}

impl Group {
    /// Runs the group on a new thread, made by `thread`.
    ///
    /// # Errors
    /// [`SpawnError`] returns the group when the thread cannot be started.
    pub fn spawn(self, thread: thread::Builder) -> Result<ThreadHandle<Self>, SpawnError<Self>> {
        let stopper = self.stopper();
        run_on_thread(thread, self, stopper, Self::run)
    }
}
