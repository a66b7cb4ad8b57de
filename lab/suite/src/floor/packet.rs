//! Unavoidable lag of a flow under any schedule of whole packets.

use handover_harness::{Fault, Rig, Samples, Workload};
use handover_record::{Spec, Unit};

/// Length of the longest packet, in bytes: that of Ethernet.
const LENGTH_BYTES: u32 = 1500;

/// One packet, which is sent whole or not at all.
pub(super) struct LongestPacket;

impl Workload for LongestPacket {
    type Args = ();
    const SPEC: Spec = Spec {
        id: "floor/longest-packet",
        what: "one longest packet: whoever sends whole packets lets another wait for one",
        unit: Unit::Bytes,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };

    fn rig((): &(), _: &mut Rig) -> Result<Self, Fault> {
        Ok(LongestPacket)
    }

    fn sample(&mut self, out: &mut Samples) {
        if out.running() {
            out.tell(0, LENGTH_BYTES.into());
        }
    }
}
