//! The synchronisation facade, with and without loom.

use handover_base::sync::CachePadded;
use handover_base::sync::shared::{AtomicU32, Ordering};

#[test]
fn padded_values_are_two_lines_apart() {
    let mut pair = [CachePadded::new(1u8), CachePadded(2)];
    let address = |padded: &CachePadded<u8>| std::ptr::from_ref(&padded.0).addr();
    assert_eq!(address(&pair[1]) - address(&pair[0]), 128);
    assert_eq!(address(&pair[0]) % 128, 0);
    *pair[1] += 1;
    assert_eq!((*pair[0], pair[1].into_inner()), (1, 3));
}

#[test]
fn shared_atomics_are_cores_own() {
    // Even in a loom build, outside of a model: the kernel must read four plain bytes.
    static WORD: AtomicU32 = AtomicU32::new(7);
    assert_eq!(size_of_val(&WORD), 4);
    assert_eq!(WORD.swap(8, Ordering::Relaxed), 7);
}

#[cfg(not(handover_loom))]
mod plain {
    use handover_base::sync::atomic::{AtomicBool, Ordering};
    use handover_base::sync::{Arc, UnsafeCell, hint, thread};

    #[test]
    fn facade_types_have_no_overhead_and_are_const() {
        static FLAG: AtomicBool = AtomicBool::new(false);
        let cell = const { UnsafeCell::new(3u64) };
        assert_eq!(size_of_val(&cell), 8);
        // Both closures get the address of the value.
        assert_eq!(cell.with(|p| p.addr()), cell.with_mut(|p| p.addr()));
        assert_eq!(cell.into_inner(), 3);
        assert!(!FLAG.load(Ordering::Relaxed));
    }

    #[test]
    fn threads_spawn_and_hand_over_a_flag() {
        let flag = Arc::new(AtomicBool::new(false));
        let setter = thread::spawn({
            let flag = Arc::clone(&flag);
            move || flag.store(true, Ordering::Release) // pairs with the Acquire below
        });
        while !flag.load(Ordering::Acquire) {
            hint::spin_loop();
            thread::yield_now();
        }
        setter.join().unwrap();
    }
}

/// Shows that the items are loom's under the flag, and that loom detects mistakes.
#[cfg(handover_loom)]
mod model {
    use handover_base::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use handover_base::sync::{Arc, UnsafeCell, hint, thread};

    /// One thread writes a word and raises a flag; the other waits for the flag and reads the word.
    fn hand_over(raise: Ordering, see: Ordering) {
        let shared = Arc::new((AtomicBool::new(false), AtomicU32::new(0)));
        let writer = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                shared.1.store(7, Ordering::Relaxed); // published by the flag
                shared.0.store(true, raise);
            }
        });
        while !shared.0.load(see) {
            hint::spin_loop();
        }
        assert_eq!(shared.1.load(Ordering::Relaxed), 7, "the flag came before the word");
        writer.join().unwrap();
    }

    #[test]
    fn published_word_is_visible_in_every_execution() {
        loom::model(|| hand_over(Ordering::Release, Ordering::Acquire));
    }

    #[test]
    #[should_panic(expected = "the flag came before the word")]
    fn unpublished_word_is_detected() {
        loom::model(|| hand_over(Ordering::Relaxed, Ordering::Relaxed));
    }

    #[test]
    #[should_panic(expected = "currently")]
    fn concurrent_cell_access_is_detected() {
        loom::model(|| {
            let cell = UnsafeCell::new(0);
            cell.with(|_| cell.with_mut(|_| ()));
        });
    }
}
