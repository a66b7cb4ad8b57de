//! Timer wheels, which read no clock: time is an argument.

use super::handle::{UserPointer, guard, put, require};
use crate::status::{Fault, handover_status};
use handover_timer::{Config, ConfigError, ExpiredTimer, TimerId, Wheel, WheelFull};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::num::NonZeroU64;

use handover_status::*;

/// Set of timers, each with a deadline and a pointer of the program; opaque.
pub struct handover_timer_wheel {
    wheel: Wheel<UserPointer>,
}

/// Expired timer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct handover_timer_expired {
    /// Number of the timer. That of a one-shot timer is no longer valid.
    pub timer: u64,
    /// Deadline that has passed; the earliest, if several deadlines of a periodic timer have
    /// passed.
    pub deadline_ns: u64,
    /// Number of later deadlines of a periodic timer that have also passed. No other call reports
    /// them.
    pub missed_count: u64,
    /// Pointer that was passed when the timer was started.
    pub payload: *mut c_void,
}

fn not_running_fault(timer: u64) -> Fault {
    HANDOVER_NOT_FOUND.because(format_args!("timer={timer:#x}: not running"))
}

/// Converts the number of a timer to its id; returns an error for an invalid number.
fn timer_id(timer: u64) -> Result<TimerId, Fault> {
    TimerId::from_bits(timer).ok_or_else(|| not_running_fault(timer))
}

fn timers_fault(_: WheelFull<UserPointer>) -> Fault {
    HANDOVER_FULL.because("timers_max timers are running: cancel or expire some")
}

/// Creates a wheel for at most `timers_max` timers; `now_ns` is the current time on any clock that
/// does not go back.
///
/// Errors: `HANDOVER_INVALID_ARGUMENT` if `timers_max` is outside its range. Threads: any; a wheel
/// may move between threads, and one at a time may use it. Blocking: never. Ownership: the caller
/// destroys the wheel.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_timer_wheel_create(
    timers_max: u32,
    now_ns: u64,
    wheel: Option<&mut MaybeUninit<Option<Box<handover_timer_wheel>>>>,
) -> handover_status {
    guard(|| {
        let place = require("wheel", wheel)?;
        let config = Config::default().timers_max(timers_max);
        let wheel = Wheel::new(config, now_ns)
            .map_err(|error: ConfigError| HANDOVER_INVALID_ARGUMENT.because(error))?;
        place.write(Some(Box::new(handover_timer_wheel { wheel })));
        Ok(())
    })
}

/// Starts a timer that expires once, at `deadline_ns`; its number goes to `timer`, unless that is
/// null.
///
/// Errors: `HANDOVER_FULL` if `timers_max` timers are running. Threads: one at a time. Blocking:
/// never. Ownership: the wheel keeps the payload until the timer expires or is cancelled.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_timer_start(
    wheel: Option<&mut handover_timer_wheel>,
    deadline_ns: u64,
    payload: *mut c_void,
    timer: Option<&mut MaybeUninit<u64>>,
) -> handover_status {
    guard(|| {
        let wheel = &mut require("wheel", wheel)?.wheel;
        let id = wheel.start(deadline_ns, UserPointer(payload)).map_err(timers_fault)?;
        put(timer, id.to_bits());
        Ok(())
    })
}

/// Starts a timer that expires at `first_ns` and then every `period_ns`; its number goes to
/// `timer`, unless that is null.
///
/// Errors: `HANDOVER_INVALID_ARGUMENT` for a period of 0; `HANDOVER_FULL` if `timers_max` timers
/// are running. Threads: one at a time. Blocking: never. Ownership: the wheel keeps the payload
/// until the timer is cancelled.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_timer_start_periodic(
    wheel: Option<&mut handover_timer_wheel>,
    first_ns: u64,
    period_ns: u64,
    payload: *mut c_void,
    timer: Option<&mut MaybeUninit<u64>>,
) -> handover_status {
    guard(|| {
        let wheel = &mut require("wheel", wheel)?.wheel;
        let Some(period_ns) = NonZeroU64::new(period_ns) else {
            return Err(HANDOVER_INVALID_ARGUMENT.because("period_ns=0: must be at least 1"));
        };
        let payload = UserPointer(payload);
        let id = wheel.start_periodic(first_ns, period_ns, payload).map_err(timers_fault)?;
        put(timer, id.to_bits());
        Ok(())
    })
}

