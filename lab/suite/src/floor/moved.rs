//! Moving memory that no cache holds: the floors of bulk transfers.

use super::socket::Loopback;
use crate::raw::bulk;
use handover_harness::{Fault, Handover, Party, Rig, Role, Samples, Workload};
use handover_record::{Bytes, Spec, args};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use zerocopy::{FromBytes, Immutable, IntoBytes};

args! {
    /// What is moved, and out of how much.
    pub struct Walk {
        /// Bytes moved at a time.
        size_bytes: Bytes = 65536 (smoke 4096, range 256 ..= 67108864),
        /// Bytes that are walked through, in turn; more than a cache holds.
        memory_bytes: Bytes = 67108864 (smoke 65536, range 256 ..= 1073741824),
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C, align(4096))]
struct Page([u8; 4096]);

/// Where the next piece is: one behind the other, then from the beginning.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pieces {
    pub(crate) size_bytes: usize,
    pub(crate) memory_bytes: usize,
    next: usize,
}

impl Pieces {
    /// At least one piece fits.
    pub(crate) fn new(size: Bytes, memory: Bytes) -> Self {
        let whole = |bytes: Bytes| usize::try_from(bytes.0).unwrap_or(usize::MAX);
        let size_bytes = whole(size);
        Self { size_bytes, memory_bytes: whole(memory).max(size_bytes), next: 0 }
    }

    pub(crate) fn next(&mut self) -> usize {
        let at = self.next;
        self.next += self.size_bytes;
        if self.next + self.size_bytes > self.memory_bytes {
            self.next = 0;
        }
        at
    }
}

/// Two memories, walked through from one end to the other.
struct Memories {
    from: Vec<Page>,
    to: Vec<Page>,
    pieces: Pieces,
}

impl Memories {
    fn new(args: &Walk) -> Self {
        let pieces = Pieces::new(args.size_bytes, args.memory_bytes);
        let pages_count = pieces.memory_bytes.div_ceil(size_of::<Page>());
        let from = (0..pages_count).map(|page| Page([page as u8 ^ 0xa5; 4096])).collect();
        Self { from, to: vec![Page([0xff; 4096]); pages_count], pieces }
    }

    fn next(&mut self) -> (&[u8], &mut [u8]) {
        let at = self.pieces.next();
        let end = at + self.pieces.size_bytes;
        (&self.from.as_bytes()[at..end], &mut self.to.as_mut_bytes()[at..end])
    }

    fn sample(&mut self, out: &mut Samples, mut copy: impl FnMut(&[u8], &mut [u8])) {
        out.bytes_per_op(self.pieces.size_bytes as u64);
        out.batches(|n| {
            for _ in 0..n {
                let (from, to) = self.next();
                copy(from, to);
            }
        });
    }
}

/// Stores that leave the caches alone.
pub(crate) struct Streamed(Memories);

impl Workload for Streamed {
    type Args = Walk;
    const SPEC: Spec = Spec {
        id: "floor/streamed-copy",
        what: "size_bytes copied past the caches, the source asked for ahead, through memory_bytes",
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };

    fn rig(args: &Walk, _: &mut Rig) -> Result<Self, Fault> {
        if !bulk::streams() {
            return Err(Fault::new("this processor has no AVX-512"));
        }
        if !args.size_bytes.0.is_multiple_of(bulk::BLOCK_BYTES as u64) {
            return Err(Fault::new("size_bytes must be a multiple of 256"));
        }
        Ok(Self(Memories::new(args)))
    }

    fn check(&mut self) -> Result<(), Fault> {
        let (from, to) = self.0.next();
        bulk::stream(from, to);
        if from == to { Ok(()) } else { Err(Fault::new("the copy differs")) }
    }

    fn sample(&mut self, out: &mut Samples) {
        self.0.sample(out, bulk::stream);
    }
}

/// The kernel, from process to process.
pub(crate) struct ByProcess(Memories);

impl Workload for ByProcess {
    type Args = Walk;
    const SPEC: Spec = Spec {
        id: "floor/process-copy",
        what: "size_bytes by process_vm_readv of this process itself, through memory_bytes",
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };

    fn rig(args: &Walk, _: &mut Rig) -> Result<Self, Fault> {
        Ok(Self(Memories::new(args)))
    }

    fn check(&mut self) -> Result<(), Fault> {
        let (from, to) = self.0.next();
        let copied = bulk::copy_by_process(from, to)?;
        if copied == from.len() && from == to {
            Ok(())
        } else {
            Err(Fault::new("the copy differs"))
        }
    }

    fn sample(&mut self, out: &mut Samples) {
        self.0.sample(out, |from, to| {
            // It was looked at in check(), where a refusal would be an error.
            let _ = bulk::copy_by_process(from, to);
        });
    }
}

/// One side writes without end, the other reads.
pub(crate) struct Stream {
    near: TcpStream,
    far: TcpStream,
    pieces: Pieces,
}

impl Handover for Stream {
    type Args = Walk;
    const SPEC: Spec = Spec {
        id: "floor/stream",
        what: "size_bytes read from a loopback TCP connection that is always being written to",
        hands_over: true,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };
    const PROCESSES: bool = true;

    fn roles(_: &Walk) -> Vec<Role> {
        vec![Role::measured("reader"), Role::serving("writer")]
    }

    fn rig(args: &Walk, rig: &mut Rig) -> Result<Self, Fault> {
        let (near, far) = Loopback::ends(rig)?;
        Ok(Self { near, far, pieces: Pieces::new(args.size_bytes, args.memory_bytes) })
    }

    fn play(&self, party: Party, out: &mut Samples) -> Result<(), Fault> {
        let mut pieces = self.pieces;
        let mut memory = vec![7u8; pieces.memory_bytes];
        if party.index > 0 {
            // Until the reader has said that it is enough; it reads on, so that no write is stuck.
            while recv(&self.far, &mut [0u8; 1], RecvFlags::DONTWAIT) == Err(Errno::AGAIN) {
                let at = pieces.next();
                (&self.far).write_all(&memory[at..at + pieces.size_bytes])?;
            }
            return Ok(self.far.shutdown(Shutdown::Write)?);
        }
        out.bytes_per_op(pieces.size_bytes as u64);
        let mut failed = None;
        out.batches(|n| {
            for _ in 0..n {
                let at = pieces.next();
                let into = &mut memory[at..at + pieces.size_bytes];
                failed = failed.take().or((&self.near).read_exact(into).err());
            }
        });
        self.near.shutdown(Shutdown::Write)?;
        while (&self.near).read(&mut memory)? > 0 {}
        failed.map_or(Ok(()), |error| Err(error.into()))
    }
}
