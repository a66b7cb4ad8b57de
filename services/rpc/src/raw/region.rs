//! Memory for bulk transfers: mapped by several processes, or a vector that is handed in.
//!
//! Others may read and write it at any time: another process through its own mapping, the kernel on
//! another's behalf, another thread by a clone. So nothing in it is ever a Rust value: no reference to it
//! exists, and bytes are copied in and out (see [`copy`](super::copy)).

use super::copy::{self, Store};
use super::sealed::is_sound;
use crate::engine::FileId;
use rustix::fs::{
    FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags, fallocate, fchmod, fcntl_add_seals, fstat,
    ftruncate, memfd_create, open, unlink,
};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::rand::{GetRandomFlags, getrandom};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;

/// A mapping so long is worth huge pages.
const HUGE_BYTES: usize = 1 << 21;

#[derive(Debug)]
enum Kind {
    /// Mapped by this process; the file is there if it is this process's own.
    Mapped(Option<OwnedFd>),
    /// A vector's, with that capacity.
    Plain(usize),
}

/// A piece of memory, of one kind.
#[derive(Debug)]
pub(crate) struct Region {
    start: NonNull<u8>,
    bytes: usize,
    writable: bool,
    kind: Kind,
}

// SAFETY: the memory belongs to the process, not to a thread, and this is its only owner in this process.
unsafe impl Send for Region {}
// SAFETY: all access is by copy(), which is as relaxed atomic accesses are, or by the kernel.
unsafe impl Sync for Region {}

