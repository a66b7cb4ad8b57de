//! `node-microbench`: costs of small local operations, including the loop.

use anyhow::Context;
use clap::Args;
use handover_base::clock;
use handover_harness::Fault;
use handover_program::console::print_error;
use handover_suite::call::{CallPath, OptLevel, c_call_loop, library};
use handover_suite::clock::{
    ClockReading, GetTimeOfDay, Monotonic, MonotonicCoarse, Rdtscp, Realtime, RealtimeCoarse,
    read_repeatedly,
};
use handover_suite::fiber::local;
use std::ffi::{CStr, CString};
use std::hint::black_box;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;

/// Environment variable that the original looks up and expects to be set.
const SET_VARIABLE: &CStr = c"LOGNAME";
/// Environment variable that the original looks up and expects to be unset.
const UNSET_VARIABLE: &CStr = c"NONEXISTENT";

/// Costs of small local operations: calls, clocks, locks, look-ups. Loop overhead is included.
#[derive(Debug, Args)]
#[command(
    after_help = "Prints a line of tab-separated columns for each operation: test case, m_ops, total s, m_ops/s, \
ns/op. An operation that this machine does not have is a line `# \"NAME\": reason` instead."
)]
pub struct NodeMicrobench {
    /// Number of times that each operation is run, in millions
    #[arg(short = 'm', value_name = "MILLIONS", value_parser = super::number_parser(super::MILLIONS_RANGE))]
    millions: f64,
}

/// Closure that runs an operation `n` times and returns the clock ticks that this took.
type Operation<'a> = Box<dyn FnMut(u64) -> anyhow::Result<u64> + 'a>;

/// Name of a row, with its operation or the reason why this machine does not support the operation.
type Row<'a> = (&'static str, Result<Operation<'a>, String>);

pub fn run(args: &NodeMicrobench, out: &mut dyn Write) -> anyhow::Result<()> {
    clock::calibration();
    let variable = choose_set_variable();
    let wtime = MpiClock::begin();
    let (millions, n) = (args.millions, (args.millions * 1e6) as u64);
    writeln!(out, "#<test case>\t<m_ops>\t<total s>\t<m_ops/s>\t<ns/op>")?;
    for (name, operation) in rows(variable.as_deref(), &wtime) {
        match operation {
            Ok(mut operation) => {
                let took_ns = clock::ns_from_ticks(operation(n).context(name)?).max(1) as f64;
                let (total_s, rate) = (took_ns / 1e9, n as f64 / took_ns * 1e3);
                let each_ns = took_ns / n as f64;
                writeln!(out, "\"{name}\"\t{millions}\t{total_s:.6}\t{rate:.6}\t{each_ns:.6}")?;
            }
            Err(why) => writeln!(out, "# \"{name}\": {why}")?,
        }
        // Flushed after each row, as the next may take long.
        out.flush()?;
    }
    wtime.end()
}

/// Returns the rows of the table, in the order of the original. Rows of this project follow the
/// rows of ABT_eventual.
fn rows<'a>(variable: Option<&'a CStr>, wtime: &'a MpiClock) -> Vec<Row<'a>> {
    let rdtscp = match Rdtscp::is_available() {
        true => Ok(read_clock::<Rdtscp>()),
        false => Err("this processor has no rdtscp".to_owned()),
    };
    let set = variable.ok_or("the environment is empty");
    vec![
        ("fn_call_normal", Ok(call_c(CallPath::SameFile))),
        ("fn_call_inline", Ok(call_c(CallPath::Inline))),
        ("fn_call_cross_object", Ok(call_c(CallPath::OtherObject))),
        ("mpi_wtime", wtime.operation()),
        ("gettimeofday", Ok(read_clock::<GetTimeOfDay>())),
        ("clock_gettime(REALTIME)", Ok(read_clock::<Realtime>())),
        ("clock_gettime(REALTIME_COARSE)", Ok(read_clock::<RealtimeCoarse>())),
        ("clock_gettime(MONOTONIC)", Ok(read_clock::<Monotonic>())),
        ("clock_gettime(MONOTONIC_COARSE)", Ok(read_clock::<MonotonicCoarse>())),
        ("pthread_mutex_lock/unlock", Ok(timed(|n| Ok(library::mutex_lock_unlock(n)?)))),
        (
            "pthread_mutex_recursive_lock/unlock",
            Ok(timed(|n| Ok(library::recursive_mutex_lock_unlock(n)?))),
        ),
        ("pthread_spin_lock/unlock", Ok(timed(|n| Ok(library::spin_lock_unlock(n)?)))),
        ("stdatomic lock/unlock", Ok(infallible(library::atomic_lock_unlock))),
        ("rdtscp", rdtscp),
        ("ABT_eventual dynamic per fn", Ok(Box::new(|n| Ok(local::time_eventual_on_heap(n))))),
        ("ABT_eventual static per fn", Ok(Box::new(|n| Ok(local::time_eventual_on_stack(n))))),
        ("fiber create/join", Ok(in_fiber(local::FiberWorker::time_create_join))),
        ("fiber yield", Ok(in_fiber(local::FiberWorker::time_yields))),
        ("fiber switch", Ok(in_fiber(local::FiberWorker::time_switches))),
        ("pthread_self", Ok(infallible(library::call_pthread_self))),
        ("gettid", Ok(infallible(library::call_gettid))),
        ("getenv of set variable", set.map(|name| look_up(name, true)).map_err(str::to_owned)),
        ("getenv of unset variable", Ok(look_up(UNSET_VARIABLE, false))),
    ]
}

/// Clock of the MPI library, if MPI can be used.
struct MpiClock {
    /// Initialised MPI library, or the error.
    #[cfg(feature = "mpi")]
    world: Result<handover_suite::mpi::Mpi, Fault>,
}

