//! Memory shared between processes, and the start of processes. All `unsafe` code of this crate is
//! in this module.

mod allocator;

pub use allocator::CountingAllocator;
pub(crate) use allocator::{AllocationCounts, is_counting, without_counting};

use handover_base::futex::{self, Scope};
use handover_base::sync::shared::{AtomicU32, Ordering};
use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use rustix::fs::{MemfdFlags, Mode, OFlags, ftruncate, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal, setpgid};
use std::convert::Infallible;
use std::ffi::{CStr, CString, c_char};
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use zerocopy::FromZeros;

/// Mapped memfd, at least page-aligned and all zero when created. It is the same memory in every
/// process that maps the same descriptor.
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a Mapping only owns an address range; Region alone gives access to its content, as `&T`
// with `T: Sync`.
unsafe impl Send for Mapping {}
// SAFETY: Mapping has no method that reads or writes the memory; access is by Region alone, with
// `T: Sync`.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn map(fd: &OwnedFd, bytes: usize) -> rustix::io::Result<Mapping> {
        // SAFETY: the hint is null, so the kernel chooses a free range and no existing mapping is
        // touched; `fd` is a memfd of at least `bytes` bytes, by the `ftruncate` in `make` or the
        // `fstat` in `attach`.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                fd,
                0,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(rustix::io::Errno::NOMEM)?;
        Ok(Mapping { start, bytes })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `start` and `bytes` are what mmap returned, and each Region holds an Arc of this
        // Mapping, so no Region exists any more.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Value of type `T` in memory shared by all participants, threads or processes. It is initially
/// all zero.
///
/// As with an [`Arc`], only `&T` is accessible, so a region is covariant in `T`. A `T` that is not
/// `Sync` is not accessible:
///
/// ```compile_fail,E0277
/// fn read(region: &handover_harness::Region<std::cell::Cell<u32>>) -> u32 {
///     region.get()
/// }
/// ```
pub struct Region<T> {
    mapping: Arc<Mapping>,
    value_type: PhantomData<fn() -> T>,
}

impl<T> Clone for Region<T> {
    fn clone(&self) -> Self {
        Region { mapping: self.mapping.clone(), value_type: PhantomData }
    }
}

impl<T: fmt::Debug + FromZeros + Sync> fmt::Debug for Region<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<T: FromZeros + Sync> Region<T> {
    /// Compile-time check that page alignment suffices for `T`.
    const ALIGNED: () = assert!(
        align_of::<T>() <= 4096,
        "the alignment of the region's type exceeds the page size"
    );

    /// Creates a region of zeros, and returns it with the memfd that other processes map.
    pub(crate) fn create() -> rustix::io::Result<(Region<T>, OwnedFd)> {
        let fd = memfd_create("handover-region", MemfdFlags::CLOEXEC)?;
        ftruncate(&fd, size_of::<T>().max(1) as u64)?;
        Ok((Region::attach(&fd)?, fd))
    }

    /// Maps the region of a memfd from [`create`](Region::create), which another process may have
    /// called.
    pub(crate) fn attach(fd: &OwnedFd) -> rustix::io::Result<Region<T>> {
        let () = Self::ALIGNED;
        let bytes = size_of::<T>().max(1);
        if rustix::fs::fstat(fd.as_fd())?.st_size < bytes as i64 {
            return Err(rustix::io::Errno::INVAL);
        }
        let mapping = Arc::new(Mapping::map(fd, bytes)?);
        Ok(Region { mapping, value_type: PhantomData })
    }
}

impl<T: FromZeros + Sync> Deref for Region<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `attach` checked that the memory is at least size_of::<T>() long; it is
        // page-aligned, at least as T requires (ALIGNED). It began as zeros, a valid T by
        // FromZeros, and only `&T` with T: Sync is ever made from it, in any process, so every
        // later state was written through T's own interior mutability.
        unsafe { self.mapping.start.cast::<T>().as_ref() }
    }
}

/// State shared between a round's participants and their coordinator.
#[derive(FromZeros)]
#[repr(C)]
pub(crate) struct ControlWords {
    /// Number of participants that have arrived at the starting line.
    arrived_count: AtomicU32,
    /// State of the round: [`GO`] or [`CANCELLED`]; 0 before.
    round_state: AtomicU32,
    /// Number of measured participants that have finished.
    finished_count: AtomicU32,
    /// 1 when all measured participants have finished, 0 before.
    pub(crate) stopped: AtomicU32,
}

/// Barrier and stop signal of a round: all participants start together and learn of the end.
#[derive(Clone)]
pub(crate) struct Control {
    region: Region<ControlWords>,
    participants_count: u32,
    measured_count: u32,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control")
            .field("participants_count", &self.participants_count)
            .finish_non_exhaustive()
    }
}

