//! Context of suspended code, which the switches of all processors have in common.

use crate::raw::queue::ListLink;
use std::cell::Cell;
use std::mem::offset_of;

/// Code that is suspended, or is to be suspended by a switch: a fiber or a worker.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Context {
    /// Link to the next fiber in a run queue or inbox; unused in the context of a worker. The first
    /// field, so that a fiber's link and its context have the same address.
    link: ListLink,
    /// Address of the saved registers, on the suspended stack.
    stack_pointer: Cell<*mut u8>,
}

/// Offset of the stack pointer in a [`Context`], for the assembly.
pub(super) const STACK_POINTER_OFFSET: usize = offset_of!(Context, stack_pointer);

/// Function with which a new context starts. Its arguments are the context that the switch has
/// suspended, the request of the switch, and the new context.
pub(super) type EntryFn = extern "C" fn(*const Context, *mut (), *const Context) -> !;

impl Context {
    /// Creates the context of code that is running.
    pub(crate) fn of_running() -> Self {
        Self::with_stack_pointer(std::ptr::null_mut())
    }

    /// Creates the context of code whose registers were saved at `stack_pointer`.
    #[inline]
    pub(super) fn with_stack_pointer(stack_pointer: *mut u8) -> Self {
        Self { link: ListLink::new(), stack_pointer: Cell::new(stack_pointer) }
    }

    /// Returns the lowest address of the suspended stack that is in use.
    #[inline]
    pub(crate) fn stack_pointer(&self) -> *const u8 {
        self.stack_pointer.get()
    }
}
