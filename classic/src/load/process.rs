//! Resource usage and listening sockets of processes, and kernel memory for connections, from
//! /proc.

use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// Resource usage of a process: CPU time so far, and current memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessUsage {
    /// CPU time in user space and in the kernel together.
    pub cpu: Duration,
    /// Anonymous memory, which excludes files and shared memory.
    pub anon_bytes: u64,
}

impl ProcessUsage {
    /// Returns the sum of two processes' usage.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { cpu: self.cpu + other.cpu, anon_bytes: self.anon_bytes + other.anon_bytes }
    }
}

/// Unit of CPU times in /proc. It is the same on every current Linux.
const CPU_TIME_UNIT: Duration = Duration::from_millis(10);

/// Returns the resource usage of a process. Returns `None` if the process has exited, although its
/// parent has not waited for it yet, or may not be read.
#[must_use]
pub fn read_process_usage(process: u32) -> Option<ProcessUsage> {
    let folder = Path::new("/proc").join(process.to_string());
    let stat = fs::read_to_string(folder.join("stat")).ok()?;
    let status = fs::read_to_string(folder.join("status")).ok()?;
    // A process that has exited has a status, but no memory.
    let anon_bytes = bytes_in_line(&status, "RssAnon:")?;
    Some(ProcessUsage { cpu: parse_cpu_time(&stat)?, anon_bytes })
}

/// Parses the CPU time of a process from the text of /proc/PID/stat. The
/// process's name may contain any character.
fn parse_cpu_time(stat: &str) -> Option<Duration> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u32>().ok().map(|ticks| CPU_TIME_UNIT * ticks);
    Some(next()? + next()?)
}

/// Returns the value of the line `name` in the text of a /proc file, converted from kB to bytes.
pub(crate) fn bytes_in_line(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|bytes_in_line| bytes_in_line << 10)
}

/// Returns the total CPU time of a process's threads with the name prefix `name`.
#[must_use]
pub fn threads_cpu_time(process: u32, name: &str) -> Duration {
    let folder = Path::new("/proc").join(process.to_string()).join("task");
    let Ok(threads) = fs::read_dir(folder) else { return Duration::ZERO };
    let stats = threads.filter_map(|it| fs::read_to_string(it.ok()?.path().join("stat")).ok());
    let named =
        stats.filter(|stat| stat.split_once('(').is_some_and(|(_, rest)| rest.starts_with(name)));
    named.filter_map(|stat| parse_cpu_time(&stat)).sum()
}

/// Returns the ids of the processes on this machine that listen at `address`. Omits processes that
/// may not be read.
#[must_use]
pub fn listening_processes(address: SocketAddr) -> Vec<u32> {
    let table = if address.is_ipv4() { TCP_TABLE } else { TCP6_TABLE };
    let sockets: HashSet<String> =
        listening_inodes(table, address.port()).map(|inode| format!("socket:[{inode}]")).collect();
    if sockets.is_empty() || !(address.ip().is_loopback() || address.ip().is_unspecified()) {
        return Vec::new();
    }
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let processes: Vec<u32> =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    let with = |has_socket: fn(u32, &HashSet<String>) -> bool| {
        processes.iter().copied().filter(|process| has_socket(*process, &sockets)).collect()
    };
    let mut found: Vec<u32> = with(has_socket_among_low);
    if found.is_empty() {
        found = with(has_socket);
    }
    found.sort_unstable();
    found
}

/// Table of all TCP sockets over IPv4.
const TCP_TABLE: &str = "/proc/net/tcp";
/// Table of all TCP sockets over IPv6.
const TCP6_TABLE: &str = "/proc/net/tcp6";

/// Returns `true` if a socket of this network namespace listens at the port, at any address.
#[must_use]
pub fn is_listening(port: u16) -> bool {
    [TCP_TABLE, TCP6_TABLE].iter().any(|table| listening_inodes(table, port).next().is_some())
}

