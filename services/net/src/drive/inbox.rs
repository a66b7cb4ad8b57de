//! What other threads may ask of a thread.

use super::endpoint::Dial;
use super::slab::Key;
use crate::stats::Published;
use crate::tls::Server;
use crate::{CommandError, Config, Stats};
use handover_base::sync::shared::{AtomicU64, AtomicUsize, Ordering};
use handover_notify::{Notify, adaptive_fd};
use handover_ring::{PushError, mpsc};
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// What a thread is asked to do.
pub(crate) enum Command<D> {
    Write(Key, Vec<u8>),
    Close(Key),
    Suspend(Key),
    Resume(Key),
    Trigger(Key),
    /// A connection that another thread has accepted.
    Adopt(OwnedFd, Option<SocketAddr>, Option<Server>),
    Connect(Dial, D),
}

/// In [`Inbox::stop_ns`]: not asked to stop.
const GO_ON: u64 = u64::MAX;

/// A thread, as others see it.
pub(crate) struct Inbox<D> {
    commands: mpsc::Producer<Command<D>>,
    wake: adaptive_fd::Sender,
    /// How many bytes wait in commands.
    bytes: AtomicUsize,
    bytes_max: usize,
    stop_ns: AtomicU64,
    /// How many connections it may have, has, and is about to be given.
    connections_max: usize,
    open_count: AtomicUsize,
    given_count: AtomicUsize,
    /// How many listeners of other threads may still hand connections to this one.
    givers: AtomicUsize,
    pub(crate) published: Published,
}

impl<D> Inbox<D> {
    pub(crate) fn new(
        commands: mpsc::Producer<Command<D>>,
        wake: adaptive_fd::Sender,
        config: &Config,
    ) -> Self {
        Self {
            commands,
            wake,
            bytes: AtomicUsize::new(0),
            bytes_max: config.commands_bytes_max as usize,
            connections_max: config.connections_max as usize,
            open_count: AtomicUsize::new(0),
            given_count: AtomicUsize::new(0),
            stop_ns: AtomicU64::new(GO_ON),
            givers: AtomicUsize::new(0),
            published: Published::default(),
        }
    }

    pub(crate) fn push(&self, command: Command<D>) -> Result<(), PushError<Command<D>>> {
        self.commands.push(command)?;
        self.wake.notify();
        Ok(())
    }

    fn write(&self, key: Key, bytes: Vec<u8>) -> Result<(), CommandError> {
        let bytes_count = bytes.len();
        // Relaxed, here and below: a count that bounds memory, and orders nothing.
        let before = self.bytes.fetch_add(bytes_count, Ordering::Relaxed);
        if before > 0 && before.saturating_add(bytes_count) > self.bytes_max {
            self.bytes.fetch_sub(bytes_count, Ordering::Relaxed);
            return Err(CommandError::Full(bytes));
        }
        self.push(Command::Write(key, bytes)).map_err(|refused| {
            self.bytes.fetch_sub(bytes_count, Ordering::Relaxed);
            gave_back(refused)
        })
    }

    /// The thread has taken so many bytes.
    pub(crate) fn took(&self, bytes_count: usize) {
        self.bytes.fetch_sub(bytes_count, Ordering::Relaxed);
    }

    /// The thread has so many connections.
    pub(crate) fn has_open(&self, count: u64) {
        // Relaxed, here and below: counts that bound, and order nothing. One that the thread opens itself at the
        // same moment may take the last place: then the one it is given is turned away.
        self.open_count.store(count as usize, Ordering::Relaxed);
    }

    /// Whether it has room for one more. Then a place is kept for that until it has been given.
    pub(crate) fn keeps_place(&self) -> bool {
        let given_count = self.given_count.fetch_add(1, Ordering::Relaxed);
        let has_room = self.open_count.load(Ordering::Relaxed) + given_count < self.connections_max;
        if !has_room {
            self.took_given();
        }
        has_room
    }

    /// What was given is there, or was not given.
    pub(crate) fn took_given(&self) {
        self.given_count.fetch_sub(1, Ordering::Relaxed);
    }

    /// A listener of another thread will hand connections to this one.
    pub(crate) fn expect_giver(&self) {
        // Relaxed: no thread runs yet.
        self.givers.fetch_add(1, Ordering::Relaxed);
    }

