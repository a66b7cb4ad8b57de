//! Kernel mechanisms that wake a sleeping participant: futex, eventfd, pipe.
//!
//! Each participant sleeps in the kernel until the other wakes it, so a round trip has two sleeps
//! and two wake-ups: the floor of all blocking mechanisms.

use super::relay::RelayMedium;
use handover_base::futex::{self, Scope};
use handover_base::sync::shared::{AtomicU32, Ordering};
use handover_harness::{Fault, Region, Setup};
use handover_record::Spec;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, read, retry_on_intr, write};
use rustix::pipe::{PipeFlags, pipe_with};
use zerocopy::FromZeros;

/// A value and the futex word on which its reader sleeps, alone on their cache lines.
///
/// `value` is what is handed over; the futex word `word` never changes, so that the waiting
/// participant always sleeps, even if the value has already been handed over. Otherwise two
/// participants that happen never to find each other asleep continue in that mode, in a tenth of
/// the time, until something disturbs them.
#[derive(FromZeros)]
#[repr(C, align(128))]
struct FutexWord {
    value: AtomicU32,
    /// Futex word on which the reader sleeps; its value never changes.
    word: AtomicU32,
}

impl FutexWord {
    /// Stores a value, and repeats the wake-up until it has woken the reader. Also ends if
    /// `answered` returns `true`, as the reader may have woken up by itself.
    #[inline]
    fn publish(&self, value: u32, scope: Scope, answered: impl Fn() -> bool) {
        // Release: publishes what was done before to the Acquire in wait().
        self.value.store(value, Ordering::Release);
        while futex::wake(&self.word, 1, scope) == 0 && !answered() {
            // The other side is not asleep yet; if it shares this CPU, it needs the CPU to fall
            // asleep.
            std::thread::yield_now();
        }
    }

    /// Sleeps at least once, until the value differs from `last`; returns the new value.
    #[inline]
    fn wait(&self, last: u32, scope: Scope) -> u32 {
        loop {
            futex::wait(&self.word, 0, None, scope);
            // Acquire: pairs with the Release in publish().
            let value = self.value.load(Ordering::Acquire);
            if value != last {
                return value;
            }
        }
    }

    /// Returns `true` if the current value equals `value`.
    #[inline]
    fn holds(&self, value: u32) -> bool {
        // Acquire: pairs with the Release in publish().
        self.value.load(Ordering::Acquire) == value
    }
}

/// Medium of round trips: a futex word for each direction. Each participant always sleeps until it
/// is woken.
pub(crate) struct FutexRoundTrip {
    words: Region<[FutexWord; 2]>,
    /// 1 once the echoing participant has received [`END`](Self::END), 0 before. Until then, the
    /// measured one repeats its wake-up.
    has_echo_ended: Region<AtomicU32>,
    scope: Scope,
}

impl FutexRoundTrip {
    /// Value that ends the round. Counted values stay below it, as reaching it would take an hour.
    const END: u32 = u32::MAX;
}

impl RelayMedium for FutexRoundTrip {
    type Args = ();
    const SPEC: Spec =
        Spec::new("floor/futex", "round trip of futex wakes between two threads that sleep")
            .ladder()
            .hands_over();
    type PingState = u32;

    fn setup((): &(), setup: &mut Setup) -> Result<FutexRoundTrip, Fault> {
        let scope = if setup.uses_processes() { Scope::Shared } else { Scope::Private };
        Ok(FutexRoundTrip {
            words: setup.shared_region()?,
            has_echo_ended: setup.shared_region()?,
            scope,
        })
    }

    fn new_ping_state(&self) -> Result<u32, Fault> {
        Ok(0)
    }

    fn round_trip(&self, value: &mut u32) -> Result<(), Fault> {
        let [forward, backward] = &*self.words;
        let next = *value + 1;
        forward.publish(next, self.scope, || backward.holds(next));
        *value = backward.wait(*value, self.scope);
        Ok(())
    }

    fn end(&self, _: &mut u32) -> Result<(), Fault> {
        // Acquire: pairs with the Release in echo().
        let seen = || self.has_echo_ended.load(Ordering::Acquire) != 0;
        self.words[0].publish(Self::END, self.scope, seen);
        Ok(())
    }

