//! Smallest memory of a waiting unit or a connection: a page of its own, or a word.

use handover_harness::{Fault, Rig, Samples, Workload};
use handover_record::{Spec, Unit};

/// One page of memory.
pub(super) struct Page;

impl Workload for Page {
    type Args = ();
    const SPEC: Spec = Spec {
        id: "floor/page",
        what: "one page of memory: whoever has a stack of its own touches one",
        unit: Unit::Bytes,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };

    fn rig((): &(), _: &mut Rig) -> Result<Self, Fault> {
        Ok(Page)
    }

    fn sample(&mut self, out: &mut Samples) {
        if out.running() {
            out.tell(0, rustix::param::page_size() as f64);
        }
    }
}

/// Size of the smallest reference to a waiting unit or a connection: an address.
const WORD_BYTES: usize = size_of::<*const ()>();

/// One word.
pub(super) struct Word;

impl Workload for Word {
    type Args = ();
    const SPEC: Spec = Spec {
        id: "floor/word",
        what: "one word of memory: whoever is to be found again has a place that is named somewhere",
        unit: Unit::Bytes,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };

    fn rig((): &(), _: &mut Rig) -> Result<Self, Fault> {
        Ok(Word)
    }

    fn sample(&mut self, out: &mut Samples) {
        if out.running() {
            out.tell(0, WORD_BYTES as f64);
        }
    }
}
