//! The stages of a call, by name: where the probe sites stand.
//!
//! The value of each is the call's number, the same on both sides. Without the feature `probes` and under
//! Miri each is nothing; a site that is off is one instruction.

/// A probe site, where there are any. The value is looked at only while it is on.
macro_rules! site {
    ($name:literal, $call:expr) => {
        #[cfg(all(feature = "probes", not(miri)))]
        handover_probe::probe!($name, $call);
        #[cfg(not(all(feature = "probes", not(miri))))]
        let _ = || $call;
    };
}

/// The call has its number, and its arguments are as they will be sent.
#[inline(always)]
pub(crate) fn forward(call: u64) {
    site!("rpc.forward", call);
}

/// The request is in memory that both share, with the kernel, or kept until there is room.
#[inline(always)]
pub(crate) fn sent(call: u64) {
    site!("rpc.sent", call);
}

/// The other side has read a request.
#[inline(always)]
pub(crate) fn received(call: u64) {
    site!("rpc.received", call);
}

/// Its handler was found, and is about to run, or was given to the pool.
#[inline(always)]
pub(crate) fn dispatched(call: u64) {
    site!("rpc.dispatched", call);
}

/// The answer is where the request was when it was sent.
#[inline(always)]
pub(crate) fn responded(call: u64) {
    site!("rpc.responded", call);
}

/// The caller has the answer.
#[inline(always)]
pub(crate) fn completed(call: u64) {
    site!("rpc.completed", call);
}
