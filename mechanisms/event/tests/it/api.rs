//! Examples of the machine: one test for each promise of the documentation.

use handover_event::{
    Address, Config, Context, EndReason, Group, Handler, HandlerTable, Interest, Machine,
    MessageKind, OnPanic, ParkOn, Pool, PoolArc, PostCounts, Publisher, Ready, SendError,
    ThreadConfig, Topic, WatchError, WhenFull, handler,
};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// Returns the default configuration with this inbox.
fn small(inbox_messages_max: u32, when_full: WhenFull) -> Config {
    Config::default().inbox_messages_max(inbox_messages_max).when_full(when_full)
}

/// Handler that keeps its messages.
pub(crate) struct Keeper<M>(pub(crate) Vec<M>);

impl<M: Send + 'static> Handler for Keeper<M> {
    type Message = M;
    fn handle(&mut self, message: M, _cx: &mut Context<'_, M>) {
        self.0.push(message);
    }
}

fn keeper<M: Send + 'static>(config: Config) -> Machine<Keeper<M>> {
    Machine::new(Keeper(Vec::new()), config).expect("a valid configuration")
}

#[test]
fn messages_of_one_thread_are_handled_in_order() {
    let mut machine = keeper(Config::default());
    for number in 0..1000 {
        machine.address().send(number).expect("send a message");
    }
    while machine.poll().expect("runs").handled > 0 {}
    assert_eq!(machine.handler().0, (0..1000).collect::<Vec<_>>());
}

#[test]
fn full_inbox_returns_the_message() {
    let mut machine = keeper(small(2, WhenFull::Refuse));
    let address = machine.address().clone();
    assert_eq!(address.send("a"), Ok(()));
    assert_eq!(address.send_quiet("b"), Ok(()));
    assert_eq!(address.send("c"), Err(SendError::Full("c")));
    assert_eq!(address.waiting_count(), 2);
    machine.poll().expect("runs");
    assert_eq!(address.send("c"), Ok(()));
    let stats = machine.stats();
    assert_eq!((stats.sent, stats.handled, stats.refused, stats.waiting), (4, 2, 1, 1));
}

#[test]
fn local_queue_is_bounded() {
    let config = Config::default().local_messages_max(3);
    let mut machine = keeper(config);
    let mut cx = machine.context();
    assert!((0..3).all(|number| cx.send_quiet(number).is_ok()));
    assert_eq!(cx.send(3), Err(SendError::Full(3)));
    let to_itself = cx.address().clone();
    assert_eq!(cx.send_to(&to_itself, 3), Err(SendError::Full(3)), "it is the same queue");
    machine.poll().expect("runs");
    assert_eq!(machine.handler().0, [0, 1, 2]);
}

#[test]
fn drop_oldest_policy_drops_the_oldest_messages() {
    let mut machine = keeper(small(3, WhenFull::DropOldest));
    for number in 0..10 {
        machine.address().send(number).expect("send a message");
    }
    machine.poll().expect("runs");
    assert_eq!(machine.handler().0, [7, 8, 9]);
    let stats = machine.stats();
    assert_eq!((stats.sent, stats.handled, stats.dropped), (10, 3, 7));
}

#[test]
fn blocked_sender_continues_once_there_is_room() {
    let mut machine = keeper(small(1, WhenFull::Block { wait_max: Duration::MAX }));
    let address = machine.address().clone();
    let sender = thread::spawn(move || {
        for number in 0..1000 {
            address.send(number).expect("send a message");
        }
    });
    while machine.handler().0.len() < 1000 {
        machine.run_once().expect("runs");
    }
    sender.join().expect("the sender");
    assert_eq!(machine.handler().0, (0..1000).collect::<Vec<_>>());
}

#[test]
fn blocked_sender_gets_its_message_back_after_the_time_limit() {
    let machine = keeper(small(1, WhenFull::Block { wait_max: 3 * MS }));
    machine.address().send(1).expect("send a message");
    let start = Instant::now();
    assert_eq!(machine.address().send(2), Err(SendError::Full(2)));
    assert!(start.elapsed() >= 3 * MS);
}

#[test]
fn sender_on_the_receivers_thread_is_refused_at_once() {
    let config = small(1, WhenFull::Block { wait_max: Duration::MAX });
    let mut machine = Machine::new(
        handler(|message: u32, cx: &mut Context<'_, u32>| {
            if message == 0 {
                let address = cx.address().clone();
                assert_eq!(address.send(1), Ok(()));
                assert_eq!(address.send(2), Err(SendError::Full(2)), "the sender does not block");
                cx.stop();
            }
        }),
        config,
    )
    .expect("valid");
    machine.context().send_quiet(0).expect("send a message");
    assert_eq!(machine.run().expect("runs"), EndReason::Stopped);
}

#[test]
fn sender_below_a_nested_poll_is_refused_at_once() {
    const WAIT: Duration = Duration::from_secs(5);
    let block = WhenFull::Block { wait_max: WAIT };
    let full = Arc::new(std::sync::OnceLock::<Address<u32>>::new());
    let to_outer = Arc::clone(&full);
    let inner = move |_: u32, _cx: &mut Context<'_, u32>| {
        let outer = to_outer.get().expect("set before the run");
        assert!(matches!(outer.send(3), Err(SendError::Full(3))));
    };
    let mut inner = Machine::new(handler(inner), Config::default()).expect("valid");
    inner.address().send(0).expect("send a message");
    let outer = move |message: u32, _cx: &mut Context<'_, u32>| {
        if message == 1 {
            assert_eq!(inner.poll().expect("runs").handled, 1);
        }
    };
    let mut outer = Machine::new(handler(outer), small(1, block)).expect("valid");
    assert!(full.set(outer.address().clone()).is_ok());
    outer.context().send_quiet(1).expect("send a message");
    outer.address().send(2).expect("send a message");
    let started = Instant::now();
    assert_eq!(outer.poll().expect("runs").handled, 2);
    assert!(started.elapsed() < WAIT, "the sender blocked on its own thread");
    assert_eq!(outer.stats().refused, 1);
}

