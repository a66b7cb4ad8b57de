//! The state word: the lock-free protocol with its orderings.
//!
//! ```text
//!   ┌────────────────────────┐  receiver: declare (compare-and-swap)   ┌─────────────────────────┐
//!   │ number of              │────────────────────────────────────────▶│ the same number,        │
//!   │ notifications          │◀────────────────────────────────────────│ SLEEPING                │
//!   └────────────────────────┘  withdraw, or a sender before it wakes  └─────────────────────────┘
//!       │           ▲                       (clear SLEEPING)               │             ▲
//!       └───────────┘                                                      └─────────────┘
//!    notify: add one notification                                    notify: add one notification
//! ```
//!
//! Senders only count up, and the receiver compares the number with the one that it has seen last ([`WordReceiver`]). So
//! the receiver consumes a notification without writing the word: while it is awake, a notification transfers the
//! word's cache line once to the sender and once back.
//!
//! **No wake-up is lost** because there is one word, and all accesses to it that change it are read-modify-writes,
//! which are totally ordered. A notification comes either before the receiver's declaration, which then fails as the
//! number differs, or after it, and then the sender has found SLEEPING. Of several such senders the one that clears
//! SLEEPING wakes the receiver. A sender that is late may clear a declaration that was made since, and wakes the
//! receiver without a notification: the receiver then declares again. The sleep itself is a futex wait on the value
//! that was declared (or a poll of a counter that the wake increments), which the kernel refuses once the value
//! differs. No fence and no sequentially consistent access is needed.
//!
//! **The number wraps** after 2^31 notifications. A receiver that has not looked for exactly that many, or a multiple,
//! takes them for none; the next notification corrects that. The condition variable of Rust's standard library has
//! the same limit.

use handover_base::sync::atomic::{AtomicU32, Ordering};
use handover_base::sync::const_unless_loom;

/// Flag: the receiver has declared itself asleep.
const SLEEPING: u32 = 1;
/// One notification in the word. The bits above [`SLEEPING`] hold the number of notifications.
const NOTIFICATION: u32 = 2;

/// CPU on which the last sender ran when it notified; `None` if unknown.
pub type SenderCpu = Option<u32>;

/// Receiver's own part of a [`StateWord`]: the notifications that it has consumed, and its declaration of a sleep.
#[derive(Debug, Default)]
pub struct WordReceiver {
    /// The word without [`SLEEPING`] when notifications were consumed last.
    seen: u32,
    /// `true` if the receiver has declared a sleep and not withdrawn it.
    is_declared: bool,
    wakes_count: u32,
}

impl WordReceiver {
    /// Returns the number of senders that have woken the receiver or will, modulo 2^32. Up to date when no sleep is
    /// declared.
    #[must_use]
    pub fn wakes_count(&self) -> u32 {
        self.wakes_count
    }
}

/// Atomic word through which many senders notify one receiver. The source file and the crate's README have its state
/// diagram.
///
/// This is the bare protocol, without system calls and time. Most users want [`Adaptive`](crate::Adaptive). A
/// mechanism with a sleep of its own (a ring's consumer, an event loop) builds on this: [`notify`](Self::notify)
/// returns whether to wake, and [`sleep_until_notified`](Self::sleep_until_notified) takes the sleep as a closure.
///
/// The receiver passes the same [`WordReceiver`] to each call. With a new one, all notifications of the word so far
/// count as pending.
///
/// All zeroes are a fresh word. In shared memory any process may write it, at any time: whatever is written, no call
/// panics, and none makes more steps than there were writes.
#[derive(Debug, Default)]
#[repr(C)]
pub struct StateWord {
    word: AtomicU32,
    /// CPU on which the last sender ran, plus one; zero if unknown. A hint.
    sender_cpu_plus_one: AtomicU32,
}

impl StateWord {
    const_unless_loom! {
        /// Creates a word without notifications, whose receiver is awake.
        #[inline]
        #[must_use]
        pub const fn new() -> Self {
            Self { word: AtomicU32::new(0), sender_cpu_plus_one: AtomicU32::new(0) }
        }
    }

    /// Makes a notification pending; called by a sender. Returns `true` if the receiver has declared itself asleep:
    /// this caller then must wake it, as no other sender will.
    ///
    /// # Cost
    /// One atomic addition; a second read-modify-write if the receiver sleeps.
    #[inline]
    #[must_use = "true: the receiver sleeps, and nobody else will wake it"]
    pub fn notify(&self, sender_cpu: SenderCpu) -> bool {
        let cpu_plus_one = sender_cpu.and_then(|cpu| cpu.checked_add(1)).unwrap_or(0);
        // Release: publishes this sender's writes to the Acquire in try_consume(). Adding to another sender's number
        // continues its release sequence, so that the receiver acquires both.
        let was = self.word.fetch_add(NOTIFICATION, Ordering::Release);
        // Relaxed both: a hint. After the addition, which takes the line for writing at once.
        if self.sender_cpu_plus_one.load(Ordering::Relaxed) != cpu_plus_one {
            self.sender_cpu_plus_one.store(cpu_plus_one, Ordering::Relaxed);
        }
        was & SLEEPING != 0 && self.take_declaration()
    }

