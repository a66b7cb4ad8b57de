//! Probe sites at the stages of a hand-over.
//!
//! Without the feature `probes`, and under Miri, each function is empty, except in this crate's own
//! tests, which record the stages. The sites for messages that a thread sends to itself, and the
//! one after the handler, need the feature `probes-hot`: even switched off at run time they raise
//! the cost of a message to oneself from 1.9 to 2.8 ns.
//!
//! A machine is identified in all its events by the address of what its senders share.

use handover_base::stage;

/// Emits a probe site, if the feature is on, and records the stage in tests.
macro_rules! site {
    ($feature:tt, $stage:ident, $name:literal $(, $value:expr)*) => {
        stage::stage!($feature, $name $(, $value)*);
        #[cfg(test)]
        tests::record(tests::Stage::$stage);
    };
}

/// Records that a message was put into the inbox of the machine `to`.
#[inline(always)]
pub(crate) fn record_enqueued<T>(to: &T) {
    site!("probes", Enqueued, "event.enqueued", stage::address(to));
}

/// Records that a message was put into the local queue of the machine `to`. The thread that runs
/// the machine put it there.
#[inline(always)]
pub(crate) fn record_enqueued_here<T>(to: &T) {
    site!("probes-hot", Enqueued, "event.enqueued", stage::address(to));
}

/// Records that this thread has woken a sleeping thread.
#[inline(always)]
pub(crate) fn record_notified() {
    site!("probes", Notified, "event.notified");
}

/// Records that this thread runs again after a sleep.
#[inline(always)]
pub(crate) fn record_woken() {
    site!("probes", Woken, "event.woken");
}

/// Records the dispatch to machine `at` of an inbox message, a timer or a readiness event. The
/// handler is about to be called.
#[inline(always)]
pub(crate) fn record_dispatched<T>(at: &T) {
    site!("probes", Dispatched, "event.dispatched", stage::address(at));
}

/// Records the dispatch to machine `at` of a message from its local queue. The handler is about to
/// be called.
#[inline(always)]
pub(crate) fn record_dispatched_here<T>(at: &T) {
    site!("probes-hot", Dispatched, "event.dispatched", stage::address(at));
}

/// Records that the handler has returned after handling a message; its replies were sent before.
#[inline(always)]
pub(crate) fn record_replied() {
    site!("probes-hot", Replied, "event.replied");
}

