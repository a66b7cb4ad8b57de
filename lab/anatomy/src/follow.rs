//! Reconstruction of hand-offs from events, without I/O; events that do not match are counted and
//! excluded, never guessed.

use crate::benchmark::{
    AFTER_SEND_STAGE, BEFORE_REPLY_STAGE, BEFORE_SEND_STAGE, BEFORE_WAKE_STAGE, HandoffMark,
    HandoffRoute, InstrumentedBenchmark, MatchKey, NOTICE_STAGE, OUTWARD_STAGE, PROCESSING_STAGE,
    REPLY_STAGE, RESUME_STAGE, STAGES_COUNT, StartEvent, WAKE_STAGE,
};
use handover_record::UnmatchedCounts;

/// Trace event with its meaning within a hand-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MarkedEvent {
    pub mark: HandoffMark,
    pub ticks: u64,
    /// Index of the thread among the threads of all processes.
    pub thread: u32,
    /// Values of the event: the object and, if there is one, the position; otherwise zero.
    pub values: [u64; 2],
    /// Index of the process. An object may have another address in each process.
    pub process: u32,
}

/// A complete hand-off, from start to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handoff {
    pub begin_ticks: u64,
    pub from_thread: u32,
    pub to_thread: u32,
    /// Duration of each stage in ticks. It is zero if the hand-off has no such stage, or if the
    /// stage was that short: see `passed`.
    pub stages_ticks: [u32; STAGES_COUNT],
    /// Bits of the stages that the hand-off passed through: bit i stands for `stages_ticks[i]`.
    pub passed: u8,
}

impl Handoff {
    pub fn total_ticks(&self) -> u64 {
        self.stages_ticks.iter().map(|ticks| u64::from(*ticks)).sum()
    }

    pub fn has_passed(&self, stage: usize) -> bool {
        self.passed >> stage & 1 == 1
    }
}

/// State of the work that is handed over. It is unknown, held by a thread, in flight, or received
/// before its send was seen.
#[derive(Clone, Copy, Debug)]
enum HandoffState {
    /// The holder of the work is unknown: before the first receive, or after a mismatch.
    Unknown,
    /// The thread `by` holds the work since the time `since`, in ticks.
    Held { by: u32, since: u64, is_interrupted: bool },
    /// The work was sent, and not yet received.
    InFlight(InFlightHandoff),
    /// The work was received before its send was recorded. The sender's next event must be the
    /// send.
    ReceivedEarly { by: u32, since: u64, is_interrupted: bool, received: MarkedEvent },
}

/// Hand-off whose work was sent and not yet received.
#[derive(Clone, Copy, Debug)]
struct InFlightHandoff {
    /// Start of the hand-off, in ticks; `None` if unknown, so that the hand-off is excluded.
    begin: Option<u64>,
    /// `Send` event, on the thread from which the work comes.
    sent: MarkedEvent,
    /// Time of the `SendDone` event, in ticks.
    send_done: Option<u64>,
    /// Time of the `WakeCall` event, in ticks.
    wake_called: Option<u64>,
    /// Thread that was woken, and the time of its `Awake` event in ticks.
    woken: Option<(u32, u64)>,
    /// Times of the `Arrive`, `Process` and `Reply` events of a round trip.
    round_trip_ticks: [Option<u64>; 3],
}

/// State machine that consumes one round's events in order of time.
#[derive(Debug)]
pub(crate) struct HandoffTracker<'a> {
    benchmark: &'a InstrumentedBenchmark,
    /// `true` if operations are timed one by one. A hand-off then starts after the harness has read
    /// the clock.
    is_timed_singly: bool,
    state: HandoffState,
    /// Events of other threads after an early receive.
    deferred: Vec<MarkedEvent>,
    /// Time, in ticks, of an `Arrive` event that was recorded before its send.
    arrived: Option<u64>,
    /// Round trip whose `Receive` event, the second element, was recorded before its `Reply` event:
    /// the caller was woken before the reply's sender could record it.
    unreplied: Option<(InFlightHandoff, MarkedEvent)>,
    pub unmatched: UnmatchedCounts,
}

/// Maximum number of events between an early receive and its send. A later send counts as missing.
const REORDERING_MAX: usize = 8;

