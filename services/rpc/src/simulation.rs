//! Simulation of two endpoints: their network delays, splits, cuts and stalls, and their processes
//! are killed, all from one seed. Runs the complete protocol, from the handshake to the end,
//! without sockets and without a real clock.
//!
//! The byte streams ([`network`]) and the time ([`crate::clock`]) are virtual, and a run is
//! determined by its seed. Both [`Endpoint`]s are real, except for shared memory, threads (a pool,
//! a [`Caller`](crate::Caller)) and waiting in the kernel. `HANDOVER_LONG=1` runs 100,000 seeds
//! instead of 200, and `HANDOVER_SEED=n` runs one.

mod engine;
mod network;

pub(crate) use network::{SimulatedPort, record_close_reason};

use crate::clock;
use crate::drive::event_loop::sealed::Driver;
use crate::drive::random;
use crate::drive::wire::Wire;
use crate::engine::FRAME_HEADER_BYTES;
use crate::{
    Address, AuthenticationError, Bulk, BulkError, BulkHandle, BulkMemory, BulkPart, Call,
    CallError, Calling, CloseReason, Config, ConnectionsConfig, Endpoint, EndpointError, Failure,
    LogLevel, Method, Peer, PoolConfig, Rights, Transfer,
};
use network::{NetworkProperties, SimulatedCable, SimulationRandom, StreamEnd};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const ECHO: Method = Method::new("echo");
const REFUSE: Method = Method::new("refuse");
const ONE_WAY: Method = Method::new("note");
const UNKNOWN: Method = Method::new("unregistered procedure");

/// Number of seeds that a usual test run simulates.
const SEEDS_COUNT: u64 = 200;
/// Number of seeds that are simulated if the variable `HANDOVER_LONG` is set.
const SEEDS_COUNT_LONG: u64 = 100_000;
/// Number of steps in which calls are started.
const STEPS_COUNT: u64 = 120;
/// Maximum virtual time of a step, in ns.
const STEP_NS_MAX: u64 = 100_000;
/// Maximum number of steps at the end, in which all calls and transfers must complete.
const LAST_STEPS_MAX: u64 = 2000;
/// Virtual time of each step at the end, in ns.
const LAST_STEP_NS: u64 = 1_000_000;
const HANDSHAKE_TIMEOUT_MS: u32 = 50;
/// Maximum number of calls of `run_endpoint` until an endpoint notices a closed connection.
const RUNS_SINCE_CLOSE_MAX: u32 = 400;
/// Maximum number of connections that a node has initiated at a time.
const CONNECTIONS_MAX: usize = 3;
/// Length of the memory that each node registers, in bytes.
const MEMORY_BYTES: usize = 3000;

/// Numbers of all handled requests, and of those that were handled repeatedly.
#[derive(Debug, Clone, Default)]
struct HandledRequests(Arc<Mutex<(BTreeSet<u64>, Vec<u64>)>>);

impl HandledRequests {
    fn record(&self, number: u64) {
        let mut handled = self.0.lock().expect("the mutex is poisoned");
        if !handled.0.insert(number) {
            handled.1.push(number);
        }
    }

    fn contains(&self, number: u64) -> bool {
        self.0.lock().expect("the mutex is poisoned").0.contains(&number)
    }

    fn repeated_numbers(&self) -> Vec<u64> {
        self.0.lock().expect("the mutex is poisoned").1.clone()
    }
}

/// Limits and fault probabilities of one run, drawn from its seed.
#[derive(Debug)]
struct RunSettings {
    network: NetworkProperties,
    message_bytes_max: u32,
    queued_bytes_max: u32,
    calls_max: u32,
    secrets: Secrets,
    /// Chance, in percent, that a connection is cut in a step.
    cut_percent: u64,
    /// Chance, in percent, that a connection falls silent in a step: no more bytes arrive.
    silence_percent: u64,
    /// Chance, in percent, that a node's process is killed in a step.
    kill_percent: u64,
    /// Chance, in percent, that an endpoint skips a step; one value for each endpoint.
    pause_percents: [u64; 2],
    /// Chance, in percent, that a call gets a deadline.
    deadline_percent: u64,
    /// Chance, in percent, that a node cancels a call in a step.
    cancel_percent: u64,
    /// `true` if the nodes start bulk transfers.
    has_transfers: bool,
}

