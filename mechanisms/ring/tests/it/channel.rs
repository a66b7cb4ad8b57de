//! Channels: waits of threads, and of tasks under a hand-written executor and under tokio's two.

use handover_base::sync::auto_traits;
use handover_ring::queue::{Mpmc, Mpsc, Queue, Spsc};
use handover_ring::{ClosedError, PushError, TimeoutError, channel};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

const VALUES_COUNT: u64 = if cfg!(miri) { 50 } else { 2_000 };
const SENDERS_COUNT: u64 = 3;

/// Long enough for a thread to begin its wait, on most machines.
const SOON: Duration = Duration::from_millis(20);

#[test]
fn closed_channel_returns_the_value_and_passes_earlier_ones() {
    let (mut sender, mut receiver) = channel::spsc(1).unwrap();
    assert_eq!(sender.try_send(1), Ok(()));
    assert_eq!(sender.try_send(2), Err(PushError::Full(2)));
    receiver.close();
    assert!(sender.is_closed());
    assert_eq!(sender.send_blocking(3), Err(ClosedError(3)));
    assert_eq!(receiver.receive_blocking(), Some(1));
    assert_eq!(receiver.receive_blocking(), None);
    assert!(receiver.is_finished());

    let (mut sender, mut receiver) = channel::mpsc(2).unwrap();
    let mut other = sender.clone();
    assert_eq!(other.send_blocking("a"), Ok(()));
    sender.close();
    assert_eq!(other.try_send("b"), Err(PushError::Closed("b")));
    assert_eq!(receiver.receive_timeout(Duration::ZERO), Ok(Some("a")));
    assert_eq!(receiver.receive_timeout(Duration::MAX), Ok(None));
}

#[test]
fn timed_receive_ends_in_time_and_leaves_the_channel_open() {
    let (mut sender, mut receiver) = channel::spsc(1).unwrap();
    let start = Instant::now();
    assert_eq!(receiver.receive_timeout(SOON), Err(TimeoutError));
    assert!(start.elapsed() >= SOON);
    sender.try_send(1).unwrap();
    assert_eq!(receiver.receive_timeout(Duration::ZERO), Ok(Some(1)));
    assert_eq!(receiver.receive_timeout(Duration::ZERO), Err(TimeoutError));
}

/// Checks that each way to end a wait wakes the side that sleeps.
fn sleeping_sides_are_woken<Q: Queue + 'static>(
    pair: impl Fn() -> (channel::Sender<u64, Q>, channel::Receiver<u64, Q>),
) {
    let (mut sender, mut receiver) = pair();
    let other = thread::spawn(move || {
        assert_eq!(receiver.receive_blocking(), Some(1));
        assert_eq!(receiver.receive_timeout(Duration::from_secs(600)), Ok(Some(2)));
        assert_eq!(receiver.receive_blocking(), None, "the sender was dropped");
    });
    for value in 1..=2 {
        thread::sleep(SOON);
        sender.send_blocking(value).unwrap();
    }
    thread::sleep(SOON);
    drop(sender);
    other.join().unwrap();

    let (mut sender, mut receiver) = pair();
    sender.try_send(1).unwrap();
    let other = thread::spawn(move || {
        assert_eq!(sender.send_blocking(2), Ok(()));
        assert_eq!(sender.send_blocking(3), Ok(()));
        assert_eq!(sender.send_blocking(4), Err(ClosedError(4)), "the receiver was dropped");
    });
    thread::sleep(SOON);
    assert_eq!(receiver.try_receive(), Some(1));
    assert_eq!(receiver.receive_blocking(), Some(2));
    while receiver.is_empty() {
        thread::yield_now();
    }
    thread::sleep(SOON);
    drop(receiver);
    other.join().unwrap();

    let (mut sender, mut receiver) = pair();
    sender.try_send(1).unwrap();
    let other = thread::spawn(move || assert_eq!(sender.send_blocking(2), Err(ClosedError(2))));
    thread::sleep(SOON);
    receiver.close();
    assert_eq!(receiver.receive_blocking(), Some(1));
    assert_eq!(receiver.receive_blocking(), None, "the refusal of the last value ends the wait");
    other.join().unwrap();
}

#[test]
fn sleeping_sides_of_all_channels_are_woken() {
    sleeping_sides_are_woken(|| channel::spsc(1).unwrap());
    sleeping_sides_are_woken(|| channel::mpsc(1).unwrap());
    sleeping_sides_are_woken(|| channel::mpmc(1).unwrap());
}

