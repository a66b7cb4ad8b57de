//! Examples of the scheduler API: limits, drops, priorities, pacing, two levels, refusals.

use handover_sched::engine::{
    FLOWS_LIMIT, FlowScheduler, Hierarchy, LENGTH_LIMIT_BYTES, Pacing, Qfq, Tenants, Wf2qPlus,
};
use handover_sched::{
    Algorithm, Config, ConfigError, DropPolicy, EnqueueOutcome, FlowError, FlowSpec, Packet,
    Refusal, Scheduler,
};

fn spec(weight: u64) -> FlowSpec {
    FlowSpec::default().weight(weight).length_max_bytes(1500).packets_max(100)
}

fn packet(flow: u32, token: u64) -> Packet<u64> {
    Packet { flow, length_bytes: 1000, token }
}

fn tokens(scheduler: &mut impl Scheduler<u64>) -> Vec<u64> {
    std::iter::from_fn(|| scheduler.dequeue(0)).map(|packet| packet.token).collect()
}

#[test]
fn tail_drop_refuses_the_newest_packet_and_head_drop_returns_the_oldest() {
    for &algorithm in Algorithm::ALL {
        let mut scheduler = algorithm.build::<u64>(&Config::default()).expect("create a scheduler");
        for drop in [DropPolicy::Tail, DropPolicy::Head] {
            let limited = spec(1000).packets_max(2).drop(drop).weight(1000);
            scheduler.add_flow(limited).expect("add a flow");
        }
        for token in 0..2 {
            for flow in 0..2 {
                assert_eq!(scheduler.enqueue(0, packet(flow, token)), Ok(EnqueueOutcome::Queued));
            }
        }
        let refused = scheduler.enqueue(0, packet(0, 2)).expect_err("the flow is full");
        assert_eq!((refused.packet, refused.reason), (packet(0, 2), Refusal::FlowFull));
        let accepted = scheduler.enqueue(0, packet(1, 2));
        assert_eq!(accepted, Ok(EnqueueOutcome::Replaced(packet(1, 0))), "{algorithm}");
        let mut left = Vec::new();
        while let Some(ready_ns) = scheduler.ready_ns() {
            let dequeued = scheduler.dequeue(ready_ns).expect("a packet is ready");
            left.push((dequeued.flow, dequeued.token));
        }
        left.sort_unstable();
        assert_eq!(left, [(0, 0), (0, 1), (1, 1), (1, 2)], "{algorithm}");
        let totals = scheduler.totals();
        assert_eq!((totals.enqueued, totals.dequeued), (5, 4));
        assert_eq!((totals.dropped, totals.refused), (1, 1));
    }
}

#[test]
fn fifo_keeps_its_order_after_many_head_drops() {
    let config = Config::default().packets_max(5);
    let mut scheduler = Algorithm::Fifo.build::<u64>(&config).expect("create a scheduler");
    scheduler.add_flow(spec(1)).expect("add a flow");
    let head = spec(1).packets_max(2).drop(DropPolicy::Head);
    scheduler.add_flow(head).expect("add a flow");
    for token in [1, 2] {
        let _ = scheduler.enqueue(0, packet(0, token)).expect("enqueue");
    }
    let _ = scheduler.enqueue(0, packet(1, 100)).expect("enqueue");
    let _ = scheduler.enqueue(0, packet(0, 3)).expect("enqueue");
    let _ = scheduler.enqueue(0, packet(1, 101)).expect("enqueue");
    for token in 102..200 {
        let accepted = scheduler.enqueue(0, packet(1, token));
        assert_eq!(accepted, Ok(EnqueueOutcome::Replaced(packet(1, token - 2))));
        assert_eq!(scheduler.len(), 5);
    }
    assert_eq!(scheduler.enqueue(0, packet(0, 4)).map_err(|it| it.reason), Err(Refusal::Full));
    assert_eq!(tokens(&mut scheduler), [1, 2, 3, 198, 199]);
}

#[test]
fn priority_serves_smaller_numbers_first_and_alternates_between_equals() {
    let mut scheduler =
        Algorithm::Prio.build::<u64>(&Config::default()).expect("create a scheduler");
    for priority in [7, 4096, 7, 1, 65] {
        scheduler.add_flow(spec(priority)).expect("add a flow");
    }
    for round in 0..2 {
        for flow in 0..5 {
            let _ =
                scheduler.enqueue(0, packet(flow, u64::from(flow) * 10 + round)).expect("enqueue");
        }
    }
    assert_eq!(tokens(&mut scheduler), [30, 31, 0, 20, 1, 21, 40, 41, 10, 11]);
    let refused = scheduler.add_flow(spec(4097));
    assert_eq!(refused, Err(FlowError::Weight { weight: 4097, weight_max: 4096 }));
}

