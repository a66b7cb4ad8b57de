//! Proof of the method: known costs are planted as benchmarks and read back from the records.
//!
//! The planted benchmarks take the same path as all others. Their costs are timed by the clock's
//! counter, whose rate is measured here independently from `CLOCK_MONOTONIC`: they contain nothing
//! of the harness's arithmetic, and a slow core does not change them.

use crate::bench::Bench;
use crate::fault::Fault;
use crate::raw;
use crate::samples::Samples;
use crate::setup::Setup;
use crate::workload::Workload;
use handover_base::{clock, units};
use handover_record::{Contender, Proof, Record, Spec, WarningCode, args};
use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Benchmarks with planted costs. Their ids start with `proof/`.
///
/// A static, so that they are compiled here and not again in each program that uses them.
pub static BENCHES: &[Bench] = &[
    Bench::one::<Constant<1_000>>(PLANTED),
    Bench::one::<Constant<2_000>>(PLANTED),
    Bench::one::<Constant<5_000>>(PLANTED),
    Bench::one::<Constant<11_000>>(PLANTED),
    Bench::one::<Constant<50_000>>(PLANTED),
    Bench::one::<Constant<200_000>>(PLANTED),
    Bench::one::<Constant<1_000_000>>(PLANTED),
    Bench::one::<Constant<10_000_000>>(PLANTED),
    Bench::one::<Constant<100_000_000>>(PLANTED),
    Bench::one::<Constant<1_000_000_000>>(PLANTED),
    Bench::one::<Constant<10_000_000_000>>(PLANTED),
    Bench::one::<Tail<100>>(PLANTED),
    Bench::one::<Tail<2_000>>(PLANTED),
    Bench::one::<TwoModes>(PLANTED),
    Bench::one::<Drift>(PLANTED),
    Bench::one::<Stalled>(PLANTED),
    Bench::one::<SlowedPeer<100>>(PLANTED),
    Bench::one::<SlowedPeer<150>>(Contender::peer("slowed")),
    Bench::one::<Layout<false>>(PLANTED),
    Bench::one::<Layout<true>>(Contender::peer("padded")),
];

/// Contender that takes the planted cost.
const PLANTED: Contender = Contender::ours("planted");

/// Period of the slow operations of [`Tail`], as a number of operations.
const TAIL_EVERY: u64 = 50;
/// Factor by which a slow operation of [`Tail`] takes longer than the others.
const TAIL_TIMES: u64 = 64;
/// Operation costs of the two modes of [`TwoModes`], in picoseconds.
const MODES_PS: [u64; 2] = [6_000, 20_000];
/// Period of the slow rounds of [`TwoModes`], as a number of rounds.
const MODES_CYCLE: u64 = 3;
/// Cost of an operation of [`Drift`] at the start of the drift.
const DRIFT_NS: f64 = 100.0;
/// Relative increase of the cost of [`Drift`] from the start to the end of the drift.
const DRIFT_BY: f64 = 0.5;
/// Period of the requests of [`Stalled`].
const PERIOD_NS: u64 = 20_000;
/// Service time of a request of [`Stalled`].
const SERVICE_NS: u64 = 2_000;
/// Period of the server's stalls in [`Stalled`].
const CYCLE_NS: u64 = 10_000_000;
/// Duration of a stall of the server in [`Stalled`].
const STALL_NS: u64 = 1_000_000;
/// Duration, in picoseconds, of the waits with which the timer measures its own lateness.
const LATE_PS: u64 = 1_000_000;
/// Iterations of a three-cycle loop in one operation of [`Layout`].
const LAYOUT_ITERATIONS: u64 = 64;

/// Timer that spins for exact durations, by the clock's counter.
#[derive(Clone, Copy, Debug)]
pub struct SpinTimer {
    ticks_per_ns: f64,
    /// Median time from the deadline of a wait to its return.
    late_ticks: u64,
}

