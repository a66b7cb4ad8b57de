//! All unsafe code of the binary: one setting of the C library's allocator.

/// Lets all threads that are started from now on share one arena of the C library's allocator. It
/// reserves 64 MiB of address space for each otherwise, up to eight times the number of CPUs. Where
/// the C library is another one, there are no arenas and nothing is done.
pub(super) fn share_one_arena() {
    // SAFETY: takes two numbers, no memory of ours; the allocator takes its own lock.
    #[cfg(target_env = "gnu")]
    let taken = unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    #[cfg(target_env = "gnu")]
    debug_assert_eq!(taken, 1, "one arena is a number that it takes");
}
