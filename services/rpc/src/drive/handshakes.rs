//! Table of connections that are being established: connection attempts, and handshakes.

use super::connect::ConnectAttempt;
use super::handshake::Handshake;
use super::listen::system_call_error;
use super::poll::{EventSource, Poll};
use super::security::Security;
use super::wire::Wire;
use crate::engine::{HandshakeRole, PeerKey};
use crate::{Address, CloseReason, Config, EndpointError, clock};
use rustix::io::Errno;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

/// Ratio of the handshake timeout to the age from which a handshake may be aborted. It is aborted
/// only to free its slot.
const ABORT_DIVISOR: u64 = 16;

/// Stage of a connection that is not established yet: connecting, or in the handshake.
#[derive(Debug)]
enum Stage {
    Connecting(ConnectAttempt),
    Handshake(Box<Handshake>),
}

/// Connection that is not established yet.
#[derive(Debug)]
struct PendingConnection {
    stage: Stage,
    /// IP address of the peer, for a connection accepted over TCP.
    remote_ip: Option<IpAddr>,
    deadline_ns: u64,
}

impl PendingConnection {
    /// Returns the address that this endpoint connects to; `None` for an accepted connection.
    fn connected_to(&self) -> Option<&Address> {
        match &self.stage {
            Stage::Connecting(connecting) => Some(connecting.address()),
            Stage::Handshake(handshake) => handshake.connected_to(),
        }
    }
}

/// Handshake that has succeeded or failed. The caller adds the peer, and then calls
/// [`Handshakes::finish`].
pub(crate) struct FinishedHandshake {
    /// Number of the handshake in [`Handshakes`].
    pub(crate) number: u32,
    /// Address that this endpoint has connected to; `None` for an accepted connection.
    pub(crate) connected_to: Option<Address>,
    /// Handshake to complete, or the reason why it has failed.
    pub(crate) result: Result<Handshake, CloseReason>,
}

/// Connections that are being established, by number.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    entries: Vec<Option<PendingConnection>>,
    /// Results of initiated connections that were not returned yet, each with its number.
    results: Vec<(u32, Result<PeerKey, EndpointError>)>,
}

