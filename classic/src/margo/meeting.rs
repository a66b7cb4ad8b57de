//! Meeting of two ranks: through a file on one host, or at an address across hosts. Rank 0 tells
//! the address on which it listens, and rank 1 receives it. Every wait has a time limit.

use super::ranks::parent_and_start;
use anyhow::{Context, bail};
use handover_program::exit::usage;
use handover_rpc::{Address, Transport};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{self, AtFlags, CWD, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use rustix::net::{
    AddressFamily, RecvFlags, SocketFlags, SocketType, bind, getsockname, socket_with,
};
use rustix::process::geteuid;
use rustix::rand::{GetRandomFlags, getrandom};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Polling interval for events without a notification.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Maximum size of a line: a word, a job, a machine, an address.
const LINE_BYTES_MAX: usize = 1024;
/// Time limit of a caller for each of its two lines.
const CALLER_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum number of callers that are reply at a time.
const CALLERS_MAX: usize = 64;
/// Time limit of connecting to an address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A deadline that an interrupt can cut short.
#[derive(Debug, Clone, Copy)]
pub struct Patience<'a> {
    began: Instant,
    wait: Duration,
    interrupted: &'a AtomicBool,
}

impl<'a> Patience<'a> {
    pub fn new(wait: Duration, interrupted: &'a AtomicBool) -> Self {
        Patience { began: Instant::now(), wait, interrupted }
    }

    /// Returns an error if the time is over or the process was interrupted; sleeps for `POLL_INTERVAL`
    /// otherwise.
    pub fn pause(&self, failure: impl FnOnce() -> String) -> anyhow::Result<()> {
        self.check(failure)?;
        std::thread::sleep(POLL_INTERVAL);
        Ok(())
    }

    pub fn check(&self, failure: impl FnOnce() -> String) -> anyhow::Result<()> {
        self.check_interrupt()?;
        if self.began.elapsed() >= self.wait {
            bail!("{} within {} s", failure(), self.wait.as_secs());
        }
        Ok(())
    }

    /// Returns an error if the process was interrupted.
    fn check_interrupt(&self) -> anyhow::Result<()> {
        // Relaxed: the flag publishes no other data.
        match self.interrupted.load(Ordering::Relaxed) {
            true => Err(handover_program::exit::Interrupted.into()),
            false => Ok(()),
        }
    }

    fn left(&self) -> Duration {
        self.wait.saturating_sub(self.began.elapsed())
    }
}

/// A file through which ranks on one host meet: named after the job, in a folder private to this
/// user.
#[derive(Debug)]
pub struct MeetingFile {
    folder: OwnedFd,
    path: PathBuf,
    name: String,
}

/// A file with this rank's address. Rank 1 locks it, removes its name, and keeps it open until it has
/// connected. Dropping this removes the name too.
#[derive(Debug)]
pub struct PublishedAddress<'a> {
    place: &'a MeetingFile,
    file: OwnedFd,
}

impl PublishedAddress<'_> {
    /// Returns `true` if the other rank has read the address and holds the file no longer: it has connected,
    /// or it has ended.
    pub fn is_released(&self) -> bool {
        let has_been_read = fs::fstat(&self.file).is_ok_and(|it| it.st_nlink == 0);
        has_been_read && fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok()
    }
}

impl Drop for PublishedAddress<'_> {
    fn drop(&mut self) {
        // A rank that has read the file has removed its name; another job's file may have the name
        // by now.
        let name = self.place.name.as_str();
        let there = fs::statat(&self.place.folder, name, AtFlags::SYMLINK_NOFOLLOW);
        let own = fs::fstat(&self.file);
        if there.is_ok_and(|there| own.is_ok_and(|own| own.st_ino == there.st_ino)) {
            let _ = fs::unlinkat(&self.place.folder, name, AtFlags::empty());
        }
    }
}