#[test]
fn closing_returns_unhandled_messages_and_refuses_senders() {
    let mut machine = keeper(Config::default());
    let address = machine.address().clone();
    address.send(2).expect("send a message");
    machine.context().send_quiet(1).expect("send a message");
    let closed = machine.close();
    assert_eq!(closed.messages, [1, 2]);
    assert_eq!((closed.stats.sent, closed.stats.returned), (2, 2));
    assert!(address.is_closed());
    assert_eq!(address.send(3), Err(SendError::Closed(3)));
}

#[test]
fn quiet_message_waits_until_the_machine_wakes_for_another_reason() {
    let machine = keeper(Config::default());
    let address = machine.address().clone();
    let running = machine.spawn(thread::Builder::new()).expect("a thread");
    thread::sleep(20 * MS); // very likely asleep by now; the test holds in any case
    address.send_quiet("quiet").expect("send a message");
    address.send("loud").expect("send a message");
    while address.waiting_count() > 0 {
        thread::yield_now();
    }
    running.stop();
    let (machine, ended) = running.join();
    assert_eq!(ended.expect("runs"), EndReason::Stopped);
    assert_eq!(machine.handler().0, ["quiet", "loud"]);
}

#[test]
fn poll_does_not_wait_run_once_does_and_both_report_the_end() {
    let mut machine = keeper(Config::default());
    assert_eq!(machine.poll().expect("runs").handled, 0);
    let stopper = machine.stopper();
    let address = machine.address().clone();
    let other = thread::spawn(move || {
        thread::sleep(5 * MS);
        address.send(()).expect("send a message");
    });
    assert_eq!(machine.run_once().expect("runs").handled, 1);
    other.join().expect("the sender");
    stopper.stop();
    assert_eq!(machine.run_once().expect("runs").end_reason, Some(EndReason::Stopped));
    assert_eq!(machine.poll().expect("runs").end_reason, None, "reported once");
    stopper.stop();
    assert_eq!(
        machine.run().expect("runs"),
        EndReason::Stopped,
        "a stop before the run ends it at once"
    );
}

#[test]
fn timers_expire_in_order_never_early_and_each_once() {
    struct Timed(Instant, Vec<(u32, Duration)>);
    impl Handler for Timed {
        type Message = u32;
        fn started(&mut self, cx: &mut Context<'_, u32>) {
            for delay_ms in [7, 3, 5] {
                cx.after(delay_ms * MS, delay_ms).expect("a timer");
            }
        }
        fn handle(&mut self, delay_ms: u32, cx: &mut Context<'_, u32>) {
            self.1.push((delay_ms, self.0.elapsed()));
            if delay_ms == 7 {
                cx.stop();
            }
        }
    }
    let mut machine =
        Machine::new(Timed(Instant::now(), Vec::new()), Config::default()).expect("valid");
    machine.run().expect("runs");
    let expired = &machine.handler().1;
    assert_eq!(expired.iter().map(|one| one.0).collect::<Vec<_>>(), [3, 5, 7]);
    assert!(expired.iter().all(|&(delay_ms, after)| after >= delay_ms * MS), "{expired:?}");
    assert_eq!(machine.stats().timers, 3);
}

#[test]
fn timer_at_an_instant_expires_then_or_at_once_if_it_has_passed() {
    let mut machine = keeper(Config::default());
    let begun = Instant::now();
    let mut cx = machine.context();
    cx.at(begun, "passed").expect("a timer");
    cx.at(begun + 3 * MS, "later").expect("a timer");
    while machine.handler().0.len() < 2 {
        machine.run_once().expect("runs");
    }
    assert!(begun.elapsed() >= 3 * MS);
    assert_eq!(machine.handler().0, ["passed", "later"]);
}

#[test]
fn cancelled_timer_returns_its_message_and_periodic_timer_runs_until_cancelled() {
    let mut machine = keeper(Config::default());
    let mut cx = machine.context();
    let once = cx.after(Duration::from_secs(100), "late").expect("a timer");
    let ticking = cx.every(MS, || "tick").expect("a timer");
    assert_eq!(cx.cancel(once), Some(Some("late")));
    assert_eq!(cx.cancel(once), None, "it has ended");
    for _ in 0..3 {
        machine.run_once().expect("runs");
    }
    assert!(machine.handler().0.len() >= 3);
    assert!(machine.handler().0.iter().all(|&message| message == "tick"));
    assert_eq!(machine.context().cancel(ticking), Some(None));
    assert_eq!(machine.context().cancel(ticking), None);
}

#[test]
fn timers_beyond_timers_max_are_refused_with_the_message() {
    let mut machine = keeper(Config::default().timers_max(1));
    let mut cx = machine.context();
    cx.after(MS, 1).expect("the first");
    assert_eq!(cx.after(MS, 2).map_err(|full| full.0), Err(2));
    assert!(cx.every(MS, || 3).is_err());
}

