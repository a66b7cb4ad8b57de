//! Copies of memory that others may read and write at the same time.
//!
//! On x86_64 and aarch64 the copy is in assembly, so that it is not an access in Rust's sense: a
//! concurrent write of another thread or process changes which bytes are copied, and is no
//! undefined behaviour. On other processors it is a loop of volatile accesses. Each byte is loaded
//! once and stored once.

#[cfg(all(target_arch = "aarch64", not(miri)))]
mod aarch64;
#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod generic;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64;

#[cfg(all(target_arch = "aarch64", not(miri)))]
use aarch64 as processor;
#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
use generic as processor;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use x86_64 as processor;

/// Kind of store instructions that a copy uses: ordinary or non-temporal ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreKind {
    /// Ordinary stores, which leave the target in the caches for its next reader.
    Cached,
    /// Non-temporal stores, which bypass the caches; ordinary ones on other processors than x86_64.
    Streaming,
}

/// Size of a page, in bytes.
const PAGE_BYTES: usize = 4096;

/// Reserves capacity for `bytes` more bytes in `into`. If `bytes` is half a page or more, a new
/// capacity is a whole number of pages and half a page.
///
/// Allocators often place two vectors one behind the other. If the capacity of the first is a
/// multiple of a page, copies from the first to the second by the C library's `memcpy` take 20 to
/// 30 times as long on AMD's Zen 3 and 4: `rep movsb` is slow if the target's offset in its page is
/// 1 to 31 bytes beyond the source's (glibc bug 30994). A handler that copies its arguments to its
/// result does just that.
pub(crate) fn reserve_apart(into: &mut Vec<u8>, bytes: usize) {
    let needed_bytes = into.len() + bytes;
    if bytes < PAGE_BYTES / 2 {
        into.reserve(bytes);
    } else if into.capacity() < needed_bytes {
        let capacity = needed_bytes.next_multiple_of(PAGE_BYTES) + PAGE_BYTES / 2;
        into.reserve_exact(capacity - into.len());
    }
}

/// Copies `bytes` bytes between two ranges that do not overlap.
///
/// # Safety
/// `from` is readable and `to` writable for `bytes` bytes. No Rust reference to the bytes at `to`
/// and no `&mut` to those at `from` is alive, except for a slice from which the caller has made
/// that pointer.
#[inline]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize, store: StoreKind) {
    // SAFETY: the caller's promise covers these arguments.
    unsafe { processor::copy(from, to, bytes, store == StoreKind::Streaming) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_for_a_long_body_is_never_near_a_number_of_pages() {
        for lengths in [[4096, 8192, 65_536], [6144, 10_240, 10_300], [2048, 2049, 6100]] {
            let mut body = Vec::new();
            for bytes in lengths {
                body.clear();
                reserve_apart(&mut body, bytes);
                assert!(body.capacity() >= bytes);
                assert_eq!(body.capacity() % PAGE_BYTES, PAGE_BYTES / 2, "{bytes} bytes");
            }
        }
    }

    #[test]
    fn every_length_and_alignment_copies_exactly_the_range() {
        let from: Vec<u8> = (0..20_000u32).map(|at| (at * 31 / 8) as u8).collect();
        for store in [StoreKind::Cached, StoreKind::Streaming] {
            for bytes in
                [0, 1, 63, 64, 255, 256, 1023, 1024, 1025, 1300, 4096, 4800, 16_383, 16_700]
            {
                for (from_at, to_at) in [(0, 0), (1, 0), (0, 1), (63, 65), (33, 2)] {
                    let mut to = vec![0xee; 20_000];
                    let source = from[from_at..].as_ptr();
                    let target = to[to_at..].as_mut_ptr();
                    // SAFETY: both vectors are longer than 65 + 16,700, and no other thread
                    // accesses them.
                    unsafe { copy(source, target, bytes, store) };
                    assert_eq!(to[to_at..to_at + bytes], from[from_at..from_at + bytes]);
                    assert!(to[..to_at].iter().chain(&to[to_at + bytes..]).all(|it| *it == 0xee));
                }
            }
        }
    }
}
