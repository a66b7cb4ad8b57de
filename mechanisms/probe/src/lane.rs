//! Lane: a ring into which one thread writes its events, and from which one other thread may read.
//!
//! ```text
//!  block   │ seq │ base │ recorded │ lost │ event │ event │ value │ event │ … │ 0 │ 0 │     512 words
//!  event   │ ticks since the block's base : 44 │ site's number : 18 │ form : 2 │          and its values
//! ```
//!
//! **A word tells by itself whether it is written.** A block is cleared before it is used, an event
//! is never zero, and its values are stored before it: an event that is read as non-zero is
//! complete. So there is no separate index to publish, the words are all that is shared, and a
//! process that is killed leaves a ring that can be read up to its last event.
//!
//! **A block is self-contained.** Its base is a full time stamp, so that 44 bits (two hours) are
//! enough for an event, and its first word is its number, so that a reader of the bare ring finds
//! the oldest. An event does not straddle blocks.
//!
//! Time is an argument, and the memory is a trait, so that this very code is model-checked
//! (`tests/model.rs`).
//!
//! Source: keeping the state beside the value is FastForward's idea (Giacomoni, Moseley,
//! Vachharajani, PPoPP 2008).

pub use crate::layout::{BLOCK_HEADER_WORDS, CODE_BITS, FORM_LEAVE};

use crate::layout::BLOCK_BYTES;
use handover_base::sync::Arc;
use handover_base::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};
use std::cell::Cell;

/// Number of words in a block of events, including its header. Blocks are smaller under loom and
/// under Miri, which map no files.
pub const BLOCK_WORDS: u64 = if cfg!(handover_loom) {
    6
} else if cfg!(miri) {
    16
} else {
    BLOCK_BYTES / 8
};
/// Exclusive upper bound, in ticks, of an event's time relative to its block's base time.
pub const DELTA_TICKS_END: u64 = 1 << (64 - CODE_BITS);
/// Form (the lowest two bits) of an event with one value. The form of an event without values is 0.
pub const FORM_ONE_VALUE: u64 = 1;
/// Form (the lowest two bits) of an event with two values.
pub const FORM_TWO_VALUES: u64 = 2;

/// Returns the number of words that an event occupies, including its values.
#[inline(always)]
#[must_use]
pub fn event_words_count(event: u64) -> u64 {
    match event & 3 {
        FORM_ONE_VALUE => 2,
        FORM_TWO_VALUES => 3,
        _ => 1,
    }
}

/// Memory of a lane, addressed by positions modulo the number of words. The number of words is a
/// power of two.
pub trait LaneWords {
    /// Returns the number of words.
    fn count(&self) -> u64;
    /// Loads the word at `position`, modulo [`count`](LaneWords::count). Acquire: pairs with
    /// [`store`](LaneWords::store), so that a reader that sees an event sees its values.
    fn load(&self, position: u64) -> u64;
    /// Stores a word. Release: publishes earlier stores to [`load`](LaneWords::load).
    fn store(&self, position: u64, word: u64);
    /// Sets `count` words from `position` on to zero. A concurrent reader detects this by the
    /// number of the block.
    fn clear(&self, position: u64, count: u64);
    /// Stores the counts of recorded and lost events, for a reader after a crash.
    fn store_counts(&self, recorded: u64, lost: u64);
    /// Returns `true` if stores still reach the file. After the file was truncated, they do not.
    fn is_intact(&self) -> bool {
        true
    }
}

/// State of a lane into which the writer may record.
const LANE_OPEN: u8 = 0;
/// State of a lane whose further events are lost, because recording has failed.
const LANE_FAILED: u8 = 1;
/// State of a lane whose recording has ended.
const LANE_CLOSED: u8 = 2;

/// Policy for a full ring: overwrite the oldest events, lose the new event, or wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// The oldest block is overwritten. No thread reads such a lane while it is written.
    Overwrite,
    /// The event is lost and counted.
    Lose,
    /// The write returns [`WriteResult::Full`], and the caller may wait for space.
    Wait,
}

