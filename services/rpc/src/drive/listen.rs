//! Listening sockets.

use super::random::random_u128;
use super::socket;
use crate::error::failed_call;
use crate::{Address, EndpointError, SystemCallError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{
    FileType, FlockOperation, Mode, OFlags, Stat, fchmod, flock, fstat, lstat, open, unlink,
};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, acceptfrom_with};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::process;

/// Maximum number of connections that wait in a listener's queue. The kernel limits it to
/// `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Listening socket. Dropping it removes the file that it created.
#[derive(Debug)]
pub(crate) struct Listener {
    /// Socket file of a listener at `uds://PATH`. Dropped before the descriptor, which keeps its
    /// inode number from being reused for another file.
    _file: Option<SocketFile>,
    pub(crate) fd: OwnedFd,
    /// Resolved address of the listener.
    pub(crate) address: Address,
}

/// File of a listening Unix socket, and its lock. By the lock, servers of one path exclude each
/// other.
///
/// The lock is an advisory one on `PATH.lock`, held from before the path is examined until its file
/// is removed. Without it, a server could take another one's new socket, which refuses connections
/// until it listens, for one that a killed process has left.
#[derive(Debug)]
struct SocketFile {
    path: String,
    /// Device and inode numbers of the socket's file; `None` before it is created.
    created_file_id: Option<(u64, u64)>,
    /// Process that has created the file, and removes it; a forked child does not.
    process: u32,
    /// Lock file `PATH.lock`, which is locked while it is open.
    _lock: OwnedFd,
}

impl SocketFile {
    /// Locks the path before its socket file is created.
    fn lock(path: &str) -> Result<Self, SystemCallError> {
        let lock_path = lock_path(path);
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        loop {
            let lock = open(lock_path.as_str(), flags, OWNER_ONLY).map_err(failed_call("open"))?;
            flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|errno| {
                failed_call("flock")(match errno {
                    Errno::WOULDBLOCK => Errno::ADDRINUSE,
                    errno => errno,
                })
            })?;
            // The last owner may have removed the lock file between these two calls; another file
            // may be locked there by now.
            if fstat(&lock).map(|it| file_identity(&it))
                == lstat(lock_path.as_str()).map(|it| file_identity(&it))
            {
                return Ok(Self {
                    path: path.into(),
                    created_file_id: None,
                    process: process::id(),
                    _lock: lock,
                });
            }
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if process::id() != self.process {
            return;
        }
        // Another process may have replaced the socket file.
        let found = lstat(self.path.as_str()).map(|it| file_identity(&it));
        if found.is_ok_and(|it| Some(it) == self.created_file_id) {
            // An error means that another process has removed the file, so there is nothing to do.
            let _ = unlink(self.path.as_str());
        }
        // Removed while still locked: a process that opens it later checks that it still exists.
        let _ = unlink(lock_path(&self.path));
    }
}

fn lock_path(path: &str) -> String {
    format!("{path}.lock")
}

/// Returns the device and inode numbers of a file.
fn file_identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// Mode 0600: only the owner may read and write the file.
const OWNER_ONLY: Mode = Mode::RUSR.union(Mode::WUSR);

/// Returns a converter from errors of the system call `call` to errors about `address`.
pub(crate) fn system_call_error<E: Into<io::Error>>(
    call: &'static str,
    address: &Address,
) -> impl FnOnce(E) -> EndpointError + use<E> {
    let subject = address.to_string();
    move |error| EndpointError::SystemCall { call, subject, error: error.into() }
}

/// Returns the socket address of an `sm://` or `uds://` address. `sm://` names are abstract socket
/// names: the kernel frees them with their process.
pub(crate) fn unix_address(address: &Address) -> Result<SocketAddrUnix, Errno> {
    match address {
        Address::Sm(name) => {
            SocketAddrUnix::new_abstract_name(format!("handover/{name}").as_bytes())
        }
        other => match other.without_scheme().strip_prefix('@') {
            Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
            None => SocketAddrUnix::new(other.without_scheme()),
        },
    }
}

pub(crate) fn open_unix_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

