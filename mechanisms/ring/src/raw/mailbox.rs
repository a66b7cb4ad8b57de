//! A request and its reply in one line; the algorithm is told at [`crate::mailbox`].
//!
//! ```text
//!             send            receive (server)         reply             receive (caller)
//!   EMPTY ─────────▶ REQUEST ─────────────────▶ · ─────────────▶ REPLY ─────────────────▶ ·
//!   the caller's     the server's               the server's     the caller's             the caller's
//! ```
//!
//! Only who has the line writes the word. To receive writes nothing: that it has been done, each side
//! remembers for itself, and tells it when it goes (the server: ABANDONED, the caller: EMPTY), so that the
//! word says at the end what is still there to be dropped.

use super::look;
use crate::stage;
use crate::{ReplyError, SendError, Unanswered};
use core::fmt;
use core::mem::ManuallyDrop;
use handover_base::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use handover_base::sync::{Arc, CachePadded, UnsafeCell};

/// Nothing is in the line.
const EMPTY: u8 = 0;
/// A request is in the line, or has been received from it.
const REQUEST: u8 = 1;
/// A reply is in the line, or has been received from it.
const REPLY: u8 = 2;
/// The server received a request and went.
const ABANDONED: u8 = 3;

struct Shared<Q, R> {
    line: CachePadded<Line<Q, R>>,
    /// Written at the end only, so that both have a copy of the line. It is not the one that goes to and
    /// fro: who waits looks here after each look at the turn, and two looks at a line that is being
    /// written make the round trip 70 to 87 ns long instead of 61 (AMD Zen 4, 2026-11).
    gone: CachePadded<Gone>,
}

struct Gone {
    caller: AtomicBool,
    server: AtomicBool,
}

/// First the word, then what goes to and fro: one line if that takes no more than 56 bytes.
#[repr(C)]
struct Line<Q, R> {
    turn: AtomicU8,
    content: UnsafeCell<Content<Q, R>>,
}

#[cfg(not(handover_loom))]
const _: () = assert!(size_of::<Line<[u64; 7], [u8; 56]>>() == 64, "56 bytes and the word: a line");

#[repr(C)]
union Content<Q, R> {
    nothing: (),
    request: ManuallyDrop<Q>,
    reply: ManuallyDrop<R>,
}

// SAFETY: the content belongs to one side at a time, and goes from thread to thread with the turn, as
// Q: Send and R: Send allow; the rest is atomic.
unsafe impl<Q: Send, R: Send> Sync for Line<Q, R> {}

impl<Q, R> Line<Q, R> {
    /// # Safety
    /// The line is the caller's of this, with nothing in it.
    #[inline(always)]
    unsafe fn put(&self, content: Content<Q, R>) {
        self.content.with_mut(|place| {
            // SAFETY: nobody else reaches for it, as the caller promises.
            unsafe { place.write(content) };
        });
    }

    /// # Safety
    /// The line is the caller's of this, with a request in it, which it counts as taken from here on.
    #[inline(always)]
    unsafe fn take_request(&self) -> Q {
        self.content.with_mut(|place| {
            // SAFETY: nobody else reaches for it, as the caller promises.
            let content = unsafe { place.read() };
            // SAFETY: a request is what was put there last, as the caller promises.
            ManuallyDrop::into_inner(unsafe { content.request })
        })
    }

    /// # Safety
    /// The line is the caller's of this, with a reply in it, which it counts as taken from here on.
    #[inline(always)]
    unsafe fn take_reply(&self) -> R {
        self.content.with_mut(|place| {
            // SAFETY: nobody else reaches for it, as the caller promises.
            let content = unsafe { place.read() };
            // SAFETY: a reply is what was put there last, as the caller promises.
            ManuallyDrop::into_inner(unsafe { content.reply })
        })
    }
}

impl<Q, R> Drop for Line<Q, R> {
    /// Drops what was sent and never received.
    fn drop(&mut self) {
        // Relaxed: both sides are gone, and the Arc has ordered what they did before this.
        match self.turn.load(Ordering::Relaxed) {
            // SAFETY: nobody else is left; the server would have written ABANDONED if it had it.
            REQUEST => drop(unsafe { self.take_request() }),
            // SAFETY: nobody else is left; the caller would have written EMPTY if it had it.
            REPLY => drop(unsafe { self.take_reply() }),
            _ => {}
        }
    }
}

