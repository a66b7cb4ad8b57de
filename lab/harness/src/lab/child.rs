//! A pass in its own process: this program started again, with a new address space, heap and stack.
//!
//! Parent and pass communicate over a socket, in postcard frames with a length prefix. After each
//! report the pass waits for permission to continue, so that the parent does not work during a
//! round.

use super::Lab;
use super::pass::{self, LabMessage, PassReport, PassRequest};
use crate::bench::Bench;
use crate::fault::Fault;
use crate::process::Process;
use crate::raw::{Region, adopt_descriptors};
use crate::setup::make_inheritable;
use handover_base::clock;
use handover_base::sync::shared::{AtomicBool, Ordering};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

/// Prefix of the command-line argument that makes this program run a pass.
const PASS_ARGUMENT: &str = "--handover-pass=";
/// Interval at which the parent polls for a requested stop.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time limit for a pass's last report after a requested stop.
const LAST_REPORT_WAIT_MAX: Duration = Duration::from_secs(3);
/// Time limit for the exit of a pass's process after its last report, or after it has closed the
/// socket, as a process that is killed does first.
const EXIT_WAIT_MAX: Duration = Duration::from_secs(10);
/// Maximum length of a frame. It limits the memory that a corrupt length allocates.
const FRAME_BYTES_MAX: u32 = 1 << 30;

/// Answer to a report, from the parent process: the pass must stop.
const STOP: u8 = 0;
/// Answer to a report, from the parent process: the pass must continue.
const CONTINUE: u8 = 1;

/// Runs a pass in its own process, and forwards its reports to `report`.
pub(super) fn run_pass_process(
    lab: &Lab,
    request: &PassRequest,
    interrupted: &AtomicBool,
    report: &mut dyn FnMut(PassReport) -> bool,
) -> Result<(), Fault> {
    let lost = |why: String| Fault::Pass { pass: request.pass + 1, why };
    let failed =
        |refused: io::Error| lost(Fault::participant_not_started("process", &refused).to_string());
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let (stop, stop_fd) = Region::<AtomicBool>::create().map_err(|errno| failed(errno.into()))?;
    make_inheritable(&theirs)?;
    make_inheritable(&stop_fd)?;
    let own = rustix::process::getpid().as_raw_nonzero();
    let word = format!("{PASS_ARGUMENT}{},{},{own}", theirs.as_raw_fd(), stop_fd.as_raw_fd());
    let mut process = Process::start_with_argument(&word).map_err(failed)?;
    drop((theirs, stop_fd));
    ours.set_read_timeout(Some(POLL_INTERVAL)).map_err(failed)?;

    let mut ours = ReportSocket { socket: ours, interrupted, stop: &stop, until: None };
    let ended = (|| -> io::Result<Result<(), Fault>> {
        write_frame(&mut ours.socket, &(LabMessage::from_lab(lab), request))?;
        loop {
            let said: PassReport = match read_frame(&mut ours)? {
                Ok(said) => said,
                Err(fault) => return Ok(Err(fault)),
            };
            let is_last = matches!(said, PassReport::End { .. });
            let goes_on = report(said);
            ours.socket.write_all(&[if goes_on { CONTINUE } else { STOP }])?;
            if is_last || !goes_on {
                return Ok(Ok(()));
            }
        }
    })();
    let until = Instant::now() + EXIT_WAIT_MAX;
    let status = loop {
        match process.exit_status() {
            Some(status) => break Some(status),
            None if Instant::now() >= until || ours.has_timed_out() => break None,
            None => thread::sleep(Duration::from_millis(1)),
        }
    };
    match (ended, status) {
        (Ok(ended), _) => ended,
        (Err(_), _) if ours.has_timed_out() => Err(Fault::Interrupted),
        (Err(_), Some(status)) => Err(lost(format!("it exited before its last report: {status}"))),
        (Err(error), None) => {
            Err(lost(format!("it is still running, but the connection to it failed: {error}")))
        }
    }
}

