//! The state word: the whole lock-free protocol, with its orderings, in one place.
//!
//! ```text
//!              notify: exchange                         notify: exchange, and WAKE
//!        ┌─────────────────────────┐              ┌────────────────────────────┐
//!        │                         ▼              ▼                            │
//!    ┌───────┐                 ┌─────────────────────┐  notify:            ┌──────────┐
//!    │ EMPTY │                 │ PENDING, sender CPU │──┐ exchange,        │ SLEEPING │
//!    └───────┘                 └─────────────────────┘◀─┘ merged           └──────────┘
//!      ▲ ▲ │                       │                                         ▲     │
//!      │ │ │   consume: exchange   │                                         │     │
//!      │ └─┼───────────────────────┘                                         │     │
//!      │   └─────────────── declare: compare-and-swap ───────────────────────┘     │
//!      └─────────────────── withdraw: compare-and-swap ────────────────────────────┘
//! ```
//!
//! Senders only ever write PENDING. Everything else is the one receiver's. So a receiver that has
//! seen PENDING knows that it stays, and a receiver that has declared SLEEPING knows that only
//! PENDING can follow.
//!
//! **No wake-up is lost** because the word is one word, and all that happens to it (but the hints)
//! are read-modify-writes, which are totally ordered. A notification comes either before the
//! receiver's declaration, which then fails and consumes it, or after it, and then the exchange
//! returns SLEEPING and the sender knows that it must wake. The sleep itself is a futex wait on the
//! value SLEEPING (or a poll of a counter that the wake increments), which the kernel refuses once
//! the value is another. No fence, and nothing sequentially consistent, is needed.
//!
//! **A pending word is exchanged again** by the next sender, though it would stay as it is. Leaving
//! it alone (load, see PENDING, return) would be wrong: the receiver would acquire what the *first*
//! sender released and could miss what the second wrote before it notified. It would take a
//! sequentially consistent fence before the load to make it right, and that costs what the exchange
//! costs.

use handover_base::sync::atomic::{AtomicU32, Ordering};

const EMPTY: u32 = 0;
/// The lowest bit; the CPU of the sender, plus one, stands above [`CPU_SHIFT`].
const PENDING: u32 = 1;
const SLEEPING: u32 = 2;
const CPU_SHIFT: u32 = 2;
/// What fits above the two lowest bits, less the zero that means "not known".
const CPU_MAX: u32 = (u32::MAX >> CPU_SHIFT) - 1;

/// Where the last sender ran when it notified; `None` if it did not know.
pub type SenderCpu = Option<u32>;

/// One word through which many senders notify one receiver. See the state diagram in the source
/// file and in the crate's README.
///
/// This is the bare protocol: it knows neither kernel nor time. Most users want
/// [`Adaptive`](crate::Adaptive). A mechanism with a sleep of its own (a ring's consumer, an event
/// loop) builds on this: [`notify`](Self::notify) says when to wake,
/// [`sleep_until_notified`](Self::sleep_until_notified) takes the sleep as a closure.
///
/// All zeroes are a fresh word. In shared memory any process may write it, at any time. A word that
/// holds none of the three states counts as pending; whatever is written, no call panics, and none
/// takes more steps than were written.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct StateWord {
    word: AtomicU32,
}

impl StateWord {
    /// A word with nothing pending and nobody asleep.
    #[cfg(not(handover_loom))]
    #[inline]
    #[must_use]
    pub const fn new() -> Self {
        Self { word: AtomicU32::new(EMPTY) }
    }

    /// A word with nothing pending and nobody asleep; loom's atomics are not made in constants.
    #[cfg(handover_loom)]
    #[must_use]
    pub fn new() -> Self {
        Self { word: AtomicU32::new(EMPTY) }
    }

    /// Sender: makes a notification pending. True means that the receiver has declared itself
    /// asleep, and that it is this caller who must wake it; nobody else will.
    ///
    /// # Cost
    /// One exchange.
    #[inline]
    #[must_use = "true: the receiver sleeps, and nobody else will wake it"]
    pub fn notify(&self, sender_cpu: SenderCpu) -> bool {
        let cpu_plus_one = sender_cpu.filter(|&cpu| cpu <= CPU_MAX).map_or(0, |cpu| cpu + 1);
        // Release: publishes what this sender wrote to the Acquire in try_consume(). Overwriting
        // another's PENDING keeps that one's release sequence, so the receiver acquires both.
        self.word.swap(PENDING | cpu_plus_one << CPU_SHIFT, Ordering::Release) == SLEEPING
    }

    /// Receiver: consumes what is pending, if anything is, and says who sent it last.
    ///
    /// # Cost
    /// A load when there is nothing; that and one exchange when there is.
    #[inline]
    pub fn try_consume(&self) -> Option<SenderCpu> {
        // Relaxed: a hint; the exchange below orders.
        if !is_pending(self.word.load(Ordering::Relaxed)) {
            return None;
        }
        // Acquire: pairs with the Release in notify(), of the last sender and of those it merged.
        let was = self.word.swap(EMPTY, Ordering::Acquire);
        // In shared memory another process may have taken it meanwhile.
        is_pending(was).then(|| (was >> CPU_SHIFT).checked_sub(1))
    }

