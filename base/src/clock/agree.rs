//! Comparison of the counters of two CPUs by a ping between them.
//!
//! A thread on one CPU reads its counter and asks; a thread on the other CPU reads its own counter
//! and answers; the first reads again. The answer must lie between the two readings. If it does
//! not, the counters differ by more than half the transfer time of a cache line, which breaks
//! causality, and spans across CPUs are wrong by as much.

use std::fmt;

/// Result of comparing the counters of the CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CounterAgreement {
    /// The process may run on only one CPU, so that no counters were compared.
    OneCpu,
    /// The counters of `compared_count` of `cpus_count` CPUs agree. `compared_count` is 1 if no
    /// other CPU answered in time.
    Agree { compared_count: usize, cpus_count: usize },
    /// The counter of CPU `other` differed from that of CPU `first` by at least `ticks_min` ticks.
    Disagree { first: u32, other: u32, ticks_min: u64 },
}

impl CounterAgreement {
    /// Returns `true` if there are several CPUs, but no pair of CPUs was compared.
    pub(super) fn is_unknown(&self) -> bool {
        matches!(self, CounterAgreement::Agree { compared_count: 0 | 1, .. })
    }
}

impl fmt::Display for CounterAgreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counter = crate::cpu::COUNTER_NAME;
        match self {
            CounterAgreement::OneCpu => write!(f, "this process may use only one CPU"),
            CounterAgreement::Agree { compared_count: 0 | 1, cpus_count } => {
                write!(f, "the {cpus_count} CPUs were too busy to compare their {counter}s")
            }
            CounterAgreement::Agree { compared_count, cpus_count }
                if compared_count == cpus_count =>
            {
                write!(f, "the {counter}s of the {cpus_count} CPUs agree")
            }
            CounterAgreement::Agree { compared_count, cpus_count } => {
                write!(
                    f,
                    "the {counter}s of {compared_count} of {cpus_count} CPUs were compared and agree"
                )
            }
            CounterAgreement::Disagree { first, other, ticks_min } => {
                write!(
                    f,
                    "the {counter}s of CPU {first} and CPU {other} differ by {ticks_min} ticks or more"
                )
            }
        }
    }
}

pub(super) use ping::compare_counters;

