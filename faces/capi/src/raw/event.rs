//! Event machines: messages, timers and descriptors, handled one after another by a callback.

use super::handle::{
    CallbackContext, Exclusive, UserPointer, copy_struct, guard, limit, put, require, take_back,
};
use crate::status::{Fault, handover_status};
use handover_event::{
    Address, Config, Context, EndReason, Handler, Interest, Machine, MachineError, NoReplyError,
    PendingReply, Ready, Reply, ReplyError, RoundResult, RunError, SendError, Stopper,
    ThreadConfig, TimerId, TimersFull, WatchError, WatchId, WeakAddress, WhenFull,
};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::ptr::from_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use handover_status::*;

/// Message to a machine. The library copies it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct handover_event_message {
    /// Kind of the message, chosen by the program.
    pub kind: u32,
    /// Readiness of a watched descriptor, as bits `HANDOVER_EVENT_*`; 0 in other messages.
    pub ready: u32,
    /// Pointer for the program's own use; the library only copies it.
    pub data: *mut c_void,
}

// SAFETY: the library copies the pointer and never dereferences it; the header says that the
// machine's thread gets it.
unsafe impl Send for handover_event_message {}
// SAFETY: as for Send; the message is a plain value.
unsafe impl Sync for handover_event_message {}

impl handover_event_message {
    /// Returns a copy of the message with `ready` set. A closure that calls this captures the whole
    /// message.
    fn with_ready(self, ready: u32) -> Self {
        Self { ready, ..self }
    }
}

/// Bit of readiness and interest: the descriptor has data, or the end of the stream, to read.
pub const HANDOVER_EVENT_READABLE: u32 = 1;
/// Bit of readiness and interest: a write to the descriptor will not block.
pub const HANDOVER_EVENT_WRITABLE: u32 = 2;
/// Bit of readiness: the peer has closed the connection, or its sending direction.
pub const HANDOVER_EVENT_HUNG_UP: u32 = 4;
/// Bit of readiness: an error of the descriptor is pending.
pub const HANDOVER_EVENT_FAILED: u32 = 8;
/// Bit of interest: only changes of readiness cause messages (edge-triggered). Data that the
/// handler leaves unread causes none.
pub const HANDOVER_EVENT_EDGE: u32 = 16;

/// Function that handles a message of a machine, on the thread that runs the machine.
///
/// It may call the functions that take this machine, except those that run or destroy it. `message`
/// is valid until it returns. Neither `longjmp` nor a C++ exception may leave it.
pub type handover_event_handler = Option<
    unsafe extern "C" fn(
        machine: *mut handover_event_machine,
        message: *const handover_event_message,
        context: *mut c_void,
    ),
>;

/// Function called with each unhandled message when a machine is destroyed.
pub type handover_event_discard =
    Option<unsafe extern "C" fn(message: *const handover_event_message, context: *mut c_void)>;

/// Policy for messages that arrive from other threads while the inbox is full.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum handover_event_when_full {
    /// `handover_event_send` returns `HANDOVER_FULL`.
    HANDOVER_EVENT_REFUSE = 0,
    /// `handover_event_send` waits for at most `wait_ns_max`. On the machine's own thread, it
    /// returns `HANDOVER_FULL` instead.
    HANDOVER_EVENT_BLOCK = 1,
    /// The oldest queued message is dropped silently.
    HANDOVER_EVENT_DROP_OLDEST = 2,
}

/// Limits of a machine. `handover_event_config_init` fills in the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct handover_event_config {
    /// Size of this structure in bytes, set by `handover_event_config_init`. Another size is
    /// refused.
    pub struct_bytes: usize,
    /// Maximum wait of a sender in ns under `HANDOVER_EVENT_BLOCK`. Default `HANDOVER_FOREVER`.
    pub wait_ns_max: u64,
    /// Maximum number of queued messages from other threads. Default 1,024.
    pub inbox_messages_max: u32,
    /// Maximum number of queued messages from the machine's own thread. Default 65,536.
    pub local_messages_max: u32,
    /// Maximum number of running timers. Default 1,048,576.
    pub timers_max: u32,
    /// Maximum time for which a wait spins before it sleeps, in ns. Default 50,000.
    pub spin_ns_max: u32,
    /// Timer slack of the thread in ns, at most 4 s; 0 leaves it unchanged. Default 0.
    pub timer_slack_ns: u32,
    /// Policy for a full inbox: a `handover_event_when_full`. Default `HANDOVER_EVENT_REFUSE`.
    pub when_full: u32,
}

