//! The receiver's side of both adaptive mechanisms: look, spin, sleep.

use crate::engine::{Engine, Plan, Stats};
use crate::word::Sender;
use crate::{Config, StateWord, raw};
use handover_base::affinity;
use handover_base::sync::atomic::AtomicU32;
use handover_base::sync::hint;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How many looks [`look_ps`] times at once; some µs.
const LOOKS_TIMED: u32 = 128;
/// Of so many timings the least counts: the others were interrupted.
const TIMINGS_COUNT: u32 = 5;

/// When a wait runs out of time; `None` never.
pub(crate) type Deadline = Option<Instant>;

/// A deadline so far away that the clock cannot hold it is none.
pub(crate) fn deadline(timeout: Duration) -> Deadline {
    Instant::now().checked_add(timeout)
}

/// What is left until `deadline`: `None` for ever, zero when it has passed.
pub(crate) fn time_left(deadline: Deadline) -> Option<Duration> {
    deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
}

/// What a receiver knows beside the word.
#[derive(Debug)]
pub(crate) struct Waiting {
    engine: Engine,
    stats: Stats,
    /// Where the last notification came from, if any came and its sender knew.
    sender: Sender,
}

impl Waiting {
    /// `config` has been validated.
    pub(crate) fn new(config: Config) -> Self {
        let spin_ps_max = u64::from(config.spin_ns_max) * 1000;
        let spins_max = if spin_ps_max == 0 { 0 } else { (spin_ps_max / look_ps()).max(1) };
        let engine = Engine::new(
            u32::try_from(spins_max).unwrap_or(u32::MAX),
            config.spin_ns_max.into(),
            config.quiet_waits_max,
        );
        Self { engine, stats: Stats::default(), sender: None }
    }

    pub(crate) fn stats(&self) -> Stats {
        self.stats
    }

    /// Consumes what is pending.
    #[inline]
    pub(crate) fn look(&mut self, word: &StateWord) -> bool {
        let Some(sender) = word.try_consume() else { return false };
        self.sender = sender;
        self.stats.at_once += 1;
        true
    }

    /// Spins, then sleeps by `sleep` (see [`StateWord::sleep_until_notified`]), until notified or
    /// out of time. For waits that found nothing at once.
    #[inline(never)]
    pub(crate) fn wait(
        &mut self,
        word: &StateWord,
        deadline: Deadline,
        sleep: impl FnMut(&AtomicU32, u32) -> bool,
    ) -> bool {
        if self.spin(word, deadline) {
            return true;
        }
        let asleep = Instant::now();
        let notified = word.sleep_until_notified(sleep);
        match notified {
            Some(sender) => self.woken(sender, asleep),
            None => {
                // Nothing came: whatever the time-out was, spinning would not have caught it.
                self.engine.slept(u64::MAX);
                self.stats.timed_out += 1;
            }
        }
        notified.is_some()
    }

    /// Consumes what ended a sleep that began at `asleep`; false if nothing has come.
    pub(crate) fn wake(&mut self, word: &StateWord, asleep: Instant) -> bool {
        let Some(sender) = word.try_consume() else { return false };
        self.woken(sender, asleep);
        true
    }

    fn woken(&mut self, sender: Sender, asleep: Instant) {
        self.engine.slept(u64::try_from(asleep.elapsed().as_nanos()).unwrap_or(u64::MAX));
        self.sender = sender;
        self.stats.by_sleeping += 1;
    }

    /// Spins as long as has paid lately; whether a notification was consumed.
    pub(crate) fn spin(&mut self, word: &StateWord, deadline: Deadline) -> bool {
        let spins_max = match self.engine.plan(self.shares_cpu()) {
            Plan::Spin { spins_max } => spins_max.min(spins_left(deadline)),
            Plan::ParkQuiet => 0,
            Plan::ParkSharedCpu => {
                self.stats.unspun_shared_cpu += 1;
                0
            }
        };
        for spin in 1..=spins_max {
            hint::spin_loop();
            if let Some(sender) = word.try_consume() {
                self.engine.spun(spin);
                self.sender = sender;
                self.stats.by_spinning += 1;
                self.stats.spins += u64::from(spin);
                return true;
            }
        }
        self.stats.spins += u64::from(spins_max);
        false
    }

    /// Whether the sender, as far as is known, needs the very CPU that this thread would spin on.
    fn shares_cpu(&self) -> bool {
        match (self.sender, raw::current_cpu()) {
            (Some(sender), Some(here)) => sender == here,
            // Nobody has notified yet: where this thread may run on one CPU only, it is likely
            // that the whole process may (taskset, a container).
            _ => affinity::on_one_cpu(),
        }
    }
}

/// How many looks fit before `deadline`.
fn spins_left(deadline: Deadline) -> u32 {
    let Some(left) = time_left(deadline) else { return u32::MAX };
    u32::try_from(left.as_nanos() * 1000 / u128::from(look_ps())).unwrap_or(u32::MAX)
}

/// What one look in a spin costs on this machine, in ps: measured once, some tens of µs.
///
/// The pause instruction takes 10 to 60 ns, depending on the processor; nothing else tells.
fn look_ps() -> u64 {
    static LOOK_PS: OnceLock<u64> = OnceLock::new();
    *LOOK_PS.get_or_init(|| {
        let word = StateWord::new();
        let timings = (0..TIMINGS_COUNT).map(|_| {
            let start = Instant::now();
            for _ in 0..LOOKS_TIMED {
                hint::spin_loop();
                std::hint::black_box(&word).try_consume();
            }
            start.elapsed().as_nanos() as u64 * 1000 / u64::from(LOOKS_TIMED)
        });
        timings.min().unwrap_or(0).max(1)
    })
}
