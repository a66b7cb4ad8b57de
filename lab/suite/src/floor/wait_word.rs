//! A word handed to another participant that polls it, sleeps on it, or polls and then sleeps: the
//! barest form of each way of waiting.

use super::relay::RelayMedium;
use crate::channels::PollPause;
use handover_base::futex::{self, Scope};
use handover_base::sync::shared::{AtomicU32, Ordering, fence};
use handover_harness::{Fault, Region, Setup};
use handover_record::{Spec, Wait};
use std::time::Duration;
use zerocopy::FromZeros;

/// Number of polls before a participant of kind `SpinThenSleep` goes to sleep. They take tens of
/// microseconds, far longer than any answer.
const POLLS_MAX: u32 = 1 << 12;
/// Maximum duration of a sleep, so that a missed wake-up does no harm. Only a full fence in each
/// hand-over would prevent missed wake-ups, and a floor does without one.
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// A word of memory, and a flag that is set while its reader sleeps.
#[derive(FromZeros)]
#[repr(C)]
pub(crate) struct WaitWord {
    value: AtomicU32,
    is_asleep: AtomicU32,
}

/// One or two [`WaitWord`]s, for one direction or both, alone on a pair of cache lines.
///
/// A word there and one back on the *same* line take as long as one word that both sides write, and
/// less than half as long as on two lines: 110 ns instead of 250 to 290 (Intel Sapphire Rapids,
/// 2026-11).
#[derive(FromZeros)]
#[repr(C, align(128))]
pub(crate) struct WaitLine<const N: usize>(pub(crate) [WaitWord; N]);

/// Waiting behaviour of the participants at a [`WaitWord`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitMode {
    waits: Wait,
    scope: Scope,
    /// Pause between two polls. If it yields the CPU, a participant that may sleep does not poll
    /// first.
    pause: PollPause,
}

impl WaitMode {
    /// Waiting behaviour of threads with a CPU each, which poll and then sleep.
    pub(crate) const ADAPTIVE: WaitMode = WaitMode {
        waits: Wait::SpinThenSleep,
        scope: Scope::Private,
        pause: PollPause { should_yield: false },
    };

    /// Creates the behaviour of a round with this setup.
    pub(crate) fn new(waits: Wait, setup: &Setup) -> WaitMode {
        let scope = if setup.uses_processes() { Scope::Shared } else { Scope::Private };
        WaitMode { waits, scope, pause: PollPause::new(setup) }
    }

    /// Returns the same behaviour with yields between polls, or without.
    pub(crate) fn with_yields(self, should_yield: bool) -> WaitMode {
        WaitMode { pause: PollPause { should_yield }, ..self }
    }

    #[inline(always)]
    pub(crate) fn pause(self) -> PollPause {
        self.pause
    }

    /// Returns the maximum number of polls before a sleep.
    fn polls_max(self) -> u32 {
        match self.waits {
            Wait::SpinThenSleep if !self.pause.should_yield => POLLS_MAX,
            _ => 0,
        }
    }
}

impl WaitWord {
    /// Returns the value that the other participant wrote last.
    #[inline(always)]
    pub(crate) fn value(&self) -> u32 {
        // Acquire: pairs with the Release in publish().
        self.value.load(Ordering::Acquire)
    }

    /// Stores a value, and wakes the reader if it sleeps.
    #[inline(always)]
    pub(crate) fn publish(&self, value: u32, mode: WaitMode) {
        // Release: publishes what was done before to the Acquire in value().
        self.value.store(value, Ordering::Release);
        if mode.waits == Wait::Spin {
            return;
        }
        if mode.waits == Wait::Sleep {
            // Orders the store before the load below; pairs with the kernel's comparison in
            // sleep().
            fence(Ordering::SeqCst);
        }
        // Relaxed: ordered by the fence above; without the fence, a missed sleeper wakes by itself
        // after SLEEP_MAX.
        if self.is_asleep.load(Ordering::Relaxed) != 0 {
            if mode.waits == Wait::SpinThenSleep {
                // One wake-up is enough. This store may overwrite the flag of the reader's next
                // sleep, which then ends after SLEEP_MAX; only the reader clears the flag of an
                // unbounded sleep.
                self.is_asleep.store(0, Ordering::Relaxed);
            }
            futex::wake(&self.value, 1, mode.scope);
        }
    }

    /// Sets the value to 0 after it was read.
    #[inline(always)]
    pub(crate) fn clear(&self) {
        // Relaxed: the store publishes no other data.
        self.value.store(0, Ordering::Relaxed);
    }

