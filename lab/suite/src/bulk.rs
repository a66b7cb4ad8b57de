//! Memory of another process, moved in bulk: registered and mapped by both, plain, and over a stream.

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
    /// What is moved, out of how much, and how much at a time.
    pub struct Move {
        /// Bytes in each transfer.
        size_bytes: Bytes = 65536 (smoke 4096, range 256 ..= 67108864),
        /// Bytes on either side that are walked through, in turn; more than a cache holds.
        memory_bytes: Bytes = 67108864 (smoke 65536, range 256 ..= 1073741824),
        /// Transfers under way at a time.
        concurrency_count: u32 = 1 (smoke 2, range 1 ..= 1024),
    }
}

/// What both sides' memory is, and what lies between them.
const SHARED: u8 = 0;
const PLAIN: u8 = 1;
const TCP: u8 = 2;
/// As shared, and both parties copy a half of each transfer.
const HALVED: u8 = 3;

/// Two parties: one owns memory, the other moves it, `PUSHES` or pulls.
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

/// Other bytes for each side; a block of a prime length, so that no two pieces are alike.
fn fill(memory: &BulkMemory, side: u8) {
    let block: Vec<u8> = (0..65_521u32).map(|at| (at % 251) as u8 ^ side).collect();
    let mut at = 0;
    while at < memory.len_bytes() {
        let bytes = (memory.len_bytes() - at).min(block.len() as u64);
        memory.write(at, &block[..bytes as usize]); // No more than the block.
        at += bytes;
    }
}

impl<const KIND: u8, const PUSHES: bool> Moved<KIND, PUSHES> {
    /// Halves are another way to do the same.
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
    /// The floor of registered memory is a contender beside it.
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

/// Of many transfers at a time, how often all of them have ended in what is timed as one.
const TURNS_TIMED: u64 = 8;

/// Who moves it.
struct Mover {
    endpoint: Endpoint,
    peer: Peer,
    handle: BulkHandle,
    /// For the owner to copy its halves.
    ours: Option<BulkHandle>,
    memory: BulkMemory,
    pieces: Pieces,
    under_way: Vec<Transfer>,
}

impl Mover {
    /// One more transfer, by which as many are under way as may be, or one is done.
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
        // The first piece, as it is on the other side now, is that of the side that it comes from.
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
        // Once untimed: whatever is mapped is mapped then, and every page was touched.
        for _ in 0..self.pieces.memory_bytes / self.pieces.size_bytes {
            mover.step(PUSHES, 1)?;
        }
        // As many under way as there are all the time: beginning one takes less than one takes.
        for _ in 0..self.concurrency_count {
            mover.step(PUSHES, self.concurrency_count)?;
        }
        out.bytes_per_op(self.pieces.size_bytes as u64);
        if self.concurrency_count > 1 {
            // Many may end at the same moment, and none for a while: only what takes longer tells a rate.
            let n = TURNS_TIMED * self.concurrency_count as u64;
            // Once at least: what comes before may take as long as a round.
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

/// The bare copy between two mappings of the kind that is registered, with the stores of the widest kind; or
/// `HALVED` between the two participants, who tell each other by a word.
struct Copied<const HALVED_BETWEEN: bool, const PUSHES: bool> {
    owned: Mapped,
    moved: Mapped,
    pieces: Pieces,
    words: Region<[Bed; 2]>,
    manner: Manner,
}

/// What each side has in its memory.
const OWNED: u8 = 0xa5;
const MOVED: u8 = 0x5a;
/// Told in place of a piece: the round is over.
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

    /// Where the halves meet, on a whole block.
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
        // Once untimed, which touches every page.
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

/// The declarations of what is moved between memories that both processes have mapped.
#[cfg(feature = "mpi")]
pub(crate) const PULL_SPEC: Spec = <Moved<SHARED, false> as Handover>::SPEC;
#[cfg(feature = "mpi")]
pub(crate) const PUSH_SPEC: Spec = <Moved<SHARED, true> as Handover>::SPEC;

/// The benchmarks of this file.
pub const ALL: &[Bench] = &[
    Bench::many::<Moved<SHARED, false>>(Contender::ours("handover")),
    Bench::many::<Moved<HALVED, false>>(HALVES),
    Bench::many::<Copied<false, false>>(Contender::floor("copy")),
    Bench::many::<Copied<true, false>>(TWO_COPIES),
    Bench::many::<Moved<SHARED, true>>(Contender::ours("handover")),
    Bench::many::<Moved<HALVED, true>>(HALVES),
    Bench::many::<Copied<false, true>>(Contender::floor("copy")),
    Bench::many::<Copied<true, true>>(TWO_COPIES),
    // The mover copies, or has the kernel copy: nobody is waited for.
    Bench::many::<Moved<PLAIN, false>>(Contender::ours("handover")),
    Bench::many::<Moved<PLAIN, true>>(Contender::ours("handover")),
    Bench::many::<Moved<TCP, false>>(Contender::ours("handover").waits(Wait::SpinThenSleep)),
    Bench::many::<Moved<TCP, true>>(Contender::ours("handover").waits(Wait::SpinThenSleep)),
];

const HALVES: Contender = Contender::ours("halves").waits(Wait::SpinThenSleep);
const TWO_COPIES: Contender = Contender::floor("copy-halves").waits(Wait::SpinThenSleep);
