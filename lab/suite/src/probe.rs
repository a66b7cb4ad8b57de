//! Probes: cost of a traceable function while it is not traced, while others are, and while it is;
//! and cost of switching probes on and off.
//!
//! All but the switching is timed in the same way: consecutive calls of a function that is not
//! inlined and adds one to the previous result. `UntracedFunction<false>` is that function alone,
//! `UntracedFunction<true>` reads the clock at its begin and end, the least that measures its
//! duration. The cost of a probe is a figure less that of the bare call.

/// Repeats statements eight times.
macro_rules! eight_times { ($($body:tt)*) => {
    $($body)* $($body)* $($body)* $($body)* $($body)* $($body)* $($body)* $($body)*
} }

mod decoded;
#[cfg(feature = "fastrace")]
mod fast;
mod ours;
pub mod rows;
mod streamed;
mod switch;
#[cfg(feature = "peers")]
mod traced;

use crate::common::ensure;
use crate::raw::usdt::Usdt;
use handover_base::clock;
use handover_harness::{Bench, Fault, Samples, ScratchFolder, Setup, Workload, benches};
use handover_record::{Part, Spec, args};
use std::hint::black_box;
use std::marker::PhantomData;
use std::path::Path;

args! {
    /// Arguments of the benchmarks of disabled trace sites.
    pub struct CallsArgs {
        /// Calls in each timed batch.
        calls_count: u32 = 10_000 (smoke 100, range 1..=1_000_000)
    }
}

/// Functions that contain trace sites of one library. Each function adds one to `x`.
pub(crate) trait Sites {
    /// Returns `x + 1`, with one disabled trace site in the function.
    fn site(x: u64) -> u64;
    /// Returns `x + 1`, with eight disabled trace sites in the function.
    fn eight_sites(x: u64) -> u64;
    /// Returns `x + 1`, with a disabled span around the function.
    fn span(x: u64) -> u64;
}

/// A tracing library that can record some sites while others are disabled.
trait Tracer: Sites {
    /// Returns `x + 1`, within the span that [`Tracer::record_calls`] records.
    fn recorded_span(x: u64) -> u64;
    /// Calls `f` while only the span of [`Tracer::recorded_span`] is recorded; returns the number
    /// of events recorded.
    fn record_calls(f: impl FnOnce()) -> Result<u64, Fault>;
}

/// Converts an error to a fault whose text includes the texts of the error's sources.
fn fault_with_sources(error: impl std::error::Error) -> Fault {
    let mut text = error.to_string();
    let mut behind = error.source();
    while let Some(error) = behind {
        text += &format!(": {error}");
        behind = error.source();
    }
    Fault::new(text)
}

/// Creates a folder for the files of a round. It is in memory if possible, so that no disk is
/// measured. The next process that calls this removes folders of killed processes.
fn new_scratch_folder() -> Result<ScratchFolder, Fault> {
    let memory = Path::new("/dev/shm");
    let within = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
    Ok(ScratchFolder::new("handover-probe-", &within)?)
}

/// Calls `function` `count` times, first with 0, then with its previous result; returns the last
/// result.
#[inline(always)]
fn call_repeatedly(count: u64, function: impl Fn(u64) -> u64) -> u64 {
    let mut x = 0;
    for _ in 0..count {
        x = function(x);
    }
    black_box(x)
}

/// Times [`call_repeatedly`]; returns the duration in clock ticks.
#[inline(always)]
fn time_calls(count: u64, function: impl Fn(u64) -> u64) -> u64 {
    let began = clock::ticks();
    call_repeatedly(count, function);
    clock::ticks().saturating_sub(began)
}

/// Returns `x + 1`, in a function without a trace site.
#[inline(never)]
fn add_one(x: u64) -> u64 {
    x.wrapping_add(1)
}

/// Returns `x + 1`, and reads the clock before and after the addition.
#[inline(never)]
fn add_one_between_readings(x: u64) -> u64 {
    black_box(clock::ticks());
    let y = x.wrapping_add(1);
    black_box(clock::ticks());
    y
}

/// Floor: a function without trace sites; it reads the clock at its start and end if `STAMPS`.
struct UntracedFunction<const STAMPS: bool>;

impl<const STAMPS: bool> Workload for UntracedFunction<STAMPS> {
    type Args = ();
    const SPEC: Spec = match STAMPS {
        true => Spec::new(
            "probe/stamps",
            "the same call, with the clock read at the function's begin and end, and nothing recorded",
        )
        .floor("probe/bare"),
        false => Spec::new("probe/bare", "call of a function that adds one, without probes")
            .floor("floor/empty"),
    }
    .batched();

    fn setup((): &(), _: &mut Setup) -> Result<Self, Fault> {
        Ok(UntracedFunction)
    }

    fn sample(&mut self, out: &mut Samples) {
        out.time_batches(|n| {
            match STAMPS {
                true => call_repeatedly(n, add_one_between_readings),
                false => call_repeatedly(n, add_one),
            };
        });
    }
}

/// Index of the part with one trace site in the function.
const SITE_PART: usize = 0;
/// Index of the part with eight trace sites in the function.
const EIGHT_PART: usize = 1;
/// Index of the part with a span over the whole function.
const SPAN_PART: usize = 2;

