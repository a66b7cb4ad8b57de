//! `floor/*`: lower bounds set by hardware, compiler or kernel. Every other benchmark names one of
//! these and is measured in the same blocks, so that its figure is also a multiple of the floor.
//!
//! A floor is the least code that does the work: no queue, no lock, no check that a user would
//! want. Floors of one participant are in this file; those that go to another CPU and back are
//! media (`relay::Medium`), measured by one procedure (`relay::Relay`).

pub(crate) mod bed;
pub(crate) mod connect;
mod kernel;
mod line;
mod memory;
pub(crate) mod moved;
mod packet;
mod page;
mod pipelined;
pub(crate) mod relay;
mod served;
mod signature;
pub(crate) mod socket;

#[doc(hidden)]
pub use crate::raw::bulk::{Width, stream_by};

use handover_base::clock;
use handover_harness::{Bench, Fault, Rig, Samples, Workload};
use handover_record::{Contender, Spec, Wait};
use relay::Relay;
use std::hint::black_box;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

/// The floors.
pub const ALL: &[Bench] = &[
    Bench::one::<Empty>(Contender::floor("hardware")),
    Bench::one::<ClockPair<false>>(Contender::floor("hardware")),
    Bench::one::<ClockPair<true>>(Contender::floor("hardware")),
    Bench::one::<Syscall>(Contender::floor("kernel")),
    Bench::many::<CacheLine>(Contender::floor("hardware").waits(Wait::Spin)),
    Bench::many::<Relay<line::TwoLines>>(Contender::floor("hardware").waits(Wait::Spin)),
    Bench::many::<Relay<bed::Adaptive>>(Contender::floor("hardware").waits(Wait::SpinThenSleep)),
    Bench::many::<Relay<pipelined::Counters>>(Contender::floor("hardware").waits(Wait::Spin)),
    Bench::many::<served::Served>(Contender::floor("hardware").waits(Wait::SpinThenSleep)),
    Bench::many::<Relay<kernel::Futex>>(Contender::floor("kernel").waits(Wait::Sleep)),
    Bench::many::<Relay<kernel::Eventfd>>(Contender::floor("kernel").waits(Wait::Sleep)),
    Bench::many::<Relay<kernel::Pipe>>(Contender::floor("kernel").waits(Wait::Sleep)),
    Bench::many::<Relay<socket::Loopback>>(Contender::floor("kernel").waits(Wait::Sleep)),
    Bench::many::<Relay<socket::Ends<TcpStream, true>>>(
        Contender::floor("kernel").waits(Wait::Spin),
    ),
    Bench::many::<Relay<pipelined::Sockets>>(Contender::floor("kernel").waits(Wait::Spin)),
    Bench::many::<Relay<socket::Ends<UnixStream, false>>>(
        Contender::floor("kernel").waits(Wait::Sleep),
    ),
    Bench::many::<Relay<socket::Ends<UnixStream, true>>>(
        Contender::floor("kernel").waits(Wait::Spin),
    ),
    Bench::many::<connect::Connects>(Contender::floor("kernel").waits(Wait::Sleep)),
    Bench::one::<signature::Signature>(Contender::floor("aws-lc")),
    Bench::one::<signature::Agreement>(Contender::floor("aws-lc")),
    Bench::one::<memory::Memcpy>(Contender::floor("libc")),
    Bench::one::<moved::Streamed>(Contender::floor("hardware")),
    Bench::many::<moved::ByProcess<false>>(Contender::floor("kernel")),
    Bench::many::<moved::ByProcess<true>>(Contender::floor("kernel")),
    Bench::many::<moved::Stream<false>>(Contender::floor("kernel").waits(Wait::Sleep)),
    Bench::many::<moved::Stream<true>>(Contender::floor("kernel").waits(Wait::SpinThenSleep)),
    Bench::one::<packet::LongestPacket>(Contender::floor("arithmetic")),
    Bench::one::<page::Page>(Contender::floor("kernel")),
    Bench::one::<page::Word>(Contender::floor("arithmetic")),
];

/// One line there and back; the null measures it against itself.
pub(crate) type CacheLine = Relay<line::OneLine>;

/// An empty loop that the compiler keeps.
struct Empty;

impl Workload for Empty {
    type Args = ();
    const SPEC: Spec = Spec {
        id: "floor/empty",
        what: "the empty operation in a batch: a turn of the loop and a store to the stack",
        ladder: true,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };

    fn rig((): &(), _: &mut Rig) -> Result<Empty, Fault> {
        Ok(Empty)
    }

    fn sample(&mut self, out: &mut Samples) {
        out.batches(|n| {
            for i in 0..n {
                black_box(i);
            }
        });
    }
}

/// Pairs of readings between two calls of [`Samples::running`].
const READINGS_PER_LOOK: u32 = 32;

/// Two readings of the clock with no work between them: unfenced or fenced.
struct ClockPair<const FENCED: bool>;

impl<const FENCED: bool> ClockPair<FENCED> {
    #[inline]
    fn ticks() -> u64 {
        if FENCED { clock::ticks_fenced() } else { clock::ticks() }
    }
}

impl<const FENCED: bool> Workload for ClockPair<FENCED> {
    type Args = ();
    const SPEC: Spec = Spec {
        id: if FENCED { "floor/clock-pair-fenced" } else { "floor/clock-pair" },
        what: if FENCED {
            "what two readings of the clock see between them, where neither overlaps what is around it"
        } else {
            "what two readings of the clock see between them: what timing one operation alone adds"
        },
        ladder: !FENCED,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };

    fn rig((): &(), _: &mut Rig) -> Result<Self, Fault> {
        Ok(ClockPair)
    }

    fn check(&mut self) -> Result<(), Fault> {
        let began = Self::ticks();
        let ended = Self::ticks();
        if ended < began {
            return Err(Fault::new(format!("the clock went back from {began} to {ended}")));
        }
        Ok(())
    }

    fn sample(&mut self, out: &mut Samples) {
        while out.running() {
            for _ in 0..READINGS_PER_LOOK {
                let began = Self::ticks();
                out.note(0, Self::ticks().wrapping_sub(began));
            }
        }
    }
}

/// A system call for a value that the kernel has at hand and the C library does not cache.
struct Syscall;

impl Workload for Syscall {
    type Args = ();
    const SPEC: Spec = Spec {
        id: "floor/syscall",
        what: "a system call that does next to nothing: getppid",
        ladder: true,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };

    fn rig((): &(), _: &mut Rig) -> Result<Syscall, Fault> {
        Ok(Syscall)
    }

    fn check(&mut self) -> Result<(), Fault> {
        let said = rustix::process::getppid().map_or(0, |it| it.as_raw_nonzero().get());
        // The same value by another way. A parent in another PID namespace is 0 for both.
        let known = i32::try_from(std::os::unix::process::parent_id()).unwrap_or(0);
        if said != known {
            return Err(Fault::new(format!("getppid says {said}, the C library {known}")));
        }
        Ok(())
    }

    fn sample(&mut self, out: &mut Samples) {
        out.batches(|n| {
            for _ in 0..n {
                black_box(rustix::process::getppid());
            }
        });
    }
}
