//! `node-microbench`: costs of small local operations, including the loop.

use crate::console::tell;
use anyhow::Context;
use clap::Args;
use handover_base::clock;
use handover_harness::Fault;
use handover_suite::call::{Level, Way, c_loop, library};
use handover_suite::clock::{
    GetTimeOfDay, Monotonic, MonotonicCoarse, Rdtscp, Reading, Realtime, RealtimeCoarse, readings,
};
use handover_suite::fiber::local;
use std::ffi::{CStr, CString};
use std::hint::black_box;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;

/// Maximum of `-m`: months.
const MILLIONS_MAX: u64 = 1_000_000;

/// Costs of small local operations: calls, clocks, locks, look-ups. Loop overhead is included.
#[derive(Debug, Args)]
pub struct NodeMicrobench {
    /// Number of times that each operation is done, in millions
    #[arg(
        short = 'm',
        value_name = "MILLIONS",
        value_parser = super::whole(1..=MILLIONS_MAX),
        allow_negative_numbers = true
    )]
    millions: u64,
}

/// A closure that runs an operation this many times and returns the clock ticks taken.
type Operation<'a> = Box<dyn FnMut(u64) -> anyhow::Result<u64> + 'a>;

pub fn run(args: &NodeMicrobench, out: &mut dyn Write) -> anyhow::Result<()> {
    clock::calibration();
    let variable = a_variable();
    let wtime = Wtime::begin();
    let (millions, n) = (args.millions, args.millions * 1_000_000);
    writeln!(out, "#<test case>\t<m_ops>\t<total s>\t<m_ops/s>\t<ns/op>")?;
    for (name, mut operation) in operations(variable.as_deref(), &wtime) {
        let took_ns = clock::ns(operation(n).context(name)?).max(1) as f64;
        let (total_s, rate) = (took_ns / 1e9, n as f64 / took_ns * 1e3);
        let each_ns = took_ns / n as f64;
        writeln!(out, "\"{name}\"\t{millions}\t{total_s:.6}\t{rate:.6}\t{each_ns:.6}")?;
        // Flushed after each row, as the next may take long.
        out.flush()?;
    }
    wtime.end()?;
    if variable.is_none() {
        tell("node-microbench: no getenv(set): the environment is empty");
    }
    if !Rdtscp::is_here() {
        tell("node-microbench: no rdtscp: this processor has none");
    }
    Ok(())
}

/// Returns every row, in the order of the original's table.
fn operations<'a>(
    variable: Option<&'a CStr>,
    wtime: &'a Wtime,
) -> Vec<(&'static str, Operation<'a>)> {
    let mut rows: Vec<(&'static str, Operation<'a>)> = vec![
        ("fn_call_normal", called(Way::SameFile)),
        ("fn_call_inline", called(Way::Inline)),
        ("fn_call_cross_object", called(Way::OtherObject)),
    ];
    rows.extend(wtime.operation().map(|operation| ("mpi_wtime", operation)));
    let others: Vec<(&'static str, Operation<'a>)> = vec![
        ("gettimeofday", asked::<GetTimeOfDay>()),
        ("clock_gettime(REALTIME)", asked::<Realtime>()),
        ("clock_gettime(REALTIME_COARSE)", asked::<RealtimeCoarse>()),
        ("clock_gettime(MONOTONIC)", asked::<Monotonic>()),
        ("clock_gettime(MONOTONIC_COARSE)", asked::<MonotonicCoarse>()),
        ("pthread_mutex_lock/unlock", timed(|n| Ok(library::mutex_lock_unlock(n)?))),
        (
            "pthread_mutex_recursive_lock/unlock",
            timed(|n| Ok(library::recursive_mutex_lock_unlock(n)?)),
        ),
        ("pthread_spin_lock/unlock", timed(|n| Ok(library::spin_lock_unlock(n)?))),
        ("stdatomic lock/unlock", done(library::atomic_lock_unlock)),
    ];
    rows.extend(others);
    if Rdtscp::is_here() {
        rows.push(("rdtscp", asked::<Rdtscp>()));
    }
    rows.push(("ABT_eventual dynamic per fn", Box::new(|n| Ok(local::eventual_dynamic(n)))));
    rows.push(("ABT_eventual static per fn", Box::new(|n| Ok(local::eventual_static(n)))));
    rows.push(("fiber create/join", in_fiber(local::Worker::create_join)));
    rows.push(("fiber yield", in_fiber(local::Worker::yields)));
    rows.push(("fiber switch", in_fiber(local::Worker::switches)));
    rows.push(("pthread_self", done(library::pthread_self)));
    rows.push(("gettid", done(library::gettid)));
    if let Some(variable) = variable {
        rows.push(("getenv(set)", looked_up(variable, true)));
    }
    rows.push(("getenv(unset)", looked_up(c"HANDOVER_NOBODY_SETS_THIS", false)));
    rows
}

/// MPI's clock, if MPI is available.
struct Wtime {
    #[cfg(feature = "mpi")]
    world: Option<handover_suite::mpi::World>,
}