/// Parts of the benchmarks `probe/off` and `probe/filtered`.
const DISABLED_SITES_PARTS: &[Part] = &[
    Part::new("site", "one probe site in the function"),
    Part::new("eight", "eight probe sites in the function"),
    Part::new("span", "a span over the whole function"),
];

/// Times the functions of `S`, `count` calls in each batch, until the round ends.
fn time_disabled_sites<S: Sites>(count: u64, out: &mut Samples) {
    while out.is_running() {
        out.record_batch(SITE_PART, time_calls(count, S::site), count);
        out.record_batch(EIGHT_PART, time_calls(count, S::eight_sites), count);
        out.record_batch(SPAN_PART, time_calls(count, S::span), count);
    }
}

/// Workload: calls of functions with disabled trace sites, while nothing is recorded.
struct DisabledSites<S> {
    calls_count: u64,
    sites: PhantomData<S>,
}

impl<S: Sites> Workload for DisabledSites<S> {
    type Args = CallsArgs;
    const SPEC: Spec = Spec::new("probe/off", "call of a function whose probes are off")
        .floor("probe/bare")
        .parts(DISABLED_SITES_PARTS)
        .batched();

    fn setup(args: &CallsArgs, _: &mut Setup) -> Result<Self, Fault> {
        Ok(DisabledSites { calls_count: args.calls_count.into(), sites: PhantomData })
    }

    fn self_test(&mut self) -> Result<(), Fault> {
        let sum = S::span(S::eight_sites(S::site(0)));
        ensure(sum == 3, || format!("3 calls that add 1 each returned {sum}, expected 3"))
    }

    fn sample(&mut self, out: &mut Samples) {
        time_disabled_sites::<S>(self.calls_count, out);
    }
}

/// Workload: calls of functions with disabled trace sites, while other sites are recorded.
struct FilteredSites<T> {
    calls_count: u64,
    tracer: PhantomData<T>,
}

impl<T: Tracer> Workload for FilteredSites<T> {
    type Args = CallsArgs;
    const SPEC: Spec = Spec::new(
        "probe/filtered",
        "call of a function whose probes are excluded by the filter, while others record",
    )
    .floor("probe/bare")
    .parts(DISABLED_SITES_PARTS)
    .batched();

    fn setup(args: &CallsArgs, _: &mut Setup) -> Result<Self, Fault> {
        Ok(FilteredSites { calls_count: args.calls_count.into(), tracer: PhantomData })
    }

    /// Fails unless only the enabled span is recorded.
    fn self_test(&mut self) -> Result<(), Fault> {
        let mut sum = 0;
        let events_count =
            T::record_calls(|| sum = T::span(T::eight_sites(T::site(T::recorded_span(0)))))?;
        ensure((sum, events_count) == (4, 2), || {
            format!(
                "one span recorded {events_count} events, expected 2; 4 calls that add 1 each returned {sum}"
            )
        })
    }

    fn sample(&mut self, out: &mut Samples) {
        let recorded = T::record_calls(|| time_disabled_sites::<T>(self.calls_count, out));
        recorded.unwrap_or_else(|fault| panic!("{fault}"));
    }
}

/// Workload: calls of a function whose span is recorded in memory. New events overwrite the oldest.
struct RecordedSpan<T>(PhantomData<T>);

impl<T: Tracer> Workload for RecordedSpan<T> {
    type Args = ();
    const SPEC: Spec = Spec::new(
        "probe/recorded",
        "call of a function whose begin and end are recorded in a circular buffer",
    )
    .floor("probe/stamps")
    .ladder()
    .batched();

    fn setup((): &(), _: &mut Setup) -> Result<Self, Fault> {
        Ok(RecordedSpan(PhantomData))
    }

    fn self_test(&mut self) -> Result<(), Fault> {
        let thousand = || {
            call_repeatedly(1000, T::recorded_span);
        };
        let events_count = T::record_calls(thousand)?;
        ensure(events_count == 2000, || {
            format!("1000 spans recorded {events_count} events, expected 2000")
        })
    }

    fn sample(&mut self, out: &mut Samples) {
        let recorded = T::record_calls(|| {
            out.time_batches(|n| {
                call_repeatedly(n, T::recorded_span);
            });
        });
        recorded.unwrap_or_else(|fault| panic!("{fault}"));
    }
}

/// All benchmarks of probes.
pub const BENCHES: &[Bench] = benches! {
    one floor "rust": UntracedFunction<false>;
    one floor "hardware": UntracedFunction<true>;
    one ours "handover": DisabledSites<ours::Probes>;
    one floor "usdt": DisabledSites<Usdt>;
    one peer "tracing": DisabledSites<traced::Tracing>, if feature = "peers";
    one peer "fastrace": DisabledSites<fast::Fastrace>, if feature = "fastrace";
    one ours "handover": FilteredSites<ours::Probes>;
    one peer "tracing": FilteredSites<traced::Tracing>, if feature = "peers";
    one ours "handover": RecordedSpan<ours::Probes>;
    one peer "tracing": RecordedSpan<traced::Tracing>, if feature = "peers";
    one peer "tracing-registry": RecordedSpan<traced::Tracing<true>>, if feature = "peers";
    one peer "fastrace": fast::SpanCollection, if feature = "fastrace";
    one ours "handover": streamed::StreamRecording;
    one ours "handover": decoded::TraceReading;
    one ours "handover": switch::SwitchSites;
};
