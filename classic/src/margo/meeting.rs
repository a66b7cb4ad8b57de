//! Exchange of an address between two ranks, through a file on one host, or at an address across
//! hosts: rank 0 sends the address on which it listens to rank 1. Every wait has a time limit.

use crate::load::process;
use crate::ranks::parent_and_start_ticks;
use anyhow::{Context as _, bail};
use handover_program::exit::to_usage_error;
use handover_rpc::{
    Address, CallError, Calling, CloseReason, Config, ConnectionsConfig, Context, Endpoint,
    EndpointError, Failure, FrameError, Method, Peer, Transport,
};
use rustix::fs::{self, AtFlags, CWD, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Polling interval for events without a notification.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Interval between checks for an interrupt.
const INTERRUPT_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum size of the line in a meeting file. The line has a word, a process id and its start
/// time, and an address.
const LINE_BYTES_MAX: usize = 1024;

/// Time limit of a wait, which an interrupt ends early.
#[derive(Debug, Clone, Copy)]
pub struct WaitLimit<'a> {
    began: Instant,
    /// Maximum duration of the wait.
    wait_max: Duration,
    interrupted: &'a AtomicBool,
}

impl<'a> WaitLimit<'a> {
    /// Starts a wait of at most `wait_max`.
    pub fn new(wait_max: Duration, interrupted: &'a AtomicBool) -> Self {
        WaitLimit { began: Instant::now(), wait_max, interrupted }
    }

    /// Sleeps for `POLL_INTERVAL`. Returns an error instead if the limit is reached or the process
    /// was interrupted.
    pub fn sleep_or_fail(&self, failure: impl FnOnce() -> String) -> anyhow::Result<()> {
        self.check(failure)?;
        std::thread::sleep(POLL_INTERVAL);
        Ok(())
    }

    /// Returns an error if the limit is reached or the process was interrupted.
    pub fn check(&self, failure: impl FnOnce() -> String) -> anyhow::Result<()> {
        super::check_interrupt(self.interrupted, false)?;
        if self.began.elapsed() >= self.wait_max {
            bail!(
                "{failure} within {wait_s} s",
                failure = failure(),
                wait_s = self.wait_max.as_secs()
            );
        }
        Ok(())
    }

    /// Returns the time until the limit is reached.
    fn remaining(&self) -> Duration {
        self.wait_max.saturating_sub(self.began.elapsed())
    }
}

/// File through which rank 0 tells its address to rank 1 on the same host. It is named after the
/// job, in a folder private to this user.
#[derive(Debug)]
pub struct MeetingFile {
    /// Descriptor of the folder.
    folder: OwnedFd,
    /// Path of the file, for messages.
    path: PathBuf,
    /// Name of the file in the folder.
    name: String,
}

/// Meeting file that contains the address of rank 0. Rank 1 locks it, removes its name, and keeps
/// it open until it has connected. Dropping this removes the name too.
#[derive(Debug)]
pub struct PublishedAddress<'a> {
    meeting_file: &'a MeetingFile,
    file: File,
}

impl PublishedAddress<'_> {
    /// Returns `true` if rank 1 has read the address and closed the file. Rank 1 has then
    /// connected, or it has exited.
    pub fn is_released(&self) -> bool {
        let has_been_read = fs::fstat(&self.file).is_ok_and(|it| it.st_nlink == 0);
        has_been_read && fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok()
    }
}

impl Drop for PublishedAddress<'_> {
    fn drop(&mut self) {
        // A rank that has read the file has removed its name; another job's file may have the name
        // by now.
        let name = self.meeting_file.name.as_str();
        let there = fs::statat(&self.meeting_file.folder, name, AtFlags::SYMLINK_NOFOLLOW);
        let own = fs::fstat(&self.file);
        if there.is_ok_and(|there| own.is_ok_and(|own| own.st_ino == there.st_ino)) {
            let _ = fs::unlinkat(&self.meeting_file.folder, name, AtFlags::empty());
        }
    }
}

