//! The shared objects linked by build.rs, embedded and loaded through memory files, so that a
//! program that is moved or copied still finds them.

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Write};
use std::sync::OnceLock;

/// Bytes of the shared object with the called functions. It is loaded first, so that the loader
/// finds it by its soname.
pub(crate) const CALLEE_OBJECT: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/libhandover_callee.so"));
/// Bytes of the shared object with the loops that call the functions in [`CALLEE_OBJECT`].
pub(crate) const CALLER_OBJECT: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/libhandover_caller.so"));

type CallLoop = extern "C" fn(u64) -> u64;

/// The loops of [`CALLER_OBJECT`], each at -O0 and at -O3.
#[derive(Debug)]
pub(crate) struct CallLoops {
    pub(crate) plt: [CallLoop; 2],
    pub(crate) no_plt: [CallLoop; 2],
    pub(crate) empty_plt: [CallLoop; 2],
    /// Descriptors of the loaded objects, kept open. The loader identifies objects by descriptor
    /// number, and would confuse another file under the same number with one of them.
    _files: [OwnedFd; 2],
}

/// Returns the loops of [`CALLER_OBJECT`], loaded on first use and never unloaded; fails with the
/// loader's message.
pub(crate) fn load_loops() -> Result<&'static CallLoops, &'static str> {
    static LOADED: OnceLock<Result<CallLoops, String>> = OnceLock::new();
    LOADED.get_or_init(load_objects).as_ref().map_err(String::as_str)
}

fn load_objects() -> Result<CallLoops, String> {
    if cfg!(target_feature = "crt-static") {
        return Err("a static program cannot load shared objects".to_owned());
    }
    let (callee, callee_file) = load_object("libhandover_callee.so", CALLEE_OBJECT)?;
    let (caller, caller_file) = load_object("libhandover_caller.so", CALLER_OBJECT)?;
    let found = |name: &str| {
        // SAFETY: c/elsewhere.c and c/empty_elsewhere.c define every loop of this object with this
        // signature.
        let symbol = unsafe { caller.get::<CallLoop>(name) };
        symbol.map(|it| *it).map_err(|error| format!("cannot find the function {name}: {error}"))
    };
    let loops = CallLoops {
        plt: [found("handover_loop_plt_o0")?, found("handover_loop_plt_o3")?],
        no_plt: [found("handover_loop_no_plt_o0")?, found("handover_loop_no_plt_o3")?],
        empty_plt: [found("handover_loop_empty_plt_o0")?, found("handover_loop_empty_plt_o3")?],
        _files: [callee_file, caller_file],
    };
    // Never unloaded: a loop may be called at any time.
    let _ = (callee.into_raw(), caller.into_raw());
    Ok(loops)
}

fn load_object(name: &str, bytes: &[u8]) -> Result<(Library, OwnedFd), String> {
    let file = create_memory_file(name, bytes)
        .map_err(|error| format!("cannot write {name} to a memory file: {error}"))?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    // SAFETY: the file is the object that build.rs linked from c/, which has neither constructors
    // nor destructors.
    let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) };
    Ok((library.map_err(|error| format!("cannot load the library {name}: {error}"))?, file))
}

fn create_memory_file(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create(name, MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file.into())
}
