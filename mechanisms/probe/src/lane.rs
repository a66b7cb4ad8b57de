//! A lane: the ring into which one thread writes its events, and from which one other may read them.
//!
//! ```text
//!  block   │ seq │ base │ recorded │ lost │ event │ event │ value │ event │ … │ 0 │ 0 │     512 words
//!  event   │ ticks since the block's base : 44 │ site's number : 18 │ form : 2 │          and its values
//! ```
//!
//! **A word says itself whether it is there.** A block is cleared before it is used, an event is never
//! zero, and its values are stored before it: what is read as not zero is complete. So nothing is
//! published apart, nothing is shared but the words, and a process that is killed leaves a ring that can
//! be read up to its last event.
//!
//! **A block stands for itself.** Its base is a full time stamp, so that events need 44 bits (two hours),
//! and its first word its number, so that a reader of the bare ring finds the oldest. An event does not
//! straddle blocks.
//!
//! Time is an argument, and the words are a trait, so that the protocol is model-checked as it stands
//! (`tests/model.rs`).
//!
//! Source: the state beside the value is FastForward's (Giacomoni, Moseley, Vachharajani, PPoPP 2008).

use handover_base::sync::Arc;
use handover_base::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};
use std::cell::Cell;

/// Words in a block, its header included; fewer under the model and under Miri, which have no files.
pub const BLOCK_WORDS: u64 = if cfg!(handover_loom) {
    6
} else if cfg!(miri) {
    16
} else {
    512
};
/// Words of a block's header: number, base, and how many events were recorded and lost before it.
pub const BLOCK_HEADER_WORDS: u64 = 4;
/// Bits of an event below its time.
pub const CODE_BITS: u32 = 20;
/// Time since the block's base that an event can hold, in ticks.
pub const DELTA_END: u64 = 1 << (64 - CODE_BITS);
/// The lowest two bits of an event without values.
pub const FORM_PLAIN: u64 = 0;
/// ... of one with a value behind it, and with two.
pub const FORM_VALUE: u64 = 1;
/// Two values.
pub const FORM_VALUES: u64 = 2;
/// ... of the end of a span.
pub const FORM_LEAVE: u64 = 3;

/// How many words an event with these lowest bits takes.
#[inline(always)]
#[must_use]
pub fn words_of(event: u64) -> u64 {
    match event & 3 {
        FORM_VALUE => 2,
        FORM_VALUES => 3,
        _ => 1,
    }
}

/// The memory of a lane: a power of two of words, addressed by positions that only grow.
pub trait Words {
    /// How many there are.
    fn count(&self) -> u64;
    /// The word at `position`, modulo their number. Acquire: pairs with [`store`](Words::store), so
    /// that who sees an event sees its values.
    fn load(&self, position: u64) -> u64;
    /// Release: publishes what was stored before to [`load`](Words::load).
    fn store(&self, position: u64, word: u64);
    /// Makes words zero; nobody reads them at the time, or whoever does will notice by the block's number.
    fn clear(&self, position: u64, count: u64);
    /// Leaves word, for who finds the ring after a crash, of how many events were recorded and lost.
    fn note(&self, recorded: u64, lost: u64);
    /// Returns `false` if what is stored reaches nobody any more.
    fn is_intact(&self) -> bool {
        true
    }
}

const OPEN: u8 = 0;
const FAILED: u8 = 1;
const CLOSED: u8 = 2;

/// What becomes of an event for which there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// It takes the place of the oldest block; nobody drains such a lane.
    Overwrite,
    /// It is lost, and counted.
    Lose,
    /// Its thread is told, and may wait.
    Wait,
}

/// What a lane's writer and whoever drains and closes it share.
#[derive(Debug)]
pub struct Lane<W> {
    words: W,
    /// The position that the writer may not reach; zero sends it to the slow path.
    limit: AtomicU64,
    /// Blocks that the drainer has done with.
    drained_blocks: AtomicU64,
    /// As far as the writer knows; exact once it has gone.
    recorded: AtomicU64,
    lost: AtomicU64,
    /// Events of signal handlers that interrupted the writer.
    interrupted: AtomicU64,
    state: AtomicU8,
    when_full: WhenFull,
}