    /// Consumes all pending notifications, and returns the CPU of the last sender; `None` if nothing is pending.
    /// Called by the receiver. A declared sleep stays declared.
    ///
    /// # Cost
    /// A load.
    #[inline]
    pub fn try_consume(&self, receiver: &mut WordReceiver) -> Option<SenderCpu> {
        // Acquire: pairs with the Release in notify(), of the last sender and of those before it.
        let count = self.word.load(Ordering::Acquire) & !SLEEPING;
        if count == receiver.seen {
            return None;
        }
        receiver.seen = count;
        // Relaxed: a hint.
        Some(self.sender_cpu_plus_one.load(Ordering::Relaxed).checked_sub(1))
    }

    /// Sleeps until notified, and consumes the notification; `None` if `sleep` returned `false` first. Called by the
    /// receiver.
    ///
    /// `sleep` is called with the word and the value that it has while the receiver may sleep. It must return at once
    /// if the word differs, and when the sender for which [`notify`](Self::notify) returned `true` wakes the
    /// receiver; it may return spuriously. It returns whether to continue: `false` means out of time.
    ///
    /// If the senders are other processes, `sleep` should return after a bounded time: a sender that is killed
    /// between `notify` and its wake leaves the receiver asleep.
    ///
    /// # Blocking
    /// As long as `sleep` does.
    pub fn sleep_until_notified(
        &self,
        receiver: &mut WordReceiver,
        mut sleep: impl FnMut(&AtomicU32, u32) -> bool,
    ) -> Option<SenderCpu> {
        loop {
            // Declared before each sleep, as a late sender or, in shared memory, another process may have cleared the
            // declaration.
            let go_on =
                !self.declare_sleep(receiver) || sleep(&self.word, receiver.seen | SLEEPING);
            // Checked after each sleep, as it may have ended spuriously.
            if let Some(sender_cpu) = self.try_consume(receiver) {
                self.withdraw_sleep(receiver);
                return Some(sender_cpu);
            }
            if !go_on {
                self.withdraw_sleep(receiver);
                return self.try_consume(receiver);
            }
        }
    }

    /// Declares the receiver asleep; called by the receiver. Returns `false` if it must not sleep, as a notification
    /// is pending.
    ///
    /// After `true`, either sleep in a way that the waking sender ends, or call
    /// [`withdraw_sleep`](Self::withdraw_sleep). A sleep may end without a notification: declare again then.
    #[inline]
    #[must_use = "false: a notification is pending and sleeping would miss it"]
    pub fn declare_sleep(&self, receiver: &mut WordReceiver) -> bool {
        let (awake, asleep) = (receiver.seen, receiver.seen | SLEEPING);
        // Relaxed both ways: going to sleep publishes nothing, and after a failure try_consume() acquires.
        match self.word.compare_exchange(awake, asleep, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                // A late sender has taken the last declaration.
                receiver.wakes_count =
                    receiver.wakes_count.wrapping_add(u32::from(receiver.is_declared));
                receiver.is_declared = true;
                true
            }
            Err(word) => word == asleep,
        }
    }

    /// Withdraws the declaration of a sleep, if there is one; called by the receiver once it is awake, for whatever
    /// reason.
    #[inline]
    pub fn withdraw_sleep(&self, receiver: &mut WordReceiver) {
        if receiver.is_declared {
            receiver.is_declared = false;
            let was_taken = !self.take_declaration();
            receiver.wakes_count = receiver.wakes_count.wrapping_add(u32::from(was_taken));
        }
    }

    /// Clears [`SLEEPING`]; returns `true` if it was set.
    #[inline]
    fn take_declaration(&self) -> bool {
        // Relaxed: publishes nothing, and as a read-modify-write it continues the release sequence of the senders.
        self.word.fetch_and(!SLEEPING, Ordering::Relaxed) & SLEEPING != 0
    }

    /// Returns the word as a futex to sleep on and to wake.
    #[cfg(not(handover_loom))]
    #[inline]
    pub(crate) fn futex(&self) -> &AtomicU32 {
        &self.word
    }
}

#[cfg(all(test, not(handover_loom)))]
mod tests {
    use super::*;

