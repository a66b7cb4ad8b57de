//! `handover trace show`: statistics and call trees.

use super::{TraceSelection, check_undamaged};
use crate::exit;
use clap::Args;
use handover_probe::read::{RecordingState, Trace};
use handover_program::console;
use handover_trace::{
    CallStatistics, CallTree, SortOrder, TREE_LEVELS_MAX, Traces, TreeGrouping, function_table,
    missing_event_lines, remedy_lines, trace_headlines, tree_table, walk,
};
use serde_json::{Value, json};
use std::io::Write;

#[derive(Debug, Args)]
pub struct TraceShow {
    #[command(flatten)]
    pub selection: TraceSelection,
    /// Show the call tree
    #[arg(long)]
    pub tree: bool,
    /// Maximum depth of the tree
    #[arg(long, value_name = "LEVELS", default_value_t = 16, requires = "tree")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=TREE_LEVELS_MAX as i64))]
    pub depth: u32,
    /// Show a tree for each thread instead of each process
    #[arg(long, requires = "tree")]
    pub threads: bool,
    /// Order of the rows: self, total, calls, min, p50, p99, max or name
    #[arg(long, value_name = "ORDER", default_value = "self")]
    pub sort: SortOrder,
    /// Maximum number of functions to show
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub top: Option<u32>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

pub fn show(args: &TraceShow, out: &mut dyn Write) -> anyhow::Result<()> {
    let (traces, names) = args.selection.open()?;
    let grouping = if args.threads { TreeGrouping::Threads } else { TreeGrouping::Processes };
    let mut both = (CallStatistics::new(), CallTree::new(grouping));
    let found = if args.tree {
        walk(&traces, &names, &mut both)?
    } else {
        walk(&traces, &names, &mut both.0)?
    };
    let (statistics, tree) = both;
    let time_ns = statistics.outermost_calls_time_ns();
    let mut functions = statistics.functions(&names, args.sort);
    functions.truncate(args.top.map_or(usize::MAX, |top| top.try_into().unwrap_or(usize::MAX)));
    let lines = tree.lines(&names, args.depth as usize);
    if args.json {
        let mut document = json!({
            "schema": 1,
            "processes": traces.as_slice().iter().zip(traces.paths()).map(|(trace, path)| {
                process_json(trace, &path.to_string_lossy())
            }).collect::<Vec<_>>(),
            "missing": missing_json(&traces),
            "pairing": found,
            "time_ns": time_ns,
            "functions": functions,
        });
        if args.tree {
            document["tree"] = serde_json::to_value(lines)?;
        }
        return exit::print_and_join(check_undamaged(&traces), &format!("{document}\n"), out);
    }
    let mut text = trace_headlines(&traces);
    let table = if args.tree { tree_table(&lines) } else { function_table(&functions, time_ns) };
    if found.events > 0 {
        text += &format!("\n{}", console::cut_tables(&table, console::cut_width()));
    }
    let notes = missing_event_lines(&traces, &found);
    if !notes.is_empty() {
        text.push('\n');
    }
    for note in notes {
        text += &format!("{note}\n");
    }
    for hint in remedy_lines(&traces) {
        text += &format!("hint: {hint}\n");
    }
    exit::print_and_join(check_undamaged(&traces), &text, out)
}

/// Returns the process and the threads of a trace, as JSON.
fn process_json(trace: &Trace, path: &str) -> Value {
    let threads: Vec<Value> = trace
        .threads()
        .iter()
        .map(|it| json!({"tid": it.tid, "name": it.name, "events": it.events_count}))
        .collect();
    let (end, errno) = match trace.state() {
        RecordingState::Finished => ("finished", None),
        RecordingState::Failed(errno) => ("failed", Some(errno)),
        _ => ("open", None),
    };
    json!({
        "pid": trace.pid(), "parent_pid": trace.parent_pid(), "program": trace.program(),
        "file": path, "end": end, "errno": errno, "threads": threads,
        "threads_refused": trace.refused_threads_count(), "damaged_bytes": trace.damaged_bytes(),
    })
}

/// Returns the numbers of missing events, as JSON.
pub(super) fn missing_json(traces: &Traces) -> Value {
    let it = traces.missing_events();
    json!({
        "lost": it.lost, "overwritten": it.overwritten, "damaged": it.damaged,
        "unread_max": it.unread_max,
    })
}
