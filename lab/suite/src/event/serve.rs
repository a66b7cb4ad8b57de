//! One server with many clients: each on its own thread, or all on one thread.

use super::drive::{
    EqualShares, HelloServer, PairHandler, Reaction, ReplyPolicy, StartActions,
    new_server_with_clients,
};
use crate::channels::Queue;
use crate::common::{ClientsArgs, TakeCell, Tally, check_counts, time_server};
use handover_base::sync::shared::{AtomicU32, Ordering};
use handover_event::{Config, Group, GroupMember, Machine, Stopper, ThreadConfig};
use handover_harness::{Fault, Handover, Participant, Role, Samples, Setup, Workload};
use handover_record::Spec;
use std::time::Duration;

/// Counts of the messages of the server and of all clients.
#[derive(Default)]
struct ServeCounts {
    /// Number of clients whose thread has started.
    started_count: AtomicU32,
    /// Counts of requests answered by the server and of answers received by the clients.
    tally: Tally,
}

impl ServeCounts {
    fn add_started_client(&self) {
        // Relaxed: the count publishes no other data.
        self.started_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until all clients have started, and times the server; `serve(n)` must serve `n`
    /// requests.
    fn time(&self, out: &mut Samples, clients_count: usize, serve: impl FnMut(u64)) {
        // Relaxed: as in add_started_client().
        while (self.started_count.load(Ordering::Relaxed) as usize) < clients_count {
            std::thread::sleep(Duration::from_micros(50));
        }
        time_server(out, clients_count, serve);
    }

    /// Adds the number of answers that a client has received, and the number of those out of order.
    fn add_answers(&self, received: u64, wrong: u64) {
        self.tally.add_received(received);
        self.tally.add_wrong(wrong);
    }
}

/// Policy of a client, which sends a request at the start and after each answer. It counts the
/// answers out of order.
#[derive(Default)]
pub(super) struct ClientPolicy {
    /// Number of the last answer.
    last: u64,
    /// Number of answers out of order.
    wrong: u64,
}

impl ReplyPolicy for ClientPolicy {
    fn start_actions(&mut self) -> StartActions {
        StartActions { sends_first_hello: true, ..StartActions::default() }
    }

    #[inline]
    fn received(&mut self, number: u64) -> Reaction {
        self.wrong += u64::from(number != self.last + 1);
        self.last = number;
        Reaction::Answer
    }
}

/// Policy of a server whose clients have threads of their own. It answers every request at once,
/// and stops with the last answer of a batch.
pub(super) trait BatchPolicy: ReplyPolicy + Default {
    /// Declaration of the benchmark of a server with this policy.
    const SPEC: Spec;

    /// Starts a batch of `requests_count` requests, a multiple of `clients_count`.
    fn start_batch(&mut self, requests_count: u64, clients_count: usize);
}

/// Policy that ends a batch after `left` requests of any clients.
#[derive(Default)]
pub(super) struct AnyClients {
    /// Number of requests that are still to be answered.
    left: u64,
}

impl ReplyPolicy for AnyClients {
    #[inline]
    fn received(&mut self, _: u64) -> Reaction {
        self.left -= 1;
        if self.left == 0 { Reaction::AnswerAndStop } else { Reaction::Answer }
    }
}

impl BatchPolicy for AnyClients {
    /// Benchmark of the rate of answers, which does not say how evenly the clients are served; the
    /// time of `event/serve-each` does.
    const SPEC: Spec = Spec::new(
        "event/serve",
        "request of one of clients_count threads and its answer, as seen by the thread that serves them",
    )
    .floor("floor/served")
    .classic("hello4 -l")
    .hands_over()
    .batched();

    #[inline]
    fn start_batch(&mut self, requests_count: u64, _: usize) {
        self.left = requests_count;
    }
}

impl BatchPolicy for EqualShares {
    const SPEC: Spec = Spec::new(
        "event/serve-each",
        "time until each of clients_count threads has an equal share of n answers, divided by n; more do not count",
    )
    .floor("floor/served")
    .hands_over()
    .batched();

    fn start_batch(&mut self, requests_count: u64, clients_count: usize) {
        self.start((requests_count / clients_count as u64) as u32, clients_count as u32);
    }
}

/// Workload: a server machine and its client machines, each on its own thread.
pub(super) struct MachineServer<B: BatchPolicy> {
    server: TakeCell<Machine<HelloServer<B>>>,
    clients: Vec<TakeCell<Machine<PairHandler<ClientPolicy>>>>,
    stoppers: Vec<Stopper>,
    counts: ServeCounts,
}

impl<B: BatchPolicy> Handover for MachineServer<B> {
    type Args = ClientsArgs;
    const SPEC: Spec = B::SPEC;

    fn roles(args: &ClientsArgs) -> Vec<Role> {
        Role::server_and_clients(args.clients_count)
    }