    fn fresh() -> (StateWord, WordReceiver) {
        (StateWord::new(), WordReceiver::default())
    }

    #[test]
    fn only_the_sender_that_finds_a_declared_sleeper_wakes_it() {
        let (word, mut receiver) = fresh();
        assert!(!word.notify(Some(0)), "asked for a wake-up of a receiver that is awake");
        assert!(!word.notify(None), "asked for a wake-up although a notification was pending");
        assert_eq!(word.try_consume(&mut receiver), Some(None));
        assert!(word.declare_sleep(&mut receiver));
        assert!(word.notify(Some(7)), "did not ask for a wake-up of a sleeping receiver");
        assert!(!word.notify(Some(8)), "asked a second sender for a wake-up");
        assert_eq!(word.try_consume(&mut receiver), Some(Some(8)));
        assert_eq!(word.try_consume(&mut receiver), None);
    }

    #[test]
    fn pending_notification_prevents_the_sleep() {
        let (word, mut receiver) = fresh();
        assert!(!word.notify(Some(3)));
        assert!(!word.declare_sleep(&mut receiver));
        let consumed = word.sleep_until_notified(&mut receiver, |_, _| {
            panic!("slept although a notification was pending")
        });
        assert_eq!(consumed, Some(Some(3)));
    }

    #[test]
    fn withdrawn_declaration_restores_the_word() {
        let (word, mut receiver) = fresh();
        let consumed = word.sleep_until_notified(&mut receiver, |_, _| false);
        assert_eq!(consumed, None, "notified without a sender");
        assert!(
            !word.notify(None),
            "asked for a wake-up of a receiver that has withdrawn its declaration"
        );
        assert_eq!(receiver.wakes_count(), 0);
    }

    #[test]
    fn notification_before_withdrawal_is_returned() {
        let (word, mut receiver) = fresh();
        let consumed = word.sleep_until_notified(&mut receiver, |_, _| {
            assert!(word.notify(Some(1)));
            false
        });
        assert_eq!(consumed, Some(Some(1)));
    }

    #[test]
    fn spurious_wake_up_continues_the_sleep() {
        let (word, mut receiver) = fresh();
        let mut sleeps_count = 0;
        let consumed = word.sleep_until_notified(&mut receiver, |_, expected| {
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
    fn sleeper_redeclares_after_a_late_sender_or_a_peer_clears_its_declaration() {
        let (word, mut receiver) = fresh();
        let mut sleeps_count = 0;
        let consumed = word.sleep_until_notified(&mut receiver, |asleep, expected| {
            sleeps_count += 1;
            assert!(sleeps_count < 5, "the receiver slept {sleeps_count} times: it spins");
            assert_eq!(asleep.load(Ordering::Relaxed), expected, "sleep {sleeps_count}");
            if sleeps_count < 4 {
                assert!(word.take_declaration());
            } else {
                assert!(word.notify(Some(5)), "did not ask for a wake-up of a sleeping receiver");
            }
            true
        });
        assert_eq!((consumed, sleeps_count), (Some(Some(5)), 4));
        assert_eq!(receiver.wakes_count(), 4, "each was to be woken");
    }

    #[test]
    fn cpu_number_is_stored_exactly_or_omitted() {
        let (word, mut receiver) = fresh();
        for (cpu, carried) in
            [(0, Some(0)), (1023, Some(1023)), (u32::MAX - 1, Some(u32::MAX - 1)), (u32::MAX, None)]
        {
            assert!(!word.notify(Some(cpu)));
            assert_eq!(word.try_consume(&mut receiver), Some(carried), "CPU {cpu}");
        }
    }

    #[test]
    fn foreign_value_in_the_word_counts_as_pending() {
        for scribble in [2, 3, 4, 5, u32::MAX, u32::MAX - 1] {
            let (word, mut receiver) = fresh();
            word.word.store(scribble, Ordering::Relaxed);
            assert!(!word.declare_sleep(&mut receiver));
            assert!(word.try_consume(&mut receiver).is_some());
            assert_eq!(word.try_consume(&mut receiver), None);
        }
    }

    #[test]
    fn count_wraps_without_losing_a_notification() {
        let (word, mut receiver) = fresh();
        word.word.store(u32::MAX & !SLEEPING, Ordering::Relaxed);
        assert!(word.try_consume(&mut receiver).is_some());
        assert!(word.declare_sleep(&mut receiver));
        assert!(word.notify(None), "did not ask for a wake-up of a sleeping receiver");
        assert!(word.try_consume(&mut receiver).is_some());
        assert_eq!(word.try_consume(&mut receiver), None);
    }
}
