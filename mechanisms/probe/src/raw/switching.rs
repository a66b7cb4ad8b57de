//! Patching of a site's code while threads execute it.
//!
//! **One store changes the instruction, and no breakpoint is needed.** Where instructions of
//! several stores change, a thread may fetch some of the old and some of the new bytes; the
//! kernel's `text_poke` therefore puts an `int3` over the first byte, changes the others while no
//! thread can get past it, and then writes the new first byte.
//!
//! On x86_64 this relies on one fact: a thread sees a store of one byte of code whole or not at
//! all, so that it executes the old instruction or the new one. Here only the first byte changes:
//! both instructions are five bytes long, with the same four bytes behind the opcode, so that the
//! first of the kernel's steps is the whole change.
//!
//! On aarch64 the instruction is `nop` or `b`, between which the architecture permits a change
//! while threads execute it: each executes the old instruction or the new one (Arm ARM, DDI 0487,
//! B2.2.5). The aligned store of four bytes is single-copy atomic.
//!
//! For the moment at which each CPU sees it, `membarrier(SYNC_CORE)` makes every CPU that runs the
//! process execute a serialising instruction, before switching returns.

use super::code::{AtomicCode, CODE_OFF, Code, IS_MPROTECT_FIRST, publish_code};
use crate::backend::Backend;
use handover_base::sync::shared::Ordering;
use rustix::mm::{MprotectFlags, mprotect};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

const MEMBARRIER_SYNC_CORE: libc::c_int = 1 << 5;
const MEMBARRIER_REGISTER_SYNC_CORE: libc::c_int = 1 << 6;

/// Instruction of a site: its address, and its code while the site is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Instruction {
    /// Address of the instruction.
    pub at: usize,
    /// Code of the instruction while the site is on.
    pub code_on: Code,
}

impl Instruction {
    /// Returns `true` if the site is on; `None` if there is no site at this address.
    pub(crate) fn is_on(self) -> Option<bool> {
        match self.code().load(Ordering::Relaxed) {
            CODE_OFF => Some(false),
            code if code == self.code_on => Some(true),
            _ => None,
        }
    }

    /// Returns the code that the instruction has while the site is on or off.
    fn code_for(self, on: bool) -> Code {
        if on { self.code_on } else { CODE_OFF }
    }

    /// Returns the instruction's code in memory.
    fn code(self) -> &'static AtomicCode {
        // SAFETY: `at` is the address of an instruction of a loaded object, from its section of
        // sites, so that it is aligned for its code, and code is readable. The access is atomic, as
        // another thread may be patching it.
        unsafe { AtomicCode::from_ptr(std::ptr::with_exposed_provenance_mut(self.at)) }
    }

    /// Stores the instruction's code for a site that is on or off. The page must be writable.
    fn store(self, on: bool) {
        // Release: orders what was set up before in front of the patch, for threads that take the
        // jump.
        self.code().store(self.code_for(on), Ordering::Release);
        publish_code(self.at);
    }
}

/// Switches the sites of `instructions` on or off, all or none. Returns the method used, once every
/// thread sees the change.
///
/// Writes through `/proc/self/mem`, which needs no writable page, or after `mprotect`: if one
/// fails, the other.
pub(crate) fn switch_sites(instructions: &[Instruction], on: bool) -> io::Result<Backend> {
    let wanted: Vec<Instruction> =
        instructions.iter().copied().filter(|one| one.is_on() == Some(!on)).collect();
    register_for_membarrier();
    let by_proc_mem = || write_through_proc_mem(&wanted, on).map(|()| Backend::ProcMem);
    let by_mprotect = || write_after_mprotect(&wanted, on).map(|()| Backend::Mprotect);
    let answer = match IS_MPROTECT_FIRST {
        true => by_mprotect().or_else(|_| by_proc_mem()),
        false => by_proc_mem().or_else(|_| by_mprotect()),
    };
    // Fails under a seccomp filter or an older kernel: a processor then sees the stores without it,
    // only later.
    membarrier(MEMBARRIER_SYNC_CORE);
    answer
}

/// Writes the code of all instructions through `/proc/self/mem`. On an error, no code is changed.
/// The kernel keeps the instruction caches coherent.
fn write_through_proc_mem(instructions: &[Instruction], on: bool) -> io::Result<()> {
    // Opened each time: after a fork, a descriptor from before would lead to the parent's memory.
    let memory = File::options().read(true).write(true).open("/proc/self/mem")?;
    let write =
        |one: &Instruction, on| memory.write_all_at(&one.code_for(on).to_le_bytes(), one.at as u64);
    for (done, one) in instructions.iter().enumerate() {
        write(one, on).inspect_err(|_| {
            for one in &instructions[..done] {
                // The write above succeeded for this place. If this one fails, the site is reported
                // as on or off by its code.
                let _ = write(one, !on);
            }
        })?;
    }
    Ok(())
}

