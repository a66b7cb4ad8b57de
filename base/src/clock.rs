//! Time stamps for short spans: from the processor's counter where it can be trusted, otherwise
//! from `clock_gettime`, with a report of the choice and its reason.
//!
//! ```
//! use handover_base::clock;
//! let start = clock::ticks();
//! let sum: u64 = (0..1000).sum();
//! let span = clock::ticks() - start;
//! println!("{sum} took {} ns, of which the clock itself about {:.1} ns",
//!     clock::ns_from_ticks(span), clock::calibration().cost_ns);
//! ```
//!
//! The first use of anything here calibrates: about 10 ms, once per process (up to 70 ms where the
//! CPUs are very busy), during which short-lived threads compare the counters of the CPUs. To
//! choose the moment, call [`calibration`], before `fork`.
//!
//! # Which source
//! On x86_64 the counter is the time-stamp counter (TSC), on aarch64 the virtual counter
//! (CNTVCT_EL0). It is used if it runs at a constant rate in all power states (x86_64: cpuid's
//! invariant bit, or `constant_tsc` and `nonstop_tsc` in `/proc/cpuinfo`, or, under a hypervisor, a
//! guest kernel that keeps its own time by it; aarch64: always, by the architecture), the kernel
//! has not removed it from its clock sources, and no reading on one CPU contradicts another's.
//! Otherwise `ticks` are nanoseconds of `CLOCK_MONOTONIC`. The environment variable
//! `HANDOVER_CLOCK` overrides the choice: `tsc` (on aarch64 `cntvct`) or `clock_gettime`;
//! [`Calibration::why`] gives the reason.
//!
//! # What it does not do
//! [`ticks`] is not ordered with the instructions around it: the processor may move it by some
//! tens of instructions. Time whole batches, or use [`ticks_fenced`]. The clock's own cost is
//! measured and reported, but never subtracted. Spans follow the counter's rate as calibrated,
//! within [`Calibration::error_ppm_max`]; later adjustments of the clock by NTP only affect
//! [`now_ns`]. The virtual counter of most aarch64 processors before Armv8.6 advances at 24 to 100
//! MHz: a step is 10 to 42 ns long there ([`Calibration::resolution_ns`]).
//!
//! Source: Intel SDM volume 3, 18.17 (invariant TSC); Arm ARM (DDI 0487), D12.1 (the generic
//! timer); the Linux kernel's `tsc_sync.c`, whose test across CPUs is similar to this one; F.
//! Cristian, "Probabilistic clock synchronization" (1989), for the bracketed readings.

mod agree;
mod trust;

use crate::cpu;
use crate::os;
use crate::sync::CachePadded;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::cell::Cell;
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::Duration;
use trust::SourceChoice;

/// Name of the environment variable that overrides the choice of the clock source.
pub const CLOCK_VARIABLE: &str = "HANDOVER_CLOCK";

/// Source of the clock: the counter that [`ticks`] reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClockSource {
    /// Counter of the processor: the time-stamp counter of x86_64, or the virtual counter of
    /// aarch64. They are read by `rdtsc`, or from CNTVCT_EL0. Displayed as `tsc` or `cntvct`.
    Tsc,
    /// `CLOCK_MONOTONIC` in ns, read by `clock_gettime`.
    ClockGettime,
}

impl fmt::Display for ClockSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ClockSource::Tsc => cpu::COUNTER_SOURCE,
            ClockSource::ClockGettime => "clock_gettime",
        })
    }
}

impl FromStr for ClockSource {
    type Err = ClockSourceError;
    fn from_str(text: &str) -> Result<Self, ClockSourceError> {
        match text {
            cpu::COUNTER_SOURCE => Ok(ClockSource::Tsc),
            "clock_gettime" => Ok(ClockSource::ClockGettime),
            _ => Err(ClockSourceError { text: text.to_owned() }),
        }
    }
}

/// Error of parsing a [`ClockSource`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a clock source: write {} or clock_gettime", cpu::COUNTER_SOURCE)]
pub struct ClockSourceError {
    text: String,
}