#[cfg(feature = "mpi")]
impl Wtime {
    fn begin() -> Self {
        let begun = handover_suite::mpi::World::begin();
        let world = begun.map_err(|why| tell(format_args!("node-microbench: no mpi_wtime: {why}")));
        Self { world: world.ok() }
    }

    fn operation(&self) -> Option<Operation<'_>> {
        let world = self.world.as_ref()?;
        Some(timed(move |n| {
            for _ in 0..n {
                black_box(world.wtime_s());
            }
            Ok(())
        }))
    }

    fn end(self) -> anyhow::Result<()> {
        Ok(self.world.map_or(Ok(()), handover_suite::mpi::World::end)?)
    }
}

#[cfg(not(feature = "mpi"))]
impl Wtime {
    fn begin() -> Self {
        Self {}
    }

    fn operation(&self) -> Option<Operation<'_>> {
        None
    }

    fn end(self) -> anyhow::Result<()> {
        Ok(())
    }
}

/// Wraps an operation so that it returns its time.
fn timed<'a>(operation: impl Fn(u64) -> anyhow::Result<()> + 'a) -> Operation<'a> {
    Box::new(move |n| {
        let began = clock::ticks();
        operation(n)?;
        Ok(clock::ticks() - began)
    })
}

/// Wraps an operation that needs a fiber worker; the worker is started before the timing.
fn in_fiber<'a>(
    operation: impl Fn(&mut local::Worker, u64) -> Result<u64, Fault> + 'a,
) -> Operation<'a> {
    Box::new(move |n| {
        let mut worker = local::Worker::start()?;
        operation(&mut worker, 2)?;
        Ok(operation(&mut worker, n)?)
    })
}

/// Returns a call of a C function, compiled with -O3.
fn called<'a>(way: Way) -> Operation<'a> {
    timed(move |n| {
        let counted = c_loop(way, Level::O3)?(black_box(n));
        anyhow::ensure!(counted == n, "{n} calls were asked for and {counted} counted");
        Ok(())
    })
}

/// Returns the reading of a clock.
fn asked<'a, R: Reading>() -> Operation<'a> {
    done(readings::<R>)
}

/// Wraps an operation that cannot fail.
fn done<'a>(operation: fn(u64)) -> Operation<'a> {
    timed(move |n| {
        operation(n);
        Ok(())
    })
}

/// Returns the look-up of an environment variable that exists, or does not.
fn looked_up(name: &CStr, there: bool) -> Operation<'_> {
    timed(move |n| {
        anyhow::ensure!(library::getenv(n, name) == there, "{name:?} came or went meanwhile");
        Ok(())
    })
}

/// Returns the name of a set variable: `PATH`, or else the first of the environment.
fn a_variable() -> Option<CString> {
    let common = std::env::var_os("PATH").map(|_| "PATH".into());
    let name = common.or_else(|| std::env::vars_os().next().map(|(name, _)| name))?;
    CString::new(name.into_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: [&str; 22] = [
        "fn_call_normal",
        "fn_call_inline",
        "fn_call_cross_object",
        "gettimeofday",
        "clock_gettime(REALTIME)",
        "clock_gettime(REALTIME_COARSE)",
        "clock_gettime(MONOTONIC)",
        "clock_gettime(MONOTONIC_COARSE)",
        "pthread_mutex_lock/unlock",
        "pthread_mutex_recursive_lock/unlock",
        "pthread_spin_lock/unlock",
        "stdatomic lock/unlock",
        "rdtscp",
        "ABT_eventual dynamic per fn",
        "ABT_eventual static per fn",
        "fiber create/join",
        "fiber yield",
        "fiber switch",
        "pthread_self",
        "gettid",
        "getenv(set)",
        "getenv(unset)",
    ];

    #[test]
    fn the_table_is_tab_separated_with_the_original_s_header_and_rows() {
        let mut out = Vec::new();
        run(&NodeMicrobench { millions: 1 }, &mut out).expect("a table");
        let text = String::from_utf8(out).expect("text");
        // The row exists only in builds with MPI, if there is a library.
        let mut lines = text.lines().filter(|line| !line.starts_with("\"mpi_wtime\""));
        assert_eq!(lines.next(), Some("#<test case>\t<m_ops>\t<total s>\t<m_ops/s>\t<ns/op>"));
        for (line, name) in lines.clone().zip(ROWS) {
            let fields: Vec<&str> = line.split('\t').collect();
            let [case, m_ops, total, rate, each] = fields[..] else { panic!("{line}") };
            assert_eq!((case, m_ops), (format!("\"{name}\"").as_str(), "1"));
            let numbers = [total, rate, each].map(|field| {
                assert_eq!(field.split_once('.').map(|(_, digits)| digits.len()), Some(6));
                field.parse::<f64>().expect("a number")
            });
            let [total, rate, each] = numbers;
            assert!(total > 0.0 && rate > 0.0 && each > 0.0, "{line}");
            // For a million operations, ns each equal ms in total, except for rounding.
            assert!((total * 1000.0 - each).abs() < 0.001, "{line}");
        }
        assert_eq!(lines.count(), ROWS.len());
    }
}
