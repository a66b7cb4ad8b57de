//! MPI as a contender: this program started again by `mpiexec` as two ranks with a task.
//!
//! Rank 0 reads repeat counts from its standard input, and answers with the clock ticks used. The
//! rank thus takes the time itself, and no figure includes the communication between this process
//! and the ranks.

use super::Mpi;
use crate::bulk::BulkArgs;
use crate::common::{TakeCell, bytes_to_usize, ensure};
use handover_base::{affinity, clock, topology};
use handover_harness::{Bench, Fault, Handover, Participant, Role, Samples, Setup, benches};
use handover_record::Spec;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Environment variable with the task of a rank; set only in the ranks.
const RANK_VARIABLE: &str = "HANDOVER_MPI_RANK";

/// Index of Open MPI's launcher in `LAUNCHERS`.
const OPEN_MPI: u8 = 0;
/// Index of MPICH's launcher in `LAUNCHERS`.
const MPICH: u8 = 1;
/// Commands of the launchers.
const LAUNCHERS: [&str; 2] = ["mpiexec.openmpi", "mpiexec.mpich"];

/// Intended duration of a batch of operations, in ns.
const BATCH_NS: u64 = 50_000;
/// Byte with which each rank fills its memory, by rank.
const FILL_BYTES: [u8; 2] = [0x5a, 0xa5];

/// Operation that the ranks repeat: a round trip of a message, a read, or a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankOperation {
    /// An empty message to the other rank and back.
    PingPong,
    /// A read of the other rank's memory.
    Get,
    /// A write to the other rank's memory.
    Put,
}

impl RankOperation {
    /// All operations with their names.
    pub const ALL: [(&'static str, RankOperation); 3] = [
        ("ping-pong", RankOperation::PingPong),
        ("get", RankOperation::Get),
        ("put", RankOperation::Put),
    ];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|it| it.1 == self).map_or("", |it| it.0)
    }
}

/// Task that a rank reads from its environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankTask {
    /// Operation that the ranks repeat.
    pub operation: RankOperation,
    /// Bytes moved by one operation.
    pub size_bytes: usize,
    /// Bytes of memory that the operations use, piece by piece.
    pub memory_bytes: usize,
    /// CPU of each rank.
    pub cpus: [u32; 2],
}

impl RankTask {
    /// Formats the task as text for an environment variable.
    pub fn to_text(&self) -> String {
        let Self { operation, size_bytes, memory_bytes, cpus: [first_cpu, second_cpu] } = self;
        let operation = operation.name();
        format!("{operation} {size_bytes} {memory_bytes} {first_cpu} {second_cpu}")
    }

    /// Parses the result of [`to_text`](Self::to_text); `None` if it is not valid.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let name = words.next()?;
        let operation = RankOperation::ALL.iter().find(|it| it.0 == name)?.1;
        let mut number = || words.next()?.parse::<u64>().ok();
        let mut size = || usize::try_from(number()?).ok();
        let (size_bytes, memory_bytes) = (size()?, size()?);
        let mut cpu = || u32::try_from(number()?).ok();
        Some(Self { operation, size_bytes, memory_bytes, cpus: [cpu()?, cpu()?] })
    }
}

/// Runs as an MPI rank if this process was started as one, and returns the result. Returns `None`
/// otherwise. Must be called before anything else.
///
/// # Errors
/// Fails with the fault of the rank, which the launcher reports too.
pub fn dispatch_rank() -> Option<Result<(), Fault>> {
    let text = std::env::var(RANK_VARIABLE).ok()?;
    let task = RankTask::parse(&text).ok_or_else(|| {
        Fault::new(format!(
            "{RANK_VARIABLE}={text}: not a task for an MPI rank; unset this internal variable"
        ))
    });
    Some(task.and_then(|task| run_rank(&task)))
}

fn run_rank(task: &RankTask) -> Result<(), Fault> {
    let world = Mpi::init()?;
    let (rank, ranks_count) = world.rank_and_count()?;
    ensure(ranks_count == 2, || format!("started with {ranks_count} MPI ranks, but 2 are needed"))?;
    affinity::pin(task.cpus[rank as usize]).map_err(Fault::from_error)?;
    match task.operation {
        RankOperation::PingPong if rank == 0 => {
            serve_repeat_counts(|n| (0..n).try_for_each(|_| ping(&world)))?;
            world.send(1, &[1])?;
        }
        RankOperation::PingPong => echo(&world)?,
        RankOperation::Get | RankOperation::Put => run_transfers(&world, task, rank)?,
    }
    world.finalise()
}

