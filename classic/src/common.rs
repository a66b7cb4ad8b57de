//! Parts that several of the classic programs share: parsers of options, CPUs, and threads on them.

use crate::load;
use anyhow::Context;
use clap::ValueEnum;
use handover_base::topology;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::OnceLock;
use std::thread;

/// Returns a parser of whole numbers within `bounds`.
pub(crate) fn whole_number_parser(
    bounds: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<u64, String> + Clone {
    move |text| {
        let value = text.parse().ok().filter(|value| bounds.contains(value));
        let is_fraction = text.parse().is_ok_and(|value: f64| value.fract() != 0.0);
        let must = if is_fraction { "must be a whole number in" } else { "must lie in" };
        value.ok_or_else(|| format!("{must} {}..={}", bounds.start(), bounds.end()))
    }
}

/// Returns a parser of numbers within `bounds`, with or without a fraction.
pub(crate) fn number_parser(
    bounds: RangeInclusive<f64>,
) -> impl Fn(&str) -> Result<f64, String> + Clone {
    move |text| {
        let must = if text.parse::<f64>().is_ok() { "must lie in" } else { "must be a number in" };
        let value = text.parse().ok().filter(|value| bounds.contains(value));
        value.ok_or_else(|| format!("{must} {}..={}", bounds.start(), bounds.end()))
    }
}

/// Returns the name on the command line of an option's value.
pub(crate) fn value_name(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |it| it.get_name().to_owned())
}

/// Range of the number of operations per table row, in millions. The maximum takes days. The
/// originals take whole numbers; a fraction is for a short test.
pub(crate) const MILLIONS_RANGE: RangeInclusive<f64> = 0.001..=1e6;
/// Range of the duration of a demo or of a run of sched, in seconds. The maximum is a year.
pub(crate) const SECONDS_RANGE: RangeInclusive<f64> = 0.001..=31_536_000.0;

/// Parses the number of a CPU that this process may use.
pub(crate) fn parse_cpu(text: &str) -> Result<u32, String> {
    let allowed = topology::allowed_cpus();
    text.parse().ok().filter(|core| allowed.contains(core)).ok_or_else(|| {
        let cpus: Vec<String> = allowed.iter().map(u32::to_string).collect();
        format!("this process may use CPUs {cpus} only", cpus = cpus.join(", "))
    })
}

/// Returns this machine's available memory in bytes; `None` if the kernel does not report it.
pub(crate) fn available_memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    load::process::bytes_in_line(&text, "MemAvailable:")
}

/// Raises the soft limit of descriptors to the hard limit. Returns the number of descriptors that
/// this process may open.
pub(crate) fn raise_descriptors_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum {
        // If this is refused, the limit stays.
        let raised = Rlimit { current: limit.maximum, ..limit };
        let _ = setrlimit(Resource::Nofile, raised);
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Returns a command that runs a classic program as a subcommand of this binary. The names of this
/// process and of its binary do not matter.
pub(crate) fn own_program_command(name: &str) -> anyhow::Result<Command> {
    let binary = std::env::current_exe().context("cannot find the path of this program")?;
    let mut command = Command::new(binary);
    command.arg0("handover").arg(name);
    Ok(command)
}

/// Returns the arguments of this process, without the name of the classic program.
pub(crate) fn own_arguments(name: &str) -> impl Iterator<Item = OsString> {
    let mut words = std::env::args_os().skip(1).peekable();
    words.next_if(|word| word == name);
    words
}

/// Runs `body(index)` on one thread for each of `cpus`, and waits for all. The threads are not
/// pinned: `body` must pin its thread. No thread runs `body` before all have been started; if one
/// cannot be started, none runs it, and the result is an error.
pub(crate) fn run_on_cpus<T: Send>(
    cpus: &[u32],
    body: &(dyn Fn(usize) -> anyhow::Result<T> + Sync),
) -> anyhow::Result<Vec<T>> {
    // A thread waits here until all have been started, so that a failed start leaves no thread
    // stuck at a barrier in the body.
    let gate = &OnceLock::<bool>::new();
    thread::scope(|scope| {
        let mut started = Vec::new();
        for index in 0..cpus.len() {
            let waiting = move || gate.wait().then(|| body(index));
            match thread::Builder::new().stack_size(1 << 18).spawn_scoped(scope, waiting) {
                Ok(thread) => started.push(thread),
                Err(error) => {
                    let _ = gate.set(false); // Set only once.
                    let count = cpus.len();
                    return Err(error).with_context(|| {
                        format!("cannot start thread {number} of {count}", number = index + 1)
                    });
                }
            }
        }
        let _ = gate.set(true); // Set only once.
        let mut results = Vec::new();
        for thread in started {
            let result = thread.join().map_err(|_| anyhow::anyhow!("a worker thread panicked"))?;
            results.push(result.context("a worker thread stopped before it began its work")??);
        }
        Ok(results)
    })
}
