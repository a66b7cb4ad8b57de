//! Faults and signals that are no stack overflows.

use std::hint::black_box;

/// Sends SIGSEGV to the calling thread. If the signal does not end the process, it has been handled
/// when the call returns.
pub fn send_sigsegv_to_this_thread() {
    // SAFETY: the call takes no pointers.
    assert_eq!(unsafe { libc::raise(libc::SIGSEGV) }, 0);
}

/// Makes this process ignore SIGSEGV.
pub fn ignore_sigsegv() {
    // SAFETY: SIG_IGN installs no function of this program.
    let before = unsafe { libc::signal(libc::SIGSEGV, libc::SIG_IGN) };
    assert_ne!(before, libc::SIG_ERR);
}

/// Returns an address in the frame of this function.
#[inline(never)]
pub fn address_in_frame() -> usize {
    let local = black_box(0u8);
    (&raw const local).expose_provenance()
}

/// Writes a byte to an address that is in a guard, which ends the process.
#[inline(never)]
pub fn write_to(address: usize) {
    let at = std::ptr::with_exposed_provenance_mut::<u8>(address);
    // SAFETY: the page is a guard: the access faults, and the program does not continue.
    unsafe { at.write_volatile(black_box(1)) };
}