/// Reads repeat counts from standard input, one per line. For each, performs that many operations
/// and prints their duration in clock ticks.
fn serve_repeat_counts(mut work: impl FnMut(u64) -> Result<(), Fault>) -> Result<(), Fault> {
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let n = line
            .trim()
            .parse()
            .map_err(|_| Fault::new(format!("the repeat count {line:?} is not a number")))?;
        let began = clock::ticks();
        work(n)?;
        let ticks = clock::ticks().saturating_sub(began);
        let mut out = std::io::stdout().lock();
        writeln!(out, "{ticks}")?;
        out.flush()?;
    }
    Ok(())
}

/// Sends an empty message to rank 1, and waits for its echo.
fn ping(world: &Mpi) -> Result<(), Fault> {
    world.send(1, &[])?;
    world.receive(1, &mut [])
}

/// Echoes empty messages until a message has content.
fn echo(world: &Mpi) -> Result<(), Fault> {
    let mut byte = [0];
    loop {
        world.receive(0, &mut byte)?;
        if byte[0] != 0 {
            return Ok(());
        }
        world.send(0, &[])?;
    }
}

/// Runs a rank's part of the transfers. Rank 0 reads or writes the memory of rank 1 piece by piece;
/// rank 1 waits.
fn run_transfers(world: &Mpi, task: &RankTask, rank: u32) -> Result<(), Fault> {
    let RankTask { size_bytes, memory_bytes, operation, .. } = *task;
    let memory_bytes = memory_bytes.max(size_bytes);
    let mut window = world.allocate_window(memory_bytes)?;
    window.fill(FILL_BYTES[rank as usize]);
    if rank == 1 {
        // Tells rank 0 that the window is filled, and waits until rank 0 has finished.
        world.send(0, &[])?;
        world.receive(0, &mut [])?;
        let came = window.first_byte();
        let right = if operation == RankOperation::Put { FILL_BYTES[0] } else { FILL_BYTES[1] };
        return ensure(came == Some(right), || {
            format!("the first byte of rank 1's memory is {came:?}, expected {right}")
        });
    }
    world.receive(1, &mut [])?;
    let mut memory = vec![FILL_BYTES[0]; memory_bytes];
    let mut at = 0;
    let mut one = || {
        let piece = &mut memory[at..at + size_bytes];
        let moved = match operation {
            RankOperation::Put => window.put(1, at, piece),
            _ => window.get(1, at, piece),
        };
        at += size_bytes;
        if at + size_bytes > memory_bytes {
            at = 0;
        }
        moved
    };
    // Done once untimed: touches every page.
    (0..memory_bytes / size_bytes).try_for_each(|_| one())?;
    let done = serve_repeat_counts(|n| (0..n).try_for_each(|_| one()));
    world.send(1, &[])?;
    done?;
    let right = if operation == RankOperation::Get { FILL_BYTES[1] } else { FILL_BYTES[0] };
    let is_right = memory[..size_bytes].iter().all(|&byte| byte == right);
    ensure(is_right, || "the received data differs from the data sent")
}

/// Process of the launcher that has started the ranks; killed on drop.
struct Ranks {
    child: Child,
    /// Standard input of the launcher, which passes it to rank 0.
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Drop for Ranks {
    fn drop(&mut self) {
        // Fails only if the child has exited, as intended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ranks {
    fn start(launcher: &str, task: &RankTask) -> Result<Self, Fault> {
        let mut command = Command::new(launcher);
        command.args(["-n", "2"]).arg(std::env::current_exe()?).env(RANK_VARIABLE, task.to_text());
        // Open MPI counts cores, so that two CPUs may be one slot, pins ranks to cores, and asks
        // root for two confirmations.
        for variable in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
            command.env(variable, "1");
        }
        command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
        command.env("OMPI_MCA_hwloc_base_binding_policy", "none");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // The ranks, and the threads of their library, go where this thread may, which is one CPU.
        let home = affinity::thread_cpus();
        affinity::set_thread_cpus(&topology::allowed_cpus()).map_err(Fault::from_error)?;
        let started = command.spawn();
        affinity::set_thread_cpus(&home).map_err(Fault::from_error)?;
        let mut child =
            started.map_err(|error| Fault::new(format!("cannot start {launcher}: {error}")))?;
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let from = from.ok_or_else(|| Fault::new("the ranks' standard output was not captured"))?;
        Ok(Self { child, stdin: to, stdout: BufReader::new(from) })
    }

    /// Makes the ranks perform `n` operations; returns the duration in clock ticks.
    fn run_batch(&mut self, n: u64) -> Result<u64, Fault> {
        let mut line = String::new();
        if let Some(to) = &mut self.stdin {
            writeln!(to, "{n}")?;
            to.flush()?;
        }
        self.stdout.read_line(&mut line)?;
        let ticks = line.trim().parse();
        ticks.map_err(|_| {
            Fault::new(format!(
                "the ranks printed {:?} instead of a number of clock ticks",
                line.trim()
            ))
        })
    }

    /// Ends the ranks; fails if the launcher reports an error.
    fn end(mut self) -> Result<(), Fault> {
        self.stdin = None;
        let status = self.child.wait()?;
        ensure(status.success(), || format!("mpiexec failed: {status}"))
    }
}

/// Two ranks that a launcher started during setup. To start them takes longer than a round.
struct LaunchedRanks<const LAUNCHER: u8> {
    size_bytes: usize,
    /// Ranks, and number of operations in a batch. The one round that uses them takes them.
    ranks: TakeCell<(Ranks, u64)>,
}

impl<const LAUNCHER: u8> LaunchedRanks<LAUNCHER> {
    fn start(task: RankTask) -> Result<Self, Fault> {
        let mut ranks = Ranks::start(LAUNCHERS[LAUNCHER as usize], &task)?;
        ranks.run_batch(100)?;
        let each_ns = clock::ns_from_ticks(ranks.run_batch(100)?).max(100) / 100;
        let n = (BATCH_NS / each_ns).max(1);
        Ok(Self { size_bytes: task.size_bytes, ranks: TakeCell::new((ranks, n)) })
    }

