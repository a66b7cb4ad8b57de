//! Probe sites at the stages of a call.
//!
//! The value of each is the call's number, the same at both ends. Without the feature `probes` and
//! under Miri they compile to nothing; a site that is off costs one instruction.

/// Defines a probe site if probes are compiled in. `$call` is evaluated only while the probe is on.
macro_rules! site {
    ($name:literal, $call:expr) => {
        #[cfg(all(feature = "probes", not(miri)))]
        handover_probe::probe!($name, $call);
        #[cfg(not(all(feature = "probes", not(miri))))]
        let _ = || $call;
    };
}

/// Records that a call has its number and that its arguments are encoded.
#[inline(always)]
pub(crate) fn record_forwarded(call: u64) {
    site!("rpc.forward", call);
}

/// Records that a request was written to shared memory, passed to the kernel, or queued.
#[inline(always)]
pub(crate) fn record_sent(call: u64) {
    site!("rpc.sent", call);
}

/// Records that the peer has read a request.
#[inline(always)]
pub(crate) fn record_received(call: u64) {
    site!("rpc.received", call);
}

/// Records that the handler was found, and is about to run or was passed to the pool.
#[inline(always)]
pub(crate) fn record_dispatched(call: u64) {
    site!("rpc.dispatched", call);
}

/// Records that an answer was written to shared memory, passed to the kernel, or queued.
#[inline(always)]
pub(crate) fn record_responded(call: u64) {
    site!("rpc.responded", call);
}

/// Records that the caller has received the answer.
#[inline(always)]
pub(crate) fn record_completed(call: u64) {
    site!("rpc.completed", call);
}
