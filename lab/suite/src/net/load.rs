//! Many outstanding messages over many connections: one client, which keeps `depth` on each, and a
//! server on its own CPU.

use super::wait::wait;
use crate::floor::socket::Loopback;
use handover_base::clock;
use handover_base::sync::shared::{AtomicU64, Ordering};
use handover_base::usage::{self, Usage};
use handover_harness::{Fault, Handover, Party, Region, Rig, Role, Samples};
use handover_record::{Bytes, Part, Spec, args};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use std::marker::PhantomData;
use std::net::TcpStream;
use std::time::Duration;
use zerocopy::FromZeros;

args! {
    /// Number and size of the outstanding messages.
    pub struct NetLoad {
        /// Connections, all served by one thread.
        connections_count: u32 = 16 (smoke 3, range 1..=1024),
        /// Messages on their way on each connection.
        depth: u32 = 64 (smoke 4, range 1..=4096),
        /// Bytes in each message, its length of four bytes included, both ways.
        message_bytes: Bytes = 64 (smoke 16, range 8..=65536),
    }
}

/// Size of the length prefix of a message.
pub(super) const LENGTH_BYTES: usize = 4;
/// Messages that are timed together if many are outstanding.
const BATCH_MESSAGES: u64 = 1024;
/// Indices of the spec's parts.
const MESSAGE: usize = 0;
const SERVER: usize = 1;
/// Number of messages for which the server's CPU time is recorded.
const SERVER_MESSAGES: u64 = 1_000;

/// The figures of a load.
pub(super) const PARTS: &[Part] = &[
    Part::new("message", "between one message that is back and the next, as the client sees it"),
    Part::new("server", "the CPU time of the server's thread, for a message")
        .floor("net/load/server"),
];
const PLAIN_PARTS: &[Part] = &[PARTS[0], Part { floor: None, ..PARTS[1] }];

/// A server that echoes the messages of all these streams, each until it ends. Returns its thread's
/// resource usage at the end of the setup, so that the cost of setup is excluded from the cost of a
/// message.
pub(super) trait Serving: Send + Sync + 'static {
    fn serve(streams: Vec<TcpStream>, load: &NetLoad) -> Result<Usage, Fault>;
}

/// State that the server writes once, at its end.
#[derive(FromZeros)]
#[repr(C)]
pub(super) struct Told {
    cpu_ns: AtomicU64,
    has_ended: AtomicU64,
}

impl Told {
    /// Serves, and publishes the CPU time used since the end of the setup, which `serve` returns.
    pub(super) fn timed(&self, serve: impl FnOnce() -> Result<Usage, Fault>) -> Result<(), Fault> {
        let served = serve();
        let used = served.as_ref().map_or(Usage::default(), |&set_up| usage::thread() - set_up);
        // Relaxed: ordered by the store below.
        self.cpu_ns.store(used.cpu_ns(), Ordering::Relaxed);
        // Release: pairs with the Acquire in note().
        self.has_ended.store(1, Ordering::Release);
        served.map(drop)
    }

    /// Waits until the server has ended, and records its CPU time for each of `messages_count`
    /// messages.
    pub(super) fn note(&self, messages_count: u64, out: &mut Samples) {
        // Acquire: pairs with the Release in timed(), which makes the CPU time visible.
        while self.has_ended.load(Ordering::Acquire) == 0 {
            std::thread::sleep(Duration::from_micros(100));
        }
        let cpu_ns = u128::from(self.cpu_ns.load(Ordering::Relaxed));
        let each = cpu_ns * u128::from(SERVER_MESSAGES) / u128::from(messages_count.max(1));
        let each_ns = u64::try_from(each).unwrap_or(u64::MAX);
        out.note_batch(SERVER, clock::ticks_from_ns(each_ns), SERVER_MESSAGES);
    }
}

/// The client's side of a connection: plain or encrypted.
pub(super) trait Talking: Send {
    /// Returns the bytes to send for `plain`.
    fn seal<'a>(&'a mut self, plain: &'a [u8], sealed: &'a mut Vec<u8>) -> Result<&'a [u8], Fault>;

    /// Returns the content of the received bytes.
    fn open<'a>(
        &'a mut self,
        came: &'a mut [u8],
        plain: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], Fault>;

    /// Appends a close notification, if there is one.
    fn part(&mut self, _: &mut Vec<u8>) {}
}

/// Without encryption.
pub(super) struct Plain;

