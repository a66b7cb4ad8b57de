//! `floor/*`: lower bounds set by hardware, compiler or kernel. Every other benchmark names one of
//! these and is measured in the same blocks, so that its figure is also a multiple of the floor.
//!
//! A floor is the least code that does the work: no queue, no lock, no check that a user would
//! want. Floors of one participant are in this file; those that go to another CPU and back are
//! media (`relay::RelayMedium`), measured by one procedure (`relay::Relay`).

pub(crate) mod connect;
mod kernel;
mod line;
mod memory;
mod page;
mod pipelined;
pub(crate) mod relay;
mod served;
mod shared_copy;
#[cfg(feature = "tls")]
mod signature;
pub(crate) mod socket;
pub(crate) mod transfer;
pub(crate) mod wait_word;

#[doc(hidden)]
pub use crate::raw::bulk::{StoreWidth, copy_streaming_with};

use crate::common::ensure;
use crate::raw::calls::hide_value;
use handover_base::clock;
use handover_harness::{Bench, Fault, Samples, Setup, Workload, benches};
use handover_record::Spec;
use relay::Relay;
use std::hint::black_box;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

/// All benchmarks that measure floors: lower bounds set by hardware, kernel or libraries.
pub const BENCHES: &[Bench] = benches! {
    one floor "hardware": Empty;
    one floor "hardware": ClockPair<false>;
    one floor "hardware": ClockPair<true>;
    one floor "kernel": Syscall;
    many floor "hardware" Spin: CacheLine;
    many floor "hardware" SpinThenSleep: Relay<wait_word::WordRoundTrip<true>>;
    many floor "hardware" Sleep: Relay<wait_word::WordRoundTrip<false>>;
    many floor "hardware" Spin: Relay<pipelined::CounterPipeline>;
    many floor "hardware" SpinThenSleep: served::WordServer;
    many floor "kernel" Sleep: Relay<kernel::FutexRoundTrip>;
    many floor "kernel" Sleep: Relay<kernel::SleepingPair<kernel::Eventfd>>;
    many floor "kernel" Sleep: Relay<kernel::SleepingPair<kernel::Pipe>>;
    many floor "kernel" Sleep: Relay<socket::Loopback>;
    many floor "kernel" Spin: Relay<socket::SocketEnds<TcpStream, true>>;
    many floor "kernel" Spin: Relay<pipelined::SocketPipeline>;
    many floor "kernel" Sleep: Relay<socket::SocketEnds<UnixStream, false>>;
    many floor "kernel" Spin: Relay<socket::SocketEnds<UnixStream, true>>;
    many floor "kernel" Sleep: connect::ConnectEcho<connect::BlockingServer>;
    one floor "aws-lc": signature::Signing, if feature = "tls";
    one floor "aws-lc": signature::KeyAgreement, if feature = "tls";
    one floor "libc": memory::Memcpy;
    many floor "libc" Spin: Relay<shared_copy::SharedCopy>;
    one floor "hardware": transfer::StreamingCopy;
    many floor "kernel": transfer::ProcessCopy<false>;
    many floor "kernel": transfer::ProcessCopy<true>;
    many floor "kernel" Sleep: transfer::SocketStream<false>;
    many floor "kernel" SpinThenSleep: transfer::SocketStream<true>;
    one floor "kernel": page::OnePage;
    one floor "arithmetic": page::OneWord;
};

/// Benchmark of the round trip of one cache line. A null benchmark measures it twice.
pub(crate) type CacheLine = Relay<line::SharedLine>;

/// Workload: an empty loop that the compiler does not remove.
struct Empty;

impl Workload for Empty {
    type Args = ();
    const SPEC: Spec =
        Spec::new("floor/empty", "loop iteration without work, as in an empty batch").ladder();

    fn setup((): &(), _: &mut Setup) -> Result<Empty, Fault> {
        Ok(Empty)
    }

    fn sample(&mut self, out: &mut Samples) {
        out.time_batches(|n| {
            for i in 0..n {
                hide_value(i);
            }
        });
    }
}

/// Number of pairs of clock readings between two calls of [`Samples::is_running`].
const READINGS_PER_CHECK: u32 = 32;

/// Workload: two readings of the clock with no work between them, each with fences if `FENCED`.
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
        ladder: !FENCED,
        ..Spec::new(
            if FENCED { "floor/clock-pair-fenced" } else { "floor/clock-pair" },
            if FENCED {
                "two consecutive clock readings, each fenced against the surrounding instructions"
            } else {
                "two consecutive clock readings: the overhead of timing a single operation"
            },
        )
    };

    fn setup((): &(), _: &mut Setup) -> Result<Self, Fault> {
        Ok(ClockPair)
    }

    fn self_test(&mut self) -> Result<(), Fault> {
        let began = Self::ticks();
        let ended = Self::ticks();
        ensure(ended >= began, || format!("the clock went backwards from {began} to {ended}"))
    }

    fn sample(&mut self, out: &mut Samples) {
        while out.is_running() {
            for _ in 0..READINGS_PER_CHECK {
                let began = Self::ticks();
                out.record_ticks(0, Self::ticks().wrapping_sub(began));
            }
        }
    }
}

/// Workload: `getppid`, a cheap system call whose result the C library does not cache.
struct Syscall;

impl Workload for Syscall {
    type Args = ();
    const SPEC: Spec = Spec::new("floor/syscall", "trivial system call: getppid").ladder();

    fn setup((): &(), _: &mut Setup) -> Result<Syscall, Fault> {
        Ok(Syscall)
    }

    fn self_test(&mut self) -> Result<(), Fault> {
        let said = rustix::process::getppid().map_or(0, |it| it.as_raw_nonzero().get());
        // The same value by another way. A parent in another PID namespace is 0 for both.
        let known = i32::try_from(std::os::unix::process::parent_id()).unwrap_or(0);
        ensure(said == known, || format!("getppid returned {said}, but the C library says {known}"))
    }

    fn sample(&mut self, out: &mut Samples) {
        out.time_batches(|n| {
            for _ in 0..n {
                black_box(rustix::process::getppid());
            }
        });
    }
}