    fn setup(args: &ClientsArgs, _: &mut Setup) -> Result<Self, Fault> {
        let policies = (0..args.clients_count).map(|_| ClientPolicy::default());
        let (server, clients) = new_server_with_clients(B::default(), policies, Config::default())
            .map_err(Fault::from_error)?;
        Ok(MachineServer {
            server: TakeCell::new(server),
            stoppers: clients.iter().map(Machine::stopper).collect(),
            clients: clients.into_iter().map(TakeCell::new).collect(),
            counts: ServeCounts::default(),
        })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        if let Some(client) = participant.index.checked_sub(1) {
            let mut machine = self.clients[client].take()?;
            self.counts.add_started_client();
            machine.run().map_err(Fault::from_error)?;
            // Stopped after the server's last answer, which may still wait in the inbox.
            let stats = machine.stats();
            self.counts.add_answers(stats.handled + stats.waiting, machine.handler().policy.wrong);
            return Ok(());
        }
        let mut machine = self.server.take()?;
        let mut fault = None;
        self.counts.time(out, self.clients.len(), |n| {
            machine.handler_mut().policy.start_batch(n, self.clients.len());
            if let Err(error) = machine.run() {
                fault.get_or_insert(Fault::from_error(error));
            }
        });
        self.counts.tally.add_sent(machine.stats().handled);
        self.stoppers.iter().for_each(Stopper::stop);
        fault.map_or(Ok(()), Err)
    }

    fn check_round(&self) -> Result<(), Fault> {
        self.counts.tally.verify()
    }
}

/// Value sent instead of an answer, to end the round.
const END: u64 = u64::MAX;
/// Capacity of a client's queue: one answer, and `END` after it.
const ANSWERS_MAX: u32 = 2;

/// Request: index of the client, and number of the request.
type Request = (u32, u64);

/// Sender, receiver and runtime of a client's thread.
type Client<Q> =
    (<Q as Queue>::Sender<Request>, <Q as Queue>::Receiver<u64>, <Q as Queue>::Runtime);

/// Compared implementation: a server thread with one queue for all requests. There is one queue for
/// each client's answers.
pub(super) struct QueueServer<Q: Queue, B: BatchPolicy> {
    server: TakeCell<(Q::Receiver<Request>, Q::Runtime, B)>,
    /// Sender of the answers to each client.
    answers: Vec<Q::Sender<u64>>,
    clients: Vec<TakeCell<Client<Q>>>,
    counts: ServeCounts,
}

impl<Q: Queue, B: BatchPolicy> Handover for QueueServer<Q, B> {
    type Args = ClientsArgs;
    const SPEC: Spec = B::SPEC;

    fn roles(args: &ClientsArgs) -> Vec<Role> {
        Role::server_and_clients(args.clients_count)
    }

    fn setup(args: &ClientsArgs, _: &mut Setup) -> Result<Self, Fault> {
        let (requests, server) = Q::pair(Config::default().inbox_messages_max);
        let (mut answers, mut clients) = (Vec::new(), Vec::new());
        for _ in 0..args.clients_count {
            let (sender, receiver) = Q::pair(ANSWERS_MAX);
            answers.push(sender);
            clients.push(TakeCell::new((requests.clone(), receiver, Q::runtime()?)));
        }
        let server = TakeCell::new((server, Q::runtime()?, B::default()));
        Ok(QueueServer { server, answers, clients, counts: ServeCounts::default() })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        if let Some(client) = participant.index.checked_sub(1) {
            let (sender, mut receiver, runtime) = self.clients[client].take()?;
            self.counts.add_started_client();
            let (answered, wrong) = Q::run(&runtime, async {
                let (mut number, mut wrong) = (0, 0);
                Q::send(&sender, (client as u32, number)).await;
                while let Some(answer) = Q::receive(&mut receiver).await {
                    if answer == END {
                        break;
                    }
                    wrong += u64::from(answer != number);
                    number += 1;
                    Q::send(&sender, (client as u32, number)).await;
                }
                (number, wrong)
            });
            self.counts.add_answers(answered, wrong);
            return Ok(());
        }
        let (mut receiver, runtime, mut policy) = self.server.take()?;
        let mut served = 0;
        self.counts.time(out, self.clients.len(), |n| {
            policy.start_batch(n, self.clients.len());
            Q::run(&runtime, async {
                while let Some((client, number)) = Q::receive(&mut receiver).await {
                    let reaction = policy.received_from(client.into(), number);
                    Q::send(&self.answers[client as usize], number).await;
                    served += 1;
                    if reaction == Reaction::AnswerAndStop {
                        break;
                    }
                }
            });
        });
        self.counts.tally.add_sent(served);
        Q::run(&runtime, async {
            for answers in &self.answers {
                Q::send(answers, END).await;
            }
        });
        Ok(())
    }

