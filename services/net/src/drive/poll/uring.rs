//! Readiness by io_uring: each socket has one standing poll, which tells of every edge until it is taken back,
//! and a wait is one call that hands over what is new and takes what has come.

use super::{Flags, Told, Watch, Whose, told};
use crate::raw;
use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// Calls that wait to be handed over. Each is at once.
const CALLS: u32 = 64;
/// What may have come and not been taken; beyond, the kernel keeps it elsewhere, which is slower.
const COMPLETIONS: u32 = 4096;
/// Marks the answer to a poll that was taken back: nobody waits for it.
const TAKEN_BACK: u64 = u64::MAX;

pub(crate) struct Uring {
    ring: IoUring,
    ready_max: usize,
    /// Those that are no connections', to be asked for again if the kernel has dropped them.
    specials: Vec<(Whose, RawFd)>,
    /// To be watched from the next wait on. What the kernel does for a poll it does on the thread that asked
    /// for it, whose sleeps it ends for that and with whose end it drops it: only the thread that waits asks.
    asked: Vec<(Whose, RawFd, Flags)>,
}

/// A kernel's answer, in its own words.
fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

impl Uring {
    fn hand_over(&mut self) -> Result<(), Errno> {
        loop {
            match self.ring.submit().map_err(|error| errno(&error)) {
                // What has come has to be taken first: the next wait does both.
                Ok(_) | Err(Errno::BUSY | Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Asks for what is to be watched; what there is no room for waits for the next time.
    fn ask(&mut self) -> Result<(), Errno> {
        while let Some(&(whose, fd, flags)) = self.asked.last() {
            // Edges are what a standing poll tells of anyway.
            let events = (flags - Flags::ET).bits();
            if !raw::poll_add(&mut self.ring, fd, events, whose.pack()) {
                self.hand_over()?;
                if !raw::poll_add(&mut self.ring, fd, events, whose.pack()) {
                    return Ok(());
                }
            }
            self.asked.pop();
        }
        Ok(())
    }
}

impl Watch for Uring {
    fn new(ready_max: usize) -> Result<Self, Errno> {
        let ring = IoUring::builder()
            .setup_cqsize(COMPLETIONS)
            .setup_coop_taskrun()
            .build(CALLS)
            .map_err(|error| errno(&error))?;
        Ok(Self { ring, ready_max, specials: Vec::new(), asked: Vec::new() })
    }

    fn add(&mut self, fd: BorrowedFd<'_>, whose: Whose, flags: Flags) -> Result<(), Errno> {
        let fd = fd.as_raw_fd();
        if !matches!(whose, Whose::Connection(_)) {
            self.specials.push((whose, fd));
        }
        self.asked.push((whose, fd, flags));
        Ok(())
    }

    /// Until its poll is taken back, the kernel holds on to a socket that is closed.
    fn remove(&mut self, whose: Whose) {
        if let Some(at) = self.asked.iter().rposition(|it| it.0 == whose) {
            self.asked.swap_remove(at);
            return;
        }
        if !raw::poll_remove(&mut self.ring, whose.pack(), TAKEN_BACK) {
            // There is room for it when what stands there has been handed over.
            let _ = self.hand_over();
            raw::poll_remove(&mut self.ring, whose.pack(), TAKEN_BACK);
        }
        // At once, as its peer waits for the end; what is refused now goes with the next wait.
        let _ = self.hand_over();
    }

    fn wait(
        &mut self,
        timeout_ns: Option<u64>,
        mut each: impl FnMut(Whose, Told),
    ) -> Result<usize, Errno> {
        self.ask()?;
        let has_come = !self.ring.completion().is_empty();
        let is_waiting = !has_come && self.asked.is_empty() && timeout_ns != Some(0);
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
            if completion.user_data() == TAKEN_BACK {
                continue;
            }
            let whose = Whose::unpack(completion.user_data());
            let is_connection = matches!(whose, Whose::Connection(_));
            let lapsed = !cqueue::more(completion.flags());
            let it = match u32::try_from(completion.result()) {
                Ok(events) => Told { lapsed, ..told(Flags::from_bits_retain(events)) },
                // It was taken back.
                Err(_) if completion.result() == -Errno::CANCELED.raw_os_error() => continue,
                // What is wrong is seen by whoever reads.
                Err(_) => Told { lapsed, ..told(Flags::ERR) },
            };
            if lapsed
                && !is_connection
                && let Some(&(_, fd)) = self.specials.iter().find(|it| it.0 == whose)
            {
                self.asked.push((whose, fd, Flags::IN));
            }
            each(whose, it);
            count += 1;
        }
        Ok(count)
    }
}