impl MeetingFile {
    /// Returns the meeting file of a job. `program` separates programs that run one after another
    /// in one job.
    pub fn for_job(program: &str, job: &str) -> anyhow::Result<MeetingFile> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let private =
            runtime.and_then(|path| open_private_folder(&path).ok().map(|folder| (path, folder)));
        let (path, folder) = match private {
            Some(found) => found,
            None => {
                let name = format!("handover-{}", geteuid().as_raw());
                let path = std::env::temp_dir().join(name);
                match fs::mkdirat(CWD, &path, Mode::RWXU) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => bail!("cannot create {path}: {errno}", path = path.display()),
                }
                let folder = open_private_folder(&path)?;
                (path, folder)
            }
        };
        let name = format!("{program}.{job}");
        Ok(MeetingFile { folder, path: path.join(&name), name })
    }

    /// Creates the file, and writes the address of rank 0 to it.
    pub fn publish(&self, address: &Address) -> anyhow::Result<PublishedAddress<'_>> {
        let process_id = std::process::id();
        let start_ticks = parent_and_start_ticks(process_id).map_or(0, |it| it.1);
        let line = format!("handover {process_id} {start_ticks} {address}\n");
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = loop {
            match fs::openat(&self.folder, self.name.as_str(), flags, mode) {
                Ok(file) => break File::from(file),
                // The file may be left from a job that was killed, whose name has been reused.
                Err(Errno::EXIST)
                    if self.read()?.is_some_and(|(record, _)| record.has_writer_exited()) =>
                {
                    let _ = fs::unlinkat(&self.folder, self.name.as_str(), AtFlags::empty());
                }
                Err(Errno::EXIST) => {
                    let path = self.path.display();
                    bail!("{path}: another rank 0 of this job waits for rank 1")
                }
                Err(errno) => bail!("cannot create {path}: {errno}", path = self.path.display()),
            }
        };
        let mut published = PublishedAddress { meeting_file: self, file };
        published.file.write_all(line.as_bytes()).with_context(|| {
            format!("cannot write the address to {path}", path = self.path.display())
        })?;
        Ok(published)
    }

    /// Waits for rank 0 to write its address, and removes the name of the file. The caller keeps
    /// the descriptor until this rank has connected: closing it signals to rank 0 that this rank
    /// has exited.
    pub fn wait_for_address(&self, limit: WaitLimit<'_>) -> anyhow::Result<(Address, OwnedFd)> {
        loop {
            if let Some((address, file)) = self.read_address()? {
                // Fails on a file system without locks; rank 0 then waits until its own time limit.
                let _ = fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
                let _ = fs::unlinkat(&self.folder, self.name.as_str(), AtFlags::empty());
                return Ok((address, file));
            }
            limit.sleep_or_fail(|| {
                let path = self.path.display();
                format!("rank 0 has not written its address to {path} (if it is on another host, use --rendezvous HOST:PORT)")
            })?;
        }
    }

    /// Reads the address of rank 0 without waiting for it. Returns `None` if the file has none, or
    /// the writer has exited.
    fn read_address(&self) -> anyhow::Result<Option<(Address, OwnedFd)>> {
        match self.read()? {
            Some((record, file)) if !record.has_writer_exited() => {
                Ok(Some((record.address.parse()?, file)))
            }
            _ => Ok(None),
        }
    }

    /// Reads the record in the file; also returns the open file. Returns `None` while the file
    /// contains no complete line.
    fn read(&self) -> anyhow::Result<Option<(AddressRecord, OwnedFd)>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = match fs::openat(&self.folder, self.name.as_str(), flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => bail!("cannot open {path}: {errno}", path = self.path.display()),
        };
        let stat = fs::fstat(&file).context("cannot read the owner of the meeting file")?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !is_file || stat.st_uid != geteuid().as_raw() || stat.st_mode & 0o077 != 0 {
            bail!(
                "{}: not a regular file that this user alone owns and may access",
                self.path.display()
            );
        }
        let mut text = String::new();
        let mut bounded = File::from(file).take(LINE_BYTES_MAX as u64);
        bounded.read_to_string(&mut text).context("cannot read the meeting file")?;
        let file = OwnedFd::from(bounded.into_inner());
        Ok(text.strip_suffix('\n').and_then(|line| {
            let mut words = line.splitn(4, ' ');
            let (b"handover", pid, start_ticks, rest) =
                (words.next()?.as_bytes(), words.next()?, words.next()?, words.next()?)
            else {
                return None;
            };
            let (pid, start_ticks) = (pid.parse().ok()?, start_ticks.parse().ok()?);
            Some((AddressRecord { pid, start_ticks, address: rest.to_owned() }, file))
        }))
    }
}

/// Content of a meeting file: the process of rank 0, and its address.
struct AddressRecord {
    pid: u32,
    /// Start time of the process, in ticks since boot.
    start_ticks: u64,
    /// Address as text.
    address: String,
}

