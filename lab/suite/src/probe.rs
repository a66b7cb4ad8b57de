//! Probes: what a function costs that can be traced, while it is not, while others are, and while it is; and
//! what switching costs.
//!
//! All but the switching is timed alike: calls in a row of a function that is not inlined and adds one to
//! what the call before gave. `Bare` is that function alone, `Stamps` with the time told at its begin
//! and its end, which is the least that somebody does who wants to know how long it takes. What a probe
//! itself costs is a figure less that of the bare call.

mod decoded;
#[cfg(feature = "fastrace")]
mod fast;
mod flip;
mod ours;
pub mod rows;
mod streamed;
#[cfg(feature = "peers")]
mod traced;
mod usdt;

use handover_base::clock;
use handover_harness::{Bench, Fault, Rig, Samples, Workload};
use handover_record::{Contender, Part, Spec, args};
use std::hint::black_box;
use std::marker::PhantomData;
use std::path::Path;
use tempfile::TempDir;

args! {
    /// How many calls are timed at once.
    pub struct Calls {
        /// Calls that are timed at once.
        calls_count: u32 = 10_000 (smoke 100, range 1..=1_000_000)
    }
}

/// Places at which something could be written down. Each function adds one to `x`.
trait Sites {
    /// With one site, which is not wanted.
    fn site(x: u64) -> u64;
    /// With eight such sites.
    fn eight(x: u64) -> u64;
    /// Within a span that is not wanted.
    fn span(x: u64) -> u64;
}

/// What writes down where a program goes, and only what is wanted.
trait Tracer: Sites {
    /// Within a span that is recorded during [`Tracer::recording`].
    fn wanted(x: u64) -> u64;
    /// Runs `f` with [`Tracer::wanted`] being recorded, and none of the others; says how many events were.
    fn recording(f: impl FnOnce()) -> Result<u64, Fault>;
}

/// With what was behind it.
fn refused(error: impl std::error::Error) -> Fault {
    let mut text = error.to_string();
    let mut behind = error.source();
    while let Some(error) = behind {
        text += &format!(": {error}");
        behind = error.source();
    }
    Fault::new(text)
}

/// For the files of a round, gone with it: in memory where that can be had, so that no disk is measured.
fn folder() -> Result<TempDir, Fault> {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    Ok(made?)
}

/// Says how many the functions counted.
#[inline(always)]
fn calls(count: u64, function: impl Fn(u64) -> u64) -> u64 {
    let mut x = 0;
    for _ in 0..count {
        x = function(x);
    }
    black_box(x)
}

#[inline(always)]
fn timed_calls(count: u64, function: impl Fn(u64) -> u64) -> u64 {
    let began = clock::ticks();
    calls(count, function);
    clock::ticks().saturating_sub(began)
}

#[inline(never)]
fn bare(x: u64) -> u64 {
    x.wrapping_add(1)
}

#[inline(never)]
fn between_stamps(x: u64) -> u64 {
    black_box(clock::ticks());
    let y = x.wrapping_add(1);
    black_box(clock::ticks());
    y
}

/// What cannot be traced.
struct Bare;

impl Workload for Bare {
    type Args = ();
    const SPEC: Spec = Spec {
        id: "probe/bare",
        what: "a call of a function that adds one, without probes",
        floor: Some("floor/empty"),
        batched: true,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };

    fn rig((): &(), _: &mut Rig) -> Result<Self, Fault> {
        Ok(Bare)
    }

    fn sample(&mut self, out: &mut Samples) {
        out.batches(|n| {
            calls(n, bare);
        });
    }
}

/// What tells the time and keeps none.
struct Stamps;

impl Workload for Stamps {
    type Args = ();
    const SPEC: Spec = Spec {
        id: "probe/stamps",
        what: "the same call, with the clock read at the function's begin and end and nothing kept",
        floor: Some("probe/bare"),
        batched: true,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };

    fn rig((): &(), _: &mut Rig) -> Result<Self, Fault> {
        Ok(Stamps)
    }

    fn sample(&mut self, out: &mut Samples) {
        out.batches(|n| {
            calls(n, between_stamps);
        });
    }
}

const SITE: usize = 0;
const EIGHT: usize = 1;
const SPAN: usize = 2;

/// What `off` and `filtered` have in common.
const UNWANTED: Spec = Spec {
    floor: Some("probe/bare"),
    batched: true,
    parts: &[
        Part::new("site", "one site in the function"),
        Part::new("eight", "eight sites in the function"),
        Part::new("span", "a span around all that the function does"),
    ],
    ..Spec::DEFAULT
};

fn unwanted<S: Sites>(count: u64, out: &mut Samples) {
    while out.running() {
        out.note_batch(SITE, timed_calls(count, S::site), count);
        out.note_batch(EIGHT, timed_calls(count, S::eight), count);
        out.note_batch(SPAN, timed_calls(count, S::span), count);
    }
}