/// Reads the inodes of sockets that listen at a port from a table of sockets. The kernel lists
/// listening sockets first, so the rest, which may be millions, is not read.
fn listening_inodes(table: &str, port: u16) -> impl Iterator<Item = String> {
    /// Code of the state LISTEN.
    const LISTEN: &str = "0A";
    let table = File::open(table).ok().map(BufReader::new);
    let lines = table.into_iter().flat_map(|table| table.lines().skip(1).map_while(Result::ok));
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

/// Maximum number of descriptors that are read of a process. It suffices: a server listens before
/// it accepts, and has few descriptors by then.
const DESCRIPTORS_READ_MAX: usize = 1000;
/// Number of low descriptors that are tried before the descriptors are listed. Each listed
/// descriptor costs the kernel an inode in /proc: with 120 processes that held a million
/// connections, up to 19 s in all, and a CPU for its reclaim for a while after.
const LOW_DESCRIPTORS_COUNT: u32 = 32;

/// Returns `true` if the link of a descriptor names one of the sockets.
fn is_one_of_sockets(link: &Path, sockets: &HashSet<String>) -> bool {
    link.to_str().is_some_and(|link| sockets.contains(link))
}

/// Returns `true` if one of the process's low descriptors is one of the sockets.
fn has_socket_among_low(process: u32, sockets: &HashSet<String>) -> bool {
    (0..LOW_DESCRIPTORS_COUNT)
        .filter_map(|fd| fs::read_link(format!("/proc/{process}/fd/{fd}")).ok())
        .any(|link| is_one_of_sockets(&link, sockets))
}

/// Returns `true` if a descriptor of the process is one of the sockets. Reads at most
/// [`DESCRIPTORS_READ_MAX`] descriptors.
fn has_socket(process: u32, sockets: &HashSet<String>) -> bool {
    let folder = Path::new("/proc").join(process.to_string()).join("fd");
    let Ok(descriptors) = fs::read_dir(folder) else { return false };
    let descriptors = descriptors.take(DESCRIPTORS_READ_MAX);
    let mut links = descriptors.filter_map(|it| fs::read_link(it.ok()?.path()).ok());
    links.any(|link| is_one_of_sockets(&link, sockets))
}

/// Returns the memory that the kernel uses for slab objects and socket buffers, in bytes.
#[must_use]
pub fn kernel_memory_bytes() -> u64 {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let slab = bytes_in_line(&memory, "Slab:").unwrap_or(0);
    let sockets = fs::read_to_string("/proc/net/sockstat").unwrap_or_default();
    let pages = sockets.lines().find_map(|line| line.strip_prefix("TCP:")).and_then(|line| {
        let mut words = line.split_whitespace();
        words.find(|word| *word == "mem")?;
        words.next()?.parse::<u64>().ok()
    });
    slab + pages.unwrap_or(0) * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn listening_process_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(listening_processes(address), [std::process::id()]);
        assert!(is_listening(address.port()));
        drop(listener);
        assert_eq!(listening_processes(address), [] as [u32; 0]);
    }

    #[test]
    fn cpu_times_are_parsed_after_a_name_with_spaces_and_brackets() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0";
        assert_eq!(parse_cpu_time(stat), Some(Duration::from_millis(3000)));
        assert_eq!(parse_cpu_time("7 (a"), None);
    }

    #[test]
    fn usage_of_this_process_is_positive() {
        let own = read_process_usage(std::process::id()).unwrap();
        assert!(own.anon_bytes > 0, "{own:?}");
        assert!(kernel_memory_bytes() > 0);
        assert_eq!(read_process_usage(u32::MAX), None);
    }

    #[test]
    fn exited_child_has_no_usage_before_it_is_waited_for() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        assert!(read_process_usage(child.id()).is_some());
        drop(child.stdin.take());
        let pid = rustix::process::Pid::from_child(&child);
        let options =
            rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        rustix::process::waitid(rustix::process::WaitId::Pid(pid), options).unwrap();
        assert_eq!(read_process_usage(child.id()), None);
        child.wait().unwrap();
    }
}
