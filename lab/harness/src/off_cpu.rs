//! When a thread could have run and did not: switch by switch, as the kernel tells.

use perf_event::events::Software;
use perf_event::{Builder, Clock, SampleFlag, Sampler};
use serde::{Deserialize, Serialize};

/// A stretch in which a thread that could have run was off the CPU: another one had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffCpuSpan {
    /// The kernel's number of the thread.
    pub tid: u64,
    /// Its begin, in ns on CLOCK_MONOTONIC.
    pub from_ns: i64,
    /// Its end.
    pub until_ns: i64,
}

/// Room for what the kernel tells: some thousand switches; of more, it drops the last.
const ROOM_BYTES: usize = 1 << 16;
/// PERF_RECORD_SWITCH, and what its `misc` says: the thread leaves the CPU, and could have gone on.
const RECORD_SWITCH: u32 = 14;
const RECORD_LOST: u32 = 2;
const MISC_OUT: u16 = 1 << 13;
const MISC_PREEMPT: u16 = 1 << 14;

/// The switches of the thread that opened it, since.
pub(crate) struct Switches {
    sampler: Sampler,
    tid: u64,
}

impl Switches {
    /// `None` where the kernel does not tell.
    pub fn open() -> Option<Self> {
        let mut builder = Builder::new(Software::DUMMY);
        builder.observe_self().any_cpu().context_switch(true).sample_id_all(true);
        builder.sample(SampleFlag::TIME).clockid(Clock::MONOTONIC);
        let mut sampler = builder.build().ok()?.sampled(ROOM_BYTES).ok()?;
        sampler.enable().ok()?;
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u64;
        Some(Self { sampler, tid })
    }

    /// `None` when there were more than it had room for.
    pub fn read(mut self) -> Option<Vec<OffCpuSpan>> {
        self.sampler.disable().ok()?;
        let (mut spans, mut left_ns) = (Vec::new(), None);
        while let Some(record) = self.sampler.next_record() {
            match record.ty() {
                RECORD_LOST => return None,
                RECORD_SWITCH => {}
                _ => continue,
            }
            // With the time alone sampled, a switch says nothing else.
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
    fn a_thread_that_lets_another_run_was_off_the_cpu_and_one_that_sleeps_was_not() {
        if Switches::open().is_none() {
            println!("skipped: switches of a thread: the kernel does not tell of them");
            return;
        }
        let now_ns = || {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
            now.tv_sec * 1_000_000_000 + now.tv_nsec
        };
        let home = handover_base::affinity::mask();
        handover_base::affinity::pin(handover_base::affinity::current_cpu()).expect("pinned");
        let busy = std::sync::atomic::AtomicBool::new(true);
        let (begin_ns, spans) = std::thread::scope(|scope| {
            // On this CPU too, as it is started here.
            scope.spawn(|| {
                while busy.load(std::sync::atomic::Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let deadline = Instant::now() + Duration::from_secs(60);
            // Once the other has had the CPU: when it gets it is the kernel's matter.
            let (begin_ns, spans) = loop {
                let (begin_ns, switches) = (now_ns(), Switches::open().expect("as before"));
                std::thread::sleep(Duration::from_millis(1));
                let until = Instant::now() + Duration::from_millis(50);
                while Instant::now() < until {
                    std::thread::yield_now();
                }
                let spans = switches.read().expect("room for them");
                if !spans.is_empty() || Instant::now() > deadline {
                    break (begin_ns, spans);
                }
            };
            busy.store(false, std::sync::atomic::Ordering::Relaxed);
            (begin_ns, spans)
        });
        handover_base::affinity::set_mask(&home).expect("as before");
        assert!(!spans.is_empty());
        for span in spans {
            assert!(begin_ns <= span.from_ns && span.from_ns <= span.until_ns, "{span:?}");
            assert!(span.until_ns <= now_ns(), "{span:?}");
        }
    }
}
