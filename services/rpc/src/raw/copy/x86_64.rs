//! Copies on x86_64: by `rep movsb`, or with non-temporal stores.

use std::sync::OnceLock;

/// Copies `bytes` bytes between two ranges that do not overlap. With `is_streaming`, uses
/// non-temporal stores if they pay.
///
/// # Safety
/// The requirements of [`copy`](super::copy).
#[inline]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize, is_streaming: bool) {
    let streaming: StreamingCopy = match (is_streaming, Width::of_processor()) {
        (true, Width::FullLines) if bytes >= STREAMED_BYTES_MIN => copy_lines,
        (true, Width::HalfLines) if bytes >= STREAMED_BYTES_MIN => copy_halves,
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
/// Length of a cache line, in bytes.
const LINE_BYTES: usize = 64;
/// Number of bytes that one iteration of the streaming loops copies.
const LOOP_BYTES: usize = 256;

/// Function that copies a multiple of [`LOOP_BYTES`] to an address aligned to a cache line.
type StreamingCopy = unsafe fn(*const u8, *mut u8, usize);

/// Widest non-temporal store of the processor: a cache line, half a line, or less. For less, copies
/// use `rep movsb`.
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
            if is_x86_feature_detected!("avx512f") {
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
/// The requirements of [`copy`](super::copy).
#[inline]
unsafe fn copy_string(from: *const u8, to: *mut u8, bytes: usize) {
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
}
