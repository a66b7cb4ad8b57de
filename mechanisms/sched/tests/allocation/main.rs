//! Count of allocations.

#![deny(unsafe_code)]

#[allow(unsafe_code)]
#[path = "../../../../base/tests/raw/allocations.rs"]
mod raw;

use handover_sched::engine::Visitor;
use handover_sched::tester::{Options, Tester};
use handover_sched::{Algorithm, Config, Packet, Scheduler};

struct Run<'a>(&'a Options);

impl Visitor<u64> for Run<'_> {
    type Output = (usize, usize);

    fn visit<S: Scheduler<u64> + Send + 'static>(self, mut scheduler: S) -> (usize, usize) {
        let mut tester = Tester::new(self.0, &mut scheduler).expect("the flows");
        let before = raw::allocations_count();
        tester.run(&mut scheduler, 100_000);
        (before, raw::allocations_count())
    }
}

#[test]
fn enqueue_and_dequeue_do_not_allocate() {
    for algorithm in Algorithm::ALL {
        let options = Options::parse(&["-flowsets", "1-100-10:64-1500-2:10", "-burst", "3"]);
        let options = options.expect("options");
        let run = algorithm.visit(&options.config(), Run(&options));
        let (before, after) = run.expect("a valid configuration");
        assert_eq!(after - before, 0, "{algorithm}");
    }
}

#[test]
fn enqueue_and_dequeue_of_two_levels_do_not_allocate() {
    let levels = Algorithm::Qfq.build_tenants::<u64>(Algorithm::Wf2qPlus, &Config::default());
    let mut scheduler = levels.expect("two levels");
    let options = Options::parse(&["-flowsets", "1-9-3:64-1500-2:5"]).expect("options");
    for (i, spec) in options.flows.specs(100).enumerate() {
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
