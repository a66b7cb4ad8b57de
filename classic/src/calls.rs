//! `calls`: the table of the costs of a function call, by location of the function and kind of
//! tracing, in cycles and in nanoseconds: calls in a loop, and costs of separate processes.

mod costed;
mod folders;
mod loops;
mod processes;
#[allow(unsafe_code)]
mod raw;
mod resources;
mod table;

use clap::Args;
use costed::{EventRecording, MeasuredFunction};
use folders::TraceFolders;
use handover_base::affinity;
use handover_program::console;
use std::io::Write;
use std::path::PathBuf;
use table::{Results, TickUnit};

/// Maximum number of calls of a measured process. The trace of so many calls has 60 GB.
const CALLS_MAX: u64 = 10_000_000_000;
/// Maximum number of runs of a measured process.
const RUNS_MAX: u64 = 1000;

/// Costs of a function call, by location of the function and kind of tracing, in cycles and ns.
#[derive(Debug, Args)]
#[command(
    after_help = "The master table is that of the classic program. Its first rows are loops of calls i = next(i), \
the loop overhead included, compiled from C at -O3. A notify intrinsic is a probe as <sys/sdt.h> makes it: a no-op \
without a tool. The rows of handover include all costs of a C program compiled with -finstrument-functions. \
Filtered: at run time its hooks look the function up and find it excluded; output is recorded in memory and \
written at the end. (+N): difference from the call in the same source file. Further rows: the trace streamed while \
it is recorded, and probes of this project, which are not patched in while they are filtered.\n\n\
The loops are measured in turn, 25 rounds long; a figure is the median of its rounds. A recorded row reads the clock \
twice a call, which is most of its cost; lost events are reported.\n\n\
Fully costed is a separate process, from its start until its trace is complete and it has exited, \
divided by its calls: wall, user and system time, its maximum resident memory, bytes written, and the cycles of the \
median and of the best of its runs. The written data may still be in the page cache then. \
With the defaults all of it takes some minutes."
)]
pub struct Calls {
    /// Number of calls for each row, in millions
    #[arg(short = 'm', value_name = "MILLIONS", default_value_t = 100.0)]
    #[arg(value_parser = super::number_parser(super::MILLIONS_RANGE))]
    millions: f64,
    /// Number of calls that each measured process makes
    #[arg(long, value_name = "COUNT", default_value_t = 20_000_000)]
    #[arg(value_parser = super::whole_number_parser(1..=CALLS_MAX))]
    calls: u64,
    /// Number of runs of each measured process; the median and the best of the runs are shown
    #[arg(long, value_name = "COUNT", default_value_t = 24)]
    #[arg(value_parser = super::whole_number_parser(1..=RUNS_MAX))]
    runs: u64,
    /// Folder for traces, in addition to /dev/shm: on a disk, or a network file system
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    dir: PathBuf,
    /// Print one JSON document instead of the tables
    #[arg(long)]
    json: bool,
    /// Run as one of the measured processes
    #[arg(long, hide = true, value_name = "SUBJECT", value_enum)]
    child: Option<MeasuredFunction>,
    /// Tool that records the events of the measured process
    #[arg(long, hide = true, value_name = "TOOL", value_enum, requires = "child")]
    tool: Option<EventRecording>,
    /// Id of the process that measures; when it exits, the measured process is killed
    #[arg(long, hide = true, value_name = "PID", requires = "child")]
    parent: Option<i32>,
    /// Paths that the measured process uses: its trace, its rings, its program
    #[arg(long, hide = true, value_name = "FILE", num_args = 3, requires = "child")]
    files: Vec<PathBuf>,
}

pub fn run(args: &Calls, out: &mut dyn Write) -> anyhow::Result<()> {
    if let Some(subject) = args.child {
        let tool = args.tool.unwrap_or(EventRecording::Off);
        return costed::run_child(subject, tool, args.calls, &args.files, args.parent);
    }
    // Registered before there are folders to remove.
    let interrupted = console::interrupt_flag()?;
    let folders = TraceFolders::new(&args.dir)?;
    if folders.memory.is_none() {
        console::print_error(
            "calls: warning: no file can be created in /dev/shm; its rows are left out",
        );
    }
    let unit = TickUnit::of_this_clock();
    let mut loops = loops::create_rows(&folders)?;
    let calls_count = (args.millions * 1e6) as u64 / loops::ROUNDS_COUNT;
    let home = affinity::thread_cpus();
    // Best effort: if the thread moves to another CPU, that round is only an outlier.
    let _ = affinity::pin(affinity::current_cpu());
    let measured = loops::measure_rows(&mut loops, calls_count, args.calls, &folders, &interrupted);
    let _ = affinity::set_thread_cpus(&home);
    measured?;
    let processes = processes::measure_programs(args.calls, args.runs, &folders, &interrupted)?;
    let empties = processes::measure_empty_programs(args.runs, &folders, &interrupted)?;
    let results =
        Results { loops: &loops, processes: &processes, empty_programs: &empties, unit: &unit };
    if args.json {
        writeln!(out, "{}", results.to_json(args.calls, args.runs, &folders))?;
    } else {
        writeln!(
            out,
            "Calls: {} M a row, {} rounds; {}",
            args.millions,
            loops::ROUNDS_COUNT,
            unit.describe()
        )?;
        results.print_master(args.calls, &folders, out)?;
        results.print_loops(out)?;
        results.print_spread(out)?;
        results.print_processes(args.calls, args.runs, out)?;
        results.print_empty_programs(args.runs, out)?;
        results.print_best_runs(out)?;
    }
    out.flush()?;
    let in_loop = loops.iter().map(|it| (&it.text, &it.error));
    let of_processes = processes.iter().map(|it| (&it.text, &it.error));
    let of_empties = empties.iter().map(|it| (&it.text, &it.error));
    let mut errors = in_loop.chain(of_processes).chain(of_empties);
    match errors.find_map(|(text, error)| Some((text, error.as_ref()?))) {
        None => Ok(()),
        Some((text, why)) => anyhow::bail!("{text}: {why}"),
    }
}