/// Result of the clock's calibration: the chosen source, its rate and its cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    /// Clock that [`ticks`] reads.
    pub source: ClockSource,
    /// Rate of the clock, in ticks per second.
    pub ticks_hz: f64,
    /// Median cost of one [`ticks`] call in a tight loop, in ns.
    pub cost_ns: f64,
    /// Resolution of the clock: smallest difference between two readings, in ns.
    pub resolution_ns: f64,
    /// Maximum error of `ticks_hz` against CLOCK_MONOTONIC, in parts per million, during the
    /// calibration. It is zero for [`ClockSource::ClockGettime`].
    pub error_ppm_max: f64,
    /// Reason for the choice of the source, in one line.
    pub why: String,
}

/// Shows the source, its rate, its cost and the reason for its choice, in one line.
impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mhz = self.ticks_hz / 1e6;
        let (source, cost_ns, step_ns) = (self.source, self.cost_ns, self.resolution_ns);
        write!(
            f,
            "{source} at {mhz:.3} MHz, {cost_ns:.1} ns a reading, steps of {step_ns:.2} ns: "
        )?;
        f.write_str(&self.why)
    }
}

/// Number of fraction bits of the conversion factor from ticks to ns. The factor is exact to 14
/// digits at 3 GHz, and its product with any u64 fits in 128 bits.
const NS_SHIFT: u32 = 48;
/// Number of fraction bits of the conversion factor from ticks to ps.
const PS_SHIFT: u32 = 40;
/// Number of fraction bits of the conversion factor from ns to ticks.
const TICKS_SHIFT: u32 = 48;

/// Maximum time for which a thread extrapolates [`now_ns`] from its last reading of the kernel's
/// clock. At the fastest slew of NTP, 500 ppm, the error stays below 2 µs.
const RESYNC_NS: u64 = 4_000_000;
/// Time over which the rate of the processor's counter is measured.
const CALIBRATION_SPAN: Duration = Duration::from_millis(10);
/// Time limit of the comparison of the CPUs' counters during the calibration, in ns.
const COMPARISON_NS: u64 = 8_000_000;
/// Time limit of the second comparison, in ns. It is made if the CPUs were too busy during the
/// first.
const SECOND_COMPARISON_NS: u64 = 50_000_000;
/// Minimum plausible rate of a counter. The slowest virtual counters have this rate; below 60 kHz,
/// `PS_SHIFT` overflows.
const TICKS_HZ_MIN: f64 = 1e6;
/// Maximum plausible rate of a counter.
const TICKS_HZ_MAX: f64 = 100e9;
/// Maximum accepted difference between the declared and the measured rate, in parts per million. It
/// covers the fastest slew of NTP and the error of a quartz.
const DECLARED_ERROR_PPM_MAX: f64 = 1000.0;

/// Value of [`Rates::source`] before the calibration.
const SOURCE_UNKNOWN: u8 = 0;
/// Value of [`Rates::source`] for [`ClockSource::Tsc`].
const SOURCE_TSC: u8 = 1;
/// Value of [`Rates::source`] for [`ClockSource::ClockGettime`].
const SOURCE_CLOCK_GETTIME: u8 = 2;

/// Chosen clock and its conversion factors, written once by the calibration.
///
/// Each word is independent of the others (zero means "not calibrated yet" and leads to the
/// `OnceLock`, which synchronises), so that all loads and stores are Relaxed.
struct Rates {
    /// Chosen clock source: one of the constants `SOURCE_*`.
    source: AtomicU8,
    /// Factor from ticks to ns, with [`NS_SHIFT`] fraction bits.
    ns_multiplier: AtomicU64,
    /// Factor from ticks to ps, with [`PS_SHIFT`] fraction bits.
    ps_multiplier: AtomicU64,
    /// Factor from ns to ticks, with [`TICKS_SHIFT`] fraction bits.
    ticks_multiplier: AtomicU64,
    /// [`RESYNC_NS`] in ticks.
    resync_ticks: AtomicU64,
}

/// Chosen clock of this process and its conversion factors. They are on separate cache lines,
/// because a write to the same line would cause a cache miss in every reading of the clock.
static RATES: CachePadded<Rates> = CachePadded::new(Rates {
    source: AtomicU8::new(SOURCE_UNKNOWN),
    ns_multiplier: AtomicU64::new(0),
    ps_multiplier: AtomicU64::new(0),
    ticks_multiplier: AtomicU64::new(0),
    resync_ticks: AtomicU64::new(0),
});

/// Calibration of this process; empty before the first use of the clock.
static CALIBRATION: OnceLock<Calibration> = OnceLock::new();

