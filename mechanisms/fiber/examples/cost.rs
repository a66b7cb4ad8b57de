//! Costs of fibers on this machine, each measured in alternation with its floor:
//!
//! ```text
//! cargo run --release -p handover-fiber --example fiber-cost [-- PART...]
//! ```
//!
//! Parts: `switch`, `spawn`, `eventual`, `across`, `memory`, `loops`; without arguments, all.

use corosensei::{Coroutine, CoroutineResult};
use handover_base::usage;
use handover_fiber::{Barrier, Config, Eventual, Runtime, sleep, spawn, spawn_detached, yield_now};
use handover_notify::{Notify, Wait, adaptive};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

type Error = Box<dyn std::error::Error>;

/// Number of measurements of each cost, of which the median is printed.
const REPEATS: usize = 15;

fn main() -> Result<(), Error> {
    let selected_parts: Vec<String> = std::env::args().skip(1).collect();
    let is_selected =
        |part: &str| selected_parts.is_empty() || selected_parts.iter().any(|one| one == part);
    if is_selected("switch") {
        print_switch_costs()?;
    }
    if is_selected("spawn") {
        print_spawn_costs()?;
    }
    if is_selected("eventual") {
        print_eventual_costs()?;
    }
    if is_selected("across") {
        print_cross_worker_costs()?;
    }
    if is_selected("memory") {
        print_memory()?;
    }
    if is_selected("loops") {
        let counts =
            selected_parts.iter().filter_map(|one| one.parse().ok()).collect::<Vec<usize>>();
        print_cpu_time_of_loops(if counts.is_empty() { &[16, 100, 1000, 4850] } else { &counts })?;
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Runs `run`, and returns its duration in ns divided by `count`.
fn mean_ns(count: u32, run: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    run();
    begin.elapsed().as_nanos() as f64 / f64::from(count)
}

/// Resumes coroutines round robin without a runtime, `count` times in total; returns the ns per
/// switch.
fn time_bare_switches(coroutines: usize, count: u32) -> f64 {
    let make = || {
        Coroutine::<(), (), ()>::new(|yielder, ()| {
            loop {
                yielder.suspend(());
            }
        })
    };
    let mut all: Vec<_> = (0..coroutines).map(|_| make()).collect();
    let ns = mean_ns(count, || {
        for _ in 0..count as usize / coroutines {
            for one in &mut all {
                assert!(matches!(one.resume(()), CoroutineResult::Yield(())));
            }
        }
    });
    for one in &mut all {
        one.force_unwind();
    }
    ns
}

/// Yields `count` times, always from the same code address, like the coroutines of
/// [`time_bare_switches`].
#[inline(never)]
fn yield_often(count: u32) {
    for _ in 0..count {
        yield_now();
    }
}

/// Returns the ns per yield of this many fibers, which yield `count` times in total.
fn time_yields(runtime: &Runtime, fibers: u32, count: u32) -> Result<f64, Error> {
    let run = runtime.spawn(move || {
        let others: Vec<_> = (1..fibers)
            .map(|_| spawn(move || yield_often(count / fibers)))
            .collect::<Result<_, _>>()?;
        let ns = mean_ns(count, || yield_often(count / fibers));
        others.into_iter().for_each(|other| other.join().unwrap());
        Ok::<_, handover_fiber::SpawnError>(ns)
    })?;
    Ok(run.join()??)
}

fn print_switch_costs() -> Result<(), Error> {
    let runtime = Runtime::new(Config::default())?;
    for fibers in [2u32, 100] {
        let (mut bare, mut ours) = (vec![], vec![]);
        for _ in 0..REPEATS {
            let one = std::thread::spawn(move || time_bare_switches(fibers as usize, 400_000));
            bare.push(one.join().expect("the thread of the coroutines panicked"));
            ours.push(time_yields(&runtime, fibers, 400_000)?);
        }
        let ratio = median(ours.iter().zip(&bare).map(|(ours, bare)| ours / bare).collect());
        let (bare, ours) = (median(bare), median(ours));
        println!("resume and suspend, {fibers:4} coroutines  {bare:8.2} ns");
        println!("yield, {fibers:4} fibers                {ours:8.2} ns   {ratio:.2} x");
    }
    Ok(())
}

fn print_spawn_costs() -> Result<(), Error> {
    let runtime = Runtime::new(Config::default())?;
    let (mut joined, mut detached) = (vec![], vec![]);
    for _ in 0..REPEATS {
        let count = 200_000;
        joined.push(
            runtime
                .spawn(move || {
                    mean_ns(count, || {
                        for i in 0..count {
                            assert_eq!(spawn(move || black_box(i)).unwrap().join().unwrap(), i);
                        }
                    })
                })?
                .join()?,
        );
        detached.push(
            runtime
                .spawn(move || {
                    mean_ns(count, || {
                        for i in 0..count {
                            spawn_detached(move || black_box(i)).unwrap();
                            yield_now();
                        }
                    })
                })?
                .join()?,
        );
    }
    println!("spawn and join                     {:8.2} ns", median(joined));
    println!("spawn detached, and yield to it    {:8.2} ns", median(detached));
    Ok(())
}

/// Passes control between two fibers through two eventuals; returns the ns per set and wait.
fn time_ping_pong(runtime: &Runtime, workers: [u32; 2], count: u32) -> Result<f64, Error> {
    static PAIR: [Eventual; 2] = [const { Eventual::new() }; 2];
    let builder = handover_fiber::Builder::new();
    PAIR.iter().for_each(|one| {
        one.rearm();
    });
    let other = builder.clone().worker(workers[1]).spawn_on(&runtime.handle(), move || {
        for _ in 0..count {
            PAIR[0].wait();
            PAIR[0].rearm();
            PAIR[1].set(()).unwrap();
        }
    })?;
    let one = builder.worker(workers[0]).spawn_on(&runtime.handle(), move || {
        mean_ns(2 * count, || {
            for _ in 0..count {
                PAIR[0].set(()).unwrap();
                PAIR[1].wait();
                PAIR[1].rearm();
            }
        })
    })?;
    let ns = one.join()?;
    other.join()?;
    Ok(ns)
}

fn print_eventual_costs() -> Result<(), Error> {
    let runtime = Runtime::new(Config::default())?;
    let (mut handed, mut ready, mut heap) = (vec![], vec![], vec![]);
    for _ in 0..REPEATS {
        handed.push(time_ping_pong(&runtime, [0, 0], 200_000)?);
        let count = 400_000;
        ready.push(
            runtime
                .spawn(move || {
                    mean_ns(count, || {
                        for i in 0..count {
                            let eventual = Eventual::new();
                            black_box(&eventual).set(i).unwrap();
                            black_box(eventual.wait());
                        }
                    })
                })?
                .join()?,
        );
        heap.push(
            runtime
                .spawn(move || {
                    mean_ns(count, || {
                        for i in 0..count {
                            let eventual = Arc::new(Eventual::new());
                            black_box(&eventual).set(i).unwrap();
                            black_box(eventual.wait());
                        }
                    })
                })?
                .join()?,
        );
    }
    println!("eventual, fiber to fiber           {:8.2} ns a set and wait", median(handed));
    println!("eventual on the stack, set, wait   {:8.2} ns", median(ready));
    println!("eventual on the heap, set, wait    {:8.2} ns", median(heap));
    Ok(())
}

/// Passes control between two threads through `handover_notify`, without fibers; returns the ns per
/// notification.
fn time_notifications(count: u32) -> Result<f64, Error> {
    let (to_other, mut other_gets) = adaptive::pair(handover_notify::Config::default())?;
    let (to_one, mut one_gets) = adaptive::pair(handover_notify::Config::default())?;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            handover_base::affinity::pin(1).unwrap();
            for _ in 0..count {
                other_gets.wait();
                to_one.notify();
            }
        });
        let one = scope.spawn(|| {
            handover_base::affinity::pin(0).unwrap();
            mean_ns(2 * count, || {
                for _ in 0..count {
                    to_other.notify();
                    one_gets.wait();
                }
            })
        });
        Ok(one.join().unwrap())
    })
}

