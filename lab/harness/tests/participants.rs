//! Participants as threads and as processes: measured, killed, stuck and panicking. `harness =
//! false`, because participants' processes are this program started again.

use handover_base::sync::shared::{AtomicU64, Ordering};
use handover_harness::{
    Bench, CountingAllocator, Fault, Handover, Lab, Participant, Plan, Profile, Region, Role,
    RunObserver, Samples, Setup, Workload,
};
use handover_record::{
    Contender, ContenderKind, Part, Record, RoleUsage, Spec, Wait, WarningCode, args,
};
use std::alloc::System;
use std::collections::BTreeSet;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new(System);

args! {
/// Arguments of the echo benchmark.
pub struct Echo {
    /// Behaviour of the partner: 0 echoes, 1 kills itself, 2 panics, 3 returns an error, 4 is
    /// stuck.
    manner: u32 = 0 (smoke 0, range 0..=4)
} }

/// Mailbox of one word: odd numbers are requests, even numbers replies.
struct Mailbox<const FLOOR: bool>(Region<AtomicU64>, u32);

const STOP: u64 = u64::MAX;

impl<const FLOOR: bool> Handover for Mailbox<FLOOR> {
    type Args = Echo;
    const PROCESSES: bool = true;
    const SPEC: Spec = Spec {
        floor: if FLOOR { None } else { Some("box/floor") },
        ..Spec::new(if FLOOR { "box/floor" } else { "box/echo" }, "one line, there and back")
            .hands_over()
    };
    fn roles(_: &Echo) -> Vec<Role> {
        vec![Role::measured("caller"), Role::serving("echo")]
    }
    fn setup(args: &Echo, setup: &mut Setup) -> Result<Self, Fault> {
        Ok(Mailbox(setup.shared_region()?, args.manner))
    }
    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        let wait = |wanted: &dyn Fn(u64) -> bool| {
            loop {
                // Acquire and Release: pair with the other participant's stores and loads of this
                // word.
                let seen = self.0.load(Ordering::Acquire);
                if wanted(seen) {
                    return seen;
                }
                std::thread::yield_now();
            }
        };
        if participant.index == 0 {
            let mut turn = 0;
            out.time_batches(|n| {
                for _ in 0..n {
                    turn += 2;
                    self.0.store(turn - 1, Ordering::Release);
                    wait(&|seen| seen == turn);
                }
            });
            self.0.store(STOP, Ordering::Release);
            return Ok(());
        }
        for answered in 0.. {
            let seen = wait(&|seen| seen % 2 == 1);
            match self.1 {
                1 if answered > 2 => rustix::process::kill_process(
                    rustix::process::getpid(),
                    rustix::process::Signal::KILL,
                )?,
                2 if answered > 2 => panic!("as asked"),
                3 if answered > 2 => return Err(Fault::new("as requested")),
                4 if answered > 2 => std::thread::sleep(Duration::from_secs(3600)),
                _ => {}
            }
            if seen == STOP {
                break;
            }
            self.0.store(seen + 1, Ordering::Release);
        }
        Ok(())
    }
    fn check_round(&self) -> Result<(), Fault> {
        match self.0.load(Ordering::Acquire) {
            STOP => Ok(()),
            other => Err(Fault::new(format!("ended at {other}"))),
        }
    }
}

/// A lock-like workload: every participant is measured, with two parts timed one by one, one of
/// them rare.
struct Counting(Region<AtomicU64>);

impl Handover for Counting {
    type Args = ();
    const PROCESSES: bool = true;
    const SPEC: Spec = Spec::new("count/parts", "two parts")
        .parts(&[
            Part::new("add", "an atomic addition"),
            Part::new("never", "what never happens").optional(),
        ])
        .hands_over();
    fn roles(_: &()) -> Vec<Role> {
        vec![Role::measured("adder"); 3]
    }
    fn setup(_: &(), setup: &mut Setup) -> Result<Self, Fault> {
        Ok(Counting(setup.shared_region()?))
    }
    fn play(&self, _: Participant, out: &mut Samples) -> Result<(), Fault> {
        while out.is_running() {
            let began = handover_base::clock::ticks();
            self.0.fetch_add(1, Ordering::Relaxed);
            out.record_ticks(0, handover_base::clock::ticks() - began);
            out.add_to_counter("odd", 1.0);
        }
        Ok(())
    }
}

