//! Results as text for a terminal. Control characters in names are escaped.

use crate::compare::FunctionComparison;
use crate::estimate::CostEstimate;
use crate::statistics::FunctionStatistics;
use crate::traces::Traces;
use crate::tree::TreeLine;
use crate::walk::{STACK_DEPTH_MAX, WalkCounts};
use handover_base::units::{format_bytes_rate, format_count, format_ns};
use handover_probe::Site;
use handover_probe::read::{ReadAt, RecordingState, Trace};
use std::collections::HashSet;

/// Table with right-aligned columns of numbers and a last column of names.
struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new(heads: &[&str]) -> Self {
        Self { rows: vec![heads.iter().map(|head| (*head).to_owned()).collect()] }
    }

    fn add_row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    fn to_text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                if column + 1 == columns {
                    line.push_str(cell);
                } else {
                    line.push_str(&format!("{cell:>width$}  ", width = widths[column]));
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Formats a time for a table.
fn time_text(ns: u64) -> String {
    format_ns(ns as f64)
}

/// Formats a number of bytes for a table.
fn size_text(bytes: u64) -> String {
    format_bytes_rate(bytes as f64).trim_end_matches("/s").to_owned()
}

/// Formats `part` as a percentage of `whole`.
fn percentage_text(part: u64, whole: u64) -> String {
    if whole == 0 { "-".into() } else { format!("{:.1}", part as f64 * 100.0 / whole as f64) }
}

/// Returns the sum of counts that a damaged or forged file may make as large as it likes.
pub(crate) fn saturating_sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

fn escape_control_characters(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        if c.is_control() { text.extend(c.escape_default()) } else { text.push(c) }
    }
    text
}

/// Returns one line per process. It has the program, the numbers of threads and events, and the
/// state of the recording.
#[must_use]
pub fn trace_headlines<S: ReadAt>(traces: &Traces<S>) -> String {
    let mut text = String::new();
    for (trace, path) in traces.as_slice().iter().zip(traces.paths()) {
        let program = trace.program().rsplit('/').next().unwrap_or_default();
        let threads = trace.threads().len();
        let events = saturating_sum(trace.threads().iter().map(|thread| thread.events_count));
        let ended = match trace.state() {
            RecordingState::Finished => String::new(),
            RecordingState::Failed(0) => ", recording failed".into(),
            RecordingState::Failed(errno) => {
                let why = std::io::Error::from_raw_os_error(i32::try_from(errno).unwrap_or(0));
                format!(", recording stopped early: {why}")
            }
            _ => ", not finished: the process was killed or is still recording".into(),
        };
        let line = format!(
            "{program} [{}], {threads} thread{}, {} events{ended}  {}",
            trace.pid(),
            if threads == 1 { "" } else { "s" },
            format_count(events as f64),
            path.display(),
        );
        text.push_str(escape_control_characters(&line).trim_end());
        text.push('\n');
    }
    text
}

/// Returns one line for each kind of missing or incomplete events. Incomplete events lack their
/// start or end; the list is empty if there are none.
#[must_use]
pub fn missing_event_lines<S: ReadAt>(traces: &Traces<S>, found: &WalkCounts) -> Vec<String> {
    let missing = traces.missing_events();
    let sum = |count: fn(&Trace<S>) -> u64| saturating_sum(traces.as_slice().iter().map(count));
    let (damaged_bytes, refused) = (sum(Trace::damaged_bytes), sum(Trace::refused_threads_count));
    let depth = format!("calls nested deeper than {STACK_DEPTH_MAX} were skipped");
    let mut lines = Vec::new();
    for (count, what) in [
        (missing.lost, "events were lost while recording: a full ring, a full disk, or no ring"),
        (
            missing.overwritten,
            "older events were overwritten by newer ones, as the policy `last` requests",
        ),
        (missing.damaged, "events are in parts of the file that are damaged or cut off"),
        (missing.unread_max, "events at most were in ring files that no longer exist"),
        (damaged_bytes, "bytes of the file could not be parsed"),
        (refused, "threads got no ring"),
        (found.unmatched_leaves, "ends without a beginning were skipped"),
        (found.unmatched_enters, "beginnings without an end were ended with the surrounding call"),
        (found.open, "calls had not ended when their thread or the recording did"),
        (found.too_deep, depth.as_str()),
        (
            found.threads_with_losses,
            "threads have lost events: self times in them (~) may include calls that were lost",
        ),
        (found.cut_short, "threads' events changed in the file while it was read"),
    ] {
        if count > 0 {
            lines.push(format!("{count} {what}"));
        }
    }
    lines
}

