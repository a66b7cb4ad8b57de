//! Places to meet: sockets that listen, and sockets that connect to them.

use super::random::random;
use super::socket;
use crate::{Address, EndpointError};
use rustix::fs::{CWD, FileType, Mode, chmodat, lstat, unlink};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, acceptfrom_with};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// How many connections the kernel holds that were not accepted; it has a lid of its own.
const BACKLOG: i32 = 4096;
/// How often a listener whose queue is full is knocked at.
const KNOCK: Duration = Duration::from_millis(1);

/// A socket that listens. A file that it made goes with it.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) fd: OwnedFd,
    /// Where, now that it is known.
    pub(crate) address: Address,
    file: Option<String>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.file {
            // Gone already if somebody else has tidied up.
            let _ = unlink(path.as_str());
        }
    }
}

fn refused(call: &'static str, address: &Address) -> impl Fn(Errno) -> EndpointError + use<> {
    let place = address.to_string();
    move |errno| EndpointError::Refused { call, place: place.clone(), errno }
}

/// Names of shared memory are met at sockets without a file: the kernel forgets them with their process.
fn unix_address(address: &Address) -> Result<SocketAddrUnix, Errno> {
    match address {
        Address::Sm(name) => {
            SocketAddrUnix::new_abstract_name(format!("handover/{name}").as_bytes())
        }
        other => match other.place().strip_prefix('@') {
            Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
            None => SocketAddrUnix::new(other.place()),
        },
    }
}

fn unix_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Whether whoever is at the other end must be this user: where no file's mode sees to it.
pub(crate) fn is_for_one_user(address: &Address) -> bool {
    match address {
        Address::Sm(_) => true,
        Address::Tcp(_) => false,
        Address::Uds(place) => place.starts_with('@'),
    }
}

pub(crate) fn listen(address: &Address) -> Result<Listener, EndpointError> {
    let address = match address {
        Address::Tcp(place) => return listen_tcp(place),
        it if it.is_complete() => it.clone(),
        it => {
            let name = format!("{:032x}", random().map_err(refused("getrandom", it))?);
            match it {
                Address::Uds(_) => Address::Uds(format!("@{name}")),
                _ => Address::Sm(name),
            }
        }
    };
    let fd = unix_socket().map_err(refused("socket", &address))?;
    let at = unix_address(&address).map_err(refused("bind", &address))?;
    let path = at.path().is_some().then(|| address.place().to_string());
    if let Some(path) = &path {
        remove_stale(path, &at);
    }
    net::bind(&fd, &at).map_err(refused("bind", &address))?;
    // From here on its end removes the file.
    let listener = Listener { fd, address, file: path };
    let (fd, address) = (&listener.fd, &listener.address);
    if let Some(path) = &listener.file {
        // Before anybody can connect, as it does not listen yet.
        let mode = Mode::RUSR | Mode::WUSR;
        chmodat(CWD, path.as_str(), mode, rustix::fs::AtFlags::empty())
            .map_err(refused("chmod", address))?;
    }
    net::listen(fd, BACKLOG).map_err(refused("listen", address))?;
    Ok(listener)
}

/// A socket's file outlives a process that was killed. If nobody listens there, it is in the way. What is no
/// socket, to which connecting is refused as well, stays: binding says that the path is taken.
fn remove_stale(path: &str, at: &SocketAddrUnix) {
    let is_socket =
        lstat(path).is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Socket);
    if is_socket
        && let Ok(fd) = unix_socket()
        && net::connect(&fd, at) == Err(Errno::CONNREFUSED)
    {
        // If it is refused, so will be binding, which says why.
        let _ = unlink(path);
    }
}

fn listen_tcp(place: &str) -> Result<Listener, EndpointError> {
    let place = if place.is_empty() { "127.0.0.1:0" } else { place };
    let address = Address::Tcp(place.into());
    let failed = |call: &'static str| {
        let place = address.to_string();
        move |error: std::io::Error| match Errno::from_io_error(&error) {
            Some(errno) => EndpointError::Refused { call, place, errno },
            None => EndpointError::Unresolved { place, error },
        }
    };
    let listener = TcpListener::bind(place).map_err(failed("bind"))?;
    listener.set_nonblocking(true).map_err(failed("fcntl"))?;
    let bound = listener.local_addr().map_err(failed("getsockname"))?;
    Ok(Listener { fd: listener.into(), address: Address::Tcp(bound.to_string()), file: None })
}

/// The next connection, if somebody knocks.
pub(crate) fn accept(listener: &Listener) -> Result<Option<OwnedFd>, Errno> {
    loop {
        match acceptfrom_with(&listener.fd, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok((fd, _)) => {
                socket::prompt(fd.as_fd());
                return Ok(Some(fd));
            }
            Err(Errno::AGAIN) => return Ok(None),
            // It went away while it waited.
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// A socket connected to that address, without anything said.
pub(crate) fn connect(address: &Address, timeout: Duration) -> Result<OwnedFd, EndpointError> {
    if !address.is_complete() {
        return Err(EndpointError::Incomplete(address.clone()));
    }
    if let Address::Tcp(place) = address {
        return connect_tcp(place, timeout);
    }
    let at = unix_address(address).map_err(refused("connect", address))?;
    let began = Instant::now();
    let fd = unix_socket().map_err(refused("socket", address))?;
    loop {
        match net::connect(&fd, &at) {
            Ok(()) => return Ok(fd),
            // So many wait to be accepted that there is no room for one more.
            Err(Errno::AGAIN) if began.elapsed() < timeout => std::thread::sleep(KNOCK),
            Err(errno) => return Err(refused("connect", address)(errno)),
        }
    }
}

fn connect_tcp(place: &str, timeout: Duration) -> Result<OwnedFd, EndpointError> {
    let unresolved = |error| EndpointError::Unresolved { place: place.into(), error };
    let mut last = Errno::ADDRNOTAVAIL;
    let began = Instant::now();
    for address in place.to_socket_addrs().map_err(unresolved)? {
        // All of them together.
        let left = timeout.saturating_sub(began.elapsed());
        if left.is_zero() {
            last = Errno::TIMEDOUT;
            break;
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => {
                stream.set_nonblocking(true).map_err(unresolved)?;
                let fd = OwnedFd::from(stream);
                socket::prompt(fd.as_fd());
                return Ok(fd);
            }
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => last = Errno::TIMEDOUT,
            Err(error) => last = Errno::from_io_error(&error).unwrap_or(last),
        }
    }
    Err(refused("connect", &Address::Tcp(place.into()))(last))
}
