//! One procedure for all media that send a value to another CPU and back.

use crate::common::Tally;
use handover_harness::{Fault, Handover, Participant, Region, Role, Samples, Setup};
use handover_record::{Args, Spec};

/// Medium of round trips: a way of sending a message to another participant, which sends it back.
pub(crate) trait RelayMedium: Sized + Send + Sync + 'static {
    /// Arguments of the benchmark.
    type Args: Args;
    const SPEC: Spec;
    /// `true` if the participants can be separate processes; `false` if they must be threads of one
    /// process.
    const PROCESSES: bool = true;
    /// State of the pinging participant between two round trips.
    type PingState;

    /// Creates the medium, untimed. Everything that the participants share must come from `setup`,
    /// so that they can be processes.
    fn setup(args: &Self::Args, setup: &mut Setup) -> Result<Self, Fault>;

    /// Creates the state of the pinging participant, untimed.
    ///
    /// # Errors
    /// Fails if the participant cannot be prepared.
    fn new_ping_state(&self) -> Result<Self::PingState, Fault>;

    /// Sends one message and waits until it has come back: the timed operation.
    fn round_trip(&self, ping: &mut Self::PingState) -> Result<(), Fault>;

    /// Requests the echoing participant to stop.
    fn end(&self, ping: &mut Self::PingState) -> Result<(), Fault>;

    /// Sends every message back until [`end`](RelayMedium::end) is called; returns the number of
    /// messages.
    fn echo(&self) -> Result<u64, Fault>;
}

/// Benchmark of a [`RelayMedium`] with two participants: the measured one sends, the other echoes.
pub(crate) struct Relay<M> {
    medium: M,
    tally: Region<Tally>,
}

impl<M: RelayMedium> Handover for Relay<M> {
    type Args = M::Args;
    const SPEC: Spec = M::SPEC;
    const PROCESSES: bool = M::PROCESSES;
    const ROLES: &'static [Role] = &[Role::measured("ping"), Role::serving("echo")];

    fn setup(args: &M::Args, setup: &mut Setup) -> Result<Self, Fault> {
        Ok(Relay { medium: M::setup(args, setup)?, tally: setup.shared_region()? })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        if participant.index > 0 {
            self.tally.add_received(self.medium.echo()?);
            return Ok(());
        }
        let (mut ping, mut sent, mut fault) = (self.medium.new_ping_state()?, 0u64, None);
        out.time_batches(|n| {
            for _ in 0..n {
                if let Err(refused) = self.medium.round_trip(&mut ping) {
                    fault.get_or_insert(refused);
                    return;
                }
            }
            sent += n;
        });
        self.tally.add_sent(sent);
        let ended = self.medium.end(&mut ping);
        match fault {
            Some(fault) => Err(fault),
            None => ended,
        }
    }

    fn check_round(&self) -> Result<(), Fault> {
        self.tally.verify()
    }
}