#[test]
fn sleeping_receivers_are_all_woken_when_the_channel_closes() {
    type Receiver = channel::Receiver<u64, Mpmc>;
    let ends: [fn(channel::Sender<u64, Mpmc>, Receiver); 3] = [
        |sender, _receiver| drop(sender),
        |mut sender, _receiver| sender.close(),
        |_sender, mut receiver| receiver.close(),
    ];
    for end in ends {
        let (sender, receiver) = channel::mpmc(1).unwrap();
        let others = [(); 2].map(|()| {
            let mut receiver: Receiver = receiver.clone();
            thread::spawn(move || assert_eq!(receiver.receive_blocking(), None))
        });
        thread::sleep(SOON);
        end(sender, receiver);
        others.into_iter().for_each(|other| other.join().unwrap());
    }
}

#[test]
fn dropped_receiver_that_was_woken_wakes_the_next() {
    let (mut sender, mut first) = channel::mpmc(1).unwrap();
    let mut second = first.clone();
    assert!(first.poll_receive(&mut Context::from_waker(Waker::noop())).is_pending());
    let other = thread::spawn(move || assert_eq!(second.receive_blocking(), Some(1)));
    thread::sleep(SOON);
    sender.try_send(1).unwrap();
    drop(first);
    other.join().unwrap();
}

#[test]
fn values_pass_between_blocking_threads_through_one_slot() {
    let (mut sender, mut receiver) = channel::spsc(1).unwrap();
    let other = thread::spawn(move || {
        for value in 0..VALUES_COUNT {
            sender.send_blocking(value).unwrap();
        }
    });
    for value in 0..VALUES_COUNT {
        assert_eq!(receiver.receive_blocking(), Some(value));
    }
    assert_eq!(receiver.receive_blocking(), None);
    other.join().unwrap();

    let (sender, mut receiver) = channel::mpsc(2).unwrap();
    for _ in 0..SENDERS_COUNT {
        let mut sender = sender.clone();
        thread::spawn(move || (0..VALUES_COUNT).for_each(|it| sender.send_blocking(it).unwrap()));
    }
    drop(sender);
    let sum: u64 = std::iter::from_fn(|| receiver.receive_blocking()).sum();
    assert_eq!(sum, SENDERS_COUNT * (VALUES_COUNT - 1) * VALUES_COUNT / 2);

    for slots_count in [1, 2, 3] {
        let (sender, mut receiver) = channel::mpmc(slots_count).unwrap();
        for _ in 0..SENDERS_COUNT {
            let mut sender = sender.clone();
            thread::spawn(move || {
                (0..VALUES_COUNT).for_each(|it| sender.send_blocking(it).unwrap());
            });
        }
        drop(sender);
        let other = {
            let mut receiver = receiver.clone();
            thread::spawn(move || std::iter::from_fn(|| receiver.receive_blocking()).sum::<u64>())
        };
        let sum: u64 = std::iter::from_fn(|| receiver.receive_blocking()).sum();
        let expected = SENDERS_COUNT * (VALUES_COUNT - 1) * VALUES_COUNT / 2;
        assert_eq!(sum + other.join().unwrap(), expected);
    }
}

#[test]
fn channel_ends_are_send_and_sync_if_values_are_send() {
    assert_eq!(auto_traits!(channel::Sender<u8, Spsc>), "Send + Sync");
    assert_eq!(auto_traits!(channel::Receiver<u8, Spsc>), "Send + Sync");
    assert_eq!(auto_traits!(channel::Sender<u8, Mpsc>), "Send + Sync");
    assert_eq!(auto_traits!(channel::Receiver<u8, Mpsc>), "Send + Sync");
    assert_eq!(auto_traits!(channel::Sender<u8, Mpmc>), "Send + Sync");
    assert_eq!(auto_traits!(channel::Receiver<u8, Mpmc>), "Send + Sync");
}

#[cfg(feature = "async")]
mod tasks {
    use super::*;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::task::{Poll, Wake};
    use std::thread::Thread;

    /// Waker that unparks a thread and counts its calls.
    struct ThreadWaker {
        thread: Thread,
        wakes_count: AtomicU64,
    }

    impl Wake for ThreadWaker {
        fn wake(self: Arc<Self>) {
            self.wakes_count.fetch_add(1, Relaxed);
            self.thread.unpark();
        }
    }

    fn thread_waker() -> (Arc<ThreadWaker>, Waker) {
        let wakes =
            Arc::new(ThreadWaker { thread: thread::current(), wakes_count: AtomicU64::new(0) });
        (Arc::clone(&wakes), wakes.into())
    }

