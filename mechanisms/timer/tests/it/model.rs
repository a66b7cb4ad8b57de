//! The wheel compared with a sorted map, over days of simulated time.

use handover_timer::{Config, ExpiredTimer, TimerId, Wheel};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

const HOUR_NS: u64 = 3_600_000_000_000;
const DAY_NS: u64 = 24 * HOUR_NS;
/// Maximum number of timers, few enough that starts are refused now and then.
const TIMERS_MAX: u32 = 300;

/// Operation on the wheel, or passage of time.
#[derive(Clone, Debug)]
enum Step {
    Start {
        in_ns: u64,
    },
    StartOverdue {
        ago_ns: u64,
    },
    StartPeriodic {
        in_ns: u64,
        period_ns: u64,
    },
    Cancel {
        pick: usize,
    },
    CancelNewest,
    Reschedule {
        pick: usize,
        in_ns: u64,
    },
    /// Time advances by `ns`, and at most `expired_max` timers are popped.
    Pass {
        ns: u64,
        expired_max: usize,
    },
    /// Time advances to the next deadline, exactly.
    PassToNext,
    /// Starts `count` timers, `apart_ns` apart.
    Burst {
        in_ns: u64,
        apart_ns: u64,
        count: usize,
    },
}

/// Durations from zero to hours, all magnitudes with the same probability.
fn any_span_ns() -> impl Strategy<Value = u64> {
    (0_u32..44, any::<u64>()).prop_map(|(bits, random)| random & ((1 << bits) - 1))
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => any_span_ns().prop_map(|in_ns| Step::Start { in_ns }),
        1 => any_span_ns().prop_map(|ago_ns| Step::StartOverdue { ago_ns }),
        2 => (any_span_ns(), any_span_ns()).prop_map(|(in_ns, period_ns)| {
            Step::StartPeriodic { in_ns, period_ns: period_ns.max(1) }
        }),
        6 => any::<usize>().prop_map(|pick| Step::Cancel { pick }),
        2 => Just(Step::CancelNewest),
        3 => (any::<usize>(), any_span_ns())
            .prop_map(|(pick, in_ns)| Step::Reschedule { pick, in_ns }),
        4 => (any_span_ns(), 0_usize..40)
            .prop_map(|(ns, expired_max)| Step::Pass { ns, expired_max }),
        3 => Just(Step::PassToNext),
        1 => (any_span_ns(), 0_u64..3000, 0_usize..150)
            .prop_map(|(in_ns, apart_ns, count)| Step::Burst { in_ns, apart_ns, count }),
    ]
}

/// Reference model of the wheel's promises.
#[derive(Default)]
struct Model {
    /// Deadline and period of each running timer in ns, by key.
    timers: BTreeMap<u64, (u64, Option<u64>)>,
    /// Deadline and key of each running timer.
    order: BTreeSet<(u64, u64)>,
}

impl Model {
    fn start(&mut self, key: u64, deadline_ns: u64, period_ns: Option<u64>) {
        self.timers.insert(key, (deadline_ns, period_ns));
        self.order.insert((deadline_ns, key));
    }

    fn end(&mut self, key: u64) -> Option<(u64, Option<u64>)> {
        let (deadline_ns, period_ns) = self.timers.remove(&key)?;
        assert!(self.order.remove(&(deadline_ns, key)));
        Some((deadline_ns, period_ns))
    }

    fn next_deadline_ns(&self) -> Option<u64> {
        Some(self.order.first()?.0)
    }
}

/// Wheel and reference model, to which the same steps are applied and whose results are compared.
struct Pair {
    wheel: Wheel<u64>,
    model: Model,
    /// Handles of all timers that were ever started; a timer's key is its index.
    ids: Vec<TimerId>,
    now_ns: u64,
    /// `true` if the next deadline is compared after every step. This is cheap, but also opens
    /// slots ahead of time, and the wheel must work in both cases.
    compares_each_step: bool,
    timers_max: u32,
}