/// Ring buffer of one thread's events. The writer shares it with the thread that drains and closes
/// it.
#[derive(Debug)]
pub struct Lane<W> {
    /// Memory of the ring.
    words: W,
    /// Position up to which the writer may write without a check for space. Zero forces a check at
    /// the next event.
    limit: AtomicU64,
    /// Number of blocks whose events were read and whose memory may be reused.
    drained_blocks: AtomicU64,
    /// Number of events recorded before the writer's current block. It is exact once the writer is
    /// dropped.
    recorded: AtomicU64,
    /// Number of events that the writer has counted as lost.
    lost: AtomicU64,
    /// Number of events lost in signal handlers that interrupted the writer.
    interrupted: AtomicU64,
    /// State: one of the constants `LANE_*`.
    state: AtomicU8,
    /// Policy for a full ring.
    when_full: WhenFull,
}

impl<W: LaneWords> Lane<W> {
    /// Creates an empty lane in the memory `words`. The words must be zero.
    ///
    /// # Panics
    /// If there are fewer than two blocks, or not a whole number of them.
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
            state: AtomicU8::new(LANE_OPEN),
            when_full,
        }
    }

    /// Returns the memory of the lane.
    pub fn words(&self) -> &W {
        &self.words
    }

    /// Closes the lane: the writer's next event fails with [`WriteResult::Closed`]. An event that
    /// is being recorded at this moment may still be stored.
    pub fn close(&self) {
        self.state.store(LANE_CLOSED, Ordering::Relaxed);
        self.stop_writer();
    }

    /// Records that recording into this lane has failed, so that further events are counted as
    /// lost. A closed lane stays closed, so that its writer joins the next recording.
    pub fn record_failure(&self) {
        // Relaxed: stop_writer() orders the state. A failure only means that the lane is not open.
        let _ = self.state.compare_exchange(
            LANE_OPEN,
            LANE_FAILED,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        self.stop_writer();
    }

    /// Makes the writer read the state, which was stored before, at its next event.
    fn stop_writer(&self) {
        // SeqCst: pairs with the fence in start_block(). Either the writer sees the state after its
        // fence, or this zero is stored after the writer's limit.
        fence(Ordering::SeqCst);
        self.limit.store(0, Ordering::Relaxed);
    }

    /// Returns `true` if [`close`](Lane::close) was called.
    pub fn is_closed(&self) -> bool {
        self.state.load(Ordering::Relaxed) == LANE_CLOSED
    }

    /// Returns the number of events recorded, including overwritten events, and the number of
    /// events lost. Both are exact once the writer is dropped; before that, the first may lack the
    /// events of a block.
    pub fn recorded_and_lost_counts(&self) -> (u64, u64) {
        let lost = self.lost.load(Ordering::Relaxed) + self.interrupted.load(Ordering::Relaxed);
        (self.recorded.load(Ordering::Relaxed), lost)
    }

    /// Counts as lost an event of a signal handler that interrupted the writer.
    pub fn count_interrupted(&self) {
        // Relaxed: a count of its own, as the interrupted writer may be updating `lost`.
        self.interrupted.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns `true` if the writer may start block number `block`. `drained` is the number of
    /// blocks that the drainer has released.
    fn is_free(&self, block: u64, drained: u64) -> bool {
        block - drained < self.words.count() / BLOCK_WORDS
    }

    /// Returns the number of events in the ring, and the number of all events recorded. Both are
    /// exact if no thread writes at the same time.
    pub fn ring_and_recorded_counts(&self) -> (u64, u64) {
        let blocks = self.words.count() / BLOCK_WORDS;
        let numbers = (0..blocks).map(|block| (self.words.load(block * BLOCK_WORDS), block));
        let begun = numbers.filter(|(number, _)| *number != 0);
        let before = |block: u64| self.words.load(block * BLOCK_WORDS + 2);
        let Some((_, oldest)) = begun.clone().min() else { return (0, 0) };
        let newest = begun.max().map_or(oldest, |(_, block)| block) * BLOCK_WORDS;
        let mut recorded = before(newest / BLOCK_WORDS);
        let mut at = newest + BLOCK_HEADER_WORDS;
        while at < newest + BLOCK_WORDS && self.words.load(at) != 0 {
            at += event_words_count(self.words.load(at));
            recorded += 1;
        }
        (recorded.saturating_sub(before(oldest)), recorded)
    }
}

/// Result of writing an event. It was recorded, lost, not recorded yet for lack of space, or
/// refused by a closed lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteResult {
    /// The event was stored in the ring.
    Recorded,
    /// The event is counted as lost, because the ring has no space or recording has failed.
    Lost,
    /// The ring has no space, and the event is neither stored nor counted. The caller may retry
    /// once there [is space](Writer::has_space), or [give up](Writer::count_lost_after_wait).
    Full,
    /// The lane is closed, and the event is not counted. The caller should drop the writer.
    Closed,
}