/// Reads a time stamp in ticks. [`ns_from_ticks`] and [`ps_from_ticks`] convert differences of time
/// stamps.
///
/// Monotonic on a thread, and across threads as far as the CPUs' counters agree (which the
/// calibration has tested). Not ordered with the instructions around it.
///
/// # Cost
/// One `rdtsc` or `mrs`, a load of a line that is never written and a predicted branch; with
/// [`ClockSource::ClockGettime`] a vDSO call. [`Calibration::cost_ns`] is the measured cost.
#[inline]
#[must_use]
pub fn ticks() -> u64 {
    if RATES.source.load(Ordering::Relaxed) == SOURCE_TSC {
        return cpu::read_timestamp_counter();
    }
    ticks_slow_path()
}

/// Reads a time stamp in ticks, ordered with the instructions before and after it. All earlier
/// instructions have completed, and no later one has started. Earlier stores may not have reached
/// the caches yet.
///
/// For timing single operations of some nanoseconds. Between two plain [`ticks`] a processor begins
/// later instructions and has not completed earlier ones: the wait of an exchange for its cache
/// line is then counted in the next measurement.
///
/// # Cost
/// The cost of [`ticks`] and of two `lfence`, some 10 ns in all; on aarch64 of a `dsb` and two
/// `isb`.
#[inline]
#[must_use]
pub fn ticks_fenced() -> u64 {
    if RATES.source.load(Ordering::Relaxed) == SOURCE_TSC {
        return cpu::read_timestamp_counter_fenced();
    }
    ticks_slow_path()
}

/// Slow path of [`ticks`]: calibrates the clock on the first call, and otherwise reads
/// CLOCK_MONOTONIC.
#[cold]
#[inline(never)]
fn ticks_slow_path() -> u64 {
    if RATES.source.load(Ordering::Relaxed) == SOURCE_UNKNOWN {
        calibration();
        return ticks();
    }
    monotonic_ns()
}

/// Converts a difference of ticks to nanoseconds, rounded down.
///
/// # Cost
/// A multiplication and a shift, less than a nanosecond.
#[inline]
#[must_use]
pub fn ns_from_ticks(ticks: u64) -> u64 {
    scale(ticks, load_multiplier(&RATES.ns_multiplier), NS_SHIFT)
}

/// Converts a difference of ticks to picoseconds, rounded down; returns `u64::MAX` above 213 days.
#[inline]
#[must_use]
pub fn ps_from_ticks(ticks: u64) -> u64 {
    scale(ticks, load_multiplier(&RATES.ps_multiplier), PS_SHIFT)
}

/// Converts nanoseconds to ticks, rounded down; returns `u64::MAX` if the result does not fit.
#[inline]
#[must_use]
pub fn ticks_from_ns(ns: u64) -> u64 {
    scale(ns, load_multiplier(&RATES.ticks_multiplier), TICKS_SHIFT)
}

/// Loads a conversion factor; calibrates the clock if there is none yet.
#[inline]
fn load_multiplier(word: &AtomicU64) -> u64 {
    match word.load(Ordering::Relaxed) {
        0 => multiplier_after_calibration(word),
        multiplier => multiplier,
    }
}

/// Calibrates the clock, then loads the conversion factor.
#[cold]
#[inline(never)]
fn multiplier_after_calibration(word: &AtomicU64) -> u64 {
    calibration();
    word.load(Ordering::Relaxed)
}

/// Returns `value * multiplier / 2^shift`, or `u64::MAX` if the result does not fit.
#[inline]
fn scale(value: u64, multiplier: u64, shift: u32) -> u64 {
    let product = (u128::from(value) * u128::from(multiplier)) >> shift;
    u64::try_from(product).unwrap_or(u64::MAX)
}

/// Last simultaneous reading of both clocks by a thread: the counter and CLOCK_MONOTONIC.
struct Anchor {
    /// Reading of the counter.
    ticks: Cell<u64>,
    /// Reading of CLOCK_MONOTONIC.
    ns: Cell<u64>,
    /// Latest time that [`now_ns`] returned on this thread. Later results are not less.
    last_ns: Cell<u64>,
}

thread_local! {
    /// Anchor of the current thread.
    static ANCHOR: Anchor =
        const { Anchor { ticks: Cell::new(0), ns: Cell::new(0), last_ns: Cell::new(0) } };
}

