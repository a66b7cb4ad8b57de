//! Shares, and the lag of a flow behind its share.

use handover_sched::engine::{FlowScheduler, Visitor, Wf2qPlus};
use handover_sched::{Algorithm, Config, FlowSpec, Packet, Scheduler};
use handover_suite::sched::tester::{Tester, TesterOptions, TesterReport};

/// The sets of flows that schedulers are compared on, and ten thousand flows of many weights and
/// lengths.
const SETS: &[&str] = &[
    "1:1500:16",
    "1:1500:1000",
    "100:1500:1,1:1500:16",
    "1-100-10:1500:10",
    "1-1000-50:64-1500-4:50",
    "1-100-10:64-1500-10:100",
];

fn options(algorithm: Algorithm, set: &str) -> TesterOptions {
    TesterOptions::parse(&["-alg", algorithm.name(), "-flowsets", set]).expect("options")
}

struct Index<'a> {
    options: &'a TesterOptions,
    backlogged: Option<u64>,
}

impl Visitor<u64> for Index<'_> {
    type Output = TesterReport;

    fn visit<S: Scheduler<u64> + Send + 'static>(self, mut scheduler: S) -> TesterReport {
        let mut tester = Tester::new(self.options, &mut scheduler).expect("the flows");
        let packets = 400_000;
        match self.backlogged {
            Some(random) => tester.run_backlogged(&mut scheduler, 2, packets, random),
            None => tester.run(&mut scheduler, packets),
        }
    }
}

fn index(algorithm: Algorithm, set: &str, backlogged: Option<u64>) -> f64 {
    let options = options(algorithm, set);
    let config = options.config().packets_max(1 << 18);
    let report = algorithm.visit(&config, Index { options: &options, backlogged });
    report.expect("a valid configuration").wfi_bytes
}

fn assert_index(algorithm: Algorithm, lengths: f64) {
    for set in SETS {
        for backlogged in [None, Some(0), Some(1), Some(0x9e37_79b9_7f4a_7c15)] {
            let wfi_bytes = index(algorithm, set, backlogged);
            assert!(
                wfi_bytes <= lengths * 1500.0 + 1.0,
                "{algorithm} on {set} ({backlogged:?}): {wfi_bytes} bytes"
            );
        }
    }
}

#[test]
fn wf2q_plus_lag_is_at_most_one_longest_packet() {
    assert_index(Algorithm::Wf2qPlus, 1.0);
}

#[test]
fn qfq_lag_is_at_most_two_longest_packets() {
    assert_index(Algorithm::Qfq, 2.0);
}

#[test]
fn qfq_plus_lag_is_at_most_two_longest_packets() {
    assert_index(Algorithm::QfqPlus, 2.0);
}

#[test]
fn index_distinguishes_fair_from_unfair_orders() {
    let unfair = index(Algorithm::Rr, "1-100-10:1500:10", None);
    assert!(unfair > 10_000.0, "{unfair}");
    let unfair = index(Algorithm::Rr, "100:1500:1,1:1500:16", Some(0));
    assert!(unfair > 2_000.0, "{unfair}");
}

/// Returns the bytes that each flow gets while all flows have packets.
fn shares(algorithm: Algorithm, specs: &[FlowSpec], packets: u64) -> Vec<u64> {
    let config = Config::default();
    let mut scheduler = algorithm.build::<()>(&config).expect("the default");
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |flow: u32| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let length_bytes = random as u32 % specs[flow as usize].length_max_bytes + 1;
        Packet { flow, length_bytes, token: () }
    };
    for (flow, spec) in (0..).zip(specs) {
        scheduler.add_flow(*spec).expect("a flow");
        for _ in 0..4 {
            let _ = scheduler.enqueue(0, next(flow)).expect("room");
        }
    }
    let mut got_bytes = vec![0; specs.len()];
    for _ in 0..packets {
        let packet = scheduler.dequeue(0).expect("backlogged");
        got_bytes[packet.flow as usize] += u64::from(packet.length_bytes);
        let _ = scheduler.enqueue(0, next(packet.flow)).expect("room");
    }
    got_bytes
}

#[test]
fn shares_match_weights_within_one_percent_under_overload() {
    let weights = [1, 2, 3, 10, 50, 7, 1000];
    let lengths = [1500, 64, 9000, 300, 1500, 1, 1500];
    let specs: Vec<FlowSpec> = weights
        .into_iter()
        .zip(lengths)
        .map(|(weight, length_max_bytes)| {
            FlowSpec::default().weight(weight).length_max_bytes(length_max_bytes).packets_max(8)
        })
        .collect();
    let sum: u64 = weights.iter().sum();
    for &algorithm in Algorithm::ALL.iter().filter(|it| it.has_weights()) {
        let got_bytes = shares(algorithm, &specs, 4_000_000);
        let all_bytes: u64 = got_bytes.iter().sum();
        for (weight, got_bytes) in weights.iter().zip(&got_bytes) {
            let due_bytes = all_bytes as f64 * *weight as f64 / sum as f64;
            let off = *got_bytes as f64 / due_bytes - 1.0;
            assert!(off.abs() < 0.01, "{algorithm}: weight {weight} is off by {off}");
        }
    }
}

