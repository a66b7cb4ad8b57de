//! A request and its reply in one line; [`crate::mailbox`] describes the algorithm.
//!
//! ```text
//!             send            receive (server)         reply             receive (caller)
//!   EMPTY ─────────▶ REQUEST ─────────────────▶ · ─────────────▶ REPLY ─────────────────▶ ·
//!   the caller's     the server's               the server's     the caller's             the caller's
//! ```
//!
//! Only the end that owns the line writes the word. Receiving writes nothing: each end remembers
//! for itself that it has received, and stores it in the word when it is dropped (the server:
//! ABANDONED, the caller: EMPTY), so that the word finally shows which content must still be
//! dropped.

use super::poll;
use crate::stage;
use crate::{ReceiveError, ReplyError, SendError};
use core::fmt;
use core::mem::ManuallyDrop;
use handover_base::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use handover_base::sync::{Arc, CachePadded, UnsafeCell};

/// State of the mailbox: it is empty.
const EMPTY: u8 = 0;
/// State of the mailbox: it holds a request, or the server has received the request.
const REQUEST: u8 = 1;
/// State of the mailbox: it holds a reply, or the caller has received the reply.
const REPLY: u8 = 2;
/// State of the mailbox: the server received a request and was dropped without a reply.
const ABANDONED: u8 = 3;

/// State shared by the two ends of a mailbox.
struct MailboxShared<Q, R> {
    line: CachePadded<Line<Q, R>>,
    /// Flags that say which ends were dropped. Not in the line that is transferred, and written
    /// only when an end is dropped, so that both CPUs keep a copy: a waiting end loads the flags
    /// after each load of the state, and two loads from a line that is being written make the round
    /// trip 70 to 87 ns long instead of 61 (AMD Zen 4, 2026-11).
    dropped: CachePadded<DroppedEnds>,
}

/// Flags that are set when an end is dropped.
struct DroppedEnds {
    caller: AtomicBool,
    server: AtomicBool,
}

/// State and content of the mailbox. They are in one cache line if the request and the reply have
/// at most 56 bytes.
#[repr(C)]
struct Line<Q, R> {
    state: AtomicU8,
    content: UnsafeCell<Content<Q, R>>,
}

#[cfg(not(handover_loom))]
const _: () = assert!(size_of::<Line<[u64; 7], [u8; 56]>>() == 64, "a line exceeds 64 bytes");

/// Request or reply; the state of the line says which.
#[repr(C)]
union Content<Q, R> {
    nothing: (),
    request: ManuallyDrop<Q>,
    reply: ManuallyDrop<R>,
}

// SAFETY: one end at a time owns the content, and ownership moves between threads with the state,
// which Q: Send and R: Send allow; the state is atomic.
unsafe impl<Q: Send, R: Send> Sync for Line<Q, R> {}

impl<Q, R> Line<Q, R> {
    /// Writes a request or reply to the line.
    ///
    /// # Safety
    /// The calling end owns the line, and the line is empty.
    #[inline(always)]
    unsafe fn put(&self, content: Content<Q, R>) {
        self.content.with_mut(|place| {
            // SAFETY: the calling end owns the line, as the caller guarantees, so that no other
            // thread accesses it.
            unsafe { place.write(content) };
        });
    }

    /// Moves the request out of the line.
    ///
    /// # Safety
    /// The calling end owns the line, a request was put there last, and it was not taken before.
    #[inline(always)]
    unsafe fn take_request(&self) -> Q {
        self.content.with_mut(|place| {
            // SAFETY: the calling end owns the line, as the caller guarantees, so that no other
            // thread accesses it.
            let content = unsafe { place.read() };
            // SAFETY: the caller guarantees that a request was put there last.
            ManuallyDrop::into_inner(unsafe { content.request })
        })
    }