/// Why memory could not be had: the call and the kernel's answer.
pub(crate) type Refused = (&'static str, Errno);

fn refused(call: &'static str) -> impl Fn(Errno) -> Refused {
    move |errno| (call, errno)
}

/// Which file it is, if the kernel says so.
pub(crate) fn file_id(file: BorrowedFd<'_>) -> Option<FileId> {
    let stat = fstat(file).ok()?;
    Some(FileId { device: stat.st_dev, inode: stat.st_ino })
}

/// An empty file of this user alone. A process that is killed leaves nothing of it; where the file system makes none
/// without a name, it leaves a file of no bytes, if it is killed between two system calls.
fn unnamed_file(folder: &Path) -> Result<OwnedFd, Refused> {
    let (mode, usual) = (Mode::RUSR | Mode::WUSR, OFlags::RDWR | OFlags::CLOEXEC);
    match open(folder, OFlags::TMPFILE | usual, mode) {
        Err(Errno::OPNOTSUPP) => {}
        opened => return opened.map_err(refused("open(O_TMPFILE)")),
    }
    let mut number = [0; 16];
    getrandom(&mut number, GetRandomFlags::empty()).map_err(refused("getrandom"))?;
    let path = folder.join(format!(".handover-{:032x}", u128::from_ne_bytes(number)));
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | usual;
    let file = open(&path, flags, mode).map_err(refused("open"))?;
    unlink(&path).map_err(refused("unlink"))?;
    Ok(file)
}

impl Region {
    /// Fresh memory of zeros, of this user alone and of no name, which other processes can map. All of it is
    /// there: what there is no room for is refused now, and not by a signal later.
    pub(crate) fn shared(bytes: usize) -> Result<Self, Refused> {
        if bytes == 0 {
            return Ok(Self::plain(Vec::new()));
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("handover-bulk", flags).map_err(refused("memfd_create"))?;
        fchmod(&file, Mode::RUSR | Mode::WUSR).map_err(refused("fchmod"))?;
        ftruncate(&file, bytes as u64).map_err(refused("ftruncate"))?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        fcntl_add_seals(&file, seals).map_err(refused("fcntl(F_ADD_SEALS)"))?;
        let mut region = Self::mapped(file.as_fd(), bytes, true)?;
        region.populate(file.as_fd())?;
        region.kind = Kind::Mapped(Some(file));
        Ok(region)
    }

    /// Has the kernel find all pages now. By the mapping, which may have huge ones; a file alone has not.
    fn populate(&self, file: BorrowedFd<'_>) -> Result<(), Refused> {
        let start = self.start.as_ptr().cast();
        // SAFETY: the mapping of this region, so long; touching its pages changes no content.
        match unsafe { madvise(start, self.bytes, Advice::LinuxPopulateWrite) } {
            Ok(()) => Ok(()),
            // A kernel older than 5.14.
            Err(Errno::INVAL) => {
                let all = self.bytes as u64;
                fallocate(file, FallocateFlags::empty(), 0, all).map_err(refused("fallocate"))
            }
            Err(errno) => Err(("madvise(MADV_POPULATE_WRITE)", errno)),
        }
    }

    /// Fresh memory of zeros, mapped, in a file without a name in that folder's file system. As anybody who may write
    /// the file may cut it off, which is answered by SIGBUS, no peer is given it.
    pub(crate) fn in_folder(folder: &Path, bytes: usize) -> Result<Self, Refused> {
        let file = unnamed_file(folder)?;
        fallocate(&file, FallocateFlags::empty(), 0, bytes as u64).map_err(refused("fallocate"))?;
        Self::mapped(file.as_fd(), bytes, true)
    }

    /// Maps a file that a peer has passed on, which says that it is so long.
    pub(crate) fn map(file: BorrowedFd<'_>, bytes: usize, writable: bool) -> Result<Self, Refused> {
        match is_sound(file, bytes)? {
            true => Self::mapped(file, bytes, writable),
            false => Err(("mmap", Errno::PERM)),
        }
    }

    fn mapped(file: BorrowedFd<'_>, bytes: usize, writable: bool) -> Result<Self, Refused> {
        if bytes == 0 {
            return Ok(Self::plain(Vec::new()));
        }
        let access = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory; the file
        // is at least `bytes` long and stays so: by its seal, or, of in_folder(), as nobody else may write it.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, file, 0) }
            .map_err(refused("mmap"))?;
        if bytes >= HUGE_BYTES {
            // SAFETY: the mapping just made; the advice changes no content. Refused where the kernel has
            // no huge pages: then there are small ones.
            let _ = unsafe { madvise(start, bytes, Advice::LinuxHugepage) };
        }
        let start = NonNull::new(start.cast()).ok_or(("mmap", Errno::NOMEM))?;
        Ok(Self { start, bytes, writable, kind: Kind::Mapped(None) })
    }

    /// A vector's memory, until it is taken back.
    pub(crate) fn plain(vec: Vec<u8>) -> Self {
        let mut vec = ManuallyDrop::new(vec);
        let (bytes, capacity) = (vec.len(), vec.capacity());
        let start = NonNull::new(vec.as_mut_ptr()).unwrap_or(NonNull::dangling());
        Self { start, bytes, writable: true, kind: Kind::Plain(capacity) }
    }

    /// The vector again, or a copy of what is mapped.
    pub(crate) fn into_vec(self) -> Vec<u8> {
        match self.kind {
            Kind::Mapped(_) => {
                let mut vec = vec![0; self.bytes];
                self.read(0, &mut vec);
                vec
            }
            Kind::Plain(capacity) => {
                let this = ManuallyDrop::new(self);
                // SAFETY: these are the parts of the vector that plain() has taken, and `this` is not
                // dropped. Nobody else may write there any more: whoever asked had this region alone.
                unsafe { Vec::from_raw_parts(this.start.as_ptr(), this.bytes, capacity) }
            }
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The file, where this is memory of its own that others can map.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        match &self.kind {
            Kind::Mapped(Some(file)) => Some(file.as_fd()),
            _ => None,
        }
    }

    /// The file once more, for reading alone: a mapping of it cannot be written. Against mistakes: a process
    /// of the same user can open the file again, for writing.
    pub(crate) fn file_for_reading(&self) -> Option<Result<OwnedFd, Errno>> {
        let path = format!("/proc/self/fd/{}", self.file()?.as_raw_fd());
        Some(open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()))
    }

    /// Which file that is, if the kernel says so.
    pub(crate) fn file_id(&self) -> Option<FileId> {
        file_id(self.file()?)
    }

    /// Where it is in this process, as others may ask the kernel for it.
    pub(crate) fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// # Panics
    /// When that is outside.
    #[inline]
    pub(super) fn at(&self, offset: usize, bytes: usize) -> NonNull<u8> {
        let end = offset.checked_add(bytes);
        assert!(end.is_some_and(|end| end <= self.bytes), "outside of this memory");
        // SAFETY: offset is at most `bytes`, which is how long the memory is.
        unsafe { self.start.add(offset) }
    }

    /// As [`at`](Self::at), to be written.
    #[inline]
    pub(super) fn at_mut(&self, offset: usize, bytes: usize) -> NonNull<u8> {
        assert!(self.writable, "this memory is for reading");
        self.at(offset, bytes)
    }

    /// Copies bytes out.
    pub(crate) fn read(&self, offset: usize, into: &mut [u8]) {
        let from = self.at(offset, into.len());
        // SAFETY: at() has checked the one, the other is a slice of this length and not part of this
        // memory, to which no reference exists.
        unsafe { copy::copy(from.as_ptr(), into.as_mut_ptr(), into.len(), Store::Cached) }
    }

    /// Copies bytes in.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.at_mut(offset, bytes.len());
        // SAFETY: as in read(), the other way round.
        unsafe { copy::copy(bytes.as_ptr(), to.as_ptr(), bytes.len(), Store::Cached) }
    }

    /// Copies from one to another. Where they are the same memory, and overlap, what is copied is undefined
    /// as values, and nothing else.
    #[inline]
    pub(crate) fn copy(from: (&Self, usize), to: (&Self, usize), bytes: usize, store: Store) {
        let (source, target) = (from.0.at(from.1, bytes), to.0.at_mut(to.1, bytes));
        // SAFETY: both were checked; no reference to either exists. Overlap harms nothing: every load and
        // store of copy() is within these two, in whatever order.
        unsafe { copy::copy(source.as_ptr(), target.as_ptr(), bytes, store) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        match self.kind {
            Kind::Mapped(_) => {
                // SAFETY: mapped by mapped() with this address and length, and no reference to it exists.
                let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
                debug_assert_eq!(unmapped, Ok(()));
            }
            Kind::Plain(capacity) => {
                // SAFETY: the parts of the vector that plain() has taken; dropped once, here.
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
        let folder =
            std::env::temp_dir().join(format!("handover-rpc-region-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).expect("inotify");
        inotify::add_watch(&watch, &folder, WatchFlags::CREATE | WatchFlags::MOVED_TO)
            .expect("a watch");
        let region = Region::in_folder(&folder, 1 << 16).expect("there is room");
        assert_eq!(region.bytes(), 1 << 16);
        let unnamed = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        if open(&folder, unnamed, Mode::RUSR).is_ok() {
            let mut events = [0; 4096];
            assert_eq!(
                rustix::io::read(&watch, &mut events),
                Err(Errno::AGAIN),
                "a file was named"
            );
        }
        assert_eq!(folder.read_dir().expect("it is there").count(), 0);
        std::fs::remove_dir(&folder).expect("it is empty");
        let refused = Region::in_folder(&folder, 1 << 16).map(drop);
        assert_eq!(refused, Err(("open(O_TMPFILE)", Errno::NOENT)));
    }
}
