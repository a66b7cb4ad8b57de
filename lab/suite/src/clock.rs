//! `clock/*`: the cost of reading the time, by instructions, by this program's clock, and by the C
//! library's functions.
//!
//! Every clock is a [`ClockReading`], driven by the one loop of [`read_repeatedly`], which the
//! classic programs drive too.

use crate::common::ensure;
use crate::raw::clock as raw;
use handover_base::clock::ticks;
use handover_harness::{Bench, Fault, Samples, Setup, Workload, benches};
use handover_record::Spec;
use std::hint::black_box;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

/// All benchmarks of clocks.
pub const BENCHES: &[Bench] = benches! {
    one ours "handover": ClockReadings<Handover>;
    one peer "std": ClockReadings<StdInstant>;
    one floor "hardware": ClockReadings<Rdtsc>;
    one floor "hardware": ClockReadings<Rdtscp>;
    one floor "hardware": ClockReadings<LfenceRdtsc>;
    one floor "libc": ClockReadings<Realtime>;
    one floor "libc": ClockReadings<RealtimeCoarse>;
    one floor "libc": ClockReadings<Monotonic>;
    one floor "libc": ClockReadings<MonotonicCoarse>;
    one floor "libc": ClockReadings<GetTimeOfDay>;
};

/// Clock whose reading is measured.
pub trait ClockReading {
    /// Declaration of the benchmark.
    const SPEC: Spec;
    /// `true` if the clock follows the system time, which can be set back. `false` if the clock
    /// never goes backwards.
    const SETTABLE: bool = false;
    /// Type of a time stamp.
    type Stamp: PartialOrd + Copy;

    /// Reads the clock once; returns the time stamp.
    fn read() -> Self::Stamp;

    /// Reads the clock once and discards the value, as the loop of a C program does.
    #[inline(always)]
    fn read_and_discard() {
        black_box(Self::read());
    }

    /// Returns `true` if this machine has the clock. Reading an unsupported clock may kill the
    /// process.
    fn is_available() -> bool {
        true
    }
}

/// Reads the clock `n` times.
#[inline]
pub fn read_repeatedly<R: ClockReading>(n: u64) {
    for _ in 0..n {
        R::read_and_discard();
    }
}

/// Workload: readings of the clock `R`, one after the other.
struct ClockReadings<R>(PhantomData<R>);

impl<R: ClockReading> Workload for ClockReadings<R> {
    type Args = ();
    const SPEC: Spec = R::SPEC;

    fn setup((): &(), _: &mut Setup) -> Result<Self, Fault> {
        if !R::is_available() {
            return Err(Fault::Unsupported(format!(
                "{}: this processor does not have the clock",
                R::SPEC.id
            )));
        }
        Ok(ClockReadings(PhantomData))
    }

    fn self_test(&mut self) -> Result<(), Fault> {
        let (first, began) = (R::read(), Instant::now());
        let mut last = first;
        while last <= first {
            // Before the reading: afterwards the thread may have lost its CPU for longer.
            let is_last = began.elapsed() > STANDSTILL_MAX;
            let next = R::read();
            ensure(next >= last || R::SETTABLE, || "the clock went backwards")?;
            last = next;
            ensure(!is_last || last > first, || {
                format!("the clock did not advance for {STANDSTILL_MAX:?}")
            })?;
        }
        Ok(())
    }

    fn sample(&mut self, out: &mut Samples) {
        out.time_batches(read_repeatedly::<R>);
    }
}

/// Maximum time for which a working clock may show the same time. The coarsest clock here advances
/// with the kernel's tick, at least 100 times a second.
const STANDSTILL_MAX: Duration = Duration::from_millis(500);

/// Declaration of the benchmark `clock/now`, which compares this project's clock with the standard
/// library's.
const NOW_SPEC: Spec =
    Spec::new("clock/now", "clock reading for short durations").floor("clock/rdtsc").ladder();

/// Description of `clock/rdtsc`.
const RDTSC_TEXT: &str = if cfg!(target_arch = "aarch64") {
    "virtual counter by mrs, not ordered with the surrounding instructions"
} else {
    "time-stamp counter by rdtsc, not ordered with the surrounding instructions"
};

/// Description of `clock/lfence-rdtsc`.
const LFENCE_RDTSC_TEXT: &str = if cfg!(target_arch = "aarch64") {
    "virtual counter by dsb, isb and mrs, after all earlier loads"
} else {
    "time-stamp counter by lfence and rdtsc, after all earlier instructions"
};