    fn check_round(&self) -> Result<(), Fault> {
        self.counts.tally.verify()
    }
}

/// Declaration of the benchmark of a server and its clients on one thread.
const SHARED_THREAD_SPEC: Spec = Spec::new(
    "event/group",
    "request of one of clients_count machines and its answer, all machines on one thread (the floor: one number)",
)
.floor("event/array");

/// Workload: a group of machines on one thread, one of which serves the others.
pub(super) struct ServerGroup {
    group: Group,
    server: GroupMember<HelloServer<AnyClients>>,
    clients: Vec<GroupMember<PairHandler<ClientPolicy>>>,
}

/// Capacity of each machine's inbox for messages from other threads. No other thread sends any.
const INBOX_MESSAGES: u32 = 2;

impl ServerGroup {
    #[inline]
    fn serve_requests(&mut self, count: u64) -> Result<(), Fault> {
        let Some(server) = self.group.handler_mut(&self.server) else {
            return Err(Fault::new(
                "the server machine is no longer in the group (removed during the run?)",
            ));
        };
        server.policy.left = count;
        self.group.run().map_err(Fault::from_error)?;
        Ok(())
    }
}

impl Workload for ServerGroup {
    type Args = ClientsArgs;
    const SPEC: Spec = SHARED_THREAD_SPEC;

    fn setup(args: &ClientsArgs, _: &mut Setup) -> Result<Self, Fault> {
        let thread = ThreadConfig::default().machines_max(args.clients_count + 1);
        let config = Config::default().inbox_messages_max(INBOX_MESSAGES);
        let mut group = Group::new(thread).map_err(Fault::from_error)?;
        let server = HelloServer { clients: Vec::new(), policy: AnyClients::default() };
        let server = group.add(server, config).map_err(Fault::from_error)?;
        let mut clients = Vec::new();
        for index in 0..args.clients_count {
            let other = Some(server.address().clone());
            let client = PairHandler { other, index, policy: ClientPolicy::default() };
            clients.push(group.add(client, config).map_err(Fault::from_error)?);
        }
        let Some(handler) = group.handler_mut(&server) else {
            return Err(Fault::new(
                "the server machine is not in the group that it was just added to",
            ));
        };
        handler.clients = clients.iter().map(|client| client.address().clone()).collect();
        Ok(ServerGroup { group, server, clients })
    }

    fn self_test(&mut self) -> Result<(), Fault> {
        let count = 10 * self.clients.len() as u64;
        self.serve_requests(count)?;
        let (mut answered, mut wrong) = (0, 0);
        for client in &self.clients {
            let stats = self.group.stats(client).unwrap_or_default();
            answered += stats.handled + stats.waiting;
            wrong += self.group.handler(client).map_or(1, |client| client.policy.wrong);
        }
        check_counts("answers received, wrong answers", [answered, wrong], [count, 0])
    }

    fn sample(&mut self, out: &mut Samples) {
        out.time_batches(|n| self.serve_requests(n).expect("cannot run the group of machines"));
    }
}

#[cfg(feature = "peers")]
mod tasks {
    use super::*;
    use crate::channels::Tokio;
    use std::sync::Arc;
    use tokio::runtime::Runtime;
    use tokio::sync::mpsc;

    /// Compared implementation: tasks on tokio's single-threaded runtime, one of which serves the
    /// others.
    pub(crate) struct TokioGroup {
        runtime: Runtime,
        requests: mpsc::Receiver<Request>,
        /// Sender of the answers to each client.
        answers: Vec<mpsc::Sender<u64>>,
        counts: Arc<ServeCounts>,
    }

    impl TokioGroup {
        fn serve_requests(&mut self, count: u64) {
            let Self { runtime, requests, answers, .. } = self;
            runtime.block_on(async {
                for _ in 0..count {
                    let Some((client, number)) = requests.recv().await else { break };
                    // Never fails: the clients live as long as the runtime.
                    let _ = answers[client as usize].send(number).await;
                }
            });
        }
    }

    impl Workload for TokioGroup {
        type Args = ClientsArgs;
        const SPEC: Spec = SHARED_THREAD_SPEC;

        fn setup(args: &ClientsArgs, _: &mut Setup) -> Result<Self, Fault> {
            let runtime = Tokio::runtime()?;
            let (sender, requests) = mpsc::channel(Config::default().inbox_messages_max as usize);
            let counts = Arc::new(ServeCounts::default());
            let mut answers = Vec::new();
            for client in 0..args.clients_count {
                let (answer, mut receiver) = mpsc::channel(ANSWERS_MAX as usize);
                let (sender, counts) = (sender.clone(), Arc::clone(&counts));
                answers.push(answer);
                runtime.spawn(async move {
                    let mut number = 0;
                    while sender.send((client, number)).await.is_ok() {
                        let Some(answer) = receiver.recv().await else { break };
                        counts.add_answers(1, u64::from(answer != number));
                        number += 1;
                    }
                });
            }
            Ok(TokioGroup { runtime, requests, answers, counts })
        }

        fn self_test(&mut self) -> Result<(), Fault> {
            let count = 10 * self.answers.len() as u64;
            self.serve_requests(count);
            // Lets clients run that have not processed their answers yet.
            self.runtime.block_on(async {
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
            });
            self.counts.tally.add_sent(count);
            self.counts.tally.verify()
        }

        fn sample(&mut self, out: &mut Samples) {
            out.time_batches(|n| self.serve_requests(n));
        }
    }
}

#[cfg(feature = "peers")]
pub(super) use tasks::TokioGroup;
