//! Contract of every algorithm: no packet is lost, duplicated, or overtaken within its flow.

use handover_sched::engine::{Tenants, WEIGHT_MAX};
use handover_sched::{
    Algorithm, Config, DropPolicy, EnqueueOutcome, FlowError, FlowSpec, Packet, Refusal, Scheduler,
};
use proptest::prelude::*;
use std::collections::VecDeque;

const LENGTH_MAX_BYTES: u32 = 1500;

#[derive(Clone, Copy, Debug)]
enum Step {
    Enqueue { flow: u32, length_bytes: u32 },
    Dequeue { after_ns: u64 },
    AddFlow(FlowSpec),
    RemoveFlow { flow: u32 },
    SetWeight { flow: u32, weight: u64 },
}

fn any_spec() -> impl Strategy<Value = FlowSpec> {
    (1..=100_u64, 1..=LENGTH_MAX_BYTES, 1..=6_u32, any::<bool>()).prop_map(
        |(weight, length_max_bytes, packets_max, drops_head)| {
            FlowSpec::default()
                .weight(weight)
                .length_max_bytes(length_max_bytes)
                .packets_max(packets_max)
                .drop(if drops_head { DropPolicy::Head } else { DropPolicy::Tail })
        },
    )
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..10_u32, 0..=LENGTH_MAX_BYTES + 1)
            .prop_map(|(flow, length_bytes)| Step::Enqueue { flow, length_bytes }),
        6 => (0..200_000_u64).prop_map(|after_ns| Step::Dequeue { after_ns }),
        1 => any_spec().prop_map(Step::AddFlow),
        1 => (0..10_u32).prop_map(|flow| Step::RemoveFlow { flow }),
        2 => (0..10_u32, 1..=4096_u64).prop_map(|(flow, weight)| Step::SetWeight { flow, weight }),
    ]
}

/// Reference model: the packets queued in each flow.
struct Model {
    /// Properties of each flow; `None` if it was removed.
    specs: Vec<Option<FlowSpec>>,
    queues: Vec<VecDeque<Packet<u64>>>,
    /// Number of packets outside the limits: with tenants, one held by each tenant.
    held_max: usize,
}

impl Model {
    fn queued(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }

    fn take(&mut self, packet: Packet<u64>) -> Result<(), TestCaseError> {
        let oldest = self.queues[packet.flow as usize].pop_front();
        prop_assert_eq!(oldest, Some(packet), "not the oldest of its flow");
        Ok(())
    }
}

const PACKETS_MAX: u32 = 24;

fn run_steps(
    scheduler: &mut dyn Scheduler<u64>,
    steps: &[Step],
    specs: Vec<FlowSpec>,
    tenants_count: usize,
    can_hold_back: bool,
) -> Result<(), TestCaseError> {
    let queues = vec![VecDeque::new(); specs.len()];
    let specs = specs.into_iter().map(Some).collect();
    let mut model = Model { specs, queues, held_max: tenants_count };
    let (mut now_ns, mut token) = (0, 0);
    for &step in steps {
        match step {
            Step::AddFlow(spec) => {
                let free =
                    model.specs.iter().position(Option::is_none).unwrap_or(model.specs.len());
                prop_assert_eq!(scheduler.add_flow(spec), Ok(free as u32));
                if free == model.specs.len() {
                    model.specs.push(None);
                    model.queues.push(VecDeque::new());
                }
                model.specs[free] = Some(spec);
            }
            Step::RemoveFlow { flow } => {
                let removed = scheduler.remove_flow(flow);
                match model.specs.get_mut(flow as usize).and_then(Option::take) {
                    Some(_) => {
                        let queue = std::mem::take(&mut model.queues[flow as usize]);
                        prop_assert_eq!(removed, Ok(queue.into()));
                    }
                    None => prop_assert_eq!(removed, Err(FlowError::Unknown { flow })),
                }
            }
            Step::SetWeight { flow, weight } => {
                let changed = scheduler.set_weight(now_ns, flow, weight);
                let exists = model.specs.get(flow as usize).is_some_and(Option::is_some);
                match changed {
                    Ok(()) => prop_assert!(exists),
                    Err(FlowError::NoWeights) => {}
                    other => prop_assert_eq!(other, Err(FlowError::Unknown { flow })),
                }
            }
            Step::Enqueue { flow, length_bytes } => {
                token += 1;
                let packet = Packet { flow, length_bytes, token };
                offer(scheduler, &mut model, now_ns, packet)?;
            }
            Step::Dequeue { after_ns } => {
                now_ns += after_ns;
                let ready_ns = scheduler.ready_ns();
                prop_assert_eq!(ready_ns.is_some(), model.queued() > 0);
                match scheduler.dequeue(now_ns) {
                    Some(packet) => {
                        prop_assert!(ready_ns <= Some(now_ns), "before it was ready");
                        model.take(packet)?;
                    }
                    None if model.queued() > 0 => {
                        prop_assert!(can_hold_back && ready_ns > Some(now_ns), "held back");
                    }
                    None => {}
                }
            }
        }
        let totals = scheduler.totals();
        let removed_count = totals.dequeued + totals.dropped;
        prop_assert_eq!(totals.enqueued, removed_count + scheduler.len() as u64);
        prop_assert_eq!(scheduler.len(), model.queued());
        let flows_count = model.specs.iter().flatten().count();
        prop_assert_eq!(scheduler.flows_count(), flows_count as u32);
    }
    while let Some(ready_ns) = scheduler.ready_ns() {
        now_ns = now_ns.max(ready_ns);
        let packet = scheduler.dequeue(now_ns);
        prop_assert!(packet.is_some(), "no packet at the ready time");
        model.take(packet.expect("just seen"))?;
    }
    prop_assert_eq!(model.queued(), 0);
    prop_assert!(scheduler.is_empty());
    prop_assert_eq!(scheduler.dequeue(u64::MAX), None);
    Ok(())
}

