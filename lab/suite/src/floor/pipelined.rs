//! Several messages in flight at a time: the floors of pipelined calls, whose figure is a
//! throughput.

use super::relay::RelayMedium;
use super::socket::SocketEnds;
use crate::channels::PollPause;
use handover_base::sync::shared::{AtomicU64, Ordering};
use handover_harness::{Fault, Region, Setup};
use handover_record::{Spec, args};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{RecvFlags, recv};
use std::net::TcpStream;
use zerocopy::FromZeros;

args! {
    /// Arguments of the benchmarks of several messages in flight.
    pub struct PipelineArgs {
        /// Messages in flight.
        concurrency_count: u32 = 16 (smoke 4, range 1 ..= 10000),
    }
}

/// Value that ends the round; counts of messages stay below it.
const END: u64 = u64::MAX;

/// A counter alone on a pair of cache lines.
#[derive(FromZeros)]
#[repr(C, align(128))]
struct Counter(AtomicU64);

/// Medium of round trips: a counter of messages sent, and a counter of messages returned.
pub(crate) struct CounterPipeline {
    counters: Region<[Counter; 2]>,
    /// Maximum number of messages in flight.
    depth: u64,
    pause: PollPause,
}

impl CounterPipeline {
    /// Polls a counter until `is_next(value)` returns `true`; returns the value.
    #[inline(always)]
    fn wait(&self, counter: &Counter, is_next: impl Fn(u64) -> bool) -> u64 {
        // Acquire: pairs with the Release of the other participant.
        self.pause.poll_until_some(|| {
            Some(counter.0.load(Ordering::Acquire)).filter(|count| is_next(*count))
        })
    }
}

/// Counts of the sending participant: messages sent, and messages returned.
#[derive(Default)]
pub(crate) struct PipelineCounts {
    sent: u64,
    returned: u64,
}

impl RelayMedium for CounterPipeline {
    type Args = PipelineArgs;
    const SPEC: Spec = Spec::new(
        "floor/pipelined",
        "counter incremented in turn by two CPUs, with concurrency_count counters in flight",
    )
    .hands_over()
    .batched()
    .pipelined();
    type PingState = PipelineCounts;

    fn setup(args: &PipelineArgs, setup: &mut Setup) -> Result<Self, Fault> {
        let depth = args.concurrency_count.into();
        Ok(Self { counters: setup.shared_region()?, depth, pause: PollPause::new(setup) })
    }

    fn new_ping_state(&self) -> Result<PipelineCounts, Fault> {
        Ok(PipelineCounts::default())
    }

    #[inline(always)]
    fn round_trip(
        &self,
        PipelineCounts { sent, returned }: &mut PipelineCounts,
    ) -> Result<(), Fault> {
        let [there, echoed] = &*self.counters;
        if *sent - *returned == self.depth {
            *returned = self.wait(echoed, |it| it > *returned);
        }
        *sent += 1;
        // Release: pairs with the Acquire in wait().
        there.0.store(*sent, Ordering::Release);
        Ok(())
    }

    fn end(&self, PipelineCounts { sent, .. }: &mut PipelineCounts) -> Result<(), Fault> {
        let [there, echoed] = &*self.counters;
        self.wait(echoed, |it| it == *sent);
        // Release: pairs with the Acquire in wait().
        there.0.store(END, Ordering::Release);
        Ok(())
    }

    fn echo(&self) -> Result<u64, Fault> {
        let [there, echoed] = &*self.counters;
        let mut messages = 0;
        loop {
            let seen = self.wait(there, |it| it != messages);
            if seen == END {
                return Ok(messages);
            }
            messages = seen;
            // Release: pairs with the Acquire in wait().
            echoed.0.store(messages, Ordering::Release);
        }
    }
}

const MESSAGE_BYTES: usize = 8;
const READ_BYTES_MAX: usize = 1 << 16;

/// Medium of round trips: polled loopback TCP. Each write sends as many messages as the last read
/// has returned.
pub(crate) struct SocketPipeline {
    measured_end: TcpStream,
    echo_end: TcpStream,
    depth: usize,
    pause: PollPause,
}

/// Buffers and counts of the sending participant.
pub(crate) struct PipelineBuffers {
    /// Bytes of as many messages as may be in flight.
    messages: Vec<u8>,
    /// Buffer for received bytes.
    received: Vec<u8>,
    /// Number of returned messages that are not yet counted as operations.
    uncounted: usize,
    /// Number of received bytes of an incomplete message.
    incomplete_bytes: usize,
}

