//! loom models of the lanes: every interleaving and every reordering that the memory model allows.
//! A line has four words there, so that few slots wrap around a small lane.
//!
//! ```text
//! RUSTFLAGS="--cfg handover_loom" cargo test -p handover-sched --test model --profile loom \
//!     --target-dir target/loom
//! ```
//!
//! # Calls that are combined
//! In each row, every call of the sender meets every call of the receiver at every point that two
//! preemptions allow (three for `check_mix_of_single_slots_and_runs`), and one more with `HANDOVER_LONG`. All models wrap
//! around the lane.
//!
//! | model | lane | sender | receiver |
//! |---|---|---|---|
//! | `check_single_slots` | each | `push` until accepted, `publish` after each, or every second | `pop`, `release` |
//! | `check_runs` | `Laps` | `push_all` of three, `publish` | `pop_all` of three, `release` |
//! | `check_mix_of_single_slots_and_runs` | each | `push`, `push_all` of two, `free_count`, `has_free_slot`, `publish` only at times, drop | `pop`, `pop_all` of two, `release` only at times |
//!
//! Seen to fail, with torn or lost slots: `check_mix_of_single_slots_and_runs` with the Release of `Laps`' `push_all` or of
//! `Cached`'s index made Relaxed, and with a limit of `Laps` that is one slot too high.
#![cfg(handover_loom)]

use handover_base::sync::{hint, thread};
use handover_sched::drive::lane::{
    Cached, Lane, LaneReceiver, LaneSender, Laps, Lines, Marks, Plain,
};

/// Returns the limit of preemptions. Three take two minutes for all models; `cargo xtask test
/// --long` uses three.
fn preemptions_max() -> usize {
    if std::env::var_os("HANDOVER_LONG").is_some() { 3 } else { 2 }
}

/// Makes a slot that holds its number in every word.
fn slot<const W: usize>(number: u64) -> [u64; W] {
    std::array::from_fn(|word| number * 4 + word as u64)
}

/// Sends `numbers` slots through a lane, wrapping around it, and publishes after every `batch`.
fn check_single_slots<L: Lane, const W: usize>(slots_count: u32, numbers: u64, batch: u64) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions_max());
    builder.check(move || {
        let (mut sender, mut receiver) = L::pair::<W>(slots_count).unwrap();
        let other = thread::spawn(move || {
            for number in 0..numbers {
                while !sender.push(slot(number)) {
                    sender.publish();
                    hint::spin_loop();
                }
                if (number + 1) % batch == 0 {
                    sender.publish();
                }
            }
            sender.publish();
        });
        let mut number = 0;
        while number < numbers {
            match receiver.pop() {
                Some(words) => {
                    assert_eq!(words, slot(number));
                    number += 1;
                }
                None => {
                    receiver.release();
                    hint::spin_loop();
                }
            }
        }
        other.join().unwrap();
    });
}

/// Sends slots as `check_single_slots`, in runs of up to three, which end inside lines and inside the
/// lane.
fn check_runs<L: Lane, const W: usize>(slots_count: u32, numbers: u64) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions_max());
    builder.check(move || {
        let (mut sender, mut receiver) = L::pair::<W>(slots_count).unwrap();
        let other = thread::spawn(move || {
            let mut number = 0;
            while number < numbers {
                let run: Vec<_> = (number..numbers.min(number + 3)).map(slot).collect();
                match sender.push_all(&run) {
                    0 => hint::spin_loop(),
                    pushed => number += pushed as u64,
                }
                sender.publish();
            }
        });
        let (mut number, mut run) = (0, [[0; W]; 3]);
        while number < numbers {
            let popped = receiver.pop_all(&mut run);
            for words in &run[..popped] {
                assert_eq!(*words, slot(number));
                number += 1;
            }
            receiver.release();
            if popped == 0 {
                hint::spin_loop();
            }
        }
        other.join().unwrap();
    });
}

/// Alternates single slots and runs at both ends. No end waits: the sender stops when the lane is
/// full, and the receiver polls a few times and finally takes the rest.
fn check_mix_of_single_slots_and_runs<L: Lane, const W: usize>(slots_count: u32, numbers: u64) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions_max() + 1);
    builder.check(move || {
        let (mut sender, mut receiver) = L::pair::<W>(slots_count).unwrap();
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
                    let has_free_slot = sender.has_free_slot();
                    let pushed = sender.push(slot(number));
                    assert!(pushed || !has_free_slot, "there was room");
                    usize::from(pushed)
                };
                number += pushed as u64;
                if pushed == 0 {
                    break;
                }
                if number % 2 == 0 {
                    sender.publish();
                }
            }
            sender.publish();
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
        receiver.release();
        expect(receiver.pop().as_slice());
        let pushed = other.join().unwrap();
        while let Some(words) = receiver.pop() {
            expect(&[words]);
        }
        assert_eq!(popped, pushed);
    });
}

#[test]
fn laps_deliver_each_slot_once_with_single_slots_and_runs_mixed() {
    check_mix_of_single_slots_and_runs::<Laps, 2>(2, 6);
}

#[test]
fn marks_deliver_each_slot_once_with_single_slots_and_runs_mixed() {
    check_mix_of_single_slots_and_runs::<Marks, 4>(1, 8);
}

#[test]
fn lines_deliver_each_slot_once_with_single_slots_and_runs_mixed() {
    check_mix_of_single_slots_and_runs::<Lines, 2>(1, 8);
}

#[test]
fn indices_deliver_each_slot_once_with_single_slots_and_runs_mixed() {
    check_mix_of_single_slots_and_runs::<Cached, 2>(2, 5);
    check_mix_of_single_slots_and_runs::<Plain, 2>(2, 5);
}

#[test]
fn laps_deliver_each_slot_once_in_runs() {
    check_runs::<Laps, 1>(3, 5);
    check_runs::<Laps, 2>(2, 4);
}

#[test]
fn laps_deliver_each_slot_once_after_wrapping() {
    check_single_slots::<Laps, 2>(1, 4, 1);
    check_single_slots::<Laps, 2>(2, 5, 2);
}

#[test]
fn marks_deliver_each_slot_once_after_wrapping() {
    check_single_slots::<Marks, 4>(1, 6, 1);
}

#[test]
fn lines_deliver_each_slot_once_after_wrapping() {
    check_single_slots::<Lines, 4>(1, 4, 1);
    check_single_slots::<Lines, 2>(1, 5, 2);
}

#[test]
fn cached_indices_deliver_each_slot_once_after_wrapping() {
    check_single_slots::<Cached, 2>(1, 2, 1);
    check_single_slots::<Cached, 2>(2, 3, 2);
}

#[test]
fn plain_indices_deliver_each_slot_once_after_wrapping() {
    check_single_slots::<Plain, 2>(1, 2, 1);
}
