//! `calls`: the main table, in the loop and fully costed.

use crate::common::{Home, Said, json, said};
use regex_lite::Regex;
use std::fs;

/// Groups of loops with their rows: by compiler level, and with probes.
const GROUPS: [(&str, &[&str]); 3] = [
    ("Compiled with -O0", IN_C),
    ("Compiled with -O3", IN_C),
    (
        "With probes (Rust, optimised)",
        &[
            "Function call (function in the same source file):",
            "Function call with two additional function calls:",
            "Function call with two time stamps, kept nowhere:",
            "Function call with one probe, off:",
            "Function call with two probes, off:",
            "Function call with two probes, filtered:",
            "Function call with two probes, recorded in memory:",
            "Function call with two probes, output to /dev/shm:",
            "Function call with two probes, output to . (",
        ],
    ),
];

const IN_C: &[&str] = &[
    "Function call (function in the same source file):",
    "Function call (function in a static library):",
    "Function call (function in a dynamic library):",
    "Function call with two additional function calls:",
    "The loop alone, without a call:",
];

/// A process's row: three times in seconds, memory, bytes, bytes per event, share lost, and cycles.
const COSTED: &str = r" +\d+\.\d{3} +\d+\.\d{3} +\d+\.\d{3} +\d+\.\d +\d+ +(-|\d+\.\d\d B) +(0|\d+\.\d\d %) +\d+\.\d( +\([+-]\d+\.\d\))?( +-?\d+\.\d\d times two time stamps)?$";

/// Returns the lines below a heading.
fn below<'a>(said: &'a Said, heading: &str) -> Vec<&'a str> {
    let lines = said.out.lines().skip_while(|line| !line.starts_with(heading)).skip(1);
    let lines: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    assert!(!lines.is_empty(), "nothing below {heading}: {said}");
    lines
}

fn row<'a>(lines: &[&'a str], name: &str, said: &Said) -> &'a str {
    let found = lines.iter().find(|line| line.trim().starts_with(name));
    found.unwrap_or_else(|| panic!("no {name}: {said}"))
}

#[test]
fn the_master_table_is_printed_in_the_loop_and_fully_costed() {
    let home = Home::new();
    home.ok("links .");
    let said = said(home.shell("./calls -m 1 --calls 1000 --dir .")).code(0);
    let loops =
        Regex::new(r" \d+\.\d (cycles|ticks) +\d+\.\d\d ns( +\([+-]\d+\.\d\))?").expect("a form");
    for (group, names) in GROUPS {
        let lines = below(&said, group);
        assert_eq!(lines.len(), names.len(), "{said}");
        for name in names {
            let row = row(&lines, name, &said);
            let form = loops.find(row).unwrap_or_else(|| panic!("{row}"));
            let rest = &row[form.end()..];
            assert!(rest.is_empty() || rest.ends_with(" of the events lost"), "{row}");
        }
    }
    let rounds = below(&said, "Rounds, in ");
    assert_eq!(rounds.len(), GROUPS.iter().map(|(_, names)| names.len()).sum::<usize>(), "{said}");
    let costed = below(&said, "Fully costed: ");
    let form = Regex::new(COSTED).expect("a form");
    for name in [
        "Function call (function in the same source file):",
        "Function call with two time stamps, kept nowhere:",
        "Function call with two probes, off:",
        "Function call with two probes, filtered:",
        "Function call with two probes, recorded in memory:",
        "Function call with two probes, output to /dev/shm:",
        "Function call with two probes, output to . (",
    ] {
        let row = row(&costed, name, &said);
        assert!(form.is_match(row), "{row}");
    }
    let empty = below(&said, "An empty program, ");
    assert_eq!(empty.len(), 3, "{said}");
    assert!(empty.iter().all(|line| line.contains(" ms")), "{said}");
    assert_eq!(home.processes(), [] as [u32; 0], "a process was left behind");
}

#[test]
fn the_document_has_every_row_and_accounts_for_every_event() {
    let home = Home::new();
    let document = json(&home.ok("calls -m 1 --calls 1000 --dir . --json"));
    assert_eq!(document["loops"].as_array().expect("rows").len(), 19, "{document}");
    for row in document["loops"].as_array().expect("rows") {
        assert!(row["ticks"].as_f64().is_some_and(|it| it > 0.0), "{row}");
    }
    let costed = document["costed"].as_array().expect("rows");
    assert_eq!(costed.len(), 7, "{document}");
    for row in costed {
        let text = row["text"].as_str().expect("a text");
        let events =
            ["events_count", "lost_count"].map(|name| row[name].as_u64().expect("a count"));
        let is_traced = text.contains("recorded") || text.contains("output");
        assert_eq!(events.iter().sum::<u64>(), if is_traced { 2000 } else { 0 }, "{row}");
        assert_eq!(row["bytes"] != 0, is_traced || text.contains("filtered"), "{row}");
        assert!(row["resident_bytes"].as_u64().is_some_and(|it| it > 100_000), "{row}");
    }
    assert_eq!(document["empty"].as_array().expect("rows").len(), 3, "{document}");
}

#[test]
fn what_cannot_be_written_is_said_in_its_row_and_in_the_end() {
    let home = Home::new();
    // Files are limited to 64 KiB, and no ring fits.
    let said = said(home.shell("ulimit -f 64 && exec handover calls -m 1 --calls 1000 --dir ."));
    let said = said.code(1).tells(&["two probes, ", "File too large"]);
    let lines = below(&said, "With probes");
    for name in ["recorded in memory:", "output to /dev/shm:", "output to . ("] {
        let row = row(&lines, &format!("Function call with two probes, {name}"), &said);
        assert!(row.contains("not measured: ") && row.contains("File too large"), "{row}");
    }
    let off = row(&lines, "Function call with two probes, off:", &said);
    assert!(off.contains(" ns"), "{off}");
    let left: Vec<_> = fs::read_dir(home.cwd()).expect("a folder").collect();
    assert!(left.is_empty(), "{left:?}");
}