impl MeetingFile {
    /// Returns the place of a job. `program` separates programs that run in one job, one after
    /// another.
    pub fn of(program: &str, job: &str) -> anyhow::Result<MeetingFile> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let private = runtime.and_then(|path| folder(&path).ok().map(|folder| (path, folder)));
        let (path, folder) = match private {
            Some(found) => found,
            None => {
                let name = format!("handover-{}", geteuid().as_raw());
                let path = std::env::temp_dir().join(name);
                match fs::mkdirat(CWD, &path, Mode::RWXU) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => bail!("{}: cannot be made: {errno}", path.display()),
                }
                let folder = folder(&path)?;
                (path, folder)
            }
        };
        let name = format!("{program}.{job}");
        Ok(MeetingFile { folder, path: path.join(&name), name })
    }

    /// Writes this process's address to the file.
    pub fn publish(&self, address: &Address) -> anyhow::Result<PublishedAddress<'_>> {
        let (me, text) = (std::process::id(), address.to_string());
        let started = parent_and_start(me).map_or(0, |it| it.1);
        let line = format!("handover {me} {started} {text}\n");
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = loop {
            match fs::openat(&self.folder, self.name.as_str(), flags, mode) {
                Ok(file) => break file,
                // The file may be left from a job that was killed, whose name has been reused.
                Err(Errno::EXIST) if self.read_address()?.is_none() && self.is_stale() => {
                    let _ = fs::unlinkat(&self.folder, self.name.as_str(), AtFlags::empty());
                }
                Err(Errno::EXIST) => {
                    bail!("{}: another rank 0 of this job waits there", self.path.display())
                }
                Err(errno) => bail!("{}: cannot be made: {errno}", self.path.display()),
            }
        };
        let published = PublishedAddress { place: self, file };
        let mut file = std::fs::File::from(
            published
                .file
                .try_clone()
                .with_context(|| format!("{}: duplicate the descriptor", self.path.display()))?,
        );
        file.write_all(line.as_bytes())
            .with_context(|| format!("write {}", self.path.display()))?;
        Ok(published)
    }

    /// Waits for the address of rank 0, and removes the name of its file. The caller keeps the
    /// descriptor until this rank has connected: closing it tells rank 0 that this rank has ended.
    pub fn wait_for_address(&self, patience: Patience<'_>) -> anyhow::Result<(Address, OwnedFd)> {
        loop {
            if let Some((address, file)) = self.read_address()? {
                // Fails on a file system without locks; rank 0 then waits until its own time limit.
                let _ = fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
                let _ = fs::unlinkat(&self.folder, self.name.as_str(), AtFlags::empty());
                return Ok((address, file));
            }
            patience.pause(|| {
                let path = self.path.display();
                format!("rank 0 has not come to {path} (on another host? --rendezvous HOST:PORT)")
            })?;
        }
    }

    /// Reads the address once; `None` if there is none, or its writer has ended.
    fn read_address(&self) -> anyhow::Result<Option<(Address, OwnedFd)>> {
        let Some((AddressRecord { pid, started, text }, file)) = self.read()? else {
            return Ok(None);
        };
        match parent_and_start(pid) {
            Some((_, writer_started)) if writer_started == started => {
                Ok(Some((text.parse()?, file)))
            }
            _ => Ok(None),
        }
    }

    /// Returns `true` if the process that wrote the file has ended.
    fn is_stale(&self) -> bool {
        let read = self.read();
        matches!(read, Ok(Some((AddressRecord { pid, started, .. }, _)))
            if parent_and_start(pid).is_none_or(|(_, writer_started)| writer_started != started))
    }

    /// Returns the file and its content; `None` while there is no complete line.
    fn read(&self) -> anyhow::Result<Option<(AddressRecord, OwnedFd)>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = match fs::openat(&self.folder, self.name.as_str(), flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => bail!("{}: {errno}", self.path.display()),
        };
        let stat = fs::fstat(&file).context("read the owner of the file")?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !is_file || stat.st_uid != geteuid().as_raw() || stat.st_mode & 0o077 != 0 {
            bail!("{}: not a file of this user alone", self.path.display());
        }
        let mut text = String::new();
        let mut bounded = std::fs::File::from(file).take(LINE_BYTES_MAX as u64);
        bounded.read_to_string(&mut text).context("read the file")?;
        let file = OwnedFd::from(bounded.into_inner());
        Ok(text.strip_suffix('\n').and_then(|line| {
            let mut words = line.splitn(4, ' ');
            let (b"handover", pid, started, rest) =
                (words.next()?.as_bytes(), words.next()?, words.next()?, words.next()?)
            else {
                return None;
            };
            let (pid, started) = (pid.parse().ok()?, started.parse().ok()?);
            Some((AddressRecord { pid, started, text: rest.to_owned() }, file))
        }))
    }
}