/// Sites that are not wanted, as nothing is recorded.
struct Off<S> {
    calls_count: u64,
    sites: PhantomData<S>,
}

impl<S: Sites> Workload for Off<S> {
    type Args = Calls;
    const SPEC: Spec = Spec {
        id: "probe/off",
        what: "a call of a function with probes, all of them off",
        file: file!(),
        line: line!(),
        ..UNWANTED
    };

    fn rig(args: &Calls, _: &mut Rig) -> Result<Self, Fault> {
        Ok(Off { calls_count: args.calls_count.into(), sites: PhantomData })
    }

    fn check(&mut self) -> Result<(), Fault> {
        match S::span(S::eight(S::site(0))) {
            3 => Ok(()),
            sum => Err(Fault::new(format!("3 calls added {sum}"))),
        }
    }

    fn sample(&mut self, out: &mut Samples) {
        unwanted::<S>(self.calls_count, out);
    }
}

/// Sites that are not wanted, as others are.
struct Filtered<T> {
    calls_count: u64,
    tracer: PhantomData<T>,
}

impl<T: Tracer> Workload for Filtered<T> {
    type Args = Calls;
    const SPEC: Spec = Spec {
        id: "probe/filtered",
        what: "a call of a function with probes that are filtered out, while others are recorded",
        file: file!(),
        line: line!(),
        ..UNWANTED
    };

    fn rig(args: &Calls, _: &mut Rig) -> Result<Self, Fault> {
        Ok(Filtered { calls_count: args.calls_count.into(), tracer: PhantomData })
    }

    /// Others are recorded, and these are not.
    fn check(&mut self) -> Result<(), Fault> {
        let mut sum = 0;
        let events_count = T::recording(|| sum = T::span(T::eight(T::site(T::wanted(0)))))?;
        match (sum, events_count) {
            (4, 2) => Ok(()),
            _ => Err(Fault::new(format!("{events_count} events of one span, 4 calls added {sum}"))),
        }
    }

    fn sample(&mut self, out: &mut Samples) {
        let recorded = T::recording(|| unwanted::<T>(self.calls_count, out));
        recorded.unwrap_or_else(|fault| panic!("{fault}"));
    }
}

/// A span that is recorded in memory, over what was recorded before.
struct Recorded<T>(PhantomData<T>);

impl<T: Tracer> Workload for Recorded<T> {
    type Args = ();
    const SPEC: Spec = Spec {
        id: "probe/recorded",
        what: "a call of a function whose begin and end are recorded in memory, which keeps the newest",
        floor: Some("probe/stamps"),
        ladder: true,
        batched: true,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };

    fn rig((): &(), _: &mut Rig) -> Result<Self, Fault> {
        Ok(Recorded(PhantomData))
    }

    fn check(&mut self) -> Result<(), Fault> {
        let thousand = || {
            calls(1000, T::wanted);
        };
        match T::recording(thousand)? {
            2000 => Ok(()),
            events_count => Err(Fault::new(format!("{events_count} events of 1000 spans"))),
        }
    }

    fn sample(&mut self, out: &mut Samples) {
        let recorded = T::recording(|| {
            out.batches(|n| {
                calls(n, T::wanted);
            });
        });
        recorded.unwrap_or_else(|fault| panic!("{fault}"));
    }
}

/// The benchmarks of this file.
pub const ALL: &[Bench] = &[
    Bench::one::<Bare>(Contender::floor("rust")),
    Bench::one::<Stamps>(Contender::floor("hardware")),
    Bench::one::<Off<ours::Probes>>(Contender::ours("handover")),
    Bench::one::<Off<usdt::Usdt>>(Contender::floor("usdt")),
    #[cfg(feature = "peers")]
    Bench::one::<Off<traced::Tracing>>(Contender::peer("tracing")),
    #[cfg(feature = "fastrace")]
    Bench::one::<Off<fast::Fastrace>>(Contender::peer("fastrace")),
    Bench::one::<Filtered<ours::Probes>>(Contender::ours("handover")),
    #[cfg(feature = "peers")]
    Bench::one::<Filtered<traced::Tracing>>(Contender::peer("tracing")),
    Bench::one::<Recorded<ours::Probes>>(Contender::ours("handover")),
    #[cfg(feature = "peers")]
    Bench::one::<Recorded<traced::Tracing>>(Contender::peer("tracing")),
    #[cfg(feature = "peers")]
    Bench::one::<Recorded<traced::Registered>>(Contender::peer("tracing-registry")),
    #[cfg(feature = "fastrace")]
    Bench::one::<fast::Collected>(Contender::peer("fastrace")),
    Bench::one::<streamed::Streamed>(Contender::ours("handover")),
    Bench::one::<decoded::Decoded>(Contender::ours("handover")),
    Bench::one::<flip::Flip>(Contender::ours("handover")),
];