/// Value of `round_state` after the round has started.
const GO: u32 = 1;
/// Value of `round_state` after the round was cancelled before its start.
const CANCELLED: u32 = 2;

/// Maximum number of polls at the starting line before a participant sleeps.
const START_SPINS_MAX: u32 = 2000;

impl Control {
    pub(crate) fn new(
        region: Region<ControlWords>,
        participants_count: usize,
        measured_count: usize,
    ) -> Control {
        Control {
            region,
            participants_count: participants_count as u32,
            measured_count: measured_count as u32,
        }
    }

    #[inline]
    pub(crate) fn words(&self) -> &ControlWords {
        &self.region
    }

    /// Blocks until every participant has arrived; returns `false` if the round was cancelled. If
    /// `can_spin`, polls for a while first. If a participant died before, the others wait until the
    /// coordinator's time limit.
    #[must_use]
    pub(crate) fn wait_at_start_line(&self, can_spin: bool) -> bool {
        let words = self.words();
        // AcqRel: the last participant to arrive sees the setup of all others, and publishes it to
        // all through `round_state`.
        if words.arrived_count.fetch_add(1, Ordering::AcqRel) + 1 == self.participants_count {
            // Release: pairs with the Acquire loads of `round_state` below.
            words.round_state.store(GO, Ordering::Release);
            futex::wake(&words.round_state, u32::MAX, Scope::Shared);
            return true;
        }
        if can_spin {
            for _ in 0..START_SPINS_MAX {
                // Acquire: pairs with the Release stores of `round_state`.
                match words.round_state.load(Ordering::Acquire) {
                    0 => std::hint::spin_loop(),
                    said => return said == GO,
                }
            }
        }
        loop {
            // Acquire: pairs with the Release stores of `round_state`.
            match words.round_state.load(Ordering::Acquire) {
                0 => futex::wait(&words.round_state, 0, None, Scope::Shared),
                said => return said == GO,
            };
        }
    }

    /// Cancels the round because a participant is missing. Releases all participants that wait at
    /// the starting line or arrive later.
    pub(crate) fn cancel_round(&self) {
        let words = self.words();
        // Release: pairs with the Acquire loads of `round_state` in wait_at_start_line().
        words.round_state.store(CANCELLED, Ordering::Release);
        futex::wake(&words.round_state, u32::MAX, Scope::Shared);
    }

    /// Records that a measured participant has finished. The last of them stops the serving
    /// participants.
    pub(crate) fn finish(&self) {
        let words = self.words();
        // AcqRel: gathers the writes of every measured participant, for the Release below to
        // publish.
        if words.finished_count.fetch_add(1, Ordering::AcqRel) + 1 == self.measured_count {
            // Release: pairs with the Acquire in Samples::has_stopped.
            words.stopped.store(1, Ordering::Release);
        }
    }
}

/// Takes ownership of inherited descriptors with these numbers.
pub(crate) fn adopt_descriptors(numbers: &[i32]) -> rustix::io::Result<Vec<OwnedFd>> {
    let mut fds = Vec::new();
    for number in numbers {
        // SAFETY: the starting process opened the descriptor for this process alone;
        // dispatch_participant, the first call in `main`, takes it over once, so it has no other
        // owner.
        let fd = unsafe { OwnedFd::from_raw_fd(*number) };
        fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
        fds.push(fd);
    }
    Ok(fds)
}

/// Starts this program again as a child process. The child gets these environment variables
/// (`NAME=VALUE`), and `word` as its argument. The child is in its own process group, and has
/// `/dev/null` as standard input and output. The kernel kills the child when the calling thread
/// ends.
///
/// Uses `fork`, because `posix_spawn` (and hence [`std::process::Command`]) blocks the caller, with
/// every signal masked, until the child has called `execve`: a child that is stopped before then
/// would stop its parent as well.
pub(crate) fn spawn_self(environment: &[CString], word: Option<&CStr>) -> io::Result<Pid> {
    let mut variables: Vec<*const c_char> = environment.iter().map(|it| it.as_ptr()).collect();
    variables.push(ptr::null());
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let parent = getpid();
    // SAFETY: until it calls `execve` or `_exit`, the child runs `become_program` alone, which
    // allocates nothing and takes no lock, so locks that other threads held at the fork do not
    // matter.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let Err(errno) = become_program(parent, null.as_raw_fd(), word, &variables);
            // SAFETY: `_exit` ends this process without running any of the parent's handlers.
            unsafe { libc::_exit(errno.raw_os_error()) }
        }
        child => {
            Ok(Pid::from_raw(child).expect("fork returned an invalid process id to the parent"))
        }
    }
}

