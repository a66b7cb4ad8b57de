//! Changes of a scheduler with queued packets: weights, and flows that come and go.

use handover_sched::fairness::FairnessIndex;
use handover_sched::{
    Algorithm, AnyScheduler, Config, FlowError, FlowSpec, Packet, Refusal, Scheduler,
};
use proptest::prelude::*;

const LENGTH_MAX_BYTES: u32 = 1500;

fn spec(weight: u64) -> FlowSpec {
    FlowSpec::default().weight(weight).length_max_bytes(LENGTH_MAX_BYTES).packets_max(100)
}

fn packet(flow: u32, token: u64) -> Packet<u64> {
    Packet { flow, length_bytes: 1000, token }
}

fn build(algorithm: Algorithm) -> AnyScheduler<u64> {
    algorithm.build(&Config::default()).expect("the default")
}

fn dequeue_all(scheduler: &mut impl Scheduler<u64>) -> Vec<Packet<u64>> {
    let mut packets = Vec::new();
    while let Some(ready_ns) = scheduler.ready_ns() {
        packets.push(scheduler.dequeue(ready_ns).expect("it is ready"));
    }
    packets
}

#[test]
fn removed_flow_returns_its_packets_and_its_number_is_reused() {
    for &algorithm in Algorithm::ALL {
        let mut scheduler = build(algorithm);
        for flow in 0..4 {
            assert_eq!(scheduler.add_flow(spec(1000)), Ok(flow));
        }
        for token in 0..3 {
            for flow in 0..4 {
                let _ = scheduler.enqueue(0, packet(flow, token)).expect("room");
            }
        }
        let removed = (0..3).map(|token| packet(1, token)).collect();
        assert_eq!(scheduler.remove_flow(1), Ok(removed), "{algorithm}");
        assert_eq!(scheduler.remove_flow(1), Err(FlowError::Unknown { flow: 1 }));
        assert!(scheduler.set_weight(0, 1, 5).is_err());
        let refused = scheduler.enqueue(0, packet(1, 9)).expect_err("the flow was removed");
        assert_eq!((refused.packet, refused.reason), (packet(1, 9), Refusal::UnknownFlow));
        assert_eq!((scheduler.len(), scheduler.totals().dropped), (9, 3));
        assert_eq!(
            (scheduler.remove_flow(3).map(|it| it.len()), scheduler.flows_count()),
            (Ok(3), 2)
        );

        // The smallest number comes first.
        assert_eq!([1, 2, 3].map(|_| scheduler.add_flow(spec(1000))), [Ok(1), Ok(3), Ok(4)]);
        let _ = scheduler.enqueue(0, packet(1, 10)).expect("the flow exists again");
        let mut left: Vec<_> =
            dequeue_all(&mut scheduler).iter().map(|it| (it.flow, it.token)).collect();
        left.sort_unstable();
        assert_eq!(left, [(0, 0), (0, 1), (0, 2), (1, 10), (2, 0), (2, 1), (2, 2)], "{algorithm}");
    }
}

#[test]
fn packet_of_a_removed_flow_creates_it_from_the_template() {
    for &algorithm in Algorithm::ALL {
        let config = Config::default().template(Some(spec(1)));
        let mut scheduler = algorithm.build::<u64>(&config).expect("a valid configuration");
        let _ = scheduler.enqueue(0, packet(3, 0)).expect("flows 0 to 3 are created");
        for flow in [0, 2, 3] {
            scheduler.remove_flow(flow).expect("it exists");
        }
        let _ = scheduler.enqueue(0, packet(2, 1)).expect("flows 0 and 2 are created");
        assert_eq!((scheduler.flows_count(), scheduler.len()), (3, 1), "{algorithm}");
        assert_eq!(dequeue_all(&mut scheduler), [packet(2, 1)]);
    }
}

#[test]
fn weights_are_refused_by_algorithms_without_them_and_outside_their_range() {
    for &algorithm in Algorithm::ALL {
        let mut scheduler = build(algorithm);
        scheduler.add_flow(spec(1)).expect("a flow");
        if matches!(algorithm, Algorithm::Fifo | Algorithm::Rr1) {
            assert_eq!(scheduler.set_weight(0, 0, 2), Err(FlowError::NoWeights), "{algorithm}");
            continue;
        }
        assert_eq!(scheduler.set_weight(0, 0, 2), Ok(()), "{algorithm}");
        for weight in [0, u64::MAX] {
            let refused = scheduler.set_weight(0, 0, weight);
            assert!(matches!(refused, Err(FlowError::Weight { .. })), "{algorithm}: {refused:?}");
        }
        assert_eq!(scheduler.set_weight(0, 1, 2), Err(FlowError::Unknown { flow: 1 }));
    }
}