#[test]
fn watched_descriptor_is_handled_among_messages_until_unwatched() {
    enum Event {
        Readable(Ready),
        Quit,
    }
    struct Reader {
        socket: Arc<UnixStream>,
        read: Vec<u8>,
        is_read: mpsc::Sender<()>,
    }
    impl Handler for Reader {
        type Message = Event;
        fn handle(&mut self, event: Event, cx: &mut Context<'_, Event>) {
            match event {
                Event::Readable(ready) => {
                    assert!(ready.readable);
                    let mut bytes = [0; 16];
                    let count = (&*self.socket).read(&mut bytes).expect("it is readable");
                    self.read.extend(&bytes[..count]);
                    if self.read == b"hello" {
                        self.is_read.send(()).expect("it is waited for");
                    }
                }
                Event::Quit => cx.stop(),
            }
        }
    }
    let (ours, mut theirs) = UnixStream::pair().expect("a socket pair");
    let socket = Arc::new(ours);
    let (is_read, read) = mpsc::channel();
    let reader = Reader { socket: Arc::clone(&socket), read: Vec::new(), is_read };
    let mut machine = Machine::new(reader, Config::default()).expect("valid");
    let address = machine.address().clone();
    let watch = machine.context().watch(socket, Interest::READ, Event::Readable).expect("watched");
    let other = thread::spawn(move || {
        theirs.write_all(b"hello").expect("written");
        read.recv().expect("it is read"); // otherwise the machine may stop earlier
        address.send(Event::Quit).expect("send a message");
        theirs
    });
    assert_eq!(machine.run().expect("runs"), EndReason::Stopped, "woken from epoll by a message");
    assert_eq!(machine.handler().read, b"hello");
    assert_eq!(machine.stats().descriptors, 1);
    let mut theirs = other.join().expect("the writer");
    assert!(machine.context().unwatch(watch));
    assert!(!machine.context().unwatch(watch), "it has ended");
    theirs.write_all(b"unheard").expect("written");
    assert_eq!(machine.poll().expect("runs").handled, 0);
}

#[test]
fn edge_watch_reports_once_and_level_watch_in_each_round() {
    for (interest, expected) in [(Interest::READ, 3), (Interest::READ.edge_triggered(), 1)] {
        let (ours, mut theirs) = UnixStream::pair().expect("a socket pair");
        let mut machine = keeper(Config::default());
        machine.context().watch(ours, interest, |ready| ready).expect("watched");
        theirs.write_all(b"x").expect("written");
        let handled: u32 = (0..3).map(|_| machine.poll().expect("runs").handled).sum();
        assert_eq!(handled, expected, "{interest:?}");
    }
}

#[test]
fn set_interest_changes_the_events_of_a_watch_until_it_ends() {
    let (ours, mut theirs) = UnixStream::pair().expect("create a socket pair");
    let mut machine = keeper(Config::default());
    let watch = machine.context().watch(ours, Interest::READ, |ready| ready).expect("watch");
    assert_eq!(machine.poll().expect("poll").handled, 0, "reported although nothing was written");
    machine.context().set_interest(watch, Interest::WRITE).expect("change to writing");
    theirs.write_all(b"x").expect("write a byte");
    assert_eq!(machine.poll().expect("poll").handled, 1, "writable once a poll");
    let last = machine.handler().0.last().expect("an event");
    assert!(last.writable && !last.readable, "{last:?}");
    machine.context().set_interest(watch, Interest::READ).expect("change to reading");
    assert_eq!(machine.poll().expect("poll").handled, 1, "the byte was not reported");
    assert!(machine.context().unwatch(watch));
    let refused = machine.context().set_interest(watch, Interest::READ);
    assert!(matches!(refused, Err(WatchError::Stopped)), "{refused:?}");
}

#[test]
fn descriptor_that_cannot_be_polled_is_refused() {
    let mut machine = keeper::<Ready>(Config::default());
    let file = std::fs::File::open("/proc/self/exe").expect("a regular file");
    let refused = machine.context().watch(file, Interest::READ, |ready| ready);
    let refused = refused.expect_err("a regular file");
    assert!(refused.to_string().contains("epoll_ctl failed: "), "{refused}");
    assert!(std::error::Error::source(&refused).is_none(), "the message contains the cause");
}

#[test]
fn panic_stops_the_machine_and_its_message_is_returned() {
    let mut machine = Machine::new(
        handler(|message: u32, _cx| assert!(message != 2, "two is too much")),
        Config::default(),
    )
    .expect("valid");
    for message in 1..=3 {
        machine.address().send(message).expect("send a message");
    }
    assert_eq!(machine.run().expect("runs"), EndReason::Panicked("two is too much".to_owned()));
    let stats = machine.stats();
    assert_eq!((stats.handled, stats.panicked, stats.waiting), (2, 1, 1));
}

#[test]
fn drop_message_policy_loses_one_message_by_a_panic() {
    let config = Config::default().on_panic(OnPanic::DropMessage);
    let mut sum = 0;
    let mut machine = Machine::new(
        handler(|message: u32, cx: &mut Context<'_, u32>| {
            assert!(message != 2, "two is too much");
            sum += message;
            if message == 3 {
                cx.stop();
            }
        }),
        config,
    )
    .expect("valid");
    for message in 1..=3 {
        machine.address().send(message).expect("send a message");
    }
    assert_eq!(machine.run().expect("runs"), EndReason::Stopped);
    assert_eq!(machine.stats().panicked, 1);
    drop(machine);
    assert_eq!(sum, 1 + 3);
}

