//! Count of allocations: zero in the steady state, once all buffers have grown.

#![deny(unsafe_code)]

#[allow(unsafe_code)]
#[path = "../../../../base/tests/raw/allocations.rs"]
mod raw;

use handover_event::{
    Address, Config, Context, Group, Handler, Machine, Pool, PoolArc, PoolBox, ThreadConfig, Topic,
    WhenFull, handler,
};
use std::time::Duration;

/// Returns the least number of allocations in a call of `work`, of ten calls after one for warm-up:
/// buffers grow until a call needs no more, and how many timers share a slot of the wheel depends
/// on the time.
fn allocations(mut work: impl FnMut()) -> usize {
    work();
    let calls = (0..10).map(|_| {
        let before = raw::allocations_count();
        work();
        raw::allocations_count() - before
    });
    calls.min().expect("ten calls")
}

#[test]
fn local_and_inbox_messages_allocate_nothing() {
    let mut machine =
        Machine::new(handler(|_: [u64; 8], _cx| ()), Config::default()).expect("valid");
    let address = machine.address().clone();
    let made = allocations(|| {
        for _ in 0..1000 {
            address.send([1; 8]).expect("send a message");
            machine.context().send_quiet([2; 8]).expect("send a message");
            machine.poll().expect("runs");
        }
    });
    assert_eq!(made, 0);
}

#[test]
fn first_messages_to_an_inbox_that_drops_the_oldest_allocate_nothing() {
    let config = Config::default().when_full(WhenFull::DropOldest);
    let mut machine = Machine::new(handler(|_: u64, _cx| ()), config).expect("valid");
    machine.poll().expect("runs");
    let before = raw::allocations_count();
    for number in 0..2000 {
        machine.address().send(number).expect("send a message");
    }
    while machine.poll().expect("runs").handled > 0 {}
    assert_eq!(raw::allocations_count() - before, 0);
}

#[test]
fn pooled_parcels_allocate_nothing() {
    struct Letters(Pool<[u64; 16]>);
    impl Handler for Letters {
        type Message = PoolBox<[u64; 16]>;
        fn handle(&mut self, letter: Self::Message, cx: &mut Context<'_, Self::Message>) {
            let mut answer = self.0.put(*letter).expect("a slot");
            answer[0] += 1;
            if answer[0] < 1000 {
                cx.send_quiet(answer).expect("send a message");
            }
        }
    }
    let mut machine = Machine::new(Letters(Pool::new(8)), Config::default()).expect("valid");
    let mut pool = Pool::new(8);
    let made = allocations(|| {
        machine.context().send_quiet(pool.put([0; 16]).expect("a slot")).expect("send a message");
        while machine.poll().expect("runs").handled > 0 {}
    });
    assert_eq!(made, 0);
}

#[test]
fn posting_within_a_group_allocates_nothing() {
    let topic = Topic::new();
    let mut group = Group::new(ThreadConfig::default()).expect("valid");
    for _ in 0..10 {
        let reader = handler(|_news: PoolArc<u64>, _cx| ());
        let reader = group.add(reader, Config::default()).expect("add a machine");
        topic.subscribe(reader.address(), |news| news);
    }
    let mut publisher = topic.publisher(4);
    let poster = handler(move |left: u64, cx: &mut Context<'_, u64>| {
        assert_eq!(cx.post(&mut publisher, left).expect("a slot").accepted_count, 10);
        if left > 0 {
            cx.send_quiet(left - 1).expect("send a message");
        }
    });
    let poster = group.add(poster, Config::default()).expect("add a machine");
    let made = allocations(|| {
        poster.address().send(2).expect("send a message");
        while group.poll().expect("runs").handled > 0 {}
    });
    assert_eq!(made, 0);
}

#[test]
fn posting_to_many_allocates_nothing() {
    let topic = Topic::new();
    let mut machines: Vec<_> = (0..10)
        .map(|_| {
            let sum = handler(|_news: PoolArc<u64>, _cx| ());
            let machine = Machine::new(sum, Config::default()).expect("valid");
            topic.subscribe(machine.address(), |news| news);
            machine
        })
        .collect();
    let mut publisher = topic.publisher(64);
    let made = allocations(|| {
        for round in 0..100 {
            for number in 0..10 {
                assert_eq!(publisher.post(round * number).expect("a slot").accepted_count, 10);
            }
            for machine in &mut machines {
                machine.poll().expect("runs");
            }
        }
    });
    assert_eq!(made, 0);
}

#[test]
fn timers_allocate_nothing() {
    let mut machine = Machine::new(handler(|_: u32, _cx| ()), Config::default()).expect("valid");
    let made = allocations(|| {
        for number in 0..2000 {
            let mut cx = machine.context();
            let late = cx.after(Duration::from_secs(1), number).expect("a timer");
            cx.at_ns(0, number).expect("a timer");
            assert_eq!(cx.cancel(late), Some(Some(number)));
            machine.poll().expect("runs");
        }
    });
    assert_eq!(made, 0);
}

#[test]
fn messages_within_a_group_allocate_nothing() {
    struct Hop {
        next: Option<Address<u32>>,
    }
    impl Handler for Hop {
        type Message = u32;
        fn handle(&mut self, left: u32, cx: &mut Context<'_, u32>) {
            let next = self.next.take().expect("there is one");
            if left > 0 {
                cx.send_to(&next, left - 1).expect("send a message");
            }
            self.next = Some(next);
        }
    }
    let mut group = Group::new(ThreadConfig::default()).expect("valid");
    let new = |group: &mut Group| {
        group.add(Hop { next: None }, Config::default()).expect("add a machine")
    };
    let machines: Vec<_> = (0..10).map(|_| new(&mut group)).collect();
    for (at, machine) in machines.iter().enumerate() {
        let next = machines[(at + 1) % machines.len()].address().clone();
        group.handler_mut(machine).expect("of this group").next = Some(next);
    }
    let first = machines[0].address().clone();
    let made = allocations(|| {
        first.send(5000).expect("send a message");
        while group.poll().expect("runs").handled > 0 {}
    });
    assert_eq!(made, 0);
}
