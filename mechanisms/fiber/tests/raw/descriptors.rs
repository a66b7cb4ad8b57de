//! A program that closes descriptors of the runtime.

use std::fs::{File, read_dir, read_link};
use std::os::fd::AsRawFd;

/// Replaces each epoll set of this process by a file, in which no thread can wait.
pub fn replace_epoll_sets() -> std::io::Result<()> {
    let null = File::open("/dev/null")?;
    for entry in read_dir("/proc/self/fd")? {
        let entry = entry?;
        let is_set =
            read_link(entry.path()).is_ok_and(|to| to.as_os_str() == "anon_inode:[eventpoll]");
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let (true, Some(number)) = (is_set, number) {
            // SAFETY: the call takes no pointers. The number stays that of an open descriptor, so
            // that its owner closes no other.
            if unsafe { libc::dup2(null.as_raw_fd(), number) } < 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
    }
    Ok(())
}