    /// Moves the reply out of the line.
    ///
    /// # Safety
    /// The calling end owns the line, a reply was put there last, and it was not taken before.
    #[inline(always)]
    unsafe fn take_reply(&self) -> R {
        self.content.with_mut(|place| {
            // SAFETY: the calling end owns the line, as the caller guarantees, so that no other
            // thread accesses it.
            let content = unsafe { place.read() };
            // SAFETY: the caller guarantees that a reply was put there last.
            ManuallyDrop::into_inner(unsafe { content.reply })
        })
    }
}

impl<Q, R> Drop for Line<Q, R> {
    /// Drops a request or reply that was sent and never received.
    fn drop(&mut self) {
        // Relaxed: both ends are dropped, and the Arc has ordered their accesses before this.
        match self.state.load(Ordering::Relaxed) {
            // SAFETY: no other handle is left; a server that had received the request wrote
            // ABANDONED.
            REQUEST => drop(unsafe { self.take_request() }),
            // SAFETY: no other handle is left; a caller that had received the reply wrote EMPTY.
            REPLY => drop(unsafe { self.take_reply() }),
            _ => {}
        }
    }
}

/// Creates a mailbox, and returns its client's and its server's end.
///
/// ```
/// let (mut caller, mut server) = handover_ring::mailbox::pair();
/// let other = std::thread::spawn(move || {
///     let mut served = 0;
///     while !server.is_finished() {
///         if let Some(request) = server.receive() {
///             server.reply(request * 2).unwrap();
///             served += 1;
///         }
///     }
///     served
/// });
/// caller.send(21).unwrap();
/// let reply = loop {
///     if let Some(reply) = caller.receive().unwrap() {
///         break reply;
///     }
/// };
/// assert_eq!(reply, 42);
/// drop(caller);
/// assert_eq!(other.join().unwrap(), 1);
/// ```
pub fn pair<Q, R>() -> (Caller<Q, R>, Server<Q, R>) {
    let shared = Arc::new(MailboxShared {
        line: CachePadded(Line {
            state: AtomicU8::new(EMPTY),
            content: UnsafeCell::new(Content { nothing: () }),
        }),
        dropped: CachePadded(DroppedEnds {
            caller: AtomicBool::new(false),
            server: AtomicBool::new(false),
        }),
    });
    (
        Caller { shared: Arc::clone(&shared), is_waiting: false },
        Server { shared, has_request: false },
    )
}

/// Client's end of a mailbox: sends requests and receives replies. Dropping it closes the mailbox;
/// a request that was sent can still be received.
///
/// A caller is invariant in `Q` and `R`, as is the server: it cannot stand for a caller of requests
/// with a shorter lifetime, which the server would receive under its own `Q`:
///
/// ```compile_fail,E0597
/// let (caller, mut server) = handover_ring::mailbox::pair::<&'static str, ()>();
/// {
///     let short = String::from("freed at the end of this block");
///     let mut caller: handover_ring::mailbox::Caller<&str, ()> = caller;
///     caller.send(&short).unwrap();
/// }
/// let freed: &'static str = server.receive().unwrap();
/// ```
pub struct Caller<Q, R> {
    shared: Arc<MailboxShared<Q, R>>,
    /// `true` if a request was sent and its reply was not received yet.
    is_waiting: bool,
}

impl<Q, R> Caller<Q, R> {
    /// Sends a request; the reply to the previous one must have been received before.
    ///
    /// # Errors
    /// [`SendError::Busy`] while the last request is under way, [`SendError::Closed`] once the
    /// server is dropped. Both return the request.
    ///
    /// # Blocking
    /// Never.
    ///
    /// # Cost
    /// Two stores to the line, and a load of one that no thread writes until an end is dropped.
    #[inline]
    pub fn send(&mut self, request: Q) -> Result<(), SendError<Q>> {
        if self.is_waiting {
            return Err(SendError::Busy(request));
        }
        if self.is_closed() {
            return Err(SendError::Closed(request));
        }
        // SAFETY: no request is under way, so that this end owns the line, and its content has been
        // received.
        unsafe { self.shared.line.put(Content { request: ManuallyDrop::new(request) }) };
        // Release: publishes the request to the Acquire in Server::receive().
        self.shared.line.state.store(REQUEST, Ordering::Release);
        stage::record_published(REQUEST.into(), &*self.shared);
        self.is_waiting = true;
        Ok(())
    }

