//! Count of allocations.

#![deny(unsafe_code)]

#[allow(unsafe_code)]
#[path = "../../../../base/tests/raw/allocations.rs"]
mod raw;

use handover_sched::engine::Visitor;
use handover_sched::{Algorithm, Config, FlowSpec, Packet, Scheduler};

const FLOWS_COUNT: u32 = 200;

/// Flows of ten weights and two lengths.
fn specs(weights_count: u64) -> impl Iterator<Item = FlowSpec> {
    (0..u64::from(FLOWS_COUNT)).map(move |flow| {
        FlowSpec::default()
            .weight(1 + flow % weights_count * 11)
            .length_max_bytes(if flow % 2 == 0 { 64 } else { 1500 })
            .packets_max(100)
    })
}

/// Runs a scheduler that is filled and drained in turn; returns the number of allocations.
struct Run;

impl Visitor<u64> for Run {
    type Output = usize;

    fn visit<S: Scheduler<u64> + Send + 'static>(self, mut scheduler: S) -> usize {
        for spec in specs(10) {
            scheduler.add_flow(spec).expect("a flow");
        }
        let before = raw::allocations_count();
        let mut now_ns = 0;
        for round in 0..200 {
            // Up to all of a flow's packets, in bursts of three.
            for packet in 0..FLOWS_COUNT * (round % 7) {
                let packet = Packet { flow: packet / 3 % FLOWS_COUNT, length_bytes: 64, token: 0 };
                assert!(scheduler.enqueue(now_ns, packet).is_ok());
            }
            while let Some(ready_ns) = scheduler.ready_ns() {
                now_ns = now_ns.max(ready_ns);
                assert!(scheduler.dequeue(now_ns).is_some());
            }
        }
        raw::allocations_count() - before
    }
}

#[test]
fn enqueue_and_dequeue_do_not_allocate() {
    for algorithm in Algorithm::ALL {
        let allocations = algorithm.visit(&Config::default(), Run).expect("a valid configuration");
        assert_eq!(allocations, 0, "{algorithm}");
    }
}

#[test]
fn enqueue_and_dequeue_of_two_levels_do_not_allocate() {
    let levels = Algorithm::Qfq.build_tenants::<u64>(Algorithm::Wf2qPlus, &Config::default());
    let mut scheduler = levels.expect("two levels");
    for (i, spec) in specs(3).take(30).enumerate() {
        if i % 10 == 0 {
            scheduler.add_tenant(i as u64 + 1, 1500).expect("a tenant");
        }
        scheduler.add_flow(spec).expect("a flow");
    }
    let before = raw::allocations_count();
    for round in 0..20_000 {
        for flow in 0..3 {
            let packet = Packet { flow: (round * 7 + flow) % 30, length_bytes: 64, token: 0 };
            assert!(scheduler.enqueue(0, packet).is_ok());
        }
        for _ in 0..3 {
            assert!(scheduler.dequeue(0).is_some());
        }
    }
    assert_eq!(raw::allocations_count() - before, 0);
}
