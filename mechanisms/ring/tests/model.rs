//! The rings and the mailbox under loom, which tries every interleaving and every reordering that
//! the memory model allows. Lines have two slots there, so that three values go around a small
//! ring.
//!
//! ```text
//! RUSTFLAGS="--cfg handover_loom" cargo test -p handover-ring --features async --test model \
//!     --profile loom --target-dir target/loom
//! ```
//!
//! # Which calls are mixed
//! In each row, every call of one column meets every call of the others at every point, with up to
//! three preemptions, or as many as the row says. With `HANDOVER_LONG`, models of two threads are
//! tried without a bound unless the row names one, and rows that name one with one preemption more.
//!
//! | model | producer | another producer | consumer |
//! |---|---|---|---|
//! | `values_arrive_in_order_*` | spsc `push` until accepted, drop | | `pop`, `is_finished` |
//! | `unpublished_values_*` | `push_unpublished`, `flush`, drop | | `pop`, `is_finished` |
//! | `batch_across_lines_*` | `push_batch` | | `pop_batch` |
//! | `dropped_drain_*` | `push` until accepted | | `drain` dropped half-way, `pop` |
//! | `spsc_mixed_*` (3) | `push`, `push_unpublished`, `push_batch`, drop | | `pop`, `drain`, `pop_batch`, `is_empty`, `is_finished` |
//! | `spsc_closed_*` (3) | `push_unpublished`, `push_batch`, `close` or drop | | `pop`, `close`, `is_finished`, or drop |
//! | `values_accepted_*` | spsc, mpsc `push` | | `close`, `pop`, `is_finished` |
//! | `value_pushed_during_*` | spsc, mpsc `push`, drop | | drop |
//! | `values_of_two_producers_*` | mpsc `push` twice | `push` | `pop`, `is_finished` |
//! | `two_producers_reuse_*` | `push` | `push` | `pop`, `drain` |
//! | `batch_and_push_*` | `push_batch` | `push` | `pop`, `is_finished` |
//! | `mpsc_mixed_*` (2) | `push`, `push_batch` that claims too much, drop | `push_batch`, drop | `pop`, `pop_batch`, `is_empty`, `is_finished` |
//! | `mpsc_closed_*` (2) | `push_batch` that claims too much, `push` | `close` | `pop`, `is_finished` |
//! | `mpsc_dropped_*` (2) | `push`, `push_batch` that claims too much, drop | `push`, drop | `pop`, drop |
//!
//! | model | producer | another producer | consumer | another consumer |
//! |---|---|---|---|---|
//! | `values_of_two_mpmc_producers_*` | mpmc `push` twice | `push`, drop | `pop` twice, after the first producer | `pop` twice |
//! | `two_mpmc_consumers_*` | `push` three times, drop | | `pop` twice, `is_finished` | `pop` twice |
//! | `mpmc_mixed_*` | `push`, `len`, drop | | `pop`, `is_empty`, `is_finished` | `pop`, drop |
//! | `mpmc_closed_*` | `push` twice | `close` | `pop`, `is_finished` | |
//! | `mpmc_dropped_*` | `push`, drop | | `pop`, drop | drop |
//! | `mpmc_batches_*` (2) | `push_batch` that claims too much, `push`, drop | `push`, drop | `pop_batch`, `is_finished` | |
//! | `mpmc_batch_and_pop_*` (2) | `push_batch` over the end of the ring, drop | | `pop_batch` | `pop` |
//!
//! | model | caller | server |
//! |---|---|---|
//! | `mailbox_passes_*` | `send`, `receive`, drop | `receive`, `reply`, `is_finished` |
//! | `caller_gets_an_error_*` | `send`, `receive` | `receive`, `reply`, drop at any point |
//! | `mailbox_content_*` | `send`, drop | `receive`, `reply`, drop |
//! | `mailbox_mixed_*` | `send` twice, `receive`, drop while waiting | `receive`, `reply`, drop with an unanswered request |
//!
//! | model | sender | another sender | receiver |
//! |---|---|---|---|
//! | `channel_task_*` (2) | spsc `send` twice, drop | | `receive` until closed |
//! | `cancelled_channel_*` (2) | spsc `try_send`, `send` | | `receive` cancelled, `poll_receive` by another task, `receive` |
//! | `channel_closed_*` (2) | spsc `send` twice | | `receive`, `close` or drop |
//! | `slot_of_a_cancelled_*` (1) | mpsc `send` cancelled, drop | `send` | `try_receive`, `receive` until closed |
//!
//! | model | sender | another sender | receiver | another receiver |
//! |---|---|---|---|---|
//! | `values_sent_in_any_order_*` (1) | mpmc `try_send` | `try_send` | `receive` | `receive` |
//! | `mpmc_channel_closed_*` | mpmc `try_send` | `close` | `receive` until closed | `receive` until closed |
//!
//! Mutations that loom has detected: `return_positions` without the skip marks (`mpsc_mixed`,
//! `mpsc_closed`), or with a store in place of its compare-and-swap (`mpsc_closed`); a value
//! published by a Relaxed store (all of `mpsc_*`); a channel's sender that is registered while it
//! takes a slot, so that the next slot's wake-up is lost (`slot_of_a_cancelled_*`); a woken
//! receiver that does not wake the next although there is a value (`values_sent_in_any_order_*`),
//! and a sender that does not wake all after a push during which the channel was closed
//! (`mpmc_channel_closed_*`).
#![cfg(handover_loom)]

