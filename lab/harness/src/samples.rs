//! The stopwatch that a workload is handed, and what it noted.

use crate::raw::Control;
use handover_base::sync::shared::Ordering;
use handover_base::{clock, usage};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Duration;

/// Samples kept of one part in one round; when they are full, every second one is dropped and from
/// then on every second one kept, so that the whole round stays represented in 64 KiB.
const SAMPLES_MAX: usize = 8192;

/// A batch lasts at least this long, so that reading the clock is below 1 % of it.
const BATCH_MIN_NS: u64 = 10_000;

/// How a round is to be timed; the same for every round of a benchmark.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Timing {
    /// How long a measured party goes on.
    pub round_ns: u64,
    /// Operations in a batch; 0: find out.
    pub batch: u64,
    /// Batches at most; 0: until the time is up. Smoke runs set it.
    pub batches_max: u32,
    /// Pause before each hand-over.
    pub idle_gap_ns: u64,
}

/// What one party noted in one round.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Notes {
    pub parts: Vec<PartNotes>,
    pub counters: BTreeMap<String, f64>,
    pub bytes_per_op: u64,
    pub wall_ns: u64,
    pub user_ns: u64,
    pub system_ns: u64,
    pub switches_voluntary: u64,
    pub switches_involuntary: u64,
    pub hardware: Option<[u64; 3]>,
}

/// The samples of one part: ticks for `batch` operations each.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PartNotes {
    pub batch: u64,
    pub ticks: Vec<u64>,
    pub ticks_total: u64,
    pub ops_total: u64,
    /// Timed by the workload one by one, between other things: its rate is by the wall clock.
    pub singles: bool,
    stride: u32,
    skipped: u32,
}

impl PartNotes {
    fn new() -> PartNotes {
        PartNotes {
            batch: 1,
            ticks: Vec::with_capacity(SAMPLES_MAX),
            ticks_total: 0,
            ops_total: 0,
            singles: false,
            stride: 1,
            skipped: 0,
        }
    }

    #[inline]
    fn note(&mut self, ticks: u64, ops: u64) {
        self.ticks_total += ticks;
        self.ops_total += ops;
        self.skipped += 1;
        if self.skipped < self.stride {
            return;
        }
        self.skipped = 0;
        if self.ticks.len() == SAMPLES_MAX {
            self.thin();
        }
        self.ticks.push(ticks);
    }

    #[cold]
    fn thin(&mut self) {
        let mut keep = false;
        self.ticks.retain(|_| {
            keep = !keep;
            keep
        });
        self.stride = self.stride.saturating_mul(2);
    }
}

/// The stopwatch of one party in one round.
#[derive(Debug)]
pub struct Samples {
    timing: Timing,
    control: Option<Control>,
    measured: bool,
    parts: Vec<PartNotes>,
    counters: BTreeMap<String, f64>,
    bytes_per_op: u64,
    began_ticks: u64,
    deadline_ticks: u64,
    rounds_left: u32,
    usage_began: usage::Usage,
}

impl Samples {
    pub(crate) fn new(
        timing: Timing,
        parts_count: usize,
        measured: bool,
        control: Option<Control>,
    ) -> Samples {
        Samples {
            timing,
            control,
            measured,
            parts: (0..parts_count.max(1)).map(|_| PartNotes::new()).collect(),
            counters: BTreeMap::new(),
            bytes_per_op: 0,
            began_ticks: 0,
            deadline_ticks: 0,
            rounds_left: 0,
            usage_began: usage::Usage::default(),
        }
    }

    pub(crate) fn control(&self) -> Option<Control> {
        self.control.clone()
    }

    pub(crate) fn begin(&mut self) {
        self.usage_began = usage::thread();
        self.rounds_left = if self.timing.batches_max == 0 {
            u32::MAX
        } else {
            // A smoke run still sees the steady state of a hand-over: a few hundred of them.
            self.timing.batches_max.saturating_mul(100)
        };
        self.began_ticks = clock::ticks();
        self.deadline_ticks = self.began_ticks + clock::ticks_from_ns(self.timing.round_ns);
    }

