//! Hand-written peers that send arbitrary bytes, and a server for them.

use handover_rpc::engine::{
    BulkMessage, FRAME_HEADER_BYTES, FrameHeader, FrameKind, HELLO_BYTES, Hello,
};
use handover_rpc::{BulkHandle, Calling, Config, Endpoint, Method, Peer, Rights, Stopper};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, send, sendmsg};
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub const ECHO: Method = Method::new("echo");
pub const SLOTS: u32 = 4;
pub const SHARED_BYTES: u32 = 8192;
pub const MESSAGE_MAX: u32 = 4096;
/// Limit for events that should happen at once: ten times what a busy machine takes.
pub const SOON: Duration =
    Duration::from_secs(if cfg!(handover_sanitizer = "thread") { 600 } else { 60 });

/// Server, with a correct client next to the hostile ones.
pub struct House {
    pub place: String,
    pub client: Endpoint,
    pub peer: Peer,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl House {
    pub fn new(how: &str) -> Self {
        Self::with(how, |_| ())
    }

    /// Starts a server after `more` has set it up.
    pub fn with(how: &str, more: impl FnOnce(&mut Endpoint)) -> Self {
        Self::configured(how, Config::default(), more)
    }

    /// Starts a server with that configuration.
    pub fn configured(how: &str, config: Config, more: impl FnOnce(&mut Endpoint)) -> Self {
        let mut server = Endpoint::new(config).unwrap();
        let address = server.listen(&how.parse().unwrap()).unwrap();
        server.register("echo", 0, |_, number: u64| Ok(number)).unwrap();
        more(&mut server);
        let stopper = server.stopper();
        let thread = Some(std::thread::spawn(move || server.serve()));
        let mut client = Endpoint::new(Config::default()).unwrap();
        let peer = client.connect(&address).unwrap();
        Self { place: address.without_scheme().to_string(), stopper, thread, client, peer }
    }

    pub fn is_in_order(&mut self) {
        assert_eq!(self.client.call::<_, u64>(self.peer, ECHO, &7u64), Ok(7));
    }
}

impl Drop for House {
    fn drop(&mut self) {
        self.stopper.stop();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(matches!(ended, Some(Ok(()))) || std::thread::panicking(), "the server panicked");
    }
}

/// Actions of a hand-written peer after the handshake.
pub trait Raw {
    fn say(&mut self, kind: FrameKind, method: u64, call: u64, body: &[u8]);

    /// Reads the next frame; `None` at the end of the connection.
    fn hears(&mut self) -> Option<(FrameHeader, Vec<u8>)>;

    /// Returns `true` if the connection ends soon, whatever comes before.
    fn is_disconnected(&mut self) -> bool;

    fn says(&mut self, message: &BulkMessage) {
        self.say(FrameKind::Bulk, 0, 0, &message.encode(Vec::new()));
    }

    /// Reads the next message about bulk transfers.
    fn hears_bulk(&mut self) -> Option<BulkMessage> {
        let (header, body) = self.hears()?;
        assert_eq!(header.kind, FrameKind::Bulk, "{header:?}");
        Some(BulkMessage::decode(&body).expect("the house tells the truth"))
    }

    /// Checks that a request of this peer is answered.
    fn is_served(&mut self) {
        self.say(FrameKind::Request, ECHO.word(), 77, &[42]);
        let (header, body) = self.hears().expect("it is connected");
        assert_eq!((header.kind, header.call, &body[..]), (FrameKind::Response, 77, &[42][..]));
    }
}

/// Hand-written peer on a stream.
pub struct Wire {
    stream: TcpStream,
}

impl Wire {
    /// Connects to that place, and completes the handshake.
    pub fn welcomed(place: &str) -> Self {
        Self::that_takes(MESSAGE_MAX, place)
    }

    /// Connects as a peer that accepts bodies of that length.
    pub fn that_takes(message_bytes_max: u32, place: &str) -> Self {
        let mut wire = Self::over(TcpStream::connect(place).unwrap());
        let hello = Hello { message_bytes_max, ..stream_hello() };
        wire.stream.write_all(&hello.encode()).unwrap();
        wire.hears_hello();
        wire
    }

    /// Completes the handshake on an accepted connection.
    pub fn visited(stream: TcpStream) -> Self {
        let mut wire = Self::over(stream);
        wire.hears_hello();
        wire.stream.write_all(&stream_hello().encode()).unwrap();
        wire
    }

    fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream }
    }

    /// Sends raw bytes. Returns `false` if the connection has ended.
    pub fn say_bytes(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Sends a byte of urgent data, at which a read stops.
    pub fn say_urgent_byte(&mut self) {
        assert_eq!(send(&self.stream, b"!", SendFlags::OOB), Ok(1));
    }

    fn hears_hello(&mut self) {
        let mut hello = [0; HELLO_BYTES];
        self.stream.read_exact(&mut hello).unwrap();
        assert!(Hello::decode(&hello).is_ok());
    }
}

impl Raw for Wire {
    fn say(&mut self, kind: FrameKind, method: u64, call: u64, body: &[u8]) {
        let header = FrameHeader { body_bytes: body.len() as u32, kind, method, call };
        let frame = [&header.encode()[..], body].concat();
        // Fails if the connection has ended.
        let _ = self.stream.write_all(&frame);
    }

    fn hears(&mut self) -> Option<(FrameHeader, Vec<u8>)> {
        let mut head = [0; FRAME_HEADER_BYTES];
        self.stream.read_exact(&mut head).ok()?;
        let header = FrameHeader::decode(&head, u32::MAX).expect("a frame of the house's");
        let mut body = vec![0; header.body_bytes as usize];
        self.stream.read_exact(&mut body).ok()?;
        Some((header, body))
    }

    fn is_disconnected(&mut self) -> bool {
        is_disconnected(&mut self.stream)
    }
}

pub fn stream_hello() -> Hello {
    Hello { slots_count: 0, shared_bytes: 0, ..hello() }
}

pub fn hello() -> Hello {
    let (slots_count, shared_bytes) = (SLOTS, SHARED_BYTES);
    Hello {
        message_bytes_max: MESSAGE_MAX,
        slots_count,
        shared_bytes,
        spins: false,
        has_secret: false,
        uses_ucx: false,
    }
}

// Layout of the segment: the status of both sides, slots of both directions, long bodies of both
// directions.
pub const SIDE_BYTES: u64 = 256;
pub const SLOT_BYTES: u64 = 128;
pub const SLOTS_AT: u64 = 2 * SIDE_BYTES;
const BODIES_AT: u64 = SLOTS_AT + 2 * SLOTS as u64 * SLOT_BYTES;
pub const TOTAL_BYTES: u64 = BODIES_AT + 2 * SHARED_BYTES as u64;
/// Offset of a side's read position in its part of the segment.
pub const TAKEN_AT: u64 = SIDE_BYTES / 2;
/// Maximum length of a body that is stored in its slot, in bytes.
const INLINE_BODY_BYTES_MAX: usize = 96;

/// Hand-written peer on shared memory, as the connector.
pub struct Hostile {
    pub socket: UnixStream,
    memory: std::fs::File,
    sent: u64,
    received: u64,
}

/// Connects to that name of `sm://`.
pub fn knock(place: &str) -> UnixStream {
    let address = SocketAddr::from_abstract_name(format!("handover/{place}")).unwrap();
    let socket = UnixStream::connect_addr(&address).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    socket
}

/// Creates a memfd with those seals.
pub fn memory(bytes: u64, seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = memfd_create("hostile", flags).unwrap();
    ftruncate(&memory, bytes).unwrap();
    fcntl_add_seals(&memory, seals).unwrap();
    memory
}

/// Sends bytes with a file.
pub fn pass(socket: &UnixStream, bytes: &[u8], file: BorrowedFd<'_>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [file];
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).unwrap();
}

/// Connects, and passes a file of that length, with those seals.
pub fn connect(place: &str, hello: &Hello, bytes: u64, seals: SealFlags) -> Hostile {
    let (socket, memory) = (knock(place), memory(bytes, seals));
    pass(&socket, &hello.encode(), memory.as_fd());
    Hostile { socket, memory: memory.into(), sent: 0, received: 0 }
}

impl Hostile {
    pub fn welcomed(place: &str) -> Self {
        let mut hostile = connect(place, &hello(), TOTAL_BYTES, SealFlags::SHRINK);
        hostile.hears_hello();
        hostile
    }

    pub fn hears_hello(&mut self) {
        let mut answer = [0; HELLO_BYTES];
        self.socket.read_exact(&mut answer).unwrap();
        assert!(Hello::decode(&answer).is_ok());
    }

    fn put(&self, at: u64, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.memory.write_all_at(&bytes, at).unwrap();
    }

