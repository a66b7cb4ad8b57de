//! Many clients of one server: throughput and fairness.

use super::PublishedAddress;
use super::calls::NOOP_METHOD;
use crate::common::{ClientsArgs, time_ticks};
use crate::floor::socket::SocketEnds;
use crate::net::wait::wait_for_events;
use handover_base::clock;
use handover_base::sync::shared::{AtomicU64, Ordering};
use handover_harness::{Fault, Handover, Participant, Region, Role, Samples, Setup};
use handover_record::{Part, Spec};
use handover_rpc::{CallError, Calling, Config, Context, Endpoint};
use rustix::event::epoll;
use std::cell::Cell;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
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
        let clients_count = args.clients_count as usize;
        Ok(Self { server_address: setup.shared_region()?, clients_count })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        match participant.index {
            0 => self.serve(out),
            _ => self.run_client(),
        }
    }
}

impl RpcClients {
    /// Runs a client: calls until the server has stopped.
    fn run_client(&self) -> Result<(), Fault> {
        let address = self.server_address.wait()?.parse().map_err(Fault::from_error)?;
        let mut endpoint = Endpoint::new(Config::default()).map_err(Fault::from_error)?;
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
    fn serve(&self, out: &mut Samples) -> Result<(), Fault> {
        let mut endpoint = Endpoint::new(Config::default()).map_err(Fault::from_error)?;
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
        let serve = || {
            let last = counts.stop_at.load(Ordering::Relaxed) + batch;
            counts.stop_at.store(last, Ordering::Relaxed);
            endpoint.serve();
            Ok(())
        };
        // Excludes the requests that were served while clients connected.
        counts.stop_at.store(counts.served_count.load(Ordering::Relaxed), Ordering::Relaxed);
        let by_client = || counts.by_client.iter().map(|it| it.load(Ordering::Relaxed)).collect();
        time_batches(self.clients_count, batch, serve, by_client, out)
    }
}

/// Times batches of requests, each served by a call of `serve`, until the round is over.
/// `by_client` returns the numbers of each client's requests so far.
fn time_batches(
    clients_count: usize,
    batch: u64,
    mut serve: impl FnMut() -> Result<(), Fault>,
    by_client: impl Fn() -> Vec<u64>,
    out: &mut Samples,
) -> Result<(), Fault> {
    // Clients that have just connected get into a steady state first.
    serve()?;
    // Many clients take longer to connect than a round.
    out.restart_round_time();
    let before = by_client();
    let all_began = clock::ticks();
    loop {
        let mut result = Ok(());
        out.record_batch(CALL_PART, time_ticks(|| result = serve()), batch);
        result?;
        if !out.is_running() {
            break;
        }
    }
    let took = clock::ticks().saturating_sub(all_began);
    let after = by_client();
    // The resource usage, which is divided by it, includes the calls before the timed ones.
    out.set_operations_count(after.iter().sum());
    let served = after.iter().zip(&before).map(|(after, before)| after - before);
    let least = served.min().unwrap_or(0).max(1) * clients_count as u64;
    let each = u128::from(took) * u128::from(CALLS_PER_LEAST_SAMPLE) / u128::from(least);
    let each = u64::try_from(each).unwrap_or(u64::MAX);
    out.record_batch(LEAST_PART, each, CALLS_PER_LEAST_SAMPLE);
    Ok(())
}

/// Compared implementation: an epoll loop over a pair of Unix sockets for each client; a request
/// and its answer are a byte each.
pub(super) struct SocketClients {
    /// The server's end and the client's end of each pair.
    pairs: Vec<(UnixStream, UnixStream)>,
}

/// Byte that answers a request.
const ANSWER: u8 = 1;
/// Byte that answers a request, and ends the client.
const END: u8 = 0xff;

impl Handover for SocketClients {
    type Args = ClientsArgs;
    const SPEC: Spec = RpcClients::SPEC;
    const PROCESSES: bool = true;

    fn roles(args: &ClientsArgs) -> Vec<Role> {
        RpcClients::roles(args)
    }

    fn setup(args: &ClientsArgs, setup: &mut Setup) -> Result<Self, Fault> {
        let mut create_ends = || SocketEnds::<UnixStream, false>::create_ends(setup);
        Ok(Self {
            pairs: (0..args.clients_count).map(|_| create_ends()).collect::<Result<_, _>>()?,
        })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        let Some(client) = participant.index.checked_sub(1) else { return self.serve(out) };
        let mut end = &self.pairs[client].1;
        let mut answer = [0];
        while answer[0] != END {
            end.write_all(&[ANSWER])?;
            end.read_exact(&mut answer)?;
        }
        Ok(())
    }
}

impl SocketClients {
    fn serve(&self, out: &mut Samples) -> Result<(), Fault> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (index, (end, _)) in (0..).zip(&self.pairs) {
            epoll::add(&set, end, epoll::EventData::new_u64(index), epoll::EventFlags::IN)?;
        }
        let clients_count = self.pairs.len();
        let by_client = vec![Cell::new(0_u64); clients_count];
        let mut events = Vec::with_capacity(clients_count);
        // Answers `requests` requests with `answer`. Each client has at most one that is not
        // answered.
        let mut answer_all = |requests: u64, answer: u8| -> Result<(), Fault> {
            let mut served = 0;
            while served < requests {
                wait_for_events(&set, &mut events, None)?;
                // The others are reported again.
                for event in events.iter().take((requests - served) as usize) {
                    let client = event.data.u64() as usize;
                    let mut end = &self.pairs[client].0;
                    end.read_exact(&mut [0])?;
                    end.write_all(&[answer])?;
                    by_client[client].set(by_client[client].get() + 1);
                    served += 1;
                }
            }
            Ok(())
        };
        let batch = 256 * clients_count as u64;
        let counts = || by_client.iter().map(Cell::get).collect();
        time_batches(clients_count, batch, || answer_all(batch, ANSWER), counts, out)?;
        answer_all(clients_count as u64, END)
    }
}