use handover_base::loom_support::explore;
use handover_base::sync::{hint, thread};
use handover_ring::{PushError, ReceiveError, mailbox, mpmc, mpsc, spsc};
use std::sync::Arc as Counted;

/// Tries every interleaving with up to three preemptions; with `HANDOVER_LONG`, every interleaving
/// of two threads.
fn model(threads_count: usize, run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    let is_long = std::env::var_os("HANDOVER_LONG").is_some();
    builder.preemption_bound = (threads_count > 2 || !is_long).then_some(3);
    builder.check(run);
}

/// Returns the values, and claims to have `more` after them.
struct Claims<I> {
    values: I,
    more: usize,
}

impl<I: ExactSizeIterator> Iterator for Claims<I> {
    type Item = I::Item;
    fn next(&mut self) -> Option<I::Item> {
        self.values.next()
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        let length = self.values.len() + self.more;
        (length, Some(length))
    }
}

impl<I: ExactSizeIterator> ExactSizeIterator for Claims<I> {}

/// Pops until no more values can come.
macro_rules! pop_all {
    ($consumer:ident) => {{
        let mut popped = Vec::new();
        loop {
            match $consumer.pop() {
                Some(value) => popped.push(value),
                None if $consumer.is_finished() => break popped,
                None => hint::spin_loop(),
            }
        }
    }};
}

#[test]
fn values_arrive_in_order_while_slots_are_reused() {
    model(2, || {
        let (mut producer, mut consumer) = spsc::ring(2).unwrap();
        let other = thread::spawn(move || {
            for value in [Box::new(1), Box::new(2), Box::new(3)] {
                let mut value = Some(value);
                while let Err(refused) = producer.push(value.take().unwrap()) {
                    value = Some(refused.into_inner());
                    hint::spin_loop();
                }
            }
        });
        assert_eq!(pop_all!(consumer), [1, 2, 3].map(Box::new));
        other.join().unwrap();
    });
}

#[test]
fn unpublished_values_arrive_complete_and_in_order() {
    model(2, || {
        let (mut producer, mut consumer) = spsc::ring(8).unwrap();
        let other = thread::spawn(move || {
            for value in 0..3 {
                producer.push_unpublished(value).unwrap();
            }
            producer.flush();
            producer.push_unpublished(3).unwrap();
        });
        assert_eq!(pop_all!(consumer), [0, 1, 2, 3]);
        other.join().unwrap();
    });
}

