//! Notifications of tasks, under a hand-written executor and under tokio's two.

use handover_base::sync::auto_traits;
use handover_notify::Notify;
use handover_notify::task::{self, ClosedError, Receiver, Sender};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

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
    let wakes = Arc::new(ThreadWaker { thread: thread::current(), wakes_count: AtomicU64::new(0) });
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
fn pending_notifications_complete_one_wait_at_once() {
    let (sender, mut receiver) = task::pair();
    assert!(!receiver.try_wait());
    sender.notify();
    sender.clone().notify();
    let (_, waker) = thread_waker();
    let mut context = Context::from_waker(&waker);
    assert_eq!(receiver.poll_notified(&mut context), Poll::Ready(Ok(())));
    assert_eq!(receiver.poll_notified(&mut context), Poll::Pending, "they merge into one");
    sender.notify();
    assert!(receiver.try_wait());
    assert!(!receiver.try_wait());
}

#[test]
fn drop_of_the_last_sender_ends_the_wait_after_pending_notifications() {
    let (sender, mut receiver) = task::pair();
    let other = sender.clone();
    sender.notify();
    drop(sender);
    assert!(!receiver.is_closed());
    assert_eq!(block_on(receiver.notified()), Ok(()));
    let dropper = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20)); // so that the receiver waits, on most machines
        drop(other);
    });
    assert_eq!(block_on(receiver.notified()), Err(ClosedError));
    assert_eq!(block_on(receiver.notified()), Err(ClosedError), "it stays closed");
    assert!(receiver.is_closed());
    dropper.join().expect("the dropper");

    let (sender, mut receiver) = task::pair();
    sender.notify();
    drop(sender);
    assert_eq!(block_on(receiver.notified()), Ok(()), "the notification came before the drop");
    assert_eq!(block_on(receiver.notified()), Err(ClosedError));
}

#[test]
fn only_the_last_polled_task_is_woken_and_once() {
    let (sender, mut receiver) = task::pair();
    let [(first, first_waker), (last, last_waker)] = [thread_waker(), thread_waker()];
    for waker in [&first_waker, &last_waker] {
        let mut context = Context::from_waker(waker);
        assert!(receiver.poll_notified(&mut context).is_pending());
    }
    sender.notify();
    sender.notify();
    assert_eq!((first.wakes_count.load(Relaxed), last.wakes_count.load(Relaxed)), (0, 1));
}

#[test]
fn cancelled_wait_releases_its_waker_and_keeps_the_notification() {
    let (sender, mut receiver) = task::pair();
    let (wakes, waker) = thread_waker();
    {
        let mut wait = pin!(receiver.notified());
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drop(waker);
        assert_eq!(Arc::strong_count(&wakes), 2);
    }
    assert_eq!(Arc::strong_count(&wakes), 1, "the waker of the cancelled wait was kept");
    sender.notify();
    assert_eq!(wakes.wakes_count.load(Relaxed), 0);
    assert_eq!(block_on(receiver.notified()), Ok(()));
}

#[test]
fn task_handles_are_send_and_sync() {
    assert_eq!(auto_traits!(Sender), "Send + Sync");
    assert_eq!(auto_traits!(Receiver), "Send + Sync");
    assert_eq!(auto_traits!(task::Notified<'static>), "Send + Sync");
}

const STORM_COUNT: u64 = if cfg!(miri) { 50 } else { 20_000 };
const SENDERS_COUNT: u64 = 3;

/// Starts threads that each send a storm; returns the number sent so far, and the receiver.
fn storm() -> (Arc<AtomicU64>, Receiver) {
    let (sender, receiver) = task::pair();
    let sent = Arc::new(AtomicU64::new(0));
    for _ in 0..SENDERS_COUNT {
        let (sender, sent) = (sender.clone(), Arc::clone(&sent));
        thread::spawn(move || {
            for number in 0..STORM_COUNT {
                sent.fetch_add(1, Relaxed); // ordered by the notification alone
                sender.notify();
                if number % 64 == 0 {
                    thread::sleep(Duration::from_micros(60)); // lets the receiver sleep
                }
            }
        });
    }
    (sent, receiver)
}

/// Waits for all of the storm, whose notifications are the only wake-ups: hangs if one is lost.
async fn receive_storm(sent: Arc<AtomicU64>, mut receiver: Receiver) {
    let mut seen = 0;
    while receiver.notified().await.is_ok() {
        let now = sent.load(Relaxed);
        assert!(now >= seen, "{now} after {seen}");
        seen = now;
    }
    assert_eq!(seen, SENDERS_COUNT * STORM_COUNT, "the last notification was lost");
}

#[test]
fn storm_is_received_by_a_thread() {
    let (sent, receiver) = storm();
    block_on(receive_storm(sent, receiver));
    let (sent, mut receiver) = storm();
    while receiver.notified_blocking().is_ok() {}
    assert_eq!(sent.load(Relaxed), SENDERS_COUNT * STORM_COUNT, "the last notification was lost");
}

#[cfg(not(miri))]
mod under_tokio {
    use super::*;
    use tokio::runtime::{Builder, Runtime};

    fn runtimes() -> [Runtime; 2] {
        [Builder::new_current_thread(), Builder::new_multi_thread()]
            .map(|mut builder| builder.worker_threads(2).enable_time().build().expect("a runtime"))
    }

    #[test]
    fn storm_is_received_by_a_task() {
        for runtime in runtimes() {
            let (sent, receiver) = storm();
            runtime.block_on(runtime.spawn(receive_storm(sent, receiver))).expect("the task");
        }
    }

    #[test]
    fn storm_is_received_by_waits_that_are_often_cancelled() {
        for runtime in runtimes() {
            let (sent, mut receiver) = storm();
            let task = async move {
                loop {
                    let wait = receiver.notified();
                    match tokio::time::timeout(Duration::from_micros(50), wait).await {
                        Ok(Ok(())) | Err(_) => {}
                        Ok(Err(ClosedError)) => break,
                    }
                }
                assert_eq!(sent.load(Relaxed), SENDERS_COUNT * STORM_COUNT);
            };
            runtime.block_on(runtime.spawn(task)).expect("the task");
        }
    }

    #[test]
    fn two_tasks_pass_the_turn() {
        for runtime in runtimes() {
            let (ping, mut pinged) = task::pair();
            let (pong, mut ponged) = task::pair();
            let partner = runtime.spawn(async move {
                while pinged.notified().await.is_ok() {
                    pong.notify();
                }
            });
            runtime.block_on(async {
                for _ in 0..2_000 {
                    ping.notify();
                    ponged.notified().await.expect("the partner has not ended");
                }
                drop(ping);
                assert_eq!(ponged.notified().await, Err(ClosedError));
                partner.await.expect("the partner");
            });
        }
    }
}
