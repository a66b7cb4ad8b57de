//! Pure reconstruction of hand-offs from events; events that do not fit are counted and left out,
//! never guessed.

use crate::course::{
    BACK, Begin, CALL, Course, FINISH, HAVE, Key, Mark, NOTICE, RESUME, RETURN, STAGES_COUNT,
    THERE, TREAT, WAKE, Way,
};
use handover_record::Unmatched;

/// An event with its mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub mark: Mark,
    pub ticks: u64,
    /// Index among the threads of all processes.
    pub thread: u32,
    pub values: [u64; 2],
    /// Index of the process; one object has different addresses in different processes.
    pub process: u32,
}

/// A hand-off, from begin to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handoff {
    pub begin_ticks: u64,
    pub from_thread: u32,
    pub to_thread: u32,
    /// Duration of each stage; zero if the stage was not passed, and possibly if it was: see
    /// `passed`.
    pub stages_ticks: [u32; STAGES_COUNT],
    /// A bit for each stage that was passed.
    pub passed: u8,
}

impl Handoff {
    pub fn total_ticks(&self) -> u64 {
        self.stages_ticks.iter().map(|ticks| u64::from(*ticks)).sum()
    }

    pub fn passes(&self, place: usize) -> bool {
        self.passed >> place & 1 == 1
    }
}

/// Location of the work.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Unknown.
    Lost,
    /// Held by a thread since a given time.
    Held { by: u32, since: u64, broken: bool },
    /// On its way.
    Under(Flight),
    /// Taken before the giver's event was seen; the giver's next event must be the giving.
    Early { by: u32, since: u64, broken: bool, taken: Told },
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    from: u32,
    /// `None` if the begin is unknown; the hand-off is then left out.
    begin: Option<u64>,
    given: Told,
    done: Option<u64>,
    called: Option<u64>,
    woken: Option<(u32, u64)>,
    /// On a round trip: when the work reached the other thread, was treated, and was sent back.
    round: [Option<u64>; 3],
}

/// State machine that consumes one round's events in the order of time.
#[derive(Debug)]
pub(crate) struct Follower<'a> {
    course: &'a Course,
    /// `true` if operations are timed one by one: a hand-off then begins where the harness is done.
    singly: bool,
    state: State,
    /// Events of other threads that came after an early taking.
    waiting: Vec<Told>,
    /// On a round trip: when the work reached the other thread, if that was seen before the giving.
    arrived: Option<u64>,
    pub unmatched: Unmatched,
}

/// Maximum reordering between threads, in events: a giver's event that comes later is not waited
/// for.
const LATE_MAX: usize = 8;

impl<'a> Follower<'a> {
    /// Creates a follower; `singly` if operations are timed one by one.
    pub fn new(course: &'a Course, singly: bool) -> Self {
        let waiting = Vec::with_capacity(LATE_MAX);
        let unmatched = Unmatched::default();
        Self { course, singly, state: State::Lost, waiting, arrived: None, unmatched }
    }

    /// Consumes the next event, and appends the hand-offs that it ends to `ended`.
    pub fn next(&mut self, told: Told, ended: &mut Vec<Handoff>) {
        match (self.state, told.mark) {
            (State::Early { by, .. }, _) if told.thread != by && self.waiting.len() < LATE_MAX => {
                self.waiting.push(told);
            }
            (State::Early { .. }, _) => self.late(told, ended),
            (_, Mark::Give) => self.give(told),
            (_, Mark::Take) => ended.extend(self.take(told)),
            (State::Held { by, .. }, Mark::Reach) if by != told.thread => {
                // The work has arrived before its sender's event was seen.
                self.arrived = Some(told.ticks);
            }
            (State::Held { .. }, Mark::Break) => self.part(told),
            (State::Under(_), mark) => {
                if let State::Under(flight) = &mut self.state {
                    flight.pass(mark, told);
                }
            }
            _ => {}
        }
    }

    /// Notes that the harness has interrupted the holder of the work.
    fn part(&mut self, told: Told) {
        let State::Held { by, since, .. } = self.state else { return };
        if by == told.thread {
            self.state = match self.singly {
                true => State::Held { by, since: told.ticks, broken: false },
                false => State::Held { by, since, broken: true },
            };
        } else if self.course.way == Way::Alone && self.course.has_batches() {
            // All work is on one thread, which waits for the participant that is being timed.
            self.state = State::Lost;
        }
    }