#[test]
fn new_priority_takes_effect_for_queued_packets() {
    let mut scheduler = build(Algorithm::Prio);
    for priority in [5, 6, 7, 7] {
        scheduler.add_flow(spec(priority)).expect("a flow");
    }
    for flow in 0..4 {
        let _ = scheduler.enqueue(0, packet(flow, 0)).expect("room");
    }
    scheduler.set_weight(0, 2, 1).expect("a valid priority");
    scheduler.set_weight(0, 0, 7).expect("a valid priority");
    let flows: Vec<_> = dequeue_all(&mut scheduler).iter().map(|it| it.flow).collect();
    assert_eq!(flows, [2, 1, 3, 0]);
}

#[test]
fn new_rate_applies_to_the_bytes_that_a_flow_still_waits_for() {
    let mut scheduler = build(Algorithm::Pacing);
    scheduler.add_flow(spec(8_000_000)).expect("a flow"); // 1000 bytes take a millisecond
    for token in 0..3 {
        let _ = scheduler.enqueue(0, packet(0, token)).expect("room");
    }
    assert_eq!(scheduler.dequeue(0), Some(packet(0, 0)));
    // Of 1000 bytes 750 are left, which take twice as long as before.
    scheduler.set_weight(250_000, 0, 4_000_000).expect("a valid rate");
    assert_eq!(scheduler.ready_ns(), Some(1_750_000));
    // Half of them are left, which are 3000 bits.
    scheduler.set_weight(1_000_000, 0, 1_000_000_000_000).expect("a valid rate");
    assert_eq!(scheduler.ready_ns(), Some(1_000_003));
    assert_eq!(scheduler.dequeue(1_000_002), None);
    assert_eq!(scheduler.dequeue(1_000_003), Some(packet(0, 1)));
}

#[test]
fn removed_flow_of_a_tenant_returns_the_packet_that_the_tenant_holds() {
    let levels = Algorithm::Wf2qPlus.build_tenants::<u64>(Algorithm::Rr, &Config::default());
    let mut scheduler = levels.expect("two levels");
    for _ in 0..2 {
        let tenant = scheduler.add_tenant(1, LENGTH_MAX_BYTES).expect("a tenant");
        scheduler.add_flow_of(tenant, spec(1)).expect("a flow");
    }
    for token in 0..2 {
        for flow in 0..2 {
            let _ = scheduler.enqueue(0, packet(flow, token)).expect("room");
        }
    }
    assert_eq!(scheduler.remove_flow(0), Ok(vec![packet(0, 0), packet(0, 1)]));
    assert_eq!(dequeue_all(&mut scheduler), [packet(1, 0), packet(1, 1)]);
    // The number goes to another tenant.
    assert_eq!(scheduler.add_flow_of(1, spec(1)), Ok(0));
    let _ = scheduler.enqueue(0, packet(0, 5)).expect("room");
    assert_eq!(dequeue_all(&mut scheduler), [packet(0, 5)]);
    let refused = scheduler.set_tenant_weight(0, 2, 1);
    assert_eq!(refused, Err(FlowError::Tenant { tenant: 2, tenants_count: 2 }));
}

#[test]
fn new_weight_of_a_tenant_changes_its_share() {
    for outer in [Algorithm::Rr, Algorithm::Wf2qPlus, Algorithm::Qfq, Algorithm::QfqPlus] {
        let levels = outer.build_tenants::<u64>(Algorithm::Rr, &Config::default());
        let mut scheduler = levels.expect("two levels");
        for _ in 0..2 {
            let tenant = scheduler.add_tenant(1, LENGTH_MAX_BYTES).expect("a tenant");
            scheduler.add_flow_of(tenant, spec(1)).expect("a flow");
        }
        for token in 0..80 {
            for flow in 0..2 {
                let _ = scheduler.enqueue(0, packet(flow, token)).expect("room");
            }
        }
        scheduler.set_tenant_weight(0, 1, 3).expect("a valid weight");
        let served = (0..80).filter_map(|_| scheduler.dequeue(0));
        let count = served.filter(|it| it.flow == 1).count();
        assert!((55..=65).contains(&count), "{outer}: {count} of 80 packets at 3 of 4 shares");
    }
}

