//! Copies of memory that others may read and write at the same time.
//!
//! The copy is in assembly, so that it is not an access in Rust's sense: a concurrent write of
//! another thread or process changes which bytes are copied, and is no undefined behaviour. Each
//! byte is loaded once and stored once, as by relaxed atomics.

use std::sync::OnceLock;

/// Kind of store instructions that a copy uses: ordinary or non-temporal ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreKind {
    /// Ordinary stores, which leave the target in the caches for its next reader.
    Cached,
    /// Non-temporal stores, which bypass the caches.
    Streaming,
}

/// Copies `bytes` bytes between two ranges that do not overlap.
///
/// # Safety
/// `from` is readable and `to` writable for `bytes` bytes. No Rust reference to the bytes at `to`
/// and no `&mut` to those at `from` is alive, except for a slice from which the caller has made
/// that pointer.
#[inline]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize, store: StoreKind) {
    let streaming: StreamingCopy = match (store, Width::of_processor()) {
        (StoreKind::Streaming, Width::FullLines) if bytes >= STREAMED_BYTES_MIN => copy_lines,
        (StoreKind::Streaming, Width::HalfLines) if bytes >= STREAMED_BYTES_MIN => copy_halves,
        // SAFETY: the caller's promise covers these arguments.
        _ => return unsafe { copy_string(from, to, bytes) },
    };
    // Copies up to the next cache line of `to` first: only whole lines are streamed.
    let head = to.align_offset(LINE_BYTES).min(bytes);
    let blocks_bytes = (bytes - head) / LOOP_BYTES * LOOP_BYTES;
    let end = head + blocks_bytes;
    if head > 0 {
        // SAFETY: `head <= bytes`, so these bytes are part of the caller's ranges.
        unsafe { copy_string(from, to, head) };
    }
    if blocks_bytes > 0 {
        // SAFETY: `head + blocks_bytes <= bytes`, the length is a multiple of LOOP_BYTES above 0,
        // `to + head` is aligned to a line, and of_processor() has detected the instructions.
        unsafe { streaming(from.wrapping_add(head), to.wrapping_add(head), blocks_bytes) };
    }
    if end < bytes {
        // SAFETY: the remaining `bytes - end` bytes of the caller's ranges.
        unsafe { copy_string(from.wrapping_add(end), to.wrapping_add(end), bytes - end) };
    }
}

/// Minimum length, in bytes, of a copy with non-temporal stores. For a shorter one, the fence costs
/// more than it saves.
const STREAMED_BYTES_MIN: usize = 1024;
const LINE_BYTES: usize = 64;
/// Number of bytes that one iteration of the streaming loops copies.
const LOOP_BYTES: usize = 256;

/// Function that copies a multiple of [`LOOP_BYTES`] to an address aligned to a cache line.
type StreamingCopy = unsafe fn(*const u8, *mut u8, usize);

/// Widest non-temporal store of the processor: a cache line, half a line, or less. With less,
/// copies use `rep movsb`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Width {
    FullLines,
    HalfLines,
    Words,
}

impl Width {
    #[inline]
    fn of_processor() -> Self {
        static DETECTED: OnceLock<Width> = OnceLock::new();
        *DETECTED.get_or_init(|| {
            if cfg!(miri) {
                Width::Words
            } else if is_x86_feature_detected!("avx512f") {
                Width::FullLines
            } else if is_x86_feature_detected!("avx2") {
                Width::HalfLines
            } else {
                Width::Words
            }
        })
    }
}