impl<W: Words> Lane<W> {
    /// An empty lane over `words`, which are zero.
    ///
    /// # Panics
    /// When they are fewer than two blocks, or no whole number of them.
    pub fn new(words: W, when_full: WhenFull) -> Self {
        let count = words.count();
        assert!(count >= 2 * BLOCK_WORDS && count.is_multiple_of(BLOCK_WORDS));
        Self {
            words,
            limit: AtomicU64::new(0),
            drained_blocks: AtomicU64::new(0),
            recorded: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            interrupted: AtomicU64::new(0),
            state: AtomicU8::new(OPEN),
            when_full,
        }
    }

    /// The lane's memory.
    pub fn words(&self) -> &W {
        &self.words
    }

    /// Nothing is recorded from now on; the writer gives the lane up at its next event. An event that is
    /// being recorded at this moment may still appear.
    pub fn close(&self) {
        self.shut(CLOSED);
    }

    /// Nothing is recorded from now on; events are counted as lost.
    pub fn fail(&self) {
        self.shut(FAILED);
    }

    fn shut(&self, state: u8) {
        self.state.store(state, Ordering::Relaxed);
        // SeqCst: pairs with the fence in begin_block(). Either the writer sees the state behind its
        // fence, or this zero comes after its limit.
        fence(Ordering::SeqCst);
        self.limit.store(0, Ordering::Relaxed);
    }

    /// Whether [`close`](Lane::close) was called.
    pub fn is_closed(&self) -> bool {
        self.state.load(Ordering::Relaxed) == CLOSED
    }

    /// Events that were recorded, those since overwritten included, and events that were lost. Exact
    /// once the writer has gone; before that the first may be a block behind.
    pub fn counts(&self) -> (u64, u64) {
        let lost = self.lost.load(Ordering::Relaxed) + self.interrupted.load(Ordering::Relaxed);
        (self.recorded.load(Ordering::Relaxed), lost)
    }

    /// Counts an event of a signal handler that has interrupted the writer, which cannot write it then.
    pub fn count_interrupted(&self) {
        // Relaxed: a count; that of the writer is another, which it may be about to change.
        self.interrupted.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a block may be begun, when so many are drained.
    fn is_free(&self, block: u64, drained: u64) -> bool {
        block - drained < self.words.count() / BLOCK_WORDS
    }

    /// Counts what is in the ring: the events that it holds, and all that were ever recorded. Exact
    /// while nobody writes.
    pub fn survey(&self) -> (u64, u64) {
        let blocks = self.words.count() / BLOCK_WORDS;
        let numbers = (0..blocks).map(|block| (self.words.load(block * BLOCK_WORDS), block));
        let begun = numbers.filter(|(number, _)| *number != 0);
        let before = |block: u64| self.words.load(block * BLOCK_WORDS + 2);
        let Some((_, oldest)) = begun.clone().min() else { return (0, 0) };
        let newest = begun.max().map_or(oldest, |(_, block)| block) * BLOCK_WORDS;
        let mut recorded = before(newest / BLOCK_WORDS);
        let mut at = newest + BLOCK_HEADER_WORDS;
        while at < newest + BLOCK_WORDS && self.words.load(at) != 0 {
            at += words_of(self.words.load(at));
            recorded += 1;
        }
        (recorded.saturating_sub(before(oldest)), recorded)
    }
}

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrote {
    /// It is in the ring.
    Recorded,
    /// There was no room, or recording has failed: it is counted.
    Lost,
    /// There is no room, and it is not counted: it may be tried again once there [is](Writer::has_room), or
    /// [given up](Writer::give_up).
    Full,
    /// The lane is closed, and the event not counted: its writer should be dropped.
    Closed,
}

/// The end of a lane into which its thread writes.
#[derive(Debug)]
pub struct Writer<W: Words> {
    lane: Arc<Lane<W>>,
    cursor: Cell<u64>,
    base: Cell<u64>,
    /// Where the block's first event stands, and how many words from there on are values.
    block_start: Cell<u64>,
    values_count: Cell<u64>,
    blocks_count: Cell<u64>,
    /// Events in the blocks before.
    recorded: Cell<u64>,
    lost: Cell<u64>,
    /// It has waited for room in vain, and loses what comes until there is some.
    has_given_up: Cell<bool>,
}

impl<W: Words> Writer<W> {
    /// The only writer of `lane`, which nobody has written to.
    pub fn new(lane: Arc<Lane<W>>) -> Self {
        let zero = || Cell::new(0);
        Self {
            lane,
            cursor: zero(),
            base: zero(),
            block_start: zero(),
            values_count: zero(),
            blocks_count: zero(),
            recorded: zero(),
            lost: zero(),
            has_given_up: Cell::new(false),
        }
    }