/// Content of the file: the writer's process id and start time, and its address.
struct AddressRecord {
    pid: u32,
    started: u64,
    text: String,
}

/// Opens a folder that belongs to this user and that no other user may enter.
fn folder(path: &Path) -> anyhow::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    let shown = path.display();
    let folder = fs::openat(CWD, path, flags, Mode::empty())
        .map_err(|errno| anyhow::anyhow!("{shown}: {errno}"))?;
    let stat = fs::fstat(&folder).context("read the owner of the folder")?;
    if stat.st_uid != geteuid().as_raw() {
        bail!("{shown}: belongs to user {}; set XDG_RUNTIME_DIR to a folder of yours", stat.st_uid);
    }
    if stat.st_mode & 0o077 != 0 {
        bail!("{shown}: others may enter it; chmod 700 {shown}");
    }
    Ok(folder)
}

/// Returns an identifier of this machine and network namespace, valid until the next boot.
pub fn machine() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    let text = format!("{}{}", read.trim(), namespace.display());
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

// At an address, any program may connect, and any program may listen: even this process itself, as
// a socket that connects to an unused local port may get that port as its own. So each side names
// its protocol and its job, and proves that it has read the other's line by repeating the number.
//
//  rank 1                                rank 0
//  ask NUMBER JOB      ───────────────▶
//                      ◀───────────────  hear NUMBER
//  come NUMBER         ───────────────▶
//                      ◀───────────────  tell NUMBER MACHINE ADDRESS

/// First word of each line, in every version; the version follows.
const PROTOCOL: &str = "handover-rendezvous";
const VERSION: u32 = 1;
/// Time limit for a line that the other side can send at once.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval between checks of the interrupt flag.
const INTERRUPT_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// A connection on which ranks meet, and the number that identifies it.
#[derive(Debug)]
struct Line {
    stream: TcpStream,
    number: String,
}

/// Result of waiting for a line.
#[derive(Debug, PartialEq)]
enum Reply {
    /// The text after the expected words.
    Rest(String),
    /// A line of a rank with another version.
    OtherVersion(String),
    /// Anything else, or no line.
    Nothing,
}

impl Line {
    fn send(&mut self, verb: &str, rest: &str) -> std::io::Result<()> {
        let number = &self.number;
        let rest = if rest.is_empty() { String::new() } else { format!(" {rest}") };
        let line = format!("{PROTOCOL} {VERSION} {verb} {number}{rest}\n");
        self.stream.write_all(line.as_bytes())
    }

    /// Waits for a line with this verb and this connection's number.
    fn receive(
        &mut self,
        verb: &str,
        within: Duration,
        patience: Patience<'_>,
    ) -> anyhow::Result<Reply> {
        let Some(line) = read_line(&mut self.stream, within, patience)? else {
            return Ok(Reply::Nothing);
        };
        Ok(parse_line(&line, verb, Some(&self.number)).0)
    }
}

/// Parses a line, and returns its number too. `verb` is expected, and `number` if it is known.
fn parse_line(line: &str, verb: &str, number: Option<&str>) -> (Reply, String) {
    let mut words = line.splitn(5, ' ');
    let mut next = || words.next().unwrap_or_default();
    let (word, version, received_verb, received_number, rest) =
        (next(), next(), next(), next(), next());
    let reply = if word != PROTOCOL {
        Reply::Nothing
    } else if version != VERSION.to_string() {
        // Only numbers are shown.
        version.parse::<u32>().map_or(Reply::Nothing, |it| Reply::OtherVersion(it.to_string()))
    } else if received_verb == verb && number.is_none_or(|number| received_number == number) {
        Reply::Rest(rest.to_owned())
    } else {
        Reply::Nothing
    };
    (reply, received_number.to_owned())
}

fn other_version(rank: u32, version: &str) -> anyhow::Error {
    anyhow::anyhow!(
        "rank {rank} speaks version {version} of the rendezvous, this rank version {VERSION}: \
         run the same build on both hosts"
    )
}