impl Talking for Plain {
    fn seal<'a>(&'a mut self, plain: &'a [u8], _: &'a mut Vec<u8>) -> Result<&'a [u8], Fault> {
        Ok(plain)
    }

    fn open<'a>(&'a mut self, came: &'a mut [u8], _: &'a mut Vec<u8>) -> Result<&'a [u8], Fault> {
        Ok(came)
    }
}

/// The client's end of a connection.
struct Near<'a, T> {
    stream: &'a TcpStream,
    talk: T,
    /// Number of bytes received of the echoes, which repeat with each message.
    came_bytes: u64,
    /// Bytes that the kernel has not taken yet.
    unsent: Vec<u8>,
}

/// One client with all connections.
pub(super) struct Client<'a, T> {
    nears: Vec<Near<'a, T>>,
    /// Size of a message, and as many messages as are ever sent together.
    message_bytes: usize,
    lot: Vec<u8>,
    /// `true` to compare every echo with the message sent.
    is_checking: bool,
    set: std::os::fd::OwnedFd,
    buffer: Vec<u8>,
    plain: Vec<u8>,
    sealed: Vec<u8>,
    pub(super) sent_count: u64,
    pub(super) done_count: u64,
}

/// Returns the message: its length, then letters.
pub(super) fn message(message_bytes: usize) -> Vec<u8> {
    let body_bytes = message_bytes - LENGTH_BYTES;
    let length = u32::try_from(body_bytes).unwrap_or(u32::MAX);
    length.to_be_bytes().into_iter().chain((b'a'..=b'z').cycle().take(body_bytes)).collect()
}

impl<'a, T: Talking> Client<'a, T> {
    /// Sends the first messages, and checks echoes until as many have come back.
    pub(super) fn begin(
        streams: impl IntoIterator<Item = (&'a TcpStream, T)>,
        load: &NetLoad,
    ) -> Result<Self, Fault> {
        let message_bytes = usize::try_from(load.message_bytes.0).unwrap_or(usize::MAX);
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut nears = Vec::new();
        for (stream, talk) in streams {
            stream.set_nonblocking(true)?;
            let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
            epoll::add(&set, stream, epoll::EventData::new_u64(nears.len() as u64), flags)?;
            nears.push(Near { stream, talk, came_bytes: 0, unsent: Vec::new() });
        }
        let mut client = Self {
            nears,
            message_bytes,
            lot: message(message_bytes).repeat(load.depth as usize),
            is_checking: true,
            set,
            buffer: vec![0; 1 << 18],
            plain: Vec::new(),
            sealed: Vec::new(),
            sent_count: 0,
            done_count: 0,
        };
        let depth = load.depth as usize;
        for at in 0..client.nears.len() {
            client.send(at, depth)?;
        }
        let first = client.sent_count;
        client.pump(first, true)?;
        client.is_checking = false;
        Ok(client)
    }

    /// Sends `count` messages together on connection `at`.
    fn send(&mut self, at: usize, count: usize) -> Result<(), Fault> {
        self.sent_count += count as u64;
        let Near { stream, talk, unsent, .. } = &mut self.nears[at];
        let bytes = talk.seal(&self.lot[..count * self.message_bytes], &mut self.sealed)?;
        if !unsent.is_empty() {
            unsent.extend_from_slice(bytes);
            return Ok(());
        }
        let sent_bytes = send_some(stream, bytes)?;
        unsent.extend_from_slice(&bytes[sent_bytes..]);
        Ok(())
    }

    /// Runs until `done_count` messages have come back in total; if `sends`, sends another message
    /// for each.
    pub(super) fn pump(&mut self, done_count: u64, sends: bool) -> Result<(), Fault> {
        let mut events = Vec::with_capacity(256);
        while self.done_count < done_count {
            wait(&self.set, &mut events, None)?;
            for event in &events {
                let epoll::Event { flags, data } = *event;
                let at = data.u64() as usize;
                if flags.contains(epoll::EventFlags::OUT) {
                    self.flush(at)?;
                }
                if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP) {
                    self.take(at, sends)?;
                }
            }
        }
        Ok(())
    }

    fn flush(&mut self, at: usize) -> Result<(), Fault> {
        let Near { stream, unsent, .. } = &mut self.nears[at];
        if !unsent.is_empty() {
            let sent_bytes = send_some(stream, unsent)?;
            unsent.drain(..sent_bytes);
        }
        Ok(())
    }

