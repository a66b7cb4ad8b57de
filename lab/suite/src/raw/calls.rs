//! The loops that build.rs compiled into archives, and an optimiser's blindfold.

// SAFETY: each is defined with this signature in `c/`, and build.rs compiles it for both levels. They
// touch no memory but their own stack; what a pointer loop is given is safe to call with any number.
unsafe extern "C" {
    pub(crate) safe fn handover_loop_alone_o0(n: u64) -> u64;
    pub(crate) safe fn handover_loop_alone_o3(n: u64) -> u64;
    pub(crate) safe fn handover_loop_inline_o0(n: u64) -> u64;
    pub(crate) safe fn handover_loop_inline_o3(n: u64) -> u64;
    pub(crate) safe fn handover_loop_same_file_o0(n: u64) -> u64;
    pub(crate) safe fn handover_loop_same_file_o3(n: u64) -> u64;
    pub(crate) safe fn handover_loop_other_object_o0(n: u64) -> u64;
    pub(crate) safe fn handover_loop_other_object_o3(n: u64) -> u64;
    pub(crate) safe fn handover_loop_static_o0(n: u64) -> u64;
    pub(crate) safe fn handover_loop_static_o3(n: u64) -> u64;
    pub(crate) safe fn handover_loop_two_extra_o0(n: u64) -> u64;
    pub(crate) safe fn handover_loop_two_extra_o3(n: u64) -> u64;
    pub(crate) safe fn handover_loop_one_probe_o0(n: u64) -> u64;
    pub(crate) safe fn handover_loop_one_probe_o3(n: u64) -> u64;
    pub(crate) safe fn handover_loop_two_probes_o0(n: u64) -> u64;
    pub(crate) safe fn handover_loop_two_probes_o3(n: u64) -> u64;
    pub(crate) safe fn handover_loop_empty_o0(n: u64) -> u64;
    pub(crate) safe fn handover_loop_empty_o3(n: u64) -> u64;
    pub(crate) safe fn handover_loop_empty_probe_o0(n: u64) -> u64;
    pub(crate) safe fn handover_loop_empty_probe_o3(n: u64) -> u64;
    pub(crate) safe fn handover_loop_pointer_o0(n: u64, next: extern "C" fn(u64) -> u64) -> u64;
    pub(crate) safe fn handover_loop_pointer_o3(n: u64, next: extern "C" fn(u64) -> u64) -> u64;
    pub(crate) safe fn handover_next_static_o0(i: u64) -> u64;
    pub(crate) safe fn handover_next_static_o3(i: u64) -> u64;
}

/// The same number, of which the compiler no longer knows anything. Costs nothing, where
/// [`black_box`](std::hint::black_box) would store it and load it again.
#[inline(always)]
pub(crate) fn forget(mut number: u64) -> u64 {
    // SAFETY: no instruction at all; the register keeps what it holds.
    unsafe {
        core::arch::asm!("/* {0} */", inout(reg) number, options(nomem, nostack, preserves_flags))
    };
    number
}

/// The same reference, of which the compiler no longer knows what it refers to; as [`forget`].
#[inline(always)]
pub(crate) fn forget_place<T>(place: &T) -> &T {
    let mut address: *const T = place;
    // SAFETY: no instruction at all; the register keeps what it holds.
    unsafe {
        core::arch::asm!("/* {0} */", inout(reg) address, options(readonly, nostack, preserves_flags))
    };
    // SAFETY: still the address of `place`, borrowed for as long.
    unsafe { &*address }
}
