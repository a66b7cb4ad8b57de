//! `trylock`: contention on a lock that is always busy (test A), or passed around (test B).

use super::stamp::{LineClock, format_e3, format_e6, format_quantiles};
use anyhow::Context;
use clap::{Args, ValueEnum};
use handover_base::{affinity, clock, topology};
use handover_program::console::{OptionalOutput, print_error};
use handover_program::exit::to_usage_error;
use handover_program::files;
use handover_suite::lock::contend::{
    HandoverTryLock, Lock, PosixSem, PthreadMutex, PthreadSpin, RawCas,
};
use handover_suite::lock::{AttemptCost, time_attempt, try_held_lock};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Maximum number of threads that try the lock.
const THREADS_MAX: u64 = 1024;
/// Maximum number of tries, in millions. They take a year at 1 ns each.
const MILLIONS_MAX: u64 = 30_000_000;
/// Default number of tries of a thread in test A, in millions.
const MILLIONS_DEFAULT_A: u64 = 200;
/// Default number of tries of a thread in test B, in millions.
const MILLIONS_DEFAULT_B: u64 = 40;
/// Number of the latest busy tries whose costs each thread keeps.
const COSTS_KEPT_MAX: usize = 1 << 20;
/// Number of tries after which a thread checks whether all threads are finished.
const TRIES_PER_CHECK: u64 = 1 << 12;

/// Arguments of `handover trylock`.
#[derive(Debug, Args)]
#[command(
    after_help = "Each thread is pinned to a CPU of its own, as long as there are enough, and goes on until every \
thread has done its tries, so that the contention stays the same to the end.

Test A prints, for each thread, how many tries found the lock busy and how \
many tries it did a second. Test B prints the mean cost of a try that found the lock busy, of one that \
found it free, and of the unlock (post), each between two readings of the clock, which are part of it."
)]
pub struct Trylock {
    /// Number of threads
    #[arg(short = 'n', value_name = "THREADS", default_value_t = 2)]
    #[arg(value_parser = super::whole_number_parser(1..=THREADS_MAX))]
    threads: u64,
    /// The core which allocates the lock
    #[arg(short = 'x', value_name = "CORE", value_parser = super::parse_cpu)]
    core: Option<u32>,
    /// Tries of each thread, in millions [default: 200; with -F 40]
    #[arg(short = 't', value_name = "MILLIONS", value_parser = super::whole_number_parser(1..=MILLIONS_MAX))]
    millions: Option<u64>,
    /// Carry out test B: the lock is free, and passed around
    #[arg(short = 'F')]
    free: bool,
    /// Test B: write the costs of busy tries to this file, in ns, one a line. At most the last
    /// 1048576 of each thread are written
    #[arg(short = 'o', value_name = "FILE", requires = "free")]
    dump: Option<PathBuf>,
    /// The lock: a POSIX semaphore, as in the original, or another
    #[arg(long, value_enum, default_value_t = LockKind::Sem)]
    via: LockKind,
}

/// Lock that the threads try.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum LockKind {
    /// Use a POSIX semaphore
    Sem,
    /// Use a pthread mutex
    Mutex,
    /// Use a pthread spinlock
    Spin,
    /// Use a compare-and-swap on each try
    Cas,
    /// Use this project's lock: test, then exchange
    Handover,
}

pub fn run(args: &Trylock, out: &mut dyn Write) -> anyhow::Result<()> {
    let plan = TrylockPlan::new(args)?;
    let stamp = LineClock::new();
    match args.via {
        LockKind::Sem => measure::<PosixSem>(&plan, stamp, out),
        LockKind::Mutex => measure::<PthreadMutex>(&plan, stamp, out),
        LockKind::Spin => measure::<PthreadSpin>(&plan, stamp, out),
        LockKind::Cas => measure::<RawCas>(&plan, stamp, out),
        LockKind::Handover => measure::<HandoverTryLock>(&plan, stamp, out),
    }
}

/// Checked arguments of the program.
struct TrylockPlan {
    /// CPU of each thread.
    cpus: Vec<u32>,
    /// CPU on which the lock is allocated; `None` for any CPU.
    core: Option<u32>,
    /// Minimum number of tries of each thread.
    tries_min: u64,
    /// `true` for test B, in which a thread that gets the lock releases it at once.
    is_test_b: bool,
    /// File for the costs of busy tries, and its path.
    dump: Option<(File, PathBuf)>,
}

