//! Waiting: spins, polls epoll, and sleeps until an event or a deadline.

use super::{Sink, State, TURNS_PER_LOOK};
use crate::clock;
use crate::drive::dump::OnSignal;
use crate::drive::poll::Whose;
use crate::engine::PeerKey;
use handover_base::sync::shared::{Ordering, fence};

/// Turns between two reads of the clock while there is always work: each turn may copy for a while.
const BUSY_TURNS_PER_LOOK: u32 = 8;

impl State {
    /// Returns `true` if epoll was due and has reported events. Peers that it reports as closed are
    /// handled in the next turn.
    #[inline]
    pub(in crate::drive) fn is_look_due(&mut self) -> bool {
        self.is_time_to_look(false) && (self.look(Some(0)) | self.has_untold())
    }

    pub(super) fn look_if_due(&mut self, streams: bool) -> bool {
        self.is_time_to_look(streams) && self.look(Some(0))
    }

    fn is_time_to_look(&mut self, streams: bool) -> bool {
        let now_ticks = clock::ticks();
        let is_due = streams || now_ticks.wrapping_sub(self.looked_ticks) >= self.look_ticks;
        if is_due {
            self.looked_ticks = now_ticks;
        }
        is_due
    }

    /// Calls epoll with that timeout, `None` for no limit, and handles its events. Returns `true`
    /// if there were any.
    pub(crate) fn look(&mut self, timeout_ns: Option<u64>) -> bool {
        let mut ready = std::mem::take(&mut self.ready);
        // An error is impossible: the epoll descriptor and the buffer are valid.
        let _ = self.poll.wait(timeout_ns, &mut ready);
        let any = !ready.is_empty();
        for (whose, is_end) in ready.drain(..) {
            match whose {
                Whose::Inbox => {}
                Whose::Signal => {
                    self.dump |= self.on_signal.as_ref().is_some_and(OnSignal::was_rung);
                    self.note_chores(self.dump);
                }
                Whose::Listener(_) => self.accept_some(),
                Whose::Greeting(number) => self.advance(number),
                Whose::Peer { place, generation } => {
                    let peer = PeerKey { place, generation };
                    if let Some(link) = self.link(peer) {
                        link.told();
                        if is_end && link.in_memory() {
                            self.ended.push(peer);
                        }
                    }
                }
                Whose::Process { place, generation } => {
                    let peer = PeerKey { place, generation };
                    if let Some(link) = self.link(peer) {
                        link.told();
                        self.ended.push(peer);
                    }
                }
            }
        }
        self.ready = ready;
        any | self.let_time_pass()
    }

    /// Handles due timers, handshakes past their deadline, sweeps, and listeners that were paused.
    /// Returns `true` if there was new work, which the caller must do before it sleeps.
    fn let_time_pass(&mut self) -> bool {
        if self.bulk.lingers() {
            self.bulk_let_go();
        }
        let (timer_ns, had_chores) = (self.timers.next_ns(), self.chores);
        self.note_chores(timer_ns.is_some_and(|at_ns| at_ns <= clock::now_ns()));
        let mut passed = self.chores && !had_chores;
        if self.sweep_at_ns != u64::MAX && self.sweep_at_ns <= clock::now_ns() {
            self.sweep();
            passed = true;
        }
        if self.accept_again_ns.is_none() && self.greetings.iter().all(Option::is_none) {
            return passed;
        }
        let now_ns = clock::now_ns();
        if self.accept_again_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.accept_some();
            passed = true;
        }
        for at in (0..self.greetings.len()).rev() {
            let it = self.greetings.get_mut(at);
            let late = it.and_then(|it| it.take_if(|it| it.deadline_ns <= now_ns));
            if let Some(mut late) = late {
                self.settle(at as u32, late.is_ours(), Err(late.why_late()));
                passed = true;
            }
        }
        passed
    }

    /// Returns the time of the earliest work that is due by time; `u64::MAX` if there is none.
    fn own_deadline_ns(&mut self) -> u64 {
        // Timers that are known to be due do not count: while a handler runs, they wait until it
        // has returned.
        let timer_ns = self.timers.next_ns().filter(|_| !self.chores);
        let greetings = self.greetings.iter().flatten().map(|it| it.deadline_ns);
        greetings
            .chain(self.accept_again_ns)
            .chain(timer_ns)
            .min()
            .map_or(self.sweep_at_ns, |it| it.min(self.sweep_at_ns))
    }

    /// Sleeps until an event or that deadline, after one more turn that found no work.
    pub(crate) fn sleep(&mut self, sink: &mut impl Sink, deadline_ns: u64) {
        for &place in &self.active {
            if let Some(link) = &mut self.places[place as usize].link {
                link.declare_sleep();
            }
        }
        self.inbox.set_asleep(true);
        // SeqCst: orders the stores to `asleep` before the last turn, so that a sender sees that
        // this side sleeps, or this turn sees what it sent. Pairs with the fences in
        // Sm::ring_if_asleep and Inbox::tell.
        fence(Ordering::SeqCst);
        if !self.turn(sink, false) {
            let deadline_ns = deadline_ns.min(self.own_deadline_ns());
            let timeout_ns = match deadline_ns {
                u64::MAX => None,
                at_ns => Some(at_ns.saturating_sub(clock::now_ns())),
            };
            self.stats.sleeps_count += 1;
            if timeout_ns.is_some() || !self.sleep_in_read() {
                self.look(timeout_ns);
            }
        }
        self.inbox.set_asleep(false);
        for &place in &self.active {
            if let Some(link) = &mut self.places[place as usize].link {
                link.withdraw();
            }
        }
    }

    /// Returns `true` if this side polls for a while before it sleeps.
    #[inline]
    pub(super) fn spins(&self) -> bool {
        self.config.spin_forever || self.spin_ticks > 0
    }

    /// Runs turns until `done` returns `true`; returns `false` if the deadline passes first. Spins,
    /// then sleeps, as configured.
    #[inline]
    pub(crate) fn turn_until<S: Sink>(
        &mut self,
        sink: &mut S,
        deadline_ns: u64,
        mut done: impl FnMut(&mut Self, bool) -> bool,
    ) -> bool {
        let spins = self.spins();
        let (mut idle_turns, mut idle_ticks, mut busy_turns) = (0u32, 0, 0u32);
        loop {
            let did = self.turn(sink, spins);
            if done(self, did) {
                return true;
            }
            if did {
                idle_turns = 0;
                busy_turns = busy_turns.wrapping_add(1);
                if deadline_ns != u64::MAX
                    && busy_turns.is_multiple_of(BUSY_TURNS_PER_LOOK)
                    && clock::now_ns() >= deadline_ns
                {
                    return false;
                }
                continue;
            }
            idle_turns = idle_turns.wrapping_add(1);
            if spins {
                self.watch();
                if !idle_turns.is_multiple_of(TURNS_PER_LOOK) {
                    continue;
                }
            }
            let now_ticks = clock::ticks();
            if idle_turns == TURNS_PER_LOOK {
                idle_ticks = now_ticks;
            }
            if deadline_ns != u64::MAX && clock::now_ns() >= deadline_ns {
                return false;
            }
            let spent = now_ticks.wrapping_sub(idle_ticks) >= self.spin_ticks;
            if !self.config.spin_forever && spent {
                self.sleep(sink, deadline_ns);
                idle_turns = 0;
            }
        }
    }
}