pub(crate) fn listen(address: &Address) -> Result<Listener, EndpointError> {
    let address = match address {
        Address::Tcp(host_port) => return listen_tcp(host_port, Address::Tcp),
        Address::Tls(host_port) => return listen_tcp(host_port, Address::Tls),
        Address::Ucx(host_port) => return listen_tcp(host_port, Address::Ucx),
        it if it.is_complete() => it.clone(),
        it => {
            let name =
                format!("{:032x}", random_u128().map_err(system_call_error("getrandom", it))?);
            match it {
                Address::Uds(_) => Address::Uds(format!("@{name}")),
                _ => Address::Sm(name),
            }
        }
    };
    let fd = open_unix_socket().map_err(system_call_error("socket", &address))?;
    let at = unix_address(&address).map_err(system_call_error("bind", &address))?;
    let mut file = match at.path() {
        Some(_) => {
            let file = SocketFile::lock(address.without_scheme());
            Some(file.map_err(|failed| system_call_error(failed.call, &address)(failed.error))?)
        }
        None => None,
    };
    if let Some(file) = &file {
        remove_stale(&file.path, &at);
        // Linux gives the file that bind() makes the mode of the socket, so other users can never
        // open it.
        fchmod(&fd, OWNER_ONLY).map_err(system_call_error("fchmod", &address))?;
    }
    net::bind(&fd, &at).map_err(system_call_error("bind", &address))?;
    if let Some(file) = &mut file {
        file.created_file_id = lstat(file.path.as_str()).ok().map(|it| file_identity(&it));
    }
    net::listen(&fd, BACKLOG).map_err(system_call_error("listen", &address))?;
    Ok(Listener { fd, address, _file: file })
}

/// Removes the socket file at `path` if no process listens there. A file that is not a socket, to
/// which connecting is refused as well, is kept: bind() reports that the path is in use.
fn remove_stale(path: &str, at: &SocketAddrUnix) {
    let is_socket =
        lstat(path).is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Socket);
    if is_socket
        && let Ok(fd) = open_unix_socket()
        && net::connect(&fd, at) == Err(Errno::CONNREFUSED)
    {
        // If this fails, bind() fails too, and reports the reason.
        let _ = unlink(path);
    }
}

fn listen_tcp(
    host_port: &str,
    to_address: fn(String) -> Address,
) -> Result<Listener, EndpointError> {
    let host_port = if host_port.is_empty() { "127.0.0.1:0" } else { host_port };
    let address = to_address(host_port.into());
    let failed = |call: &'static str| {
        let address = address.to_string();
        move |error: io::Error| match error.raw_os_error() {
            Some(_) => EndpointError::SystemCall { call, subject: address, error },
            None => EndpointError::HostUnresolved { address, error },
        }
    };
    let listener = TcpListener::bind(host_port).map_err(failed("bind"))?;
    listener.set_nonblocking(true).map_err(failed("fcntl"))?;
    // The standard library asks for a queue of 128.
    net::listen(&listener, BACKLOG).map_err(|errno| failed("listen")(errno.into()))?;
    let bound = listener.local_addr().map_err(failed("getsockname"))?;
    Ok(Listener { fd: listener.into(), address: to_address(bound.to_string()), _file: None })
}

/// Returns `true` if a connection waits to be accepted.
pub(crate) fn is_connection_waiting(listener: &Listener) -> bool {
    let mut listener = [PollFd::new(&listener.fd, PollFlags::IN)];
    poll(&mut listener, Some(&Timespec::default())).is_ok_and(|count| count > 0)
}

/// Accepts the next connection, and returns it with the peer's IP address, if it has one. Returns
/// `None` if no connection is pending.
pub(crate) fn accept(listener: &Listener) -> Result<Option<(OwnedFd, Option<IpAddr>)>, Errno> {
    loop {
        match acceptfrom_with(&listener.fd, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok((fd, from)) => {
                socket::set_socket_options(fd.as_fd());
                let from = from.and_then(|it| SocketAddr::try_from(it).ok());
                return Ok(Some((fd, from.map(|it| it.ip().to_canonical()))));
            }
            Err(Errno::AGAIN) => return Ok(None),
            // The connection was closed while it waited in the queue.
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(errno) => return Err(errno),
        }
    }
}
