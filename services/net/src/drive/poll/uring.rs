//! Readiness from `io_uring`: each socket has one multishot poll, which reports every edge until
//! the poll is removed. One system call per wait submits new polls and collects completions.

use super::{EventSource, Flags, PollBackend, Readiness, readiness};
use crate::raw;
use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// Size of the submission queue. Each entry completes at once.
const SUBMISSION_ENTRIES: u32 = 64;
/// Size of the completion queue; further completions are kept by the kernel, which is slower.
const COMPLETION_ENTRIES: u32 = 4096;
/// `user_data` of a removal, whose completion is ignored.
const REMOVAL: u64 = u64::MAX;

pub(crate) struct Uring {
    ring: IoUring,
    ready_max: usize,
    /// Sources other than connections, polled again if the kernel has ended their poll.
    rearmed: Vec<(EventSource, RawFd)>,
    /// Polls to be submitted by the next wait. The kernel runs a poll's work on the thread that
    /// submitted it, which interrupts that thread's sleep, and cancels the poll when that thread
    /// ends: so only the thread that waits submits.
    pending_polls: Vec<(EventSource, RawFd, Flags)>,
}

/// Returns the kernel's error code of `error`.
fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

impl Uring {
    fn submit(&mut self) -> Result<(), Errno> {
        loop {
            match self.ring.submit().map_err(|error| errno(&error)) {
                // The completion queue has to be emptied first: the next wait does both.
                Ok(_) | Err(Errno::BUSY | Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Submits the polls in `pending_polls`; those without space in the queue stay there until the
    /// next wait.
    fn submit_polls(&mut self) -> Result<(), Errno> {
        while let Some(&(source, fd, flags)) = self.pending_polls.last() {
            // A multishot poll reports edges anyway.
            let events = (flags - Flags::ET).bits();
            if !raw::poll_add(&mut self.ring, fd, events, source.pack()) {
                self.submit()?;
                if !raw::poll_add(&mut self.ring, fd, events, source.pack()) {
                    return Ok(());
                }
            }
            self.pending_polls.pop();
        }
        Ok(())
    }
}

impl PollBackend for Uring {
    const CREATE: &str = "io_uring_setup";
    const ADD: &str = "io_uring_enter";
    const WAIT: &str = "io_uring_enter";

    fn new(ready_max: usize) -> Result<Self, Errno> {
        let ring = IoUring::builder()
            .setup_cqsize(COMPLETION_ENTRIES)
            .setup_coop_taskrun()
            .build(SUBMISSION_ENTRIES)
            .map_err(|error| errno(&error))?;
        Ok(Self { ring, ready_max, rearmed: Vec::new(), pending_polls: Vec::new() })
    }

    fn add(&mut self, fd: BorrowedFd<'_>, source: EventSource, flags: Flags) -> Result<(), Errno> {
        let fd = fd.as_raw_fd();
        if !matches!(source, EventSource::Connection(_)) {
            self.rearmed.push((source, fd));
        }
        self.pending_polls.push((source, fd, flags));
        Ok(())
    }

    /// Removes the poll of a socket: the kernel keeps a closed socket open as long as its poll
    /// exists.
    fn remove(&mut self, source: EventSource) {
        // A completion that is already queued may report that the poll has ended; it must not be
        // submitted again, for a descriptor that is closed or belongs to another file by then.
        self.rearmed.retain(|it| it.0 != source);
        if let Some(at) = self.pending_polls.iter().rposition(|it| it.0 == source) {
            self.pending_polls.swap_remove(at);
            return;
        }
        if !raw::poll_remove(&mut self.ring, source.pack(), REMOVAL) {
            // After submission the queue has space again.
            let _ = self.submit();
            raw::poll_remove(&mut self.ring, source.pack(), REMOVAL);
        }
        // Submitted now, as the peer waits for the end of the connection; if the kernel refuses,
        // the next wait submits it.
        let _ = self.submit();
    }

    fn wait(
        &mut self,
        timeout_ns: Option<u64>,
        mut each: impl FnMut(EventSource, Readiness),
    ) -> Result<usize, Errno> {
        self.submit_polls()?;
        let has_completions = !self.ring.completion().is_empty();
        let is_waiting = !has_completions && self.pending_polls.is_empty() && timeout_ns != Some(0);
        let wanted = usize::from(is_waiting);
        let until = timeout_ns.map(|ns| {
            // Below 10^9.
            Timespec::new().sec(ns / 1_000_000_000).nsec((ns % 1_000_000_000) as u32)
        });
        let mut arguments = SubmitArgs::new();
        if let Some(until) = &until {
            arguments = arguments.timespec(until);
        }
        match self.ring.submitter().submit_with_args(wanted, &arguments) {
            Ok(_) => {}
            Err(error) => match errno(&error) {
                Errno::TIME | Errno::INTR | Errno::BUSY | Errno::AGAIN => {}
                other => return Err(other),
            },
        }
        let mut count = 0;
        for completion in self.ring.completion().take(self.ready_max) {
            if completion.user_data() == REMOVAL {
                continue;
            }
            let source = EventSource::unpack(completion.user_data());
            let is_connection = matches!(source, EventSource::Connection(_));
            let is_disarmed = !cqueue::more(completion.flags());
            let it = match u32::try_from(completion.result()) {
                Ok(events) => {
                    Readiness { is_disarmed, ..readiness(Flags::from_bits_retain(events)) }
                }
                // The poll was removed.
                Err(_) if completion.result() == -Errno::CANCELED.raw_os_error() => continue,
                // The error is found when the socket is read.
                Err(_) => Readiness { is_disarmed, ..readiness(Flags::ERR) },
            };
            if is_disarmed
                && !is_connection
                && let Some(&(_, fd)) = self.rearmed.iter().find(|it| it.0 == source)
            {
                self.pending_polls.push((source, fd, Flags::IN));
            }
            each(source, it);
            count += 1;
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use std::os::fd::AsFd;

    #[test]
    fn removed_listener_is_not_polled_again() {
        let mut ring = match Uring::new(8) {
            Ok(ring) => ring,
            Err(errno) => return println!("skipped: io_uring_setup: {errno}"),
        };
        let file = eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor");
        for source in [EventSource::Wake, EventSource::Listener(0), EventSource::Listener(1)] {
            ring.add(file.as_fd(), source, Flags::IN).expect("queued");
        }
        ring.wait(Some(0), |_, _| ()).expect("polled");
        ring.remove(EventSource::Listener(0));
        ring.wait(Some(0), |_, _| ()).expect("removed");
        let polled_again: Vec<_> = ring.rearmed.iter().map(|it| it.0).collect();
        assert_eq!(polled_again, [EventSource::Wake, EventSource::Listener(1)]);
    }
}
