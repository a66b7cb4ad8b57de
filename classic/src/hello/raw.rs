//! All unsafe code of the demos: one setting of the C library's allocator.

/// Makes all threads started from now on share one arena of the C library's allocator. Otherwise it
/// reserves 64 MiB of address space for each of up to eight arenas per CPU. Does nothing with C
/// libraries other than glibc, which have no arenas.
pub(super) fn share_one_arena() {
    // SAFETY: `mallopt` takes two integers and no pointer; glibc takes its own lock.
    #[cfg(target_env = "gnu")]
    let taken = unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    #[cfg(target_env = "gnu")]
    debug_assert_eq!(taken, 1, "mallopt(M_ARENA_MAX, 1) failed");
}
