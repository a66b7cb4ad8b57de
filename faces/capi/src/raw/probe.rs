//! Probes of C code: the sites of `handover_probe.h`, switched and recorded by this library.

use super::handle::{guard, put, require, text};
use crate::status::{Fault, handover_status};
use handover_probe::__private::{
    meta_at, record, record_1, record_2, record_leave, register_section,
};
use handover_probe::{Config, Recording, StartError, SwitchError, disable, enable};
use std::ffi::{c_char, c_void};
use std::hint::black_box;
use std::mem::MaybeUninit;

use handover_status::*;

/// Recording of this process's events; opaque.
pub struct handover_probe_recording {
    recording: Recording,
}

/// Summary of a finished recording.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct handover_probe_summary {
    /// Number of events in the file.
    pub recorded: u64,
    /// Number of events that were lost.
    pub lost: u64,
    /// Number of threads that recorded.
    pub threads_count: u64,
    /// Length of the file in bytes.
    pub bytes: u64,
}

fn switch_fault(error: SwitchError) -> Fault {
    HANDOVER_SYSTEM.because(error)
}

/// Switches on the probes whose names match `pattern` (`*` and `?`, commas for "or", `-` for "but
/// not"); the number of sites that match goes to `sites_count`, unless that is null.
///
/// When it returns, every thread records their events, if there is a recording.
///
/// Errors: `HANDOVER_SYSTEM` if the process may not change its code, or for too many sites.
/// Threads: any. Blocking: some 10 us, and while another thread switches.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn handover_probe_enable(
    pattern: *const c_char,
    sites_count: Option<&mut MaybeUninit<usize>>,
) -> handover_status {
    guard(|| {
        // SAFETY: the header demands a string that ends with a zero byte.
        let pattern = unsafe { text("pattern", pattern) }?;
        put(sites_count, enable(pattern).map_err(switch_fault)?);
        Ok(())
    })
}

/// Switches off the probes whose names match `pattern`, as `handover_probe_enable` switches them
/// on. A thread that is executing one of them may still record its event.
///
/// Errors, threads and blocking: as `handover_probe_enable`.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn handover_probe_disable(
    pattern: *const c_char,
    sites_count: Option<&mut MaybeUninit<usize>>,
) -> handover_status {
    guard(|| {
        // SAFETY: the header demands a string that ends with a zero byte.
        let pattern = unsafe { text("pattern", pattern) }?;
        put(sites_count, disable(pattern).map_err(switch_fault)?);
        Ok(())
    })
}

/// Starts to record the events of all probes that are on, now or later, into the trace `path`; one
/// recording at a time for each process.
///
/// If `is_stream` is not 0, all events are kept; otherwise each thread's newest 130,000.
///
/// Errors: `HANDOVER_BUSY` if a recording is running; `HANDOVER_SYSTEM` if the file cannot be
/// created. Threads: any. Blocking: some 10 ms for the first one. Ownership: the caller finishes
/// the recording.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn handover_probe_start(
    path: *const c_char,
    is_stream: u32,
    recording: Option<&mut MaybeUninit<Option<Box<handover_probe_recording>>>>,
) -> handover_status {
    guard(|| {
        let place = require("recording", recording)?;
        // SAFETY: the header demands a string that ends with a zero byte.
        let path = unsafe { text("path", path) }?;
        let config = if is_stream != 0 { Config::stream(path) } else { Config::last(path) };
        let recording = Recording::start(config).map_err(|error| match error {
            StartError::AlreadyRunning { .. } => HANDOVER_BUSY.because(error),
            StartError::OutOfRange(_) => HANDOVER_INVALID_ARGUMENT.because(error),
            _ => HANDOVER_SYSTEM.because(error),
        })?;
        // Weak references of C do not make a linker take these functions from the static library;
        // these do.
        black_box((handover_probe_register as *const (), handover_probe_record as *const ()));
        place.write(Some(Box::new(handover_probe_recording { recording })));
        Ok(())
    })
}

/// Stops a recording and writes all events that are not written yet; its summary goes to `summary`,
/// unless that is null, also if writing failed.
///
/// Errors: `HANDOVER_SYSTEM` for the first error of writing. Threads: any, while no other thread
/// uses this handle. Blocking: until all events are written. Ownership: the handle is invalid
/// afterwards, after an error too.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_probe_finish(
    recording: Option<Box<handover_probe_recording>>,
    summary: Option<&mut MaybeUninit<handover_probe_summary>>,
) -> handover_status {
    guard(|| {
        let it = require("recording", recording)?.recording.finish();
        let (recorded, lost, threads_count, bytes) =
            (it.recorded, it.lost, it.threads_count, it.bytes);
        put(summary, handover_probe_summary { recorded, lost, threads_count, bytes });
        match it.failure {
            Some(failure) => {
                Err(HANDOVER_SYSTEM.because(format_args!("{}: {failure}", it.path.display())))
            }
            None => Ok(()),
        }
    })
}

/// Value of `form` for an event that ends a span, as in `handover_probe.h`.
const FORM_LEAVE: u32 = 3;

/// Records an event of a site of `handover_probe.h`. Called by its macros while the site is on.
// SAFETY: no other symbol has this name: libhandover-trace.so, which has it too, is loaded instead
// of this library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn handover_probe_record(
    meta: *const c_void,
    form: u32,
    first: u64,
    second: u64,
) {
    guard(|| {
        // SAFETY: the macros pass the address of a site's data, which lives as long as its object
        // is loaded.
        let meta = unsafe { meta_at(meta.cast()) };
        match form {
            FORM_LEAVE => record_leave(meta),
            2 => record_2(meta, first, second),
            1 => record_1(meta, first),
            _ => record(meta),
        }
        Ok(())
    });
}

/// Registers the sites of an object, which then stays loaded. Called by `handover_probe.h` before
/// `main`, or when a shared object is loaded.
// SAFETY: no other symbol has this name: libhandover-trace.so, which has it too, is loaded instead
// of this library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn handover_probe_register(start: *const c_void, stop: *const c_void) {
    guard(|| {
        keep_loaded(start);
        // SAFETY: the header passes the bounds of its object's section, and the object stays
        // loaded.
        unsafe { register_section(start, stop) };
        Ok(())
    });
}

/// Adds a reference to the object that contains `address`, so that `dlclose` does not unload it.
/// The loader finds no object with the name of the program, which is never unloaded.
fn keep_loaded(address: *const c_void) {
    let mut object = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: dladdr only compares the address; it writes the structure if it returns another
    // number than 0.
    if unsafe { libc::dladdr(address, object.as_mut_ptr()) } == 0 {
        return;
    }
    // SAFETY: dladdr returned another number than 0.
    let name = unsafe { object.assume_init() }.dli_fname;
    // SAFETY: the name is a string of the loader, which lives as long as the object; RTLD_NOLOAD
    // loads nothing.
    unsafe { libc::dlopen(name, libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE) };
}
