//! Functions with USDT probes as `<sys/sdt.h>` makes them: a `nop`, and a note in a section that is not
//! loaded, which says where it stands. A tracer would put a breakpoint in the `nop`'s place.

macro_rules! usdt {
    ($name:literal) => {
        // SAFETY: a nop; the note beside it lies in a section that nobody loads.
        unsafe {
            core::arch::asm!(
                "990: nop",
                ".pushsection .note.stapsdt,\"\",\"note\"",
                ".balign 4",
                ".4byte 992f-991f, 994f-993f, 3",
                "991: .asciz \"stapsdt\"",
                "992: .balign 4",
                // where it stands, where the base does, and no semaphore
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
    };
}

#[inline(never)]
pub(crate) fn site(x: u64) -> u64 {
    usdt!("site");
    x.wrapping_add(1)
}

#[inline(never)]
pub(crate) fn eight(x: u64) -> u64 {
    usdt!("eight");
    usdt!("eight");
    usdt!("eight");
    usdt!("eight");
    usdt!("eight");
    usdt!("eight");
    usdt!("eight");
    usdt!("eight");
    x.wrapping_add(1)
}

#[inline(never)]
pub(crate) fn span(x: u64) -> u64 {
    usdt!("enter");
    let y = x.wrapping_add(1);
    usdt!("leave");
    y
}
