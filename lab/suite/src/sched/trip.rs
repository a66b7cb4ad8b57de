//! One packet at a time: from a client to the arbiter and back, with no other packet in progress.

use super::drive::{
    Driven, LENGTH_BYTES, Make, OfDrr, OfFifo, OfQfq, OfWf2qPlus, idle_policy, pause, refused,
    scheduler, take,
};
use handover_base::sync::shared::{AtomicU64, Ordering};
use handover_harness::{Bench, Fault, Handover, Party, Rig, Role, Samples};
use handover_record::{Contender, Spec, Wait};
use handover_sched::drive::lane::Laps;
use handover_sched::drive::{Arbiter, ArbiterConfig, Client, Hub, IdlePolicy, Null, Offer, Stop};
use std::sync::Mutex;

/// Arguments that the other benchmarks of clients and arbiter take from options.
const ALONE: Driven = Driven {
    clients_count: 1,
    burst_packets: 1,
    batch_max: 32,
    slots_count: 1000,
    flows_count: 16,
    interval_us: 0,
};

/// Workload: a client and an arbiter.
struct Trip<A: Make> {
    arbiter: Mutex<Option<Arbiter<A::Scheduler, Laps>>>,
    hub: Hub<Laps>,
    idle_policy: IdlePolicy,
    sent: AtomicU64,
    transmitted: AtomicU64,
}

impl<A: Make> Handover for Trip<A> {
    type Args = ();
    const SPEC: Spec = Spec {
        id: "sched/round-trip",
        what: "a packet from a client through the algorithm and back, and only then the next",
        floor: Some("floor/cache-line"),
        hands_over: true,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };

    fn roles((): &()) -> Vec<Role> {
        vec![Role::measured("client"), Role::serving("arbiter")]
    }

    fn rig((): &(), rig: &mut Rig) -> Result<Self, Fault> {
        let idle_policy = idle_policy(rig);
        let config = ArbiterConfig {
            mailbox_slots_count: ALONE.slots_count,
            batch_max: ALONE.batch_max,
            idle_policy,
            ..ArbiterConfig::default()
        };
        let arbiter = Arbiter::with_lanes(scheduler::<A>(&ALONE)?, config).map_err(refused)?;
        Ok(Trip {
            hub: arbiter.hub(),
            arbiter: Mutex::new(Some(arbiter)),
            idle_policy,
            sent: AtomicU64::new(0),
            transmitted: AtomicU64::new(0),
        })
    }

    fn play(&self, party: Party, out: &mut Samples) -> Result<(), Fault> {
        if party.index == 1 {
            take(&self.arbiter)?.run();
            return Ok(());
        }
        let mut client = self.hub.join().map_err(refused)?;
        let (mut flow, mut fault) = (0, None);
        out.batches(|n| {
            for _ in 0..n {
                flow = (flow + 1) % ALONE.flows_count;
                if let Err(refused) = self.send_and_wait(&mut client, flow) {
                    fault.get_or_insert(refused);
                    break;
                }
            }
        });
        let counts = client.counts();
        // Relaxed: read when both participants have ended, which orders the accesses.
        self.sent.store(counts.sent, Ordering::Relaxed);
        self.transmitted.store(counts.transmitted, Ordering::Relaxed);
        self.hub.stop(Stop::Drain);
        fault.map_or(Ok(()), Err)
    }

    fn verify(&self) -> Result<(), Fault> {
        let [sent, transmitted] =
            [&self.sent, &self.transmitted].map(|count| count.load(Ordering::Relaxed));
        match sent > 0 && sent == transmitted {
            true => Ok(()),
            false => Err(Fault::new(format!("{sent} packets were sent, {transmitted} came back"))),
        }
    }
}

impl<A: Make> Trip<A> {
    #[inline(always)]
    fn send_and_wait(&self, client: &mut Client<Laps>, flow: u32) -> Result<(), Fault> {
        client.send(Offer { flow, length_bytes: LENGTH_BYTES, tag: 0 }).map_err(refused)?;
        while client.poll(1, &mut Null, &mut ()).map_err(refused)? == 0 {
            if client.is_ended() {
                return Err(Fault::new("the arbiter has ended"));
            }
            pause(self.idle_policy);
        }
        Ok(())
    }
}

/// The benchmarks of one packet at a time.
pub(super) const ALL: &[Bench] = &[
    Bench::many::<Trip<OfFifo>>(Contender::ours("fifo").waits(Wait::Spin)),
    Bench::many::<Trip<OfDrr>>(Contender::ours("drr").waits(Wait::Spin)),
    Bench::many::<Trip<OfQfq>>(Contender::ours("qfq").waits(Wait::Spin)),
    Bench::many::<Trip<OfWf2qPlus>>(Contender::ours("wf2q+").waits(Wait::Spin)),
];
