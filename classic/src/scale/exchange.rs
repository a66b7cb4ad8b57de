//! Exchange of texts among all ranks before they are connected: by MPI, or through the process that
//! started them.

use super::Scale;
use crate::margo::meeting::{local_address_towards, machine_id};
use crate::ranks::Rank;
#[cfg(feature = "mpi")]
use crate::ranks::{receive_text, send_text};
use anyhow::{Context as _, bail};
use handover_program::exit::{check_interrupt, interrupt_error, is_interrupt, to_usage_error};
use handover_program::signal_on_parent_exit;
use handover_rpc::Address;
#[cfg(feature = "mpi")]
use handover_suite::mpi::Mpi;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, Read as _, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, ChildStdout, ExitStatus, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// First character of a line with a text for the other ranks. Other lines are output of the
/// program.
const TEXT_MARK: char = '@';
/// Interval between checks for an interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum time for all ranks to exit after rank 0 has closed its output.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Way in which the ranks exchange texts.
pub enum Exchange {
    /// Lines on standard output and input. The process that started the ranks, with
    /// [`start_ranks`], distributes them.
    Starter { ranks_count: u32 },
    /// Messages by MPI.
    #[cfg(feature = "mpi")]
    Mpi { world: Mpi, rank: u32, ranks_count: u32 },
}

impl Exchange {
    /// Initialises MPI, and returns the exchange by MPI.
    #[cfg(feature = "mpi")]
    pub fn by_mpi(rank: &Rank) -> anyhow::Result<Exchange> {
        rank.require_mpi_launcher()?;
        let world = Mpi::init().context("the ranks cannot exchange their addresses")?;
        rank.check_mpi(&world)?;
        Ok(Exchange::Mpi { world, rank: rank.number, ranks_count: rank.ranks_count })
    }

    /// Returns an error, as this build has no MPI.
    #[cfg(not(feature = "mpi"))]
    pub fn by_mpi(_: &Rank) -> anyhow::Result<Exchange> {
        Err(to_usage_error("this build has no MPI; use --ranks COUNT without a launcher"))
    }

    /// Returns the address at which this rank can listen for the others. With ranks on several
    /// hosts, it is the address of the interface towards another host.
    pub fn listen_address(&mut self, transport: &Address) -> anyhow::Result<Address> {
        let host = rustix::system::uname();
        let own = machine_id();
        let all = self.all_gather(&format!("{own} {}", host.nodename().to_string_lossy()))?;
        let hosts = all.iter().filter_map(|text| text.split_once(' '));
        let Some((_, other)) = hosts.into_iter().find(|(machine, _)| *machine != own) else {
            return Ok(transport.clone());
        };
        let Address::Tcp(_) = transport else {
            return Err(to_usage_error(format!(
                "-n {transport}: the ranks are on different hosts; use tcp://"
            )));
        };
        let (own, _) = local_address_towards((other, 9)).with_context(|| {
            format!("cannot find the route to {other}, the host of another rank")
        })?;
        Ok(Address::Tcp(SocketAddr::new(own, 0).to_string()))
    }

    /// Sends the line `own` to all ranks. Returns the lines of all ranks, in the order of the
    /// ranks.
    pub fn all_gather(&mut self, own: &str) -> anyhow::Result<Vec<String>> {
        match self {
            Exchange::Starter { ranks_count } => {
                let mut out = std::io::stdout().lock();
                writeln!(out, "{TEXT_MARK}{own}")?;
                out.flush()?;
                let lines = std::io::stdin().lock().lines().take(*ranks_count as usize);
                Ok(lines.collect::<Result<_, _>>()?)
            }
            #[cfg(feature = "mpi")]
            Exchange::Mpi { world, rank: 0, ranks_count } => {
                let others = (1..*ranks_count).map(|rank| receive_text(world, rank));
                let all: Vec<String> =
                    std::iter::once(Ok(own.to_string())).chain(others).collect::<Result<_, _>>()?;
                let joined = all.join("\n");
                (1..*ranks_count).try_for_each(|rank| send_text(world, rank, &joined))?;
                Ok(all)
            }
            #[cfg(feature = "mpi")]
            Exchange::Mpi { world, .. } => {
                send_text(world, 0, own)?;
                Ok(receive_text(world, 0)?.lines().map(str::to_string).collect())
            }
        }
    }

    /// Ends the exchange; if it is by MPI, finalises MPI.
    pub fn end(self) -> anyhow::Result<()> {
        match self {
            Exchange::Starter { .. } => Ok(()),
            #[cfg(feature = "mpi")]
            Exchange::Mpi { world, .. } => Ok(world.finalise()?),
        }
    }
}

/// Process of a rank. Dropping this kills the process.
struct RankProcess {
    child: Child,
    /// Standard input of the process.
    to_rank: ChildStdin,
    /// Standard output of the process.
    from_rank: ChildStdout,
    /// Bytes that were read, and not returned as a line yet.
    unreturned: Vec<u8>,
}

