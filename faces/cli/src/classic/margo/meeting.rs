//! Two ranks find each other: through a file on one host, or at an address across hosts. The serving one
//! tells where it listens, the other hears it. Neither waits for ever.

use super::ranks::parent_and_start;
use crate::exit::usage;
use anyhow::{Context, bail};
use handover_rpc::{Address, Transport};
use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often is looked for what does not say when it comes.
const LOOK: Duration = Duration::from_millis(2);
/// What is told at most: a word, a job, a machine, an address.
const TOLD_BYTES_MAX: usize = 1024;
/// How long a stranger who connects may keep the place where the ranks meet.
const STRANGER: Duration = Duration::from_millis(500);

/// Until when, unless asked to stop before.
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

    /// An error when it is over; a moment's pause otherwise.
    pub fn pause(&self, what: impl FnOnce() -> String) -> anyhow::Result<()> {
        self.check(what)?;
        std::thread::sleep(LOOK);
        Ok(())
    }

    pub fn check(&self, what: impl FnOnce() -> String) -> anyhow::Result<()> {
        // Relaxed: a flag alone.
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(crate::exit::Interrupted.into());
        }
        if self.began.elapsed() >= self.wait {
            bail!("{} within {} s", what(), self.wait.as_secs());
        }
        Ok(())
    }
}

/// A file where ranks of one host meet: in a folder that is this user's alone, named by the job.
#[derive(Debug)]
pub struct Place {
    folder: OwnedFd,
    path: PathBuf,
    name: String,
}

/// What was written into a file: it goes when it has been read, or with this.
#[derive(Debug)]
pub struct Told<'a> {
    place: &'a Place,
    inode: u64,
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        // Whoever has read it has removed it; by now there may be another's.
        let name = self.place.name.as_str();
        let is = fs::statat(&self.place.folder, name, AtFlags::SYMLINK_NOFOLLOW);
        if is.is_ok_and(|is| is.st_ino == self.inode) {
            let _ = fs::unlinkat(&self.place.folder, name, AtFlags::empty());
        }
    }
}

impl Place {
    /// The place of that job. `program` keeps those of one job apart that run one after the other.
    pub fn of(program: &str, job: &str) -> anyhow::Result<Place> {
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
        Ok(Place { folder, path: path.join(&name), name })
    }

    /// Tells where this process listens.
    pub fn tell(&self, address: &Address) -> anyhow::Result<Told<'_>> {
        let (me, text) = (std::process::id(), address.to_string());
        let started = parent_and_start(me).map_or(0, |it| it.1);
        let line = format!("handover {me} {started} {text}\n");
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = loop {
            match fs::openat(&self.folder, self.name.as_str(), flags, mode) {
                Ok(file) => break file,
                // Of a job that was killed, whose name has come back?
                Err(Errno::EXIST) if self.hear_once()?.is_none() && self.is_stale() => {
                    let _ = fs::unlinkat(&self.folder, self.name.as_str(), AtFlags::empty());
                }
                Err(Errno::EXIST) => {
                    bail!("{}: another rank 0 of this job waits there", self.path.display())
                }
                Err(errno) => bail!("{}: cannot be made: {errno}", self.path.display()),
            }
        };
        let inode = fs::fstat(&file).context("fstat")?.st_ino;
        let told = Told { place: self, inode };
        std::fs::File::from(file)
            .write_all(line.as_bytes())
            .with_context(|| format!("{}: cannot be written", self.path.display()))?;
        Ok(told)
    }

    /// Waits until somebody tells, and removes what was told.
    pub fn hear(&self, patience: Patience<'_>) -> anyhow::Result<Address> {
        loop {
            if let Some(address) = self.hear_once()? {
                let _ = fs::unlinkat(&self.folder, self.name.as_str(), AtFlags::empty());
                return Ok(address);
            }
            patience.pause(|| {
                let path = self.path.display();
                format!("rank 0 has not come to {path} (on another host? --rendezvous HOST:PORT)")
            })?;
        }
    }

    /// What a process tells that is alive.
    fn hear_once(&self) -> anyhow::Result<Option<Address>> {
        let Some((pid, started, text)) = self.read()? else { return Ok(None) };
        match parent_and_start(pid) {
            Some((_, its)) if its == started => Ok(Some(text.parse()?)),
            _ => Ok(None),
        }
    }

    /// Whether who has written it is gone.
    fn is_stale(&self) -> bool {
        let read = self.read();
        matches!(read, Ok(Some((pid, started, _)))
            if parent_and_start(pid).is_none_or(|(_, its)| its != started))
    }

    /// Who tells what; nothing while there is no whole line.
    fn read(&self) -> anyhow::Result<Option<(u32, u64, String)>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = match fs::openat(&self.folder, self.name.as_str(), flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => bail!("{}: {errno}", self.path.display()),
        };
        let stat = fs::fstat(&file).context("fstat")?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !is_file || stat.st_uid != geteuid().as_raw() || stat.st_mode & 0o077 != 0 {
            bail!("{}: not a file of this user alone", self.path.display());
        }
        let mut text = String::new();
        let file = std::fs::File::from(file);
        file.take(TOLD_BYTES_MAX as u64).read_to_string(&mut text).context("reading it")?;
        Ok(text.strip_suffix('\n').and_then(|line| {
            let mut words = line.splitn(4, ' ');
            let (b"handover", pid, started, rest) =
                (words.next()?.as_bytes(), words.next()?, words.next()?, words.next()?)
            else {
                return None;
            };
            Some((pid.parse().ok()?, started.parse().ok()?, rest.to_owned()))
        }))
    }
}

