//! Many outstanding messages over many connections: one client, which keeps `depth` on each, and a
//! server on its own CPU.

use super::wait::{create_epoll_set, wait_for_events};
use crate::common::{bytes_to_usize, ensure};
use crate::floor::connect::new_message;
use crate::floor::socket::Loopback;
use handover_base::clock;
use handover_base::sync::shared::{AtomicU64, Ordering};
use handover_base::usage::{self, Usage};
use handover_harness::{Fault, Handover, Participant, Region, Role, Samples, Setup};
use handover_record::{Bytes, Part, Spec, args};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use std::marker::PhantomData;
use std::net::TcpStream;
use std::time::Duration;
use zerocopy::FromZeros;

args! {
    /// Arguments of the benchmarks of many messages in flight.
    pub struct LoadArgs {
        /// Connections, all served by one thread.
        connections_count: u32 = 16 (smoke 3, range 1..=1024),
        /// Messages in flight on each connection.
        depth: u32 = 64 (smoke 4, range 1..=4096),
        /// Bytes in each message in each direction, including four bytes of its length.
        message_bytes: Bytes = 64 (smoke 16, range 8..=65536),
    }
}

/// Minimum number of messages in a batch if several messages are in flight.
const BATCH_MESSAGES: u64 = 1024;
/// Number of batches that are echoed before the first one is timed.
const WARM_UP_BATCHES: u64 = 2;
/// Index of the part with the time per message at the client.
const MESSAGE_PART: usize = 0;
/// Index of the part with the server's CPU time for a message.
const SERVER_PART: usize = 1;
/// Number of messages for which one sample of the server's CPU time is recorded.
const MESSAGES_PER_CPU_SAMPLE: u64 = 1_000;

/// Parts of the benchmarks with TLS.
pub(super) const LOAD_PARTS: &[Part] = &[
    Part::new("message", "time between two messages that return, at the client"),
    Part::new("server", "CPU time of the server's thread for one message").floor("net/load/server"),
];
/// Parts of the benchmark without TLS, in which the server's CPU time has no floor.
const PLAIN_LOAD_PARTS: &[Part] = &[LOAD_PARTS[0], Part { floor: None, ..LOAD_PARTS[1] }];

/// A server that echoes messages until all `streams` are closed. Returns the resource usage of its
/// thread at the end of the setup, so that the cost of setup can be excluded from the cost of a
/// message.
pub(super) trait LoadServer: Send + Sync + 'static {
    fn serve(streams: Vec<TcpStream>, load: &LoadArgs) -> Result<Usage, Fault>;
}

/// CPU time of the server, which publishes it at its end.
#[derive(FromZeros)]
#[repr(C)]
pub(super) struct ServerCpuTime {
    cpu_ns: AtomicU64,
    /// 1 when `cpu_ns` is final, 0 before.
    has_ended: AtomicU64,
}

impl ServerCpuTime {
    /// Calls `serve`, and publishes the CPU time used since the end of the setup. `serve` returns
    /// the resource usage at that time.
    pub(super) fn publish_cpu_time_of(
        &self,
        serve: impl FnOnce() -> Result<Usage, Fault>,
    ) -> Result<(), Fault> {
        let served = serve();
        let used =
            served.as_ref().map_or(Usage::default(), |&set_up| usage::thread_usage() - set_up);
        // Relaxed: ordered by the store below.
        self.cpu_ns.store(used.cpu_ns(), Ordering::Relaxed);
        // Release: pairs with the Acquire in record().
        self.has_ended.store(1, Ordering::Release);
        served.map(drop)
    }

    /// Waits until the server has finished, and records its CPU time divided by `messages_count`,
    /// the number of operations of the round.
    pub(super) fn record(&self, messages_count: u64, out: &mut Samples) {
        // Acquire: pairs with the Release in publish_cpu_time_of(), which makes the CPU time
        // visible.
        while self.has_ended.load(Ordering::Acquire) == 0 {
            std::thread::sleep(Duration::from_micros(100));
        }
        let cpu_ns = u128::from(self.cpu_ns.load(Ordering::Relaxed));
        let each = cpu_ns * u128::from(MESSAGES_PER_CPU_SAMPLE) / u128::from(messages_count.max(1));
        let each_ns = u64::try_from(each).unwrap_or(u64::MAX);
        out.record_batch(SERVER_PART, clock::ticks_from_ns(each_ns), MESSAGES_PER_CPU_SAMPLE);
        out.set_operations_count(messages_count);
    }
}

/// Encoding of a client's messages: plain, or encrypted by TLS.
pub(super) trait ClientCodec: Send {
    /// Encodes messages; returns the bytes to send.
    fn seal<'a>(&'a mut self, plain: &'a [u8], sealed: &'a mut Vec<u8>) -> Result<&'a [u8], Fault>;

    /// Decodes received bytes; returns their content.
    fn open<'a>(
        &'a mut self,
        came: &'a mut [u8],
        plain: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], Fault>;

    /// Appends the message that announces the end of the connection, if the encoding has one.
    fn append_close_notify(&mut self, _: &mut Vec<u8>) {}
}

