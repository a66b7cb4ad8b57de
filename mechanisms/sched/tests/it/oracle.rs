//! WF2Q+ compared with a direct implementation of its definition, which checks every flow at each
//! step.

use handover_sched::engine::{FlowScheduler, Wf2qPlus};
use handover_sched::{Config, FlowSpec, Packet, Scheduler};
use proptest::prelude::*;
use std::collections::VecDeque;

/// Virtual time: bytes per unit of weight, scaled so that every value is whole.
type Moment = u128;

/// All weights, and the sum of the weights, divide this, so that neither the oracle nor the
/// scheduler rounds.
const UNIT: Moment = 1 << 40;

struct Flow {
    weight: u128,
    queue: VecDeque<u32>,
    start: Moment,
    finish: Moment,
}

/// Implementation of the definition: virtual time advances by the bytes served over the sum of
/// weights, and is never less than the earliest start time of a flow with packets; of the flows
/// that have started, the one with the earliest finish time is served.
struct Oracle {
    flows: Vec<Flow>,
    time: Moment,
    weight_sum: u128,
}

impl Oracle {
    fn new(weights: &[u64]) -> Self {
        let flow = |&weight: &u64| Flow {
            weight: weight.into(),
            queue: VecDeque::new(),
            start: 0,
            finish: 0,
        };
        let weight_sum = weights.iter().map(|&weight| u128::from(weight)).sum();
        Self { flows: weights.iter().map(flow).collect(), time: 0, weight_sum }
    }

    fn duration(&self, flow: usize, bytes: u32) -> Moment {
        // Rounded up as in the scheduler, but to more fraction bits.
        (u128::from(bytes) * UNIT.div_ceil(self.flows[flow].weight)) << 20
    }

    fn enqueue(&mut self, flow: usize, bytes: u32) {
        self.flows[flow].queue.push_back(bytes);
        if self.flows[flow].queue.len() == 1 {
            let duration = self.duration(flow, bytes);
            let it = &mut self.flows[flow];
            it.start = it.start.max(self.time);
            it.finish = it.start + duration;
        }
    }

    /// Returns the flows that may be chosen: any of those with the earliest finish time.
    fn candidates(&mut self) -> Vec<usize> {
        let backlogged = || (0..self.flows.len()).filter(|&i| !self.flows[i].queue.is_empty());
        let Some(first) = backlogged().map(|i| self.flows[i].start).min() else { return vec![] };
        let time = self.time.max(first);
        let begun = || backlogged().filter(|&i| self.flows[i].start <= time);
        let end = begun().map(|i| self.flows[i].finish).min().expect("the first flow has begun");
        let candidates = begun().filter(|&i| self.flows[i].finish == end).collect();
        self.time = time;
        candidates
    }

    fn serve(&mut self, flow: usize) -> u32 {
        let bytes = self.flows[flow].queue.pop_front().expect("a candidate has packets");
        self.time += u128::from(bytes) * ((UNIT << 20) / self.weight_sum);
        self.flows[flow].start = self.flows[flow].finish;
        if let Some(&next) = self.flows[flow].queue.front() {
            let duration = self.duration(flow, next);
            let it = &mut self.flows[flow];
            it.finish = it.start + duration;
        } else if self.flows.iter().all(|flow| flow.queue.is_empty()) {
            // The busy period ends; its service no longer counts.
            self.time = 0;
            self.flows.iter_mut().for_each(|flow| flow.start = 0);
        }
        bytes
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 1000 }))]

    #[test]
    fn wf2q_plus_chooses_as_its_definition(
        shifts in prop::collection::vec(0..8_u32, 1..7),
        steps in prop::collection::vec((any::<bool>(), 0..7_usize, 1..1500_u32), 1..400),
    ) {
        // Weights are powers of two, and more of them fill up the sum to a power of two: all times
        // are exact.
        let mut weights: Vec<u64> = shifts.iter().map(|shift| 1 << shift).collect();
        let sum: u64 = weights.iter().sum();
        let missing = sum.next_power_of_two() - sum;
        weights.extend((0..64).filter(|bit| missing >> bit & 1 == 1).map(|bit| 1 << bit));

        let mut scheduler = FlowScheduler::<(), Wf2qPlus>::new(&Config::default()).expect("create a scheduler");
        for &weight in &weights {
            let spec = FlowSpec::default().weight(weight).length_max_bytes(1500).packets_max(1000);
            scheduler.add_flow(spec).expect("add a flow");
        }
        let mut oracle = Oracle::new(&weights);
        for (enqueues, flow, length_bytes) in steps {
            if enqueues {
                let flow = flow % weights.len();
                oracle.enqueue(flow, length_bytes);
                let packet = Packet { flow: flow as u32, length_bytes, token: () };
                prop_assert!(scheduler.enqueue(0, packet).is_ok());
                continue;
            }
            let candidates = oracle.candidates();
            match scheduler.dequeue(0) {
                None => prop_assert!(candidates.is_empty()),
                Some(packet) => {
                    let flow = packet.flow as usize;
                    prop_assert!(candidates.contains(&flow), "{flow}, not {candidates:?}");
                    prop_assert_eq!(oracle.serve(flow), packet.length_bytes);
                }
            }
        }
    }
}
