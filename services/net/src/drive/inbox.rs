//! Commands that other threads send to an event-loop thread.

use super::endpoint::ConnectOptions;
use super::slab::ConnKey;
use crate::config::to_ns;
use crate::reservations::Reservations;
use crate::stats::PublishedStats;
use crate::tls::TlsServerConfig;
use crate::{CommandError, Config, Stats};
use handover_base::sync::atomic::{AtomicU64, Ordering};
use handover_notify::{Notify, adaptive_fd};
use handover_ring::{PushError, mpsc};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Command to an event-loop thread.
pub(crate) enum Command<D> {
    Write(ConnKey, Vec<u8>),
    Close(ConnKey),
    Suspend(ConnKey),
    Resume(ConnKey),
    /// Calls the handler's `on_trigger` for the connection.
    Trigger(ConnKey),
    /// Takes over a connection that another thread has accepted. Contains the socket, the peer's
    /// address and the TLS configuration.
    Adopt(OwnedFd, Option<SocketAddr>, Option<TlsServerConfig>),
    Connect(ConnectOptions, D),
    /// Resumes accepting: a thread to which this thread hands connections has a free slot.
    ResumeAccepting,
}

/// Value of [`Inbox::stop_grace_ns`] before a stop is requested.
const NOT_STOPPING: u64 = u64::MAX;

/// State of an event-loop thread that other threads access.
pub(crate) struct Inbox<D> {
    commands: mpsc::Producer<Command<D>>,
    /// Sender that wakes the thread after a command was pushed.
    wake: adaptive_fd::Sender,
    /// Grace period of the requested stop in ns; [`NOT_STOPPING`] before a request.
    stop_grace_ns: AtomicU64,
    /// Inbox of the thread whose listeners hand connections to this thread.
    acceptor: OnceLock<Weak<Inbox<D>>>,
    pub(crate) reservations: Reservations,
    pub(crate) published_stats: PublishedStats,
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
            stop_grace_ns: AtomicU64::new(NOT_STOPPING),
            acceptor: OnceLock::new(),
            reservations: Reservations::new(
                config.commands_bytes_max as usize,
                config.connections_max as usize,
            ),
            published_stats: PublishedStats::default(),
        }
    }

    pub(crate) fn push_command(&self, command: Command<D>) -> Result<(), PushError<Command<D>>> {
        self.commands.push(command)?;
        self.wake.notify();
        Ok(())
    }

    fn write(&self, key: ConnKey, bytes: Vec<u8>) -> Result<(), CommandError> {
        let bytes_count = bytes.len();
        if !self.reservations.try_reserve_bytes(bytes_count) {
            return Err(CommandError::Full(bytes));
        }
        self.push_command(Command::Write(key, bytes)).map_err(|refused| {
            self.reservations.release_bytes(bytes_count);
            into_command_error(refused)
        })
    }

    /// Registers a listener of the thread `acceptor`, which will hand connections to this thread.
    pub(crate) fn add_remote_listener(&self, acceptor: &Arc<Inbox<D>>) {
        let known = self.acceptor.get_or_init(|| Arc::downgrade(acceptor));
        debug_assert!(
            known.ptr_eq(&Arc::downgrade(acceptor)),
            "listeners of two threads hand over connections to this one"
        );
        self.reservations.add_remote_listener();
    }

    pub(crate) fn publish_open_count(&self, count: u64) {
        if self.reservations.publish_open_count(count) {
            self.resume_acceptor();
        }
    }

    /// Releases a reserved connection slot of this thread.
    pub(crate) fn release_reserved_slot(&self) {
        if self.reservations.release_slot() {
            self.resume_acceptor();
        }
    }

    /// Sends the thread that hands connections to this one the command to resume accepting.
    fn resume_acceptor(&self) {
        if let Some(acceptor) = self.acceptor.get().and_then(Weak::upgrade) {
            // If its queue of commands is full, it tries again after `ACCEPT_RETRY_NS`.
            let _ = acceptor.push_command(Command::ResumeAccepting);
        }
    }

    /// Unregisters a listener of another thread, which hands over no more connections.
    pub(crate) fn remove_remote_listener(&self) {
        self.reservations.remove_remote_listener();
        self.wake.notify();
    }

    pub(crate) fn request_stop(&self, grace: Duration) {
        // Release: pairs with the Acquire in stop_grace_ns(); the notification wakes the thread.
        self.stop_grace_ns.store(to_ns(grace).min(NOT_STOPPING - 1), Ordering::Release);
        self.wake.notify();
    }

    /// Returns the grace period in ns if a stop was requested; `None` if not.
    pub(crate) fn stop_grace_ns(&self) -> Option<u64> {
        // Acquire: pairs with the Release in request_stop().
        Some(self.stop_grace_ns.load(Ordering::Acquire))
            .filter(|&grace_ns| grace_ns != NOT_STOPPING)
    }
}

