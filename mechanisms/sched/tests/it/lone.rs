//! Order of packets with and without [`Discipline::CAN_SKIP_LONE_PACKETS`].

use handover_sched::engine::{Discipline, FlowScheduler, FlowStates, Qfq, QfqPlus, Wf2qPlus};
use handover_sched::{Config, DropPolicy, FlowError, FlowSpec, Packet, Scheduler};
use proptest::prelude::*;

/// Algorithm `D`, which is told of every packet.
struct EveryPacket<D>(D);

impl<D: Discipline> Discipline for EveryPacket<D> {
    type State = D::State;
    type Align = D::Align;
    const WEIGHT_MAX: u64 = D::WEIGHT_MAX;

    fn new(config: &Config) -> Self {
        Self(D::new(config))
    }
    fn admit_flow(&mut self, spec: &FlowSpec) -> Result<D::State, FlowError> {
        self.0.admit_flow(spec)
    }
    fn activate_flow<S: FlowStates<D::State>>(
        &mut self,
        states: &mut S,
        id: u32,
        bytes: u32,
        now_ns: u64,
    ) {
        self.0.activate_flow(states, id, bytes, now_ns);
    }
    fn choose_flow<S: FlowStates<D::State>>(&mut self, states: &mut S, now_ns: u64) -> Option<u32> {
        self.0.choose_flow(states, now_ns)
    }
    fn record_served<S: FlowStates<D::State>>(
        &mut self,
        states: &mut S,
        id: u32,
        bytes: u32,
        next_bytes: Option<u32>,
    ) {
        self.0.record_served(states, id, bytes, next_bytes);
    }
    fn record_oldest_dropped<S: FlowStates<D::State>>(
        &mut self,
        states: &mut S,
        id: u32,
        dropped_bytes: u32,
        oldest_bytes: u32,
    ) {
        self.0.record_oldest_dropped(states, id, dropped_bytes, oldest_bytes);
    }
    fn deactivate_flow<S: FlowStates<D::State>>(&mut self, states: &mut S, id: u32) {
        self.0.deactivate_flow(states, id);
    }
    fn release_flow<S: FlowStates<D::State>>(&mut self, states: &mut S, id: u32) {
        self.0.release_flow(states, id);
    }
    fn set_weight<S: FlowStates<D::State>>(
        &mut self,
        states: &mut S,
        id: u32,
        spec: &FlowSpec,
        oldest_bytes: Option<u32>,
        now_ns: u64,
    ) -> Result<(), FlowError> {
        self.0.set_weight(states, id, spec, oldest_bytes, now_ns)
    }
    fn record_idle(&mut self) {
        self.0.record_idle();
    }
}

const LENGTH_MAX_BYTES: u32 = 1500;

#[derive(Clone, Copy, Debug)]
enum Step {
    Enqueue {
        flow: u32,
        length_bytes: u32,
    },
    Dequeue,
    SetWeight {
        flow: u32,
        weight: u64,
    },
    /// Removes a flow, and adds one of another weight with the same number.
    Replace {
        flow: u32,
        weight: u64,
    },
}

fn any_step(flows_count: u32) -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (0..flows_count, 1..=LENGTH_MAX_BYTES)
            .prop_map(|(flow, length_bytes)| Step::Enqueue { flow, length_bytes }),
        20 => Just(Step::Dequeue),
        1 => (0..flows_count, 1..6_u64).prop_map(|(flow, weight)| Step::SetWeight { flow, weight }),
        1 => (0..flows_count, 1..6_u64).prop_map(|(flow, weight)| Step::Replace { flow, weight }),
    ]
}

fn spec(weight: u64) -> FlowSpec {
    // Few packets, so that flows are full and drop their oldest packet.
    let spec = FlowSpec::default().weight(weight).length_max_bytes(LENGTH_MAX_BYTES);
    spec.packets_max(1 + weight as u32 % 3).drop(DropPolicy::Head)
}

/// Runs the steps; returns the packets in the order in which they leave.
fn departures<D: Discipline>(weights: &[u64], steps: &[Step]) -> Vec<Packet<usize>> {
    let mut scheduler =
        FlowScheduler::<usize, D>::new(&Config::default()).expect("create a scheduler");
    for &weight in weights {
        scheduler.add_flow(spec(weight)).expect("add a flow");
    }
    let mut packets = Vec::new();
    for (token, &step) in steps.iter().enumerate() {
        match step {
            Step::Enqueue { flow, length_bytes } => {
                let packet = Packet { flow, length_bytes, token };
                let _ = scheduler.enqueue(0, packet).expect("a full flow drops its oldest packet");
            }
            Step::Dequeue => packets.extend(scheduler.dequeue(0)),
            Step::SetWeight { flow, weight } => {
                scheduler.set_weight(0, flow, weight).expect("a valid weight");
            }
            Step::Replace { flow, weight } => {
                scheduler.remove_flow(flow).expect("the flow exists");
                assert_eq!(scheduler.add_flow(spec(weight)), Ok(flow));
            }
        }
    }
    packets.extend(std::iter::from_fn(|| scheduler.dequeue(0)));
    packets
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 500 }))]

    #[test]
    fn packets_leave_in_the_same_order_if_lone_packets_are_skipped(
        weights in prop::collection::vec(1..12_u64, 4),
        steps in prop::collection::vec(any_step(4), 1..300),
    ) {
        prop_assert_eq!(
            departures::<Wf2qPlus>(&weights, &steps),
            departures::<EveryPacket<Wf2qPlus>>(&weights, &steps)
        );
        prop_assert_eq!(
            departures::<Qfq>(&weights, &steps),
            departures::<EveryPacket<Qfq>>(&weights, &steps)
        );
        prop_assert_eq!(
            departures::<QfqPlus>(&weights, &steps),
            departures::<EveryPacket<QfqPlus>>(&weights, &steps)
        );
    }
}