impl Drop for RankProcess {
    fn drop(&mut self) {
        // The process may have ended by itself, which is not an error.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl RankProcess {
    /// Starts this program as the rank `number`.
    fn start(number: u32) -> anyhow::Result<RankProcess> {
        let mut command = crate::own_program_command(Scale::NAME)?;
        command.args(crate::own_arguments(Scale::NAME)).args(["--rank", &number.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // A signal of the terminal reaches only the starting process, which interrupts each rank
        // once.
        command.process_group(0);
        signal_on_parent_exit(&mut command, Signal::KILL);
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start the process of rank {number}"))?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(to_rank), Some(from_rank)) => {
                Ok(RankProcess { child, to_rank, from_rank, unreturned: Vec::new() })
            }
            _ => bail!("rank {number} was started without pipes"),
        }
    }

    /// Sends SIGINT to the process, unless it has ended.
    fn interrupt(&self) {
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            // Fails if the process has ended, which is no error.
            let _ = kill_process(pid, Signal::INT);
        }
    }

    /// Reads the next line of the rank's output, with its line break. Returns `None` at the end of
    /// the output. Calls `check` while it waits, and returns the error of `check`.
    fn read_line(
        &mut self,
        mut check: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<Option<String>> {
        let wait = Timespec::try_from(POLL_INTERVAL).unwrap_or_default();
        loop {
            if let Some(end) = self.unreturned.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unreturned.drain(..=end).collect();
                return Ok(Some(String::from_utf8(line)?));
            }
            check()?;
            // A signal ends the wait early, without output to read.
            match poll(&mut [PollFd::new(&self.from_rank, PollFlags::IN)], Some(&wait)) {
                Ok(0) | Err(Errno::INTR) => continue,
                polled => polled?,
            };
            let mut read = [0; 4096];
            match self.from_rank.read(&mut read) {
                Ok(0) => return Ok(None),
                Ok(count) => self.unreturned.extend_from_slice(&read[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Starts `count` ranks on this host, and waits for them to exit. Meanwhile distributes the texts
/// of the ranks, and writes the output of rank 0 to `out`.
pub fn start_ranks(
    count: u32,
    interrupted: &AtomicBool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut zero = RankProcess::start(0)?;
    let mut others: Vec<RankProcess> =
        (1..count).map(RankProcess::start).collect::<anyhow::Result<_>>()?;
    let check = || check_interrupt(interrupted).map_err(|_| interrupt_error(false, false));
    let (mut stop_deadline, mut has_printed) = (None, false);
    loop {
        let read = zero.read_line(|| match stop_deadline {
            None => check().and_then(|()| check_other_ranks(&mut others)),
            Some(deadline) if Instant::now() > deadline => Err(interrupt_error(has_printed, false)),
            Some(_) => Ok(()),
        });
        let line = match read {
            Ok(Some(line)) => line,
            Ok(None) => break,
            Err(error) if is_interrupt(&error) && stop_deadline.is_none() => {
                // The ranks stop, and rank 0 prints what has been measured.
                stop_deadline = Some(Instant::now() + EXIT_TIMEOUT);
                std::iter::once(&zero).chain(&others).for_each(RankProcess::interrupt);
                continue;
            }
            Err(error) => return Err(error),
        };
        if !line.starts_with(TEXT_MARK) {
            out.write_all(line.as_bytes())?;
            has_printed = true;
            continue;
        }
        let mut all = line[TEXT_MARK.len_utf8()..].to_string();
        for (number, rank) in (1..).zip(&mut others) {
            let Some(line) = rank.read_line(check)? else {
                bail!("rank {number} has exited before it was connected: {}", rank.child.wait()?);
            };
            all.push_str(line.trim_start_matches(TEXT_MARK));
        }
        for (number, rank) in (0..).zip(std::iter::once(&mut zero).chain(&mut others)) {
            let written = rank.to_rank.write_all(all.as_bytes());
            written.with_context(|| format!("cannot send the addresses to rank {number}"))?;
        }
    }
    out.flush()?;
    let statuses = wait_for_ranks(std::iter::once(&mut zero).chain(&mut others))?;
    let failed: Vec<String> = statuses
        .iter()
        .enumerate()
        .filter(|(_, status)| !status.success())
        .map(|(number, status)| format!("rank {number}: {status}"))
        .collect();
    let is_interrupted =
        stop_deadline.is_some() || statuses.iter().any(|it| it.code() == Some(130));
    match failed.is_empty() {
        _ if is_interrupted => Err(interrupt_error(has_printed, false)),
        true => Ok(()),
        false => bail!("{} of {count} ranks failed: {}", failed.len(), failed.join("; ")),
    }
}

/// Returns an error if a rank other than rank 0 has failed.
fn check_other_ranks(others: &mut [RankProcess]) -> anyhow::Result<()> {
    for (number, rank) in (1..).zip(others) {
        if let Some(status) = rank.child.try_wait()?.filter(|status| !status.success()) {
            bail!("rank {number} failed: {status}");
        }
    }
    Ok(())
}

/// Waits for all ranks to exit. Kills ranks that take longer than [`EXIT_TIMEOUT`].
fn wait_for_ranks<'a>(
    ranks: impl Iterator<Item = &'a mut RankProcess>,
) -> anyhow::Result<Vec<ExitStatus>> {
    let began = Instant::now();
    let mut statuses = Vec::new();
    for rank in ranks {
        loop {
            if let Some(status) = rank.child.try_wait()? {
                statuses.push(status);
                break;
            }
            if began.elapsed() > EXIT_TIMEOUT {
                rank.child.kill()?;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(statuses)
}
