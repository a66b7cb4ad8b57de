//! A network of the tests' own: byte streams with delays, little room, pieces, cuts and silence, all drawn from
//! one seed.

use crate::Gone;
use crate::clock;
use crate::drive::wire::Received;
use handover_base::random::SplitMix64;
use rustix::event::{EventfdFlags, eventfd};
use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A greeting with its nonce, and a proof: no more than any window holds.
const HANDSHAKE_BYTES: u64 = 24 + 32 + 32;

thread_local! {
    static FLOODED: Cell<bool> = const { Cell::new(false) };
}

/// An endpoint of this thread closes a connection, and drops its port next.
pub fn closing(why: &Gone) {
    FLOODED.set(*why == Gone::Flooded);
}

/// Seeded choices.
#[derive(Debug)]
pub struct Random(SplitMix64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// A number below that one, or 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0.next_u64() % end.max(1)
    }

    /// `true` in so many of a hundred cases.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

/// Properties of a network.
#[derive(Debug, Clone, Copy)]
pub struct Weather {
    pub delay_ns_max: u64,
    /// Bytes that each direction holds, the connector's first; beyond, there is no room to send.
    pub window_bytes: [u64; 2],
    /// Bytes that are sent or received at a time.
    pub piece_bytes_max: u64,
}

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// What was sent before arrives, and the end behind it.
    Closed,
    /// Nothing more arrives, and both sides are told.
    Reset,
}

/// One direction of a connection.
#[derive(Debug, Default)]
struct Pipe {
    /// Bytes on their way, with the time when they arrive.
    pieces: VecDeque<(u64, VecDeque<u8>)>,
    bytes: u64,
    /// All that was ever sent.
    sent_bytes: u64,
    last_ns: u64,
    /// When the end arrives, behind everything else.
    end_ns: Option<u64>,
}

#[derive(Debug)]
struct Streams {
    random: Random,
    weather: Weather,
    /// What each side has sent.
    pipes: [Pipe; 2],
    reset: bool,
    /// Nothing arrives any more, and nobody is told.
    silent: bool,
    /// One side was closed as it does not read.
    flooded: bool,
    /// That side reads nothing any more, and what it still sends is not seen by the other.
    gone: [bool; 2],
}

/// A connection as its owner sees it: the tests.
#[derive(Debug, Clone)]
pub struct Cable(Arc<Mutex<Streams>>);

/// A connection as one side sees it.
pub struct Port {
    cable: Cable,
    /// 0 for the side that has connected.
    side: usize,
    /// For the kernel's list, which never tells of it.
    fd: OwnedFd,
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").field("side", &self.side).finish_non_exhaustive()
    }
}

impl Cable {
    /// Both ends of a fresh connection, the connector's first.
    pub fn new(seed: u64, weather: Weather) -> (Self, [Port; 2]) {
        let streams = Streams {
            random: Random::new(seed),
            weather,
            pipes: [Pipe::default(), Pipe::default()],
            reset: false,
            silent: false,
            flooded: false,
            gone: [false; 2],
        };
        let cable = Self(Arc::new(Mutex::new(streams)));
        let ports = [0, 1].map(|side| {
            let fd = eventfd(0, EventfdFlags::CLOEXEC).expect("descriptors");
            Port { cable: cable.clone(), side, fd }
        });
        (cable, ports)
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn end(&self, how: End) {
        let mut streams = self.streams();
        match how {
            End::Reset => streams.reset = true,
            End::Closed => [0, 1].into_iter().for_each(|side| streams.close(side)),
        }
    }

    /// From now on nothing arrives.
    pub fn silence(&self) {
        self.streams().silent = true;
    }

    /// The process at that side was killed, of which the kernel tells the other.
    pub fn kill(&self, side: usize, how: End) {
        self.end(how);
        self.streams().gone[side] = true;
    }

    pub fn is_silent(&self) -> bool {
        let streams = self.streams();
        streams.silent && !streams.reset
    }

    pub fn is_flooded(&self) -> bool {
        self.streams().flooded
    }

    /// When that side could have learnt that the connection has ended.
    pub fn end_ns(&self, side: usize) -> Option<u64> {
        let streams = self.streams();
        if streams.silent && !streams.reset {
            return None;
        }
        match streams.reset {
            true => Some(0),
            false => streams.pipes[1 - side].end_ns,
        }
    }
}

impl Streams {
    fn arrival_ns(&mut self, side: usize) -> u64 {
        let delay_ns = self.random.below(self.weather.delay_ns_max);
        let pipe = &mut self.pipes[side];
        // In order, as in every stream.
        pipe.last_ns = pipe.last_ns.max(clock::now_ns() + delay_ns);
        pipe.last_ns
    }