impl<'a> HandoffTracker<'a> {
    /// Creates a tracker. `is_timed_singly` is `true` if operations are timed one by one.
    pub fn new(benchmark: &'a InstrumentedBenchmark, is_timed_singly: bool) -> Self {
        Self {
            benchmark,
            is_timed_singly,
            state: HandoffState::Unknown,
            deferred: Vec::with_capacity(REORDERING_MAX),
            arrived: None,
            unreplied: None,
            unmatched: UnmatchedCounts::default(),
        }
    }

    /// Consumes the next event, and appends the hand-offs that it completes to `ended`.
    pub fn handle_event(&mut self, event: MarkedEvent, ended: &mut Vec<Handoff>) {
        if let Some((round_trip, received)) = self.unreplied
            && event.thread != received.thread
        {
            self.unreplied = None;
            if event.mark == HandoffMark::Reply {
                return ended.extend(self.handle_late_reply(round_trip, event, received));
            }
            self.unmatched.mismatched += 1;
        }
        match (self.state, event.mark) {
            (HandoffState::ReceivedEarly { by, .. }, _)
                if event.thread != by && self.deferred.len() < REORDERING_MAX =>
            {
                self.deferred.push(event);
            }
            (HandoffState::ReceivedEarly { .. }, _) => self.resolve_early_receive(event, ended),
            (_, HandoffMark::Send) => self.handle_send(event),
            (_, HandoffMark::Receive) => ended.extend(self.handle_receive(event)),
            (HandoffState::Held { by, .. }, HandoffMark::Arrive) if by != event.thread => {
                // The work has arrived before its sender's event was seen.
                self.arrived = Some(event.ticks);
            }
            (HandoffState::Held { .. }, HandoffMark::Interrupt) => self.handle_interrupt(event),
            (HandoffState::InFlight(_), mark) => {
                if let HandoffState::InFlight(in_flight) = &mut self.state {
                    in_flight.add_mark(mark, event);
                }
            }
            _ => {}
        }
    }

    /// Handles a clock reading of the harness: excludes the current hand-off, or restarts it if
    /// operations are timed singly.
    fn handle_interrupt(&mut self, event: MarkedEvent) {
        let HandoffState::Held { by, since, .. } = self.state else { return };
        if by == event.thread {
            self.state = match self.is_timed_singly {
                true => HandoffState::Held { by, since: event.ticks, is_interrupted: false },
                false => HandoffState::Held { by, since, is_interrupted: true },
            };
        } else if self.benchmark.route == HandoffRoute::SameThread && self.benchmark.has_batches() {
            // All work is on one thread, which waits for the participant that is being timed.
            self.state = HandoffState::Unknown;
        }
    }

    /// Handles a send: the hand-off is now in flight. Its start is unknown if the sender did not
    /// hold the work.
    fn handle_send(&mut self, event: MarkedEvent) {
        let begin = match (self.state, self.benchmark.start_event) {
            (
                HandoffState::Held { by, since, is_interrupted: false },
                StartEvent::PreviousReceive,
            ) if by == event.thread => Some(since),
            (HandoffState::Held { by, is_interrupted: true, .. }, StartEvent::PreviousReceive)
                if by == event.thread =>
            {
                self.unmatched.without_start += 1;
                None
            }
            (HandoffState::Held { .. } | HandoffState::Unknown, StartEvent::Send) => {
                Some(event.ticks)
            }
            (HandoffState::Unknown, StartEvent::PreviousReceive) => None,
            // Sent twice, or sent by a thread that does not have the work.
            _ => {
                self.unmatched.mismatched += 1;
                None
            }
        };
        let mut in_flight = InFlightHandoff::new(begin, event);
        in_flight.round_trip_ticks[0] = self.arrived.take();
        self.unmatched.received_early += u64::from(in_flight.round_trip_ticks[0].is_some());
        self.state = HandoffState::InFlight(in_flight);
    }