/// Reads one line within this time; `None` if there is none.
fn read_line(
    stream: &mut TcpStream,
    within: Duration,
    patience: Patience<'_>,
) -> anyhow::Result<Option<String>> {
    let until = Instant::now() + within.min(patience.left());
    let (mut text, mut byte) = (Vec::new(), [0]);
    while text.len() < LINE_BYTES_MAX {
        patience.check_interrupt()?;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero()
            || stream.set_read_timeout(Some(left.min(INTERRUPT_CHECK_INTERVAL))).is_err()
        {
            return Ok(None);
        }
        match stream.read(&mut byte) {
            Ok(1) if byte == *b"\n" => return Ok(String::from_utf8(text).ok()),
            Ok(1) => text.push(byte[0]),
            Ok(_) => return Ok(None),
            Err(error) => match error.kind() {
                ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut => {}
                _ => return Ok(None),
            },
        }
    }
    Ok(None)
}

/// The other rank, met at an address. It keeps this connection open until it has connected to the
/// endpoint.
#[derive(Debug)]
pub struct RankConnection {
    line: Line,
}

/// Waits, as rank 0, at this address for the other rank of its job. Serves several callers at a
/// time, as some may be strangers. Passes warnings to `warn`.
pub fn wait_at_host(
    place: &str,
    job: &str,
    patience: Patience<'_>,
    warn: impl Fn(&str),
) -> anyhow::Result<RankConnection> {
    let listener = TcpListener::bind(place).map_err(|error| match error.kind() {
        ErrorKind::AddrNotAvailable => {
            usage(format!("--rendezvous {place}: not an address of this host, rank 0's: {error}"))
        }
        ErrorKind::InvalidInput => usage(format!("--rendezvous {place}: {error}")),
        _ => anyhow::anyhow!("--rendezvous {place}: {error}"),
    })?;
    listener.set_nonblocking(true).context("make the socket of the rendezvous non-blocking")?;
    let mut callers: Vec<Caller> = Vec::new();
    let mut strangers_count = 0u64;
    let mut has_warned = false;
    loop {
        // Checked however many callers come.
        patience.check(|| match strangers_count {
            0 => format!("rank 1 has not come to {place}"),
            _ => format!("rank 1 has not come to {place} ({strangers_count} strangers have)"),
        })?;
        for _ in 0..CALLERS_MAX {
            match listener.accept() {
                Ok((stream, _)) => {
                    if callers.len() == CALLERS_MAX {
                        // Rank 1 sends at once: the caller that has been silent for longest is a
                        // stranger.
                        callers.remove(0);
                        strangers_count += 1;
                    }
                    callers.extend(Caller::new(stream));
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => break,
                    // The caller closed before it was accepted.
                    ErrorKind::ConnectionAborted | ErrorKind::Interrupted => {}
                    _ => {
                        return Err(error)
                            .with_context(|| format!("--rendezvous {place}: accept a connection"));
                    }
                },
            }
        }
        let mut index = 0;
        while let Some(caller) = callers.get_mut(index) {
            match caller.advance(job) {
                CallerState::Waits => index += 1,
                CallerState::IsStranger => {
                    callers.remove(index);
                    strangers_count += 1;
                }
                CallerState::HasOtherVersion(its) => {
                    callers.remove(index);
                    strangers_count += 1;
                    // Once: a stranger may say so again and again.
                    if !std::mem::replace(&mut has_warned, true) {
                        warn(&format!(
                            "turned a caller away at {place}: {}",
                            other_version(1, &its)
                        ));
                    }
                }
                CallerState::IsRank => {
                    let line = callers.swap_remove(index).line;
                    line.stream
                        .set_nonblocking(false)
                        .context("make the connection of rank 1 blocking")?;
                    return Ok(RankConnection { line });
                }
            }
        }
        let mut watched = vec![PollFd::new(&listener, PollFlags::IN)];
        watched.extend(callers.iter().map(|it| PollFd::new(&it.line.stream, PollFlags::IN)));
        let slice =
            Timespec::try_from(INTERRUPT_CHECK_INTERVAL.min(patience.left())).unwrap_or_default();
        match poll(&mut watched, Some(&slice)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).context("poll the sockets of the rendezvous"),
        }
    }
}