    /// Receives the available bytes of connection `at`.
    fn take(&mut self, at: usize, sends: bool) -> Result<(), Fault> {
        loop {
            let near = &mut self.nears[at];
            let came = match recv(near.stream, &mut self.buffer[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(Fault::new("the server has ended the connection")),
                Ok((count, _)) => count,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            let is_all = came < self.buffer.len();
            let bytes = near.talk.open(&mut self.buffer[..came], &mut self.plain)?;
            let message_bytes = self.message_bytes as u64;
            let before = near.came_bytes / message_bytes;
            if self.is_checking {
                let from = (near.came_bytes % message_bytes) as usize;
                let expected = self.lot[..self.message_bytes].iter().cycle().skip(from);
                if !bytes.iter().eq(expected.take(bytes.len())) {
                    return Err(Fault::new("an echo is not what was sent"));
                }
            }
            near.came_bytes += bytes.len() as u64;
            let count = near.came_bytes / message_bytes - before;
            self.done_count += count;
            if sends && count > 0 {
                self.send(at, count as usize)?;
            }
            // A short read has emptied the socket; later bytes cause a new edge event.
            if is_all {
                return Ok(());
            }
        }
    }

    /// Receives and checks all outstanding messages, and closes. Returns the number of messages
    /// sent.
    pub(super) fn end(mut self) -> Result<u64, Fault> {
        self.is_checking = true;
        let sent_count = self.sent_count;
        self.pump(sent_count, false)?;
        for near in &mut self.nears {
            self.sealed.clear();
            near.talk.part(&mut self.sealed);
            // All echoes have come back, so the socket buffer has room.
            send_some(near.stream, &self.sealed)?;
            shutdown(near.stream, Shutdown::Write)?;
        }
        match self.done_count == sent_count {
            true => Ok(sent_count),
            false => {
                Err(Fault::new(format!("{sent_count} were sent and {} came", self.done_count)))
            }
        }
    }

    /// Times batches until the round's time is up.
    pub(super) fn play(&mut self, out: &mut Samples) -> Result<(), Fault> {
        let on_their_way = self.sent_count - self.done_count;
        let batch = if on_their_way > 1 { BATCH_MESSAGES.max(on_their_way) } else { 1 };
        loop {
            let goal = self.done_count + batch;
            let began = clock::ticks();
            self.pump(goal, true)?;
            out.note_batch(MESSAGE, clock::ticks().saturating_sub(began), batch);
            // At least once: handshakes may have taken the round's time.
            if !out.running() {
                return Ok(());
            }
        }
    }
}

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

/// Creates the load's connections of this process with itself.
pub(super) fn connections(
    load: &NetLoad,
    rig: &mut Rig,
) -> Result<Vec<(TcpStream, TcpStream)>, Fault> {
    (0..load.connections_count).map(|_| Loopback::ends(rig)).collect()
}

/// Workload: a load on a server of kind `S`.
pub(super) struct Load<S> {
    ends: Vec<(TcpStream, TcpStream)>,
    load: NetLoad,
    told: Region<Told>,
    server: PhantomData<fn() -> S>,
}

impl<S: Serving> Handover for Load<S> {
    type Args = NetLoad;
    const SPEC: Spec = Spec {
        id: "net/load",
        what: "messages over connections of one server thread, many of them on their way",
        parts: PLAIN_PARTS,
        classic: Some("evh_perf"),
        hands_over: true,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };

    fn roles(_: &NetLoad) -> Vec<Role> {
        vec![Role::measured("client"), Role::serving("server")]
    }

    fn rig(load: &NetLoad, rig: &mut Rig) -> Result<Self, Fault> {
        let told = rig.region()?;
        Ok(Self { ends: connections(load, rig)?, load: *load, told, server: PhantomData })
    }

    fn play(&self, party: Party, out: &mut Samples) -> Result<(), Fault> {
        if party.index > 0 {
            let streams: Result<_, _> = self.ends.iter().map(|(_, far)| far.try_clone()).collect();
            let streams: Vec<_> = streams?;
            return self.told.timed(|| S::serve(streams, &self.load));
        }
        let mut client =
            Client::begin(self.ends.iter().map(|(near, _)| (near, Plain)), &self.load)?;
        client.play(out)?;
        let messages_count = client.end()?;
        self.told.note(messages_count, out);
        Ok(())
    }
}
