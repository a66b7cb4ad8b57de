//! Whether to spin, and for how long: pure transitions. Time comes in as an argument.
//!
//! The rule in four sentences. Spin at most as long as a sleep costs, since that is never worse
//! than twice the best choice in hindsight. Of that, use four times what spinning usually takes
//! here. When two spins in a row end in a long sleep, go without for 1, 2, 4 ... waits. When a
//! sleep turns out so short that spinning would have caught it, spin again at once.

/// Spins that succeed move the typical count by one part in `2^TYPICAL_SHIFT`.
const TYPICAL_SHIFT: u32 = 3;
/// A wait spins this many times as long as is typical.
const HEADROOM: u32 = 4;
/// The budget never falls below the maximum divided by this.
const BUDGET_FLOOR_DIVISOR: u32 = 16;
/// How many spins in a row may end in a long sleep before the engine goes quiet.
const MISSES_FREE: u32 = 1;

/// What the next wait should do when nothing is pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// Look at the word up to this many times, then sleep.
    Spin {
        /// How many looks.
        spins_max: u32,
    },
    /// Sleep at once: both sides share a CPU, and spinning would keep the sender from it.
    ParkSharedCpu,
    /// Sleep at once: spinning has not paid lately, or is switched off.
    ParkQuiet,
}

/// How the waits of a receiver ended. Counts since the receiver was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Waits that found a notification pending.
    pub at_once: u64,
    /// Waits that a notification ended while they spun.
    pub by_spinning: u64,
    /// Waits that slept in the kernel and were woken.
    pub by_sleeping: u64,
    /// Waits that ran out of time.
    pub timed_out: u64,
    /// Looks at the word while spinning, in vain or not.
    pub spins: u64,
    /// Waits that did not spin because the last notification had come from the receiver's own CPU,
    /// or because none had come yet and the receiver may run on one CPU only.
    pub unspun_shared_cpu: u64,
}

/// The receiver's memory of how its waits went.
///
/// Public for those who build a receiver of their own on [`StateWord`](crate::StateWord): ask
/// [`plan`](Self::plan) before a wait that found nothing, and tell it the outcome by
/// [`spun`](Self::spun) or [`slept`](Self::slept).
///
/// ```
/// use handover_notify::{Engine, Plan};
/// let mut engine = Engine::new(400, 10_000, 64);
/// assert_eq!(engine.plan(false), Plan::Spin { spins_max: 400 });
/// engine.slept(1_000_000); // in vain, once ...
/// engine.plan(false);
/// engine.slept(1_000_000); // ... and twice
/// assert_eq!(engine.plan(false), Plan::ParkQuiet);
/// assert_eq!(engine.plan(true), Plan::ParkSharedCpu);
/// ```
#[derive(Debug, Clone)]
pub struct Engine {
    /// No wait spins longer. 0: none spins.
    spins_max: u32,
    /// A sleep up to this long would have been caught by spinning.
    sleep_short_ns: u64,
    quiet_waits_max: u32,
    /// What the next spin may use.
    budget_spins: u32,
    /// Running mean of the spins that successful waits took, scaled by `2^TYPICAL_SHIFT`.
    typical_scaled: u32,
    /// Spins in a row that ended in a long sleep.
    misses_in_row: u32,
    /// Waits still to go without spinning.
    quiet_waits_left: u32,
    /// The wait that is under way is spinning, or was.
    spinning: bool,
}

impl Engine {
    /// An engine that spins at most `spins_max` times a wait, takes a sleep of `sleep_short_ns` or
    /// less for one that spinning would have caught, and stays quiet for at most `quiet_waits_max`
    /// waits.
    #[must_use]
    pub fn new(spins_max: u32, sleep_short_ns: u64, quiet_waits_max: u32) -> Self {
        // So that neither HEADROOM nor the scale below can overflow.
        let spins_max = spins_max.min(u32::MAX >> (TYPICAL_SHIFT + 2));
        Self {
            spins_max,
            sleep_short_ns,
            quiet_waits_max: quiet_waits_max.max(1),
            budget_spins: spins_max,
            typical_scaled: (spins_max / HEADROOM) << TYPICAL_SHIFT,
            misses_in_row: 0,
            quiet_waits_left: 0,
            spinning: false,
        }
    }

    /// What a wait that found nothing pending should do.
    pub fn plan(&mut self, shares_cpu: bool) -> Plan {
        self.spinning = false;
        if self.spins_max == 0 {
            return Plan::ParkQuiet;
        }
        if shares_cpu {
            return Plan::ParkSharedCpu;
        }
        if self.quiet_waits_left > 0 {
            self.quiet_waits_left -= 1;
            return Plan::ParkQuiet;
        }
        self.spinning = true;
        Plan::Spin { spins_max: self.budget_spins }
    }

    /// The wait ended after `spins` looks.
    pub fn spun(&mut self, spins: u32) {
        self.misses_in_row = 0;
        // typical += (spins - typical) / 8, on the scaled value.
        let spins = spins.min(self.spins_max);
        self.typical_scaled = self.typical_scaled - (self.typical_scaled >> TYPICAL_SHIFT) + spins;
        let typical = self.typical_scaled >> TYPICAL_SHIFT;
        let floor = self.spins_max.div_ceil(BUDGET_FLOOR_DIVISOR);
        self.budget_spins = (typical * HEADROOM).clamp(floor, self.spins_max);
    }