/// A caller that has connected to the rendezvous, and may be the other rank.
struct Caller {
    /// The connection; its number is empty until the caller has asked.
    line: Line,
    /// The part of the next line received so far.
    text: Vec<u8>,
    /// Deadline of the caller's next line, after which it counts as a stranger.
    until: Instant,
}

/// State of a caller.
enum CallerState {
    Waits,
    IsStranger,
    /// It speaks this version: the other rank's build differs, or it is a stranger that says so.
    HasOtherVersion(String),
    IsRank,
}

impl Caller {
    fn new(stream: TcpStream) -> Option<Caller> {
        stream.set_nonblocking(true).ok()?;
        let line = Line { stream, number: String::new() };
        Some(Caller { line, text: Vec::new(), until: Instant::now() + CALLER_TIMEOUT })
    }

    /// Reads the caller's lines, and answers them. Strangers and ranks of other jobs are to be
    /// disconnected.
    fn advance(&mut self, job: &str) -> CallerState {
        let mut bytes = [0; LINE_BYTES_MAX];
        loop {
            if let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.text.drain(..=end).collect();
                let line = String::from_utf8(line).unwrap_or_default();
                let line = line.trim_end_matches('\n');
                if !self.line.number.is_empty() {
                    let comes = parse_line(line, "come", Some(&self.line.number)).0;
                    let is_rank = matches!(comes, Reply::Rest(_));
                    return if is_rank { CallerState::IsRank } else { CallerState::IsStranger };
                }
                if let Some(step) = self.answer(line, job) {
                    return step;
                }
            }
            if self.text.len() >= LINE_BYTES_MAX {
                return CallerState::IsStranger;
            }
            match self.line.stream.read(&mut bytes) {
                Ok(0) => return CallerState::IsStranger,
                Ok(count) => self.text.extend_from_slice(&bytes[..count]),
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::WouldBlock if Instant::now() < self.until => {
                        return CallerState::Waits;
                    }
                    _ => return CallerState::IsStranger,
                },
            }
        }
    }

    /// Answers the first line; returns `None` if a rank of this job has asked.
    fn answer(&mut self, line: &str, job: &str) -> Option<CallerState> {
        let (reply, number) = parse_line(line, "ask", None);
        self.line.number = number;
        self.until = Instant::now() + CALLER_TIMEOUT;
        match reply {
            Reply::Rest(received_job) if received_job == job && !self.line.number.is_empty() => {
                // Fails if the caller has closed meanwhile.
                self.line.send("hear", "").is_err().then_some(CallerState::IsStranger)
            }
            Reply::OtherVersion(its) => {
                // The answer tells the caller this version, and a rank then ends with an error. The
                // rest of the caller's line may be anything.
                let _ = self.line.send("hear", "");
                Some(CallerState::HasOtherVersion(its))
            }
            Reply::Rest(_) | Reply::Nothing => Some(CallerState::IsStranger),
        }
    }
}

impl RankConnection {
    /// Returns the address of this host by which the other rank has reached it.
    pub fn host(&self) -> anyhow::Result<IpAddr> {
        Ok(self.line.stream.local_addr().context("read the local address of the rendezvous")?.ip())
    }

    /// Tells the other rank the address on which this process listens.
    pub fn tell(&mut self, address: &Address) -> anyhow::Result<()> {
        let rest = format!("{} {address}", machine());
        self.line.send("tell", &rest).context("send rank 1 the address to connect to")
    }