    /// Receives the reply; `Ok(None)` if the server has not replied yet, or no request was sent.
    ///
    /// # Errors
    /// [`ReceiveError`] once the server is dropped without a reply; the request is returned if the
    /// server had not received it. No request is under way then.
    ///
    /// # Blocking
    /// Never.
    ///
    /// # Cost
    /// A load of the line, which hits this core's own copy until the server replies, and of one
    /// that no thread writes until an end is dropped.
    #[inline]
    pub fn receive(&mut self) -> Result<Option<R>, ReceiveError<Q>> {
        if !self.is_waiting {
            return Ok(None);
        }
        // Acquire: pairs with the Release in Server::reply().
        if self.shared.line.state.load(Ordering::Acquire) != REPLY {
            return self.check_server_dropped();
        }
        self.is_waiting = false;
        stage::record_popped(REPLY.into(), &*self.shared);
        // SAFETY: the state shows that this end owns the line with a reply; `is_waiting` is false
        // from now on, so that it is taken once.
        Ok(Some(unsafe { self.shared.line.take_reply() }))
    }

    /// Returns `true` if a request was sent and its reply was not received yet.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Returns `true` if the server was dropped. Once true, it stays true; there may still be a
    /// reply to receive.
    #[inline]
    pub fn is_closed(&self) -> bool {
        // Relaxed: orders nothing; check_server_dropped() has the Acquire.
        self.shared.dropped.server.load(Ordering::Relaxed)
    }

    /// Returns `Ok(None)` while the server exists, as a reply may still arrive. Otherwise
    /// returns the last reply, or an error if there is none.
    #[inline]
    fn check_server_dropped(&mut self) -> Result<Option<R>, ReceiveError<Q>> {
        // Acquire: pairs with the Release in Server's drop: the state read below is its last.
        if !self.shared.dropped.server.load(Ordering::Acquire) {
            poll::delay_next_poll();
            return Ok(None);
        }
        self.receive_from_dropped_server()
    }

    /// Returns the last reply of a dropped server, or an error if there is none.
    #[cold]
    fn receive_from_dropped_server(&mut self) -> Result<Option<R>, ReceiveError<Q>> {
        self.is_waiting = false;
        // Relaxed: ordered by the Acquire in check_server_dropped().
        match self.shared.line.state.load(Ordering::Relaxed) {
            // SAFETY: the server is dropped, so that this end owns the line. The reply came just
            // before, and `is_waiting` is false from now on, so that it is taken once.
            REPLY => Ok(Some(unsafe { self.shared.line.take_reply() })),
            // SAFETY: the server is dropped, so that this end owns the line. A server that had
            // received the request would have written ABANDONED; `is_waiting` is false from now on,
            // so that it is taken once.
            REQUEST => Err(ReceiveError::NotReceived(unsafe { self.shared.line.take_request() })),
            _ => Err(ReceiveError::Abandoned),
        }
    }
}

impl<Q, R> Drop for Caller<Q, R> {
    fn drop(&mut self) {
        if !self.is_waiting {
            // Relaxed: this end owns the line. Only the Line's drop reads the word, or a server
            // that polls after the Release below. The line's content has been received.
            self.shared.line.state.store(EMPTY, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in Server::is_finished(), which reads the state after it.
        self.shared.dropped.caller.store(true, Ordering::Release);
    }
}

impl<Q, R> fmt::Debug for Caller<Q, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (is_waiting, is_closed) = (self.is_waiting, self.is_closed());
        write!(f, "mailbox::Caller(is_waiting: {is_waiting}, is_closed: {is_closed})")
    }
}