/// Shared secrets given to the two endpoints: none, the same one, or different ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Secrets {
    None,
    Same,
    Different,
}

impl RunSettings {
    fn new(random: &mut SimulationRandom) -> Self {
        let mut chance = |percent| if random.is_true_with_percent(50) { 0 } else { percent };
        let (cut_percent, silence_percent, kill_percent) = (chance(3), chance(2), chance(1));
        let (deadline_percent, cancel_percent) = (chance(40), chance(10));
        let pause_percents = [0; 2].map(|_| [0, 0, 30, 97][random.number_below(4) as usize]);
        let network = NetworkProperties {
            delay_ns_max: [1, 20_000, 2_000_000][random.number_below(3) as usize],
            window_bytes: [0; 2].map(|_| [100, 1000, 1 << 16][random.number_below(3) as usize]),
            piece_bytes_max: [1, 40, 1 << 16][random.number_below(3) as usize],
        };
        Self {
            network,
            message_bytes_max: 64 + random.number_below(500) as u32,
            queued_bytes_max: [1024, 4096, 1 << 16][random.number_below(3) as usize],
            calls_max: [4, 64][random.number_below(2) as usize],
            secrets: match random.number_below(10) {
                0 => Secrets::Different,
                1..=5 => Secrets::Same,
                _ => Secrets::None,
            },
            cut_percent,
            silence_percent,
            kill_percent,
            pause_percents,
            deadline_percent,
            cancel_percent,
            has_transfers: random.is_true_with_percent(50),
        }
    }
}

/// Call under way, with the values that its caller expects.
#[derive(Debug)]
struct StartedCall {
    call: Call<(u64, Vec<u8>)>,
    method: Method,
    body: Vec<u8>,
    deadline_ns: Option<u64>,
    connection: u64,
}

/// Bulk transfer under way.
#[derive(Debug)]
struct StartedTransfer {
    transfer: Transfer,
    target: BulkMemory,
    connection: u64,
    /// Value of the peer's `Node::restarts_count` when the transfer started. Unless it has changed,
    /// the peer's memory is still registered.
    peer_restarts_count: u32,
}

/// Simulated process with an endpoint.
#[derive(Debug)]
struct Node {
    endpoint: Endpoint,
    restarts_count: u32,
    /// Calls that this node has started, by number.
    calls: BTreeMap<u64, StartedCall>,
    transfers: Vec<StartedTransfer>,
    /// Peers to which this node has connected, each with the number of its connection.
    peers: Vec<(Peer, u64)>,
    /// Handshakes that this node has initiated, each with the number of its connection.
    connecting: Vec<(u32, u64)>,
    /// Handle of the memory that this node has registered.
    handle: BulkHandle,
}

/// Simulated connection between the two nodes.
#[derive(Debug)]
struct Connection {
    cable: SimulatedCable,
    /// Index of the node that initiated the connection.
    connector_index: usize,
    /// `true` if a fault was injected into the connection, which may then be closed.
    is_harmed: bool,
    /// Number of times that the connector has run since it could detect the connection's end.
    runs_since_close: u32,
}

/// Simulation of two nodes on a network with faults.
struct Simulation {
    random: SimulationRandom,
    settings: RunSettings,
    now_ns: u64,
    nodes: [Node; 2],
    connections: BTreeMap<u64, Connection>,
    /// Last number that was assigned to a call or a connection.
    last_number: u64,
    handled: HandledRequests,
    /// Number of events by outcome, such as `answered` or `killed`.
    outcome_counts: BTreeMap<&'static str, u64>,
    /// Hash of all events, equal in every run of one seed.
    events_hash: u64,
}