#[test]
fn batch_across_lines_arrives_complete_and_in_order() {
    model(2, || {
        let (mut producer, mut consumer) = spsc::ring(4).unwrap();
        producer.push(0).unwrap();
        assert_eq!(consumer.pop(), Some(0));
        let other = thread::spawn(move || {
            assert_eq!(producer.push_batch(&mut (1..5)), 4); // begins in the middle of a line
        });
        let mut popped = Vec::new();
        while popped.len() < 4 {
            if consumer.pop_batch(2, |value| popped.push(value)) == 0 {
                hint::spin_loop();
            }
        }
        assert_eq!(popped, [1, 2, 3, 4]);
        other.join().unwrap();
    });
}

#[test]
fn dropped_drain_releases_its_slots() {
    model(2, || {
        let (mut producer, mut consumer) = spsc::ring(1).unwrap();
        producer.push(Box::new(1)).unwrap();
        let other = thread::spawn(move || {
            let mut value = Some(Box::new(2));
            while let Err(refused) = producer.push(value.take().unwrap()) {
                value = Some(refused.into_inner());
                hint::spin_loop();
            }
        });
        assert_eq!(consumer.drain().next(), Some(Box::new(1)));
        assert_eq!(pop_all!(consumer), [Box::new(2)]);
        other.join().unwrap();
    });
}

#[test]
fn values_accepted_during_close_can_be_popped() {
    model(2, || {
        let (mut producer, mut consumer) = spsc::ring(4).unwrap();
        let other = thread::spawn(move || {
            let mut accepted = 0;
            for value in 0..2 {
                match producer.push(value) {
                    Ok(()) => accepted += 1,
                    Err(refused) => assert_eq!(refused, PushError::Closed(value)),
                }
            }
            accepted
        });
        consumer.close();
        let popped = pop_all!(consumer).len();
        assert_eq!(popped, other.join().unwrap());
    });
    model(2, || {
        let (producer, mut consumer) = mpsc::ring(4).unwrap();
        let other = thread::spawn(move || {
            let mut accepted = 0;
            for value in 0..2 {
                match producer.push(value) {
                    Ok(()) => accepted += 1,
                    Err(refused) => assert_eq!(refused, PushError::Closed(value)),
                }
            }
            accepted
        });
        consumer.close();
        let popped = pop_all!(consumer).len();
        assert_eq!(popped, other.join().unwrap());
    });
}

#[test]
fn value_pushed_during_the_consumers_drop_is_dropped_once() {
    model(2, || {
        let counted = Counted::new(());
        let (mut producer, consumer) = spsc::ring(4).unwrap();
        let value = Counted::clone(&counted);
        let other = thread::spawn(move || drop(producer.push(value)));
        drop(consumer);
        other.join().unwrap();
        assert_eq!(Counted::strong_count(&counted), 1);
    });
    model(2, || {
        let counted = Counted::new(());
        let (producer, consumer) = mpsc::ring(4).unwrap();
        let value = Counted::clone(&counted);
        let other = thread::spawn(move || drop(producer.push(value)));
        drop(consumer);
        other.join().unwrap();
        assert_eq!(Counted::strong_count(&counted), 1);
    });
}

#[test]
fn values_of_two_producers_arrive_in_order_per_producer() {
    model(3, || {
        let (first, mut consumer) = mpsc::ring(4).unwrap();
        let second = first.clone();
        let others = [
            thread::spawn(move || {
                first.push(Box::new(10)).unwrap();
                first.push(Box::new(11)).unwrap();
            }),
            thread::spawn(move || second.push(Box::new(20)).unwrap()),
        ];
        let popped = pop_all!(consumer);
        assert_eq!(popped.len(), 3);
        let place = |value| popped.iter().position(|it| **it == value).unwrap();
        assert!(place(10) < place(11));
        assert!(place(20) < 3);
        for other in others {
            other.join().unwrap();
        }
    });
}

#[test]
fn two_producers_reuse_a_popped_slot() {
    model(3, || {
        let (first, mut consumer) = mpsc::ring(1).unwrap();
        let second = first.clone();
        let push = |producer: mpsc::Producer<Box<i32>>, value| {
            move || match producer.push(Box::new(value)) {
                Ok(()) => Some(Box::new(value)),
                Err(refused) => {
                    assert!(refused.is_full());
                    None
                }
            }
        };
        let others = [thread::spawn(push(first, 1)), thread::spawn(push(second, 2))];
        let mut popped: Vec<_> = consumer.pop().into_iter().collect();
        let accepted: Vec<_> = others.into_iter().filter_map(|it| it.join().unwrap()).collect();
        popped.extend(consumer.drain());
        popped.sort();
        assert_eq!(popped, accepted);
        assert!(!accepted.is_empty(), "there was a slot for one");
    });
}