/// Server's end of a mailbox: receives requests and sends replies. Dropping it closes the mailbox;
/// a reply that was sent can still be received.
///
/// Like [`Caller`], it is invariant, so that replies cannot have a shorter lifetime:
///
/// ```compile_fail,E0597
/// let (mut caller, mut server) = handover_ring::mailbox::pair::<(), &'static str>();
/// caller.send(()).unwrap();
/// server.receive().unwrap();
/// {
///     let short = String::from("freed at the end of this block");
///     let mut server: handover_ring::mailbox::Server<(), &str> = server;
///     server.reply(&short).unwrap();
/// }
/// let freed: &'static str = caller.receive().unwrap().unwrap();
/// ```
pub struct Server<Q, R> {
    shared: Arc<MailboxShared<Q, R>>,
    /// `true` if a request was received and not answered yet.
    has_request: bool,
}

impl<Q, R> Server<Q, R> {
    /// Receives a request; `None` if there is none, or the previous one was not answered yet.
    ///
    /// # Blocking
    /// Never.
    ///
    /// # Cost
    /// A load of the line, which hits this core's own copy until the caller sends.
    #[inline]
    pub fn receive(&mut self) -> Option<Q> {
        // Acquire: pairs with the Release in Caller::send().
        if self.has_request || self.shared.line.state.load(Ordering::Acquire) != REQUEST {
            poll::delay_next_poll();
            return None;
        }
        self.has_request = true;
        stage::record_popped(REQUEST.into(), &*self.shared);
        // SAFETY: the state shows that this end owns the line with a request; `has_request` is true
        // from now on, so that it is taken once.
        Some(unsafe { self.shared.line.take_request() })
    }

    /// Sends the reply to the request received last.
    ///
    /// # Errors
    /// [`ReplyError::NoRequest`] if no request was received since the last reply,
    /// [`ReplyError::Closed`] once the caller is dropped. Both return the reply.
    ///
    /// # Blocking
    /// Never.
    ///
    /// # Cost
    /// Two stores to the line, and a load of one that no thread writes until an end is dropped.
    #[inline]
    pub fn reply(&mut self, reply: R) -> Result<(), ReplyError<R>> {
        if !self.has_request {
            return Err(ReplyError::NoRequest(reply));
        }
        if self.is_closed() {
            return Err(ReplyError::Closed(reply));
        }
        // SAFETY: this end owns the line until the store below, and the request has been taken out
        // of it.
        unsafe { self.shared.line.put(Content { reply: ManuallyDrop::new(reply) }) };
        // Release: publishes the reply to the Acquire in Caller::receive().
        self.shared.line.state.store(REPLY, Ordering::Release);
        stage::record_published(REPLY.into(), &*self.shared);
        self.has_request = false;
        Ok(())
    }

    /// Returns `true` if a request was received and not answered yet.
    #[inline]
    pub fn has_unanswered_request(&self) -> bool {
        self.has_request
    }

    /// Returns `true` if the caller was dropped. Once true, it stays true; there may still be a
    /// request to receive.
    #[inline]
    pub fn is_closed(&self) -> bool {
        // Relaxed: orders nothing; is_finished() has the Acquire.
        self.shared.dropped.caller.load(Ordering::Relaxed)
    }

    /// Returns `true` if there is no request to receive and none can be sent any more. Once true,
    /// it stays true.
    #[inline]
    pub fn is_finished(&self) -> bool {
        // Acquire: pairs with the Release in Caller's drop: the state read below is its last.
        let dropped = self.shared.dropped.caller.load(Ordering::Acquire);
        // Relaxed: ordered by the Acquire above.
        dropped && (self.has_request || self.shared.line.state.load(Ordering::Relaxed) != REQUEST)
    }
}

impl<Q, R> Drop for Server<Q, R> {
    fn drop(&mut self) {
        if self.has_request {
            // Relaxed: published by the Release below. The request has been received.
            self.shared.line.state.store(ABANDONED, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in Caller::check_server_dropped(), which reads the state
        // after it.
        self.shared.dropped.server.store(true, Ordering::Release);
    }
}

impl<Q, R> fmt::Debug for Server<Q, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (has_request, is_closed) = (self.has_request, self.is_closed());
        write!(f, "mailbox::Server(has_unanswered_request: {has_request}, is_closed: {is_closed})")
    }
}