type Message = handover_event_message;

/// State that a machine's handle shares with its handler.
#[derive(Default)]
struct MachineShared {
    /// Handle of the machine, an argument of the handler in C; null before the handle exists.
    handle: AtomicPtr<handover_event_machine>,
    /// Context of the running handler.
    callback: CallbackContext,
}

/// Handler that calls a C function.
struct CHandler {
    function: unsafe extern "C" fn(*mut handover_event_machine, *const Message, *mut c_void),
    context: UserPointer,
    shared: Arc<MachineShared>,
}

impl Handler for CHandler {
    type Message = Message;

    fn handle(&mut self, message: Message, context: &mut Context<'_, Message>) {
        // Relaxed: stored before the machine was given to C.
        let machine = self.shared.handle.load(Ordering::Relaxed);
        let pointer = from_mut(context).cast();
        self.shared.callback.run_callback(pointer, || {
            // SAFETY: the header demands a function that accepts these arguments; the message is
            // valid until it returns.
            unsafe { (self.function)(machine, &raw const message, self.context.get()) }
        });
    }
}

/// Handler with an inbox, timers and descriptors; opaque.
pub struct handover_event_machine {
    machine: Exclusive<Machine<CHandler>>,
    address: Address<Message>,
    stopper: Stopper,
    shared: Arc<MachineShared>,
}

/// Sending end of a machine's inbox; opaque.
pub struct handover_event_address {
    address: Address<Message>,
}

/// Fills in the defaults of a machine's limits.
///
/// Threads: any. Blocking: never.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_event_config_init(
    config: Option<&mut MaybeUninit<handover_event_config>>,
) -> handover_status {
    guard(|| {
        let it = Config::default();
        require("config", config)?.write(handover_event_config {
            struct_bytes: size_of::<handover_event_config>(),
            wait_ns_max: u64::MAX,
            inbox_messages_max: it.inbox_messages_max,
            local_messages_max: it.local_messages_max,
            timers_max: it.timers_max,
            // The defaults are far below 2^32 ns.
            spin_ns_max: it.thread.spin.spin_max.as_nanos() as u32,
            timer_slack_ns: it.thread.timer_slack.as_nanos() as u32,
            when_full: 0,
        });
        Ok(())
    })
}

/// Converts the C structure of limits to a [`Config`]. Returns an error for an unknown policy.
fn config_from_c(config: &handover_event_config) -> Result<Config, Fault> {
    let when_full = match config.when_full {
        0 => WhenFull::Refuse,
        1 => WhenFull::Block { wait_max: Duration::from_nanos(config.wait_ns_max) },
        2 => WhenFull::DropOldest,
        other => {
            return Err(HANDOVER_INVALID_ARGUMENT
                .because(format_args!("when_full={other}: no such policy")));
        }
    };
    let spin_max = Duration::from_nanos(config.spin_ns_max.into());
    let thread = ThreadConfig::default()
        .spin(handover_notify::Config::default().spin_max(spin_max))
        .timer_slack(Duration::from_nanos(config.timer_slack_ns.into()));
    Ok(Config::default()
        .inbox_messages_max(config.inbox_messages_max)
        .local_messages_max(config.local_messages_max)
        .timers_max(config.timers_max)
        .when_full(when_full)
        .thread(thread))
}