/// Parent's end of the socket to a pass. While it reads, it forwards a request to stop to the pass.
struct ReportSocket<'a> {
    socket: UnixStream,
    /// Flag that requests the end of the run.
    interrupted: &'a AtomicBool,
    /// Flag in shared memory that requests the end of the pass.
    stop: &'a AtomicBool,
    /// Deadline of the pass's last report after a requested stop; `None` without such a request.
    until: Option<Instant>,
}

impl ReportSocket<'_> {
    /// Returns `true` if the last report is overdue after a requested stop.
    fn has_timed_out(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }
}

impl Read for ReportSocket<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            // Relaxed: the flags publish no other data.
            if self.until.is_none() && self.interrupted.load(Ordering::Relaxed) {
                self.stop.store(true, Ordering::Relaxed);
                self.until = Some(Instant::now() + LAST_REPORT_WAIT_MAX);
            }
            match self.socket.read(into) {
                Err(refused)
                    if matches!(refused.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
                        && !self.has_timed_out() => {}
                other => return other,
            }
        }
    }
}

/// Writes the length of the serialised `frame`, and then the frame.
fn write_frame(to: &mut impl Write, frame: &impl Serialize) -> io::Result<()> {
    let mut bytes = vec![0; 4];
    bytes = postcard::to_extend(frame, bytes).map_err(io::Error::other)?;
    let length = (bytes.len() - 4) as u32;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    to.write_all(&bytes)
}

/// Reads a frame and deserialises it.
fn read_frame<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::other(format!(
            "frame of {length} bytes exceeds the limit of {FRAME_BYTES_MAX}"
        )));
    }
    let mut bytes = vec![0; length as usize];
    from.read_exact(&mut bytes)?;
    postcard::from_bytes(&bytes).map_err(io::Error::other)
}

/// Runs a pass as requested by the parent process. Returns `None` if this process was not started
/// for a pass.
pub(crate) fn run_if_pass_process(all: &[&'static [Bench]]) -> Option<Result<(), Fault>> {
    let word = std::env::args_os().nth(1)?;
    let numbers = word.to_str()?.strip_prefix(PASS_ARGUMENT)?;
    Some(run_pass(all, numbers))
}

/// Runs a pass in this process, which the parent process has started. `arguments` are the numbers
/// of the socket and of the stop flag's descriptor, and the parent's process id.
fn run_pass(all: &[&'static [Bench]], arguments: &str) -> Result<(), Fault> {
    let not_ours = || {
        Fault::new(format!(
            "{PASS_ARGUMENT} is an internal argument of processes that handover starts; leave it out"
        ))
    };
    let numbers: Result<Vec<i32>, _> = arguments.split(',').map(str::parse).collect();
    let [socket, stop, parent] = numbers.map_err(|_| not_ours())?[..] else {
        return Err(not_ours());
    };
    // The kernel kills this pass if its parent dies.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid().map(|it| it.as_raw_nonzero().get()) != Some(parent) {
        return Err(not_ours());
    }
    let mut fds = adopt_descriptors(&[socket, stop])?.into_iter();
    let (Some(socket), Some(stop)) = (fds.next(), fds.next()) else { return Err(not_ours()) };
    let stop: Region<AtomicBool> = Region::attach(&stop)?;
    let mut socket = UnixStream::from(socket);
    let (message, request): (LabMessage, PassRequest) = read_frame(&mut socket)?;
    clock::calibration();
    let lab = match message.into_lab(all) {
        Ok(lab) => lab,
        Err(fault) => return Ok(write_frame(&mut socket, &Err::<PassReport, _>(fault))?),
    };
    pass::run_pass(&lab, &request, &stop, &mut |report| {
        let mut answer = [STOP];
        let written = write_frame(&mut socket, &Ok::<_, Fault>(report))
            .and_then(|()| socket.read_exact(&mut answer));
        // A parent that has closed the socket needs no more reports.
        written.is_ok() && answer == [CONTINUE]
    });
    Ok(())
}
