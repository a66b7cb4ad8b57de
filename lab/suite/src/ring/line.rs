//! The floor of streams: cache lines that one CPU writes and another reads.

use super::END;
use crate::channels::PollPause;
use crate::common::Tally;
use crate::floor::wait_word::{WaitLine, WaitMode, WaitWord};
use handover_base::prefetch;
use handover_base::sync::shared::{AtomicU64, Ordering};
use handover_harness::{Fault, Handover, Participant, Region, Role, Samples, Setup};
use handover_record::{Spec, Wait};
use zerocopy::FromZeros;

/// Cache line with the number of the writer's lap and seven items.
#[derive(FromZeros)]
#[repr(C, align(64))]
struct Line([AtomicU64; 8]);

/// Number of items in a cache line; the line's first word holds the number of the lap.
const ITEMS_PER_LINE: u64 = 7;
/// Number of cache lines in the floor's circular buffer.
const LINES: u64 = 128;
/// Number of cache lines by which both participants prefetch ahead, like this project's ring.
const LINES_AHEAD: u64 = 3;

/// State that both participants share.
#[derive(FromZeros)]
#[repr(C, align(128))]
struct Lines {
    lines: [Line; LINES as usize],
    /// Number of lines read; updated every half lap of the buffer.
    read_count: AtomicU64,
    /// Padding, so that `read_count` is alone on its cache lines.
    padding: [u64; 15],
    /// Word on which the reader sleeps.
    reader: WaitLine<1>,
    /// Word on which the writer sleeps.
    writer: WaitLine<1>,
    tally: Tally,
}

/// Floor of streams: a circular buffer of cache lines that one CPU writes and another reads. It has
/// no single items, errors or disconnection. If `CAN_SLEEP`, a participant that has polled for long
/// sleeps.
pub(super) struct LineStream<const CAN_SLEEP: bool> {
    shared: Region<Lines>,
    pause: PollPause,
    mode: WaitMode,
}

impl<const CAN_SLEEP: bool> LineStream<CAN_SLEEP> {
    const IDS: [&str; 2] = ["ring/line-stream", "ring/line-stream-adaptive"];
    const DESCRIPTIONS: [&str; 2] = [
        "eight bytes of a stream of cache lines from one CPU to another, both sides spinning",
        "eight bytes of a stream of cache lines from one CPU to another, both sides sleeping after 20 us of spinning",
    ];

    /// Pauses after an unsuccessful poll; may sleep if `CAN_SLEEP`.
    #[inline(always)]
    fn pause_once(&self, word: &WaitWord, polls: &mut u32) {
        if CAN_SLEEP { word.sleep_after_polls(polls, self.mode) } else { self.pause.pause_once() }
    }

    /// Wakes the other participant if it sleeps.
    #[inline(always)]
    fn wake(&self, word: &WaitWord) {
        if CAN_SLEEP {
            word.wake(self.mode);
        }
    }

    /// Writes cache line `number` of the stream, counted from 0. First waits until the reader is
    /// less than a full lap behind.
    #[inline(always)]
    fn write(&self, number: u64, read: &mut u64, first: u64) {
        let mut polls = 0;
        while number - *read >= LINES {
            // Acquire: pairs with the Release in play(), after the reader has read the line.
            *read = self.shared.read_count.load(Ordering::Acquire);
            if number - *read >= LINES {
                self.pause_once(&self.shared.writer.0[0], &mut polls);
            }
        }
        prefetch::for_write(&self.shared.lines[((number + LINES_AHEAD) % LINES) as usize]);
        let [lap, items @ ..] = &self.shared.lines[(number % LINES) as usize].0;
        for (item, value) in items.iter().zip(first..) {
            // Relaxed: published by the Release below.
            item.store(value, Ordering::Relaxed);
        }
        // Release: publishes the items to the Acquire in play().
        lap.store(number / LINES + 1, Ordering::Release);
        self.wake(&self.shared.reader.0[0]);
    }
}

impl<const CAN_SLEEP: bool> Handover for LineStream<CAN_SLEEP> {
    type Args = ();
    const SPEC: Spec =
        Spec::new(Self::IDS[CAN_SLEEP as usize], Self::DESCRIPTIONS[CAN_SLEEP as usize])
            .floor("floor/empty")
            .hands_over()
            .pipelined();

    const ROLES: &'static [Role] = &[Role::measured("producer"), Role::serving("consumer")];

    fn setup((): &(), setup: &mut Setup) -> Result<Self, Fault> {
        let mode = WaitMode::new(Wait::SpinThenSleep, setup);
        Ok(LineStream { pause: PollPause::new(setup), mode, shared: setup.shared_region()? })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        let mut number = 0;
        if participant.index == 0 {
            let (mut sent, mut read) = (0, 0);
            out.time_batches(|n| {
                // Items are written in whole lines, so that all batches together have n items each
                // on average.
                let until = sent + n;
                while number * ITEMS_PER_LINE < until {
                    self.write(number, &mut read, number * ITEMS_PER_LINE);
                    number += 1;
                }
                sent = until;
            });
            self.write(number, &mut read, END);
            self.shared.tally.add_sent(number * ITEMS_PER_LINE);
            return Ok(());
        }
        let mut wrong = 0;
        loop {
            let [lap, items @ ..] = &self.shared.lines[(number % LINES) as usize].0;
            if lap.load(Ordering::Relaxed) == number / LINES + 1 {
                // Prefetched only if the writer has already finished the current line.
                prefetch::for_read(&self.shared.lines[((number + LINES_AHEAD) % LINES) as usize]);
            }
            let mut polls = 0;
            // Acquire: pairs with the Release in write().
            while lap.load(Ordering::Acquire) != number / LINES + 1 {
                self.pause_once(&self.shared.reader.0[0], &mut polls);
            }
            // Relaxed: ordered by the Acquire above.
            if items[0].load(Ordering::Relaxed) == END {
                break;
            }
            for (item, value) in items.iter().zip(number * ITEMS_PER_LINE..) {
                wrong += u64::from(item.load(Ordering::Relaxed) != value);
            }
            number += 1;
            if number.is_multiple_of(LINES / 2) {
                // Release: the lines have been read; pairs with the Acquire in write().
                self.shared.read_count.store(number, Ordering::Release);
                self.wake(&self.shared.writer.0[0]);
            }
        }
        self.shared.tally.add_received(number * ITEMS_PER_LINE);
        self.shared.tally.add_wrong(wrong);
        Ok(())
    }

    fn check_round(&self) -> Result<(), Fault> {
        self.shared.tally.verify()
    }
}
