//! `calls`: the table of the costs of a function call, by place of the function and kind of
//! tracing, in cycles and in nanoseconds; in the loop, and fully costed.

mod costed;
mod lanes;
mod places;
#[allow(unsafe_code)]
mod raw;
mod table;
mod whole;

use crate::console;
use clap::Args;
use costed::Task;
use handover_base::affinity;
use places::Places;
use std::io::Write;
use std::path::PathBuf;
use table::Unit;

/// Maximum of millions of calls a row: days.
const MILLIONS_MAX: u64 = 1_000_000;
/// Maximum number of calls of a costed process; its trace is 60 GB then.
const CALLS_MAX: u64 = 10_000_000_000;

/// Costs of a function call, by place of the function and kind of tracing: the main table, in
/// cycles and ns.
#[derive(Debug, Args)]
#[command(
    after_help = "Each row is a loop of calls i = next(i), the loop's own turn included, compiled \
from C at -O0 and at -O3, and from Rust with probes in the function. The rows are measured in turn, 25 \
rounds long; a figure is the median of its rounds. (+N): beyond the call in the same source file. A \
recorded row tells the time twice a call, which is most of its cost; events that were lost are said.\n\n\
Fully costed is a process of its own, from its start until its trace is complete and it has ended, \
divided by its calls: wall, user and system time, the most memory that it had, and bytes written. What is \
written is in the system's hands then, not necessarily on the disk."
)]
pub struct Calls {
    /// Calls for each row, in millions
    #[arg(
        short = 'm',
        value_name = "MILLIONS",
        default_value_t = 100,
        value_parser = super::whole(1..=MILLIONS_MAX),
        allow_negative_numbers = true
    )]
    millions: u64,
    /// Calls of a process that is costed from its start to its end
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 20_000_000,
        value_parser = super::whole(1..=CALLS_MAX),
        allow_negative_numbers = true
    )]
    calls: u64,
    /// Folder for traces, beside /dev/shm: on a disk, or a network file system
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    dir: PathBuf,
    /// Print one JSON document instead of the tables
    #[arg(long)]
    json: bool,
    /// Be one of the processes that are costed
    #[arg(long, hide = true, value_name = "TASK", value_enum)]
    child: Option<Task>,
    /// The process that costs it, with which it ends
    #[arg(long, hide = true, value_name = "PID", requires = "child")]
    parent: Option<i32>,
    /// Its trace, and its rings
    #[arg(long, hide = true, value_name = "FILE", num_args = 2, requires = "child")]
    files: Vec<PathBuf>,
}

pub fn run(args: &Calls, out: &mut dyn Write) -> anyhow::Result<()> {
    if let Some(task) = args.child {
        return costed::be_child(task, args.calls, &args.files, args.parent);
    }
    // Registered before there are folders to remove.
    let interrupted = console::interrupted()?;
    let places = Places::new(&args.dir)?;
    if places.memory.is_none() {
        console::tell("calls: warning: no file can be made in /dev/shm; its rows are left out");
    }
    let unit = Unit::of_this_clock();
    let mut lanes = lanes::all(&places)?;
    let calls_count = args.millions * 1_000_000 / lanes::ROUNDS_COUNT;
    let home = affinity::mask();
    // Best effort: if the thread moves to another CPU, that round is only an outlier.
    let _ = affinity::pin(affinity::current_cpu());
    let measured = lanes::measure(&mut lanes, calls_count, args.calls, &places, &interrupted);
    let _ = affinity::set_mask(&home);
    measured?;
    if !args.json {
        let rounds = lanes::ROUNDS_COUNT;
        writeln!(out, "Calls: {} M a row, {rounds} rounds; {}", args.millions, unit.words())?;
        table::loops(&lanes, &unit, out)?;
        table::spread(&lanes, &unit, out)?;
        table::wholes_head(args.calls, whole::ROUNDS_COUNT, &unit, out)?;
        out.flush()?;
    }
    let wholes = whole::wholes(args.calls, &places, &interrupted)?;
    if !args.json {
        let (plain, stamps) = (wholes.first(), wholes.get(1));
        for it in &wholes {
            table::whole(it, plain, stamps, &unit, out)?;
        }
        out.flush()?;
    }
    let empties = whole::empties(&places, &interrupted)?;
    if args.json {
        let rounds = [lanes::ROUNDS_COUNT as usize, whole::ROUNDS_COUNT, whole::EMPTY_ROUNDS_COUNT];
        let document = table::document(&lanes, &wholes, &empties, rounds, &unit);
        writeln!(out, "{document}")?;
    } else {
        table::empties(&empties, whole::EMPTY_ROUNDS_COUNT, &unit, out)?;
    }
    out.flush()?;
    let in_loop = lanes.iter().map(|it| (&it.text, &it.refused));
    let of_processes = wholes.iter().map(|it| (&it.text, &it.refused));
    let of_empty = empties.iter().map(|it| (&it.text, &it.refused));
    let mut refused = in_loop.chain(of_processes).chain(of_empty);
    match refused.find_map(|(text, refused)| Some((text, refused.as_ref()?))) {
        None => Ok(()),
        Some((text, why)) => anyhow::bail!("{text}: {why}"),
    }
}
