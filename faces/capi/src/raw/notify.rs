//! Notifications between threads.

use super::handle::{Exclusive, guard, limit, require, take_back};
use crate::status::{Fault, Outcome, handover_status};
use handover_notify::{Config, Notify, PairError, Wait, adaptive, adaptive_fd, task};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use handover_status::*;

/// Kind of a notification: the object on which the receiver sleeps.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum handover_notify_kind {
    /// The receiver sleeps on a futex.
    HANDOVER_NOTIFY_FUTEX = 0,
    /// The receiver sleeps on an eventfd, by itself or in an epoll set of the program.
    HANDOVER_NOTIFY_EVENTFD = 1,
    /// The receiver sleeps on a futex, and is also woken when the sender is destroyed. It never
    /// spins.
    HANDOVER_NOTIFY_CLOSING = 2,
}

/// Receiver of a notification, of any kind.
enum AnyReceiver {
    /// Receiver of `HANDOVER_NOTIFY_FUTEX`.
    Futex(adaptive::Receiver),
    /// Receiver of `HANDOVER_NOTIFY_EVENTFD`.
    Eventfd(adaptive_fd::Receiver),
    /// Receiver of `HANDOVER_NOTIFY_CLOSING`.
    Closing(task::Receiver),
}

/// Sending end of a notification; opaque.
pub struct handover_notify_sender {
    sender: Box<dyn Notify>,
}

/// Receiving end of a notification; opaque.
pub struct handover_notify_receiver {
    receiver: Exclusive<AnyReceiver>,
}

fn pair_fault(error: PairError) -> Fault {
    match error {
        PairError::Config(_) => HANDOVER_INVALID_ARGUMENT.because(error),
        _ => HANDOVER_SYSTEM.because(error),
    }
}

/// Creates a sender and a receiver, with nothing pending. `kind` is a `handover_notify_kind`.
///
/// A wait spins for at most `spin_ns_max` ns before it sleeps, and only while spinning pays; 0
/// never spins, 50,000 is a good value. `HANDOVER_NOTIFY_CLOSING` never spins.
///
/// Errors: `HANDOVER_INVALID_ARGUMENT` for an unknown kind or a number outside its range;
/// `HANDOVER_SYSTEM` if the kernel gives no descriptor. Threads: any. Blocking: never. Ownership:
/// the caller destroys both ends, in any order.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_notify_create(
    kind: u32,
    spin_ns_max: u32,
    sender: Option<&mut MaybeUninit<Option<Box<handover_notify_sender>>>>,
    receiver: Option<&mut MaybeUninit<Option<Box<handover_notify_receiver>>>>,
) -> handover_status {
    guard(|| {
        let sender = require("sender", sender)?;
        let receiver = require("receiver", receiver)?;
        let config = Config::default().spin_max(Duration::from_nanos(spin_ns_max.into()));
        let (notify, wait): (Box<dyn Notify>, _) = match kind {
            0 => {
                let (notify, wait) = adaptive::pair(config).map_err(|it| pair_fault(it.into()))?;
                (Box::new(notify), AnyReceiver::Futex(wait))
            }
            1 => {
                let (notify, wait) = adaptive_fd::pair(config).map_err(pair_fault)?;
                (Box::new(notify), AnyReceiver::Eventfd(wait))
            }
            2 => {
                let (notify, wait) = task::pair();
                (Box::new(notify), AnyReceiver::Closing(wait))
            }
            _ => {
                return Err(
                    HANDOVER_INVALID_ARGUMENT.because(format_args!("kind={kind}: no such kind"))
                );
            }
        };
        sender.write(Some(Box::new(handover_notify_sender { sender: notify })));
        receiver.write(Some(Box::new(handover_notify_receiver { receiver: Exclusive::new(wait) })));
        Ok(())
    })
}

/// Makes a notification pending, and wakes the receiver if it sleeps. Several pending notifications
/// count as one.
///
/// Threads: any number at the same time. Blocking: never.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_notify_send(sender: Option<&handover_notify_sender>) -> handover_status {
    guard(|| {
        require("sender", sender)?.sender.notify();
        Ok(())
    })
}

