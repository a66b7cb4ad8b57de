//! The five-minute tour: `cargo run -p handover-fiber --example fiber-tour`.

use handover_fiber::{
    Barrier, Builder, Config, Eventual, Mutex, PoolConfig, Runtime, channel, current_worker, sleep,
    spawn, yield_now,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Two workers; fibers of the urgent pool run before the others.
    let pools = vec![PoolConfig::new("work", 4), PoolConfig::new("urgent", 0)];
    let runtime = Runtime::new(Config::workers(2).pools(pools))?;

    // A fiber is a closure with a stack. Joining it returns its result or its panic.
    let sum = runtime.spawn(|| {
        let squares: Vec<_> = (1..=10u32).map(|i| spawn(move || i * i)).collect();
        squares.into_iter().map(|one| one.unwrap().join().unwrap()).sum::<u32>()
    })?;
    println!("the sum of the squares is {}", sum.join()?);
    let failing = runtime.spawn(|| -> u32 { std::panic::resume_unwind(Box::new("on purpose")) })?;
    println!("the failing fiber: {}", failing.join().unwrap_err());

    // An eventual is set once, from any thread; a waiting fiber leaves its worker to others.
    let answer = Arc::new(Eventual::new());
    let waits = Arc::clone(&answer);
    let asks = runtime.spawn(move || format!("the answer is {answer}", answer = waits.wait()))?;
    answer.set(42)?;
    println!("{}", asks.join()?);

    // Sleeping fibers occupy no thread: all of these sleep at the same time.
    let begin = Instant::now();
    let sleepers: Vec<_> = (0..1000)
        .map(|_| runtime.spawn(|| sleep(Duration::from_millis(20))))
        .collect::<Result<_, _>>()?;
    sleepers.into_iter().try_for_each(|one| one.join())?;
    println!(
        "1000 fibers slept for 20 ms each, all together in {} ms",
        begin.elapsed().as_millis()
    );

    // A mutex may be held across a suspension, a barrier waits for all participants, a channel for
    // free space.
    let (count, all_done) = (Arc::new(Mutex::new(0)), Arc::new(Barrier::new(5)));
    for _ in 0..4 {
        let (count, all_done) = (Arc::clone(&count), Arc::clone(&all_done));
        runtime.spawn_detached(move || {
            let mut held = count.lock();
            let before = *held;
            yield_now();
            *held = before + 1;
            drop(held);
            all_done.wait();
        })?;
    }
    all_done.wait();
    println!("four fibers counted to {}", *count.lock());
    let (sender, receiver) = channel(2);
    runtime.spawn_detached(move || (1..=5).try_for_each(|i| sender.send(i)).is_ok())?;
    let received: Vec<u32> = std::iter::from_fn(|| receiver.recv().ok()).collect();
    println!("received {received:?}");

    // A fiber with a worker, a priority and a name.
    let urgent = runtime.pool("urgent").ok_or("the runtime has no pool called \"urgent\"")?;
    let named = Builder::new().name("second").pool(urgent).worker(1);
    let ran_on = named.spawn_on(&runtime.handle(), current_worker)?;
    println!("{:?} ran on worker {:?}", ran_on.name(), ran_on.join()?);

    let stats = runtime.stats();
    println!(
        "{} fibers used {} stacks, of at most {} bytes each",
        stats.spawned_count, stats.stacks_count, stats.stack_high_water_bytes
    );
    Ok(())
}