    /// The wait slept for `slept_ns`, from falling asleep to running again.
    pub fn slept(&mut self, slept_ns: u64) {
        if slept_ns <= self.sleep_short_ns {
            // It was near: spinning as long as allowed would have caught it.
            self.budget_spins = self.spins_max;
            self.misses_in_row = 0;
            self.quiet_waits_left = 0;
        } else if self.spinning {
            self.misses_in_row = self.misses_in_row.saturating_add(1);
            if let Some(doublings) = self.misses_in_row.checked_sub(MISSES_FREE + 1) {
                let quiet = 1u32.checked_shl(doublings).unwrap_or(u32::MAX);
                self.quiet_waits_left = quiet.min(self.quiet_waits_max);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG_NS: u64 = 1_000_000;
    const SHORT_NS: u64 = 5_000;

    fn engine() -> Engine {
        Engine::new(400, 10_000, 64)
    }

    /// Runs `waits` waits that all sleep long; how many of them spun.
    fn long_sleeps(engine: &mut Engine, waits: u32) -> u32 {
        (0..waits)
            .filter(|_| {
                let spun = matches!(engine.plan(false), Plan::Spin { .. });
                engine.slept(LONG_NS);
                spun
            })
            .count() as u32
    }

    #[test]
    fn a_fresh_engine_spins_as_long_as_it_may() {
        assert_eq!(engine().plan(false), Plan::Spin { spins_max: 400 });
    }

    #[test]
    fn sharing_a_cpu_forbids_spinning_whatever_was_learnt() {
        let mut engine = engine();
        for _ in 0..100 {
            engine.plan(false);
            engine.spun(3);
        }
        assert_eq!(engine.plan(true), Plan::ParkSharedCpu);
    }

    #[test]
    fn short_waits_shrink_the_budget_to_its_floor_and_one_short_sleep_restores_it() {
        let mut engine = engine();
        for _ in 0..100 {
            engine.plan(false);
            engine.spun(1);
        }
        assert_eq!(engine.plan(false), Plan::Spin { spins_max: 25 });
        engine.slept(SHORT_NS);
        assert_eq!(engine.plan(false), Plan::Spin { spins_max: 400 });
    }

    #[test]
    fn the_budget_follows_what_is_typical_with_headroom() {
        let mut engine = engine();
        for _ in 0..100 {
            engine.plan(false);
            engine.spun(50);
        }
        let Plan::Spin { spins_max } = engine.plan(false) else { panic!("it should spin") };
        assert!((180..=200).contains(&spins_max), "4 x 50, rounded down: {spins_max}");
    }

    #[test]
    fn one_long_sleep_after_a_burst_is_forgiven() {
        let mut engine = engine();
        engine.plan(false);
        engine.spun(10);
        engine.plan(false);
        engine.slept(LONG_NS);
        assert!(matches!(engine.plan(false), Plan::Spin { .. }));
    }

    #[test]
    fn long_sleeps_make_spins_rarer_down_to_one_probe_in_65_waits() {
        let mut engine = engine();
        // Two at first, then one each after 1, 2, 4 ... 64 quiet waits.
        assert_eq!(long_sleeps(&mut engine, 2 + 1 + 2 + 4 + 8 + 16 + 32 + 64 + 7), 9);
        assert_eq!(long_sleeps(&mut engine, 65 * 10), 10);
    }

    #[test]
    fn a_successful_probe_ends_the_quiet() {
        let mut engine = engine();
        long_sleeps(&mut engine, 1000);
        while engine.plan(false) == Plan::ParkQuiet {
            engine.slept(LONG_NS);
        }
        engine.spun(20);
        assert!(matches!(engine.plan(false), Plan::Spin { .. }));
        engine.slept(LONG_NS);
        assert!(matches!(engine.plan(false), Plan::Spin { .. }), "misses count from zero again");
    }

    #[test]
    fn a_short_sleep_ends_the_quiet_without_a_probe() {
        let mut engine = engine();
        long_sleeps(&mut engine, 1000);
        engine.plan(false);
        engine.slept(SHORT_NS);
        assert!(matches!(engine.plan(false), Plan::Spin { .. }));
    }

    #[test]
    fn a_spin_limit_of_zero_never_spins() {
        let mut engine = Engine::new(0, 10_000, 64);
        for _ in 0..10 {
            assert_eq!(engine.plan(false), Plan::ParkQuiet);
            engine.slept(SHORT_NS);
        }
    }

    #[test]
    fn no_limit_however_large_overflows() {
        let mut engine = Engine::new(u32::MAX, u64::MAX, u32::MAX);
        for _ in 0..100 {
            let Plan::Spin { spins_max } = engine.plan(false) else { panic!("it should spin") };
            engine.spun(spins_max);
            engine.spun(u32::MAX);
        }
        let mut never_short = Engine::new(u32::MAX, 0, u32::MAX);
        for _ in 0..100 {
            never_short.quiet_waits_left = 0;
            never_short.plan(false);
            never_short.slept(u64::MAX);
        }
        assert_eq!(never_short.plan(false), Plan::ParkQuiet);
    }
}
