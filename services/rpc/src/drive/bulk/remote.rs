//! A peer's memory as this side reaches it without the peer: mapped, or through the kernel.

use super::memory::BulkMemory;
use crate::engine::{BulkHandle, Located, Proof};
use crate::raw::{Elsewhere, Region, Store, read_process, write_process};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Direction {
    Pull,
    Push,
}

#[derive(Debug)]
enum Place {
    Mapped(Region),
    Process(Elsewhere),
}

#[derive(Debug)]
struct Segment {
    start: u64,
    bytes: u64,
    place: Place,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) handle: BulkHandle,
    segments: Vec<Segment>,
    is_mapped: bool,
}

/// Why it cannot be reached.
#[derive(Debug)]
pub(crate) enum Unreached {
    /// The kernel does not let us: there are other ways.
    Denied,
    /// What the owner says cannot be.
    Lie,
}

impl Remote {
    /// Maps what was passed, and looks whether the rest can be read.
    pub(crate) fn reach(
        handle: BulkHandle,
        located: &[Located],
        proof: Proof,
        pid: Option<i32>,
        mut next_file: impl FnMut() -> Option<OwnedFd>,
    ) -> Result<Self, Unreached> {
        let (mut start, mut denied, mut is_mapped) = (0, false, true);
        let mut segments = Vec::with_capacity(located.len());
        for one in located {
            let bytes = one.bytes();
            let place = match *one {
                Located::File { .. } => {
                    let file = next_file().ok_or(Unreached::Lie)?;
                    let length = usize::try_from(bytes).map_err(|_| Unreached::Lie)?;
                    match Region::map(file.as_fd(), length, handle.rights.may_write()) {
                        Ok(region) => Place::Mapped(region),
                        // All files are taken, or they would be taken for the next memory's.
                        Err(_) => {
                            denied = true;
                            continue;
                        }
                    }
                }
                Located::Process { address, .. } => {
                    is_mapped = false;
                    Place::Process(Elsewhere { pid: pid.unwrap_or(0), address })
                }
            };
            segments.push(Segment { start, bytes, place });
            start += bytes; // Together no more than an i64: BulkMessage::decode has looked.
        }
        if denied || !is_mapped && !pid.is_some_and(|pid| is_proved(pid, proof)) {
            return Err(Unreached::Denied);
        }
        Ok(Self { handle, segments, is_mapped })
    }

    /// All of it is mapped.
    pub(crate) fn is_mapped(&self) -> bool {
        self.is_mapped
    }

    /// Copies so many bytes between there and here, or as many as the kernel does.
    #[inline]
    pub(crate) fn copy(
        &self,
        direction: Direction,
        theirs: u64,
        (memory, ours): (&BulkMemory, u64),
        bytes: u64,
        store: Store,
    ) -> Result<u64, Errno> {
        let mut done = 0;
        while done < bytes {
            let Some(run) = memory.run(ours + done, bytes - done) else { break };
            let at = theirs + done;
            let index = match &self.segments[..] {
                [_] => 0,
                more => more.partition_point(|it| it.start + it.bytes <= at),
            };
            let Some(segment) = self.segments.get(index) else { break };
            let within = at - segment.start;
            // No more than the run, which is in memory.
            let count = segment.bytes.saturating_sub(within).min(run.bytes as u64) as usize;
            if count == 0 {
                break;
            }
            let run = crate::raw::Run { bytes: count, ..run };
            let copied = match (&segment.place, direction) {
                (Place::Mapped(region), Direction::Pull) => {
                    let (from, to) = ((region, within as usize), (run.region, run.offset));
                    Region::copy(from, to, count, store);
                    count
                }
                (Place::Mapped(region), Direction::Push) => {
                    let (from, to) = ((run.region, run.offset), (region, within as usize));
                    Region::copy(from, to, count, store);
                    count
                }
                (&Place::Process(Elsewhere { pid, address }), direction) => {
                    // Addresses do not begin again within a segment: BulkMessage::decode has looked.
                    let there = Elsewhere { pid, address: address + within };
                    let copied = match direction {
                        Direction::Pull => read_process(there, run),
                        Direction::Push => write_process(run, there),
                    };
                    match copied {
                        Ok(0) => return Err(Errno::FAULT),
                        Ok(count) => count,
                        Err(_) if done > 0 => return Ok(done),
                        Err(errno) => return Err(errno),
                    }
                }
            };
            done += copied as u64;
        }
        Ok(done)
    }
}

/// Whether the kernel lets us read there, and it is the process that says so.
fn is_proved(pid: i32, proof: Proof) -> bool {
    let word = BulkMemory::plain(vec![0; 16]);
    let there = Elsewhere { pid, address: proof.address };
    let Some(run) = word.run(0, 16) else { return false };
    read_process(there, run) == Ok(16) && word.to_vec() == proof.word.to_ne_bytes()
}