fn offer(
    scheduler: &mut dyn Scheduler<u64>,
    model: &mut Model,
    now_ns: u64,
    packet: Packet<u64>,
) -> Result<(), TestCaseError> {
    let before = scheduler.totals();
    let result = scheduler.enqueue(now_ns, packet);
    let Some(spec) = model.specs.get(packet.flow as usize).copied().flatten() else {
        let refused = result.expect_err("unknown flow");
        prop_assert_eq!((refused.packet, refused.reason), (packet, Refusal::UnknownFlow));
        return Ok(());
    };
    let queue = &mut model.queues[packet.flow as usize];
    let queued_count = queue.len();
    let is_full = queued_count >= spec.packets_max as usize;
    match result {
        Ok(accepted) => {
            prop_assert!((1..=spec.length_max_bytes).contains(&packet.length_bytes));
            queue.push_back(packet);
            if let EnqueueOutcome::Replaced(dropped) = accepted {
                prop_assert_eq!(spec.drop, DropPolicy::Head);
                prop_assert!(is_full, "dropped, and there was room");
                // The oldest packet; with two levels, the oldest that no tenant holds.
                let at = queue.iter().position(|it| *it == dropped);
                prop_assert!(at == Some(0) || model.held_max > 0 && at == Some(1), "{:?}", at);
                queue.remove(at.expect("just seen"));
            } else {
                prop_assert!(
                    !is_full || model.held_max > 0 && queued_count == spec.packets_max as usize
                );
            }
        }
        Err(refused) => {
            prop_assert_eq!(refused.packet, packet);
            prop_assert_eq!(scheduler.totals().refused, before.refused + 1);
            match refused.reason {
                Refusal::Empty => prop_assert_eq!(packet.length_bytes, 0),
                Refusal::TooLong => prop_assert!(packet.length_bytes > spec.length_max_bytes),
                Refusal::FlowFull => prop_assert!(is_full && spec.drop == DropPolicy::Tail),
                Refusal::Full => prop_assert!(model.queued() >= PACKETS_MAX as usize),
                other => prop_assert!(false, "{}", other),
            }
        }
    }
    Ok(())
}

