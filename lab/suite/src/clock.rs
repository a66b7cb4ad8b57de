//! `clock/*`: the cost of reading the time, by instructions, by this program's clock, and by the C
//! library's functions.
//!
//! Every clock is a [`Reading`], driven by the one loop of [`readings`], which the classic programs
//! drive too.

use crate::raw::clock as raw;
use handover_base::clock::ticks;
use handover_harness::{Bench, Fault, Rig, Samples, Workload};
use handover_record::{Contender, Spec};
use std::hint::black_box;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

/// The clock benchmarks.
pub const ALL: &[Bench] = &[
    Bench::one::<Asked<Handover>>(Contender::ours("handover")),
    Bench::one::<Asked<StdInstant>>(Contender::peer("std")),
    Bench::one::<Asked<Rdtsc>>(Contender::floor("hardware")),
    Bench::one::<Asked<Rdtscp>>(Contender::floor("hardware")),
    Bench::one::<Asked<LfenceRdtsc>>(Contender::floor("hardware")),
    Bench::one::<Asked<Realtime>>(Contender::floor("libc")),
    Bench::one::<Asked<RealtimeCoarse>>(Contender::floor("libc")),
    Bench::one::<Asked<Monotonic>>(Contender::floor("libc")),
    Bench::one::<Asked<MonotonicCoarse>>(Contender::floor("libc")),
    Bench::one::<Asked<GetTimeOfDay>>(Contender::floor("libc")),
];

/// A clock.
pub trait Reading {
    /// Declaration of the benchmark.
    const SPEC: Spec;
    /// `true` if the clock can be set back.
    const SETTABLE: bool = false;
    /// Type of a time stamp.
    type Stamp: PartialOrd + Copy;

    /// Reads the clock.
    fn read() -> Self::Stamp;

    /// Asks it, and does nothing with the answer, as the loop of a C program.
    #[inline(always)]
    fn ask() {
        black_box(Self::read());
    }

    /// Returns `true` if the clock exists here; reading one that does not may end the process.
    fn is_here() -> bool {
        true
    }
}

/// Asks the clock `n` times.
#[inline]
pub fn readings<R: Reading>(n: u64) {
    for _ in 0..n {
        R::ask();
    }
}

/// Benchmark of one [`Reading`].
struct Asked<R>(PhantomData<R>);

impl<R: Reading> Workload for Asked<R> {
    type Args = ();
    const SPEC: Spec = R::SPEC;

    fn rig((): &(), _: &mut Rig) -> Result<Self, Fault> {
        if !R::is_here() {
            return Err(Fault::Unsupported(format!("{} is not on this processor", R::SPEC.id)));
        }
        Ok(Asked(PhantomData))
    }

    fn check(&mut self) -> Result<(), Fault> {
        let (first, began) = (R::read(), Instant::now());
        let mut last = first;
        while last <= first {
            let next = R::read();
            if next < last && !R::SETTABLE {
                return Err(Fault::new("the clock went back"));
            }
            last = next;
            if began.elapsed() > STANDSTILL_MAX {
                return Err(Fault::new(format!("the clock stood still for {STANDSTILL_MAX:?}")));
            }
        }
        Ok(())
    }

    fn sample(&mut self, out: &mut Samples) {
        out.batches(readings::<R>);
    }
}

/// Maximum time for which a clock may stand still: the coarsest one here advances with the kernel's
/// tick, at least 100 times a second.
const STANDSTILL_MAX: Duration = Duration::from_millis(500);

/// Common part of the declarations.
const READING: Spec =
    Spec { floor: Some("clock/rdtsc"), classic: Some("node-microbench"), ..Spec::DEFAULT };

/// Common declaration of our clock and the standard library's.
const NOW: Spec = Spec {
    id: "clock/now",
    what: "one time stamp for measuring a short span: ours, and the standard library's Instant",
    classic: None,
    ladder: true,
    file: file!(),
    line: line!(),
    ..READING
};

/// This project's clock, [`ticks`].
#[derive(Debug)]
pub enum Handover {}

impl Reading for Handover {
    const SPEC: Spec = NOW;
    type Stamp = u64;

    #[inline(always)]
    fn read() -> u64 {
        ticks()
    }
}

/// The standard library's [`Instant`].
#[derive(Debug)]
pub enum StdInstant {}

impl Reading for StdInstant {
    const SPEC: Spec = NOW;
    type Stamp = Instant;

    #[inline(always)]
    fn read() -> Instant {
        Instant::now()
    }
}

/// The time-stamp counter by `rdtsc`.
#[derive(Debug)]
pub enum Rdtsc {}

impl Reading for Rdtsc {
    const SPEC: Spec = Spec {
        id: "clock/rdtsc",
        what: "the time-stamp counter, in whatever order the processor likes",
        floor: Some("floor/empty"),
        classic: None,
        file: file!(),
        line: line!(),
        ..READING
    };
    type Stamp = u64;