fn into_command_error<D>(refused: PushError<Command<D>>) -> CommandError {
    let is_full = refused.is_full();
    let bytes = match refused.into_inner() {
        Command::Write(_, bytes) => bytes,
        _ => Vec::new(),
    };
    if is_full { CommandError::Full(bytes) } else { CommandError::ThreadExited(bytes) }
}

/// Handle through which any thread sends commands for a connection to the connection's thread.
///
/// Each call wakes that thread if it sleeps, and never blocks. Commands for a connection that is
/// already closed are ignored; [`Handler::on_close`](crate::Handler::on_close) reports its end.
pub struct ConnHandle<D> {
    pub(crate) inbox: Arc<Inbox<D>>,
    pub(crate) key: ConnKey,
}

impl<D> ConnHandle<D> {
    /// Requests the connection's thread to send bytes without a frame;
    /// [`Codec::encode`](crate::engine::Codec::encode) frames a message. Successive writes are sent
    /// together. The bytes are dropped if the peer has ended its stream, or if the thread is
    /// stopping: neither waits for them.
    ///
    /// # Errors
    /// [`CommandError`] returns the bytes.
    pub fn write(&self, bytes: Vec<u8>) -> Result<(), CommandError> {
        self.inbox.write(self.key, bytes)
    }

    /// Requests the connection's thread to close the connection once all queued bytes are sent.
    ///
    /// # Errors
    /// [`CommandError`] if the thread has ended or its queue of commands is full.
    pub fn close(&self) -> Result<(), CommandError> {
        self.push(Command::Close(self.key))
    }

    /// Requests the connection's thread to stop reading until [`resume`](Self::resume); TCP flow
    /// control slows the peer.
    ///
    /// # Errors
    /// As [`close`](Self::close).
    pub fn suspend(&self) -> Result<(), CommandError> {
        self.push(Command::Suspend(self.key))
    }

    /// Requests the connection's thread to resume reading.
    ///
    /// # Errors
    /// As [`close`](Self::close).
    pub fn resume(&self) -> Result<(), CommandError> {
        self.push(Command::Resume(self.key))
    }

    /// Requests a call of [`Handler::on_trigger`](crate::Handler::on_trigger) on the connection's
    /// thread.
    ///
    /// # Errors
    /// As [`close`](Self::close).
    pub fn trigger(&self) -> Result<(), CommandError> {
        self.push(Command::Trigger(self.key))
    }

    /// Returns the key of the connection, unique in its thread.
    #[must_use]
    pub fn key(&self) -> ConnKey {
        self.key
    }

    fn push(&self, command: Command<D>) -> Result<(), CommandError> {
        self.inbox.push_command(command).map_err(into_command_error)
    }
}

impl<D> Clone for ConnHandle<D> {
    fn clone(&self) -> Self {
        Self { inbox: Arc::clone(&self.inbox), key: self.key }
    }
}

handover_base::debug_struct!(ConnHandle<D> as it { key: it.key });

/// Handle with which any other thread stops an event-loop thread and reads its counters.
pub struct Stopper<D> {
    pub(crate) inbox: Arc<Inbox<D>>,
}

impl<D> Stopper<D> {
    /// Requests the thread to stop after its handler has handled all messages that have arrived. It
    /// accepts nothing more, and waits up to `grace` for peers to read the replies, but not for
    /// later answers through a [`ConnHandle`]. Peers that send without a pause are read for half of
    /// `grace`, one second at most. A later request with a grace period that ends earlier replaces
    /// this one.
    pub fn stop(&self, grace: Duration) {
        self.inbox.request_stop(grace);
    }

    /// Returns the counters that the thread published last. It does so when it runs out of work,
    /// and every millisecond while it is busy.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.inbox.published_stats.load()
    }
}

impl<D> Clone for Stopper<D> {
    fn clone(&self) -> Self {
        Self { inbox: Arc::clone(&self.inbox) }
    }
}

handover_base::debug_struct!(Stopper<D>);
