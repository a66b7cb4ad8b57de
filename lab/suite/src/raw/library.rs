//! Functions of the C library, called as in a C program.

use core::ffi::CStr;

/// Returns the calling thread's pthread id.
#[inline(always)]
pub(crate) fn pthread_self() -> libc::pthread_t {
    // SAFETY: pthread_self takes no arguments and only reads the calling thread's own data.
    unsafe { libc::pthread_self() }
}

/// Returns the kernel's id of the calling thread.
#[inline(always)]
pub(crate) fn gettid() -> libc::pid_t {
    // SAFETY: it takes nothing and touches no memory.
    unsafe { libc::gettid() }
}

/// Returns `true` if the environment has this variable.
#[inline(always)]
pub(crate) fn getenv(name: &CStr) -> bool {
    // SAFETY: `name` ends in a zero byte; the result is only compared with null. By the contract of
    // set_var, no thread changes the environment while another may read it.
    !unsafe { libc::getenv(name.as_ptr()) }.is_null()
}

/// Makes the C library return free heap memory to the kernel.
#[cfg(feature = "peers")]
pub(crate) fn trim_heap() {
    // SAFETY: malloc_trim takes a number and releases only free memory.
    unsafe { libc::malloc_trim(0) };
}