/// A null benchmark (two equal contenders), or a workload whose self-test fails.
struct Nothing<const WRONG: bool>;

impl<const WRONG: bool> Workload for Nothing<WRONG> {
    type Args = ();
    const SPEC: Spec = Spec::new(if WRONG { "solo/wrong" } else { "null/solo" }, "an addition");
    fn setup(_: &(), _: &mut Setup) -> Result<Self, Fault> {
        Ok(Nothing)
    }
    fn self_test(&mut self) -> Result<(), Fault> {
        if WRONG { Err(Fault::new("2 + 2 = 5")) } else { Ok(()) }
    }
    fn sample(&mut self, out: &mut Samples) {
        let mut sum = 0u64;
        out.time_batches(|n| {
            for i in 0..n {
                sum = std::hint::black_box(sum + i);
            }
        });
    }
}

/// Two allocations an operation: 100 bytes, grown to 160.
struct Allocates;

impl Workload for Allocates {
    type Args = ();
    const SPEC: Spec = Spec::new("solo/allocates", "a vector that grows");
    fn setup(_: &(), _: &mut Setup) -> Result<Self, Fault> {
        black_box(vec![0_u8; 1 << 20]);
        Ok(Allocates)
    }
    fn sample(&mut self, out: &mut Samples) {
        out.time_batches(|n| {
            for _ in 0..n {
                let mut bytes = black_box(Vec::<u8>::with_capacity(100));
                bytes.reserve_exact(160);
                black_box(bytes);
            }
        });
    }
}

/// Operations without allocations, in batches of the workload's own, after preparations with one.
struct Restarts;

impl Handover for Restarts {
    type Args = ();
    const SPEC: Spec = Spec::new("own/restarts", "an addition after preparations").hands_over();
    fn roles(_: &()) -> Vec<Role> {
        vec![Role::measured("one")]
    }
    fn setup(_: &(), _: &mut Setup) -> Result<Self, Fault> {
        Ok(Restarts)
    }
    fn play(&self, _: Participant, out: &mut Samples) -> Result<(), Fault> {
        black_box(vec![0_u8; 1 << 20]);
        out.restart_round();
        while out.is_running() {
            out.record_batch(0, black_box(1000), 2);
        }
        Ok(())
    }
}

/// The same work for contenders that declare different ways of waiting.
struct Ways;

impl Workload for Ways {
    type Args = ();
    const SPEC: Spec = Spec::new("ways/of-waiting", "a black box");
    fn setup((): &(), _: &mut Setup) -> Result<Self, Fault> {
        Ok(Ways)
    }
    fn sample(&mut self, out: &mut Samples) {
        out.time_batches(|n| {
            for i in 0..n {
                std::hint::black_box(i);
            }
        });
    }
}

const WAYS: &[Bench] = &[
    Bench::one::<Ways>(Contender::ours("ours").waits(Wait::Spin)),
    Bench::one::<Ways>(Contender::peer("spinner").waits(Wait::Spin)),
    Bench::one::<Ways>(Contender::peer("sleeper").waits(Wait::Sleep).allocates()),
    Bench::one::<Ways>(Contender::floor("asleep").waits(Wait::Sleep)),
    Bench::one::<Ways>(Contender::floor("awake").waits(Wait::Spin)),
];

fn ratios_need_contenders_that_wait_in_the_same_way() {
    let plan = Plan { profile: Profile::Smoke, ..Plan::default() };
    let lab = Lab::new(&[WAYS], &["ways".to_string()], plan).expect("a sound plan");
    let outcome = lab.run(&mut (), &AtomicBool::new(false));
    assert!(outcome.faults.is_empty(), "{:?}", outcome.faults);
    let of = |name: &str| outcome.records.iter().find(|it| it.contender == name).expect("a record");
    let names = |it: &Record| it.peers.iter().map(|it| it.contender.clone()).collect::<Vec<_>>();
    let floor = |it: &Record| it.floor.as_ref().map(|it| (it.id.clone(), it.contender.clone()));
    let id = || "ways/of-waiting".to_string();
    let (ours, sleeper) = (of("ours"), of("sleeper"));
    assert_eq!(names(ours), ["spinner"]);
    let [beside] = ours.peers_without_ratio.as_slice() else {
        panic!("{:?}", ours.peers_without_ratio)
    };
    assert_eq!((beside.contender.as_str(), beside.waits), ("sleeper", Wait::Sleep));
    assert_eq!(floor(ours), Some((id(), "awake".to_string())));
    assert_eq!(floor(sleeper), Some((id(), "asleep".to_string())));
    assert_eq!((sleeper.waits, sleeper.allocates, ours.allocates), (Wait::Sleep, true, false));
    assert!(floor(of("awake")).is_none() && of("awake").peers_without_ratio.is_empty());
}

