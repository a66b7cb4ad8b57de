//! The classic programs: their options, output lines and columns. The measuring code is the
//! suite's.

pub mod calls;
pub mod eventual;
pub mod evh_perf;
pub mod hello;
pub mod margo;
pub mod node_microbench;
pub mod notify;
pub mod sched;
pub mod stamp;
pub mod trylock;

use anyhow::Context;
use handover_base::topology;
use std::ops::RangeInclusive;
use std::thread;

/// Returns a parser of whole numbers within bounds.
fn whole(bounds: RangeInclusive<u64>) -> impl Fn(&str) -> Result<u64, String> + Clone {
    move |text| {
        let value = text.parse().ok().filter(|value| bounds.contains(value));
        let is_fraction = text.parse().is_ok_and(|value: f64| value.fract() != 0.0);
        let must = if is_fraction { "must be a whole number in" } else { "must lie in" };
        value.ok_or_else(|| format!("{must} {}..={}", bounds.start(), bounds.end()))
    }
}

/// Maximum number of operations for a row of a table, in millions: days.
const MILLIONS_MAX: f64 = 1e6;
const MILLIONS_MIN: f64 = 0.001;

/// Parses a number of operations in millions. The originals take whole numbers; a fraction is for a quick look.
fn millions(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value| (MILLIONS_MIN..=MILLIONS_MAX).contains(value));
    value.ok_or_else(|| format!("must lie in {MILLIONS_MIN}..={MILLIONS_MAX}"))
}

/// Parses the number of a CPU that this process may use.
fn core(text: &str) -> Result<u32, String> {
    let allowed = topology::allowed();
    text.parse().ok().filter(|core| allowed.contains(core)).ok_or_else(|| {
        let list: Vec<String> = allowed.iter().map(u32::to_string).collect();
        format!("this process may use CPUs {} only", list.join(", "))
    })
}

/// Returns the available memory in bytes, if the kernel reports it.
fn free_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Runs a body on as many threads as there are CPUs named, and waits for all of them. No thread
/// runs the body before all have been started; if one cannot be started, the body does not run at
/// all and the result is an error.
fn on_threads<T: Send>(
    cpus: &[u32],
    body: impl Fn(usize) -> anyhow::Result<T> + Sync,
) -> anyhow::Result<Vec<T>> {
    // A thread waits here until all have been started, so that a failed start leaves no thread
    // stuck at a barrier in the body.
    let gate = (std::sync::Mutex::new(None::<bool>), std::sync::Condvar::new());
    let open = |go: bool| {
        *gate.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(go);
        gate.1.notify_all();
    };
    let (gate, body) = (&gate, &body);
    thread::scope(|scope| {
        let mut started = Vec::new();
        for index in 0..cpus.len() {
            let waiting = move || {
                let state = gate.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                let go = gate.1.wait_while(state, |go| go.is_none());
                let go = *go.unwrap_or_else(std::sync::PoisonError::into_inner);
                (go == Some(true)).then(|| body(index))
            };
            match thread::Builder::new().stack_size(1 << 18).spawn_scoped(scope, waiting) {
                Ok(thread) => started.push(thread),
                Err(error) => {
                    open(false);
                    let count = cpus.len();
                    return Err(error).with_context(|| format!("start thread {index} of {count}"));
                }
            }
        }
        open(true);
        let mut results = Vec::new();
        for thread in started {
            let result = thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?;
            results.push(result.context("run a thread: it was not begun")??);
        }
        Ok(results)
    })
}