impl SpinTimer {
    /// Creates a timer, calibrated against `CLOCK_MONOTONIC` once per process.
    pub fn new() -> SpinTimer {
        static TIMER: OnceLock<SpinTimer> = OnceLock::new();
        *TIMER.get_or_init(|| {
            // The pair of readings closest together: no interrupt occurred between the two clocks.
            let both = || {
                let pair = |_| {
                    let (before, now, after) = (clock::ticks(), Instant::now(), clock::ticks());
                    (after.saturating_sub(before), before / 2 + after / 2, now)
                };
                (0..64).map(pair).min_by_key(|it| it.0).unwrap_or_else(|| unreachable!())
            };
            let first = both();
            std::thread::sleep(Duration::from_millis(20));
            let last = both();
            let ns = last.2.duration_since(first.2).as_nanos() as f64;
            let ticks_per_ns = last.1.saturating_sub(first.1) as f64 / ns;
            let timer = SpinTimer { ticks_per_ns, late_ticks: 0 };
            let median_of = |keep: &dyn Fn(u64)| {
                let timed = |_| {
                    let began = clock::ticks();
                    keep(began);
                    clock::ticks().saturating_sub(began)
                };
                let mut all: Vec<u64> = (0..255).map(timed).collect();
                *all.select_nth_unstable(127).1
            };
            let readings_ticks = median_of(&|_| ());
            let kept_ticks = median_of(&|_| run_constant_operations(timer, 1, LATE_PS));
            let late_ticks = kept_ticks.saturating_sub(timer.ticks(LATE_PS) + readings_ticks);
            SpinTimer { ticks_per_ns, late_ticks }
        })
    }

    /// Converts picoseconds to ticks of the counter.
    fn ticks(self, ps: u64) -> u64 {
        (ps as f64 / 1000.0 * self.ticks_per_ns).round() as u64
    }

    /// Spins until `ps` picoseconds after `began`, a reading of [`clock::ticks`].
    #[inline]
    pub fn wait(self, began: u64, ps: u64) {
        let until = began + self.ticks(ps).saturating_sub(self.late_ticks);
        while clock::ticks() < until {}
    }
}

impl Default for SpinTimer {
    fn default() -> SpinTimer {
        SpinTimer::new()
    }
}

/// Benchmark whose operations take `PS` picoseconds each.
struct Constant<const PS: u64>(SpinTimer);

impl<const PS: u64> Workload for Constant<PS> {
    type Args = ();
    const SPEC: Spec = Spec::new(
        match PS {
            1_000 => "proof/1ns",
            2_000 => "proof/2ns",
            5_000 => "proof/5ns",
            11_000 => "proof/11ns",
            50_000 => "proof/50ns",
            200_000 => "proof/200ns",
            1_000_000 => "proof/1us",
            10_000_000 => "proof/10us",
            100_000_000 => "proof/100us",
            1_000_000_000 => "proof/1ms",
            _ => "proof/10ms",
        },
        "a constant cost, planted",
    )
    .ladder();

    fn setup(_: &(), _: &mut Setup) -> Result<Self, Fault> {
        Ok(Constant(SpinTimer::new()))
    }

    fn sample(&mut self, out: &mut Samples) {
        out.time_batches(|n| run_constant_operations(self.0, n, PS));
    }
}

/// Runs `n` operations that take `ps` picoseconds each.
#[inline]
fn run_constant_operations(timer: SpinTimer, n: u64, ps: u64) {
    let began = clock::ticks();
    for i in 0..n {
        black_box(i);
    }
    timer.wait(began, n.saturating_mul(ps));
}

/// Benchmark in which every 50th operation takes 64 times longer than the others. The others take
/// `OPERATION_NS` nanoseconds.
struct Tail<const OPERATION_NS: u64> {
    timer: SpinTimer,
    /// Number of operations done so far.
    done_count: u64,
}

impl<const OPERATION_NS: u64> Workload for Tail<OPERATION_NS> {
    type Args = ();
    const SPEC: Spec = Spec {
        batched: OPERATION_NS < 1000,
        ..Spec::new(
            if OPERATION_NS < 1000 { "proof/tail-in-batches" } else { "proof/tail-one-by-one" },
            "a cost of which every 50th is 64 times greater, planted",
        )
        .ladder()
    };

    fn setup(_: &(), _: &mut Setup) -> Result<Self, Fault> {
        Ok(Tail { timer: SpinTimer::new(), done_count: 0 })
    }

    fn sample(&mut self, out: &mut Samples) {
        let Tail { timer, done_count } = self;
        out.time_batches(|n| {
            let (began, mut due_ps) = (clock::ticks(), 0);
            for _ in 0..n {
                *done_count += 1;
                due_ps += OPERATION_NS
                    * 1000
                    * if done_count.is_multiple_of(TAIL_EVERY) { TAIL_TIMES } else { 1 };
                timer.wait(began, due_ps);
            }
        });
    }
}

/// Benchmark with two modes: operations take longer in every third round.
struct TwoModes {
    timer: SpinTimer,
    /// Cost of an operation in this round, in picoseconds.
    ps: u64,
}