    fn echo(&self) -> Result<u64, Fault> {
        let [forward, backward] = &*self.words;
        let mut value = 0;
        loop {
            let seen = forward.wait(value, self.scope);
            if seen == Self::END {
                // Release: pairs with the Acquire in end().
                self.has_echo_ended.store(1, Ordering::Release);
                return Ok(u64::from(value));
            }
            value = seen;
            backward.publish(value, self.scope, || {
                forward.holds(value + 1) || forward.holds(Self::END)
            });
        }
    }
}

/// Channel for tokens in one direction, by file descriptors. A written token wakes a reader that
/// sleeps in `read`.
pub(crate) trait TokenChannel: Sized + Send + Sync + 'static {
    const SPEC: Spec;
    fn setup(setup: &mut Setup) -> Result<Self, Fault>;
    /// Writes a token, which wakes the reader.
    fn post(&self, token: u8) -> Result<(), Errno>;
    /// Sleeps until a token is received; returns the token.
    fn take(&self) -> Result<u8, Errno>;
}

/// Token of a round trip.
const PING: u8 = 1;
/// Token that ends the round.
const END: u8 = 2;

/// Medium of round trips: a [`TokenChannel`] for each direction.
pub(crate) struct SleepingPair<C> {
    forward: C,
    backward: C,
}

impl<C: TokenChannel> RelayMedium for SleepingPair<C> {
    type Args = ();
    const SPEC: Spec = C::SPEC;
    type PingState = ();

    fn setup((): &(), setup: &mut Setup) -> Result<Self, Fault> {
        Ok(SleepingPair { forward: C::setup(setup)?, backward: C::setup(setup)? })
    }

    fn new_ping_state(&self) -> Result<(), Fault> {
        Ok(())
    }

    fn round_trip(&self, (): &mut ()) -> Result<(), Fault> {
        self.forward.post(PING)?;
        self.backward.take()?;
        Ok(())
    }

    fn end(&self, (): &mut ()) -> Result<(), Fault> {
        Ok(self.forward.post(END)?)
    }

    fn echo(&self) -> Result<u64, Fault> {
        let mut turns = 0;
        while self.forward.take()? != END {
            turns += 1;
            self.backward.post(PING)?;
        }
        Ok(turns)
    }
}

/// Token channel: an eventfd, whose count is the token.
pub(crate) struct Eventfd(OwnedFd);

impl TokenChannel for Eventfd {
    const SPEC: Spec = Spec::new(
        "floor/eventfd",
        "round trip of eventfd writes between two threads that sleep in read",
    )
    .hands_over();

    fn setup(setup: &mut Setup) -> Result<Self, Fault> {
        setup.shared_fd(|| Ok(eventfd(0, EventfdFlags::CLOEXEC)?)).map(Eventfd)
    }

    #[inline]
    fn post(&self, token: u8) -> Result<(), Errno> {
        retry_on_intr(|| write(&self.0, &u64::from(token).to_ne_bytes())).map(drop)
    }

    #[inline]
    fn take(&self) -> Result<u8, Errno> {
        let mut count = [0; 8];
        retry_on_intr(|| read(&self.0, &mut count))?;
        Ok(u64::from_ne_bytes(count) as u8)
    }
}

/// Token channel: a pipe, with one byte per token.
pub(crate) struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl TokenChannel for Pipe {
    const SPEC: Spec = Spec::new(
        "floor/pipe",
        "round trip of one byte through pipes between two threads that sleep in read",
    )
    .hands_over();

    fn setup(setup: &mut Setup) -> Result<Self, Fault> {
        let (reader, writer) = setup.shared_fd_pair(|| Ok(pipe_with(PipeFlags::CLOEXEC)?))?;
        Ok(Pipe { reader, writer })
    }

    #[inline]
    fn post(&self, token: u8) -> Result<(), Errno> {
        retry_on_intr(|| write(&self.writer, &[token])).map(drop)
    }

    #[inline]
    fn take(&self) -> Result<u8, Errno> {
        let mut token = [0];
        match retry_on_intr(|| read(&self.reader, &mut token))? {
            0 => Err(Errno::PIPE),
            _ => Ok(token[0]),
        }
    }
}