#[test]
fn deficit_is_kept_between_turns() {
    let mut scheduler = Algorithm::Rr.build::<u64>(&Config::default()).expect("create a scheduler");
    scheduler.add_flow(spec(1)).expect("add a flow");
    scheduler.add_flow(spec(2)).expect("add a flow");
    for token in 0..6 {
        for flow in 0..2 {
            let _ =
                scheduler.enqueue(0, packet(flow, u64::from(flow) * 10 + token)).expect("enqueue");
        }
    }
    // A turn is worth 1500 and 3000 bytes; each packet has 1000.
    assert_eq!(tokens(&mut scheduler), [0, 10, 11, 12, 1, 2, 13, 14, 15, 3, 4, 5]);
}

#[test]
fn paced_packets_leave_at_exact_times() {
    // 1000 bytes at 3 Mbit/s take 2,666,666 and two thirds of a nanosecond.
    let mut scheduler =
        FlowScheduler::<u64, Pacing>::new(&Config::default()).expect("create a scheduler");
    scheduler.add_flow(spec(3_000_000)).expect("add a flow");
    let began_ns = 123_456_789_000;
    for token in 0..10 {
        let _ = scheduler.enqueue(began_ns, packet(0, token)).expect("enqueue");
    }
    for token in 0..10_u64 {
        let due_ns = began_ns + (token * 8_000_000).div_ceil(3);
        assert_eq!(scheduler.ready_ns(), Some(due_ns));
        assert_eq!(scheduler.dequeue(due_ns - 1), None);
        assert_eq!(scheduler.dequeue(due_ns), Some(packet(0, token)));
    }
    assert_eq!(scheduler.ready_ns(), None);
    // A packet that comes a moment later does not exceed the rate, and no credit is saved up.
    let next_ns = began_ns + 80_000_000_u64.div_ceil(3);
    let _ = scheduler.enqueue(began_ns + 25_000_000, packet(0, 10)).expect("enqueue");
    assert_eq!(scheduler.ready_ns(), Some(next_ns));
    assert_eq!(scheduler.dequeue(next_ns), Some(packet(0, 10)));
    let later_ns = began_ns + 1_000_000_000;
    for token in 11..13 {
        let _ = scheduler.enqueue(later_ns, packet(0, token)).expect("enqueue");
    }
    assert_eq!(scheduler.dequeue(later_ns), Some(packet(0, 11)));
    assert_eq!(scheduler.ready_ns(), Some(later_ns + 2_666_667));
}

#[test]
fn paced_flows_leave_in_order_of_departure_time_at_any_time_scale() {
    let rates = [1, 1_000, 123_457, 1_000_000_007, 10_000_000_000_000, 1_000_000_000_000_000];
    let mut scheduler =
        FlowScheduler::<u64, Pacing>::new(&Config::default()).expect("create a scheduler");
    for rate in rates {
        scheduler.add_flow(spec(rate)).expect("add a flow");
    }
    let mut sent = [0_u64; 6];
    for flow in 0..6 {
        for token in 0..2 {
            let _ = scheduler.enqueue(0, packet(flow, token)).expect("enqueue");
        }
    }
    let mut now_ns = 0;
    for _ in 0..20_000 {
        let ready_ns = scheduler.ready_ns().expect("a packet is queued");
        now_ns = now_ns.max(ready_ns);
        let dequeued = scheduler.dequeue(now_ns).expect("a packet is ready");
        let flow = dequeued.flow as usize;
        let due_ns = (sent[flow] * 8_000_000_000_000).div_ceil(rates[flow]);
        assert_eq!(ready_ns, due_ns, "rate {}", rates[flow]);
        sent[flow] += 1;
        let _ = scheduler.enqueue(now_ns, packet(dequeued.flow, 0)).expect("enqueue");
    }
    // The slowest flow has sent one packet only, at its departure time.
    assert_eq!(sent[..1], [1]);
}

#[test]
fn paced_tenants_limit_their_flows_to_their_rate() {
    type Levels = Hierarchy<u64, Pacing, Wf2qPlus>;
    let mut scheduler = Levels::new(&Config::default()).expect("create a scheduler");
    assert_eq!(scheduler.add_flow(spec(1)), Err(FlowError::Tenant { tenant: 0, tenants_count: 0 }));
    let tenant = scheduler.add_tenant(8_000_000, 1500).expect("add a tenant");
    for _ in 0..2 {
        scheduler.add_flow_of(tenant, spec(1)).expect("add a flow");
    }
    for token in 0..4 {
        let _ = scheduler.enqueue(0, packet((token % 2) as u32, token)).expect("enqueue");
    }
    // 1000 bytes at 8 Mbit/s take a millisecond.
    for token in 0..4 {
        assert_eq!(scheduler.ready_ns(), Some(token * 1_000_000));
        assert_eq!(scheduler.dequeue(token * 1_000_000).map(|it| it.token), Some(token));
    }
    let long = spec(1).length_max_bytes(1501);
    let refused = FlowError::Length { length_max_bytes: 1501, limit_bytes: 1500 };
    assert_eq!(scheduler.add_flow_of(tenant, long), Err(refused));
    let refused = Hierarchy::<u64, Wf2qPlus, Pacing>::new(&Config::default()).map(|_| ());
    assert_eq!(refused, Err(ConfigError::HoldsBack));
    let refused =
        Algorithm::Rr.build_tenants::<u64>(Algorithm::Fifo, &Config::default()).map(|_| ());
    assert_eq!(refused, Err(ConfigError::NoLevel { algorithm: Algorithm::Fifo }));
}

