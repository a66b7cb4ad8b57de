//! What probes cost on this machine: `cargo run --release --example probe-cost -p handover-probe`.
//!
//! Cycles are those of the time-stamp counter. Everything is measured in turns, round by round, against a
//! bare call and two bare time stamps of the same round; printed is the median of the rounds.

use handover_base::clock::{self, ticks_fenced};
use handover_probe::{Config, Recording, disable, enable, probe, span};
use std::error::Error;
use std::hint::black_box;
use std::path::Path;

const ROUNDS_COUNT: usize = 41;
const CALLS_OFF: u64 = 400_000;
const CALLS_ON: u64 = 100_000;
const CALLS_STREAMED: u64 = 5_000_000;

#[inline(never)]
fn bare(x: u64) -> u64 {
    x.wrapping_add(1)
}

#[inline(never)]
fn one_site(x: u64) -> u64 {
    probe!("cost.one");
    x.wrapping_add(1)
}

#[inline(never)]
fn one_span(x: u64) -> u64 {
    let _span = span!("cost.span");
    x.wrapping_add(1)
}

#[inline(never)]
fn eight_sites(x: u64) -> u64 {
    probe!("cost.eight");
    probe!("cost.eight");
    probe!("cost.eight");
    probe!("cost.eight");
    probe!("cost.eight");
    probe!("cost.eight");
    probe!("cost.eight");
    probe!("cost.eight");
    x.wrapping_add(1)
}

#[inline(never)]
fn recorded(x: u64) -> u64 {
    let _span = span!("cost.recorded");
    x.wrapping_add(1)
}

#[inline(never)]
fn recorded_value(x: u64) -> u64 {
    let _span = span!("cost.valued", x);
    x.wrapping_add(1)
}

#[inline(never)]
fn two_stamps(x: u64) -> u64 {
    black_box(clock::ticks());
    let y = x.wrapping_add(1);
    black_box(clock::ticks());
    y
}

