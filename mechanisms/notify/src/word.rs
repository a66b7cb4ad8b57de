//! The state word: the lock-free protocol with its orderings.
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
//! Senders only ever write PENDING; the one receiver makes all other transitions. So a receiver
//! that has seen PENDING knows that it stays, and a receiver that has declared SLEEPING knows that
//! only PENDING can follow.
//!
//! **No wake-up is lost** because there is one word, and all accesses to it (but the hints) are
//! read-modify-writes, which are totally ordered. A notification comes either before the receiver's
//! declaration, which then fails and consumes it, or after it, and then the exchange returns
//! SLEEPING and the sender knows that it must wake. The sleep itself is a futex wait on the value
//! SLEEPING (or a poll of a counter that the wake increments), which the kernel refuses once the
//! value differs. No fence and no sequentially consistent access is needed.
//!
//! **A pending word is exchanged again** by the next sender, though its value would stay the same.
//! Leaving it alone (load, see PENDING, return) would be wrong: the receiver would acquire the
//! writes that the *first* sender released, and could miss those that the second made before it
//! notified. A sequentially consistent fence before the load would make it right, at the same cost
//! as the exchange.

use handover_base::sync::atomic::{AtomicU32, Ordering};
use handover_base::sync::const_unless_loom;

/// State of a [`StateWord`]: no notification is pending, and the receiver is awake.
const EMPTY: u32 = 0;
/// State of a [`StateWord`]: a notification is pending. The bits from [`CPU_SHIFT`] on hold the CPU
/// number of its sender, plus one.
const PENDING: u32 = 1;
/// State of a [`StateWord`]: no notification is pending, and the receiver sleeps.
const SLEEPING: u32 = 2;
/// Number of bits below the CPU number in [`StateWord`] and [`ParkWord`](crate::ParkWord).
pub(crate) const CPU_SHIFT: u32 = 2;
/// Maximum CPU number that is stored; the number plus one fits above the two lowest bits.
pub(crate) const CPU_MAX: u32 = (u32::MAX >> CPU_SHIFT) - 1;

/// CPU on which the last sender ran when it notified; `None` if unknown.
pub type SenderCpu = Option<u32>;

/// Atomic word through which many senders notify one receiver. The source file and the crate's
/// README have its state diagram.
///
/// This is the bare protocol, without system calls and time. Most users want
/// [`Adaptive`](crate::Adaptive). A mechanism with a sleep of its own (a ring's consumer, an event
/// loop) builds on this: [`notify`](Self::notify) returns whether to wake, and
/// [`sleep_until_notified`](Self::sleep_until_notified) takes the sleep as a closure.
///
/// All zeroes are a fresh word. In shared memory any process may write it, at any time. A word that
/// holds none of the three states counts as pending; whatever is written, no call panics, and none
/// makes more steps than there were writes.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct StateWord {
    word: AtomicU32,
}

impl StateWord {
    const_unless_loom! {
        /// Creates a word without a pending notification, whose receiver is awake.
        #[inline]
        #[must_use]
        pub const fn new() -> Self {
            Self { word: AtomicU32::new(EMPTY) }
        }
    }

    /// Makes a notification pending. Returns `true` if the receiver has declared itself asleep:
    /// this caller must wake it, as no other sender will. Called by a sender.
    ///
    /// # Cost
    /// One exchange.
    #[inline]
    #[must_use = "true: the receiver sleeps, and nobody else will wake it"]
    pub fn notify(&self, sender_cpu: SenderCpu) -> bool {
        let cpu_plus_one = sender_cpu.filter(|&cpu| cpu <= CPU_MAX).map_or(0, |cpu| cpu + 1);
        // Release: publishes this sender's writes to the Acquire in try_consume(). Overwriting
        // another sender's PENDING continues its release sequence, so that the receiver acquires
        // both.
        self.word.swap(PENDING | cpu_plus_one << CPU_SHIFT, Ordering::Release) == SLEEPING
    }

    /// Consumes a pending notification, and returns the CPU of its last sender; `None` if nothing
    /// is pending. Called by the receiver.
    ///
    /// # Cost
    /// A load if nothing is pending; otherwise that and one exchange.
    #[inline]
    pub fn try_consume(&self) -> Option<SenderCpu> {
        // Relaxed: a hint; the exchange below orders.
        if !is_pending(self.word.load(Ordering::Relaxed)) {
            return None;
        }
        // Acquire: pairs with the Release in notify(), of the last sender and of those merged with
        // it.
        let was = self.word.swap(EMPTY, Ordering::Acquire);
        // In shared memory another process may have consumed it in between.
        is_pending(was).then(|| (was >> CPU_SHIFT).checked_sub(1))
    }