    fn get<const COUNT: usize>(&self, at: u64) -> [u64; COUNT] {
        let mut words = [0; COUNT];
        for (number, word) in words.iter_mut().enumerate() {
            let mut bytes = [0; 8];
            self.memory.read_exact_at(&mut bytes, at + 8 * number as u64).unwrap();
            *word = u64::from_ne_bytes(bytes);
        }
        words
    }

    /// Writes words at that offset, and wakes the server.
    pub fn write(&mut self, at: u64, words: &[u64]) {
        self.put(at, words);
        self.ring();
    }

    fn ring(&mut self) {
        // Fails if the connection has ended.
        let _ = self.socket.write_all(b"!");
    }

    /// Publishes that header and first word as the next message.
    pub fn publish(&mut self, header: [u64; 3], first: u64) {
        let slot = SLOTS_AT + self.sent % u64::from(SLOTS) * SLOT_BYTES;
        self.sent += 1;
        self.put(slot + 8, &[header[0], header[1], header[2], first]);
        self.write(slot, &[self.sent]);
    }

    /// Waits until the server has taken all but `untaken_max` messages, or has disconnected this
    /// peer.
    pub fn is_heard_but(&self, untaken_max: u64) {
        let began = Instant::now();
        let taken = || self.get::<1>(SIDE_BYTES + TAKEN_AT)[0];
        while taken() + untaken_max < self.sent && !self.has_ended() && began.elapsed() < SOON {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Returns `true` if the server has closed the connection.
    fn has_ended(&self) -> bool {
        let mut socket = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        // An error is an interruption; then `revents` is empty.
        let _ = poll(&mut socket, Some(&Timespec::default()));
        socket[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP)
    }
}

impl Raw for Hostile {
    fn say(&mut self, kind: FrameKind, method: u64, call: u64, body: &[u8]) {
        let header = FrameHeader { body_bytes: body.len() as u32, kind, method, call };
        let mut first = 0;
        if body.len() > INLINE_BODY_BYTES_MAX {
            // All long bodies are at the same offset, so only one can be under way.
            self.is_heard_but(0);
            self.memory.write_all_at(body, BODIES_AT).unwrap();
        } else {
            // A slot that was not taken must not be overwritten.
            self.is_heard_but(u64::from(SLOTS) - 1);
            let slot = SLOTS_AT + self.sent % u64::from(SLOTS) * SLOT_BYTES;
            self.memory.write_all_at(body, slot + 32).unwrap();
            let mut bytes = [0; 8];
            let count = body.len().min(8);
            bytes[..count].copy_from_slice(&body[..count]);
            first = u64::from_ne_bytes(bytes);
        }
        self.publish(header.words(), first);
    }

    fn hears(&mut self) -> Option<(FrameHeader, Vec<u8>)> {
        let slot = SLOTS_AT + (u64::from(SLOTS) + self.received % u64::from(SLOTS)) * SLOT_BYTES;
        let began = Instant::now();
        // The lower half is the message's number, the upper half is the number of messages that the
        // server has read.
        while self.get::<1>(slot)[0] as u32 != (self.received + 1) as u32 {
            // Gives up if no message has come in time.
            if began.elapsed() > SOON {
                return None;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        let header = FrameHeader::from_words(self.get(slot + 8), MESSAGE_MAX).expect("a frame");
        let mut body = vec![0; header.body_bytes as usize];
        let at = match body.len() > INLINE_BODY_BYTES_MAX {
            true => BODIES_AT + u64::from(SHARED_BYTES) + self.get::<1>(slot + 32)[0],
            false => slot + 32,
        };
        self.memory.read_exact_at(&mut body, at).unwrap();
        self.received += 1;
        self.write(TAKEN_AT, &[self.received]);
        Some((header, body))
    }

    fn is_disconnected(&mut self) -> bool {
        is_disconnected(&mut self.socket)
    }
}

/// Reads until the end. Returns `false` if it does not come in time.
pub fn is_disconnected(stream: &mut impl Read) -> bool {
    let mut bytes = [0; 256];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return true,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
}

/// Fields of a handle, as a forger can write them.
pub type Forged = (u64, u128, u64, Rights);

pub fn forged(handle: &BulkHandle, change: impl FnOnce(&mut Forged)) -> BulkHandle {
    let bytes = postcard::to_allocvec(handle).unwrap();
    let mut fields: Forged = postcard::from_bytes(&bytes).unwrap();
    change(&mut fields);
    made_up(fields)
}

/// Builds a handle from arbitrary fields.
pub fn made_up(fields: Forged) -> BulkHandle {
    postcard::from_bytes(&postcard::to_allocvec(&fields).unwrap()).unwrap()
}
