//! The word of a receiver that looks elsewhere: at a queue, say. It says only whether the receiver
//! sleeps.
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
//! [`StateWord`](crate::StateWord) *is* the notification, so each notification writes it, and the
//! line travels with each. Where the work itself lies in a queue that the receiver looks at, its
//! being there is the notification, and all that a sender must know is whether the receiver has
//! gone to sleep. That is read from a line which nobody writes while the receiver is awake.
//!
//! **No wake-up is lost** because both sides put a sequentially consistent fence between what they
//! write and what they read: the sender publishes, fences, reads the word; the receiver declares,
//! fences, looks at the queue. One of the two fences comes first, and whoever fences second sees
//! what the other wrote before: the receiver finds the work, or the sender finds the sleeper.

use crate::SenderCpu;
use handover_base::sync::atomic::{AtomicU32, Ordering, fence};

const AWAKE: u32 = 0;
/// The two lowest bits: awake, asleep in one of two ways, woken. The CPU of the sender that woke,
/// plus one, stands above.
const STATE: u32 = 0b11;
const WOKEN: u32 = 0b11;
const CPU_SHIFT: u32 = 2;
/// What fits above the two lowest bits, less the zero that means "not known".
const CPU_MAX: u32 = (u32::MAX >> CPU_SHIFT) - 1;

/// How a receiver sleeps, and so how it must be woken: for those who have two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Sleep {
    /// On the word itself, in the kernel's futex.
    Word = 1,
    /// On something else that the sender knows how to rouse: a descriptor, say.
    Elsewhere = 2,
}

/// One word that says whether the receiver of a queue sleeps.
///
/// This is the bare protocol: it knows neither kernel nor time. [`Bell`](crate::Bell) and
/// [`Parker`](crate::Parker) add both. All zeroes are a fresh word: the receiver is awake.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct ParkWord {
    word: AtomicU32,
}

impl ParkWord {
    /// A word whose receiver is awake.
    #[cfg(not(handover_loom))]
    #[inline]
    #[must_use]
    pub const fn new() -> Self {
        Self { word: AtomicU32::new(AWAKE) }
    }

    /// A word whose receiver is awake; loom's atomics are not made in constants.
    #[cfg(handover_loom)]
    #[must_use]
    pub fn new() -> Self {
        Self { word: AtomicU32::new(AWAKE) }
    }

    /// Sender, *after* it has published its work: `Some` means that the receiver sleeps, how, and
    /// that it is this caller who must wake it; nobody else will. `cpu` is asked only then.
    ///
    /// # Cost
    /// A fence and a load of a line that nobody writes while the receiver is awake.
    #[inline]
    #[must_use = "Some: the receiver sleeps, and nobody else will wake it"]
    pub fn must_wake(&self, cpu: impl FnOnce() -> SenderCpu) -> Option<Sleep> {
        // SeqCst: pairs with the fence in declare(); see "No wake-up is lost" above.
        fence(Ordering::SeqCst);
        // Relaxed: ordered by the fence; the exchange below decides.
        let seen = self.word.load(Ordering::Relaxed);
        asleep(seen)?;
        self.take_sleeper(seen, cpu())
    }

    #[cold]
    fn take_sleeper(&self, seen: u32, cpu: SenderCpu) -> Option<Sleep> {
        let cpu = cpu.filter(|&cpu| cpu < CPU_MAX).map_or(0, |cpu| cpu + 1);
        let woken = (cpu << CPU_SHIFT) | WOKEN;
        // Release: pairs with the Acquire in withdraw(), for what the sender notes before it wakes.
        // A failure means that another sender woke it, or that it withdrew: it has then declared
        // itself again after our fence, if at all, and has looked.
        self.word
            .compare_exchange(seen, woken, Ordering::Release, Ordering::Relaxed)
            .ok()
            .and_then(asleep)
    }

    /// Receiver: declares itself asleep. *Afterwards* it must look for work once more, and
    /// [`withdraw`](Self::withdraw) if there is any; else it may sleep.
    #[inline]
    pub fn declare(&self, how: Sleep) {
        // Relaxed: ordered by the fence.
        self.word.store(how as u32, Ordering::Relaxed);
        // SeqCst: pairs with the fence in must_wake(); see "No wake-up is lost" above.
        fence(Ordering::SeqCst);
    }

    /// Receiver: awake again, for whatever reason. `Some` means that a sender has woken it (or is
    /// about to: its wake may come late and for nothing), and where that one runs.
    #[inline]
    pub fn withdraw(&self) -> Option<SenderCpu> {
        // Acquire: pairs with the Release in must_wake().
        let was = self.word.swap(AWAKE, Ordering::Acquire);
        (was & STATE == WOKEN).then(|| (was >> CPU_SHIFT).checked_sub(1))
    }

    /// Whether the receiver has declared itself asleep and nobody has woken it yet; stale as soon
    /// as it is said.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        // Relaxed: a hint.
        asleep(self.word.load(Ordering::Relaxed)).is_some()
    }

    /// The word as the kernel sees it, to sleep on and to wake: it sleeps while the word is
    /// `how as u32`.
    #[cfg(not(handover_loom))]
    #[inline]
    pub(crate) fn futex(&self) -> &AtomicU32 {
        &self.word
    }

    /// The word itself, for a model of the futex above it.
    #[cfg(handover_loom)]
    pub fn modelled(&self) -> &AtomicU32 {
        &self.word
    }
}

#[inline]
fn asleep(word: u32) -> Option<Sleep> {
    match word & STATE {
        1 => Some(Sleep::Word),
        2 => Some(Sleep::Elsewhere),
        _ => None,
    }
}

#[cfg(all(test, not(handover_loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_is_awake_need_not_be_woken_and_the_cpu_is_not_asked() {
        let word = ParkWord::new();
        assert_eq!(word.must_wake(|| panic!("nobody sleeps")), None);
        assert_eq!(word.withdraw(), None);
    }

    #[test]
    fn one_of_several_senders_wakes_a_sleeper_and_in_its_way() {
        for how in [Sleep::Word, Sleep::Elsewhere] {
            let word = ParkWord::new();
            word.declare(how);
            assert!(word.is_asleep());
            assert_eq!(word.must_wake(|| Some(5)), Some(how));
            assert!(!word.is_asleep(), "it has been woken");
            assert_eq!(word.must_wake(|| Some(6)), None, "the first has woken it");
            assert_eq!(word.withdraw(), Some(Some(5)));
            assert_eq!(word.withdraw(), None, "said once");
        }
    }

    #[test]
    fn a_withdrawn_declaration_leaves_no_trace() {
        let word = ParkWord::new();
        word.declare(Sleep::Word);
        assert_eq!(word.withdraw(), None, "nobody has woken it");
        assert_eq!(word.must_wake(|| None), None);
    }

    #[test]
    fn any_cpu_number_is_carried_or_left_out_but_never_garbled() {
        let word = ParkWord::new();
        for (cpu, carried) in [
            (None, None),
            (Some(0), Some(0)),
            (Some(CPU_MAX - 1), Some(CPU_MAX - 1)),
            (Some(CPU_MAX), None),
            (Some(u32::MAX), None),
        ] {
            word.declare(Sleep::Word);
            assert_eq!(word.must_wake(|| cpu), Some(Sleep::Word));
            assert_eq!(word.withdraw(), Some(carried), "CPU {cpu:?}");
        }
    }
}