#[test]
fn batch_and_push_of_two_producers_all_arrive() {
    model(3, || {
        let (first, mut consumer) = mpsc::ring(4).unwrap();
        let second = first.clone();
        let others = [
            thread::spawn(move || assert_eq!(first.push_batch(&mut [10, 11].into_iter()), 2)),
            thread::spawn(move || second.push(20).unwrap()),
        ];
        let mut popped = pop_all!(consumer);
        assert!(popped.iter().position(|&it| it == 10) < popped.iter().position(|&it| it == 11));
        popped.sort();
        assert_eq!(popped, [10, 11, 20]);
        for other in others {
            other.join().unwrap();
        }
    });
}

#[test]
fn spsc_mixed_calls_pass_each_accepted_value_once_and_in_order() {
    explore(3, || {
        let (mut producer, mut consumer) = spsc::ring(2).unwrap();
        let other = thread::spawn(move || {
            let mut accepted: Vec<_> =
                producer.push(Box::new(0)).ok().map(|()| 0).into_iter().collect();
            accepted.extend(producer.push_unpublished(Box::new(1)).ok().map(|()| 1));
            let pushed = producer.push_batch(&mut [2, 3].map(Box::new).into_iter());
            accepted.extend([2, 3].into_iter().take(pushed));
            accepted
        });
        let mut popped: Vec<_> = consumer.pop().into_iter().collect();
        popped.extend(consumer.drain().next());
        if !consumer.is_empty() {
            assert_ne!(consumer.pop_batch(2, |value| popped.push(value)), 0);
        }
        popped.extend(pop_all!(consumer));
        let accepted = other.join().unwrap();
        assert!(popped.into_iter().map(|value| *value).eq(accepted));
    });
}

#[test]
fn spsc_closed_or_dropped_at_both_ends_drops_each_value_once() {
    for drops in [false, true] {
        explore(3, move || {
            let counted = Counted::new(());
            let (mut producer, mut consumer) = spsc::ring(2).unwrap();
            let values = [(); 4].map(|()| Counted::clone(&counted));
            let other = thread::spawn(move || {
                let [first, values @ ..] = values;
                let later = usize::from(producer.push_unpublished(first).is_ok());
                let pushed = later + producer.push_batch(&mut values.into_iter());
                producer.close();
                pushed
            });
            let popped = usize::from(consumer.pop().is_some());
            if drops {
                drop(consumer);
                other.join().unwrap();
            } else {
                consumer.close();
                let popped = popped + pop_all!(consumer).len();
                assert_eq!(popped, other.join().unwrap());
                drop(consumer);
            }
            assert_eq!(Counted::strong_count(&counted), 1);
        });
    }
}

#[test]
fn mpsc_mixed_calls_pass_each_accepted_value_once_in_order_per_producer() {
    explore(2, || {
        let (first, mut consumer) = mpsc::ring(3).unwrap();
        let second = first.clone();
        let others = [
            thread::spawn(move || {
                let mut accepted: Vec<_> =
                    first.push(Box::new(10)).ok().map(|()| 10).into_iter().collect();
                // One value, but two slots reserved: the second is given back, or skipped.
                let values = [11].map(Box::new).into_iter();
                let pushed = first.push_batch(&mut Claims { values, more: 1 });
                accepted.extend([11].into_iter().take(pushed));
                accepted
            }),
            thread::spawn(move || {
                let pushed = second.push_batch(&mut [20, 21].map(Box::new).into_iter());
                [20, 21].into_iter().take(pushed).collect()
            }),
        ];
        let mut popped: Vec<_> = consumer.pop().into_iter().collect();
        if !consumer.is_empty() {
            assert_ne!(consumer.pop_batch(2, |value| popped.push(value)), 0);
        }
        popped.extend(pop_all!(consumer));
        assert!(consumer.is_empty());
        let accepted = others.map(|other| other.join().unwrap());
        let of = |tens| -> Vec<_> {
            popped.iter().map(|it| **it).filter(|it| it / 10 == tens).collect()
        };
        assert_eq!([of(1), of(2)], accepted);
    });
}