/// Encoding without encryption.
pub(super) struct PlainCodec;

impl ClientCodec for PlainCodec {
    fn seal<'a>(&'a mut self, plain: &'a [u8], _: &'a mut Vec<u8>) -> Result<&'a [u8], Fault> {
        Ok(plain)
    }

    fn open<'a>(&'a mut self, came: &'a mut [u8], _: &'a mut Vec<u8>) -> Result<&'a [u8], Fault> {
        Ok(came)
    }
}

/// A connection of the client, with its encoding.
struct ClientConnection<'a, T> {
    stream: &'a TcpStream,
    codec: T,
    /// Number of bytes of echoes received so far.
    received_bytes: u64,
    /// Bytes that could not be sent yet, since the socket buffer was full.
    unsent: Vec<u8>,
}

/// Client that keeps messages in flight on all connections, and counts the echoes.
pub(super) struct LoadClient<'a, T> {
    connections: Vec<ClientConnection<'a, T>>,
    message_bytes: usize,
    /// Equal messages one after the other, as many as may be in flight on a connection.
    messages: Vec<u8>,
    /// `true` to compare every echo with the message sent, `false` to count the echoes only.
    is_checking: bool,
    epoll_set: std::os::fd::OwnedFd,
    /// Buffer for received bytes.
    buffer: Vec<u8>,
    /// Buffer for decoded bytes.
    plain: Vec<u8>,
    /// Buffer for encoded bytes.
    sealed: Vec<u8>,
    sent_count: u64,
    echoed_count: u64,
}

impl<'a, T: ClientCodec> LoadClient<'a, T> {
    /// Creates a client with `load.depth` messages in flight on each connection, and checks the
    /// first echoes.
    pub(super) fn start(
        streams: impl IntoIterator<Item = (&'a TcpStream, T)>,
        load: &LoadArgs,
    ) -> Result<Self, Fault> {
        let message_bytes = bytes_to_usize(load.message_bytes);
        let near = |(stream, codec)| ClientConnection {
            stream,
            codec,
            received_bytes: 0,
            unsent: Vec::new(),
        };
        let connections: Vec<ClientConnection<'a, T>> = streams.into_iter().map(near).collect();
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT;
        let epoll_set = create_epoll_set(connections.iter().map(|near| near.stream), flags)?;
        let mut client = Self {
            connections,
            message_bytes,
            messages: new_message(message_bytes).repeat(load.depth as usize),
            is_checking: true,
            epoll_set,
            buffer: vec![0; 1 << 18],
            plain: Vec::new(),
            sealed: Vec::new(),
            sent_count: 0,
            echoed_count: 0,
        };
        let depth = load.depth as usize;
        for at in 0..client.connections.len() {
            client.send(at, depth)?;
        }
        let first = client.sent_count;
        client.receive_until(first, true)?;
        client.is_checking = false;
        Ok(client)
    }

    /// Sends `count` messages together on connection `at`.
    fn send(&mut self, at: usize, count: usize) -> Result<(), Fault> {
        self.sent_count += count as u64;
        let ClientConnection { stream, codec, unsent, .. } = &mut self.connections[at];
        let bytes = codec.seal(&self.messages[..count * self.message_bytes], &mut self.sealed)?;
        if !unsent.is_empty() {
            unsent.extend_from_slice(bytes);
            return Ok(());
        }
        let sent_bytes = send_some(stream, bytes)?;
        unsent.extend_from_slice(&bytes[sent_bytes..]);
        Ok(())
    }

    /// Receives until the total number of echoes is `echoed_count`. Sends another message for each
    /// echo if `should_resend`.
    fn receive_until(&mut self, echoed_count: u64, should_resend: bool) -> Result<(), Fault> {
        let mut events = Vec::with_capacity(256);
        while self.echoed_count < echoed_count {
            wait_for_events(&self.epoll_set, &mut events, None)?;
            for event in &events {
                let epoll::Event { flags, data } = *event;
                let at = data.u64() as usize;
                if flags.contains(epoll::EventFlags::OUT) {
                    self.flush(at)?;
                }
                if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP) {
                    self.receive(at, should_resend)?;
                }
            }
        }
        Ok(())
    }

    /// Sends the unsent bytes of connection `at`, as many as the socket buffer accepts.
    fn flush(&mut self, at: usize) -> Result<(), Fault> {
        let ClientConnection { stream, unsent, .. } = &mut self.connections[at];
        if !unsent.is_empty() {
            let sent_bytes = send_some(stream, unsent)?;
            unsent.drain(..sent_bytes);
        }
        Ok(())
    }