    /// Runs a future on this thread, which sleeps until the future's waker is called.
    fn block_on<F: Future>(future: F) -> F::Output {
        let mut future = pin!(future);
        let (_, waker) = thread_waker();
        loop {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(output) => return output,
                Poll::Pending => thread::park(),
            }
        }
    }

    #[test]
    fn cancelled_receive_takes_no_value_and_releases_its_waker() {
        let (mut sender, mut receiver) = channel::spsc(1).unwrap();
        let (wakes, waker) = thread_waker();
        {
            let mut receiving = pin!(receiver.receive());
            assert!(receiving.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            sender.try_send(1).unwrap();
            assert_eq!(wakes.wakes_count.load(Relaxed), 1);
        }
        drop(waker);
        assert_eq!(Arc::strong_count(&wakes), 1, "the waker of the cancelled wait was kept");
        assert_eq!(block_on(receiver.receive()), Some(1));
    }

    #[test]
    fn blocking_receive_ends_the_wait_of_an_earlier_poll() {
        let (mut sender, mut first) = channel::mpmc(1).unwrap();
        let mut second = first.clone();
        let [(wakes_a, a), (wakes_b, b)] = [(); 2].map(|()| thread_waker());
        let counts = || [&wakes_a, &wakes_b].map(|it| it.wakes_count.load(Relaxed));
        assert!(second.poll_receive(&mut Context::from_waker(&b)).is_pending());
        assert!(first.poll_receive(&mut Context::from_waker(&a)).is_pending());
        sender.try_send(1).unwrap();
        assert_eq!((first.receive_blocking(), counts()), (Some(1), [0, 1]));
        assert!(second.poll_receive(&mut Context::from_waker(&b)).is_pending());
        sender.try_send(2).unwrap();
        assert_eq!(counts(), [0, 2], "the receiver that does not wait any more was woken");
    }

    #[test]
    fn slot_of_a_cancelled_sender_goes_to_the_next() {
        let (mut first, mut receiver) = channel::mpsc(1).unwrap();
        let (mut second, mut third) = (first.clone(), first.clone());
        first.try_send(1).unwrap();
        let [(wakes_a, a), (wakes_b, b), (wakes_c, c)] = [(); 3].map(|()| thread_waker());
        let counts = || [&wakes_a, &wakes_b, &wakes_c].map(|it| it.wakes_count.load(Relaxed));
        let mut sending_b = pin!(second.send(3));
        let mut sending_c = pin!(third.send(4));
        {
            let mut sending_a = pin!(first.send(2));
            assert!(sending_a.as_mut().poll(&mut Context::from_waker(&a)).is_pending());
            assert!(sending_b.as_mut().poll(&mut Context::from_waker(&b)).is_pending());
            assert!(sending_c.as_mut().poll(&mut Context::from_waker(&c)).is_pending());
            assert_eq!(receiver.try_receive(), Some(1));
            assert_eq!(counts(), [1, 0, 0], "one slot, one wake-up");
        }
        assert_eq!(counts(), [1, 1, 0], "the cancelled sender did not wake the next");
        let ready = Poll::Ready(Ok(()));
        assert_eq!(sending_b.as_mut().poll(&mut Context::from_waker(&b)), ready);
        assert_eq!(receiver.try_receive(), Some(3));
        assert_eq!(counts(), [1, 1, 1]);
        assert_eq!(sending_c.as_mut().poll(&mut Context::from_waker(&c)), ready);
        assert_eq!(receiver.try_receive(), Some(4));
    }

    #[test]
    fn cancelled_send_drops_the_value_once() {
        let counted = Arc::new(());
        let (mut sender, receiver) = channel::spsc(1).unwrap();
        sender.try_send(Arc::clone(&counted)).unwrap();
        {
            let mut sending = pin!(sender.send(Arc::clone(&counted)));
            assert!(sending.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            assert_eq!(Arc::strong_count(&counted), 3);
        }
        assert_eq!(Arc::strong_count(&counted), 2);
        drop(receiver);
        assert_eq!(Arc::strong_count(&counted), 1);
    }

    /// Sends and receives through a channel of `slots_count` slots; `start` runs each task. Hangs
    /// if a wake-up is lost.
    fn pass_values(
        slots_count: u32,
        mut start: impl FnMut(u64, channel::Sender<u64, Mpsc>),
    ) -> u64 {
        let (sender, mut receiver) = channel::mpsc(slots_count).unwrap();
        for number in 0..SENDERS_COUNT {
            start(number, sender.clone());
        }
        drop(sender);
        block_on(async {
            let mut sum = 0;
            while let Some(value) = receiver.receive().await {
                sum += value;
            }
            sum
        })
    }

    async fn send_values<Q: Queue>(mut sender: channel::Sender<u64, Q>) {
        for value in 0..VALUES_COUNT {
            sender.send(value).await.unwrap();
        }
    }

    const SUM: u64 = SENDERS_COUNT * (VALUES_COUNT - 1) * VALUES_COUNT / 2;

    #[test]
    fn threads_and_futures_share_a_channel() {
        let sum = pass_values(1, |number, mut sender| {
            thread::spawn(move || match number {
                0 => (0..VALUES_COUNT).for_each(|value| sender.send_blocking(value).unwrap()),
                _ => block_on(send_values(sender)),
            });
        });
        assert_eq!(sum, SUM);
    }

    #[cfg(not(miri))]
    mod under_tokio {
        use super::*;
        use tokio::runtime::{Builder, Runtime};

        fn runtimes() -> [Runtime; 2] {
            [Builder::new_current_thread(), Builder::new_multi_thread()].map(|mut builder| {
                builder.worker_threads(2).enable_time().build().expect("a runtime")
            })
        }

        #[test]
        fn values_pass_between_tasks_of_one_runtime() {
            for runtime in runtimes() {
                let (mut sender, mut receiver) = channel::spsc(2).unwrap();
                let sending = runtime.spawn(async move {
                    for value in 0..VALUES_COUNT {
                        sender.send(value).await.unwrap();
                    }
                });
                let receiving = runtime.spawn(async move {
                    for value in 0..VALUES_COUNT {
                        assert_eq!(receiver.receive().await, Some(value));
                    }
                    assert_eq!(receiver.receive().await, None);
                });
                runtime.block_on(async {
                    sending.await.unwrap();
                    receiving.await.unwrap();
                });
            }
        }

        #[test]
        fn tasks_send_to_a_thread() {
            // The runtime of one thread runs tasks only in block_on().
            let [_, runtime] = runtimes();
            let sum = pass_values(2, |_, sender| drop(runtime.spawn(send_values(sender))));
            assert_eq!(sum, SUM);
        }

        #[test]
        fn waits_that_are_often_cancelled_lose_no_value() {
            const BRIEFLY: Duration = Duration::from_micros(20);
            for runtime in runtimes() {
                let (sender, mut receiver) = channel::mpsc(1).unwrap();
                for _ in 0..SENDERS_COUNT {
                    let mut sender = sender.clone();
                    runtime.spawn(async move {
                        let mut value = 0;
                        while value < VALUES_COUNT / 4 {
                            let sent = tokio::time::timeout(BRIEFLY, sender.send(value)).await;
                            value += u64::from(sent.is_ok()); // sends the value again if cancelled
                        }
                    });
                }
                drop(sender);
                let receiving = runtime.spawn(async move {
                    let mut count = 0;
                    loop {
                        match tokio::time::timeout(BRIEFLY, receiver.receive()).await {
                            Ok(Some(_)) => count += 1,
                            Ok(None) => break count,
                            Err(_) => {}
                        }
                    }
                });
                let count = runtime.block_on(receiving).unwrap();
                assert_eq!(count, SENDERS_COUNT * (VALUES_COUNT / 4));
            }
        }

        #[test]
        fn receivers_whose_waits_are_often_cancelled_receive_every_value_once() {
            const BRIEFLY: Duration = Duration::from_micros(20);
            for runtime in runtimes() {
                let (sender, receiver) = channel::mpmc(2).unwrap();
                for _ in 0..SENDERS_COUNT {
                    runtime.spawn(send_values(sender.clone()));
                }
                drop(sender);
                let receiving = [true, false].map(|cancels| {
                    let mut receiver = receiver.clone();
                    runtime.spawn(async move {
                        let mut sum = 0;
                        loop {
                            let received = if cancels {
                                tokio::time::timeout(BRIEFLY, receiver.receive()).await
                            } else {
                                Ok(receiver.receive().await)
                            };
                            match received {
                                Ok(Some(value)) => sum += value,
                                Ok(None) => break sum,
                                Err(_) => {}
                            }
                        }
                    })
                });
                let sum: u64 =
                    receiving.map(|task| runtime.block_on(task).unwrap()).into_iter().sum();
                assert_eq!(sum, SUM);
            }
        }
    }
}
