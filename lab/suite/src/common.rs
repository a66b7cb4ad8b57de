//! Parts that workloads share: counts of items sent and received, and values that one participant
//! takes.

use handover_base::clock;
use handover_base::sync::shared::{AtomicU64, Ordering};
use handover_harness::{Fault, Samples};
use handover_record::args;
use std::sync::{Mutex, PoisonError};
use zerocopy::FromZeros;

args! {
    /// Arguments of the benchmarks of a server with several clients.
    pub struct ClientsArgs {
        /// Clients, each of which waits for the answer before its next request.
        clients_count: u32 = 10 (smoke 3, range 1..=1000)
    }
}

/// Counters of the items that the participants have sent and received. They are checked at the end
/// of a round.
#[derive(Debug, Default, FromZeros)]
#[repr(C)]
pub(crate) struct Tally {
    sent: AtomicU64,
    received: AtomicU64,
    /// Number of items with a wrong value or out of order.
    wrong: AtomicU64,
}

impl Tally {
    pub(crate) fn add_sent(&self, count: u64) {
        // Relaxed, here and below: read when the participants have ended, which orders the
        // accesses.
        self.sent.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn add_received(&self, count: u64) {
        // Relaxed: as in add_sent().
        self.received.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn add_wrong(&self, count: u64) {
        // Relaxed: as in add_sent().
        self.wrong.fetch_add(count, Ordering::Relaxed);
    }

    /// Fails if a received item was wrong or out of order; lost items are allowed.
    pub(crate) fn verify_order(&self) -> Result<(), Fault> {
        // Relaxed: all participants have ended.
        let wrong = self.wrong.load(Ordering::Relaxed);
        ensure(wrong == 0, || format!("{wrong} received items were wrong or out of order"))
    }

    /// Fails unless items were sent, and all of them were received unchanged and in order.
    pub(crate) fn verify(&self) -> Result<(), Fault> {
        // Relaxed: all participants have ended.
        let [sent, received, wrong] =
            [&self.sent, &self.received, &self.wrong].map(|it| it.load(Ordering::Relaxed));
        ensure(sent > 0 && sent == received && wrong == 0, || {
            format!("{sent} items were sent, {received} received, {wrong} of them wrong")
        })
    }
}

/// Cell whose value one participant takes at the start of a round. Taking it twice is an error.
pub(crate) struct TakeCell<T>(Mutex<Option<T>>);

impl<T> TakeCell<T> {
    pub(crate) fn new(value: T) -> TakeCell<T> {
        TakeCell(Mutex::new(Some(value)))
    }

    pub(crate) fn take(&self) -> Result<T, Fault> {
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        taken.ok_or_else(|| Fault::new("a participant ran twice in one round"))
    }
}

/// Calls `run`; returns its duration in clock ticks.
#[inline]
pub(crate) fn time_ticks(run: impl FnOnce()) -> u64 {
    let began = clock::ticks();
    run();
    clock::ticks().saturating_sub(began)
}

/// Awaits `run`; returns its duration in clock ticks, waits included.
#[cfg(feature = "peers")]
#[inline]
pub(crate) async fn time_ticks_async(run: impl Future<Output = ()>) -> u64 {
    let began = clock::ticks();
    run.await;
    clock::ticks().saturating_sub(began)
}

/// Number of samples whose requests a server serves before it is timed. In their first waits,
/// clients learn how long to spin: with 1000 clients, the second sample of 16 rounds took 0.18 to
/// 2.2 µs a request, 2026-11.
const WARM_UP_SAMPLES: u64 = 4;

/// Times a server in batches; `serve(n)` must serve `n` requests, a multiple of `clients_count`.
/// Each sample includes several requests of every client, so that no sample shows only a fast
/// client.
#[inline]
pub(crate) fn time_server(out: &mut Samples, clients_count: usize, mut serve: impl FnMut(u64)) {
    let clients_count = clients_count.max(1) as u64;
    let requests_count = clients_count * 64_u64.div_ceil(clients_count).max(4);
    // Clients that have just begun get into a steady state first. Resource usage includes this.
    let mut served_count = WARM_UP_SAMPLES * requests_count;
    serve(served_count);
    // Very many clients take longer to start than a round.
    out.restart_round_time();
    loop {
        out.record_batch(0, time_ticks(|| serve(requests_count)), requests_count);
        served_count += requests_count;
        if !out.is_running() {
            out.set_operations_count(served_count);
            return;
        }
    }
}

/// Fails with the message that `why` returns, unless `is_right`.
pub(crate) fn ensure<M: Into<String>>(
    is_right: bool,
    why: impl FnOnce() -> M,
) -> Result<(), Fault> {
    if is_right { Ok(()) } else { Err(Fault::new(why())) }
}

/// Fails if `counts` differ from `expected`; `names` describes the counts in the error.
pub(crate) fn check_counts<const N: usize>(
    names: &str,
    counts: [u64; N],
    expected: [u64; N],
) -> Result<(), Fault> {
    ensure(counts == expected, || format!("{names}: found {counts:?}, expected {expected:?}"))
}

pub(crate) fn check_bytes_equal(received: &[u8], sent: &[u8]) -> Result<(), Fault> {
    ensure(received == sent, || "the received bytes differ from the bytes sent")
}

pub(crate) fn bytes_to_usize(bytes: handover_record::Bytes) -> usize {
    usize::try_from(bytes.0).unwrap_or(usize::MAX)
}
