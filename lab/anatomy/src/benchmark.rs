//! Benchmarks whose hand-offs can be broken down into stages, and their probe sites.

/// Meaning of an event within a hand-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandoffMark {
    /// The sender has handed the work over.
    Send,
    /// The sender has found a sleeping receiver and is about to wake it.
    WakeCall,
    /// The woken receiver runs.
    Awake,
    /// The sender has finished its part of the hand-off. If both roles share a thread, the event
    /// precedes the next receive.
    SendDone,
    /// The work has reached the intermediate thread.
    Arrive,
    /// The intermediate thread has processed the work.
    Process,
    /// The intermediate thread is about to send the work back.
    Reply,
    /// The receiver has the work: this hand-off is complete, and the next one starts.
    Receive,
    /// The harness has read the clock between a receive and the next send.
    Interrupt,
}

/// Event at which a hand-off starts: the previous receive, or the send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartEvent {
    /// The hand-off starts at the end of the previous one. All time thus belongs to some hand-off.
    PreviousReceive,
    /// The hand-off starts when the work is sent. The sender's earlier time is not part of the
    /// hand-off.
    Send,
}

/// Threads through which a hand-off passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandoffRoute {
    /// The work goes from one thread to another.
    OneWay,
    /// Sender and receiver are the same thread.
    SameThread,
    /// The work goes from one thread to another and back.
    RoundTrip,
}

/// Event values that must be equal in the send and in the receive: none, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatchKey {
    /// No value. Only the order of sends and receives is checked.
    None,
    /// All values: the object and, if there is one, the position.
    Values,
}

/// Number of possible stages. The constants below are their indices, in order of time.
pub(crate) const STAGES_COUNT: usize = 6;
/// Index of the stage from the start of the hand-off to the send.
pub(crate) const BEFORE_SEND_STAGE: usize = 0;
/// Index of the stage from the send to `SendDone`.
pub(crate) const AFTER_SEND_STAGE: usize = 1;
/// Index of the stage from the send until the sender starts to wake the receiver.
pub(crate) const BEFORE_WAKE_STAGE: usize = 2;
/// Index of the stage from the sender's last event to the receive. A hand-off has the stage if its
/// receiver did not sleep.
pub(crate) const NOTICE_STAGE: usize = 3;
/// Index of the stage from the sender's last event until the sleeping receiver runs.
pub(crate) const WAKE_STAGE: usize = 4;
/// Index of the stage from the wake-up of the receiver to the receive.
pub(crate) const RESUME_STAGE: usize = 5;
/// Index of a round trip's stage in which the work goes to the other thread. It starts at
/// `SendDone` or, without this event, at `Send`.
pub(crate) const OUTWARD_STAGE: usize = BEFORE_WAKE_STAGE;
/// Index of a round trip's stage in which the other thread processes the work.
pub(crate) const PROCESSING_STAGE: usize = NOTICE_STAGE;
/// Index of a round trip's stage from the processing to the reply, both on the other thread.
pub(crate) const BEFORE_REPLY_STAGE: usize = WAKE_STAGE;
/// Index of a round trip's stage in which the reply goes back to the sender.
pub(crate) const REPLY_STAGE: usize = RESUME_STAGE;

/// Name of the stage in which a sleeping receiver wakes up.
pub(crate) const WAKE_STAGE_NAME: &str = "wake";

/// Name and description of a stage. The name is empty if no hand-off of the benchmark has the
/// stage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StageText {
    pub name: &'static str,
    pub description: &'static str,
}

const fn stage(name: &'static str, description: &'static str) -> StageText {
    StageText { name, description }
}

/// Text of a stage that no hand-off of the benchmark has.
const NO_STAGE: StageText = stage("", "");

