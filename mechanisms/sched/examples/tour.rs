//! The five-minute tour of the algorithms: `cargo run -p handover-sched --example sched-tour`.

use handover_sched::engine::{FlowScheduler, Hierarchy, Pacing, Qfq, Tenants, Wf2qPlus};
use handover_sched::fairness::FairnessIndex;
use handover_sched::{
    Algorithm, Config, DropPolicy, EnqueueOutcome, FlowSpec, Packet, Refusal, Scheduler,
};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    // An algorithm is a plain value without clock or thread: time and lengths are arguments.
    let mut scheduler = FlowScheduler::<&str, Wf2qPlus>::new(&Config::default())?;
    let spec = FlowSpec::default().weight(3).length_max_bytes(1500).packets_max(2);
    let heavy = scheduler.add_flow(spec)?;
    let light = scheduler.add_flow(spec.weight(1).drop(DropPolicy::Head))?;

    // A packet has a flow, a length, and a token by which the caller finds it.
    for name in ["first", "second"] {
        for flow in [heavy, light] {
            let packet = Packet { flow, length_bytes: 1000, token: name };
            assert_eq!(scheduler.enqueue(0, packet), Ok(EnqueueOutcome::Queued));
        }
    }
    // A full flow refuses and returns the newest packet, or drops and returns the oldest.
    let third = Packet { flow: heavy, length_bytes: 1000, token: "third" };
    let refused = scheduler.enqueue(0, third).map_err(|refused| (refused.packet, refused.reason));
    assert_eq!(refused, Err((third, Refusal::FlowFull)));
    let dropped = Packet { flow: light, length_bytes: 1000, token: "first" };
    let accepted = scheduler.enqueue(0, Packet { flow: light, ..third });
    assert_eq!(accepted, Ok(EnqueueOutcome::Replaced(dropped)));
    while let Some(Packet { flow, token, .. }) = scheduler.dequeue(0) {
        println!("flow {flow}: {token}");
    }

    // An algorithm can be chosen by name at run time; the error of an unknown name lists the known
    // ones.
    let mut any = "drr".parse::<Algorithm>()?.build::<()>(&Config::default())?;
    for weight in [100, 1, 1] {
        any.add_flow(spec.weight(weight))?;
    }
    println!("{} flows", any.flows_count());
    println!(
        "{}",
        "fair".parse::<Algorithm>().map_or_else(|it| it.to_string(), |it| it.to_string())
    );

    // Each flow has its own rate: a thousand bytes take a millisecond at 8 Mbit/s.
    let mut paced = FlowScheduler::<(), Pacing>::new(&Config::default())?;
    paced.add_flow(spec.weight(8_000_000))?;
    for _ in 0..2 {
        let _ = paced.enqueue(0, Packet { flow: 0, length_bytes: 1000, token: () })?;
    }
    assert!(paced.dequeue(0).is_some() && paced.dequeue(999_999).is_none());
    assert_eq!(paced.ready_ns(), Some(1_000_000));

    // Tenants share the link, and each tenant's flows share the tenant's part.
    let mut levels = Hierarchy::<(), Qfq, Wf2qPlus>::new(&Config::default())?;
    for weight in [2, 1] {
        let tenant = levels.add_tenant(weight, 1500)?;
        levels.add_flow_of(tenant, spec)?;
    }
    println!("{} tenants, {} flows", levels.tenants_count(), levels.flows_count());

    // Measured fairness: no flow is behind its share by more than a longest packet.
    let mut scheduler = FlowScheduler::<(), Wf2qPlus>::new(&Config::default())?;
    let mut index = FairnessIndex::new([10, 3, 1]);
    for weight in [10, 3, 1] {
        scheduler.add_flow(spec.weight(weight))?;
    }
    let packet = |flow| Packet { flow, length_bytes: 1500, token: () };
    // Two packets of each flow, so that no flow is empty after a dequeue.
    for flow in [0, 0, 1, 1, 2, 2] {
        let _ = scheduler.enqueue(0, packet(flow))?;
        index.record_queued(flow);
    }
    for _ in 0..100_000 {
        let Some(Packet { flow, .. }) = scheduler.dequeue(0) else { break };
        let _ = scheduler.enqueue(0, packet(flow))?;
        index.record_queued(flow);
        index.record_served(flow, 1500);
    }
    println!("largest lag behind the fair share: {:.0} bytes", index.backlogged_bytes());
    assert!(index.backlogged_bytes() <= 1500.0);
    Ok(())
}
