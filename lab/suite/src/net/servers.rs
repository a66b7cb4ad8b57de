//! Servers of the load: this project's event handler, a hand-written epoll loop, and the libraries
//! that are alternatives. All of them read the same number of bytes at a time, split them into
//! messages, and send all echoes together.

use super::load::{LoadArgs, LoadServer};
use super::wait::{create_epoll_set, wait_for_events};
use crate::floor::connect::LENGTH_FIELD_BYTES;
use handover_base::usage::{self, Usage};
use handover_harness::Fault;
use handover_net::engine::LengthPrefixCodec;
use handover_net::{CloseReason, Config, Conn, ConnKey, Connections, Handler, Reactor, Stopper};
use rustix::event::epoll;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Maximum number of bytes that are read at a time.
const READ_BYTES_MAX: usize = 1 << 16;

/// Returns the maximum length of a message for the event handler's codec.
fn message_bytes_max(load: &LoadArgs) -> u32 {
    u32::try_from(load.message_bytes.0).unwrap_or(u32::MAX)
}

/// Server: this project's event handler, which sends back each message. If `SENDS_COPY`, it sends a
/// copy from another buffer, like a server whose answers differ from the requests.
pub(super) struct HandoverServer<const SENDS_COPY: bool>;

/// Event handler that echoes until the last of its connections is closed.
pub(super) struct LoadHandler<const SENDS_COPY: bool> {
    /// Number of connections that are not closed yet.
    open_count: usize,
    stopper: Option<Stopper<()>>,
    /// First connection error, if there was one.
    fault: Option<Fault>,
    /// Number of connections not accepted yet.
    unaccepted_count: usize,
    /// Resource usage of the thread when the last connection was accepted.
    usage_after_setup: Usage,
    /// Copy of the first message; all messages are equal.
    copy: Vec<u8>,
}

impl<const SENDS_COPY: bool> Handler for LoadHandler<SENDS_COPY> {
    type Codec = LengthPrefixCodec;
    type Data = ();

    fn on_accept(&mut self, _: &mut Conn<'_, LengthPrefixCodec, ()>) {
        self.unaccepted_count -= 1;
        if self.unaccepted_count == 0 {
            self.usage_after_setup = usage::thread_usage();
        }
    }

    fn on_message(&mut self, conn: &mut Conn<'_, LengthPrefixCodec, ()>, message: &[u8]) {
        if SENDS_COPY && self.copy.is_empty() {
            self.copy = message.to_vec();
        }
        // Fails only if the peer has closed; the client then reports that.
        let _ = conn.send(if SENDS_COPY { &self.copy } else { message });
    }

    fn on_close(
        &mut self,
        _: &mut Connections<'_, LengthPrefixCodec, ()>,
        _: ConnKey,
        (): (),
        why: &CloseReason,
    ) {
        if !matches!(why, CloseReason::Peer) {
            self.fault.get_or_insert_with(|| Fault::from_error(why));
        }
        self.open_count -= 1;
        if self.open_count == 0
            && let Some(stopper) = &self.stopper
        {
            stopper.stop(Duration::ZERO);
        }
    }
}

impl<const SENDS_COPY: bool> LoadHandler<SENDS_COPY> {
    /// Serves the connections that `adopt` adds until all of them are closed. Returns the resource
    /// usage of the thread when all connections and their handshakes were complete.
    pub(super) fn serve(
        config: Config,
        connections_count: usize,
        load: &LoadArgs,
        adopt: impl FnOnce(&mut Reactor<Self>) -> Result<(), handover_net::NetError>,
    ) -> Result<Usage, Fault> {
        let codec = LengthPrefixCodec::new(message_bytes_max(load));
        let echo = Self {
            open_count: connections_count,
            stopper: None,
            fault: None,
            unaccepted_count: connections_count,
            usage_after_setup: Usage::default(),
            copy: Vec::new(),
        };
        let mut reactor = Reactor::new(config, codec, echo).map_err(Fault::from_error)?;
        let stopper = reactor.stopper();
        reactor.handler_mut().stopper = Some(stopper);
        adopt(&mut reactor).map_err(Fault::from_error)?;
        reactor.run().map_err(Fault::from_error)?;
        let usage_after_setup = reactor.handler_mut().usage_after_setup;
        reactor.handler_mut().fault.take().map_or(Ok(usage_after_setup), Err)
    }
}

impl<const SENDS_COPY: bool> LoadServer for HandoverServer<SENDS_COPY> {
    fn serve(streams: Vec<TcpStream>, load: &LoadArgs) -> Result<Usage, Fault> {
        LoadHandler::<SENDS_COPY>::serve(Config::default(), streams.len(), load, |reactor| {
            streams.into_iter().try_for_each(|stream| reactor.adopt(stream).map(drop))
        })
    }
}