/// Returns the bytes of the memory that a node registers.
fn memory_content(node: usize) -> Vec<u8> {
    (0..MEMORY_BYTES).map(|at| (at * 7 + node) as u8).collect()
}

impl Node {
    fn new(
        node: usize,
        restarts_count: u32,
        settings: &RunSettings,
        handled: &HandledRequests,
    ) -> Self {
        let connections = ConnectionsConfig {
            peers_max: 16,
            message_bytes_max: settings.message_bytes_max,
            queued_bytes_max: settings.queued_bytes_max,
            handshake_timeout: Duration::from_millis(HANDSHAKE_TIMEOUT_MS.into()),
            ..ConnectionsConfig::default()
        };
        let config = Config {
            calls_max: settings.calls_max,
            spin_max: Duration::ZERO,
            log_level: LogLevel::Off,
            connections,
            pool: PoolConfig::default().threads(0),
            ..Config::default()
        };
        let mut endpoint = Endpoint::new(config).expect("cannot create an endpoint");
        let secret = match settings.secrets {
            Secrets::None => None,
            Secrets::Same => Some([7; 16]),
            Secrets::Different => Some([node as u8; 16]),
        };
        if let Some(secret) = secret {
            endpoint.set_secret(&secret).expect("cannot set the secret");
        }
        let (echoed, refused, noted) = (handled.clone(), handled.clone(), handled.clone());
        let echo = move |_: &mut crate::Context<'_>, (number, body): (u64, Vec<u8>)| {
            echoed.record(number);
            Ok((number, body.into_iter().rev().collect::<Vec<u8>>()))
        };
        let refuse = move |_: &mut crate::Context<'_>, (number, _): (u64, Vec<u8>)| {
            refused.record(number);
            Err::<(), _>(Failure::new(number as i32, "no"))
        };
        let note = move |_: &mut crate::Context<'_>, (number, _): (u64, Vec<u8>)| {
            noted.record(number);
            Ok(())
        };
        endpoint.register("echo", 0, echo).expect("cannot register the method `echo`");
        endpoint.register("refuse", 0, refuse).expect("cannot register the method `refuse`");
        endpoint.register("note", 0, note).expect("cannot register the method `note`");
        let memory = BulkMemory::plain(memory_content(node));
        let handle = endpoint
            .register_memory(&memory, Rights::Read)
            .expect("cannot register the node's memory");
        let (calls, transfers) = (BTreeMap::new(), Vec::new());
        let (peers, connecting) = (Vec::new(), Vec::new());
        Self { endpoint, restarts_count, calls, transfers, peers, connecting, handle }
    }
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut random = SimulationRandom::new(seed);
        let (settings, handled) = (RunSettings::new(&mut random), HandledRequests::default());
        let now_ns = 1_000_000_000;
        clock::set(now_ns);
        random::simulated::seed(seed);
        let nodes = [0, 1].map(|node| Node::new(node, 0, &settings, &handled));
        let (connections, outcome_counts) = (BTreeMap::new(), BTreeMap::new());
        Self {
            random,
            settings,
            now_ns,
            nodes,
            connections,
            last_number: 0,
            handled,
            outcome_counts,
            events_hash: 0,
        }
    }

    /// Adds an observable event to the hash of the run, by FNV-1a.
    fn hash_event(&mut self, event: u64) {
        self.events_hash = (self.events_hash ^ event ^ self.now_ns).wrapping_mul(0x0100_0000_01b3);
    }

    /// Assigns the next number, and returns it.
    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn advance_clock(&mut self, ns: u64) {
        self.now_ns += ns;
        clock::set(self.now_ns);
    }

    fn run(&mut self) {
        for _ in 0..STEPS_COUNT {
            let ns = self.random.number_below(STEP_NS_MAX);
            self.advance_clock(ns);
            for node in 0..2 {
                self.start_random_operations(node);
                if !self.random.is_true_with_percent(self.settings.pause_percents[node]) {
                    self.run_endpoint(node);
                }
            }
            self.inject_faults();
            self.check_invariants();
        }
        self.finish();
    }

    /// Lets a node start random connections, calls and transfers, and cancel a random call.
    fn start_random_operations(&mut self, node: usize) {
        let connections_count = self.nodes[node].peers.len() + self.nodes[node].connecting.len();
        if connections_count < CONNECTIONS_MAX && self.random.is_true_with_percent(20) {
            self.connect(node);
        }
        for _ in 0..self.random.number_below(4) {
            self.start_call(node);
        }
        if self.settings.has_transfers && self.random.is_true_with_percent(10) {
            self.start_pull(node);
        }
        if self.random.is_true_with_percent(self.settings.cancel_percent)
            && let Some(pending) = self.nodes[node].calls.pop_first().map(|it| it.1)
        {
            let endpoint = &mut self.nodes[node].endpoint;
            endpoint.cancel(pending.call);
            assert_eq!(
                endpoint.test(pending.call),
                Some(Err(CallError::Stale)),
                "a cancelled call is not stale"
            );
            self.count_outcome("cancelled");
        }
    }

    fn connect(&mut self, node: usize) {
        let number = self.next_number();
        let seed = self.random.number_below(u64::MAX);
        let (cable, [ours, its]) = SimulatedCable::new(seed, self.settings.network);
        let address = Address::Tcp("simulated:1".into());
        let acceptor = self.nodes[1 - node].endpoint.event_loop();
        acceptor.start_simulated(Wire::Simulated(its), &address, false);
        let connector = self.nodes[node].endpoint.event_loop();
        let handshake = connector.start_simulated(Wire::Simulated(ours), &address, true);
        self.nodes[node].connecting.push((handshake, number));
        let connection =
            Connection { cable, connector_index: node, is_harmed: false, runs_since_close: 0 };
        self.connections.insert(number, connection);
    }

    fn random_peer(&mut self, node: usize) -> Option<(Peer, u64)> {
        let count = self.nodes[node].peers.len() as u64;
        (count > 0).then(|| self.nodes[node].peers[self.random.number_below(count) as usize])
    }

    fn start_call(&mut self, node: usize) {
        let Some((peer, connection)) = self.random_peer(node) else { return };
        let number = self.next_number();
        // The number and the length of the body need 20 bytes.
        let room_bytes = u64::from(self.settings.message_bytes_max) - 20;
        let body: Vec<u8> =
            (0..self.random.number_below(room_bytes)).map(|at| (at ^ number) as u8).collect();
        let arguments = (number, body);
        let method = match self.random.number_below(20) {
            0 => UNKNOWN,
            1 | 2 => REFUSE,
            3 | 4 => ONE_WAY,
            _ => ECHO,
        };
        let node = &mut self.nodes[node];
        if method == ONE_WAY {
            let sent = node.endpoint.send(peer, method, &arguments);
            assert!(
                matches!(
                    sent,
                    Ok(()) | Err(CallError::Full | CallError::Disconnected(_) | CallError::Stale)
                ),
                "{sent:?}"
            );
            return;
        }
        let timeout_ns = self
            .random
            .is_true_with_percent(self.settings.deadline_percent)
            .then(|| self.random.number_below(2_000_000));
        let started = match timeout_ns {
            Some(ns) => {
                node.endpoint.start_within(peer, method, &arguments, Duration::from_nanos(ns))
            }
            None => node.endpoint.start(peer, method, &arguments),
        };
        let deadline_ns = timeout_ns.map(|ns| self.now_ns + ns);
        match started {
            Ok(call) => {
                let body = arguments.1;
                let pending = StartedCall { call, method, body, deadline_ns, connection };
                node.calls.insert(number, pending);
            }
            Err(CallError::Full | CallError::Disconnected(_) | CallError::Stale) => {}
            Err(error) => panic!("{error:?}"),
        }
    }

    fn start_pull(&mut self, node: usize) {
        let Some((peer, connection)) = self.random_peer(node) else { return };
        let (handle, peer_restarts_count) =
            (self.nodes[1 - node].handle, self.nodes[1 - node].restarts_count);
        let target = BulkMemory::plain(vec![0; MEMORY_BYTES]);
        let part = BulkPart::new(MEMORY_BYTES as u64);
        let node = &mut self.nodes[node];
        match node.endpoint.start_pull(peer, &handle, &target, part) {
            Ok(transfer) => node.transfers.push(StartedTransfer {
                transfer,
                target,
                connection,
                peer_restarts_count,
            }),
            Err(BulkError::Full | BulkError::Disconnected(_) | BulkError::Stale) => {}
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Runs the event loop of a node's endpoint. Collects the results of its completed connections,
    /// calls and transfers.
    fn run_endpoint(&mut self, node_index: usize) {
        let iterations = 1 + self.random.number_below(3);
        let node = &mut self.nodes[node_index];
        node.endpoint.event_loop().poll_simulated();
        for _ in 0..iterations {
            node.endpoint.progress(Duration::ZERO);
        }
        for (peer, number) in &node.peers {
            let Some(connection) = self.connections.get_mut(number) else { continue };
            let end_ns =
                connection.cable.end_ns(usize::from(connection.connector_index != node_index));
            let knows = end_ns.is_some_and(|end_ns| end_ns <= self.now_ns);
            connection.runs_since_close += u32::from(knows && node.endpoint.is_connected(*peer));
            assert!(
                connection.runs_since_close <= RUNS_SINCE_CLOSE_MAX,
                "connection {number} was closed {} runs ago, but its peer is still listed",
                connection.runs_since_close
            );
        }
        self.collect_connections(node_index);
        self.collect_calls(node_index);
        self.collect_transfers(node_index);
    }

    /// Collects the results of a node's handshakes, and removes its disconnected peers.
    fn collect_connections(&mut self, node_index: usize) {
        for (handshake, number) in std::mem::take(&mut self.nodes[node_index].connecting) {
            let node = &mut self.nodes[node_index];
            match node.endpoint.event_loop().handshakes.take_result(handshake) {
                None => node.connecting.push((handshake, number)),
                Some(Ok(peer)) => {
                    assert_ne!(
                        self.settings.secrets,
                        Secrets::Different,
                        "admitted a wrong secret"
                    );
                    node.peers.push((peer, number));
                    self.count_outcome("connected");
                }
                Some(Err(EndpointError::Handshake {
                    why: CloseReason::Authentication(AuthenticationError::WrongSecret),
                    ..
                })) => {
                    assert_eq!(self.settings.secrets, Secrets::Different);
                    self.count_outcome("wrong secret");
                }
                Some(Err(why)) => self.assert_may_close(number, &why),
            }
        }
        let node = &mut self.nodes[node_index];
        let gone: Vec<_> =
            node.peers.extract_if(.., |it| !node.endpoint.is_connected(it.0)).collect();
        for (_, number) in gone {
            self.assert_may_close(number, &CloseReason::ClosedByPeer);
        }
    }

    /// Collects and checks the results of a node's completed and late calls.
    fn collect_calls(&mut self, node_index: usize) {
        let numbers: Vec<u64> = self.nodes[node_index].calls.keys().copied().collect();
        for number in numbers {
            let node = &mut self.nodes[node_index];
            let Some(pending) = node.calls.get(&number) else { continue };
            let call = pending.call;
            let is_late = pending.deadline_ns.is_some_and(|at_ns| at_ns <= self.now_ns);
            // Testing each pending call would run an iteration for each.
            if !is_late && node.endpoint.event_loop().calls.is_done(call.id) == Some(false) {
                continue;
            }
            let result =
                node.endpoint.test(call).expect("a call that is done or timed out has no result");
            assert_eq!(
                node.endpoint.test(call),
                Some(Err(CallError::Stale)),
                "a finished call is not stale"
            );
            if let Some(pending) = node.calls.remove(&number) {
                self.check_outcome(number, &pending, result);
            }
        }
    }

    /// Checks the outcome of a call against what the peer has done.
    fn check_outcome(
        &mut self,
        number: u64,
        pending: &StartedCall,
        result: Result<(u64, Vec<u8>), CallError>,
    ) {
        let was_handled = self.handled.contains(number);
        let said = match result {
            Ok((its, body)) => {
                let expected: Vec<u8> = pending.body.iter().rev().copied().collect();
                assert_eq!(
                    (pending.method, its, body),
                    (ECHO, number, expected),
                    "call {number}: the answer is not that of its request"
                );
                assert!(was_handled);
                "answered"
            }
            Err(CallError::Failed(failure)) => {
                assert_eq!((pending.method, failure.code), (REFUSE, number as i32));
                assert!(was_handled);
                "refused"
            }
            Err(CallError::Unknown) => {
                assert_eq!((pending.method, was_handled), (UNKNOWN, false));
                "unknown"
            }
            Err(CallError::PeerFull) => {
                assert!(!was_handled, "call {number}: refused as PeerFull, but its handler ran");
                "peer full"
            }
            Err(CallError::Deadline) => {
                assert!(
                    pending.deadline_ns.is_some_and(|at_ns| at_ns <= self.now_ns),
                    "call {number} timed out too early"
                );
                "deadline"
            }
            Err(CallError::Disconnected(why)) => {
                self.assert_may_close(pending.connection, &why);
                "gone"
            }
            Err(error) => panic!("call {number} failed unexpectedly: {error:?}"),
        };
        self.hash_event(number);
        self.count_outcome(said);
    }

    /// Collects and checks the results of a node's completed transfers.
    fn collect_transfers(&mut self, node_index: usize) {
        for moved in std::mem::take(&mut self.nodes[node_index].transfers) {
            let Some(result) = self.nodes[node_index].endpoint.test_transfer(moved.transfer) else {
                self.nodes[node_index].transfers.push(moved);
                continue;
            };
            match result {
                Ok(()) => {
                    assert!(
                        moved.target.to_vec() == memory_content(1 - node_index),
                        "wrong bytes were transferred"
                    );
                    self.count_outcome("moved");
                }
                Err(BulkError::Disconnected(why)) => self.assert_may_close(moved.connection, &why),
                // The peer's process has changed, and has registered other memory.
                Err(BulkError::Refused(_))
                    if moved.peer_restarts_count != self.nodes[1 - node_index].restarts_count => {}
                Err(error) => panic!("a transfer failed unexpectedly: {error:?}"),
            }
        }
    }

    fn count_outcome(&mut self, what: &'static str) {
        *self.outcome_counts.entry(what).or_default() += 1;
    }

    /// Asserts that the simulation has given a reason to close the connection. A fault was
    /// injected, or a peer did not read its answers.
    fn assert_may_close(&self, connection: u64, why: &impl std::fmt::Display) {
        let Some(it) = self.connections.get(&connection) else { return };
        let is_flooded = it.cable.is_flooded() && self.settings.queued_bytes_max <= 4096;
        assert!(
            it.is_harmed || is_flooded,
            "connection {connection} was closed without a fault: {why}"
        );
    }

    fn inject_faults(&mut self) {
        let numbers: Vec<u64> = self.connections.keys().copied().collect();
        for number in numbers {
            let (cut, silence) = (self.settings.cut_percent, self.settings.silence_percent);
            let how = if self.random.is_true_with_percent(50) {
                StreamEnd::Closed
            } else {
                StreamEnd::Reset
            };
            let (is_cut, is_silenced) =
                (self.random.is_true_with_percent(cut), self.random.is_true_with_percent(silence));
            let Some(connection) = self.connections.get_mut(&number) else { continue };
            connection.is_harmed |= is_cut || is_silenced;
            // A real connection that stays silent is ended by the kernel's keepalive.
            if is_cut && connection.cable.is_silent() {
                connection.cable.end_both_streams(StreamEnd::Reset);
            } else if is_cut {
                connection.cable.end_both_streams(how);
            } else if is_silenced {
                connection.cable.drop_all_later_bytes();
            }
        }
        for node_index in 0..2 {
            if self.random.is_true_with_percent(self.settings.kill_percent) {
                self.kill_process(node_index);
            } else if self.settings.cut_percent > 0 && self.random.is_true_with_percent(1) {
                self.disconnect_random_peer(node_index);
            }
        }
    }

    fn kill_process(&mut self, node_index: usize) {
        let how =
            if self.random.is_true_with_percent(50) { StreamEnd::Closed } else { StreamEnd::Reset };
        for connection in self.connections.values_mut() {
            connection
                .cable
                .kill_process_at(usize::from(connection.connector_index != node_index), how);
            connection.is_harmed = true;
        }
        let restarts_count = self.nodes[node_index].restarts_count + 1;
        self.nodes[node_index] =
            Node::new(node_index, restarts_count, &self.settings, &self.handled);
        self.hash_event(u64::from(restarts_count));
        self.count_outcome("killed");
    }

    fn disconnect_random_peer(&mut self, node_index: usize) {
        let Some((peer, connection)) = self.random_peer(node_index) else { return };
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.is_harmed = true;
        }
        self.nodes[node_index].endpoint.disconnect(peer);
    }

    /// Checks the invariants that hold after every step.
    fn check_invariants(&mut self) {
        let settings = &self.settings;
        for node in &mut self.nodes {
            let event_loop = node.endpoint.event_loop();
            assert_eq!(
                event_loop.calls.calls_count() as usize,
                node.calls.len(),
                "slots of completed calls are still in use"
            );
            // The last message that fits may exceed the limit, and a cancellation is always queued.
            let queued_bytes_max = settings.queued_bytes_max as usize
                + settings.message_bytes_max as usize
                + (1 + settings.calls_max as usize) * FRAME_HEADER_BYTES;
            for peer in event_loop.peers.dump_peers() {
                assert!(peer.queued_bytes <= queued_bytes_max, "{peer:?}");
            }
            for slot in &event_loop.peers.slots {
                let deferred_bytes = slot.deferred.queued_bytes();
                // A single request may exceed the limit.
                assert!(
                    deferred_bytes <= settings.queued_bytes_max as usize
                        || slot.deferred.len() == 1,
                    "{deferred_bytes} bytes are deferred"
                );
            }
        }
        assert_eq!(
            self.handled.repeated_numbers(),
            Vec::<u64>::new(),
            "requests were handled more than once"
        );
    }

    /// Runs the last steps, without starting new calls. Checks that all handshakes, calls and
    /// transfers complete.
    fn finish(&mut self) {
        // Handshakes end by their deadline, also over connections that stay silent.
        for _ in 0..=HANDSHAKE_TIMEOUT_MS {
            self.run_last_step();
        }
        for node in &mut self.nodes {
            let is_over =
                node.connecting.is_empty() && node.endpoint.event_loop().handshakes.is_empty();
            assert!(is_over, "a handshake is still under way after its deadline");
        }
        for connection in self.connections.values_mut() {
            if connection.cable.is_silent() {
                connection.cable.end_both_streams(StreamEnd::Reset);
            }
        }
        for _ in 0..LAST_STEPS_MAX {
            self.run_last_step();
            if self.is_everything_complete() {
                break;
            }
        }
        for node_index in 0..2 {
            let node = &mut self.nodes[node_index];
            let (calls, transfers) = (node.calls.keys(), node.transfers.len());
            assert_eq!(node.calls.len(), 0, "calls have not completed: {calls:?}");
            assert_eq!(transfers, 0, "{transfers} transfers have not completed");
            let event_loop = node.endpoint.event_loop();
            assert_eq!((event_loop.calls.calls_count(), event_loop.peers.deferred_count()), (0, 0));
            let deferred_bytes = event_loop.peers.slots.iter().map(|it| it.deferred.queued_bytes());
            assert_eq!(deferred_bytes.sum::<usize>(), 0, "deferred bytes remain counted");
            assert!(
                event_loop.peers.dump_peers().iter().all(|it| it.queued_bytes == 0),
                "memory of a completed transfer is still in use"
            );
        }
        // Connections exist on both sides or on neither.
        let [one, two] = &self.nodes;
        assert_eq!(one.endpoint.peers().count(), two.endpoint.peers().count());
    }

    fn run_last_step(&mut self) {
        self.advance_clock(LAST_STEP_NS);
        (0..2).for_each(|node_index| self.run_endpoint(node_index));
        self.check_invariants();
    }

    fn is_everything_complete(&mut self) -> bool {
        let peers = self.nodes.each_ref().map(|node| node.endpoint.peers().count());
        self.nodes.iter_mut().all(|node| {
            let event_loop = node.endpoint.event_loop();
            let is_sent = event_loop.peers.dump_peers().iter().all(|it| it.queued_bytes == 0);
            is_sent
                && event_loop.peers.deferred_count() == 0
                && node.calls.is_empty()
                && node.transfers.is_empty()
        }) && peers[0] == peers[1]
    }
}