/// Writer of a lane, used by one thread.
#[derive(Debug)]
pub struct Writer<W: LaneWords> {
    lane: Arc<Lane<W>>,
    /// Position of the next event's first word.
    position: Cell<u64>,
    /// Base time of the current block, in ticks.
    base_ticks: Cell<u64>,
    /// Position of the current block's first event.
    block_start: Cell<u64>,
    /// Number of words in the current block that are values of events.
    values_count: Cell<u64>,
    /// Number of blocks started so far.
    blocks_count: Cell<u64>,
    /// Number of events in all blocks before the current one.
    recorded: Cell<u64>,
    /// Number of events counted as lost so far.
    lost: Cell<u64>,
    /// `true` after an unsuccessful wait for space. Until there is space again, events are lost
    /// without waiting.
    has_given_up: Cell<bool>,
}

impl<W: LaneWords> Writer<W> {
    /// Creates the writer of `lane`. The lane must be empty, and must not have another writer.
    pub fn new(lane: Arc<Lane<W>>) -> Self {
        let zero = || Cell::new(0);
        Self {
            lane,
            position: zero(),
            base_ticks: zero(),
            block_start: zero(),
            values_count: zero(),
            blocks_count: zero(),
            recorded: zero(),
            lost: zero(),
            has_given_up: Cell::new(false),
        }
    }

    /// Returns the lane of this writer.
    pub fn lane(&self) -> &Arc<Lane<W>> {
        &self.lane
    }

    /// Records an event without values. `code` is the site's number, shifted left by two, plus the
    /// form.
    #[inline(always)]
    pub fn write(&self, code: u64, now_ticks: u64) -> WriteResult {
        match self.reserve(now_ticks, 1) {
            Ok((at, ticks)) => {
                self.lane.words.store(at, ticks << CODE_BITS | code);
                WriteResult::Recorded
            }
            Err(refused) => refused,
        }
    }

    /// Records an event with one value.
    #[inline(always)]
    pub fn write_1(&self, code: u64, now_ticks: u64, value: u64) -> WriteResult {
        match self.reserve(now_ticks, 2) {
            Ok((at, ticks)) => {
                self.lane.words.store(at + 1, value);
                self.lane.words.store(at, ticks << CODE_BITS | code | FORM_ONE_VALUE);
                WriteResult::Recorded
            }
            Err(refused) => refused,
        }
    }

    /// Records an event with two values.
    #[inline(always)]
    pub fn write_2(&self, code: u64, now_ticks: u64, values: [u64; 2]) -> WriteResult {
        match self.reserve(now_ticks, 3) {
            Ok((at, ticks)) => {
                self.lane.words.store(at + 1, values[0]);
                self.lane.words.store(at + 2, values[1]);
                self.lane.words.store(at, ticks << CODE_BITS | code | FORM_TWO_VALUES);
                WriteResult::Recorded
            }
            Err(refused) => refused,
        }
    }

    /// Reserves `count` words for an event. Returns the position of the first word, and the ticks
    /// since the block's base time.
    #[inline(always)]
    fn reserve(&self, now_ticks: u64, count: u64) -> Result<(u64, u64), WriteResult> {
        let at = self.position.get();
        let ticks = now_ticks.wrapping_sub(self.base_ticks.get());
        // Relaxed: the limit publishes nothing. start_block() acquires the drainer's release of a
        // block, and a limit of zero only leads there.
        if at + count > self.lane.limit.load(Ordering::Relaxed) || ticks >= DELTA_TICKS_END {
            return self.reserve_slowly(now_ticks, count);
        }
        self.position.set(at + count);
        if count > 1 {
            self.values_count.set(self.values_count.get() + count - 1);
        }
        Ok((at, ticks))
    }

