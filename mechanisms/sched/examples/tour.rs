//! The five-minute tour of the algorithms: `cargo run -p handover-sched --example sched-tour`.

use handover_sched::engine::{Hierarchy, Pacing, Qfq, Queued, Tenants, Wf2qPlus};
use handover_sched::flowset::FlowSet;
use handover_sched::tester::{Options, Tester};
use handover_sched::{
    Accepted, Algorithm, Config, DropPolicy, FlowSpec, Packet, Refusal, Scheduler,
};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    // An algorithm is a plain value without clock or thread: time and lengths are arguments.
    let mut scheduler = Queued::<&str, Wf2qPlus>::new(&Config::default())?;
    let spec =
        FlowSpec { weight: 3, length_max_bytes: 1500, packets_max: 2, drop: DropPolicy::Tail };
    let heavy = scheduler.add_flow(spec)?;
    let light = scheduler.add_flow(FlowSpec { weight: 1, drop: DropPolicy::Head, ..spec })?;

    // A packet has a flow, a length, and a token by which the caller finds it.
    for name in ["first", "second"] {
        for flow in [heavy, light] {
            let packet = Packet { flow, length_bytes: 1000, token: name };
            assert_eq!(scheduler.enqueue(0, packet), Ok(Accepted::Queued));
        }
    }
    // A full flow refuses and returns the newest packet, or drops and returns the oldest.
    let third = Packet { flow: heavy, length_bytes: 1000, token: "third" };
    let refused = scheduler.enqueue(0, third).map_err(|refused| (refused.packet, refused.why));
    assert_eq!(refused, Err((third, Refusal::FlowFull)));
    let dropped = Packet { flow: light, length_bytes: 1000, token: "first" };
    let accepted = scheduler.enqueue(0, Packet { flow: light, ..third });
    assert_eq!(accepted, Ok(Accepted::InsteadOf(dropped)));
    while let Some(Packet { flow, token, .. }) = scheduler.dequeue(0) {
        println!("flow {flow}: {token}");
    }

    // An algorithm can be chosen by name at run time; the error of an unknown name lists the known
    // ones.
    let mut any = "drr".parse::<Algorithm>()?.build::<()>(&Config::default())?;
    let flows: FlowSet = "100:1500:1,1:64-1500:8".parse()?;
    for spec in flows.specs(100) {
        any.add_flow(spec)?;
    }
    println!("{} flows, weights of {} in all", any.flows_count(), flows.weights_sum());
    println!(
        "{}",
        "fair".parse::<Algorithm>().map_or_else(|it| it.to_string(), |it| it.to_string())
    );

    // Each flow has its own rate: a thousand bytes take a millisecond at 8 Mbit/s.
    let mut paced = Queued::<(), Pacing>::new(&Config::default())?;
    paced.add_flow(FlowSpec { weight: 8_000_000, ..spec })?;
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
    let options = Options::parse(&["-alg", "wf2q+", "-flowsets", "1-100-10:1500:10"])?;
    let mut scheduler = options.algorithm.build::<()>(&options.config())?;
    let report =
        Tester::new(&options, &mut scheduler)?.run_backlogged(&mut scheduler, 2, 100_000, 1);
    println!("at most {:.0} bytes behind", report.wfi_bytes);
    assert!(report.wfi_bytes <= 1500.0);
    Ok(())
}
