//! The link section in which this object's sites are listed.
//!
//! Each entry is two 32-bit addresses relative to themselves: of the instruction, and of the site's
//! [`SiteData`]; on aarch64 a third, of the code to which the instruction jumps while the site is
//! on. The section thus needs no relocation when the program is loaded, and is read-only.

use super::switching::Instruction;
use crate::site::SiteData;

/// One instruction of a probe site. A site that is inlined or unrolled has several.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SiteInstruction {
    pub instruction: Instruction,
    /// Data of the site.
    pub meta: &'static SiteData,
}

#[cfg(all(
    any(target_arch = "aarch64", target_arch = "x86_64"),
    not(any(miri, handover_loom, feature = "flags"))
))]
mod patched {
    use super::{Instruction, SiteInstruction, meta_at};
    use crate::raw::code::{ENTRY_BYTES, code_on};
    use crate::site::{CONTROL, CONTROL_BYTES, LAYOUT_VERSION};

    /// Entry of the section, in the layout that the macro writes.
    #[repr(C)]
    pub(crate) struct Entry {
        /// Distance in bytes from this field to the instruction.
        instruction_offset: i32,
        /// Distance in bytes from this field to the site's data.
        meta_offset: i32,
        /// Distance in bytes from this field to the jump's target.
        #[cfg(target_arch = "aarch64")]
        target_offset: i32,
    }

    const _: () = assert!(size_of::<Entry>() == ENTRY_BYTES);

    /// Returns the address to which the instruction jumps while the site is on.
    #[cfg(target_arch = "aarch64")]
    fn target(entry: &Entry) -> u64 {
        resolve_relative(&entry.target_offset).addr() as u64
    }

    /// Returns 0, because the instruction itself contains the address of the jump.
    #[cfg(target_arch = "x86_64")]
    fn target(_: &Entry) -> u64 {
        0
    }

    /// Returns the start and the end of this object's section of sites.
    #[cfg(target_arch = "aarch64")]
    fn section_bounds() -> (*const Entry, *const Entry) {
        let (start, stop): (*const Entry, *const Entry);
        // SAFETY: the code computes two addresses. The entry that it adds makes the section exist,
        // so that the linker defines both symbols; they are hidden, as each object has a section of
        // its own.
        unsafe {
            core::arch::asm!(
                ".pushsection handover_probes,\"aR\",@progbits",
                ".balign 4",
                ".long 0",
                ".long {control} - .",
                ".long 0",
                ".popsection",
                ".hidden __start_handover_probes",
                ".hidden __stop_handover_probes",
                "adrp {start}, __start_handover_probes",
                "add {start}, {start}, :lo12:__start_handover_probes",
                "adrp {stop}, __stop_handover_probes",
                "add {stop}, {stop}, :lo12:__stop_handover_probes",
                control = sym CONTROL,
                start = out(reg) start,
                stop = out(reg) stop,
                options(nomem, nostack, preserves_flags),
            );
        }
        (start, stop)
    }

    /// Returns the start and the end of this object's section of sites.
    #[cfg(target_arch = "x86_64")]
    fn section_bounds() -> (*const Entry, *const Entry) {
        let (start, stop): (*const Entry, *const Entry);
        // SAFETY: the code computes two addresses. The entry that it adds makes the section exist,
        // so that the linker defines both symbols; they are hidden, as each object has a section of
        // its own.
        unsafe {
            core::arch::asm!(
                ".pushsection handover_probes,\"aR\",@progbits",
                ".balign 4",
                ".long 0",
                ".long {control} - .",
                ".popsection",
                ".hidden __start_handover_probes",
                ".hidden __stop_handover_probes",
                "lea {start}, [rip + __start_handover_probes]",
                "lea {stop}, [rip + __stop_handover_probes]",
                control = sym CONTROL,
                start = out(reg) start,
                stop = out(reg) stop,
                options(nomem, nostack, preserves_flags),
            );
        }
        (start, stop)
    }

    /// Returns all instructions of this object's sites, without the control entry.
    #[inline(never)]
    pub(crate) fn site_instructions() -> Vec<SiteInstruction> {
        const { assert!(CONTROL_BYTES > 0) };
        let (start, stop) = section_bounds();
        // SAFETY: the linker placed this object's entries between the two symbols.
        unsafe { instructions_between(start, stop) }
    }

    /// Returns the instructions of the sites listed between `start` and `stop`, without the control
    /// entry.
    ///
    /// # Safety
    /// The linker placed entries, as the macros write them, between the two addresses, each aligned
    /// to 4 bytes and [`ENTRY_BYTES`] long, in a read-only section of an object that is never
    /// unloaded.
    pub(crate) unsafe fn instructions_between(
        start: *const Entry,
        stop: *const Entry,
    ) -> Vec<SiteInstruction> {
        let count = (stop.addr() - start.addr()) / size_of::<Entry>();
        // SAFETY: the entries lie between the two addresses, as the caller guarantees.
        let entries = unsafe { std::slice::from_raw_parts(start, count) };
        entries
            .iter()
            .filter_map(|entry| {
                // SAFETY: an entry points to a SiteData, which lives as long as its object is
                // loaded.
                let meta = unsafe { meta_at(resolve_relative(&entry.meta_offset)) };
                if meta.is_control() || meta.version() != LAYOUT_VERSION {
                    return None;
                }
                let at = resolve_relative(&entry.instruction_offset).addr();
                let code_on = code_on(at as u64, target(entry))?;
                Some(SiteInstruction { instruction: Instruction { at, code_on }, meta })
            })
            .collect()
    }

    /// Converts an address stored relative to itself into a pointer.
    fn resolve_relative(distance: &i32) -> *const u8 {
        std::ptr::from_ref(distance).cast::<u8>().wrapping_offset(*distance as isize)
    }
}

#[cfg(all(
    any(target_arch = "aarch64", target_arch = "x86_64"),
    not(any(miri, handover_loom, feature = "flags"))
))]
pub(crate) use patched::{instructions_between, site_instructions};

/// Size in bytes of a [`SiteData`] without its texts.
const HEADER_BYTES: usize = 16;

/// Returns the site's data at the address `start`, including its texts.
///
/// # Safety
/// `start` is the address of a [`SiteData`], which lives for ever: a static of 16 + text_bytes
/// bytes (`SiteData::new`, and `HANDOVER_META_` in `handover_probe.h`) of an object that is never
/// unloaded.
#[must_use]
pub unsafe fn meta_at(start: *const u8) -> &'static SiteData {
    const { assert!(size_of::<SiteData<[u8; 0]>>() == HEADER_BYTES) };
    // SAFETY: a SiteData begins with a header of 16 bytes.
    let header = unsafe { &*start.cast::<SiteData<[u8; 0]>>() };
    let thin = std::ptr::slice_from_raw_parts(start, header.text_bytes());
    // SAFETY: the texts follow the header, as the caller guarantees. The pointer's metadata is the
    // length of the last field.
    unsafe { &*(thin as *const SiteData) }
}

/// Returns an empty vector. In this build sites are switched by flags, and register when they first
/// run.
#[cfg(not(all(
    any(target_arch = "aarch64", target_arch = "x86_64"),
    not(any(miri, handover_loom, feature = "flags"))
)))]
pub(crate) fn site_instructions() -> Vec<SiteInstruction> {
    Vec::new()
}
