//! Memory of a peer that this process accesses directly: mapped, or through the kernel.

use super::memory::BulkMemory;
use crate::engine::{BulkHandle, CheckWord, FileId, SegmentLocation};
use crate::raw::{
    MemoryPiece, Region, RemoteAddress, StoreKind, read_process_memory, read_process_word,
    write_process_memory,
};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};

/// Direction of a transfer: from the peer (pull) or to the peer (push). The peer is that of the
/// endpoint that starts the transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum TransferDirection {
    Pull,
    Push,
}

/// Way in which this process accesses a segment: mapped, or copied by the kernel.
#[derive(Debug)]
enum Access {
    Mapped(Region),
    Process(RemoteAddress),
}

/// Segment of a peer's memory.
#[derive(Debug)]
struct RemoteSegment {
    /// Offset of the segment in the memory, in bytes.
    start: u64,
    bytes: u64,
    access: Access,
}

/// Memory of a peer that this process can access.
#[derive(Debug)]
pub(crate) struct RemoteMemory {
    pub(crate) handle: BulkHandle,
    segments: Vec<RemoteSegment>,
    /// Check word of the owner's address space. It differs in a later process with the same process
    /// id.
    check_word: CheckWord,
    /// `true` if all segments are mapped.
    pub(crate) is_mapped: bool,
}

impl RemoteMemory {
    /// Maps the files that the owner passed, and checks that the other segments can be read.
    /// Returns `None` if a file did not arrive or the kernel forbids the access; the transfer then
    /// uses messages.
    pub(crate) fn attach(
        handle: BulkHandle,
        located: &[SegmentLocation],
        check_word: CheckWord,
        pid: Option<i32>,
        mut take_file: impl FnMut(FileId) -> Option<OwnedFd>,
    ) -> Option<Self> {
        let (mut start, mut denied, mut is_mapped) = (0, false, true);
        let mut segments = Vec::with_capacity(located.len());
        for one in located {
            let bytes = one.len_bytes();
            let access = match *one {
                SegmentLocation::File { file, .. } => {
                    let length = usize::try_from(bytes).ok();
                    let mapped = take_file(file).zip(length).and_then(|(file, length)| {
                        Region::map(file.as_fd(), length, handle.rights.may_write()).ok()
                    });
                    match mapped {
                        Some(region) => Access::Mapped(region),
                        // The loop goes on, so that the remaining files are taken and closed too.
                        None => {
                            denied = true;
                            continue;
                        }
                    }
                }
                SegmentLocation::Process { address, .. } => {
                    is_mapped = false;
                    Access::Process(RemoteAddress { pid: pid.unwrap_or(0), address })
                }
            };
            segments.push(RemoteSegment { start, bytes, access });
            start += bytes; // Together at most i64::MAX: BulkMessage::decode() has checked this.
        }
        if denied || !is_mapped && pid.is_none_or(|pid| verify_owner(pid, check_word).is_err()) {
            return None;
        }
        Some(Self { handle, segments, check_word, is_mapped })
    }

