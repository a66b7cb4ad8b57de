//! What a site calls while it is on.

use crate::lane::{FORM_LEAVE, Writer, Wrote};
use crate::raw::current;
use crate::raw::mapping::Memory;
use crate::session;
use crate::site::Meta;
use handover_base::clock;

/// An event without values.
#[cold]
#[inline(never)]
pub fn record(meta: &'static Meta) {
    event(|writer, now| writer.write(u64::from(meta.code()), now));
}

/// The end of a span.
#[cold]
#[inline(never)]
pub fn record_leave(meta: &'static Meta) {
    event(|writer, now| writer.write(u64::from(meta.code()) | FORM_LEAVE, now));
}

/// An event with a value.
#[cold]
#[inline(never)]
pub fn record_1(meta: &'static Meta, value: u64) {
    event(|writer, now| writer.write_1(u64::from(meta.code()), now, value));
}

/// An event with two values.
#[cold]
#[inline(never)]
pub fn record_2(meta: &'static Meta, first: u64, second: u64) {
    event(|writer, now| writer.write_2(u64::from(meta.code()), now, [first, second]));
}

#[inline(always)]
fn event(write: impl Fn(&Writer<Memory>, u64) -> Wrote) {
    // Where there is a writer, the clock is calibrated. Elsewhere this thread may be calibrating it: its
    // allocations must not ask what the time is.
    let wrote = current::with(|writer| {
        let now = clock::ticks();
        (write(writer, now), now)
    });
    match wrote {
        Some((Wrote::Recorded | Wrote::Lost, _)) => {}
        Some((Wrote::Full, now)) => wait(|writer| write(writer, now)),
        Some((Wrote::Closed, _)) | None => attach(write),
    }
}

/// Records what has no room, once there is some.
#[cold]
#[inline(never)]
fn wait(write: impl Fn(&Writer<Memory>) -> Wrote) {
    let has_room = session::wait_for_room();
    let refused = !has_room || current::with(&write) == Some(Wrote::Full);
    if refused {
        let _ = current::with(Writer::give_up);
    }
}

/// Records what has no writer, or one of a recording that is finished. The site's number is known behind
/// attach() at the latest.
#[cold]
#[inline(never)]
fn attach(write: impl Fn(&Writer<Memory>, u64) -> Wrote) {
    if let Some(now) = session::attach() {
        match current::with(|writer| write(writer, now)) {
            Some(Wrote::Recorded | Wrote::Lost) => {}
            Some(Wrote::Full) => drop(current::with(Writer::give_up)),
            // The recording has just ended.
            Some(Wrote::Closed) | None => session::count_lost(),
        }
    }
}