impl TrylockPlan {
    /// Checks the arguments, and creates the file of `-o`.
    fn new(args: &Trylock) -> anyhow::Result<TrylockPlan> {
        let threads = args.threads as usize;
        let default = if args.free { MILLIONS_DEFAULT_B } else { MILLIONS_DEFAULT_A };
        let millions = args.millions.unwrap_or(default);
        let allowed = topology::allowed_cpus();
        if threads > allowed.len() {
            let count = allowed.len();
            print_error(format_args!("trylock: warning: {threads} threads share {count} CPUs"));
        }
        let create = |path: &PathBuf| match files::create_file(path) {
            Ok(file) => Ok((file, path.clone())),
            Err(error) => Err(to_usage_error(format!(
                "-o {}: {}",
                path.display(),
                files::format_create_error(&error)
            ))),
        };
        Ok(TrylockPlan {
            cpus: (0..threads).map(|index| allowed[index % allowed.len()]).collect(),
            core: args.core,
            tries_min: millions * 1_000_000,
            is_test_b: args.free,
            dump: args.dump.as_ref().map(create).transpose()?,
        })
    }
}

/// Runs test A or test B with a lock of type `L`, and prints the results.
fn measure<L: Lock>(
    plan: &TrylockPlan,
    stamp: LineClock,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let lock = allocate::<L>(plan.core)?;
    if plan.is_test_b {
        return pass_around(&*lock, plan, stamp, out);
    }
    let held = lock.try_lock().context("try_lock failed on a new lock that no thread holds")?;
    let threads = contend(plan, |finished| {
        let began = clock::ticks();
        let (mut tries, mut busy) = (0, 0);
        while !finished.count_and_check_all(tries >= plan.tries_min) {
            busy += try_held_lock(&*lock, TRIES_PER_CHECK);
            tries += TRIES_PER_CHECK;
        }
        (tries, busy, clock::ns_from_ticks(clock::ticks() - began).max(1))
    })?;
    drop(held);
    let mut total = 0.0;
    for (index, (tries, busy, took_ns)) in threads.iter().enumerate() {
        let rate = *tries as f64 / *took_ns as f64 * 1e9;
        total += rate;
        let (busy, free, rate) =
            (format_e3(*busy as f64), format_e6((tries - busy) as f64), format_e3(rate));
        let text = format_args!(
            "#{index:02} busy: {busy} samples {rate} ops, free: {free} samples 0.000e+00 ops"
        );
        stamp.write_line(out, "fn_busy", line!(), text)?;
    }
    let (total, each) = (format_e3(total), format_e3(total / threads.len() as f64));
    let text = format_args!("BUSY: total {total} ops, per-thread {each} ops");
    Ok(stamp.write_line(out, "main", line!(), text)?)
}

/// Numbers and total costs of a thread's operations in test B.
#[derive(Default)]
struct Costs {
    /// Number of tries that found the lock busy.
    busy_count: u64,
    /// Total cost of the tries that found the lock busy.
    busy_ticks: u64,
    /// Number of tries that acquired the lock.
    free_count: u64,
    /// Total cost of the tries that acquired the lock.
    free_ticks: u64,
    /// Total cost of the unlocks.
    unlock_ticks: u64,
    /// Duration of the thread's test.
    duration_ns: u64,
    /// Circular buffer with the costs of the latest busy tries, in ticks.
    latest_busy_ticks: Vec<u32>,
    /// Index of the oldest cost in a full buffer.
    oldest_index: usize,
}

impl Costs {
    /// Stores the cost of a busy try. In a full buffer, it replaces the oldest cost.
    fn store_busy_cost(&mut self, ticks: u64) {
        let ticks = u32::try_from(ticks).unwrap_or(u32::MAX);
        if self.latest_busy_ticks.len() < COSTS_KEPT_MAX {
            self.latest_busy_ticks.push(ticks);
        } else {
            self.latest_busy_ticks[self.oldest_index] = ticks;
            self.oldest_index = (self.oldest_index + 1) % COSTS_KEPT_MAX;
        }
    }
}

