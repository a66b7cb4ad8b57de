//! One procedure for everything that is sent to another CPU and back.

use handover_base::sync::shared::{AtomicU64, Ordering};
use handover_harness::{Fault, Handover, Party, Region, Rig, Role, Samples};
use handover_record::{Args, Spec};
use zerocopy::FromZeros;

/// A way to send a turn to another party and have it sent back.
pub(crate) trait Medium: Sized + Send + Sync + 'static {
    /// The arguments.
    type Args: Args;
    /// The declaration.
    const SPEC: Spec;
    /// Whether everything shared comes from the rig, so that the parties can be processes.
    const PROCESSES: bool = true;
    /// What the pinging party keeps between turns.
    type Ping;

    /// Untimed set-up; what the parties share comes from the rig, so that they can be processes.
    fn rig(args: &Self::Args, rig: &mut Rig) -> Result<Self, Fault>;

    /// What the pinging party begins with.
    fn ping(&self) -> Self::Ping;

    /// Sends the turn and waits until it is back: the operation that is timed.
    fn round_trip(&self, ping: &mut Self::Ping) -> Result<(), Fault>;

    /// Tells the echo to end, in place of a turn.
    fn end(&self, ping: &mut Self::Ping) -> Result<(), Fault>;

    /// Sends every turn back until told to end; how many there were.
    fn echo(&self) -> Result<u64, Fault>;
}

/// A [`Medium`] played by two parties: the measured one sends, the other echoes.
pub(crate) struct Relay<M> {
    medium: M,
    counts: Region<Counts>,
}

/// Written once by each party, at its end.
#[derive(FromZeros)]
#[repr(C)]
struct Counts {
    sent: AtomicU64,
    echoed: AtomicU64,
}

impl<M: Medium> Handover for Relay<M> {
    type Args = M::Args;
    const SPEC: Spec = M::SPEC;
    const PROCESSES: bool = M::PROCESSES;

    fn roles(_: &M::Args) -> Vec<Role> {
        vec![Role::measured("ping"), Role::serving("echo")]
    }

    fn rig(args: &M::Args, rig: &mut Rig) -> Result<Self, Fault> {
        Ok(Relay { medium: M::rig(args, rig)?, counts: rig.region()? })
    }

    fn play(&self, party: Party, out: &mut Samples) -> Result<(), Fault> {
        if party.index > 0 {
            let echoed = self.medium.echo()?;
            // Relaxed: read after the parties have ended, which whoever gathers them orders.
            self.counts.echoed.store(echoed, Ordering::Relaxed);
            return Ok(());
        }
        let (mut ping, mut sent, mut fault) = (self.medium.ping(), 0u64, None);
        out.batches(|n| {
            for _ in 0..n {
                if let Err(refused) = self.medium.round_trip(&mut ping) {
                    fault.get_or_insert(refused);
                    return;
                }
            }
            sent += n;
        });
        self.counts.sent.store(sent, Ordering::Relaxed);
        let ended = self.medium.end(&mut ping);
        match fault {
            Some(fault) => Err(fault),
            None => ended,
        }
    }

    fn verify(&self) -> Result<(), Fault> {
        // Relaxed: both parties have ended.
        let sent = self.counts.sent.load(Ordering::Relaxed);
        let echoed = self.counts.echoed.load(Ordering::Relaxed);
        if sent == 0 || sent != echoed {
            return Err(Fault::new(format!(
                "{sent} turns were sent and {echoed} came to the echo"
            )));
        }
        Ok(())
    }
}
