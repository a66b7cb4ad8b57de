//! Bulk transfer of the other participant's memory: registered and mapped by both, plain, and over
//! a stream.

use crate::common::{check_bytes_equal, ensure};
use crate::floor::transfer::PieceOffsets;
use crate::floor::wait_word::{WaitLine, WaitMode};
use crate::raw::bulk::{copy_from_process, copy_to_process};
use crate::raw::mapped::{self, Mapping};
use crate::rpc::PublishedAddress;
use handover_base::clock;
use handover_harness::{
    Bench, Fault, Handover, Participant, Region, Role, Samples, Setup, benches,
};
use handover_record::{Bytes, Spec, Wait, args};
use handover_rpc::{
    Bulk, BulkHandle, BulkMemory, BulkPart, Calling, Config, Context, Endpoint, Method, Peer,
    Rights, Transfer,
};

/// Procedure that returns the handle of the owner's memory.
const HANDLE_METHOD: Method = Method::new("handle");
/// Procedure that stops the owner.
const STOP_METHOD: Method = Method::new("stop");

args! {
    /// Arguments of the benchmarks of bulk transfers between the memories of two processes.
    pub struct BulkArgs {
        /// Bytes in each transfer.
        size_bytes: Bytes = 65536 (smoke 4096, range 256 ..= 67108864),
        /// Bytes of memory of each process; successive transfers advance through it.
        memory_bytes: Bytes = 67108864 (smoke 65536, range 256 ..= 1073741824),
        /// Transfers in flight.
        concurrency_count: u32 = 1 (smoke 2, range 1 ..= 1024),
    }
}

/// Kind of transfer: between memories that both participants have mapped.
const SHARED: u8 = 0;
/// Kind of transfer: between ordinary vectors of two processes.
const PLAIN: u8 = 1;
/// Kind of transfer: over loopback TCP.
const TCP: u8 = 2;

/// Workload: one process pushes to another's memory if `PUSHES`, otherwise pulls from it. If
/// `HALVES`, each participant copies one half of every transfer.
struct Transfers<const KIND: u8, const PUSHES: bool, const HALVES: bool> {
    owner_address: Region<PublishedAddress>,
    /// Offsets of successive transfers in both memories.
    pieces: PieceOffsets,
    concurrency_count: usize,
}

fn allocate_memory(kind: u8, bytes: usize) -> Result<BulkMemory, Fault> {
    match kind {
        PLAIN => Ok(BulkMemory::plain(vec![0; bytes])),
        _ => BulkMemory::shared(bytes).map_err(Fault::from_error),
    }
}

/// Fills the memory with a pattern that depends on `seed`. Its prime period makes the bytes of all
/// transfers differ.
fn fill(memory: &BulkMemory, seed: u8) {
    let block: Vec<u8> = (0..65_521u32).map(|at| (at % 251) as u8 ^ seed).collect();
    let mut at = 0;
    while at < memory.len_bytes() {
        let bytes = (memory.len_bytes() - at).min(block.len() as u64);
        memory.write(at, &block[..bytes as usize]); // At most the block's length.
        at += bytes;
    }
}

