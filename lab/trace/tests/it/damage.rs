//! Files that are damaged, cut off or not traces.

use crate::samples::{recorded, sample};
use handover_probe::read::Trace;
use handover_probe::{ReadError, span};
use handover_trace::{
    CallStatistics, ExportFormat, SiteNames, TraceError, Traces, TreeGrouping, export, walk,
};
use std::fs;

#[test]
fn file_that_is_not_a_trace_is_refused_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in
        [("empty", &b""[..]), ("text", b"a text, and no trace"), ("elf", b"\x7fELF")]
    {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        let refused = Traces::open([&path]).unwrap_err();
        assert!(refused.to_string().contains(name), "{refused}");
        assert!(matches!(refused, TraceError::Read { source: ReadError::NotATrace, .. }));
    }
    let refused = Traces::open([folder.path().join("none")]).unwrap_err();
    assert!(matches!(refused, TraceError::Read { source: ReadError::Io(_), .. }));
}

#[test]
fn traces_with_different_clocks_are_refused() {
    let (folder, traces) = recorded("mine", "clock.*", || {
        let _span = span!("clock.span");
    });
    // The first page holds the machine's boot time; its checksum is corrected after the change.
    let mine = &traces.paths()[0];
    let mut bytes = fs::read(mine).unwrap();
    bytes[72] ^= 1;
    let other = folder.path().join("other");
    fs::write(&other, handover_probe::read::repair_checksums(bytes)).unwrap();
    assert_eq!(Traces::open([&other]).unwrap().merged_events().count(), 2);
    let refused = Traces::open([mine, &other]).unwrap_err();
    assert!(refused.to_string().contains("other") && refused.to_string().contains("mine"));
}

#[test]
fn intact_parts_of_a_damaged_file_are_shown_and_nest() {
    let bytes = fs::read(&sample().paths()[0]).unwrap();
    let all = sample().merged_events().count() as u64;
    for at in (4096..bytes.len()).step_by(61) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x55;
        for damaged in [bytes[..at].to_vec(), flipped] {
            let traces = Traces::from_trace(Trace::from_bytes(damaged).unwrap());
            let names = SiteNames::with_all_selected(&traces);
            let found = walk(&traces, &names, &mut CallStatistics::new()).unwrap();
            assert!(found.events <= all, "more events than were recorded");
            for format in ExportFormat::ALL {
                let mut out = Vec::new();
                export(&traces, &names, *format, TreeGrouping::Processes, &mut out).unwrap();
                if *format == ExportFormat::Perfetto {
                    crate::perfetto::tracks(&out).iter().for_each(crate::perfetto::assert_nests);
                }
            }
        }
    }
}
