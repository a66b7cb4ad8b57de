//! Many clients of one server: throughput and fairness.

use super::PublishedAddress;
use super::calls::NOOP_METHOD;
use crate::common::{ClientsArgs, time_ticks};
use handover_base::clock;
use handover_base::sync::shared::{AtomicU64, Ordering};
use handover_harness::{Fault, Handover, Participant, Region, Role, Samples, Setup};
use handover_record::{Part, Spec};
use handover_rpc::{CallError, Calling, Config, Context, Endpoint};
use std::sync::Arc;
use std::time::Duration;

/// Index of the part with the server's time per request.
const CALL_PART: usize = 0;
/// Index of the part with the least served client's time per request, divided by the number of
/// clients.
const LEAST_PART: usize = 1;
/// Number of calls for which one sample of the least served client is recorded.
const CALLS_PER_LEAST_SAMPLE: u64 = 1000;

/// Workload: a server, which is timed, and clients that call it without a pause.
pub(super) struct RpcClients {
    server_address: Region<PublishedAddress>,
    clients_count: usize,
    /// `true` if participants share CPUs, so that a waiting participant must not keep its CPU.
    is_crowded: bool,
}

/// Counters of served requests. All accesses are Relaxed: only the server's thread uses them.
struct RequestCounts {
    /// Number of requests of each client, by the slot of its connection.
    by_client: Vec<AtomicU64>,
    /// Number of all requests so far.
    served_count: AtomicU64,
    /// Value of `served_count` at which the server stops.
    stop_at: AtomicU64,
}

impl Handover for RpcClients {
    type Args = ClientsArgs;
    const SPEC: Spec = Spec::new(
        "rpc/clients",
        "call by one of clients_count clients of one server through shared memory",
    )
    .floor("floor/served")
    .parts(&[
        Part::new("call", "time between two requests at the server"),
        Part::new("least", "the same, if each client were served at the rate of the slowest one"),
    ])
    .hands_over();
    const PROCESSES: bool = true;

    fn roles(args: &ClientsArgs) -> Vec<Role> {
        Role::server_and_clients(args.clients_count)
    }

    fn setup(args: &ClientsArgs, setup: &mut Setup) -> Result<Self, Fault> {
        let (clients_count, is_crowded) = (args.clients_count as usize, setup.is_crowded());
        Ok(Self { server_address: setup.shared_region()?, clients_count, is_crowded })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        if participant.index > 0 {
            let usual = Config::default();
            return self.run_client(match self.is_crowded {
                true => usual.spin_max(Duration::ZERO),
                false => usual,
            });
        }
        // The server has its own CPU, regardless of its clients' placement.
        self.serve(Config::default(), out)
    }
}

impl RpcClients {
    /// Runs a client: calls until the server has stopped.
    fn run_client(&self, config: Config) -> Result<(), Fault> {
        let address = self.server_address.wait()?.parse().map_err(Fault::from_error)?;
        let mut endpoint = Endpoint::new(config).map_err(Fault::from_error)?;
        let peer = endpoint.connect(&address).map_err(Fault::from_error)?;
        loop {
            match endpoint.call::<_, ()>(peer, NOOP_METHOD, &()) {
                Ok(()) => {}
                Err(CallError::Disconnected(_) | CallError::Stale) => return Ok(()),
                Err(error) => return Err(Fault::from_error(error)),
            }
        }
    }

    /// Runs the server: waits until all clients are connected, and times batches of requests.
    fn serve(&self, config: Config, out: &mut Samples) -> Result<(), Fault> {
        let mut endpoint = Endpoint::new(config).map_err(Fault::from_error)?;
        let by_client = (0..self.clients_count).map(|_| AtomicU64::new(0)).collect();
        let counts = Arc::new(RequestCounts {
            by_client,
            served_count: AtomicU64::new(0),
            stop_at: AtomicU64::new(0),
        });
        let counted = Arc::clone(&counts);
        let noop = move |context: &mut Context<'_>, ()| {
            let its = &counted.by_client[context.peer().slot as usize];
            its.store(its.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            let served = counted.served_count.load(Ordering::Relaxed) + 1;
            counted.served_count.store(served, Ordering::Relaxed);
            if served == counted.stop_at.load(Ordering::Relaxed) {
                context.stop();
            }
            Ok(())
        };
        endpoint.register("noop", 0, noop).map_err(Fault::from_error)?;
        let address = endpoint
            .listen(&"sm://".parse().map_err(Fault::from_error)?)
            .map_err(Fault::from_error)?;
        self.server_address.publish(&address.to_string())?;
        while endpoint.peers().count() < self.clients_count {
            endpoint.progress(Duration::from_millis(1));
        }
        self.time_batches(&mut endpoint, &counts, out)
    }

    /// Serves batches of requests, and records their durations.
    fn time_batches(
        &self,
        endpoint: &mut Endpoint,
        counts: &RequestCounts,
        out: &mut Samples,
    ) -> Result<(), Fault> {
        // More than the requests that follow the last one: the server takes up to 64 of each
        // client before it sees that it must end, and once more.
        let batch = 256 * self.clients_count as u64;
        let mut serve = || {
            let last = counts.stop_at.load(Ordering::Relaxed) + batch;
            counts.stop_at.store(last, Ordering::Relaxed);
            endpoint.serve();
        };
        // Excludes the requests that were served while clients connected.
        counts.stop_at.store(counts.served_count.load(Ordering::Relaxed), Ordering::Relaxed);
        // Clients that have just connected get into a steady state first.
        serve();
        // Many clients take longer to connect than a round.
        out.restart_round_time();
        let before = self.requests_by_client(counts);
        let all_began = clock::ticks();
        loop {
            out.record_batch(CALL_PART, time_ticks(&mut serve), batch);
            if !out.is_running() {
                break;
            }
        }
        let took = clock::ticks().saturating_sub(all_began);
        let after = self.requests_by_client(counts);
        let served = after.iter().zip(&before).map(|(after, before)| after - before);
        let least = served.min().unwrap_or(0).max(1) * self.clients_count as u64;
        let each = u128::from(took) * u128::from(CALLS_PER_LEAST_SAMPLE) / u128::from(least);
        out.record_batch(
            LEAST_PART,
            u64::try_from(each).unwrap_or(u64::MAX),
            CALLS_PER_LEAST_SAMPLE,
        );
        Ok(())
    }

    /// Returns the number of requests of each client so far.
    fn requests_by_client(&self, counts: &RequestCounts) -> Vec<u64> {
        counts.by_client.iter().map(|it| it.load(Ordering::Relaxed)).collect()
    }
}
