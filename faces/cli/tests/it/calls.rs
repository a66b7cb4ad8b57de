//! `calls`: the main table, in the loop and fully costed.

use crate::common::{Home, Said, json, said, skipped};
use crate::transcript;
use regex_lite::Regex;
use std::fs;

/// Documented master table, with the names of today's tool and file system.
const MASTER: [&str; 9] = [
    "Function call (function in the same source file):      6 cycles",
    "Function call (function in a static library):          6 cycles",
    "Function call (function in a dynamic library):         9 cycles",
    "The following is all based on a function call into the same source file",
    "Function call with two notify intrinsics:              7 cycles    (+1)",
    "Function call with two additional function calls:     15 cycles    (+9)",
    "Function call with handover, filtered:               196 cycles  (+190)",
    "Function call with handover, output to /dev/shm:     891 cycles  (+885)",
    "Function call with handover, output to DIR:         1146 cycles (+1140)",
];

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
            "Function call with two probes, streamed to /dev/shm:",
            "Function call with two probes, streamed to . (",
        ],
    ),
];

const IN_C: &[&str] = &[
    "Function call (function in the same source file):",
    "Function call (function in a static library):",
    "Function call (function in a dynamic library):",
    "Function call with one notify intrinsic:",
    "Function call with two notify intrinsics:",
    "Function call with two additional function calls:",
    "Empty function, noinline (call",
    "Empty function, a notify intrinsic inside:",
    "Empty function in a dynamic library:",
    "The loop alone, without a call:",
];

/// Rows of processes, of each kind of function.
const COSTED_ROWS: [(&str, &[&str]); 5] = [
    ("Function call (function in the same source file)", &[":"]),
    ("Function call with two time stamps, kept nowhere", &[":"]),
    ("Function call with two probes", &[", off:"]),
    ("Function call with -finstrument-functions", &[", not recorded:"]),
    ("Function call with -fpatchable-function-entry", &[", not recorded:"]),
];
const RECORDED_ROWS: [&str; 6] = [
    ", filtered:",
    ", newest events kept in memory:",
    ", written at the end to /dev/shm:",
    ", written at the end to . (",
    ", streamed to /dev/shm:",
    ", streamed to . (",
];

/// Returns the starts of all rows of processes. Functions of C programs are recorded on x86-64
/// alone.
fn costed_rows() -> Vec<String> {
    let subjects = if cfg!(target_arch = "x86_64") { 5 } else { 3 };
    let mut rows = Vec::new();
    for (index, (subject, first)) in COSTED_ROWS[..subjects].iter().enumerate() {
        let recorded: &[&str] = if index < 2 { &[] } else { &RECORDED_ROWS };
        rows.extend(first.iter().chain(recorded).map(|tool| format!("{subject}{tool}")));
    }
    rows
}

/// A process's row: three times in seconds, memory, bytes, bytes per event, share lost, and the
/// cycles of the median and of the best run.
const COSTED: &str = r" +\d+\.\d{3} +\d+\.\d{3} +\d+\.\d{3} +\d+\.\d +\d+ +(-|\d+\.\d\d B) +(0|\d+\.\d\d %) +\d+\.\d +\d+\.\d( +\([+-]\d+\.\d\))?( +-?\d+\.\d\d times two time stamps)?$";

/// Documented form of what `/usr/bin/time` prints.
const TIMES: [&str; 2] = [
    "8.21user 3.70system 0:12.50elapsed 95%CPU (0avgtext+0avgdata 3770624maxresident)k",
    "0inputs+3125032outputs (0major+3366minor)pagefaults 0swaps",
];

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
fn documented_master_table_is_printed_first() {
    if cfg!(not(target_arch = "x86_64")) {
        return skipped("the master table", "functions of C programs are recorded on x86-64 alone");
    }
    let home = Home::new();
    home.ok("links .");
    let said = said(home.shell("./calls -m 0.01 --calls 1000 --runs 1 --dir .")).code(0);
    let header =
        Regex::new(r"^Calls: 0\.01 M a row, 25 rounds; cycles of the TSC, at \d+\.\d MHz$");
    let is_tsc = header.expect("a form").is_match(said.out.lines().next().expect("a line"));
    let unit = if is_tsc { "cycles" } else { "ticks" };
    let master = below(&said, "Master table");
    for (line, documented) in master.iter().zip(MASTER) {
        let line = line.strip_prefix("  ").expect("two columns");
        let documented = documented.replace("cycles", unit);
        // The name of the file system here.
        let kind = line.split_once("output to ").and_then(|(_, rest)| rest.split_once(':'));
        let documented = documented.replace("DIR", kind.map_or("DIR", |(kind, _)| kind));
        // Columns are as wide as documented, and figures stand at their right, but for those that
        // are too wide.
        let Some((text, figures)) = documented.split_once(':') else {
            assert_eq!(line, documented, "{said}");
            continue;
        };
        let escaped = regex_lite::escape(text);
        let beyond = if figures.contains('(') { r"( *\([+-]\d+\))" } else { "()" };
        let form = format!(r"^{escaped}:( *\d+) {unit}{beyond}$");
        let found = Regex::new(&form).expect("a form").captures(line);
        let found = found.unwrap_or_else(|| panic!("{line:?} is not {form}: {said}"));
        let is_aligned = text.len() + 1 + found[1].len() == 56;
        assert!(is_aligned || text.len() > 48 || found[1].len() > 7, "{line}: {said}");
        assert!(found[2].is_empty() || found[2].len() >= 8, "{line}: {said}");
    }
    // Rows of ours: streamed, and with probes.
    assert_eq!(master.len(), MASTER.len() + 7, "{said}");
    for line in &master[MASTER.len()..] {
        assert!(
            line.contains(" handover, streamed to ") || line.contains("Two probes of handover, ")
        );
    }
}