#[test]
fn mpsc_close_during_a_batch_passes_each_accepted_value_once() {
    explore(2, || {
        let (first, mut consumer) = mpsc::ring(4).unwrap();
        let second = first.clone();
        let others = [
            thread::spawn(move || {
                let values = [10].map(Box::new).into_iter();
                let pushed = first.push_batch(&mut Claims { values, more: 2 });
                pushed + usize::from(first.push(Box::new(11)).is_ok())
            }),
            thread::spawn(move || {
                second.close();
                0
            }),
        ];
        let popped = pop_all!(consumer);
        assert!(popped.iter().map(|value| **value).eq((10..12).take(popped.len())));
        let accepted: usize = others.into_iter().map(|other| other.join().unwrap()).sum();
        assert_eq!(popped.len(), accepted);
    });
}

#[test]
fn mpsc_consumer_drop_during_pushes_drops_each_value_once() {
    explore(2, || {
        let counted = Counted::new(());
        let (first, mut consumer) = mpsc::ring(3).unwrap();
        let second = first.clone();
        let [one, two, three] = [(); 3].map(|()| Counted::clone(&counted));
        let others = [
            thread::spawn(move || {
                drop(first.push(one));
                first.push_batch(&mut Claims { values: [two].into_iter(), more: 1 });
            }),
            thread::spawn(move || drop(second.push(three))),
        ];
        drop(consumer.pop());
        drop(consumer);
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(Counted::strong_count(&counted), 1);
    });
}

/// Pops twice, without waiting: of two threads that poll, loom may let one run for ever.
fn pop_twice<T>(consumer: &mpmc::Consumer<T>) -> Vec<T> {
    consumer.pop().into_iter().chain(consumer.pop()).collect()
}

#[test]
fn values_of_two_mpmc_producers_reach_one_of_two_consumers_in_order() {
    explore(2, || {
        let (first, consumer) = mpmc::ring(4).unwrap();
        let (second, other) = (first.clone(), consumer.clone());
        let pushes = thread::spawn(move || second.push(Box::new(20)).unwrap());
        let pops = thread::spawn(move || pop_twice(&other));
        first.push(Box::new(10)).unwrap();
        first.push(Box::new(11)).unwrap();
        let mut popped = [pop_twice(&consumer), pops.join().unwrap()];
        pushes.join().unwrap();
        popped[0].extend(std::iter::from_fn(|| consumer.pop()));
        for popped in &popped {
            let place = |value| popped.iter().position(|it| **it == value);
            assert!(place(11).is_none_or(|it| place(10) < Some(it)));
        }
        let mut all = popped.concat();
        all.sort();
        assert_eq!(all, [10, 11, 20].map(Box::new));
    });
}

#[test]
fn two_mpmc_consumers_take_each_value_once_while_the_slot_is_reused() {
    explore(3, || {
        let (producer, consumer) = mpmc::ring(1).unwrap();
        let other = consumer.clone();
        let pushes = thread::spawn(move || {
            let push = |&value: &i32| producer.push(Box::new(value)).is_ok();
            [1, 2, 3].into_iter().filter(push).map(Box::new).collect::<Vec<_>>()
        });
        let pops = thread::spawn(move || pop_twice(&other));
        let mut popped = pop_twice(&consumer);
        assert!(popped.is_sorted());
        popped.extend(pops.join().unwrap());
        let accepted = pushes.join().unwrap();
        popped.extend(consumer.pop());
        popped.sort();
        assert_eq!(popped, accepted);
        assert!(consumer.is_finished());
    });
}

