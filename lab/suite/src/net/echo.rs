//! One message at a time over one connection, and its echo.

use super::wait::{create_epoll_set, wait_for_events};
use crate::channels::PollPause;
use crate::common::{bytes_to_usize, check_bytes_equal};
use crate::floor::connect::{END_MARK, LENGTH_FIELD_BYTES, new_message};
use crate::floor::relay::{Relay, RelayMedium};
use crate::floor::socket::{EchoMessages, SocketEnds};
use handover_base::clock;
use handover_harness::{Fault, Setup};
use handover_net::engine::LengthPrefixCodec;
use handover_net::{CloseReason, Config, Conn, ConnKey, Connections, Handler, Reactor, Stopper};
use handover_record::{Bytes, Spec, args};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::io::{ErrorKind, Read, Write};
use std::marker::PhantomData;
use std::net::TcpStream;
use std::time::Duration;

args! {
    /// Arguments of the benchmarks of an echo over one connection.
    pub struct NetEchoArgs {
        /// Bytes in each message in each direction, including four bytes of its length.
        message_bytes: Bytes = 64 (smoke 8, range 5 ..= 65536),
    }
}

/// First byte of the message that checks if the server echoes. The message is echoed but not
/// counted.
const GREETING: u8 = 0xfe;

/// Benchmark of a server of kind `E`, with a client that sleeps until it receives an echo.
pub(super) type EchoRelay<E> = Relay<EchoLink<E, false>>;
/// Benchmark of a server of kind `E`, with a client that never sleeps.
pub(super) type SpinningRelay<E> = Relay<EchoLink<E, true>>;

/// A server that echoes the messages of one connection.
pub(super) trait EchoServer: Send + Sync + 'static {
    /// Serves until the connection is closed; returns the number of messages echoed, without the
    /// greeting. A server that polls before it sleeps does so as long as `pause` allows.
    fn serve(server_end: TcpStream, message_bytes: usize, pause: PollPause) -> Result<u64, Fault>;
}

/// Server: this project's event handler, which spins for `SPIN_NS` after each message before it
/// sleeps.
pub(super) struct HandoverEcho<const SPIN_NS: u32>;

/// Handler that echoes messages until one starts with [`END_MARK`].
struct EchoHandler {
    /// Number of messages echoed, without the greeting.
    echoed_count: u64,
    stopper: Option<Stopper<()>>,
}

impl Handler for EchoHandler {
    type Codec = LengthPrefixCodec;
    type Data = ();

    fn on_message(&mut self, conn: &mut Conn<'_, LengthPrefixCodec, ()>, message: &[u8]) {
        match message.first() {
            Some(&END_MARK) => return conn.close(),
            Some(&GREETING) => {}
            _ => self.echoed_count += 1,
        }
        // Fails only if the peer has closed; the client then reports that.
        let _ = conn.send(message);
    }

    fn on_close(
        &mut self,
        _: &mut Connections<'_, LengthPrefixCodec, ()>,
        _: ConnKey,
        (): (),
        _: &CloseReason,
    ) {
        if let Some(stopper) = &self.stopper {
            stopper.stop(Duration::ZERO);
        }
    }
}

impl<const SPIN_NS: u32> EchoServer for HandoverEcho<SPIN_NS> {
    fn serve(server_end: TcpStream, message_bytes: usize, pause: PollPause) -> Result<u64, Fault> {
        let spin_max = Duration::from_nanos(pause.ns_before_sleep(SPIN_NS.into()));
        let config = Config::default().spin_max(spin_max);
        let codec = LengthPrefixCodec::new(u32::try_from(message_bytes).unwrap_or(u32::MAX));
        let echo = EchoHandler { echoed_count: 0, stopper: None };
        let mut reactor = Reactor::new(config, codec, echo).map_err(Fault::from_error)?;
        let stopper = reactor.stopper();
        reactor.handler_mut().stopper = Some(stopper);
        reactor.adopt(server_end).map_err(Fault::from_error)?;
        reactor.run().map_err(Fault::from_error)?;
        Ok(reactor.handler_mut().echoed_count)
    }
}

/// Compared implementation: an epoll loop for one connection. If `SPINS`, it polls for a while
/// before it sleeps. It has fixed-size messages and no limits, and polls for as long as the event
/// handler does.
pub(super) struct EpollEcho<const SPINS: bool>;

impl<const SPINS: bool> EchoServer for EpollEcho<SPINS> {
    fn serve(
        mut server_end: TcpStream,
        message_bytes: usize,
        pause: PollPause,
    ) -> Result<u64, Fault> {
        let set = create_epoll_set([&server_end], epoll::EventFlags::IN)?;
        let mut events = Vec::with_capacity(16);
        let mut buffer = vec![0; 1 << 16];
        let (mut filled, mut echoed_count) = (0, 0);
        let spin_ticks = clock::ticks_from_ns(pause.ns_before_sleep(SPIN_NS));
        let mut until = clock::ticks() + spin_ticks;
        loop {
            let timeout = (SPINS && clock::ticks() < until).then(Timespec::default);
            wait_for_events(&set, &mut events, timeout.as_ref())?;
            if events.is_empty() {
                continue;
            }
            until = clock::ticks() + spin_ticks;
            loop {
                match server_end.read(&mut buffer[filled..message_bytes]) {
                    Ok(0) => return Ok(echoed_count),
                    Ok(count) => filled += count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error.into()),
                }
                if filled < message_bytes {
                    continue;
                }
                match buffer[LENGTH_FIELD_BYTES] {
                    END_MARK => return Ok(echoed_count),
                    GREETING => {}
                    _ => echoed_count += 1,
                }
                // One message at a time always fits into the socket buffer.
                server_end.write_all(&buffer[..message_bytes])?;
                filled = 0;
                // No more bytes follow, as there is only one message at a time.
                break;
            }
        }
    }
}