/// A mailbox's two sides.
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
    let shared = Arc::new(Shared {
        line: CachePadded(Line {
            turn: AtomicU8::new(EMPTY),
            content: UnsafeCell::new(Content { nothing: () }),
        }),
        gone: CachePadded(Gone { caller: AtomicBool::new(false), server: AtomicBool::new(false) }),
    });
    (Caller { shared: Arc::clone(&shared), waiting: false }, Server { shared, owing: false })
}

/// The side that asks. Dropping it closes the mailbox; a request that was sent can still be received.
///
/// The server's requests are typed by its own `Q`, so a caller never stands for one of requests that
/// live shorter (both sides are invariant in `Q` and `R`):
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
    shared: Arc<Shared<Q, R>>,
    /// A request was sent and its reply not received yet.
    waiting: bool,
}

impl<Q, R> Caller<Q, R> {
    /// Sends a request. One at a time: its reply has to be received before the next.
    ///
    /// # Errors
    /// [`SendError::Busy`] while the last one is under way, [`SendError::Closed`] once the server is
    /// gone. The request comes back.
    ///
    /// # Blocking
    /// Never.
    ///
    /// # Cost
    /// Two stores to the line, a load of one that nobody writes.
    #[inline]
    pub fn send(&mut self, request: Q) -> Result<(), SendError<Q>> {
        if self.waiting {
            return Err(SendError::Busy(request));
        }
        if self.is_closed() {
            return Err(SendError::Closed(request));
        }
        // SAFETY: nothing is under way, so the line is ours; what was in it has been received.
        unsafe { self.shared.line.put(Content { request: ManuallyDrop::new(request) }) };
        // Release: publishes the request to the Acquire in Server::receive().
        self.shared.line.turn.store(REQUEST, Ordering::Release);
        stage::published(REQUEST.into(), &*self.shared);
        self.waiting = true;
        Ok(())
    }

    /// Receives the reply, if it is there: `None` while it is not, or if nothing was asked.
    ///
    /// # Errors
    /// [`Unanswered`] once the server is gone and the request will not be answered; the request comes
    /// back if it was not received. Nothing is under way then.
    ///
    /// # Blocking
    /// Never.
    ///
    /// # Cost
    /// A load of the line, which hits this core's own copy until the server replies, and of one that
    /// nobody writes.
    #[inline]
    pub fn receive(&mut self) -> Result<Option<R>, Unanswered<Q>> {
        if !self.waiting {
            return Ok(None);
        }
        // Acquire: pairs with the Release in Server::reply().
        if self.shared.line.turn.load(Ordering::Acquire) != REPLY {
            return self.not_yet();
        }
        self.waiting = false;
        stage::popped(REPLY.into(), &*self.shared);
        // SAFETY: the turn is ours, with a reply that is received once: nothing is under way now.
        Ok(Some(unsafe { self.shared.line.take_reply() }))
    }

    /// Whether a request was sent whose reply has not been received.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.waiting
    }

    /// Whether the server is gone. Once true, true for ever; a reply may still be there.
    #[inline]
    pub fn is_closed(&self) -> bool {
        // Relaxed: orders nothing; not_yet() has the Acquire.
        self.shared.gone.server.load(Ordering::Relaxed)
    }

    /// No reply; is one to come?
    #[inline]
    fn not_yet(&mut self) -> Result<Option<R>, Unanswered<Q>> {
        // Acquire: pairs with the Release in Server's drop: the turn below is its last.
        if !self.shared.gone.server.load(Ordering::Acquire) {
            look::found_nothing();
            return Ok(None);
        }
        self.gone()
    }

    #[cold]
    fn gone(&mut self) -> Result<Option<R>, Unanswered<Q>> {
        self.waiting = false;
        // Relaxed: ordered by the Acquire in not_yet().
        match self.shared.line.turn.load(Ordering::Relaxed) {
            // SAFETY: the server is gone, so the line is ours; a reply came in the last moment, and
            // is received once: nothing is under way now.
            REPLY => Ok(Some(unsafe { self.shared.line.take_reply() })),
            // SAFETY: the server is gone, so the line is ours; it would have written ABANDONED if it
            // had the request; nothing is under way now.
            REQUEST => Err(Unanswered::Unread(unsafe { self.shared.line.take_request() })),
            _ => Err(Unanswered::Abandoned),
        }
    }
}