/// Returns lines that explain why events or names are missing, with the remedies. The list is empty
/// if none are missing.
#[must_use]
pub fn remedy_lines<S: ReadAt>(traces: &Traces<S>) -> Vec<String> {
    let mut lines = Vec::new();
    for (trace, path) in traces.as_slice().iter().zip(traces.paths()) {
        let path = escape_control_characters(&path.display().to_string());
        let missing = trace.missing_events();
        if missing.damaged > 0 || trace.damaged_bytes() > 0 {
            lines.push(match trace.state() {
                RecordingState::Unfinished => format!(
                    "{path} is incomplete or damaged: if it is a copy, or was written when the disk \
                     was full, the original may have more; the intact parts are shown"
                ),
                _ => format!(
                    "{path} was complete, but has since been truncated or damaged: copy it again; the intact parts are shown"
                ),
            });
        }
        let sites = trace.sites();
        let unnamed = sites.iter().filter(|site| is_unnamed_function(site));
        let unnamed: HashSet<u32> = unnamed.map(|it| it.number).collect();
        // Functions whose events were all overwritten are not shown.
        if !unnamed.is_empty() && trace.merged_events().any(|it| unnamed.contains(&it.site)) {
            lines.push(format!(
                "functions without names: if their recorder was killed, `handover trace names {path}` looks \
                 them up; a stripped program has none"
            ));
        }
        if missing.unread_max > 0 {
            lines.push(format!(
                "the newest events of {path} were in its rings, in /dev/shm or beside it, which no longer exist: \
                 removed, left behind when it was copied, or lost when the machine was restarted"
            ));
        }
        if missing.lost > 0
            && trace.refused_threads_count() == 0
            && !matches!(trace.state(), RecordingState::Failed(_))
        {
            lines.push(format!(
                "{path}: to lose no events, enable fewer sites (`handover trace estimate {path}` names those that \
                 contribute little), use larger rings or let the program wait (--ring and --wait of `handover trace \
                 record`; for programs that record themselves, HANDOVER_TRACE_RING and HANDOVER_TRACE_WAIT)"
            ));
        }
    }
    lines
}

/// Returns `true` if the site is of a function without a symbol. Its name is the program's file and
/// an address.
pub(crate) fn is_unnamed_function(site: &Site) -> bool {
    let is_hex = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_hexdigit());
    site.line == 0 && site.name.rsplit_once("+0x").is_some_and(|(_, address)| is_hex(address))
}

/// Returns a table of functions, followed by a table of marks. Percentages are shares of `time_ns`.
#[must_use]
pub fn function_table(functions: &[FunctionStatistics], time_ns: u64) -> String {
    let mut table =
        Table::new(&["self", "%", "total", "calls", "min", "p50", "p99", "max", "threads", "name"]);
    for one in functions.iter().filter(|function| function.calls > 0) {
        let durations = match &one.durations {
            Some(of) => [of.min_ns, of.p50_ns, of.p99_ns, of.max_ns].map(time_text),
            None => [const { String::new() }; 4].map(|_| "-".to_owned()),
        };
        let calls = if one.cut > 0 {
            let (calls, cut_count) = (one.calls, one.cut);
            format!("{calls} ({cut_count} cut)")
        } else {
            one.calls.to_string()
        };
        let self_time =
            format!("{}{}", if one.has_losses { "~" } else { "" }, time_text(one.self_ns));
        let front =
            [self_time, percentage_text(one.self_ns, time_ns), time_text(one.total_ns), calls];
        let back = [one.threads.to_string(), escape_control_characters(&one.name)];
        table.add_row(front.into_iter().chain(durations).chain(back));
    }
    let mut text = if table.rows.len() > 1 { table.to_text() } else { String::new() };
    let mut marks = Table::new(&["passed", "threads", "mark"]);
    for one in functions.iter().filter(|function| function.marks > 0) {
        marks.add_row([
            one.marks.to_string(),
            one.threads.to_string(),
            escape_control_characters(&one.name),
        ]);
    }
    if marks.rows.len() > 1 {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&marks.to_text());
    }
    text
}