impl Pair {
    fn new(now_ns: u64, compares_each_step: bool, timers_max: u32) -> Self {
        let config = Config::default().timers_max(timers_max);
        let wheel = Wheel::new(config, now_ns).expect("a valid configuration");
        Self {
            wheel,
            model: Model::default(),
            ids: Vec::new(),
            now_ns,
            compares_each_step,
            timers_max,
        }
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Start { in_ns } => self.start(self.now_ns.saturating_add(in_ns), None),
            Step::StartOverdue { ago_ns } => self.start(self.now_ns.saturating_sub(ago_ns), None),
            Step::StartPeriodic { in_ns, period_ns } => {
                self.start(self.now_ns.saturating_add(in_ns), Some(period_ns));
            }
            Step::Cancel { pick } if !self.ids.is_empty() => {
                self.cancel((pick % self.ids.len()) as u64);
            }
            Step::CancelNewest if !self.ids.is_empty() => self.cancel(self.ids.len() as u64 - 1),
            Step::Cancel { .. } | Step::CancelNewest => {}
            Step::Reschedule { pick, in_ns } => {
                if let Some(pick) = pick.checked_rem(self.ids.len()) {
                    self.reschedule(pick as u64, self.now_ns.saturating_add(in_ns));
                }
            }
            Step::Pass { ns, expired_max } => {
                self.now_ns = self.now_ns.saturating_add(ns);
                self.pop(expired_max);
            }
            Step::PassToNext => {
                let next_ns = self.wheel.next_deadline_ns();
                assert_eq!(next_ns, self.model.next_deadline_ns());
                if let Some(next_ns) = next_ns.filter(|&next_ns| next_ns > self.now_ns) {
                    self.now_ns = next_ns - 1;
                    assert_eq!(self.wheel.pop_due(self.now_ns), None, "early");
                    self.now_ns = next_ns;
                    assert!(self.pop(1) == 1, "nothing due at its deadline");
                }
            }
            Step::Burst { in_ns, apart_ns, count } => {
                let first_ns = self.now_ns.saturating_add(in_ns);
                for i in 0..count as u64 {
                    self.start(first_ns.saturating_add(i * apart_ns), None);
                }
            }
        }
        assert_eq!(self.wheel.len(), self.model.timers.len());
        if self.compares_each_step {
            assert_eq!(self.wheel.next_deadline_ns(), self.model.next_deadline_ns());
        }
    }

    fn start(&mut self, deadline_ns: u64, period_ns: Option<u64>) {
        let key = self.ids.len() as u64;
        let started = match period_ns.and_then(NonZeroU64::new) {
            Some(period_ns) => self.wheel.start_periodic(deadline_ns, period_ns, key),
            None => self.wheel.start(deadline_ns, key),
        };
        match started {
            Ok(id) => {
                self.ids.push(id);
                self.model.start(key, deadline_ns, period_ns);
                assert_eq!(self.wheel.deadline_ns(id), Some(deadline_ns));
            }
            Err(full) => {
                assert_eq!(full.0, key, "refused payload is returned");
                assert_eq!(
                    self.wheel.len(),
                    self.timers_max as usize,
                    "refused before it was full"
                );
            }
        }
    }

    fn cancel(&mut self, key: u64) {
        let ended = self.model.end(key);
        assert_eq!(self.wheel.cancel(self.ids[key as usize]), ended.map(|_| key));
    }

    fn reschedule(&mut self, key: u64, deadline_ns: u64) {
        let id = self.ids[key as usize];
        let ended = self.model.end(key);
        assert_eq!(self.wheel.reschedule(id, deadline_ns), ended.is_some());
        assert_eq!(self.wheel.deadline_ns(id), ended.map(|_| deadline_ns));
        if let Some((_, period_ns)) = ended {
            self.model.start(key, deadline_ns, period_ns);
        }
    }

    fn pop(&mut self, expired_max: usize) -> usize {
        for count in 0..expired_max {
            let Some(expired) = self.wheel.pop_due(self.now_ns) else {
                let next_ns = self.model.next_deadline_ns();
                assert!(
                    next_ns.is_none_or(|next_ns| next_ns > self.now_ns),
                    "a due timer was not returned"
                );
                return count;
            };
            let ExpiredTimer { id, deadline_ns, missed_count, payload: key } = expired;
            assert!(deadline_ns <= self.now_ns, "early");
            assert_eq!(Some(deadline_ns), self.model.next_deadline_ns(), "out of order");
            assert_eq!(self.ids[key as usize], id);
            let (modelled_ns, period_ns) = self.model.end(key).expect("expired after its end");
            assert_eq!(deadline_ns, modelled_ns);
            let missed = period_ns.map_or(0, |period_ns| (self.now_ns - deadline_ns) / period_ns);
            assert_eq!(missed_count, missed);
            if let Some(period_ns) = period_ns {
                let last_ns = deadline_ns + missed * period_ns;
                if let Some(next_ns) = last_ns.checked_add(period_ns) {
                    self.model.start(key, next_ns, Some(period_ns));
                }
            }
        }
        expired_max
    }

    /// Cancels the periodic timers, and lets the others expire.
    fn finish(mut self) {
        let periodic: Vec<u64> =
            self.model.timers.iter().filter(|(_, (_, p))| p.is_some()).map(|(&k, _)| k).collect();
        periodic.into_iter().for_each(|key| self.cancel(key));
        while let Some(next_ns) = self.model.next_deadline_ns() {
            self.now_ns = self.now_ns.max(next_ns);
            self.pop(usize::MAX);
        }
        assert!(self.wheel.is_empty());
        assert_eq!(self.wheel.next_deadline_ns(), None);
        assert_eq!(self.wheel.pop_due(u64::MAX), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn wheel_matches_sorted_map_over_a_day(
        steps in vec(any_step(), 1..300),
        start_ns in prop_oneof![Just(0), Just(DAY_NS), any::<u64>(), Just(u64::MAX - HOUR_NS)],
        compares_each_step in any::<bool>(),
    ) {
        let mut pair = Pair::new(start_ns, compares_each_step, TIMERS_MAX);
        let end_ns = start_ns.saturating_add(DAY_NS);
        for step in &steps {
            pair.take(step);
        }
        // The time that the steps left of the day passes too.
        let left_ns = end_ns.saturating_sub(pair.now_ns);
        for part in 1..=24 {
            pair.take(&Step::Pass { ns: left_ns / 24 + u64::from(part == 24) * (left_ns % 24), expired_max: 100 });
        }
        prop_assert!(pair.now_ns >= end_ns);
        pair.finish();
    }

    #[test]
    fn any_64_bit_deadline_expires_in_order(
        deadlines_ns in vec(any::<u64>(), 0..200),
        now_ns in any::<u64>(),
        compares_each_step in any::<bool>(),
    ) {
        let mut pair = Pair::new(now_ns, compares_each_step, TIMERS_MAX);
        for deadline_ns in deadlines_ns {
            pair.start(deadline_ns, None);
            pair.take(&Step::Pass { ns: 0, expired_max: 1 });
        }
        pair.finish();
    }

}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Enough timers for slots to be spread, and enough cancelled ones for stale entries to be
    /// removed.
    #[test]
    fn thousands_of_timers_expire_in_order(
        horizon_bits in 8_u32..50,
        random in vec(any::<u64>(), 3_000),
        start_ns in any::<u32>(),
        rounds in 1_usize..12,
        compares_each_step in any::<bool>(),
    ) {
        let mut pair = Pair::new(u64::from(start_ns), compares_each_step, 2_500);
        let span_ns = |random: u64| random & ((1 << horizon_bits) - 1);
        for round in 0..rounds {
            for (at, &random) in random.iter().enumerate() {
                let pick = random.rotate_left(round as u32 * 7) as usize;
                match (at + round) % 8 {
                    0..=3 => pair.take(&Step::Start { in_ns: span_ns(random.rotate_right(round as u32)) }),
                    4 | 5 => pair.take(&Step::Cancel { pick: pair.ids.len() - 1 - pick % pair.ids.len().min(2_500) }),
                    6 => pair.take(&Step::Reschedule { pick, in_ns: span_ns(random) }),
                    _ => pair.take(&Step::Pass { ns: span_ns(random) >> 10, expired_max: 3 }),
                }
            }
            pair.take(&Step::Pass { ns: span_ns(random[round]) >> 3, expired_max: 2_000 });
        }
        pair.finish();
    }
}
