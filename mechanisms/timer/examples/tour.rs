//! Five-minute tour, with made-up times.
//!
//! `cargo run --release -p handover-timer --example timer-tour`

use handover_timer::{Config, Wheel, WheelFull};
use std::hint::black_box;
use std::num::NonZeroU64;
use std::time::Instant;

/// Duration of 1 ms, in ns.
const MS: u64 = 1_000_000;

fn main() {
    // 1. Timers return their payload when they are due, and not before.
    let mut wheel = Wheel::new(Config::default(), 0).expect("the default configuration is invalid");
    wheel.start(30 * MS, "tea").expect("too many timers");
    let eggs = wheel.start(10 * MS, "eggs").expect("too many timers");
    println!("sleep until {:?} ns", wheel.next_deadline_ns());
    wheel.cancel(eggs);
    println!("sleep until {:?} ns, as the eggs were cancelled", wheel.next_deadline_ns());
    println!("at 29 ms: {:?}", wheel.pop_due(29 * MS));
    println!("at 31 ms: {:?}", wheel.pop_due(31 * MS).map(|expired| expired.payload));

    // 2. A periodic timer keeps to its grid, and reports missed deadlines.
    let period_ns = NonZeroU64::new(10 * MS).expect("the period is zero");
    let beat = wheel.start_periodic(40 * MS, period_ns, "beat").expect("too many timers");
    for now_ns in [41 * MS, 55 * MS, 99 * MS] {
        while let Some(beat) = wheel.pop_due(now_ns) {
            println!(
                "at {} ms: due at {}, and {} missed since",
                now_ns / MS,
                beat.deadline_ns / MS,
                beat.missed_count
            );
        }
    }
    wheel.cancel(beat);

    // 3. A time-out that each message puts off costs a store each time.
    let idle = wheel.start(200 * MS, "idle").expect("too many timers");
    (100..1000).for_each(|ms| assert!(wheel.reschedule(idle, (ms + 100) * MS)));
    println!(
        "at 1 s: {:?}; the time-out is at {:?}",
        wheel.pop_due(1000 * MS),
        wheel.next_deadline_ns()
    );

    // 4. The number of timers is bounded, and a refusal returns the payload.
    let config = Config::default().timers_max(1).timers_reserved(1);
    let mut small = Wheel::new(config, 0).expect("the configuration is invalid");
    small.start(1, "first").expect("too many timers");
    if let Err(WheelFull(payload)) = small.start(2, "second") {
        println!("too many timers, not started: {payload}");
    }

    // 5. A million timers. These are rough figures; the lab measures properly.
    const COUNT: u32 = 1_000_000;
    let config = Config::default().timers_max(COUNT).timers_reserved(COUNT);
    let mut wheel = Wheel::new(config, 0).expect("the configuration is invalid");
    // Scattered over 10 s by a multiplicative hash.
    let deadline_ns = |i: u32| u64::from(i).wrapping_mul(0x9E37_79B9_7F4A_7C15) % (10_000 * MS);
    let began = Instant::now();
    let ids: Vec<_> =
        (0..COUNT).map(|i| wheel.start(deadline_ns(i), i).expect("too many timers")).collect();
    let per_timer = |began: Instant| began.elapsed().as_secs_f64() * 1e9 / f64::from(COUNT);
    println!("start, memory fresh from the kernel: {:.0} ns", per_timer(began));
    let began = Instant::now();
    for &id in &ids {
        black_box(wheel.cancel(id));
    }
    println!("cancel, in the order of starting: {:.0} ns", per_timer(began));
    for i in 0..COUNT {
        wheel.start(deadline_ns(i), i).expect("too many timers");
    }
    let began = Instant::now();
    let expired_count = wheel.expire(10_000 * MS, usize::MAX, |expired| {
        black_box(expired.payload);
    });
    println!("expire {expired_count}: {:.0} ns", per_timer(began));
}
