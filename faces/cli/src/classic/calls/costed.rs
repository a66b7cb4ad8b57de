//! Full cost of tracing, as the classic program defines it: of a process of its own, from its start
//! until its file is closed.

use super::places::{Medium, Places};
use super::raw;
use anyhow::{Context, bail};
use clap::ValueEnum;
use handover_base::clock;
use handover_base::usage::Usage;
use handover_suite::probe::rows::{Inside, Kept, Recorded, recording, turns};
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Kinds of work that a costed process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Task {
    Plain,
    Stamps,
    Off,
    Filtered,
    Newest,
    All,
}

/// Makes the calls, and prints the counts of events and the memory used on standard output.
pub(super) fn be_child(
    task: Task,
    calls: u64,
    files: &[PathBuf],
    parent: Option<i32>,
) -> anyhow::Result<()> {
    // Set here and not before exec: a pre-exec step would make the system fork by a slower method,
    // whose cost would be measured too.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    anyhow::ensure!(
        parent.is_none() || getppid().map(Pid::as_raw_pid) == parent,
        "the process that measures this one has ended"
    );
    let at = |index: usize| files.get(index).map_or(Path::new(""), PathBuf::as_path);
    let files = [at(0), at(1)];
    let probed = || turns(Inside::TwoProbes, calls);
    let (counted, recorded) = match task {
        Task::Plain => (turns(Inside::Nothing, calls), Recorded::default()),
        Task::Stamps => (turns(Inside::TwoStamps, calls), Recorded::default()),
        Task::Off => (probed(), Recorded::default()),
        Task::Filtered => recording(Kept::Newest, false, files, probed)?,
        Task::Newest => recording(Kept::Newest, true, files, probed)?,
        Task::All => recording(Kept::All, true, files, probed)?,
    };
    anyhow::ensure!(counted == calls, "{calls} calls were asked for and {counted} counted");
    let Recorded { events_count, lost_count, bytes } = recorded;
    let mut out = crate::console::out();
    writeln!(out, "COST {events_count} {lost_count} {bytes} {}", resident_bytes())?;
    Ok(out.flush()?)
}

/// Returns the maximum resident memory of this process so far, in bytes; 0 if the kernel does not
/// report it.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or_default() * 1024
}

/// Cost of one process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    pub wall_ticks: u64,
    pub used: Usage,
    pub resident_bytes: u64,
    pub recorded: Recorded,
}

/// Starts this program once more, for `calls` calls, and returns the cost.
pub(super) fn cost(
    task: Task,
    calls: u64,
    medium: Medium,
    places: &Places,
) -> anyhow::Result<Cost> {
    let name = task.to_possible_value().context("a task without a name")?;
    let mut command = Command::new(std::env::current_exe().context("the path of this binary")?);
    command.args(["calls", "--child", name.get_name(), "--calls", &calls.to_string()]);
    command.args(["--parent", &getpid().as_raw_pid().to_string()]);
    let files = places.files(medium);
    if matches!(task, Task::Filtered | Task::Newest | Task::All) {
        command.arg("--files").args(&files);
    }
    // Trace settings in this process's environment do not apply to the child.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("HANDOVER_TRACE") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let began = clock::ticks();
    let mut child = command.spawn().context("a process that is to be measured")?;
    let (mut said, mut complaint) = (String::new(), String::new());
    // Read one after the other: the child prints one line on either, which fits into a pipe.
    let heard = child.stdout.take().map_or(Ok(0), |mut it| it.read_to_string(&mut said));
    let told = child.stderr.take().map_or(Ok(0), |mut it| it.read_to_string(&mut complaint));
    let ended = raw::wait(child);
    let wall_ticks = clock::ticks().saturating_sub(began);
    for file in files {
        // The file exists or not, depending on how far the process came.
        let _ = std::fs::remove_file(file);
    }
    heard.and(told).context("what a measured process says")?;
    let (status, used) = ended.context("waiting for a measured process")?;
    if !status.success() {
        let complaint = complaint.trim();
        let complaint = complaint.strip_prefix("handover: ").unwrap_or(complaint);
        match complaint {
            "" => bail!("the measured process ended with {status}"),
            _ => bail!("{complaint}"),
        }
    }
    let (recorded, resident_bytes) =
        parse(&said).with_context(|| format!("a measured process said {said:?}"))?;
    Ok(Cost { wall_ticks, used, resident_bytes, recorded })
}

fn parse(said: &str) -> Option<(Recorded, u64)> {
    let numbers = said.trim().strip_prefix("COST ")?.split(' ').map(str::parse);
    let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().ok()?;
    let [events_count, lost_count, bytes, resident_bytes] = numbers[..] else { return None };
    Some((Recorded { events_count, lost_count, bytes }, resident_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_tells_is_four_numbers() {
        let recorded = Recorded { events_count: 1, lost_count: 2, bytes: 3 };
        assert_eq!(parse("COST 1 2 3 4\n"), Some((recorded, 4)));
        for wrong in ["", "COST", "COST 1 2 3", "COST 1 2 3 4 5", "COST 1 2 3 x"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn this_process_has_had_some_memory() {
        assert!(resident_bytes() > 100_000);
    }
}