    #[inline(always)]
    fn read() -> u64 {
        raw::rdtsc()
    }
}

/// The time-stamp counter by `rdtscp`.
#[derive(Debug)]
pub enum Rdtscp {}

impl Reading for Rdtscp {
    const SPEC: Spec = Spec {
        id: "clock/rdtscp",
        what: "the time-stamp counter after everything before it, with the number of the CPU",
        file: file!(),
        line: line!(),
        ..READING
    };
    type Stamp = u64;

    #[inline(always)]
    fn read() -> u64 {
        raw::rdtscp()
    }

    fn is_here() -> bool {
        raw::has_rdtscp()
    }
}

/// The time-stamp counter by `lfence` and `rdtsc`.
#[derive(Debug)]
pub enum LfenceRdtsc {}

impl Reading for LfenceRdtsc {
    const SPEC: Spec = Spec {
        id: "clock/lfence-rdtsc",
        what: "the time-stamp counter behind a fence, after everything before it",
        classic: None,
        file: file!(),
        line: line!(),
        ..READING
    };
    type Stamp = u64;

    #[inline(always)]
    fn read() -> u64 {
        raw::lfence_rdtsc()
    }
}

/// `clock_gettime(CLOCK_REALTIME)`.
#[derive(Debug)]
pub enum Realtime {}

impl Reading for Realtime {
    const SPEC: Spec = Spec {
        id: "clock/realtime",
        what: "clock_gettime(CLOCK_REALTIME)",
        file: file!(),
        line: line!(),
        ..READING
    };
    const SETTABLE: bool = true;
    type Stamp = (i64, i64);

    #[inline(always)]
    fn read() -> (i64, i64) {
        raw::clock_gettime(libc::CLOCK_REALTIME)
    }

    #[inline(always)]
    fn ask() {
        raw::call_clock_gettime(libc::CLOCK_REALTIME);
    }
}

/// `clock_gettime(CLOCK_REALTIME_COARSE)`.
#[derive(Debug)]
pub enum RealtimeCoarse {}

impl Reading for RealtimeCoarse {
    const SPEC: Spec = Spec {
        id: "clock/realtime-coarse",
        what: "clock_gettime(CLOCK_REALTIME_COARSE): the time of the kernel's last tick",
        file: file!(),
        line: line!(),
        floor: Some("floor/empty"),
        ..READING
    };
    const SETTABLE: bool = true;
    type Stamp = (i64, i64);

    #[inline(always)]
    fn read() -> (i64, i64) {
        raw::clock_gettime(libc::CLOCK_REALTIME_COARSE)
    }

    #[inline(always)]
    fn ask() {
        raw::call_clock_gettime(libc::CLOCK_REALTIME_COARSE);
    }
}

/// `clock_gettime(CLOCK_MONOTONIC)`.
#[derive(Debug)]
pub enum Monotonic {}

impl Reading for Monotonic {
    const SPEC: Spec = Spec {
        id: "clock/monotonic",
        what: "clock_gettime(CLOCK_MONOTONIC)",
        file: file!(),
        line: line!(),
        ..READING
    };
    type Stamp = (i64, i64);

    #[inline(always)]
    fn read() -> (i64, i64) {
        raw::clock_gettime(libc::CLOCK_MONOTONIC)
    }

    #[inline(always)]
    fn ask() {
        raw::call_clock_gettime(libc::CLOCK_MONOTONIC);
    }
}

/// `clock_gettime(CLOCK_MONOTONIC_COARSE)`.
#[derive(Debug)]
pub enum MonotonicCoarse {}

impl Reading for MonotonicCoarse {
    const SPEC: Spec = Spec {
        id: "clock/monotonic-coarse",
        what: "clock_gettime(CLOCK_MONOTONIC_COARSE): the time of the kernel's last tick",
        file: file!(),
        line: line!(),
        floor: Some("floor/empty"),
        ..READING
    };
    type Stamp = (i64, i64);

    #[inline(always)]
    fn read() -> (i64, i64) {
        raw::clock_gettime(libc::CLOCK_MONOTONIC_COARSE)
    }

    #[inline(always)]
    fn ask() {
        raw::call_clock_gettime(libc::CLOCK_MONOTONIC_COARSE);
    }
}

/// `gettimeofday`.
#[derive(Debug)]
pub enum GetTimeOfDay {}

impl Reading for GetTimeOfDay {
    const SPEC: Spec = Spec {
        id: "clock/gettimeofday",
        what: "gettimeofday",
        file: file!(),
        line: line!(),
        ..READING
    };
    const SETTABLE: bool = true;
    type Stamp = (i64, i64);

    #[inline(always)]
    fn read() -> (i64, i64) {
        raw::gettimeofday()
    }

    #[inline(always)]
    fn ask() {
        raw::call_gettimeofday();
    }
}