/// A workload that kills its process once it is measured.
struct Dies;

impl Workload for Dies {
    type Args = ();
    const SPEC: Spec = Spec::new("die/late", "the end");
    fn setup(_: &(), _: &mut Setup) -> Result<Self, Fault> {
        Ok(Dies)
    }
    fn sample(&mut self, _: &mut Samples) {
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        std::thread::park();
    }
}

/// Operations that touch new memory and wait for the work of a thread that is no participant.
struct Aided;

impl Workload for Aided {
    type Args = ();
    const SPEC: Spec = Spec::new("aid/worker", "work of a worker");
    fn setup(_: &(), _: &mut Setup) -> Result<Self, Fault> {
        Ok(Aided)
    }
    fn sample(&mut self, out: &mut Samples) {
        let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        let mut kept = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Relaxed: the flag and the count publish no other data.
                while !stop.load(Ordering::Relaxed) {
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
            out.time_batches(|n| {
                for _ in 0..n {
                    let until = done.load(Ordering::Relaxed) + 100_000;
                    let mut memory = vec![0u8; 1 << 20];
                    memory.iter_mut().step_by(4096).for_each(|it| *it = 1);
                    kept.push(memory);
                    while done.load(Ordering::Relaxed) < until {
                        std::thread::yield_now();
                    }
                }
            });
            stop.store(true, Ordering::Relaxed);
        });
    }
}

const ALL: &[&[Bench]] = &[&[
    Bench::one::<Aided>(Contender::ours("handover")),
    Bench::one::<Dies>(Contender::ours("handover")),
    // No floor of others, although it is listed first.
    Bench::many::<Mailbox<true>>(Contender::ours("same")),
    Bench::many::<Mailbox<true>>(Contender::floor("hardware")),
    Bench::many::<Mailbox<false>>(Contender::ours("handover")),
    Bench::many::<Counting>(Contender::ours("handover")),
    Bench::one::<Allocates>(Contender::ours("handover")),
    Bench::many::<Restarts>(Contender::ours("handover")),
    Bench::one::<Nothing<true>>(Contender::ours("handover")),
    Bench::one::<Nothing<false>>(Contender::null("one")),
    Bench::one::<Nothing<false>>(Contender::null("other")),
]];

fn run(pattern: &str, plan: Plan) -> handover_harness::RunOutcome {
    let lab = Lab::new(ALL, &[pattern.to_string()], plan).expect("a sound plan");
    lab.run(&mut (), &AtomicBool::new(false))
}

fn quick(processes: bool) -> Plan {
    Plan { processes, time: Some(Duration::from_millis(100)), ..Plan::default() }
}

fn smoke(processes: bool) -> Plan {
    Plan { processes, profile: Profile::Smoke, ..Plan::default() }
}

fn with_manner(manner: &str, processes: bool) -> Plan {
    let set = vec![("manner".to_string(), manner.to_string())];
    Plan { set, ..smoke(processes) }
}

fn figure_has_interval_floor_and_null() {
    let outcome = run("box/echo", quick(false));
    assert!(outcome.faults.is_empty(), "{:?}", outcome.faults);
    let record = &outcome.records[0];
    let (low, high) = record.summary.interval_bounds().expect("eight passes");
    assert!(low <= record.summary.median && record.summary.median <= high);
    let passes: BTreeSet<u32> = record.rounds.iter().map(|round| round.pass).collect();
    assert_eq!(passes.len(), 8, "a pass shares its process with another");
    // A busy machine leaves time for few rounds.
    assert!(!record.rounds.is_empty() && record.summary.ops > 0);
    let it = record.summary.quantiles().expect("operations timed alone");
    assert!(0.0 < it.min && it.min <= it.p50 && it.p50 <= it.p99 && it.p99 <= it.max, "{it:?}");
    let floor = record.floor.as_ref().expect("its floor was measured");
    assert_eq!((floor.id.as_str(), floor.contender.as_str()), ("box/floor", "hardware"));
    if let Some((low, high)) = floor.interval_bounds() {
        assert!(low <= floor.ratio && floor.ratio <= high, "{floor:?}");
    }
    assert!(floor.ratio.is_finite() && floor.ratio > 0.0, "{floor:?}");
    assert!(outcome.null_one.is_some_and(|width| width >= 0.0));
    let nulls = outcome.records.iter().filter(|it| it.kind == ContenderKind::Null).count();
    assert_eq!(nulls, 2);
}

