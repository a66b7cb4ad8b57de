//! Sending to machines on the sender's own thread, without synchronisation.

use super::address::Address;
use super::shared_thread_state::SharedThreadState;
use super::thread_state::ThreadState;
use crate::{SendError, stage};
use handover_ring::PushError;
use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;

/// Access to the queues of a thread's machines, for the machine whose handler runs.
pub(crate) struct LocalMachines<'a> {
    pub(crate) thread: &'a mut ThreadState,
    /// Index, in its group, of the machine whose handler runs.
    pub(crate) machine: u32,
    /// Local queue of the machine whose handler runs: a `VecDeque` of its message type.
    pub(crate) local: &'a mut dyn Any,
    /// Maximum number of messages in `local`.
    pub(crate) local_messages_max: usize,
    /// `true` if a posting has sent messages to machines on other threads.
    pub(crate) has_sent_remotely: bool,
}

impl LocalMachines<'_> {
    /// Returns `true` if the machine with the address `to` runs on this thread.
    #[inline(always)]
    pub(crate) fn contains<N>(&self, to: &Address<N>) -> bool {
        Arc::ptr_eq(&to.shared().shared_thread, &self.thread.shared)
    }

    /// Sends the message `wrap(value)` to the machine with the index `machine` on the thread
    /// `shared_thread`. Does so only if that is another machine on this thread, its queue is empty,
    /// and no system call is to be made; otherwise returns the value.
    #[inline(always)]
    pub(crate) fn send_first<N: Send + 'static, V>(
        &mut self,
        shared_thread: &Arc<SharedThreadState>,
        machine: u32,
        value: V,
        wrap: impl FnOnce(V) -> N,
    ) -> Result<(), V> {
        let is_local = Arc::ptr_eq(shared_thread, &self.thread.shared);
        if !is_local || machine == self.machine || self.thread.notifies_itself() {
            return Err(value);
        }
        self.thread.push_first_to(machine, value, wrap)
    }

    /// Sends a message to a machine on this thread without a system call.
    #[inline(always)]
    pub(crate) fn send_quiet<N: Send + 'static>(
        &mut self,
        to: &Address<N>,
        message: N,
    ) -> Result<(), SendError<N>> {
        let machine = to.shared().machine;
        if machine == self.machine {
            // Resolved at compile time in a handler: a single machine has one type of queue only.
            let Some(queue) = self.local.downcast_mut::<VecDeque<N>>() else {
                return Err(to.shared().refuse(PushError::Closed(message)));
            };
            if queue.len() >= self.local_messages_max {
                return Err(to.shared().refuse(PushError::Full(message)));
            }
            queue.push_back(message);
        } else if let Err(refusal) = self.thread.push_to(machine, message) {
            return Err(to.shared().refuse(refusal));
        }
        stage::record_enqueued_here(to.shared());
        Ok(())
    }

    /// Sends like [`send_quiet`](Self::send_quiet), but with a system call if the thread's
    /// [`WakeWhen`](crate::WakeWhen) asks for one.
    #[inline(always)]
    pub(crate) fn send<N: Send + 'static>(
        &mut self,
        to: &Address<N>,
        message: N,
    ) -> Result<(), SendError<N>> {
        self.send_quiet(to, message)?;
        self.thread.notify_itself();
        Ok(())
    }
}
