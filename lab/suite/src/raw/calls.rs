//! The loops that build.rs compiled into archives, and functions that hide values from the
//! optimiser.

/// Declares the C functions of `c/` that make calls in a loop, compiled at -O0 and at -O3.
macro_rules! loops {
    ($($name:ident: $o0:ident $o3:ident;)*) => {
        // SAFETY: `c/` defines each function with this signature, and build.rs compiles it for both
        // levels. They access only their own stack; the pointer loop calls a safe function.
        unsafe extern "C" {
            $(safe fn $o0(n: u64) -> u64;
            safe fn $o3(n: u64) -> u64;)*
            pub(crate) safe fn handover_loop_pointer_o0(
                n: u64,
                next: extern "C" fn(u64) -> u64,
            ) -> u64;
            pub(crate) safe fn handover_loop_pointer_o3(
                n: u64,
                next: extern "C" fn(u64) -> u64,
            ) -> u64;
            pub(crate) safe fn handover_next_static_o0(i: u64) -> u64;
            pub(crate) safe fn handover_next_static_o3(i: u64) -> u64;
        }
        $(pub(crate) const $name: [extern "C" fn(u64) -> u64; 2] = [$o0, $o3];)*
    };
}

loops! {
    ALONE: handover_loop_alone_o0 handover_loop_alone_o3;
    INLINE: handover_loop_inline_o0 handover_loop_inline_o3;
    SAME_FILE: handover_loop_same_file_o0 handover_loop_same_file_o3;
    OTHER_OBJECT: handover_loop_other_object_o0 handover_loop_other_object_o3;
    STATIC: handover_loop_static_o0 handover_loop_static_o3;
    TWO_EXTRA: handover_loop_two_extra_o0 handover_loop_two_extra_o3;
    ONE_PROBE: handover_loop_one_probe_o0 handover_loop_one_probe_o3;
    TWO_PROBES: handover_loop_two_probes_o0 handover_loop_two_probes_o3;
    EMPTY: handover_loop_empty_o0 handover_loop_empty_o3;
    EMPTY_PROBE: handover_loop_empty_probe_o0 handover_loop_empty_probe_o3;
}

/// Returns `number`, hiding from the compiler that it is the same. Costs nothing, whereas
/// [`black_box`](std::hint::black_box) would store and load it.
#[inline(always)]
pub(crate) fn hide_value(mut number: u64) -> u64 {
    // SAFETY: the template has no instruction; the register keeps its value.
    unsafe {
        core::arch::asm!("/* {0} */", inout(reg) number, options(nomem, nostack, preserves_flags))
    };
    number
}

/// Returns `place`, hiding from the compiler that the reference is the same, like [`hide_value`].
#[inline(always)]
pub(crate) fn hide_reference<T>(place: &T) -> &T {
    let mut address: *const T = place;
    // SAFETY: the template has no instruction; the register keeps its value.
    unsafe {
        core::arch::asm!("/* {0} */", inout(reg) address, options(readonly, nostack, preserves_flags))
    };
    // SAFETY: still the address of `place`, which is borrowed for the returned lifetime.
    unsafe { &*address }
}
