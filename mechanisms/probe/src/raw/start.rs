//! Entry point before `main`.

/// Installs the hooks and reads HANDOVER_TRACE, before `main` or when the shared object is loaded.
///
/// It only switches sites: threads and files wait for the first event, as a loader holds locks.
#[cfg(not(any(miri, handover_loom)))]
// SAFETY: the loader calls the functions in this section, with arguments that a C function may
// ignore.
#[unsafe(link_section = ".init_array")]
#[used]
static START: extern "C" fn() = start;

#[cfg(not(any(miri, handover_loom)))]
extern "C" fn start() {
    crate::startup::run();
}
