//! `handover run --fleet`: the ranks of an MPI job measure their nodes, and rank 0 stores the
//! records of all.
//!
//! Ranks on one host measure one after the other, those on different hosts at the same time, when
//! rank 0 tells them to. A rank measures in a child process, whose end by any cause leaves the rank
//! to report. It then sends its records, as the lines of an export, when rank 0 asks for them; so
//! that rank 0 holds those of one node at a time. A rank that waits polls, because an MPI library
//! that waits for a message keeps a CPU busy. Ranks tell one another that they are alive; one that
//! is silent is lost, and the other ranks' records are kept.

use crate::app::{ResultOptions, RunArgs};
use crate::commands::{fleet, run, stored};
use crate::exit::{self, check_interrupt, to_usage_error};
use anyhow::{Context, bail, ensure};
use handover_classic::ranks::{Rank, is_rank_variable};
use handover_harness::{DATE_OUT_OF_RANGE, Lab, ScratchFolder, unix_ns};
use handover_program::{child, console};
use handover_report::compare::Rules;
use handover_store::{Store, db_option};
use handover_suite::mpi::Mpi;
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

/// Interval at which a rank polls for messages. It is long enough not to disturb measurements on
/// the host.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Interval at which a rank sends a keep-alive message to rank 0, which answers.
const ALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Time without a message after which a rank counts as lost. MPI reports some of these losses
/// earlier, and most never.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Maximum size of a message between ranks. MPI libraries send messages of this size without
/// waiting for the receiver.
const MESSAGE_BYTES_MAX: usize = 4096;
/// Size of a message's header: its kind, and the length of its content.
const HEADER_BYTES: usize = 3;
/// Maximum size of the content of a message between ranks.
const CONTENT_BYTES_MAX: usize = MESSAGE_BYTES_MAX - HEADER_BYTES;
/// Maximum size of a node's records in bytes.
const NODE_BYTES_MAX: usize = 1 << 28;
/// Maximum number of bytes read from the standard error of a measuring process.
const STDERR_BYTES_MAX: u64 = 1 << 16;
/// Maximum length of the description of a failure, in characters.
const FAILURE_CHARS_MAX: usize = 500;

/// Kind of a message between rank 0 and another rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum MessageKind {
    /// To rank 0: host name of the sender.
    Hello = b'h',
    /// Keep-alive message to rank 0, which sends it back.
    Alive = b'a',
    /// From rank 0: measure now. The content is the name of the fleet and, after a line break, that
    /// of the node.
    Measure = b'm',
    /// To rank 0: the node was measured. The content is the size of its records and, after a space,
    /// the failure.
    Measured = b'd',
    /// From rank 0: send the records of your node.
    Send = b's',
    /// To rank 0: part of the records.
    Part = b'p',
    /// From rank 0: end the measurement.
    Stop = b'i',
    /// Last message from rank 0: exit. The content is empty if a rank was lost, as MPI then cannot
    /// be finalised.
    End = b'e',
    /// Last message to rank 0: the sender exits.
    Ended = b'b',
}

impl MessageKind {
    /// All kinds of messages.
    const ALL: [MessageKind; 9] = [
        MessageKind::Hello,
        MessageKind::Alive,
        MessageKind::Measure,
        MessageKind::Measured,
        MessageKind::Send,
        MessageKind::Part,
        MessageKind::Stop,
        MessageKind::End,
        MessageKind::Ended,
    ];
}

/// Sends a message to a rank.
fn send(world: &Mpi, to_rank: u32, kind: MessageKind, content: &[u8]) -> anyhow::Result<()> {
    ensure!(content.len() <= CONTENT_BYTES_MAX, "a message of {} bytes is too long", content.len());
    let length = (content.len() as u16).to_le_bytes();
    let message = [&[kind as u8], &length[..], content].concat();
    world
        .send(to_rank, &message)
        .with_context(|| format!("cannot send a message to rank {to_rank}"))
}

/// Receives the next message from a rank; `None` if there is none. Does not block.
fn receive(world: &Mpi, from_rank: u32) -> anyhow::Result<Option<(MessageKind, Vec<u8>)>> {
    if !world.has_message(from_rank)? {
        return Ok(None);
    }
    let mut message = vec![0; MESSAGE_BYTES_MAX];
    world.receive(from_rank, &mut message)?;
    let length = usize::from(u16::from_le_bytes([message[1], message[2]]));
    let kind = MessageKind::ALL.into_iter().find(|kind| *kind as u8 == message[0]);
    let (Some(kind), true) = (kind, length <= CONTENT_BYTES_MAX) else {
        bail!("a message from rank {from_rank} is malformed; do all ranks run the same version?");
    };
    Ok(Some((kind, message[HEADER_BYTES..][..length].to_vec())))
}