    fn close(&mut self, side: usize) {
        if self.pipes[side].end_ns.is_none() {
            self.pipes[side].end_ns = Some(self.arrival_ns(side));
        }
    }
}

impl Port {
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub fn send(&mut self, bytes: &[u8]) -> Result<usize, Gone> {
        let mut streams = self.cable.streams();
        if streams.gone[self.side] {
            return Ok(bytes.len());
        }
        if streams.reset || streams.pipes[self.side].end_ns.is_some() {
            return Err(Gone::HungUp);
        }
        if streams.gone[1 - self.side] {
            // The kernel took it, and finds nobody to give it to.
            return Ok(bytes.len());
        }
        let weather = streams.weather;
        let piece = 1 + streams.random.below(weather.piece_bytes_max);
        // A fresh connection takes each piece of a handshake whole, as every socket does.
        let is_fresh = streams.pipes[self.side].sent_bytes < HANDSHAKE_BYTES;
        let piece = if is_fresh { piece.max(HANDSHAKE_BYTES) } else { piece };
        let room = weather.window_bytes[self.side].saturating_sub(streams.pipes[self.side].bytes);
        let count = piece.min(room).min(bytes.len() as u64) as usize;
        if count > 0 {
            let arrival_ns = streams.arrival_ns(self.side);
            let pipe = &mut streams.pipes[self.side];
            pipe.bytes += count as u64;
            pipe.sent_bytes += count as u64;
            pipe.pieces.push_back((arrival_ns, bytes[..count].iter().copied().collect()));
        }
        Ok(count)
    }

    pub fn receive(&mut self, into: &mut [u8]) -> Result<Received, Gone> {
        let mut streams = self.cable.streams();
        if streams.reset {
            return Err(Gone::HungUp);
        }
        if streams.silent {
            return Ok(Received::Nothing);
        }
        let now_ns = clock::now_ns();
        let piece_bytes_max = streams.weather.piece_bytes_max;
        let wanted = into.len().min(1 + streams.random.below(piece_bytes_max) as usize);
        let pipe = &mut streams.pipes[1 - self.side];
        let mut count = 0;
        while count < wanted
            && let Some((arrives_ns, bytes)) = pipe.pieces.front_mut()
            && *arrives_ns <= now_ns
        {
            match bytes.pop_front() {
                Some(byte) => {
                    into[count] = byte;
                    count += 1;
                }
                None => {
                    pipe.pieces.pop_front();
                }
            }
        }
        pipe.bytes -= count as u64;
        if count > 0 {
            // A reader is told again of what it has left: now and then it leaves some.
            let drained = count < wanted || piece_bytes_max > 1 && streams.random.percent(20);
            return Ok(Received::Bytes { count, drained });
        }
        let is_end = pipe.bytes == 0 && pipe.end_ns.is_some_and(|end_ns| end_ns <= now_ns);
        Ok(if is_end { Received::End } else { Received::Nothing })
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let mut streams = self.cable.streams();
        streams.close(self.side);
        streams.gone[self.side] = true;
        streams.flooded |= FLOODED.take();
    }
}
