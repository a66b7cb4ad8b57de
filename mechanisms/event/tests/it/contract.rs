//! Guarantees under load: no message is lost, no kind of work starves, no memory is allocated in
//! the steady state, and no thread is woken in vain.

use handover_event::{
    Address, Config, Context, EndReason, Group, Handler, Interest, Machine, OnPanic, PoolArc,
    Ready, SendError, Stats, ThreadConfig, Topic, WhenFull, handler,
};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);
const MACHINES: usize = 8;

/// Returns the number of messages that the soak sends; `HANDOVER_SOAK_MESSAGES` overrides it.
fn soak_messages() -> u64 {
    let asked = std::env::var("HANDOVER_SOAK_MESSAGES").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or(1_000_000)
}

/// Sends and drops of messages, as all senders together counted them.
#[derive(Default)]
struct Seen {
    accepted: AtomicU64,
    refused: AtomicU64,
    dropped: AtomicU64,
}

/// Message that counts its drop.
struct Counted(Arc<Seen>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

impl Seen {
    fn send(self: &Arc<Self>, send: impl FnOnce(Counted) -> Result<(), SendError<Counted>>) {
        let count = match send(Counted(Arc::clone(self))) {
            Ok(()) => &self.accepted,
            Err(_) => &self.refused,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn sent(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed) + self.refused.load(Ordering::Relaxed)
    }
}

/// Generator of reproducible pseudo-random numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// Handler that sends messages on while some are left: to itself, to others, or to none.
struct Relay {
    seen: Arc<Seen>,
    others: Vec<Address<Counted>>,
    left: Arc<AtomicU64>,
    dice: Dice,
}

impl Relay {
    fn may_send(&self) -> bool {
        let take = |left: u64| left.checked_sub(1);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

impl Handler for Relay {
    type Message = Counted;

    fn handle(&mut self, message: Counted, cx: &mut Context<'_, Counted>) {
        drop(message);
        for _ in 0..self.dice.roll(4) {
            if !self.may_send() {
                return;
            }
            let other = self.dice.roll(self.others.len() as u64) as usize;
            let (seen, other) = (&self.seen, &self.others[other]);
            match self.dice.roll(5) {
                0 => seen.send(|message| cx.send_quiet(message)),
                1 => seen.send(|message| cx.send(message)),
                2 => seen.send(|message| other.send(message)),
                3 => seen.send(|message| other.send_quiet(message)),
                _ => seen.send(|message| cx.send_to(other, message)),
            }
        }
    }
}

/// Eight machines send to each other and receive from outside; they are stopped and run again at
/// random moments, and closed while sends are in progress.
#[test]
fn every_message_of_a_soak_is_handled_refused_dropped_by_policy_or_returned() {
    let seen = Arc::new(Seen::default());
    let left = Arc::new(AtomicU64::new(soak_messages()));
    let policies = [
        WhenFull::Refuse,
        WhenFull::DropOldest,
        WhenFull::Block { wait_max: Duration::from_micros(200) },
        WhenFull::Refuse,
    ];
    let mut machines: Vec<_> = (0..MACHINES)
        .map(|number| {
            let config = Config::default()
                .when_full(policies[number % policies.len()])
                .inbox_messages_max([4, 64, 16, 1024][number % 4])
                .local_messages_max(64)
                .messages_per_round_max(16);
            let relay = Relay {
                seen: Arc::clone(&seen),
                others: Vec::new(),
                left: Arc::clone(&left),
                dice: Dice(number as u64 + 1),
            };
            Machine::new(relay, config).expect("valid")
        })
        .collect();
    let addresses: Vec<_> = machines.iter().map(|one| one.address().clone()).collect();
    for machine in &mut machines {
        machine.handler_mut().others = addresses.clone();
    }
    let stoppers: Vec<_> = machines.iter().map(Machine::stopper).collect();
    let running: Vec<_> = machines
        .into_iter()
        .enumerate()
        .map(|(number, mut machine)| {
            let left = Arc::clone(&left);
            thread::spawn(move || {
                let mut dice = Dice(number as u64 + 77);
                // Each machine is closed at its own point, mostly while the others go on sending.
                let ends_at = match number {
                    0 => 0,
                    _ => soak_messages() / 2 * dice.roll(100) / 100,
                };
                loop {
                    let ended = machine.run().expect("runs");
                    assert_eq!(ended, EndReason::Stopped);
                    if left.load(Ordering::Relaxed) <= ends_at {
                        return machine.close();
                    }
                }
            })
        })
        .collect();
    let mut dice = Dice(4711);
    while left.load(Ordering::Relaxed) > 0 {
        let to = &addresses[dice.roll(MACHINES as u64) as usize];
        for _ in 0..dice.roll(200) {
            if left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                .is_err()
            {
                break;
            }
            seen.send(|message| to.send(message));
        }
        stoppers[dice.roll(MACHINES as u64) as usize].stop();
    }
    let mut total = Stats::default();
    for one in running {
        while !one.is_finished() {
            stoppers.iter().for_each(handover_event::Stopper::stop);
            thread::sleep(MS);
        }
        let closed = one.join().expect("a machine's thread");
        let stats = closed.stats;
        assert_eq!(
            stats.sent,
            stats.handled + stats.refused + stats.dropped + stats.waiting + stats.returned
        );
        assert_eq!((stats.waiting, stats.returned), (0, closed.messages.len() as u64));
        total.sent += stats.sent;
        total.handled += stats.handled;
        total.refused += stats.refused;
        total.dropped += stats.dropped;
        total.returned += stats.returned;
    }
    // A machine may have been closed before another sent to it: the send is refused, and counted
    // after its final statistics were taken. So the senders' counts decide.
    assert!(seen.sent() >= soak_messages());
    let accepted = seen.accepted.load(Ordering::Relaxed);
    assert_eq!(accepted, total.handled + total.dropped + total.returned);
    assert!(total.refused <= seen.refused.load(Ordering::Relaxed));
    assert_eq!(seen.dropped.load(Ordering::Relaxed), seen.sent(), "none is left, none went twice");
}

/// Handler that sends each message to itself again, so that its queue is never empty.
fn endless(message: u32, cx: &mut Context<'_, u32>) {
    cx.send_quiet(message).expect("send a message");
}

#[test]
fn endless_local_messages_do_not_delay_timers_inbox_or_descriptors() {
    enum Event {
        Endless,
        FromOutside,
        Timer,
        Readable,
    }
    #[derive(Default)]
    struct Met {
        outside: bool,
        timer: bool,
        readable: bool,
    }
    impl Handler for Met {
        type Message = Event;
        fn handle(&mut self, event: Event, cx: &mut Context<'_, Event>) {
            match event {
                Event::Endless => cx.send_quiet(Event::Endless).expect("send a message"),
                Event::FromOutside => self.outside = true,
                Event::Timer => self.timer = true,
                Event::Readable => self.readable = true,
            }
            if self.outside && self.timer && self.readable {
                cx.stop();
            }
        }
    }
    let mut machine = Machine::new(Met::default(), Config::default()).expect("valid");
    let (ours, theirs) = UnixStream::pair().expect("a socket pair");
    let mut cx = machine.context();
    cx.send_quiet(Event::Endless).expect("send a message");
    cx.after(MS, Event::Timer).expect("a timer");
    cx.watch(ours, Interest::READ.edge_triggered(), |_ready| Event::Readable).expect("watched");
    let address = machine.address().clone();
    let other = thread::spawn(move || {
        thread::sleep(2 * MS);
        std::io::Write::write_all(&mut &theirs, b"x").expect("written");
        address.send(Event::FromOutside).expect("send a message");
        theirs
    });
    assert_eq!(machine.run().expect("runs"), EndReason::Stopped);
    other.join().expect("the other");
}

#[test]
fn timers_that_are_always_due_do_not_delay_messages() {
    let config = Config::default().timers_per_round_max(4);
    let mut machine = Machine::new(
        handler(|is_message: bool, cx: &mut Context<'_, bool>| {
            if is_message {
                cx.stop();
            } else {
                cx.at_ns(0, false).expect("a timer"); // due at once, again and again
            }
        }),
        config,
    )
    .expect("valid");
    for _ in 0..10 {
        machine.context().at_ns(0, false).expect("a timer");
    }
    let address = machine.address().clone();
    let other = thread::spawn(move || {
        thread::sleep(2 * MS);
        address.send(true).expect("send a message");
    });
    assert_eq!(machine.run().expect("runs"), EndReason::Stopped);
    other.join().expect("the other");
}

#[test]
fn descriptors_that_are_always_ready_do_not_delay_messages_or_timers() {
    enum Event {
        Ready,
        Timer,
        Message,
    }
    let mut has_met = (false, false);
    let mut machine = Machine::new(
        handler(|event: Event, cx: &mut Context<'_, Event>| {
            match event {
                Event::Ready => {} // left unread: ready again in the next round
                Event::Timer => has_met.0 = true,
                Event::Message => has_met.1 = true,
            }
            if has_met == (true, true) {
                cx.stop();
            }
        }),
        Config::default(),
    )
    .expect("valid");
    let pairs: Vec<_> = (0..100).map(|_| UnixStream::pair().expect("a socket pair")).collect();
    let mut cx = machine.context();
    cx.after(MS, Event::Timer).expect("a timer");
    let mut theirs = Vec::new();
    for (ours, other) in pairs {
        std::io::Write::write_all(&mut &other, b"x").expect("written");
        cx.watch(ours, Interest::READ, |_ready: Ready| Event::Ready).expect("watched");
        theirs.push(other);
    }
    let address = machine.address().clone();
    let other = thread::spawn(move || {
        thread::sleep(2 * MS);
        address.send(Event::Message).expect("send a message");
    });
    assert_eq!(machine.run().expect("runs"), EndReason::Stopped);
    other.join().expect("the other");
}

#[test]
fn round_handles_at_most_its_limits() {
    let config = Config::default().messages_per_round_max(10).timers_per_round_max(5);
    let mut machine = Machine::new(handler(|_: u32, _cx| ()), config).expect("valid");
    for number in 0..30 {
        machine.address().send(number).expect("send a message");
        machine.context().send_quiet(number).expect("send a message");
        machine.context().at_ns(0, number).expect("a timer");
    }
    assert_eq!(machine.poll().expect("runs").handled, 15);
    assert_eq!((machine.stats().handled, machine.stats().timers), (10, 5));
    let mut rounds = 1;
    while machine.poll().expect("runs").handled > 0 {
        rounds += 1;
    }
    assert_eq!(rounds, 6, "sixty messages by ten");
}

#[test]
fn message_of_another_thread_is_handled_between_endless_messages_to_oneself() {
    let panicking = Config::default().on_panic(OnPanic::DropMessage);
    for (config, panics) in
        [(Config::default().messages_per_round_max(1), false), (panicking, true)]
    {
        let endless = move |stops: bool, cx: &mut Context<'_, bool>| {
            if stops {
                return cx.stop();
            }
            cx.send_quiet(false).expect("send a message");
            if panics {
                std::panic::resume_unwind(Box::new(()));
            }
        };
        let mut machine = Machine::new(handler(endless), config).expect("valid");
        machine.context().send_quiet(false).expect("send a message");
        machine.address().send(true).expect("send a message");
        let ended = [(); 2].map(|()| machine.poll().expect("runs").end_reason);
        assert!(ended.contains(&Some(EndReason::Stopped)), "panics: {panics}");
    }
}

#[test]
fn endless_machine_of_a_group_does_not_delay_the_others() {
    let mut group = Group::new(ThreadConfig::default()).expect("valid");
    let busy = group.add(handler(endless), Config::default()).expect("add a machine");
    let stops =
        group.add(handler(|_: u32, cx: &mut Context<'_, u32>| cx.stop()), Config::default());
    let stops = stops.expect("send a message");
    group.context(&busy).expect("of this group").send_quiet(1).expect("send a message");
    let running = group.spawn(thread::Builder::new()).expect("a thread");
    thread::sleep(2 * MS);
    stops.address().send(1).expect("send a message");
    assert_eq!(running.join().1.expect("runs"), EndReason::Stopped);
}

#[test]
fn stopped_group_serves_no_other_machine() {
    let mut group = Group::new(ThreadConfig::default()).expect("valid");
    let stopper = group.stopper();
    let stops = handler(move |_: u32, _cx| stopper.stop());
    let config = Config::default().messages_per_round_max(10);
    let stops = group.add(stops, config).expect("add a machine");
    let other = group.add(handler(|_: u32, _cx| ()), config).expect("add a machine");
    for number in 0..30 {
        stops.address().send(number).expect("send a message");
        other.address().send(number).expect("send a message");
    }
    assert_eq!(group.run().expect("runs"), EndReason::Stopped);
    assert_eq!(group.stats(&stops).expect("of this group").handled, 10);
    assert_eq!(group.stats(&other).expect("of this group").handled, 0);
}

#[test]
fn idle_machine_sleeps_exactly_until_its_deadline() {
    let run = || {
        let started = Instant::now();
        let mut machine =
            Machine::new(handler(|(), cx| cx.stop()), Config::default()).expect("valid");
        machine.context().after(100 * MS, ()).expect("a timer");
        let before = handover_base::usage::thread_usage();
        assert_eq!(machine.run().expect("runs"), EndReason::Stopped);
        let used = handover_base::usage::thread_usage() - before;
        assert!(started.elapsed() >= 100 * MS);
        (machine.stats(), used)
    };
    let (stats, used) = first_with_sleep(run, |(stats, _)| stats.parks);
    assert_eq!((stats.parks, stats.wakeups), (1, 0), "one sleep, ended by the deadline");
    // The yields at first may be one context switch each; after them there is the one sleep.
    assert!(used.switches_voluntary <= 1 + 32, "{used:?}");
}

/// Calls `run` until the machine has slept; returns the result of that call. A machine whose thread
/// gets the CPU only after the deadline does not sleep.
pub(crate) fn first_with_sleep<R>(run: impl Fn() -> R, parks: impl Fn(&R) -> u64) -> R {
    const RUNS_MAX: u32 = 20;
    let mut results = (0..RUNS_MAX).map(|_| run());
    results.find(|result| parks(result) > 0).expect("the machine does not sleep")
}

#[test]
fn machine_without_work_sleeps_until_it_is_stopped() {
    for watches in [false, true] {
        let mut machine =
            Machine::new(handler(|_: Ready, _cx| ()), Config::default()).expect("valid");
        let (ours, _theirs) = UnixStream::pair().expect("a socket pair");
        if watches {
            machine.context().watch(ours, Interest::READ, |ready| ready).expect("watched");
        }
        let stopper = machine.stopper();
        let stat = format!("/proc/self/task/{}/stat", rustix::thread::gettid().as_raw_pid());
        // Before it sleeps, the machine polls for a while and yields to other threads.
        let (is_running, runs) = std::sync::mpsc::channel();
        let other = thread::spawn(move || {
            runs.recv().expect("it runs");
            while !std::fs::read_to_string(&stat).expect("a thread").contains(") S ") {
                thread::yield_now();
            }
            stopper.stop();
        });
        is_running.send(()).expect("the other");
        assert_eq!(machine.run().expect("runs"), EndReason::Stopped);
        other.join().expect("the other");
        let stats = machine.stats();
        assert_eq!((stats.parks, stats.wakeups), (1, 1), "one sleep, ended by the stop");
    }
}

#[test]
fn two_machines_exchange_messages_on_one_cpu_and_on_two() {
    struct Hand {
        to: Option<Address<u32>>,
        cpu: u32,
    }
    impl Handler for Hand {
        type Message = u32;
        fn started(&mut self, _cx: &mut Context<'_, u32>) {
            handover_base::affinity::pin(self.cpu).expect("a CPU of the mask");
        }
        fn handle(&mut self, left: u32, cx: &mut Context<'_, u32>) {
            if left == 0 {
                cx.stop();
            }
            if let Some(to) = &self.to {
                let _ = to.send(left.saturating_sub(1)); // the other machine may have stopped first
            }
        }
    }
    let cpus = handover_base::affinity::thread_cpus();
    for second in [cpus[0], cpus[cpus.len() - 1]] {
        let new = |cpu| Machine::new(Hand { to: None, cpu }, Config::default()).expect("valid");
        let (mut a, mut b) = (new(cpus[0]), new(second));
        a.handler_mut().to = Some(b.address().clone());
        b.handler_mut().to = Some(a.address().clone());
        a.address().send(20_000).expect("send a message");
        let a = a.spawn(thread::Builder::new()).expect("a thread");
        let b = b.spawn(thread::Builder::new()).expect("a thread");
        for one in [a, b] {
            assert_eq!(one.join().1.expect("runs"), EndReason::Stopped);
        }
    }
}

#[test]
fn many_blocked_senders_are_all_let_in() {
    const SENDERS: u64 = 50;
    const EACH: u64 = 200;
    let config = Config::default()
        .when_full(WhenFull::Block { wait_max: Duration::MAX })
        .inbox_messages_max(4);
    let mut left = SENDERS * EACH;
    let mut machine = Machine::new(
        handler(|_: u64, cx: &mut Context<'_, u64>| {
            left -= 1;
            if left == 0 {
                cx.stop();
            }
        }),
        config,
    )
    .expect("valid");
    let senders: Vec<_> = (0..SENDERS)
        .map(|_| {
            let address = machine.address().clone();
            thread::spawn(move || (0..EACH).for_each(|n| address.send(n).expect("it waits")))
        })
        .collect();
    assert_eq!(machine.run().expect("runs"), EndReason::Stopped);
    for sender in senders {
        sender.join().expect("a sender");
    }
}

#[test]
fn waiting_sender_gets_its_message_back_when_the_machine_is_dropped() {
    let config = Config::default()
        .when_full(WhenFull::Block { wait_max: Duration::MAX })
        .inbox_messages_max(1);
    for hands_back in [false, true] {
        let machine = Machine::new(handler(|_: u32, _cx| ()), config).expect("valid");
        machine.address().send(1).expect("send a message");
        let senders: Vec<_> = (0..3)
            .map(|_| {
                let address = machine.address().clone();
                thread::spawn(move || address.send(2))
            })
            .collect();
        thread::sleep(10 * MS);
        if hands_back {
            assert_eq!(machine.close().messages, [1]);
        } else {
            drop(machine);
        }
        for sender in senders {
            assert_eq!(sender.join().expect("a sender"), Err(SendError::Closed(2)));
        }
    }
}

#[test]
fn postings_from_several_threads_reach_every_subscriber() {
    const POSTERS: u64 = 4;
    const EACH: u64 = 500;
    let topic = Topic::new();
    let config = Config::default().inbox_messages_max(4096);
    let subscribers: Vec<_> = (0..3)
        .map(|_| {
            let mut sum = 0;
            let mut count = 0;
            let machine = Machine::new(
                handler(move |news: PoolArc<u64>, cx: &mut Context<'_, PoolArc<u64>>| {
                    sum += *news;
                    count += 1;
                    if count == POSTERS * EACH {
                        assert_eq!(sum, POSTERS * EACH * (EACH - 1) / 2);
                        cx.stop();
                    }
                }),
                config,
            )
            .expect("valid");
            topic.subscribe(machine.address(), |news| news);
            machine.spawn(thread::Builder::new()).expect("a thread")
        })
        .collect();
    let posters: Vec<_> = (0..POSTERS)
        .map(|_| {
            let mut publisher = topic.publisher(4096);
            thread::spawn(move || {
                for number in 0..EACH {
                    let posted = publisher.post(number).expect("a slot");
                    assert_eq!((posted.accepted_count, posted.refused_count), (3, 0));
                }
            })
        })
        .collect();
    for poster in posters {
        poster.join().expect("a poster");
    }
    for subscriber in subscribers {
        assert_eq!(subscriber.join().1.expect("runs"), EndReason::Stopped);
    }
}

#[test]
fn panic_for_a_timer_or_a_descriptor_is_contained() {
    let config = Config::default().on_panic(OnPanic::DropMessage);
    let mut panics_count = 0;
    let mut machine = Machine::new(
        handler(move |message: u32, cx: &mut Context<'_, u32>| match message {
            0 if panics_count == 3 => cx.stop(),
            // All timers may be due in the first round, before the descriptor is looked at.
            0 => {
                cx.after(MS, 0).expect("a timer");
            }
            _ => {
                panics_count += 1;
                panic!("contained");
            }
        }),
        config,
    )
    .expect("valid");
    let (ours, theirs) = UnixStream::pair().expect("a socket pair");
    std::io::Write::write_all(&mut &theirs, b"x").expect("written");
    let mut cx = machine.context();
    cx.watch(ours, Interest::READ.edge_triggered(), |_ready| 1).expect("watched");
    cx.at_ns(0, 2).expect("a timer");
    cx.at_ns(1, 2).expect("a timer");
    cx.after(5 * MS, 0).expect("a timer");
    assert_eq!(machine.run().expect("runs"), EndReason::Stopped);
    assert_eq!(machine.stats().panicked, 3);
}