/// Measures the node of this rank. Rank 0 also stores and shows the records of all nodes.
pub fn run_fleet(args: &RunArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let Some(rank) = Rank::from_environment(|name| std::env::var(name).ok())? else {
        return Err(to_usage_error(
            "--fleet: no launcher has started this process as a rank; use `mpiexec -n NODES --map-by node handover run \
             --fleet`, or srun",
        ));
    };
    if let Err(error) = check_arguments(args, &rank) {
        // All ranks find the same errors in the same command line, and rank 0 reports them. The
        // others succeed: a launcher ends all ranks once one has failed, and rank 0 may be late.
        let is_reported_by_rank_0 = rank.number > 0 && error.is::<exit::UsageError>();
        return if is_reported_by_rank_0 { Ok(()) } else { Err(error) };
    }
    let interrupted = console::interrupt_flag().context("cannot install the signal handlers")?;
    let world = Mpi::init()?;
    rank.check_mpi(&world)?;
    world.return_errors()?;
    let (outcome, can_finalise) = match rank.number {
        0 => gather_fleet(args, &world, rank.ranks_count, &interrupted, out),
        number => match serve_rank_0(args, &world, number, &interrupted) {
            Ok(can_finalise) => (Ok(()), can_finalise),
            Err(error) => (Err(error.context(format!("rank {number}"))), false),
        },
    };
    if can_finalise {
        world.finalise()?;
    }
    outcome
}

/// Returns an error if the command line is invalid or there is only one rank.
fn check_arguments(args: &RunArgs, rank: &Rank) -> anyhow::Result<()> {
    Lab::new(handover_suite::SUITES, &args.patterns, args.options.plan.plan())
        .map_err(exit::plan_error)?;
    rank.require_mpi_launcher()?;
    if rank.ranks_count < 2 {
        return Err(to_usage_error(
            "--fleet: rank 0 of 1; a fleet has at least 2 nodes, as in mpiexec -n 2 --map-by node",
        ));
    }
    Ok(())
}

/// Records of a node, and a failure if some or all are missing.
struct MeasuredNode {
    /// Run with its records, in the format of `handover export`; empty without a run.
    lines: Vec<u8>,
    /// Description of the failure; empty for none.
    failure: String,
}

impl MeasuredNode {
    /// Creates the result of a failed measurement, without records.
    fn failed(why: impl std::fmt::Display) -> MeasuredNode {
        MeasuredNode { lines: Vec::new(), failure: why.to_string() }
    }
}

/// Names of a node and of its run.
struct NodeName<'a> {
    /// Number of the node's rank.
    rank: u32,
    /// Name of the node.
    name: &'a str,
    /// Names given to the node's run (its tags).
    tags: Vec<&'a str>,
}

