//! Memory for bulk transfers: mapped by several processes, a vector of the caller, or allocated by
//! a transport.
//!
//! Others may read and write it at any time: another process through its own mapping, the kernel on
//! behalf of another process, another thread through a clone. Therefore no reference to the memory
//! exists, and bytes are copied in and out (see [`copy`](super::copy)).

use super::copy::{self, StoreKind};
use super::sealed::{create_sealed_file, is_mapping_safe};
use crate::SystemCallError;
use crate::engine::FileId;
use crate::error::failed_call;
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, fstat, open, unlink};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::rand::{GetRandomFlags, getrandom};
use std::any::Any;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;

/// Minimum length of a mapping, in bytes, for which huge pages are requested.
const HUGE_PAGES_BYTES_MIN: usize = 1 << 21;

/// Kind of a region.
#[derive(Debug)]
enum RegionKind {
    /// Memory mapped by this process. The file is kept if this process shares it.
    Mapped(Option<OwnedFd>),
    /// Memory of a vector with that capacity.
    Plain(usize),
    /// Memory that this owner frees when it is dropped.
    #[cfg_attr(not(feature = "ucx"), expect(dead_code))]
    Owned(Box<dyn Any + Send + Sync>),
}

/// Contiguous region of memory for bulk transfers.
#[derive(Debug)]
pub(crate) struct Region {
    start: NonNull<u8>,
    bytes: usize,
    is_writable: bool,
    kind: RegionKind,
}

// SAFETY: the memory belongs to the process, not to a thread, and only this value frees it.
unsafe impl Send for Region {}
// SAFETY: all access is by copy(), whose assembly acts like relaxed atomic accesses, or by the
// kernel.
unsafe impl Sync for Region {}

/// Returns the identity of the file; `None` if fstat fails.
pub(crate) fn file_id(file: BorrowedFd<'_>) -> Option<FileId> {
    let stat = fstat(file).ok()?;
    Some(FileId { device: stat.st_dev, inode: stat.st_ino })
}

/// Creates an empty unnamed file that only this user can open. It disappears when the process is
/// killed. On a file system without O_TMPFILE, a process that is killed between open() and unlink()
/// leaves an empty file.
fn create_unnamed_file(folder: &Path) -> Result<OwnedFd, SystemCallError> {
    let (mode, usual) = (Mode::RUSR | Mode::WUSR, OFlags::RDWR | OFlags::CLOEXEC);
    match open(folder, OFlags::TMPFILE | usual, mode) {
        Err(Errno::OPNOTSUPP) => {}
        opened => return opened.map_err(failed_call("open(O_TMPFILE)")),
    }
    let mut number = [0; 16];
    getrandom(&mut number, GetRandomFlags::empty()).map_err(failed_call("getrandom"))?;
    let path = folder.join(format!(".handover-{:032x}", u128::from_ne_bytes(number)));
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | usual;
    let file = open(&path, flags, mode).map_err(failed_call("open"))?;
    unlink(&path).map_err(failed_call("unlink"))?;
    Ok(file)
}

impl Region {
    /// Allocates zeroed memory that other processes of this user can map. All pages are allocated
    /// now, so a lack of memory is an error here and not a SIGBUS later.
    pub(crate) fn create_shared(bytes: usize) -> Result<Self, SystemCallError> {
        if bytes == 0 {
            return Ok(Self::from_vec(Vec::new()));
        }
        let file = create_sealed_file("handover-bulk", bytes)?;
        let mut region = Self::map_unchecked(file.as_fd(), bytes, true)?;
        region.populate(file.as_fd())?;
        region.kind = RegionKind::Mapped(Some(file));
        Ok(region)
    }

    /// Makes the kernel allocate all pages now. It does so through the mapping, which may have huge
    /// pages; fallocate() of the file uses small ones.
    fn populate(&self, file: BorrowedFd<'_>) -> Result<(), SystemCallError> {
        let start = self.start.as_ptr().cast();
        // SAFETY: the address and length of this region's mapping; populating pages changes no
        // content.
        match unsafe { madvise(start, self.bytes, Advice::LinuxPopulateWrite) } {
            Ok(()) => Ok(()),
            // Kernels before 5.14 do not know this advice.
            Err(Errno::INVAL) => {
                let all = self.bytes as u64;
                fallocate(file, FallocateFlags::empty(), 0, all).map_err(failed_call("fallocate"))
            }
            Err(errno) => Err(failed_call("madvise(MADV_POPULATE_WRITE)")(errno)),
        }
    }