fn participants_as_processes_yield_the_same_kind_of_record() {
    let outcome = run("box/echo", smoke(true));
    assert!(outcome.faults.is_empty(), "{:?}", outcome.faults);
    assert!(outcome.records[0].participants.processes);
    assert!(outcome.records[0].summary.ops > 0);
}

fn every_measured_participant_counts_and_absent_parts_are_absent() {
    for processes in [false, true] {
        let outcome = run("count/parts", smoke(processes));
        assert!(outcome.faults.is_empty(), "{:?}", outcome.faults);
        let ids: Vec<_> = outcome.records.iter().map(|it| it.id.as_str()).collect();
        assert_eq!(ids, ["count/parts/add", "null/solo", "null/solo"]);
        let record = &outcome.records[0];
        assert_eq!(record.participants.roles.len(), 3);
        assert!((record.counters["odd"] - 1.0).abs() < 1e-9, "{:?}", record.counters);
    }
}

fn resources_are_those_of_the_process_by_role() {
    let aided = &run("aid/worker", smoke(false)).records[0];
    let [own, others] = &aided.roles[..] else { panic!("{:?}", aided.roles) };
    assert_eq!((own.role.as_str(), others.role.as_str()), ("one", RoleUsage::OTHER_THREADS_ROLE));
    assert!(others.cpus > 0.0 && aided.cpus_user + aided.cpus_system >= others.cpus, "{aided:?}");
    assert!(own.faults_minor_per_op > 0.0, "{own:?}");
    assert!(aided.faults_minor_per_op >= own.faults_minor_per_op, "{aided:?}");
    for processes in [false, true] {
        let echo = &run("box/echo", smoke(processes)).records[0];
        let roles: Vec<&str> = echo.roles.iter().map(|it| it.role.as_str()).collect();
        assert_eq!(roles[..2], ["caller", "echo"], "{:?}", echo.roles);
        assert!(echo.roles[..2].iter().all(|it| it.cpus > 0.0), "{:?}", echo.roles);
    }
    let alone = run("null/solo", smoke(false));
    assert!(alone.records.iter().all(|it| it.roles.len() != 1), "a single role is listed");
}

fn allocations_of_an_operation_are_counted_exactly() {
    for plan in [smoke(false), quick(false)] {
        let outcome = run("solo/allocates", plan.clone());
        assert!(outcome.faults.is_empty(), "{:?}", outcome.faults);
        for record in outcome.records {
            let counters = (record.counters["allocations"], record.counters["allocated_bytes"]);
            let expected = if record.id == "solo/allocates" { (2.0, 160.0) } else { (0.0, 0.0) };
            assert_eq!(counters, expected, "{}", record.id);
        }
        let outcome = run("own/restarts", plan);
        let counters = &outcome.records[0].counters;
        assert_eq!((counters["allocations"], counters["allocated_bytes"]), (0.0, 0.0));
    }
}

fn participant_killed_during_a_round_is_an_error_and_no_hang() {
    let began = Instant::now();
    let outcome = run("box/echo", with_manner("1", true));
    let (_, why) = &outcome.faults[0];
    assert!(why.contains("died") && why.contains("signal: 9"), "{why}");
    assert!(began.elapsed() < Duration::from_secs(120));
}

fn participant_that_panics_or_fails_is_an_error_and_no_hang() {
    for (manner, processes, said) in [
        ("2", false, "as asked"),
        ("2", true, "as asked"),
        ("3", false, "as requested"),
        ("3", true, "as requested"),
    ] {
        let began = Instant::now();
        let outcome = run("box/echo", with_manner(manner, processes));
        let (_, why) = &outcome.faults[0];
        assert!(why.contains(said), "{why}");
        assert!(began.elapsed() < Duration::from_secs(120));
    }
}