    /// Waits until `is_next(value)` returns `true`; returns the value, and `true` if the reader
    /// slept.
    #[inline(always)]
    pub(crate) fn wait(&self, mode: WaitMode, is_next: impl Fn(u32) -> bool) -> (u32, bool) {
        let (mut polls, mut has_slept) = (0, false);
        loop {
            let value = self.value();
            if is_next(value) {
                return (value, has_slept);
            }
            if mode.waits == Wait::Spin {
                mode.pause.pause_once();
            } else if polls < mode.polls_max() {
                polls += 1;
                mode.pause.pause_once();
            } else {
                self.sleep(value, mode);
                has_slept = true;
            }
        }
    }

    /// Counts an unsuccessful poll; sleeps if their number exceeds the maximum, otherwise executes
    /// a load fence or yields the CPU. The sleep ends after a short time or when
    /// [`wake`](WaitWord::wake) is called.
    #[inline(always)]
    pub(crate) fn sleep_after_polls(&self, polls: &mut u32, mode: WaitMode) {
        *polls += 1;
        if *polls > mode.polls_max() {
            *polls = 0;
            self.sleep(0, mode);
        } else {
            mode.pause.pause_once();
        }
    }

    /// Wakes the reader if it sleeps.
    #[inline(always)]
    pub(crate) fn wake(&self, mode: WaitMode) {
        // Relaxed: as in publish(), a missed sleeper wakes by itself after SLEEP_MAX.
        if self.is_asleep.load(Ordering::Relaxed) != 0 {
            futex::wake(&self.value, 1, mode.scope);
        }
    }

    /// Sleeps while the value is `last`, at most for `SLEEP_MAX` if wake-ups can be missed.
    #[cold]
    fn sleep(&self, last: u32, mode: WaitMode) {
        // SeqCst: before the kernel compares the value; pairs with publish(), which reads this flag
        // after it has written the value.
        self.is_asleep.store(1, Ordering::SeqCst);
        let sleep_max = (mode.waits == Wait::SpinThenSleep).then_some(SLEEP_MAX);
        futex::wait(&self.value, last, sleep_max, mode.scope);
        self.is_asleep.store(0, Ordering::Relaxed);
    }
}

/// Value that ends the round. Counted values stay below it, as reaching it would take a minute at
/// least.
const END: u32 = u32::MAX;

/// Medium of round trips: a word for each direction. Its reader polls before it sleeps if
/// `POLLS_FIRST`, otherwise it sleeps at once.
pub(crate) struct WordRoundTrip<const POLLS_FIRST: bool> {
    line: Region<WaitLine<2>>,
    mode: WaitMode,
}

impl<const POLLS_FIRST: bool> RelayMedium for WordRoundTrip<POLLS_FIRST> {
    type Args = ();
    const SPEC: Spec = if POLLS_FIRST {
        Spec::new(
            "floor/adaptive",
            "round trip of a shared cache line between two CPUs, both sides sleeping after tens of microseconds of spinning",
        )
    } else {
        Spec::new(
            "floor/sleeping",
            "round trip of a shared cache line between two CPUs, both sides sleeping at once",
        )
    }
    .hands_over()
    .batched();
    type PingState = u32;

    fn setup((): &(), setup: &mut Setup) -> Result<Self, Fault> {
        let waits = if POLLS_FIRST { Wait::SpinThenSleep } else { Wait::Sleep };
        Ok(Self { line: setup.shared_region()?, mode: WaitMode::new(waits, setup) })
    }

    fn new_ping_state(&self) -> Result<u32, Fault> {
        Ok(0)
    }

    #[inline(always)]
    fn round_trip(&self, value: &mut u32) -> Result<(), Fault> {
        *value += 1;
        let [there, back] = &self.line.0;
        there.publish(*value, self.mode);
        back.wait(self.mode, |it| it == *value);
        Ok(())
    }

    fn end(&self, _: &mut u32) -> Result<(), Fault> {
        self.line.0[0].publish(END, self.mode);
        Ok(())
    }

    fn echo(&self) -> Result<u64, Fault> {
        let [there, back] = &self.line.0;
        let mut value = 0;
        loop {
            let (seen, _) = there.wait(self.mode, |it| it != value);
            if seen == END {
                return Ok(u64::from(value));
            }
            value = seen;
            back.publish(value, self.mode);
        }
    }
}