#[test]
fn tenants_share_by_weight_and_flows_share_the_part_of_their_tenant() {
    let by_weight: Vec<Algorithm> =
        Algorithm::ALL.iter().copied().filter(|it| it.has_weights()).collect();
    for (outer, inner) in by_weight.iter().flat_map(|o| by_weight.iter().map(move |i| (o, i))) {
        let mut scheduler = outer.build_tenants::<()>(*inner, &Config::default()).expect("levels");
        // The tenant of weight 3 has one flow, the tenant of weight 1 has three.
        let tenants = [(3, &[5_u64][..]), (1, &[1, 2, 7])];
        let mut due = Vec::new();
        for (weight, flows) in tenants {
            let tenant = scheduler.add_tenant(weight, 1500).expect("a tenant");
            let sum: u64 = flows.iter().sum();
            for &flow in flows {
                let spec = FlowSpec::default().weight(flow).length_max_bytes(1500).packets_max(8);
                scheduler.add_flow_of(tenant, spec).expect("a flow");
                due.push(weight as f64 / 4.0 * flow as f64 / sum as f64);
            }
        }
        let mut got_bytes = [0_u64; 4];
        for round in 0..4 {
            for flow in 0..4 {
                let packet = Packet { flow, length_bytes: 700 + 100 * round, token: () };
                let _ = scheduler.enqueue(0, packet).expect("room");
            }
        }
        for step in 0..200_000_u32 {
            let packet = scheduler.dequeue(0).expect("backlogged");
            got_bytes[packet.flow as usize] += u64::from(packet.length_bytes);
            let length_bytes = 100 + step.wrapping_mul(2_654_435_761) % 1400;
            let _ = scheduler.enqueue(0, Packet { length_bytes, ..packet }).expect("room");
        }
        let all_bytes: u64 = got_bytes.iter().sum();
        for (flow, due) in due.iter().enumerate() {
            let off = got_bytes[flow] as f64 / all_bytes as f64 / due - 1.0;
            assert!(off.abs() < 0.01, "{outer}/{inner}: flow {flow} is off by {off}");
        }
    }
}

#[test]
fn idle_flow_gets_no_credit_and_no_penalty() {
    for &algorithm in &[Algorithm::Wf2qPlus, Algorithm::Qfq, Algorithm::QfqPlus, Algorithm::Rr] {
        let mut scheduler = algorithm.build::<()>(&Config::default()).expect("the default");
        for _ in 0..2 {
            let spec = FlowSpec::default().weight(1).length_max_bytes(1000).packets_max(9);
            scheduler.add_flow(spec).expect("a flow");
        }
        let packet = |flow| Packet { flow, length_bytes: 1000, token: () };
        let _ = scheduler.enqueue(0, packet(0)).expect("room");
        let _ = scheduler.enqueue(0, packet(0)).expect("room");
        for _ in 0..100_000 {
            assert_eq!(scheduler.dequeue(0), Some(packet(0)));
            let _ = scheduler.enqueue(0, packet(0)).expect("room");
        }
        // The other flow wakes up: from now on they take turns, give or take two packets.
        for flow in [0, 0, 1, 1, 1, 1] {
            let _ = scheduler.enqueue(0, packet(flow)).expect("room");
        }
        let mut ahead = 0_i32;
        for _ in 0..1000 {
            let flow = scheduler.dequeue(0).expect("backlogged").flow;
            ahead += if flow == 0 { 1 } else { -1 };
            assert!(ahead.abs() <= 2, "{algorithm}: {ahead}");
            let _ = scheduler.enqueue(0, packet(flow)).expect("room");
        }
    }
}

#[test]
fn idle_flow_keeps_its_share_after_virtual_time_wraps_around() {
    // A flow of weight 1, alone: 2^22 of its bytes wrap virtual time around.
    let config = Config::default();
    let mut scheduler = FlowScheduler::<(), Wf2qPlus>::new(&config).expect("the default");
    let length_max_bytes = 1 << 20;
    for _ in 0..2 {
        scheduler
            .add_flow(
                FlowSpec::default().weight(1).length_max_bytes(length_max_bytes).packets_max(9),
            )
            .expect("a flow");
    }
    let packet = |flow| Packet { flow, length_bytes: length_max_bytes, token: () };
    let _ = scheduler.enqueue(0, packet(0)).expect("room");
    for sleep in 1..40 {
        let _ = scheduler.enqueue(0, packet(1)).expect("room");
        let _ = scheduler.enqueue(0, packet(0)).expect("room");
        let first = [scheduler.dequeue(0), scheduler.dequeue(0)].map(|it| it.map(|it| it.flow));
        assert!(first.contains(&Some(1)), "after {sleep} packets the idle flow was not served");
        for _ in 0..sleep {
            let _ = scheduler.enqueue(0, packet(0)).expect("room");
            assert_eq!(scheduler.dequeue(0).map(|it| it.flow), Some(0));
        }
    }
}