/// Waits until a notification is pending, for at most `timeout_ns`, and consumes all pending ones.
/// 0 does not wait, `HANDOVER_FOREVER` waits without a limit.
///
/// Errors: `HANDOVER_TIMED_OUT`; for `HANDOVER_NOTIFY_CLOSING`, `HANDOVER_CLOSED` if the sender was
/// destroyed and nothing is pending; neither sets the last error. `HANDOVER_WRONG_THREAD` if
/// another thread waits. Threads: one at a time. Blocking: up to `timeout_ns`, and the timer slack
/// of the kernel.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_notify_wait(
    receiver: Option<&handover_notify_receiver>,
    timeout_ns: u64,
) -> handover_status {
    guard(|| {
        let mut receiver = require("receiver", receiver)?.receiver.enter("receiver")?;
        match &mut *receiver {
            AnyReceiver::Futex(receiver) => wait(receiver, timeout_ns),
            AnyReceiver::Eventfd(receiver) => wait(receiver, timeout_ns),
            AnyReceiver::Closing(receiver) => {
                let notified = match limit(timeout_ns) {
                    Some(timeout) => receiver.notified_timeout(timeout),
                    None => receiver.notified_blocking().map(|()| true),
                };
                match notified {
                    Ok(true) => Ok(()),
                    Ok(false) => Err(HANDOVER_TIMED_OUT.into()),
                    Err(task::ClosedError) => Err(HANDOVER_CLOSED.into()),
                }
            }
        }
    })
}

/// Waits for a notification; 0 does not wait, and `HANDOVER_FOREVER` sets no limit.
fn wait(receiver: &mut impl Wait, timeout_ns: u64) -> Outcome {
    let notified = match (timeout_ns, limit(timeout_ns)) {
        (0, _) => receiver.try_wait(),
        (_, Some(timeout)) => receiver.wait_timeout(timeout),
        (_, None) => Some(receiver.wait()),
    };
    notified.map(drop).ok_or(HANDOVER_TIMED_OUT.into())
}

/// Runs `act` with the receiver; returns an error unless it sleeps on an eventfd.
fn with_eventfd<T>(
    receiver: Option<&handover_notify_receiver>,
    act: impl FnOnce(&mut adaptive_fd::Receiver) -> T,
) -> Result<T, Fault> {
    let mut receiver = require("receiver", receiver)?.receiver.enter("receiver")?;
    match &mut *receiver {
        AnyReceiver::Eventfd(receiver) => Ok(act(receiver)),
        _ => Err(HANDOVER_INVALID_ARGUMENT
            .because("receiver: a futex has no descriptor; create it as HANDOVER_NOTIFY_EVENTFD")),
    }
}

/// Stores the descriptor of an eventfd receiver, for an epoll set or `poll`: only wait for it to be
/// readable, between `handover_notify_prepare` and `handover_notify_finish`.
///
/// Errors: `HANDOVER_INVALID_ARGUMENT` for a futex.
/// Threads: one at a time. Blocking: never. Ownership: the receiver closes the descriptor.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_notify_descriptor(
    receiver: Option<&handover_notify_receiver>,
    descriptor: Option<&mut MaybeUninit<i32>>,
) -> handover_status {
    guard(|| {
        let descriptor = require("descriptor", descriptor)?;
        let number = with_eventfd(receiver, |it| it.as_fd().as_raw_fd())?;
        descriptor.write(number);
        Ok(())
    })
}

/// Declares that the thread will now sleep on the descriptor.
///
/// Errors: `HANDOVER_BUSY`, which sets no last error, if a notification is pending: do not sleep.
/// `HANDOVER_INVALID_ARGUMENT` for a futex.
/// Threads: one at a time. Blocking: never.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_notify_prepare(
    receiver: Option<&handover_notify_receiver>,
) -> handover_status {
    guard(|| match with_eventfd(receiver, adaptive_fd::Receiver::prepare_park)? {
        true => Ok(()),
        false => Err(HANDOVER_BUSY.into()),
    })
}

/// Ends a sleep on the descriptor, and consumes all pending notifications.
///
/// Errors: `HANDOVER_EMPTY`, which sets no last error, if none is pending;
/// `HANDOVER_INVALID_ARGUMENT` for a futex. Threads: one at a time. Blocking: never.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_notify_finish(
    receiver: Option<&handover_notify_receiver>,
) -> handover_status {
    guard(|| match with_eventfd(receiver, adaptive_fd::Receiver::cancel_park)? {
        Some(_) => Ok(()),
        None => Err(HANDOVER_EMPTY.into()),
    })
}

/// Destroys a sender; null is ignored. The receiver can still be used, and is not notified, unless
/// the kind is `HANDOVER_NOTIFY_CLOSING`.
///
/// Threads: any, while no other thread uses this sender. Blocking: never. Ownership: the handle is
/// invalid afterwards.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_notify_sender_destroy(sender: Option<Box<handover_notify_sender>>) {
    drop(sender);
}

/// Destroys a receiver. The sender can still be used, without an effect.
///
/// Errors: `HANDOVER_WRONG_THREAD` if another thread waits; then nothing is destroyed.
/// Threads: any. Blocking: never. Ownership: the handle is invalid afterwards.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn handover_notify_receiver_destroy(
    receiver: *mut handover_notify_receiver,
) -> handover_status {
    // SAFETY: the header demands a handle that was not destroyed.
    guard(|| unsafe { take_back("receiver", receiver, |it| &it.receiver) }.map(drop))
}