#[test]
fn every_row_is_printed_for_the_loop_and_for_the_whole_process() {
    let home = Home::new();
    let said = home.run("calls -m 0.01 --calls 1000 --runs 2 --dir .").code(0);
    let loops =
        Regex::new(r" \d+\.\d (cycles|ticks) +\d+\.\d\d ns( +\([+-]\d+\.\d\))?").expect("a form");
    for (group, names) in GROUPS {
        let lines = below(&said, group);
        assert_eq!(lines.len(), names.len(), "{said}");
        for (name, line) in names.iter().zip(lines) {
            assert!(line.trim().starts_with(name), "{line} is not {name}: {said}");
            let form = loops.find(line).unwrap_or_else(|| panic!("{line}"));
            let rest = &line[form.end()..];
            assert!(rest.is_empty() || rest.ends_with(" of the events lost"), "{line}");
        }
    }
    let rounds = below(&said, "Rounds, in ");
    assert_eq!(rounds.len(), GROUPS.iter().map(|(_, names)| names.len()).sum::<usize>(), "{said}");
    let costed = below(&said, "Fully costed: ");
    let form = Regex::new(COSTED).expect("a form");
    // Below the heads of its columns.
    assert_eq!(costed.len(), 1 + costed_rows().len(), "{said}");
    for (name, line) in costed_rows().iter().zip(&costed[1..]) {
        assert!(
            line.trim().starts_with(name) && form.is_match(line),
            "{line} is not {name}: {said}"
        );
    }
    let empty = below(&said, "An empty program, ");
    assert_eq!(empty.len(), 3, "{said}");
    let form =
        Regex::new(r" \d+\.\d\d ms(   \([+-]\d+\.\d\d\))?, best \d+\.\d\d ms$").expect("a form");
    assert!(empty.iter().all(|line| form.is_match(line)), "{said}");
    let times = below(&said, "The best run of each, as /usr/bin/time prints it");
    assert_eq!(times.len(), 3 * (costed_rows().len() + 3), "{said}");
    for lines in times.chunks(3) {
        assert!(lines[0].ends_with(':'), "{said}");
        let lines: Vec<&str> = lines[1..].iter().map(|line| line.trim()).collect();
        transcript::assert_lines(&lines, &TIMES, &said.out);
    }
    assert_eq!(home.processes(), [] as [u32; 0], "a process was left behind");
}

#[test]
fn json_has_every_row_and_accounts_for_every_event() {
    let home = Home::new();
    let document = json(&home.ok("calls -m 0.01 --calls 1000 --runs 2 --dir . --json"));
    assert_eq!(document["loops"].as_array().expect("rows").len(), 29, "{document}");
    for row in document["loops"].as_array().expect("rows") {
        assert!(row["ticks"].as_f64().is_some_and(|it| it > 0.0), "{row}");
    }
    let costed = document["costed"].as_array().expect("rows");
    assert_eq!(costed.len(), costed_rows().len(), "{document}");
    for row in costed {
        let text = row["text"].as_str().expect("a text");
        let events =
            ["events_count", "lost_count"].map(|name| row[name].as_u64().expect("a count"));
        let is_traced = !text.contains("not recorded")
            && ["kept in memory", "written at the end", "streamed"]
                .iter()
                .any(|it| text.contains(it));
        assert_eq!(events.iter().sum::<u64>(), if is_traced { 2000 } else { 0 }, "{row}");
        // What is written at the end is all there.
        assert!(!text.contains("written at the end") || events == [2000, 0], "{row}");
        assert!(row["bytes"] != 0 || !is_traced, "{row}");
        assert!(row["resident_bytes"].as_u64().is_some_and(|it| it > 100_000), "{row}");
        let best = |name: &str| row["best"][name].as_f64().expect("a figure");
        assert!(best("wall_ns") <= row["wall_ns"].as_f64().expect("a figure") + 1.0, "{row}");
        assert!(best("faults_minor") > 0.0, "{row}");
    }
    assert_eq!(document["empty"].as_array().expect("rows").len(), 3, "{document}");
    assert!(document["master"].as_array().expect("rows").len() >= 8, "{document}");
}

#[test]
fn unwritable_output_is_reported_in_its_row_and_at_the_end() {
    let home = Home::new();
    // Files are limited to 64 KiB, and no ring fits.
    let said = said(
        home.shell("ulimit -f 64 && exec handover calls -m 0.01 --calls 1000 --runs 2 --dir ."),
    );
    let said = said.code(1).tells(&["two probes, ", "File too large"]);
    let lines = below(&said, "With probes");
    for name in ["recorded in memory:", "streamed to /dev/shm:", "streamed to . ("] {
        let row = row(&lines, &format!("Function call with two probes, {name}"), &said);
        assert!(row.contains("not measured: ") && row.contains("File too large"), "{row}");
    }
    let off = row(&lines, "Function call with two probes, off:", &said);
    assert!(off.contains(" ns"), "{off}");
    let left: Vec<_> = fs::read_dir(home.cwd()).expect("a folder").collect();
    assert!(left.is_empty(), "{left:?}");
}