#[test]
fn subscribers_share_one_value_and_repeated_subscriptions_are_refused() {
    let topic = Topic::new();
    let mut machines: Vec<_> =
        (0..3).map(|_| keeper::<PoolArc<String>>(Config::default())).collect();
    let mut publisher = topic.publisher(4);
    assert_eq!(publisher.post("nobody".to_owned()).map(|posted| posted.accepted_count), Ok(0));
    for machine in &machines {
        assert!(topic.subscribe(machine.address(), |news| news));
        assert!(!topic.subscribe(machine.address(), |news| news), "twice");
    }
    assert!(topic.unsubscribe(machines[0].address()), "the first of the list");
    assert!(!topic.unsubscribe(machines[0].address()), "twice");
    assert_eq!(topic.subscribers_count(), 2);
    let posted = publisher.post("news".to_owned()).expect("a slot");
    assert_eq!((posted.accepted_count, posted.refused_count), (2, 0));
    for machine in &mut machines {
        machine.poll().expect("runs");
    }
    assert!(machines[0].handler().0.is_empty());
    let (a, b) = (&machines[1].handler().0[0], &machines[2].handler().0[0]);
    assert!(a.is_same(b) && a.holders_count() == 2 && **a == "news");
}

#[test]
fn posting_counts_refusals_and_unsubscribes_closed_machines() {
    let topic = Topic::new();
    let (full, closed) = (keeper(small(1, WhenFull::Refuse)), keeper(Config::default()));
    topic.subscribe(full.address(), |news: PoolArc<u32>| *news);
    topic.subscribe(closed.address(), |news: PoolArc<u32>| *news);
    full.address().send(0).expect("send a message");
    drop(closed);
    let mut publisher = topic.publisher(4);
    let posted = publisher.post(1).expect("a slot");
    assert_eq!((posted.accepted_count, posted.refused_count), (0, 2));
    assert_eq!(topic.subscribers_count(), 1);
    assert_eq!(publisher.post(2).map(|posted| posted.refused_count), Ok(1));
}

#[test]
fn publisher_without_a_free_slot_returns_the_value() {
    let topic = Topic::new();
    let machine = keeper::<PoolArc<u32>>(Config::default());
    topic.subscribe(machine.address(), |news| news);
    let mut publisher = topic.publisher(2);
    publisher.post(1).expect("the first slot");
    publisher.post(2).expect("the second");
    assert_eq!(publisher.post(3).map_err(|full| full.0), Err(3));
    drop(machine);
    assert!(publisher.post(3).is_ok(), "what was not handled went with the machine");
}

/// Message of a group's machine in the tests of postings.
enum PosterMessage {
    /// Request to post the number.
    Post(u32),
    /// A value that was posted.
    News(PoolArc<u32>),
    /// Number that was sent directly.
    Passed(u32),
}

/// Machine that posts on request, and passes a number to another machine before and after; it keeps
/// what it receives.
struct Poster {
    publisher: Publisher<u32>,
    other: Option<Address<PosterMessage>>,
    posted: Option<PostCounts>,
    received: Vec<u32>,
}

impl Poster {
    fn new(topic: &Topic<u32>) -> Self {
        Self { publisher: topic.publisher(8), other: None, posted: None, received: Vec::new() }
    }
}

impl Handler for Poster {
    type Message = PosterMessage;

    fn handle(&mut self, message: PosterMessage, cx: &mut Context<'_, PosterMessage>) {
        match message {
            PosterMessage::News(number) => self.received.push(*number),
            PosterMessage::Passed(number) => self.received.push(number),
            PosterMessage::Post(number) => {
                let pass = |cx: &mut Context<'_, PosterMessage>, number| {
                    if let Some(other) = &self.other {
                        cx.send_to(other, PosterMessage::Passed(number)).expect("send a message");
                    }
                };
                pass(cx, number - 1);
                self.posted = cx.post(&mut self.publisher, number).ok();
                pass(cx, number + 1);
            }
        }
    }
}

/// Polls a group until a round handles nothing.
fn settle(group: &mut Group) {
    while group.poll().expect("runs").handled > 0 {}
}

#[test]
fn posting_from_a_handler_reaches_each_subscriber_of_its_thread_and_of_others_once_in_order() {
    let topic = Topic::new();
    let mut group = Group::new(ThreadConfig::default()).expect("valid");
    let first = group.add(Poster::new(&topic), Config::default()).expect("add a machine");
    let second = group.add(Poster::new(&topic), Config::default()).expect("add a machine");
    let mut remote = keeper(Config::default());
    assert!(topic.subscribe(second.address(), PosterMessage::News));
    assert!(topic.subscribe(remote.address(), |number| *number));
    assert!(topic.subscribe(first.address(), PosterMessage::News));
    group.handler_mut(&first).expect("it is there").other = Some(second.address().clone());
    for number in [10, 20] {
        first.address().send(PosterMessage::Post(number)).expect("send a message");
        settle(&mut group);
        remote.poll().expect("runs");
    }
    let poster = group.handler(&first).expect("it is there");
    assert_eq!(poster.posted, Some(PostCounts { accepted_count: 3, refused_count: 0 }));
    assert_eq!(poster.received, [10, 20], "its own subscription");
    assert_eq!(group.handler(&second).expect("it is there").received, [9, 10, 11, 19, 20, 21]);
    assert_eq!(remote.handler().0, [10, 20]);
    assert_eq!(group.stats(&second).map(|stats| (stats.sent, stats.handled)), Some((6, 6)));
}

