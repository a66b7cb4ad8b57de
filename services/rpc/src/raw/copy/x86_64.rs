//! Copies on x86_64: by vector registers, by `rep movsb`, or with non-temporal stores.

use super::PAGE_BYTES;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Copies `bytes` bytes between two ranges that do not overlap. With `is_streaming`, uses
/// non-temporal stores if they pay.
///
/// # Safety
/// The requirements of [`copy`](super::copy).
#[inline]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize, is_streaming: bool) {
    // SAFETY: the caller's promise covers these arguments.
    unsafe { copy_with(from, to, bytes, is_streaming, is_string_slow) }
}

/// Copies as [`copy`] does, with the result of `is_slow` in place of that of [`is_string_slow`].
///
/// # Safety
/// The requirements of [`copy`](super::copy).
#[inline]
unsafe fn copy_with(
    from: *const u8,
    to: *mut u8,
    bytes: usize,
    is_streaming: bool,
    is_slow: impl Fn() -> bool,
) {
    let streams = is_streaming && bytes >= STREAMED_BYTES_MIN;
    let copy_blocks: BlockCopy = match (streams, Width::of_processor()) {
        (true, Width::FullLines) => stream_lines,
        (true, Width::HalfLines) => stream_halves,
        (false, Width::FullLines | Width::HalfLines) if bytes < STRING_BYTES_MIN || is_slow() => {
            copy_halves
        }
        // SAFETY: the caller's promise covers these arguments.
        _ => return unsafe { copy_string(from, to, bytes) },
    };
    // Copies up to the next cache line of `to` first: only whole lines are streamed.
    let head = if streams { to.align_offset(LINE_BYTES).min(bytes) } else { 0 };
    let blocks_bytes = (bytes - head) / LOOP_BYTES * LOOP_BYTES;
    let end = head + blocks_bytes;
    if head > 0 {
        // SAFETY: `head <= bytes`, so these bytes are part of the caller's ranges.
        unsafe { copy_string(from, to, head) };
    }
    if blocks_bytes > 0 {
        // SAFETY: `head + blocks_bytes <= bytes`, the length is a multiple of LOOP_BYTES above 0,
        // `to + head` is aligned to a line if `streams`, and of_processor() has detected the
        // instructions: AVX-512 includes AVX2.
        unsafe { copy_blocks(from.wrapping_add(head), to.wrapping_add(head), blocks_bytes) };
    }
    if end < bytes {
        // SAFETY: the remaining `bytes - end` bytes of the caller's ranges.
        unsafe { copy_string(from.wrapping_add(end), to.wrapping_add(end), bytes - end) };
    }
}

/// Minimum length, in bytes, of a copy with non-temporal stores. For a shorter one, the fence costs
/// more than it saves.
const STREAMED_BYTES_MIN: usize = 1024;
/// Minimum length, in bytes, of a copy by `rep movsb` if the processor has AVX2: the instruction
/// takes long to start.
const STRING_BYTES_MIN: usize = 1 << 14;
/// Length of a cache line, in bytes.
const LINE_BYTES: usize = 64;
/// Number of bytes of which each iteration of the loops copies a divisor.
const LOOP_BYTES: usize = 256;

/// Function that copies a multiple of [`LOOP_BYTES`] above 0. The functions with non-temporal
/// stores copy to an address that is aligned to a cache line.
type BlockCopy = unsafe fn(*const u8, *mut u8, usize);

/// Widest store of the processor: a cache line, half a line, or less. For less, copies use
/// `rep movsb`.
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

/// Returns `true` if copies of at least [`STRING_BYTES_MIN`] bytes also use vector registers,
/// because `rep movsb` is slow on this processor. The first call in a process measures both. The
/// processor must have AVX2.
///
/// No processor feature says so: `rep movsb` took 4 to 5 times as long as vector registers for 64
/// KiB on a virtual machine, and takes up to 20 times as long on AMD's Zen 3 and 4 at some
/// addresses (glibc bug 30994).
///
/// Cost: 16 copies of 16 KiB and the page faults of 36 KiB. These take less than 20 µs, or some 35
/// µs if `rep movsb` copies 4.4 GB/s, as on Zen 3 at the slow addresses (estimated).
#[inline]
fn is_string_slow() -> bool {
    static MEASURED: OnceLock<bool> = OnceLock::new();
    *MEASURED.get_or_init(|| is_string_slower(&measure_copies()))
}

/// Shortest measured times of a copy by each method.
#[derive(Debug)]
struct CopyTimes {
    string: Duration,
    vectors: Duration,
}

/// Returns `true` if `rep movsb` takes more than 1.25 times as long as vector registers, in total
/// over all alignments.
fn is_string_slower(times: &[CopyTimes]) -> bool {
    let string: Duration = times.iter().map(|it| it.string).sum();
    let vectors: Duration = times.iter().map(|it| it.vectors).sum();
    4 * string > 5 * vectors
}

/// Distances, in bytes, of the measured targets from the sources, modulo the size of a page:
/// aligned, and one of those at which Zen 3 is slow.
const MEASURED_OFFSETS_BYTES: [usize; 2] = [0, 15];
/// Number of measurements of each method at each offset. The first also brings the memory into the
/// caches.
const MEASURED_ROUNDS: u32 = 4;