/// Cycles a call, over `count` calls in a row.
fn cycles(count: u64, call: impl Fn(u64) -> u64) -> f64 {
    let begin = ticks_fenced();
    let mut x = 0;
    for _ in 0..count {
        x = call(x);
    }
    black_box(x);
    (ticks_fenced() - begin) as f64 / count as f64
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Each contender's cycles, a row for each round.
fn rounds<const N: usize>(count: u64, contenders: [fn(u64) -> u64; N]) -> Vec<[f64; N]> {
    (0..ROUNDS_COUNT)
        .map(|round| {
            let mut row = [0.0; N];
            for turn in 0..N {
                let at = (round + turn) % N;
                row[at] = cycles(count, |x| contenders[at](x));
            }
            row
        })
        .collect()
}

fn off() {
    let rows = rounds(CALLS_OFF, [bare, one_site, one_span, eight_sites]);
    let above = |at: usize| median(rows.iter().map(|row| row[at] - row[0]));
    println!("bare call                     {:8.2} cycles", median(rows.iter().map(|row| row[0])));
    println!("off: one site                 {:+8.2}", above(1));
    println!("off: one span (two sites)     {:+8.2}", above(2));
    println!("off: each of eight sites      {:+8.2}", above(3) / 8.0);
}

fn in_memory(folder: &Path) -> Result<(), Box<dyn Error>> {
    let recording = Recording::start(Config::last(folder.join("last.trace")))?;
    enable("cost.recorded,cost.valued")?;
    let rows = rounds(CALLS_ON, [bare, two_stamps, recorded, recorded_value]);
    disable("*")?;
    let above = |at: usize| median(rows.iter().map(|row| row[at] - row[0]));
    let ratio = |at: usize| median(rows.iter().map(|row| (row[at] - row[0]) / (row[1] - row[0])));
    println!("two bare time stamps          {:+8.2}", above(1));
    println!("recorded, last-N              {:+8.2}  {:.3} x two stamps", above(2), ratio(2));
    println!("recorded, with a value        {:+8.2}  {:.3} x two stamps", above(3), ratio(3));
    let summary = recording.finish();
    println!("                              {} kept, {} lost", summary.recorded, summary.lost);
    Ok(())
}

/// From before the recording begins to when the file is complete, less a bare call.
fn streamed(path: &Path, pause_cycles: u64) -> Result<(), Box<dyn Error>> {
    let calls = if pause_cycles == 0 { CALLS_STREAMED } else { CALLS_STREAMED / 2 };
    let bare = cycles(calls, bare);
    let stamps = cycles(calls, two_stamps) - bare;
    let cpu = || handover_base::usage::process();
    let (begin, cpu_begin) = (ticks_fenced(), cpu());
    let recording = Recording::start(Config::stream(path))?;
    enable("cost.recorded")?;
    let in_loop = if pause_cycles == 0 {
        cycles(calls, recorded)
    } else {
        cycles(calls, |x| {
            let next = clock::ticks() + pause_cycles;
            let y = recorded(x);
            while clock::ticks() < next {}
            y
        })
    } - bare;
    disable("*")?;
    let summary = recording.finish();
    let total = (ticks_fenced() - begin) as f64 / calls as f64 - bare;
    let used = cpu();
    let cpu_ns = (used.user_ns + used.system_ns) - (cpu_begin.user_ns + cpu_begin.system_ns);
    let events = 2 * calls;
    println!(
        "streamed to {:18}{:+8.2}  {:.3} x two stamps, in-loop {in_loop:+.2}, CPU {:.1} ns an event, \
         {} lost of {events}, {:.2} B an event",
        path.parent().unwrap_or(path).display(),
        total,
        total / stamps,
        cpu_ns as f64 / events as f64,
        summary.lost,
        summary.bytes as f64 / summary.recorded.max(1) as f64,
    );
    std::fs::remove_file(path)?;
    Ok(())
}

macro_rules! ten { ($($body:tt)*) => {
    $($body)* $($body)* $($body)* $($body)* $($body)* $($body)* $($body)* $($body)* $($body)* $($body)*
} }

/// A hundred places for each `N`.
#[inline(never)]
fn hundred<const N: usize>() {
    ten!(ten!(probe!("cost.many", N);););
}

macro_rules! hundreds { ($($n:literal)*) => { $(
    hundred::<{ 10 * $n }>(); hundred::<{ 10 * $n + 1 }>(); hundred::<{ 10 * $n + 2 }>();
    hundred::<{ 10 * $n + 3 }>(); hundred::<{ 10 * $n + 4 }>(); hundred::<{ 10 * $n + 5 }>();
    hundred::<{ 10 * $n + 6 }>(); hundred::<{ 10 * $n + 7 }>(); hundred::<{ 10 * $n + 8 }>();
    hundred::<{ 10 * $n + 9 }>();
)* } }

fn flips() -> Result<(), Box<dyn Error>> {
    if black_box(false) {
        hundreds!(0 1 2 3 4 5 6 7 8 9);
    }
    let time = |pattern: &str| -> Result<f64, Box<dyn Error>> {
        let mut times = Vec::new();
        for _ in 0..11 {
            let begin = ticks_fenced();
            enable(pattern)?;
            times.push(clock::ns(ticks_fenced() - begin) as f64 / 1e3);
            disable(pattern)?;
        }
        Ok(median(times.into_iter()))
    };
    println!(
        "switching one site            {:8.1} us ({})",
        time("cost.one")?,
        handover_probe::backend()
    );
    println!("switching 10,000 places       {:8.1} us", time("cost.many")?);
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("{}", clock::calibration());
    let folder = tempfile::tempdir()?;
    let memory = tempfile::tempdir_in("/dev/shm")?;
    off();
    in_memory(memory.path())?;
    for folder in [memory.path(), folder.path()] {
        streamed(&folder.join("stream.trace"), 0)?;
    }
    // Ten million events a second: a pair each 200 ns.
    println!("at ten million events a second:");
    streamed(&memory.path().join("stream.trace"), clock::ticks_from_ns(200))?;
    flips()
}
