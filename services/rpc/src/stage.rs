//! Probe sites at the stages of a call.
//!
//! The value of each is the call's number, the same at both ends. Without the feature `probes` and
//! under Miri they compile to nothing; a site that is off costs one instruction.

/// Defines a function for each stage, with its probe site.
macro_rules! stages {
    ($($(#[$doc:meta])* $record:ident: $site:literal;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub(crate) fn $record(call: u64) {
            handover_base::stage::stage!("probes", $site, call);
        }
    )*};
}

stages! {
    /// Records that a call has its number and that its arguments are encoded.
    record_forwarded: "rpc.forward";
    /// Records that a request was written to shared memory, passed to the kernel, or queued.
    record_sent: "rpc.sent";
    /// Records that the peer has read a request.
    record_received: "rpc.received";
    /// Records that the handler was found, and is about to run or was passed to the pool.
    record_dispatched: "rpc.dispatched";
    /// Records that an answer was written to shared memory, passed to the kernel, or queued.
    record_responded: "rpc.responded";
    /// Records that the caller has received the answer.
    record_completed: "rpc.completed";
}
