//! Cost of probes on this machine: `cargo run --release --example probe-cost -p handover-probe`.
//!
//! Cycles are those of the time-stamp counter. All contenders are measured in every round, in
//! rotating order, against a bare call and two bare time stamps of the same round; the printed
//! figures are medians over the rounds.

use handover_base::clock::{self, ticks_fenced};
use handover_probe::{Config, Recording, disable, enable, probe, span};
use std::error::Error;
use std::hint::black_box;
use std::path::Path;

/// Number of rounds over which the printed medians are taken.
const REPEATS_COUNT: usize = 41;
/// Number of calls of a contender in a round with sites switched off.
const CALLS_OFF: u64 = 400_000;
/// Number of calls of a contender in a round with sites switched on.
const CALLS_ON: u64 = 100_000;
/// Number of calls in a recording of a stream.
const CALLS_STREAMED: u64 = 5_000_000;
/// Number of recordings over which the medians of a stream are taken.
const STREAMED_RUNS_COUNT: usize = 7;

/// Adds 1, without a probe site.
#[inline(never)]
fn bare_call(x: u64) -> u64 {
    x.wrapping_add(1)
}

/// Adds 1 after a site that stays off.
#[inline(never)]
fn one_site(x: u64) -> u64 {
    probe!("cost.one");
    x.wrapping_add(1)
}

/// Adds 1 within a span that stays off.
#[inline(never)]
fn one_span(x: u64) -> u64 {
    let _span = span!("cost.span");
    x.wrapping_add(1)
}

/// Adds 1 after eight sites that stay off.
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

/// Adds 1 within a span that is recorded.
#[inline(never)]
fn recorded(x: u64) -> u64 {
    let _span = span!("cost.recorded");
    x.wrapping_add(1)
}

/// Adds 1 within a span that is recorded with a value.
#[inline(never)]
fn recorded_value(x: u64) -> u64 {
    let _span = span!("cost.valued", x);
    x.wrapping_add(1)
}

/// Adds 1 between two readings of the clock.
#[inline(never)]
fn two_stamps(x: u64) -> u64 {
    black_box(clock::ticks());
    let y = x.wrapping_add(1);
    black_box(clock::ticks());
    y
}

/// Returns the mean number of cycles of a call, over `count` successive calls.
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