#[test]
fn mpmc_mixed_calls_pass_each_accepted_value_once() {
    explore(3, || {
        let (producer, consumer) = mpmc::ring(2).unwrap();
        let other = consumer.clone();
        let pushes = thread::spawn(move || {
            let accepted: Vec<_> = (0..3)
                .filter(|&value| producer.push(Box::new(value)).is_ok())
                .map(Box::new)
                .collect();
            assert!(producer.len() <= 2);
            accepted
        });
        let pops = thread::spawn(move || other.pop());
        let mut popped: Vec<_> = consumer.pop().into_iter().collect();
        if !consumer.is_empty() {
            popped.extend(consumer.pop());
        }
        popped.extend(pop_all!(consumer));
        assert!(popped.is_sorted());
        popped.extend(pops.join().unwrap());
        popped.sort();
        assert_eq!(popped, pushes.join().unwrap());
    });
}

#[test]
fn mpmc_closed_during_pushes_loses_no_accepted_value() {
    explore(3, || {
        let (producer, consumer) = mpmc::ring(4).unwrap();
        let closer = producer.clone();
        let pushes = thread::spawn(move || {
            let push = |value| match producer.push(value) {
                Ok(()) => true,
                Err(refused) => {
                    assert_eq!(refused, PushError::Closed(value));
                    false
                }
            };
            [1, 2].into_iter().filter(|&value| push(value)).count()
        });
        let closes = thread::spawn(move || closer.close());
        let popped = pop_all!(consumer).len();
        assert_eq!(popped, pushes.join().unwrap());
        closes.join().unwrap();
    });
}

#[test]
fn mpmc_dropped_consumers_drop_each_value_once() {
    explore(3, || {
        let counted = Counted::new(());
        let (producer, consumer) = mpmc::ring(2).unwrap();
        let other = consumer.clone();
        let values = [(); 2].map(|()| Counted::clone(&counted));
        let pushes = thread::spawn(move || values.map(|value| drop(producer.push(value))));
        let pops = thread::spawn(move || {
            drop(other.pop());
            drop(other);
        });
        drop(consumer);
        pops.join().unwrap();
        pushes.join().unwrap();
        assert_eq!(Counted::strong_count(&counted), 1);
    });
}

#[test]
fn mpmc_batches_that_claim_too_much_pass_each_accepted_value_once() {
    explore(2, || {
        let (first, consumer) = mpmc::ring(3).unwrap();
        let second = first.clone();
        let others = [
            thread::spawn(move || {
                let values = [10].map(Box::new).into_iter();
                let pushed = first.push_batch(&mut Claims { values, more: 1 });
                let then = first.push(Box::new(11)).is_ok();
                [10, 11].into_iter().skip(1 - pushed).take(pushed + usize::from(then)).collect()
            }),
            thread::spawn(move || match second.push(Box::new(20)) {
                Ok(()) => vec![20],
                Err(_) => vec![],
            }),
        ];
        let mut popped = Vec::new();
        while !consumer.is_finished() {
            if consumer.pop_batch(3, |value| popped.push(value)) == 0 {
                hint::spin_loop();
            }
        }
        let accepted = others.map(|other| other.join().unwrap());
        let of = |tens| -> Vec<_> {
            popped.iter().map(|it| **it).filter(|it| it / 10 == tens).collect()
        };
        assert_eq!([of(1), of(2)], accepted);
    });
}

#[test]
fn mpmc_batch_and_pop_take_each_value_once() {
    explore(2, || {
        let (producer, consumer) = mpmc::ring(2).unwrap();
        producer.push(Box::new(0)).unwrap();
        assert_eq!(consumer.pop(), Some(Box::new(0)));
        let other = consumer.clone();
        let pushes = thread::spawn(move || {
            let pushed = producer.push_batch(&mut [1, 2, 3].map(Box::new).into_iter());
            [1, 2, 3].map(Box::new)[..pushed].to_vec()
        });
        let pops = thread::spawn(move || other.pop());
        let mut popped = Vec::new();
        consumer.pop_batch(2, |value| popped.push(value));
        assert!(popped.is_sorted());
        popped.extend(pops.join().unwrap());
        let accepted = pushes.join().unwrap();
        popped.extend(consumer.drain());
        popped.sort();
        assert_eq!(popped, accepted);
        assert!(consumer.is_finished());
    });
}