impl<'a> NodeName<'a> {
    fn new(rank: u32, fleet: &'a str, name: &'a str, results: &'a ResultOptions) -> NodeName<'a> {
        let tags = [fleet].into_iter().chain(results.name.name.as_deref()).collect();
        NodeName { rank, name, tags }
    }
}

/// Measures this rank's node in a child process. Calls `each_turn` about every 20 ms meanwhile.
fn measure_node(
    node: &NodeName<'_>,
    interrupted: &AtomicBool,
    each_turn: impl FnMut(),
) -> MeasuredNode {
    let measured = || -> anyhow::Result<MeasuredNode> {
        let folder = ScratchFolder::new("handover-fleet-", &std::env::temp_dir())
            .context("cannot create a temporary folder for the records")?;
        let db = folder.path().join("results.db");
        let mut stderr_file = tempfile::tempfile_in(folder.path())?;
        let mut command = measuring_command(&db)?;
        command.stdout(Stdio::null()).stderr(stderr_file.try_clone()?);
        let status = child::run_with(&mut command, interrupted, each_turn)?.status;
        stderr_file.rewind()?;
        let text = read_messages(stderr_file);
        text.lines().for_each(|line| console::print_error(format_args!("{}: {line}", node.name)));
        let failure = match status.code() {
            Some(0) => String::new(),
            Some(130) => "interrupted".to_string(),
            Some(_) => text.lines().last().unwrap_or("measuring failed").to_string(),
            None => format!("the measuring process ended with {status}"),
        };
        match export_node(&db, node) {
            Ok(lines) => Ok(MeasuredNode { lines, failure }),
            Err(error) if failure.is_empty() => Err(error),
            Err(_) => Ok(MeasuredNode::failed(failure)),
        }
    };
    measured().unwrap_or_else(|error| MeasuredNode::failed(format_args!("{error:#}")))
}

/// Reads the first [`STDERR_BYTES_MAX`] bytes of a process's standard error, as far as that is
/// possible. Bytes that are not UTF-8 are replaced.
fn read_messages(stderr: impl Read) -> String {
    let mut bytes = Vec::new();
    // An error leaves the bytes before it.
    let _ = stderr.take(STDERR_BYTES_MAX).read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the command that measures this rank's node and stores the records at `db`. Its
/// environment does not make it a rank.
fn measuring_command(db: &Path) -> anyhow::Result<Command> {
    let binary = std::env::current_exe().context("cannot find the path of this program")?;
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    // The option goes right after the subcommand, if there is one: all other words may be after a
    // `--`.
    let behind = usize::from(words.first().is_some_and(|word| word == "run"));
    let mut command = Command::new(binary);
    command.args(&words[..behind]).arg("--node-db").arg(db).args(&words[behind..]);
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_rank_variable(name)) {
        command.env_remove(name);
    }
    Ok(command)
}

/// Exports the run at `db` as the run of the node. It gets the id, the host name and the tags of
/// the node.
fn export_node(db: &Path, node: &NodeName<'_>) -> anyhow::Result<Vec<u8>> {
    // Opened for writing, as the process that wrote it may have been killed.
    let mut run = Store::open(db)?.load_latest_run()?;
    let words: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    // Hosts of containers may have equal times and process ids.
    run.run.id = format!("{}-{}", run.run.id, node.rank);
    run.run.command = words.join(" ");
    run.run.host.name = node.name.to_string();
    let mut store = Store::open_in_memory()?;
    store.begin_run(&run.run)?;
    store.insert_records(&run.run.id, &run.records)?;
    for tag in &node.tags {
        store.add_tag(&run.run.id, tag)?;
    }
    let mut lines = Vec::new();
    store.export(&[], &mut lines)?;
    Ok(lines)
}

/// Connection of a rank to rank 0.
struct Link<'a> {
    /// MPI communicator of all ranks.
    world: &'a Mpi,
    /// Flag that ends the measurement of this rank's node.
    interrupted: &'a AtomicBool,
    /// Time of the last message from rank 0.
    last_received: Instant,
    /// Time of the last message to rank 0.
    last_sent: Instant,
    /// Time of the last poll for messages.
    last_poll: Instant,
}

impl Link<'_> {
    /// Sends a message to rank 0.
    fn send(&mut self, kind: MessageKind, content: &[u8]) -> anyhow::Result<()> {
        self.last_sent = Instant::now();
        send(self.world, 0, kind, content)
    }

    /// Returns the next message for the caller, if there is one. Also sends keep-alive messages to
    /// rank 0, and obeys [`MessageKind::Stop`]. Does nothing within [`POLL_INTERVAL`] of the last
    /// call.
    fn poll(&mut self) -> anyhow::Result<Option<(MessageKind, Vec<u8>)>> {
        if self.last_poll.elapsed() < POLL_INTERVAL {
            return Ok(None);
        }
        self.last_poll = Instant::now();
        if self.last_sent.elapsed() > ALIVE_INTERVAL {
            self.send(MessageKind::Alive, b"")?;
        }
        while let Some((kind, content)) = receive(self.world, 0)? {
            self.last_received = Instant::now();
            match kind {
                MessageKind::Alive => {}
                // Relaxed: the flag publishes no other data.
                MessageKind::Stop => self.interrupted.store(true, Ordering::Relaxed),
                kind => return Ok(Some((kind, content))),
            }
        }
        ensure!(
            self.last_received.elapsed() < SILENCE_MAX,
            "rank 0 has been silent for {SILENCE_MAX:?}"
        );
        Ok(None)
    }
}

