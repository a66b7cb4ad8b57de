//! Patching of a site's first byte while threads execute it.
//!
//! **One byte is stored, and no breakpoint is needed.** Where instructions of several bytes change,
//! a thread may fetch some of the old and some of the new bytes; the kernel's `text_poke` therefore
//! puts an `int3` over the first byte, changes the others while no thread can get past it, and then
//! writes the new first byte. This relies on one fact: a thread sees a store of one byte of code
//! whole or not at all, so that it executes the old instruction or the new one. Here only the first
//! byte changes: both instructions are five bytes long, with the same four bytes behind the opcode,
//! so that the first of the kernel's steps is the whole change. For the moment at which each CPU
//! sees it, `membarrier(SYNC_CORE)` makes every CPU that runs the process execute a serialising
//! instruction, before switching returns.

use crate::backend::Backend;
use handover_base::sync::shared::{AtomicU8, Ordering};
use rustix::mm::{MprotectFlags, mprotect};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

/// Opcode of a site that is off: `test eax, imm32`.
const OPCODE_OFF: u8 = 0xa9;
/// Opcode of a site that is on: `jmp rel32`.
const OPCODE_ON: u8 = 0xe9;
const PAGE_BYTES: usize = 4096;

const MEMBARRIER_SYNC_CORE: libc::c_int = 1 << 5;
const MEMBARRIER_REGISTER_SYNC_CORE: libc::c_int = 1 << 6;

/// Returns `true` if the site with the instruction at address `at` is on. Returns `None` if there
/// is no site at this address.
pub(crate) fn is_site_on(at: usize) -> Option<bool> {
    match code_byte(at).load(Ordering::Relaxed) {
        OPCODE_OFF => Some(false),
        OPCODE_ON => Some(true),
        _ => None,
    }
}

fn code_byte(at: usize) -> &'static AtomicU8 {
    // SAFETY: `at` is the address of an instruction of a loaded object, from its section of sites,
    // and code is readable. The access is atomic, as another thread may be patching the byte.
    unsafe { AtomicU8::from_ptr(std::ptr::with_exposed_provenance_mut(at)) }
}

/// Switches the sites at `addresses` on or off, all or none. Returns the method used, once every
/// thread sees the change.
///
/// Writes through `/proc/self/mem`, which needs no writable page; if that fails, after `mprotect`.
pub(crate) fn switch_sites(addresses: &[usize], on: bool) -> io::Result<Backend> {
    let wanted: Vec<usize> =
        addresses.iter().copied().filter(|at| is_site_on(*at) == Some(!on)).collect();
    let opcode = if on { OPCODE_ON } else { OPCODE_OFF };
    register_for_membarrier();
    let answer = match write_through_proc_mem(&wanted, opcode) {
        Ok(()) => Ok(Backend::ProcMem),
        Err(_) => write_after_mprotect(&wanted, opcode).map(|()| Backend::Mprotect),
    };
    // Fails under a seccomp filter or an older kernel: an x86 processor then sees the stores
    // without it, only later.
    membarrier(MEMBARRIER_SYNC_CORE);
    answer
}

/// Returns the opcode that a site has before it is changed to `opcode`.
fn previous_opcode(opcode: u8) -> u8 {
    if opcode == OPCODE_ON { OPCODE_OFF } else { OPCODE_ON }
}

/// Writes `opcode` to all addresses through `/proc/self/mem`; on an error, to none.
fn write_through_proc_mem(addresses: &[usize], opcode: u8) -> io::Result<()> {
    // Opened each time: after a fork, a descriptor from before would lead to the parent's memory.
    let memory = File::options().read(true).write(true).open("/proc/self/mem")?;
    for (done, at) in addresses.iter().enumerate() {
        memory.write_all_at(&[opcode], *at as u64).inspect_err(|_| {
            for at in &addresses[..done] {
                // The write above succeeded for this place. If this one fails, the site is reported
                // as on or off by its opcode.
                let _ = memory.write_all_at(&[previous_opcode(opcode)], *at as u64);
            }
        })?;
    }
    Ok(())
}

