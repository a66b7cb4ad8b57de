//! Bulk transfer of another process's memory: registered and mapped by both, plain, and over a
//! stream.

use crate::floor::bed::{Bed, Manner};
use crate::floor::moved::Pieces;
use crate::raw::mapped::{self, Mapped};
use crate::rpc::{Place, fault};
use handover_base::clock;
use handover_harness::{Bench, Fault, Handover, Party, Region, Rig, Role, Samples};
use handover_record::{Bytes, Contender, Spec, Wait, args};
use handover_rpc::{
    Bulk, BulkHandle, BulkMemory, BulkPart, Calling, Config, Context, Endpoint, Method, Peer,
    Rights, Transfer,
};

const HANDLE: Method = Method::named("handle");
const STOP: Method = Method::named("stop");

args! {
    /// Size of the memory and of the transfers.
    pub struct Move {
        /// Bytes in each transfer.
        size_bytes: Bytes = 65536 (smoke 4096, range 256 ..= 67108864),
        /// Bytes on either side that are walked through, in turn; more than a cache holds.
        memory_bytes: Bytes = 67108864 (smoke 65536, range 256 ..= 1073741824),
        /// Transfers under way at a time.
        concurrency_count: u32 = 1 (smoke 2, range 1 ..= 1024),
    }
}

/// Kinds of the two sides' memory and of the path between them.
const SHARED: u8 = 0;
const PLAIN: u8 = 1;
const TCP: u8 = 2;
/// Like `SHARED`, and both participants copy one half of each transfer.
const HALVED: u8 = 3;

/// Two participants: one owns memory, the other pushes to it (`PUSHES`) or pulls from it.
struct Moved<const KIND: u8, const PUSHES: bool> {
    place: Region<Place>,
    pieces: Pieces,
    concurrency_count: usize,
}

fn memory(kind: u8, bytes: usize) -> Result<BulkMemory, Fault> {
    match kind {
        PLAIN => Ok(BulkMemory::plain(vec![0; bytes])),
        _ => BulkMemory::shared(bytes).map_err(fault),
    }
}

/// Fills the memory with different bytes for each side; a block of a prime length makes all pieces
/// different.
fn fill(memory: &BulkMemory, side: u8) {
    let block: Vec<u8> = (0..65_521u32).map(|at| (at % 251) as u8 ^ side).collect();
    let mut at = 0;
    while at < memory.len_bytes() {
        let bytes = (memory.len_bytes() - at).min(block.len() as u64);
        memory.write(at, &block[..bytes as usize]); // At most the block's length.
        at += bytes;
    }
}