#[test]
fn posting_from_a_handler_is_refused_by_a_full_local_queue_and_unsubscribes_a_removed_machine() {
    let topic = Topic::new();
    let mut group = Group::new(ThreadConfig::default()).expect("valid");
    let poster = group.add(Poster::new(&topic), Config::default()).expect("add a machine");
    let narrow = Config::default().local_messages_max(1);
    let [full, removed] =
        [(); 2].map(|()| group.add(Poster::new(&topic), narrow).expect("add a machine"));
    assert!(topic.subscribe(full.address(), PosterMessage::News));
    assert!(topic.subscribe(removed.address(), PosterMessage::News));
    let post = |group: &mut Group, number| {
        poster.address().send(PosterMessage::Post(number)).expect("send a message");
        settle(group);
        group.handler(&poster).expect("it is there").posted
    };
    group.remove(&removed).expect("it is there");
    assert_eq!(post(&mut group, 10), Some(PostCounts { accepted_count: 1, refused_count: 1 }));
    assert_eq!(topic.subscribers_count(), 1, "the removed machine is unsubscribed");
    // A second posting in one turn finds the first one queued.
    for number in [20, 30] {
        poster.address().send(PosterMessage::Post(number)).expect("send a message");
    }
    settle(&mut group);
    let posted = group.handler(&poster).expect("it is there").posted;
    assert_eq!(posted, Some(PostCounts { accepted_count: 0, refused_count: 1 }));
    assert_eq!(group.handler(&full).expect("it is there").received, [10, 20]);
    assert_eq!(group.stats(&full).map(|stats| stats.refused), Some(1));
}

#[test]
fn value_put_for_many_holders_is_freed_with_the_last_even_if_some_are_never_taken() {
    let mut pool = Pool::new(1);
    let value = Arc::new(());
    let mut shares = pool.put_shared(Arc::clone(&value), 3).expect("a slot");
    let one = shares.next().expect("one of three");
    assert_eq!(one.holders_count(), 3);
    drop(shares);
    assert_eq!(one.holders_count(), 1);
    assert!(pool.put(Arc::clone(&value)).is_err(), "in use");
    drop(one);
    assert_eq!((pool.in_use_count(), Arc::strong_count(&value)), (0, 1));
    assert_eq!(pool.put_shared(Arc::clone(&value), 0).expect("a slot").count(), 0);
    assert_eq!((pool.in_use_count(), Arc::strong_count(&value)), (0, 1));
}

#[test]
fn periodic_timer_reports_missed_periods() {
    let mut machine = Machine::new(
        handler(|missed_count: u64, cx: &mut Context<'_, u64>| {
            assert_eq!(cx.stats().timers_missed, missed_count, "reported once");
        }),
        Config::default(),
    )
    .expect("valid");
    let ticking = machine.context().every_counted(MS, |missed_count| missed_count);
    ticking.expect("a timer");
    std::thread::sleep(5 * MS);
    machine.poll().expect("runs");
    let stats = machine.stats();
    assert_eq!((stats.timers, stats.panicked), (1, 0));
    assert!(stats.timers_missed >= 4, "{stats:?}");
}

struct Numbered(usize);

impl MessageKind for Numbered {
    fn kind(&self) -> usize {
        self.0
    }
}

#[test]
fn message_kind_without_handler_is_counted_each_time_and_dropped() {
    struct Carrying(usize, #[expect(dead_code)] Arc<()>);
    impl MessageKind for Carrying {
        fn kind(&self) -> usize {
            self.0
        }
    }
    let held = Arc::new(());
    let table = HandlerTable::new(()).on(1, |(), _message: Carrying, _cx| ());
    let mut machine = Machine::new(table, Config::default()).expect("valid");
    for kind in [0, 1, 2, 2, usize::MAX, usize::MAX] {
        machine.address().send(Carrying(kind, Arc::clone(&held))).expect("send a message");
    }
    machine.poll().expect("runs");
    let stats = machine.stats();
    assert_eq!((stats.handled, stats.unhandled), (6, 5));
    assert_eq!(Arc::strong_count(&held), 1);
}

#[test]
fn table_finds_each_of_many_kinds() {
    let mut table = HandlerTable::new(vec![0; 1000]);
    for kind in 0..1000 {
        table = table.on(kind, |counts, message: Numbered, _cx| counts[message.0] += 1);
    }
    let mut machine = Machine::new(table, Config::default()).expect("valid");
    for kind in 0..1000 {
        machine.context().send_quiet(Numbered(kind)).expect("send a message");
    }
    while machine.poll().expect("runs").handled > 0 {}
    assert!(machine.handler().state().iter().all(|&count| count == 1));
}

#[test]
fn machines_of_a_group_exchange_messages_with_each_other_and_other_threads() {
    let mut group = Group::new(ThreadConfig::default()).expect("valid");
    let outside = keeper::<u32>(Config::default());
    let to_outside = outside.address().clone();
    let last = group
        .add(
            handler(move |number: u32, cx: &mut Context<'_, u32>| {
                cx.send_to(&to_outside, number).expect("send a message");
                cx.stop();
            }),
            Config::default(),
        )
        .expect("add a machine");
    let mut next = last.address().clone();
    for _ in 0..100 {
        let to = next.clone();
        let machine = group
            .add(
                handler(move |number: u32, cx: &mut Context<'_, u32>| {
                    cx.send_to(&to, number + 1).expect("send a message");
                }),
                Config::default(),
            )
            .expect("add a machine");
        next = machine.address().clone();
    }
    let running = group.spawn(thread::Builder::new()).expect("a thread");
    thread::sleep(5 * MS);
    next.send(0).expect("send a message");
    let (group, ended) = running.join();
    assert_eq!(ended.expect("runs"), EndReason::Stopped);
    assert_eq!(group.stats(&last).map(|stats| stats.handled), Some(1));
    assert_eq!(outside.close().messages, [100]);
}

