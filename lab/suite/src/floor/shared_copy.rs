//! Bytes copied to another CPU and back through shared memory: the floor of calls with a payload.

use super::line::LineWord;
use super::relay::RelayMedium;
use crate::channels::PollPause;
use crate::common::{bytes_to_usize, check_bytes_equal};
use crate::raw::mapped::{self, Mapping};
use handover_harness::{Fault, Region, Setup};
use handover_record::{Bytes, Spec, args};

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
}

/// State of the pinging participant.
pub(crate) struct CopyState {
    /// Value of the word after the last round trip.
    value: u64,
    sent: Vec<u8>,
    received: Vec<u8>,
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
        let file = setup.shared_fd(|| Ok(mapped::create_memory_file(2 * size_bytes)?))?;
        Ok(Self {
            word: setup.shared_region()?,
            pause: PollPause::new(setup),
            memory: Mapping::map(&file, 2 * size_bytes)?,
            size_bytes,
        })
    }

    fn new_ping_state(&self) -> Result<CopyState, Fault> {
        let sent: Vec<u8> = (b'a'..=b'z').cycle().take(self.size_bytes).collect();
        Ok(CopyState { value: 0, received: vec![0; sent.len()], sent })
    }

    fn round_trip(&self, CopyState { value, sent, received }: &mut CopyState) -> Result<(), Fault> {
        let back = *value + 2;
        self.memory.write(0, sent);
        self.word.publish(*value + 1);
        self.word.wait(self.pause, |it| it == back);
        self.memory.read(self.size_bytes, received);
        *value = back;
        Ok(())
    }

    fn end(&self, CopyState { sent, received, .. }: &mut CopyState) -> Result<(), Fault> {
        self.word.publish(END);
        check_bytes_equal(received, sent)
    }

    fn echo(&self) -> Result<u64, Fault> {
        let mut piece = vec![0; self.size_bytes];
        let mut value = 0;
        loop {
            // END is odd too.
            let seen = self.word.wait(self.pause, |it| it % 2 == 1);
            if seen == END {
                return Ok(value / 2);
            }
            self.memory.read(0, &mut piece);
            self.memory.write(self.size_bytes, &piece);
            value = seen + 1;
            self.word.publish(value);
        }
    }
}
