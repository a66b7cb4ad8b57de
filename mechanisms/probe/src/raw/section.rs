//! The link section in which this object's sites are listed.
//!
//! Each entry is two 32-bit addresses relative to themselves: of the instruction, and of the site's
//! [`Meta`]. The section thus needs no relocation when the program is loaded, and is read-only.

use crate::site::Meta;

/// One instruction of a probe site; a site that is inlined or unrolled has several.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SiteInstruction {
    /// Address of the instruction.
    pub at: usize,
    pub meta: &'static Meta,
}

#[cfg(all(target_arch = "x86_64", not(any(miri, handover_loom, feature = "flags"))))]
mod patched {
    use super::SiteInstruction;
    use crate::site::{CONTROL, CONTROL_BYTES, LAYOUT_VERSION, Meta};

    /// Entry of the section, in the layout that the macro writes.
    #[repr(C)]
    struct Entry {
        at: i32,
        meta: i32,
    }

    /// Size of a site's [`Meta`] before its texts.
    const HEADER_BYTES: usize = 16;

    fn bounds() -> (*const Entry, *const Entry) {
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
    pub(crate) fn instructions() -> Vec<SiteInstruction> {
        const { assert!(CONTROL_BYTES > 0) };
        let (start, stop) = bounds();
        let count = (stop.addr() - start.addr()) / size_of::<Entry>();
        // SAFETY: the linker placed this object's entries between the two symbols, each aligned to
        // 4 bytes and 8 bytes long, in a read-only section.
        let entries = unsafe { std::slice::from_raw_parts(start, count) };
        entries
            .iter()
            .map(|entry| SiteInstruction {
                at: absolute(&entry.at).addr(),
                meta: meta(absolute(&entry.meta)),
            })
            .filter(|place| !place.meta.is_control() && place.meta.version() == LAYOUT_VERSION)
            .collect()
    }

    /// Converts an address stored relative to itself into a pointer.
    fn absolute(distance: &i32) -> *const u8 {
        std::ptr::from_ref(distance).cast::<u8>().wrapping_offset(*distance as isize)
    }

    /// Returns the site's data at `start`, including its texts.
    fn meta(start: *const u8) -> &'static Meta {
        // SAFETY: an entry points to a Meta, which begins with a header of 16 bytes.
        let header = unsafe { &*start.cast::<Meta<[u8; 0]>>() };
        let text_bytes = header.text_bytes();
        let thin = std::ptr::slice_from_raw_parts(start, text_bytes);
        const { assert!(size_of::<Meta<[u8; 0]>>() == HEADER_BYTES) };
        // SAFETY: header and texts are one static of 16 + text_bytes bytes (Meta::new), which lives
        // as long as the object is loaded. The pointer's metadata is the length of the last field.
        unsafe { &*(thin as *const Meta) }
    }
}

#[cfg(all(target_arch = "x86_64", not(any(miri, handover_loom, feature = "flags"))))]
pub(crate) use patched::instructions;

/// Returns an empty vector: sites without patched code are not in the section, and register when they first run.
#[cfg(not(all(target_arch = "x86_64", not(any(miri, handover_loom, feature = "flags")))))]
pub(crate) fn instructions() -> Vec<SiteInstruction> {
    Vec::new()
}