    /// Its lane.
    pub fn lane(&self) -> &Arc<Lane<W>> {
        &self.lane
    }

    /// Records an event without values: `code` is the site's number, shifted by two, and the form.
    #[inline(always)]
    pub fn write(&self, code: u64, now_ticks: u64) -> Wrote {
        match self.begin(now_ticks, 1) {
            Ok((at, ticks)) => {
                self.lane.words.store(at, ticks << CODE_BITS | code);
                Wrote::Recorded
            }
            Err(refused) => refused,
        }
    }

    /// Records an event with one value.
    #[inline(always)]
    pub fn write_1(&self, code: u64, now_ticks: u64, value: u64) -> Wrote {
        match self.begin(now_ticks, 2) {
            Ok((at, ticks)) => {
                self.lane.words.store(at + 1, value);
                self.lane.words.store(at, ticks << CODE_BITS | code | FORM_VALUE);
                Wrote::Recorded
            }
            Err(refused) => refused,
        }
    }

    /// Records an event with two values.
    #[inline(always)]
    pub fn write_2(&self, code: u64, now_ticks: u64, values: [u64; 2]) -> Wrote {
        match self.begin(now_ticks, 3) {
            Ok((at, ticks)) => {
                self.lane.words.store(at + 1, values[0]);
                self.lane.words.store(at + 2, values[1]);
                self.lane.words.store(at, ticks << CODE_BITS | code | FORM_VALUES);
                Wrote::Recorded
            }
            Err(refused) => refused,
        }
    }

    /// Takes `count` words: the position of the first, and the time since the block's base.
    #[inline(always)]
    fn begin(&self, now_ticks: u64, count: u64) -> Result<(u64, u64), Wrote> {
        let at = self.cursor.get();
        let ticks = now_ticks.wrapping_sub(self.base.get());
        // Relaxed: the limit hands nothing over. That the drainer has left a block is acquired in
        // begin_block(), and a limit of zero only leads there.
        if at + count > self.lane.limit.load(Ordering::Relaxed) || ticks >= DELTA_END {
            return self.begin_slowly(now_ticks, count);
        }
        self.cursor.set(at + count);
        if count > 1 {
            self.values_count.set(self.values_count.get() + count - 1);
        }
        Ok((at, ticks))
    }

    #[cold]
    #[inline(never)]
    fn begin_slowly(&self, now_ticks: u64, count: u64) -> Result<(u64, u64), Wrote> {
        let behind = self.base.get().wrapping_sub(now_ticks);
        // Another CPU's counter may be behind by a hair: no time has passed, then.
        let now_ticks = if behind < DELTA_END { self.base.get() } else { now_ticks };
        let ticks = now_ticks.wrapping_sub(self.base.get());
        let fits = self.cursor.get() + count <= self.lane.limit.load(Ordering::Relaxed);
        if !(fits && ticks < DELTA_END) {
            self.begin_block(now_ticks)?;
        }
        let at = self.cursor.get();
        self.cursor.set(at + count);
        self.values_count.set(self.values_count.get() + count - 1);
        Ok((at, now_ticks.wrapping_sub(self.base.get())))
    }