impl<const KIND: u8, const PUSHES: bool> Moved<KIND, PUSHES> {
    /// `HALVED` is declared like `SHARED`: another way to do the same work.
    const DECLARED: usize = if KIND == HALVED { SHARED } else { KIND } as usize;
    const IDS: [[&'static str; 2]; 3] = [
        ["bulk/pull", "bulk/push"],
        ["bulk/plain-pull", "bulk/plain-push"],
        ["bulk/tcp-pull", "bulk/tcp-push"],
    ];
    const WHATS: [[&'static str; 2]; 3] = [
        [
            "size_bytes pulled from registered memory that both processes have mapped",
            "size_bytes pushed into registered memory that both processes have mapped",
        ],
        [
            "size_bytes pulled from a vector of another process",
            "size_bytes pushed into a vector of another process",
        ],
        [
            "size_bytes pulled over loopback TCP, from memory to memory",
            "size_bytes pushed over loopback TCP, from memory to memory",
        ],
    ];
    /// The floor of registered memory is a contender of the same benchmark.
    const FLOORS: [[Option<&'static str>; 2]; 3] = [
        [None, None],
        [Some("floor/process-copy"), Some("floor/process-copy-out")],
        [Some("floor/stream-adaptive"), Some("floor/stream-adaptive")],
    ];

    fn own(&self) -> Result<(), Fault> {
        let mut owner = Endpoint::new(Config::default()).map_err(fault)?;
        let memory = memory(KIND, self.pieces.memory_bytes)?;
        fill(&memory, 1);
        let handle = owner.register_memory(&memory, Rights::ReadWrite).map_err(fault)?;
        let tells = move |_: &mut Context<'_>, ()| Ok(handle);
        owner.register("handle", 0, tells).map_err(fault)?;
        let stops = |context: &mut Context<'_>, ()| {
            context.stop();
            Ok(())
        };
        owner.register("stop", 0, stops).map_err(fault)?;
        let how = if KIND == TCP { "tcp://127.0.0.1:0" } else { "sm://" };
        let address = owner.listen(&how.parse().map_err(fault)?).map_err(fault)?;
        self.place.tell(&address.to_string())?;
        owner.serve();
        Ok(())
    }

    fn meet(&self) -> Result<Mover, Fault> {
        let address = self.place.hear()?.parse().map_err(fault)?;
        let mut endpoint = Endpoint::new(Config::default()).map_err(fault)?;
        let peer = endpoint.connect(&address).map_err(fault)?;
        let handle = endpoint.call(peer, HANDLE, &()).map_err(fault)?;
        let memory = memory(KIND, self.pieces.memory_bytes)?;
        fill(&memory, 2);
        let ours = match KIND {
            HALVED => Some(endpoint.register_memory(&memory, Rights::ReadWrite).map_err(fault)?),
            _ => None,
        };
        let (pieces, under_way) = (self.pieces, Vec::with_capacity(self.concurrency_count));
        Ok(Mover { endpoint, peer, handle, ours, memory, pieces, under_way })
    }
}

/// With many transfers at a time, the number of times that all of them end within one sample.
const TURNS_TIMED: u64 = 8;

/// The participant that moves the memory.
struct Mover {
    endpoint: Endpoint,
    peer: Peer,
    handle: BulkHandle,
    /// The mover's own memory, registered so that the owner can copy its halves.
    ours: Option<BulkHandle>,
    memory: BulkMemory,
    pieces: Pieces,
    under_way: Vec<Transfer>,
}

impl Mover {
    /// Makes one transfer to its end or, if several may be in progress, begins one after waiting
    /// for a free place.
    fn step(&mut self, pushes: bool, concurrency_count: usize) -> Result<(), Fault> {
        let Self { endpoint, peer, handle, memory, .. } = self;
        let at = self.pieces.next() as u64;
        let part = BulkPart::of(self.pieces.size_bytes as u64).at(at, at);
        let part = self.ours.as_ref().map_or(part, |ours| part.halved(ours));
        if concurrency_count == 1 {
            let moved = match pushes {
                true => endpoint.push(*peer, handle, memory, part),
                false => endpoint.pull(*peer, handle, memory, part),
            };
            return moved.map_err(fault);
        }
        if self.under_way.len() == concurrency_count
            && let Some((_, done)) = endpoint.wait_any_transfer(&mut self.under_way)
        {
            done.map_err(fault)?;
        }
        let started = match pushes {
            true => endpoint.start_push(*peer, handle, memory, part),
            false => endpoint.start_pull(*peer, handle, memory, part),
        };
        self.under_way.push(started.map_err(fault)?);
        Ok(())
    }

    fn end(&mut self, pushes: bool) -> Result<(), Fault> {
        while let Some((_, done)) = self.endpoint.wait_any_transfer(&mut self.under_way) {
            done.map_err(fault)?;
        }
        // The first piece, as the other side has it now, must be that of the side that it comes
        // from.
        let part = BulkPart::of(self.pieces.size_bytes as u64);
        let (came, right) = (
            BulkMemory::plain(vec![0; self.pieces.size_bytes]),
            BulkMemory::plain(vec![0; self.pieces.size_bytes]),
        );
        fill(&right, if pushes { 2 } else { 1 });
        self.endpoint.pull(self.peer, &self.handle, &came, part).map_err(fault)?;
        let mut ours = vec![0; self.pieces.size_bytes];
        self.memory.read(0, &mut ours);
        let right = right.to_vec();
        if came.to_vec() != right || ours != right {
            return Err(Fault::new("what came is not what was sent"));
        }
        self.endpoint.call::<_, ()>(self.peer, STOP, &()).map_err(fault)
    }
}

impl<const KIND: u8, const PUSHES: bool> Handover for Moved<KIND, PUSHES> {
    type Args = Move;
    const SPEC: Spec = Spec {
        id: Self::IDS[Self::DECLARED][PUSHES as usize],
        what: Self::WHATS[Self::DECLARED][PUSHES as usize],
        floor: Self::FLOORS[Self::DECLARED][PUSHES as usize],
        classic: Some("margo-p2p-bw"),
        ladder: Self::DECLARED == SHARED as usize && !PUSHES,
        hands_over: true,
        batched: true,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };
    const PROCESSES: bool = true;

    fn roles(_: &Move) -> Vec<Role> {
        vec![Role::measured("mover"), Role::serving("owner")]
    }

    fn rig(args: &Move, rig: &mut Rig) -> Result<Self, Fault> {
        let pieces = Pieces::new(args.size_bytes, args.memory_bytes);
        let concurrency_count = args.concurrency_count as usize;
        Ok(Self { place: rig.region()?, pieces, concurrency_count })
    }

    fn play(&self, party: Party, out: &mut Samples) -> Result<(), Fault> {
        if party.index > 0 {
            return self.own();
        }
        let mut mover = self.meet()?;
        // Done once untimed: maps all memory and touches every page.
        for _ in 0..self.pieces.memory_bytes / self.pieces.size_bytes {
            mover.step(PUSHES, 1)?;
        }
        // Keeps the maximum number in progress: beginning a transfer takes less time than a
        // transfer.
        for _ in 0..self.concurrency_count {
            mover.step(PUSHES, self.concurrency_count)?;
        }
        out.bytes_per_op(self.pieces.size_bytes as u64);
        if self.concurrency_count > 1 {
            // Many transfers may end at the same moment, and then none for a while: only a longer
            // time gives a rate.
            let n = TURNS_TIMED * self.concurrency_count as u64;
            // At least once: the preparation may take as long as a round.
            loop {
                let began = clock::ticks();
                (0..n).try_for_each(|_| mover.step(PUSHES, self.concurrency_count))?;
                out.note_batch(0, clock::ticks().saturating_sub(began), n);
                if !out.running() {
                    return mover.end(PUSHES);
                }
            }
        }
        let mut failed = None;
        out.batches(|n| {
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

/// Floor: the bare copy between two mappings of the registered kind, with the widest stores; or, if
/// `HALVED_BETWEEN`, divided between the two participants, who signal each other through a word.
struct Copied<const HALVED_BETWEEN: bool, const PUSHES: bool> {
    owned: Mapped,
    moved: Mapped,
    pieces: Pieces,
    words: Region<[Bed; 2]>,
    manner: Manner,
}

/// Fill bytes of each side's memory.
const OWNED: u8 = 0xa5;
const MOVED: u8 = 0x5a;
/// Value in place of a piece: the round is over.
const END: u32 = u32::MAX;

impl<const HALVED_BETWEEN: bool, const PUSHES: bool> Copied<HALVED_BETWEEN, PUSHES> {
    #[inline]
    fn copy(&self, at: usize, bytes: usize) {
        let (from, to) = match PUSHES {
            true => (&self.moved, &self.owned),
            false => (&self.owned, &self.moved),
        };
        from.stream_to(to, at, bytes);
    }

    /// Returns the length of the first half, a multiple of a block.
    fn half_bytes(&self) -> usize {
        self.pieces.size_bytes / 2 / 256 * 256
    }

    fn assist(&self) {
        let [asked, done] = &*self.words;
        let (mut pieces, mut turn) = (self.pieces, 0);
        let half = self.half_bytes();
        loop {
            turn += 1;
            let (told, _) = asked.wait(self.manner, |it| it == turn || it == END);
            if told == END {
                return;
            }
            let at = pieces.next();
            self.copy(at + half, self.pieces.size_bytes - half);
            done.hand(turn, self.manner);
        }
    }
}

impl<const HALVED_BETWEEN: bool, const PUSHES: bool> Handover for Copied<HALVED_BETWEEN, PUSHES> {
    type Args = Move;
    const SPEC: Spec = <Moved<SHARED, PUSHES> as Handover>::SPEC;
    const PROCESSES: bool = true;

    fn roles(_: &Move) -> Vec<Role> {
        vec![Role::measured("mover"), Role::serving("owner")]
    }

    fn rig(args: &Move, rig: &mut Rig) -> Result<Self, Fault> {
        if !args.size_bytes.0.is_multiple_of(256) {
            return Err(Fault::new("size_bytes must be a multiple of 256"));
        }
        let pieces = Pieces::new(args.size_bytes, args.memory_bytes);
        let mut map = || -> Result<Mapped, Fault> {
            let file = rig.fd(|| Ok(mapped::file(pieces.memory_bytes)?))?;
            Ok(Mapped::of(&file, pieces.memory_bytes)?)
        };
        let (owned, moved) = (map()?, map()?);
        let manner = Manner::of(Wait::SpinThenSleep, rig);
        Ok(Self { owned, moved, pieces, words: rig.region()?, manner })
    }

    fn play(&self, party: Party, out: &mut Samples) -> Result<(), Fault> {
        let [asked, done] = &*self.words;
        if party.index > 0 {
            self.owned.fill(OWNED);
            done.hand(END, self.manner);
            if HALVED_BETWEEN {
                self.assist();
            }
            return Ok(());
        }
        self.moved.fill(MOVED);
        done.wait(self.manner, |it| it == END);
        let mut pieces = self.pieces;
        let (mut turn, half) = (0, self.half_bytes());
        let mut step = || {
            let at = pieces.next();
            if !HALVED_BETWEEN {
                return self.copy(at, self.pieces.size_bytes);
            }
            turn += 1;
            asked.hand(turn, self.manner);
            self.copy(at, half);
            done.wait(self.manner, |it| it == turn);
        };
        // Done once untimed: touches every page.
        (0..self.pieces.memory_bytes / self.pieces.size_bytes).for_each(|_| step());
        out.bytes_per_op(self.pieces.size_bytes as u64);
        out.batches(|n| (0..n).for_each(|_| step()));
        asked.hand(END, self.manner);
        let (to, byte) = if PUSHES { (&self.owned, MOVED) } else { (&self.moved, OWNED) };
        match [0, half, self.pieces.size_bytes - 1].iter().all(|&at| to.byte(at) == byte) {
            true => Ok(()),
            false => Err(Fault::new("the copy differs")),
        }
    }
}

/// Declarations of transfers between memories that both processes have mapped.
#[cfg(feature = "mpi")]
pub(crate) const PULL_SPEC: Spec = <Moved<SHARED, false> as Handover>::SPEC;
#[cfg(feature = "mpi")]
pub(crate) const PUSH_SPEC: Spec = <Moved<SHARED, true> as Handover>::SPEC;

/// The bulk benchmarks.
pub const ALL: &[Bench] = &[
    Bench::many::<Moved<SHARED, false>>(Contender::ours("handover")),
    Bench::many::<Moved<HALVED, false>>(HALVES),
    Bench::many::<Copied<false, false>>(Contender::floor("copy")),
    Bench::many::<Copied<true, false>>(TWO_COPIES),
    Bench::many::<Moved<SHARED, true>>(Contender::ours("handover")),
    Bench::many::<Moved<HALVED, true>>(HALVES),
    Bench::many::<Copied<false, true>>(Contender::floor("copy")),
    Bench::many::<Copied<true, true>>(TWO_COPIES),
    // The mover copies, or lets the kernel copy, without waiting.
    Bench::many::<Moved<PLAIN, false>>(Contender::ours("handover")),
    Bench::many::<Moved<PLAIN, true>>(Contender::ours("handover")),
    Bench::many::<Moved<TCP, false>>(Contender::ours("handover").waits(Wait::SpinThenSleep)),
    Bench::many::<Moved<TCP, true>>(Contender::ours("handover").waits(Wait::SpinThenSleep)),
];

const HALVES: Contender = Contender::ours("halves").waits(Wait::SpinThenSleep);
const TWO_COPIES: Contender = Contender::floor("copy-halves").waits(Wait::SpinThenSleep);
