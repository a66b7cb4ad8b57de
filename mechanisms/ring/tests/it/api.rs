//! API of the rings and the mailbox: one test for each promise of their documentation.

use handover_base::sync::auto_traits;
use handover_ring::{
    CapacityError, PushError, ReceiveError, ReplyError, SLOTS_COUNT_MAX, SendError, mailbox, mpmc,
    mpsc, spsc, validate,
};
use std::cell::Cell;
use std::rc::Rc;

#[test]
fn out_of_range_slots_count_is_refused_with_the_range() {
    for slots_count in [0, SLOTS_COUNT_MAX + 1, u32::MAX] {
        let refused = validate(slots_count).unwrap_err();
        assert_eq!(refused, CapacityError::OutOfRange { slots_count, max: SLOTS_COUNT_MAX });
        assert_eq!(spsc::ring::<u8>(slots_count).unwrap_err(), refused);
        assert_eq!(mpsc::ring::<u8>(slots_count).unwrap_err(), refused);
        assert_eq!(mpmc::ring::<u8>(slots_count).unwrap_err(), refused);
        assert_eq!(
            refused.to_string(),
            format!("slots_count={slots_count}: must lie in 1..=2147483648")
        );
    }
    assert_eq!(validate(1), Ok(()));
    assert_eq!(validate(SLOTS_COUNT_MAX), Ok(()));
}

#[test]
#[cfg_attr(miri, ignore = "Miri ends the program if an allocation exceeds the memory")]
fn failed_allocation_is_an_error() {
    type Huge = [u64; 1 << 17];
    let refused = spsc::ring::<Huge>(SLOTS_COUNT_MAX).unwrap_err();
    assert!(matches!(refused, CapacityError::OutOfMemory { .. }), "{refused}");
    assert_eq!(mpsc::ring::<Huge>(SLOTS_COUNT_MAX).unwrap_err(), refused);
    assert!(refused.to_string().contains("1048576 bytes"), "{refused}");
}

#[test]
fn unpublished_push_is_published_by_a_full_line_or_a_flush() {
    let (mut producer, mut consumer) = spsc::ring(64).unwrap();
    let line = spsc::Producer::<u64>::UNPUBLISHED_MAX as u64 + 1;
    assert_eq!(line, 8);
    for value in 0..line - 1 {
        producer.push_unpublished(value).unwrap();
        assert!(consumer.is_empty());
        assert_eq!(producer.len() as u64, value + 1, "the producer knows of it");
    }
    producer.push_unpublished(line - 1).unwrap();
    assert_eq!(consumer.len() as u64, line, "the line is full");
    producer.push_unpublished(line).unwrap();
    producer.push_unpublished(line + 1).unwrap();
    assert_eq!(consumer.len() as u64, line);
    producer.flush();
    producer.flush();
    assert!(consumer.drain().eq(0..line + 2));
    producer.push_unpublished(1).unwrap();
    producer.push(2).unwrap();
    assert!(consumer.drain().eq([1, 2]), "a push publishes what came before it");
    producer.push_unpublished(3).unwrap();
    assert_eq!(producer.push_batch(&mut [4, 5].into_iter()), 2);
    assert!(consumer.drain().eq([3, 4, 5]), "and so does a batch");
    producer.push_unpublished(6).unwrap();
    drop(producer);
    assert!(consumer.drain().eq([6]), "and the end of the producer");
    assert!(consumer.is_finished());
}

#[test]
fn refused_push_publishes_earlier_values() {
    let (mut producer, mut consumer) = spsc::ring(2).unwrap();
    producer.push_unpublished(1).unwrap();
    producer.push_unpublished(2).unwrap();
    assert!(consumer.is_empty());
    assert_eq!(producer.push_unpublished(3), Err(PushError::Full(3)));
    assert_eq!(consumer.pop(), Some(1));
    producer.push_unpublished(3).unwrap();
    consumer.close();
    assert_eq!(producer.push_unpublished(4), Err(PushError::Closed(4)));
    assert!(consumer.drain().eq([2, 3]));
    assert!(consumer.is_finished());
}