    /// Receives all available bytes of connection `at`. Sends another message for each echo if
    /// `should_resend`.
    fn receive(&mut self, at: usize, should_resend: bool) -> Result<(), Fault> {
        loop {
            let near = &mut self.connections[at];
            let came = match recv(near.stream, &mut self.buffer[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(Fault::new("the server has closed the connection")),
                Ok((count, _)) => count,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            let is_all = came < self.buffer.len();
            let bytes = near.codec.open(&mut self.buffer[..came], &mut self.plain)?;
            let message_bytes = self.message_bytes as u64;
            let before = near.received_bytes / message_bytes;
            if self.is_checking {
                let from = (near.received_bytes % message_bytes) as usize;
                let expected = self.messages[..self.message_bytes].iter().cycle().skip(from);
                if !bytes.iter().eq(expected.take(bytes.len())) {
                    return Err(Fault::new("an echo differs from the message sent"));
                }
            }
            near.received_bytes += bytes.len() as u64;
            let count = near.received_bytes / message_bytes - before;
            self.echoed_count += count;
            if should_resend && count > 0 {
                self.send(at, count as usize)?;
            }
            // A short read has emptied the socket; later bytes cause a new edge event.
            if is_all {
                return Ok(());
            }
        }
    }

    /// Times messages until the round ends, and then records the server's CPU time.
    pub(super) fn measure(
        mut self,
        server_cpu_time: &ServerCpuTime,
        out: &mut Samples,
    ) -> Result<(), Fault> {
        self.play(out)?;
        server_cpu_time.record(self.end()?, out);
        Ok(())
    }

    /// Receives and checks all outstanding echoes, and closes the connections; returns the number
    /// of messages sent.
    fn end(mut self) -> Result<u64, Fault> {
        self.is_checking = true;
        let sent_count = self.sent_count;
        self.receive_until(sent_count, false)?;
        for near in &mut self.connections {
            self.sealed.clear();
            near.codec.append_close_notify(&mut self.sealed);
            // All echoes have been received, so the socket buffer has free space.
            send_some(near.stream, &self.sealed)?;
            shutdown(near.stream, Shutdown::Write)?;
        }
        ensure(self.echoed_count == sent_count, || {
            format!("{sent_count} messages were sent, but {} echoes received", self.echoed_count)
        })?;
        Ok(sent_count)
    }

    /// Times batches of echoes until the round ends.
    fn play(&mut self, out: &mut Samples) -> Result<(), Fault> {
        let in_flight_count = self.sent_count - self.echoed_count;
        let batch = if in_flight_count > 1 { BATCH_MESSAGES.max(in_flight_count) } else { 1 };
        // The buffers of both sides reach their size, and both threads their pace.
        self.receive_until(self.echoed_count + WARM_UP_BATCHES * batch, true)?;
        // Handshakes take longer than a round.
        out.restart_round_time();
        loop {
            let goal = self.echoed_count + batch;
            let began = clock::ticks();
            self.receive_until(goal, true)?;
            out.record_batch(MESSAGE_PART, clock::ticks().saturating_sub(began), batch);
            if !out.is_running() {
                return Ok(());
            }
        }
    }
}

/// Sends as many bytes as the socket buffer accepts; returns their number.
fn send_some(stream: &TcpStream, bytes: &[u8]) -> Result<usize, Fault> {
    loop {
        match send(stream, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(count) => return Ok(count),
            Err(Errno::AGAIN) => return Ok(0),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Creates `load.connections_count` connections; returns the client's and the server's end of each.
pub(super) fn create_connections(
    load: &LoadArgs,
    setup: &mut Setup,
) -> Result<Vec<(TcpStream, TcpStream)>, Fault> {
    (0..load.connections_count).map(|_| Loopback::create_ends(setup)).collect()
}

/// Duplicates the server's end of each connection.
pub(super) fn clone_far_ends(ends: &[(TcpStream, TcpStream)]) -> Result<Vec<TcpStream>, Fault> {
    Ok(ends.iter().map(|(_, far)| far.try_clone()).collect::<Result<_, _>>()?)
}

/// Workload: many messages in flight to a server of kind `S`, without encryption.
pub(super) struct PlainLoad<S> {
    /// Client's and server's end of each connection.
    ends: Vec<(TcpStream, TcpStream)>,
    load: LoadArgs,
    server_cpu_time: Region<ServerCpuTime>,
    server: PhantomData<fn() -> S>,
}

impl<S: LoadServer> Handover for PlainLoad<S> {
    type Args = LoadArgs;
    const SPEC: Spec = Spec::new(
        "net/load",
        "messages over many connections to one server thread, with many messages in flight",
    )
    .classic("evh_perf")
    .parts(PLAIN_LOAD_PARTS)
    .hands_over();

    const ROLES: &'static [Role] = &[Role::measured("client"), Role::serving("server")];

    fn setup(load: &LoadArgs, setup: &mut Setup) -> Result<Self, Fault> {
        let server_cpu_time = setup.shared_region()?;
        Ok(Self {
            ends: create_connections(load, setup)?,
            load: *load,
            server_cpu_time,
            server: PhantomData,
        })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        if participant.index > 0 {
            let streams = clone_far_ends(&self.ends)?;
            return self.server_cpu_time.publish_cpu_time_of(|| S::serve(streams, &self.load));
        }
        let connections = self.ends.iter().map(|(near, _)| (near, PlainCodec));
        LoadClient::start(connections, &self.load)?.measure(&self.server_cpu_time, out)
    }
}