#[cfg(feature = "mpi")]
impl MpiClock {
    /// Initialises MPI.
    fn begin() -> Self {
        Self { world: handover_suite::mpi::Mpi::init() }
    }

    /// Returns an operation that reads the clock of MPI.
    fn operation(&self) -> Result<Operation<'_>, String> {
        let world = self.world.as_ref().map_err(Fault::to_string)?;
        Ok(timed(move |n| {
            for _ in 0..n {
                black_box(world.wtime_s());
            }
            Ok(())
        }))
    }

    /// Finalises MPI.
    fn end(self) -> anyhow::Result<()> {
        Ok(self.world.map_or(Ok(()), handover_suite::mpi::Mpi::finalise)?)
    }
}

#[cfg(not(feature = "mpi"))]
impl MpiClock {
    /// Does nothing, as this build has no MPI.
    fn begin() -> Self {
        Self {}
    }

    /// Returns an error, as this build has no MPI.
    fn operation(&self) -> Result<Operation<'_>, String> {
        Err("this program was built without MPI (feature `mpi`)".to_owned())
    }

    /// Does nothing, as this build has no MPI.
    fn end(self) -> anyhow::Result<()> {
        Ok(())
    }
}

/// Adds time measurement to an operation. Returns the clock ticks that it took.
fn timed<'a>(operation: impl Fn(u64) -> anyhow::Result<()> + 'a) -> Operation<'a> {
    Box::new(move |n| {
        let began = clock::ticks();
        operation(n)?;
        Ok(clock::ticks() - began)
    })
}

/// Wraps an operation that needs a fiber worker. The worker is started before the timing.
fn in_fiber<'a>(
    operation: impl Fn(&mut local::FiberWorker, u64) -> Result<u64, Fault> + 'a,
) -> Operation<'a> {
    Box::new(move |n| {
        let mut worker = local::FiberWorker::start()?;
        operation(&mut worker, 2)?;
        Ok(operation(&mut worker, n)?)
    })
}

/// Returns an operation that calls a C function along the path `path`, compiled with -O3.
fn call_c<'a>(path: CallPath) -> Operation<'a> {
    timed(move |n| {
        let counted = c_call_loop(path, OptLevel::O3)?(black_box(n));
        anyhow::ensure!(counted == n, "{n} calls were requested, but {counted} were counted");
        Ok(())
    })
}

/// Returns an operation that reads the clock `R`.
fn read_clock<'a, R: ClockReading>() -> Operation<'a> {
    infallible(read_repeatedly::<R>)
}

/// Wraps an operation that cannot fail.
fn infallible<'a>(operation: fn(u64)) -> Operation<'a> {
    timed(move |n| {
        operation(n);
        Ok(())
    })
}

/// Returns an operation that looks up an environment variable. It fails if the variable is unset
/// and `is_set` is `true`, or the reverse.
fn look_up(name: &CStr, is_set: bool) -> Operation<'_> {
    timed(move |n| {
        let expected = if is_set { "set" } else { "unset" };
        anyhow::ensure!(
            library::call_getenv(n, name) == is_set,
            "the environment variable {name:?} is not {expected}"
        );
        Ok(())
    })
}

/// Returns the name of an environment variable that is set. It is [`SET_VARIABLE`], or else `PATH`,
/// or else the first one. Prints a note if it is not [`SET_VARIABLE`], as the cost depends on the
/// variable's position.
fn choose_set_variable() -> Option<CString> {
    let set: Vec<CString> =
        std::env::vars_os().filter_map(|(name, _)| CString::new(name.into_vec()).ok()).collect();
    let wanted =
        [SET_VARIABLE, c"PATH"].into_iter().find(|&name| set.iter().any(|it| **it == *name));
    let name = wanted.map(CStr::to_owned).or_else(|| set.into_iter().next())?;
    if *name != *SET_VARIABLE {
        print_error(format_args!(
            "node-microbench: {SET_VARIABLE:?} is not set: getenv looks up {name:?}"
        ));
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: [&str; 23] = [
        "fn_call_normal",
        "fn_call_inline",
        "fn_call_cross_object",
        "mpi_wtime",
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
        "getenv of set variable",
        "getenv of unset variable",
    ];

    #[test]
    fn table_has_the_documented_header_and_rows_tab_separated() {
        let mut out = Vec::new();
        run(&NodeMicrobench { millions: 0.01 }, &mut out).expect("a table");
        let text = String::from_utf8(out).expect("the output is not UTF-8");
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("#<test case>\t<m_ops>\t<total s>\t<m_ops/s>\t<ns/op>"));
        for (line, name) in lines.clone().zip(ROWS) {
            if let Some(why) = line.strip_prefix(&format!("# \"{name}\": ")) {
                // The MPI library is the only thing here that a machine may lack.
                assert!(name == "mpi_wtime" && why.contains("MPI"), "{line}");
                continue;
            }
            let fields: Vec<&str> = line.split('\t').collect();
            let [case, m_ops, total, rate, each] = fields[..] else { panic!("{line}") };
            assert_eq!((case, m_ops), (format!("\"{name}\"").as_str(), "0.01"));
            let numbers = [total, rate, each].map(|field| {
                assert_eq!(field.split_once('.').map(|(_, digits)| digits.len()), Some(6));
                field.parse::<f64>().expect("parse the figure")
            });
            let [total, rate, each] = numbers;
            assert!(total > 0.0 && rate > 0.0 && each > 0.0, "{line}");
            // Both are rounded to six digits.
            assert!((total * 100_000.0 - each).abs() <= 0.1, "{line}");
        }
        assert_eq!(lines.count(), ROWS.len());
    }
}