#[test]
fn mailbox_passes_requests_and_replies() {
    model(2, || {
        let (mut caller, mut server) = mailbox::pair();
        let other = thread::spawn(move || {
            let mut served = 0;
            while !server.is_finished() {
                match server.receive() {
                    Some(request) => {
                        let request: Box<i32> = request;
                        server.reply(Box::new(*request + 1)).unwrap();
                        served += 1;
                    }
                    None => hint::spin_loop(),
                }
            }
            served
        });
        for turn in 0..2 {
            caller.send(Box::new(turn)).unwrap();
            let reply = loop {
                match caller.receive().unwrap() {
                    Some(reply) => break reply,
                    None => hint::spin_loop(),
                }
            };
            assert_eq!(*reply, turn + 1);
        }
        drop(caller);
        assert_eq!(other.join().unwrap(), 2);
    });
}

#[test]
fn caller_gets_an_error_whenever_its_server_is_dropped() {
    model(2, || {
        let counted = Counted::new(());
        let (mut caller, mut server) = mailbox::pair();
        let other = thread::spawn(move || {
            let request = server.receive();
            let received = request.is_some();
            if let Some(request) = request {
                server.reply(request).unwrap();
            }
            received
        });
        let sent = caller.send(Counted::clone(&counted));
        let outcome = sent.is_ok().then(|| {
            loop {
                match caller.receive() {
                    Ok(None) => hint::spin_loop(),
                    outcome => break outcome,
                }
            }
        });
        let received = other.join().unwrap();
        match outcome {
            None => assert!(!received && sent.is_err()),
            Some(Ok(_)) => assert!(received),
            Some(Err(ReceiveError::NotReceived(_))) => assert!(!received),
            Some(Err(ReceiveError::Abandoned)) => panic!("it answers what it receives"),
        }
        drop((outcome, sent, caller));
        assert_eq!(Counted::strong_count(&counted), 1);
    });
}

#[test]
fn mailbox_content_is_dropped_once_when_the_caller_is_dropped() {
    model(2, || {
        let counted = Counted::new(());
        let (mut caller, mut server) = mailbox::pair();
        let other = thread::spawn(move || {
            if let Some(request) = server.receive() {
                drop(server.reply(request));
            }
        });
        caller.send(Counted::clone(&counted)).unwrap_or_else(|refused| drop(refused.into_inner()));
        drop(caller);
        other.join().unwrap();
        assert_eq!(Counted::strong_count(&counted), 1);
    });
}

#[test]
fn mailbox_mixed_calls_end_each_request_once() {
    model(2, || {
        let counted = Counted::new(());
        let (mut caller, mut server) = mailbox::pair();
        let other = thread::spawn(move || {
            let mut replied = 0;
            while !server.is_finished() {
                match server.receive() {
                    Some(request) if replied == 0 => {
                        replied += usize::from(server.reply(request).is_ok());
                    }
                    Some(_) => break, // dropped without a reply to it
                    None => hint::spin_loop(),
                }
            }
        });
        caller.send(Counted::clone(&counted)).unwrap_or_else(|_| panic!("the server is there"));
        let first = loop {
            match caller.receive() {
                Ok(None) => hint::spin_loop(),
                ended => break ended,
            }
        };
        assert!(matches!(first, Ok(Some(_))), "the first is answered");
        drop(caller.send(Counted::clone(&counted)));
        let second = caller.receive();
        drop(caller); // while it waits for the second reply, or not
        drop((first, second));
        other.join().unwrap();
        assert_eq!(Counted::strong_count(&counted), 1);
    });
}

#[cfg(feature = "async")]
mod channels {
    use super::*;
    use handover_base::loom_support::{block_on, poll_once};
    use handover_ring::queue::Mpmc;
    use handover_ring::{ClosedError, channel};
    use std::task::{Context, Poll, Waker};

    #[test]
    fn channel_task_and_receiver_wait_for_each_other() {
        explore(2, || {
            let (mut sender, mut receiver) = channel::spsc(1).unwrap();
            let other = thread::spawn(move || {
                for value in 1..=2 {
                    assert_eq!(block_on(sender.send(value)), Ok(()));
                }
            });
            for expected in [Some(1), Some(2), None] {
                assert_eq!(block_on(receiver.receive()), expected);
            }
            other.join().unwrap();
        });
    }

