//! Functions with USDT probes in the form of `<sys/sdt.h>`: a `nop`, and a note of its address in a
//! section that is not loaded. A tracer would replace the `nop` by a breakpoint.

use crate::probe::Sites;

macro_rules! usdt {
    ($($name:literal)*) => {$(
        // SAFETY: the only instruction is a nop; the note is in a section that is not loaded.
        unsafe {
            core::arch::asm!(
                "990: nop",
                ".pushsection .note.stapsdt,\"\",\"note\"",
                ".balign 4",
                ".4byte 992f-991f, 994f-993f, 3",
                "991: .asciz \"stapsdt\"",
                "992: .balign 4",
                // the address of the nop, that of the base, and no semaphore
                "993: .8byte 990b, _.stapsdt.base, 0",
                concat!(".asciz \"handover\", \"", $name, "\", \"\""),
                "994: .balign 4",
                ".popsection",
                ".ifndef _.stapsdt.base",
                ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat",
                ".weak _.stapsdt.base",
                ".hidden _.stapsdt.base",
                "_.stapsdt.base: .space 1",
                ".size _.stapsdt.base, 1",
                ".popsection",
                ".endif",
                options(nomem, nostack, preserves_flags),
            );
        }
    )*};
}

/// Floor: USDT probes, each a `nop` whose address is in an ELF note. On, each would be a trap into
/// the kernel, several microseconds; only their cost when off is compared.
pub(crate) struct Usdt;

impl Sites for Usdt {
    #[inline(never)]
    fn site(x: u64) -> u64 {
        usdt!("site");
        x.wrapping_add(1)
    }

    #[inline(never)]
    fn eight_sites(x: u64) -> u64 {
        usdt!("eight" "eight" "eight" "eight" "eight" "eight" "eight" "eight");
        x.wrapping_add(1)
    }

    #[inline(never)]
    fn span(x: u64) -> u64 {
        usdt!("enter");
        let y = x.wrapping_add(1);
        usdt!("leave");
        y
    }
}
