//! Simulation of a kernel that revokes the access to other processes.

/// Makes `process_vm_readv(2)` and `process_vm_writev(2)` fail with `EPERM`, for this thread and
/// the threads that it starts afterwards, until they end.
pub fn process_copies() -> std::io::Result<()> {
    let number = std::mem::offset_of!(libc::seccomp_data, nr) as u32;
    let equals = |call: libc::c_long, [yes, no]: [u8; 2]| {
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call as u32, [yes, no])
    };
    let answer = |what: u32| step(libc::BPF_RET | libc::BPF_K, what, [0, 0]);
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, number, [0, 0]),
        equals(libc::SYS_process_vm_readv, [1, 0]),
        equals(libc::SYS_process_vm_writev, [0, 1]),
        answer(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
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