/// Reads CLOCK_MONOTONIC from the kernel, in ns.
///
/// # Cost
/// `clock_gettime`, some 25 ns; no calibration.
#[inline]
#[must_use]
pub fn monotonic_ns() -> u64 {
    os::monotonic_ns()
}

/// Returns the time of CLOCK_MONOTONIC in ns. It is within a few µs of `clock_gettime`, and never
/// decreases on a thread.
///
/// # Cost
/// Little more than [`ticks`], and a `clock_gettime` every 4 ms per thread, by which it follows the
/// kernel's adjustments.
#[inline]
#[must_use]
pub fn now_ns() -> u64 {
    if RATES.source.load(Ordering::Relaxed) == SOURCE_TSC {
        return ANCHOR.with(|anchor| {
            let ticks = cpu::read_timestamp_counter();
            // An anchor in the future (of another CPU whose counter is slightly ahead) wraps to a
            // huge span.
            let span = ticks.wrapping_sub(anchor.ticks.get());
            if span >= RATES.resync_ticks.load(Ordering::Relaxed) {
                return resync(anchor);
            }
            let now = anchor.ns.get() + ns_from_ticks(span);
            anchor.non_decreasing(now)
        });
    }
    now_ns_slow_path()
}

impl Anchor {
    /// Returns the greater of `now_ns` and the latest time returned on this thread.
    #[inline]
    fn non_decreasing(&self, now_ns: u64) -> u64 {
        let now_ns = now_ns.max(self.last_ns.get());
        self.last_ns.set(now_ns);
        now_ns
    }
}

/// Reads the counter and CLOCK_MONOTONIC into the anchor; returns the time in ns.
#[cold]
#[inline(never)]
fn resync(anchor: &Anchor) -> u64 {
    calibration(); // returns at once unless another thread is calibrating
    let bracket = PairedReading::narrowest_of(3);
    anchor.ticks.set(bracket.ticks);
    anchor.ns.set(bracket.ns);
    anchor.non_decreasing(bracket.ns)
}

/// Slow path of [`now_ns`]: calibrates the clock on the first call, and otherwise reads
/// CLOCK_MONOTONIC.
#[cold]
#[inline(never)]
fn now_ns_slow_path() -> u64 {
    if RATES.source.load(Ordering::Relaxed) == SOURCE_UNKNOWN {
        calibration();
        return now_ns();
    }
    monotonic_ns()
}

/// Returns the clock's source, rate and cost; calibrates on the first call.
///
/// # Blocking
/// The first call takes about 10 ms (up to 70 ms where the CPUs are very busy), mostly asleep;
/// other threads wait for it.
pub fn calibration() -> &'static Calibration {
    CALIBRATION.get_or_init(calibrate)
}

/// Readings of the processor's counter and of CLOCK_MONOTONIC at the same moment. The error is at
/// most `width_ticks / 2`.
#[derive(Clone, Copy)]
struct PairedReading {
    /// Reading of the counter.
    ticks: u64,
    /// Reading of CLOCK_MONOTONIC.
    ns: u64,
    /// Number of ticks that the counter advanced during the reading of CLOCK_MONOTONIC.
    width_ticks: u64,
}

impl PairedReading {
    /// Reads both clocks once.
    fn read() -> Self {
        let before = cpu::read_timestamp_counter_fenced();
        let ns = monotonic_ns();
        let after = cpu::read_timestamp_counter_fenced();
        let width_ticks = after.saturating_sub(before);
        PairedReading { ticks: before + width_ticks / 2, ns, width_ticks }
    }

    /// Reads both clocks `count` times and returns the pair with the smallest `width_ticks`. A
    /// preemption between the two clocks increases `width_ticks`.
    fn narrowest_of(count: u32) -> Self {
        let first = Self::read();
        (1..count)
            .map(|_| Self::read())
            .fold(first, |best, next| if next.width_ticks < best.width_ticks { next } else { best })
    }
}