/// Creates a machine whose messages `handler` handles; each call of `handler` gets `context`. A
/// null `config` stands for the defaults.
///
/// Errors: `HANDOVER_INVALID_ARGUMENT` for a limit outside its range; `HANDOVER_OUT_OF_MEMORY`;
/// `HANDOVER_SYSTEM`. Threads: any; a machine may move between threads, and one at a time may use
/// it. Blocking: never. Ownership: the caller destroys the machine; `context` stays the program's,
/// and must live as long.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn handover_event_create(
    config: *const handover_event_config,
    handler: handover_event_handler,
    context: *mut c_void,
    machine: Option<&mut MaybeUninit<*mut handover_event_machine>>,
) -> handover_status {
    guard(|| {
        let place = require("machine", machine)?;
        let function = require("handler", handler)?;
        let config = if config.is_null() {
            Config::default()
        } else {
            // SAFETY: the header demands a structure that begins with its size.
            config_from_c(&unsafe { copy_struct("config", config) }?)?
        };
        let shared = Arc::<MachineShared>::default();
        let handler =
            CHandler { function, context: UserPointer(context), shared: Arc::clone(&shared) };
        let machine = Machine::new(handler, config).map_err(|error| match error {
            MachineError::Config(_) => HANDOVER_INVALID_ARGUMENT.because(error),
            MachineError::Inbox(_) => HANDOVER_OUT_OF_MEMORY.because(error),
            _ => HANDOVER_SYSTEM.because(error),
        })?;
        let (address, stopper) = (machine.address().clone(), machine.stopper());
        let machine = Exclusive::new(machine);
        let handle = Box::new(handover_event_machine {
            machine,
            address,
            stopper,
            shared: Arc::clone(&shared),
        });
        let handle = Box::into_raw(handle);
        // Relaxed: C passes the machine to another thread with its own synchronisation.
        shared.handle.store(handle, Ordering::Relaxed);
        place.write(handle);
        Ok(())
    })
}

/// Destroys a machine, and calls `discard`, unless that is null, for each message that was not
/// handled. Later sends to its addresses return `HANDOVER_CLOSED`. No callback runs afterwards.
///
/// Errors: `HANDOVER_BUSY` within the machine's handler, `HANDOVER_WRONG_THREAD` while another
/// thread uses the machine; then nothing is destroyed. Threads: any. Blocking: while another thread
/// is in the middle of a send. Ownership: the handle is invalid afterwards; addresses stay valid;
/// descriptors stay open; `discard` does not get the messages of timers and watches.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn handover_event_destroy(
    machine: *mut handover_event_machine,
    discard: handover_event_discard,
    context: *mut c_void,
) -> handover_status {
    guard(|| {
        // SAFETY: the header demands a handle that was not destroyed.
        let handle = unsafe { take_back("machine", machine, |it| &it.machine) }?;
        let closed = handle.machine.into_inner().close();
        if let Some(discard) = discard {
            for message in &closed.messages {
                // SAFETY: the header demands a function that accepts these arguments; the message
                // lives until it returns.
                unsafe { discard(message, context) };
            }
        }
        Ok(())
    })
}

/// Creates an address of the machine, by which any thread can send messages to it.
///
/// Threads: any. Blocking: never. Ownership: the caller destroys the address, before or after the
/// machine.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_event_address_create(
    machine: Option<&handover_event_machine>,
    address: Option<&mut MaybeUninit<Option<Box<handover_event_address>>>>,
) -> handover_status {
    guard(|| {
        let it = require("machine", machine)?.address.clone();
        require("address", address)?.write(Some(Box::new(handover_event_address { address: it })));
        Ok(())
    })
}

/// Destroys an address; null is ignored.
///
/// Threads: any, while no other thread uses this address. Blocking: never. Ownership: the handle is
/// invalid afterwards.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_event_address_destroy(address: Option<Box<handover_event_address>>) {
    drop(address);
}

/// Weak reference to a machine's inbox, which does not keep the memory of the inbox alive; opaque.
pub struct handover_event_weak_address {
    address: WeakAddress<Message>,
}

/// Creates a weak address of the same machine, for tables of machines that may end.
///
/// Threads: any number at the same time. Blocking: never. Ownership: the caller destroys the weak
/// address.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_event_address_downgrade(
    address: Option<&handover_event_address>,
    weak: Option<&mut MaybeUninit<Option<Box<handover_event_weak_address>>>>,
) -> handover_status {
    guard(|| {
        let address = require("address", address)?.address.downgrade();
        require("weak", weak)?.write(Some(Box::new(handover_event_weak_address { address })));
        Ok(())
    })
}

/// Creates an address from a weak address.
///
/// Errors: `HANDOVER_CLOSED`, which sets no last error, if the machine was destroyed. Threads: any
/// number at the same time. Blocking: never. Ownership: the caller destroys the address.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_event_weak_address_upgrade(
    weak: Option<&handover_event_weak_address>,
    address: Option<&mut MaybeUninit<Option<Box<handover_event_address>>>>,
) -> handover_status {
    guard(|| {
        let weak = require("weak", weak)?;
        let place = require("address", address)?;
        let address = weak.address.upgrade().ok_or(HANDOVER_CLOSED)?;
        place.write(Some(Box::new(handover_event_address { address })));
        Ok(())
    })
}

