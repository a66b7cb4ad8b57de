//! What a site calls while it is on.

use crate::lane::{FORM_LEAVE, Wrote};
use crate::raw::current;
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
    let code = u64::from(meta.code());
    if current::with(|writer| writer.write_1(code, now, value)).is_none_or(is_closed)
        && session::attach()
    {
        // Without a writer again only when the recording has just ended.
        let _ = current::with(|writer| writer.write_1(u64::from(meta.code()), now, value));
    }
}

/// An event with two values.
#[cold]
#[inline(never)]
pub fn record_2(meta: &'static Meta, first: u64, second: u64) {
    let now = clock::ticks();
    let code = u64::from(meta.code());
    let values = [first, second];
    if current::with(|writer| writer.write_2(code, now, values)).is_none_or(is_closed)
        && session::attach()
    {
        // As above.
        let _ = current::with(|writer| writer.write_2(u64::from(meta.code()), now, values));
    }
}

#[inline(always)]
fn plain(meta: &'static Meta, form: u64) {
    let now = clock::ticks();
    let code = u64::from(meta.code()) | form;
    if current::with(|writer| writer.write(code, now)).is_none_or(is_closed) {
        plain_slowly(meta, form, now);
    }
}

#[inline(never)]
fn plain_slowly(meta: &'static Meta, form: u64, now: u64) {
    if session::attach() {
        // Its number is known now at the latest. Without a writer again only when the recording has
        // just ended.
        let code = u64::from(meta.code()) | form;
        let _ = current::with(|writer| writer.write(code, now));
    }
}

#[inline(always)]
fn is_closed(wrote: Wrote) -> bool {
    wrote == Wrote::Closed
}