#[test]
fn packet_whose_flow_is_not_below_the_maximum_is_refused_and_creates_no_flow() {
    let config = Config::default().flows_max(4).template(Some(spec(1)));
    let check = |scheduler: &mut dyn Scheduler<u64>, name: &str| {
        for flow in [4, 70_000] {
            let refused = scheduler.enqueue(0, packet(flow, 0)).expect_err("too great a number");
            assert_eq!(refused.reason, Refusal::NoMoreFlows, "{name}");
            assert_eq!(scheduler.flows_count(), 0, "{name}");
        }
        assert_eq!(scheduler.totals().refused, 2, "{name}");
        assert_eq!(scheduler.add_flow(spec(1)), Ok(0), "{name}");
        let greatest = scheduler.enqueue(0, packet(3, 0));
        assert_eq!(greatest, Ok(EnqueueOutcome::Queued), "{name}");
        assert_eq!(scheduler.flows_count(), 4, "{name}");
    };
    for &algorithm in Algorithm::ALL {
        check(&mut *algorithm.build::<u64>(&config).expect("create a scheduler"), algorithm.name());
    }
    let mut tenants =
        Algorithm::Rr.build_tenants::<u64>(Algorithm::Rr, &config).expect("two levels");
    tenants.add_tenant(1, 1500).expect("add a tenant");
    check(&mut *tenants, "two levels");
}

#[test]
fn out_of_range_values_are_refused_with_their_range() {
    for &algorithm in Algorithm::ALL {
        let config = Config::default().flows_max(2);
        let mut scheduler = algorithm.build::<u64>(&config).expect("create a scheduler");
        let zero = scheduler.add_flow(spec(0));
        assert!(matches!(zero, Err(FlowError::Weight { weight: 0, .. })), "{algorithm}: {zero:?}");
        for length_max_bytes in [0, LENGTH_LIMIT_BYTES + 1] {
            let refused = scheduler.add_flow(spec(1).length_max_bytes(length_max_bytes));
            let limit_bytes = LENGTH_LIMIT_BYTES;
            assert_eq!(refused, Err(FlowError::Length { length_max_bytes, limit_bytes }));
        }
        let refused = scheduler.add_flow(spec(1).packets_max(0));
        assert_eq!(refused, Err(FlowError::Packets));
        assert_eq!(scheduler.flows_count(), 0);
        for id in 0..2 {
            assert_eq!(scheduler.add_flow(spec(1)), Ok(id));
        }
        assert_eq!(scheduler.add_flow(spec(1)), Err(FlowError::Flows { flows_max: 2 }));
        let refused = scheduler.enqueue(0, packet(2, 0)).expect_err("no such flow");
        assert_eq!(refused.reason, Refusal::UnknownFlow);
        assert_eq!(
            refused.to_string(),
            "cannot queue a packet of flow 2, 1000 bytes: the flow does not exist: add it, or configure a \
             template for new flows"
        );
        assert!(std::error::Error::source(&refused).is_none(), "the message contains the cause");
    }
    let mut scheduler =
        FlowScheduler::<u64, Qfq>::new(&Config::default()).expect("create a scheduler");
    assert_eq!(
        scheduler.add_flow(spec(1 << 21)).expect_err("too heavy").to_string(),
        "weight=2097152: must lie in 1..=1048576"
    );
    let bad = [
        (Config::default().packets_max(0), "packets_max=0: must lie in 1..=268435456"),
        (Config::default().flows_max(FLOWS_LIMIT + 1), "flows_max=16777217"),
        (Config::default().quantum_bytes(0), "quantum_bytes=0: must lie in"),
        (Config::default().template(Some(spec(0))), "weight=0: must lie in"),
    ];
    for (config, message) in bad {
        for algorithm in Algorithm::ALL {
            let refused = algorithm.build::<u64>(&config).err().expect("refused").to_string();
            assert!(refused.contains(message), "{refused}");
        }
    }
}

#[test]
fn too_long_turns_of_the_heaviest_flow_are_refused() {
    let mut scheduler = Algorithm::Rr.build::<u64>(&Config::default()).expect("create a scheduler");
    scheduler.add_flow(spec(1 << 20)).expect("add a heavy flow");
    let jumbo = spec(1).length_max_bytes(9000);
    let refused = FlowError::Length { length_max_bytes: 9000, limit_bytes: 2048 };
    assert_eq!(scheduler.add_flow(jumbo), Err(refused));
    scheduler.add_flow(jumbo.length_max_bytes(2048)).expect("add a flow");
}