    fn begin_block(&self, now_ticks: u64) -> Result<(), Wrote> {
        let lane = &*self.lane;
        match lane.state.load(Ordering::Relaxed) {
            OPEN if lane.words.is_intact() => {}
            OPEN | FAILED => return Err(self.lose()),
            _ => return Err(Wrote::Closed),
        }
        let block = self.blocks_count.get();
        // Acquire: pairs with Release in Drainer::release(), which has read the block that is overwritten.
        let drained = lane.drained_blocks.load(Ordering::Acquire);
        if lane.when_full != WhenFull::Overwrite && !lane.is_free(block, drained) {
            let waits = lane.when_full == WhenFull::Wait && !self.has_given_up.get();
            return Err(if waits { Wrote::Full } else { self.lose() });
        }
        self.has_given_up.set(false);
        self.recorded.set(self.recorded_now());
        // Only this thread writes the count.
        lane.recorded.store(self.recorded.get(), Ordering::Relaxed);
        lane.words.note(self.recorded.get(), lane.counts().1);
        let start = block * BLOCK_WORDS;
        lane.words.clear(start, BLOCK_WORDS);
        lane.words.store(start + 1, now_ticks);
        lane.words.store(start + 2, self.recorded.get());
        lane.words.store(start + 3, lane.counts().1);
        lane.words.store(start, block + 1);
        self.blocks_count.set(block + 1);
        self.base.set(now_ticks);
        self.cursor.set(start + BLOCK_HEADER_WORDS);
        self.block_start.set(start + BLOCK_HEADER_WORDS);
        self.values_count.set(0);
        lane.limit.store(start + BLOCK_WORDS, Ordering::Relaxed);
        // SeqCst: pairs with the fence in shut(), whose zero comes after our limit unless we see its
        // state here.
        fence(Ordering::SeqCst);
        if lane.state.load(Ordering::Relaxed) != OPEN {
            lane.limit.store(0, Ordering::Relaxed);
            return self.begin_block(now_ticks);
        }
        Ok(())
    }

    /// Whether an event for which there was no room would find some, or would be refused for another reason.
    pub fn has_room(&self) -> bool {
        let lane = &*self.lane;
        // Acquire: pairs with Release in Drainer::release(), as in begin_block().
        let drained = lane.drained_blocks.load(Ordering::Acquire);
        let is_open = lane.state.load(Ordering::Relaxed) == OPEN;
        !is_open || lane.is_free(self.blocks_count.get(), drained)
    }

    /// Counts an event that was waited for in vain. Those after it do not wait, until there is room.
    pub fn give_up(&self) -> Wrote {
        self.has_given_up.set(true);
        self.lose()
    }

    /// Counts an event that has no place.
    fn lose(&self) -> Wrote {
        self.lost.set(self.lost.get() + 1);
        // Only this thread writes the count.
        self.lane.lost.store(self.lost.get(), Ordering::Relaxed);
        self.lane.words.note(self.recorded_now(), self.lane.counts().1);
        Wrote::Lost
    }

    /// Events recorded so far.
    fn recorded_now(&self) -> u64 {
        let words = self.cursor.get() - self.block_start.get();
        self.recorded.get() + words - self.values_count.get()
    }
}

impl<W: Words> Drop for Writer<W> {
    fn drop(&mut self) {
        let recorded = self.recorded_now();
        self.lane.recorded.store(recorded, Ordering::Relaxed);
        self.lane.words.note(recorded, self.lane.counts().1);
    }
}

/// An event as it is read from a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Its time stamp.
    pub ticks: u64,
    /// The site's number, shifted by two, and the form.
    pub code: u64,
    /// The first as many as the form says.
    pub values: [u64; 2],
}