/// Loopback TCP connection whose participants poll.
type PolledTcp = SocketEnds<TcpStream, true>;

impl SocketPipeline {
    /// Polls until bytes have arrived; returns their number.
    fn read_some(&self, end: &TcpStream, into: &mut [u8]) -> Result<usize, Fault> {
        loop {
            match recv(end, &mut *into, RecvFlags::empty()) {
                Ok((count, _)) => return Ok(count),
                Err(Errno::WOULDBLOCK) => self.pause.pause_once(),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads at least one complete message, and returns the number of complete messages read.
    fn read_messages(&self, buffers: &mut PipelineBuffers) -> Result<usize, Fault> {
        loop {
            let count = self.read_some(&self.measured_end, &mut buffers.received)?;
            if count == 0 {
                return Err(Fault::new("the echoing participant has closed the connection"));
            }
            let bytes = buffers.incomplete_bytes + count;
            buffers.incomplete_bytes = bytes % MESSAGE_BYTES;
            if bytes >= MESSAGE_BYTES {
                return Ok(bytes / MESSAGE_BYTES);
            }
        }
    }
}

impl RelayMedium for SocketPipeline {
    type Args = PipelineArgs;
    const SPEC: Spec = Spec::new(
        "floor/socket-pipelined",
        "round trip of eight bytes over loopback TCP, with concurrency_count in flight, both sides polling",
    )
    .hands_over()
    .batched()
    .pipelined();
    type PingState = PipelineBuffers;

    fn setup(args: &PipelineArgs, setup: &mut Setup) -> Result<Self, Fault> {
        let (measured_end, echo_end) = PolledTcp::create_ends(setup)?;
        for end in [&measured_end, &echo_end] {
            ioctl_fionbio(end, true)?;
        }
        let depth = args.concurrency_count as usize;
        Ok(Self { measured_end, echo_end, depth, pause: PollPause::new(setup) })
    }

    fn new_ping_state(&self) -> Result<PipelineBuffers, Fault> {
        let messages = vec![0; self.depth * MESSAGE_BYTES];
        PolledTcp::write_all(&self.measured_end, &messages, self.pause)?;
        Ok(PipelineBuffers {
            messages,
            received: vec![0; READ_BYTES_MAX],
            uncounted: 0,
            incomplete_bytes: 0,
        })
    }

    #[inline(always)]
    fn round_trip(&self, buffers: &mut PipelineBuffers) -> Result<(), Fault> {
        if buffers.uncounted > 0 {
            buffers.uncounted -= 1;
            return Ok(());
        }
        let messages = self.read_messages(buffers)?;
        buffers.uncounted = messages - 1;
        PolledTcp::write_all(
            &self.measured_end,
            &buffers.messages[..messages * MESSAGE_BYTES],
            self.pause,
        )
    }

    fn end(&self, buffers: &mut PipelineBuffers) -> Result<(), Fault> {
        let mut left = self.depth;
        while left > 0 {
            left -= self.read_messages(buffers)?;
        }
        // The number of messages that were sent and not counted.
        let uncounted_sent = (self.depth + buffers.uncounted) as u64;
        PolledTcp::write_all(&self.measured_end, &(END - uncounted_sent).to_ne_bytes(), self.pause)
    }

    fn echo(&self) -> Result<u64, Fault> {
        let mut buffer = vec![0; READ_BYTES_MAX];
        let (mut filled, mut messages) = (0, 0);
        loop {
            let count = self.read_some(&self.echo_end, &mut buffer[filled..])?;
            if count == 0 {
                return Err(Fault::new("the sending participant has closed the connection"));
            }
            filled += count;
            let whole = filled / MESSAGE_BYTES * MESSAGE_BYTES;
            let last = whole.checked_sub(MESSAGE_BYTES).and_then(|at| buffer[at..].first_chunk());
            let last = last.map_or(0, |bytes| u64::from_ne_bytes(*bytes));
            if last > END / 2 {
                // All messages had been returned when this was sent, so it arrives alone.
                return Ok(messages - (END - last));
            }
            PolledTcp::write_all(&self.echo_end, &buffer[..whole], self.pause)?;
            messages += (whole / MESSAGE_BYTES) as u64;
            buffer.copy_within(whole..filled, 0);
            filled -= whole;
        }
    }
}
