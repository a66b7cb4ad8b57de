//! Simulation of a kernel without guard marks in the page table, as before Linux 6.13.

/// Makes `madvise(2)` with this advice fail as on a kernel that does not know it, for this thread
/// and the threads that it starts afterwards, until they end.
pub fn marked_guards() -> std::io::Result<()> {
    const MADV_GUARD_INSTALL: u32 = 102;
    let load =
        |offset: usize| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset as u32, [0, 0]);
    let equals = |value: u32, [yes, no]: [u8; 2]| {
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, [yes, no])
    };
    let answer = |what: u32| step(libc::BPF_RET | libc::BPF_K, what, [0, 0]);
    // Loads the number of the system call, then the low half of its third argument.
    let arguments = std::mem::offset_of!(libc::seccomp_data, args);
    let mut steps = [
        load(std::mem::offset_of!(libc::seccomp_data, nr)),
        equals(libc::SYS_madvise as u32, [0, 3]),
        load(arguments + 2 * size_of::<u64>()),
        equals(MADV_GUARD_INSTALL, [0, 1]),
        answer(libc::SECCOMP_RET_ERRNO | libc::EINVAL as u32),
        answer(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the call takes no pointers.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the program and its steps are valid until the call returns, and the kernel copies
    // them.
    if unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) }
        != 0
    {
        return Err(std::io::Error::last_os_error());
    }
    Ok(())
}

fn step(code: u32, k: u32, [jt, jf]: [u8; 2]) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}
