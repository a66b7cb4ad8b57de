//! Functions that a site calls: in the flag form to ask for its state, and while it is on.

use crate::lane::{FORM_LEAVE, WriteResult, Writer};
use crate::raw::current::{self, ThreadPhase};
use crate::raw::mapping::LaneMemory;
use crate::site::{STATE_OFF, STATE_ON, SiteData};
use crate::{recording, registry};
use handover_base::clock;
use handover_base::sync::shared::{Ordering, fence};

/// Returns `true` if a site that is switched by a flag is on. At the first call, registers the
/// site.
#[doc(hidden)]
#[inline(always)]
#[must_use]
pub fn is_on(meta: &'static SiteData) -> bool {
    match meta.state() {
        STATE_OFF => false,
        STATE_ON => {
            // Acquire: pairs with the Release in SiteData::set_state(): the site's number is
            // visible.
            fence(Ordering::Acquire);
            true
        }
        _ => register(meta),
    }
}

/// Registers a site; returns `true` if it is on.
#[cold]
#[inline(never)]
fn register(meta: &'static SiteData) -> bool {
    if current::thread_phase() == ThreadPhase::InProbe {
        return false; // this thread may hold the registry: the site registers the next time
    }
    let is_on = registry::register(meta);
    recording::write_new_sites();
    is_on
}

/// Records an event of a site, without values.
#[cold]
#[inline(never)]
pub fn record(meta: &'static SiteData) {
    record_event(|writer, now| writer.write(u64::from(meta.code()), now));
}

/// Records the end of a site's span.
#[cold]
#[inline(never)]
pub fn record_leave(meta: &'static SiteData) {
    record_event(|writer, now| writer.write(u64::from(meta.code()) | FORM_LEAVE, now));
}

/// Records an event of a site with one value.
#[cold]
#[inline(never)]
pub fn record_1(meta: &'static SiteData, value: u64) {
    record_event(|writer, now| writer.write_1(u64::from(meta.code()), now, value));
}

/// Records an event of a site with two values.
#[cold]
#[inline(never)]
pub fn record_2(meta: &'static SiteData, first: u64, second: u64) {
    record_event(|writer, now| writer.write_2(u64::from(meta.code()), now, [first, second]));
}

/// Records an event by calling `write` with the thread's writer and the time in ticks.
#[inline(always)]
fn record_event(write: impl Fn(&Writer<LaneMemory>, u64) -> WriteResult) {
    // If the thread has a writer, the clock is calibrated. If not, this thread may be calibrating
    // it just now, and its allocations must not read the clock.
    let wrote = current::with_writer(|writer| {
        let now = clock::ticks();
        (write(writer, now), now)
    });
    match wrote {
        Some((WriteResult::Recorded | WriteResult::Lost, _)) => {}
        Some((WriteResult::Full, now)) => wait_and_record(|writer| write(writer, now)),
        Some((WriteResult::Closed, _)) | None => attach_and_record(write),
    }
}

/// Waits for space in the ring and records the event. On a time-out, counts the event as lost.
#[cold]
#[inline(never)]
fn wait_and_record(write: impl Fn(&Writer<LaneMemory>) -> WriteResult) {
    let has_space = recording::wait_for_space();
    let refused = !has_space || current::with_writer(&write) == Some(WriteResult::Full);
    if refused {
        let _ = current::with_writer(Writer::count_lost_after_wait);
    }
}

/// Creates a writer for the thread if necessary, and records the event. It is necessary if the
/// thread has none for the current recording. The site has its number by the time that
/// recording::attach_thread() returns.
#[cold]
#[inline(never)]
fn attach_and_record(write: impl Fn(&Writer<LaneMemory>, u64) -> WriteResult) {
    if let Some(now) = recording::attach_thread() {
        match current::with_writer(|writer| write(writer, now)) {
            Some(WriteResult::Recorded | WriteResult::Lost) => {}
            Some(WriteResult::Full) => drop(current::with_writer(Writer::count_lost_after_wait)),
            // The recording has just ended.
            Some(WriteResult::Closed) | None => recording::count_lost(),
        }
    }
}