#[test]
fn push_without_refresh_uses_the_slots_known_to_be_vacant_in_an_open_ring() {
    let (mut producer, mut consumer) = spsc::ring(2).unwrap();
    assert_eq!(producer.push_without_refresh(1), Ok(()));
    assert_eq!(producer.push_without_refresh(2), Ok(()));
    assert_eq!(consumer.pop(), Some(1));
    assert_eq!(producer.push_without_refresh(3), Err(3), "the consumer's position was read");
    producer.push(3).unwrap();
    assert_eq!((consumer.pop(), consumer.pop(), consumer.pop()), (Some(2), Some(3), None));
    producer.push(4).unwrap();
    consumer.close();
    assert_eq!(producer.push_without_refresh(5), Err(5), "a value was pushed to a closed ring");
    assert_eq!((consumer.pop(), consumer.pop()), (Some(4), None));
}

#[test]
fn values_of_any_size_and_alignment_pass() {
    #[derive(Clone, Copy, PartialEq, Debug)]
    #[repr(align(256))]
    struct Aligned(u8);
    fn through<T: Copy + PartialEq + std::fmt::Debug + Send>(value: T) {
        let (mut producer, mut consumer) = spsc::ring(10).unwrap();
        let (many, mut one) = mpsc::ring(10).unwrap();
        for _ in 0..40 {
            assert_eq!(producer.push_batch(&mut [value; 11].into_iter()), 10);
            assert_eq!(many.push_batch(&mut [value; 11].into_iter()), 10);
            assert_eq!(consumer.pop(), Some(value));
            assert!(consumer.drain().eq([value; 9]));
            assert!(one.drain().eq([value; 10]));
        }
    }
    through(());
    through(1u8);
    through([1u8; 3]);
    through(1u32);
    through(1u128);
    through([1u64; 3]);
    through([1u64; 4]);
    through([1u64; 7]);
    through([1u64; 8]);
    through([1u8; 1000]);
    through(Aligned(1));
    through("x");
}

#[test]
fn last_producer_clone_closes_the_ring() {
    let (first, mut consumer) = mpsc::ring(4).unwrap();
    let second = first.clone();
    drop(first);
    assert!(!consumer.is_closed());
    second.push(1).unwrap();
    drop(second);
    assert!(consumer.is_closed() && !consumer.is_finished());
    assert_eq!(consumer.pop(), Some(1));
    assert!(consumer.is_finished());
}

#[test]
fn close_by_one_producer_affects_all() {
    let (first, consumer) = mpsc::ring(4).unwrap();
    let second = first.clone();
    second.close();
    assert_eq!(first.push(1), Err(PushError::Closed(1)));
    assert!(consumer.is_finished());
}

/// Claims to have five values, returns fewer, and pushes through `beside` before each.
struct Liar {
    left: u32,
    beside: Option<mpsc::Producer<u32>>,
}

impl Iterator for Liar {
    type Item = u32;
    fn next(&mut self) -> Option<u32> {
        if let Some(beside) = &self.beside {
            beside.push(100 + self.left).unwrap();
        }
        self.left = self.left.checked_sub(1)?;
        Some(self.left)
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        (5, Some(5))
    }
}

impl ExactSizeIterator for Liar {}

#[test]
fn short_iterator_leaves_no_gap() {
    let (producer, mut consumer) = mpsc::ring(8).unwrap();
    assert_eq!(producer.push_batch(&mut Liar { left: 2, beside: None }), 2);
    producer.push(9).unwrap();
    assert_eq!(consumer.len(), 3, "the three slots that it did not use were given back");
    assert!(consumer.drain().eq([1, 0, 9]));
    assert_eq!(consumer.len(), 0);
    assert_eq!(producer.push_batch(&mut Liar { left: 0, beside: None }), 0);
    assert!(consumer.is_empty());
    producer.close();
    assert!(consumer.is_finished());
    assert_eq!(consumer.pop(), None);
}

#[test]
fn unused_reserved_slots_are_skipped() {
    let (producer, mut consumer) = mpsc::ring(8).unwrap();
    let liar = |left| Liar { left, beside: Some(producer.clone()) };
    assert_eq!(producer.push_batch(&mut liar(2)), 2);
    assert_eq!(consumer.len(), 8, "three slots wait for the consumer to pass them");
    assert_eq!(producer.push(9), Err(PushError::Full(9)));
    assert!(consumer.drain().eq([1, 0, 102, 101, 100]));
    assert_eq!(producer.push_batch(&mut liar(0)), 0);
    assert!(!consumer.is_empty());
    assert_eq!(consumer.pop(), Some(100));
    assert!(consumer.is_empty());

    // Closed in the middle of a batch: its slots cannot be given out again, and no value comes
    // after them.
    struct Closes<'a>(&'a mpsc::Producer<u32>);
    impl Iterator for Closes<'_> {
        type Item = u32;
        fn next(&mut self) -> Option<u32> {
            self.0.close();
            None
        }
        fn size_hint(&self) -> (usize, Option<usize>) {
            (8, Some(8))
        }
    }
    impl ExactSizeIterator for Closes<'_> {}
    assert_eq!(producer.push_batch(&mut Closes(&producer)), 0);
    assert!(consumer.is_empty() && consumer.is_finished(), "nothing but unused slots");
    assert_eq!(consumer.pop(), None);
    assert_eq!(consumer.len(), 0);
}