    /// Copies `bytes` bytes between the local and the remote memory. Returns the number of bytes
    /// copied, which may be less.
    #[inline]
    pub(crate) fn copy_between_memories(
        &self,
        direction: TransferDirection,
        theirs: u64,
        (memory, ours): (&BulkMemory, u64),
        bytes: u64,
        store_kind: StoreKind,
    ) -> Result<u64, Errno> {
        let mut done = 0;
        while done < bytes {
            let Some(run) = memory.first_contiguous_piece(ours + done, bytes - done) else { break };
            let at = theirs + done;
            let index = match &self.segments[..] {
                [_] => 0,
                more => more.partition_point(|it| it.start + it.bytes <= at),
            };
            let Some(segment) = self.segments.get(index) else { break };
            let within = at - segment.start;
            // At most run.bytes, which is a usize.
            let count = segment.bytes.saturating_sub(within).min(run.bytes as u64) as usize;
            if count == 0 {
                break;
            }
            let run = MemoryPiece { bytes: count, ..run };
            let copied = match (&segment.access, direction) {
                (Access::Mapped(region), direction) => {
                    let (theirs, ours) = ((region, within as usize), (run.region, run.offset));
                    let (from, to) = match direction {
                        TransferDirection::Pull => (theirs, ours),
                        TransferDirection::Push => (ours, theirs),
                    };
                    Region::copy_between_regions(from, to, count, store_kind);
                    count
                }
                (&Access::Process(RemoteAddress { pid, address }), direction) => {
                    // Addresses do not overflow within a segment: BulkMessage::decode() has checked
                    // this.
                    let there = RemoteAddress { pid, address: address + within };
                    let copied = match direction {
                        TransferDirection::Pull => self.read(there, run),
                        TransferDirection::Push => self.write(run, there),
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

    /// Reads the remote memory into a local piece; returns the number of bytes read. Checks in the
    /// same system call that the process is its owner.
    fn read(&self, from: RemoteAddress, into: MemoryPiece<'_>) -> Result<usize, Errno> {
        match read_process_memory(from, into, self.check_word.address)? {
            (count, Some(word)) if word == self.check_word.word => Ok(count),
            (_, Some(_)) => Err(Errno::SRCH),
            (count, None) => verify_owner(from.pid, self.check_word).map(|()| count),
        }
    }

    /// Checks that the process is the owner, and then writes its memory. Returns the number of
    /// bytes written. Between check and write, the process id could be reused only if the owner
    /// exited, was reaped, and all other ids were used up in that time.
    fn write(&self, from: MemoryPiece<'_>, to: RemoteAddress) -> Result<usize, Errno> {
        verify_owner(to.pid, self.check_word)?;
        write_process_memory(from, to)
    }
}

/// Checks that this process may read the check word, and that the word is the owner's.
fn verify_owner(pid: i32, check_word: CheckWord) -> Result<(), Errno> {
    match read_process_word(RemoteAddress { pid, address: check_word.address }) {
        Ok(word) if word == check_word.word => Ok(()),
        // A different address space: the owner has ended, or runs another program.
        Ok(_) | Err(Errno::FAULT) => Err(Errno::SRCH),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Rights;

    #[test]
    fn memory_whose_file_was_lost_is_accessed_in_other_ways() {
        let memory = BulkMemory::shared(100).expect("create shared memory");
        let region = memory.regions().next().expect("the memory has no region");
        let file = region.file_id().expect("the region has no file");
        let located = [SegmentLocation::File { bytes: 100, file }];
        let handle = BulkHandle { id: 0, key: 0, bytes: 100, rights: Rights::ReadWrite };
        let check_word = CheckWord { address: 0, word: 0 };
        let again = |id| {
            assert_eq!(id, file);
            region.file().and_then(|it| it.try_clone_to_owned().ok())
        };
        let reached = RemoteMemory::attach(handle, &located, check_word, None, again)
            .expect("open the remote memory");
        assert!(reached.is_mapped);
        assert!(RemoteMemory::attach(handle, &located, check_word, None, |_| None).is_none());
    }

    #[test]
    fn address_space_without_the_owners_word_is_neither_read_nor_written() {
        let pid = i32::try_from(std::process::id()).expect("convert the id");
        let address = |memory: &BulkMemory| memory.regions().next().map(|it| it.start_address());
        let (owned, ours) = (BulkMemory::plain(vec![7; 100]), BulkMemory::plain(vec![1; 100]));
        let word = BulkMemory::plain(5u128.to_ne_bytes().to_vec());
        let check_word =
            CheckWord { address: address(&word).expect("the address is null"), word: 5 };
        let located = [SegmentLocation::Process {
            address: address(&owned).expect("the address is null"),
            bytes: 100,
        }];
        let handle = BulkHandle { id: 0, key: 0, bytes: 100, rights: Rights::ReadWrite };
        let reach = || RemoteMemory::attach(handle, &located, check_word, Some(pid), |_| None);
        let Some(remote) = reach() else { return };
        let copy = |direction| {
            remote.copy_between_memories(direction, 0, (&ours, 0), 50, StoreKind::Cached)
        };
        assert_eq!(copy(TransferDirection::Push), Ok(50));
        // Simulates that the owner has ended, and that another process has its process id.
        word.write(0, &6u128.to_ne_bytes());
        ours.write(0, &[2; 100]);
        assert_eq!(copy(TransferDirection::Push), Err(Errno::SRCH));
        assert_eq!(owned.to_vec()[..51], [[1; 50].as_slice(), &[7]].concat());
        assert_eq!(copy(TransferDirection::Pull), Err(Errno::SRCH));
        assert!(reach().is_none());
    }
}
