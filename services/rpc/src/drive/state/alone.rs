//! Fast paths for an endpoint with a single peer.

use super::{State, TURNS_PER_LOOK};
use crate::drive::link::AnyLink;
use crate::engine::{CallId, Outcome};
use crate::stage;
use std::sync::Arc;

/// Polls of a single peer's next slot before all other work has its turn: 0.1 us.
// A turn takes fifty times as long as a poll, and a message that arrives during a turn waits for
// half a turn on average: example rpc-noop-cost, 2026-11.
const LOOKS: u32 = 128;
/// Polls of the slot of a call's answer before all other work has its turn: below 1 us.
const LOOKS_FOR_ANSWER: u32 = 1024;

impl State {
    /// Polls for a moment for the next message of the only peer, if memory is shared with it.
    #[inline]
    pub(super) fn watch(&self) {
        if let [place] = self.active[..]
            && let Some(AnyLink::Sm(link)) = &self.places[place as usize].link
        {
            link.watch(LOOKS);
        }
    }

    /// Polls for a moment for the result of a call in shared memory. Returns `true` if the result
    /// is in [`State::body`] and the call is over, and `false` if nothing has changed.
    #[inline]
    pub(crate) fn answered_in_memory(&mut self, id: CallId) -> bool {
        // The turn that reads the clock serves everything.
        if !self.spins() || self.turns + 1 >= TURNS_PER_LOOK || self.has_more_to_do() {
            return false;
        }
        self.turns += 1;
        let [place] = self.active[..] else { return false };
        let key = self.key(place);
        if self.calls.is_pending(id, key)
            && let Some(AnyLink::Sm(link)) = &mut self.places[place as usize].link
            && link.take_answer(id.word(), LOOKS_FOR_ANSWER, &mut self.body)
        {
            if let Some(monitor) = &mut self.monitor {
                monitor.answered(key, id.word(), &Outcome::Result, self.body.len());
            }
            self.calls.forget(id);
            stage::completed(id.word());
            return true;
        }
        false
    }

    /// Sleeps in the read of the only peer's stream until that peer has sent something. Returns
    /// `false` without sleeping if anything else could need this thread, so that it must wait in
    /// epoll.
    pub(super) fn sleep_in_read(&mut self) -> bool {
        let has_others = Arc::strong_count(&self.inbox) > 1
            || !self.listeners.is_empty()
            || self.on_signal.is_some()
            || self.greetings.iter().any(Option::is_some)
            || self.bulk.lingers();
        let [place] = self.active[..] else { return false };
        if has_others || self.has_more_to_do() {
            return false;
        }
        self.places[place as usize].link.as_mut().is_some_and(|link| link.wait_in_read())
    }

    /// Returns `true` if a turn has more to do than to receive messages.
    #[inline]
    fn has_more_to_do(&self) -> bool {
        self.any_queued || self.catch_up || self.bulk.is_busy() || !self.ended.is_empty()
    }
}