/// Benchmark with probe sites at the stages of a hand-off.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct InstrumentedBenchmark {
    /// Id of the benchmark.
    pub spec: &'static str,
    /// Contenders whose probe sites are compiled into every build.
    default_contenders: &'static [&'static str],
    /// Contenders whose probe sites exist only with the feature `probes-hot`. Such sites cost time
    /// even when disabled.
    feature_contenders: &'static [&'static str],
    /// Description of one hand-off of the benchmark.
    pub handoff: &'static str,
    /// Id of the floor benchmark, number of hand-offs in its figure, and index of the stage that
    /// contains it.
    pub(crate) floor: Option<(&'static str, f64, usize)>,
    /// Index of the part that times hand-offs, and number of hand-offs in its figure.
    pub(crate) figure: Option<(usize, f64)>,
    /// Event at which a hand-off starts.
    pub(crate) start_event: StartEvent,
    pub(crate) route: HandoffRoute,
    pub(crate) match_key: MatchKey,
    /// Number of values in each event, which determines the cost of a probe.
    pub(crate) values_count: usize,
    /// Names of the probe sites, each with the meaning of its events.
    pub(crate) sites: &'static [(&'static str, HandoffMark)],
    pub(crate) stages: [StageText; STAGES_COUNT],
}

/// Name of the probe site at which the harness reads the clock, between two batches of operations.
/// Every benchmark has it.
pub(crate) const BATCH_SITE: &str = "lab.batch";

impl InstrumentedBenchmark {
    /// Returns the contenders with probe sites in this build, the default ones first. The list is
    /// empty if the benchmark needs the feature `probes-hot`, which is off.
    #[must_use]
    pub fn contenders(&self) -> Vec<&'static str> {
        let feature_contenders =
            if cfg!(feature = "probes-hot") { self.feature_contenders } else { &[] };
        self.default_contenders.iter().chain(feature_contenders).copied().collect()
    }

    /// Returns a pattern that matches the probe sites to enable.
    #[must_use]
    pub fn site_pattern(&self) -> String {
        let names = self.sites.iter().map(|(name, _)| *name);
        names.chain([BATCH_SITE]).collect::<Vec<_>>().join(",")
    }

    /// Returns the meaning of the site's events; `None` if the benchmark does not use the site.
    pub(crate) fn mark_of_site(&self, site: &str) -> Option<HandoffMark> {
        if site == BATCH_SITE {
            return Some(HandoffMark::Interrupt);
        }
        self.sites.iter().find(|(name, _)| *name == site).map(|(_, mark)| *mark)
    }

    /// Returns `true` if operations are timed in batches, with an event of [`BATCH_SITE`] between
    /// two batches.
    pub(crate) fn has_batches(&self) -> bool {
        self.figure.is_some() && self.start_event == StartEvent::PreviousReceive
    }

    /// Returns `true` if the stage starts on one thread and ends on another.
    pub(crate) fn is_across_threads(&self, stage: usize) -> bool {
        match self.route {
            HandoffRoute::OneWay => stage == NOTICE_STAGE || stage == WAKE_STAGE,
            HandoffRoute::SameThread => false,
            HandoffRoute::RoundTrip => stage == OUTWARD_STAGE || stage == REPLY_STAGE,
        }
    }

    /// Returns `true` if a sleeping receiver wakes up in the stage.
    pub(crate) fn is_receiver_wakeup(&self, stage: usize) -> bool {
        self.route != HandoffRoute::RoundTrip && stage == WAKE_STAGE
    }

    /// Returns the indices of the stages that hand-offs of this benchmark may have.
    pub(crate) fn possible_stages(&self) -> Vec<usize> {
        (0..STAGES_COUNT).filter(|stage| !self.stages[*stage].name.is_empty()).collect()
    }
}

/// Returns the instrumented benchmark with the id `spec`; `None` if there is none.
#[must_use]
pub fn find_instrumented_benchmark(spec: &str) -> Option<&'static InstrumentedBenchmark> {
    INSTRUMENTED_BENCHMARKS.iter().find(|benchmark| benchmark.spec == spec)
}

/// Probe sites of the `event` benchmarks with two machines.
const EVENT_SITES: &[(&str, HandoffMark)] = &[
    ("event.enqueued", HandoffMark::Send),
    ("notify.waking", HandoffMark::WakeCall),
    ("notify.woken", HandoffMark::Awake),
    ("event.dispatched", HandoffMark::Receive),
];

/// Stages of a hand-off in the `event` benchmarks with two machines.
const EVENT_STAGES: [StageText; STAGES_COUNT] = [
    stage("handle", "from the call of the handler until its answer is queued"),
    NO_STAGE,
    stage("find", "until the sender finds that the other machine sleeps"),
    stage("notice", "until the handler of the other machine, which was awake, is called"),
    stage(WAKE_STAGE_NAME, "until the sleeper runs again"),
    stage("dispatch", "until its handler is called"),
];