/// Chooses the clock source and measures its rate.
fn calibrate() -> Calibration {
    /// Number of paired readings, of which the narrowest is used.
    const PAIRED_READINGS_COUNT: u32 = 15;
    let choice = trust::choose_source(
        std::env::var(CLOCK_VARIABLE).ok().as_deref(),
        trust::CounterEvidence::read,
    );
    let (is_forced, is_kernel_source, mut why_trusted) = match choice {
        SourceChoice::Kernel { reason } => return select_kernel_clock(reason),
        SourceChoice::Tsc { is_forced, is_kernel_source, reason } => {
            (is_forced, is_kernel_source, reason)
        }
    };

    let begin = PairedReading::narrowest_of(PAIRED_READINGS_COUNT);
    // The CPUs are compared in the time between the two ends.
    if !is_forced {
        let cpus = crate::topology::allowed_cpus();
        let mut comparison = agree::compare_counters(&cpus, COMPARISON_NS);
        if comparison.is_unknown() {
            comparison = agree::compare_counters(&cpus, SECOND_COMPARISON_NS);
        }
        if let agree::CounterAgreement::Disagree { .. } = comparison {
            let counter = cpu::COUNTER_NAME;
            return select_kernel_clock(format!(
                "{comparison}, so the {counter} cannot be trusted"
            ));
        }
        if comparison.is_unknown() && !is_kernel_source {
            return select_kernel_clock(format!("{why_trusted}, but {comparison}"));
        }
        why_trusted = format!("{why_trusted}; {comparison}");
    }
    let elapsed = Duration::from_nanos(monotonic_ns().saturating_sub(begin.ns));
    std::thread::sleep(CALIBRATION_SPAN.saturating_sub(elapsed));
    let end = PairedReading::narrowest_of(PAIRED_READINGS_COUNT);

    let span_ticks = end.ticks.saturating_sub(begin.ticks) as f64;
    let span_ns = end.ns.saturating_sub(begin.ns) as f64;
    let measured_hz = span_ticks / span_ns * 1e9;
    if !(TICKS_HZ_MIN..=TICKS_HZ_MAX).contains(&measured_hz) {
        return select_kernel_clock(format!(
            "the {} ran at {measured_hz:.0} Hz during the calibration, not {TICKS_HZ_MIN:.0}..={TICKS_HZ_MAX:.0} Hz",
            cpu::COUNTER_NAME
        ));
    }
    // A reading may be a tick old.
    let width_ticks = (begin.width_ticks + end.width_ticks) as f64 / 2.0 + 1.0;
    let measured_error_ppm = width_ticks / span_ticks * 1e6;
    let (ticks_hz, error_ppm_max) =
        choose_rate(cpu::declared_counter_hz() as f64, measured_hz, measured_error_ppm);
    store_rates(ClockSource::Tsc, ticks_hz);
    let counter = cpu::COUNTER_NAME;
    let why =
        format!("{why_trusted}; the {counter}'s rate is known to within {error_ppm_max:.1} ppm");
    measure_calibration(ClockSource::Tsc, ticks_hz, error_ppm_max, why)
}

/// Returns the rate of the counter in Hz, and the maximum error of the rate in parts per million.
/// The declared rate is exact if it is that of the same counter: firmware may declare none (0) or a
/// wrong one, which the measured rate shows.
fn choose_rate(declared_hz: f64, measured_hz: f64, measured_error_ppm: f64) -> (f64, f64) {
    let difference_ppm = (declared_hz / measured_hz - 1.0).abs() * 1e6;
    if difference_ppm <= measured_error_ppm + DECLARED_ERROR_PPM_MAX {
        (declared_hz, measured_error_ppm + difference_ppm)
    } else {
        (measured_hz, measured_error_ppm)
    }
}

/// Selects CLOCK_MONOTONIC as the clock, and returns its calibration with the reason `why`.
fn select_kernel_clock(why: String) -> Calibration {
    store_rates(ClockSource::ClockGettime, 1e9);
    measure_calibration(ClockSource::ClockGettime, 1e9, 0.0, why)
}

/// Stores the clock source and its conversion factors in [`RATES`].
fn store_rates(source: ClockSource, ticks_hz: f64) {
    let fixed = |ratio: f64, shift: u32| (ratio * (1u128 << shift) as f64).round() as u64;
    RATES.ns_multiplier.store(fixed(1e9 / ticks_hz, NS_SHIFT), Ordering::Relaxed);
    RATES.ps_multiplier.store(fixed(1e12 / ticks_hz, PS_SHIFT), Ordering::Relaxed);
    RATES.ticks_multiplier.store(fixed(ticks_hz / 1e9, TICKS_SHIFT), Ordering::Relaxed);
    RATES.resync_ticks.store((RESYNC_NS as f64 * ticks_hz / 1e9) as u64, Ordering::Relaxed);
    let source = match source {
        ClockSource::Tsc => SOURCE_TSC,
        ClockSource::ClockGettime => SOURCE_CLOCK_GETTIME,
    };
    RATES.source.store(source, Ordering::Relaxed);
}

