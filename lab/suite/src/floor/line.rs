//! A cache line that two CPUs take from each other: the floor of every hand-over between running
//! threads, also of those that have a line for each direction, which take longer.
//!
//! If both participants share one CPU, the waiting one yields it instead of spinning through its
//! time slice.

use super::relay::RelayMedium;
use crate::channels::PollPause;
use handover_base::sync::shared::{AtomicU64, Ordering};
use handover_harness::{Fault, Region, Setup};
use handover_record::Spec;
use zerocopy::FromZeros;

/// Value that ends the round.
const END: u64 = u64::MAX;

/// Word alone on a pair of cache lines. Neither adjacent data nor a prefetcher disturbs it.
#[derive(FromZeros)]
#[repr(C, align(128))]
pub(super) struct LineWord(AtomicU64);

impl LineWord {
    /// Stores a value for the other participant.
    pub(super) fn publish(&self, value: u64) {
        // Release: publishes what was done before to the Acquire in wait().
        self.0.store(value, Ordering::Release);
    }

    /// Polls the word until `is_next(value)` returns `true`; returns the value.
    #[inline(always)]
    pub(super) fn wait(&self, pause: PollPause, is_next: impl Fn(u64) -> bool) -> u64 {
        // Acquire: pairs with the Release in publish().
        pause.poll_until_some(|| {
            Some(self.0.load(Ordering::Acquire)).filter(|value| is_next(*value))
        })
    }
}

/// Medium of round trips: a cache line. The pinging participant stores odd values in it, the
/// echoing one even values.
pub(crate) struct SharedLine {
    word: Region<LineWord>,
    pause: PollPause,
}

impl RelayMedium for SharedLine {
    type Args = ();
    const SPEC: Spec = Spec::new(
        "floor/cache-line",
        "round trip of a shared cache line between two CPUs, both sides spinning",
    )
    .ladder()
    .hands_over()
    .batched();
    type PingState = u64;

    fn setup((): &(), setup: &mut Setup) -> Result<SharedLine, Fault> {
        Ok(SharedLine { word: setup.shared_region()?, pause: PollPause::new(setup) })
    }

    fn new_ping_state(&self) -> Result<u64, Fault> {
        Ok(0)
    }

    #[inline(always)]
    fn round_trip(&self, value: &mut u64) -> Result<(), Fault> {
        let back = *value + 2;
        self.word.publish(*value + 1);
        self.word.wait(self.pause, |it| it == back);
        *value = back;
        Ok(())
    }

    fn end(&self, _: &mut u64) -> Result<(), Fault> {
        self.word.publish(END);
        Ok(())
    }

    fn echo(&self) -> Result<u64, Fault> {
        let mut value = 0;
        loop {
            // END is odd too.
            let seen = self.word.wait(self.pause, |it| it % 2 == 1);
            if seen == END {
                return Ok(value / 2);
            }
            value = seen + 1;
            self.word.publish(value);
        }
    }
}
