//! Moving memory that no cache holds: the floors of bulk transfers.

use super::socket::{Loopback, SocketEnds};
use crate::channels::PollPause;
use crate::common::{bytes_to_usize, check_bytes_equal, ensure};
use crate::raw::bulk;
use handover_base::clock;
use handover_harness::{Fault, Handover, Participant, Role, Samples, Setup, Workload};
use handover_record::{Bytes, Spec, args};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use zerocopy::{FromBytes, Immutable, IntoBytes};

args! {
    /// Arguments of the benchmarks of copies that advance through memory.
    pub struct CopyArgs {
        /// Bytes in each copy.
        size_bytes: Bytes = 65536 (smoke 4096, range 256 ..= 67108864),
        /// Bytes of memory of the source and of the target; successive copies advance through it.
        memory_bytes: Bytes = 67108864 (smoke 65536, range 256 ..= 1073741824),
    }
}

/// Page of a buffer, aligned so that the addresses of two buffers differ by whole pages. Otherwise
/// a load from one buffer could have the same low 12 address bits as a recent store to the other,
/// and the CPU could mistake one for the other.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C, align(4096))]
pub(super) struct Page(pub(super) [u8; PAGE_BYTES]);

pub(super) const PAGE_BYTES: usize = 4096;

/// Iterator over the offsets of consecutive pieces of memory, which starts over at the end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PieceOffsets {
    /// Length of a piece.
    pub(crate) size_bytes: usize,
    pub(crate) memory_bytes: usize,
    /// Offset of the next piece.
    next: usize,
}

impl PieceOffsets {
    /// Creates the iterator over `memory` bytes, or over one piece if the memory is smaller.
    pub(crate) fn new(piece: Bytes, memory: Bytes) -> Self {
        let size_bytes = bytes_to_usize(piece);
        Self { size_bytes, memory_bytes: bytes_to_usize(memory).max(size_bytes), next: 0 }
    }

    /// Creates the iterator; fails unless the length of a piece is a multiple of
    /// [`bulk::BLOCK_BYTES`].
    pub(crate) fn new_of_whole_blocks(piece: Bytes, memory: Bytes) -> Result<Self, Fault> {
        ensure(piece.0.is_multiple_of(bulk::BLOCK_BYTES as u64), || {
            format!("size_bytes={bytes}: not a multiple of 256", bytes = piece.0)
        })?;
        Ok(Self::new(piece, memory))
    }

    pub(crate) fn next_offset(&mut self) -> usize {
        let at = self.next;
        self.next += self.size_bytes;
        if self.next + self.size_bytes > self.memory_bytes {
            self.next = 0;
        }
        at
    }
}

/// Source and target memory of copies, which are made piece by piece.
pub(super) struct CopyBuffers {
    from: Vec<Page>,
    to: Vec<Page>,
    pieces: PieceOffsets,
}

impl CopyBuffers {
    pub(super) fn new(pieces: PieceOffsets) -> Self {
        let pages_count = pieces.memory_bytes.div_ceil(PAGE_BYTES);
        // Both are written: a page never written is the kernel's page of zeros, or none.
        let from = (0..pages_count).map(|page| Page([page as u8 ^ 0xa5; PAGE_BYTES])).collect();
        Self { from, to: vec![Page([0xff; PAGE_BYTES]); pages_count], pieces }
    }

    /// Returns the next piece of the source, and the piece of the target to which it is copied.
    pub(super) fn next_piece(&mut self) -> (&[u8], &mut [u8]) {
        let at = self.pieces.next_offset();
        let end = at + self.pieces.size_bytes;
        (&self.from.as_bytes()[at..end], &mut self.to.as_mut_bytes()[at..end])
    }

    fn sample(&mut self, out: &mut Samples, mut copy: impl FnMut(&[u8], &mut [u8])) {
        out.set_bytes_per_op(self.pieces.size_bytes as u64);
        out.time_batches(|n| {
            for _ in 0..n {
                let (from, to) = self.next_piece();
                copy(from, to);
            }
        });
    }
}

/// Workload: a copy with stores that bypass the caches.
pub(crate) struct StreamingCopy(CopyBuffers);

impl Workload for StreamingCopy {
    type Args = CopyArgs;
    const SPEC: Spec = Spec::new(
        "floor/streamed-copy",
        "copy of size_bytes with non-temporal stores and prefetching, advancing through memory_bytes",
    );

