//! Copying bytes that others may read and write at the same time.
//!
//! In assembly, so that it is no access of Rust's: what another thread or process writes meanwhile makes
//! bytes of one or of the other, and no undefined behaviour. Each byte is loaded once and stored once, as
//! relaxed atomics would.

use std::sync::OnceLock;

/// How the copy is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    /// Into the caches, for whoever reads it next.
    Cached,
    /// Past the caches.
    Streaming,
}

/// Copies `bytes` from one place to another that does not overlap it.
///
/// # Safety
/// `from` is mapped and readable, `to` mapped and writable for so many bytes; no Rust reference to what lies
/// at `to` is alive, and none that is `&mut` to what lies at `from`, but where the caller has made either from
/// a slice that it holds.
#[inline]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize, store: Store) {
    let streaming: Streaming = match (store, Width::of_processor()) {
        (Store::Streaming, Width::Lines) if bytes >= STREAMED_BYTES_MIN => by_lines,
        (Store::Streaming, Width::Halves) if bytes >= STREAMED_BYTES_MIN => by_halves,
        // SAFETY: as the caller promises.
        _ => return unsafe { string(from, to, bytes) },
    };
    // To a whole cache line, which is what is streamed.
    let head = to.align_offset(LINE_BYTES).min(bytes);
    let blocks_bytes = (bytes - head) / BLOCK_BYTES * BLOCK_BYTES;
    let end = head + blocks_bytes;
    if head > 0 {
        // SAFETY: the first bytes of both.
        unsafe { string(from, to, head) };
    }
    if blocks_bytes > 0 {
        // SAFETY: whole blocks of both, from a whole line of `to` on; the processor can.
        unsafe { streaming(from.wrapping_add(head), to.wrapping_add(head), blocks_bytes) };
    }
    if end < bytes {
        // SAFETY: what is left of both.
        unsafe { string(from.wrapping_add(end), to.wrapping_add(end), bytes - end) };
    }
}

/// Less than this is not worth the fence behind it.
const STREAMED_BYTES_MIN: usize = 1024;
const LINE_BYTES: usize = 64;
/// A turn of the loop.
const BLOCK_BYTES: usize = 256;

/// Of a whole number of blocks, at least one, to a whole line.
type Streaming = unsafe fn(*const u8, *mut u8, usize);

/// What the processor can store at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Width {
    Lines,
    Halves,
    Words,
}

impl Width {
    #[inline]
    fn of_processor() -> Self {
        static OF: OnceLock<Width> = OnceLock::new();
        *OF.get_or_init(|| {
            if cfg!(miri) {
                Width::Words
            } else if is_x86_feature_detected!("avx512f") {
                Width::Lines
            } else if is_x86_feature_detected!("avx2") {
                Width::Halves
            } else {
                Width::Words
            }
        })
    }
}