/// Runs test B and prints the costs. A thread that gets the lock releases it at once.
fn pass_around<L: Lock>(
    lock: &L,
    plan: &TrylockPlan,
    stamp: LineClock,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let threads = contend(plan, |finished| {
        let mut costs =
            Costs { latest_busy_ticks: Vec::with_capacity(COSTS_KEPT_MAX), ..Costs::default() };
        let began = clock::ticks();
        let mut tries = 0;
        while !finished.count_and_check_all(tries >= plan.tries_min) {
            for _ in 0..TRIES_PER_CHECK {
                match time_attempt(lock, || ()) {
                    AttemptCost::Busy { try_ticks } => {
                        costs.busy_count += 1;
                        costs.busy_ticks += try_ticks;
                        costs.store_busy_cost(try_ticks);
                    }
                    AttemptCost::Free { try_ticks, unlock_ticks } => {
                        costs.free_count += 1;
                        costs.free_ticks += try_ticks;
                        costs.unlock_ticks += unlock_ticks;
                    }
                }
            }
            tries += TRIES_PER_CHECK;
        }
        costs.duration_ns = clock::ns_from_ticks(clock::ticks() - began).max(1);
        costs
    })?;
    // Before the results are printed: a failure to print must not lose the file.
    let dumped = dump(plan, &threads);
    let out = &mut OptionalOutput::new(out, plan.dump.is_some());
    let mean =
        |ticks: u64, count: u64| clock::ps_from_ticks(ticks) as f64 / 1000.0 / count.max(1) as f64;
    let (mut busy_ns, mut free_ns) = (0.0, 0.0);
    for (index, it) in threads.iter().enumerate() {
        let busy = mean(it.busy_ticks, it.busy_count);
        let free = mean(it.free_ticks, it.free_count);
        let post = mean(it.unlock_ticks, it.free_count);
        busy_ns += busy / threads.len() as f64;
        free_ns += free / threads.len() as f64;
        let text = format_args!(
            "#{index:02} busy: {} samples {} ns, free: {} samples {} ns, post: {} ns, duration {:.6} s",
            format_e3(it.busy_count as f64),
            format_e3(busy),
            format_e3(it.free_count as f64),
            format_e3(free),
            format_e3(post),
            it.duration_ns as f64 / 1e9
        );
        stamp.write_line(out, "fn_free", line!(), text)?;
    }
    let text = format_args!("t_busy {} ns, t_free {} ns", format_e3(busy_ns), format_e3(free_ns));
    stamp.write_line(out, "main", line!(), text)?;
    // The original leaves these to the analysis of its dump.
    let mut kept = threads
        .iter()
        .flat_map(|it| &it.latest_busy_ticks)
        .map(|ticks| u64::from(*ticks))
        .peekable();
    if kept.peek().is_some() {
        stamp.write_line(out, "main", line!(), format_args!("busy: {}", format_quantiles(kept)))?;
    }
    dumped
}

/// Writes the kept costs of busy tries to the file of `-o`. They are in ns, one a line, thread by
/// thread, the oldest first.
fn dump(plan: &TrylockPlan, threads: &[Costs]) -> anyhow::Result<()> {
    let Some((file, path)) = &plan.dump else { return Ok(()) };
    let mut file = BufWriter::new(file);
    let mut write = || -> std::io::Result<()> {
        for it in threads {
            let (newer, older) = it.latest_busy_ticks.split_at(it.oldest_index);
            for ticks in older.iter().chain(newer) {
                writeln!(file, "{}", clock::ns_from_ticks(u64::from(*ticks)))?;
            }
        }
        file.flush()
    };
    write().with_context(|| format!("-o: cannot write the costs to {path}", path = path.display()))
}

/// A thread's access to the shared counter of finished threads.
struct Finished<'a> {
    finished_count: &'a AtomicUsize,
    threads_count: usize,
    /// `true` once this thread has been counted.
    is_counted: std::cell::Cell<bool>,
}

impl Finished<'_> {
    /// Counts this thread if it is finished and not counted yet. Returns `true` if all threads are
    /// finished.
    fn count_and_check_all(&self, is_this_finished: bool) -> bool {
        if is_this_finished && !self.is_counted.replace(true) {
            // Relaxed: the counter publishes no other data; the threads are joined before their
            // results are read.
            self.finished_count.fetch_add(1, Ordering::Relaxed);
        }
        self.finished_count.load(Ordering::Relaxed) == self.threads_count
    }
}

/// Runs `body` on a pinned thread for each CPU of the plan. All threads start together.
fn contend<T: Send>(
    plan: &TrylockPlan,
    body: impl Fn(&Finished) -> T + Sync,
) -> anyhow::Result<Vec<T>> {
    clock::calibration();
    let (count, start) = (AtomicUsize::new(0), Barrier::new(plan.cpus.len()));
    super::run_on_cpus(&plan.cpus, &|index| {
        affinity::pin(plan.cpus[index])?;
        start.wait();
        let finished = Finished {
            finished_count: &count,
            threads_count: plan.cpus.len(),
            is_counted: false.into(),
        };
        Ok(body(&finished))
    })
}

/// Allocates the lock, on a thread pinned to `core` if it is `Some`. The lock's memory is then
/// local to that core.
fn allocate<L: Lock>(core: Option<u32>) -> anyhow::Result<std::pin::Pin<Box<L>>> {
    let Some(core) = core else {
        return Ok(L::new_unlocked());
    };
    thread::scope(|scope| {
        let made = scope.spawn(move || affinity::pin(core).map(|()| L::new_unlocked()));
        let made = made
            .join()
            .map_err(|_| anyhow::anyhow!("the thread that allocates the lock panicked"))?;
        Ok(made?)
    })
}
