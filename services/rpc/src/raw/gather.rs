//! System calls on several pieces of memory: socket reads and writes, and copies between processes.

use super::region::Region;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Contiguous range of a memory region.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemoryPiece<'a> {
    pub(crate) region: &'a Region,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

/// Maximum number of pieces in one system call; the caller passes the others in a later call.
const PIECES_MAX: usize = 16;

const EMPTY_PIECE: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

/// Converts the return value of a system call to a count or an error number. A negative value is an
/// error.
fn count_or_errno(count: isize) -> Result<usize, Errno> {
    match usize::try_from(count) {
        Ok(count) => Ok(count),
        Err(_negative) => {
            let error = std::io::Error::last_os_error();
            Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
        }
    }
}

/// Sends `head`, and then at most PIECES_MAX of the pieces. Returns the number of bytes that the
/// kernel accepted, 0 if the socket's buffer is full.
pub(crate) fn send_from<'a>(
    fd: BorrowedFd<'_>,
    head: &[u8],
    runs: impl Iterator<Item = MemoryPiece<'a>>,
) -> Result<usize, Errno> {
    let mut parts = [EMPTY_PIECE; PIECES_MAX + 1];
    parts[0] = libc::iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: head.len() };
    let mut count = 1;
    for (part, run) in parts[1..].iter_mut().zip(runs) {
        let start = run.region.range_ptr(run.offset, run.bytes);
        *part = libc::iovec { iov_base: start.as_ptr().cast(), iov_len: run.bytes };
        count += 1;
    }
    loop {
        // SAFETY: all zeros is a valid `msghdr` without any parts.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = count as _; // an `int` in musl
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the kernel only reads `head` and the pieces, whose bounds range_ptr() has checked
        // and which their borrows keep alive.
        match count_or_errno(unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, flags) }) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(0),
            other => return other,
        }
    }
}

/// Receives into the pieces and then into `spare`. Of more than PIECES_MAX pieces, only the first
/// are used, and `spare` is not. Returns the number of bytes received, and the number requested.
pub(crate) fn receive_into<'a>(
    fd: BorrowedFd<'_>,
    runs: impl Iterator<Item = MemoryPiece<'a>>,
    spare: &mut [u8],
) -> Result<(usize, usize), Errno> {
    let mut parts = [EMPTY_PIECE; PIECES_MAX + 1];
    let mut count = 0;
    let mut runs = runs.fuse();
    for (part, run) in parts[..PIECES_MAX].iter_mut().zip(&mut runs) {
        let start = run.region.range_ptr_mut(run.offset, run.bytes);
        *part = libc::iovec { iov_base: start.as_ptr().cast(), iov_len: run.bytes };
        count += 1;
    }
    // `zip` asks `parts` first, so a piece beyond PIECES_MAX is still in `runs` here.
    if runs.next().is_none() {
        parts[count] = libc::iovec { iov_base: spare.as_mut_ptr().cast(), iov_len: spare.len() };
        count += 1;
    }
    loop {
        // SAFETY: all zeros is a valid `msghdr` without any parts.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = count as _; // an `int` in musl
        // SAFETY: the kernel writes the pieces, whose bounds range_ptr_mut() has checked and to
        // which no reference exists, and `spare`, which is borrowed mutably.
        match count_or_errno(unsafe {
            libc::recvmsg(fd.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT)
        }) {
            Err(Errno::INTR) => {}
            other => return Ok((other?, parts[..count].iter().map(|it| it.iov_len).sum())),
        }
    }
}

/// Address in the memory of another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RemoteAddress {
    pub(crate) pid: i32,
    pub(crate) address: u64,
}

/// Copies from another process's memory into a local piece. Also reads the word at `word_address`
/// in the same system call, and therefore from the same process. Returns the number of bytes
/// copied, and the word, which is `None` if the call did not copy everything.
pub(crate) fn read_process_memory(
    from: RemoteAddress,
    into: MemoryPiece<'_>,
    word_address: u64,
) -> Result<(usize, Option<u128>), Errno> {
    let start = into.region.range_ptr_mut(into.offset, into.bytes);
    let mut word = [0; size_of::<u128>()];
    let iovec = |iov_base, iov_len| libc::iovec { iov_base, iov_len };
    let ours =
        [iovec(start.as_ptr().cast(), into.bytes), iovec(word.as_mut_ptr().cast(), word.len())];
    let theirs =
        [iovec(from.address as *mut _, into.bytes), iovec(word_address as *mut _, word.len())];
    // SAFETY: the kernel writes the piece, whose bounds range_ptr_mut() has checked and to which no
    // reference exists, and `word`, which this function owns; both arrays have two elements. The
    // kernel checks the addresses in the other process.
    let count = count_or_errno(unsafe {
        libc::process_vm_readv(from.pid, ours.as_ptr(), 2, theirs.as_ptr(), 2, 0)
    })?;
    let is_whole = count == into.bytes + word.len();
    Ok((count.min(into.bytes), is_whole.then(|| u128::from_ne_bytes(word))))
}

/// Reads the word at an address of another process's memory.
pub(crate) fn read_process_word(from: RemoteAddress) -> Result<u128, Errno> {
    let mut word = [0; size_of::<u128>()];
    let ours = libc::iovec { iov_base: word.as_mut_ptr().cast(), iov_len: word.len() };
    let theirs = libc::iovec { iov_base: from.address as *mut _, iov_len: word.len() };
    // SAFETY: the kernel writes at most `word.len()` bytes to `word`, which this function owns, and
    // checks the address in the other process.
    match count_or_errno(unsafe {
        libc::process_vm_readv(from.pid, &raw const ours, 1, &raw const theirs, 1, 0)
    })? {
        count if count == word.len() => Ok(u128::from_ne_bytes(word)),
        _ => Err(Errno::FAULT),
    }
}

/// Copies a local piece into another process's memory. Returns the number of bytes copied. The
/// caller has just read the check word there, and so knows that the pid still belongs to the peer.
pub(crate) fn write_process_memory(
    from: MemoryPiece<'_>,
    to: RemoteAddress,
) -> Result<usize, Errno> {
    let start = from.region.range_ptr(from.offset, from.bytes);
    let ours = libc::iovec { iov_base: start.as_ptr().cast(), iov_len: from.bytes };
    let theirs = libc::iovec { iov_base: to.address as *mut _, iov_len: from.bytes };
    // SAFETY: the kernel reads the piece, whose bounds range_ptr() has checked. It writes to the
    // process that sent this address, into memory that the process keeps as a Region until told
    // that nobody writes there any more; in this process, if the peer is this one, a Region has no
    // reference to it either.
    count_or_errno(unsafe {
        libc::process_vm_writev(to.pid, &raw const ours, 1, &raw const theirs, 1, 0)
    })
}
