//! Benchmarks that can be taken apart, and the sites that mark their hand-offs.

/// Meaning of an event within a hand-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The thread that has the work hands it over: the work is on its way.
    Give,
    /// The giver has found a sleeping receiver and is about to wake it.
    Call,
    /// A sleeper runs again.
    Wake,
    /// The giver has finished its own part; on one thread, before that thread takes the next work.
    Done,
    /// The work has reached the intermediate thread.
    Reach,
    /// The intermediate thread has done its part.
    Treat,
    /// The intermediate thread is about to send the work back.
    Return,
    /// The receiver has the work: this hand-off ends, and the next begins.
    Take,
    /// An interruption between taking and giving: the harness reads the clock.
    Break,
}

/// Begin of a hand-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// The end of the previous hand-off: all time belongs to some hand-off.
    LastTake,
    /// The giving: the giver's time before it is not part of the hand-off.
    Give,
}

/// Threads that a hand-off passes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// One thread to another.
    Across,
    /// All on one thread.
    Alone,
    /// One thread to another and back.
    Round,
}

/// Event values that must be equal where work is given and where it is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// None: only the strict alternation of hand-offs is checked.
    None,
    /// All values: the object, and the position where there is one.
    Values,
}

/// Number of stages; the stages follow in the order in which a hand-off passes them.
pub(crate) const STAGES_COUNT: usize = 6;
/// Stage from the begin to the giving.
pub(crate) const HAVE: usize = 0;
/// Stage from the giving until the giver is done.
pub(crate) const FINISH: usize = 1;
/// Stage from the giving until the giver begins to wake the sleeper.
pub(crate) const CALL: usize = 2;
/// Stage from the last of the giver's marks to the taking, if the receiver did not sleep.
pub(crate) const NOTICE: usize = 3;
/// Stage from the last of the giver's marks until the sleeper runs.
pub(crate) const WAKE: usize = 4;
/// Stage from the sleeper's running to the taking.
pub(crate) const RESUME: usize = 5;
/// Stage of a round trip from the giver's being done (or the giving) until the other thread has the
/// work.
pub(crate) const THERE: usize = CALL;
/// Stage of a round trip in which the other thread does its part.
pub(crate) const TREAT: usize = NOTICE;
/// Stage of a round trip from the end of the other thread's part until it sends the work back.
pub(crate) const RETURN: usize = WAKE;
/// Stage of a round trip from the sending back to the taking.
pub(crate) const BACK: usize = RESUME;

/// Name of the stage in which a sleeper wakes.
pub(crate) const WAKE_NAME: &str = "wake";

/// A stage's name and description; an empty name if no hand-off of the course passes the stage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StageWords {
    pub name: &'static str,
    pub what: &'static str,
}

const fn words(name: &'static str, what: &'static str) -> StageWords {
    StageWords { name, what }
}

const NEVER: StageWords = words("", "");

/// Description of one benchmark's hand-offs by its sites.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Course {
    /// The benchmark's id.
    pub spec: &'static str,
    /// The contenders whose sites are compiled into every build.
    usual: &'static [&'static str],
    /// The contenders whose sites need the feature `probes-hot`, as these sites cost time even when
    /// off.
    hot: &'static [&'static str],
    /// Description of one hand-off.
    pub handoff: &'static str,
    /// The floor's id, the number of hand-offs that it covers, and the stage that contains it.
    pub(crate) floor: Option<(&'static str, f64, usize)>,
    /// The benchmark's part whose figure is the time of this many hand-offs.
    pub(crate) figure: Option<(usize, f64)>,
    pub(crate) begin: Begin,
    pub(crate) way: Way,
    pub(crate) key: Key,
    /// Number of values of an event.
    pub(crate) values_count: usize,
    pub(crate) sites: &'static [(&'static str, Mark)],
    pub(crate) stages: [StageWords; STAGES_COUNT],
}

/// The site, in every course, at which the harness reads the clock between two batches of
/// operations.
pub(crate) const BATCH_SITE: &str = "lab.batch";

