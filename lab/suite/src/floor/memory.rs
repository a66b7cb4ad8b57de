//! Copying memory: the floor of everything that moves bytes.

use handover_harness::{Fault, Rig, Samples, Workload};
use handover_record::{Bytes, Spec, args};
use std::hint::black_box;
use zerocopy::{FromBytes, Immutable, IntoBytes};

args! {
    /// Size of a copy.
    pub struct Copy {
        /// Bytes in each copy; small ones stay in a cache.
        size_bytes: Bytes = 65536 (smoke 64, range 1 ..= 268435456),
    }
}

const PAGE_BYTES: usize = 4096;

/// Both buffers begin on a page, so that their addresses differ by whole pages: a load from one
/// buffer then never has the same low 12 bits as a recent store to the other, which the CPU could
/// mistake for that store.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C, align(4096))]
struct Page([u8; PAGE_BYTES]);

/// The C library's `memcpy` between two buffers of this thread, the same ones every time.
pub(crate) struct Memcpy {
    from: Vec<Page>,
    to: Vec<Page>,
    size_bytes: usize,
}

impl Memcpy {
    fn buffers(&mut self) -> (&[u8], &mut [u8]) {
        let size = self.size_bytes;
        (&self.from.as_bytes()[..size], &mut self.to.as_mut_bytes()[..size])
    }
}

impl Workload for Memcpy {
    type Args = Copy;
    const SPEC: Spec = Spec {
        id: "floor/memcpy",
        what: "memcpy of size_bytes between two buffers that stay where they are",
        ladder: true,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };

    fn rig(args: &Copy, _: &mut Rig) -> Result<Memcpy, Fault> {
        let size_bytes = usize::try_from(args.size_bytes.0).unwrap_or(usize::MAX);
        let pages_count = size_bytes.div_ceil(PAGE_BYTES);
        // Both are written: a page never written is the kernel's page of zeros, or none.
        let from = (0..pages_count).map(|page| Page([page as u8 ^ 0xa5; PAGE_BYTES])).collect();
        let to = vec![Page([0xff; PAGE_BYTES]); pages_count];
        Ok(Memcpy { from, to, size_bytes })
    }

    fn check(&mut self) -> Result<(), Fault> {
        let (from, to) = self.buffers();
        to.copy_from_slice(from);
        if from == to { Ok(()) } else { Err(Fault::new("the copy differs")) }
    }

    fn sample(&mut self, out: &mut Samples) {
        out.bytes_per_op(self.size_bytes as u64);
        let (from, to) = self.buffers();
        out.batches(|n| {
            for _ in 0..n {
                to.copy_from_slice(black_box(from));
                black_box(&mut *to);
            }
        });
    }
}