    /// It has handed over its last.
    pub(crate) fn giver_gone(&self) {
        // Release: pairs with the Acquire in has_givers(), so that what it gave stands in the ring by then.
        self.givers.fetch_sub(1, Ordering::Release);
        self.wake.notify();
    }

    /// Whether connections may still be handed to this thread.
    pub(crate) fn has_givers(&self) -> bool {
        // Acquire: pairs with the Release in giver_gone().
        self.givers.load(Ordering::Acquire) > 0
    }

    pub(crate) fn stop(&self, grace_ns: u64) {
        // Release: pairs with the Acquire in stopping(); the notification wakes the thread.
        self.stop_ns.store(grace_ns.min(GO_ON - 1), Ordering::Release);
        self.wake.notify();
    }

    /// How long what was accepted may take, if the thread is to stop.
    pub(crate) fn stopping(&self) -> Option<u64> {
        // Acquire: pairs with the Release in stop().
        Some(self.stop_ns.load(Ordering::Acquire)).filter(|&grace_ns| grace_ns != GO_ON)
    }
}

fn gave_back<D>(refused: PushError<Command<D>>) -> CommandError {
    let is_full = refused.is_full();
    let bytes = match refused.into_inner() {
        Command::Write(_, bytes) => bytes,
        _ => Vec::new(),
    };
    if is_full { CommandError::Full(bytes) } else { CommandError::Ended(bytes) }
}

/// A connection, for any thread: what is asked of it is done by the connection's own.
///
/// Each call wakes that thread if it sleeps, and never blocks. A connection that is closed by then
/// ignores it: [`Handler::on_close`](crate::Handler::on_close) tells.
pub struct Handle<D> {
    pub(crate) inbox: Arc<Inbox<D>>,
    pub(crate) key: Key,
}

impl<D> Handle<D> {
    /// Sends bytes as they are: frame them first, by [`Codec::encode`](crate::engine::Codec::encode).
    /// Several writes in a row go out together.
    ///
    /// # Errors
    /// [`CommandError`] gives them back.
    pub fn write(&self, bytes: Vec<u8>) -> Result<(), CommandError> {
        self.inbox.write(self.key, bytes)
    }

    /// Closes the connection when what waits is sent.
    ///
    /// # Errors
    /// [`CommandError`], as for all of these.
    pub fn close(&self) -> Result<(), CommandError> {
        self.push(Command::Close(self.key))
    }

    /// Reads nothing more from it until [`resume`](Self::resume): the peer will have to wait.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn suspend(&self) -> Result<(), CommandError> {
        self.push(Command::Suspend(self.key))
    }

    /// Reads from it again.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn resume(&self) -> Result<(), CommandError> {
        self.push(Command::Resume(self.key))
    }

    /// Has [`Handler::on_trigger`](crate::Handler::on_trigger) called for it on its own thread.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn trigger(&self) -> Result<(), CommandError> {
        self.push(Command::Trigger(self.key))
    }

    /// Which connection of its thread it is.
    #[must_use]
    pub fn key(&self) -> Key {
        self.key
    }

    fn push(&self, command: Command<D>) -> Result<(), CommandError> {
        self.inbox.push(command).map_err(gave_back)
    }
}

impl<D> Clone for Handle<D> {
    fn clone(&self) -> Self {
        Self { inbox: Arc::clone(&self.inbox), key: self.key }
    }
}

impl<D> fmt::Debug for Handle<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("key", &self.key).finish_non_exhaustive()
    }
}

/// Stops one thread, and tells how it fares, from any other.
pub struct Stopper<D> {
    pub(crate) inbox: Arc<Inbox<D>>,
}

impl<D> Stopper<D> {
    /// Asks the thread to stop: it accepts nothing more, answers every message that has come, and waits
    /// for peers to read their answers, for `grace` at most. Who goes on sending without a pause is heard
    /// for half of that, or a second.
    pub fn stop(&self, grace: Duration) {
        self.inbox.stop(u64::try_from(grace.as_nanos()).unwrap_or(u64::MAX));
    }

    /// What the thread had done when it last went to sleep, or a few ms ago.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.inbox.published.read()
    }
}

impl<D> Clone for Stopper<D> {
    fn clone(&self) -> Self {
        Self { inbox: Arc::clone(&self.inbox) }
    }
}

impl<D> fmt::Debug for Stopper<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stopper").finish_non_exhaustive()
    }
}