    #[test]
    fn cancelled_channel_receive_misses_no_value() {
        explore(2, || {
            let (mut sender, mut receiver) = channel::spsc(1).unwrap();
            let other = thread::spawn(move || {
                sender.try_send(1).unwrap();
                assert_eq!(block_on(sender.send(2)), Ok(()));
            });
            let mut received = Vec::new();
            received.extend(poll_once(receiver.receive()).flatten());
            // Registers a waker that the next poll replaces.
            if let Poll::Ready(value) =
                receiver.poll_receive(&mut Context::from_waker(Waker::noop()))
            {
                received.extend(value);
            }
            while let Some(value) = block_on(receiver.receive()) {
                received.push(value);
            }
            assert_eq!(received, [1, 2]);
            other.join().unwrap();
        });
    }

    #[test]
    fn channel_closed_by_its_receiver_refuses_a_waiting_sender() {
        for drops in [false, true] {
            explore(2, move || {
                let (mut sender, mut receiver) = channel::spsc(1).unwrap();
                let other = thread::spawn(move || {
                    let first = block_on(sender.send(1));
                    let second = block_on(sender.send(2));
                    assert!([Ok(()), Err(ClosedError(1))].contains(&first));
                    usize::from(first.is_ok()) + usize::from(second.is_ok())
                });
                if drops {
                    drop(receiver);
                    other.join().unwrap();
                } else {
                    receiver.close();
                    let mut received = 0;
                    while block_on(receiver.receive()).is_some() {
                        received += 1;
                    }
                    assert_eq!(other.join().unwrap(), received);
                }
            });
        }
    }

    #[test]
    fn slot_of_a_cancelled_channel_sender_goes_to_the_next() {
        explore(1, || {
            let (mut first, mut receiver) = channel::mpsc(1).unwrap();
            let mut second = first.clone();
            first.try_send(0).unwrap();
            let others = [
                thread::spawn(move || usize::from(poll_once(first.send(1)).is_some())),
                thread::spawn(move || usize::from(block_on(second.send(2)).is_ok())),
            ];
            let mut received = usize::from(receiver.try_receive().is_some());
            while block_on(receiver.receive()).is_some() {
                received += 1;
            }
            let sent: usize = others.into_iter().map(|other| other.join().unwrap()).sum();
            assert_eq!(received, 1 + sent);
        });
    }

    #[test]
    fn values_sent_in_any_order_wake_both_channel_receivers() {
        explore(1, || {
            let (first, mut receiver) = channel::mpmc(2).unwrap();
            let mut other = receiver.clone();
            let sends = [first.clone(), first].map(|mut sender| {
                thread::spawn(move || {
                    sender.try_send(()).unwrap();
                    sender // a drop would wake the receivers
                })
            });
            let receives = thread::spawn(move || block_on(other.receive()));
            assert_eq!(block_on(receiver.receive()), Some(()));
            assert_eq!(receives.join().unwrap(), Some(()));
            let _senders = sends.map(|sends| sends.join().unwrap());
        });
    }

    #[test]
    fn mpmc_channel_closed_during_a_push_ends_every_receiver() {
        explore(3, || {
            let (mut sender, mut receiver) = channel::mpmc(1).unwrap();
            let (mut closer, mut other) = (sender.clone(), receiver.clone());
            fn count(receiver: &mut channel::Receiver<(), Mpmc>) -> usize {
                std::iter::from_fn(|| block_on(receiver.receive())).count()
            }
            let sends = thread::spawn(move || {
                let sent = sender.try_send(()).is_ok();
                (sent, sender) // dropped after the receivers have ended, which a drop wakes
            });
            let receives = thread::spawn(move || count(&mut other));
            closer.close();
            let received = count(&mut receiver) + receives.join().unwrap();
            let (sent, _sender) = sends.join().unwrap();
            assert_eq!(received, usize::from(sent));
        });
    }
}