    /// Reserves `count` words as [`reserve`](Self::reserve) does, in a new block if necessary.
    #[cold]
    #[inline(never)]
    fn reserve_slowly(&self, now_ticks: u64, count: u64) -> Result<(u64, u64), WriteResult> {
        let behind = self.base_ticks.get().wrapping_sub(now_ticks);
        // Another CPU's counter may be slightly behind: then no time has passed.
        let now_ticks = if behind < DELTA_TICKS_END { self.base_ticks.get() } else { now_ticks };
        let ticks = now_ticks.wrapping_sub(self.base_ticks.get());
        let fits = self.position.get() + count <= self.lane.limit.load(Ordering::Relaxed);
        if !(fits && ticks < DELTA_TICKS_END) {
            self.start_block(now_ticks)?;
        }
        let at = self.position.get();
        self.position.set(at + count);
        self.values_count.set(self.values_count.get() + count - 1);
        Ok((at, now_ticks.wrapping_sub(self.base_ticks.get())))
    }

    /// Starts the next block with the base time `now_ticks`. Fails if no block is free, or the lane
    /// is closed or failed.
    fn start_block(&self, now_ticks: u64) -> Result<(), WriteResult> {
        let lane = &*self.lane;
        match lane.state.load(Ordering::Relaxed) {
            LANE_OPEN if lane.words.is_intact() => {}
            LANE_OPEN | LANE_FAILED => return Err(self.count_lost()),
            _ => return Err(WriteResult::Closed),
        }
        let block = self.blocks_count.get();
        // Acquire: pairs with Release in Drainer::release(), which has read the block to be
        // overwritten.
        let drained = lane.drained_blocks.load(Ordering::Acquire);
        if lane.when_full != WhenFull::Overwrite && !lane.is_free(block, drained) {
            let waits = lane.when_full == WhenFull::Wait && !self.has_given_up.get();
            return Err(if waits { WriteResult::Full } else { self.count_lost() });
        }
        self.has_given_up.set(false);
        self.recorded.set(self.recorded_now());
        // Relaxed, and no read-modify-write: only this thread writes the count.
        lane.recorded.store(self.recorded.get(), Ordering::Relaxed);
        lane.words.store_counts(self.recorded.get(), lane.recorded_and_lost_counts().1);
        let start = block * BLOCK_WORDS;
        lane.words.clear(start, BLOCK_WORDS);
        lane.words.store(start + 1, now_ticks);
        lane.words.store(start + 2, self.recorded.get());
        lane.words.store(start + 3, lane.recorded_and_lost_counts().1);
        lane.words.store(start, block + 1);
        self.blocks_count.set(block + 1);
        self.base_ticks.set(now_ticks);
        self.position.set(start + BLOCK_HEADER_WORDS);
        self.block_start.set(start + BLOCK_HEADER_WORDS);
        self.values_count.set(0);
        lane.limit.store(start + BLOCK_WORDS, Ordering::Relaxed);
        // SeqCst: pairs with the fence in stop_writer(): either the state is seen here, or the zero
        // of stop_writer() is stored after this limit.
        fence(Ordering::SeqCst);
        if lane.state.load(Ordering::Relaxed) != LANE_OPEN {
            lane.limit.store(0, Ordering::Relaxed);
            return self.start_block(now_ticks);
        }
        Ok(())
    }

    /// Returns `false` if the next event would return [`WriteResult::Full`]. Returns `true` if
    /// there is space, or the lane is closed or failed.
    pub fn has_space(&self) -> bool {
        let lane = &*self.lane;
        // Acquire: pairs with Release in Drainer::release(), as in start_block().
        let drained = lane.drained_blocks.load(Ordering::Acquire);
        let is_open = lane.state.load(Ordering::Relaxed) == LANE_OPEN;
        !is_open || lane.is_free(self.blocks_count.get(), drained)
    }

    /// Counts an event as lost after an unsuccessful wait. Until there is space again, later events
    /// are lost without waiting.
    pub fn count_lost_after_wait(&self) -> WriteResult {
        self.has_given_up.set(true);
        self.count_lost()
    }

    /// Counts an event as lost; returns [`WriteResult::Lost`].
    fn count_lost(&self) -> WriteResult {
        self.lost.set(self.lost.get() + 1);
        // Relaxed, and no read-modify-write: only this thread writes the count.
        self.lane.lost.store(self.lost.get(), Ordering::Relaxed);
        self.lane.words.store_counts(self.recorded_now(), self.lane.recorded_and_lost_counts().1);
        WriteResult::Lost
    }