#[test]
fn machines_of_a_group_have_separate_timers_and_descriptors() {
    enum Event {
        Tick,
        Readable,
    }
    #[derive(Default)]
    struct Both {
        ticks: u32,
        reads: u32,
    }
    impl Handler for Both {
        type Message = Event;
        fn handle(&mut self, event: Event, cx: &mut Context<'_, Event>) {
            match event {
                Event::Tick => self.ticks += 1,
                Event::Readable => self.reads += 1,
            }
            if self.ticks >= 2 && self.reads >= 1 {
                cx.stop();
            }
        }
    }
    let mut group = Group::new(ThreadConfig::default()).expect("valid");
    let idle = group.add(Both::default(), Config::default()).expect("add a machine");
    let busy = group.add(Both::default(), Config::default()).expect("add a machine");
    let (ours, mut theirs) = UnixStream::pair().expect("a socket pair");
    let mut cx = group.context(&busy).expect("of this group");
    cx.every(MS, || Event::Tick).expect("a timer");
    cx.watch(ours, Interest::READ.edge_triggered(), |_ready| Event::Readable).expect("watched");
    theirs.write_all(b"x").expect("written");
    assert_eq!(group.run().expect("runs"), EndReason::Stopped);
    let handler = group.handler(&busy).expect("of this group");
    assert!(handler.ticks >= 2 && handler.reads == 1);
    assert_eq!(group.handler(&idle).map(|idle| idle.ticks + idle.reads), Some(0));
}

#[test]
fn machine_removed_from_its_group_is_closed_and_the_others_continue() {
    let mut group = Group::new(ThreadConfig::default()).expect("valid");
    let goes = group.add(Keeper(Vec::new()), Config::default()).expect("add a machine");
    let stays = group.add(Keeper(Vec::new()), Config::default()).expect("add a machine");
    goes.address().send(1).expect("send a message");
    stays.address().send(2).expect("send a message");
    let closed = group.remove(&goes).expect("of this group");
    assert_eq!(closed.messages, [1]);
    assert!(group.remove(&goes).is_none() && group.handler(&goes).is_none());
    assert_eq!(goes.address().send(3), Err(SendError::Closed(3)));
    let mut cx = group.context(&stays).expect("of this group");
    assert_eq!(cx.send_to(goes.address(), 4), Err(SendError::Closed(4)));
    group.poll().expect("runs");
    assert_eq!(group.handler(&stays).map(|keeper| keeper.0.len()), Some(1));
}

#[test]
fn messages_within_a_group_are_limited_counted_and_returned_in_order_by_a_removal() {
    let narrow = Config::default().local_messages_max(3);
    let mut group = Group::new(ThreadConfig::default()).expect("valid");
    let sends = group.add(Keeper::<u32>(Vec::new()), narrow).expect("add a machine");
    let goes = group.add(Keeper::<u32>(Vec::new()), narrow).expect("add a machine");
    let mut cx = group.context(&sends).expect("of this group");
    for number in 0..3 {
        cx.send_to(goes.address(), number).expect("send a message");
    }
    assert_eq!(cx.send_to(goes.address(), 3), Err(SendError::Full(3)));
    let stats = group.stats(&goes).expect("of this group");
    assert_eq!((stats.sent, stats.waiting, stats.refused), (4, 3, 1));
    assert_eq!(group.context(&goes).map(|cx| cx.stats()), Some(stats));
    let closed = group.remove(&goes).expect("of this group");
    assert_eq!(closed.messages, [0, 1, 2]);
    assert_eq!((closed.stats.sent, closed.stats.returned), (4, 3));
}

#[test]
fn messages_within_a_group_stay_limited_while_the_receiver_is_slower_than_the_sender() {
    let narrow = Config::default().local_messages_max(4).messages_per_round_max(1);
    let mut group = Group::new(ThreadConfig::default()).expect("valid");
    let slow = group.add(Keeper::<u32>(Vec::new()), narrow).expect("add a machine");
    let to_slow = slow.address().clone();
    let sends = handler(move |number: u32, cx: &mut Context<'_, u32>| {
        (0..3).for_each(|_| _ = cx.send_to(&to_slow, number));
        cx.send_quiet(number + 1).expect("send a message");
    });
    let sends = group.add(sends, narrow).expect("add a machine");
    group.context(&sends).expect("of this group").send_quiet(1).expect("send a message");
    // In some of its turns, the receiver handles one of these instead of a local message.
    let from_outside = 500;
    for _ in 0..from_outside {
        slow.address().send(0).expect("send a message");
    }
    for _ in 0..100 {
        group.poll().expect("runs");
    }
    let stats = group.stats(&slow).expect("of this group");
    assert!(stats.waiting <= 9 && stats.refused > 0, "{stats:?}");
    let mut received = group.handler(&slow).expect("of this group").0.clone();
    received.retain(|&number| number != 0);
    assert!(received.len() as u64 == stats.handled - from_outside && received.is_sorted());
}