/// Copies with `rep movsb`, which leaves the target in the caches.
///
/// # Safety
/// The requirements of [`copy`].
#[inline]
unsafe fn copy_string(from: *const u8, to: *mut u8, bytes: usize) {
    if cfg!(miri) {
        for at in 0..bytes {
            // SAFETY: at < bytes, and the caller promises that `bytes` bytes are readable; Miri
            // runs a single thread here.
            let byte = unsafe { from.wrapping_add(at).read() };
            // SAFETY: at < bytes, and the caller promises that `bytes` bytes are writable.
            unsafe { to.wrapping_add(at).write(byte) };
        }
        return;
    }
    // SAFETY: reads `bytes` bytes at `from` and writes them to `to`, both of which the caller
    // promises to be accessible; the direction flag is clear, by the ABI.
    unsafe {
        core::arch::asm!(
            "rep movsb",
            inout("rcx") bytes => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
}

/// Defines a function that copies with non-temporal stores, four of a register's width in each iteration.
macro_rules! streaming_copy {
    ($name:ident, $feature:literal, $load:literal, $register:literal,
     [$($number:literal at $offset:literal),*], $step:literal, [$($ahead:literal),*]) => {
        /// Copies with non-temporal stores.
        ///
        /// # Safety
        /// The requirements of [`StreamingCopy`], and the processor has the feature.
        #[target_feature(enable = $feature)]
        unsafe fn $name(from: *const u8, to: *mut u8, bytes: usize) {
            // SAFETY: reads and writes whole blocks below `bytes`, which the caller promises to be accessible, and of
            // which an iteration copies a divisor; the addresses at `to` are multiples of the register's width, and
            // prefetching cannot fault. The fence orders the streamed stores before a later store that announces them.
            unsafe {
                core::arch::asm!(
                    "2:",
                    $(concat!("prefetcht0 [{from} + rax + ", $ahead, "]"),)*
                    $(concat!($load, " ", $register, $number, ", [{from} + rax + ", $offset, "]"),)*
                    $(concat!("vmovntdq [{to} + rax + ", $offset, "], ", $register, $number),)*
                    concat!("add rax, ", $step),
                    "cmp rax, {bytes}",
                    "jb 2b",
                    "sfence",
                    "vzeroupper",
                    from = in(reg) from,
                    to = in(reg) to,
                    bytes = in(reg) bytes,
                    inout("rax") 0usize => _,
                    // vzeroupper writes to all sixteen vector registers.
                    clobber_abi("sysv64"),
                    options(nostack),
                );
            }
        }
    };
}

streaming_copy!(
    copy_lines, "avx512f", "vmovdqu64", "zmm",
    [0 at 0, 1 at 64, 2 at 128, 3 at 192], 256, [2048, 2112, 2176, 2240]
);
streaming_copy!(
    copy_halves, "avx2", "vmovdqu", "ymm",
    [0 at 0, 1 at 32, 2 at 64, 3 at 96], 128, [2048, 2112]
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_line_streaming_copies_the_same_bytes_as_full_lines() {
        if !is_x86_feature_detected!("avx2") {
            return;
        }
        let from: Vec<u8> = (0..5000u32).map(|at| (at * 37 / 8) as u8).collect();
        let mut to = vec![0; 5000];
        let at = to.as_ptr().align_offset(LINE_BYTES);
        // SAFETY: at < 64, and both vectors are longer than 64 + 4608; AVX2 was detected above.
        unsafe { copy_halves(from[3..].as_ptr(), to[at..].as_mut_ptr(), 4608) };
        assert_eq!(to[at..at + 4608], from[3..4611]);
        assert!(to[..at].iter().chain(&to[at + 4608..]).all(|it| *it == 0));
    }

    #[test]
    fn every_length_and_alignment_copies_exactly_the_range() {
        let from: Vec<u8> = (0..5000u32).map(|at| (at * 31 / 8) as u8).collect();
        for store in [StoreKind::Cached, StoreKind::Streaming] {
            for bytes in [0, 1, 63, 64, 255, 1023, 1024, 1025, 1300, 4096, 4800] {
                for (from_at, to_at) in [(0, 0), (1, 0), (0, 1), (63, 65), (33, 2)] {
                    let mut to = vec![0xee; 5000];
                    let source = from[from_at..].as_ptr();
                    let target = to[to_at..].as_mut_ptr();
                    // SAFETY: both vectors are longer than 65 + 4800, and no other thread accesses them.
                    unsafe { copy(source, target, bytes, store) };
                    assert_eq!(to[to_at..to_at + bytes], from[from_at..from_at + bytes]);
                    assert!(to[..to_at].iter().chain(&to[to_at + bytes..]).all(|it| *it == 0xee));
                }
            }
        }
    }
}