/// The end of a lane that does not overwrite, from which one thread reads.
#[derive(Debug, Clone, Default)]
pub struct Drainer {
    block: u64,
    /// Where the next event is looked for; in no block yet when zero.
    position: u64,
    base: u64,
    lost_before: u64,
}

impl Drainer {
    /// The next event; `None` while there is none.
    #[inline]
    pub fn next<W: Words>(&mut self, lane: &Lane<W>) -> Option<Drained> {
        let words = &lane.words;
        loop {
            if !self.enter(words) {
                return None;
            }
            let end = (self.block + 1) * BLOCK_WORDS;
            if self.position < end {
                let event = words.load(self.position);
                if event != 0 {
                    return Some(self.take(words, event));
                }
                // Yet to come, unless the next block has begun and there still is nothing here.
                if words.load(end) != self.block + 2 {
                    return None;
                }
                if words.load(self.position) != 0 {
                    continue;
                }
            }
            self.block += 1;
        }
    }

    /// Copies the rest of the block in which it reads, and says what its times count from, if nothing more
    /// comes into that block. What is behind the last event is zero. It is read once it is
    /// [passed](Drainer::pass).
    #[inline]
    pub fn rest<'a, W: Words>(
        &mut self,
        lane: &Lane<W>,
        to: &'a mut [u64; BLOCK_WORDS as usize],
    ) -> Option<(u64, &'a [u64])> {
        let words = &lane.words;
        let end = (self.block + 1) * BLOCK_WORDS;
        // The next block is begun behind the last event of this one.
        if !self.enter(words) || words.load(end) != self.block + 2 {
            return None;
        }
        let rest = &mut to[..(end - self.position) as usize];
        for (at, word) in (self.position..).zip(rest.iter_mut()) {
            *word = words.load(at);
        }
        Some((self.base, rest))
    }

    /// Goes on behind what [`rest`](Drainer::rest) has given.
    pub fn pass(&mut self) {
        self.block += 1;
        self.position = self.block * BLOCK_WORDS;
    }

    /// Whether its block has been begun; then it stands at an event, or where one will be.
    #[inline]
    fn enter<W: Words>(&mut self, words: &W) -> bool {
        let start = self.block * BLOCK_WORDS;
        if self.position < start + BLOCK_HEADER_WORDS {
            if words.load(start) != self.block + 1 {
                return false;
            }
            self.base = words.load(start + 1);
            self.lost_before = words.load(start + 3);
            self.position = start + BLOCK_HEADER_WORDS;
        }
        true
    }

    #[inline]
    fn take<W: Words>(&mut self, words: &W, event: u64) -> Drained {
        let count = words_of(event);
        let value = |index: u64| if index < count { words.load(self.position + index) } else { 0 };
        let values = [value(1), value(2)];
        self.position += count;
        let ticks = self.base.wrapping_add(event >> CODE_BITS);
        Drained { ticks, code: event & ((1 << CODE_BITS) - 1), values }
    }

    /// Whether more than `blocks_count` blocks are there to be read.
    pub fn is_behind<W: Words>(&self, lane: &Lane<W>, blocks_count: u64) -> bool {
        let block = self.block + blocks_count;
        lane.words.load(block * BLOCK_WORDS) == block + 1
    }

    /// Up to where it has read: a word's position.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Events that were lost before the block in which it reads.
    pub fn lost_before(&self) -> u64 {
        self.lost_before
    }

    /// Lets the writer have what was read; what is read is in safety, then.
    pub fn release<W: Words>(&self, lane: &Lane<W>) {
        // Release: pairs with Acquire in Writer::begin_block(); what we read, we read before.
        lane.drained_blocks.store(self.position / BLOCK_WORDS, Ordering::Release);
    }
}

#[cfg(all(test, not(handover_loom)))]
mod tests {
    use super::*;
    use handover_base::sync::atomic::AtomicU64;

    /// Words in memory.
    #[derive(Debug)]
    struct Boxed(Vec<AtomicU64>);