impl AddressRecord {
    /// Returns `true` if the process that wrote the record has exited.
    fn has_writer_exited(&self) -> bool {
        parent_and_start_ticks(self.pid).is_none_or(|(_, started)| started != self.start_ticks)
    }
}

/// Opens a folder that must belong to this user and be closed to other users.
fn open_private_folder(path: &Path) -> anyhow::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    let folder_path = path.display();
    let folder = fs::openat(CWD, path, flags, Mode::empty())
        .map_err(|errno| anyhow::anyhow!("cannot open the folder {folder_path}: {errno}"))?;
    let stat = fs::fstat(&folder)
        .with_context(|| format!("cannot read the owner of the folder {folder_path}"))?;
    if stat.st_uid != geteuid().as_raw() {
        let owner = stat.st_uid;
        bail!("{folder_path}: belongs to user {owner}; set XDG_RUNTIME_DIR to a folder of yours");
    }
    if stat.st_mode & 0o077 != 0 {
        bail!("{folder_path}: other users may enter it; run: chmod 700 {folder_path}");
    }
    Ok(folder)
}

/// Returns an identifier of this machine and network namespace, valid until the next boot.
pub fn machine_id() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    let text = format!("{}{}", read.trim(), namespace.display());
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

/// Remote procedure of rank 0 that returns its machine and its address. Rank 1 of the same job
/// calls it.
const MEET: Method = Method::new("meet");
/// Time limit for connecting to the rendezvous.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Creates an endpoint without encryption, which is used for the meeting only.
fn meeting_endpoint() -> anyhow::Result<Endpoint> {
    let limits = ConnectionsConfig::default().handshake_timeout(CONNECT_TIMEOUT);
    Ok(Endpoint::new(Config::default().connections(limits))?)
}

/// Connection of rank 1 to the rendezvous. Rank 1 keeps it open until it has connected to the
/// address that it received.
#[derive(Debug)]
pub struct RankConnection {
    endpoint: Endpoint,
    peer: Peer,
}

impl RankConnection {
    /// Returns `true` if rank 1 has closed this connection. Rank 1 has then connected to the
    /// address, or it has exited.
    pub fn is_released(&mut self) -> bool {
        self.endpoint.progress(Duration::ZERO);
        !self.endpoint.is_connected(self.peer)
    }
}

/// Listens at `rendezvous` until rank 1 of the job has connected, and sends `address` to it. Called
/// by rank 0.
pub fn wait_at_host(
    rendezvous: &str,
    job: &str,
    address: &Address,
    limit: WaitLimit<'_>,
) -> anyhow::Result<RankConnection> {
    let mut endpoint = meeting_endpoint()?;
    let met = Arc::new(OnceLock::new());
    let (own_job, line) = (job.to_owned(), format!("{} {address}", machine_id()));
    let comes = Arc::clone(&met);
    endpoint.register("meet", 0, move |context: &mut Context<'_>, job: String| {
        if job != own_job {
            return Err(Failure::new(
                1,
                format!(
                    "rank 0 at the rendezvous belongs to job {own_job}, but this rank to job {job}"
                ),
            ));
        }
        comes.get_or_init(|| context.peer());
        Ok(line.clone())
    })?;
    endpoint.listen(&Address::Tcp(rendezvous.to_owned())).map_err(|error| {
        let is_foreign = match &error {
            EndpointError::HostUnresolved { .. } => true,
            EndpointError::SystemCall { error, .. } => {
                error.kind() == io::ErrorKind::AddrNotAvailable
            }
            _ => false,
        };
        match is_foreign {
            true => to_usage_error(format!(
                "--rendezvous {rendezvous}: rank 0 cannot listen there, as it is not an address of this host: {error}"
            )),
            false => anyhow::anyhow!("--rendezvous {rendezvous}: rank 0 cannot listen there: {error}"),
        }
    })?;
    loop {
        if let Some(peer) = met.get() {
            return Ok(RankConnection { endpoint, peer: *peer });
        }
        limit.check(|| format!("rank 1 has not connected to {rendezvous}"))?;
        endpoint.progress(INTERRUPT_CHECK_INTERVAL.min(limit.remaining()));
    }
}

