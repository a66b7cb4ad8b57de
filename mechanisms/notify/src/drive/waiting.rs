//! What both adaptive mechanisms share: the core, and the receiver's way to look, spin and sleep.

use crate::engine::{Engine, Plan, Stats};
use crate::word::SenderCpu;
use crate::{Config, StateWord, raw, stage};
use handover_base::affinity;
use handover_base::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use handover_base::sync::hint;
use rustix::time::{ClockId, clock_gettime};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How many looks [`look_ps`] times at once; some µs.
const LOOKS_TIMED: u32 = 128;
/// Of so many timings the least counts: the others were interrupted.
const TIMINGS_COUNT: u32 = 5;

/// The words that the two sides share, alone on their cache lines.
///
/// All zeroes are a fresh one. It holds no pointers, so it may lie in memory that several processes
/// have mapped, and whatever another process writes there, nothing worse than a notification too
/// many or too few can follow.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Core {
    pub(crate) word: StateWord,
    /// When a sender last found the receiver asleep, in ns on CLOCK_MONOTONIC: so that the receiver
    /// learns what sleeping costs.
    woken_at_ns: AtomicU64,
}

impl Core {
    /// A fresh one: nothing pending, nobody asleep.
    #[must_use]
    pub const fn new() -> Self {
        Self { word: StateWord::new(), woken_at_ns: AtomicU64::new(0) }
    }

    /// Makes a notification pending, and wakes the receiver by `wake` if it sleeps.
    #[inline]
    pub(crate) fn notify(&self, wake: impl FnOnce(&AtomicU32)) {
        let sleeps = self.word.notify(raw::current_cpu());
        stage::notified(self);
        if sleeps {
            stage::waking(self);
            // Relaxed: a measurement; the receiver checks that it belongs to its sleep.
            self.woken_at_ns.store(now_ns(), Ordering::Relaxed);
            wake(self.word.futex());
        }
    }
}

/// CLOCK_MONOTONIC, some 25 ns. The TSC clock is not worth its calibration here: the first sleep
/// would take 10 ms.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64 // neither is ever negative
}

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
    sender_cpu: SenderCpu,
}

/// The moment from which a receiver has been asleep, in ns on CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asleep {
    since_ns: u64,
}

impl Asleep {
    pub(crate) fn now() -> Self {
        Self { since_ns: now_ns() }
    }

    pub(crate) fn since_ns(self) -> u64 {
        self.since_ns
    }
}

impl Waiting {
    /// `config` has been validated.
    pub(crate) fn new(config: Config) -> Self {
        let engine = Engine::new(config, look_ps());
        Self { engine, stats: Stats::default(), sender_cpu: None }
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats { wake_ns: self.engine.wake_ns(), ..self.stats }
    }

    /// Consumes what is pending.
    #[inline]
    pub(crate) fn look(&mut self, core: &Core) -> bool {
        let Some(sender_cpu) = core.word.try_consume() else { return false };
        stage::found(core);
        self.sender_cpu = sender_cpu;
        self.stats.at_once += 1;
        true
    }

    /// Spins, then sleeps by `sleep` (see [`StateWord::sleep_until_notified`]), until notified or
    /// out of time. For waits that found nothing at once.
    #[inline(never)]
    pub(crate) fn wait(
        &mut self,
        core: &Core,
        deadline: Deadline,
        mut sleep: impl FnMut(&AtomicU32, u32) -> bool,
    ) -> bool {
        if self.spin(core, deadline) {
            return true;
        }
        let mut asleep = None;
        let notified = core.word.sleep_until_notified(|word, expected| {
            asleep.get_or_insert_with(Asleep::now);
            stage::parked(core);
            let go_on = sleep(word, expected);
            stage::woken(core);
            go_on
        });
        match (notified, asleep) {
            (Some(sender_cpu), Some(asleep)) => self.woken(core, sender_cpu, asleep),
            (Some(sender_cpu), None) => {
                // It came between the last look and the declaration: there was no sleep.
                stage::found(core);
                self.sender_cpu = sender_cpu;
                self.found_at_once();
            }
            (None, _) => self.ended_otherwise(),
        }
        notified.is_some()
    }