/// Description of a hand-off in the `event` benchmarks with two machines.
const HALF_ROUND_TRIP: &str = "a message from one machine to the other: half of a round trip";

/// The benchmark `event/round-trip`, from which `event/polled` and `event/parked` are derived.
const EVENT_BENCHMARK: InstrumentedBenchmark = InstrumentedBenchmark {
    spec: "event/round-trip",
    handoff: HALF_ROUND_TRIP,
    floor: Some(("floor/cache-line", 2.0, NOTICE_STAGE)),
    sites: EVENT_SITES,
    stages: EVENT_STAGES,
    ..BENCHMARK_DEFAULTS
};

/// Probe sites of the `notify` benchmarks.
const NOTIFY_SITES: &[(&str, HandoffMark)] = &[
    ("notify.notified", HandoffMark::Send),
    ("notify.waking", HandoffMark::WakeCall),
    ("notify.woken", HandoffMark::Awake),
    ("notify.found", HandoffMark::Receive),
    ("notify.spun", HandoffMark::Receive),
    ("notify.slept", HandoffMark::Receive),
];

/// Stages of a hand-off in the benchmark `notify/round-trip`.
const NOTIFY_STAGES: [StageText; STAGES_COUNT] = [
    stage("notify", "from the end of a wait until the other side's word is written"),
    NO_STAGE,
    stage("find", "until the sender finds that the other side sleeps"),
    stage("notice", "until the other side's wait, which did not sleep, ends"),
    stage(WAKE_STAGE_NAME, "until the sleeper runs again"),
    stage("end", "until its wait ends"),
];

/// Probe sites of the `ring` benchmarks.
const RING_SITES: &[(&str, HandoffMark)] =
    &[("ring.published", HandoffMark::Send), ("ring.popped", HandoffMark::Receive)];

/// Stages of a hand-off in the `ring` benchmarks.
const RING_STAGES: [StageText; STAGES_COUNT] = [
    stage("handle", "from receiving an item until its answer is published"),
    NO_STAGE,
    NO_STAGE,
    stage("travel", "until the other side receives the answer"),
    NO_STAGE,
    NO_STAGE,
];

/// Default values of the fields of a benchmark; a field without a common value is empty.
const BENCHMARK_DEFAULTS: InstrumentedBenchmark = InstrumentedBenchmark {
    spec: "",
    default_contenders: &["handover"],
    feature_contenders: &[],
    handoff: "",
    floor: None,
    figure: Some((0, 2.0)),
    start_event: StartEvent::PreviousReceive,
    route: HandoffRoute::OneWay,
    match_key: MatchKey::Values,
    values_count: 1,
    sites: &[],
    stages: [NO_STAGE; STAGES_COUNT],
};

