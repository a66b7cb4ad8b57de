//! Entry point before `main`.

/// Installs the fork and exit handlers and reads HANDOVER_TRACE, before `main` or when the shared
/// object is loaded.
///
/// It only switches sites: threads and files wait for the first event, as a loader holds locks.
#[cfg(not(any(miri, handover_loom)))]
// SAFETY: the loader calls the functions in this section, with arguments that a C function may
// ignore.
#[unsafe(link_section = ".init_array")]
#[used]
static INIT_ARRAY_ENTRY: extern "C" fn() = run_before_main;

#[cfg(not(any(miri, handover_loom)))]
extern "C" fn run_before_main() {
    crate::startup::install_and_enable();
}

/// Registers the sites of another object: C code with `handover_probe.h`. Patterns that were
/// switched on before apply to them.
///
/// # Safety
/// The linker placed entries, as the header's macros write them, between the two addresses, in a
/// read-only section of an object that is never unloaded.
#[cfg(all(
    any(target_arch = "aarch64", target_arch = "x86_64"),
    not(any(miri, handover_loom, feature = "flags"))
))]
pub unsafe fn register_section(start: *const core::ffi::c_void, stop: *const core::ffi::c_void) {
    // SAFETY: the caller guarantees what the function demands.
    let instructions = unsafe { super::section::instructions_between(start.cast(), stop.cast()) };
    crate::registry::register_instructions(instructions);
    crate::recording::write_new_sites();
}

/// Does nothing, because this build has no patched instructions to register.
///
/// # Safety
/// None is needed.
#[cfg(not(all(
    any(target_arch = "aarch64", target_arch = "x86_64"),
    not(any(miri, handover_loom, feature = "flags"))
)))]
pub unsafe fn register_section(_start: *const core::ffi::c_void, _stop: *const core::ffi::c_void) {}
