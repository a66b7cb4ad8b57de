//! Simulated network: byte streams with delays, small windows, pieces, cuts and silence, all drawn
//! from one seed.

use crate::CloseReason;
use crate::clock;
use crate::drive::socket::ReadResult;
use handover_base::random::SplitMix64;
use rustix::event::{EventfdFlags, eventfd};
use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Length, in bytes, of a hello with its nonce and a proof. Every window holds at least as many.
const HANDSHAKE_BYTES: u64 = 24 + 32 + 32;

thread_local! {
    /// `true` if this thread's last closed connection had a peer that did not read answers.
    static FLOODED: Cell<bool> = const { Cell::new(false) };
}

/// Records whether an endpoint of this thread closes a connection because of unread answers. The
/// caller drops the port next.
pub fn record_close_reason(why: &CloseReason) {
    FLOODED.set(*why == CloseReason::AnswersUnread);
}

/// Source of random choices, determined by a seed.
#[derive(Debug)]
pub struct SimulationRandom(SplitMix64);

impl SimulationRandom {
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// Returns a number below `end`; 0 if `end` is 0.
    pub fn number_below(&mut self, end: u64) -> u64 {
        self.0.next_u64() % end.max(1)
    }

    /// Returns `true` with a chance of `chance` percent.
    pub fn is_true_with_percent(&mut self, chance: u64) -> bool {
        self.number_below(100) < chance
    }
}

/// Properties of a simulated network.
#[derive(Debug, Clone, Copy)]
pub struct NetworkProperties {
    pub delay_ns_max: u64,
    /// Maximum number of bytes in flight in each direction, the connector's first.
    pub window_bytes: [u64; 2],
    /// Maximum number of bytes in one send or receive.
    pub piece_bytes_max: u64,
}

/// Way in which a connection ends: after all bytes have arrived, or at once with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// Bytes that were sent before still arrive, followed by the end of the stream.
    Closed,
    /// No more bytes arrive, and both ends get an error.
    Reset,
}

/// One direction of a simulated connection.
#[derive(Debug, Default)]
struct Pipe {
    /// Bytes in flight, with their arrival times.
    pieces: VecDeque<(u64, VecDeque<u8>)>,
    in_flight_bytes: u64,
    sent_bytes: u64,
    last_arrival_ns: u64,
    /// Arrival time of the end of the stream, after all bytes; `None` while the connection is open.
    end_ns: Option<u64>,
}

/// State of a simulated connection.
#[derive(Debug)]
struct CableState {
    random: SimulationRandom,
    network: NetworkProperties,
    /// Directions of the connection: the bytes that the connector sends, and those that the
    /// acceptor sends.
    pipes: [Pipe; 2],
    is_reset: bool,
    /// `true` if no more bytes arrive and neither end is notified.
    is_silent: bool,
    /// `true` if a peer was disconnected because it did not read its answers.
    is_flooded: bool,
    /// `true` for an end whose process was killed. The end reads nothing, and bytes that it still
    /// sends do not arrive.
    is_killed: [bool; 2],
}

/// Simulated connection as accessed by the tests.
#[derive(Debug, Clone)]
pub struct SimulatedCable(Arc<Mutex<CableState>>);

/// One end of a simulated connection, as accessed by an endpoint.
pub struct SimulatedPort {
    cable: SimulatedCable,
    /// Index of this end: 0 for the connector, 1 for the acceptor.
    index: usize,
    /// Descriptor for the epoll set, which never reports it.
    fd: OwnedFd,
}

handover_base::debug_struct!(SimulatedPort as it { index: it.index });

impl SimulatedCable {
    /// Creates a connection. Returns its two ends, the connector's first.
    pub fn new(seed: u64, network: NetworkProperties) -> (Self, [SimulatedPort; 2]) {
        let state = CableState {
            random: SimulationRandom::new(seed),
            network,
            pipes: [Pipe::default(), Pipe::default()],
            is_reset: false,
            is_silent: false,
            is_flooded: false,
            is_killed: [false; 2],
        };
        let cable = Self(Arc::new(Mutex::new(state)));
        let ports = [0, 1].map(|index| {
            let fd = eventfd(0, EventfdFlags::CLOEXEC).expect("cannot create an eventfd");
            SimulatedPort { cable: cable.clone(), index, fd }
        });
        (cable, ports)
    }

    fn state(&self) -> MutexGuard<'_, CableState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends both directions of the connection.
    pub fn end_both_streams(&self, how: StreamEnd) {
        let mut state = self.state();
        match how {
            StreamEnd::Reset => state.is_reset = true,
            StreamEnd::Closed => [0, 1].into_iter().for_each(|index| state.end_stream(index)),
        }
    }

