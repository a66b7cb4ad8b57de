//! What a process uses, who serves at an address, and what the kernel keeps for connections: read from
//! /proc.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// What a process has used so far, or now has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Used {
    /// CPU time in its own code.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// Memory that is its own: neither files nor shared.
    pub anon_bytes: u64,
    /// All memory that is there.
    pub resident_bytes: u64,
}

impl Used {
    /// User and system time together.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        self.user + self.system
    }

    /// Both together, as of several processes.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            user: self.user + other.user,
            system: self.system + other.system,
            anon_bytes: self.anon_bytes + other.anon_bytes,
            resident_bytes: self.resident_bytes + other.resident_bytes,
        }
    }
}

/// How /proc counts CPU time: in hundredths of a second, on every Linux of today.
const TICK: Duration = Duration::from_millis(10);

/// What that process uses; None where it is gone, or not ours to look at.
#[must_use]
pub fn used(process: u32) -> Option<Used> {
    let folder = Path::new("/proc").join(process.to_string());
    let stat = fs::read_to_string(folder.join("stat")).ok()?;
    let status = fs::read_to_string(folder.join("status")).ok()?;
    let (user, system) = cpu_of(&stat)?;
    Some(Used {
        user,
        system,
        anon_bytes: kib(&status, "RssAnon:").unwrap_or(0),
        resident_bytes: kib(&status, "VmRSS:").unwrap_or(0),
    })
}

/// CPU times in /proc's `stat`, whatever the name of the process holds.
fn cpu_of(stat: &str) -> Option<(Duration, Duration)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u32>().ok().map(|ticks| TICK * ticks);
    Some((next()?, next()?))
}

/// What a line says in kB, in bytes.
fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// CPU times of those threads of a process whose names begin so.
#[must_use]
pub fn threads_cpu(process: u32, name: &str) -> Duration {
    let folder = Path::new("/proc").join(process.to_string()).join("task");
    let Ok(threads) = fs::read_dir(folder) else { return Duration::ZERO };
    let stats = threads.filter_map(|it| fs::read_to_string(it.ok()?.path().join("stat")).ok());
    let named =
        stats.filter(|stat| stat.split_once('(').is_some_and(|(_, rest)| rest.starts_with(name)));
    named.filter_map(|stat| cpu_of(&stat)).map(|(user, system)| user + system).sum()
}

/// The processes of this machine that listen at an address and are ours to look at.
#[must_use]
pub fn listeners(address: SocketAddr) -> Vec<u32> {
    let table = if address.is_ipv4() { "/proc/net/tcp" } else { "/proc/net/tcp6" };
    let Ok(table) = File::open(table) else { return Vec::new() };
    let lines = BufReader::new(table).lines().skip(1).map_while(Result::ok);
    let sockets: HashSet<String> =
        listening(lines, address.port()).map(|inode| format!("socket:[{inode}]")).collect();
    if sockets.is_empty() || !(address.ip().is_loopback() || address.ip().is_unspecified()) {
        return Vec::new();
    }
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let processes: Vec<u32> =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    let with = |has_one: fn(u32, &HashSet<String>) -> bool| {
        processes.iter().copied().filter(|process| has_one(*process, &sockets)).collect()
    };
    let mut found: Vec<u32> = with(has_one_early);
    if found.is_empty() {
        found = with(has_one);
    }
    found.sort_unstable();
    found
}

/// The inodes of sockets that listen at a port, of those of a table. The kernel tells of who listens first, so
/// that the rest, which may be millions, need not be read.
fn listening(lines: impl Iterator<Item = String>, port: u16) -> impl Iterator<Item = String> {
    const LISTEN: &str = "0A";
    let fields = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let (_, at) = fields.next()?.rsplit_once(':')?;
        let at = u16::from_str_radix(at, 16).ok()?;
        let is_listening = fields.nth(1)? == LISTEN;
        Some((at, is_listening, fields.nth(5)?.to_string()))
    };
    lines
        .map_while(move |line| fields(&line).filter(|(_, is_listening, _)| *is_listening))
        .filter_map(move |(at, _, inode)| (at == port).then_some(inode))
}

/// Among so many of its descriptors: who serves has listened before it accepted, and has few before that.
const LOOKED_AT_MAX: usize = 1000;
/// The first of them, which are asked for by number. Each that is listed takes the kernel an inode in /proc: of
/// 120 processes that held a million connections, up to 19 s in all, and its reclaim a CPU for a while after.
const EARLY_MAX: u32 = 32;

fn is_one(link: &Path, sockets: &HashSet<String>) -> bool {
    link.to_str().is_some_and(|link| sockets.contains(link))
}

fn has_one_early(process: u32, sockets: &HashSet<String>) -> bool {
    (0..EARLY_MAX)
        .filter_map(|fd| fs::read_link(format!("/proc/{process}/fd/{fd}")).ok())
        .any(|link| is_one(&link, sockets))
}

fn has_one(process: u32, sockets: &HashSet<String>) -> bool {
    let folder = Path::new("/proc").join(process.to_string()).join("fd");
    let Ok(descriptors) = fs::read_dir(folder) else { return false };
    let descriptors = descriptors.take(LOOKED_AT_MAX);
    let mut links = descriptors.filter_map(|it| fs::read_link(it.ok()?.path()).ok());
    links.any(|link| is_one(&link, sockets))
}

/// What the kernel keeps: its own objects, and the pages that sockets' bytes are in.
#[must_use]
pub fn kernel_bytes() -> u64 {
    const PAGE_BYTES: u64 = 4096;
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let slab = kib(&memory, "Slab:").unwrap_or(0);
    let sockets = fs::read_to_string("/proc/net/sockstat").unwrap_or_default();
    let pages = sockets.lines().find_map(|line| line.strip_prefix("TCP:")).and_then(|line| {
        let mut words = line.split_whitespace();
        words.find(|word| *word == "mem")?;
        words.next()?.parse::<u64>().ok()
    });
    slab + pages.unwrap_or(0) * PAGE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn the_process_that_listens_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(listeners(address), [std::process::id()]);
        drop(listener);
        assert_eq!(listeners(address), [] as [u32; 0]);
    }

    #[test]
    fn times_are_read_behind_a_name_with_spaces_and_brackets() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0";
        let times = (Duration::from_millis(2500), Duration::from_millis(500));
        assert_eq!(cpu_of(stat), Some(times));
        assert_eq!(cpu_of("7 (a"), None);
    }

    #[test]
    fn this_process_uses_something() {
        let own = used(std::process::id()).unwrap();
        assert!(own.anon_bytes > 0 && own.resident_bytes >= own.anon_bytes, "{own:?}");
        assert!(kernel_bytes() > 0);
        assert_eq!(used(u32::MAX), None);
    }
}
