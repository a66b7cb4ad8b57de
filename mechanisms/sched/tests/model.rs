//! loom models of the lane: every interleaving and every reordering that the memory model allows.
//! A line has four words there, so that few slots wrap around a small lane.
//!
//! ```text
//! RUSTFLAGS="--cfg handover_loom" cargo test -p handover-sched --test model --profile loom \
//!     --target-dir target/loom
//! ```
//!
//! # Calls that are combined
//! In each row, every call of the sender meets every call of the receiver at every point that two
//! preemptions allow (three for `check_mix_of_single_slots_and_runs`), and one more with
//! `HANDOVER_LONG`. All models wrap around the lane.
//!
//! | model | sender | receiver |
//! |---|---|---|
//! | `check_single_slots` | `push` until accepted | `pop` |
//! | `check_runs` | `push_all` of three | `pop_all` of three |
//! | `check_mix_of_single_slots_and_runs` | `push`, `push_all` of two, `free_count`, drop | `pop`, `pop_all` of two |
//!
//! Seen to fail, with torn or lost slots: `check_mix_of_single_slots_and_runs` with the Release of
//! `push_all` made Relaxed, and with a sender's limit that is one slot too high.
#![cfg(handover_loom)]

use handover_base::sync::{hint, thread};
use handover_sched::drive::lane::lane;

/// Returns the limit of preemptions. Three take two minutes for all models; `cargo xtask test
/// --long` uses three.
fn preemptions_max() -> usize {
    if std::env::var_os("HANDOVER_LONG").is_some() { 3 } else { 2 }
}

/// Makes a slot that holds its number in every word.
fn slot<const W: usize>(number: u64) -> [u64; W] {
    std::array::from_fn(|word| number * 4 + word as u64)
}

/// Sends `numbers` slots through a lane, wrapping around it.
fn check_single_slots<const W: usize>(slots_count: u32, numbers: u64) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions_max());
    builder.check(move || {
        let (mut sender, mut receiver) = lane::<W>(slots_count).unwrap();
        let other = thread::spawn(move || {
            for number in 0..numbers {
                while !sender.push(slot(number)) {
                    hint::spin_loop();
                }
            }
        });
        let mut number = 0;
        while number < numbers {
            match receiver.pop() {
                Some(words) => {
                    assert_eq!(words, slot(number));
                    number += 1;
                }
                None => hint::spin_loop(),
            }
        }
        other.join().unwrap();
    });
}

/// Sends slots as `check_single_slots`, in runs of up to three, which end inside lines and inside
/// the lane.
fn check_runs<const W: usize>(slots_count: u32, numbers: u64) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions_max());
    builder.check(move || {
        let (mut sender, mut receiver) = lane::<W>(slots_count).unwrap();
        let other = thread::spawn(move || {
            let mut number = 0;
            while number < numbers {
                let run: Vec<_> = (number..numbers.min(number + 3)).map(slot).collect();
                match sender.push_all(&run) {
                    0 => hint::spin_loop(),
                    pushed => number += pushed as u64,
                }
            }
        });
        let (mut number, mut run) = (0, [[0; W]; 3]);
        while number < numbers {
            let popped = receiver.pop_all(&mut run);
            for words in &run[..popped] {
                assert_eq!(*words, slot(number));
                number += 1;
            }
            if popped == 0 {
                hint::spin_loop();
            }
        }
        other.join().unwrap();
    });
}

/// Alternates single slots and runs at both ends. No end waits: the sender stops when the lane is
/// full, and the receiver polls a few times and finally takes the rest.
fn check_mix_of_single_slots_and_runs<const W: usize>(slots_count: u32, numbers: u64) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions_max() + 1);
    builder.check(move || {
        let (mut sender, mut receiver) = lane::<W>(slots_count).unwrap();
        let other = thread::spawn(move || {
            let mut number = 0;
            while number < numbers {
                let pushed = if number % 3 == 1 {
                    let run: Vec<_> = (number..numbers.min(number + 2)).map(slot).collect();
                    let free_count = sender.free_count(run.len()).min(run.len());
                    let pushed = sender.push_all(&run);
                    assert!(pushed >= free_count, "there was room for {free_count}");
                    pushed
                } else {
                    let has_free_slot = sender.free_count(1) > 0;
                    let pushed = sender.push(slot(number));
                    assert!(pushed || !has_free_slot, "there was room");
                    usize::from(pushed)
                };
                number += pushed as u64;
                if pushed == 0 {
                    break;
                }
            }
            number
        });
        let (mut popped, mut run) = (0, [[0; W]; 2]);
        let mut expect = |slots: &[[u64; W]]| {
            for words in slots {
                assert_eq!(*words, slot(popped));
                popped += 1;
            }
        };
        expect(receiver.pop().as_slice());
        let count = receiver.pop_all(&mut run);
        expect(&run[..count]);
        expect(receiver.pop().as_slice());
        let pushed = other.join().unwrap();
        while let Some(words) = receiver.pop() {
            expect(&[words]);
        }
        assert_eq!(popped, pushed);
    });
}

#[test]
fn each_slot_is_delivered_once_with_single_slots_and_runs_mixed() {
    check_mix_of_single_slots_and_runs::<2>(2, 6);
}

#[test]
fn each_slot_is_delivered_once_in_runs() {
    check_runs::<1>(3, 5);
    check_runs::<2>(2, 4);
}

#[test]
fn each_slot_is_delivered_once_after_wrapping() {
    check_single_slots::<2>(1, 4);
    check_single_slots::<2>(2, 5);
}