#[cfg(test)]
mod tests {
    use crate::{Config, Context, Group, Machine, Stats, ThreadConfig, Topic, WhenFull, handler};
    use Stage::{Dispatched, Enqueued, Notified, Replied, Woken};
    use std::cell::RefCell;
    use std::thread;
    use std::time::Duration;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) enum Stage {
        Enqueued,
        Notified,
        Woken,
        Dispatched,
        Replied,
    }

    thread_local! {
        /// Stages passed by this thread since `passed` was last called.
        static STAGES: RefCell<Vec<Stage>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn record(stage: Stage) {
        STAGES.with_borrow_mut(|passed| passed.push(stage));
    }

    /// Returns the stages that this thread has passed since the last call.
    fn passed() -> Vec<Stage> {
        STAGES.take()
    }

    #[test]
    fn message_to_the_machine_itself_is_enqueued_dispatched_and_replied_once() {
        for by_address in [false, true] {
            let mut machine = Machine::new(
                handler(move |left: u32, cx: &mut Context<'_, u32>| {
                    let own = cx.address().clone();
                    match (left, by_address) {
                        (0, _) => {}
                        (_, true) => cx.send_to(&own, left - 1).expect("send a message"),
                        (_, false) => cx.send_quiet(left - 1).expect("send a message"),
                    }
                }),
                Config::default(),
            )
            .expect("valid");
            machine.context().send(1).expect("send a message");
            machine.poll().expect("poll the machine");
            // The handler sends its message before it returns.
            let expected = [Enqueued, Dispatched, Enqueued, Replied, Dispatched, Replied];
            assert_eq!(passed(), expected, "by address: {by_address}");
        }
    }

    #[test]
    fn message_to_an_awake_machine_sends_no_notification() {
        let block = WhenFull::Block { wait_max: Duration::MAX };
        for when_full in [WhenFull::Refuse, WhenFull::DropOldest, block] {
            let config = Config::default().when_full(when_full);
            let mut machine =
                Machine::new(handler(|(), _cx| ()), config).expect("create a machine");
            machine.address().send(()).expect("send a message");
            machine.address().send_quiet(()).expect("send a message");
            assert_eq!(passed(), [Enqueued, Enqueued], "{when_full:?}");
            machine.poll().expect("poll the machine");
            assert_eq!(passed(), [Dispatched, Replied, Dispatched, Replied], "{when_full:?}");
        }
    }

    #[test]
    fn message_that_waited_for_room_is_enqueued_once() {
        let when_full = WhenFull::Block { wait_max: Duration::MAX };
        let config = Config::default().inbox_messages_max(1).when_full(when_full);
        let mut machine = Machine::new(handler(|(), _cx| ()), config).expect("create a machine");
        machine.address().send(()).expect("send a message");
        let address = machine.address().clone();
        let sender = thread::spawn(move || {
            address.send(()).expect("send a message");
            passed()
        });
        // The machine is only polled and never sleeps, so no sender has to notify it.
        while machine.stats().handled < 2 {
            machine.poll().expect("poll the machine");
            thread::yield_now();
        }
        assert_eq!(sender.join().expect("the other thread panicked"), [Enqueued]);
    }

    /// Sends one message to a sleeping receiver, by a topic if `posts` is `true`. Returns the
    /// stages of the sender, the stages of the receiver, and the receiver's counters.
    fn sent_to_a_sleeper(posts: bool) -> (Vec<Stage>, Vec<Stage>, Stats) {
        let spin = handover_notify::Config::never_spin();
        let config = Config::default().thread(ThreadConfig::default().spin(spin));
        let machine = Machine::new(handler(|_: u32, cx| cx.stop()), config);
        let mut machine = machine.expect("create a machine");
        let topic = Topic::new();
        topic.subscribe(machine.address(), |value| *value);
        let address = machine.address().clone();
        let (send_id, id) = std::sync::mpsc::channel();
        let receiver = thread::spawn(move || {
            send_id.send(rustix::thread::gettid()).expect("the sender listens");
            machine.run().expect("run the machine");
            (passed(), machine.stats())
        });
        // Waits until the receiver has declared its sleep and is blocked in the kernel: in between,
        // it polls once more and need not be woken.
        let stat = format!(
            "/proc/self/task/{}/stat",
            id.recv().expect("receive the thread id").as_raw_pid()
        );
        let is_in_kernel = || std::fs::read_to_string(&stat).expect("a thread").contains(") S ");
        while !address.shared().shared_thread.unparker().is_asleep() || !is_in_kernel() {
            thread::yield_now();
        }
        match posts {
            true => drop(topic.publisher(1).post(1).expect("post a value")),
            false => address.send(1).expect("send a message"),
        }
        let sent = passed();
        let (received, stats) = receiver.join().expect("the other thread panicked");
        (sent, received, stats)
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri's threads are not in /proc/self/task")]
    fn message_to_a_sleeping_machine_passes_all_five_stages() {
        for posts in [false, true] {
            let (sent, received, stats) = sent_to_a_sleeper(posts);
            assert_eq!(sent, [Enqueued, Notified], "posts: {posts}");
            assert_eq!(received, [Woken, Dispatched, Replied], "posts: {posts}");
            assert_eq!((stats.parks, stats.wakeups), (1, 1), "posts: {posts}");
        }
    }

    #[test]
    fn timer_message_is_dispatched_and_replied() {
        let mut machine =
            Machine::new(handler(|(), _cx| ()), Config::default()).expect("create a machine");
        machine.context().after(Duration::ZERO, ()).expect("start a timer");
        machine.poll().expect("poll the machine");
        assert_eq!(passed(), [Dispatched, Replied]);
    }

    #[test]
    fn message_within_a_group_is_enqueued_dispatched_and_replied_once() {
        let mut group = Group::new(ThreadConfig::default()).expect("create a group");
        let last = group.add(handler(|(), _cx| ()), Config::default()).expect("add a machine");
        let to = last.address().clone();
        let first = handler(move |(), cx: &mut Context<'_, ()>| {
            cx.send_to(&to, ()).expect("send a message")
        });
        let first = group.add(first, Config::default()).expect("add a machine");
        first.address().send(()).expect("send a message");
        assert_eq!(passed(), [Enqueued], "awake");
        group.poll().expect("poll the machine");
        assert_eq!(passed(), [Dispatched, Enqueued, Replied, Dispatched, Replied]);
    }
}
