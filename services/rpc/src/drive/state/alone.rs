//! Where one peer alone can have anything for this side, it is asked directly, and nobody else.

use super::{State, TURNS_PER_LOOK};
use crate::drive::link::AnyLink;
use crate::engine::{CallId, Outcome};
use crate::stage;
use std::sync::Arc;

/// How often a single peer's next message is looked for, before everything else has its turn: 0.1 us.
// A turn takes fifty times as long as a look, and what comes meanwhile waits for half of one on average:
// example rpc-noop-cost, 2026-11.
const LOOKS: u32 = 128;
/// How often the answer to a call is looked for where it will lie, before all else: below 1 us.
const LOOKS_FOR_ANSWER: u32 = 1024;

impl State {
    /// Looks for what a single peer in memory sends next, and at nothing else for a moment.
    #[inline]
    pub(super) fn watch(&self) {
        if let [place] = self.active[..]
            && let Some(AnyLink::Sm(link)) = &self.places[place as usize].link
        {
            link.watch(LOOKS);
        }
    }

    /// Looks for a moment for the result of a call where it will lie in memory. True: it is in
    /// [`State::body`], and the call is over. False: everything is as it was.
    #[inline]
    pub(crate) fn answered_in_memory(&mut self, id: CallId) -> bool {
        // In the turn that looks at the clock, everybody has theirs.
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

    /// Sleeps until the only peer, on a stream, has sent something, and in the system call that reads it. False
    /// where it must be waited for in the usual way, as others may have something for this side, too.
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

    /// Whether a turn has to do more than to see what comes.
    #[inline]
    fn has_more_to_do(&self) -> bool {
        self.any_queued || self.catch_up || self.bulk.is_busy() || !self.ended.is_empty()
    }
}