/// Returns a table with one row per function of two traces, followed by the change of the time in
/// all functions.
#[must_use]
pub fn comparison_table(compared: &[FunctionComparison], times_ns: [u64; 2]) -> String {
    let mut table = Table::new(&[
        "self before",
        "after",
        "change",
        "calls before",
        "after",
        "p50 before",
        "after",
        "name",
    ]);
    for one in compared {
        let sides = [&one.before, &one.after];
        let of_sides = |cell: &dyn Fn(&FunctionStatistics) -> String| {
            sides.map(|side| side.as_ref().map_or_else(|| "-".to_owned(), cell))
        };
        let self_times = of_sides(&|it| {
            format!("{}{}", if it.has_losses { "~" } else { "" }, time_text(it.self_ns))
        });
        let calls = of_sides(&|it| (it.calls + it.marks).to_string());
        let medians = of_sides(&|it| it.durations.map_or("-".into(), |of| time_text(of.p50_ns)));
        let change = time_change_text(one.self_time_change_ns());
        table.add_row(
            self_times
                .into_iter()
                .chain([change])
                .chain(calls)
                .chain(medians)
                .chain([escape_control_characters(&one.name)]),
        );
    }
    let [before_ns, after_ns] = times_ns;
    let mut text = table.to_text();
    text.push_str(&format!(
        "\nall functions: {} before, {} after",
        time_text(before_ns),
        time_text(after_ns)
    ));
    if before_ns > 0 {
        let percent = (after_ns as f64 / before_ns as f64 - 1.0) * 100.0;
        text.push_str(&format!(": {percent:+.1} %"));
    }
    text.push('\n');
    text
}

/// Formats a change of a time with its sign; no change is `0`.
fn time_change_text(change_ns: i128) -> String {
    let sign = match change_ns.signum() {
        0 => return "0".to_owned(),
        1 => '+',
        _ => '-',
    };
    format!("{sign}{}", format_ns(change_ns.unsigned_abs() as f64))
}

/// Returns a table with one row per line of a call tree.
#[must_use]
pub fn tree_table(lines: &[TreeLine]) -> String {
    let mut table = Table::new(&["total", "%", "self", "calls", "call tree"]);
    let mut whole_ns = 0;
    for line in lines {
        if line.level == 0 {
            whole_ns = line.total_ns;
        }
        let name = format!(
            "{:indent$}{}",
            "",
            escape_control_characters(&line.name),
            indent = 2 * line.level
        );
        let percentage = percentage_text(line.total_ns, whole_ns);
        table.add_row([
            time_text(line.total_ns),
            percentage,
            time_text(line.self_ns),
            line.calls.to_string(),
            name,
        ]);
    }
    table.to_text()
}

/// Returns a table of the functions' costs, followed by the suggested filter.
#[must_use]
pub fn estimate_table(estimate: &CostEstimate) -> String {
    let mut table = Table::new(&["events", "%", "streamed", "calls", "mean", "", "name"]);
    for share in &estimate.shares {
        table.add_row([
            share.events.to_string(),
            percentage_text(share.events, estimate.events),
            size_text(share.stream_bytes),
            if share.calls > 0 { share.calls.to_string() } else { "-".into() },
            share.mean_ns.map_or("-".into(), time_text),
            if share.is_left_out { "out" } else { "" }.into(),
            escape_control_characters(&share.name),
        ]);
    }
    let mut text = table.to_text();
    text.push_str(&format!(
        "\n{} events: {} streamed, {} in rings\n",
        estimate.events,
        size_text(estimate.stream_bytes),
        size_text(estimate.ring_bytes),
    ));
    match &estimate.filter {
        None => text.push_str("no function needs to be left out\n"),
        Some(filter) => text.push_str(&format!(
            "without the functions marked out: {} events ({} %), about {}\n{}\n",
            estimate.events_left,
            percentage_text(estimate.events_left, estimate.events),
            size_text(estimate.stream_bytes_left),
            escape_control_characters(filter),
        )),
    }
    text
}
