//! Copying memory: the floor of everything that moves bytes.

use super::transfer::{CopyBuffers, PieceOffsets};
use crate::common::check_bytes_equal;
use handover_harness::{Fault, Samples, Setup, Workload};
use handover_record::{Bytes, Spec, args};
use std::hint::black_box;

args! {
    /// Arguments of the benchmark of `memcpy`.
    pub struct MemcpyArgs {
        /// Bytes in each copy; small copies stay in a cache.
        size_bytes: Bytes = 65536 (smoke 64, range 1 ..= 268435456),
    }
}

/// Workload: the C library's `memcpy` between the same two buffers every time.
pub(crate) struct Memcpy(CopyBuffers);

impl Workload for Memcpy {
    type Args = MemcpyArgs;
    const SPEC: Spec =
        Spec::new("floor/memcpy", "memcpy of size_bytes between the same two buffers").ladder();

    fn setup(args: &MemcpyArgs, _: &mut Setup) -> Result<Memcpy, Fault> {
        Ok(Memcpy(CopyBuffers::new(PieceOffsets::new(args.size_bytes, args.size_bytes))))
    }

    fn self_test(&mut self) -> Result<(), Fault> {
        let (from, to) = self.0.next_piece();
        to.copy_from_slice(from);
        check_bytes_equal(to, from)
    }

    fn sample(&mut self, out: &mut Samples) {
        let (from, to) = self.0.next_piece();
        out.set_bytes_per_op(from.len() as u64);
        out.time_batches(|n| {
            for _ in 0..n {
                to.copy_from_slice(black_box(from));
                black_box(&mut *to);
            }
        });
    }
}