    pub(crate) fn end(self) -> Notes {
        let wall_ns = clock::ns(clock::ticks().saturating_sub(self.began_ticks)).max(1);
        let used = usage::thread() - self.usage_began;
        Notes {
            parts: self.parts,
            counters: self.counters,
            bytes_per_op: self.bytes_per_op,
            wall_ns,
            user_ns: used.user_ns,
            system_ns: used.system_ns,
            switches_voluntary: used.switches_voluntary,
            switches_involuntary: used.switches_involuntary,
            hardware: None,
        }
    }

    /// Times `operations(n)`, which must do the operation `n` times, again and again until the round's
    /// time is up. `n` is the harness's: large enough that reading the clock is below 1 % of a batch,
    /// or 1 where every contender's operation is longer than twenty readings of the clock.
    #[inline]
    pub fn batches(&mut self, operations: impl FnMut(u64)) {
        self.batches_of(0, operations);
    }

    /// The same, for the part at `part` in the spec's list.
    ///
    /// # Panics
    /// If the spec has no such part.
    #[inline]
    pub fn batches_of(&mut self, part: usize, mut operations: impl FnMut(u64)) {
        let batch = if self.timing.idle_gap_ns > 0 {
            1
        } else if self.timing.batches_max > 0 {
            self.timing.batch.max(2)
        } else if self.timing.batch > 0 {
            // The first batch of a fresh rig meets cold caches; it is done and not noted.
            operations(self.timing.batch);
            self.timing.batch
        } else {
            Self::find_batch(&mut operations)
        };
        self.parts[part].batch = batch;
        let mut left = self.timing.batches_max;
        loop {
            self.gap();
            let began = clock::ticks();
            operations(batch);
            let ended = clock::ticks();
            self.parts[part].note(ended.saturating_sub(began), batch);
            if self.timing.batches_max > 0 {
                left -= 1;
                if left == 0 {
                    break;
                }
            }
            if ended >= self.deadline_ticks {
                break;
            }
        }
    }

    /// Doubles the batch until it lasts long enough.
    fn find_batch(operations: &mut impl FnMut(u64)) -> u64 {
        let enough_ticks = clock::ticks_from_ns(BATCH_MIN_NS);
        let mut batch = 1;
        loop {
            let began = clock::ticks();
            operations(batch);
            let took = clock::ticks().saturating_sub(began);
            if took >= enough_ticks || batch >= 1 << 30 {
                return batch;
            }
            // Straight to the goal once there is something to reckon with, doubling until then.
            let scaled = if took > enough_ticks / 50 { batch * enough_ticks / took + 1 } else { 0 };
            batch = scaled.max(batch * 2);
        }
    }

    /// Whether to go on: for workloads that time single operations themselves, and for parties that
    /// serve. A measured party is told to end when its time is up; a serving one when every measured
    /// party has ended.
    ///
    /// Cost: one reading of the clock for a measured party, one load of a shared word for a serving
    /// one.
    #[inline]
    pub fn running(&mut self) -> bool {
        if !self.measured {
            return !self.stopped();
        }
        self.gap();
        if self.timing.batches_max > 0 {
            if self.rounds_left == 0 {
                return false;
            }
            self.rounds_left -= 1;
        }
        clock::ticks() < self.deadline_ticks
    }

    /// Whether every measured party has ended. Cost: one load of a shared word.
    #[inline]
    pub fn stopped(&self) -> bool {
        // Acquire: pairs with the Release in Control::finish; what the measured parties wrote before
        // they ended is seen.
        self.control.as_ref().is_some_and(|it| it.words().stopped.load(Ordering::Acquire) != 0)
    }