/// Destroys a weak address; null is ignored.
///
/// Threads: any, while no other thread uses this weak address. Blocking: never. Ownership: the
/// handle is invalid afterwards.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_event_weak_address_destroy(
    weak: Option<Box<handover_event_weak_address>>,
) {
    drop(weak);
}

/// Handle with which a handler replies to one request; opaque.
pub struct handover_event_reply {
    reply: Reply<UserPointer>,
}

/// Handle with which a thread waits for a requested reply; opaque.
pub struct handover_event_pending_reply {
    pending: Exclusive<PendingReply<UserPointer>>,
}

/// Creates both ends of one reply. The requester sends `reply` with its message, for example in a
/// structure that `data` points to, and waits for `pending`.
///
/// Threads: any. Blocking: never. Ownership: the handler of the message calls
/// `handover_event_reply_send` or `handover_event_reply_destroy`, and so does the requester if the
/// message is not handled: after a refused send, and in the function that gets the messages of a
/// destroyed machine. The requester destroys `pending`.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_event_reply_create(
    reply: Option<&mut MaybeUninit<Option<Box<handover_event_reply>>>>,
    pending: Option<&mut MaybeUninit<Option<Box<handover_event_pending_reply>>>>,
) -> handover_status {
    guard(|| {
        let reply = require("reply", reply)?;
        let place = require("pending", pending)?;
        let (to, pending) = Reply::pair();
        reply.write(Some(Box::new(handover_event_reply { reply: to })));
        let pending = Exclusive::new(pending);
        place.write(Some(Box::new(handover_event_pending_reply { pending })));
        Ok(())
    })
}

/// Sends the reply, a pointer of the program, and wakes the requester if it waits.
///
/// Errors: `HANDOVER_CLOSED`, which sets no last error, if the requester has destroyed its end.
/// Threads: any. Blocking: never. Ownership: the handle is invalid afterwards, unless it was null;
/// after an error, what `data` points to is still the caller's.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_event_reply_send(
    reply: Option<Box<handover_event_reply>>,
    data: *mut c_void,
) -> handover_status {
    guard(|| match require("reply", reply)?.reply.send(UserPointer(data)) {
        Ok(()) => Ok(()),
        Err(ReplyError::Closed(_) | ReplyError::Refused) => Err(HANDOVER_CLOSED.into()),
    })
}

/// Destroys the replier's end of a reply, so that the requester learns that no reply will come;
/// null is ignored.
///
/// Threads: any. Blocking: never. Ownership: the handle is invalid afterwards.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_event_reply_destroy(reply: Option<Box<handover_event_reply>>) {
    drop(reply);
}

/// Waits for the reply, for at most `timeout_ns`; the pointer that was sent goes to `data`, unless
/// that is null. A reply can be received once. A handler that waits blocks its machine.
///
/// Errors: `HANDOVER_TIMED_OUT`, after which the reply can still come; `HANDOVER_CLOSED` if none
/// will come, or it was received before; neither sets the last error. `HANDOVER_WRONG_THREAD` if
/// another thread waits. Threads: one at a time. Blocking: up to `timeout_ns`, at least for a spin
/// of 1 to 4 us unless that is 0. Ownership: what `data` points to is now the caller's; the handle
/// must still be destroyed.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_event_pending_reply_wait(
    pending: Option<&handover_event_pending_reply>,
    timeout_ns: u64,
    data: Option<&mut MaybeUninit<*mut c_void>>,
) -> handover_status {
    guard(|| {
        let mut pending = require("pending", pending)?.pending.enter("pending")?;
        let replied = match timeout_ns {
            0 => pending.try_wait(),
            _ => pending.wait_timeout(limit(timeout_ns).unwrap_or(Duration::MAX)),
        };
        match replied {
            Ok(Some(reply)) => {
                put(data, reply.get());
                Ok(())
            }
            Ok(None) => Err(HANDOVER_TIMED_OUT.into()),
            Err(NoReplyError) => Err(HANDOVER_CLOSED.into()),
        }
    })
}

