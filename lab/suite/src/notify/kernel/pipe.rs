//! A pipe, the way before eventfd and on systems without it. One byte is one notification.
//!
//! The pipe is shrunk to one page, so that one read takes everything. When it is full, further
//! notifications are dropped: thousands are pending, and none of those is lost.

use super::descriptor;
use handover_notify::{Mechanism, Notify, PairError, Wait};
use rustix::io::{Errno, retry_on_intr};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Size of the pipe and of a read, in bytes. It is one page, the minimum size of a pipe.
const PIPE_BYTES: usize = 4096;

/// Notification by a pipe, as a type for generic code.
#[derive(Debug, Clone, Copy)]
pub enum Pipe {}

impl Mechanism for Pipe {
    const NAME: &'static str = "pipe";
    const DESCRIPTION: &'static str = "a byte through a pipe, read blocking";
    const COUNTS_NOTIFICATIONS: bool = true;
    type Sender = Sender;
    type Receiver = Receiver;

    fn pair() -> Result<(Sender, Receiver), PairError> {
        let refused =
            |call| move |errno: Errno| PairError::SystemCall { call, error: errno.into() };
        let (read_end, write_end) = pipe_with(PipeFlags::CLOEXEC).map_err(refused("pipe2"))?;
        // If the size cannot be set (an old kernel, Miri), a wait may need several reads.
        let _ = fcntl_setpipe_size(&write_end, PIPE_BYTES);
        // Only the write end must not block; the flag belongs to the end, not to the pipe.
        let flags = rustix::fs::fcntl_getfl(&write_end).map_err(refused("fcntl"))?;
        rustix::fs::fcntl_setfl(&write_end, flags | rustix::fs::OFlags::NONBLOCK)
            .map_err(refused("fcntl"))?;
        let ends = Arc::new(PipeEnds { read_end, write_end });
        Ok((Sender { ends: Arc::clone(&ends) }, Receiver { ends }))
    }
}

/// Both ends of a pipe, held by the sender and by the receiver. As a result, a receiver without
/// senders waits, as with every other mechanism, instead of reading an end of file, and a sender
/// without a receiver raises no SIGPIPE.
#[derive(Debug)]
struct PipeEnds {
    read_end: OwnedFd,
    write_end: OwnedFd,
}

/// Sender of notifications through a pipe.
#[derive(Debug, Clone)]
pub struct Sender {
    ends: Arc<PipeEnds>,
}

impl Notify for Sender {
    #[inline]
    fn notify(&self) {
        match retry_on_intr(|| rustix::io::write(&self.ends.write_end, &[1])) {
            // AGAIN: the pipe is full, so a notification is pending.
            Ok(_) | Err(Errno::AGAIN) => {}
            Err(errno) => panic!("write to a pipe failed: {errno}"),
        }
    }
}

/// Receiver of notifications through a pipe. The count that it returns is exact up to 4096.
#[derive(Debug)]
pub struct Receiver {
    ends: Arc<PipeEnds>,
}

impl Wait for Receiver {
    #[inline]
    fn wait(&mut self) -> u64 {
        let mut total = 0;
        let mut bytes = [0; PIPE_BYTES];
        loop {
            match retry_on_intr(|| rustix::io::read(&self.ends.read_end, &mut bytes)) {
                Ok(count) => total += count as u64,
                Err(errno) => panic!("read from a pipe failed: {errno}"),
            }
            // After a full buffer there may be more bytes, if the pipe could not be shrunk.
            let maybe_more = total % PIPE_BYTES as u64 == 0;
            if !(maybe_more && descriptor::wait_readable(&self.ends.read_end, Some(Duration::ZERO)))
            {
                return total;
            }
        }
    }

    fn wait_timeout(&mut self, timeout: Duration) -> Option<u64> {
        // Only this receiver reads, so that a readable descriptor stays readable and the read does
        // not block.
        descriptor::wait_readable(&self.ends.read_end, Some(timeout)).then(|| self.wait())
    }

    fn try_wait(&mut self) -> Option<u64> {
        self.wait_timeout(Duration::ZERO)
    }
}