impl<const KIND: u8, const PUSHES: bool, const HALVES: bool> Transfers<KIND, PUSHES, HALVES> {
    /// Ids of the benchmarks, by kind and direction.
    const IDS: [[&'static str; 2]; 3] = [
        ["bulk/pull", "bulk/push"],
        ["bulk/plain-pull", "bulk/plain-push"],
        ["bulk/tcp-pull", "bulk/tcp-push"],
    ];
    const DESCRIPTIONS: [[&'static str; 2]; 3] = [
        [
            "size_bytes pulled from registered memory that both participants have mapped",
            "size_bytes pushed into registered memory that both participants have mapped",
        ],
        [
            "size_bytes pulled from unregistered memory of the other participant",
            "size_bytes pushed into unregistered memory of the other participant",
        ],
        [
            "size_bytes pulled over loopback TCP (the floor: a stream without pauses)",
            "size_bytes pushed over loopback TCP (the floor: a stream without pauses)",
        ],
    ];
    /// Ids of the floors, by kind and direction. `None` for shared memory, whose floor is a
    /// contender of the same benchmark. So is the floor of plain memory with `HALVES`.
    const FLOORS: [[Option<&'static str>; 2]; 3] = [
        [None, None],
        [Some("floor/process-copy"), Some("floor/process-copy-out")],
        [Some("floor/stream-adaptive"), Some("floor/stream-adaptive")],
    ];

    /// Serves the owner's memory until the mover calls `stop`.
    fn run_owner(&self) -> Result<(), Fault> {
        let mut owner = Endpoint::new(Config::default()).map_err(Fault::from_error)?;
        let memory = allocate_memory(KIND, self.pieces.memory_bytes)?;
        fill(&memory, 1);
        let handle =
            owner.register_memory(&memory, Rights::ReadWrite).map_err(Fault::from_error)?;
        let tells = move |_: &mut Context<'_>, ()| Ok(handle);
        owner.register("handle", 0, tells).map_err(Fault::from_error)?;
        let stops = |context: &mut Context<'_>, ()| {
            context.stop();
            Ok(())
        };
        owner.register("stop", 0, stops).map_err(Fault::from_error)?;
        let how = if KIND == TCP { "tcp://127.0.0.2:0" } else { "sm://" };
        let address =
            owner.listen(&how.parse().map_err(Fault::from_error)?).map_err(Fault::from_error)?;
        self.owner_address.publish(&address.to_string())?;
        owner.serve();
        Ok(())
    }

    /// Creates the mover's endpoint and memory, and connects to the owner.
    fn connect_mover(&self) -> Result<Mover, Fault> {
        let address = self.owner_address.wait()?.parse().map_err(Fault::from_error)?;
        let mut endpoint = Endpoint::new(Config::default()).map_err(Fault::from_error)?;
        let peer = endpoint.connect(&address).map_err(Fault::from_error)?;
        let handle = endpoint.call(peer, HANDLE_METHOD, &()).map_err(Fault::from_error)?;
        let memory = allocate_memory(KIND, self.pieces.memory_bytes)?;
        fill(&memory, 2);
        let mover_handle = match HALVES {
            true => Some(
                endpoint.register_memory(&memory, Rights::ReadWrite).map_err(Fault::from_error)?,
            ),
            false => None,
        };
        let (pieces, transfers_in_flight) =
            (self.pieces, Vec::with_capacity(self.concurrency_count));
        Ok(Mover { endpoint, peer, handle, mover_handle, memory, pieces, transfers_in_flight })
    }
}

/// Number of transfers in one sample, divided by the maximum number of transfers in flight.
const TRANSFERS_PER_IN_FLIGHT: u64 = 8;

/// State of the participant that pushes or pulls.
struct Mover {
    endpoint: Endpoint,
    peer: Peer,
    /// Handle of the owner's memory.
    handle: BulkHandle,
    /// Handle of the mover's memory; `Some` only if the owner copies one half of each transfer.
    mover_handle: Option<BulkHandle>,
    memory: BulkMemory,
    pieces: PieceOffsets,
    transfers_in_flight: Vec<Transfer>,
}

impl Mover {
    /// Performs the next transfer or, if `concurrency_count` exceeds 1, starts it. Before a start,
    /// waits until fewer than `concurrency_count` transfers are in flight.
    fn step(&mut self, is_push: bool, concurrency_count: usize) -> Result<(), Fault> {
        let Self { endpoint, peer, handle, memory, .. } = self;
        let at = self.pieces.next_offset() as u64;
        let part = BulkPart::new(self.pieces.size_bytes as u64).offsets(at, at);
        let part = self.mover_handle.as_ref().map_or(part, |it| part.halved(it));
        if concurrency_count == 1 {
            let result = match is_push {
                true => endpoint.push(*peer, handle, memory, part),
                false => endpoint.pull(*peer, handle, memory, part),
            };
            return result.map_err(Fault::from_error);
        }
        if self.transfers_in_flight.len() == concurrency_count
            && let Some((_, done)) = endpoint.wait_any_transfer(&mut self.transfers_in_flight)
        {
            done.map_err(Fault::from_error)?;
        }
        let started = match is_push {
            true => endpoint.start_push(*peer, handle, memory, part),
            false => endpoint.start_pull(*peer, handle, memory, part),
        };
        self.transfers_in_flight.push(started.map_err(Fault::from_error)?);
        Ok(())
    }

    /// Waits for all transfers, and stops the owner. Fails if the first transfer's bytes are wrong
    /// in either memory.
    fn end(&mut self, is_push: bool) -> Result<(), Fault> {
        while let Some((_, done)) = self.endpoint.wait_any_transfer(&mut self.transfers_in_flight) {
            done.map_err(Fault::from_error)?;
        }
        // The first piece, as the other side has it now, must be that of the side that it comes
        // from.
        let part = BulkPart::new(self.pieces.size_bytes as u64);
        let (came, right) = (
            BulkMemory::plain(vec![0; self.pieces.size_bytes]),
            BulkMemory::plain(vec![0; self.pieces.size_bytes]),
        );
        fill(&right, if is_push { 2 } else { 1 });
        self.endpoint.pull(self.peer, &self.handle, &came, part).map_err(Fault::from_error)?;
        let mut ours = vec![0; self.pieces.size_bytes];
        self.memory.read(0, &mut ours);
        let right = right.to_vec();
        check_bytes_equal(&came.to_vec(), &right)?;
        check_bytes_equal(&ours, &right)?;
        self.endpoint.call::<_, ()>(self.peer, STOP_METHOD, &()).map_err(Fault::from_error)
    }
}

impl<const KIND: u8, const PUSHES: bool, const HALVES: bool> Handover
    for Transfers<KIND, PUSHES, HALVES>
{
    type Args = BulkArgs;
    const SPEC: Spec = Spec {
        floor: Self::FLOORS[KIND as usize][PUSHES as usize],
        ladder: KIND == SHARED && !PUSHES,
        ..Spec::new(
            Self::IDS[KIND as usize][PUSHES as usize],
            Self::DESCRIPTIONS[KIND as usize][PUSHES as usize],
        )
        .classic("margo-p2p-bw")
        .hands_over()
        .batched()
    };
    const PROCESSES: bool = true;
    const ROLES: &'static [Role] = &[Role::measured("mover"), Role::serving("owner")];

    fn setup(args: &BulkArgs, setup: &mut Setup) -> Result<Self, Fault> {
        let pieces = PieceOffsets::new(args.size_bytes, args.memory_bytes);
        let concurrency_count = args.concurrency_count as usize;
        Ok(Self { owner_address: setup.shared_region()?, pieces, concurrency_count })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        if participant.index > 0 {
            return self.run_owner();
        }
        let mut mover = self.connect_mover()?;
        // Done once untimed: maps all memory and touches every page.
        for _ in 0..self.pieces.memory_bytes / self.pieces.size_bytes {
            mover.step(PUSHES, 1)?;
        }
        // Keeps the maximum number in progress: beginning a transfer takes less time than a
        // transfer.
        for _ in 0..self.concurrency_count {
            mover.step(PUSHES, self.concurrency_count)?;
        }
        out.set_bytes_per_op(self.pieces.size_bytes as u64);
        out.restart_round();
        if self.concurrency_count > 1 {
            // Many transfers may end at the same moment, and then none for a while: only a longer
            // time gives a rate.
            let n = TRANSFERS_PER_IN_FLIGHT * self.concurrency_count as u64;
            loop {
                let began = clock::ticks();
                (0..n).try_for_each(|_| mover.step(PUSHES, self.concurrency_count))?;
                out.record_batch(0, clock::ticks().saturating_sub(began), n);
                if !out.is_running() {
                    return mover.end(PUSHES);
                }
            }
        }
        let mut failed = None;
        out.time_batches(|n| {
            for _ in 0..n {
                if let Err(fault) = mover.step(PUSHES, self.concurrency_count) {
                    failed.get_or_insert(fault);
                    return;
                }
            }
        });
        match failed {
            Some(fault) => Err(fault),
            None => mover.end(PUSHES),
        }
    }
}

/// Division of the pieces between two participants that copy them: each copies one half.
struct PieceHalves {
    pieces: PieceOffsets,
    /// Two words: the number of pieces that the mover has requested, and the number that the owner
    /// has copied. The owner copies only the second half of each piece.
    line: Region<WaitLine<2>>,
    mode: WaitMode,
}

/// Byte with which the owner fills its memory.
const OWNER_BYTE: u8 = 0xa5;
/// Byte with which the mover fills its memory.
const MOVER_BYTE: u8 = 0x5a;
/// Value instead of a piece's number. The mover ends the round with it, and the owner says with it
/// that its memory is filled.
const END: u32 = u32::MAX;

impl PieceHalves {
    fn new(pieces: PieceOffsets, setup: &mut Setup) -> Result<Self, Fault> {
        let mode = WaitMode::new(Wait::SpinThenSleep, setup);
        Ok(Self { pieces, line: setup.shared_region()?, mode })
    }

    /// Returns the number of bytes of a piece that the mover copies. It is about a half, and a
    /// multiple of 256.
    fn half_bytes(&self) -> usize {
        self.pieces.size_bytes / 2 / 256 * 256
    }

    /// Copies pieces until the round ends; `copy` takes an offset and a length. If `both_copy`, the
    /// owner copies the second half of each piece.
    #[inline]
    fn run_mover(&self, both_copy: bool, mut copy: impl FnMut(usize, usize), out: &mut Samples) {
        let [asked, done] = &self.line.0;
        let mut pieces = self.pieces;
        let (mut turn, half) = (0, self.half_bytes());
        let mut step = || {
            let at = pieces.next_offset();
            if !both_copy {
                return copy(at, self.pieces.size_bytes);
            }
            turn += 1;
            asked.publish(turn, self.mode);
            copy(at, half);
            done.wait(self.mode, |it| it == turn);
        };
        // Done once untimed: touches every page.
        (0..self.pieces.memory_bytes / self.pieces.size_bytes).for_each(|_| step());
        out.set_bytes_per_op(self.pieces.size_bytes as u64);
        out.restart_round();
        out.time_batches(|n| (0..n).for_each(|_| step()));
        asked.publish(END, self.mode);
    }

    /// Copies the second half of each piece when the mover requests it. Returns at the end of the
    /// round.
    fn assist(&self, mut copy: impl FnMut(usize, usize)) {
        let [asked, done] = &self.line.0;
        let (mut pieces, mut turn) = (self.pieces, 0);
        let half = self.half_bytes();
        loop {
            turn += 1;
            let (number, _) = asked.wait(self.mode, |it| it == turn || it == END);
            if number == END {
                return;
            }
            let at = pieces.next_offset();
            copy(at + half, self.pieces.size_bytes - half);
            done.publish(turn, self.mode);
        }
    }
}

/// Floor: a plain copy between two shared mappings, with the widest stores. If `BOTH_COPY`, each
/// participant copies one half of every piece.
struct Copied<const BOTH_COPY: bool, const PUSHES: bool> {
    owner_memory: Mapping,
    mover_memory: Mapping,
    halves: PieceHalves,
}

impl<const BOTH_COPY: bool, const PUSHES: bool> Handover for Copied<BOTH_COPY, PUSHES> {
    type Args = BulkArgs;
    const SPEC: Spec = <Transfers<SHARED, PUSHES, false> as Handover>::SPEC;
    const PROCESSES: bool = true;
    const ROLES: &'static [Role] = &[Role::measured("mover"), Role::serving("owner")];

    fn setup(args: &BulkArgs, setup: &mut Setup) -> Result<Self, Fault> {
        let pieces = PieceOffsets::new_of_whole_blocks(args.size_bytes, args.memory_bytes)?;
        let mut map = || -> Result<Mapping, Fault> {
            let file = setup.shared_fd(|| Ok(mapped::create_memory_file(pieces.memory_bytes)?))?;
            Ok(Mapping::map(&file, pieces.memory_bytes)?)
        };
        let (owner_memory, mover_memory) = (map()?, map()?);
        Ok(Self { owner_memory, mover_memory, halves: PieceHalves::new(pieces, setup)? })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        let PieceHalves { pieces, line, mode } = &self.halves;
        let [_, done] = &line.0;
        let (from, to, byte) = match PUSHES {
            true => (&self.mover_memory, &self.owner_memory, MOVER_BYTE),
            false => (&self.owner_memory, &self.mover_memory, OWNER_BYTE),
        };
        let copy = |at, bytes| from.stream_to(to, at, bytes);
        if participant.index > 0 {
            self.owner_memory.fill(OWNER_BYTE);
            done.publish(END, *mode);
            if BOTH_COPY {
                self.halves.assist(copy);
            }
            return Ok(());
        }
        self.mover_memory.fill(MOVER_BYTE);
        done.wait(*mode, |it| it == END);
        self.halves.run_mover(BOTH_COPY, copy, out);
        let looked_at = [0, self.halves.half_bytes(), pieces.size_bytes - 1];
        let is_right = looked_at.iter().all(|&at| to.byte_at(at) == byte);
        ensure(is_right, || "the copied bytes differ from the source")
    }
}

/// Floor: the kernel's copy between the vectors of two processes. Each participant has the kernel
/// copy one half of every piece.
struct CopiedByKernel<const PUSHES: bool> {
    /// Process id and memory address of each participant, separated by a space.
    addresses: [Region<PublishedAddress>; 2],
    halves: PieceHalves,
}

impl<const PUSHES: bool> CopiedByKernel<PUSHES> {
    /// Publishes the address of the memory of the participant with that index. Returns the process
    /// id and the memory address of the other participant.
    fn exchange_addresses(&self, index: usize, memory: &[u8]) -> Result<(i32, u64), Fault> {
        let [own, other] = [&self.addresses[index], &self.addresses[1 - index]];
        own.publish(&format!("{} {}", std::process::id(), memory.as_ptr().addr()))?;
        let text = other.wait()?;
        let parsed = text
            .split_once(' ')
            .and_then(|(pid, address)| Some((pid.parse().ok()?, address.parse().ok()?)));
        parsed.ok_or_else(|| Fault::new("cannot parse the published address of the memory"))
    }
}

impl<const PUSHES: bool> Handover for CopiedByKernel<PUSHES> {
    type Args = BulkArgs;
    const SPEC: Spec = <Transfers<PLAIN, PUSHES, false> as Handover>::SPEC;
    const PROCESSES: bool = true;
    const ROLES: &'static [Role] = &[Role::measured("mover"), Role::serving("owner")];

    fn setup(args: &BulkArgs, setup: &mut Setup) -> Result<Self, Fault> {
        let pieces = PieceOffsets::new(args.size_bytes, args.memory_bytes);
        let addresses = [setup.shared_region()?, setup.shared_region()?];
        Ok(Self { addresses, halves: PieceHalves::new(pieces, setup)? })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        let is_owner = participant.index > 0;
        let (own_byte, other_byte) =
            if is_owner { (OWNER_BYTE, MOVER_BYTE) } else { (MOVER_BYTE, OWNER_BYTE) };
        let pieces = self.halves.pieces;
        let mut memory = vec![own_byte; pieces.memory_bytes];
        let (pid, address) = self.exchange_addresses(participant.index, &memory)?;
        // The mover's push is a copy out of its memory, and the owner's half of it one into its
        // own.
        let copies_out = PUSHES != is_owner;
        let mut failed = None;
        let copy = |at: usize, bytes: usize| {
            let (theirs, ours) = (address + at as u64, &mut memory[at..at + bytes]);
            let count = match copies_out {
                true => copy_to_process(pid, theirs, ours),
                false => copy_from_process(pid, theirs, ours),
            };
            let fault = match count {
                Ok(count) if count == bytes => return,
                Ok(_) => Fault::new("the kernel copied fewer bytes than requested"),
                Err(error) => Fault::from(error),
            };
            failed.get_or_insert(fault);
        };
        match is_owner {
            true => self.halves.assist(copy),
            false => self.halves.run_mover(true, copy, out),
        }
        if let Some(fault) = failed {
            return Err(fault);
        }
        let expected = if copies_out { own_byte } else { other_byte };
        let is_right = memory[..pieces.size_bytes].iter().all(|&byte| byte == expected);
        ensure(is_right, || "the copied bytes differ from the source")
    }
}

/// Declaration of the benchmark that pulls from memory that both processes have mapped.
#[cfg(feature = "mpi")]
pub(crate) const PULL_SPEC: Spec = <Transfers<SHARED, false, false> as Handover>::SPEC;
/// Declaration of the benchmark that pushes to memory that both processes have mapped.
#[cfg(feature = "mpi")]
pub(crate) const PUSH_SPEC: Spec = <Transfers<SHARED, true, false> as Handover>::SPEC;

/// Contenders of `bulk/pull`.
pub const PULL_BENCHES: &[Bench] = benches! {
    many ours "handover": Transfers<SHARED, false, false>;
    many ours "halves" SpinThenSleep: Transfers<SHARED, false, true>;
    many floor "copy": Copied<false, false>;
    many floor "copy-halves" SpinThenSleep: Copied<true, false>;
};

/// Contenders of `bulk/push`.
pub const PUSH_BENCHES: &[Bench] = benches! {
    many ours "handover": Transfers<SHARED, true, false>;
    many ours "halves" SpinThenSleep: Transfers<SHARED, true, true>;
    many floor "copy": Copied<false, true>;
    many floor "copy-halves" SpinThenSleep: Copied<true, true>;
};

/// All benchmarks of bulk transfers but `bulk/pull` and `bulk/push`.
pub const BENCHES: &[Bench] = benches! {
    // Without halves, the mover copies, or lets the kernel copy, without waiting.
    many ours "handover": Transfers<PLAIN, false, false>;
    many ours "halves" SpinThenSleep: Transfers<PLAIN, false, true>;
    many floor "copy-halves" SpinThenSleep: CopiedByKernel<false>;
    many ours "handover": Transfers<PLAIN, true, false>;
    many ours "halves" SpinThenSleep: Transfers<PLAIN, true, true>;
    many floor "copy-halves" SpinThenSleep: CopiedByKernel<true>;
    many ours "handover" SpinThenSleep: Transfers<TCP, false, false>;
    many ours "handover" SpinThenSleep: Transfers<TCP, true, false>;
};
