//! State word of a receiver whose work lies elsewhere, such as in a queue. The word only shows
//! whether the receiver sleeps.
//!
//! ```text
//!     receiver: declare                 sender: compare-and-swap, and WAKE
//!   ┌───────┐ store, fence, LOOK  ┌──────────┐            ┌────────────────────┐
//!   │ AWAKE │────────────────────▶│ SLEEPING │───────────▶│ WOKEN, sender CPU  │
//!   └───────┘                     └──────────┘            └────────────────────┘
//!       ▲  receiver: withdraw (exchange) │                           │
//!       └────────────────────────────────┴───────────────────────────┘
//! ```
//!
//! [`StateWord`](crate::StateWord) *is* the notification, so each notification writes it, and its
//! cache line is transferred each time. Where the work itself lies in a queue that the receiver
//! checks, the presence of work is the notification, and a sender only needs to know whether the
//! receiver sleeps. It reads that from a line that no thread writes while the receiver is awake.
//!
//! **No wake-up is lost** because both sides put a sequentially consistent fence between their
//! write and their read: the sender publishes, fences, reads the word; the receiver declares,
//! fences, checks the queue. One of the two fences comes first, and the side with the second fence
//! sees the other side's write: the receiver finds the work, or the sender finds the sleeper.

use crate::word::{CPU_MAX, CPU_SHIFT, SenderCpu};
use handover_base::sync::atomic::{AtomicU32, Ordering, fence};
use handover_base::sync::const_unless_loom;

/// State in a [`ParkWord`] of a receiver that is awake.
const STATE_AWAKE: u32 = 0;
/// Mask of the lowest two bits, which hold the state. The bits above hold the CPU number, plus one,
/// of the sender that woke the receiver.
const STATE_MASK: u32 = 0b11;
/// State in a [`ParkWord`] of a receiver that a sender has woken.
const STATE_WOKEN: u32 = 0b11;

/// Object on which a receiver sleeps: its atomic word, or an object of the caller. The word is used
/// as a futex; the object may be a descriptor. This determines how a sender wakes the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum SleepObject {
    /// The receiver's word, as a futex.
    Word = 1,
    /// An object that only the caller knows, such as a descriptor.
    Elsewhere = 2,
}

/// Atomic word with the state of a receiver: awake, asleep, or woken by a sender.
///
/// This is the bare protocol, without system calls and time; [`Unparker`](crate::Unparker) and
/// [`Parker`](crate::Parker) add both. All zeroes are a fresh word: the receiver is awake.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct ParkWord {
    word: AtomicU32,
}

impl ParkWord {
    const_unless_loom! {
        /// Creates a word whose receiver is awake.
        #[inline]
        #[must_use]
        pub const fn new() -> Self {
            Self { word: AtomicU32::new(STATE_AWAKE) }
        }
    }

    /// Marks a sleeping receiver as woken, and returns the object on which it sleeps. Returns
    /// `None` if the receiver is awake. Called by a sender *after* it has published its work. On
    /// `Some`, the caller must wake the receiver, as no other sender will; only then `cpu` is
    /// called.
    ///
    /// # Cost
    /// A fence and a load of a line that no thread writes while the receiver is awake.
    #[inline]
    #[must_use = "Some: the receiver sleeps, and nobody else will wake it"]
    pub fn claim_wake(&self, cpu: impl FnOnce() -> SenderCpu) -> Option<SleepObject> {
        // SeqCst: pairs with the fence in declare_sleep(); see "No wake-up is lost" above.
        fence(Ordering::SeqCst);
        // Relaxed: ordered by the fence; the exchange below decides.
        let seen = self.word.load(Ordering::Relaxed);
        sleep_object(seen)?;
        self.mark_woken(seen, cpu())
    }

    /// Marks the receiver as woken from the CPU `cpu`, and returns the object on which it sleeps.
    /// Returns `None` if the word is not `seen` any more.
    #[cold]
    fn mark_woken(&self, seen: u32, cpu: SenderCpu) -> Option<SleepObject> {
        let cpu = cpu.filter(|&cpu| cpu <= CPU_MAX).map_or(0, |cpu| cpu + 1);
        let woken = (cpu << CPU_SHIFT) | STATE_WOKEN;
        // Release: pairs with the Acquire in withdraw_sleep(), for the sender's earlier writes.
        // A failure means that another sender woke the receiver, or that it withdrew: if it
        // declared itself asleep again, it did so after our fence, and has checked for work.
        self.word
            .compare_exchange(seen, woken, Ordering::Release, Ordering::Relaxed)
            .ok()
            .and_then(sleep_object)
    }

