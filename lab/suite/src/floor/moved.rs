//! Moving memory that no cache holds: the floors of bulk transfers.

use super::socket::{Ends, Loopback};
use crate::raw::bulk;
use handover_base::clock;
use handover_harness::{Fault, Handover, Party, Rig, Role, Samples, Workload};
use handover_record::{Bytes, Spec, args};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use zerocopy::{FromBytes, Immutable, IntoBytes};

args! {
    /// Size of the memory and of a piece.
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

/// Iterator over consecutive pieces of memory, which begins again at the end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pieces {
    pub(crate) size_bytes: usize,
    pub(crate) memory_bytes: usize,
    next: usize,
}

impl Pieces {
    /// Creates the iterator; the memory has room for at least one piece.
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

/// Two memories, copied piece by piece from one end to the other.
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

/// Copy with stores that bypass the caches.
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

/// The kernel's copy between the participants' vectors: from the owner's or, if `OUT`, into it.
pub(crate) struct ByProcess<const OUT: bool> {
    near: UnixStream,
    far: UnixStream,
    pieces: Pieces,
}

/// Size of the description of the owner's memory: its process and the address there.
const PLACE_BYTES: usize = 12;
/// Fill byte of the owner's memory.
const OWNED: u8 = 0xa5;
/// Fill byte of the copying participant's memory.
const READ: u8 = 0x5a;

impl<const OUT: bool> ByProcess<OUT> {
    /// Publishes its memory, and keeps it until the other participant has ended.
    fn own(&self) -> Result<(), Fault> {
        let memory = vec![OWNED; self.pieces.memory_bytes];
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        let mut place = [0; PLACE_BYTES];
        place[..4].copy_from_slice(&pid.to_ne_bytes());
        place[4..].copy_from_slice(&(memory.as_ptr().addr() as u64).to_ne_bytes());
        (&self.far).write_all(&place)?;
        let _ended = (&self.far).read(&mut [0])?;
        Ok(())
    }

    fn read(&self, out: &mut Samples) -> Result<(), Fault> {
        let mut place = [0; PLACE_BYTES];
        (&self.near).read_exact(&mut place)?;
        let (pid, address) = place.split_at(4);
        let whole = |_| Fault::new("no place");
        let pid = i32::from_ne_bytes(pid.try_into().map_err(whole)?);
        let address = u64::from_ne_bytes(address.try_into().map_err(whole)?);
        let mut pieces = self.pieces;
        let mut memory = vec![READ; pieces.memory_bytes];
        let mut copy = || {
            let at = pieces.next();
            let into = &mut memory[at..at + pieces.size_bytes];
            match OUT {
                true => bulk::copy_to_process(pid, address + at as u64, into),
                false => bulk::copy_from_process(pid, address + at as u64, into),
            }
        };
        // Done once untimed: touches every page.
        for _ in 0..self.pieces.memory_bytes / self.pieces.size_bytes {
            if copy()? != self.pieces.size_bytes {
                return Err(Fault::new("the copy is short"));
            }
        }
        out.bytes_per_op(self.pieces.size_bytes as u64);
        out.batches(|n| {
            for _ in 0..n {
                // A refusal would have been an error above.
                let _ = copy();
            }
        });
        if OUT {
            // Reads back what was written to the owner's memory.
            memory.fill(!READ);
            let into = &mut memory[..self.pieces.size_bytes];
            bulk::copy_from_process(pid, address, into)?;
        }
        let expected = if OUT { READ } else { OWNED };
        match memory[..self.pieces.size_bytes].iter().all(|&byte| byte == expected) {
            true => Ok(()),
            false => Err(Fault::new("the copy differs")),
        }
    }
}

impl<const OUT: bool> Handover for ByProcess<OUT> {
    type Args = Walk;
    const SPEC: Spec = Spec {
        id: if OUT { "floor/process-copy-out" } else { "floor/process-copy" },
        what: if OUT {
            "size_bytes by process_vm_writev into another party's vector, through memory_bytes"
        } else {
            "size_bytes by process_vm_readv out of another party's vector, through memory_bytes"
        },
        hands_over: true,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };
    const PROCESSES: bool = true;

    fn roles(_: &Walk) -> Vec<Role> {
        vec![Role::measured("reader"), Role::serving("owner")]
    }

    fn rig(args: &Walk, rig: &mut Rig) -> Result<Self, Fault> {
        let (near, far) = Ends::<UnixStream, false>::ends(rig)?;
        Ok(Self { near, far, pieces: Pieces::new(args.size_bytes, args.memory_bytes) })
    }

    fn play(&self, party: Party, out: &mut Samples) -> Result<(), Fault> {
        if party.index > 0 {
            return self.own();
        }
        let read = self.read(out);
        self.near.shutdown(Shutdown::Write)?;
        read
    }
}

/// A stream: one side writes without end, the other sleeps in read or, if `ADAPTS`, polls for a
/// while first.
pub(crate) struct Stream<const ADAPTS: bool> {
    near: TcpStream,
    far: TcpStream,
    pieces: Pieces,
}

/// Time for which a reader polls before it sleeps.
const POLL_NS: u64 = 50_000;

impl<const ADAPTS: bool> Stream<ADAPTS> {
    fn read(&self, mut into: &mut [u8]) -> std::io::Result<()> {
        if !ADAPTS {
            return (&self.near).read_exact(into);
        }
        let until = clock::ticks() + clock::ticks_from_ns(POLL_NS);
        while !into.is_empty() {
            let asleep = clock::ticks() >= until;
            let flags = if asleep { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
            match recv(&self.near, &mut *into, flags) {
                Ok((0, _)) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                Ok((count, _)) => into = &mut into[count..],
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}

impl<const ADAPTS: bool> Handover for Stream<ADAPTS> {
    type Args = Walk;
    const SPEC: Spec = Spec {
        id: if ADAPTS { "floor/stream-adaptive" } else { "floor/stream" },
        pipelined: true,
        what: if ADAPTS {
            "size_bytes read from a loopback TCP connection that is written to without end, polled first"
        } else {
            "size_bytes read from a loopback TCP connection that is written to without end"
        },
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
            // Writes until the reader has asked for the end; the reader continues to read, so that
            // no write blocks.
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
                failed = failed.take().or(self.read(into).err());
            }
        });
        self.near.shutdown(Shutdown::Write)?;
        while (&self.near).read(&mut memory)? > 0 {}
        failed.map_or(Ok(()), |error| Err(error.into()))
    }
}