    /// Returns `true` if the other rank has closed this connection: it has connected to the endpoint, or it
    /// has ended.
    pub fn is_released(&self) -> bool {
        let mut byte = [0];
        let peeked =
            rustix::net::recv(&self.line.stream, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
        !matches!(peeked, Ok((1.., _)) | Err(Errno::AGAIN | Errno::INTR))
    }
}

/// Receives, as rank 1, the address of rank 0. The caller keeps the descriptor until it has
/// connected there: closing it tells rank 0 that this rank has ended.
pub fn address_from_host(
    place: &str,
    job: &str,
    patience: Patience<'_>,
) -> anyhow::Result<(Address, OwnedFd)> {
    let found = place.to_socket_addrs();
    let found = found.map_err(|error| usage(format!("--rendezvous {place}: {error}")))?;
    let addresses: Vec<SocketAddr> = found.collect();
    loop {
        let mut why = String::from("no address");
        for address in &addresses {
            match address_line_from(*address, job, patience)? {
                Ok((line, stream)) => return Ok((reachable(&line)?, stream.into())),
                Err(stranger) => why = stranger,
            }
        }
        patience.pause(|| format!("rank 0 was not met at {place} ({why})"))?;
    }
}

/// Returns the line that rank 0 tells, or the reason why there is no rank 0 at this address.
fn address_line_from(
    at: SocketAddr,
    job: &str,
    patience: Patience<'_>,
) -> anyhow::Result<Result<(String, TcpStream), String>> {
    let stranger = || Ok(Err(String::from("whoever listens there is not rank 0 of this job")));
    let stream = match connect(at, patience)? {
        Ok(stream) => stream,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let mut line = Line { stream, number: number()? };
    if line.send("ask", job).is_err() {
        return stranger();
    }
    match line.receive("hear", ANSWER_TIMEOUT, patience)? {
        Reply::Rest(_) if line.send("come", "").is_ok() => {}
        Reply::OtherVersion(version) => return Err(other_version(0, &version)),
        Reply::Rest(_) | Reply::Nothing => return stranger(),
    }
    match line.receive("tell", patience.left(), patience)? {
        Reply::Rest(text) => Ok(Ok((text, line.stream))),
        Reply::OtherVersion(_) | Reply::Nothing => bail!("rank 0 is gone, and has sent nothing"),
    }
}

/// Connects, but never to itself. The kernel may give a socket that connects to a port of this host
/// the same port as its own; if no socket listens there, it is connected to itself, and rank 0
/// cannot listen there.
fn connect(at: SocketAddr, patience: Patience<'_>) -> anyhow::Result<io::Result<TcpStream>> {
    let begun =
        socket_of_other_port(at.port(), at.is_ipv4()).and_then(
            |socket| match rustix::net::connect(&socket, &at) {
                Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
                Err(errno) => Err(errno),
            },
        );
    let socket = match begun {
        Ok(socket) => socket,
        Err(errno) => return Ok(Err(errno.into())),
    };
    let until = Instant::now() + CONNECT_TIMEOUT;
    let slice = Timespec::try_from(INTERRUPT_CHECK_INTERVAL).unwrap_or_default();
    while poll(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(&slice)) != Ok(1) {
        patience.check_interrupt()?;
        if Instant::now() >= until {
            return Ok(Err(Errno::TIMEDOUT.into()));
        }
    }
    Ok(match socket_error(&socket).and_then(|outcome| outcome) {
        Ok(()) => {
            let stream = TcpStream::from(socket);
            stream.set_nonblocking(false).map(|()| stream)
        }
        Err(errno) => Err(errno.into()),
    })
}

/// Returns a socket that is bound to a port other than `port`.
fn socket_of_other_port(port: u16, is_ipv4: bool) -> Result<OwnedFd, Errno> {
    let (family, any): (_, IpAddr) = match is_ipv4 {
        true => (AddressFamily::INET, Ipv4Addr::UNSPECIFIED.into()),
        false => (AddressFamily::INET6, Ipv6Addr::UNSPECIFIED.into()),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let bound = || -> Result<(OwnedFd, u16), Errno> {
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        bind(&socket, &SocketAddr::new(any, 0))?;
        let own = SocketAddr::try_from(getsockname(&socket)?)?.port();
        Ok((socket, own))
    };
    let (first, own) = bound()?;
    // While `first` holds that port, the second socket cannot get it.
    if own == port { Ok(bound()?.0) } else { Ok(first) }
}

/// Returns a random number, which no other connection has.
fn number() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    getrandom(&mut bytes, GetRandomFlags::empty()).context("draw a random number")?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

/// Parses the address of rank 0, and checks that this process can reach it.
pub fn reachable(line: &str) -> anyhow::Result<Address> {
    let (machine_0, text) =
        line.split_once(' ').with_context(|| format!("parse the address of rank 0 in {line:?}"))?;
    let address: Address = text.parse()?;
    if !matches!(address.transport(), Transport::Tcp | Transport::Tls) && machine_0 != machine() {
        let how = address.transport();
        let say = "the ranks are on different hosts; take tls:// or tcp://";
        return Err(usage(format!("-n {how}://: {say}")));
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::sync::atomic::AtomicU8;
    use std::thread;

    const JOB: &str = "program.17";

    fn uninterrupted<T>(wait: Duration, with: impl FnOnce(Patience<'_>) -> T) -> T {
        let never = AtomicBool::new(false);
        with(Patience::new(wait, &never))
    }

    /// Returns an unused address: on a loopback IP of its own, so that no other process is given
    /// it.
    fn free() -> String {
        static COUNT: AtomicU8 = AtomicU8::new(1);
        // Relaxed: a counter.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let listener =
            TcpListener::bind((Ipv4Addr::new(127, number, high, low), 0)).expect("a port");
        listener.local_addr().expect("bound").to_string()
    }

    fn met_at(place: &str, job: &str, wait: Duration) -> anyhow::Result<Address> {
        let address: Address = "tcp://127.0.0.1:7".parse()?;
        thread::scope(|scope| {
            let zero = scope.spawn(|| {
                uninterrupted(wait, |patience| {
                    wait_at_host(place, JOB, patience, |_| ())?.tell(&address)
                })
            });
            let reply = uninterrupted(wait, |patience| address_from_host(place, job, patience));
            zero.join().expect("no panic").and(reply.map(|(address, _)| address))
        })
    }

    #[test]
    fn ranks_of_one_job_meet_and_ranks_of_two_jobs_do_not() {
        let met = met_at(&free(), JOB, Duration::from_secs(20)).expect("they meet");
        assert_eq!(met.to_string(), "tcp://127.0.0.1:7");
        let place = free();
        let apart = met_at(&place, "program.18", Duration::from_millis(300));
        let said = apart.expect_err("another job").to_string();
        assert!(said.starts_with(&format!("rank 1 has not come to {place} (")), "{said}");
    }

    #[test]
    fn repeated_strangers_do_not_extend_the_time_limit() {
        let place = free();
        let over = AtomicBool::new(false);
        let refused = thread::scope(|scope| {
            scope.spawn(|| {
                // Relaxed: the flag publishes no other data.
                while !over.load(Ordering::Relaxed) {
                    if let Ok(mut stream) = TcpStream::connect(&*place) {
                        let _ = stream.write_all(b"GET / HTTP/1.1\r\n\r\n");
                    }
                }
            });
            let refused =
                uninterrupted(Duration::from_secs(2), |it| wait_at_host(&place, JOB, it, |_| ()));
            over.store(true, Ordering::Relaxed);
            refused.map(|_| ())
        });
        let said = refused.expect_err("only strangers").to_string();
        assert!(said.contains("strangers have) within 2 s"), "{said}");
    }

    #[test]
    fn idle_strangers_do_not_delay_the_other_rank() {
        let place = free();
        thread::scope(|scope| {
            let zero = scope.spawn(|| {
                uninterrupted(Duration::from_secs(60), |it| wait_at_host(&place, JOB, it, |_| ()))
            });
            let idle: Vec<TcpStream> = std::iter::repeat_with(|| TcpStream::connect(&*place))
                .filter_map(Result::ok)
                .take(50)
                .collect();
            let began = Instant::now();
            let address: Address = "tcp://127.0.0.1:7".parse().expect("an address");
            let one = scope.spawn(|| {
                uninterrupted(Duration::from_secs(60), |it| address_from_host(&place, JOB, it))
            });
            let mut met = zero.join().expect("no panic").expect("the other rank");
            // Served one after another, they would take 25 s.
            assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
            met.tell(&address).expect("it listens");
            let (reply, line) = one.join().expect("no panic").expect("rank 0");
            assert_eq!(reply.to_string(), address.to_string());
            assert!(!met.is_released(), "it has not connected yet");
            drop((line, idle));
            let until = Instant::now() + Duration::from_secs(10);
            while !met.is_released() {
                assert!(Instant::now() < until, "it has ended");
                thread::sleep(POLL_INTERVAL);
            }
        });
    }

    #[test]
    fn listener_other_than_rank_0_is_refused() {
        let line = "machine tcp://127.0.0.1:7";
        for says in [
            "220 mail.example ESMTP\n".to_owned(),
            format!("machine {line}\n"),
            format!("{PROTOCOL} {VERSION} hear 0123\n"),
            format!("{PROTOCOL} {VERSION} tell 0123 {line}\n"),
            String::new(),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let at = listener.local_addr().expect("bound");
            thread::scope(|scope| {
                scope.spawn(|| {
                    let (mut stream, _) = listener.accept().expect("rank 1");
                    let _ = stream.write_all(says.as_bytes());
                });
                let line =
                    uninterrupted(Duration::from_secs(20), |it| address_line_from(at, JOB, it));
                let line = line.expect("nobody interrupts").map(|(line, _)| line);
                let why = line.expect_err("a stranger");
                assert_eq!(why, "whoever listens there is not rank 0 of this job", "{says:?}");
            });
        }
    }

    #[test]
    fn echo_server_and_connection_to_itself_are_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("bound");
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().expect("rank 1");
                let mut again = stream.try_clone().expect("a descriptor");
                // Until the stream ends or is reset.
                let _ = std::io::copy(&mut stream, &mut again);
            });
            let line = uninterrupted(Duration::from_secs(20), |it| address_line_from(at, JOB, it));
            assert!(line.expect("nobody interrupts").is_err());
        });
    }