/// Writes `opcode` to all addresses after `mprotect`; on an error, to none.
fn write_after_mprotect(addresses: &[usize], opcode: u8) -> io::Result<()> {
    let mut addresses = addresses.to_vec();
    addresses.sort_unstable();
    let pages: Vec<&[usize]> =
        addresses.chunk_by(|a, b| a / PAGE_BYTES == b / PAGE_BYTES).collect();
    for (done, page) in pages.iter().enumerate() {
        write_page(page, opcode).inspect_err(|_| {
            for page in &pages[..done] {
                // The change above succeeded for this page; if undoing it fails, its sites are
                // reported as they are.
                let _ = write_page(page, previous_opcode(opcode));
            }
        })?;
    }
    Ok(())
}

/// Writes `opcode` to all addresses, which lie in one page; on an error, to none.
fn write_page(addresses: &[usize], opcode: u8) -> io::Result<()> {
    let start = std::ptr::with_exposed_provenance_mut(addresses[0] & !(PAGE_BYTES - 1));
    let executable = MprotectFlags::READ | MprotectFlags::EXEC;
    // Release: orders what was set up before in front of the patch, for threads that take the jump;
    // x86 does not reorder stores.
    let store =
        |opcode| addresses.iter().for_each(|at| code_byte(*at).store(opcode, Ordering::Release));
    // SAFETY: the range is one page of code of a loaded object, and stays readable and executable.
    unsafe { mprotect(start, PAGE_BYTES, executable | MprotectFlags::WRITE) }?;
    store(opcode);
    // SAFETY: the same page as above, readable and executable again; every writer of code makes the
    // page writable first.
    let protected = unsafe { mprotect(start, PAGE_BYTES, executable) };
    Ok(protected.inspect_err(|_| store(previous_opcode(opcode)))?)
}

/// Registers the process for `membarrier(SYNC_CORE)`, once; returns `false` if the kernel refuses.
/// Forked processes inherit the registration. With one thread it takes effect at once; with
/// several, the kernel waits until every CPU has seen it, tens of milliseconds.
pub(crate) fn register_for_membarrier() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| membarrier(MEMBARRIER_REGISTER_SYNC_CORE))
}

/// Calls `membarrier` with `command`; returns `false` if the kernel refuses. `MEMBARRIER_SYNC_CORE` serialises every
/// CPU that runs a thread of this process, so that it executes no instructions fetched before.
fn membarrier(command: libc::c_int) -> bool {
    if cfg!(miri) {
        return false;
    }
    // SAFETY: the system call takes three integers and accesses no memory.
    let answer = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    answer == 0
}

#[cfg(all(test, not(any(miri, handover_loom))))]
mod tests {
    use super::*;
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    use std::io::Write;

    /// Maps a page that starts with a disabled instruction. With `is_writable` false, it is a shared mapping of a
    /// read-only file, which neither its mapping nor `/proc/self/mem` can change.
    fn page(is_writable: bool) -> usize {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[OPCODE_OFF; PAGE_BYTES]).unwrap();
        let file = File::open(file.path()).unwrap();
        let flags = if is_writable { MapFlags::PRIVATE } else { MapFlags::SHARED };
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let start =
            unsafe { mmap(std::ptr::null_mut(), PAGE_BYTES, ProtFlags::READ, flags, file, 0) };
        start.unwrap().expose_provenance()
    }

    #[test]
    fn failed_switch_changes_no_site() {
        let addresses = [page(true), page(true) + 7, page(false), page(true)];
        assert!(switch_sites(&addresses, true).is_err());
        assert_eq!(addresses.map(is_site_on), [Some(false); 4]);
        let changeable = [addresses[0], addresses[1], addresses[3]];
        switch_sites(&changeable, true).unwrap();
        assert!(switch_sites(&addresses[2..], true).is_err());
        assert_eq!(addresses.map(is_site_on), [Some(true), Some(true), Some(false), Some(true)]);
        switch_sites(&changeable, false).unwrap();
        assert_eq!(addresses.map(is_site_on), [Some(false); 4]);
    }

    #[test]
    fn mprotect_switch_changes_all_addresses_or_none() {
        // The kernel gives out addresses downwards: the page that fails has the higher address and
        // comes second.
        let fails = page(false);
        let addresses = [page(true), fails];
        assert!(write_after_mprotect(&addresses, OPCODE_ON).is_err());
        assert_eq!(addresses.map(is_site_on), [Some(false); 2]);
        write_after_mprotect(&addresses[..1], OPCODE_ON).unwrap();
        assert_eq!(is_site_on(addresses[0]), Some(true));
    }
}