    /// Maps zeroed memory of an unnamed file in that folder's file system. Such a file cannot be
    /// sealed, and truncating it would end its users with SIGBUS, so it is not passed to peers.
    pub(crate) fn create_in_folder(folder: &Path, bytes: usize) -> Result<Self, SystemCallError> {
        let file = create_unnamed_file(folder)?;
        if bytes > 0 {
            // fallocate() refuses a length of 0.
            let all = bytes as u64;
            fallocate(&file, FallocateFlags::empty(), 0, all).map_err(failed_call("fallocate"))?;
        }
        Self::map_unchecked(file.as_fd(), bytes, true)
    }

    /// Maps a file that a peer has passed, after a check that accesses cannot fail.
    pub(crate) fn map(
        file: BorrowedFd<'_>,
        bytes: usize,
        is_writable: bool,
    ) -> Result<Self, SystemCallError> {
        match is_mapping_safe(file, bytes)? {
            true => Self::map_unchecked(file, bytes, is_writable),
            false => Err(failed_call("mmap")(Errno::PERM)),
        }
    }

    /// Maps the first `bytes` bytes of a file. The caller has made sure that the file cannot become
    /// shorter.
    fn map_unchecked(
        file: BorrowedFd<'_>,
        bytes: usize,
        is_writable: bool,
    ) -> Result<Self, SystemCallError> {
        if bytes == 0 {
            return Ok(Self::from_vec(Vec::new()));
        }
        let access = if is_writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        // The file is at least `bytes` long and stays so: sealed files cannot shrink, and that of
        // create_in_folder() is closed without being shared.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, file, 0) }
            .map_err(failed_call("mmap"))?;
        if bytes >= HUGE_PAGES_BYTES_MIN {
            // SAFETY: the mapping just made; the advice changes no content. An error is ignored:
            // kernels without huge pages use small ones.
            let _ = unsafe { madvise(start, bytes, Advice::LinuxHugepage) };
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| failed_call("mmap")(Errno::NOMEM))?;
        Ok(Self { start, bytes, is_writable, kind: RegionKind::Mapped(None) })
    }

    /// Takes ownership of a vector's memory.
    pub(crate) fn from_vec(vec: Vec<u8>) -> Self {
        let mut vec = ManuallyDrop::new(vec);
        let (bytes, capacity) = (vec.len(), vec.capacity());
        let start = NonNull::new(vec.as_mut_ptr()).unwrap_or(NonNull::dangling());
        Self { start, bytes, is_writable: true, kind: RegionKind::Plain(capacity) }
    }

