//! Hardware counters of one thread in user space, if the machine has them.

use perf_event::events::Hardware;
use perf_event::{Builder, Counter};
use rustix::io::Errno;
use std::fmt;
use std::sync::OnceLock;

/// Hardware counters of instructions, cycles and cache misses, read together.
pub(crate) struct HardwareCounters {
    group: perf_event::Group,
    counters: [Counter; 3],
}

impl fmt::Debug for HardwareCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HardwareCounters").finish_non_exhaustive()
    }
}

impl HardwareCounters {
    /// Opens the counters of the calling thread. Returns `None` if `is_wanted` is `false` or the
    /// counters cannot be used.
    pub(crate) fn open(is_wanted: bool) -> Option<HardwareCounters> {
        if !is_wanted || !are_available() {
            return None;
        }
        HardwareCounters::try_open().ok()
    }

    /// Opens the counters of the calling thread. Fails if the kernel does not allow it.
    fn try_open() -> std::io::Result<HardwareCounters> {
        let mut group = perf_event::Group::new()?;
        let counters = [
            group.add(&Builder::new(Hardware::INSTRUCTIONS))?,
            group.add(&Builder::new(Hardware::CPU_CYCLES))?,
            group.add(&Builder::new(Hardware::CACHE_MISSES))?,
        ];
        Ok(HardwareCounters { group, counters })
    }

    /// Starts counting from 0.
    pub(crate) fn restart(&mut self) -> std::io::Result<()> {
        self.group.reset()?;
        self.group.enable()
    }

    /// Stops counting; returns the instructions, cycles and cache misses. Returns `None` if the CPU
    /// never ran the counters.
    pub(crate) fn read(mut self) -> Option<[u64; 3]> {
        self.group.disable().ok()?;
        let counts = self.group.read().ok()?;
        let read = self.counters.each_ref().map(|counter| counts[counter]);
        (read[0] > 0).then_some(read)
    }
}

/// Returns `true` if this process may use hardware counters.
pub(crate) fn are_available() -> bool {
    availability().is_ok()
}

/// Returns the error of opening the hardware counters. Returns `None` if they can be opened; they
/// may count nothing nevertheless.
pub(crate) fn open_error() -> Option<Errno> {
    availability().err().flatten()
}

/// Tries the hardware counters once, and remembers the result. The error is that of opening them,
/// or `None` if they were opened and counted nothing.
fn availability() -> Result<(), Option<Errno>> {
    static AVAILABILITY: OnceLock<Result<(), Option<Errno>>> = OnceLock::new();
    *AVAILABILITY.get_or_init(|| {
        // The crate replaces one error by its own, E2BIG of an older kernel.
        let counters = HardwareCounters::try_open()
            .and_then(|mut counters| counters.restart().map(|()| counters))
            .map_err(|error| Errno::from_io_error(&error).or(Some(Errno::TOOBIG)))?;
        std::hint::black_box((0..10_000u64).fold(0, |sum: u64, it| sum ^ it));
        counters.read().map(drop).ok_or(None)
    })
}