/// Time in ns for which the event handler may poll before it sleeps.
const SPIN_NS: u64 = 50_000;

/// Floor: plain reads and writes. They poll for as long as the event handler does, and then sleep
/// in `read`.
pub(super) struct BlockingEcho;

impl EchoServer for BlockingEcho {
    fn serve(server_end: TcpStream, message_bytes: usize, pause: PollPause) -> Result<u64, Fault> {
        server_end.set_nonblocking(false)?;
        let spin_ticks = clock::ticks_from_ns(pause.ns_before_sleep(SPIN_NS));
        let mut message = vec![0; message_bytes];
        let mut echoed_count = 0;
        loop {
            let mut filled = 0;
            let until = clock::ticks() + spin_ticks;
            while filled < message_bytes {
                let asleep = clock::ticks() >= until;
                let flags = if asleep { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
                match recv(&server_end, &mut message[filled..], flags) {
                    Ok((0, _)) => return Ok(echoed_count),
                    Ok((count, _)) => filled += count,
                    Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
            match message[LENGTH_FIELD_BYTES] {
                END_MARK => return Ok(echoed_count),
                GREETING => {}
                _ => echoed_count += 1,
            }
            (&server_end).write_all(&message)?;
        }
    }
}

/// Medium of round trips: a connection between a client and a server of kind `E`. If `SPINS`, the
/// client never sleeps.
pub(super) struct EchoLink<E, const SPINS: bool> {
    client_end: TcpStream,
    server_end: TcpStream,
    message_bytes: usize,
    pause: PollPause,
    server_type: PhantomData<fn() -> E>,
}

/// Declaration of the benchmark with a client that sleeps until it receives an echo.
const ASLEEP_SPEC: Spec =
    Spec::new("net/echo", "round trip of a message to the event handler over loopback TCP")
        .floor("floor/socket")
        .classic("evh_perf")
        .ladder()
        .hands_over();
/// Declaration of the benchmark with a client that never sleeps.
const AWAKE_SPEC: Spec = Spec::new(
    "net/echo-spin",
    "round trip of a message to the event handler over loopback TCP, both sides polling",
)
.classic("evh_perf")
.hands_over();

impl<E: EchoServer, const SPINS: bool> RelayMedium for EchoLink<E, SPINS> {
    type Args = NetEchoArgs;
    const SPEC: Spec = if SPINS { AWAKE_SPEC } else { ASLEEP_SPEC };
    type PingState = EchoMessages;

    fn setup(args: &NetEchoArgs, setup: &mut Setup) -> Result<Self, Fault> {
        let (client_end, server_end) = SocketEnds::<TcpStream, SPINS>::create_ends(setup)?;
        client_end.set_nonblocking(SPINS)?;
        let message_bytes = bytes_to_usize(args.message_bytes);
        let pause = PollPause::new(setup);
        Ok(Self { client_end, server_end, message_bytes, pause, server_type: PhantomData })
    }

    fn new_ping_state(&self) -> Result<EchoMessages, Fault> {
        let sent = new_message(self.message_bytes);
        let mut messages = EchoMessages { received: vec![0; sent.len()], sent };
        let letter = std::mem::replace(&mut messages.sent[LENGTH_FIELD_BYTES], GREETING);
        self.round_trip(&mut messages)?;
        messages.sent[LENGTH_FIELD_BYTES] = letter;
        Ok(messages)
    }

    fn round_trip(&self, messages: &mut EchoMessages) -> Result<(), Fault> {
        SocketEnds::<_, SPINS>::write_all(&self.client_end, &messages.sent, self.pause)?;
        SocketEnds::<_, SPINS>::read_exact(&self.client_end, &mut messages.received, self.pause)
    }

    fn end(&self, messages: &mut EchoMessages) -> Result<(), Fault> {
        // The last echo is checked, untimed; every earlier one was read into the same buffer.
        let checked = check_bytes_equal(&messages.received, &messages.sent);
        messages.sent[LENGTH_FIELD_BYTES] = END_MARK;
        SocketEnds::<_, SPINS>::write_all(&self.client_end, &messages.sent, self.pause)?;
        self.client_end.shutdown(std::net::Shutdown::Write)?;
        checked
    }

    fn echo(&self) -> Result<u64, Fault> {
        E::serve(self.server_end.try_clone()?, self.message_bytes, self.pause)
    }
}