/// Destroys the requester's end of a reply, so that the reply is refused, or lost if it has come.
///
/// Errors: `HANDOVER_WRONG_THREAD` if another thread waits; then nothing is destroyed. Threads:
/// any. Blocking: never. Ownership: the handle is invalid afterwards; the pointer of a lost reply
/// is not returned.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn handover_event_pending_reply_destroy(
    pending: *mut handover_event_pending_reply,
) -> handover_status {
    // SAFETY: the header demands a handle that was not destroyed.
    guard(|| unsafe { take_back("pending", pending, |it| &it.pending) }.map(drop))
}

fn send_fault(error: &SendError<Message>) -> Fault {
    match error {
        SendError::Closed(_) => HANDOVER_CLOSED.into(),
        _ => HANDOVER_FULL.into(),
    }
}

/// Sends a copy of the message to the machine, and wakes it if it sleeps.
///
/// Errors: `HANDOVER_FULL`, and `HANDOVER_CLOSED` if the machine was destroyed; neither sets the
/// last error. Threads: any number at the same time. Blocking: never, except under
/// `HANDOVER_EVENT_BLOCK`. Ownership: after an error, `data` is the sender's again; that of a
/// message that `HANDOVER_EVENT_DROP_OLDEST` drops is not returned.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_event_send(
    address: Option<&handover_event_address>,
    message: Option<&handover_event_message>,
) -> handover_status {
    guard(|| {
        let message = *require("message", message)?;
        require("address", address)?.address.send(message).map_err(|it| send_fault(&it))
    })
}

/// Runs `act` with the context of the running handler, if the handler calls this. Otherwise uses
/// the machine's context.
fn with_context<T>(
    machine: Option<&handover_event_machine>,
    act: impl FnOnce(&mut Context<'_, Message>) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let machine = require("machine", machine)?;
    if machine.machine.is_entered_here()
        && let Some(lent) = machine.shared.callback.lend()
    {
        // SAFETY: CHandler::handle lends its exclusive reference until the callback returns, to one
        // call at a time; this thread is within that callback, as it has the machine.
        return act(unsafe { &mut *lent.pointer().cast::<Context<'_, Message>>() });
    }
    act(&mut machine.machine.enter("machine")?.context())
}

/// Sends a copy of the message to the machine from its own thread: within its handler, or before it
/// is run.
///
/// Errors: `HANDOVER_FULL`, which sets no last error; `HANDOVER_WRONG_THREAD` while another thread
/// runs the machine. Threads: one at a time. Blocking: never. Ownership: after an error, `data` is
/// the caller's again.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_event_send_self(
    machine: Option<&handover_event_machine>,
    message: Option<&handover_event_message>,
) -> handover_status {
    guard(|| {
        let message = *require("message", message)?;
        with_context(machine, |context| context.send_quiet(message).map_err(|it| send_fault(&it)))
    })
}

fn timers_fault<M>(_: TimersFull<M>) -> Fault {
    HANDOVER_FULL.because("timers_max timers are running: cancel some, or raise timers_max")
}

/// Starts a timer: a copy of the message is handled once `delay_ns` has passed, never before. Its
/// number goes to `timer`, unless that is null.
///
/// Errors: `HANDOVER_FULL` if `timers_max` timers are running; `HANDOVER_WRONG_THREAD` while
/// another thread runs the machine. Threads: one at a time, within the handler too. Blocking:
/// never. Ownership: the machine keeps `data` until the timer expires or is cancelled, or the
/// machine is destroyed; only an expiry passes it to the handler.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_event_after(
    machine: Option<&handover_event_machine>,
    delay_ns: u64,
    message: Option<&handover_event_message>,
    timer: Option<&mut MaybeUninit<u64>>,
) -> handover_status {
    guard(|| {
        let message = *require("message", message)?;
        let delay = Duration::from_nanos(delay_ns);
        let id = with_context(machine, |it| it.after(delay, message).map_err(timers_fault))?;
        put(timer, id.to_bits());
        Ok(())
    })
}

/// Starts a timer that expires every `period_ns` (at least 1): each time a copy of the message is
/// handled. Its number goes to `timer`, unless that is null.
///
/// Errors and threads: as `handover_event_after`. Blocking: never. Ownership: the machine keeps
/// `data`, and passes it to the handler each time, until the timer is cancelled or the machine
/// destroyed.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_event_every(
    machine: Option<&handover_event_machine>,
    period_ns: u64,
    message: Option<&handover_event_message>,
    timer: Option<&mut MaybeUninit<u64>>,
) -> handover_status {
    guard(|| {
        let message = *require("message", message)?;
        if period_ns == 0 {
            return Err(HANDOVER_INVALID_ARGUMENT.because("period_ns=0: must be at least 1"));
        }
        let period = Duration::from_nanos(period_ns);
        let id =
            with_context(machine, |it| it.every(period, move || message).map_err(timers_fault))?;
        put(timer, id.to_bits());
        Ok(())
    })
}

