//! Bytes copied to another CPU and back through shared memory: the floor of calls with a payload.

use super::line::LineWord;
use super::relay::RelayMedium;
use super::transfer::{PAGE_BYTES, Page};
use crate::channels::PollPause;
use crate::common::{bytes_to_usize, check_bytes_equal};
use crate::raw::mapped::{self, Mapping};
use handover_harness::{Fault, Region, Setup};
use handover_record::{Bytes, Spec, args};
use zerocopy::IntoBytes;

args! {
    /// Arguments of the benchmark of copies through shared memory.
    pub struct SharedCopyArgs {
        /// Bytes in each direction.
        size_bytes: Bytes = 65536 (smoke 64, range 1 ..= 268435456),
    }
}

/// Value that ends the round.
const END: u64 = u64::MAX;

/// Medium of round trips: a shared piece of memory for each direction, and a word that says which
/// piece is newer. The word is odd if the pinging participant wrote last.
pub(crate) struct SharedCopy {
    word: Region<LineWord>,
    pause: PollPause,
    memory: Mapping,
    /// Size of a piece in bytes.
    size_bytes: usize,
    /// Offset of the second piece in `memory`: its first page after the first piece.
    second_at: usize,
}

/// State of the pinging participant.
pub(crate) struct CopyState {
    /// Value of the word after the last round trip.
    value: u64,
    sent: Vec<Page>,
    received: Vec<Page>,
}

impl RelayMedium for SharedCopy {
    type Args = SharedCopyArgs;
    const SPEC: Spec = Spec::new(
        "floor/shared-copy",
        "size_bytes copied into shared memory, out of it by another CPU, and both again for the way back",
    )
    .hands_over()
    .batched();
    type PingState = CopyState;

    fn setup(args: &SharedCopyArgs, setup: &mut Setup) -> Result<Self, Fault> {
        let size_bytes = bytes_to_usize(args.size_bytes);
        let second_at = size_bytes.next_multiple_of(PAGE_BYTES);
        let file = setup.shared_fd(|| Ok(mapped::create_memory_file(2 * second_at)?))?;
        Ok(Self {
            word: setup.shared_region()?,
            pause: PollPause::new(setup),
            memory: Mapping::map(&file, 2 * second_at)?,
            size_bytes,
            second_at,
        })
    }

    fn new_ping_state(&self) -> Result<CopyState, Fault> {
        let mut sent = self.new_piece();
        for (byte, letter) in sent.as_mut_bytes().iter_mut().zip((b'a'..=b'z').cycle()) {
            *byte = letter;
        }
        Ok(CopyState { value: 0, received: self.new_piece(), sent })
    }

    fn round_trip(&self, CopyState { value, sent, received }: &mut CopyState) -> Result<(), Fault> {
        let back = *value + 2;
        self.memory.write(0, &sent.as_bytes()[..self.size_bytes]);
        self.word.publish(*value + 1);
        self.word.wait(self.pause, |it| it == back);
        self.memory.read(self.second_at, &mut received.as_mut_bytes()[..self.size_bytes]);
        *value = back;
        Ok(())
    }

    fn end(&self, CopyState { sent, received, .. }: &mut CopyState) -> Result<(), Fault> {
        self.word.publish(END);
        check_bytes_equal(
            &received.as_bytes()[..self.size_bytes],
            &sent.as_bytes()[..self.size_bytes],
        )
    }

    fn echo(&self) -> Result<u64, Fault> {
        let mut pages = self.new_piece();
        let piece = &mut pages.as_mut_bytes()[..self.size_bytes];
        let mut value = 0;
        loop {
            // END is odd too.
            let seen = self.word.wait(self.pause, |it| it % 2 == 1);
            if seen == END {
                return Ok(value / 2);
            }
            self.memory.read(0, piece);
            self.memory.write(self.second_at, piece);
            value = seen + 1;
            self.word.publish(value);
        }
    }
}

impl SharedCopy {
    /// Returns private memory for a piece. It starts at a page, as the pieces of shared memory do:
    /// `rep movsb`, which the C library uses for copies of 4 KiB or more, is up to 30 times as slow
    /// on AMD's Zen 3 and 4 if the target's offset in its page is a few bytes beyond the source's
    /// (glibc bug 30994).
    fn new_piece(&self) -> Vec<Page> {
        vec![Page([0; PAGE_BYTES]); self.size_bytes.div_ceil(PAGE_BYTES)]
    }
}
