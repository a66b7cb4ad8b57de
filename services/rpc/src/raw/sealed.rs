//! Sealed files of memory: their creation, and checks of those that a peer has passed, made before
//! they are mapped.

use crate::SystemCallError;
use crate::error::failed_call;
use rustix::fs::{
    MemfdFlags, Mode, SealFlags, fchmod, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs,
    ftruncate, memfd_create,
};
use std::os::fd::{AsFd, OwnedFd};

/// Creates an unnamed file of zeroed memory that only this user can open. Its length cannot be
/// changed.
pub(super) fn create_sealed_file(name: &str, bytes: usize) -> Result<OwnedFd, SystemCallError> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create(name, flags).map_err(failed_call("memfd_create"))?;
    fchmod(&file, Mode::RUSR | Mode::WUSR).map_err(failed_call("fchmod"))?;
    ftruncate(&file, bytes as u64).map_err(failed_call("ftruncate"))?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&file, seals).map_err(failed_call("fcntl(F_ADD_SEALS)"))?;
    Ok(file)
}

/// Returns `true` if accesses to a mapping of the file cannot end in a SIGBUS. This holds whatever
/// the file's owner does. The file must be memory of small pages, at least `bytes` long, and sealed
/// against shrinking. (A page that was never written is allocated when it is first read; if the
/// machine has no memory left, this process is killed as for any other page.)
pub(super) fn is_mapping_safe(file: impl AsFd, bytes: usize) -> Result<bool, SystemCallError> {
    // fcntl returns EINVAL for files that are not memfds and cannot have seals.
    let seals = fcntl_get_seals(&file).unwrap_or(SealFlags::empty());
    let its_bytes = fstat(&file).map_err(failed_call("fstat"))?.st_size;
    // Huge pages, which memfds can have too, may run out when they are first touched.
    let system = fstatfs(&file).map_err(failed_call("fstatfs"))?.f_type;
    Ok(seals.contains(SealFlags::SHRINK)
        && usize::try_from(its_bytes).is_ok_and(|its| its >= bytes)
        && system == libc::TMPFS_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};

    fn memory(flags: MemfdFlags, bytes: u64, seals: SealFlags) -> std::os::fd::OwnedFd {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | flags;
        let file = memfd_create("test", flags).expect("create a memfd");
        ftruncate(&file, bytes).expect("resize the memfd");
        fcntl_add_seals(&file, seals).expect("they are allowed");
        file
    }

    #[test]
    fn only_sealed_memory_of_that_length_is_sound() {
        let usual = MemfdFlags::empty();
        let sealed = memory(usual, 1 << 21, SealFlags::SHRINK);
        assert_eq!(is_mapping_safe(&sealed, 1 << 21), Ok(true));
        assert_eq!(
            is_mapping_safe(&sealed, (1 << 21) + 1),
            Ok(false),
            "accepted a file that is too short"
        );
        let open = memory(usual, 1 << 21, SealFlags::GROW);
        assert_eq!(
            is_mapping_safe(&open, 1 << 21),
            Ok(false),
            "accepted a file that can be truncated"
        );
        let null = std::fs::File::open("/dev/null").expect("open /dev/null");
        assert_eq!(is_mapping_safe(&null, 0), Ok(false), "a file that is not memory was accepted");
        let huge = memory(MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB, 1 << 21, SealFlags::SHRINK);
        assert_eq!(is_mapping_safe(&huge, 1 << 21), Ok(false), "a file of huge pages was accepted");
    }
}
