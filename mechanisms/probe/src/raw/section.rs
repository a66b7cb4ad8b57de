//! The link section in which this object's sites are listed.
//!
//! Each entry is two 32-bit distances from themselves: to the instruction, and to the site's [`Meta`].
//! So the section needs no relocation when the program is loaded, and lies in read-only memory.

use crate::site::Meta;

/// One place in the code where a site was compiled in; a site that is inlined or unrolled has several.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// The instruction's address.
    pub at: usize,
    pub meta: &'static Meta,
}

#[cfg(all(target_arch = "x86_64", not(any(miri, handover_loom, feature = "flags"))))]
mod patched {
    use super::Place;
    use crate::remote::{CONTROL, CONTROL_BYTES};
    use crate::site::{LAYOUT_VERSION, Meta};

    /// As the macro writes it.
    #[repr(C)]
    struct Entry {
        at: i32,
        meta: i32,
    }

    /// Bytes of a Meta before its texts.
    const HEADER_BYTES: usize = 16;

    fn bounds() -> (*const Entry, *const Entry) {
        let (start, stop): (*const Entry, *const Entry);
        // SAFETY: two address computations. The entry that it adds makes the section exist, so that the
        // linker defines both symbols; hidden, as each object has a section of its own.
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

    /// Every place of this object, but for the control's.
    #[inline(never)]
    pub(crate) fn places() -> Vec<Place> {
        const { assert!(CONTROL_BYTES > 0) };
        let (start, stop) = bounds();
        let count = (stop.addr() - start.addr()) / size_of::<Entry>();
        // SAFETY: the linker laid the entries of this object between the two symbols, each of them
        // aligned to 4 and 8 bytes long, and nobody writes there.
        let entries = unsafe { std::slice::from_raw_parts(start, count) };
        entries
            .iter()
            .map(|entry| Place {
                at: absolute(&entry.at).addr(),
                meta: meta(absolute(&entry.meta)),
            })
            .filter(|place| !place.meta.is_control() && place.meta.version() == LAYOUT_VERSION)
            .collect()
    }

    /// Where a distance leads.
    fn absolute(distance: &i32) -> *const u8 {
        std::ptr::from_ref(distance).cast::<u8>().wrapping_offset(*distance as isize)
    }

    /// The Meta at `start`, with its texts.
    fn meta(start: *const u8) -> &'static Meta {
        // SAFETY: an entry leads to a Meta, which begins with its header of 16 bytes.
        let header = unsafe { &*start.cast::<Meta<[u8; 0]>>() };
        let text_bytes = header.text_bytes();
        let thin = std::ptr::slice_from_raw_parts(start, text_bytes);
        const { assert!(size_of::<Meta<[u8; 0]>>() == HEADER_BYTES) };
        // SAFETY: header and texts are one static, of 16 + text_bytes bytes (Meta::new), and live as
        // long as the object is loaded. A pointer to it has the length of its last field.
        unsafe { &*(thin as *const Meta) }
    }
}

#[cfg(all(target_arch = "x86_64", not(any(miri, handover_loom, feature = "flags"))))]
pub(crate) use patched::places;

/// There is no section in the flag form: sites make themselves known when they first run.
#[cfg(not(all(target_arch = "x86_64", not(any(miri, handover_loom, feature = "flags")))))]
pub(crate) fn places() -> Vec<Place> {
    Vec::new()
}