impl Workload for TwoModes {
    type Args = ();
    const SPEC: Spec =
        Spec::new("proof/two-modes", "a cost that is another one in each third round, planted")
            .ladder();

    fn setup(_: &(), _: &mut Setup) -> Result<Self, Fault> {
        // Relaxed: a counter that publishes no other data. Processes start at different points of
        // the cycle.
        static ROUNDS: OnceLock<AtomicU64> = OnceLock::new();
        let rounds = ROUNDS.get_or_init(|| AtomicU64::new(u64::from(std::process::id())));
        let is_slow = rounds.fetch_add(1, Ordering::Relaxed).is_multiple_of(MODES_CYCLE);
        Ok(TwoModes { timer: SpinTimer::new(), ps: MODES_PS[usize::from(is_slow)] })
    }

    fn sample(&mut self, out: &mut Samples) {
        out.time_batches(|n| run_constant_operations(self.timer, n, self.ps));
    }
}

args! {
/// Start and duration of the planted drift.
pub struct DriftArgs {
    /// Start of the drift, in seconds since the Unix epoch.
    began_s: u64 = 0 (smoke 0, range 0..=2147483647),
    /// Duration of the drift in ms.
    lasts_ms: u64 = 1000 (smoke 1, range 1..=2147483647),
} }

/// Benchmark whose operations become slower during the run.
struct Drift {
    timer: SpinTimer,
    /// Cost of an operation in this round, in picoseconds.
    ps: u64,
}

/// Returns the current time in milliseconds since the Unix epoch.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Workload for Drift {
    type Args = DriftArgs;
    const SPEC: Spec = Spec::new(
        "proof/drift",
        "a cost that grows by half from the first round to the last, planted",
    )
    .ladder();

    fn setup(args: &DriftArgs, _: &mut Setup) -> Result<Self, Fault> {
        let share = now_ms().saturating_sub(args.began_s * 1000) as f64 / args.lasts_ms as f64;
        let ns = DRIFT_NS * (1.0 + DRIFT_BY * share.min(1.0));
        Ok(Drift { timer: SpinTimer::new(), ps: (ns * 1000.0) as u64 })
    }

    fn sample(&mut self, out: &mut Samples) {
        out.time_batches(|n| run_constant_operations(self.timer, n, self.ps));
    }
}

/// Benchmark of requests that are due at fixed times, also while the server stalls. A request is
/// timed from its due time.
struct Stalled(SpinTimer);

impl Workload for Stalled {
    type Args = ();
    const SPEC: Spec = Spec::new(
        "proof/stalled",
        "a request in an open loop whose server stalls for 1 ms in each 10 ms, planted",
    )
    .ladder();

    fn setup(_: &(), _: &mut Setup) -> Result<Self, Fault> {
        Ok(Stalled(SpinTimer::new()))
    }

    fn sample(&mut self, out: &mut Samples) {
        let (timer, start) = (self.0, clock::ticks());
        let ns_of = |ticks: u64| (ticks.saturating_sub(start) as f64 / timer.ticks_per_ns) as u64;
        let mut due_ns = 0;
        while out.is_running() {
            timer.wait(start, due_ns * 1000);
            let begin_ns = service_start_ns(due_ns.max(ns_of(clock::ticks())));
            timer.wait(start, (begin_ns + SERVICE_NS) * 1000);
            let due = start + timer.ticks(due_ns * 1000);
            out.record_ticks(0, clock::ticks().saturating_sub(due));
            due_ns += PERIOD_NS;
        }
    }
}

/// Returns the time at which the server, free at `free_ns`, starts the next request. The server
/// stalls once in each cycle.
fn service_start_ns(free_ns: u64) -> u64 {
    let stalled_ns = (free_ns + CYCLE_NS / 2) % CYCLE_NS;
    if stalled_ns < STALL_NS { free_ns + STALL_NS - stalled_ns } else { free_ns }
}

/// Returns the expected latencies of all requests of one stall cycle, in ascending order.
fn stalled_latencies_ns() -> Vec<f64> {
    let mut free_at = 0;
    let latency = |place: u64| {
        let due = place * PERIOD_NS;
        free_at = service_start_ns(due.max(free_at)) + SERVICE_NS;
        (free_at - due) as f64
    };
    let mut all: Vec<f64> = (0..CYCLE_NS / PERIOD_NS).map(latency).collect();
    all.sort_unstable_by(f64::total_cmp);
    all
}

