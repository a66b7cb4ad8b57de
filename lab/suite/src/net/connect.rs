//! Servers of short connections, each with one message.

use super::wait::wait_for_events;
use crate::floor::connect::{ConnectServer, END_MARK, LENGTH_FIELD_BYTES, SERVER_ADDRESS};
use handover_harness::Fault;
use handover_net::engine::LengthPrefixCodec;
use handover_net::{Config, Conn, Handler, Reactor, Stopper};
use handover_record::Spec;
use rustix::event::epoll;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;
#[cfg(feature = "peers")]
use std::{cell::Cell, rc::Rc};

const SPEC: Spec = Spec::new(
    "net/connect",
    "TCP connection over loopback to the event handler: connect, echo one message, close",
)
.floor("floor/connect")
.classic("evh_perf")
.hands_over();

/// Server of short connections: this project's event handler.
pub(super) struct HandoverAccept;

/// Handler that echoes messages until one starts with [`END_MARK`].
struct ConnectHandler {
    echoed_count: u64,
    stopper: Option<Stopper<()>>,
}

impl Handler for ConnectHandler {
    type Codec = LengthPrefixCodec;
    type Data = ();

    fn on_message(&mut self, conn: &mut Conn<'_, LengthPrefixCodec, ()>, message: &[u8]) {
        if message.first() == Some(&END_MARK) {
            if let Some(stopper) = &self.stopper {
                stopper.stop(Duration::ZERO);
            }
            return;
        }
        self.echoed_count += 1;
        // Fails only if the peer has closed; the client then reports that.
        let _ = conn.send(message);
    }
}

impl ConnectServer for HandoverAccept {
    const SPEC: Spec = SPEC;

    fn serve(message_bytes: usize, publish_port: impl FnOnce(u16)) -> Result<u64, Fault> {
        let codec = LengthPrefixCodec::new(u32::try_from(message_bytes).unwrap_or(u32::MAX));
        let echo = ConnectHandler { echoed_count: 0, stopper: None };
        let mut reactor =
            Reactor::new(Config::default(), codec, echo).map_err(Fault::from_error)?;
        let stopper = reactor.stopper();
        reactor.handler_mut().stopper = Some(stopper);
        let here = SocketAddr::from((SERVER_ADDRESS, 0));
        publish_port(reactor.listen(here).map_err(Fault::from_error)?.port());
        reactor.run().map_err(Fault::from_error)?;
        Ok(reactor.handler_mut().echoed_count)
    }
}

/// Connection of [`EpollAccept`], over which a client sends one message.
struct AcceptedConnection {
    stream: TcpStream,
    message_buffer: Vec<u8>,
    /// Number of bytes of the message received so far.
    received_bytes: usize,
}

impl AcceptedConnection {
    /// Reads and echoes the message. Returns `Some(true)` if it ends the round, `Some(false)` if
    /// the client has closed the connection, `None` otherwise.
    fn serve(&mut self, echoed_count: &mut u64) -> Result<Option<bool>, Fault> {
        loop {
            match self.stream.read(&mut self.message_buffer[self.received_bytes..]) {
                Ok(0) => return Ok(Some(false)),
                Ok(count) => self.received_bytes += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error.into()),
            }
            if self.received_bytes < self.message_buffer.len() {
                continue;
            }
            if self.message_buffer[LENGTH_FIELD_BYTES] == END_MARK {
                return Ok(Some(true));
            }
            // The socket buffer has room for one message.
            self.stream.write_all(&self.message_buffer)?;
            self.received_bytes = 0;
            *echoed_count += 1;
            // No more bytes follow, as each client sends one message; the end of the connection
            // causes another edge event.
            return Ok(None);
        }
    }
}

/// Compared implementation: an edge-triggered epoll loop without limits and time-outs.
pub(super) struct EpollAccept;

impl ConnectServer for EpollAccept {
    const SPEC: Spec = SPEC;

    fn serve(message_bytes: usize, publish_port: impl FnOnce(u16)) -> Result<u64, Fault> {
        const LISTENER_DATA: u64 = u64::MAX;
        let listener = TcpListener::bind((SERVER_ADDRESS, 0))?;
        listener.set_nonblocking(true)?;
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&set, &listener, epoll::EventData::new_u64(LISTENER_DATA), flags)?;
        publish_port(listener.local_addr()?.port());
        let mut connections: Vec<Option<AcceptedConnection>> = Vec::new();
        let mut vacant = Vec::new();
        let mut events = Vec::with_capacity(256);
        let mut echoed_count = 0;
        loop {
            wait_for_events(&set, &mut events, None)?;
            for event in &events {
                let data = event.data;
                if data.u64() != LISTENER_DATA {
                    let at = data.u64() as usize;
                    let Some(connection) = &mut connections[at] else { continue };
                    match connection.serve(&mut echoed_count)? {
                        Some(true) => return Ok(echoed_count),
                        Some(false) => {
                            connections[at] = None;
                            vacant.push(at);
                        }
                        None => {}
                    }
                    continue;
                }
                loop {
                    let stream = match listener.accept() {
                        Ok((stream, _)) => stream,
                        Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                        Err(error) => return Err(error.into()),
                    };
                    stream.set_nonblocking(true)?;
                    stream.set_nodelay(true)?;
                    let at = vacant.pop().unwrap_or(connections.len());
                    epoll::add(&set, &stream, epoll::EventData::new_u64(at as u64), flags)?;
                    let connection = Some(AcceptedConnection {
                        stream,
                        message_buffer: vec![0; message_bytes],
                        received_bytes: 0,
                    });
                    match connections.get_mut(at) {
                        Some(place) => *place = connection,
                        None => connections.push(connection),
                    }
                }
            }
        }
    }
}

/// Compared implementation: a tokio task for each connection, all on one thread.
#[cfg(feature = "peers")]
pub(super) struct TokioAccept;

#[cfg(feature = "peers")]
impl ConnectServer for TokioAccept {
    const SPEC: Spec = SPEC;

    fn serve(message_bytes: usize, publish_port: impl FnOnce(u16)) -> Result<u64, Fault> {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind((SERVER_ADDRESS, 0)).await?;
            publish_port(listener.local_addr()?.port());
            let (ended, mut ends) = tokio::sync::mpsc::unbounded_channel::<()>();
            let echoed_count = Rc::new(Cell::new(0));
            let counts = Rc::clone(&echoed_count);
            let accepts = async move {
                while let Ok((mut stream, _)) = listener.accept().await {
                    let (ended, echoed_count) = (ended.clone(), Rc::clone(&counts));
                    tokio::task::spawn_local(async move {
                        let mut message = vec![0; message_bytes];
                        let _ = stream.set_nodelay(true);
                        while stream.read_exact(&mut message).await.is_ok() {
                            if message[LENGTH_FIELD_BYTES] == END_MARK {
                                let _ = ended.send(());
                                return;
                            }
                            // Fails only if the peer has closed; the client then reports that.
                            if stream.write_all(&message).await.is_ok() {
                                echoed_count.set(echoed_count.get() + 1);
                            }
                        }
                    });
                }
            };
            let local = tokio::task::LocalSet::new();
            local.spawn_local(accepts);
            match local.run_until(ends.recv()).await {
                Some(()) => Ok(echoed_count.get()),
                None => Err(Fault::new(
                    "the listener has stopped before the message that ends the round",
                )),
            }
        })
    }
}