#[test]
fn messages_of_a_group_arrive_although_the_receiver_keeps_its_own_queue_full() {
    let narrow = Config::default().local_messages_max(1);
    let mut group = Group::new(ThreadConfig::default()).expect("valid");
    let repeats = handler(|is_last: bool, cx: &mut Context<'_, bool>| {
        if is_last {
            cx.stop();
        } else {
            let _ = cx.send_quiet(false);
        }
    });
    let repeats = group.add(repeats, narrow).expect("add a machine");
    let sends = group.add(Keeper::<bool>(Vec::new()), narrow).expect("add a machine");
    group.context(&repeats).expect("of this group").send_quiet(false).expect("send a message");
    for _ in 0..2 {
        assert_eq!(group.poll().expect("runs").end_reason, None);
    }
    let mut cx = group.context(&sends).expect("of this group");
    cx.send_to(repeats.address(), true).expect("send a message");
    assert_eq!(group.poll().expect("runs").end_reason, Some(EndReason::Stopped));
}

#[test]
fn message_of_a_group_is_handled_although_its_receiver_had_more_local_messages_than_the_limit() {
    let narrow = Config::default().local_messages_max(2);
    let mut group = Group::new(ThreadConfig::default()).expect("valid");
    let stops_at_1 = handler(|number: u32, cx: &mut Context<'_, u32>| {
        if number == 1 {
            cx.stop();
        }
    });
    let receives = group.add(stops_at_1, narrow).expect("add a machine");
    let sends = group.add(Keeper::<u32>(Vec::new()), narrow).expect("add a machine");
    let mut cx = group.context(&receives).expect("of this group");
    (1..=2).for_each(|number| cx.send_quiet(number).expect("send a message"));
    let mut cx = group.context(&sends).expect("of this group");
    (3..=4).for_each(|number| cx.send_to(receives.address(), number).expect("send a message"));
    assert_eq!(group.poll().expect("runs").end_reason, Some(EndReason::Stopped));
    let mut cx = group.context(&sends).expect("of this group");
    cx.send_to(receives.address(), 5).expect("send a message");
    for _ in 0..2 {
        group.poll().expect("runs");
    }
    let stats = group.stats(&receives).expect("of this group");
    assert_eq!((stats.handled, stats.waiting), (5, 0));
}

#[test]
fn configuration_out_of_range_is_refused_with_name_value_and_range() {
    let refused = |config: Config| {
        Machine::new(Keeper::<()>(Vec::new()), config).expect_err("refused").to_string()
    };
    assert_eq!(
        refused(Config::default().messages_per_round_max(0)),
        "messages_per_round_max=0: must lie in 1..=1048576"
    );
    assert_eq!(refused(Config::default().timers_max(0)), "timers_max=0: must lie in 1..=268435456");
    let thread = ThreadConfig::default().machines_max(1 << 17);
    assert_eq!(
        Group::new(thread).expect_err("refused").to_string(),
        "machines_max=131072: must lie in 1..=65536"
    );
    assert!(Machine::new(Keeper::<()>(Vec::new()), Config::default().thread(thread)).is_err());
    let with_slack = |slack| ThreadConfig::default().timer_slack(slack);
    assert!(with_slack(Duration::from_secs(4)).validate().is_ok());
    assert_eq!(
        Group::new(with_slack(Duration::from_secs(5))).expect_err("refused").to_string(),
        "timer_slack=5s: must lie in 0ns..=4s"
    );
}

#[test]
fn descriptor_of_a_removed_machine_does_not_keep_its_group_awake() {
    let run = || {
        let mut group = Group::new(ThreadConfig::default()).expect("valid");
        let goes = group.add(handler(|_: Ready, _cx| ()), Config::default());
        let goes = goes.expect("add a machine");
        let stays = group.add(handler(|(), cx| cx.stop()), Config::default());
        let stays = stays.expect("add a machine");
        let (ours, mut theirs) = UnixStream::pair().expect("a socket pair");
        // Kept open, so that closing the machine's share does not end the watch.
        let ours = Arc::new(ours);
        let mut cx = group.context(&goes).expect("of this group");
        cx.watch(Arc::clone(&ours), Interest::READ, |ready| ready).expect("watched");
        theirs.write_all(b"never read").expect("written");
        assert!(group.remove(&goes).is_some());
        assert_eq!(Arc::strong_count(&ours), 1);
        let mut cx = group.context(&stays).expect("of this group");
        cx.after(50 * MS, ()).expect("a timer");
        assert_eq!(group.run().expect("runs"), EndReason::Stopped);
        group.stats(&stays).expect("of this group").parks
    };
    let parks = super::contract::first_with_sleep(run, |parks| *parks);
    assert_eq!(parks, 1, "until the timer");
}

#[test]
fn group_refuses_machines_beyond_machines_max() {
    let config = ThreadConfig::default().machines_max(1);
    let mut group = Group::new(config).expect("valid");
    group.add(Keeper::<()>(Vec::new()), Config::default()).expect("the first");
    let refused = group.add(Keeper::<()>(Vec::new()), Config::default()).expect_err("the second");
    assert_eq!(
        refused.to_string(),
        "cannot add a machine: 1 were added, counting removed ones; raise machines_max"
    );
}