/// Benchmark whose two contenders take 100 and 150 ns for an operation.
struct SlowedPeer<const OPERATION_NS: u64>(SpinTimer);

impl<const OPERATION_NS: u64> Workload for SlowedPeer<OPERATION_NS> {
    type Args = ();
    const SPEC: Spec = Spec::new(
        "proof/slowed-peer",
        "a constant cost beside one that is half as great again, planted",
    )
    .ladder();

    fn setup(_: &(), _: &mut Setup) -> Result<Self, Fault> {
        Ok(SlowedPeer(SpinTimer::new()))
    }

    fn sample(&mut self, out: &mut Samples) {
        out.time_batches(|n| run_constant_operations(self.0, n, OPERATION_NS * 1000));
    }
}

/// Benchmark whose two contenders run the same loop at two addresses.
struct Layout<const PADDED: bool>;

impl<const PADDED: bool> Workload for Layout<PADDED> {
    type Args = ();
    const SPEC: Spec = Spec::new(
        "proof/layout",
        "a chain of multiplications beside a copy of it at another address",
    )
    .ladder();

    fn setup(_: &(), _: &mut Setup) -> Result<Self, Fault> {
        Ok(Layout)
    }

    fn sample(&mut self, out: &mut Samples) {
        out.time_batches(|n| (0..n).for_each(|_| raw::multiply(LAYOUT_ITERATIONS, PADDED)));
    }
}

/// Returns the arguments of the drift benchmark for a run of this duration that starts now. They
/// are as in [`Plan::set`](crate::Plan::set).
pub fn drift_arguments(duration: Duration) -> Vec<(String, String)> {
    let lasts_ms = duration.as_millis().clamp(1, 1 << 30);
    vec![
        ("began_s".to_string(), (now_ms() / 1000).to_string()),
        ("lasts_ms".to_string(), lasts_ms.to_string()),
    ]
}

/// Returns a proof for each planted cost: the cost, and the value that the records show. The
/// records are of a run of [`BENCHES`]. `null` is the smallest difference that the run can detect
/// on one CPU.
pub fn evaluate_proofs(records: &[Record], null: Option<f64>) -> Vec<Proof> {
    let of = |id: &str| records.iter().find(|it| it.id == id && it.contender == PLANTED.name);
    let mut proofs = Vec::new();
    let ns = |what: String, planted: f64, read: Option<f64>, bound: f64| Proof {
        what,
        unit: "ns".to_string(),
        planted,
        read,
        bound,
        ends: None,
    };
    let ids = BENCHES.iter().map(|it| it.spec().id);
    for (id, planted) in ids.filter_map(|id| Some((id, constant_ns(id)?))) {
        let record = of(id);
        // For a single operation, the cost of reading the clock is subtracted; in batches, the loop
        // is part of the constant.
        let added = record.filter(|it| it.summary.batch <= 1).and_then(|it| it.empty);
        let less = |value: f64| value - added.unwrap_or(0.0);
        let bound = if planted < 2.0 { 0.1 } else { planted * 0.01 };
        proofs.push(Proof {
            ends: record
                .and_then(|it| it.summary.interval_bounds())
                .map(|(low, high)| (less(low), less(high))),
            ..ns(id.to_string(), planted, record.map(|it| less(it.summary.median)), bound)
        });
    }
    for (id, fast) in [("proof/tail-in-batches", 100.0), ("proof/tail-one-by-one", 2_000.0)] {
        let slow = fast * TAIL_TIMES as f64;
        let mean = (fast * (TAIL_EVERY - 1) as f64 + slow) / TAIL_EVERY as f64;
        let record = of(id);
        let quantiles = record.and_then(|it| it.summary.quantiles());
        let resolution =
            record.map_or(0.0, |it| it.summary.resolution_ns + it.empty.unwrap_or(0.0));
        // The mean of all operations includes the time that the hypervisor took in a few rounds.
        let median_of_means = |it: &Record| {
            let means: Vec<f64> = it.rounds.iter().map(|round| round.mean).collect();
            crate::stats::median(&means) - it.empty.unwrap_or(0.0)
        };
        let told_mean = record.map(|it| match it.summary.batch {
            0 | 1 => median_of_means(it),
            _ => it.summary.median,
        });
        let p = |share: &str| format!("{id}, {share}");
        proofs.push(ns(p("mean"), mean, told_mean, mean * 0.02));
        let bound = (fast * 0.05).max(2.0 * resolution);
        proofs.push(ns(p("p50"), fast, quantiles.map(|it| it.p50), bound));
        proofs.push(ns(p("p99"), slow, quantiles.map(|it| it.p99), slow * 0.05));
    }
    let modes = of("proof/two-modes").map_or(&[][..], |it| &it.modes);
    let shares = [1.0 - 1.0 / MODES_CYCLE as f64, 1.0 / MODES_CYCLE as f64];
    for (place, (ps, share)) in MODES_PS.into_iter().zip(shares).enumerate() {
        let (mode, planted) = (modes.get(place), ps as f64 / 1000.0);
        let name = ["faster", "slower"][place];
        let mode_name = format!("proof/two-modes, {name} mode");
        proofs.push(ns(mode_name.clone(), planted, mode.map(|it| it.median), planted * 0.02));
        let read = mode.map(|it| it.share);
        let unit = "share".to_string();
        proofs
            .push(Proof { unit, ..ns(format!("{mode_name}, share of rounds"), share, read, 0.05) });
    }
    let drift = of("proof/drift");
    let is_seen =
        drift.is_some_and(|it| it.warnings.iter().any(|it| it.code == WarningCode::Drift));
    proofs.push(Proof {
        unit: "seen".to_string(),
        ..ns("proof/drift".to_string(), 1.0, drift.map(|_| f64::from(u8::from(is_seen))), 0.0)
    });
    let latencies = stalled_latencies_ns();
    let at = |share: f64| crate::stats::quantile_sorted(&latencies, share);
    let stalled = of("proof/stalled").and_then(|it| it.summary.quantiles());
    for (name, share, read) in
        [("p50", 0.5, stalled.map(|it| it.p50)), ("p99", 0.99, stalled.map(|it| it.p99))]
    {
        let planted = at(share);
        proofs.push(ns(format!("proof/stalled, {name}"), planted, read, planted * 0.05));
    }
    for (id, planted, bound) in [
        ("proof/slowed-peer", 100.0 / 150.0, 0.01 * 100.0 / 150.0),
        ("proof/layout", 1.0, null.unwrap_or(0.0)),
    ] {
        let ratio = of(id).and_then(|it| it.peers.first());
        proofs.push(Proof {
            unit: "ratio".to_string(),
            ends: ratio.and_then(|it| it.interval_bounds()),
            ..ns(id.to_string(), planted, ratio.map(|it| it.ratio), bound)
        });
    }
    proofs
}

