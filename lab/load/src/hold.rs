//! Many connections, opened and held.

use crate::engine::{Client, Order};
use crate::error::Fault;
use crate::socket;
use crate::wire::{HEADER_BYTES, Lengths, Letters};
use handover_base::clock;
use handover_base::sync::shared::{AtomicBool, AtomicU64, Ordering};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use std::fmt;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Connections that are being made at a time.
const UNDER_WAY_MAX: u64 = 64;
/// Connections from one source address: there are some 28,000 ports, and who has to look for the last free
/// ones looks long.
const PER_SOURCE: u64 = 10_000;
/// Letters of a sample's message.
const SAMPLE_LETTERS: u32 = 10;

/// What is to be opened.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// The server.
    pub address: SocketAddr,
    /// How many connections.
    pub count: u64,
    /// The number of the first of them among those of all processes: it decides the source address.
    pub first: u64,
    /// How long one may take.
    pub timeout: Duration,
}

/// Which limit kept further connections from being opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// This process may open no more descriptors.
    ProcessDescriptors,
    /// This machine may open no more.
    SystemDescriptors,
    /// There is no port left for a further connection from the same address.
    Ports,
    /// The kernel has no memory for it.
    Memory,
    /// Nobody serves there.
    Refused,
    /// The server does not answer: nobody accepts any more, or not so fast.
    Unanswered,
    /// The server ends connections as soon as it has accepted them: it has as many as it may.
    TurnedAway,
    /// Something else.
    Other(Errno),
}

impl From<Errno> for Limit {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::MFILE => Self::ProcessDescriptors,
            Errno::NFILE => Self::SystemDescriptors,
            Errno::ADDRNOTAVAIL | Errno::ADDRINUSE => Self::Ports,
            Errno::NOBUFS | Errno::NOMEM => Self::Memory,
            Errno::CONNREFUSED => Self::Refused,
            Errno::TIMEDOUT => Self::Unanswered,
            Errno::CONNRESET => Self::TurnedAway,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ProcessDescriptors => f.write_str("this process may open no more descriptors"),
            Self::SystemDescriptors => f.write_str("this machine may open no more descriptors"),
            Self::Ports => f.write_str("no port is left to connect from"),
            Self::Memory => f.write_str("the kernel has no memory for more connections"),
            Self::Refused => f.write_str("nobody listens there"),
            Self::Unanswered => f.write_str("the server does not accept any more"),
            Self::TurnedAway => f.write_str("the server turns connections away: it has all it may"),
            Self::Other(errno) => write!(f, "{errno}"),
        }
    }
}

/// A connection, by its number.
enum Place {
    Making(OwnedFd),
    Open(OwnedFd),
    Gone,
}

/// Connections that are held.
pub struct Held {
    /// The set that watches them, and the connections.
    epoll: OwnedFd,
    places: Vec<Place>,
    address: SocketAddr,
    /// How long it took to open them.
    pub took: Duration,
    /// Why there are fewer than were wanted.
    pub limit: Option<Limit>,
}

/// What a look has shown.
#[derive(Default)]
struct Seen {
    events: usize,
    connected: u64,
    failed: u64,
}

/// Where a connection comes from, by its number: loopback has 16 million addresses.
fn source(address: SocketAddr, number: u64) -> Option<SocketAddr> {
    let SocketAddr::V4(to) = address else { return None };
    let block = u32::try_from(number / PER_SOURCE).ok().filter(|block| *block < 1 << 23)?;
    if !to.ip().is_loopback() || block == 0 {
        return None;
    }
    // 127.0.1.0 and on: far from where servers are.
    let source = Ipv4Addr::from_bits(u32::from_be_bytes([127, 0, 1, 0]) + block);
    Some(SocketAddr::new(IpAddr::V4(source), 0))
}

impl Held {
    /// Opens connections until there are as many as wanted, or no more can be, or `stop` is raised; `opened`
    /// is kept up to date.
    ///
    /// # Errors
    /// [`Fault::Refused`] when the kernel gives nothing to watch them with.
    pub fn open(wanted: &Wanted, stop: &AtomicBool, opened: &AtomicU64) -> Result<Self, Fault> {
        let refused = |call| move |errno| Fault::Refused { call, errno };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(refused("epoll_create"))?;
        let mut held = Self {
            epoll,
            places: Vec::with_capacity(wanted.count.min(1 << 24) as usize),
            address: wanted.address,
            took: Duration::ZERO,
            limit: None,
        };
        let began_ns = clock::now_ns();
        let timeout_ns = wanted.timeout.as_nanos() as u64;
        let mut last_ns = began_ns;
        let mut under_way = 0;
        loop {
            // Relaxed: a flag alone, and a count alone.
            let is_stopped = stop.load(Ordering::Relaxed);
            while !is_stopped
                && held.limit.is_none()
                && (held.places.len() as u64) < wanted.count
                && under_way < UNDER_WAY_MAX
            {
                match held.begin(wanted.first + held.places.len() as u64) {
                    Ok(()) => under_way += 1,
                    Err(limit) => held.limit = Some(limit),
                }
            }
            if under_way == 0 || is_stopped {
                break;
            }
            let seen = held.look(20)?;
            let now_ns = clock::now_ns();
            if seen.connected + seen.failed > 0 {
                last_ns = now_ns;
            } else if now_ns - last_ns > timeout_ns {
                held.limit.get_or_insert(Limit::Unanswered);
                break;
            }
            under_way -= seen.connected + seen.failed;
            opened.fetch_add(seen.connected, Ordering::Relaxed);
        }
        held.took = Duration::from_nanos(clock::now_ns() - began_ns);
        Ok(held)
    }

