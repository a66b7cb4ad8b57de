//! The five-minute tour: a message to oneself, a server and a client, a timer, a topic, a socket, a
//! group; and what a message costs.
//!
//! `cargo run --release -p handover-event --example event-tour`

use handover_event::{
    Address, Config, Context, Group, Handler, Interest, Machine, PoolArc, Ready, ThreadConfig,
    Topic, handler,
};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

type AnyResult = Result<(), Box<dyn std::error::Error>>;

/// Number of messages that a machine sends to itself, and of round trips, in a measurement.
const HOPS: u32 = 20_000;

fn main() -> AnyResult {
    send_to_itself()?;
    server_and_client()?;
    timers()?;
    topic()?;
    echo_over_a_socket()?;
    group()
}

/// Part 1: measures a machine that sends to itself, through a queue that no other thread accesses.
fn send_to_itself() -> AnyResult {
    let countdown = handler(|left: u32, cx| match left {
        0 => cx.stop(),
        _ => cx.send_quiet(left - 1).expect("free space"),
    });
    let mut machine = Machine::new(countdown, Config::default())?;
    machine.context().send_quiet(HOPS)?;
    let start = Instant::now();
    machine.run()?;
    let each_ns = start.elapsed().as_nanos() as f64 / f64::from(HOPS);
    println!("to itself:         {each_ns:8.1} ns a message");
    Ok(())
}

/// Request: a number, and the address that the reply is sent to.
struct Question(u32, Address<u32>);

/// Part 2: measures round trips between two threads. Check how the waits ended before you trust any
/// latency.
fn server_and_client() -> AnyResult {
    let server = Machine::new(
        handler(|Question(number, to): Question, cx| {
            to.send(number + 1).expect("free space");
            if number + 1 == HOPS {
                cx.stop();
            }
        }),
        Config::default(),
    )?;
    let to_server = server.address().clone();
    let mut client = Machine::new(
        handler(move |number: u32, cx: &mut Context<'_, u32>| {
            if number == HOPS {
                return cx.stop();
            }
            to_server.send(Question(number, cx.address().clone())).expect("free space");
        }),
        Config::default(),
    )?;
    let server = server.spawn(thread::Builder::new().name("server".into()))?;
    client.address().send(0)?;
    let start = Instant::now();
    client.run()?;
    let each_ns = start.elapsed().as_nanos() as f64 / f64::from(HOPS);
    let (server, ended) = server.join();
    ended?;
    println!("to a thread:       {each_ns:8.1} ns per round trip");
    println!("                   client: {:?}", client.stats());
    println!("                   server: {:?}", server.stats());
    Ok(())
}

/// Part 3: starts timers, whose expiries the machine handles as messages.
fn timers() -> AnyResult {
    let start = Instant::now();
    let mut ticks = 0;
    let clock = handler(move |name: &'static str, cx| {
        println!("{name}: {:17.1?}", start.elapsed());
        ticks += 1;
        if ticks == 3 {
            cx.stop();
        }
    });
    let mut machine = Machine::new(clock, Config::default())?;
    let mut cx = machine.context();
    cx.after(Duration::from_millis(2), "timer")?;
    let never = cx.after(Duration::from_secs(100), "never")?;
    assert_eq!(cx.cancel(never), Some(Some("never")));
    cx.every(Duration::from_millis(5), || "ticks")?;
    machine.run()?;
    Ok(())
}

/// Part 4: posts one value to several machines.
fn topic() -> AnyResult {
    let topic = Topic::new();
    let mut machines = Vec::new();
    for number in 1..=3 {
        let reader = handler(move |news: PoolArc<String>, _cx| {
            println!("topic:             machine {number} reads {:?}", *news);
        });
        let machine = Machine::new(reader, Config::default())?;
        topic.subscribe(machine.address(), |news| news);
        machines.push(machine);
    }
    let posted = topic.publisher(16).post("one text for all".to_owned())?;
    println!("topic:             {posted:?}");
    for machine in &mut machines {
        machine.run_once()?;
    }
    Ok(())
}

/// Part 5: echoes bytes on a socket, whose readiness the machine handles as a message.
fn echo_over_a_socket() -> AnyResult {
    struct Echo(Arc<UnixStream>);
    impl Handler for Echo {
        type Message = Ready;
        fn handle(&mut self, _ready: Ready, cx: &mut Context<'_, Ready>) {
            let mut bytes = [0; 64];
            match (&*self.0).read(&mut bytes) {
                Ok(count) if count > 0 => {
                    // The peer may have closed the socket; then the next read reports it.
                    let _ = (&*self.0).write_all(&bytes[..count]);
                }
                _ => cx.stop(),
            }
        }
    }
    let (ours, mut theirs) = UnixStream::pair()?;
    let ours = Arc::new(ours);
    let mut machine = Machine::new(Echo(Arc::clone(&ours)), Config::default())?;
    machine.context().watch(ours, Interest::READ, |ready| ready)?;
    let running = machine.spawn(thread::Builder::new().name("echo".into()))?;
    theirs.write_all(b"is anybody there?")?;
    let mut bytes = [0; 17];
    theirs.read_exact(&mut bytes)?;
    println!("socket:            {:?}", String::from_utf8_lossy(&bytes));
    drop(theirs);
    running.join().1?;
    Ok(())
}

/// Part 6: measures messages between many machines on one thread, which need no synchronisation.
fn group() -> AnyResult {
    let mut group = Group::new(ThreadConfig::default())?;
    let stop = group.add(handler(|_: u32, cx| cx.stop()), Config::default())?;
    let mut next = stop.address().clone();
    for _ in 0..1000 {
        let to = next;
        let relay = handler(move |hops: u32, cx: &mut Context<'_, u32>| {
            cx.send_to(&to, hops + 1).expect("free space");
        });
        next = group.add(relay, Config::default())?.address().clone();
    }
    next.send(0)?;
    let start = Instant::now();
    group.run()?;
    println!("through a group:   {:8.1} ns a hop", start.elapsed().as_nanos() as f64 / 1000.0);
    Ok(())
}
