//! Two ranks find each other: through a file on one host, or at an address across hosts. The serving one
//! tells where it listens, the other hears it. Neither waits for ever.

use super::ranks::parent_and_start;
use crate::exit::usage;
use anyhow::{Context, bail};
use handover_rpc::{Address, Transport};
use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::rand::{GetRandomFlags, getrandom};
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
        self.calm()?;
        if self.began.elapsed() >= self.wait {
            bail!("{} within {} s", what(), self.wait.as_secs());
        }
        Ok(())
    }

    /// An error when asked to stop.
    fn calm(&self) -> anyhow::Result<()> {
        // Relaxed: a flag alone.
        match self.interrupted.load(Ordering::Relaxed) {
            true => Err(crate::exit::Interrupted.into()),
            false => Ok(()),
        }
    }

    fn left(&self) -> Duration {
        self.wait.saturating_sub(self.began.elapsed())
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
pub fn machine() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    let text = format!("{}{}", read.trim(), namespace.display());
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

// At an address, whoever connects may be anybody, and whoever listens there too: this process itself, even,
// as a port that nobody listens at can be the one that it connects from. So each side says what it speaks and
// which job it is of, and proves by the other's number that it has heard it:
//
//  rank 1                                rank 0
//  ask NUMBER JOB      ───────────────▶
//                      ◀───────────────  hear NUMBER
//  come NUMBER         ───────────────▶
//                      ◀───────────────  tell NUMBER MACHINE ADDRESS

/// What each line begins with, then the version, in whatever version.
const WORD: &str = "handover-rendezvous";
const VERSION: u32 = 1;
/// How long the other side is given for a line that it has no reason to wait with.
const ANSWER: Duration = Duration::from_secs(2);
/// How often is looked whether to stop.
const SLICE: Duration = Duration::from_millis(50);

/// A connection on which ranks meet, and the number that keeps it apart from all others.
#[derive(Debug)]
struct Line {
    stream: TcpStream,
    number: String,
}

/// What came of a line that was waited for.
#[derive(Debug, PartialEq)]
enum Heard {
    /// What follows the words that were expected.
    Rest(String),
    /// It is a rank, of another version.
    OtherVersion(String),
    /// Nothing that a rank says.
    Nothing,
}

impl Line {
    fn say(&mut self, verb: &str, rest: &str) -> std::io::Result<()> {
        let number = &self.number;
        let rest = if rest.is_empty() { String::new() } else { format!(" {rest}") };
        let line = format!("{WORD} {VERSION} {verb} {number}{rest}\n");
        self.stream.write_all(line.as_bytes())
    }

    /// Waits for that verb, with this connection's number.
    fn hear(
        &mut self,
        verb: &str,
        within: Duration,
        patience: Patience<'_>,
    ) -> anyhow::Result<Heard> {
        let Some(line) = line(&mut self.stream, within, patience)? else {
            return Ok(Heard::Nothing);
        };
        Ok(understood(&line, verb, Some(&self.number)).0)
    }
}

/// What a line says, and its number: that verb is expected, and that number, if it is known.
fn understood(line: &str, verb: &str, number: Option<&str>) -> (Heard, String) {
    let mut words = line.splitn(5, ' ');
    let mut next = || words.next().unwrap_or_default();
    let (word, version, its_verb, its_number, rest) = (next(), next(), next(), next(), next());
    let heard = if word != WORD {
        Heard::Nothing
    } else if version != VERSION.to_string() {
        // Only what is a number is shown.
        version.parse::<u32>().map_or(Heard::Nothing, |it| Heard::OtherVersion(it.to_string()))
    } else if its_verb == verb && number.is_none_or(|number| its_number == number) {
        Heard::Rest(rest.to_owned())
    } else {
        Heard::Nothing
    };
    (heard, its_number.to_owned())
}

fn other_version(rank: u32, its: &str) -> anyhow::Error {
    anyhow::anyhow!(
        "rank {rank} speaks version {its} of the rendezvous, this rank version {VERSION}: \
         run the same build on both hosts"
    )
}

/// One line, within that time.
fn line(
    stream: &mut TcpStream,
    within: Duration,
    patience: Patience<'_>,
) -> anyhow::Result<Option<String>> {
    let until = Instant::now() + within.min(patience.left());
    let (mut text, mut byte) = (Vec::new(), [0]);
    while text.len() < TOLD_BYTES_MAX {
        patience.calm()?;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_read_timeout(Some(left.min(SLICE))).is_err() {
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

/// The other rank, met at an address.
#[derive(Debug)]
pub struct Met {
    line: Line,
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
    let mut strangers_count = 0u64;
    loop {
        let absent = || match strangers_count {
            0 => format!("rank 1 has not come to {place}"),
            _ => format!("rank 1 has not come to {place} ({strangers_count} strangers have)"),
        };
        // However many knock.
        patience.check(absent)?;
        match listener.accept() {
            Ok((stream, _)) => match greeted(stream, job, patience)? {
                Some(met) => return Ok(met),
                None => strangers_count += 1,
            },
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock => patience.pause(absent)?,
                // It went away while it waited.
                ErrorKind::ConnectionAborted | ErrorKind::Interrupted => {}
                _ => return Err(error).with_context(|| format!("--rendezvous {place}")),
            },
        }
    }
}

/// Whether that is the other rank: a stranger, or a rank of another job, is sent away.
fn greeted(
    mut stream: TcpStream,
    job: &str,
    patience: Patience<'_>,
) -> anyhow::Result<Option<Met>> {
    if stream.set_nonblocking(false).is_err() {
        return Ok(None);
    }
    let Some(asked) = line(&mut stream, STRANGER, patience)? else { return Ok(None) };
    let (heard, number) = understood(&asked, "ask", None);
    let mut line = Line { stream, number };
    match heard {
        Heard::Rest(its_job) if its_job == job && !line.number.is_empty() => {}
        Heard::OtherVersion(its) => {
            // By which it knows this one's. What it says behind its number may be anything.
            let _ = line.say("hear", "");
            return Err(other_version(1, &its));
        }
        Heard::Rest(_) | Heard::Nothing => return Ok(None),
    }
    // Who has gone away meanwhile does not come.
    let comes =
        line.say("hear", "").is_ok() && line.hear("come", STRANGER, patience)? != Heard::Nothing;
    Ok(comes.then_some(Met { line }))
}

impl Met {
    /// By which address of this host the other rank has reached it.
    pub fn host(&self) -> anyhow::Result<IpAddr> {
        Ok(self.line.stream.local_addr().context("the rendezvous")?.ip())
    }

    /// Tells the other rank where this process listens.
    pub fn tell(mut self, address: &Address) -> anyhow::Result<()> {
        let rest = format!("{} {address}", machine());
        self.line.say("tell", &rest).context("telling rank 1 where to connect")
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
            match told_by(*address, job, patience)? {
                Ok(told) => return reachable(&told),
                Err(stranger) => why = stranger,
            }
        }
        patience.pause(|| format!("rank 0 was not met at {place} ({why})"))?;
    }
}

/// What rank 0 tells, if it is who listens there; why it is not, otherwise.
fn told_by(
    at: SocketAddr,
    job: &str,
    patience: Patience<'_>,
) -> anyhow::Result<Result<String, String>> {
    let stranger = || Ok(Err(String::from("whoever listens there is not rank 0 of this job")));
    let stream = match TcpStream::connect_timeout(&at, Duration::from_secs(1)) {
        Ok(stream) => stream,
        Err(error) => return Ok(Err(error.to_string())),
    };
    if stream.local_addr().ok() == Some(at) {
        return Ok(Err(String::from("nobody listens there")));
    }
    let mut line = Line { stream, number: number()? };
    if line.say("ask", job).is_err() {
        return stranger();
    }
    match line.hear("hear", ANSWER, patience)? {
        Heard::Rest(_) if line.say("come", "").is_ok() => {}
        Heard::OtherVersion(its) => return Err(other_version(0, &its)),
        Heard::Rest(_) | Heard::Nothing => return stranger(),
    }
    match line.hear("tell", patience.left(), patience)? {
        Heard::Rest(told) => Ok(Ok(told)),
        Heard::OtherVersion(_) | Heard::Nothing => bail!("rank 0 is gone, and has told nothing"),
    }
}

/// A number that nobody else has.
fn number() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    getrandom(&mut bytes, GetRandomFlags::empty()).context("a random number")?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

/// Where rank 0 listens, if this process can reach it.
pub fn reachable(told: &str) -> anyhow::Result<Address> {
    let (its, text) = told.split_once(' ').context("rank 0 does not say where it listens")?;
    let address: Address = text.parse()?;
    if address.transport() != Transport::Tcp && its != machine() {
        let how = address.transport();
        return Err(usage(format!("-n {how}://: the ranks are on different hosts; take tcp://")));
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const JOB: &str = "program.17";

    fn calm<T>(wait: Duration, with: impl FnOnce(Patience<'_>) -> T) -> T {
        let never = AtomicBool::new(false);
        with(Patience::new(wait, &never))
    }

    /// A place where nobody listens, and no other test does.
    fn free() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("bound").to_string()
    }

    fn met_at(place: &str, job: &str, wait: Duration) -> anyhow::Result<Address> {
        let address: Address = "tcp://127.0.0.1:7".parse()?;
        thread::scope(|scope| {
            let zero = scope
                .spawn(|| calm(wait, |patience| wait_at(place, JOB, patience)?.tell(&address)));
            let heard = calm(wait, |patience| hear_at(place, job, patience));
            zero.join().expect("no panic").and(heard)
        })
    }

    #[test]
    fn ranks_of_one_job_meet_and_those_of_two_do_not() {
        let met = met_at(&free(), JOB, Duration::from_secs(20)).expect("they meet");
        assert_eq!(met.to_string(), "tcp://127.0.0.1:7");
        let place = free();
        let apart = met_at(&place, "program.18", Duration::from_millis(300));
        let said = apart.expect_err("another job").to_string();
        assert!(said.starts_with(&format!("rank 1 has not come to {place} (")), "{said}");
    }

    #[test]
    fn strangers_who_knock_and_knock_do_not_use_up_more_than_the_patience() {
        let place = free();
        let over = AtomicBool::new(false);
        let began = Instant::now();
        let refused = thread::scope(|scope| {
            scope.spawn(|| {
                // Relaxed: a flag alone.
                while !over.load(Ordering::Relaxed) {
                    if let Ok(mut stream) = TcpStream::connect(&*place) {
                        let _ = stream.write_all(b"GET / HTTP/1.1\r\n\r\n");
                    }
                }
            });
            let refused = calm(Duration::from_millis(200), |it| wait_at(&place, JOB, it));
            over.store(true, Ordering::Relaxed);
            refused.map(|_| ())
        });
        let said = refused.expect_err("only strangers").to_string();
        assert!(said.contains("strangers have) within 0 s"), "{said}");
        assert!(began.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn whoever_listens_there_and_is_not_rank_0_is_not_believed() {
        let told = "machine tcp://127.0.0.1:7";
        for says in [
            "220 mail.example ESMTP\n".to_owned(),
            format!("machine {told}\n"),
            format!("{WORD} {VERSION} hear 0123\n"),
            format!("{WORD} {VERSION} tell 0123 {told}\n"),
            String::new(),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let at = listener.local_addr().expect("bound");
            thread::scope(|scope| {
                scope.spawn(|| {
                    let (mut stream, _) = listener.accept().expect("rank 1");
                    let _ = stream.write_all(says.as_bytes());
                });
                let told = calm(Duration::from_secs(20), |it| told_by(at, JOB, it));
                let why = told.expect("nobody interrupts").expect_err("a stranger");
                assert_eq!(why, "whoever listens there is not rank 0 of this job", "{says:?}");
            });
        }
    }

    #[test]
    fn an_echo_and_a_connection_to_itself_are_not_believed() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("bound");
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().expect("rank 1");
                let mut again = stream.try_clone().expect("a descriptor");
                // To its end, or until it is reset.
                let _ = std::io::copy(&mut stream, &mut again);
            });
            let told = calm(Duration::from_secs(20), |it| told_by(at, JOB, it));
            assert!(told.expect("nobody interrupts").is_err());
        });
    }

    #[test]
    fn ranks_of_two_versions_tell_each_other() {
        let place = free();
        thread::scope(|scope| {
            let zero = scope.spawn(|| calm(Duration::from_secs(20), |it| wait_at(&place, JOB, it)));
            let mut stream = loop {
                match TcpStream::connect(&*place) {
                    Ok(stream) => break stream,
                    Err(_) => thread::sleep(LOOK),
                }
            };
            stream.write_all(format!("{WORD} 9 greets 5 x y z\n").as_bytes()).expect("it is there");
            let said = zero.join().expect("no panic").map(|_| ()).expect_err("another version");
            let expected = "rank 1 speaks version 9 of the rendezvous, this rank version 1: \
                            run the same build on both hosts";
            assert_eq!(said.to_string(), expected);
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("it answers, and closes");
            assert!(answer.starts_with(&format!("{WORD} {VERSION} ")), "{answer}");
        });
        let (heard, _) = understood("handover-rendezvous 2 hear 7", "hear", Some("7"));
        assert_eq!(heard, Heard::OtherVersion("2".into()));
    }
}