impl Course {
    /// Returns the contenders whose sites this build has, the usual ones first; empty if
    /// `probes-hot` is missing.
    #[must_use]
    pub fn contenders(&self) -> Vec<&'static str> {
        let hot = if cfg!(feature = "probes-hot") { self.hot } else { &[] };
        self.usual.iter().chain(hot).copied().collect()
    }

    /// Returns the pattern of the sites to enable.
    #[must_use]
    pub fn pattern(&self) -> String {
        let names = self.sites.iter().map(|(name, _)| *name);
        names.chain([BATCH_SITE]).collect::<Vec<_>>().join(",")
    }

    /// Returns the meaning of the site's events; `None` if the course does not use the site.
    pub(crate) fn mark(&self, site: &str) -> Option<Mark> {
        if site == BATCH_SITE {
            return Some(Mark::Break);
        }
        self.sites.iter().find(|(name, _)| *name == site).map(|(_, mark)| *mark)
    }

    /// Returns `true` if operations are timed in batches, with an event of `BATCH_SITE` between
    /// batches.
    pub(crate) fn has_batches(&self) -> bool {
        self.figure.is_some() && self.begin == Begin::LastTake
    }

    /// Returns `true` if the stage begins on one thread and ends on another.
    pub(crate) fn crosses(&self, place: usize) -> bool {
        match self.way {
            Way::Across => place == NOTICE || place == WAKE,
            Way::Alone => false,
            Way::Round => place == THERE || place == BACK,
        }
    }

    /// Returns `true` if a sleeper wakes in the stage.
    pub(crate) fn wakes(&self, place: usize) -> bool {
        self.way != Way::Round && place == WAKE
    }

    /// Returns the indices of the stages that hand-offs of this course may pass.
    pub(crate) fn places(&self) -> Vec<usize> {
        (0..STAGES_COUNT).filter(|place| !self.stages[*place].name.is_empty()).collect()
    }
}

/// Returns the course of the benchmark `spec`.
#[must_use]
pub fn find(spec: &str) -> Option<&'static Course> {
    COURSES.iter().find(|course| course.spec == spec)
}

const EVENT_SITES: &[(&str, Mark)] = &[
    ("event.enqueued", Mark::Give),
    ("notify.waking", Mark::Call),
    ("notify.woken", Mark::Wake),
    ("event.dispatched", Mark::Take),
];

const EVENT_STAGES: [StageWords; STAGES_COUNT] = [
    words("handle", "from the handler's call to its answer's being in the queue"),
    NEVER,
    words("find", "from there to finding that the other machine sleeps"),
    words("notice", "from there to the other machine's handler, which was awake"),
    words(WAKE_NAME, "from there to the sleeper's running again"),
    words("dispatch", "from there to its handler"),
];

const ONE_OF_TWO: &str = "a message from one machine to the other: half of there and back";

const EVENT: Course = Course {
    spec: "event/round-trip",
    usual: &["handover"],
    hot: &[],
    handoff: ONE_OF_TWO,
    floor: Some(("floor/cache-line-2", 2.0, NOTICE)),
    figure: Some((0, 2.0)),
    begin: Begin::LastTake,
    way: Way::Across,
    key: Key::Values,
    values_count: 1,
    sites: EVENT_SITES,
    stages: EVENT_STAGES,
};

const NOTIFY_SITES: &[(&str, Mark)] = &[
    ("notify.notified", Mark::Give),
    ("notify.waking", Mark::Call),
    ("notify.woken", Mark::Wake),
    ("notify.found", Mark::Take),
    ("notify.spun", Mark::Take),
    ("notify.slept", Mark::Take),
];

const NOTIFY_STAGES: [StageWords; STAGES_COUNT] = [
    words("notify", "from the end of a wait to the other side's word being written"),
    NEVER,
    words("find", "from there to having noted that the other side sleeps"),
    words("notice", "from there to the end of the other side's wait, which did not sleep"),
    words(WAKE_NAME, "from there to the sleeper's running again"),
    words("end", "from there to the end of its wait"),
];

const RING_SITES: &[(&str, Mark)] = &[("ring.published", Mark::Give), ("ring.popped", Mark::Take)];

const RING_STAGES: [StageWords; STAGES_COUNT] = [
    words("handle", "from an item's being there to the answer's being published"),
    NEVER,
    NEVER,
    words("travel", "from there to its being there on the other side"),
    NEVER,
    NEVER,
];

