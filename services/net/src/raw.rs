//! Unsafe code: an ioctl of sockets, and copies of short messages.

use rustix::io::Errno;
use rustix::ioctl::{Getter, ioctl};
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

/// Request number of the ioctl that returns the number of written but unacknowledged bytes.
const SIOCOUTQ: rustix::ioctl::Opcode = 0x5411;

/// Returns the number of written bytes that the peer's kernel has not acknowledged.
pub(crate) fn unacknowledged_bytes(fd: BorrowedFd<'_>) -> Result<usize, Errno> {
    // SAFETY: SIOCOUTQ, which is TIOCOUTQ on a socket, writes one int: tcp(7), "Ioctls".
    let getter = unsafe { Getter::<SIOCOUTQ, c_int>::new() };
    // SAFETY: the getter's opcode and type are those of the ioctl, as stated above; on a descriptor
    // that is not a socket the kernel returns an error.
    let bytes = unsafe { ioctl(fd, getter) }?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}

/// Maximum length, in bytes, of a message that is copied without `memcpy`. The call would take
/// longer than the copy of so few bytes.
pub(crate) const SHORT_MESSAGE_BYTES_MAX: usize = 32;

/// Appends `head` and then `bytes`, at most [`SHORT_MESSAGE_BYTES_MAX`] of them. The vector's
/// length is read once and written once: with safe calls each append would wait for the length that
/// the previous one wrote.
///
/// # Panics
/// If there are more than [`SHORT_MESSAGE_BYTES_MAX`].
#[inline]
pub(crate) fn append_short_message(out: &mut Vec<u8>, head: [u8; 4], bytes: &[u8]) {
    assert!(
        bytes.len() <= SHORT_MESSAGE_BYTES_MAX,
        "{} bytes to append, at most {SHORT_MESSAGE_BYTES_MAX} are allowed",
        bytes.len()
    );
    out.reserve(head.len() + SHORT_MESSAGE_BYTES_MAX);
    let appended = out.len() + head.len() + bytes.len();
    let spare = &mut out.spare_capacity_mut()[..head.len() + SHORT_MESSAGE_BYTES_MAX];
    let (to_head, to_bytes) = spare.split_at_mut(head.len());
    to_head.copy_from_slice(&head.map(MaybeUninit::new));
    copy_short(bytes, to_bytes);
    // SAFETY: `reserve` made space for `head` and `SHORT_MESSAGE_BYTES_MAX` bytes; `head` and
    // `bytes`, which end at `appended`, were written right after the old length.
    unsafe { out.set_len(appended) };
}

/// Copies up to 32 bytes by copying their first and their last word, which may overlap.
#[inline(always)]
fn copy_short(from: &[u8], to: &mut [MaybeUninit<u8>]) {
    /// Copies the first and the last `WORD_BYTES` bytes. Returns `false` if there are fewer bytes
    /// than one word.
    #[inline(always)]
    fn copy_both_ends<const WORD_BYTES: usize>(from: &[u8], to: &mut [MaybeUninit<u8>]) -> bool {
        let Some(first) = from.first_chunk::<WORD_BYTES>() else { return false };
        let Some(last) = from.last_chunk::<WORD_BYTES>() else { return false };
        to[..WORD_BYTES].copy_from_slice(&first.map(MaybeUninit::new));
        to[from.len() - WORD_BYTES..from.len()].copy_from_slice(&last.map(MaybeUninit::new));
        true
    }
    if !(copy_both_ends::<16>(from, to)
        || copy_both_ends::<8>(from, to)
        || copy_both_ends::<4>(from, to))
    {
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
    fn unacknowledged_bytes_drop_to_zero_after_peer_reads() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut far = listener.accept().unwrap().0;
        near.set_nonblocking(true).unwrap();
        let mut written = 0;
        while let Ok(count) = near.write(&[7; 65_536]) {
            written += count;
        }
        let left = unacknowledged_bytes(near.as_fd()).unwrap();
        assert!(left > 0 && left <= written, "{left} of {written} bytes are unacknowledged");
        far.read_exact(&mut vec![0; written]).unwrap();
        // The last byte's acknowledgement may still be on its way.
        let until = Instant::now() + Duration::from_secs(60);
        while unacknowledged_bytes(near.as_fd()) != Ok(0) {
            assert!(Instant::now() < until, "the bytes were not acknowledged in time");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