/// Makes code writable with `mprotect`, and writes the code of all instructions. On an error, no
/// code is changed.
fn write_after_mprotect(instructions: &[Instruction], on: bool) -> io::Result<()> {
    let mut instructions = instructions.to_vec();
    instructions.sort_unstable_by_key(|one| one.at);
    let page_bytes = rustix::param::page_size();
    let pages: Vec<&[Instruction]> =
        instructions.chunk_by(|a, b| a.at / page_bytes == b.at / page_bytes).collect();
    for (done, page) in pages.iter().enumerate() {
        write_page(page, on).inspect_err(|_| {
            for page in &pages[..done] {
                // The change above succeeded for this page; if undoing it fails, its sites are
                // reported as they are.
                let _ = write_page(page, !on);
            }
        })?;
    }
    Ok(())
}

/// Makes one page writable with `mprotect`, and writes the code of its `instructions`. On an error,
/// no code is changed.
fn write_page(instructions: &[Instruction], on: bool) -> io::Result<()> {
    let page_bytes = rustix::param::page_size();
    let start = std::ptr::with_exposed_provenance_mut(instructions[0].at & !(page_bytes - 1));
    let executable = MprotectFlags::READ | MprotectFlags::EXEC;
    // SAFETY: the range is one page of code of a loaded object, and stays readable and executable.
    unsafe { mprotect(start, page_bytes, executable | MprotectFlags::WRITE) }?;
    instructions.iter().for_each(|one| one.store(on));
    // SAFETY: the same page as above, readable and executable again; every writer of code makes the
    // page writable first.
    let protected = unsafe { mprotect(start, page_bytes, executable) };
    Ok(protected.inspect_err(|_| instructions.iter().for_each(|one| one.store(!on)))?)
}

/// Registers the process for `membarrier(SYNC_CORE)` at the first call; returns `false` if the
/// kernel refuses. Forked processes inherit the registration. With one thread it takes effect at
/// once; with several, the kernel waits until every CPU has seen it, tens of milliseconds.
pub(crate) fn register_for_membarrier() -> bool {
    /// `true` if the kernel has registered the process.
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| membarrier(MEMBARRIER_REGISTER_SYNC_CORE))
}

/// Calls `membarrier` with `command`; returns `false` if the kernel refuses. `MEMBARRIER_SYNC_CORE`
/// serialises every CPU that runs a thread of this process, so that it executes no instructions
/// fetched before.
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
    use super::super::code::{CODE_BYTES, code_on};
    use super::*;
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    use std::io::Write;

    /// Maps a page of disabled instructions, and returns the one with this index. With
    /// `is_writable` false, it is a shared mapping of a read-only file, which neither its mapping
    /// nor `/proc/self/mem` can change.
    fn instruction(index: usize, is_writable: bool) -> Instruction {
        let page_bytes = rustix::param::page_size();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&CODE_OFF.to_le_bytes().repeat(page_bytes / CODE_BYTES)).unwrap();
        let file = File::open(file.path()).unwrap();
        let flags = if is_writable { MapFlags::PRIVATE } else { MapFlags::SHARED };
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let start =
            unsafe { mmap(std::ptr::null_mut(), page_bytes, ProtFlags::READ, flags, file, 0) };
        let at = start.unwrap().expose_provenance() + index * CODE_BYTES;
        let code_on = code_on(at as u64, at as u64 + 64).unwrap();
        Instruction { at, code_on }
    }

    #[test]
    fn failed_switch_changes_no_site() {
        let instructions = [
            instruction(0, true),
            instruction(7, true),
            instruction(0, false),
            instruction(0, true),
        ];
        assert!(switch_sites(&instructions, true).is_err());
        assert_eq!(instructions.map(Instruction::is_on), [Some(false); 4]);
        let changeable = [instructions[0], instructions[1], instructions[3]];
        switch_sites(&changeable, true).unwrap();
        assert!(switch_sites(&instructions[2..], true).is_err());
        assert_eq!(
            instructions.map(Instruction::is_on),
            [Some(true), Some(true), Some(false), Some(true)]
        );
        switch_sites(&changeable, false).unwrap();
        assert_eq!(instructions.map(Instruction::is_on), [Some(false); 4]);
    }

    #[test]
    fn mprotect_switch_changes_all_instructions_or_none() {
        // The kernel gives out addresses downwards: the page that fails has the higher address and
        // comes second.
        let fails = instruction(0, false);
        let instructions = [instruction(0, true), fails];
        assert!(write_after_mprotect(&instructions, true).is_err());
        assert_eq!(instructions.map(Instruction::is_on), [Some(false); 2]);
        write_after_mprotect(&instructions[..1], true).unwrap();
        assert_eq!(instructions[0].is_on(), Some(true));
    }
}