    impl Boxed {
        fn blocks(count: u64) -> Self {
            Self((0..count * BLOCK_WORDS).map(|_| AtomicU64::new(0)).collect())
        }

        fn at(&self, position: u64) -> &AtomicU64 {
            &self.0[position as usize % self.0.len()]
        }
    }

    impl Words for Boxed {
        fn count(&self) -> u64 {
            self.0.len() as u64
        }
        fn load(&self, position: u64) -> u64 {
            self.at(position).load(Ordering::Acquire)
        }
        fn store(&self, position: u64, word: u64) {
            self.at(position).store(word, Ordering::Release);
        }
        fn clear(&self, position: u64, count: u64) {
            (position..position + count).for_each(|at| self.store(at, 0));
        }
        fn note(&self, _: u64, _: u64) {}
    }

    fn lane(blocks: u64, when_full: WhenFull) -> (Arc<Lane<Boxed>>, Writer<Boxed>) {
        let lane = Arc::new(Lane::new(Boxed::blocks(blocks), when_full));
        let writer = Writer::new(Arc::clone(&lane));
        (lane, writer)
    }

    fn drain(drainer: &mut Drainer, lane: &Lane<Boxed>) -> Vec<Drained> {
        std::iter::from_fn(|| drainer.next(lane)).collect()
    }

    #[test]
    fn events_are_read_as_they_were_written_across_blocks() {
        let (lane, writer) = lane(4, WhenFull::Lose);
        let mut drainer = Drainer::default();
        let mut expected = Vec::new();
        let (events_count, drained_each) = if cfg!(miri) { (90, 9) } else { (4_000, 300) };
        for index in 0..events_count {
            let (ticks, values) = ((1 << 50) + index * 3, [index, u64::MAX - index]);
            let form = index % 3;
            let wrote = match form {
                0 => writer.write(8, ticks),
                1 => writer.write_1(8, ticks, values[0]),
                _ => writer.write_2(8, ticks, values),
            };
            assert_eq!(wrote, Wrote::Recorded);
            let mut kept = values;
            kept.iter_mut().skip(form as usize).for_each(|value| *value = 0);
            expected.push(Drained { ticks, code: 8 | form, values: kept });
            if index % drained_each == drained_each - 1 {
                assert_eq!(drain(&mut drainer, &lane), expected);
                drainer.release(&lane);
                expected.clear();
            }
        }
        drop(writer);
        assert_eq!(lane.counts(), (events_count, 0));
    }

    #[test]
    fn what_has_no_room_is_counted_and_recording_goes_on_when_there_is() {
        let (lane, writer) = lane(2, WhenFull::Lose);
        let room = 2 * (BLOCK_WORDS - BLOCK_HEADER_WORDS);
        for at in 0..room + 7 {
            let wrote = writer.write(4, 100 + at);
            assert_eq!(wrote, if at < room { Wrote::Recorded } else { Wrote::Lost }, "{at}");
        }
        let mut drainer = Drainer::default();
        assert_eq!(drain(&mut drainer, &lane).len() as u64, room);
        drainer.release(&lane);
        assert_eq!(writer.write(4, 10_000), Wrote::Recorded);
        assert_eq!(drain(&mut drainer, &lane).len(), 1);
        assert_eq!(drainer.lost_before(), 7);
        drop(writer);
        assert_eq!(lane.counts(), (room + 1, 7));
    }

    #[test]
    fn a_block_that_is_complete_is_copied_whole_and_what_was_read_of_it_is_not() {
        let (lane, writer) = lane(4, WhenFull::Lose);
        let mut drainer = Drainer::default();
        let mut to = [0; BLOCK_WORDS as usize];
        let room = BLOCK_WORDS - BLOCK_HEADER_WORDS;
        (0..room).for_each(|at| assert_eq!(writer.write(4, 100 + at), Wrote::Recorded));
        assert_eq!(drainer.rest(&lane, &mut to), None, "more may come");
        assert_eq!(drainer.next(&lane).map(|event| event.ticks), Some(100));
        assert_eq!(writer.write(8, 5000), Wrote::Recorded);
        let expected: Vec<u64> = (1..room).map(|since| since << CODE_BITS | 4).collect();
        assert_eq!(drainer.rest(&lane, &mut to), Some((100, &expected[..])));
        assert_eq!(drainer.rest(&lane, &mut to), Some((100, &expected[..])), "until it is passed");
        drainer.pass();
        assert_eq!(drainer.rest(&lane, &mut to), None);
        assert_eq!(drainer.next(&lane).map(|event| (event.ticks, event.code)), Some((5000, 8)));
        assert_eq!(drainer.next(&lane), None);
    }

