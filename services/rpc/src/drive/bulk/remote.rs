//! A peer's memory as this side reaches it without the peer: mapped, or through the kernel.

use super::memory::BulkMemory;
use crate::engine::{BulkHandle, FileId, Located, Proof};
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

impl Remote {
    /// Maps what was passed, and looks whether the rest can be read. `None` where a file did not arrive, or
    /// the kernel does not let us: there are other ways.
    pub(crate) fn reach(
        handle: BulkHandle,
        located: &[Located],
        proof: Proof,
        pid: Option<i32>,
        mut take_file: impl FnMut(FileId) -> Option<OwnedFd>,
    ) -> Option<Self> {
        let (mut start, mut denied, mut is_mapped) = (0, false, true);
        let mut segments = Vec::with_capacity(located.len());
        for one in located {
            let bytes = one.bytes();
            let place = match *one {
                Located::File { file, .. } => {
                    let length = usize::try_from(bytes).ok();
                    let mapped = take_file(file).zip(length).and_then(|(file, length)| {
                        Region::map(file.as_fd(), length, handle.rights.may_write()).ok()
                    });
                    match mapped {
                        Some(region) => Place::Mapped(region),
                        // The others are taken all the same, and closed.
                        None => {
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
            return None;
        }
        Some(Self { handle, segments, is_mapped })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Rights;

    #[test]
    fn memory_whose_file_was_lost_is_reached_by_other_ways() {
        let memory = BulkMemory::shared(100).expect("memory");
        let region = memory.regions().next().expect("one");
        let file = region.file_id().expect("it has a file");
        let located = [Located::File { bytes: 100, file }];
        let handle = BulkHandle { id: 0, key: 0, bytes: 100, rights: Rights::ReadWrite };
        let proof = Proof { address: 0, word: 0 };
        let again = |id| {
            assert_eq!(id, file);
            region.file().and_then(|it| it.try_clone_to_owned().ok())
        };
        let reached = Remote::reach(handle, &located, proof, None, again).expect("it is there");
        assert!(reached.is_mapped());
        assert!(Remote::reach(handle, &located, proof, None, |_| None).is_none());
    }
}
