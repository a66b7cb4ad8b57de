//! Switch between stacks on aarch64.

use super::context::{Context, EntryFn, STACK_POINTER_OFFSET};

/// Registers at the lower end of a suspended stack, from the lowest address on: X19, X29 (the frame
/// pointer), the address to continue at, and X30 (the return address), which is of use only to a
/// stack that has not started.
pub(super) type Frame = [usize; 4];

/// Returns the frame with which a context starts in `entry`. The return address and frame pointer
/// are zero, at which debuggers and unwinders end a backtrace.
#[inline]
pub(super) fn first_frame(entry: EntryFn) -> Frame {
    [0, 0, entry as usize, 0]
}

/// Switches from one context to another.
///
/// # Safety
/// The requirements of [`switch`](super::switch).
#[inline(always)]
pub(super) unsafe fn switch(
    from: *const Context,
    to: *const Context,
    request: *mut (),
) -> (*const Context, *mut ()) {
    let (suspended, received): (*const Context, *mut ());
    // SAFETY: the instructions save and restore SP, X19 and X29; all other registers are operands
    // or declared as changed. The caller guarantees that both contexts and the stack of `to` are
    // valid.
    unsafe {
        std::arch::asm!(
            // LLVM reserves these two, so that they cannot be declared as changed.
            "stp x19, x29, [sp, #-32]!",
            // The address to continue at.
            "adr x9, 2f",
            "str x9, [sp, #16]",
            "mov x9, sp",
            "str x9, [x0, #{stack_pointer}]",
            "ldr x9, [x2, #{stack_pointer}]",
            "ldp x19, x29, [x9]",
            "ldp x10, x30, [x9, #16]",
            // From here on, this is the other stack.
            "add sp, x9, #32",
            // To the label below, in this or another inlined copy, or to the start of a function of
            // type EntryFn. X0, X1 and X2 are the arguments of that function; otherwise the first
            // two are the results.
            "br x10",
            "2:",
            stack_pointer = const STACK_POINTER_OFFSET,
            inlateout("x0") from => suspended,
            inlateout("x1") request => received,
            in("x2") to,
            lateout("x20") _, lateout("x21") _, lateout("x22") _, lateout("x23") _,
            lateout("x24") _, lateout("x25") _, lateout("x26") _, lateout("x27") _,
            lateout("x28") _,
            clobber_abi("C"),
        );
    }
    (suspended, received)
}
