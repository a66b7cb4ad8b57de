//! Five-minute tour: handing work to another thread by each mechanism, and the cost of it.
//!
//! `cargo run --release -p handover-notify --example notify-tour`

use handover_base::affinity;
use handover_notify::{Adaptive, AdaptiveFd, Config, Mechanism, Notify, Wait, adaptive};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

fn main() {
    // 1. Work in shared memory and a notification: writes before it are visible after the wait.
    let work = AtomicU64::new(0);
    let (sender, mut receiver) =
        adaptive::pair(Config::default()).expect("the default configuration is invalid");
    thread::scope(|scope| {
        scope.spawn(|| {
            work.store(42, Relaxed);
            sender.notify();
        });
        receiver.wait();
        println!("received: {}", work.load(Relaxed));
    });

    // 2. Counts of how the waits ended: check them before believing any latency.
    let (sender, mut receiver) =
        adaptive::pair(Config::default()).expect("the default configuration is invalid");
    let other = thread::spawn(move || {
        for pause_us in [0, 0, 0, 1, 2, 5, 1000, 1000, 1000, 1000] {
            spin_for(Duration::from_micros(pause_us));
            sender.notify();
        }
    });
    while receiver.wait_timeout(Duration::from_millis(100)).is_some() {}
    other.join().expect("the sender thread panicked");
    println!("{:?}", receiver.stats());

    // 3. A round trip between two threads, on two CPUs and on one. These are rough figures; the lab
    //    measures properly, beside the kernel's mechanisms: `handover run notify/`.
    let cpus = affinity::thread_cpus();
    let (here, there) = (cpus[0], *cpus.last().expect("found no CPU that this thread may use"));
    println!("\n{:<12} {:>16} {:>14}", "round trip", "on two CPUs", "on one CPU");
    print_round_trips::<Adaptive>(here, there);
    print_round_trips::<AdaptiveFd>(here, there);
    if here == there {
        println!("(only one CPU is available)");
    }
}

fn spin_for(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

fn print_round_trips<M: Mechanism>(own_cpu: u32, partner_cpu: u32) {
    let [two_us, one_us] =
        [partner_cpu, own_cpu].map(|partner| round_trip_us::<M>([own_cpu, partner]));
    println!("{:<12} {two_us:>13.2} µs {one_us:>11.2} µs", M::NAME);
}

fn round_trip_us<M: Mechanism>(cpus: [u32; 2]) -> f64 {
    const ROUNDS_COUNT: u32 = 20_000;
    let (ping, mut pinged) = M::pair().expect(M::NAME);
    let (pong, mut ponged) = M::pair().expect(M::NAME);
    thread::scope(|scope| {
        scope.spawn(move || {
            affinity::pin(cpus[1]).expect("cannot pin the thread to its CPU");
            for _ in 0..ROUNDS_COUNT {
                pinged.wait();
                pong.notify();
            }
        });
        let main = scope.spawn(move || {
            affinity::pin(cpus[0]).expect("cannot pin the thread to its CPU");
            let start = Instant::now();
            for _ in 0..ROUNDS_COUNT {
                ping.notify();
                ponged.wait();
            }
            start.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS_COUNT)
        });
        main.join().expect("the thread that sends first panicked")
    })
}