    fn setup(args: &CopyArgs, _: &mut Setup) -> Result<Self, Fault> {
        Ok(Self(CopyBuffers::new(PieceOffsets::new_of_whole_blocks(
            args.size_bytes,
            args.memory_bytes,
        )?)))
    }

    fn self_test(&mut self) -> Result<(), Fault> {
        let (from, to) = self.0.next_piece();
        bulk::copy_streaming(from, to);
        check_bytes_equal(to, from)
    }

    fn sample(&mut self, out: &mut Samples) {
        self.0.sample(out, bulk::copy_streaming);
    }
}

/// Workload: the kernel's copy into another process's memory if `PUSHES`, otherwise out of it.
pub(crate) struct ProcessCopy<const PUSHES: bool> {
    measured_end: UnixStream,
    serving_end: UnixStream,
    pieces: PieceOffsets,
}

/// Size of the message with the owner's process id and the address of its memory.
const ADDRESS_MESSAGE_BYTES: usize = 12;
/// Byte with which the owner fills its memory.
const OWNER_BYTE: u8 = 0xa5;
/// Byte with which the copying participant fills its memory.
const COPIER_BYTE: u8 = 0x5a;

impl<const PUSHES: bool> ProcessCopy<PUSHES> {
    /// Sends the address of the owner's memory, and waits until the other participant has finished.
    fn run_owner(&self) -> Result<(), Fault> {
        let memory = vec![OWNER_BYTE; self.pieces.memory_bytes];
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        let mut message = [0; ADDRESS_MESSAGE_BYTES];
        message[..4].copy_from_slice(&pid.to_ne_bytes());
        message[4..].copy_from_slice(&(memory.as_ptr().addr() as u64).to_ne_bytes());
        (&self.serving_end).write_all(&message)?;
        let _ended = (&self.serving_end).read(&mut [0])?;
        Ok(())
    }

    /// Copies pieces until the round ends, and checks the first piece.
    fn copy_pieces(&self, out: &mut Samples) -> Result<(), Fault> {
        let mut message = [0; ADDRESS_MESSAGE_BYTES];
        (&self.measured_end).read_exact(&mut message)?;
        let (pid, address) = message.split_at(4);
        let whole = |_| Fault::new("cannot parse the message with the owner's address");
        let pid = i32::from_ne_bytes(pid.try_into().map_err(whole)?);
        let address = u64::from_ne_bytes(address.try_into().map_err(whole)?);
        let mut pieces = self.pieces;
        let mut memory = vec![COPIER_BYTE; pieces.memory_bytes];
        let mut copy = || {
            let at = pieces.next_offset();
            let into = &mut memory[at..at + pieces.size_bytes];
            match PUSHES {
                true => bulk::copy_to_process(pid, address + at as u64, into),
                false => bulk::copy_from_process(pid, address + at as u64, into),
            }
        };
        // Done once untimed: touches every page.
        for _ in 0..self.pieces.memory_bytes / self.pieces.size_bytes {
            let is_whole = copy()? == self.pieces.size_bytes;
            ensure(is_whole, || "the kernel copied fewer bytes than requested")?;
        }
        out.set_bytes_per_op(self.pieces.size_bytes as u64);
        out.restart_round();
        out.time_batches(|n| {
            for _ in 0..n {
                // A refusal would have been an error above.
                let _ = copy();
            }
        });
        if PUSHES {
            // Reads back what was written to the owner's memory.
            memory.fill(!COPIER_BYTE);
            let into = &mut memory[..self.pieces.size_bytes];
            bulk::copy_from_process(pid, address, into)?;
        }
        let expected = if PUSHES { COPIER_BYTE } else { OWNER_BYTE };
        let is_right = memory[..self.pieces.size_bytes].iter().all(|&byte| byte == expected);
        ensure(is_right, || "the copied bytes differ from the source")
    }
}

impl<const PUSHES: bool> Handover for ProcessCopy<PUSHES> {
    type Args = CopyArgs;
    const SPEC: Spec = Spec::new(
        if PUSHES { "floor/process-copy-out" } else { "floor/process-copy" },
        if PUSHES {
            "copy of size_bytes to the other participant by process_vm_writev, advancing through memory_bytes"
        } else {
            "copy of size_bytes from the other participant by process_vm_readv, advancing through memory_bytes"
        },
    )
    .hands_over();
    const PROCESSES: bool = true;
    const ROLES: &'static [Role] = &[Role::measured("reader"), Role::serving("owner")];

