//! One packet at a time: from a client to the arbiter and back, with no other packet in progress.

use super::drive::{DriveArgs, PACKET_LENGTH_BYTES, idle_policy, new_scheduler, yield_if_shared};
use super::engine::{Engine, FirstIn, QuickFair, Rr, Wf2q};
use crate::common::{TakeCell, Tally};
use handover_harness::{Bench, Fault, Handover, Participant, Role, Samples, Setup, benches};
use handover_record::Spec;
use handover_sched::drive::{
    Arbiter, ArbiterConfig, Client, Hub, IdlePolicy, NullSink, Offer, StopMode, Token,
};

/// Constant arguments of this benchmark, which has no options.
const DRIVE_ARGS: DriveArgs = DriveArgs {
    clients_count: 1,
    burst_packets: 1,
    batch_max: 32,
    slots_count: 1000,
    flows_count: 16,
    interval_us: 0,
};

/// Workload: one packet at a time from a client to the arbiter and back.
struct ArbiterRoundTrip<E: Engine> {
    arbiter: TakeCell<Arbiter<E::Scheduler<Token>>>,
    hub: Hub,
    idle_policy: IdlePolicy,
    tally: Tally,
}

impl<E: Engine> Handover for ArbiterRoundTrip<E> {
    type Args = ();
    const SPEC: Spec = Spec::new(
        "sched/round-trip",
        "packet from a client through the scheduler and its notification back, one packet at a time",
    )
    .floor("floor/cache-line")
    .hands_over();

    const ROLES: &'static [Role] = &[Role::measured("client"), Role::serving("arbiter")];

    fn setup((): &(), setup: &mut Setup) -> Result<Self, Fault> {
        let idle_policy = idle_policy(setup);
        let config = ArbiterConfig::default()
            .mailbox_slots_count(DRIVE_ARGS.slots_count)
            .batch_max(DRIVE_ARGS.batch_max)
            .idle_policy(idle_policy);
        let arbiter =
            Arbiter::new(new_scheduler::<E>(&DRIVE_ARGS)?, config).map_err(Fault::from_error)?;
        Ok(ArbiterRoundTrip {
            hub: arbiter.hub(),
            arbiter: TakeCell::new(arbiter),
            idle_policy,
            tally: Tally::default(),
        })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        if participant.index == 1 {
            self.arbiter.take()?.run();
            return Ok(());
        }
        let mut client = self.hub.join().map_err(Fault::from_error)?;
        let (mut flow, mut fault) = (0, None);
        out.time_batches(|n| {
            for _ in 0..n {
                flow = (flow + 1) % DRIVE_ARGS.flows_count;
                if let Err(refused) = self.send_and_wait(&mut client, flow) {
                    fault.get_or_insert(refused);
                    break;
                }
            }
        });
        let counts = client.counts();
        self.tally.add_sent(counts.sent);
        self.tally.add_received(counts.transmitted);
        self.hub.stop(StopMode::Drain);
        fault.map_or(Ok(()), Err)
    }

    fn check_round(&self) -> Result<(), Fault> {
        self.tally.verify()
    }
}

impl<E: Engine> ArbiterRoundTrip<E> {
    #[inline(always)]
    fn send_and_wait(&self, client: &mut Client, flow: u32) -> Result<(), Fault> {
        client
            .send(Offer { flow, length_bytes: PACKET_LENGTH_BYTES, tag: 0 })
            .map_err(Fault::from_error)?;
        while client.poll(1, &mut NullSink, &mut ()).map_err(Fault::from_error)? == 0 {
            if client.is_arbiter_finished() {
                return Err(Fault::new("the arbiter has stopped before the packet was returned"));
            }
            yield_if_shared(self.idle_policy);
        }
        Ok(())
    }
}

pub(crate) const BENCHES: &[Bench] = benches! {
    many ours "fifo" Spin: ArbiterRoundTrip<FirstIn>;
    many ours "drr" Spin: ArbiterRoundTrip<Rr>;
    many ours "qfq" Spin: ArbiterRoundTrip<QuickFair>;
    many ours "wf2q+" Spin: ArbiterRoundTrip<Wf2q>;
};