/// Cancels a timer: its message is not handled any more.
///
/// Errors: `HANDOVER_NOT_FOUND` if it has expired or was cancelled; `HANDOVER_WRONG_THREAD` while
/// another thread runs the machine. Threads: one at a time, within the handler too. Blocking:
/// never. Ownership: the machine no longer keeps the message's `data`, and does not return it.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_event_cancel(
    machine: Option<&handover_event_machine>,
    timer: u64,
) -> handover_status {
    guard(|| {
        let gone = || HANDOVER_NOT_FOUND.because(format_args!("timer={timer:#x}: not running"));
        let id = TimerId::from_bits(timer).ok_or_else(gone)?;
        with_context(machine, |context| context.cancel(id).map(drop).ok_or_else(gone))
    })
}

/// Descriptor that C passed. It stays open while it is watched, as the header demands.
struct Descriptor(RawFd);

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the number is not -1, as `watch` checked; the header demands that it is open
        // until the watch ends.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

fn parse_interest(bits: u32) -> Result<Interest, Fault> {
    let has = |bit| bits & bit != 0;
    let it = Interest {
        read: has(HANDOVER_EVENT_READABLE),
        write: has(HANDOVER_EVENT_WRITABLE),
        edge: has(HANDOVER_EVENT_EDGE),
    };
    let known = HANDOVER_EVENT_READABLE | HANDOVER_EVENT_WRITABLE | HANDOVER_EVENT_EDGE;
    if !(it.read || it.write) || bits & !known != 0 {
        return Err(HANDOVER_INVALID_ARGUMENT.because(format_args!(
            "interest_bits={bits}: must be HANDOVER_EVENT_READABLE, HANDOVER_EVENT_WRITABLE or both, and may have _EDGE"
        )));
    }
    Ok(it)
}

fn ready_bits(ready: Ready) -> u32 {
    let Ready { readable, writable, hung_up, failed, .. } = ready;
    let bit = |is_set, bit| if is_set { bit } else { 0 };
    bit(readable, HANDOVER_EVENT_READABLE)
        | bit(writable, HANDOVER_EVENT_WRITABLE)
        | bit(hung_up, HANDOVER_EVENT_HUNG_UP)
        | bit(failed, HANDOVER_EVENT_FAILED)
}

fn watch_fault(error: WatchError) -> Fault {
    match error {
        WatchError::Stopped => HANDOVER_NOT_FOUND.because(error),
        _ => HANDOVER_SYSTEM.because(error),
    }
}

/// Watches a descriptor for `interest_bits` of `HANDOVER_EVENT_*`. For each readiness, a copy of
/// the message is handled, with `ready` set. The number of the watch goes to `watch`, unless that
/// is null.
///
/// Errors: `HANDOVER_INVALID_ARGUMENT` for a negative descriptor or another interest;
/// `HANDOVER_SYSTEM` if the kernel cannot poll the descriptor, or if it is watched already;
/// `HANDOVER_WRONG_THREAD` while another thread runs the machine. Threads: one at a time, within
/// the handler too. Blocking: never. Ownership: the descriptor stays the program's, and must be
/// open until the watch ends by `handover_event_unwatch` or `handover_event_destroy`; until then
/// the machine keeps `data`.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_event_watch(
    machine: Option<&handover_event_machine>,
    descriptor: i32,
    interest_bits: u32,
    message: Option<&handover_event_message>,
    watch: Option<&mut MaybeUninit<u64>>,
) -> handover_status {
    guard(|| {
        let message = *require("message", message)?;
        let interest = parse_interest(interest_bits)?;
        if descriptor < 0 {
            return Err(HANDOVER_INVALID_ARGUMENT
                .because(format_args!("descriptor={descriptor}: negative")));
        }
        let wrap = move |ready| message.with_ready(ready_bits(ready));
        let id = with_context(machine, |context| {
            context.watch(Descriptor(descriptor), interest, wrap).map_err(watch_fault)
        })?;
        put(watch, id.to_bits());
        Ok(())
    })
}