    /// Begins to make one more.
    fn begin(&mut self, number: u64) -> Result<(), Limit> {
        let fd = socket::connect(self.address, source(self.address, number))
            .map_err(|(_, errno)| Limit::from(errno))?;
        let data = epoll::EventData::new_u64(self.places.len() as u64);
        epoll::add(&self.epoll, &fd, data, socket::WATCHED).map_err(Limit::from)?;
        self.places.push(Place::Making(fd));
        Ok(())
    }

    /// How many connections have come to be, and how many that were being made have failed, since the last
    /// look. Those that were closed later are seen too.
    fn look(&mut self, timeout_ms: i64) -> Result<Seen, Fault> {
        let mut events = [const { MaybeUninit::uninit() }; 256];
        let timeout = Timespec { tv_sec: 0, tv_nsec: timeout_ms * 1_000_000 };
        let events = match epoll::wait(&self.epoll, &mut events[..], Some(&timeout)) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return Ok(Seen::default()),
            Err(errno) => return Err(Fault::Refused { call: "epoll_wait", errno }),
        };
        let mut seen = Seen { events: events.len(), ..Seen::default() };
        use epoll::EventFlags as Flags;
        for &epoll::Event { flags, data } in events.iter() {
            // It was a usize.
            let Some(place) = self.places.get_mut(data.u64() as usize) else { continue };
            let is_over = flags.intersects(Flags::RDHUP | Flags::HUP | Flags::ERR);
            *place = match (std::mem::replace(place, Place::Gone), is_over) {
                (Place::Making(fd), false) => {
                    seen.connected += 1;
                    Place::Open(fd)
                }
                (Place::Making(fd), true) => {
                    seen.failed += 1;
                    let why = match socket::connected(&fd) {
                        Ok(()) => Limit::TurnedAway,
                        Err(errno) => errno.into(),
                    };
                    self.limit.get_or_insert(why);
                    Place::Gone
                }
                (Place::Open(_), true) => {
                    self.limit.get_or_insert(Limit::TurnedAway);
                    Place::Gone
                }
                (same, _) => same,
            };
        }
        Ok(seen)
    }

    /// How many are open, as far as has been seen.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.fds().count() as u64
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fds().next().is_none()
    }

    fn fds(&self) -> impl Iterator<Item = &OwnedFd> {
        self.places.iter().filter_map(|place| match place {
            Place::Open(fd) => Some(fd),
            Place::Making(_) | Place::Gone => None,
        })
    }

    /// Looks which of them the server has closed meanwhile; how many those are.
    ///
    /// # Errors
    /// [`Fault::Refused`].
    pub fn look_for_closed(&mut self) -> Result<u64, Fault> {
        let before = self.len();
        while self.look(0)?.events > 0 {}
        Ok(before - self.len())
    }

    /// Sends a message over some of them, spread evenly, one after another, and checks what comes back; how
    /// long each took, in ns.
    ///
    /// # Errors
    /// [`Fault`] of the first whose echo is missing or wrong.
    pub fn sample(&self, count: u64, timeout: Duration) -> Result<Vec<u64>, Fault> {
        let open: Vec<&OwnedFd> = self.fds().collect();
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(open.len());
        let letters = Letters::new(SAMPLE_LETTERS);
        (0..count).map(|one| echo(open[one * open.len() / count], &letters, timeout)).collect()
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("open", &self.len()).field("limit", &self.limit).finish()
    }
}

/// One message there and back.
fn echo(fd: &OwnedFd, letters: &Letters, timeout: Duration) -> Result<u64, Fault> {
    let lengths = Lengths::new(0, SAMPLE_LETTERS, SAMPLE_LETTERS);
    let order = Order::Bursts { count: 1, iterations: 1 };
    let began_ns = clock::now_ns();
    let mut client = Client::new(u128::from(began_ns), lengths, order, 1);
    let mut bytes = Vec::new();
    client.send(letters, began_ns, 1, usize::MAX, &mut bytes);
    if socket::send(fd, &bytes).map_err(Fault::Broken)? < bytes.len() {
        return Err(Fault::Broken(Errno::AGAIN));
    }
    let mut came = [0; HEADER_BYTES + SAMPLE_LETTERS as usize];
    let mut filled = 0;
    loop {
        match socket::read(fd, &mut came[filled..]) {
            Ok(0) => return Err(Fault::Ended),
            Ok(count) => filled += count,
            Err(Errno::AGAIN) => {
                let left = timeout.saturating_sub(Duration::from_nanos(clock::now_ns() - began_ns));
                let left = Timespec::try_from(left).unwrap_or_default();
                match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&left)) {
                    Ok(0) => return Err(Fault::Silent(timeout)),
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(errno) => return Err(Fault::Refused { call: "poll", errno }),
                }
            }
            Err(errno) => return Err(Fault::Broken(errno)),
        }
        if client.receive(letters, &came[..filled])?.is_some() {
            return Ok(clock::now_ns() - began_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ten_thousand_come_from_an_address_of_their_own() {
        let here: SocketAddr = "127.0.0.1:80".parse().unwrap();
        let at = |number| source(here, number).map(|it| it.ip().to_string());
        assert_eq!((at(0), at(9_999)), (None, None));
        assert_eq!(at(10_000).as_deref(), Some("127.0.1.1"));
        assert_eq!(at(19_999).as_deref(), Some("127.0.1.1"));
        assert_eq!(at(2_560_000).as_deref(), Some("127.0.2.0"));
        assert_eq!(source("10.0.0.1:80".parse().unwrap(), 50_000), None);
        assert_eq!(source("[::1]:80".parse().unwrap(), 50_000), None);
    }
}