/// Executes the commands of rank 0: measures this rank's node, and sends the records. Returns
/// `true` if all ranks can finalise MPI.
fn serve_rank_0(
    args: &RunArgs,
    world: &Mpi,
    rank: u32,
    interrupted: &AtomicBool,
) -> anyhow::Result<bool> {
    let now = Instant::now();
    let mut link = Link { world, interrupted, last_received: now, last_sent: now, last_poll: now };
    link.send(MessageKind::Hello, host_name().as_bytes())?;
    let mut lines = Vec::new();
    let mut is_measured = false;
    loop {
        match link.poll()? {
            Some((MessageKind::Measure, content)) if !is_measured => {
                let names = String::from_utf8_lossy(&content).into_owned();
                let (fleet, name) = names.split_once('\n').unwrap_or(("", &names));
                let node = NodeName::new(rank, fleet, name, &args.options.results);
                let mut refused = Ok(None);
                let measured = measure_node(&node, interrupted, || {
                    if matches!(refused, Ok(None)) {
                        refused = link.poll();
                    } else {
                        // Relaxed: the flag publishes no other data.
                        interrupted.store(true, Ordering::Relaxed);
                    }
                });
                is_measured = true;
                // Rank 0 sends nothing else before the records but its end.
                if let Some((kind, content)) = refused? {
                    ensure!(
                        kind == MessageKind::End,
                        "rank 0 has sent {kind:?} while the node was measured"
                    );
                    return link.end(&content);
                }
                link.report(&measured)?;
                lines = measured.lines;
            }
            Some((MessageKind::Send, _)) => {
                for part in lines.chunks(CONTENT_BYTES_MAX) {
                    link.send(MessageKind::Part, part)?;
                }
                lines = Vec::new();
            }
            Some((MessageKind::End, content)) => return link.end(&content),
            Some((kind, _)) if has_crossed_report(kind, is_measured) => {}
            Some((kind, _)) => bail!("rank 0 has sent the unexpected message {kind:?}"),
            // Relaxed: the flag publishes no other data.
            None if interrupted.load(Ordering::Relaxed) && !is_measured => {
                is_measured = true;
                link.report(&MeasuredNode::failed("interrupted before it was measured"))?;
            }
            None => sleep(POLL_INTERVAL),
        }
    }
}

/// Returns `true` for the order to measure that rank 0 has sent before it received this rank's
/// report. A rank that is interrupted while it waits reports without an order.
fn has_crossed_report(kind: MessageKind, is_measured: bool) -> bool {
    kind == MessageKind::Measure && is_measured
}

impl Link<'_> {
    /// Reports the size of the node's records, and the failure, to rank 0.
    fn report(&mut self, measured: &MeasuredNode) -> anyhow::Result<()> {
        let failure: String = measured.failure.chars().take(FAILURE_CHARS_MAX).collect();
        self.send(MessageKind::Measured, format!("{} {failure}", measured.lines.len()).as_bytes())
    }

    /// Answers [`MessageKind::End`], whose content is `content`. Returns `true` if all ranks can
    /// finalise MPI.
    fn end(&mut self, content: &[u8]) -> anyhow::Result<bool> {
        self.send(MessageKind::Ended, b"")?;
        Ok(!content.is_empty())
    }
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// State of a rank, as far as rank 0 knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The rank has not yet sent the name of its host.
    Starting,
    /// The rank waits for its turn to measure.
    Waiting,
    /// The rank measures its node.
    Measuring,
    /// The rank has measured; its records were not requested yet.
    Measured,
    /// The rank's records were requested.
    Sending,
    /// Finished: no further messages are expected.
    Ended,
    /// The rank is dead or silent, and its records are lost.
    Lost,
}

/// Data that rank 0 keeps for each rank, including itself.
struct FleetRank {
    /// Name of the rank's host; empty until the rank has sent it.
    host: String,
    /// Name of the node; empty until all hosts are known.
    name: String,
    stage: Stage,
    /// Time of the last message from the rank.
    last_received: Instant,
    /// Size of the records in bytes, as the rank has reported it.
    bytes: usize,
    /// Records that have been received.
    lines: Vec<u8>,
    /// Description of the failure; empty for none.
    failure: String,
    /// `true` if the rank was told to stop measuring.
    is_stopped: bool,
}