fn config() -> Config {
    Config::default().packets_max(PACKETS_MAX)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 192 }))]

    #[test]
    fn every_algorithm_keeps_all_packets_in_flow_order(
        steps in prop::collection::vec(any_step(), 1..300),
        specs in prop::collection::vec(any_spec(), 1..6),
    ) {
        for &algorithm in Algorithm::ALL {
            let mut scheduler = algorithm.build::<u64>(&config()).expect("a valid configuration");
            for &spec in &specs {
                scheduler.add_flow(spec).expect("within every algorithm's limits");
            }
            let can_hold_back = algorithm == Algorithm::Pacing;
            run_steps(&mut scheduler, &steps, specs.clone(), 0, can_hold_back)
                .map_err(|error| TestCaseError::fail(format!("{algorithm}: {error}")))?;
        }
    }

    #[test]
    fn every_pair_of_levels_keeps_all_packets_in_flow_order(
        steps in prop::collection::vec(any_step(), 1..200),
        specs in prop::collection::vec(any_spec(), 1..6),
        weights in prop::collection::vec(1..50_u64, 1..4),
    ) {
        let levels = |it: &&Algorithm| **it != Algorithm::Fifo;
        for outer in Algorithm::ALL.iter().filter(levels) {
            for inner in Algorithm::ALL.iter().filter(levels).filter(|it| **it != Algorithm::Pacing) {
                let mut scheduler = outer.build_tenants::<u64>(*inner, &config()).expect("two levels");
                for &weight in &weights {
                    scheduler.add_tenant(weight, LENGTH_MAX_BYTES).expect("a tenant");
                }
                for (i, &spec) in specs.iter().enumerate() {
                    let tenant = (i % weights.len()) as u32;
                    scheduler.add_flow_of(tenant, spec).expect("a flow");
                }
                let can_hold_back = *outer == Algorithm::Pacing;
                let mut scheduler: Box<dyn Tenants<u64> + Send> = scheduler;
                run_steps(&mut Plain(&mut *scheduler), &steps, specs.clone(), weights.len(), can_hold_back)
                    .map_err(|error| TestCaseError::fail(format!("{outer}/{inner}: {error}")))?;
            }
        }
    }

    #[test]
    fn first_packets_create_flows_from_the_template(
        flows in prop::collection::vec(0..40_u32, 1..200),
    ) {
        let spec = FlowSpec::default().weight(1).length_max_bytes(100).packets_max(1000);
        for &algorithm in Algorithm::ALL {
            let config = Config::default().flows_max(30).template(Some(spec));
            let mut scheduler = algorithm.build::<u64>(&config).expect("a valid configuration");
            let mut taken = 0;
            for (token, &flow) in flows.iter().enumerate() {
                let packet = Packet { flow, length_bytes: 100, token: token as u64 };
                match scheduler.enqueue(0, packet) {
                    Ok(accepted) => {
                        prop_assert_eq!(accepted, EnqueueOutcome::Queued);
                        prop_assert!(flow < 30 && scheduler.flows_count() > flow);
                        taken += 1;
                    }
                    Err(refused) => {
                        prop_assert!(flow >= 30);
                        prop_assert_eq!(refused.reason, Refusal::NoMoreFlows);
                    }
                }
            }
            prop_assert_eq!(scheduler.len(), taken);
        }
    }

    #[test]
    fn extreme_weights_and_lengths_are_scheduled_or_refused(
        flows in prop::collection::vec(
            (prop_oneof![Just(1), Just(2), Just(WEIGHT_MAX - 1), Just(WEIGHT_MAX), any::<u64>()],
             prop_oneof![Just(1), Just((1 << 20) - 1), Just(1 << 20), any::<u32>()]),
            1..12),
        order in prop::collection::vec((0..12_usize, any::<u32>()), 1..400),
    ) {
        for &algorithm in Algorithm::ALL {
            let mut scheduler = algorithm.build::<()>(&Config::default()).expect("the default");
            let mut lengths = Vec::new();
            for &(weight, length_max_bytes) in &flows {
                let drop = if weight % 2 == 0 { DropPolicy::Head } else { DropPolicy::Tail };
                let spec = FlowSpec::default().weight(weight).length_max_bytes(length_max_bytes).packets_max(3).drop(drop);
                match scheduler.add_flow(spec) {
                    Ok(_) => lengths.push(length_max_bytes),
                    Err(refused) => prop_assert!(!refused.to_string().is_empty()),
                }
            }
            let mut now_ns = 0;
            for &(which, length) in &order {
                if lengths.is_empty() { break; }
                let flow = which % lengths.len();
                let length_bytes = length % lengths[flow] + 1;
                let _ = scheduler.enqueue(now_ns, Packet { flow: flow as u32, length_bytes, token: () });
                if length % 3 > 0 && let Some(ready_ns) = scheduler.ready_ns() {
                    now_ns = now_ns.max(ready_ns);
                    prop_assert!(scheduler.dequeue(now_ns).is_some(), "{}", algorithm);
                }
            }
        }
    }
}

/// Adapter that tests a scheduler of two levels as a plain scheduler.
struct Plain<'a>(&'a mut dyn Tenants<u64>);

impl Scheduler<u64> for Plain<'_> {
    fn add_flow(&mut self, spec: FlowSpec) -> Result<u32, FlowError> {
        self.0.add_flow(spec)
    }
    fn flows_count(&self) -> u32 {
        self.0.flows_count()
    }
    fn remove_flow(&mut self, flow: u32) -> Result<Vec<Packet<u64>>, FlowError> {
        self.0.remove_flow(flow)
    }
    fn set_weight(&mut self, now_ns: u64, flow: u32, weight: u64) -> Result<(), FlowError> {
        self.0.set_weight(now_ns, flow, weight)
    }
    fn enqueue(
        &mut self,
        now_ns: u64,
        packet: Packet<u64>,
    ) -> Result<EnqueueOutcome<u64>, handover_sched::EnqueueError<u64>> {
        self.0.enqueue(now_ns, packet)
    }
    fn dequeue(&mut self, now_ns: u64) -> Option<Packet<u64>> {
        self.0.dequeue(now_ns)
    }
    fn ready_ns(&self) -> Option<u64> {
        self.0.ready_ns()
    }
    fn len(&self) -> usize {
        self.0.len()
    }
    fn totals(&self) -> handover_sched::Totals {
        self.0.totals()
    }
}
