//! Tests with too few descriptors, too little memory and full folders: the error names the
//! resource, and nothing is leaked.

use crate::house::*;
use handover_rpc::{
    Address, BulkMemory, CallError, Calling, Config, ConnectionsConfig, Endpoint, EndpointError,
    Method, SharedMemoryConfig,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

const FINE: &str = "fine";

fn limit(resource: Resource, current: u64) {
    let maximum = getrlimit(resource).maximum;
    setrlimit(resource, Rlimit { current: Some(current), maximum }).expect("it is lower");
}

fn unlimit_files() {
    limit(Resource::Nofile, getrlimit(Resource::Nofile).maximum.expect("it has one"));
}

/// Limits the descriptors to `more` beyond the open ones.
fn limit_files(more: usize) {
    unlimit_files();
    // Opens `more + 1` files at the lowest free numbers. The last number becomes the limit, so that
    // `more` files can be opened after these are closed.
    let next = |_| std::fs::File::open("/dev/null").expect("there is one");
    let files: Vec<_> = (0..=more).map(next).collect();
    let beyond = files.last().map_or(0, |it| it.as_raw_fd());
    limit(Resource::Nofile, u64::try_from(beyond).expect("a descriptor"));
}

#[track_caller]
fn is_told<T: std::fmt::Debug>(outcome: Result<T, impl std::fmt::Display>, said: &str) {
    let error = match outcome {
        Ok(it) => panic!("{it:?}, and not: {said}"),
        Err(error) => error.to_string(),
    };
    assert_eq!(error, said);
}

pub fn limits_are_told() {
    let (mut server, address) = server("sm://");
    let stopper = server.stopper();
    let serving = std::thread::spawn(move || server.serve());
    assert_eq!(Other::start("scarce", &address.to_string()).said, FINE);
    stopper.stop();
    serving.join().expect("no panic");
}

/// Role: a process whose limits may be lowered.
pub fn scarce(address: &str) -> ExitCode {
    let address: Address = address.parse().expect("an address");
    let (mut client, peer) = connected(&address);
    let roomy =
        Config::default().shared_memory(SharedMemoryConfig::default().shared_bytes(1 << 28));
    let mut other = Endpoint::new(roomy).expect("an endpoint");
    let none = "Too many open files (os error 24)";
    limit_files(0);
    is_told(
        Endpoint::new(Config::default()),
        &format!("epoll_create1 for an endpoint failed: {none}"),
    );
    is_told(client.connect(&address), &format!("socket for {address} failed: {none}"));
    let at = "uds://@handover-nobody".parse().expect("an address");
    is_told(client.listen(&at), &format!("socket for {at} failed: {none}"));
    is_told(BulkMemory::shared(100), &format!("cannot allocate 100 bytes: memfd_create: {none}"));
    limit_files(1);
    is_told(client.connect(&address), &format!("memfd_create for {address} failed: {none}"));
    unlimit_files();
    // Limits the address space to what is mapped, and a little more.
    let status = std::fs::read_to_string("/proc/self/status").expect("proc is mounted");
    let size =
        status.lines().find_map(|line| line.strip_prefix("VmSize:")?.split_whitespace().next());
    let size_kib: u64 = size.expect("it is told").parse().expect("a number");
    limit(Resource::As, (size_kib + 16_384) * 1024);
    let none = "Cannot allocate memory (os error 12)";
    is_told(
        BulkMemory::shared(64 << 20),
        &format!("cannot allocate {} bytes: mmap: {none}", 64 << 20),
    );
    is_told(other.connect(&address), &format!("mmap for {address} failed: {none}"));
    // The existing connection still works.
    assert_eq!(client.call::<_, u64>(peer, ECHO, &5u64), Ok(5));
    say(FINE);
    ExitCode::SUCCESS
}

/// Role: serves with room for two more descriptors.
pub fn few(how: &str) -> ExitCode {
    let (mut server, address) = server(how);
    limit_files(2);
    say(address);
    server.serve();
    ExitCode::SUCCESS
}

pub fn places_are_freed() {
    for how in ["uds://", "tcp://127.0.0.1:0"] {
        let server = Other::start("few", how);
        let address = server.address();
        let (mut first, its) = connected(&address);
        let (mut second, peer) = connected(&address);
        let hurried = Config::default()
            .connections(ConnectionsConfig::default().handshake_timeout(Duration::from_millis(50)));
        let third = Endpoint::new(hurried).expect("an endpoint").connect(&address);
        assert!(matches!(third, Err(EndpointError::HandshakeTimeout { .. })), "{how}: {third:?}");
        first.disconnect(its);
        assert_eq!(first.call::<_, u64>(its, ECHO, &1u64), Err(CallError::Stale));
        let (mut fourth, fourth_peer) = connected(&address);
        assert_eq!(fourth.call::<_, u64>(fourth_peer, ECHO, &4u64), Ok(4), "{how}");
        assert_eq!(second.call::<_, u64>(peer, ECHO, &2u64), Ok(2), "{how}");
    }
}

pub fn folders_are_full() {
    let what = "a file system that is full";
    if let Some(why) = refused("unshare", &["-rm", "mount", "-t", "tmpfs", "none", "/mnt"]) {
        return skipped(what, &why);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = std::env::current_exe().expect("it runs");
    let other =
        Other::of(Command::new("unshare").arg("-rm").arg(program).arg("full").arg(folder.path()));
    assert_eq!(other.said, FINE);
    drop(other);
    // The mount belonged to the mount namespace of that process.
    std::fs::remove_dir(folder.path()).expect("it is empty");
}

fn mount(size: &str, at: &Path) {
    let arguments = ["-t", "tmpfs", "-o", size, "none"];
    let status = Command::new("mount").args(arguments).arg(at).status().expect("it runs");
    assert!(status.success(), "mount: {status}");
}

/// Role: in its own mount namespace, fills a folder.
pub fn full(folder: &str) -> ExitCode {
    let folder = Path::new(folder);
    mount("size=64k", folder);
    let said = "cannot allocate 1048576 bytes: fallocate: No space left on device (os error 28)";
    is_told(BulkMemory::in_folder(folder, 1 << 20), said);
    let memory = BulkMemory::in_folder(folder, 1 << 12).expect("there is room");
    assert_eq!((memory.len_bytes(), folder.read_dir().unwrap().count()), (1 << 12, 0));
    let shm = Path::new("/dev/shm");
    if shm.exists() {
        mount("size=4k", shm);
        std::fs::write(shm.join("filling"), [1; 4096]).expect("there is room");
    }
    let (mut server, address) = server("sm://");
    let (stopper, memory) = (server.stopper(), BulkMemory::shared(1 << 20));
    assert!(memory.is_ok(), "memory of no name is in no folder");
    let serving = std::thread::spawn(move || server.serve());
    let (mut client, peer) = connected(&address);
    let sent = vec![3u8; 100_000];
    assert_eq!(client.call_bytes(peer, ECHO, &sent, |came| came == sent), Ok(true));
    assert_eq!(client.call::<_, ()>(peer, Method::new("none"), &()), Err(CallError::Unknown));
    stopper.stop();
    serving.join().expect("no panic");
    drop(client);
    say(FINE);
    ExitCode::SUCCESS
}