fn print_cross_worker_costs() -> Result<(), Error> {
    let runtime = Runtime::new(Config::workers(2).cpus(vec![0, 1]))?;
    let (mut ours, mut bare) = (vec![], vec![]);
    for _ in 0..REPEATS {
        bare.push(time_notifications(20_000)?);
        ours.push(time_ping_pong(&runtime, [0, 1], 20_000)?);
    }
    let ratios = ours.iter().zip(&bare).map(|(ours, bare)| ours / bare).collect();
    let ratio = median(ratios);
    println!("notify, across CPUs                {:8.2} ns a hand-over", median(bare));
    println!("eventual, across workers           {:8.2} ns   {ratio:.2} x", median(ours));
    Ok(())
}

fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0)
        * rustix::param::page_size()
}

fn page_table_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("VmPTE:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0) * 1024
}

fn print_memory() -> Result<(), Error> {
    static START: Eventual = Eventual::new();
    let runtime = Runtime::new(Config::default())?;
    let count = 100_000;
    let before = (resident_bytes(), page_table_bytes());
    let begin = Instant::now();
    let parked = runtime.spawn(move || {
        for _ in 0..count {
            spawn_detached(|| START.wait()).unwrap();
        }
        yield_now();
    })?;
    parked.join()?;
    let ms = begin.elapsed().as_millis();
    let each = |now: usize, before: usize| (now - before) as f64 / f64::from(count);
    println!(
        "each of {count} parked fibers      {:8.0} bytes resident, {:.0} of page tables ({ms} ms to spawn all)",
        each(resident_bytes(), before.0),
        each(page_table_bytes(), before.1),
    );
    START.set(()).unwrap();
    Ok(())
}