/// All benchmarks with probe sites at the stages of a hand-off.
pub const INSTRUMENTED_BENCHMARKS: &[InstrumentedBenchmark] = &[
    InstrumentedBenchmark {
        spec: "lock/passed",
        handoff: "the lock from one thread to another",
        floor: Some(("floor/cache-line", 2.0, NOTICE_STAGE)),
        figure: None,
        sites: &[("lock.released", HandoffMark::Send), ("lock.taken", HandoffMark::Receive)],
        stages: [
            stage("hold", "from taking the lock to freeing it, with three readings of the clock"),
            NO_STAGE,
            NO_STAGE,
            stage("pass", "until another thread takes the lock"),
            NO_STAGE,
            NO_STAGE,
        ],
        ..BENCHMARK_DEFAULTS
    },
    InstrumentedBenchmark {
        spec: "notify/sleeping",
        handoff: "a notification to a receiver that has had time to fall asleep",
        floor: Some(("floor/futex", 2.0, WAKE_STAGE)),
        figure: Some((1, 1.0)),
        start_event: StartEvent::Send,
        match_key: MatchKey::None,
        sites: NOTIFY_SITES,
        stages: {
            let mut stages = NOTIFY_STAGES;
            stages[BEFORE_SEND_STAGE] = NO_STAGE;
            stages[BEFORE_WAKE_STAGE] = stage(
                "find",
                "from writing the word until the sender finds that the receiver sleeps",
            );
            stages
        },
        ..BENCHMARK_DEFAULTS
    },
    InstrumentedBenchmark {
        spec: "notify/round-trip",
        handoff: "a notification from one side to the other: half of a round trip",
        floor: Some(("floor/cache-line", 2.0, NOTICE_STAGE)),
        match_key: MatchKey::None,
        sites: NOTIFY_SITES,
        stages: NOTIFY_STAGES,
        ..BENCHMARK_DEFAULTS
    },
    InstrumentedBenchmark {
        spec: "ring/mailbox",
        handoff: "a request, or its reply: half of a round trip",
        floor: Some(("floor/cache-line", 2.0, NOTICE_STAGE)),
        values_count: 2,
        sites: RING_SITES,
        stages: RING_STAGES,
        ..BENCHMARK_DEFAULTS
    },
    InstrumentedBenchmark {
        spec: "ring/round-trip",
        default_contenders: &["handover-mpsc"],
        feature_contenders: &["handover"],
        handoff: "an item from one thread to the other: half of a round trip",
        floor: Some(("floor/cache-line", 2.0, NOTICE_STAGE)),
        values_count: 2,
        sites: RING_SITES,
        stages: RING_STAGES,
        ..BENCHMARK_DEFAULTS
    },
    InstrumentedBenchmark {
        spec: "event/call",
        default_contenders: &[],
        feature_contenders: &["handover"],
        handoff: "a message of a machine to itself",
        figure: Some((0, 1.0)),
        route: HandoffRoute::SameThread,
        sites: &[
            ("event.enqueued", HandoffMark::Send),
            ("event.replied", HandoffMark::SendDone),
            ("event.dispatched", HandoffMark::Receive),
        ],
        stages: [
            EVENT_STAGES[BEFORE_SEND_STAGE],
            stage("return", "until the handler returns"),
            NO_STAGE,
            stage("dispatch", "until the next call of the handler"),
            NO_STAGE,
            NO_STAGE,
        ],
        ..BENCHMARK_DEFAULTS
    },
    InstrumentedBenchmark {
        spec: "fiber/eventual",
        handoff: "a value from one fiber to another on the same worker: half of a round trip",
        figure: Some((0, 1.0)),
        route: HandoffRoute::SameThread,
        match_key: MatchKey::None,
        sites: &[
            ("fiber.set", HandoffMark::Send),
            ("fiber.wait", HandoffMark::SendDone),
            ("fiber.switch", HandoffMark::Receive),
        ],
        stages: [
            stage(
                "set",
                "from the switch to the fiber until it sets the value that the other waits for",
            ),
            stage("wait", "until the fiber waits for the other's value"),
            NO_STAGE,
            stage("switch", "until the switch to the other fiber"),
            NO_STAGE,
            NO_STAGE,
        ],
        ..BENCHMARK_DEFAULTS
    },
    InstrumentedBenchmark {
        spec: "net/load",
        handoff: "the messages read from one connection at a time, and their answers",
        figure: None,
        route: HandoffRoute::SameThread,
        match_key: MatchKey::None,
        sites: &[
            ("net.read", HandoffMark::Send),
            ("net.dispatched", HandoffMark::SendDone),
            ("net.sent", HandoffMark::Receive),
        ],
        stages: [
            stage("receive", "from sending the last answers until the next messages are read"),
            stage("handle", "until the last message is parsed, handled and answered"),
            NO_STAGE,
            stage("send", "until the kernel has taken the answers"),
            NO_STAGE,
            NO_STAGE,
        ],
        ..BENCHMARK_DEFAULTS
    },
    InstrumentedBenchmark {
        spec: "sched/round-trip",
        default_contenders: &["fifo", "drr", "qfq", "wf2q+"],
        handoff: "a packet from a client through the arbiter and back",
        floor: Some(("floor/cache-line", 2.0, OUTWARD_STAGE)),
        figure: Some((0, 1.0)),
        route: HandoffRoute::RoundTrip,
        values_count: 2,
        sites: &[
            ("sched.enqueued", HandoffMark::Send),
            ("sched.taken", HandoffMark::Arrive),
            ("sched.scheduled", HandoffMark::Process),
            ("sched.marked", HandoffMark::Reply),
            ("sched.transmitted", HandoffMark::Receive),
        ],
        stages: [
            stage(
                "send",
                "from the end of the previous packet until this packet is in the mailbox",
            ),
            NO_STAGE,
            stage("there", "until the arbiter has taken the packet out"),
            stage("enqueue", "until the packet is in the algorithm's queues"),
            stage("dequeue", "until the packet is marked in the client's mailbox"),
            stage("back", "until the client has transmitted the packet"),
        ],
        ..BENCHMARK_DEFAULTS
    },
    InstrumentedBenchmark {
        spec: "rpc/noop",
        default_contenders: &["handover", "spin"],
        handoff: "a call from one endpoint to another, and its answer",
        floor: Some(("floor/cache-line", 2.0, OUTWARD_STAGE)),
        figure: Some((0, 1.0)),
        route: HandoffRoute::RoundTrip,
        sites: &[
            ("rpc.forward", HandoffMark::Send),
            ("rpc.sent", HandoffMark::SendDone),
            ("rpc.received", HandoffMark::Arrive),
            ("rpc.dispatched", HandoffMark::Process),
            ("rpc.responded", HandoffMark::Reply),
            ("rpc.completed", HandoffMark::Receive),
        ],
        stages: [
            stage("call", "from the previous answer until the next call has its number"),
            stage("send", "until its request is sent"),
            stage("there", "until the other endpoint has received the request"),
            stage("dispatch", "until its handler is found"),
            stage("respond", "until the answer is sent"),
            stage("back", "until the caller has received the answer"),
        ],
        ..BENCHMARK_DEFAULTS
    },
    EVENT_BENCHMARK,
    InstrumentedBenchmark { spec: "event/polled", ..EVENT_BENCHMARK },
    InstrumentedBenchmark {
        spec: "event/parked",
        default_contenders: &["handover", "handover-eventfd"],
        floor: Some(("floor/futex", 2.0, WAKE_STAGE)),
        ..EVENT_BENCHMARK
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_benchmark_sends_receives_and_has_the_stage_of_its_floor() {
        for benchmark in INSTRUMENTED_BENCHMARKS {
            let has = |wanted: HandoffMark| benchmark.sites.iter().any(|(_, mark)| *mark == wanted);
            assert!(has(HandoffMark::Send) && has(HandoffMark::Receive), "{}", benchmark.spec);
            let is_round = benchmark.route == HandoffRoute::RoundTrip;
            assert!(
                is_round
                    || has(HandoffMark::SendDone) == (benchmark.route == HandoffRoute::SameThread),
                "{}",
                benchmark.spec
            );
            for mark in [HandoffMark::Arrive, HandoffMark::Process, HandoffMark::Reply] {
                assert_eq!(has(mark), is_round, "{}", benchmark.spec);
            }
            let named = |stage: usize| !benchmark.stages[stage].name.is_empty();
            assert_eq!(
                named(BEFORE_SEND_STAGE),
                benchmark.start_event == StartEvent::PreviousReceive,
                "{}",
                benchmark.spec
            );
            assert_eq!(
                named(WAKE_STAGE),
                has(HandoffMark::Awake) || is_round,
                "{}",
                benchmark.spec
            );
            assert_eq!(named(AFTER_SEND_STAGE), has(HandoffMark::SendDone), "{}", benchmark.spec);
            assert!(named(NOTICE_STAGE), "{}", benchmark.spec);
            assert!(benchmark.floor.is_none_or(|(_, _, stage)| named(stage)), "{}", benchmark.spec);
            assert_eq!(
                find_instrumented_benchmark(benchmark.spec).map(|it| it.spec),
                Some(benchmark.spec)
            );
        }
    }

    #[test]
    fn site_and_stage_names_of_a_benchmark_are_unique() {
        for benchmark in INSTRUMENTED_BENCHMARKS {
            let mut names: Vec<_> = benchmark
                .possible_stages()
                .iter()
                .map(|stage| benchmark.stages[*stage].name)
                .collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), benchmark.possible_stages().len(), "{}", benchmark.spec);
        }
    }
}