    /// Sleeps until notified, and consumes the notification; `None` if `sleep` returned `false`
    /// first. Called by the receiver.
    ///
    /// `sleep` is called with the word and the value that it has while the receiver may sleep. It
    /// must return at once if the word differs, and when the sender for which
    /// [`notify`](Self::notify) returned `true` wakes the receiver; it may return spuriously. It
    /// returns whether to continue: `false` means out of time.
    ///
    /// If the senders are other processes, `sleep` should return after a bounded time: a sender
    /// that is killed between `notify` and its wake leaves the word pending, and the next sender
    /// wakes no one.
    ///
    /// # Blocking
    /// As long as `sleep` does.
    pub fn sleep_until_notified(
        &self,
        mut sleep: impl FnMut(&AtomicU32, u32) -> bool,
    ) -> Option<SenderCpu> {
        loop {
            // Declared before each sleep: in shared memory another process may have emptied the
            // word, and a sleep on a word other than SLEEPING returns at once.
            let go_on = !self.declare_sleep() || sleep(&self.word, SLEEPING);
            // Checked after each sleep, as it may have ended spuriously.
            if let Some(sender_cpu) = self.try_consume() {
                return Some(sender_cpu);
            }
            if !go_on {
                return if self.withdraw_sleep() { None } else { self.try_consume() };
            }
        }
    }

    /// Declares the receiver asleep; returns `false` if it must not sleep, as a notification is
    /// pending. Called by the receiver.
    ///
    /// After `true`, either sleep in a way that the waking sender ends, or call
    /// [`withdraw_sleep`](Self::withdraw_sleep).
    #[inline]
    #[must_use = "false: a notification is pending and sleeping would miss it"]
    pub fn declare_sleep(&self) -> bool {
        // Relaxed both ways: going to sleep publishes nothing, and after a failure try_consume()
        // acquires.
        let declared =
            self.word.compare_exchange(EMPTY, SLEEPING, Ordering::Relaxed, Ordering::Relaxed);
        declared.is_ok() || declared == Err(SLEEPING)
    }

    /// Returns the word as a futex to sleep on and to wake.
    #[cfg(not(handover_loom))]
    #[inline]
    pub(crate) fn futex(&self) -> &AtomicU32 {
        &self.word
    }

    /// Withdraws the declaration of a sleep. Returns `false` if it is too late: a notification is
    /// pending, and its sender has woken the receiver or will. Called by the receiver.
    #[inline]
    #[must_use = "false: a notification is pending"]
    pub fn withdraw_sleep(&self) -> bool {
        // Relaxed both ways: as in declare_sleep().
        self.word.compare_exchange(SLEEPING, EMPTY, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// Returns `true` if a notification is pending in `word`. Every value means this, except the two
/// that the receiver writes.
#[inline]
fn is_pending(word: u32) -> bool {
    word != EMPTY && word != SLEEPING
}

#[cfg(all(test, not(handover_loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_the_sender_that_finds_a_declared_sleeper_wakes_it() {
        let word = StateWord::new();
        assert!(!word.notify(Some(0)), "asked for a wake-up of a receiver that is awake");
        assert!(!word.notify(None), "asked for a wake-up although a notification was pending");
        assert_eq!(word.try_consume(), Some(None));
        assert!(word.declare_sleep());
        assert!(word.notify(Some(7)), "did not ask for a wake-up of a sleeping receiver");
        assert!(!word.notify(Some(8)), "asked a second sender for a wake-up");
        assert_eq!(word.try_consume(), Some(Some(8)));
        assert_eq!(word.try_consume(), None);
    }

    #[test]
    fn pending_notification_prevents_the_sleep() {
        let word = StateWord::new();
        assert!(!word.notify(Some(3)));
        assert!(!word.declare_sleep());
        let consumed =
            word.sleep_until_notified(|_, _| panic!("slept although a notification was pending"));
        assert_eq!(consumed, Some(Some(3)));
    }

    #[test]
    fn withdrawn_declaration_restores_the_word() {
        let word = StateWord::new();
        assert_eq!(word.sleep_until_notified(|_, _| false), None, "notified without a sender");
        assert!(
            !word.notify(None),
            "asked for a wake-up of a receiver that has withdrawn its declaration"
        );
        assert!(!word.withdraw_sleep(), "withdrawn although a notification was pending");
    }

    #[test]
    fn notification_before_withdrawal_is_returned() {
        let word = StateWord::new();
        let consumed = word.sleep_until_notified(|_, _| {
            assert!(word.notify(Some(1)));
            false
        });
        assert_eq!(consumed, Some(Some(1)));
    }

    #[test]
    fn spurious_wake_up_continues_the_sleep() {
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
    fn sleeper_redeclares_after_a_peer_clears_the_word() {
        let word = StateWord::new();
        let mut sleeps_count = 0;
        let consumed = word.sleep_until_notified(|asleep, expected| {
            sleeps_count += 1;
            assert!(sleeps_count < 5, "the receiver slept {sleeps_count} times: it spins");
            assert_eq!(asleep.load(Ordering::Relaxed), expected, "sleep {sleeps_count}");
            if sleeps_count < 4 {
                asleep.store(EMPTY, Ordering::Relaxed);
            } else {
                assert!(word.notify(Some(5)), "did not ask for a wake-up of a sleeping receiver");
            }
            true
        });
        assert_eq!((consumed, sleeps_count), (Some(Some(5)), 4));
    }

    #[test]
    fn cpu_number_is_stored_exactly_or_omitted() {
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
    fn foreign_value_in_the_word_counts_as_pending() {
        for scribble in [3, 4, 5, 6, u32::MAX, u32::MAX - 1] {
            let word = StateWord { word: AtomicU32::new(scribble) };
            assert!(!word.declare_sleep());
            assert!(word.try_consume().is_some());
            assert_eq!(word.try_consume(), None);
        }
    }
}