/// Cancels a timer; its payload goes to `payload`, unless that is null.
///
/// Errors: `HANDOVER_NOT_FOUND` if the timer is not running.
/// Threads: one at a time. Blocking: never. Ownership: the wheel no longer keeps the payload.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_timer_cancel(
    wheel: Option<&mut handover_timer_wheel>,
    timer: u64,
    payload: Option<&mut MaybeUninit<*mut c_void>>,
) -> handover_status {
    guard(|| {
        let wheel = &mut require("wheel", wheel)?.wheel;
        let cancelled = wheel.cancel(timer_id(timer)?).ok_or_else(|| not_running_fault(timer))?;
        put(payload, cancelled.get());
        Ok(())
    })
}

/// Changes the deadline of a running timer. A periodic timer continues from the new deadline, with
/// its period.
///
/// Errors: `HANDOVER_NOT_FOUND` if the timer is not running.
/// Threads: one at a time. Blocking: never.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_timer_reschedule(
    wheel: Option<&mut handover_timer_wheel>,
    timer: u64,
    deadline_ns: u64,
) -> handover_status {
    guard(|| {
        let wheel = &mut require("wheel", wheel)?.wheel;
        match wheel.reschedule(timer_id(timer)?, deadline_ns) {
            true => Ok(()),
            false => Err(not_running_fault(timer)),
        }
    })
}

/// Ends or advances the earliest timer that is due at `now_ns`, and describes it in `expired`. Call
/// it until it returns `HANDOVER_EMPTY`.
///
/// Errors: `HANDOVER_EMPTY`, which sets no last error, if no timer is due. Threads: one at a time.
/// Blocking: never. Ownership: the wheel no longer keeps the payload of a one-shot timer; it keeps
/// that of a periodic one.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_timer_expire(
    wheel: Option<&mut handover_timer_wheel>,
    now_ns: u64,
    expired: Option<&mut MaybeUninit<handover_timer_expired>>,
) -> handover_status {
    guard(|| {
        let wheel = &mut require("wheel", wheel)?.wheel;
        let place = require("expired", expired)?;
        let Some(ExpiredTimer { id, deadline_ns, missed_count, payload, .. }) =
            wheel.pop_due(now_ns)
        else {
            return Err(HANDOVER_EMPTY.into());
        };
        let (timer, payload) = (id.to_bits(), payload.get());
        place.write(handover_timer_expired { timer, deadline_ns, missed_count, payload });
        Ok(())
    })
}

/// Stores the earliest deadline of all running timers.
///
/// Errors: `HANDOVER_EMPTY`, which sets no last error, if no timer is running.
/// Threads: one at a time. Blocking: never.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_timer_next_deadline(
    wheel: Option<&mut handover_timer_wheel>,
    deadline_ns: Option<&mut MaybeUninit<u64>>,
) -> handover_status {
    guard(|| {
        let wheel = &mut require("wheel", wheel)?.wheel;
        let place = require("deadline_ns", deadline_ns)?;
        place.write(wheel.next_deadline_ns().ok_or(HANDOVER_EMPTY)?);
        Ok(())
    })
}

/// Stores the number of running timers.
///
/// Threads: one at a time. Blocking: never.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_timer_len(
    wheel: Option<&handover_timer_wheel>,
    len: Option<&mut MaybeUninit<usize>>,
) -> handover_status {
    guard(|| {
        let wheel = require("wheel", wheel)?;
        put(Some(require("len", len)?), wheel.wheel.len());
        Ok(())
    })
}

/// Destroys a wheel; null is ignored. Payloads of running timers are not returned.
///
/// Threads: any, while no other thread uses the wheel. Blocking: never. Ownership: the handle is
/// invalid afterwards.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_timer_wheel_destroy(wheel: Option<Box<handover_timer_wheel>>) {
    drop(wheel);
}
