//! Spans in which a runnable thread was off the CPU, from the kernel's context-switch records.

use perf_event::events::Software;
use perf_event::{Builder, Clock, SampleFlag, Sampler};
use serde::{Deserialize, Serialize};

/// A time span in which a thread was runnable while another thread ran on its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffCpuSpan {
    /// Thread id assigned by the kernel.
    pub tid: u64,
    /// Start of the span, in ns on CLOCK_MONOTONIC.
    pub from_ns: i64,
    /// End of the span, in ns on CLOCK_MONOTONIC.
    pub until_ns: i64,
}

/// Size of the buffer for records of some thousand switches. The kernel drops further records.
const BUFFER_BYTES: usize = 1 << 16;
/// Type PERF_RECORD_SWITCH: the thread was switched out or in.
const RECORD_SWITCH: u32 = 14;
/// Type PERF_RECORD_LOST: the kernel has dropped records.
const RECORD_LOST: u32 = 2;
/// Flag of `misc` in a context switch: the thread is switched out.
const MISC_OUT: u16 = 1 << 13;
/// Flag of `misc` in a context switch: the thread is still runnable.
const MISC_PREEMPT: u16 = 1 << 14;

/// Recorder of the context switches of the thread that opened it.
pub(crate) struct SwitchRecorder {
    sampler: Sampler,
    tid: u64,
}

impl SwitchRecorder {
    /// Starts recording the calling thread's context switches. `None` if the kernel does not allow
    /// it.
    pub fn open() -> Option<Self> {
        let mut builder = Builder::new(Software::DUMMY);
        builder.observe_self().any_cpu().context_switch(true).sample_id_all(true);
        builder.sample(SampleFlag::TIME).clockid(Clock::MONOTONIC);
        let mut sampler = builder.build().ok()?.sampled(BUFFER_BYTES).ok()?;
        sampler.enable().ok()?;
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u64;
        Some(Self { sampler, tid })
    }

    /// Stops recording, and returns the time spans in which the thread was runnable without a CPU.
    /// Returns `None` if records were lost.
    pub fn read(mut self) -> Option<Vec<OffCpuSpan>> {
        self.sampler.disable().ok()?;
        let (mut spans, mut left_ns) = (Vec::new(), None);
        while let Some(record) = self.sampler.next_record() {
            match record.ty() {
                RECORD_LOST => return None,
                RECORD_SWITCH => {}
                _ => continue,
            }
            // Only the time is sampled, so a switch record has no other content.
            let Some(time) = record.to_vec().first_chunk().copied() else { continue };
            let ns = u64::from_ne_bytes(time) as i64;
            let (is_out, could_go_on) =
                (record.misc() & MISC_OUT != 0, record.misc() & MISC_PREEMPT != 0);
            match left_ns.take() {
                _ if is_out => left_ns = could_go_on.then_some(ns),
                Some(from_ns) => spans.push(OffCpuSpan { tid: self.tid, from_ns, until_ns: ns }),
                None => {}
            }
        }
        Some(spans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn preempted_thread_has_off_cpu_spans_and_sleeping_thread_has_none() {
        if SwitchRecorder::open().is_none() {
            println!("skipped: the kernel does not report context switches of a thread");
            return;
        }
        let now_ns = || {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
            now.tv_sec * 1_000_000_000 + now.tv_nsec
        };
        let home = handover_base::affinity::thread_cpus();
        handover_base::affinity::pin(handover_base::affinity::current_cpu()).expect("pinned");
        let busy = std::sync::atomic::AtomicBool::new(true);
        let (begin_ns, spans) = std::thread::scope(|scope| {
            // The new thread inherits the pinning to this CPU.
            scope.spawn(|| {
                while busy.load(std::sync::atomic::Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let deadline = Instant::now() + Duration::from_secs(60);
            // Repeats until the other thread has had the CPU: the kernel decides when.
            let (begin_ns, spans) = loop {
                let (begin_ns, switches) = (
                    now_ns(),
                    SwitchRecorder::open().expect("open the counter of context switches"),
                );
                std::thread::sleep(Duration::from_millis(1));
                let until = Instant::now() + Duration::from_millis(50);
                while Instant::now() < until {
                    std::thread::yield_now();
                }
                let spans = switches.read().expect("the record buffer was full");
                if !spans.is_empty() || Instant::now() > deadline {
                    break (begin_ns, spans);
                }
            };
            busy.store(false, std::sync::atomic::Ordering::Relaxed);
            (begin_ns, spans)
        });
        handover_base::affinity::set_thread_cpus(&home).expect("restore the CPU affinity");
        assert!(!spans.is_empty());
        for span in spans {
            assert!(begin_ns <= span.from_ns && span.from_ns <= span.until_ns, "{span:?}");
            assert!(span.until_ns <= now_ns(), "{span:?}");
        }
    }
}
