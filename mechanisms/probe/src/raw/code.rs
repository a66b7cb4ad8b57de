//! Code of a site's instruction while it is off and while it is on.
//!
//! A switch stores one byte on x86_64, and one instruction on aarch64: both are stores that no
//! thread sees half done, and threads may execute the instruction meanwhile.

#[cfg(target_arch = "aarch64")]
mod processor {
    use handover_base::sync::shared::AtomicU32;

    /// Part of a site's instruction that a switch overwrites: the whole instruction.
    pub(crate) type Code = u32;
    /// Atomic form of [`Code`].
    pub(crate) type AtomicCode = AtomicU32;

    /// Code of a site that is off: `nop`.
    pub(crate) const CODE_OFF: Code = 0xd503_201f;
    /// Size in bytes of an entry of the section of sites. An entry has the relative addresses of
    /// the instruction, of the site's data, and of the jump's target.
    pub(crate) const ENTRY_BYTES: usize = 12;
    /// `true` if switching tries `mprotect` before `/proc/self/mem`. After `mprotect` the
    /// architecture guarantees that the store is atomic. Linux does not promise how many stores a
    /// write to `/proc/self/mem` takes.
    pub(crate) const IS_MPROTECT_FIRST: bool = true;

    /// Opcode of `b`, whose lower 26 bits are the distance in instructions.
    const OPCODE_B: u32 = 0x1400_0000;
    /// Maximum distance of `b` in bytes, in both directions.
    const DISTANCE_MAX: u64 = 1 << 27;

    /// Returns the code of the site at address `at` while it is on: a jump `b` to `target`. `None`
    /// if `target` is too far away, as it is in no function.
    pub(crate) fn code_on(at: u64, target: u64) -> Option<Code> {
        let distance = target.wrapping_sub(at);
        if distance.wrapping_add(DISTANCE_MAX) >= 2 * DISTANCE_MAX || !distance.is_multiple_of(4) {
            return None;
        }
        Some(OPCODE_B | (distance >> 2) as u32 & 0x03ff_ffff)
    }

    /// Makes the instruction that was stored at `at` visible to the instruction caches of all CPUs.
    pub(crate) fn publish_code(at: usize) {
        // The sequence of the Arm ARM, K13.5: clean the line to the point of unification, then
        // invalidate it there.
        // SAFETY: cache maintenance of a line of mapped code changes no memory; Linux permits it to
        // programs.
        unsafe {
            core::arch::asm!("dc cvau, {at}", "dsb ish", "ic ivau, {at}", "dsb ish", "isb",
                at = in(reg) at, options(nostack, preserves_flags));
        }
    }
}

#[cfg(not(target_arch = "aarch64"))]
mod processor {
    use handover_base::sync::shared::AtomicU8;

    /// Part of a site's instruction that a switch overwrites: the first of five bytes.
    pub(crate) type Code = u8;
    /// Atomic form of [`Code`].
    pub(crate) type AtomicCode = AtomicU8;

    /// Code of a site that is off: `test eax, imm32`.
    pub(crate) const CODE_OFF: Code = 0xa9;
    /// Size in bytes of an entry of the section of sites. An entry has the relative addresses of
    /// the instruction and of the site's data.
    pub(crate) const ENTRY_BYTES: usize = 8;
    /// `true` if switching tries `mprotect` before `/proc/self/mem`.
    pub(crate) const IS_MPROTECT_FIRST: bool = false;

    /// Returns the code of a site while it is on, `jmp rel32`. Its target follows the byte and is
    /// not needed here.
    pub(crate) fn code_on(_at: u64, _target: u64) -> Option<Code> {
        Some(0xe9)
    }

    /// Does nothing, as x86_64 keeps its instruction caches coherent.
    pub(crate) fn publish_code(_at: usize) {}
}

pub(crate) use processor::{
    AtomicCode, CODE_OFF, Code, ENTRY_BYTES, IS_MPROTECT_FIRST, code_on, publish_code,
};

/// Size in bytes of the part of an instruction that a switch overwrites.
pub(crate) const CODE_BYTES: usize = size_of::<Code>();

/// Offset of the jump target's relative address in an entry of the section, in bytes. `None` if the
/// instruction contains the target.
pub(crate) const TARGET_OFFSET: Option<usize> = if ENTRY_BYTES > 8 { Some(8) } else { None };

#[cfg(all(test, target_arch = "aarch64"))]
mod tests {
    use super::*;

    #[test]
    fn jump_is_encoded_in_both_directions_up_to_its_range() {
        assert_eq!(code_on(0x1000, 0x1008), Some(0x1400_0002));
        assert_eq!(code_on(0x1008, 0x1000), Some(0x17ff_fffe));
        assert_eq!(code_on(1 << 27, 0), Some(0x1600_0000));
        assert_eq!(code_on(0, (1 << 27) - 4), Some(0x15ff_ffff));
        assert_eq!(code_on(0, 1 << 27), None);
        assert_eq!(code_on((1 << 27) + 4, 0), None);
        assert_eq!(code_on(0, 2), None);
    }
}