/// Measures the cost and resolution of the chosen clock; returns the complete calibration.
fn measure_calibration(
    source: ClockSource,
    ticks_hz: f64,
    error_ppm_max: f64,
    why: String,
) -> Calibration {
    let ns_per_tick = 1e9 / ticks_hz;
    Calibration {
        source,
        ticks_hz,
        cost_ns: measure_cost_ticks() * ns_per_tick,
        resolution_ns: measure_increment_ticks() * ns_per_tick,
        error_ppm_max,
        why,
    }
}

/// Measures the median cost of a [`ticks`] call over several batches, in ticks.
fn measure_cost_ticks() -> f64 {
    /// Number of timed batches of calls.
    const BATCHES_COUNT: usize = 31;
    /// Number of calls in a batch.
    const CALLS_PER_BATCH: u32 = if cfg!(miri) { 2 } else { 512 };
    let mut batches: Vec<u64> = (0..BATCHES_COUNT)
        .map(|_| {
            let begin = ticks();
            for _ in 1..CALLS_PER_BATCH {
                std::hint::black_box(ticks());
            }
            ticks().saturating_sub(begin)
        })
        .collect();
    batches.sort_unstable();
    batches[BATCHES_COUNT / 2] as f64 / f64::from(CALLS_PER_BATCH)
}

/// Measures the smallest increment of the counter, in ticks. Some counters advance with a slower
/// clock, so that the increment need not be a whole number of ticks: the TSC of AMD's Zen at 2.45
/// GHz advances with a clock of 100 MHz, by 24 or 25 ticks.
fn measure_increment_ticks() -> f64 {
    /// Number of readings of the counter.
    const READINGS_COUNT: usize = if cfg!(miri) { 8 } else { 2048 };
    /// Number of different delays between readings. A constant delay would look like the increment.
    const DELAYS_COUNT: usize = 29;
    let mut last = ticks();
    let differences: Vec<u64> = (0..READINGS_COUNT)
        .map(|place| {
            for turn in 0..place % DELAYS_COUNT {
                std::hint::black_box(turn);
            }
            let before = std::mem::replace(&mut last, ticks());
            last.saturating_sub(before)
        })
        .collect();
    smallest_increment(&differences)
}