/// Measures copies of [`STRING_BYTES_MIN`] bytes by `rep movsb` and by vector registers in turn, at
/// each offset of [`MEASURED_OFFSETS_BYTES`].
///
/// # Panics
/// Panics if the processor lacks AVX2.
fn measure_copies() -> [CopyTimes; MEASURED_OFFSETS_BYTES.len()] {
    assert_ne!(Width::of_processor(), Width::Words, "copies by vector registers need AVX2");
    // Not of zeros: the kernel could map one page of zeros for all pages that are only read.
    let mut memory = vec![1u8; 2 * STRING_BYTES_MIN + PAGE_BYTES + LINE_BYTES];
    let start = memory.as_mut_ptr();
    let from = start.wrapping_add(start.align_offset(PAGE_BYTES));
    MEASURED_OFFSETS_BYTES.map(|offset| {
        let to = from.wrapping_add(STRING_BYTES_MIN + offset);
        let time = |copy_blocks: BlockCopy| {
            let begin = Instant::now();
            // SAFETY: `from` is below start + PAGE_BYTES and `offset` below LINE_BYTES, so both
            // ranges are in `memory`, and `to` begins after the source's end; the length is a
            // multiple of LOOP_BYTES; AVX2 was detected above.
            unsafe { copy_blocks(from, to, STRING_BYTES_MIN) };
            begin.elapsed()
        };
        let mut least = CopyTimes { string: Duration::MAX, vectors: Duration::MAX };
        for _ in 0..MEASURED_ROUNDS {
            least.string = least.string.min(time(copy_string));
            least.vectors = least.vectors.min(time(copy_halves));
        }
        least
    })
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

/// Defines a function that copies with four stores of a register's width in each iteration.
macro_rules! block_copy {
    ($(#[$doc:meta])* $name:ident, $feature:literal, $load:literal, $store:literal, $register:literal,
     [$($number:literal at $offset:literal),*], $step:literal, [$($ahead:literal),*], [$($fence:literal),*]) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// The requirements of [`BlockCopy`], and the processor has the feature.
        #[target_feature(enable = $feature)]
        unsafe fn $name(from: *const u8, to: *mut u8, bytes: usize) {
            // SAFETY: reads and writes whole blocks below `bytes`, which the caller promises to be
            // accessible, and of which an iteration copies a divisor; the addresses of non-temporal
            // stores are multiples of the register's width, as the caller has aligned `to`, and
            // prefetching cannot fault. The fence orders non-temporal stores before a later store
            // that announces them.
            unsafe {
                core::arch::asm!(
                    "2:",
                    $(concat!("prefetcht0 [{from} + rax + ", $ahead, "]"),)*
                    $(concat!($load, " ", $register, $number, ", [{from} + rax + ", $offset, "]"),)*
                    $(concat!($store, " [{to} + rax + ", $offset, "], ", $register, $number),)*
                    concat!("add rax, ", $step),
                    "cmp rax, {bytes}",
                    "jb 2b",
                    $(concat!($fence),)*
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

block_copy!(
    /// Copies with non-temporal stores of whole cache lines.
    stream_lines, "avx512f", "vmovdqu64", "vmovntdq", "zmm",
    [0 at 0, 1 at 64, 2 at 128, 3 at 192], 256, [2048, 2112, 2176, 2240], ["sfence"]
);
block_copy!(
    /// Copies with non-temporal stores of half cache lines.
    stream_halves, "avx2", "vmovdqu", "vmovntdq", "ymm",
    [0 at 0, 1 at 32, 2 at 64, 3 at 96], 128, [2048, 2112], ["sfence"]
);
block_copy!(
    /// Copies with ordinary stores of half a cache line. `to` may have any alignment.
    copy_halves, "avx2", "vmovdqu", "vmovdqu", "ymm",
    [0 at 0, 1 at 32, 2 at 64, 3 at 96], 128, [], []
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
        unsafe { stream_halves(from[3..].as_ptr(), to[at..].as_mut_ptr(), 4608) };
        assert_eq!(to[at..at + 4608], from[3..4611]);
        assert!(to[..at].iter().chain(&to[at + 4608..]).all(|it| *it == 0));
    }

    #[test]
    fn string_is_slow_if_it_takes_over_five_quarters_of_the_vectors_time_in_total() {
        let of = |times: [(u64, u64); 2]| {
            is_string_slower(&times.map(|(string_ns, vectors_ns)| CopyTimes {
                string: Duration::from_nanos(string_ns),
                vectors: Duration::from_nanos(vectors_ns),
            }))
        };
        assert!(!of([(300, 320), (360, 320)]));
        assert!(!of([(400, 400), (600, 400)]));
        assert!(of([(400, 400), (601, 400)]));
        assert!(of([(290, 280), (3700, 280)]));
        assert!(of([(1400, 300), (1400, 300)]));
    }

    #[test]
    fn both_methods_are_measured_and_the_decision_stays() {
        if !is_x86_feature_detected!("avx2") {
            return;
        }
        let times = measure_copies();
        assert!(times.iter().all(|it| it.string.max(it.vectors) < Duration::MAX), "{times:?}");
        let decided = is_string_slow();
        assert_eq!(is_string_slow(), decided);
    }

    #[test]
    fn long_copies_under_either_decision_copy_exactly_the_range() {
        let from: Vec<u8> = (0..70_000u32).map(|at| (at * 31 / 8) as u8).collect();
        for is_slow in [false, true] {
            for bytes in [16_383, 16_384, 16_385, 16_639, 16_640, 40_000, 65_536, 65_791] {
                for (from_at, to_at) in [(0, 0), (1, 0), (0, 1), (0, 15), (63, 65), (33, 2)] {
                    let mut to = vec![0xee; 70_000];
                    let source = from[from_at..].as_ptr();
                    let target = to[to_at..].as_mut_ptr();
                    // SAFETY: both vectors are longer than 65 + 65,791, and no other thread
                    // accesses them.
                    unsafe { copy_with(source, target, bytes, false, || is_slow) };
                    assert_eq!(to[to_at..to_at + bytes], from[from_at..from_at + bytes]);
                    assert!(to[..to_at].iter().chain(&to[to_at + bytes..]).all(|it| *it == 0xee));
                }
            }
        }
    }
}