#[test]
fn machine_that_sleeps_in_epoll_is_woken_through_its_eventfd() {
    let thread = ThreadConfig::default()
        .park_on(ParkOn::Descriptor)
        .spin(handover_notify::Config::never_spin());
    let (report, parks) = mpsc::channel();
    let machine = Machine::new(
        handler(move |(), cx: &mut Context<'_, ()>| report.send(cx.stats().parks).expect("heard")),
        Config::default().thread(thread),
    )
    .expect("valid");
    let address = machine.address().clone();
    let running = machine.spawn(thread::Builder::new()).expect("a thread");
    // The machine parks when it is idle: sooner or later a message finds it asleep.
    let woken_count_min = 20;
    let mut parks_count = 0;
    while parks_count < woken_count_min {
        address.send(()).expect("send a message");
        parks_count = parks.recv().expect("it is handled");
    }
    running.stop();
    assert_eq!(running.join().1.expect("runs"), EndReason::Stopped);
}

/// Reads its topic's subscriber count when it is dropped.
struct AsksWhenDropped(Topic<u32>);

impl Drop for AsksWhenDropped {
    fn drop(&mut self) {
        let _ = self.0.subscribers_count();
    }
}

/// Dropping a subscriber's closure may call methods of the topic, which would deadlock if the
/// topic's lock were held.
#[test]
fn subscription_is_dropped_without_the_lock_of_its_topic() {
    let (done, is_done) = mpsc::channel();
    // A separate thread, which is left behind if it hangs.
    thread::spawn(move || {
        let topic = Topic::new();
        let subscribe = |machine: &Machine<Keeper<PoolArc<u32>>>| {
            let asks = AsksWhenDropped(topic.clone());
            topic.subscribe(machine.address(), move |news| {
                let _ = &asks;
                news
            })
        };
        let (one, other) = (keeper(Config::default()), keeper(Config::default()));
        assert!(subscribe(&one));
        assert!(!subscribe(&one), "subscribed already: the second function is dropped");
        assert!(topic.unsubscribe(one.address()));
        assert!(subscribe(&other));
        let address = other.address().clone();
        drop(other);
        let posted = topic.publisher(1).post(1).expect("a slot");
        assert_eq!((posted.accepted_count, posted.refused_count), (0, 1));
        assert!(!topic.unsubscribe(&address), "found closed, and removed");
        done.send(()).expect("it is waited for");
    });
    assert_eq!(is_done.recv_timeout(Duration::from_secs(20)), Ok(()), "it hangs");
}

mod sent_and_shared {
    use super::*;
    use handover_base::sync::auto_traits;
    use handover_event::{
        Address, GroupMember, PendingReply, Pool, PoolBox, Publisher, Reply, Stopper, ThreadHandle,
        WeakAddress,
    };
    use std::cell::Cell;
    use std::rc::Rc;

    type Unshared = Cell<u32>; // Send, not Sync
    type Local = Rc<u32>; // neither
    type Lent = std::sync::MutexGuard<'static, u32>; // Sync, not Send

    #[test]
    fn handles_are_send_and_sync_as_their_content_allows() {
        assert_eq!(auto_traits!(Address<Unshared>), "Send + Sync");
        assert_eq!(auto_traits!(Address<Local>), "neither");
        assert_eq!(auto_traits!(Address<Lent>), "neither");
        assert_eq!(auto_traits!(WeakAddress<Unshared>), "Send + Sync");
        assert_eq!(auto_traits!(WeakAddress<Local>), "neither");
        assert_eq!(auto_traits!(WeakAddress<Lent>), "neither");
        assert_eq!(auto_traits!(Reply<Unshared>), "Send", "its closure need not be Sync");
        assert_eq!(auto_traits!(Reply<Lent>), "neither");
        assert_eq!(auto_traits!(PendingReply<Unshared>), "Send + Sync");
        assert_eq!(auto_traits!(PendingReply<Lent>), "neither");
        assert_eq!(auto_traits!(Stopper), "Send + Sync");
        assert!(auto_traits!(Machine<Keeper<u32>>).contains("Send"));
        assert!(auto_traits!(Group).contains("Send"));
        assert_eq!(auto_traits!(GroupMember<Keeper<u32>>), "Send + Sync");
        assert_eq!(auto_traits!(ThreadHandle<Machine<Keeper<u32>>>), "Send + Sync");
        assert_eq!(auto_traits!(Pool<Unshared>), "Send + Sync");
        assert_eq!(auto_traits!(Pool<Local>), "neither");
        assert_eq!(auto_traits!(Pool<Lent>), "neither");
        assert_eq!(auto_traits!(PoolBox<u32>), "Send + Sync");
        assert_eq!(auto_traits!(PoolBox<Unshared>), "Send");
        assert_eq!(auto_traits!(PoolBox<Local>), "neither");
        assert_eq!(auto_traits!(PoolBox<Lent>), "Sync");
        assert_eq!(auto_traits!(PoolArc<u32>), "Send + Sync");
        assert_eq!(auto_traits!(PoolArc<Unshared>), "neither");
        assert_eq!(auto_traits!(PoolArc<Local>), "neither");
        assert_eq!(auto_traits!(PoolArc<Lent>), "neither");
        assert_eq!(auto_traits!(Topic<u32>), "Send + Sync");
        assert_eq!(auto_traits!(Publisher<u32>), "Send + Sync");
        assert_eq!(auto_traits!(Publisher<Local>), "neither");
    }
}