/// Changes the events that a watch waits for.
///
/// Errors: `HANDOVER_NOT_FOUND` if the watch has ended; otherwise as `handover_event_watch`.
/// Threads: one at a time, within the handler too. Blocking: never.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_event_set_interest(
    machine: Option<&handover_event_machine>,
    watch: u64,
    interest_bits: u32,
) -> handover_status {
    guard(|| {
        let interest = parse_interest(interest_bits)?;
        let watch = WatchId::from_bits(watch);
        with_context(machine, |context| context.set_interest(watch, interest).map_err(watch_fault))
    })
}

/// Ends a watch: no message of it is handled any more, and the descriptor may be closed.
///
/// Errors: `HANDOVER_NOT_FOUND` if the watch has ended; `HANDOVER_WRONG_THREAD` while another
/// thread runs the machine. Threads: one at a time, within the handler too. Blocking: never.
/// Ownership: the machine no longer keeps the message's `data`, and does not return it.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_event_unwatch(
    machine: Option<&handover_event_machine>,
    watch: u64,
) -> handover_status {
    guard(|| {
        let is_ended = with_context(machine, |it| Ok(it.unwatch(WatchId::from_bits(watch))))?;
        is_ended.then_some(()).ok_or_else(|| {
            HANDOVER_NOT_FOUND.because(format_args!("watch={watch:#x}: it has ended"))
        })
    })
}

fn run_fault(error: RunError) -> Fault {
    HANDOVER_SYSTEM.because(error)
}

/// Returns `true` if the machine was stopped; an error if its handler panicked.
fn is_stopped(ended: Option<EndReason>) -> Result<bool, Fault> {
    match ended {
        None => Ok(false),
        Some(EndReason::Panicked(text)) => Err(HANDOVER_PANIC.because(text)),
        Some(_) => Ok(true),
    }
}

/// Runs the machine until `handover_event_stop`. Messages that are queued then stay queued, and the
/// machine may be run again.
///
/// Errors: `HANDOVER_BUSY` within the handler; `HANDOVER_WRONG_THREAD` while another thread runs
/// it; `HANDOVER_SYSTEM`. Threads: one at a time, which runs the handler. Blocking: until the
/// machine is stopped.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_event_run(machine: Option<&handover_event_machine>) -> handover_status {
    guard(|| {
        let ended =
            require("machine", machine)?.machine.enter("machine")?.run().map_err(run_fault)?;
        is_stopped(Some(ended)).map(drop)
    })
}

/// Runs one round of the machine, for a program that has a loop of its own; waits first if there is
/// no work and `should_wait` is not 0. The number of handled messages goes to `handled_count`,
/// unless that is null, also if the machine was asked to stop.
///
/// Errors: `HANDOVER_CLOSED`, which sets no last error, if the machine was asked to stop; otherwise
/// as `handover_event_run`. Threads: one at a time, which runs the handler. Blocking: only if
/// `should_wait` is not 0.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_event_run_once(
    machine: Option<&handover_event_machine>,
    should_wait: u32,
    handled_count: Option<&mut MaybeUninit<u32>>,
) -> handover_status {
    guard(|| {
        let mut machine = require("machine", machine)?.machine.enter("machine")?;
        let round = if should_wait != 0 { machine.run_once() } else { machine.poll() };
        let RoundResult { handled, end_reason: ended, .. } = round.map_err(run_fault)?;
        put(handled_count, handled);
        if is_stopped(ended)? { Err(HANDOVER_CLOSED.into()) } else { Ok(()) }
    })
}

/// Asks the machine to stop: within its handler after this message, and from elsewhere after the
/// messages of the current round. If it is not running, its next run returns at once.
///
/// Threads: any number at the same time, and within the handler. Blocking: never.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_event_stop(machine: Option<&handover_event_machine>) -> handover_status {
    guard(|| {
        let machine = require("machine", machine)?;
        if machine.machine.is_entered_here() {
            return with_context(Some(machine), |context| {
                context.stop();
                Ok(())
            });
        }
        // A clone: once it has stopped, another thread may destroy the machine.
        machine.stopper.clone().stop();
        Ok(())
    })
}