    /// Returns the number of recorded events, including those of the current block.
    fn recorded_now(&self) -> u64 {
        let words = self.position.get() - self.block_start.get();
        self.recorded.get() + words - self.values_count.get()
    }
}

impl<W: LaneWords> Drop for Writer<W> {
    fn drop(&mut self) {
        let recorded = self.recorded_now();
        self.lane.recorded.store(recorded, Ordering::Relaxed);
        self.lane.words.store_counts(recorded, self.lane.recorded_and_lost_counts().1);
    }
}

/// Event that was read from a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainedEvent {
    /// Time stamp of the event, in ticks.
    pub ticks: u64,
    /// Number of the site, shifted left by two, plus the form.
    pub code: u64,
    /// Values of the event. The event's form tells how many are valid.
    pub values: [u64; 2],
}

/// Reader of a lane in which no events are overwritten. One thread uses it.
#[derive(Debug, Clone, Default)]
pub struct Drainer {
    /// Number of the current block, from 0.
    block: u64,
    /// Position of the next event. It is below the block's first event until the block's header is
    /// read.
    position: u64,
    /// Base time of the current block, in ticks.
    base_ticks: u64,
    /// Number of events that were lost before the current block.
    lost_before: u64,
}

impl Drainer {
    /// Reads and returns the next event; `None` if there is none yet.
    #[inline]
    pub fn next_event<W: LaneWords>(&mut self, lane: &Lane<W>) -> Option<DrainedEvent> {
        let words = &lane.words;
        loop {
            if !self.read_block_header(words) {
                return None;
            }
            let end = (self.block + 1) * BLOCK_WORDS;
            if self.position < end {
                let event = words.load(self.position);
                if event != 0 {
                    return Some(self.read_event(words, event));
                }
                // Not written yet, unless the next block has been started and this word is still
                // zero.
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

    /// Copies the unread events of the current block to `to`. Returns these events and the block's
    /// base time, or `None` while the block is incomplete. Words after the last event are zero. The
    /// events stay unread until [`skip_block`](Drainer::skip_block).
    #[inline]
    pub fn copy_block_rest<'a, W: LaneWords>(
        &mut self,
        lane: &Lane<W>,
        to: &'a mut [u64; BLOCK_WORDS as usize],
    ) -> Option<(u64, &'a [u64])> {
        let words = &lane.words;
        let end = (self.block + 1) * BLOCK_WORDS;
        // The writer starts the next block after the last event of this one.
        if !self.read_block_header(words) || words.load(end) != self.block + 2 {
            return None;
        }
        let rest = &mut to[..(end - self.position) as usize];
        for (at, word) in (self.position..).zip(rest.iter_mut()) {
            *word = words.load(at);
        }
        Some((self.base_ticks, rest))
    }

    /// Skips the events of the current block, which [`copy_block_rest`](Drainer::copy_block_rest)
    /// has copied.
    pub fn skip_block(&mut self) {
        self.block += 1;
        self.position = self.block * BLOCK_WORDS;
    }

    /// Reads the header of the current block, unless it was read before. Returns `false` if the
    /// writer has not started the block.
    #[inline]
    fn read_block_header<W: LaneWords>(&mut self, words: &W) -> bool {
        let start = self.block * BLOCK_WORDS;
        if self.position < start + BLOCK_HEADER_WORDS {
            if words.load(start) != self.block + 1 {
                return false;
            }
            self.base_ticks = words.load(start + 1);
            self.lost_before = words.load(start + 3);
            self.position = start + BLOCK_HEADER_WORDS;
        }
        true
    }

    /// Reads the event with the first word `event`, and moves on to the next event.
    #[inline]
    fn read_event<W: LaneWords>(&mut self, words: &W, event: u64) -> DrainedEvent {
        let count = event_words_count(event);
        let value = |index: u64| if index < count { words.load(self.position + index) } else { 0 };
        let values = [value(1), value(2)];
        self.position += count;
        let ticks = self.base_ticks.wrapping_add(event >> CODE_BITS);
        DrainedEvent { ticks, code: event & ((1 << CODE_BITS) - 1), values }
    }

    /// Returns `true` if the writer has completed at least `blocks_count` unread blocks.
    pub fn is_behind<W: LaneWords>(&self, lane: &Lane<W>, blocks_count: u64) -> bool {
        let block = self.block + blocks_count;
        lane.words.load(block * BLOCK_WORDS) == block + 1
    }

    /// Returns the position of the next word to read.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the number of events lost before the current block.
    pub fn lost_before(&self) -> u64 {
        self.lost_before
    }

    /// Allows the writer to reuse the blocks that were read. Call it once their events are stored.
    pub fn release<W: LaneWords>(&self, lane: &Lane<W>) {
        // Release: pairs with Acquire in Writer::start_block(), after all loads of these blocks.
        lane.drained_blocks.store(self.position / BLOCK_WORDS, Ordering::Release);
    }
}

#[cfg(all(test, not(handover_loom)))]
mod tests {
    use super::*;
    use handover_base::sync::atomic::AtomicU64;

    /// Memory of a lane on the heap, for tests.
    #[derive(Debug)]
    struct HeapWords(Vec<AtomicU64>);

    impl HeapWords {
        fn blocks(count: u64) -> Self {
            Self((0..count * BLOCK_WORDS).map(|_| AtomicU64::new(0)).collect())
        }

        fn at(&self, position: u64) -> &AtomicU64 {
            &self.0[position as usize % self.0.len()]
        }
    }

    impl LaneWords for HeapWords {
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
        fn store_counts(&self, _: u64, _: u64) {}
    }

    fn lane(blocks: u64, when_full: WhenFull) -> (Arc<Lane<HeapWords>>, Writer<HeapWords>) {
        let lane = Arc::new(Lane::new(HeapWords::blocks(blocks), when_full));
        let writer = Writer::new(Arc::clone(&lane));
        (lane, writer)
    }

    fn drain(drainer: &mut Drainer, lane: &Lane<HeapWords>) -> Vec<DrainedEvent> {
        std::iter::from_fn(|| drainer.next_event(lane)).collect()
    }

    #[test]
    fn events_across_blocks_are_read_in_order() {
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
            assert_eq!(wrote, WriteResult::Recorded);
            let mut kept = values;
            kept.iter_mut().skip(form as usize).for_each(|value| *value = 0);
            expected.push(DrainedEvent { ticks, code: 8 | form, values: kept });
            if index % drained_each == drained_each - 1 {
                assert_eq!(drain(&mut drainer, &lane), expected);
                drainer.release(&lane);
                expected.clear();
            }
        }
        drop(writer);
        assert_eq!(lane.recorded_and_lost_counts(), (events_count, 0));
    }

    #[test]
    fn full_lane_counts_lost_events_and_records_again_after_release() {
        let (lane, writer) = lane(2, WhenFull::Lose);
        let room = 2 * (BLOCK_WORDS - BLOCK_HEADER_WORDS);
        for at in 0..room + 7 {
            let wrote = writer.write(4, 100 + at);
            assert_eq!(
                wrote,
                if at < room { WriteResult::Recorded } else { WriteResult::Lost },
                "{at}"
            );
        }
        let mut drainer = Drainer::default();
        assert_eq!(drain(&mut drainer, &lane).len() as u64, room);
        drainer.release(&lane);
        assert_eq!(writer.write(4, 10_000), WriteResult::Recorded);
        assert_eq!(drain(&mut drainer, &lane).len(), 1);
        assert_eq!(drainer.lost_before(), 7);
        drop(writer);
        assert_eq!(lane.recorded_and_lost_counts(), (room + 1, 7));
    }

    #[test]
    fn complete_block_is_copied_without_its_read_events() {
        let (lane, writer) = lane(4, WhenFull::Lose);
        let mut drainer = Drainer::default();
        let mut to = [0; BLOCK_WORDS as usize];
        let room = BLOCK_WORDS - BLOCK_HEADER_WORDS;
        (0..room).for_each(|at| assert_eq!(writer.write(4, 100 + at), WriteResult::Recorded));
        assert_eq!(
            drainer.copy_block_rest(&lane, &mut to),
            None,
            "copied a block that is not complete"
        );
        assert_eq!(drainer.next_event(&lane).map(|event| event.ticks), Some(100));
        assert_eq!(writer.write(8, 5000), WriteResult::Recorded);
        let expected: Vec<u64> = (1..room).map(|since| since << CODE_BITS | 4).collect();
        assert_eq!(drainer.copy_block_rest(&lane, &mut to), Some((100, &expected[..])));
        assert_eq!(
            drainer.copy_block_rest(&lane, &mut to),
            Some((100, &expected[..])),
            "the second copy differs from the first"
        );
        drainer.skip_block();
        assert_eq!(drainer.copy_block_rest(&lane, &mut to), None);
        assert_eq!(
            drainer.next_event(&lane).map(|event| (event.ticks, event.code)),
            Some((5000, 8))
        );
        assert_eq!(drainer.next_event(&lane), None);
    }

    #[test]
    fn waiting_writer_gets_full_and_counts_losses_after_giving_up() {
        let (lane, writer) = lane(2, WhenFull::Wait);
        let room = 2 * (BLOCK_WORDS - BLOCK_HEADER_WORDS);
        (0..room).for_each(|at| assert_eq!(writer.write(4, 100 + at), WriteResult::Recorded));
        assert_eq!(writer.write(4, 9000), WriteResult::Full);
        assert!(!writer.has_space());
        let mut drainer = Drainer::default();
        assert_eq!(drain(&mut drainer, &lane).len() as u64, room);
        drainer.release(&lane);
        assert!(writer.has_space());
        assert_eq!(writer.write(4, 9000), WriteResult::Recorded);
        (1..room).for_each(|at| assert_eq!(writer.write(4, 9000 + at), WriteResult::Recorded));
        assert_eq!(writer.write(4, 20_000), WriteResult::Full);
        assert_eq!(writer.count_lost_after_wait(), WriteResult::Lost);
        assert_eq!(writer.write(4, 20_001), WriteResult::Lost, "waited again after giving up");
        drain(&mut drainer, &lane);
        drainer.release(&lane);
        assert_eq!(writer.write(4, 20_002), WriteResult::Recorded);
        lane.close();
        assert!(writer.has_space(), "the writer of a closed lane has no space");
        drop(writer);
        assert_eq!(lane.recorded_and_lost_counts(), (2 * room + 1, 2));
    }

    #[test]
    fn overwriting_lane_keeps_the_newest_events() {
        let (lane, writer) = lane(2, WhenFull::Overwrite);
        let events_count = 3 * BLOCK_WORDS;
        for at in 0..events_count {
            assert_eq!(writer.write(4, at), WriteResult::Recorded);
        }
        drop(writer);
        assert_eq!(lane.recorded_and_lost_counts(), (events_count, 0));
        let (kept, recorded) = lane.ring_and_recorded_counts();
        assert_eq!(recorded, events_count);
        assert!(kept > BLOCK_WORDS - BLOCK_HEADER_WORDS && kept < 2 * BLOCK_WORDS, "{kept}");
    }

    #[test]
    fn distant_and_decreasing_times_are_kept() {
        let (lane, writer) = lane(4, WhenFull::Lose);
        for ticks in [1_000, 1_000 + DELTA_TICKS_END, 1_000 + DELTA_TICKS_END - 5, u64::MAX / 2] {
            assert_eq!(writer.write(4, ticks), WriteResult::Recorded);
        }
        let ticks: Vec<u64> =
            drain(&mut Drainer::default(), &lane).iter().map(|event| event.ticks).collect();
        // The third event was stamped before its block's base: it has the base's time.
        assert_eq!(ticks, [1_000, 1_000 + DELTA_TICKS_END, 1_000 + DELTA_TICKS_END, u64::MAX / 2]);
    }

    #[test]
    fn closed_lane_refuses_events_and_failed_lane_counts_them() {
        let (stopped, writer) = lane(2, WhenFull::Overwrite);
        assert_eq!(writer.write(4, 1), WriteResult::Recorded);
        stopped.record_failure();
        assert_eq!(writer.write(4, 2), WriteResult::Lost);
        assert_eq!(writer.write_2(4, 2, [0, 0]), WriteResult::Lost);
        stopped.close();
        assert_eq!(writer.write(4, 3), WriteResult::Closed);
        // As when the last events cannot be written after the recording's end.
        stopped.record_failure();
        assert!(stopped.is_closed());
        assert_eq!(writer.write(4, 4), WriteResult::Closed);
        drop(writer);
        assert_eq!(stopped.recorded_and_lost_counts(), (1, 2));
    }
}
