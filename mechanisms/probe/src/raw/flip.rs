//! Changing the first byte of a site while threads run through it.

use crate::Backend;
use handover_base::sync::shared::{AtomicU8, Ordering};
use rustix::mm::{MprotectFlags, mprotect};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

/// `test eax, imm32`.
const OFF: u8 = 0xa9;
/// `jmp rel32`.
const ON: u8 = 0xe9;
const PAGE_BYTES: usize = 4096;

const MEMBARRIER_SYNC_CORE: libc::c_int = 1 << 5;
const MEMBARRIER_REGISTER_SYNC_CORE: libc::c_int = 1 << 6;

/// What the instruction at `at`, one of this object's places, is at the moment; `None` if it is neither.
pub(crate) fn is_on(at: usize) -> Option<bool> {
    match byte(at).load(Ordering::Relaxed) {
        OFF => Some(false),
        ON => Some(true),
        _ => None,
    }
}

fn byte(at: usize) -> &'static AtomicU8 {
    // SAFETY: `at` comes from the section: an instruction of a loaded object, readable as code is. It
    // is read through an atomic, as another thread may be changing it.
    unsafe { AtomicU8::from_ptr(std::ptr::with_exposed_provenance_mut(at)) }
}

/// Turns the sites at `places` on or off, and returns when every thread sees it.
///
/// One byte changes and the four behind it are good for both instructions, so that a thread executes
/// either the one or the other. `/proc/self/mem` first, which needs no page to become writable; where
/// that is refused, `mprotect`.
pub(crate) fn write(places: &[usize], on: bool) -> io::Result<Backend> {
    let wanted: Vec<usize> = places.iter().copied().filter(|at| is_on(*at) == Some(!on)).collect();
    let opcode = if on { ON } else { OFF };
    let registered = register();
    let answer = match through_file(&wanted, opcode) {
        Ok(()) => Ok(Backend::ProcMem),
        Err(_) => through_mprotect(&wanted, opcode).map(|()| Backend::Mprotect),
    };
    if registered {
        membarrier(MEMBARRIER_SYNC_CORE);
    }
    answer
}

fn through_file(places: &[usize], opcode: u8) -> io::Result<()> {
    // Opened each time: a descriptor kept over a fork would lead into the parent's memory.
    let memory = File::options().read(true).write(true).open("/proc/self/mem")?;
    for at in places {
        memory.write_all_at(&[opcode], *at as u64)?;
    }
    Ok(())
}

fn through_mprotect(places: &[usize], opcode: u8) -> io::Result<()> {
    let mut places = places.to_vec();
    places.sort_unstable();
    for page in places.chunk_by(|a, b| a / PAGE_BYTES == b / PAGE_BYTES) {
        let start = std::ptr::with_exposed_provenance_mut(page[0] & !(PAGE_BYTES - 1));
        let executable = MprotectFlags::READ | MprotectFlags::EXEC;
        // SAFETY: a page of code, which stays readable and executable for whoever runs there.
        unsafe { mprotect(start, PAGE_BYTES, executable | MprotectFlags::WRITE) }?;
        for at in page {
            // Release: what was set up before is there for who jumps; x86 orders stores anyway.
            byte(*at).store(opcode, Ordering::Release);
        }
        // SAFETY: as above; code is never written without being made writable first.
        unsafe { mprotect(start, PAGE_BYTES, executable) }?;
    }
    Ok(())
}

/// Once a process, and inherited by its forks: the kernel wants to be told beforehand. Of a process with one
/// thread it takes that down at once; in one with several it waits until every CPU has noticed, tens of
/// milliseconds.
pub(crate) fn register() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| membarrier(MEMBARRIER_REGISTER_SYNC_CORE))
}

/// Makes every CPU that runs a thread of this process serialise, so that none executes what it fetched
/// before. Where the kernel has none, an x86 processor notices the store by itself, only later.
fn membarrier(command: libc::c_int) -> bool {
    if cfg!(miri) {
        return false;
    }
    // SAFETY: three integers, no memory.
    let answer = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    answer == 0
}
