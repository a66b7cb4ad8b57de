//! Sending to machines on the sender's own thread, without synchronisation.

use super::address::Address;
use super::home::ThreadState;
use crate::{SendError, stage};
use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;

/// Machines of a thread, as accessed from the one of them whose handler runs.
pub(crate) struct LocalMachines<'a> {
    pub(crate) home: &'a mut ThreadState,
    /// Index of the machine whose handler runs.
    pub(crate) machine: u32,
    /// LocalQueue queue of that machine, a `VecDeque` of its message type.
    pub(crate) local: &'a mut dyn Any,
    pub(crate) local_messages_max: usize,
}

impl LocalMachines<'_> {
    /// Returns `true` if the machine runs on this thread.
    #[inline(always)]
    pub(crate) fn has<N>(&self, to: &Address<N>) -> bool {
        Arc::ptr_eq(&to.state().door, &self.home.door)
    }

    /// Sends a message to a machine on this thread.
    #[inline(always)]
    pub(crate) fn send_quiet<N: Send + 'static>(
        &mut self,
        to: &Address<N>,
        message: N,
    ) -> Result<(), SendError<N>> {
        let machine = to.state().machine;
        // Resolved at compile time in a handler: a single machine has one type of queue only.
        let (queue, messages_max) = if machine == self.machine {
            (self.local.downcast_mut::<VecDeque<N>>(), self.local_messages_max)
        } else {
            match self.home.locals.get_mut(machine as usize) {
                Some(local) => (local.queue.get_mut::<N>(), local.messages_max),
                None => (None, 0),
            }
        };
        let Some(queue) = queue else {
            // The receiver was removed: its index now holds an entry without a queue for these
            // messages.
            to.state().count_refused();
            return Err(SendError::Closed(message));
        };
        if queue.len() >= messages_max {
            to.state().count_refused();
            return Err(SendError::Full(message));
        }
        queue.push_back(message);
        stage::enqueued_here(to.state());
        if machine != self.machine {
            self.home.list(machine);
        }
        Ok(())
    }

    /// Sends as [`send_quiet`](Self::send_quiet); also notifies the thread, if each message is notified.
    #[inline(always)]
    pub(crate) fn send<N: Send + 'static>(
        &mut self,
        to: &Address<N>,
        message: N,
    ) -> Result<(), SendError<N>> {
        self.send_quiet(to, message)?;
        self.home.notify_itself();
        Ok(())
    }
}