/// Requests, as rank 1, the address of rank 0 from rank 0 itself, which listens at `rendezvous`.
/// The caller keeps the returned endpoint until it has connected to the address: closing the
/// endpoint signals to rank 0 that this rank has exited.
pub fn address_from_host(
    rendezvous: &str,
    job: &str,
    limit: WaitLimit<'_>,
) -> anyhow::Result<(Address, Endpoint)> {
    let mut why = String::from("no socket listens there");
    loop {
        if !is_safe_to_connect(rendezvous) {
            limit.sleep_or_fail(|| format!("rank 0 does not answer at {rendezvous} ({why})"))?;
            continue;
        }
        let mut endpoint = meeting_endpoint()?;
        match endpoint.connect(&Address::Tcp(rendezvous.to_owned())) {
            Ok(peer) => match endpoint.call_within::<_, String>(peer, MEET, job, limit.remaining())
            {
                Ok(line) => return Ok((parse_reachable_address(&line)?, endpoint)),
                // The time is over: an earlier answer says more.
                Err(CallError::Deadline) => {}
                Err(error) => why = error.to_string(),
            },
            Err(EndpointError::HostUnresolved { error, .. }) => {
                return Err(to_usage_error(format!(
                    "--rendezvous {rendezvous}: cannot resolve the host: {error}"
                )));
            }
            Err(
                error @ EndpointError::Handshake {
                    why: CloseReason::Protocol(FrameError::Version { .. }),
                    ..
                },
            ) => {
                return Err(anyhow::Error::new(error)
                    .context("the ranks run different builds; run the same build on both hosts"));
            }
            Err(error) => why = error.to_string(),
        }
        limit.sleep_or_fail(|| format!("rank 0 does not answer at {rendezvous} ({why})"))?;
    }
}

/// Returns `false` if `rendezvous` is a local address at which no socket listens. Connecting to an
/// unused local port can select that same port as the source port (a TCP self-connect), and rank 0
/// then cannot bind it for about a minute.
fn is_safe_to_connect(rendezvous: &str) -> bool {
    local_address_towards(rendezvous)
        .map_or(true, |(own, to)| own != to.ip() || process::is_listening(to.port()))
}