impl<Q, R> Drop for Caller<Q, R> {
    fn drop(&mut self) {
        if !self.waiting {
            // Relaxed: the line is ours, and read at its end only, or by a server that reads on after the
            // Release below. What was in it has been received.
            self.shared.line.turn.store(EMPTY, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in Server::is_finished(), which reads the turn after it.
        self.shared.gone.caller.store(true, Ordering::Release);
    }
}

impl<Q, R> fmt::Debug for Caller<Q, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mailbox::Caller(waiting: {}, closed: {})", self.waiting, self.is_closed())
    }
}

/// The side that answers. Dropping it closes the mailbox; a reply that was sent can still be received.
///
/// As with [`Caller`], replies cannot be made to live shorter:
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
    shared: Arc<Shared<Q, R>>,
    /// A request was received and not answered yet.
    owing: bool,
}

impl<Q, R> Server<Q, R> {
    /// Receives a request, if one is there. The last one has to be answered before the next.
    ///
    /// # Blocking
    /// Never.
    ///
    /// # Cost
    /// A load of the line, which hits this core's own copy until the caller sends.
    #[inline]
    pub fn receive(&mut self) -> Option<Q> {
        // Acquire: pairs with the Release in Caller::send().
        if self.owing || self.shared.line.turn.load(Ordering::Acquire) != REQUEST {
            look::found_nothing();
            return None;
        }
        self.owing = true;
        stage::popped(REQUEST.into(), &*self.shared);
        // SAFETY: the turn is ours, with a request that is received once: we owe for it now.
        Some(unsafe { self.shared.line.take_request() })
    }

    /// Answers the request that was received.
    ///
    /// # Errors
    /// [`ReplyError::NothingAsked`] when none was received since the last reply,
    /// [`ReplyError::Closed`] once the caller is gone. The reply comes back.
    ///
    /// # Blocking
    /// Never.
    ///
    /// # Cost
    /// Two stores to the line, a load of one that nobody writes.
    #[inline]
    pub fn reply(&mut self, reply: R) -> Result<(), ReplyError<R>> {
        if !self.owing {
            return Err(ReplyError::NothingAsked(reply));
        }
        if self.is_closed() {
            return Err(ReplyError::Closed(reply));
        }
        // SAFETY: the turn is ours until the store below, and the request has been received.
        unsafe { self.shared.line.put(Content { reply: ManuallyDrop::new(reply) }) };
        // Release: publishes the reply to the Acquire in Caller::receive().
        self.shared.line.turn.store(REPLY, Ordering::Release);
        stage::published(REPLY.into(), &*self.shared);
        self.owing = false;
        Ok(())
    }

    /// Whether a request was received that has not been answered.
    #[inline]
    pub fn is_owing(&self) -> bool {
        self.owing
    }

    /// Whether the caller is gone. Once true, true for ever; a request may still be there.
    #[inline]
    pub fn is_closed(&self) -> bool {
        // Relaxed: orders nothing; is_finished() has the Acquire.
        self.shared.gone.caller.load(Ordering::Relaxed)
    }

    /// Whether no request is there and none will ever come. Once true, true for ever.
    #[inline]
    pub fn is_finished(&self) -> bool {
        // Acquire: pairs with the Release in Caller's drop: the turn below is its last.
        let gone = self.shared.gone.caller.load(Ordering::Acquire);
        // Relaxed: ordered by the Acquire above.
        gone && (self.owing || self.shared.line.turn.load(Ordering::Relaxed) != REQUEST)
    }
}

impl<Q, R> Drop for Server<Q, R> {
    fn drop(&mut self) {
        if self.owing {
            // Relaxed: published by the Release below. The request has been received.
            self.shared.line.turn.store(ABANDONED, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in Caller::not_yet(), which reads the turn after it.
        self.shared.gone.server.store(true, Ordering::Release);
    }
}

impl<Q, R> fmt::Debug for Server<Q, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mailbox::Server(owing: {}, closed: {})", self.owing, self.is_closed())
    }
}
