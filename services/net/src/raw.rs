//! What no safe call tells of a socket, what is asked of a ring, and short copies.

use rustix::io::Errno;
use rustix::ioctl::{Getter, ioctl};
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

/// How many bytes the kernel holds for the peer, which the peer's has not acknowledged.
const SIOCOUTQ: rustix::ioctl::Opcode = 0x5411;

/// How many bytes were sent, and are not with the peer's kernel yet.
pub(crate) fn unacknowledged_bytes(fd: BorrowedFd<'_>) -> Result<usize, Errno> {
    // SAFETY: SIOCOUTQ, which is TIOCOUTQ on a socket, writes one int: tcp(7), "Ioctls".
    let getter = unsafe { Getter::<SIOCOUTQ, c_int>::new() };
    // SAFETY: the getter is of the ioctl's own type, as above; on what is no socket the kernel refuses.
    let bytes = unsafe { ioctl(fd, getter) }?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}

/// Has a ring watch a descriptor until that is taken back, under this name; false where there is no room.
#[cfg(feature = "io-uring")]
pub(crate) fn poll_add(
    ring: &mut io_uring::IoUring,
    fd: std::os::fd::RawFd,
    events: u32,
    name: u64,
) -> bool {
    use io_uring::{opcode::PollAdd, types::Fd};
    let entry = PollAdd::new(Fd(fd), events).multi(true).build().user_data(name);
    // SAFETY: a poll points to no memory; of a descriptor that is none, the kernel says so.
    unsafe { ring.submission().push(&entry) }.is_ok()
}

/// Takes that back; the answer to this comes under a name of its own. False where there is no room.
#[cfg(feature = "io-uring")]
pub(crate) fn poll_remove(ring: &mut io_uring::IoUring, name: u64, own_name: u64) -> bool {
    let entry = io_uring::opcode::PollRemove::new(name).build().user_data(own_name);
    // SAFETY: it points to no memory.
    unsafe { ring.submission().push(&entry) }.is_ok()
}

/// Up to so many bytes are copied by words of a known length: for them a call of `memcpy` takes longer than
/// what it does.
pub(crate) const SHORT_BYTES: usize = 32;

/// Appends four bytes, and at most [`SHORT_BYTES`] behind them. The length is read once and written once: by
/// safe calls each of several appends would wait for what the one before it wrote.
///
/// # Panics
/// When there are more.
#[inline]
pub(crate) fn append_short(out: &mut Vec<u8>, head: [u8; 4], bytes: &[u8]) {
    assert!(bytes.len() <= SHORT_BYTES, "{} bytes are not short", bytes.len());
    out.reserve(head.len() + SHORT_BYTES);
    let appended = out.len() + head.len() + bytes.len();
    let spare = &mut out.spare_capacity_mut()[..head.len() + SHORT_BYTES];
    let (to_head, to_bytes) = spare.split_at_mut(head.len());
    to_head.copy_from_slice(&head.map(MaybeUninit::new));
    copy_short(bytes, to_bytes);
    // SAFETY: room was reserved for all of it, and it was written, head and bytes, right behind what was there.
    unsafe { out.set_len(appended) };
}

/// Copies by two words from both ends, which overlap where the bytes are fewer than both.
#[inline(always)]
fn copy_short(from: &[u8], to: &mut [MaybeUninit<u8>]) {
    #[inline(always)]
    fn ends<const WORD_BYTES: usize>(from: &[u8], to: &mut [MaybeUninit<u8>]) -> bool {
        let Some(first) = from.first_chunk::<WORD_BYTES>() else { return false };
        let Some(last) = from.last_chunk::<WORD_BYTES>() else { return false };
        to[..WORD_BYTES].copy_from_slice(&first.map(MaybeUninit::new));
        to[from.len() - WORD_BYTES..from.len()].copy_from_slice(&last.map(MaybeUninit::new));
        true
    }
    if !(ends::<16>(from, to) || ends::<8>(from, to) || ends::<4>(from, to)) {
        to.iter_mut().zip(from).for_each(|(to, &from)| *to = MaybeUninit::new(from));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::time::{Duration, Instant};

    #[test]
    fn what_the_peer_has_no_room_for_is_counted_and_what_it_took_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut far = listener.accept().unwrap().0;
        near.set_nonblocking(true).unwrap();
        let mut written = 0;
        while let Ok(count) = near.write(&[7; 65_536]) {
            written += count;
        }
        let left = unacknowledged_bytes(near.as_fd()).unwrap();
        assert!(left > 0 && left <= written, "{left} of {written}");
        far.read_exact(&mut vec![0; written]).unwrap();
        // The acknowledgement of the last byte is on its way by now, at most.
        let until = Instant::now() + Duration::from_secs(60);
        while unacknowledged_bytes(near.as_fd()) != Ok(0) {
            assert!(Instant::now() < until, "never acknowledged");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