    /// Notes one operation of the part at `part` that the workload timed itself, in clock ticks.
    ///
    /// # Panics
    /// If the spec has no such part.
    #[inline]
    pub fn note(&mut self, part: usize, ticks: u64) {
        let notes = &mut self.parts[part];
        notes.singles = true;
        notes.note(ticks, 1);
    }

    /// Notes a batch of `ops` operations of the part at `part` that the workload timed itself. Every
    /// batch of a part must have the same length.
    ///
    /// # Panics
    /// If the spec has no such part.
    pub fn note_batch(&mut self, part: usize, ticks: u64, ops: u64) {
        let notes = &mut self.parts[part];
        notes.batch = ops.max(1);
        notes.note(ticks, ops);
    }

    /// Adds to a count that goes into the record under `name`, divided by the operations.
    pub fn tally(&mut self, name: &str, count: f64) {
        *self.counters.entry(name.to_string()).or_default() += count;
    }

    /// Says how many bytes one operation moves, for the rate in bytes.
    pub fn bytes_per_op(&mut self, bytes: u64) {
        self.bytes_per_op = bytes;
    }

    #[inline]
    fn gap(&self) {
        if self.timing.idle_gap_ns > 0 {
            std::thread::sleep(Duration::from_nanos(self.timing.idle_gap_ns));
        }
    }
}

/// What the empty operation costs: alone between two readings of the clock, and in a batch.
pub(crate) fn empty_ns() -> (f64, f64) {
    let timing = Timing { round_ns: 300_000, batch: 0, batches_max: 0, idle_gap_ns: 0 };
    let mut single = Samples::new(timing, 1, true, None);
    single.begin();
    for _ in 0..2000 {
        let began = clock::ticks();
        single.note(0, clock::ticks().saturating_sub(began));
    }
    let mut batched = Samples::new(timing, 1, true, None);
    batched.begin();
    batched.batches(|n| {
        for i in 0..n {
            black_box(i);
        }
    });
    let median = |samples: Samples| {
        let part = &samples.end().parts[0];
        let mut ticks = part.ticks.clone();
        ticks.sort_unstable();
        let middle = ticks.get(ticks.len() / 2).copied().unwrap_or(0);
        clock::ps(middle) as f64 / 1000.0 / part.batch as f64
    };
    (median(single), median(batched))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_the_whole_round_represented() {
        let mut part = PartNotes::new();
        for tick in 0..100_000u64 {
            part.note(tick, 1);
        }
        assert!(part.ticks.len() <= SAMPLES_MAX);
        assert_eq!(part.ops_total, 100_000);
        assert!(part.ticks[0] < 100 && *part.ticks.last().unwrap() > 99_000);
        let middle = part.ticks[part.ticks.len() / 2] as f64;
        assert!((40_000.0..60_000.0).contains(&middle), "{middle}");
    }

    #[test]
    fn a_batch_grows_until_the_clock_is_negligible() {
        let timing = Timing { round_ns: 2_000_000, batch: 0, batches_max: 0, idle_gap_ns: 0 };
        let mut samples = Samples::new(timing, 1, true, None);
        samples.begin();
        let mut done = 0u64;
        samples.batches(|n| {
            for i in 0..n {
                black_box(i);
            }
            done += n;
        });
        let notes = samples.end();
        assert!(notes.parts[0].batch > 1000, "{}", notes.parts[0].batch);
        assert!(notes.parts[0].ops_total <= done);
    }

    #[test]
    fn a_smoke_run_ends_after_its_batches() {
        let timing = Timing { round_ns: u64::MAX / 4, batch: 0, batches_max: 3, idle_gap_ns: 0 };
        let mut samples = Samples::new(timing, 1, true, None);
        samples.begin();
        let mut calls = 0;
        samples.batches(|_| calls += 1);
        assert_eq!(calls, 3);
        let mut turns = 0;
        while samples.running() {
            turns += 1;
        }
        assert_eq!(turns, 300);
    }
}