    /// Declares the receiver asleep; called by the receiver. *Afterwards* it must check for work
    /// once more, and call [`withdraw_sleep`](Self::withdraw_sleep) if there is any; otherwise it
    /// may sleep.
    #[inline]
    pub fn declare_sleep(&self, sleep_kind: SleepObject) {
        // Relaxed: ordered by the fence.
        self.word.store(sleep_kind as u32, Ordering::Relaxed);
        // SeqCst: pairs with the fence in claim_wake(); see "No wake-up is lost" above.
        fence(Ordering::SeqCst);
    }

    /// Withdraws the declaration of a sleep; returns the CPU of the sender that has begun to wake
    /// the receiver, if any. Called by the receiver once it is awake, for whatever reason. A late
    /// wake has no effect.
    #[inline]
    pub fn withdraw_sleep(&self) -> Option<SenderCpu> {
        // Acquire: pairs with the Release in mark_woken().
        let was = self.word.swap(STATE_AWAKE, Ordering::Acquire);
        (was & STATE_MASK == STATE_WOKEN).then(|| (was >> CPU_SHIFT).checked_sub(1))
    }

    /// Returns `true` if the receiver was asleep when the word was read. No sender had woken it by
    /// then. This may have changed since.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        // Relaxed: a hint.
        sleep_object(self.word.load(Ordering::Relaxed)).is_some()
    }

    /// Returns the word as a futex to sleep on and to wake. The kernel lets the receiver sleep
    /// while the word is `SleepObject::Word as u32`.
    #[cfg(not(handover_loom))]
    #[inline]
    pub(crate) fn futex(&self) -> &AtomicU32 {
        &self.word
    }

    /// Returns the atomic word, for a model of the futex.
    #[cfg(handover_loom)]
    pub fn word_for_model(&self) -> &AtomicU32 {
        &self.word
    }
}

/// Returns the object on which the receiver sleeps; `None` if it is awake.
#[inline]
fn sleep_object(word: u32) -> Option<SleepObject> {
    match word & STATE_MASK {
        1 => Some(SleepObject::Word),
        2 => Some(SleepObject::Elsewhere),
        _ => None,
    }
}

#[cfg(all(test, not(handover_loom)))]
mod tests {
    use super::*;

    #[test]
    fn awake_receiver_is_not_woken_and_cpu_is_not_read() {
        let word = ParkWord::new();
        assert_eq!(word.claim_wake(|| panic!("read the CPU although no receiver sleeps")), None);
        assert_eq!(word.withdraw_sleep(), None);
    }

    #[test]
    fn exactly_one_sender_wakes_a_sleeper_by_its_kind_of_sleep() {
        for sleep_kind in [SleepObject::Word, SleepObject::Elsewhere] {
            let word = ParkWord::new();
            word.declare_sleep(sleep_kind);
            assert!(word.is_asleep());
            assert_eq!(word.claim_wake(|| Some(5)), Some(sleep_kind));
            assert!(!word.is_asleep(), "asleep although a sender has woken it");
            assert_eq!(word.claim_wake(|| Some(6)), None, "asked a second sender for a wake-up");
            assert_eq!(word.withdraw_sleep(), Some(Some(5)));
            assert_eq!(word.withdraw_sleep(), None, "the sender's CPU was returned twice");
        }
    }

    #[test]
    fn withdrawn_declaration_restores_the_word() {
        let word = ParkWord::new();
        word.declare_sleep(SleepObject::Word);
        assert_eq!(word.withdraw_sleep(), None, "woken without a sender");
        assert_eq!(word.claim_wake(|| None), None);
    }

    #[test]
    fn cpu_number_is_stored_exactly_or_omitted() {
        let word = ParkWord::new();
        for (cpu, carried) in [
            (None, None),
            (Some(0), Some(0)),
            (Some(CPU_MAX), Some(CPU_MAX)),
            (Some(CPU_MAX + 1), None),
            (Some(u32::MAX), None),
        ] {
            word.declare_sleep(SleepObject::Word);
            assert_eq!(word.claim_wake(|| cpu), Some(SleepObject::Word));
            assert_eq!(word.withdraw_sleep(), Some(carried), "CPU {cpu:?}");
        }
    }
}