/// Rank 0, which directs all ranks and stores their records.
struct Gatherer<'a> {
    /// MPI communicator of all ranks.
    world: &'a Mpi,
    store: &'a mut Store,
    interrupted: &'a AtomicBool,
    /// Name of the fleet. The runs of all its nodes have this name.
    fleet: String,
    ranks: Vec<FleetRank>,
    /// Number of nodes whose records are stored.
    stored_count: usize,
    /// Time of the last poll for messages.
    last_poll: Instant,
}

/// Directs the fleet as rank 0, stores the records of all nodes, and shows them. Also returns
/// `true` if MPI can be finalised.
fn gather_fleet(
    args: &RunArgs,
    world: &Mpi,
    ranks_count: u32,
    interrupted: &AtomicBool,
    out: &mut dyn Write,
) -> (anyhow::Result<()>, bool) {
    let mut lost = Vec::new();
    let outcome = open_store(args).and_then(|mut store| {
        let mut gatherer = Gatherer::new(world, &mut store, ranks_count, interrupted)?;
        gatherer.run(&args.options.results);
        lost = gatherer.lost_ranks();
        let failures = gatherer.failures();
        let (name, nodes_count) = (gatherer.fleet.clone(), gatherer.stored_count);
        let shown = show(args, &store, &name, nodes_count, out);
        let checked = check_interrupt(interrupted).map_err(anyhow::Error::from);
        let measured = checked.and_then(|()| match failures.len() {
            0 => Ok(()),
            count => {
                let failures = failures.join("; ");
                bail!("{count} of {ranks_count} nodes failed: {failures}")
            }
        });
        exit::join_results(measured, shown)
    });
    let can_finalise = lost.is_empty();
    let others = (1..ranks_count).filter(|rank| !lost.contains(rank)).collect();
    (outcome, end_ranks(world, others, can_finalise) && can_finalise)
}

/// Tells ranks to exit, and waits for their answers. Earlier messages are received too, since some
/// MPI libraries report unreceived ones as errors. Returns `false` if a rank does not answer.
fn end_ranks(world: &Mpi, mut ranks: Vec<u32>, can_finalise: bool) -> bool {
    let content: &[u8] = if can_finalise { b"finalise" } else { b"" };
    ranks.retain(|rank| send(world, *rank, MessageKind::End, content).is_ok());
    let began = Instant::now();
    while !ranks.is_empty() && began.elapsed() < SILENCE_MAX {
        ranks.retain(|rank| {
            !matches!(receive(world, *rank), Ok(Some((MessageKind::Ended, _))) | Err(_))
        });
        sleep(Duration::from_millis(1));
    }
    ranks.is_empty()
}

/// Opens the store for the records of all nodes.
fn open_store(args: &RunArgs) -> anyhow::Result<Store> {
    let results = &args.options.results;
    run::check_name(results)?;
    Store::open(stored::writable_store_path(&results.db)?).map_err(exit::store_error)
}

/// Prints the fleet, and the path of its store.
fn show(
    args: &RunArgs,
    store: &Store,
    name: &str,
    nodes_count: usize,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let results = &args.options.results;
    if nodes_count > 1 {
        let rules = Rules { all: results.all, ..Rules::default() };
        let fleet = fleet::load_fleet(store, name, rules)?;
        fleet::print(&fleet, results.json, results.all, out)?;
    }
    let (path, db) = (store.path().display(), db_option(store.path()));
    let line = format!(
        "{nodes_count} nodes of {name} are in {path}; `handover fleet {name}{db}` shows them"
    );
    match results.json {
        true => console::print_error(line),
        false => writeln!(out, "{line}")?,
    }
    Ok(())
}