    /// Receiver: sleeps until notified, and consumes. `None` when `sleep` gave up first.
    ///
    /// `sleep` is called with the word and the value that it holds while the receiver may sleep.
    /// It must return at once if the word differs, and when the sender that got true from
    /// [`notify`](Self::notify) wakes; it may return for no reason. It answers whether to go on:
    /// false means out of time.
    ///
    /// If the senders are other processes, `sleep` should return after a bounded time: one that is
    /// killed between `notify` and its wake leaves the word pending, and who notifies next wakes nobody.
    ///
    /// # Blocking
    /// As long as `sleep` does.
    pub fn sleep_until_notified(
        &self,
        mut sleep: impl FnMut(&AtomicU32, u32) -> bool,
    ) -> Option<SenderCpu> {
        loop {
            // Declared before each sleep: in shared memory another process may have emptied the word,
            // and a sleep on a word that does not say SLEEPING returns at once.
            let go_on = !self.declare_sleep() || sleep(&self.word, SLEEPING);
            // Without this look after each sleep, a wake-up for nothing would be taken for one.
            if let Some(sender_cpu) = self.try_consume() {
                return Some(sender_cpu);
            }
            if !go_on {
                return if self.withdraw() { None } else { self.try_consume() };
            }
        }
    }

    /// Receiver: declares itself asleep. False: a notification is pending, so do not sleep.
    ///
    /// After true, either sleep in a way that the waking sender ends, or
    /// [`withdraw`](Self::withdraw).
    #[inline]
    #[must_use = "false: a notification is pending and sleeping would miss it"]
    pub fn declare_sleep(&self) -> bool {
        // Relaxed both ways: nothing is published by going to sleep, and a failure is followed by
        // try_consume(), which acquires.
        let declared =
            self.word.compare_exchange(EMPTY, SLEEPING, Ordering::Relaxed, Ordering::Relaxed);
        declared.is_ok() || declared == Err(SLEEPING)
    }

    /// The word as the kernel sees it, to sleep on and to wake.
    #[cfg(not(handover_loom))]
    #[inline]
    pub(crate) fn futex(&self) -> &AtomicU32 {
        &self.word
    }

    /// Receiver: takes back the declaration. False: too late, a notification is pending and its
    /// sender wakes, or has woken, or will.
    #[inline]
    #[must_use = "false: a notification is pending"]
    pub fn withdraw(&self) -> bool {
        // Relaxed both ways: as in declare_sleep().
        self.word.compare_exchange(SLEEPING, EMPTY, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// Anything but the two states that the receiver writes.
#[inline]
fn is_pending(word: u32) -> bool {
    word != EMPTY && word != SLEEPING
}

#[cfg(all(test, not(handover_loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_the_sender_that_finds_a_declared_sleeper_must_wake() {
        let word = StateWord::new();
        assert!(!word.notify(Some(0)), "nobody sleeps");
        assert!(!word.notify(None), "pending already");
        assert_eq!(word.try_consume(), Some(None));
        assert!(word.declare_sleep());
        assert!(word.notify(Some(7)), "asleep");
        assert!(!word.notify(Some(8)), "the first has woken it");
        assert_eq!(word.try_consume(), Some(Some(8)));
        assert_eq!(word.try_consume(), None);
    }

    #[test]
    fn whoever_is_notified_does_not_go_to_sleep() {
        let word = StateWord::new();
        assert!(!word.notify(Some(3)));
        assert!(!word.declare_sleep());
        let consumed = word.sleep_until_notified(|_, _| panic!("must not sleep"));
        assert_eq!(consumed, Some(Some(3)));
    }

    #[test]
    fn a_withdrawn_declaration_leaves_no_trace() {
        let word = StateWord::new();
        assert_eq!(word.sleep_until_notified(|_, _| false), None, "out of time");
        assert!(!word.notify(None), "nobody sleeps any more");
        assert!(!word.withdraw(), "too late");
    }

    #[test]
    fn a_notification_in_the_last_moment_is_returned() {
        let word = StateWord::new();
        let consumed = word.sleep_until_notified(|_, _| {
            assert!(word.notify(Some(1)));
            false
        });
        assert_eq!(consumed, Some(Some(1)));
    }

    #[test]
    fn waking_for_no_reason_is_slept_through() {
        let word = StateWord::new();
        let mut sleeps_count = 0;
        let consumed = word.sleep_until_notified(|_, expected| {
            sleeps_count += 1;
            assert_eq!(expected, SLEEPING);
            if sleeps_count == 3 {
                assert!(word.notify(None));
            }
            true
        });
        assert_eq!((consumed, sleeps_count), (Some(None), 3));
    }

    #[test]
    fn a_sleeper_whose_word_a_peer_empties_declares_itself_again() {
        let word = StateWord::new();
        let mut sleeps_count = 0;
        let consumed = word.sleep_until_notified(|asleep, expected| {
            sleeps_count += 1;
            assert!(sleeps_count < 5, "it spins");
            assert_eq!(asleep.load(Ordering::Relaxed), expected, "sleep {sleeps_count}");
            if sleeps_count < 4 {
                asleep.store(EMPTY, Ordering::Relaxed);
            } else {
                assert!(word.notify(Some(5)), "the sender learns that it must wake");
            }
            true
        });
        assert_eq!((consumed, sleeps_count), (Some(Some(5)), 4));
    }

    #[test]
    fn any_cpu_number_is_carried_or_left_out_but_never_garbled() {
        let word = StateWord::new();
        for (cpu, carried) in [
            (0, Some(0)),
            (1023, Some(1023)),
            (CPU_MAX, Some(CPU_MAX)),
            (CPU_MAX + 1, None),
            (u32::MAX, None),
        ] {
            assert!(!word.notify(Some(cpu)));
            assert_eq!(word.try_consume(), Some(carried), "CPU {cpu}");
        }
    }

    #[test]
    fn a_word_that_somebody_else_scribbled_on_counts_as_pending() {
        for scribble in [3, 4, 5, 6, u32::MAX, u32::MAX - 1] {
            let word = StateWord { word: AtomicU32::new(scribble) };
            assert!(!word.declare_sleep());
            assert!(word.try_consume().is_some());
            assert_eq!(word.try_consume(), None);
        }
    }
}