#[test]
fn handles_are_send_if_values_are() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    send::<spsc::Producer<std::cell::Cell<u8>>>();
    send::<spsc::Consumer<std::cell::Cell<u8>>>();
    send::<mpsc::Producer<std::cell::Cell<u8>>>();
    sync::<mpsc::Producer<std::cell::Cell<u8>>>();
    send::<mpsc::Consumer<std::cell::Cell<u8>>>();
    send::<mailbox::Caller<std::cell::Cell<u8>, u8>>();
    send::<mailbox::Server<std::cell::Cell<u8>, u8>>();
    // Values that are not `Send` make the handles not `Send` either.
    assert_eq!(auto_traits!(spsc::Producer<Cell<u8>>), "Send + Sync");
    assert_eq!(auto_traits!(spsc::Consumer<Cell<u8>>), "Send + Sync");
    assert_eq!(auto_traits!(spsc::Drain<'static, Cell<u8>>), "Send + Sync");
    assert_eq!(auto_traits!(mpsc::Producer<Cell<u8>>), "Send + Sync");
    assert_eq!(auto_traits!(mpsc::Consumer<Cell<u8>>), "Send + Sync");
    assert_eq!(auto_traits!(mpsc::Drain<'static, Cell<u8>>), "Send + Sync");
    assert_eq!(auto_traits!(mpmc::Producer<Cell<u8>>), "Send + Sync");
    assert_eq!(auto_traits!(mpmc::Consumer<Cell<u8>>), "Send + Sync");
    assert_eq!(auto_traits!(mailbox::Caller<Cell<u8>, Cell<u8>>), "Send + Sync");
    assert_eq!(auto_traits!(mailbox::Server<Cell<u8>, Cell<u8>>), "Send + Sync");
    // `MutexGuard` is `Sync` and not `Send`: values move through a ring, which takes `Send`.
    type Guard = std::sync::MutexGuard<'static, u8>;
    assert_eq!(auto_traits!(spsc::Producer<Guard>), "neither");
    assert_eq!(auto_traits!(spsc::Consumer<Guard>), "neither");
    assert_eq!(auto_traits!(spsc::Drain<'static, Guard>), "neither");
    assert_eq!(auto_traits!(mpsc::Producer<Guard>), "neither");
    assert_eq!(auto_traits!(mpsc::Consumer<Guard>), "neither");
    assert_eq!(auto_traits!(mpsc::Drain<'static, Guard>), "neither");
    assert_eq!(auto_traits!(mpmc::Producer<Guard>), "neither");
    assert_eq!(auto_traits!(mpmc::Consumer<Guard>), "neither");
    assert_eq!(auto_traits!(mailbox::Caller<Guard, u8>), "neither");
    assert_eq!(auto_traits!(mailbox::Caller<u8, Guard>), "neither");
    assert_eq!(auto_traits!(mailbox::Server<Guard, u8>), "neither");
    assert_eq!(auto_traits!(mailbox::Server<u8, Guard>), "neither");
    // Values that are not `Send` can be queued on their own thread.
    let (mut producer, mut consumer) = spsc::ring(1).unwrap();
    producer.push(Rc::new(1)).unwrap();
    assert_eq!(consumer.pop(), Some(Rc::new(1)));
}

#[test]
fn debug_shows_length_and_closed() {
    let (mut producer, consumer) = spsc::ring(4).unwrap();
    producer.push(1).unwrap();
    assert_eq!(format!("{producer:?}"), "spsc::Producer(1 of 4 slots used, is_closed: false)");
    producer.close();
    assert_eq!(format!("{consumer:?}"), "spsc::Consumer(1 of 4 slots used, is_closed: true)");
    let (producer, consumer) = mpsc::ring(3).unwrap();
    producer.push(1).unwrap();
    producer.close();
    assert_eq!(format!("{producer:?}"), "mpsc::Producer(1 of 3 slots used, is_closed: true)");
    assert_eq!(format!("{consumer:?}"), "mpsc::Consumer(1 of 3 slots used, is_closed: true)");
    assert_eq!(format!("{:?}", producer.push(7)), "Err(Closed(..))");
    let (producer, consumer) = mpmc::ring(3).unwrap();
    producer.push(1).unwrap();
    producer.close();
    assert_eq!(format!("{producer:?}"), "mpmc::Producer(1 of 3 slots used, is_closed: true)");
    assert_eq!(format!("{consumer:?}"), "mpmc::Consumer(1 of 3 slots used, is_closed: true)");
    let (caller, server) = mailbox::pair::<u8, u8>();
    assert_eq!(format!("{caller:?}"), "mailbox::Caller(is_waiting: false, is_closed: false)");
    assert_eq!(
        format!("{server:?}"),
        "mailbox::Server(has_unanswered_request: false, is_closed: false)"
    );
}

#[test]
fn next_request_waits_for_the_reply() {
    let (mut caller, mut server) = mailbox::pair();
    assert_eq!(server.receive(), None);
    assert_eq!(server.reply(1), Err(ReplyError::NoRequest(1)));
    assert_eq!(caller.receive(), Ok(None), "nothing was asked");
    for turn in 0..3 {
        caller.send(turn).unwrap();
        assert!(caller.is_waiting());
        assert_eq!(caller.send(9), Err(SendError::Busy(9)));
        assert_eq!(caller.receive(), Ok(None));
        assert_eq!(server.receive(), Some(turn));
        assert_eq!(server.receive(), None, "received once");
        assert!(server.has_unanswered_request());
        assert_eq!(caller.receive(), Ok(None));
        assert_eq!(server.reply(turn * 10), Ok(()));
        assert_eq!(server.reply(9), Err(ReplyError::NoRequest(9)));
        assert_eq!(caller.receive(), Ok(Some(turn * 10)));
        assert_eq!(caller.receive(), Ok(None), "received once");
    }
}

#[test]
fn caller_gets_an_error_when_the_server_is_dropped() {
    let (mut caller, server) = mailbox::pair::<_, u8>();
    caller.send("unread").unwrap();
    drop(server);
    assert_eq!(caller.receive(), Err(ReceiveError::NotReceived("unread")));
    assert_eq!(caller.receive(), Ok(None), "returned once");
    assert_eq!(caller.send("late"), Err(SendError::Closed("late")));

    let (mut caller, mut server) = mailbox::pair::<_, u8>();
    caller.send("read").unwrap();
    assert_eq!(server.receive(), Some("read"));
    drop(server);
    assert_eq!(caller.receive(), Err(ReceiveError::Abandoned));

    let (mut caller, mut server) = mailbox::pair();
    caller.send("answered").unwrap();
    assert_eq!(server.receive(), Some("answered"));
    server.reply(7).unwrap();
    drop(server);
    assert!(caller.is_closed());
    assert_eq!(caller.receive(), Ok(Some(7)), "the reply outlives the server");
}

#[test]
fn server_receives_a_request_of_a_dropped_caller() {
    let (mut caller, mut server) = mailbox::pair();
    caller.send("last").unwrap();
    drop(caller);
    assert!(server.is_closed() && !server.is_finished());
    assert_eq!(server.receive(), Some("last"));
    assert!(server.is_finished());
    assert_eq!(server.reply(7), Err(ReplyError::Closed(7)));

    let (caller, server) = mailbox::pair::<u8, u8>();
    drop(caller);
    assert!(server.is_finished());
}

#[test]
fn value_in_a_dropped_mailbox_is_dropped_once() {
    let counted = std::sync::Arc::new(());
    let count = || std::sync::Arc::strong_count(&counted) - 1;
    let one = || std::sync::Arc::clone(&counted);
    // Sent, received, replied, received: dropped at each stage, either side first.
    for stage in 0..=4 {
        for caller_first in [true, false] {
            let (mut caller, mut server) = mailbox::pair();
            let mut held = Vec::new();
            if stage > 0 {
                caller.send(one()).unwrap();
            }
            if stage > 1 {
                held.push(server.receive().unwrap());
            }
            if stage > 2 {
                server.reply(one()).unwrap();
            }
            if stage > 3 {
                held.push(caller.receive().unwrap().unwrap());
            }
            assert_eq!(count(), [0, 1, 1, 2, 2][stage]);
            if caller_first {
                drop(caller);
                drop(server);
            } else {
                drop(server);
                drop(caller);
            }
            assert_eq!(count(), held.len(), "stage {stage}");
        }
    }
    assert_eq!(count(), 0);
}