    /// Consumes what ended a sleep; false if nothing has come.
    pub(crate) fn wake(&mut self, core: &Core, asleep: Asleep) -> bool {
        let Some(sender_cpu) = core.word.try_consume() else { return false };
        self.woken(core, sender_cpu, asleep);
        true
    }

    fn woken(&mut self, core: &Core, sender_cpu: SenderCpu, asleep: Asleep) {
        // Relaxed: see Core::notify(). A time that is not within this sleep belongs to another one.
        let woken_at_ns = core.woken_at_ns.load(Ordering::Relaxed);
        self.woken_at(woken_at_ns, sender_cpu, asleep);
    }

    /// A sender ended the sleep, at `woken_at_ns` by its own account.
    pub(crate) fn woken_at(&mut self, woken_at_ns: u64, sender_cpu: SenderCpu, asleep: Asleep) {
        stage::slept(asleep.since_ns);
        self.sender_cpu = sender_cpu;
        self.stats.by_sleeping += 1;
        let now_ns = now_ns();
        if (asleep.since_ns..=now_ns).contains(&woken_at_ns) {
            // On one CPU the receiver waits for its sender to stop running: that says nothing.
            let shares_cpu = self.shares_cpu();
            let wake_ns = (!shares_cpu).then_some(now_ns - woken_at_ns);
            self.engine.woken(woken_at_ns - asleep.since_ns, wake_ns);
        } else {
            self.engine.woken(now_ns.saturating_sub(asleep.since_ns), None);
        }
    }

    /// What ended the wait was there by the time the receiver declared itself asleep.
    pub(crate) fn found_at_once(&mut self) {
        self.stats.at_once += 1;
    }

    /// Something that no sender did ended the sleep.
    pub(crate) fn ended_otherwise(&mut self) {
        self.engine.timed_out();
        self.stats.timed_out += 1;
    }

    /// A notification came while other threads ran.
    pub(crate) fn found_yielding(&mut self) {
        self.stats.by_yielding += 1;
    }

    /// Spins as long as has paid lately, until `look` is true; whether it was. `left` is what
    /// remains until the deadline.
    #[inline(never)]
    pub(crate) fn spin_for(
        &mut self,
        left: Option<Duration>,
        look: &mut impl FnMut() -> bool,
    ) -> bool {
        let spins_max = self.spins_planned(left);
        for spin in 1..=spins_max {
            hint::spin_loop();
            if look() {
                return self.spun(spin);
            }
        }
        self.stats.spins += u64::from(spins_max);
        false
    }

    fn spun(&mut self, spins: u32) -> bool {
        stage::spun(spins);
        self.engine.spun(spins);
        self.stats.by_spinning += 1;
        self.stats.spins += u64::from(spins);
        true
    }

    fn spins_planned(&mut self, left: Option<Duration>) -> u32 {
        match self.engine.plan(self.shares_cpu()) {
            Plan::Spin { spins_max } => spins_max.min(spins_left(left)),
            Plan::ParkQuiet => 0,
            Plan::ParkSharedCpu => {
                self.stats.unspun_shared_cpu += 1;
                0
            }
        }
    }

    /// Spins as long as has paid lately; whether a notification was consumed.
    pub(crate) fn spin(&mut self, core: &Core, deadline: Deadline) -> bool {
        let spins_max = self.spins_planned(time_left(deadline));
        for spin in 1..=spins_max {
            hint::spin_loop();
            if let Some(sender_cpu) = core.word.try_consume() {
                self.sender_cpu = sender_cpu;
                return self.spun(spin);
            }
        }
        self.stats.spins += u64::from(spins_max);
        false
    }

    /// Whether the sender, as far as is known, needs the very CPU that this thread would spin on.
    fn shares_cpu(&self) -> bool {
        match (self.sender_cpu, raw::current_cpu()) {
            (Some(sender_cpu), Some(here)) => sender_cpu == here,
            // Nobody has notified yet: where this thread may run on one CPU only, it is likely
            // that the whole process may (taskset, a container).
            _ => affinity::on_one_cpu(),
        }
    }
}

/// How many looks fit into what is left until the deadline.
fn spins_left(left: Option<Duration>) -> u32 {
    let Some(left) = left else { return u32::MAX };
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