fn round_of_a_stuck_participant_is_abandoned() {
    for processes in [false, true] {
        let began = Instant::now();
        let patience = Duration::from_millis(100);
        let outcome = run("box/echo", Plan { patience, ..with_manner("4", processes) });
        let (_, why) = &outcome.faults[0];
        assert!(why.contains("did not finish within"), "{why}");
        assert!(began.elapsed() < Duration::from_secs(120));
    }
}

fn contender_that_fails_its_check_is_not_measured() {
    let outcome = run("solo/wrong", quick(false));
    assert!(outcome.records.iter().all(|it| it.spec != "solo/wrong"));
    assert!(outcome.faults[0].1.contains("2 + 2 = 5"));
}

fn interrupted_run_ends_at_once_and_keeps_its_figures() {
    let lab = Lab::new(ALL, &["box/*".to_string()], quick(false)).expect("a sound plan");
    let outcome = lab.run(&mut (), &AtomicBool::new(true));
    assert!(outcome.interrupted && outcome.records.is_empty());
}

/// Observer that stores the reported records, and stops the run after a number of visits.
struct RecordLog<'a> {
    /// Each benchmark's id and rounds, in the order in which they were reported.
    records: Vec<(String, usize)>,
    stop: &'a AtomicBool,
    visits_max: usize,
}