/// Guard that prints, if a run panics, the command that repeats the run.
struct FailureHint(u64);

impl Drop for FailureHint {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let seed = self.0;
            eprintln!(
                "seed {seed} fails; to repeat: HANDOVER_SEED={seed} cargo test -p handover-rpc --lib simulation::"
            );
        }
    }
}

/// Simulates one seed with this thread's simulated clock. Returns the hash of all events, and the
/// outcomes.
fn run(seed: u64) -> (u64, BTreeMap<&'static str, u64>) {
    let _hint = FailureHint(seed);
    let mut simulation = Simulation::new(seed);
    simulation.run();
    (simulation.events_hash, simulation.outcome_counts)
}

/// Returns the seeds that this test run simulates.
fn seed_range() -> std::ops::Range<u64> {
    let number = std::env::var("HANDOVER_SEED").ok().and_then(|text| text.parse().ok());
    match (number, std::env::var_os("HANDOVER_LONG")) {
        (Some(seed), _) => seed..seed + 1,
        (None, Some(_)) => 0..SEEDS_COUNT_LONG,
        (None, None) => 0..SEEDS_COUNT,
    }
}

#[test]
fn every_call_ends_once_and_nothing_leaks_despite_network_and_process_faults() {
    let threads_count = std::thread::available_parallelism().map_or(1, usize::from);
    let mut outcome_counts = BTreeMap::<&str, u64>::new();
    let seeds = seed_range();
    let count = seeds.end - seeds.start;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads_count)
            .map(|at| {
                let its = seeds.clone().skip(at).step_by(threads_count);
                scope.spawn(move || its.map(|seed| run(seed).1).collect::<Vec<_>>())
            })
            .collect();
        for thread in threads {
            // The thread has printed its panic and its seed.
            for (what, number) in
                thread.join().expect("the simulation of a seed panicked").into_iter().flatten()
            {
                *outcome_counts.entry(what).or_default() += number;
            }
        }
    });
    eprintln!("{count} seeds: {outcome_counts:?}");
    if count >= SEEDS_COUNT {
        for what in [
            "answered",
            "refused",
            "unknown",
            "peer full",
            "deadline",
            "gone",
            "cancelled",
            "killed",
            "moved",
            "connected",
            "wrong secret",
        ] {
            assert!(outcome_counts.contains_key(what), "no seed has produced the outcome {what}");
        }
    }
}

#[test]
fn runs_of_one_seed_are_identical() {
    for seed in 0..5 {
        let runs = [0; 2].map(|_| std::thread::spawn(move || run(seed)).join());
        let [Ok(one), Ok(other)] = runs else { panic!("seed {seed}: a run panicked") };
        assert_eq!(one, other, "seed {seed}: two runs differ");
    }
}