    #[test]
    fn who_may_wait_is_told_that_it_is_full_and_counts_once_it_has_given_up() {
        let (lane, writer) = lane(2, WhenFull::Wait);
        let room = 2 * (BLOCK_WORDS - BLOCK_HEADER_WORDS);
        (0..room).for_each(|at| assert_eq!(writer.write(4, 100 + at), Wrote::Recorded));
        assert_eq!(writer.write(4, 9000), Wrote::Full);
        assert!(!writer.has_room());
        let mut drainer = Drainer::default();
        assert_eq!(drain(&mut drainer, &lane).len() as u64, room);
        drainer.release(&lane);
        assert!(writer.has_room());
        assert_eq!(writer.write(4, 9000), Wrote::Recorded);
        (1..room).for_each(|at| assert_eq!(writer.write(4, 9000 + at), Wrote::Recorded));
        assert_eq!(writer.write(4, 20_000), Wrote::Full);
        assert_eq!(writer.give_up(), Wrote::Lost);
        assert_eq!(writer.write(4, 20_001), Wrote::Lost, "without being told again");
        drain(&mut drainer, &lane);
        drainer.release(&lane);
        assert_eq!(writer.write(4, 20_002), Wrote::Recorded);
        lane.close();
        assert!(writer.has_room(), "there is nothing to wait for");
        drop(writer);
        assert_eq!(lane.counts(), (2 * room + 1, 2));
    }

    #[test]
    fn an_overwriting_lane_never_loses_the_newest() {
        let (lane, writer) = lane(2, WhenFull::Overwrite);
        let events_count = 3 * BLOCK_WORDS;
        for at in 0..events_count {
            assert_eq!(writer.write(4, at), Wrote::Recorded);
        }
        drop(writer);
        assert_eq!(lane.counts(), (events_count, 0));
        let (kept, recorded) = lane.survey();
        assert_eq!(recorded, events_count);
        assert!(kept > BLOCK_WORDS - BLOCK_HEADER_WORDS && kept < 2 * BLOCK_WORDS, "{kept}");
    }

    #[test]
    fn times_far_apart_and_times_that_go_back_are_kept() {
        let (lane, writer) = lane(4, WhenFull::Lose);
        for ticks in [1_000, 1_000 + DELTA_END, 1_000 + DELTA_END - 5, u64::MAX / 2] {
            assert_eq!(writer.write(4, ticks), Wrote::Recorded);
        }
        let ticks: Vec<u64> =
            drain(&mut Drainer::default(), &lane).iter().map(|event| event.ticks).collect();
        // The third says that no time has passed: it was behind the base of its block.
        assert_eq!(ticks, [1_000, 1_000 + DELTA_END, 1_000 + DELTA_END, u64::MAX / 2]);
    }

    #[test]
    fn a_closed_lane_says_so_and_a_failed_one_counts() {
        let (shut, writer) = lane(2, WhenFull::Overwrite);
        assert_eq!(writer.write(4, 1), Wrote::Recorded);
        shut.fail();
        assert_eq!(writer.write(4, 2), Wrote::Lost);
        assert_eq!(writer.write_2(4, 2, [0, 0]), Wrote::Lost);
        shut.close();
        assert_eq!(writer.write(4, 3), Wrote::Closed);
        drop(writer);
        assert_eq!(shut.counts(), (1, 2));
    }
}