    /// Stops all arrivals without notifying either end.
    pub fn drop_all_later_bytes(&self) {
        self.state().is_silent = true;
    }

    /// Simulates that the process at the end `index` is killed. Its peer gets the end of the
    /// stream, or an error.
    pub fn kill_process_at(&self, index: usize, how: StreamEnd) {
        self.end_both_streams(how);
        self.state().is_killed[index] = true;
    }

    pub fn is_silent(&self) -> bool {
        let state = self.state();
        state.is_silent && !state.is_reset
    }

    pub fn is_flooded(&self) -> bool {
        self.state().is_flooded
    }

    /// Returns the time at which the end `index` can detect that the connection was closed. Returns
    /// `None` if it is open.
    pub fn end_ns(&self, index: usize) -> Option<u64> {
        let state = self.state();
        if state.is_silent && !state.is_reset {
            return None;
        }
        match state.is_reset {
            true => Some(0),
            false => state.pipes[1 - index].end_ns,
        }
    }
}

impl CableState {
    /// Returns the arrival time of the next bytes that the end `index` sends, after a random delay.
    fn arrival_ns(&mut self, index: usize) -> u64 {
        let delay_ns = self.random.number_below(self.network.delay_ns_max);
        let pipe = &mut self.pipes[index];
        // Arrivals stay in order, as in every stream.
        pipe.last_arrival_ns = pipe.last_arrival_ns.max(clock::now_ns() + delay_ns);
        pipe.last_arrival_ns
    }

    /// Ends the stream of bytes that the end `index` sends.
    fn end_stream(&mut self, index: usize) {
        if self.pipes[index].end_ns.is_none() {
            self.pipes[index].end_ns = Some(self.arrival_ns(index));
        }
    }
}

impl SimulatedPort {
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub fn send(&mut self, bytes: &[u8]) -> Result<usize, CloseReason> {
        let mut state = self.cable.state();
        if state.is_killed[self.index] {
            return Ok(bytes.len());
        }
        if state.is_reset || state.pipes[self.index].end_ns.is_some() {
            return Err(CloseReason::ClosedByPeer);
        }
        if state.is_killed[1 - self.index] {
            // The kernel has taken the bytes, but the receiver was killed.
            return Ok(bytes.len());
        }
        let network = state.network;
        let piece = 1 + state.random.number_below(network.piece_bytes_max);
        // A new connection takes each part of a handshake completely, as every socket does.
        let is_fresh = state.pipes[self.index].sent_bytes < HANDSHAKE_BYTES;
        let piece = if is_fresh { piece.max(HANDSHAKE_BYTES) } else { piece };
        let room = network.window_bytes[self.index]
            .saturating_sub(state.pipes[self.index].in_flight_bytes);
        let count = piece.min(room).min(bytes.len() as u64) as usize;
        if count > 0 {
            let arrival_ns = state.arrival_ns(self.index);
            let pipe = &mut state.pipes[self.index];
            pipe.in_flight_bytes += count as u64;
            pipe.sent_bytes += count as u64;
            pipe.pieces.push_back((arrival_ns, bytes[..count].iter().copied().collect()));
        }
        Ok(count)
    }

    pub fn receive(&mut self, into: &mut [u8]) -> Result<ReadResult, CloseReason> {
        let mut state = self.cable.state();
        if state.is_reset {
            return Err(CloseReason::ClosedByPeer);
        }
        if state.is_silent {
            return Ok(ReadResult::Nothing);
        }
        let now_ns = clock::now_ns();
        let piece_bytes_max = state.network.piece_bytes_max;
        let wanted = into.len().min(1 + state.random.number_below(piece_bytes_max) as usize);
        let pipe = &mut state.pipes[1 - self.index];
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
        pipe.in_flight_bytes -= count as u64;
        if count > 0 {
            // Sometimes claims to be drained with bytes left: the reader is notified of them again.
            let drained =
                count < wanted || piece_bytes_max > 1 && state.random.is_true_with_percent(20);
            return Ok(ReadResult::Bytes { count, drained });
        }
        let is_end =
            pipe.in_flight_bytes == 0 && pipe.end_ns.is_some_and(|end_ns| end_ns <= now_ns);
        Ok(if is_end { ReadResult::End } else { ReadResult::Nothing })
    }
}

impl Drop for SimulatedPort {
    fn drop(&mut self) {
        let mut state = self.cable.state();
        state.end_stream(self.index);
        state.is_killed[self.index] = true;
        state.is_flooded |= FLOODED.take();
    }
}
