//! The client as ranks of an MPI job. Each rank generates a load in a worker process and passes its
//! lines on; rank 0 starts the loads together, and merges and prints the results.

use super::Signals;
use super::client;
use super::options::{EvhPerf, LoadMode, PROCESSES_MAX};
use super::parts::{Worker, WorkerProcess};
use crate::ranks::{Rank, receive_text, send_text};
use anyhow::{Context as _, bail, ensure};
use handover_program::exit::to_usage_error;
use handover_suite::mpi::Mpi;
use serde_json::{Value, json};
use std::cell::Cell;
use std::io::Write;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Interval at which a rank looks for messages of another rank.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Time without a line of a rank after which it counts as lost. A rank that generates load sends
/// its progress several times a second, and MPI does not report every rank that has died.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Order to a rank: end the load.
const STOP: &str = "stop";

/// Returns the rank of this client in an MPI job of several ranks. Returns `None` without an MPI
/// launcher, with a single rank, or if this process is not the client's main process.
pub fn rank_of_client(args: &EvhPerf) -> anyhow::Result<Option<Rank>> {
    if !args.client || args.eventhandler || args.connect || args.part.is_some() {
        return Ok(None);
    }
    // Slurm sets its variables in batch scripts, too, where they may be incomplete.
    let is_of_mpi = |name: &str| name.starts_with("OMPI_") || name.starts_with("PMI_");
    let variable = |name: &str| std::env::var(name).ok().filter(|_| is_of_mpi(name));
    Ok(Rank::from_environment(variable)?.filter(|rank| rank.ranks_count > 1))
}

/// Runs the client as a rank of an MPI job.
pub fn run(
    args: &EvhPerf,
    rank: &Rank,
    signals: &Signals,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    // Each rank reports the error: the launcher ends all ranks when the first one exits.
    check_options(args, rank)?;
    let world = match Mpi::init() {
        Ok(world) => world,
        Err(why) => {
            super::warn(format_args!(
                "MPI is not available, and each rank reports its own results: {why}"
            ));
            return client::run(args, signals, out);
        }
    };
    rank.check_mpi(&world)?;
    world.return_errors()?;
    let reports_count = Cell::new(0);
    let processes = ["--processes".to_string(), rank.ranks_count.to_string()];
    let ended = match rank.number {
        0 => {
            let args = EvhPerf { processes: rank.ranks_count.into(), ..args.clone() };
            client::run_workers(&args, signals, out, || {
                let own: Box<dyn Worker + '_> = Box::new(WorkerProcess::start(0, &processes)?);
                let others = (1..rank.ranks_count).map(|number| {
                    let (world, reports_count) = (&world, &reports_count);
                    Box::new(RemoteRank::new(world, number, reports_count)) as Box<dyn Worker + '_>
                });
                Ok(std::iter::once(own).chain(others).collect())
            })
        }
        number => {
            if let Err(error) = relay(&world, number, &processes, signals) {
                send_text(&world, 0, &json!({ "failed": format!("{error:#}") }).to_string())?;
            }
            Ok(())
        }
    };
    // MPI_Finalize waits for all ranks. If rank 0 exits without it, the launcher ends the ranks
    // that still run.
    if rank.number > 0 || reports_count.get() + 1 == rank.ranks_count {
        world.finalise()?;
    }
    ended
}

/// Returns an error if the options do not allow several ranks, or there are too many ranks.
fn check_options(args: &EvhPerf, rank: &Rank) -> anyhow::Result<()> {
    let count = u64::from(rank.ranks_count);
    if args.processes > 1 {
        return Err(to_usage_error(format!(
            "--processes {}: excluded in an MPI job, whose {count} ranks are the processes; start more ranks",
            args.processes
        )));
    }
    if count > PROCESSES_MAX {
        return Err(to_usage_error(format!(
            "an MPI job of {count} ranks: at most {PROCESSES_MAX} can generate one load"
        )));
    }
    if matches!(args.mode(), LoadMode::RateRamp { .. } | LoadMode::Search { .. }) {
        return Err(to_usage_error(
            "--ramp, and --slo without --rate, need a single process: start them without mpiexec",
        ));
    }
    Ok(())
}

/// Another rank of the job, controlled by rank 0.
struct RemoteRank<'a> {
    world: &'a Mpi,
    number: u32,
    /// Number of ranks that have reported their results.
    reports_count: &'a Cell<u32>,
    /// `true` if the rank was told to end its load.
    is_stopped: bool,
    /// Time of the last line from the rank, or of the last order to it.
    last_sign: Instant,
}

impl<'a> RemoteRank<'a> {
    fn new(world: &'a Mpi, number: u32, reports_count: &'a Cell<u32>) -> Self {
        RemoteRank { world, number, reports_count, is_stopped: false, last_sign: Instant::now() }
    }
}

/// Fails for a rank that has been silent for more than [`SILENCE_MAX`].
fn check_silence(number: u32, silence: Duration) -> anyhow::Result<()> {
    ensure!(
        silence <= SILENCE_MAX,
        "rank {number} is lost: it has sent nothing for {SILENCE_MAX:?}"
    );
    Ok(())
}

impl Worker for RemoteRank<'_> {
    fn next_line(&mut self, within: Duration) -> anyhow::Result<Option<Value>> {
        let until = Instant::now() + within;
        while !self.world.has_message(self.number)? {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return check_silence(self.number, self.last_sign.elapsed()).map(|()| None);
            }
            sleep(left.min(POLL_INTERVAL));
        }
        let text = receive_text(self.world, self.number)?;
        self.last_sign = Instant::now();
        let line: Value = serde_json::from_str(&text)
            .with_context(|| format!("cannot parse a message of rank {}", self.number))?;
        if let Some(why) = line["failed"].as_str() {
            bail!("rank {}: {why}", self.number);
        }
        self.reports_count.update(|count| count + u32::from(!line["outcome"].is_null()));
        Ok(Some(line))
    }

    fn send_order(&mut self, order: &str) -> anyhow::Result<()> {
        self.last_sign = Instant::now();
        send_text(self.world, self.number, order)
    }

    fn stop(&mut self) {
        if !std::mem::replace(&mut self.is_stopped, true) {
            // A rank that can no longer be reached has no load to end.
            let _ = self.send_order(STOP);
        }
    }

    fn is_on_this_host(&self) -> bool {
        false
    }
}

/// Passes rank 0's orders to a worker process on this host, and the worker's lines to rank 0.
/// Returns once the worker has reported its result.
fn relay(world: &Mpi, number: u32, arguments: &[String], signals: &Signals) -> anyhow::Result<()> {
    let mut worker = WorkerProcess::start(number.into(), arguments)?;
    loop {
        if signals.is_any_received() {
            worker.stop();
        }
        if world.has_message(0)? {
            match receive_text(world, 0)?.as_str() {
                STOP => worker.stop(),
                order => worker.send_order(order)?,
            }
        }
        let Some(line) = worker.next_line(POLL_INTERVAL)? else { continue };
        send_text(world, 0, &line.to_string())?;
        if !line["outcome"].is_null() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_that_is_silent_for_too_long_is_an_error() {
        assert!(check_silence(3, SILENCE_MAX).is_ok());
        let lost = check_silence(3, SILENCE_MAX + Duration::from_millis(1));
        assert!(lost.is_err_and(|error| error.to_string().starts_with("rank 3 is lost")));
    }
}
