//! A message over loopback TCP or a pair of Unix sockets: the floor of everything that uses sockets
//! on one machine.

use super::relay::RelayMedium;
use crate::channels::PollPause;
use crate::common::{bytes_to_usize, check_bytes_equal};
use crate::floor::connect::SERVER_ADDRESS;
use handover_harness::{Fault, Setup};
use handover_record::{Bytes, Spec, args};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

args! {
    /// Arguments of the benchmarks of a message over a socket.
    pub struct SocketArgs {
        /// Bytes in each message in each direction.
        message_bytes: Bytes = 64 (smoke 1, range 1 ..= 1048576),
    }
}

/// First byte of a message that ends the round and is not echoed.
const END: u8 = 0xff;

/// Number of connections by other processes after which [`SocketEnd::pair`] fails.
const FOREIGN_CONNECTIONS_MAX: u32 = 16;

/// Socket that can be one end of the connection between two participants.
pub(crate) trait SocketEnd:
    AsFd + From<OwnedFd> + Into<OwnedFd> + Send + Sync + 'static
{
    /// Declarations of the floors over this kind of socket. Participants sleep in the first, and
    /// spin in the second.
    const SPECS: [Spec; 2];

    /// Creates a connection, and returns its two ends.
    fn pair() -> Result<(Self, Self), Fault>;
}

impl SocketEnd for TcpStream {
    const SPECS: [Spec; 2] = [
        Spec::new(
            "floor/socket",
            "round trip of a message over loopback TCP, both sides sleeping in read",
        )
        .ladder()
        .hands_over(),
        Spec::new(
            "floor/socket-spin",
            "round trip of a message over loopback TCP, both sides polling without blocking",
        )
        .hands_over(),
    ];

    /// Connects over the loopback interface, without Nagle's delay.
    fn pair() -> Result<(TcpStream, TcpStream), Fault> {
        let listener = TcpListener::bind((SERVER_ADDRESS, 0))?;
        let address = listener.local_addr()?;
        let measured_end = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        let ours = measured_end.local_addr()?;
        for _ in 0..FOREIGN_CONNECTIONS_MAX {
            let (echo_end, peer) = listener.accept()?;
            if peer == ours {
                measured_end.set_nodelay(true)?;
                echo_end.set_nodelay(true)?;
                return Ok((measured_end, echo_end));
            }
        }
        Err(Fault::new(format!(
            "{FOREIGN_CONNECTIONS_MAX} connections to {address} came from other processes"
        )))
    }
}

impl SocketEnd for UnixStream {
    const SPECS: [Spec; 2] = [
        Spec::new(
            "floor/unix-socket",
            "round trip of a message over a pair of Unix sockets, both sides sleeping in read",
        )
        .hands_over(),
        Spec::new(
            "floor/unix-socket-spin",
            "round trip of a message over a pair of Unix sockets, both sides polling without blocking",
        )
        .hands_over(),
    ];

    fn pair() -> Result<(UnixStream, UnixStream), Fault> {
        Ok(UnixStream::pair()?)
    }
}

/// Medium of round trips: a socket connection. If `SPINS`, calls are non-blocking and repeated;
/// otherwise they sleep.
pub(crate) struct SocketEnds<E, const SPINS: bool> {
    measured_end: E,
    echo_end: E,
    message_bytes: usize,
    pause: PollPause,
}

/// Medium of round trips: loopback TCP with sleeping participants.
pub(crate) type Loopback = SocketEnds<TcpStream, false>;

impl<E: SocketEnd, const SPINS: bool> SocketEnds<E, SPINS> {
    /// Creates a connection; returns its two ends, which threads and processes can use.
    pub(crate) fn create_ends(setup: &mut Setup) -> Result<(E, E), Fault> {
        let (measured_end, echo_end) = setup.shared_fd_pair(|| {
            let (measured_end, echo_end) = E::pair()?;
            Ok((measured_end.into(), echo_end.into()))
        })?;
        Ok((measured_end.into(), echo_end.into()))
    }

    pub(crate) fn read_exact(end: &E, mut into: &mut [u8], pause: PollPause) -> Result<(), Fault> {
        while !into.is_empty() {
            match recv(end, &mut *into, RecvFlags::empty()) {
                Ok((0, _)) => {
                    return Err(Fault::new("the other participant has closed the connection"));
                }
                Ok((count, _)) => into = &mut into[count..],
                Err(Errno::WOULDBLOCK) if SPINS => pause.pause_once(),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    pub(crate) fn write_all(end: &E, mut bytes: &[u8], pause: PollPause) -> Result<(), Fault> {
        while !bytes.is_empty() {
            match send(end, bytes, SendFlags::NOSIGNAL) {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::WOULDBLOCK) if SPINS => pause.pause_once(),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Message that the pinging participant sends, and buffer for its echo.
pub(crate) struct EchoMessages {
    pub(crate) sent: Vec<u8>,
    pub(crate) received: Vec<u8>,
}

impl<E: SocketEnd, const SPINS: bool> RelayMedium for SocketEnds<E, SPINS> {
    type Args = SocketArgs;
    const SPEC: Spec = E::SPECS[SPINS as usize];
    type PingState = EchoMessages;

    fn setup(args: &SocketArgs, setup: &mut Setup) -> Result<Self, Fault> {
        let (measured_end, echo_end) = Self::create_ends(setup)?;
        if SPINS {
            for end in [&measured_end, &echo_end] {
                ioctl_fionbio(end, true)?;
            }
        }
        let message_bytes = bytes_to_usize(args.message_bytes);
        Ok(Self { measured_end, echo_end, message_bytes, pause: PollPause::new(setup) })
    }

    fn new_ping_state(&self) -> Result<EchoMessages, Fault> {
        let text = (b'a'..=b'z').cycle().take(self.message_bytes);
        Ok(EchoMessages { sent: text.collect(), received: vec![0; self.message_bytes] })
    }

    fn round_trip(&self, messages: &mut EchoMessages) -> Result<(), Fault> {
        Self::write_all(&self.measured_end, &messages.sent, self.pause)?;
        Self::read_exact(&self.measured_end, &mut messages.received, self.pause)
    }

    fn end(&self, messages: &mut EchoMessages) -> Result<(), Fault> {
        // The last echo is checked, untimed; every earlier one was read into the same buffer.
        let checked = check_bytes_equal(&messages.received, &messages.sent);
        messages.sent[0] = END;
        Self::write_all(&self.measured_end, &messages.sent, self.pause)?;
        checked
    }

    fn echo(&self) -> Result<u64, Fault> {
        let mut message = vec![0; self.message_bytes];
        let mut turns = 0;
        loop {
            Self::read_exact(&self.echo_end, &mut message, self.pause)?;
            if message[0] == END {
                return Ok(turns);
            }
            Self::write_all(&self.echo_end, &message, self.pause)?;
            turns += 1;
        }
    }
}