/// Returns the mean cycles per call: a row for each round, a column for each contender.
fn measure_cycles<const N: usize>(count: u64, contenders: [fn(u64) -> u64; N]) -> Vec<[f64; N]> {
    (0..REPEATS_COUNT)
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

/// Prints the cost of sites that are switched off.
fn print_cost_off() {
    let rows = measure_cycles(CALLS_OFF, [bare_call, one_site, one_span, eight_sites]);
    let above = |at: usize| median(rows.iter().map(|row| row[at] - row[0]));
    println!("bare call                     {:8.2} cycles", median(rows.iter().map(|row| row[0])));
    println!("off: one site                 {:+8.2}", above(1));
    println!("off: one span (two sites)     {:+8.2}", above(2));
    println!("off: each of eight sites      {:+8.2}", above(3) / 8.0);
}

/// Prints the cost of recording the newest events in memory.
fn print_cost_in_memory(folder: &Path) -> Result<(), Box<dyn Error>> {
    let recording = Recording::start(Config::last(folder.join("last.trace")))?;
    enable("cost.recorded,cost.valued")?;
    let rows = measure_cycles(CALLS_ON, [bare_call, two_stamps, recorded, recorded_value]);
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

/// Costs of recording a stream of events, above those of a bare call.
struct Streamed {
    /// Cycles per call for the whole recording, until its file is complete.
    total: f64,
    /// Cycles per call while the calls are recorded.
    in_loop: f64,
    /// Cycles for two readings of the clock.
    stamps: f64,
    /// CPU time of all threads, in ns per call.
    cpu_ns: f64,
    /// Number of lost events.
    lost: u64,
    /// Size of the file in bytes per event.
    bytes: f64,
}

/// Records `calls` calls as a stream into `path`, and returns the costs.
fn stream_once(
    path: &Path,
    calls: u64,
    call: impl Fn(u64) -> u64,
) -> Result<Streamed, Box<dyn Error>> {
    let bare_cycles = cycles(calls, bare_call);
    let stamps = cycles(calls, two_stamps) - bare_cycles;
    let cpu_ns = || {
        let used = handover_base::usage::process_usage();
        used.user_ns + used.system_ns
    };
    let (begin, cpu_begin_ns) = (ticks_fenced(), cpu_ns());
    let recording = Recording::start(Config::stream(path))?;
    enable("cost.recorded")?;
    let in_loop = cycles(calls, call) - bare_cycles;
    disable("*")?;
    let summary = recording.finish();
    let total = (ticks_fenced() - begin) as f64 / calls as f64 - bare_cycles;
    let cpu_ns = (cpu_ns() - cpu_begin_ns) as f64 / calls as f64;
    std::fs::remove_file(path)?;
    let bytes = summary.bytes as f64 / summary.recorded.max(1) as f64;
    Ok(Streamed { total, in_loop, stamps, cpu_ns, lost: summary.lost, bytes })
}

/// Measures and prints the cost of a stream at full speed, some forty million events a second.
fn print_stream_cost(title: &str, path: &Path) -> Result<(), Box<dyn Error>> {
    let runs: Result<Vec<Streamed>, _> =
        (0..STREAMED_RUNS_COUNT).map(|_| stream_once(path, CALLS_STREAMED, recorded)).collect();
    let runs = runs?;
    let median_of = |figure: fn(&Streamed) -> f64| median(runs.iter().map(figure));
    let lost: u64 = runs.iter().map(|run| run.lost).sum();
    println!(
        "recorded, {title:<19} {:+8.2}  {:.3} x two stamps, all included",
        median_of(|run| run.total),
        median_of(|run| run.total / run.stamps)
    );
    println!(
        "                              in-loop {:+.2}; {:.1} ns of all CPUs; {:.2} B an event; {lost} lost",
        median_of(|run| run.in_loop),
        median_of(|run| run.cpu_ns),
        median_of(|run| run.bytes),
    );
    Ok(())
}

/// Measures and prints the losses of a stream with ten million events a second. It records a pair
/// of events every 200 ns.
fn print_stream_losses(path: &Path) -> Result<(), Box<dyn Error>> {
    let pause = clock::ticks_from_ns(200);
    let begin = clock::ticks();
    let next = std::cell::Cell::new(begin);
    let calls = CALLS_STREAMED / 2;
    let run = stream_once(path, calls, |x| {
        next.set((next.get() + pause).max(clock::ticks().saturating_sub(100 * pause)));
        while clock::ticks() < next.get() {}
        recorded(x)
    })?;
    let rate = 2e3 / clock::ns_from_ticks(run.in_loop as u64) as f64;
    println!(
        "at {rate:.1} million events a second  {} lost of {}, {:.2} B an event",
        run.lost,
        2 * calls,
        run.bytes
    );
    Ok(())
}

macro_rules! ten { ($($body:tt)*) => {
    $($body)* $($body)* $($body)* $($body)* $($body)* $($body)* $($body)* $($body)* $($body)* $($body)*
} }

/// Executes a hundred probe sites; each `N` has sites of its own.
#[inline(never)]
fn hundred_sites<const N: usize>() {
    ten!(ten!(probe!("cost.many", N);););
}

macro_rules! hundreds { ($($n:literal)*) => { $(
    hundred_sites::<{ 10 * $n }>(); hundred_sites::<{ 10 * $n + 1 }>(); hundred_sites::<{ 10 * $n + 2 }>();
    hundred_sites::<{ 10 * $n + 3 }>(); hundred_sites::<{ 10 * $n + 4 }>(); hundred_sites::<{ 10 * $n + 5 }>();
    hundred_sites::<{ 10 * $n + 6 }>(); hundred_sites::<{ 10 * $n + 7 }>(); hundred_sites::<{ 10 * $n + 8 }>();
    hundred_sites::<{ 10 * $n + 9 }>();
)* } }

/// Prints the cost of switching sites on and off.
fn print_switching_cost() -> Result<(), Box<dyn Error>> {
    if black_box(false) {
        hundreds!(0 1 2 3 4 5 6 7 8 9);
    }
    let time = |pattern: &str| -> Result<f64, Box<dyn Error>> {
        let mut times = Vec::new();
        for _ in 0..11 {
            let begin = ticks_fenced();
            enable(pattern)?;
            times.push(clock::ns_from_ticks(ticks_fenced() - begin) as f64 / 1e3);
            disable(pattern)?;
        }
        Ok(median(times.into_iter()))
    };
    println!(
        "switching one site            {:8.1} us ({})",
        time("cost.one")?,
        handover_probe::backend()
    );
    println!("switching 10,000 instructions {:8.1} us", time("cost.many")?);
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("{}", clock::calibration());
    let folder = tempfile::tempdir()?;
    let memory = tempfile::tempdir_in("/dev/shm")?;
    print_cost_off();
    print_cost_in_memory(memory.path())?;
    print_stream_cost("streamed to memory", &memory.path().join("stream.trace"))?;
    print_stream_cost("streamed to disk", &folder.path().join("stream.trace"))?;
    print_stream_losses(&memory.path().join("stream.trace"))?;
    print_switching_cost()
}
