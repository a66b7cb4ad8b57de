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
    plain(meta, 0);
}

/// The end of a span.
#[cold]
#[inline(never)]
pub fn record_leave(meta: &'static Meta) {
    plain(meta, FORM_LEAVE);
}

/// An event with a value.
#[cold]
#[inline(never)]
pub fn record_1(meta: &'static Meta, value: u64) {
    let now = clock::ticks();
    let write = |writer: &Writer<Memory>| writer.write_1(u64::from(meta.code()), now, value);
    let wrote = current::with(write);
    if is_refused(wrote) {
        again(wrote, write);
    }
}

/// An event with two values.
#[cold]
#[inline(never)]
pub fn record_2(meta: &'static Meta, first: u64, second: u64) {
    let now = clock::ticks();
    let values = [first, second];
    let write = |writer: &Writer<Memory>| writer.write_2(u64::from(meta.code()), now, values);
    let wrote = current::with(write);
    if is_refused(wrote) {
        again(wrote, write);
    }
}

#[inline(always)]
fn plain(meta: &'static Meta, form: u64) {
    let now = clock::ticks();
    let code = u64::from(meta.code()) | form;
    let wrote = current::with(|writer| writer.write(code, now));
    if is_refused(wrote) {
        plain_again(meta, form, now, wrote);
    }
}

#[inline(never)]
fn plain_again(meta: &'static Meta, form: u64, now: u64, wrote: Option<Wrote>) {
    // Its number is known now at the latest.
    again(wrote, |writer| writer.write(u64::from(meta.code()) | form, now));
}

#[inline(always)]
fn is_refused(wrote: Option<Wrote>) -> bool {
    matches!(wrote, None | Some(Wrote::Closed | Wrote::Full))
}

/// Records what has no writer, one of a recording that is finished, or no room.
fn again(wrote: Option<Wrote>, write: impl Fn(&Writer<Memory>) -> Wrote) {
    if wrote == Some(Wrote::Full) {
        let has_room = session::wait_for_room();
        let refused = !has_room || current::with(&write) == Some(Wrote::Full);
        if refused {
            let _ = current::with(Writer::give_up);
        }
    } else if session::attach() {
        // Without a writer again only when the recording has just ended.
        let _ = current::with(write);
    }
}