/// Estimates the counter's smallest increment in ticks from differences between readings. It is the
/// greatest number (a whole number if it is below 4) of which most `differences` are multiples to
/// within one tick. Not all are: processors add 1 to a second reading within an increment to keep
/// readings distinct, and hypervisors adjust the counter.
fn smallest_increment(differences: &[u64]) -> f64 {
    /// Maximum increment that is tried, in ticks.
    const INCREMENT_TICKS_MAX: u64 = 1000;
    /// Minimum share of the differences that must be multiples of the increment.
    const MULTIPLES_SHARE_MIN: f64 = 0.8;
    /// Minimum increment that may be fractional, in ticks. Below it, most whole numbers are
    /// within one tick of some multiple.
    const FRACTIONAL_INCREMENT_MIN: u64 = 4;
    /// Number of increments that are tried per tick.
    const FRACTIONS_PER_TICK: u64 = 16;
    let mut moved: Vec<u64> = differences.iter().copied().filter(|it| *it > 0).collect();
    moved.sort_unstable();
    // Distinct values with their counts, of which there are some dozens; the most frequent first,
    // as they reject a candidate the soonest.
    let mut counted: Vec<(u64, usize)> =
        moved.chunk_by(|a, b| a == b).map(|same| (same[0], same.len())).collect();
    counted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    // A step that most differences contain; those of interrupted readings are longer.
    let usual = moved.len().saturating_sub(1) * 9 / 10;
    let most = moved.get(usual).map_or(0, |it| it + 1).min(INCREMENT_TICKS_MAX);
    let misfits_max = moved.len() - (MULTIPLES_SHARE_MIN * moved.len() as f64).ceil() as usize;
    let fit = |step: f64| {
        let (mut misfits_count, mut sum_ticks, mut sum_steps) = (0, 0.0, 0.0);
        for (ticks, count) in &counted {
            let steps = (*ticks as f64 / step).round();
            if steps > 0.0 && (steps * step - *ticks as f64).abs() < 1.0 {
                sum_ticks += (*ticks * *count as u64) as f64;
                sum_steps += steps * *count as f64;
            } else {
                misfits_count += count;
                if misfits_count > misfits_max {
                    return None;
                }
            }
        }
        Some(sum_ticks / sum_steps)
    };
    let fractions =
        (FRACTIONAL_INCREMENT_MIN * FRACTIONS_PER_TICK..=most * FRACTIONS_PER_TICK).rev();
    let mut steps = fractions.map(|it| it as f64 / FRACTIONS_PER_TICK as f64).chain([3.0, 2.0]);
    if moved.is_empty() { 1.0 } else { steps.find_map(fit).unwrap_or(1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_is_found_despite_adjusted_readings() {
        let stepped = [26, 26, 52, 26, 1, 25, 26, 78, 26, 26, 52, 26, 26];
        assert!((smallest_increment(&stepped) - 26.0).abs() < 0.1);
        assert_eq!(smallest_increment(&[30, 31, 33, 30, 32, 35]), 1.0);
        assert_eq!(smallest_increment(&[30, 32, 34, 30, 36, 34, 30, 33]), 2.0);
        assert_eq!(smallest_increment(&[0, 0]), 1.0);
    }

    #[test]
    fn fractional_step_is_found_in_irregular_readings() {
        let differences = |step: f64| {
            let reading = |ticks: u64| ((ticks as f64 / step).floor() * step) as u64;
            let (mut now, mut last) = (1_000_000, reading(1_000_000));
            let read = |place: u64| {
                now += 20 + place * 7 % 61;
                let before = std::mem::replace(&mut last, reading(now));
                last - before
            };
            (0..2000).map(read).collect::<Vec<u64>>()
        };
        for step in [24.45, 36.0, 99.8, 312.5] {
            let found = smallest_increment(&differences(step));
            assert!((found / step - 1.0).abs() < 0.01, "{step}: {found}");
        }
        assert_eq!(
            smallest_increment(&differences(1.0)),
            1.0,
            "the step of a counter of single ticks is not 1"
        );
    }

    #[test]
    fn fenced_readings_use_the_same_clock() {
        for _ in 0..1000 {
            let (before, fenced, after) = (ticks(), ticks_fenced(), ticks_fenced());
            assert!(fenced <= after, "the clock went backwards from {fenced} to {after}");
            assert!(
                ns_from_ticks(fenced.saturating_sub(before)) < 1_000_000_000,
                "{before}, {fenced}"
            );
        }
    }

    #[test]
    fn conversions_of_days_are_exact_to_a_part_in_a_billion() {
        let hz = 2_596_102_345.0;
        let multiplier = (1e9 / hz * (1u128 << NS_SHIFT) as f64).round() as u64;
        let ticks_of_100_days = (hz * 8_640_000.0) as u64;
        let ns = scale(ticks_of_100_days, multiplier, NS_SHIFT) as f64;
        assert!((ns / 8.64e15 - 1.0).abs() < 1e-9, "{ns}");
    }

    #[test]
    fn declared_rate_is_used_if_the_measured_rate_confirms_it() {
        assert_eq!(choose_rate(24e6, 24e6 * (1.0 + 20e-6), 8.0).0, 24e6);
        assert!((choose_rate(24e6, 24e6 * (1.0 + 20e-6), 8.0).1 - 28.0).abs() < 0.01);
        assert_eq!(choose_rate(0.0, 24e6, 8.0), (24e6, 8.0));
        assert_eq!(choose_rate(1e9, 24e6, 8.0), (24e6, 8.0));
    }

    #[test]
    fn conversions_beyond_a_u64_saturate() {
        assert_eq!(scale(u64::MAX, u64::MAX, 40), u64::MAX);
    }

    #[test]
    fn source_parses_from_its_display_and_errors_list_the_names() {
        for source in [ClockSource::Tsc, ClockSource::ClockGettime] {
            assert_eq!(source.to_string().parse(), Ok(source));
        }
        let error = "hpet".parse::<ClockSource>().unwrap_err().to_string();
        assert!(error.contains("hpet") && error.contains("clock_gettime"), "{error}");
    }
}
