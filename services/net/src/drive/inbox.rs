//! Commands that other threads send to a thread of connections.

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

/// Request to a thread.
pub(crate) enum Command<D> {
    Write(Key, Vec<u8>),
    Close(Key),
    Suspend(Key),
    Resume(Key),
    Trigger(Key),
    /// Takes over a connection that another thread has accepted.
    Adopt(OwnedFd, Option<SocketAddr>, Option<Server>),
    Connect(Dial, D),
}

/// Value of [`Inbox::stop_ns`] while the thread is not asked to stop.
const NOT_STOPPING: u64 = u64::MAX;

/// The part of a thread's state that other threads share.
pub(crate) struct Inbox<D> {
    commands: mpsc::Producer<Command<D>>,
    wake: adaptive_fd::Sender,
    /// Bytes in queued write commands.
    bytes: AtomicUsize,
    bytes_max: usize,
    stop_ns: AtomicU64,
    /// Limit of connections.
    connections_max: usize,
    open_count: AtomicUsize,
    reserved_count: AtomicUsize,
    /// Listeners of other threads that may still hand connections to this thread.
    remote_listeners_count: AtomicUsize,
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
            reserved_count: AtomicUsize::new(0),
            stop_ns: AtomicU64::new(NOT_STOPPING),
            remote_listeners_count: AtomicUsize::new(0),
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
        // Relaxed, here and below: a count that bounds memory; no other access depends on it.
        let before = self.bytes.fetch_add(bytes_count, Ordering::Relaxed);
        if before > 0 && before.saturating_add(bytes_count) > self.bytes_max {
            self.bytes.fetch_sub(bytes_count, Ordering::Relaxed);
            return Err(CommandError::Full(bytes));
        }
        self.push(Command::Write(key, bytes)).map_err(|refused| {
            self.bytes.fetch_sub(bytes_count, Ordering::Relaxed);
            into_command_error(refused)
        })
    }

    /// Subtracts `bytes_count` bytes of a command that the thread has taken.
    pub(crate) fn release_bytes(&self, bytes_count: usize) {
        self.bytes.fetch_sub(bytes_count, Ordering::Relaxed);
    }

    /// Publishes the thread's number of connections.
    pub(crate) fn publish_open_count(&self, count: u64) {
        // Relaxed, here and below: counts that bound, and order no other access. If the thread
        // opens a connection of its own at the same moment, it may use the last slot: then the
        // connection that is handed to it is closed.
        self.open_count.store(count as usize, Ordering::Relaxed);
    }

    /// Reserves a slot for one more connection; returns `false` if there is none. The reservation
    /// lasts until [`release_reservation`](Self::release_reservation).
    pub(crate) fn try_reserve(&self) -> bool {
        let reserved_count = self.reserved_count.fetch_add(1, Ordering::Relaxed);
        let has_space =
            self.open_count.load(Ordering::Relaxed) + reserved_count < self.connections_max;
        if !has_space {
            self.release_reservation();
        }
        has_space
    }

    /// Ends a reservation: the connection has arrived, or is not handed over after all.
    pub(crate) fn release_reservation(&self) {
        self.reserved_count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a listener of another thread that will hand connections to this one.
    pub(crate) fn add_remote_listener(&self) {
        // Relaxed: the threads are started later.
        self.remote_listeners_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a listener that has handed over its last connection.
    pub(crate) fn remove_remote_listener(&self) {
        // Release: pairs with the Acquire in has_remote_listeners(): the connections it pushed are
        // in the ring.
        self.remote_listeners_count.fetch_sub(1, Ordering::Release);
        self.wake.notify();
    }

    /// Returns `true` while listeners of other threads may still hand connections to this thread.
    pub(crate) fn has_remote_listeners(&self) -> bool {
        // Acquire: pairs with the Release in remove_remote_listener().
        self.remote_listeners_count.load(Ordering::Acquire) > 0
    }

    pub(crate) fn stop(&self, grace_ns: u64) {
        // Release: pairs with the Acquire in stopping(); the notification wakes the thread.
        self.stop_ns.store(grace_ns.min(NOT_STOPPING - 1), Ordering::Release);
        self.wake.notify();
    }

    /// Returns the grace period in ns for open connections, if the thread is asked to stop.
    pub(crate) fn stop_grace_ns(&self) -> Option<u64> {
        // Acquire: pairs with the Release in stop().
        Some(self.stop_ns.load(Ordering::Acquire)).filter(|&grace_ns| grace_ns != NOT_STOPPING)
    }
}

fn into_command_error<D>(refused: PushError<Command<D>>) -> CommandError {
    let is_full = refused.is_full();
    let bytes = match refused.into_inner() {
        Command::Write(_, bytes) => bytes,
        _ => Vec::new(),
    };
    if is_full { CommandError::Full(bytes) } else { CommandError::Ended(bytes) }
}

/// Handle to a connection for any thread: its commands are executed by the connection's thread.
///
/// Each call wakes that thread if it sleeps, and never blocks. Commands for a connection that is
/// already closed are ignored; [`Handler::on_close`](crate::Handler::on_close) reports its end.
pub struct Handle<D> {
    pub(crate) inbox: Arc<Inbox<D>>,
    pub(crate) key: Key,
}

impl<D> Handle<D> {
    /// Sends bytes unframed: use [`Codec::encode`](crate::engine::Codec::encode) to frame them.
    /// Successive writes are sent together.
    ///
    /// # Errors
    /// [`CommandError`] returns the bytes.
    pub fn write(&self, bytes: Vec<u8>) -> Result<(), CommandError> {
        self.inbox.write(self.key, bytes)
    }

    /// Closes the connection when all queued bytes are sent.
    ///
    /// # Errors
    /// [`CommandError`] if the thread has ended or its queue of commands is full.
    pub fn close(&self) -> Result<(), CommandError> {
        self.push(Command::Close(self.key))
    }

    /// Stops reading the connection until [`resume`](Self::resume); TCP flow control slows the
    /// peer.
    ///
    /// # Errors
    /// As [`close`](Self::close).
    pub fn suspend(&self) -> Result<(), CommandError> {
        self.push(Command::Suspend(self.key))
    }

    /// Resumes reading the connection.
    ///
    /// # Errors
    /// As [`close`](Self::close).
    pub fn resume(&self) -> Result<(), CommandError> {
        self.push(Command::Resume(self.key))
    }

    /// Requests a call of [`Handler::on_trigger`](crate::Handler::on_trigger) on the connection's
    /// own thread.
    ///
    /// # Errors
    /// As [`close`](Self::close).
    pub fn trigger(&self) -> Result<(), CommandError> {
        self.push(Command::Trigger(self.key))
    }

    /// Returns the key of the connection, unique in its thread.
    #[must_use]
    pub fn key(&self) -> Key {
        self.key
    }

    fn push(&self, command: Command<D>) -> Result<(), CommandError> {
        self.inbox.push(command).map_err(into_command_error)
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

/// Handle to one thread for any other thread: stops it and reads its counters.
pub struct Stopper<D> {
    pub(crate) inbox: Arc<Inbox<D>>,
}

impl<D> Stopper<D> {
    /// Asks the thread to stop: it accepts nothing more, answers every message that has arrived,
    /// and waits up to `grace` for peers to read their answers. Peers that send without a pause are
    /// read for half of `grace`, one second at most.
    pub fn stop(&self, grace: Duration) {
        self.inbox.stop(u64::try_from(grace.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Returns the thread's counters as published when it last ran out of work, or once a
    /// millisecond if it does not.
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
