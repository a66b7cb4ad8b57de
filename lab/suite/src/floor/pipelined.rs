//! Several turns in progress at a time: the floors of pipelined calls, whose figure is a
//! throughput.

use super::relay::Medium;
use super::socket::Ends;
use crate::channels::Pause;
use handover_base::sync::shared::{AtomicU64, Ordering};
use handover_harness::{Fault, Region, Setup};
use handover_record::{Spec, args};
use rustix::io::ioctl_fionbio;
use rustix::net::{RecvFlags, recv};
use std::net::TcpStream;
use zerocopy::FromZeros;

args! {
    /// Number of turns in progress.
    pub struct Depth {
        /// Turns under way at a time.
        concurrency_count: u32 = 16 (smoke 4, range 1 ..= 10000),
    }
}

/// Value in place of a turn: the round is over.
const END: u64 = u64::MAX;

/// A counter alone on a pair of cache lines.
#[derive(FromZeros)]
#[repr(C, align(128))]
struct Counter(AtomicU64);

/// Medium of two counters: turns sent, and turns returned.
pub(crate) struct Counters {
    counters: Region<[Counter; 2]>,
    depth: u64,
    pause: Pause,
}

impl Counters {
    #[inline(always)]
    fn wait(&self, counter: &Counter, is_next: impl Fn(u64) -> bool) -> u64 {
        // Acquire: pairs with the Release of the other side.
        self.pause.until(|| Some(counter.0.load(Ordering::Acquire)).filter(|count| is_next(*count)))
    }
}

/// State of the sending side: turns sent, and turns known to be returned.
#[derive(Default)]
pub(crate) struct Sent {
    sent: u64,
    back: u64,
}

impl Medium for Counters {
    type Args = Depth;
    const SPEC: Spec = Spec::new(
        "floor/pipelined",
        "a turn counted up by one CPU and by another after it, concurrency_count \
         of them under way",
    )
    .hands_over()
    .batched()
    .pipelined();
    type Ping = Sent;

    fn setup(args: &Depth, setup: &mut Setup) -> Result<Self, Fault> {
        let depth = args.concurrency_count.into();
        Ok(Self { counters: setup.region()?, depth, pause: Pause::of(setup) })
    }

    fn ping(&self) -> Result<Sent, Fault> {
        Ok(Sent::default())
    }

    #[inline(always)]
    fn round_trip(&self, Sent { sent, back }: &mut Sent) -> Result<(), Fault> {
        let [there, echoed] = &*self.counters;
        if *sent - *back == self.depth {
            *back = self.wait(echoed, |it| it > *back);
        }
        *sent += 1;
        // Release: pairs with the Acquire in wait().
        there.0.store(*sent, Ordering::Release);
        Ok(())
    }

    fn end(&self, Sent { sent, .. }: &mut Sent) -> Result<(), Fault> {
        let [there, echoed] = &*self.counters;
        self.wait(echoed, |it| it == *sent);
        // Release: pairs with the Acquire in wait().
        there.0.store(END, Ordering::Release);
        Ok(())
    }

    fn echo(&self) -> Result<u64, Fault> {
        let [there, echoed] = &*self.counters;
        let mut turns = 0;
        loop {
            let seen = self.wait(there, |it| it != turns);
            if seen == END {
                return Ok(turns);
            }
            turns = seen;
            // Release: pairs with the Acquire in wait().
            echoed.0.store(turns, Ordering::Release);
        }
    }
}

/// Size of a turn over a socket.
const TURN_BYTES: usize = 8;
const READ_BYTES: usize = 1 << 16;

/// Medium over loopback TCP: as many turns in one write as have come back; both sides poll.
pub(crate) struct Sockets {
    near: TcpStream,
    far: TcpStream,
    depth: usize,
}

/// State of the sending side.
pub(crate) struct Written {
    lot: Vec<u8>,
    came: Vec<u8>,
    /// Turns that were written together with a counted turn.
    ahead: usize,
    /// Bytes received of an incomplete turn.
    part_bytes: usize,
}

type Polled = Ends<TcpStream, true>;

impl Sockets {
    /// Reads at least one whole turn, and returns the number of whole turns read.
    fn turns(&self, written: &mut Written) -> Result<usize, Fault> {
        loop {
            let count = read_some(&self.near, &mut written.came)?;
            if count == 0 {
                return Err(Fault::new("the other end has ended"));
            }
            let bytes = written.part_bytes + count;
            written.part_bytes = bytes % TURN_BYTES;
            if bytes >= TURN_BYTES {
                return Ok(bytes / TURN_BYTES);
            }
        }
    }
}

fn read_some(end: &TcpStream, into: &mut [u8]) -> Result<usize, Fault> {
    use rustix::io::Errno;
    loop {
        match recv(end, &mut *into, RecvFlags::empty()) {
            Ok((count, _)) => return Ok(count),
            Err(Errno::WOULDBLOCK) => std::hint::spin_loop(),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

impl Medium for Sockets {
    type Args = Depth;
    const SPEC: Spec = Spec::new(
        "floor/socket-pipelined",
        "eight bytes over loopback TCP and back, concurrency_count of them under \
         way, both sides spinning",
    )
    .hands_over()
    .batched()
    .pipelined();
    type Ping = Written;

    fn setup(args: &Depth, setup: &mut Setup) -> Result<Self, Fault> {
        let (near, far) = Polled::ends(setup)?;
        for end in [&near, &far] {
            ioctl_fionbio(end, true)?;
        }
        Ok(Self { near, far, depth: args.concurrency_count as usize })
    }

    fn ping(&self) -> Result<Written, Fault> {
        let lot = vec![0; self.depth * TURN_BYTES];
        Polled::write(&self.near, &lot)?;
        Ok(Written { lot, came: vec![0; READ_BYTES], ahead: 0, part_bytes: 0 })
    }

    #[inline(always)]
    fn round_trip(&self, written: &mut Written) -> Result<(), Fault> {
        if written.ahead > 0 {
            written.ahead -= 1;
            return Ok(());
        }
        let turns = self.turns(written)?;
        written.ahead = turns - 1;
        Polled::write(&self.near, &written.lot[..turns * TURN_BYTES])
    }

    fn end(&self, written: &mut Written) -> Result<(), Fault> {
        let mut left = self.depth;
        while left > 0 {
            left -= self.turns(written)?;
        }
        // The number of turns that were sent and not counted.
        let uncounted = (self.depth + written.ahead) as u64;
        Polled::write(&self.near, &(END - uncounted).to_ne_bytes())
    }

    fn echo(&self) -> Result<u64, Fault> {
        let mut buffer = vec![0; READ_BYTES];
        let (mut filled, mut turns) = (0, 0);
        loop {
            let count = read_some(&self.far, &mut buffer[filled..])?;
            if count == 0 {
                return Err(Fault::new("the other end has ended"));
            }
            filled += count;
            let whole = filled / TURN_BYTES * TURN_BYTES;
            let last = whole.checked_sub(TURN_BYTES).and_then(|at| buffer[at..].first_chunk());
            let last = last.map_or(0, |bytes| u64::from_ne_bytes(*bytes));
            if last > END / 2 {
                // All turns had come back when this was sent, so it came alone.
                return Ok(turns - (END - last));
            }
            Polled::write(&self.far, &buffer[..whole])?;
            turns += (whole / TURN_BYTES) as u64;
            buffer.copy_within(whole..filled, 0);
            filled -= whole;
        }
    }
}