/// Floor: an epoll loop that sends back all bytes that it has read. It ignores message boundaries.
pub(super) struct UnframedServer;

impl LoadServer for UnframedServer {
    fn serve(streams: Vec<TcpStream>, load: &LoadArgs) -> Result<Usage, Fault> {
        serve_by_epoll(streams, load, |bytes| bytes.len())
    }
}

/// Returns the number of bytes of the complete messages at the beginning of `bytes`.
pub(super) fn complete_messages_bytes(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(&length) = bytes[at..].first_chunk::<LENGTH_FIELD_BYTES>() {
        let end = at + LENGTH_FIELD_BYTES + u32::from_be_bytes(length) as usize;
        if end > bytes.len() {
            break;
        }
        at = end;
    }
    at
}

/// Server's end of a connection in a hand-written event loop.
struct EchoConnection<S> {
    stream: S,
    /// Received bytes of an incomplete message.
    incomplete: Vec<u8>,
    /// Bytes that the socket buffer has not accepted yet.
    unsent: Vec<u8>,
    has_ended: bool,
}

impl<S: Read + Write> EchoConnection<S> {
    fn new(stream: S) -> Self {
        Self { stream, incomplete: Vec::new(), unsent: Vec::new(), has_ended: false }
    }

    /// Reads all available bytes and echoes complete messages. Returns `true` if the client has
    /// closed the connection and all echoes were sent.
    fn serve(
        &mut self,
        buffer: &mut [u8],
        complete_messages_bytes: impl Fn(&[u8]) -> usize,
    ) -> Result<bool, Fault> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        while !self.has_ended {
            let begun_bytes = self.incomplete.len();
            buffer[..begun_bytes].copy_from_slice(&self.incomplete);
            match self.stream.read(&mut buffer[begun_bytes..]) {
                Ok(0) => self.has_ended = true,
                Ok(count) => {
                    let filled = begun_bytes + count;
                    let whole = complete_messages_bytes(&buffer[..filled]);
                    self.incomplete.clear();
                    self.incomplete.extend_from_slice(&buffer[whole..filled]);
                    if !self.echo(&buffer[..whole])? {
                        return Ok(false);
                    }
                    if filled < buffer.len() {
                        return Ok(false);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Sends `bytes`, and stores those that the kernel does not accept; returns `true` if none are
    /// stored.
    fn echo(&mut self, bytes: &[u8]) -> Result<bool, Fault> {
        if bytes.is_empty() {
            return Ok(true);
        }
        let sent_bytes = match self.stream.write(bytes) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error.into()),
        };
        self.unsent.extend_from_slice(&bytes[sent_bytes..]);
        Ok(self.unsent.is_empty())
    }
}

/// Returns the size of a buffer for an incomplete message and the bytes of the next read.
pub(super) fn buffer_bytes(load: &LoadArgs) -> usize {
    READ_BYTES_MAX + message_bytes_max(load) as usize
}

/// Creates a buffer for an incomplete message and the bytes of the next read.
pub(super) fn new_buffer(load: &LoadArgs) -> Vec<u8> {
    vec![0; buffer_bytes(load)]
}

/// Compared implementation: an edge-triggered epoll loop without limits and time-outs.
pub(super) struct EpollServer;

impl LoadServer for EpollServer {
    fn serve(streams: Vec<TcpStream>, load: &LoadArgs) -> Result<Usage, Fault> {
        serve_by_epoll(streams, load, complete_messages_bytes)
    }
}

/// Serves all connections with one epoll set; `complete_messages_bytes` returns the number of
/// received bytes to echo.
fn serve_by_epoll(
    streams: Vec<TcpStream>,
    load: &LoadArgs,
    complete_messages_bytes: impl Fn(&[u8]) -> usize,
) -> Result<Usage, Fault> {
    let set = create_epoll_set(&streams, epoll::EventFlags::IN | epoll::EventFlags::OUT)?;
    let mut connections: Vec<_> = streams.into_iter().map(EchoConnection::new).collect();
    let (mut buffer, mut open_count) = (new_buffer(load), connections.len());
    let mut events = Vec::with_capacity(256);
    let usage_after_setup = usage::thread_usage();
    while open_count > 0 {
        wait_for_events(&set, &mut events, None)?;
        for event in &events {
            let data = event.data;
            let connection = &mut connections[data.u64() as usize];
            let had_ended = connection.has_ended && connection.unsent.is_empty();
            if !had_ended && connection.serve(&mut buffer, &complete_messages_bytes)? {
                open_count -= 1;
            }
        }
    }
    Ok(usage_after_setup)
}

/// Compared implementation: an event loop with `mio`, the layer over epoll that many async runtimes
/// use.
#[cfg(feature = "peers")]
pub(super) struct MioServer;

#[cfg(feature = "peers")]
impl LoadServer for MioServer {
    fn serve(streams: Vec<TcpStream>, load: &LoadArgs) -> Result<Usage, Fault> {
        use mio::{Events, Interest, Poll, Token, net};
        let mut poll = Poll::new()?;
        let mut connections = Vec::new();
        for stream in streams {
            stream.set_nonblocking(true)?;
            let mut stream = net::TcpStream::from_std(stream);
            let interest = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(&mut stream, Token(connections.len()), interest)?;
            connections.push(EchoConnection::new(stream));
        }
        let (mut buffer, mut open_count) = (new_buffer(load), connections.len());
        let mut events = Events::with_capacity(256);
        let usage_after_setup = usage::thread_usage();
        while open_count > 0 {
            match poll.poll(&mut events, None) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error.into()),
                _ => {}
            }
            for event in &events {
                let connection = &mut connections[event.token().0];
                let had_ended = connection.has_ended && connection.unsent.is_empty();
                if !had_ended && connection.serve(&mut buffer, complete_messages_bytes)? {
                    open_count -= 1;
                }
            }
        }
        Ok(usage_after_setup)
    }
}