impl Handshakes {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.iter().all(Option::is_none)
    }

    /// Returns the number of entries, including vacant ones.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the smallest number that belongs to no handshake and to no result in the table.
    fn free_number(&self) -> io::Result<u32> {
        let has_result = |at: usize| self.results.iter().any(|(it, _)| *it as usize == at);
        let is_free = |at: usize| self.entries.get(at).is_none_or(Option::is_none);
        let number = (0..).find(|&at| is_free(at) && !has_result(at)).unwrap_or(usize::MAX);
        u32::try_from(number).map_err(|_| Errno::MFILE.into())
    }

    fn insert(&mut self, number: u32, entry: PendingConnection) {
        let at = number as usize;
        if at >= self.entries.len() {
            self.entries.resize_with(at + 1, || None);
        }
        self.entries[at] = Some(entry);
    }

    /// Starts to connect to an address; returns the number of the handshake. The caller must call
    /// [`advance`](Self::advance) for it at once.
    ///
    /// # Blocking
    /// Blocks for the lookup of the host's name.
    pub(crate) fn connect(
        &mut self,
        address: &Address,
        deadline_ns: u64,
    ) -> Result<u32, EndpointError> {
        let stage = Stage::Connecting(ConnectAttempt::new(address, deadline_ns)?);
        let number = self.free_number().map_err(system_call_error("socket", address))?;
        self.insert(number, PendingConnection { stage, remote_ip: None, deadline_ns });
        Ok(number)
    }

    /// Starts the handshake of an initiated connection over `wire`. Returns its number.
    #[cfg(test)]
    pub(crate) fn connect_over(
        &mut self,
        wire: Wire,
        address: &Address,
        deadline_ns: u64,
        (poll, config, security): (&Poll, &Config, &Security),
    ) -> Result<u32, EndpointError> {
        let handshake = Handshake::new_connector(wire, address.clone(), config, security)?;
        let number = self.register(handshake, None, deadline_ns, poll);
        number.map_err(system_call_error("epoll_ctl", address))
    }

    /// Starts the handshake of an accepted connection; returns its number.
    pub(crate) fn accept(
        &mut self,
        wire: Wire,
        (address, remote): (Address, Option<IpAddr>),
        deadline_ns: u64,
        (poll, config, security): (&Poll, &Config, &Security),
    ) -> Result<u32, CloseReason> {
        let role = HandshakeRole::Acceptor;
        let handshake = Handshake::new(wire, address, role, config, security)?;
        let number = self.register(handshake, remote, deadline_ns, poll);
        number.map_err(CloseReason::from_system_call("epoll_ctl"))
    }

    /// Adds a handshake to the table and to the epoll set; returns its number.
    fn register(
        &mut self,
        handshake: Handshake,
        remote_ip: Option<IpAddr>,
        deadline_ns: u64,
        poll: &Poll,
    ) -> io::Result<u32> {
        let number = self.free_number()?;
        poll.add(handshake.fd(), EventSource::Handshake(number))?;
        let stage = Stage::Handshake(Box::new(handshake));
        self.insert(number, PendingConnection { stage, remote_ip, deadline_ns });
        Ok(number)
    }

    /// Continues the connection attempt or handshake with that number; returns the handshake if it
    /// has finished.
    pub(crate) fn advance(
        &mut self,
        number: u32,
        now_ns: u64,
        (poll, config, security): (&Poll, &Config, &Security),
    ) -> Option<FinishedHandshake> {
        let entry = self.entries.get_mut(number as usize)?.as_mut()?;
        if let Stage::Connecting(connecting) = &mut entry.stage {
            let connected = connecting.advance(poll, EventSource::Handshake(number), now_ns);
            let handshake = connected.transpose()?.and_then(|fd| {
                let address = connecting.address();
                let wire = security.new_connector_wire(fd, address)?;
                Handshake::new_connector(wire, address.clone(), config, security)
            });
            match handshake {
                Ok(handshake) => entry.stage = Stage::Handshake(Box::new(handshake)),
                Err(error) => {
                    self.remove(number);
                    self.results.push((number, Err(error)));
                    return None;
                }
            }
        }
        let Stage::Handshake(handshake) = &mut entry.stage else { return None };
        let advanced = handshake.advance(config, security);
        if advanced == Ok(false) {
            return None;
        }
        let entry = self.remove(number)?;
        let connected_to = entry.connected_to().cloned();
        let Stage::Handshake(handshake) = entry.stage else { return None };
        Some(FinishedHandshake { number, connected_to, result: advanced.map(|_| *handshake) })
    }

    fn remove(&mut self, number: u32) -> Option<PendingConnection> {
        let entry = self.entries.get_mut(number as usize)?.take();
        while let Some(None) = self.entries.last() {
            self.entries.pop();
        }
        entry
    }

    /// Stores the result of a connection that this endpoint initiated, for
    /// [`take_result`](Self::take_result).
    pub(crate) fn finish(
        &mut self,
        number: u32,
        connected_to: Option<Address>,
        result: Result<PeerKey, CloseReason>,
        timeout: Duration,
    ) {
        let Some(address) = connected_to else { return };
        let address = address.to_string();
        let result = result.map_err(|why| match why {
            CloseReason::HandshakeTimeout => EndpointError::HandshakeTimeout { address, timeout },
            why => EndpointError::Handshake { address, why },
        });
        self.results.push((number, result));
    }

    /// Removes and returns the result of an initiated connection; `None` if there is none yet.
    pub(crate) fn take_result(&mut self, number: u32) -> Option<Result<PeerKey, EndpointError>> {
        let at = self.results.iter().position(|(it, _)| *it == number)?;
        Some(self.results.swap_remove(at).1)
    }

    /// Returns the time of the earliest deadline or connection attempt, in ns.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let next_ns = |entry: &PendingConnection| match &entry.stage {
            Stage::Connecting(connecting) => connecting.retry_at_ns.min(entry.deadline_ns),
            Stage::Handshake(_) => entry.deadline_ns,
        };
        self.entries.iter().flatten().map(next_ns).min()
    }

    /// Returns the numbers of the connections whose next attempt to connect is due.
    pub(crate) fn due_attempts(&self, now_ns: u64) -> Vec<u32> {
        let is_due = |entry: &PendingConnection| matches!(&entry.stage, Stage::Connecting(it) if it.retry_at_ns <= now_ns);
        let entries = (0..).zip(&self.entries);
        entries.filter(|it| it.1.as_ref().is_some_and(is_due)).map(|it| it.0).collect()
    }

    /// Removes and returns a handshake whose deadline has passed. Also stores the errors of
    /// connection attempts whose deadline has passed.
    pub(crate) fn pop_timed_out(&mut self, now_ns: u64) -> Option<FinishedHandshake> {
        let is_late =
            |it: &Option<PendingConnection>| it.as_ref().is_some_and(|it| it.deadline_ns <= now_ns);
        // A table of fewer than 2^32 entries.
        let number = self.entries.iter().rposition(is_late)? as u32;
        let entry = self.remove(number)?;
        let connected_to = entry.connected_to().cloned();
        match entry.stage {
            Stage::Connecting(connecting) => {
                self.results.push((number, Err(connecting.timeout_error())));
                self.pop_timed_out(now_ns)
            }
            Stage::Handshake(mut handshake) => Some(FinishedHandshake {
                number,
                connected_to,
                result: Err(handshake.take_failure()),
            }),
        }
    }

    /// Returns `true` if one more connection can be accepted without aborting a handshake.
    pub(crate) fn has_room(&self, config: &Config) -> bool {
        self.entries.len() < config.connections.handshakes_max as usize
    }

    /// Makes room for one more accepted connection; returns `true` if it has aborted a handshake
    /// for this. That is the oldest handshake of the address that has the most of them, once it has
    /// lasted for a part of its timeout; all Unix sockets count as one address.
    ///
    /// # Errors
    /// The time at which to try again, in ns.
    pub(crate) fn make_room(&mut self, config: &Config, now_ns: u64) -> Result<bool, u64> {
        let handshakes_max = config.connections.handshakes_max as usize;
        if self.has_room(config) {
            return Ok(false);
        }
        let mut count = 0;
        // By address: the number of handshakes, and the deadline and the number of the oldest.
        let mut by_remote = HashMap::<Option<IpAddr>, (usize, Reverse<(u64, u32)>)>::new();
        for (number, entry) in (0..).zip(&self.entries) {
            let Some(entry) = entry.as_ref().filter(|it| it.connected_to().is_none()) else {
                continue;
            };
            let oldest = Reverse((entry.deadline_ns, number));
            let its = by_remote.entry(entry.remote_ip).or_insert((0, oldest));
            (its.0, its.1) = (its.0 + 1, its.1.max(oldest));
            count += 1;
        }
        let Some(&(_, Reverse((deadline_ns, number)))) = by_remote.values().max() else {
            return Ok(false);
        };
        if count < handshakes_max {
            return Ok(false);
        }
        let timeout_ns = clock::ns_from_duration(config.connections.handshake_timeout);
        let patient_until_ns = deadline_ns - (timeout_ns - timeout_ns / ABORT_DIVISOR);
        if now_ns < patient_until_ns {
            return Err(patient_until_ns);
        }
        self.remove(number);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ConnectionsConfig;
    use std::os::unix::net::UnixStream;

    #[test]
    fn full_table_ends_the_oldest_handshake_of_the_address_that_has_the_most() {
        const MS: u64 = 1_000_000;
        let connections = ConnectionsConfig::default()
            .handshakes_max(3)
            .handshake_timeout(Duration::from_millis(1600));
        let config = Config::default().connections(connections);
        let (poll, security) = (Poll::new().expect("epoll"), Security::default());
        let mut handshakes = Handshakes::default();
        let [one, other] = [1, 2].map(|it| Some(IpAddr::from([127, 0, 0, it])));
        let mut peers = Vec::new();
        for (remote, began_ms) in [(other, 0), (one, 100), (one, 200)] {
            assert_eq!(
                handshakes.make_room(&config, 0),
                Ok(false),
                "dropped one despite a free slot"
            );
            let (peer, socket) = UnixStream::pair().expect("create a socket pair");
            let from = (Address::Tcp("localhost:1".into()), remote);
            let parts = (&poll, &config, &security);
            let deadline_ns = (began_ms + 1600) * MS;
            let wire = Wire::Socket(socket.into());
            handshakes.accept(wire, from, deadline_ns, parts).expect("a handshake");
            peers.push(peer);
        }
        // A sixteenth of the timeout is 100 ms.
        assert_eq!(handshakes.make_room(&config, 199 * MS), Err(200 * MS));
        assert_eq!(handshakes.make_room(&config, 200 * MS), Ok(true));
        let left: Vec<_> = handshakes.entries.iter().flatten().map(|it| it.remote_ip).collect();
        assert_eq!(left, [other, one]);
        assert_eq!(handshakes.make_room(&config, 200 * MS), Ok(false));
    }
}