impl<'a> Gatherer<'a> {
    fn new(
        world: &'a Mpi,
        store: &'a mut Store,
        ranks_count: u32,
        interrupted: &'a AtomicBool,
    ) -> anyhow::Result<Gatherer<'a>> {
        let started_us = unix_ns(SystemTime::now()).context(DATE_OUT_OF_RANGE)? / 1000;
        let now = Instant::now();
        let rank = |number: u32| FleetRank {
            host: if number == 0 { host_name() } else { String::new() },
            name: String::new(),
            stage: if number == 0 { Stage::Waiting } else { Stage::Starting },
            last_received: now,
            bytes: 0,
            lines: Vec::new(),
            failure: String::new(),
            is_stopped: false,
        };
        Ok(Gatherer {
            world,
            store,
            interrupted,
            fleet: format!("{}{started_us:x}-{:x}", fleet::NAME_PREFIX, std::process::id()),
            ranks: (0..ranks_count).map(rank).collect(),
            stored_count: 0,
            last_poll: now,
        })
    }

    /// Directs the fleet until every rank has ended or is lost. Measures this rank's node in its
    /// turn.
    fn run(&mut self, results: &ResultOptions) {
        while self.ranks.iter().any(|rank| !matches!(rank.stage, Stage::Ended | Stage::Lost)) {
            self.poll();
            if self.ranks[0].stage == Stage::Measuring {
                let (fleet, name) = (self.fleet.clone(), self.ranks[0].name.clone());
                let node = NodeName::new(0, &fleet, &name, results);
                let measured = measure_node(&node, self.interrupted, || self.poll());
                self.ranks[0].failure = measured.failure;
                self.ranks[0].lines = measured.lines;
                self.store_records(0);
            }
            sleep(POLL_INTERVAL);
        }
    }

    /// Receives the messages of all ranks, and assigns work to them. Does nothing within
    /// [`POLL_INTERVAL`] of the last call.
    fn poll(&mut self) {
        if self.last_poll.elapsed() < POLL_INTERVAL {
            return;
        }
        self.last_poll = Instant::now();
        for rank in 1..self.ranks.len() {
            let number = rank as u32;
            while self.ranks[rank].stage != Stage::Lost {
                match receive(self.world, number) {
                    Ok(Some((kind, content))) => self.handle(rank, kind, &content),
                    Ok(None) if self.ranks[rank].last_received.elapsed() > SILENCE_MAX => {
                        self.give_up(rank, &format!("it has sent no message for {SILENCE_MAX:?}"));
                    }
                    Ok(None) => break,
                    Err(error) => self.give_up(rank, &format!("{error:#}")),
                }
            }
        }
        self.assign_work();
    }

    /// Handles a message from a rank.
    fn handle(&mut self, rank: usize, kind: MessageKind, content: &[u8]) {
        let it = &mut self.ranks[rank];
        it.last_received = Instant::now();
        match (kind, it.stage) {
            (MessageKind::Alive, _) => self.send_to(rank, MessageKind::Alive, b""),
            (MessageKind::Hello, Stage::Starting) => {
                it.host = String::from_utf8_lossy(content).into_owned();
                it.stage = Stage::Waiting;
            }
            (MessageKind::Measured, Stage::Waiting | Stage::Measuring) => {
                let text = String::from_utf8_lossy(content);
                let (bytes, failure) = text.split_once(' ').unwrap_or((&text, ""));
                it.failure = failure.to_string();
                match bytes.parse() {
                    Ok(0) => self.store_records(rank),
                    Ok(bytes) if bytes <= NODE_BYTES_MAX => {
                        (it.bytes, it.stage) = (bytes, Stage::Measured);
                    }
                    _ => self.give_up(
                        rank,
                        &format!(
                            "its records have {bytes} bytes, and the maximum is {NODE_BYTES_MAX}"
                        ),
                    ),
                }
            }
            (MessageKind::Part, Stage::Sending) => {
                it.lines.extend_from_slice(content);
                if it.lines.len() >= it.bytes {
                    self.store_records(rank);
                }
            }
            (kind, stage) => {
                let why =
                    format!("it has sent the unexpected message {kind:?} in the state {stage:?}");
                self.give_up(rank, &why)
            }
        }
    }

    /// Lets one rank of each host measure, and one rank of the fleet send its records. After an
    /// interrupt, stops the measurements.
    fn assign_work(&mut self) {
        // Relaxed: the flag publishes no other data.
        if self.interrupted.load(Ordering::Relaxed) {
            self.stop_measurements();
        }
        if self.ranks.iter().any(|it| it.stage == Stage::Starting) {
            return;
        }
        if self.ranks[0].name.is_empty() {
            self.name_nodes();
        }
        let is_sending = |it: &FleetRank| it.stage == Stage::Sending;
        let measured = self.ranks.iter().position(|it| it.stage == Stage::Measured);
        if let (Some(rank), false) = (measured, self.ranks.iter().any(is_sending)) {
            self.ranks[rank].stage = Stage::Sending;
            self.send_to(rank, MessageKind::Send, b"");
        }
        for rank in 0..self.ranks.len() {
            let host = &self.ranks[rank].host;
            let is_at_work = |it: &FleetRank| {
                it.host == *host
                    && matches!(it.stage, Stage::Measuring | Stage::Measured | Stage::Sending)
            };
            if self.ranks[rank].stage == Stage::Waiting && !self.ranks.iter().any(is_at_work) {
                self.ranks[rank].stage = Stage::Measuring;
                if rank > 0 {
                    let names = format!("{}\n{}", self.fleet, self.ranks[rank].name);
                    self.send_to(rank, MessageKind::Measure, names.as_bytes());
                }
            }
        }
    }

    /// Tells the ranks to stop measuring.
    fn stop_measurements(&mut self) {
        if self.ranks[0].stage == Stage::Waiting {
            self.ranks[0].failure = "interrupted before it was measured".to_string();
            self.ranks[0].stage = Stage::Ended;
        }
        for rank in 1..self.ranks.len() {
            let it = &mut self.ranks[rank];
            if matches!(it.stage, Stage::Waiting | Stage::Measuring) && !it.is_stopped {
                it.is_stopped = true;
                self.send_to(rank, MessageKind::Stop, b"");
            }
        }
    }

    /// Names each node after its host; adds the rank if several nodes share the host.
    fn name_nodes(&mut self) {
        let hosts: Vec<String> = self.ranks.iter().map(|it| it.host.clone()).collect();
        for (rank, it) in self.ranks.iter_mut().enumerate() {
            let is_shared = hosts.iter().filter(|host| **host == it.host).count() > 1;
            it.name = if is_shared { format!("{}#{rank}", it.host) } else { it.host.clone() };
        }
    }

    /// Sends a message to a rank. Marks the rank as lost if this fails.
    fn send_to(&mut self, rank: usize, kind: MessageKind, content: &[u8]) {
        if let Err(error) = send(self.world, rank as u32, kind, content) {
            self.give_up(rank, &format!("{error:#}"));
        }
    }

    /// Stores the received records of a rank, and sets its state to [`Stage::Ended`].
    fn store_records(&mut self, rank: usize) {
        let all = self.ranks.len();
        let it = &mut self.ranks[rank];
        it.stage = Stage::Ended;
        let lines = std::mem::take(&mut it.lines);
        if lines.is_empty() {
            return;
        }
        match self.store.import(&mut &lines[..]) {
            Ok(imported) => {
                self.stored_count += 1;
                console::print_error(format_args!(
                    "{}: {} records are stored ({} of {all} nodes)",
                    it.name, imported.records, self.stored_count
                ));
            }
            Err(error) => it.failure = format!("its records could not be stored: {error}"),
        }
    }

    /// Marks a rank as lost. Records that are already stored are kept.
    fn give_up(&mut self, rank: usize, why: &str) {
        let it = &mut self.ranks[rank];
        it.stage = Stage::Lost;
        it.failure = format!("lost: {why}");
    }

    /// Returns the numbers of the ranks that are lost.
    fn lost_ranks(&self) -> Vec<u32> {
        let ranks = (0..).zip(&self.ranks);
        ranks.filter(|(_, it)| it.stage == Stage::Lost).map(|(rank, _)| rank).collect()
    }

    /// Returns a description of each failure, with the name of the node.
    fn failures(&self) -> Vec<String> {
        let failed = self.ranks.iter().enumerate().filter(|(_, it)| !it.failure.is_empty());
        failed
            .map(|(rank, it)| match it.name.as_str() {
                "" => format!("rank {rank}: {failure}", failure = it.failure),
                name => format!("{name}: {}", it.failure),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_to_measure_is_ignored_only_after_the_report() {
        for kind in MessageKind::ALL {
            assert!(!has_crossed_report(kind, false), "{kind:?}");
            assert_eq!(has_crossed_report(kind, true), kind == MessageKind::Measure, "{kind:?}");
        }
    }

    #[test]
    fn messages_are_read_although_a_character_is_cut_or_is_not_utf_8() {
        assert_eq!(read_messages(&b"no \xff text"[..]), "no \u{fffd} text");
        let mut long = vec![b'a'; STDERR_BYTES_MAX as usize - 1];
        long.extend_from_slice("é and more".as_bytes());
        let text = read_messages(&long[..]);
        assert_eq!(text.trim_end_matches('\u{fffd}').len(), long.len() - "é and more".len());
    }
}