/// Prints the CPU time that fibers use in 5 s. Each of them sleeps 1 ms in a loop. This is the
/// workload of abt-eventual-bench.
fn print_cpu_time_of_loops(counts: &[usize]) -> Result<(), Error> {
    let seconds = 5;
    for &fibers in counts {
        let workers = std::env::var("WORKERS").ok().and_then(|one| one.parse().ok()).unwrap_or(1);
        let runtime = Runtime::new(Config::workers(workers))?;
        let barrier = Arc::new(Barrier::new(fibers + 1));
        let is_over = Arc::new(AtomicBool::new(false));
        let total = Arc::new(AtomicU64::new(0));
        for _ in 0..fibers {
            let (barrier, is_over, total) = (barrier.clone(), is_over.clone(), total.clone());
            runtime.spawn_detached(move || {
                barrier.wait();
                let mut count = 0;
                while !is_over.load(Relaxed) {
                    let eventual = Arc::new(Eventual::<()>::new());
                    let sets = Arc::clone(&eventual);
                    spawn_detached(move || {
                        sleep(Duration::from_millis(1));
                        sets.set(()).unwrap();
                    })
                    .unwrap();
                    eventual.wait();
                    count += 1;
                }
                total.fetch_add(count, Relaxed);
            })?;
        }
        let before = usage::process_usage();
        barrier.wait();
        std::thread::sleep(Duration::from_secs(seconds));
        is_over.store(true, Relaxed);
        let after = usage::process_usage();
        let parks = runtime.stats().parks_count;
        runtime.shutdown();
        let rate = total.load(Relaxed) as f64 / seconds as f64;
        let ideal = fibers as f64 * 1000.0;
        println!(
            "loops, {fibers:5} fibers          {rate:12.0} /s {:6.2} % of ideal, CPU {:.3} s, {parks} sleeps",
            100.0 * rate / ideal,
            (after.cpu_ns() - before.cpu_ns()) as f64 / 1e9,
        );
    }
    Ok(())
}