    /// Handles a receive: the receiver now holds the work. Returns the completed hand-off, if any.
    fn handle_receive(&mut self, event: MarkedEvent) -> Option<Handoff> {
        let held =
            HandoffState::Held { by: event.thread, since: event.ticks, is_interrupted: false };
        self.arrived = None;
        match self.state {
            HandoffState::Unknown => self.state = held,
            HandoffState::InFlight(in_flight) => {
                self.state = held;
                match self.benchmark.is_same_object(&in_flight.sent, &event) {
                    true if self.benchmark.can_receive(&in_flight, &event) => {
                        return in_flight.into_handoff(event, self.benchmark);
                    }
                    true if self.benchmark.lacks_only_reply(&in_flight, &event) => {
                        self.unreplied = Some((in_flight, event));
                    }
                    true if self.benchmark.route == HandoffRoute::OneWay => {
                        self.unmatched.reacquired += 1
                    }
                    _ => self.unmatched.mismatched += 1,
                }
            }
            HandoffState::Held { by, since, is_interrupted } => {
                let is_across = self.benchmark.route == HandoffRoute::OneWay && by != event.thread;
                if self.benchmark.start_event == StartEvent::PreviousReceive && is_across {
                    self.state =
                        HandoffState::ReceivedEarly { by, since, is_interrupted, received: event };
                } else {
                    self.unmatched.mismatched += 1;
                    self.state = held;
                }
            }
            // `handle_event()` has handled this state.
            HandoffState::ReceivedEarly { .. } => {}
        }
        None
    }

    /// Handles the `Reply` event of a round trip that has been received. Returns the completed
    /// hand-off, if any.
    fn handle_late_reply(
        &mut self,
        mut round_trip: InFlightHandoff,
        reply: MarkedEvent,
        received: MarkedEvent,
    ) -> Option<Handoff> {
        if !self.benchmark.is_same_object(&round_trip.sent, &reply) {
            self.unmatched.mismatched += 1;
            return None;
        }
        self.unmatched.received_early += 1;
        round_trip.round_trip_ticks[2] = Some(reply.ticks);
        round_trip.into_handoff(received, self.benchmark)
    }

    /// Resolves an early receive: `event` must be its send, otherwise the receive is mismatched.
    /// Then handles the deferred events.
    fn resolve_early_receive(&mut self, event: MarkedEvent, ended: &mut Vec<Handoff>) {
        let HandoffState::ReceivedEarly { by, since, is_interrupted, received } = self.state else {
            return;
        };
        self.state = HandoffState::Held {
            by: received.thread,
            since: received.ticks,
            is_interrupted: false,
        };
        let deferred = std::mem::take(&mut self.deferred);
        let is_from_sender = event.mark == HandoffMark::Send && event.thread == by;
        let is_matching = is_from_sender && self.benchmark.is_same_object(&event, &received);
        match (is_matching, is_interrupted) {
            (true, true) => self.unmatched.without_start += 1,
            (true, false) => {
                self.unmatched.received_early += 1;
                let sent = MarkedEvent { ticks: received.ticks, ..event };
                let in_flight = InFlightHandoff::new(Some(since), sent);
                ended.extend(in_flight.into_handoff(received, self.benchmark));
            }
            (false, _) => self.unmatched.mismatched += 1,
        }
        for event in deferred {
            self.handle_event(event, ended);
        }
        if !is_matching {
            self.handle_event(event, ended);
        }
    }
}

impl InstrumentedBenchmark {
    /// Returns `true` if the event `received` may complete the hand-off `in_flight`, by the
    /// benchmark's route.
    fn can_receive(&self, in_flight: &InFlightHandoff, received: &MarkedEvent) -> bool {
        match self.route {
            HandoffRoute::OneWay => in_flight.sent.thread != received.thread,
            HandoffRoute::SameThread => true,
            HandoffRoute::RoundTrip => {
                in_flight.sent.thread == received.thread
                    && in_flight.round_trip_ticks.iter().all(Option::is_some)
            }
        }
    }

    /// Returns `true` if the round trip `in_flight` lacks nothing but its `Reply` event at the
    /// event `received`.
    fn lacks_only_reply(&self, in_flight: &InFlightHandoff, received: &MarkedEvent) -> bool {
        self.route == HandoffRoute::RoundTrip
            && in_flight.sent.thread == received.thread
            && matches!(in_flight.round_trip_ticks, [Some(_), Some(_), None])
    }