/// Returns the local address from which this host reaches `remote`, and the address of `remote`.
/// Nothing is sent.
pub fn local_address_towards(remote: impl ToSocketAddrs) -> io::Result<(IpAddr, SocketAddr)> {
    let mut refused = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in remote.to_socket_addrs()? {
        let any: SocketAddr =
            if address.is_ipv4() { ([0; 4], 0).into() } else { ([0; 16], 0).into() };
        let socket = UdpSocket::bind(any)?;
        match socket.connect(address) {
            Ok(()) => return Ok((socket.local_addr()?.ip(), address)),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

/// Parses the address of rank 0, and checks that this process can reach it.
pub fn parse_reachable_address(line: &str) -> anyhow::Result<Address> {
    let (machine_0, text) = line
        .split_once(' ')
        .with_context(|| format!("cannot parse the address of rank 0 in {line:?}"))?;
    let address: Address = text.parse()?;
    let spans_hosts =
        matches!(address.transport(), Transport::Tcp | Transport::Tls | Transport::Ucx);
    if !spans_hosts && machine_0 != machine_id() {
        let how = address.transport();
        return Err(to_usage_error(format!(
            "-n {how}://: the ranks are on different hosts; use tls://, tcp:// or ucx://"
        )));
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::sync::atomic::{AtomicU8, Ordering};
    use std::thread;

    const JOB: &str = "program.17";
    const ADDRESS: &str = "tcp://127.0.0.1:7";

    fn uninterrupted<T>(wait: Duration, with: impl FnOnce(WaitLimit<'_>) -> T) -> T {
        let never = AtomicBool::new(false);
        with(WaitLimit::new(wait, &never))
    }

    /// Returns an unused address, on a loopback IP that no other process uses.
    fn free() -> String {
        static COUNT: AtomicU8 = AtomicU8::new(1);
        // Relaxed: a counter.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let listener =
            TcpListener::bind((Ipv4Addr::new(127, number, high, low), 0)).expect("bind a port");
        listener.local_addr().expect("bound").to_string()
    }

    fn wait_as_rank_0(place: &str, wait: Duration) -> anyhow::Result<RankConnection> {
        let address = ADDRESS.parse()?;
        uninterrupted(wait, |it| wait_at_host(place, JOB, &address, it))
    }

    /// Answers rank 1 until it has its address.
    fn tell_as_rank_0(place: &str, wait: Duration) -> anyhow::Result<()> {
        let mut met = wait_as_rank_0(place, wait)?;
        while !met.is_released() {
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    fn met_at(place: &str, job: &str, wait: Duration) -> anyhow::Result<Address> {
        thread::scope(|scope| {
            let zero = scope.spawn(|| tell_as_rank_0(place, wait));
            let reply = uninterrupted(wait, |it| address_from_host(place, job, it));
            let reply = reply.map(|(address, _)| address);
            zero.join().expect("the other thread panicked").and(reply)
        })
    }

    #[test]
    fn ranks_of_one_job_meet_and_ranks_of_two_jobs_do_not() {
        let met = met_at(&free(), JOB, Duration::from_secs(20)).expect("they meet");
        assert_eq!(met.to_string(), ADDRESS);
        let place = free();
        let apart = met_at(&place, "program.18", Duration::from_millis(300));
        let said = apart.expect_err("another job").to_string();
        assert!(said.starts_with(&format!("rank 1 has not connected to {place} within")), "{said}");
        let (address, over) =
            (ADDRESS.parse().expect("cannot parse the address"), AtomicBool::new(false));
        let limit = WaitLimit::new(Duration::from_secs(60), &over);
        let said = thread::scope(|scope| {
            scope.spawn(|| wait_at_host(&place, JOB, &address, limit).map(drop));
            let port = place
                .rsplit_once(':')
                .expect("find the port in the address")
                .1
                .parse()
                .expect("parse the port");
            while !process::is_listening(port) {
                thread::sleep(POLL_INTERVAL);
            }
            // Far longer than the answer takes.
            let wait = Duration::from_secs(3);
            let said =
                uninterrupted(wait, |it| address_from_host(&place, "program.18", it).map(drop));
            // Relaxed: the flag publishes no other data.
            over.store(true, Ordering::Relaxed);
            said
        });
        let said = said.expect_err("another job").to_string();
        let why =
            "rank 0 at the rendezvous belongs to job program.17, but this rank to job program.18";
        assert!(said.contains(why) && said.ends_with("within 3 s"), "{said}");
    }

    #[test]
    fn strangers_neither_extend_the_time_limit_nor_delay_the_other_rank() {
        let place = free();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                // Relaxed: the flag publishes no other data.
                while !over.load(Ordering::Relaxed) {
                    if let Ok(mut stream) = TcpStream::connect(&*place) {
                        let _ = stream.write_all(b"GET / HTTP/1.1\r\n\r\n");
                    }
                }
            });
            let refused = wait_as_rank_0(&place, Duration::from_secs(2)).map(drop);
            let said = refused.expect_err("only strangers").to_string();
            assert!(said.ends_with("within 2 s"), "{said}");
            over.store(true, Ordering::Relaxed);
        });
        let (place, wait) = (free(), Duration::from_secs(60));
        thread::scope(|scope| {
            let zero = scope.spawn(|| wait_as_rank_0(&place, wait));
            let idle: Vec<TcpStream> = std::iter::repeat_with(|| TcpStream::connect(&*place))
                .filter_map(Result::ok)
                .take(50)
                .collect();
            let one = scope.spawn(|| uninterrupted(wait, |it| address_from_host(&place, JOB, it)));
            let mut met = zero.join().expect("the other thread panicked").expect("the other rank");
            while !one.is_finished() {
                assert!(!met.is_released(), "released before rank 1 dropped its endpoint");
            }
            let (reply, endpoint) = one.join().expect("the other thread panicked").expect("rank 0");
            assert_eq!(reply.to_string(), ADDRESS);
            assert!(!met.is_released(), "released before rank 1 dropped its endpoint");
            drop((endpoint, idle));
            while !met.is_released() {
                thread::sleep(POLL_INTERVAL);
            }
        });
    }

    #[test]
    fn rank_1_reports_a_listener_that_is_not_rank_0() {
        let place = free();
        let listener = TcpListener::bind(&*place).expect("bind a port");
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().expect("rank 1");
                let _ = stream.write_all(&[b'x'; 4096]);
                let _ = std::io::copy(&mut stream, &mut std::io::sink());
            });
            let wait = Duration::from_millis(500);
            let refused = uninterrupted(wait, |it| address_from_host(&place, JOB, it).map(drop));
            let said = refused.expect_err("no rank 0").to_string();
            assert!(said.starts_with(&format!("rank 0 does not answer at {place} (")), "{said}");
        });
    }
}