    /// Makes a region of the memory of `owner`.
    ///
    /// # Safety
    /// The `bytes` bytes from `start` on are readable and writable until `owner` is dropped, and no
    /// reference to them exists until then.
    #[cfg(feature = "ucx")]
    pub(super) unsafe fn from_owner(
        start: NonNull<u8>,
        bytes: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Self {
        Self { start, bytes, is_writable: true, kind: RegionKind::Owned(owner) }
    }

    /// Returns the owner of the memory if the region was made by
    /// [`from_owner`](Self::from_owner), and the owner has this type.
    #[cfg(feature = "ucx")]
    pub(super) fn owner<T: Any>(&self) -> Option<&T> {
        match &self.kind {
            RegionKind::Owned(owner) => owner.downcast_ref(),
            _ => None,
        }
    }

    /// Returns the region's vector without a copy, or a copy of memory of another kind.
    pub(crate) fn into_vec(self) -> Vec<u8> {
        match self.kind {
            RegionKind::Mapped(_) | RegionKind::Owned(_) => {
                let mut vec = vec![0; self.bytes];
                self.read(0, &mut vec);
                vec
            }
            RegionKind::Plain(capacity) => {
                let this = ManuallyDrop::new(self);
                // SAFETY: these are the parts of the vector that from_vec() took, and `this` is not
                // dropped. `self` is taken by value, so no other user of this region is left in
                // this process, and the caller has made sure that no peer writes there any more.
                unsafe { Vec::from_raw_parts(this.start.as_ptr(), this.bytes, capacity) }
            }
        }
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the file; `None` if other processes cannot map this memory.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        match &self.kind {
            RegionKind::Mapped(Some(file)) => Some(file.as_fd()),
            _ => None,
        }
    }

    /// Opens the file again for reading only, so that a mapping of it cannot be written. This
    /// guards against mistakes, not attacks: a process of the same user can reopen the file for
    /// writing.
    pub(crate) fn file_for_reading(&self) -> Option<OwnedFd> {
        let path = format!("/proc/self/fd/{}", self.file()?.as_raw_fd());
        open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
    }

    /// Returns the identity of the file; `None` if there is no file or fstat fails.
    pub(crate) fn file_id(&self) -> Option<FileId> {
        file_id(self.file()?)
    }

    /// Returns the address of the memory in this process. A peer passes it to the kernel to copy
    /// from the memory or to it.
    pub(crate) fn start_address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// Returns a pointer to the byte at `offset`. First checks that `bytes` bytes from there lie in
    /// the region.
    ///
    /// # Panics
    /// Panics if the range lies outside of the region.
    #[inline]
    pub(super) fn range_ptr(&self, offset: usize, bytes: usize) -> NonNull<u8> {
        let end = offset.checked_add(bytes);
        assert!(
            end.is_some_and(|end| end <= self.bytes),
            "{bytes} bytes at offset {offset} are outside of this memory of {} bytes",
            self.bytes
        );
        // SAFETY: `offset <= self.bytes` follows from the assertion, and the memory is `self.bytes`
        // long.
        unsafe { self.start.add(offset) }
    }

    /// Returns the address of a range for writing; see [`range_ptr`](Self::range_ptr).
    #[inline]
    pub(super) fn range_ptr_mut(&self, offset: usize, bytes: usize) -> NonNull<u8> {
        assert!(self.is_writable, "write to memory that is mapped read-only");
        self.range_ptr(offset, bytes)
    }

    pub(crate) fn read(&self, offset: usize, into: &mut [u8]) {
        let from = self.range_ptr(offset, into.len());
        // SAFETY: range_ptr() has checked that `into.len()` bytes are readable at `from`; `into` is
        // a slice of that length, and not part of this memory, to which no reference exists.
        unsafe { copy::copy(from.as_ptr(), into.as_mut_ptr(), into.len(), StoreKind::Cached) }
    }

    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.range_ptr_mut(offset, bytes.len());
        // SAFETY: range_ptr_mut() has checked that `bytes.len()` bytes are writable at `to`;
        // `bytes` is a slice of that length, and not part of this memory, to which no reference
        // exists.
        unsafe { copy::copy(bytes.as_ptr(), to.as_ptr(), bytes.len(), StoreKind::Cached) }
    }

    /// Copies from one region to another. If the ranges overlap, the copied values are unspecified,
    /// but there is no undefined behaviour.
    #[inline]
    pub(crate) fn copy_between_regions(
        from: (&Self, usize),
        to: (&Self, usize),
        bytes: usize,
        store: StoreKind,
    ) {
        let (source, target) = (from.0.range_ptr(from.1, bytes), to.0.range_ptr_mut(to.1, bytes));
        // SAFETY: range_ptr() and range_ptr_mut() have checked both ranges, and no reference to
        // either exists. Overlap is harmless: copy() loads and stores only within these two ranges,
        // in any order.
        unsafe { copy::copy(source.as_ptr(), target.as_ptr(), bytes, store) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        match self.kind {
            RegionKind::Owned(_) => {}
            RegionKind::Mapped(_) => {
                // SAFETY: map_unchecked() made the mapping with this address and length, and no
                // reference to it exists.
                let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
                debug_assert_eq!(unmapped, Ok(()));
            }
            RegionKind::Plain(capacity) => {
                // SAFETY: the parts of the vector that from_vec() took; they are dropped only here,
                // as into_vec() forgets `self`.
                drop(unsafe { Vec::from_raw_parts(self.start.as_ptr(), self.bytes, capacity) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

    #[test]
    fn memory_in_a_folder_never_has_a_name_there() {
        let around = tempfile::tempdir().expect("create a temporary folder");
        let folder = around.path().join("region");
        std::fs::create_dir(&folder).expect("create the folder");
        let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).expect("inotify");
        inotify::add_watch(&watch, &folder, WatchFlags::CREATE | WatchFlags::MOVED_TO)
            .expect("a watch");
        let region = Region::create_in_folder(&folder, 1 << 16).expect("there is room");
        assert_eq!(region.len_bytes(), 1 << 16);
        let unnamed = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        if open(&folder, unnamed, Mode::RUSR).is_ok() {
            let mut events = [0; 4096];
            assert_eq!(
                rustix::io::read(&watch, &mut events),
                Err(Errno::AGAIN),
                "the file had a name in the folder"
            );
        }
        assert_eq!(folder.read_dir().expect("list the folder").count(), 0);
        std::fs::remove_dir(&folder).expect("it is empty");
        let refused = Region::create_in_folder(&folder, 1 << 16).map(drop);
        assert_eq!(refused, Err(failed_call("open(O_TMPFILE)")(Errno::NOENT)));
    }
}