    /// Measures the ranks' operations until the round ends.
    fn measure(&self, out: &mut Samples) -> Result<(), Fault> {
        let (mut ranks, n) = self.ranks.take()?;
        while out.is_running() {
            out.record_batch(0, ranks.run_batch(n)?, n);
        }
        ranks.end()
    }
}

/// Returns the CPU of each rank: those of the participants, or a single one for both.
fn rank_cpus(setup: &Setup) -> [u32; 2] {
    match *setup.cpus() {
        [first, second, ..] => [first, second],
        [only] => [only, only],
        [] => [0, 0],
    }
}

/// Roles of a benchmark of MPI ranks. The ranks run on both participants' CPUs; the second
/// participant does nothing.
const MPI_ROLES: &[Role] = &[Role::measured("launcher"), Role::serving("nobody")];

/// Workload: round trips of empty messages, for comparison with a call without arguments.
struct PingPong<const LAUNCHER: u8>(LaunchedRanks<LAUNCHER>);

impl<const LAUNCHER: u8> Handover for PingPong<LAUNCHER> {
    type Args = ();
    const SPEC: Spec = crate::rpc::NOOP_SPEC;

    const ROLES: &'static [Role] = MPI_ROLES;

    fn setup((): &(), setup: &mut Setup) -> Result<Self, Fault> {
        let (operation, cpus) = (RankOperation::PingPong, rank_cpus(setup));
        LaunchedRanks::start(RankTask { operation, size_bytes: 0, memory_bytes: 0, cpus }).map(Self)
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        // Participant 0 tells rank 0 how often to repeat the round trip; rank 0 takes the time.
        if participant.index == 0 { self.0.measure(out) } else { Ok(()) }
    }
}

/// Workload: transfers by rank 0 into the memory of rank 1 if `PUSHES`, otherwise out of it. Both
/// ranks have mapped that memory.
struct RankTransfers<const LAUNCHER: u8, const PUSHES: bool>(LaunchedRanks<LAUNCHER>);

impl<const LAUNCHER: u8, const PUSHES: bool> Handover for RankTransfers<LAUNCHER, PUSHES> {
    type Args = BulkArgs;
    const SPEC: Spec = if PUSHES { crate::bulk::PUSH_SPEC } else { crate::bulk::PULL_SPEC };

    const ROLES: &'static [Role] = MPI_ROLES;

    fn setup(args: &BulkArgs, setup: &mut Setup) -> Result<Self, Fault> {
        let operation = if PUSHES { RankOperation::Put } else { RankOperation::Get };
        let (size_bytes, memory_bytes) =
            (bytes_to_usize(args.size_bytes), bytes_to_usize(args.memory_bytes));
        LaunchedRanks::start(RankTask {
            operation,
            size_bytes,
            memory_bytes,
            cpus: rank_cpus(setup),
        })
        .map(Self)
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        if participant.index > 0 {
            return Ok(());
        }
        out.set_bytes_per_op(self.0.size_bytes as u64);
        self.0.measure(out)
    }
}

/// Contenders of `rpc/noop` with MPI ranks, for Open MPI and MPICH.
pub const NOOP_BENCHES: &[Bench] = benches! {
    many peer "open-mpi" Spin: PingPong<OPEN_MPI>;
    many peer "mpich" Spin: PingPong<MPICH>;
};

/// Contenders of `bulk/pull` with MPI ranks.
pub const PULL_BENCHES: &[Bench] = benches! {
    many peer "open-mpi" Spin: RankTransfers<OPEN_MPI, false>;
    many peer "mpich" Spin: RankTransfers<MPICH, false>;
};

/// Contenders of `bulk/push` with MPI ranks.
pub const PUSH_BENCHES: &[Bench] = benches! {
    many peer "open-mpi" Spin: RankTransfers<OPEN_MPI, true>;
    many peer "mpich" Spin: RankTransfers<MPICH, true>;
};