/// Compared implementation: a tokio task for each connection, all on one thread.
#[cfg(feature = "peers")]
pub(super) struct TokioServer;

#[cfg(feature = "peers")]
impl LoadServer for TokioServer {
    fn serve(streams: Vec<TcpStream>, load: &LoadArgs) -> Result<Usage, Fault> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        runtime.block_on(async {
            let mut tasks = Vec::new();
            for stream in streams {
                stream.set_nonblocking(true)?;
                let stream = tokio::net::TcpStream::from_std(stream)?;
                tasks.push(tokio::spawn(echo_until_closed(stream, new_buffer(load))));
            }
            let usage_after_setup = usage::thread_usage();
            for task in tasks {
                task.await.map_err(Fault::from_error)??;
            }
            Ok(usage_after_setup)
        })
    }
}

/// Reads and echoes complete messages until the client closes the connection.
#[cfg(feature = "peers")]
pub(super) async fn echo_until_closed<S>(mut stream: S, mut buffer: Vec<u8>) -> Result<(), Fault>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut begun_bytes = 0;
    loop {
        let count = stream.read(&mut buffer[begun_bytes..]).await?;
        if count == 0 {
            return Ok(());
        }
        let filled = begun_bytes + count;
        let whole = complete_messages_bytes(&buffer[..filled]);
        stream.write_all(&buffer[..whole]).await?;
        // Does nothing without TLS, whose stream may keep records that the socket buffer did not
        // accept.
        stream.flush().await?;
        buffer.copy_within(whole..filled, 0);
        begun_bytes = filled - whole;
    }
}

/// Servers with the event loops of C and C++ libraries.
#[cfg(all(feature = "peers", any(handover_boost_asio, handover_libuv)))]
pub(super) mod foreign {
    use super::*;
    use crate::channels::PollPause;
    use crate::net::echo::EchoServer;
    use crate::raw::peers::servers::Server;

    /// Event loop of a C or C++ library, as a type.
    pub(in crate::net) trait EventLoopLibrary: Send + Sync + 'static {
        const SERVER: Server;
    }

    /// Compared implementation: the event loop of libuv.
    #[cfg(handover_libuv)]
    pub(in crate::net) struct Uv;
    #[cfg(handover_libuv)]
    impl EventLoopLibrary for Uv {
        const SERVER: Server = crate::raw::peers::servers::LIBUV_SERVER;
    }

    /// Compared implementation: the event loop of Boost.Asio.
    #[cfg(handover_boost_asio)]
    pub(in crate::net) struct Asio;
    #[cfg(handover_boost_asio)]
    impl EventLoopLibrary for Asio {
        const SERVER: Server = crate::raw::peers::servers::ASIO_SERVER;
    }

    impl<L: EventLoopLibrary> LoadServer for L {
        fn serve(streams: Vec<TcpStream>, load: &LoadArgs) -> Result<Usage, Fault> {
            let mut usage_after_setup = Usage::default();
            let buffer_bytes = buffer_bytes(load);
            L::SERVER.serve(streams, buffer_bytes, || usage_after_setup = usage::thread_usage())?;
            Ok(usage_after_setup)
        }
    }

    impl<L: EventLoopLibrary> EchoServer for L {
        fn serve(server_end: TcpStream, message_bytes: usize, _: PollPause) -> Result<u64, Fault> {
            let echoed =
                L::SERVER.serve(vec![server_end], READ_BYTES_MAX + message_bytes, || ())?;
            // The first and the last message are none of the turns.
            echoed.checked_sub(2).ok_or_else(|| {
                Fault::new("the server echoed fewer than 2 messages, the greeting and the last one")
            })
        }
    }
}
