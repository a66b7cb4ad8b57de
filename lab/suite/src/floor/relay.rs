//! One procedure for all media that send a value to another CPU and back.

use handover_base::sync::shared::{AtomicU64, Ordering};
use handover_harness::{Fault, Handover, Party, Region, Rig, Role, Samples};
use handover_record::{Args, Spec};
use zerocopy::FromZeros;

/// A medium that sends a turn to another participant, which sends it back.
pub(crate) trait Medium: Sized + Send + Sync + 'static {
    /// The arguments.
    type Args: Args;
    /// The declaration.
    const SPEC: Spec;
    /// `true` if everything shared comes from the rig, so that the participants can be processes.
    const PROCESSES: bool = true;
    /// State of the pinging participant between turns.
    type Ping;

    /// Sets the medium up, untimed; everything that the participants share comes from the rig, so
    /// that they can be processes.
    fn rig(args: &Self::Args, rig: &mut Rig) -> Result<Self, Fault>;

    /// Returns the initial state of the pinging participant.
    fn ping(&self) -> Self::Ping;

    /// Sends the turn and waits for its return: the timed operation.
    fn round_trip(&self, ping: &mut Self::Ping) -> Result<(), Fault>;

    /// Asks the echo to end, in place of a turn.
    fn end(&self, ping: &mut Self::Ping) -> Result<(), Fault>;

    /// Sends every turn back until asked to end; returns the number of turns.
    fn echo(&self) -> Result<u64, Fault>;
}

/// Benchmark of a [`Medium`] with two participants: the measured one sends, the other echoes.
pub(crate) struct Relay<M> {
    medium: M,
    counts: Region<Counts>,
}

/// Counts; each participant writes its own once, at its end.
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
            // Relaxed: read after the participants have ended; collecting their results orders the
            // accesses.
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
        // Relaxed: both participants have ended.
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