    #[test]
    fn caller_of_another_version_is_answered_and_turned_away_and_rank_0_waits_on() {
        let place = free();
        const WAIT: Duration = Duration::from_secs(60);
        let warnings = std::sync::Mutex::new(Vec::new());
        thread::scope(|scope| {
            let zero = scope.spawn(|| {
                let warn = |line: &str| warnings.lock().expect("no panic").push(line.to_owned());
                uninterrupted(WAIT, |it| wait_at_host(&place, JOB, it, warn))
            });
            for _ in 0..2 {
                let mut stream = loop {
                    match TcpStream::connect(&*place) {
                        Ok(stream) => break stream,
                        Err(_) => thread::sleep(POLL_INTERVAL),
                    }
                };
                let line = format!("{PROTOCOL} 9 greets 5 x y z\n");
                stream.write_all(line.as_bytes()).expect("it is there");
                let mut answer = String::new();
                stream.read_to_string(&mut answer).expect("it answers, and closes");
                assert!(answer.starts_with(&format!("{PROTOCOL} {VERSION} ")), "{answer}");
            }
            let one = scope.spawn(|| uninterrupted(WAIT, |it| address_from_host(&place, JOB, it)));
            let mut met = zero.join().expect("no panic").expect("a rank of this version");
            met.tell(&"tcp://127.0.0.1:7".parse().expect("an address")).expect("it listens");
            one.join().expect("no panic").expect("rank 0");
        });
        let expected = format!(
            "turned a caller away at {place}: rank 1 speaks version 9 of the rendezvous, this rank \
             version 1: run the same build on both hosts"
        );
        assert_eq!(warnings.into_inner().expect("no panic"), [expected]);
    }

    #[test]
    fn rank_1_ends_with_an_error_if_rank_0_speaks_another_version() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("bound");
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().expect("rank 1");
                stream.write_all(format!("{PROTOCOL} 9 hear 0\n").as_bytes()).expect("it is there");
                // Until rank 1 closes.
                let _ = std::io::copy(&mut stream, &mut std::io::sink());
            });
            let place = at.to_string();
            let reply = uninterrupted(Duration::from_secs(20), |it| {
                address_from_host(&place, JOB, it).map(|_| ())
            });
            let expected = "rank 0 speaks version 9 of the rendezvous, this rank version 1: \
                            run the same build on both hosts";
            assert_eq!(reply.expect_err("another version").to_string(), expected);
        });
        let (reply, _) = parse_line("handover-rendezvous 2 hear 7", "hear", Some("7"));
        assert_eq!(reply, Reply::OtherVersion("2".into()));
    }
}