/// # Safety
/// As [`copy`].
#[inline]
unsafe fn string(from: *const u8, to: *mut u8, bytes: usize) {
    if cfg!(miri) {
        for at in 0..bytes {
            // SAFETY: at < bytes, and the caller promises so many; Miri runs a single thread here.
            let byte = unsafe { from.wrapping_add(at).read() };
            // SAFETY: as above.
            unsafe { to.wrapping_add(at).write(byte) };
        }
        return;
    }
    // SAFETY: reads `bytes` from `from` and writes them to `to`, which the caller has promised to be there;
    // the direction flag is clear, by the ABI.
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

/// # Safety
/// As [`Streaming`], and the processor has AVX-512F.
#[target_feature(enable = "avx512f")]
unsafe fn by_lines(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: reads and writes whole blocks below `bytes`, at addresses of which those of `to` are multiples
    // of 64; prefetching needs nothing to be there. The fence orders the streamed stores before whatever
    // says that they are done.
    unsafe {
        core::arch::asm!(
            "2:",
            "prefetcht0 [{from} + rax + 2048]",
            "prefetcht0 [{from} + rax + 2112]",
            "prefetcht0 [{from} + rax + 2176]",
            "prefetcht0 [{from} + rax + 2240]",
            "vmovdqu64 zmm0, [{from} + rax]",
            "vmovdqu64 zmm1, [{from} + rax + 64]",
            "vmovdqu64 zmm2, [{from} + rax + 128]",
            "vmovdqu64 zmm3, [{from} + rax + 192]",
            "vmovntdq [{to} + rax], zmm0",
            "vmovntdq [{to} + rax + 64], zmm1",
            "vmovntdq [{to} + rax + 128], zmm2",
            "vmovntdq [{to} + rax + 192], zmm3",
            "add rax, 256",
            "cmp rax, {bytes}",
            "jb 2b",
            "sfence",
            "vzeroupper",
            from = in(reg) from,
            to = in(reg) to,
            bytes = in(reg) bytes,
            inout("rax") 0usize => _,
            // vzeroupper writes to all sixteen.
            clobber_abi("sysv64"),
            options(nostack),
        );
    }
}

/// # Safety
/// As [`Streaming`], and the processor has AVX2.
#[target_feature(enable = "avx2")]
unsafe fn by_halves(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: as in by_lines().
    unsafe {
        core::arch::asm!(
            "2:",
            "prefetcht0 [{from} + rax + 2048]",
            "prefetcht0 [{from} + rax + 2112]",
            "vmovdqu ymm0, [{from} + rax]",
            "vmovdqu ymm1, [{from} + rax + 32]",
            "vmovdqu ymm2, [{from} + rax + 64]",
            "vmovdqu ymm3, [{from} + rax + 96]",
            "vmovntdq [{to} + rax], ymm0",
            "vmovntdq [{to} + rax + 32], ymm1",
            "vmovntdq [{to} + rax + 64], ymm2",
            "vmovntdq [{to} + rax + 96], ymm3",
            "add rax, 128",
            "cmp rax, {bytes}",
            "jb 2b",
            "sfence",
            "vzeroupper",
            from = in(reg) from,
            to = in(reg) to,
            bytes = in(reg) bytes,
            inout("rax") 0usize => _,
            // vzeroupper writes to all sixteen.
            clobber_abi("sysv64"),
            options(nostack),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_lines_are_streamed_as_whole_ones_are() {
        if !is_x86_feature_detected!("avx2") {
            return;
        }
        let from: Vec<u8> = (0..5000u32).map(|at| (at * 37 / 8) as u8).collect();
        let mut to = vec![0; 5000];
        let at = to.as_ptr().align_offset(LINE_BYTES);
        // SAFETY: at < 64, and both vectors are longer than 64 + 4608; AVX2 is there.
        unsafe { by_halves(from[3..].as_ptr(), to[at..].as_mut_ptr(), 4608) };
        assert_eq!(to[at..at + 4608], from[3..4611]);
        assert!(to[..at].iter().chain(&to[at + 4608..]).all(|it| *it == 0));
    }

    #[test]
    fn every_length_and_alignment_is_copied_and_nothing_beside_it() {
        let from: Vec<u8> = (0..5000u32).map(|at| (at * 31 / 8) as u8).collect();
        for store in [Store::Cached, Store::Streaming] {
            for bytes in [0, 1, 63, 64, 255, 1023, 1024, 1025, 1300, 4096, 4800] {
                for (from_at, to_at) in [(0, 0), (1, 0), (0, 1), (63, 65), (33, 2)] {
                    let mut to = vec![0xee; 5000];
                    let source = from[from_at..].as_ptr();
                    let target = to[to_at..].as_mut_ptr();
                    // SAFETY: both vectors are longer than 65 + 4800, and nobody else looks at them.
                    unsafe { copy(source, target, bytes, store) };
                    assert_eq!(to[to_at..to_at + bytes], from[from_at..from_at + bytes]);
                    assert!(to[..to_at].iter().chain(&to[to_at + bytes..]).all(|it| *it == 0xee));
                }
            }
        }
    }
}