    fn setup(args: &CopyArgs, setup: &mut Setup) -> Result<Self, Fault> {
        let (measured_end, serving_end) = SocketEnds::<UnixStream, false>::create_ends(setup)?;
        Ok(Self {
            measured_end,
            serving_end,
            pieces: PieceOffsets::new(args.size_bytes, args.memory_bytes),
        })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        if participant.index > 0 {
            return self.run_owner();
        }
        let copied = self.copy_pieces(out);
        self.measured_end.shutdown(Shutdown::Write)?;
        copied
    }
}

/// Workload: one participant writes without end to a TCP connection, and the other reads. The
/// reader sleeps in `read` or, if `POLLS_FIRST`, polls for a while first.
pub(crate) struct SocketStream<const POLLS_FIRST: bool> {
    measured_end: TcpStream,
    serving_end: TcpStream,
    pieces: PieceOffsets,
    pause: PollPause,
}

/// Time in ns for which a reader polls before it may sleep, unless the writer shares its CPU.
const POLL_NS: u64 = 50_000;

impl<const POLLS_FIRST: bool> SocketStream<POLLS_FIRST> {
    /// Reads bytes until `into` is full. If `POLLS_FIRST`, polls for [`POLL_NS`] before it may
    /// sleep.
    fn read(&self, mut into: &mut [u8]) -> std::io::Result<()> {
        if !POLLS_FIRST {
            return (&self.measured_end).read_exact(into);
        }
        let until = clock::ticks() + clock::ticks_from_ns(self.pause.ns_before_sleep(POLL_NS));
        while !into.is_empty() {
            let asleep = clock::ticks() >= until;
            let flags = if asleep { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
            match recv(&self.measured_end, &mut *into, flags) {
                Ok((0, _)) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                Ok((count, _)) => into = &mut into[count..],
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}

impl<const POLLS_FIRST: bool> Handover for SocketStream<POLLS_FIRST> {
    type Args = CopyArgs;
    const SPEC: Spec = Spec::new(
        if POLLS_FIRST { "floor/stream-adaptive" } else { "floor/stream" },
        if POLLS_FIRST {
            "size_bytes read from a loopback TCP connection whose sender never pauses, the reader polling before it blocks"
        } else {
            "size_bytes read from a loopback TCP connection whose sender never pauses, the reader blocking"
        },
    )
    .hands_over()
    .pipelined();
    const PROCESSES: bool = true;
    const ROLES: &'static [Role] = &[Role::measured("reader"), Role::serving("writer")];

    fn setup(args: &CopyArgs, setup: &mut Setup) -> Result<Self, Fault> {
        let (measured_end, serving_end) = Loopback::create_ends(setup)?;
        Ok(Self {
            measured_end,
            serving_end,
            pieces: PieceOffsets::new(args.size_bytes, args.memory_bytes),
            pause: PollPause::new(setup),
        })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        let mut pieces = self.pieces;
        let mut memory = vec![7u8; pieces.memory_bytes];
        if participant.index > 0 {
            // Writes until the reader has asked for the end; the reader continues to read, so that
            // no write blocks.
            while recv(&self.serving_end, &mut [0u8; 1], RecvFlags::DONTWAIT) == Err(Errno::AGAIN) {
                let at = pieces.next_offset();
                (&self.serving_end).write_all(&memory[at..at + pieces.size_bytes])?;
            }
            return Ok(self.serving_end.shutdown(Shutdown::Write)?);
        }
        let mut failed = None;
        let mut read_pieces = |n: u64| {
            for _ in 0..n {
                let at = pieces.next_offset();
                let into = &mut memory[at..at + pieces.size_bytes];
                failed = failed.take().or(self.read(into).err());
            }
        };
        // Once untimed, until the sender has filled the connection's buffers.
        read_pieces((self.pieces.memory_bytes / self.pieces.size_bytes) as u64);
        out.set_bytes_per_op(self.pieces.size_bytes as u64);
        out.restart_round();
        out.time_batches(read_pieces);
        self.measured_end.shutdown(Shutdown::Write)?;
        while (&self.measured_end).read(&mut memory)? > 0 {}
        failed.map_or(Ok(()), |error| Err(error.into()))
    }
}