mod ping {
    use super::CounterAgreement;
    use crate::os::monotonic_ns;
    use crate::{affinity, cpu, sync::CachePadded};
    use core::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, mpsc};
    use std::thread;
    use std::time::Duration;

    /// Maximum number of CPUs whose counters are compared with that of the first CPU. They are
    /// chosen evenly from the list.
    const PARTNERS_MAX: usize = 7;
    /// Number of pings (a request and a reply) between two CPUs.
    const PINGS_COUNT: u64 = 100;
    /// Time after the deadline for which results of the comparison are still accepted, in ns.
    const REPORT_DELAY_NS_MAX: u64 = 1_000_000;

    /// Compares the counters of `cpus`, for at most `budget_ns`, and returns the result.
    pub(in crate::clock) fn compare_counters(cpus: &[u32], budget_ns: u64) -> CounterAgreement {
        let &[first, ref others @ ..] = cpus else { return CounterAgreement::OneCpu };
        if others.is_empty() {
            return CounterAgreement::OneCpu;
        }
        let partners_count = others.len().min(PARTNERS_MAX);
        // Always includes the last CPU, which is the most likely to be in another package.
        let partners: Vec<u32> =
            (1..=partners_count).map(|i| others[others.len() * i / partners_count - 1]).collect();
        let deadline_ns = monotonic_ns() + budget_ns;

        // In threads, so that the caller's affinity stays unchanged. They are not joined, because a
        // CPU held by a real-time thread would block them for ever; they end by the deadline once
        // they run.
        let (report, reports) = mpsc::channel();
        let asker = thread::Builder::new().name("clock-ask".to_owned()).spawn(move || {
            if affinity::pin(first).is_err() {
                return;
            }
            for (i, &other) in partners.iter().enumerate() {
                let now_ns = monotonic_ns();
                let share_ns = deadline_ns.saturating_sub(now_ns) / (partners.len() - i) as u64;
                let result = ping(other, now_ns + share_ns);
                if report.send((other, result)).is_err() {
                    return;
                }
            }
        });
        let mut compared_count = 1;
        if asker.is_ok() {
            let wait = || {
                let left_ns = (deadline_ns + REPORT_DELAY_NS_MAX).saturating_sub(monotonic_ns());
                reports.recv_timeout(Duration::from_nanos(left_ns)).ok()
            };
            while let Some((other, result)) = wait() {
                match result {
                    PingResult::Contradiction { ticks_min } => {
                        return CounterAgreement::Disagree { first, other, ticks_min };
                    }
                    PingResult::Consistent => compared_count += 1,
                    PingResult::NoAnswer => {}
                }
            }
        }
        CounterAgreement::Agree { compared_count, cpus_count: cpus.len() }
    }

    /// Result of comparing the counters of two CPUs.
    enum PingResult {
        /// All readings of the two counters are in the order in which they were made.
        Consistent,
        /// A reading is out of order by at least `ticks_min` ticks.
        Contradiction { ticks_min: u64 },
        /// The other CPU sent no reply in time.
        NoAnswer,
    }

    /// Words shared by two CPUs that exchange pings.
    #[derive(Default)]
    struct PingWords {
        /// Number of the last message: odd for a request, even for a reply.
        sequence: CachePadded<AtomicU64>,
        /// Time stamp that the replying CPU read after the request.
        answer: CachePadded<AtomicU64>,
    }

    /// Value of [`PingWords::sequence`] after the first CPU has ended the pings.
    const STOP: u64 = u64::MAX;

    /// Compares the counter of CPU `other` with that of the current CPU.
    fn ping(other: u32, deadline_ns: u64) -> PingResult {
        let words = Arc::new(PingWords::default());
        let answerer = thread::Builder::new().name("clock-answer".to_owned()).spawn({
            let words = Arc::clone(&words);
            move || reply_to_pings(&words, other, deadline_ns)
        });
        if answerer.is_err() {
            return PingResult::NoAnswer;
        }
        let mut result = PingResult::NoAnswer;
        for round in 0..PINGS_COUNT {
            let asked = cpu::read_timestamp_counter_fenced();
            // Release: pairs with the Acquire in reply_to_pings(), so that its reading comes after
            // ours.
            words.sequence.store(2 * round + 1, Ordering::Release);
            // Acquire in wait_for(): pairs with the Release in reply_to_pings().
            if wait_for(&words.sequence, 2 * round + 2, deadline_ns).is_none() {
                break;
            }
            let received = cpu::read_timestamp_counter_fenced();
            let answered = words.answer.load(Ordering::Relaxed); // Relaxed: ordered by `sequence`
            result = match contradiction_ticks(asked, answered, received) {
                0 => PingResult::Consistent,
                ticks_min => PingResult::Contradiction { ticks_min },
            };
            if let PingResult::Contradiction { .. } = result {
                break;
            }
        }
        words.sequence.store(STOP, Ordering::Relaxed); // Relaxed: publishes nothing
        result
    }

    /// Returns the number of ticks by which `answered` lies outside `asked..=received`; 0 if
    /// inside.
    pub(super) fn contradiction_ticks(asked: u64, answered: u64, received: u64) -> u64 {
        asked.saturating_sub(answered).max(answered.saturating_sub(received))
    }

    /// Replies to pings on CPU `cpu` with its time stamps.
    fn reply_to_pings(words: &PingWords, cpu: u32, deadline_ns: u64) {
        if affinity::pin(cpu).is_err() {
            return;
        }
        for round in 0..PINGS_COUNT {
            // Acquire in wait_for(): pairs with the Release in ping().
            if wait_for(&words.sequence, 2 * round + 1, deadline_ns).is_none() {
                return;
            }
            words.answer.store(cpu::read_timestamp_counter_fenced(), Ordering::Relaxed);
            // Release: publishes the answer to the Acquire in ping().
            let sequence = (2 * round + 1, 2 * round + 2);
            if words
                .sequence
                .compare_exchange(sequence.0, sequence.1, Ordering::Release, Ordering::Relaxed)
                .is_err()
            {
                return; // the first CPU has ended the pings
            }
        }
    }

    /// Waits until `word` contains `value`. Returns `None` if the other thread has stopped or the
    /// deadline has passed.
    fn wait_for(word: &AtomicU64, value: u64, deadline_ns: u64) -> Option<()> {
        /// Number of loads of the word between two readings of the clock.
        const SPINS_PER_CLOCK_READ: u32 = 256;
        loop {
            for _ in 0..SPINS_PER_CLOCK_READ {
                // Acquire: pairs with the Release stores of this word by the other thread.
                match word.load(Ordering::Acquire) {
                    now if now == value => return Some(()),
                    STOP => return None,
                    _ => core::hint::spin_loop(),
                }
            }
            if monotonic_ns() >= deadline_ns {
                return None;
            }
            thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_between_the_readings_is_consistent() {
        assert_eq!(ping::contradiction_ticks(100, 100, 100), 0);
        assert_eq!(ping::contradiction_ticks(100, 150, 200), 0);
    }

    #[test]
    fn answer_outside_the_readings_contradicts_by_its_distance() {
        assert_eq!(ping::contradiction_ticks(100, 90, 200), 10);
        assert_eq!(ping::contradiction_ticks(100, 207, 200), 7);
    }

    #[test]
    fn single_cpu_is_not_compared() {
        assert_eq!(compare_counters(&[3], 0), CounterAgreement::OneCpu);
        assert_eq!(compare_counters(&[], 0), CounterAgreement::OneCpu);
    }

    #[test]
    fn absent_cpus_are_skipped_in_bounded_time() {
        let first = crate::affinity::thread_cpus()[0];
        let result = compare_counters(&[first, 1_000_000], 2_000_000);
        assert_eq!(result, CounterAgreement::Agree { compared_count: 1, cpus_count: 2 });
        assert!(result.is_unknown(), "{result}");
    }
}