    /// Returns `true` if both events refer to the same object. Always `true` across processes,
    /// where addresses differ.
    fn is_same_object(&self, sent: &MarkedEvent, received: &MarkedEvent) -> bool {
        match self.match_key {
            MatchKey::None => true,
            MatchKey::Values => sent.process != received.process || sent.values == received.values,
        }
    }
}

impl InFlightHandoff {
    /// Creates a hand-off of which only the start and the send are known.
    fn new(begin: Option<u64>, sent: MarkedEvent) -> Self {
        Self {
            begin,
            sent,
            send_done: None,
            wake_called: None,
            woken: None,
            round_trip_ticks: [None; 3],
        }
    }

    /// Records the time of an event between the send and the receive. Ignores an event on the wrong
    /// thread.
    fn add_mark(&mut self, mark: HandoffMark, event: MarkedEvent) {
        let is_sender = event.thread == self.sent.thread;
        match mark {
            HandoffMark::SendDone if is_sender => self.send_done = Some(event.ticks),
            HandoffMark::WakeCall if is_sender => self.wake_called = Some(event.ticks),
            _ if is_sender => {}
            // A sleep may end spuriously; the end of the last sleep counts.
            HandoffMark::Awake => self.woken = Some((event.thread, event.ticks)),
            // Stamped by either CPU's clock. Each mark occurs once, unless the events of two
            // hand-offs are mixed.
            HandoffMark::Arrive => self.round_trip_ticks[0] = Some(event.ticks),
            HandoffMark::Process => self.round_trip_ticks[1] = Some(event.ticks),
            HandoffMark::Reply => self.round_trip_ticks[2] = Some(event.ticks),
            _ => {}
        }
    }

