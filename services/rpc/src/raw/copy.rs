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
/// `from` is mapped and readable, `to` mapped and writable for so many bytes; they do not overlap; no Rust
/// reference to what lies at `to` is alive, and none that is `&mut` to what lies at `from`.
#[inline]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize, store: Store) {
    if store == Store::Streaming && bytes >= STREAMED_BYTES_MIN && has_avx2() {
        // SAFETY: as the caller promises; the processor has AVX2.
        unsafe { streaming(from, to, bytes) }
    } else {
        // SAFETY: as the caller promises.
        unsafe { string(from, to, bytes) }
    }
}

/// Less than this is not worth the fence behind it.
const STREAMED_BYTES_MIN: usize = 1024;
/// A turn of the loop.
const BLOCK_BYTES: usize = 256;

fn has_avx2() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    !cfg!(miri) && *HAS.get_or_init(|| is_x86_feature_detected!("avx2"))
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
/// As [`copy`], and the processor has AVX2.
#[target_feature(enable = "avx2")]
unsafe fn streaming(from: *const u8, to: *mut u8, bytes: usize) {
    // To a whole cache line, which is what is streamed.
    let head = to.align_offset(64).min(bytes);
    // SAFETY: the first bytes of both.
    unsafe { string(from, to, head) };
    let blocks = (bytes - head) / BLOCK_BYTES;
    let mut at = head;
    if blocks > 0 {
        let end = head + blocks * BLOCK_BYTES;
        // SAFETY: reads and writes whole blocks between head and end, all below `bytes`, at addresses of
        // which those of `to` are multiples of 64; prefetching needs nothing to be there. The fence orders
        // the streamed stores before whatever says that they are done.
        unsafe {
            core::arch::asm!(
                "2:",
                "prefetcht0 [{from} + {at} + 2048]",
                "prefetcht0 [{from} + {at} + 2112]",
                "prefetcht0 [{from} + {at} + 2176]",
                "prefetcht0 [{from} + {at} + 2240]",
                "vmovdqu {a}, [{from} + {at}]",
                "vmovdqu {b}, [{from} + {at} + 32]",
                "vmovdqu {c}, [{from} + {at} + 64]",
                "vmovdqu {d}, [{from} + {at} + 96]",
                "vmovntdq [{to} + {at}], {a}",
                "vmovntdq [{to} + {at} + 32], {b}",
                "vmovntdq [{to} + {at} + 64], {c}",
                "vmovntdq [{to} + {at} + 96], {d}",
                "vmovdqu {a}, [{from} + {at} + 128]",
                "vmovdqu {b}, [{from} + {at} + 160]",
                "vmovdqu {c}, [{from} + {at} + 192]",
                "vmovdqu {d}, [{from} + {at} + 224]",
                "vmovntdq [{to} + {at} + 128], {a}",
                "vmovntdq [{to} + {at} + 160], {b}",
                "vmovntdq [{to} + {at} + 192], {c}",
                "vmovntdq [{to} + {at} + 224], {d}",
                "add {at}, 256",
                "cmp {at}, {end}",
                "jb 2b",
                "sfence",
                "vzeroupper",
                from = in(reg) from,
                to = in(reg) to,
                at = inout(reg) at,
                end = in(reg) end,
                a = out(ymm_reg) _,
                b = out(ymm_reg) _,
                c = out(ymm_reg) _,
                d = out(ymm_reg) _,
                options(nostack),
            );
        }
    }
    // SAFETY: what is left of both; `at` is below or at `bytes`.
    unsafe { string(from.wrapping_add(at), to.wrapping_add(at), bytes - at) };
}

#[cfg(test)]
mod tests {
    use super::*;

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