impl RunObserver for RecordLog<'_> {
    fn begin(&mut self, visit: (usize, usize), _: usize) {
        if visit.0 >= self.visits_max {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
    fn records(&mut self, records: &[Record]) -> bool {
        self.records.push((records[0].id.clone(), records[0].rounds.len()));
        true
    }
}

/// Runs `box/echo` and the null benchmark until `visits_max` visits have begun.
fn record_log(visits_max: usize) -> (Vec<(String, usize)>, handover_harness::RunOutcome) {
    let lab = Lab::new(ALL, &["box/echo".to_string()], quick(false)).expect("a sound plan");
    let stop = AtomicBool::new(false);
    let mut watch = RecordLog { records: Vec::new(), stop: &stop, visits_max };
    let outcome = lab.run(&mut watch, &stop);
    (watch.records, outcome)
}

fn figures_are_reported_after_the_first_pass_and_at_the_end() {
    let (told, outcome) = record_log(usize::MAX);
    let ids: Vec<_> = told.iter().map(|(id, _)| id.as_str()).collect();
    // At the end the null benchmark comes first: it gives the smallest detectable difference.
    assert_eq!(ids, ["box/echo", "null/solo", "null/solo", "box/echo"], "{told:?}");
    assert!(told[3].1 > told[0].1, "no rounds were added: {told:?}");
    assert_eq!(outcome.records[0].rounds.len(), told[3].1);
}

fn run_stopped_between_two_passes_reports_its_figures() {
    // Two benchmarks: the fifth visit is the first of the third pass.
    let (told, outcome) = record_log(4);
    assert!(outcome.interrupted);
    let again: Vec<_> = told[2..].iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(again, ["null/solo", "box/echo"], "{told:?}");
    assert!(told[3].1 > told[0].1, "{told:?}");
    let record = &outcome.records[0];
    assert_eq!(record.rounds.len(), told[3].1);
    assert_eq!(
        record.summary.interval_bounds(),
        None,
        "two passes or three are too few for an interval"
    );
    assert!(record.warnings.iter().any(|it| it.code == WarningCode::Few), "{:?}", record.warnings);
}

fn pass_that_dies_is_a_fault_and_earlier_figures_are_kept() {
    let lab = Lab::new(ALL, &["box/echo".to_string(), "die".to_string()], quick(false));
    let outcome = lab.expect("a sound plan").run(&mut (), &AtomicBool::new(false));
    let [(id, why)] = &outcome.faults[..] else { panic!("one fault: {:?}", outcome.faults) };
    assert_eq!(id, "die/late");
    assert!(
        why.contains("the process of pass 1 failed: it exited before its last report: signal: 9"),
        "{why}"
    );
    // The others are measured in another process.
    for id in ["box/echo", "null/solo"] {
        let record = outcome.records.iter().find(|it| it.id == id).expect("measured");
        let passes: BTreeSet<u32> = record.rounds.iter().map(|round| round.pass).collect();
        assert_eq!(passes.len(), 8, "{id}");
    }
}

fn invalid_plans_are_rejected_with_a_remedy() {
    let refused = |pattern: &str, plan: Plan| {
        Lab::new(ALL, &[pattern.to_string()], plan).expect_err("refused").to_string()
    };
    let set = |name: &str, text: &str| vec![(name.to_string(), text.to_string())];
    assert!(refused("bx/echo", quick(false)).contains("did you mean box/echo?"));
    let text = refused("box", Plan { set: set("manner", "9"), ..quick(false) });
    assert_eq!(text, "box/floor: --set manner=9: must lie in 0..=4");
    let text = refused("box", Plan { set: set("maner", "1"), ..quick(false) });
    assert!(text.contains("their arguments are manner"), "{text}");
    let text = refused("box", Plan { idle_gap: Duration::from_secs(1), ..quick(false) });
    assert!(text.contains("--idle-gap 1s: must lie in 0..=100ms"), "{text}");
    let text = refused("box", Plan { time: Some(Duration::from_millis(99)), ..quick(false) });
    assert_eq!(text, "--time 99ms: must lie in 100ms..=1h");
    let text = refused("solo", Plan { neighbour: true, ..quick(false) });
    assert!(text.contains("--neighbour: none of the chosen"), "{text}");
    assert!(refused("box/[", quick(false)).contains("invalid glob"));
    assert!(refused("", quick(false)).starts_with("'': no benchmark matches"));
}

fn idle_gap_and_busy_neighbour_are_recorded() {
    let idle_gap = Duration::from_micros(200);
    let outcome = run("box/echo", Plan { idle_gap, neighbour: true, ..quick(false) });
    let record = &outcome.records[0];
    assert_eq!(record.participants.idle_gap_ns, 200_000);
    assert!(record.participants.neighbour_cpu.is_some());
    assert_eq!(record.summary.batch, 1);
    // A workload with batches of its own pauses before each batch.
    let outcome = run("own/restarts", Plan { idle_gap, ..smoke(false) });
    let record = &outcome.records[0];
    assert_eq!(record.participants.idle_gap_ns, 200_000);
    assert!(record.summary.batch > 1);
}

fn main() -> ExitCode {
    match handover_harness::dispatch_participant(ALL) {
        Some(Ok(())) => return ExitCode::SUCCESS,
        Some(Err(refused)) => {
            eprintln!("{refused}");
            return ExitCode::FAILURE;
        }
        None => {}
    }
    let tests: &[(&str, fn())] = &[
        ("a figure has interval, floor and null", figure_has_interval_floor_and_null),
        (
            "ratios between contenders that wait in the same way",
            ratios_need_contenders_that_wait_in_the_same_way,
        ),
        ("participants as processes", participants_as_processes_yield_the_same_kind_of_record),
        (
            "every measured participant counts",
            every_measured_participant_counts_and_absent_parts_are_absent,
        ),
        ("resources by role", resources_are_those_of_the_process_by_role),
        ("allocations are counted exactly", allocations_of_an_operation_are_counted_exactly),
        (
            "a participant killed during a round",
            participant_killed_during_a_round_is_an_error_and_no_hang,
        ),
        (
            "a participant that panics or fails",
            participant_that_panics_or_fails_is_an_error_and_no_hang,
        ),
        ("a participant that is stuck", round_of_a_stuck_participant_is_abandoned),
        ("a contender that is wrong", contender_that_fails_its_check_is_not_measured),
        ("an interrupted run", interrupted_run_ends_at_once_and_keeps_its_figures),
        (
            "figures are reported after the first pass and at the end",
            figures_are_reported_after_the_first_pass_and_at_the_end,
        ),
        (
            "a run that is stopped between two passes",
            run_stopped_between_two_passes_reports_its_figures,
        ),
        ("a pass that dies", pass_that_dies_is_a_fault_and_earlier_figures_are_kept),
        ("invalid plans", invalid_plans_are_rejected_with_a_remedy),
        ("a gap and a neighbour", idle_gap_and_busy_neighbour_are_recorded),
    ];
    let mut failed = 0;
    for (name, test) in tests {
        let passed = std::panic::catch_unwind(test).is_ok();
        failed += usize::from(!passed);
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
    }
    println!("{} passed, {failed} failed", tests.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
