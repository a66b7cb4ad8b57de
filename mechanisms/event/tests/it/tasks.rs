//! Sending and awaiting replies in tasks, under a hand-written executor and under tokio's two.

use super::api::Keeper;
use handover_base::sync::auto_traits;
use handover_event::{
    Address, Config, Context, EndReason, Group, Handler, Machine, NoReplyError, Reply, SendError,
    Sending, Stopper, ThreadConfig, WhenFull, handler,
};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

const MESSAGES_COUNT: u64 = if cfg!(miri) { 50 } else { 500 };
const SENDERS_COUNT: u64 = 3;

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
        match future.as_mut().poll(&mut TaskContext::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Policies under which tasks wait for space.
const WAITING_POLICIES: [WhenFull; 2] =
    [WhenFull::Refuse, WhenFull::Block { wait_max: Duration::MAX }];

fn small(inbox_messages_max: u32, when_full: WhenFull) -> Config {
    Config::default().inbox_messages_max(inbox_messages_max).when_full(when_full)
}

fn keeper(config: Config) -> Machine<Keeper<u64>> {
    Machine::new(Keeper(Vec::new()), config).expect("a valid configuration")
}

#[test]
fn task_waits_for_space_unless_the_policy_is_to_drop_the_oldest_message() {
    for when_full in WAITING_POLICIES {
        let mut machine = keeper(small(1, when_full));
        let address = machine.address().clone();
        assert_eq!(block_on(address.send_async(1)), Ok(()));
        let (wakes, waker) = thread_waker();
        let mut context = TaskContext::from_waker(&waker);
        let mut sending = pin!(address.send_async(2));
        assert!(sending.as_mut().poll(&mut context).is_pending());
        assert_eq!(wakes.wakes_count.load(Relaxed), 0);
        machine.poll().expect("run the machine");
        assert_eq!(wakes.wakes_count.load(Relaxed), 1, "{when_full:?}");
        assert_eq!(sending.as_mut().poll(&mut context), Poll::Ready(Ok(())));
        machine.poll().expect("run the machine");
        assert_eq!(machine.handler().0, [1, 2]);
        let stats = machine.stats();
        assert_eq!((stats.sent, stats.refused), (2, 0), "waiting is no refusal");
    }
}

#[test]
fn task_drops_the_oldest_message_of_a_full_inbox_if_that_is_the_policy() {
    let mut machine = keeper(small(1, WhenFull::DropOldest));
    for number in 1..=2 {
        assert_eq!(block_on(machine.address().send_async(number)), Ok(()));
    }
    machine.poll().expect("run the machine");
    assert_eq!(machine.handler().0, [2]);
}

#[test]
fn waiting_and_later_sends_get_their_message_back_at_the_close() {
    let machine = keeper(small(1, WhenFull::Refuse));
    let address = machine.address().clone();
    address.send(1).expect("send a message");
    let sender = thread::spawn({
        let address = address.clone();
        move || block_on(address.send_async(2))
    });
    thread::sleep(Duration::from_millis(20)); // so that it waits, on most machines
    let closed = machine.close();
    assert_eq!(sender.join().expect("the sender"), Err(SendError::Closed(2)));
    assert_eq!(closed.messages, [1]);
    assert_eq!(block_on(address.send_async(3)), Err(SendError::Closed(3)));
}

#[test]
fn cancelled_send_wakes_the_next_task_and_releases_its_waker() {
    let mut machine = keeper(small(1, WhenFull::Refuse));
    let address = machine.address().clone();
    address.send(1).expect("send a message");
    let [(wakes_a, a), (wakes_b, b)] = [(); 2].map(|()| thread_waker());
    let counts = || [&wakes_a, &wakes_b].map(|it| it.wakes_count.load(Relaxed));
    let mut sending_b = pin!(address.send_async(3));
    {
        let mut sending_a = pin!(address.send_async(2));
        assert!(sending_a.as_mut().poll(&mut TaskContext::from_waker(&a)).is_pending());
        assert!(sending_b.as_mut().poll(&mut TaskContext::from_waker(&b)).is_pending());
        machine.poll().expect("run the machine");
        assert_eq!(counts(), [1, 0], "one task is admitted at a time");
    }
    assert_eq!(counts(), [1, 1], "the cancelled task did not wake the next");
    drop(a);
    assert_eq!(Arc::strong_count(&wakes_a), 1, "the waker of the cancelled send was kept");
    let context = &mut TaskContext::from_waker(&b);
    assert_eq!(sending_b.as_mut().poll(context), Poll::Ready(Ok(())));
    machine.poll().expect("run the machine");
    assert_eq!(machine.handler().0, [1, 3]);
}

#[test]
fn admitted_task_wakes_the_next_once_it_has_sent() {
    let mut machine = keeper(small(2, WhenFull::Refuse));
    let address = machine.address().clone();
    (0..2).for_each(|number| address.send(number).expect("send a message"));
    let [(wakes_a, a), (wakes_b, b)] = [(); 2].map(|()| thread_waker());
    let counts = || [&wakes_a, &wakes_b].map(|it| it.wakes_count.load(Relaxed));
    let (mut sending_a, mut sending_b) = (pin!(address.send_async(2)), pin!(address.send_async(3)));
    assert!(sending_a.as_mut().poll(&mut TaskContext::from_waker(&a)).is_pending());
    assert!(sending_b.as_mut().poll(&mut TaskContext::from_waker(&b)).is_pending());
    machine.poll().expect("run the machine");
    assert_eq!(counts(), [1, 0]);
    let ready = Poll::Ready(Ok(()));
    assert_eq!(sending_a.as_mut().poll(&mut TaskContext::from_waker(&a)), ready);
    assert_eq!(counts(), [1, 1]);
    assert_eq!(sending_b.as_mut().poll(&mut TaskContext::from_waker(&b)), ready);
}

#[test]
fn task_wakes_a_machine_that_sleeps_with_a_full_inbox() {
    for when_full in WAITING_POLICIES {
        let machine = keeper(small(1, when_full));
        let address = machine.address().clone();
        let running = machine.spawn(thread::Builder::new()).expect("a thread");
        thread::sleep(Duration::from_millis(20)); // so that it sleeps, on most machines
        address.send_quiet(1).expect("send a message");
        assert_eq!(block_on(address.send_async(2)), Ok(()));
        running.stop();
        let (machine, _) = running.join();
        assert_eq!(machine.handler().0.first(), Some(&1));
    }
}

#[test]
fn futures_are_send_if_messages_are() {
    use std::cell::Cell;
    assert_eq!(auto_traits!(Sending<'static, u8>), "Send + Sync");
    assert_eq!(auto_traits!(Sending<'static, Cell<u8>>), "Send");
}

#[test]
fn awaited_reply_wakes_the_last_polled_task() {
    let (reply, pending) = Reply::pair();
    let mut pending = pin!(pending);
    let [(first, first_waker), (last, last_waker)] = [(); 2].map(|()| thread_waker());
    for waker in [&first_waker, &last_waker] {
        assert!(pending.as_mut().poll(&mut TaskContext::from_waker(waker)).is_pending());
    }
    reply.send(7).expect("the requester waits");
    assert_eq!((first.wakes_count.load(Relaxed), last.wakes_count.load(Relaxed)), (0, 1));
    assert_eq!(block_on(pending.as_mut()), Ok(7));
    assert_eq!(block_on(pending.as_mut()), Err(NoReplyError), "it was received already");

    let (reply, pending) = Reply::<u32>::pair();
    let dropper = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20)); // so that the task waits, on most machines
        drop(reply);
    });
    assert_eq!(block_on(pending), Err(NoReplyError));
    dropper.join().expect("the dropper");
}

/// Adds up the numbers that it gets, and stops at the sum that all senders make.
struct Adder {
    sum: u64,
    count: u64,
}

impl Handler for Adder {
    type Message = u64;

    fn handle(&mut self, number: u64, cx: &mut Context<'_, u64>) {
        self.sum += number;
        self.count += 1;
        if self.count == SENDERS_COUNT * MESSAGES_COUNT {
            cx.stop();
        }
    }
}

const SUM: u64 = SENDERS_COUNT * (MESSAGES_COUNT - 1) * MESSAGES_COUNT / 2;

async fn send_all(address: Address<u64>) {
    for number in 0..MESSAGES_COUNT {
        address.send_async(number).await.expect("the machine is open");
    }
}

/// Runs a machine, alone and in a group, under each policy, to which tasks send that `start`
/// starts. Hangs if a wake-up is lost.
fn run_machines(mut start: impl FnMut(u64, Address<u64>)) {
    for when_full in WAITING_POLICIES {
        let adder = || Adder { sum: 0, count: 0 };
        let mut machine = Machine::new(adder(), small(2, when_full)).expect("valid");
        (0..SENDERS_COUNT).for_each(|sender| start(sender, machine.address().clone()));
        assert_eq!(machine.run().expect("runs"), EndReason::Stopped);
        assert_eq!(machine.handler().sum, SUM);

        let mut group = Group::new(ThreadConfig::default()).expect("valid");
        let other = group.add(handler(|(), _cx| ()), Config::default()).expect("add a machine");
        let member = group.add(adder(), small(2, when_full)).expect("add a machine");
        (0..SENDERS_COUNT).for_each(|sender| start(sender, member.address().clone()));
        assert_eq!(group.run().expect("runs"), EndReason::Stopped);
        assert_eq!(group.handler(&member).map(|adder| adder.sum), Some(SUM));
        drop(other);
    }
}

#[test]
fn tasks_and_threads_send_to_one_machine() {
    run_machines(|sender, address| {
        thread::spawn(move || match sender {
            0 => (0..MESSAGES_COUNT).for_each(|number| {
                while address.send(number).is_err() {
                    thread::yield_now(); // refused as the inbox is full
                }
            }),
            _ => block_on(send_all(address)),
        });
    });
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
    fn tasks_send_to_one_machine() {
        // The runtime of one thread runs tasks only in block_on().
        let [_, runtime] = runtimes();
        run_machines(|_, address| drop(runtime.spawn(send_all(address))));
    }

    #[test]
    fn sends_that_are_often_cancelled_lose_no_message() {
        const BRIEFLY: Duration = Duration::from_micros(20);
        let [_, runtime] = runtimes();
        run_machines(|_, address| {
            runtime.spawn(async move {
                let mut number = 0;
                while number < MESSAGES_COUNT {
                    let sent = tokio::time::timeout(BRIEFLY, address.send_async(number)).await;
                    number += u64::from(sent.is_ok()); // sends it again if cancelled
                }
            });
        });
    }

    #[test]
    fn tasks_request_replies() {
        type Request = (u64, Reply<u64>);
        for runtime in runtimes() {
            let square = |(number, reply): Request, _cx: &mut Context<'_, Request>| {
                reply.send(number * number).expect("the requester waits");
            };
            let machine = Machine::new(handler(square), small(1, WhenFull::Refuse)).expect("valid");
            let address = machine.address().clone();
            let stopper: Stopper = machine.stopper();
            let running = machine.spawn(thread::Builder::new()).expect("a thread");
            let tasks: Vec<_> = (0..SENDERS_COUNT)
                .map(|_| {
                    let address = address.clone();
                    runtime.spawn(async move {
                        for number in 0..MESSAGES_COUNT / 5 {
                            let (reply, pending) = Reply::pair();
                            address.send_async((number, reply)).await.expect("open");
                            assert_eq!(pending.await, Ok(number * number));
                        }
                    })
                })
                .collect();
            runtime.block_on(async {
                for task in tasks {
                    task.await.expect("a task");
                }
            });
            stopper.stop();
            running.join().1.expect("the run");
        }
    }
}