    fn give(&mut self, told: Told) {
        let begin = match (self.state, self.course.begin) {
            (State::Held { by, since, broken: false }, Begin::LastTake) if by == told.thread => {
                Some(since)
            }
            (State::Held { by, broken: true, .. }, Begin::LastTake) if by == told.thread => {
                self.unmatched.begun_anew += 1;
                None
            }
            (State::Held { .. } | State::Lost, Begin::Give) => Some(told.ticks),
            (State::Lost, Begin::LastTake) => None,
            // Given twice, or given by a thread that does not have the work.
            _ => {
                self.unmatched.mismatched += 1;
                None
            }
        };
        self.state = State::Under(Flight {
            from: told.thread,
            begin,
            given: told,
            done: None,
            called: None,
            woken: None,
            round: [self.arrived.take(), None, None],
        });
        if let State::Under(Flight { round: [Some(_), ..], .. }) = self.state {
            self.unmatched.overtaken += 1;
        }
    }

    fn take(&mut self, told: Told) -> Option<Handoff> {
        let held = State::Held { by: told.thread, since: told.ticks, broken: false };
        self.arrived = None;
        match self.state {
            State::Lost => self.state = held,
            State::Under(flight) => {
                self.state = held;
                match self.course.same_object(&flight.given, &told) {
                    true if self.course.may_take(&flight, &told) => {
                        return flight.land(told, self.course);
                    }
                    true if self.course.way == Way::Across => self.unmatched.kept += 1,
                    _ => self.unmatched.mismatched += 1,
                }
            }
            State::Held { by, since, broken } => {
                let is_across = self.course.way == Way::Across && by != told.thread;
                if self.course.begin == Begin::LastTake && is_across {
                    self.state = State::Early { by, since, broken, taken: told };
                } else {
                    self.unmatched.mismatched += 1;
                    self.state = held;
                }
            }
            // `next()` has handled this state.
            State::Early { .. } => {}
        }
        None
    }

    /// Resolves an early taking: `told` must be the giver's event, or there is none and the taking
    /// is mismatched. Events that were held back are then processed.
    fn late(&mut self, told: Told, ended: &mut Vec<Handoff>) {
        let State::Early { by, since, broken, taken } = self.state else { return };
        self.state = State::Held { by: taken.thread, since: taken.ticks, broken: false };
        let waiting = std::mem::take(&mut self.waiting);
        let is_its = told.mark == Mark::Give && told.thread == by;
        let gave = is_its && self.course.same_object(&told, &taken);
        match (gave, broken) {
            (true, true) => self.unmatched.begun_anew += 1,
            (true, false) => {
                self.unmatched.overtaken += 1;
                let given = Told { ticks: taken.ticks, ..told };
                let begin = Some(since);
                let (done, called, woken, round) = (None, None, None, [None; 3]);
                let flight = Flight { from: by, begin, given, done, called, woken, round };
                ended.extend(flight.land(taken, self.course));
            }
            (false, _) => self.unmatched.mismatched += 1,
        }
        for told in waiting {
            self.next(told, ended);
        }
        if !gave {
            self.next(told, ended);
        }
    }
}

impl Course {
    /// Returns `true` if the thread that takes the work may be the receiver of such a hand-off.
    fn may_take(&self, flight: &Flight, taken: &Told) -> bool {
        match self.way {
            Way::Across => flight.from != taken.thread,
            Way::Alone => true,
            Way::Round => flight.from == taken.thread && flight.round.iter().all(Option::is_some),
        }
    }

    /// Returns `true` if both events name the same object. Always `true` across processes, where
    /// addresses differ.
    fn same_object(&self, given: &Told, taken: &Told) -> bool {
        match self.key {
            Key::None => true,
            Key::Values => given.process != taken.process || given.values == taken.values,
        }
    }
}

impl Flight {
    fn pass(&mut self, mark: Mark, told: Told) {
        match mark {
            Mark::Done if told.thread == self.from => self.done = Some(told.ticks),
            Mark::Call if told.thread == self.from => self.called = Some(told.ticks),
            // A sleep may end without a reason; the end of the last sleep counts.
            Mark::Wake if told.thread != self.from => {
                self.woken = Some((told.thread, told.ticks));
            }
            // Stamped by either CPU's clock. Each mark occurs once, unless the events of two
            // hand-offs are mixed.
            Mark::Reach if told.thread != self.from => self.round[0] = Some(told.ticks),
            Mark::Treat if told.thread != self.from => self.round[1] = Some(told.ticks),
            Mark::Return if told.thread != self.from => self.round[2] = Some(told.ticks),
            _ => {}
        }
    }