    /// Returns the completed hand-off with its stages; `None` if its start is unknown.
    fn into_handoff(
        self,
        received: MarkedEvent,
        benchmark: &InstrumentedBenchmark,
    ) -> Option<Handoff> {
        let begin = self.begin?;
        let mut handoff = Handoff {
            begin_ticks: begin,
            from_thread: self.sent.thread,
            to_thread: received.thread,
            stages_ticks: [0; STAGES_COUNT],
            passed: 0,
        };
        let mut at = begin;
        let mut pass = |stage: usize, until: u64| {
            // Clamped to the end: the clocks of two CPUs may differ slightly.
            let until = until.clamp(at, received.ticks.max(at));
            handoff.stages_ticks[stage] = u32::try_from(until - at).unwrap_or(u32::MAX);
            handoff.passed |= 1 << stage;
            at = until;
        };
        if benchmark.start_event == StartEvent::PreviousReceive {
            pass(BEFORE_SEND_STAGE, self.sent.ticks);
        }
        if let Some(send_done) = self.send_done {
            pass(AFTER_SEND_STAGE, send_done);
        }
        if let [Some(there), Some(treated), Some(returned)] = self.round_trip_ticks {
            pass(OUTWARD_STAGE, there);
            pass(PROCESSING_STAGE, treated);
            pass(BEFORE_REPLY_STAGE, returned);
            pass(REPLY_STAGE, received.ticks);
            return Some(handoff);
        }
        if let Some(wake_called) = self.wake_called {
            pass(BEFORE_WAKE_STAGE, wake_called);
        }
        match self.woken {
            Some((thread, woken)) if thread == received.thread => {
                pass(WAKE_STAGE, woken);
                pass(RESUME_STAGE, received.ticks);
            }
            _ => pass(NOTICE_STAGE, received.ticks),
        }
        Some(handoff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::find_instrumented_benchmark;

    fn event(mark: HandoffMark, ticks: u64, thread: u32, key: u64) -> MarkedEvent {
        MarkedEvent { mark, ticks, thread, values: [key, 0], process: 0 }
    }

    fn follow(spec: &str, events: &[MarkedEvent]) -> (Vec<Handoff>, UnmatchedCounts) {
        followed(spec, false, events)
    }

    fn followed(
        spec: &str,
        is_timed_singly: bool,
        events: &[MarkedEvent],
    ) -> (Vec<Handoff>, UnmatchedCounts) {
        let mut tracker = HandoffTracker::new(
            find_instrumented_benchmark(spec).expect("find the benchmark"),
            is_timed_singly,
        );
        let mut handoffs = Vec::new();
        events.iter().for_each(|event| tracker.handle_event(*event, &mut handoffs));
        (handoffs, tracker.unmatched)
    }

    use HandoffMark::{
        Arrive, Awake, Interrupt, Process, Receive, Reply, Send, SendDone, WakeCall,
    };

    #[test]
    fn round_trip_is_one_handoff_with_five_stages() {
        let events = [
            event(Receive, 100, 1, 7),
            event(Send, 120, 1, 7),
            event(Arrive, 170, 2, 7),
            event(Process, 180, 2, 7),
            event(Reply, 200, 2, 7),
            event(Receive, 260, 1, 7),
            event(Send, 280, 1, 7),
            // The arbiter's events of this packet are lost.
            event(Receive, 400, 1, 7),
            event(Interrupt, 410, 1, 0),
            event(Send, 420, 1, 7),
            event(Arrive, 430, 2, 7),
            event(Process, 440, 2, 7),
            event(Reply, 450, 2, 7),
            event(Receive, 460, 1, 7),
        ];
        let (handoffs, unmatched) = follow("sched/round-trip", &events);
        assert_eq!(handoffs.len(), 1);
        assert_eq!(handoffs[0].stages_ticks, [20, 0, 50, 10, 20, 60]);
        assert_eq!((unmatched.mismatched, unmatched.without_start), (1, 1));
    }

    #[test]
    fn reply_recorded_after_its_receive_completes_the_round_trip() {
        let events = [
            event(Receive, 100, 1, 7),
            event(Send, 120, 1, 7),
            event(Arrive, 170, 2, 7),
            event(Process, 180, 2, 7),
            // The sender of the reply wakes the caller, which runs first.
            event(Receive, 200, 1, 7),
            event(Send, 210, 1, 7),
            event(Reply, 220, 2, 7),
            event(Arrive, 230, 2, 7),
            event(Process, 240, 2, 7),
            event(Receive, 260, 1, 7),
            // The reply of the second round trip is lost.
            event(Send, 280, 1, 7),
            event(Arrive, 290, 2, 7),
        ];
        let (handoffs, unmatched) = follow("sched/round-trip", &events);
        assert_eq!(handoffs.len(), 1);
        assert_eq!(handoffs[0].stages_ticks, [20, 0, 50, 10, 20, 0]);
        assert_eq!((unmatched.received_early, unmatched.mismatched), (1, 1));
    }

    #[test]
    fn arrival_stamped_before_its_send_has_no_travel_time() {
        let events = [
            event(Receive, 100, 1, 7),
            event(Arrive, 110, 2, 7),
            event(Send, 120, 1, 7),
            event(Process, 130, 2, 7),
            event(Reply, 140, 2, 7),
            event(Receive, 190, 1, 7),
        ];
        let (handoffs, unmatched) = follow("sched/round-trip", &events);
        assert_eq!(handoffs[0].stages_ticks, [20, 0, 0, 10, 10, 50]);
        assert_eq!((unmatched.received_early, unmatched.mismatched), (1, 0));
    }

    #[test]
    fn send_done_before_or_after_arrival_keeps_the_sum() {
        let call = |at: u64, sent: u64| {
            let there = [
                (Send, 20, 1),
                (SendDone, sent, 1),
                (Arrive, 80, 2),
                (Process, 90, 2),
                (Reply, 120, 2),
                (Receive, 180, 1),
            ];
            there.map(|(mark, after, thread)| event(mark, at + after, thread, at))
        };
        let mut events = vec![event(Receive, 0, 1, 9)];
        events.extend(call(0, 30));
        // The stamp is taken after the other side has the work.
        events.extend(call(180, 85));
        events.sort_by_key(|it| it.ticks);
        let (handoffs, unmatched) = follow("rpc/noop", &events);
        assert_eq!(unmatched, UnmatchedCounts::default());
        assert_eq!(handoffs[0].stages_ticks, [20, 10, 50, 10, 30, 60]);
        assert_eq!(handoffs[1].stages_ticks, [20, 65, 0, 5, 30, 60]);
    }

    #[test]
    fn fibers_on_one_thread_hand_over_by_switching() {
        let events = [
            event(Receive, 100, 1, 0),
            event(Send, 110, 1, 5),
            event(SendDone, 115, 1, 6),
            event(Receive, 130, 1, 1),
            event(Send, 150, 1, 6),
            event(SendDone, 151, 1, 5),
            event(Receive, 160, 1, 0),
        ];
        let (handoffs, unmatched) = follow("fiber/eventual", &events);
        assert_eq!(unmatched, UnmatchedCounts::default());
        assert_eq!(handoffs[0].stages_ticks, [10, 5, 0, 15, 0, 0]);
        assert_eq!(handoffs[1].stages_ticks, [20, 1, 0, 9, 0, 0]);
    }

    #[test]
    fn handoff_begins_at_previous_receive_and_stages_add_up() {
        let events = [
            event(Receive, 100, 1, 1),
            event(Send, 120, 1, 2),
            event(Receive, 170, 2, 2),
            event(Send, 175, 2, 1),
            event(WakeCall, 180, 2, 9),
            event(Awake, 900, 1, 9),
            event(Receive, 950, 1, 1),
        ];
        let (handoffs, unmatched) = follow("event/round-trip", &events);
        assert_eq!(unmatched, UnmatchedCounts::default());
        assert_eq!(handoffs[0].stages_ticks, [20, 0, 0, 50, 0, 0]);
        assert_eq!(handoffs[1].stages_ticks, [5, 0, 5, 0, 720, 50]);
        assert_eq!((handoffs[1].from_thread, handoffs[1].to_thread), (2, 1));
        assert_eq!(handoffs[0].total_ticks() + handoffs[1].total_ticks(), 950 - 100);
        assert!(handoffs[1].has_passed(WAKE_STAGE) && !handoffs[1].has_passed(NOTICE_STAGE));
    }

    #[test]
    fn receive_of_another_object_is_counted_and_left_out() {
        let events = [
            event(Receive, 100, 1, 1),
            event(Send, 120, 1, 2),
            event(Receive, 170, 2, 3),
            event(Send, 180, 2, 1),
            event(Receive, 230, 1, 1),
        ];
        let (handoffs, unmatched) = follow("event/round-trip", &events);
        assert_eq!((handoffs.len(), unmatched.mismatched), (1, 1));
        assert_eq!(handoffs[0].begin_ticks, 170);
    }

    #[test]
    fn lost_event_drops_only_adjacent_handoffs() {
        let whole: Vec<MarkedEvent> = (0..40)
            .map(|at| {
                event(if at % 2 == 0 { Receive } else { Send }, at * 10, (at / 2 % 2) as u32, 7)
            })
            .collect();
        let (all, unmatched) = follow("event/round-trip", &whole);
        assert_eq!((all.len(), unmatched.mismatched), (19, 0));
        for lost in 1..36 {
            let mut events = whole.clone();
            events.remove(lost);
            let (handoffs, unmatched) = follow("event/round-trip", &events);
            assert!(unmatched.mismatched >= 1, "without {lost}");
            assert!(handoffs.len() >= 16, "without {lost}: {}", handoffs.len());
            assert!(handoffs.iter().all(|one| one.total_ticks() <= 20), "without {lost}");
        }
    }

    #[test]
    fn early_receive_is_counted_and_the_sum_is_kept() {
        let events = [
            event(Receive, 100, 1, 1),
            event(Receive, 140, 2, 2),
            event(Send, 141, 1, 2),
            event(Send, 160, 2, 1),
            event(Receive, 200, 1, 1),
        ];
        let (handoffs, unmatched) = follow("event/round-trip", &events);
        assert_eq!((unmatched.received_early, unmatched.mismatched), (1, 0));
        assert_eq!(handoffs[0].stages_ticks, [40, 0, 0, 0, 0, 0]);
        assert_eq!(handoffs[1].total_ticks(), 60);
    }

    #[test]
    fn late_send_event_drops_no_handoff() {
        let events = [
            event(Receive, 100, 1, 1),
            event(Receive, 140, 2, 2),
            event(Send, 150, 2, 1),
            event(Send, 155, 1, 2),
            event(Receive, 200, 1, 1),
        ];
        let (handoffs, unmatched) = follow("event/round-trip", &events);
        assert_eq!((handoffs.len(), unmatched.received_early, unmatched.mismatched), (2, 1, 0));
        assert_eq!(handoffs[1].stages_ticks, [10, 0, 0, 50, 0, 0]);
    }

    #[test]
    fn handoff_interrupted_by_the_harness_is_left_out() {
        let events = [
            event(Receive, 100, 1, 1),
            event(Interrupt, 110, 1, 0),
            event(Send, 120, 1, 2),
            event(Receive, 170, 2, 2),
            event(Send, 180, 2, 1),
            event(Receive, 200, 1, 1),
        ];
        let (handoffs, unmatched) = follow("event/round-trip", &events);
        assert_eq!((handoffs.len(), unmatched.without_start, unmatched.mismatched), (1, 1, 0));
        assert_eq!(handoffs[0].begin_ticks, 170);
    }

    #[test]
    fn handoff_timed_singly_begins_after_the_harness() {
        let packet = |at: u64| {
            let marks =
                [(Interrupt, 1), (Send, 1), (Arrive, 2), (Process, 2), (Reply, 2), (Receive, 1)];
            marks.into_iter().enumerate().map(move |(index, (mark, thread))| {
                let ticks = at + 10 * index as u64;
                event(mark, ticks, thread, if mark == Interrupt { 0 } else { 7 })
            })
        };
        let events: Vec<MarkedEvent> = (0..4).flat_map(|turn| packet(1000 * turn)).collect();
        let (handoffs, unmatched) = followed("sched/round-trip", true, &events);
        assert_eq!(unmatched, UnmatchedCounts::default());
        // The begin of the first hand-off is unknown.
        assert_eq!(handoffs.len(), 3);
        assert!(handoffs.iter().all(|one| one.total_ticks() == 50), "{handoffs:?}");
        let (handoffs, unmatched) = follow("sched/round-trip", &events);
        assert_eq!((handoffs.len(), unmatched.without_start), (0, 3));
    }

    #[test]
    fn thread_waiting_for_the_harness_has_no_handoff() {
        let events = [
            event(Receive, 100, 1, 0),
            event(Send, 110, 1, 5),
            event(Receive, 130, 1, 1),
            // Timed on that thread, and recorded by another one.
            event(Interrupt, 500, 2, 0),
            event(Receive, 900, 1, 0),
            event(Send, 910, 1, 5),
            event(Receive, 930, 1, 1),
        ];
        let (handoffs, unmatched) = follow("fiber/eventual", &events);
        assert_eq!(unmatched, UnmatchedCounts::default());
        assert_eq!(handoffs.iter().map(Handoff::total_ticks).collect::<Vec<_>>(), [30, 30]);
    }

    #[test]
    fn lock_taken_again_by_its_holder_is_no_handoff() {
        let events = [
            event(Receive, 100, 1, 5),
            event(Send, 120, 1, 5),
            event(Receive, 130, 1, 5),
            event(Send, 150, 1, 5),
            event(Receive, 190, 2, 5),
        ];
        let (handoffs, unmatched) = follow("lock/passed", &events);
        assert_eq!((unmatched.reacquired, unmatched.mismatched), (1, 0));
        assert_eq!(handoffs.len(), 1);
        assert_eq!(handoffs[0].stages_ticks, [20, 0, 0, 40, 0, 0]);
    }

    #[test]
    fn handoff_beginning_with_send_has_no_earlier_stage() {
        let events = [
            event(Send, 100, 1, 5),
            event(WakeCall, 110, 1, 5),
            event(Awake, 4000, 2, 5),
            event(Receive, 4100, 2, 0),
            event(Send, 9000, 1, 5),
            event(Receive, 9050, 2, 0),
        ];
        let (handoffs, unmatched) = follow("notify/sleeping", &events);
        assert_eq!(unmatched, UnmatchedCounts::default());
        assert_eq!(handoffs[0].stages_ticks, [0, 0, 10, 0, 3890, 100]);
        assert_eq!(handoffs[1].stages_ticks, [0, 0, 0, 50, 0, 0]);
        assert!(!handoffs[0].has_passed(BEFORE_SEND_STAGE));
    }
}
