//! Switch between stacks on x86_64.

use super::context::{Context, EntryFn, STACK_POINTER_OFFSET};

/// Registers at the lower end of a suspended stack, from the lowest address on: the address to
/// continue at, RBX and RBP. In a stack that has not started, a return address of zero follows.
pub(super) type Frame = [usize; 4];

/// Returns the frame with which a context starts in `entry`. The return address and frame pointer
/// are zero, at which debuggers and unwinders end a backtrace.
#[inline]
pub(super) fn first_frame(entry: EntryFn) -> Frame {
    [entry as usize, 0, 0, 0]
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
    // SAFETY: the instructions save and restore RSP, RBP and RBX; all other registers are operands
    // or declared as changed. The caller guarantees that both contexts and the stack of `to` are
    // valid.
    unsafe {
        std::arch::asm!(
            // LLVM reserves these two, so that they cannot be declared as changed.
            "push rbp",
            "push rbx",
            // The address to continue at.
            "lea rax, [rip + 2f]",
            "push rax",
            "mov [rdi + {stack_pointer}], rsp",
            // From here on, this is the other stack.
            "mov rsp, [rdx + {stack_pointer}]",
            "pop rax",
            "pop rbx",
            "pop rbp",
            // To the label below, in this or another inlined copy, or to the start of a function of
            // type EntryFn. RDI, RSI and RDX are the arguments of that function; otherwise the
            // first two are the results.
            "jmp rax",
            "2:",
            stack_pointer = const STACK_POINTER_OFFSET,
            inlateout("rdi") from => suspended,
            inlateout("rsi") request => received,
            in("rdx") to,
            lateout("r12") _, lateout("r13") _, lateout("r14") _, lateout("r15") _,
            clobber_abi("sysv64"),
        );
    }
    (suspended, received)
}