    fn land(self, taken: Told, course: &Course) -> Option<Handoff> {
        let begin = self.begin?;
        let mut handoff = Handoff {
            begin_ticks: begin,
            from_thread: self.from,
            to_thread: taken.thread,
            stages_ticks: [0; STAGES_COUNT],
            passed: 0,
        };
        let mut at = begin;
        let mut pass = |place: usize, until: u64| {
            // Clamped to the end: the clocks of two CPUs may differ slightly.
            let until = until.clamp(at, taken.ticks.max(at));
            handoff.stages_ticks[place] = u32::try_from(until - at).unwrap_or(u32::MAX);
            handoff.passed |= 1 << place;
            at = until;
        };
        if course.begin == Begin::LastTake {
            pass(HAVE, self.given.ticks);
        }
        if let Some(done) = self.done {
            pass(FINISH, done);
        }
        if let [Some(there), Some(treated), Some(returned)] = self.round {
            pass(THERE, there);
            pass(TREAT, treated);
            pass(RETURN, returned);
            pass(BACK, taken.ticks);
            return Some(handoff);
        }
        if let Some(called) = self.called {
            pass(CALL, called);
        }
        match self.woken {
            Some((thread, woken)) if thread == taken.thread => {
                pass(WAKE, woken);
                pass(RESUME, taken.ticks);
            }
            _ => pass(NOTICE, taken.ticks),
        }
        Some(handoff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::course::find;

    fn told(mark: Mark, ticks: u64, thread: u32, key: u64) -> Told {
        Told { mark, ticks, thread, values: [key, 0], process: 0 }
    }

    fn follow(spec: &str, events: &[Told]) -> (Vec<Handoff>, Unmatched) {
        followed(spec, false, events)
    }

    fn followed(spec: &str, singly: bool, events: &[Told]) -> (Vec<Handoff>, Unmatched) {
        let mut follower = Follower::new(find(spec).expect("a course"), singly);
        let mut handoffs = Vec::new();
        events.iter().for_each(|told| follower.next(*told, &mut handoffs));
        (handoffs, follower.unmatched)
    }

    use Mark::{Break, Call, Done, Give, Reach, Return, Take, Treat, Wake};

    #[test]
    fn what_goes_through_another_and_comes_back_is_one_hand_off_with_five_stages() {
        let events = [
            told(Take, 100, 1, 7),
            told(Give, 120, 1, 7),
            told(Reach, 170, 2, 7),
            told(Treat, 180, 2, 7),
            told(Return, 200, 2, 7),
            told(Take, 260, 1, 7),
            told(Give, 280, 1, 7),
            // The arbiter's events of this packet are lost.
            told(Take, 400, 1, 7),
            told(Break, 410, 1, 0),
            told(Give, 420, 1, 7),
            told(Reach, 430, 2, 7),
            told(Treat, 440, 2, 7),
            told(Return, 450, 2, 7),
            told(Take, 460, 1, 7),
        ];
        let (handoffs, unmatched) = follow("sched/round-trip", &events);
        assert_eq!(handoffs.len(), 1);
        assert_eq!(handoffs[0].stages_ticks, [20, 0, 50, 10, 20, 60]);
        assert_eq!((unmatched.mismatched, unmatched.begun_anew), (1, 1));
    }

    #[test]
    fn what_arrives_before_its_sender_says_so_has_been_under_way_for_no_time() {
        let events = [
            told(Take, 100, 1, 7),
            told(Reach, 110, 2, 7),
            told(Give, 120, 1, 7),
            told(Treat, 130, 2, 7),
            told(Return, 140, 2, 7),
            told(Take, 190, 1, 7),
        ];
        let (handoffs, unmatched) = follow("sched/round-trip", &events);
        assert_eq!(handoffs[0].stages_ticks, [20, 0, 0, 10, 10, 50]);
        assert_eq!((unmatched.overtaken, unmatched.mismatched), (1, 0));
    }

    #[test]
    fn who_has_sent_says_so_before_or_after_it_is_there_and_the_stages_add_up() {
        let call = |at: u64, sent: u64| {
            let there = [
                (Give, 20, 1),
                (Done, sent, 1),
                (Reach, 80, 2),
                (Treat, 90, 2),
                (Return, 120, 2),
                (Take, 180, 1),
            ];
            there.map(|(mark, after, thread)| told(mark, at + after, thread, at))
        };
        let mut events = vec![told(Take, 0, 1, 9)];
        events.extend(call(0, 30));
        // The stamp is taken after the other side has the work.
        events.extend(call(180, 85));
        events.sort_by_key(|it| it.ticks);
        let (handoffs, unmatched) = follow("rpc/noop", &events);
        assert_eq!(unmatched, Unmatched::default());
        assert_eq!(handoffs[0].stages_ticks, [20, 10, 50, 10, 30, 60]);
        assert_eq!(handoffs[1].stages_ticks, [20, 65, 0, 5, 30, 60]);
    }

    #[test]
    fn two_fibers_on_one_thread_hand_over_by_being_switched_to() {
        let events = [
            told(Take, 100, 1, 0),
            told(Give, 110, 1, 5),
            told(Done, 115, 1, 6),
            told(Take, 130, 1, 1),
            told(Give, 150, 1, 6),
            told(Done, 151, 1, 5),
            told(Take, 160, 1, 0),
        ];
        let (handoffs, unmatched) = follow("fiber/eventual", &events);
        assert_eq!(unmatched, Unmatched::default());
        assert_eq!(handoffs[0].stages_ticks, [10, 5, 0, 15, 0, 0]);
        assert_eq!(handoffs[1].stages_ticks, [20, 1, 0, 9, 0, 0]);
    }

    #[test]
    fn each_hand_off_begins_where_the_last_one_ended_and_its_stages_add_up() {
        let events = [
            told(Take, 100, 1, 1),
            told(Give, 120, 1, 2),
            told(Take, 170, 2, 2),
            told(Give, 175, 2, 1),
            told(Call, 180, 2, 9),
            told(Wake, 900, 1, 9),
            told(Take, 950, 1, 1),
        ];
        let (handoffs, unmatched) = follow("event/round-trip", &events);
        assert_eq!(unmatched, Unmatched::default());
        assert_eq!(handoffs[0].stages_ticks, [20, 0, 0, 50, 0, 0]);
        assert_eq!(handoffs[1].stages_ticks, [5, 0, 5, 0, 720, 50]);
        assert_eq!((handoffs[1].from_thread, handoffs[1].to_thread), (2, 1));
        assert_eq!(handoffs[0].total_ticks() + handoffs[1].total_ticks(), 950 - 100);
        assert!(handoffs[1].passes(WAKE) && !handoffs[1].passes(NOTICE));
    }

    #[test]
    fn what_was_taken_by_another_machine_than_it_was_given_to_is_counted_and_left_out() {
        let events = [
            told(Take, 100, 1, 1),
            told(Give, 120, 1, 2),
            told(Take, 170, 2, 3),
            told(Give, 180, 2, 1),
            told(Take, 230, 1, 1),
        ];
        let (handoffs, unmatched) = follow("event/round-trip", &events);
        assert_eq!((handoffs.len(), unmatched.mismatched), (1, 1));
        assert_eq!(handoffs[0].begin_ticks, 170);
    }

    #[test]
    fn a_lost_event_costs_the_hand_offs_beside_it_and_no_more() {
        let whole: Vec<Told> = (0..40)
            .map(|at| told(if at % 2 == 0 { Take } else { Give }, at * 10, (at / 2 % 2) as u32, 7))
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
    fn an_arrival_that_overtakes_its_own_stamp_is_counted_and_the_sum_stays_whole() {
        let events = [
            told(Take, 100, 1, 1),
            told(Take, 140, 2, 2),
            told(Give, 141, 1, 2),
            told(Give, 160, 2, 1),
            told(Take, 200, 1, 1),
        ];
        let (handoffs, unmatched) = follow("event/round-trip", &events);
        assert_eq!((unmatched.overtaken, unmatched.mismatched), (1, 0));
        assert_eq!(handoffs[0].stages_ticks, [40, 0, 0, 0, 0, 0]);
        assert_eq!(handoffs[1].total_ticks(), 60);
    }

    #[test]
    fn a_stamp_that_comes_later_than_what_follows_from_it_costs_no_hand_off() {
        let events = [
            told(Take, 100, 1, 1),
            told(Take, 140, 2, 2),
            told(Give, 150, 2, 1),
            told(Give, 155, 1, 2),
            told(Take, 200, 1, 1),
        ];
        let (handoffs, unmatched) = follow("event/round-trip", &events);
        assert_eq!((handoffs.len(), unmatched.overtaken, unmatched.mismatched), (2, 1, 0));
        assert_eq!(handoffs[1].stages_ticks, [10, 0, 0, 50, 0, 0]);
    }

    #[test]
    fn where_the_harness_comes_between_the_hand_off_is_begun_anew_and_left_out() {
        let events = [
            told(Take, 100, 1, 1),
            told(Break, 110, 1, 0),
            told(Give, 120, 1, 2),
            told(Take, 170, 2, 2),
            told(Give, 180, 2, 1),
            told(Take, 200, 1, 1),
        ];
        let (handoffs, unmatched) = follow("event/round-trip", &events);
        assert_eq!((handoffs.len(), unmatched.begun_anew, unmatched.mismatched), (1, 1, 0));
        assert_eq!(handoffs[0].begin_ticks, 170);
    }

    #[test]
    fn what_is_timed_one_by_one_begins_where_the_harness_is_done() {
        let packet = |at: u64| {
            let marks = [(Break, 1), (Give, 1), (Reach, 2), (Treat, 2), (Return, 2), (Take, 1)];
            marks.into_iter().enumerate().map(move |(index, (mark, thread))| {
                let ticks = at + 10 * index as u64;
                told(mark, ticks, thread, if mark == Break { 0 } else { 7 })
            })
        };
        let events: Vec<Told> = (0..4).flat_map(|turn| packet(1000 * turn)).collect();
        let (handoffs, unmatched) = followed("sched/round-trip", true, &events);
        assert_eq!(unmatched, Unmatched::default());
        // The begin of the first hand-off is unknown.
        assert_eq!(handoffs.len(), 3);
        assert!(handoffs.iter().all(|one| one.total_ticks() == 50), "{handoffs:?}");
        let (handoffs, unmatched) = follow("sched/round-trip", &events);
        assert_eq!((handoffs.len(), unmatched.begun_anew), (0, 3));
    }

    #[test]
    fn a_thread_that_waits_for_the_harness_hands_nothing_over_meanwhile() {
        let events = [
            told(Take, 100, 1, 0),
            told(Give, 110, 1, 5),
            told(Take, 130, 1, 1),
            // Timed on that thread, and recorded by another one.
            told(Break, 500, 2, 0),
            told(Take, 900, 1, 0),
            told(Give, 910, 1, 5),
            told(Take, 930, 1, 1),
        ];
        let (handoffs, unmatched) = follow("fiber/eventual", &events);
        assert_eq!(unmatched, Unmatched::default());
        assert_eq!(handoffs.iter().map(Handoff::total_ticks).collect::<Vec<_>>(), [30, 30]);
    }

    #[test]
    fn a_lock_that_its_holder_takes_again_was_not_handed_over() {
        let events = [
            told(Take, 100, 1, 5),
            told(Give, 120, 1, 5),
            told(Take, 130, 1, 5),
            told(Give, 150, 1, 5),
            told(Take, 190, 2, 5),
        ];
        let (handoffs, unmatched) = follow("lock/passed", &events);
        assert_eq!((unmatched.kept, unmatched.mismatched), (1, 0));
        assert_eq!(handoffs.len(), 1);
        assert_eq!(handoffs[0].stages_ticks, [20, 0, 0, 40, 0, 0]);
    }

    #[test]
    fn a_notification_that_is_the_begin_has_nothing_before_it() {
        let events = [
            told(Give, 100, 1, 5),
            told(Call, 110, 1, 5),
            told(Wake, 4000, 2, 5),
            told(Take, 4100, 2, 0),
            told(Give, 9000, 1, 5),
            told(Take, 9050, 2, 0),
        ];
        let (handoffs, unmatched) = follow("notify/sleeping", &events);
        assert_eq!(unmatched, Unmatched::default());
        assert_eq!(handoffs[0].stages_ticks, [0, 0, 10, 0, 3890, 100]);
        assert_eq!(handoffs[1].stages_ticks, [0, 0, 0, 50, 0, 0]);
        assert!(!handoffs[0].passes(HAVE));
    }
}