/// Bytes by which a flow may lag, as the README says for each algorithm.
fn lag_max_bytes(algorithm: Algorithm, weights: &[u64]) -> f64 {
    let longest = f64::from(LENGTH_MAX_BYTES);
    match algorithm {
        Algorithm::Wf2qPlus => longest,
        Algorithm::Qfq | Algorithm::QfqPlus => 2.0 * longest,
        // A turn of each flow, with the quantum of a flow of weight 1, and the remainder of a turn.
        _ => weights.iter().map(|&weight| weight as f64 * longest).sum::<f64>() + longest,
    }
}

/// Change before which and after which a scheduler serves packets.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// Sets the weight of the flow with this index.
    Weight(usize, u64),
    /// Removes the flow with this index, and adds another one.
    Replace(usize, u64),
}

fn any_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (0..8_usize, 1..50_u64).prop_map(|(flow, weight)| Change::Weight(flow, weight)),
        (0..8_usize, 1..50_u64).prop_map(|(flow, weight)| Change::Replace(flow, weight)),
    ]
}

/// Scheduler whose flows always have two packets.
struct Backlogged {
    scheduler: AnyScheduler<u64>,
    lengths: Vec<u32>,
    next: usize,
}

impl Backlogged {
    fn enqueue(&mut self, flow: u32) {
        self.next = (self.next + 1) % self.lengths.len();
        let packet = Packet { flow, length_bytes: self.lengths[self.next], token: 0 };
        let _ = self.scheduler.enqueue(0, packet).expect("room");
    }

    /// Serves packets, and measures the lag of the flows from now on.
    fn serve(&mut self, weights: &[u64], count: usize) -> f64 {
        let mut watch = FairnessIndex::new(weights.iter().copied());
        (0..weights.len() as u32).for_each(|flow| (0..2).for_each(|_| watch.record_queued(flow)));
        for _ in 0..count {
            let packet = self.scheduler.dequeue(0).expect("backlogged");
            self.enqueue(packet.flow);
            watch.record_queued(packet.flow);
            watch.record_served(packet.flow, packet.length_bytes);
        }
        watch.backlogged_bytes()
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 192 },
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn lag_stays_within_the_bounds_after_changes(
        mut weights in prop::collection::vec(1..50_u64, 2..8),
        lengths in prop::collection::vec(300..=LENGTH_MAX_BYTES, 1..50),
        steps in prop::collection::vec((any_change(), 0..40_usize), 1..40),
    ) {
        for algorithm in Algorithm::ALL.iter().copied().filter(|it| it.has_weights()) {
            let scheduler = build(algorithm);
            let mut served = Backlogged { scheduler, lengths: lengths.clone(), next: 0 };
            for (flow, &weight) in weights.iter().enumerate() {
                served.scheduler.add_flow(spec(weight)).expect("a flow");
                (0..2).for_each(|_| served.enqueue(flow as u32));
            }
            for &(change, count) in &steps {
                match change {
                    Change::Weight(flow, weight) => {
                        let flow = flow % weights.len();
                        served.scheduler.set_weight(0, flow as u32, weight).expect("a valid weight");
                        weights[flow] = weight;
                    }
                    Change::Replace(flow, weight) => {
                        let flow = flow % weights.len();
                        served.scheduler.remove_flow(flow as u32).expect("it exists");
                        prop_assert_eq!(served.scheduler.add_flow(spec(weight)), Ok(flow as u32));
                        (0..2).for_each(|_| served.enqueue(flow as u32));
                        weights[flow] = weight;
                    }
                }
                // A flow may have to wait for a packet of each other flow that is behind; in round
                // robin, for turns.
                let lag_bytes = served.serve(&weights, count);
                let lag_max_bytes = f64::from(LENGTH_MAX_BYTES) * (weights.len() + 1) as f64;
                let is_within = lag_bytes <= lag_max_bytes || algorithm == Algorithm::Rr;
                prop_assert!(is_within, "{}: {} bytes after {:?}", algorithm, lag_bytes, change);
            }
            // Each flow is served, and turns of earlier weights end: 600 KB at most, in packets of
            // 300 bytes or more.
            served.serve(&weights, 2_000);
            let lag_bytes = served.serve(&weights, 1_000);
            prop_assert!(lag_bytes <= lag_max_bytes(algorithm, &weights), "{}: {} bytes", algorithm, lag_bytes);
        }
    }
}
