//! Hand-written alternatives to a call.

use super::calls::{CallMedium, Noop, VIA_SM, WAITS_BY_DEFAULT};
use crate::channels::PollPause;
use crate::floor::relay::RelayMedium;
use crate::floor::socket::SocketEnds;
use crate::floor::wait_word::{WaitMode, WaitWord};
use handover_base::sync::shared::{AtomicU64, Ordering};
use handover_harness::{Fault, Region, Setup};
use handover_record::{Spec, Wait};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use zerocopy::FromZeros;

/// Compared implementation: one byte over a pair of Unix sockets and one back. Calls are
/// non-blocking if `SPINS`.
pub(super) struct SocketPair<const SPINS: bool> {
    caller_end: UnixStream,
    server_end: UnixStream,
    pause: PollPause,
}

/// Byte that ends the round; every other byte is a call.
const END: u8 = 0xff;

impl<const SPINS: bool> SocketPair<SPINS> {
    /// Reads and returns the next byte; polls if the socket does not block.
    fn read_byte(&self, mut end: &UnixStream) -> Result<u8, Fault> {
        let mut byte = [0];
        loop {
            match end.read(&mut byte) {
                Ok(0) => return Err(Fault::new("the other participant has closed the socket")),
                Ok(_) => return Ok(byte[0]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.pause.pause_once(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl<const SPINS: bool> RelayMedium for SocketPair<SPINS> {
    type Args = ();
    const SPEC: Spec = CallMedium::<Noop, VIA_SM, WAITS_BY_DEFAULT>::SPEC;
    type PingState = ();

    fn setup((): &(), setup: &mut Setup) -> Result<Self, Fault> {
        let (caller_end, server_end) = SocketEnds::<UnixStream, SPINS>::create_ends(setup)?;
        let ends = Self { caller_end, server_end, pause: PollPause::new(setup) };
        for end in [&ends.caller_end, &ends.server_end] {
            end.set_nonblocking(SPINS)?;
        }
        Ok(ends)
    }

    fn new_ping_state(&self) -> Result<(), Fault> {
        Ok(())
    }

    fn round_trip(&self, (): &mut ()) -> Result<(), Fault> {
        (&self.caller_end).write_all(&[1])?;
        self.read_byte(&self.caller_end)?;
        Ok(())
    }

    fn end(&self, (): &mut ()) -> Result<(), Fault> {
        Ok((&self.caller_end).write_all(&[END])?)
    }

    fn echo(&self) -> Result<u64, Fault> {
        let mut turns = 0;
        loop {
            let byte = self.read_byte(&self.server_end)?;
            if byte == END {
                return Ok(turns);
            }
            (&self.server_end).write_all(&[byte])?;
            turns += 1;
        }
    }
}

/// Compared implementation: a hand-written call through shared memory. It has one slot for the
/// request and one for the answer. Each has a length that the reader checks, and a `match` selects
/// the procedure. A participant that has polled for long sleeps if `CAN_SLEEP`.
pub(super) struct SharedSlots<const CAN_SLEEP: bool> {
    slots: Region<[MessageSlot; 2]>,
    mode: WaitMode,
}

/// Number of words in a request or an answer, including the procedure and the length.
const SLOT_WORDS: usize = 7;

/// Slot for one message in shared memory: a request or an answer.
#[derive(FromZeros)]
#[repr(C, align(128))]
pub(super) struct MessageSlot {
    /// Number of the message, on which the reader waits.
    word: WaitWord,
    /// Procedure, length of the arguments, and arguments.
    words: [AtomicU64; SLOT_WORDS],
}

/// Number of the procedure without arguments.
const NOOP_PROCEDURE: u64 = 1;
/// Number of the procedure that stops the server.
const STOP_PROCEDURE: u64 = 2;

impl MessageSlot {
    /// Writes a message without arguments, publishes it, and wakes the reader if necessary.
    #[inline(always)]
    fn send(&self, number: u32, procedure: u64, mode: WaitMode) {
        // Relaxed: published by the Release in publish().
        self.words[0].store(procedure, Ordering::Relaxed);
        self.words[1].store(0, Ordering::Relaxed);
        self.word.publish(number, mode);
    }

    /// Waits for message `number`; returns the number of its procedure.
    #[inline(always)]
    fn receive(&self, number: u32, mode: WaitMode) -> Result<u64, Fault> {
        self.word.wait(mode, |it| it == number);
        // Relaxed: ordered by the Acquire in wait().
        let [procedure, words_count] = [0, 1].map(|at| self.words[at].load(Ordering::Relaxed));
        match words_count as usize > SLOT_WORDS - 2 {
            true => Err(Fault::new("a message is longer than its slot in the shared memory")),
            false => Ok(procedure),
        }
    }
}

impl<const CAN_SLEEP: bool> RelayMedium for SharedSlots<CAN_SLEEP> {
    type Args = ();
    const SPEC: Spec = CallMedium::<Noop, VIA_SM, WAITS_BY_DEFAULT>::SPEC;
    type PingState = u32;

    fn setup((): &(), setup: &mut Setup) -> Result<Self, Fault> {
        let waits = if CAN_SLEEP { Wait::SpinThenSleep } else { Wait::Spin };
        Ok(Self { slots: setup.shared_region()?, mode: WaitMode::new(waits, setup) })
    }

    fn new_ping_state(&self) -> Result<u32, Fault> {
        Ok(0)
    }

    #[inline(always)]
    fn round_trip(&self, number: &mut u32) -> Result<(), Fault> {
        *number += 1;
        let [request, answer] = &*self.slots;
        request.send(*number, NOOP_PROCEDURE, self.mode);
        match answer.receive(*number, self.mode)? {
            NOOP_PROCEDURE => Ok(()),
            other => Err(Fault::new(format!(
                "received an answer of procedure {other}, expected {NOOP_PROCEDURE}"
            ))),
        }
    }

    fn end(&self, number: &mut u32) -> Result<(), Fault> {
        self.slots[0].send(*number + 1, STOP_PROCEDURE, self.mode);
        Ok(())
    }

    fn echo(&self) -> Result<u64, Fault> {
        let [request, answer] = &*self.slots;
        let mut number = 0;
        loop {
            match request.receive(number + 1, self.mode)? {
                NOOP_PROCEDURE => number += 1,
                STOP_PROCEDURE => return Ok(u64::from(number)),
                other => {
                    return Err(Fault::new(format!(
                        "received a call of the unknown procedure {other}"
                    )));
                }
            }
            answer.send(number, NOOP_PROCEDURE, self.mode);
        }
    }
}