/// Returns the constant cost planted in the benchmark `id`, in ns. Returns `None` if the id names
/// no time.
fn constant_ns(id: &str) -> Option<f64> {
    let span: units::TimeSpan = id.strip_prefix("proof/")?.parse().ok()?;
    Some(span.0 as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stall_delays_a_tenth_of_the_requests() {
        let all = stalled_latencies_ns();
        assert_eq!(all.len(), 500);
        assert_eq!(all[250], SERVICE_NS as f64, "most requests were delayed");
        let delayed = all.iter().filter(|it| **it > SERVICE_NS as f64).count();
        assert!(
            (50..60).contains(&delayed),
            "{delayed}: those of 1 ms, and those that wait behind them"
        );
        assert_eq!(all[499], (STALL_NS + SERVICE_NS) as f64);
    }

    #[test]
    fn each_constant_has_its_cost_as_name() {
        let read = BENCHES.iter().filter_map(|it| constant_ns(it.spec().id)).collect::<Vec<_>>();
        assert_eq!(read, [1.0, 2.0, 5.0, 11.0, 50.0, 200.0, 1e3, 1e4, 1e5, 1e6, 1e7]);
    }

    #[test]
    fn run_without_records_passes_no_proof() {
        let proofs = evaluate_proofs(&[], None);
        assert!(proofs.len() > 20 && proofs.iter().all(|it| !it.is_proven()));
    }

    #[test]
    fn figure_within_its_bound_or_interval_passes_the_proof() {
        let proof = |read: f64, ends| Proof {
            what: "a cost".to_string(),
            unit: "ns".to_string(),
            planted: 100.0,
            read: Some(read),
            bound: 1.0,
            ends,
        };
        assert!(proof(100.9, None).is_proven() && !proof(101.1, None).is_proven());
        assert!(proof(103.0, Some((99.0, 107.0))).is_proven());
        assert!(!proof(103.0, Some((99.0, 107.0))).is_within_bound());
        assert!(!proof(103.0, Some((101.0, 107.0))).is_proven());
    }
}