/// Replaces a forked child by this program. Calls async-signal-safe functions only.
fn become_program(
    parent: Pid,
    null: i32,
    word: Option<&CStr>,
    variables: &[*const c_char],
) -> Result<Infallible, rustix::io::Errno> {
    setpgid(None, None)?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != Some(parent) {
        // The parent exited before the death signal was set.
        return Err(rustix::io::Errno::SRCH);
    }
    for standard in [libc::STDIN_FILENO, libc::STDOUT_FILENO] {
        // SAFETY: both numbers are descriptors of this process, and the forked child has no other
        // user of the standard one.
        if unsafe { libc::dup2(null, standard) } < 0 {
            return Err(rustix::io::Errno::BADF);
        }
    }
    let program = c"/proc/self/exe";
    let arguments = [program.as_ptr(), word.map_or(ptr::null(), CStr::as_ptr), ptr::null()];
    // SAFETY: `program` and all pointers in `arguments` and `variables`, except the terminating
    // nulls, are C strings that outlive the call.
    unsafe { libc::execve(program.as_ptr(), arguments.as_ptr(), variables.as_ptr()) };
    Err(rustix::io::Errno::NOENT)
}

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .text.handover_layout, \"ax\", @progbits",
    ".p2align 6",
    ".globl handover_layout_aligned",
    ".hidden handover_layout_aligned",
    "handover_layout_aligned:",
    "mov eax, 1",
    "2: imul rax, rax, 3",
    "dec rdi",
    "jnz 2b",
    "ret",
    ".p2align 6",
    // Three lines further, at the same offset within a line. (A loop across the end of a line takes
    // 1.6 times as long on an AMD EPYC: that would be a cost, not a null.)
    ".skip 192, 0x90",
    ".globl handover_layout_padded",
    ".hidden handover_layout_padded",
    "handover_layout_padded:",
    "mov eax, 1",
    "2: imul rax, rax, 3",
    "dec rdi",
    "jnz 2b",
    "ret",
    ".popsection",
);

#[cfg(target_arch = "x86_64")]
// SAFETY: the assembly above defines both names, each as a function of one integer in `rdi` without
// a result.
unsafe extern "C" {
    fn handover_layout_aligned(turns: u64);
    fn handover_layout_padded(turns: u64);
}

/// Runs a loop of `turns` dependent multiplications, at least one. The loop exists in two copies at
/// different addresses; `is_padded` selects one. Not inlined, so that the assembly is referenced
/// from the object that contains it.
#[inline(never)]
pub(crate) fn multiply(turns: u64, is_padded: bool) {
    let turns = turns.max(1);
    #[cfg(target_arch = "x86_64")]
    if is_padded {
        // SAFETY: the function follows the C convention: it changes only `rax`, `rdi` and the
        // flags, uses no stack, and returns after `turns` turns, which is not 0.
        unsafe { handover_layout_padded(turns) };
    } else {
        // SAFETY: the other copy consists of the same instructions, and `turns` is not 0.
        unsafe { handover_layout_aligned(turns) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    for turn in 0..turns {
        std::hint::black_box((turn, is_padded));
    }
}

/// Returns the C library's name and version; `None` if unknown.
pub(crate) fn libc_version() -> Option<String> {
    #[cfg(all(target_env = "gnu", not(miri)))]
    {
        // SAFETY: takes no arguments, and returns a static string that ends with NUL.
        let version = unsafe { libc::gnu_get_libc_version() };
        // SAFETY: `version` is that string, which is never freed or changed.
        let version = unsafe { CStr::from_ptr(version) };
        Some(format!("glibc {}", version.to_string_lossy()))
    }
    #[cfg(not(all(target_env = "gnu", not(miri))))]
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use handover_base::sync::auto_traits;
    use std::cell::Cell;

    #[test]
    fn two_mappings_of_one_descriptor_share_memory() {
        let (ours, fd) = Region::<AtomicU32>::create().unwrap();
        let theirs = Region::<AtomicU32>::attach(&fd).unwrap();
        assert_eq!(theirs.load(Ordering::Relaxed), 0);
        ours.store(7, Ordering::Relaxed);
        assert_eq!(theirs.load(Ordering::Relaxed), 7);
    }

    #[test]
    fn region_is_send_and_readable_only_as_a_sync_type() {
        assert_eq!(auto_traits!(Region<AtomicU32>), "Send + Sync");
        // Owns no `T` and gives none out: only `Region<T: Sync>` can be created and dereferenced.
        assert_eq!(auto_traits!(Region<Cell<u32>>), "Send + Sync");
        assert_eq!(auto_traits!(Mapping), "Send + Sync");
    }

    #[test]
    fn memfd_too_short_for_the_type_is_rejected() {
        let (_ours, fd) = Region::<u8>::create().unwrap();
        assert!(Region::<[u64; 4]>::attach(&fd).is_err());
    }
}