/// A folder that is this user's, and that nobody else may enter.
fn folder(path: &Path) -> anyhow::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    let shown = path.display();
    let folder = fs::openat(CWD, path, flags, Mode::empty())
        .map_err(|errno| anyhow::anyhow!("{shown}: {errno}"))?;
    let stat = fs::fstat(&folder).context("fstat")?;
    if stat.st_uid != geteuid().as_raw() {
        bail!("{shown}: belongs to user {}; set XDG_RUNTIME_DIR to a folder of yours", stat.st_uid);
    }
    if stat.st_mode & 0o077 != 0 {
        bail!("{shown}: others may enter it; chmod 700 {shown}");
    }
    Ok(folder)
}

/// What says which machine this is, for as long as it runs.
fn machine() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    let text = format!("{}{}", read.trim(), namespace.display());
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

/// The other rank, met at an address.
#[derive(Debug)]
pub struct Met {
    stream: TcpStream,
}

/// Rank 0 waits at that address for the other rank of its job.
pub fn wait_at(place: &str, job: &str, patience: Patience<'_>) -> anyhow::Result<Met> {
    let listener = TcpListener::bind(place).map_err(|error| match error.kind() {
        ErrorKind::AddrNotAvailable => {
            usage(format!("--rendezvous {place}: not an address of this host, rank 0's: {error}"))
        }
        ErrorKind::InvalidInput => usage(format!("--rendezvous {place}: {error}")),
        _ => anyhow::anyhow!("--rendezvous {place}: {error}"),
    })?;
    listener.set_nonblocking(true).context("the rendezvous")?;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                if let Some(met) = greeted(stream, job) {
                    return Ok(met);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                patience.pause(|| format!("rank 1 has not come to {place}"))?;
            }
            Err(error) => return Err(error).with_context(|| format!("--rendezvous {place}")),
        }
    }
}

/// Whether that is the other rank: a stranger, or a rank of another job, is sent away.
fn greeted(mut stream: TcpStream, job: &str) -> Option<Met> {
    stream.set_nonblocking(false).ok()?;
    let line = line(&mut stream, STRANGER)?;
    (line == format!("handover {job}")).then_some(Met { stream })
}

/// One line, within that time.
fn line(stream: &mut TcpStream, within: Duration) -> Option<String> {
    let until = Instant::now() + within;
    let (mut text, mut byte) = (Vec::new(), [0]);
    while text.len() < TOLD_BYTES_MAX {
        let left = until.checked_duration_since(Instant::now()).filter(|it| !it.is_zero())?;
        stream.set_read_timeout(Some(left)).ok()?;
        match stream.read(&mut byte) {
            Ok(1) if byte == *b"\n" => return String::from_utf8(text).ok(),
            Ok(1) => text.push(byte[0]),
            Ok(_) => return None,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    None
}

impl Met {
    /// By which address of this host the other rank has reached it.
    pub fn host(&self) -> anyhow::Result<IpAddr> {
        Ok(self.stream.local_addr().context("the rendezvous")?.ip())
    }

    /// Tells the other rank where this process listens.
    pub fn tell(mut self, address: &Address) -> anyhow::Result<()> {
        let line = format!("{} {address}\n", machine());
        self.stream.write_all(line.as_bytes()).context("telling rank 1 where to connect")
    }
}

/// The other rank hears where rank 0 listens.
pub fn hear_at(place: &str, job: &str, patience: Patience<'_>) -> anyhow::Result<Address> {
    let found = place.to_socket_addrs();
    let found = found.map_err(|error| usage(format!("--rendezvous {place}: {error}")))?;
    let addresses: Vec<SocketAddr> = found.collect();
    loop {
        let mut why = String::from("no address");
        for address in &addresses {
            match TcpStream::connect_timeout(address, Duration::from_secs(1)) {
                Ok(mut stream) => {
                    let greeting = format!("handover {job}\n");
                    if stream.write_all(greeting.as_bytes()).is_ok()
                        && let Some(line) = line(&mut stream, patience.wait)
                    {
                        return understood(&line);
                    }
                    why = String::from("whoever listens there is not rank 0 of this job");
                }
                Err(error) => why = error.to_string(),
            }
        }
        patience.pause(|| format!("rank 0 was not met at {place} ({why})"))?;
    }
}

fn understood(line: &str) -> anyhow::Result<Address> {
    let (its, text) = line.split_once(' ').context("rank 0 does not say where it listens")?;
    let address: Address = text.parse()?;
    if address.transport() != Transport::Tcp && its != machine() {
        let how = address.transport();
        return Err(usage(format!("-n {how}://: the ranks are on different hosts; take tcp://")));
    }
    Ok(address)
}