/// Implements [`ClockReading`] for clocks: the type of a time stamp, its reading, and overrides of
/// defaults.
macro_rules! clocks {
    ($($(#[$doc:meta])* $name:ident($stamp:ty = $read:expr $(, ask $ask:expr)?
        $(, settable $settable:literal)? $(, if $is_here:expr)?): $spec:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub enum $name {}

        impl ClockReading for $name {
            const SPEC: Spec = $spec;
            $(const SETTABLE: bool = $settable;)?
            type Stamp = $stamp;

            #[inline(always)]
            fn read() -> $stamp {
                $read
            }

            $(#[inline(always)]
            fn read_and_discard() {
                $ask;
            })?

            $(fn is_available() -> bool {
                $is_here
            })?
        }
    )*};
}

clocks! {
    /// This project's clock, [`ticks`].
    Handover(u64 = ticks()): NOW_SPEC;
    /// The standard library's [`Instant`].
    StdInstant(Instant = Instant::now()): NOW_SPEC;
    /// The processor's counter, read by `rdtsc` or, on aarch64, by `mrs`.
    Rdtsc(u64 = raw::rdtsc()):
        Spec::new("clock/rdtsc", RDTSC_TEXT).floor("floor/empty");
    /// The time-stamp counter, read by `rdtscp`; absent on aarch64.
    Rdtscp(u64 = raw::rdtscp(), if raw::has_rdtscp()):
        Spec::new(
            "clock/rdtscp",
            "time-stamp counter and CPU number by rdtscp, after all earlier instructions",
        )
        .floor("clock/rdtsc")
        .classic("node-microbench");
    /// The processor's counter, read by `lfence` and `rdtsc` or, on aarch64, by `dsb`, `isb` and
    /// `mrs`.
    LfenceRdtsc(u64 = raw::lfence_rdtsc()):
        Spec::new("clock/lfence-rdtsc", LFENCE_RDTSC_TEXT).floor("clock/rdtsc");
    /// The system time, read by `clock_gettime(CLOCK_REALTIME)`.
    Realtime(
        (i64, i64) = raw::clock_gettime(libc::CLOCK_REALTIME),
        ask raw::call_clock_gettime(libc::CLOCK_REALTIME),
        settable true
    ):
        Spec::new("clock/realtime", "clock_gettime(CLOCK_REALTIME)")
            .floor("clock/rdtsc")
            .classic("node-microbench");
    /// The system time of the last kernel tick, read by `clock_gettime(CLOCK_REALTIME_COARSE)`.
    RealtimeCoarse(
        (i64, i64) = raw::clock_gettime(libc::CLOCK_REALTIME_COARSE),
        ask raw::call_clock_gettime(libc::CLOCK_REALTIME_COARSE),
        settable true
    ):
        Spec::new(
            "clock/realtime-coarse",
            "clock_gettime(CLOCK_REALTIME_COARSE), the time of the kernel's last tick",
        )
        .floor("floor/empty")
        .classic("node-microbench");
    /// The monotonic clock, read by `clock_gettime(CLOCK_MONOTONIC)`.
    Monotonic(
        (i64, i64) = raw::clock_gettime(libc::CLOCK_MONOTONIC),
        ask raw::call_clock_gettime(libc::CLOCK_MONOTONIC)
    ):
        Spec::new("clock/monotonic", "clock_gettime(CLOCK_MONOTONIC)")
            .floor("clock/rdtsc")
            .classic("node-microbench");
    /// The monotonic time of the last kernel tick, read by `clock_gettime(CLOCK_MONOTONIC_COARSE)`.
    MonotonicCoarse(
        (i64, i64) = raw::clock_gettime(libc::CLOCK_MONOTONIC_COARSE),
        ask raw::call_clock_gettime(libc::CLOCK_MONOTONIC_COARSE)
    ):
        Spec::new(
            "clock/monotonic-coarse",
            "clock_gettime(CLOCK_MONOTONIC_COARSE), the time of the kernel's last tick",
        )
        .floor("floor/empty")
        .classic("node-microbench");
    /// The system time, read by `gettimeofday`.
    GetTimeOfDay((i64, i64) = raw::gettimeofday(), ask raw::call_gettimeofday(), settable true):
        Spec::new("clock/gettimeofday", "gettimeofday")
            .floor("clock/rdtsc")
            .classic("node-microbench");
}
