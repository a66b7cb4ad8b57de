//! Linux: futexes, affinity, CLOCK_MONOTONIC and usage.

pub(crate) use crate::raw::linux::{is_timestamp_counter_disabled, read_usage};
pub(crate) use rustix::param::clock_ticks_per_second;

use crate::sync::shared::AtomicU32;
use rustix::io::Errno;
use rustix::process::{Pid, getpid};
use rustix::thread::futex::{self, Flags, Timespec};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::time::Duration;

/// Brings the CPU time that `getrusage` reports for the calling thread up to date: the kernel does
/// so when the thread reads the clock of its CPU time.
pub(crate) fn update_thread_time() {
    if !cfg!(miri) {
        let _ = clock_gettime(ClockId::ThreadCPUTime);
    }
}

fn futex_flags(is_shared: bool) -> Flags {
    if is_shared { Flags::empty() } else { Flags::PRIVATE }
}

/// Sleeps if `word` contains `expected`, until woken. Returns an error of kind `WouldBlock` if the
/// word contains another value, or `TimedOut` or `Interrupted`.
pub(crate) fn futex_wait(
    word: &AtomicU32,
    expected: u32,
    timeout: Option<Duration>,
    is_shared: bool,
) -> io::Result<()> {
    let timeout = timeout.map(|t| Timespec {
        tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: t.subsec_nanos().into(),
    });
    Ok(futex::wait(word, futex_flags(is_shared), expected, timeout.as_ref())?)
}

/// Wakes at most `waiters_max` threads that sleep on `word`; returns the number of woken threads.
pub(crate) fn futex_wake(word: &AtomicU32, waiters_max: u32, is_shared: bool) -> io::Result<u32> {
    // The kernel's count is an int: u32::MAX would be -1, which wakes a single thread.
    let waiters_max = waiters_max.min(i32::MAX as u32);
    Ok(futex::wake(word, futex_flags(is_shared), waiters_max)? as u32)
}

/// Returns the CPUs that the calling thread may run on, sorted.
pub(crate) fn thread_cpus() -> io::Result<Vec<u32>> {
    cpus_of_thread(None)
}

/// Returns the CPUs that the main thread may run on, sorted.
pub(crate) fn main_thread_cpus() -> io::Result<Vec<u32>> {
    cpus_of_thread(Some(getpid()))
}

/// Returns the CPUs that a thread may run on; `None` stands for the calling thread.
fn cpus_of_thread(thread: Option<Pid>) -> io::Result<Vec<u32>> {
    let set = sched_getaffinity(thread)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).map(|cpu| cpu as u32).collect())
}

/// Returns the number of CPUs that the calling thread may run on.
pub(crate) fn thread_cpus_count() -> io::Result<usize> {
    Ok(sched_getaffinity(None)?.count() as usize)
}

/// Binds the calling thread to `cpus`. Returns an error of kind `InvalidInput` if the thread may
/// run on none of them.
pub(crate) fn set_thread_cpus(cpus: &[u32]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus.iter().filter(|&&cpu| (cpu as usize) < CpuSet::MAX_CPU) {
        set.set(cpu as usize);
    }
    if set.count() == 0 {
        return Err(Errno::INVAL.into());
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// Returns the CPU on which the calling thread runs; `None` under Miri.
pub(crate) fn current_cpu() -> Option<u32> {
    // Miri has masks, but no sched_getcpu.
    (!cfg!(miri)).then(|| rustix::thread::sched_getcpu() as u32)
}

/// Reads CLOCK_MONOTONIC, in ns.
pub(crate) fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
