//! Kernel mechanisms that wake a sleeping participant: futex, eventfd, pipe.
//!
//! Each side sleeps in the kernel until the other side wakes it, so a round trip has two sleeps and
//! two wake-ups: the floor of all blocking mechanisms.

use super::relay::Medium;
use handover_base::futex::{self, Scope};
use handover_base::sync::shared::{AtomicU32, Ordering};
use handover_harness::{Fault, Region, Rig};
use handover_record::Spec;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, read, retry_on_intr, write};
use rustix::pipe::{PipeFlags, pipe_with};
use zerocopy::FromZeros;

/// A word that its reader sleeps on, alone on its cache lines.
///
/// `turn` is the value handed over; the futex word `bed` never changes, so that the waiting side
/// always sleeps, even if the turn has already been handed over. Otherwise two participants that
/// happen never to find each other asleep continue in that mode, in a tenth of the time, until
/// something disturbs them.
#[derive(FromZeros)]
#[repr(C, align(128))]
struct Word {
    turn: AtomicU32,
    bed: AtomicU32,
}

impl Word {
    /// Hands over, and repeats the wake-up until a sleeper was woken or, in case the sleeper awoke
    /// by itself, until `answered` returns `true`.
    #[inline]
    fn hand(&self, turn: u32, scope: Scope, answered: impl Fn() -> bool) {
        // Release: publishes what was done for this turn to the Acquire in wait().
        self.turn.store(turn, Ordering::Release);
        while futex::wake(&self.bed, 1, scope) == 0 && !answered() {
            // The other side is not asleep yet; if it shares this CPU, it needs the CPU to fall
            // asleep.
            std::thread::yield_now();
        }
    }

    /// Sleeps at least once, until a turn other than `last` is handed over, and returns that turn.
    #[inline]
    fn wait(&self, last: u32, scope: Scope) -> u32 {
        loop {
            futex::wait(&self.bed, 0, None, scope);
            // Acquire: pairs with the Release in hand().
            let turn = self.turn.load(Ordering::Acquire);
            if turn != last {
                return turn;
            }
        }
    }

    /// Returns `true` if the other side has handed over this turn.
    #[inline]
    fn holds(&self, turn: u32) -> bool {
        // Acquire: pairs with the Release in hand().
        self.turn.load(Ordering::Acquire) == turn
    }
}

/// Medium: a futex word for each direction; both sides always sleep.
pub(crate) struct Futex {
    words: Region<[Word; 2]>,
    over: Region<AtomicU32>,
    scope: Scope,
}

impl Futex {
    /// Value in place of a turn: the round is over. Reaching it as a turn would take an hour.
    const END: u32 = u32::MAX;
}

impl Medium for Futex {
    type Args = ();
    const SPEC: Spec = Spec {
        id: "floor/futex",
        what: "a futex wake to a party that truly sleeps, and one back",
        ladder: true,
        hands_over: true,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };
    type Ping = u32;

    fn rig((): &(), rig: &mut Rig) -> Result<Futex, Fault> {
        let scope = if rig.processes() { Scope::Shared } else { Scope::Private };
        Ok(Futex { words: rig.region()?, over: rig.region()?, scope })
    }

    fn ping(&self) -> u32 {
        0
    }

    fn round_trip(&self, turn: &mut u32) -> Result<(), Fault> {
        let [there, back] = &*self.words;
        let next = *turn + 1;
        there.hand(next, self.scope, || back.holds(next));
        *turn = back.wait(*turn, self.scope);
        Ok(())
    }

    fn end(&self, _: &mut u32) -> Result<(), Fault> {
        // Acquire: pairs with the Release in echo().
        let seen = || self.over.load(Ordering::Acquire) != 0;
        self.words[0].hand(Self::END, self.scope, seen);
        Ok(())
    }

    fn echo(&self) -> Result<u64, Fault> {
        let [there, back] = &*self.words;
        let mut turn = 0;
        loop {
            let seen = there.wait(turn, self.scope);
            if seen == Self::END {
                // Release: pairs with the Acquire in end().
                self.over.store(1, Ordering::Release);
                return Ok(u64::from(turn));
            }
            turn = seen;
            back.hand(turn, self.scope, || there.holds(turn + 1) || there.holds(Self::END));
        }
    }
}