/// All courses.
pub const COURSES: &[Course] = &[
    Course {
        spec: "lock/passed",
        usual: &["handover"],
        hot: &[],
        handoff: "the lock from one thread to another",
        floor: Some(("floor/cache-line", 2.0, NOTICE)),
        figure: None,
        begin: Begin::LastTake,
        way: Way::Across,
        key: Key::Values,
        values_count: 1,
        sites: &[("lock.released", Mark::Give), ("lock.taken", Mark::Take)],
        stages: [
            words(
                "hold",
                "from the lock's being taken to its being freed, with three readings of the clock",
            ),
            NEVER,
            NEVER,
            words("pass", "from there to its being taken by another thread"),
            NEVER,
            NEVER,
        ],
    },
    Course {
        spec: "notify/sleeping",
        usual: &["handover"],
        hot: &[],
        handoff: "a notification to a receiver that has had time to fall asleep",
        floor: Some(("floor/futex", 2.0, WAKE)),
        figure: Some((1, 1.0)),
        begin: Begin::Give,
        way: Way::Across,
        key: Key::None,
        values_count: 1,
        sites: NOTIFY_SITES,
        stages: {
            let mut stages = NOTIFY_STAGES;
            stages[HAVE] = NEVER;
            stages[CALL] = words(
                "find",
                "from the word's being written to having noted that the receiver sleeps",
            );
            stages
        },
    },
    Course {
        spec: "notify/round-trip",
        usual: &["handover"],
        hot: &[],
        handoff: "a notification from one side to the other: half of there and back",
        floor: Some(("floor/cache-line", 2.0, NOTICE)),
        figure: Some((0, 2.0)),
        begin: Begin::LastTake,
        way: Way::Across,
        key: Key::None,
        values_count: 1,
        sites: NOTIFY_SITES,
        stages: NOTIFY_STAGES,
    },
    Course {
        spec: "ring/mailbox",
        usual: &["handover"],
        hot: &[],
        handoff: "a request, or its reply: half of there and back",
        floor: Some(("floor/cache-line", 2.0, NOTICE)),
        figure: Some((0, 2.0)),
        begin: Begin::LastTake,
        way: Way::Across,
        key: Key::Values,
        values_count: 2,
        sites: RING_SITES,
        stages: RING_STAGES,
    },
    Course {
        spec: "ring/round-trip",
        usual: &["handover-mpsc"],
        hot: &["handover"],
        handoff: "an item from one thread to the other: half of there and back",
        floor: Some(("floor/cache-line-2", 2.0, NOTICE)),
        figure: Some((0, 2.0)),
        begin: Begin::LastTake,
        way: Way::Across,
        key: Key::Values,
        values_count: 2,
        sites: RING_SITES,
        stages: RING_STAGES,
    },
    Course {
        spec: "event/call",
        usual: &[],
        hot: &["handover"],
        handoff: "a message of a machine to itself",
        floor: None,
        figure: Some((0, 1.0)),
        begin: Begin::LastTake,
        way: Way::Alone,
        key: Key::Values,
        values_count: 1,
        sites: &[
            ("event.enqueued", Mark::Give),
            ("event.replied", Mark::Done),
            ("event.dispatched", Mark::Take),
        ],
        stages: [
            EVENT_STAGES[HAVE],
            words("return", "from there to the handler's end"),
            NEVER,
            words("dispatch", "from there to the handler's next call"),
            NEVER,
            NEVER,
        ],
    },
    Course {
        spec: "fiber/eventual",
        usual: &["handover"],
        hot: &[],
        handoff: "a value from one fiber to another on the same worker: half of there and back",
        floor: None,
        figure: Some((0, 1.0)),
        begin: Begin::LastTake,
        way: Way::Alone,
        key: Key::None,
        values_count: 1,
        sites: &[
            ("fiber.set", Mark::Give),
            ("fiber.wait", Mark::Done),
            ("fiber.switch", Mark::Take),
        ],
        stages: [
            words("set", "from the fiber's running to its setting what the other waits for"),
            words("wait", "from there to its beginning to wait itself"),
            NEVER,
            words("switch", "from there to the other fiber's being switched to"),
            NEVER,
            NEVER,
        ],
    },
    Course {
        spec: "net/load",
        usual: &["handover"],
        hot: &[],
        handoff: "what has come on one connection, and its answers: as many messages as are on their way",
        floor: None,
        figure: None,
        begin: Begin::LastTake,
        way: Way::Alone,
        key: Key::None,
        values_count: 1,
        sites: &[
            ("net.read", Mark::Give),
            ("net.dispatched", Mark::Done),
            ("net.sent", Mark::Take),
        ],
        stages: [
            words(
                "receive",
                "from the last answers' being sent to the next messages' having been read",
            ),
            words("handle", "from there to the last one's having been found, handled and answered"),
            NEVER,
            words("send", "from there to the kernel's having taken the answers"),
            NEVER,
            NEVER,
        ],
    },
    Course {
        spec: "sched/round-trip",
        usual: &["fifo", "drr", "qfq", "wf2q+"],
        hot: &[],
        handoff: "a packet from a client through the arbiter and back",
        floor: Some(("floor/cache-line", 2.0, THERE)),
        figure: Some((0, 1.0)),
        begin: Begin::LastTake,
        way: Way::Round,
        key: Key::Values,
        values_count: 2,
        sites: &[
            ("sched.enqueued", Mark::Give),
            ("sched.taken", Mark::Reach),
            ("sched.scheduled", Mark::Treat),
            ("sched.marked", Mark::Return),
            ("sched.transmitted", Mark::Take),
        ],
        stages: [
            words("send", "from the last packet's end to this one's being in the mailbox"),
            NEVER,
            words("there", "from there to the arbiter's having taken it out"),
            words("enqueue", "from there to the algorithm's having it"),
            words("dequeue", "from there to its being marked in the client's mailbox"),
            words("back", "from there to the client's having transmitted it"),
        ],
    },
    Course {
        spec: "rpc/noop",
        usual: &["handover", "spin"],
        hot: &[],
        handoff: "a call from one endpoint to another, and its answer",
        floor: Some(("floor/cache-line-2", 2.0, THERE)),
        figure: Some((0, 1.0)),
        begin: Begin::LastTake,
        way: Way::Round,
        key: Key::Values,
        values_count: 1,
        sites: &[
            ("rpc.forward", Mark::Give),
            ("rpc.sent", Mark::Done),
            ("rpc.received", Mark::Reach),
            ("rpc.dispatched", Mark::Treat),
            ("rpc.responded", Mark::Return),
            ("rpc.completed", Mark::Take),
        ],
        stages: [
            words("call", "from the last answer to the next call's having its number"),
            words("send", "from there to its request's being on its way"),
            words("there", "from there to the other endpoint's having it"),
            words("dispatch", "from there to its handler's being found"),
            words("respond", "from there to the answer's being on its way"),
            words("back", "from there to its caller's having it"),
        ],
    },
    EVENT,
    Course { spec: "event/polled", ..EVENT },
    Course {
        spec: "event/parked",
        usual: &["handover", "handover-eventfd"],
        floor: Some(("floor/futex", 2.0, WAKE)),
        ..EVENT
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_course_gives_and_takes_and_has_the_stage_that_its_floor_is_in() {
        for course in COURSES {
            let has = |wanted: Mark| course.sites.iter().any(|(_, mark)| *mark == wanted);
            assert!(has(Mark::Give) && has(Mark::Take), "{}", course.spec);
            let is_round = course.way == Way::Round;
            assert!(is_round || has(Mark::Done) == (course.way == Way::Alone), "{}", course.spec);
            for mark in [Mark::Reach, Mark::Treat, Mark::Return] {
                assert_eq!(has(mark), is_round, "{}", course.spec);
            }
            let named = |place: usize| !course.stages[place].name.is_empty();
            assert_eq!(named(HAVE), course.begin == Begin::LastTake, "{}", course.spec);
            assert_eq!(named(WAKE), has(Mark::Wake) || is_round, "{}", course.spec);
            assert_eq!(named(FINISH), has(Mark::Done), "{}", course.spec);
            assert!(named(NOTICE), "{}", course.spec);
            assert!(course.floor.is_none_or(|(_, _, place)| named(place)), "{}", course.spec);
            assert_eq!(find(course.spec).map(|it| it.spec), Some(course.spec));
        }
    }

    #[test]
    fn names_of_a_course_are_told_apart() {
        for course in COURSES {
            let mut names: Vec<_> =
                course.places().iter().map(|place| course.stages[*place].name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), course.places().len(), "{}", course.spec);
        }
    }
}