/// Medium: an eventfd for each direction.
pub(crate) struct Eventfd {
    there: OwnedFd,
    back: OwnedFd,
}

impl Eventfd {
    /// Count in place of a turn's 1: the round is over.
    const END: u64 = 2;

    fn make() -> Result<OwnedFd, Fault> {
        Ok(eventfd(0, EventfdFlags::CLOEXEC)?)
    }

    fn post(fd: &OwnedFd, count: u64) -> Result<(), Errno> {
        retry_on_intr(|| write(fd, &count.to_ne_bytes())).map(drop)
    }

    fn take(fd: &OwnedFd) -> Result<u64, Errno> {
        let mut count = [0; 8];
        retry_on_intr(|| read(fd, &mut count))?;
        Ok(u64::from_ne_bytes(count))
    }
}

impl Medium for Eventfd {
    type Args = ();
    const SPEC: Spec = Spec {
        id: "floor/eventfd",
        what: "an eventfd written for a party that sleeps in read, and one back",
        hands_over: true,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };
    type Ping = ();

    fn rig((): &(), rig: &mut Rig) -> Result<Eventfd, Fault> {
        Ok(Eventfd { there: rig.fd(Self::make)?, back: rig.fd(Self::make)? })
    }

    fn ping(&self) {}

    fn round_trip(&self, (): &mut ()) -> Result<(), Fault> {
        Self::post(&self.there, 1)?;
        Self::take(&self.back)?;
        Ok(())
    }

    fn end(&self, (): &mut ()) -> Result<(), Fault> {
        Ok(Self::post(&self.there, Self::END)?)
    }

    fn echo(&self) -> Result<u64, Fault> {
        let mut turns = 0;
        while Self::take(&self.there)? != Self::END {
            turns += 1;
            Self::post(&self.back, 1)?;
        }
        Ok(turns)
    }
}

/// Medium: a pipe for each direction, with a byte per turn.
pub(crate) struct Pipe {
    there: Ends,
    back: Ends,
}

struct Ends {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Ends {
    fn rig(rig: &mut Rig) -> Result<Ends, Fault> {
        let mut made = None;
        let reader = rig.fd(|| {
            let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
            made = Some(writer);
            Ok(reader)
        })?;
        let writer = rig.fd(|| made.ok_or_else(|| Fault::new("a pipe without its writer")))?;
        Ok(Ends { reader, writer })
    }

    fn post(&self, byte: u8) -> Result<(), Errno> {
        retry_on_intr(|| write(&self.writer, &[byte])).map(drop)
    }

    fn take(&self) -> Result<u8, Errno> {
        let mut byte = [0];
        match retry_on_intr(|| read(&self.reader, &mut byte))? {
            0 => Err(Errno::PIPE),
            _ => Ok(byte[0]),
        }
    }
}

impl Pipe {
    const TURN: u8 = b'.';
    /// Byte in place of a turn: the round is over.
    const END: u8 = b'!';
}

impl Medium for Pipe {
    type Args = ();
    const SPEC: Spec = Spec {
        id: "floor/pipe",
        what: "a byte through a pipe to a party that sleeps in read, and one back",
        hands_over: true,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };
    type Ping = ();

    fn rig((): &(), rig: &mut Rig) -> Result<Pipe, Fault> {
        Ok(Pipe { there: Ends::rig(rig)?, back: Ends::rig(rig)? })
    }

    fn ping(&self) {}

    fn round_trip(&self, (): &mut ()) -> Result<(), Fault> {
        self.there.post(Self::TURN)?;
        self.back.take()?;
        Ok(())
    }

    fn end(&self, (): &mut ()) -> Result<(), Fault> {
        Ok(self.there.post(Self::END)?)
    }

    fn echo(&self) -> Result<u64, Fault> {
        let mut turns = 0;
        while self.there.take()? != Self::END {
            turns += 1;
            self.back.post(Self::TURN)?;
        }
        Ok(turns)
    }
}
