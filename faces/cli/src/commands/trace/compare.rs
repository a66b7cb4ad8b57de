//! `handover trace compare`: the functions of two traces, side by side.

use super::show::missing_json;
use super::{check_undamaged, has_selected_names, no_match_error, open_traces, select_names};
use crate::exit;
use clap::Args;
use handover_program::console;
use handover_trace::{
    CallStatistics, FunctionStatistics, SiteNames, SortOrder, Traces, WalkCounts,
    compare_functions, comparison_table, missing_event_lines, nearest_name, trace_headlines, walk,
};
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(
    after_help = "Functions are paired by name; the greatest change of self time comes first. A trace is one recording, \
so a difference may be noise: compare two recordings of the same program to see how much they differ."
)]
pub struct TraceCompare {
    /// Trace recorded before a change
    #[arg(value_name = "BEFORE")]
    pub before: PathBuf,
    /// Trace recorded after a change
    #[arg(value_name = "AFTER")]
    pub after: PathBuf,
    /// Leave out the traces of forked processes (FILE.PID)
    #[arg(long)]
    pub alone: bool,
    /// Only functions and probes that match: * and ?, commas for "or", - for "but not"
    #[arg(long, value_name = "PATTERN", allow_hyphen_values = true)]
    pub only: Option<String>,
    /// Maximum number of functions to show
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub top: Option<u32>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Traces of one of the two compared sides, with the names of their functions and probes.
struct Side {
    traces: Traces,
    names: SiteNames,
}

/// Statistics of the calls in the traces of one side.
struct SideStatistics {
    functions: Vec<FunctionStatistics>,
    /// Time in all outermost calls, in ns.
    time_ns: u64,
    /// Numbers of events and calls that were found.
    found: WalkCounts,
}

impl Side {
    fn open(files: &[PathBuf], args: &TraceCompare) -> anyhow::Result<Side> {
        let traces = open_traces(files, args.alone)?;
        let names = select_names(&traces, args.only.as_deref());
        Ok(Side { traces, names })
    }

    fn statistics(&self) -> anyhow::Result<SideStatistics> {
        let mut statistics = CallStatistics::new();
        let found = walk(&self.traces, &self.names, &mut statistics)?;
        let functions = statistics.functions(&self.names, SortOrder::Name);
        Ok(SideStatistics { functions, time_ns: statistics.outermost_calls_time_ns(), found })
    }
}

pub fn compare(args: &TraceCompare, out: &mut dyn Write) -> anyhow::Result<()> {
    let [before, after] = [&args.before, &args.after].map(std::slice::from_ref);
    let sides = [Side::open(before, args)?, Side::open(after, args)?];
    if let Some(pattern) = &args.only
        && !sides.iter().any(|side| has_selected_names(&side.names))
    {
        let names = sides.iter().flat_map(|side| side.names.iter().skip(1)).map(|(_, name)| name);
        return Err(no_match_error(
            pattern,
            nearest_name(pattern, names),
            "handover trace list FILE",
        ));
    }
    let [before, after] = [sides[0].statistics()?, sides[1].statistics()?];
    let times_ns = [before.time_ns, after.time_ns];
    let founds = [before.found, after.found];
    let mut compared = compare_functions(before.functions, after.functions);
    compared.truncate(args.top.map_or(usize::MAX, |top| top.try_into().unwrap_or(usize::MAX)));
    let text = if args.json {
        let side = |place: usize| {
            let Side { traces, .. } = &sides[place];
            json!({
                "files": traces.paths().iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
                "time_ns": times_ns[place],
                "missing": missing_json(traces),
                "pairing": founds[place],
            })
        };
        let document = json!({
            "schema": 1, "before": side(0), "after": side(1), "functions": compared,
        });
        format!("{document}\n")
    } else {
        let mut text = String::new();
        for (label, side) in ["before: ", "after:  "].into_iter().zip(&sides) {
            for line in trace_headlines(&side.traces).lines() {
                text += &format!("{label}{line}\n");
            }
        }
        let table = comparison_table(&compared, times_ns);
        text += &format!("\n{}", console::cut_tables(&table, console::cut_width()));
        for (label, (side, found)) in ["before", "after"].into_iter().zip(sides.iter().zip(&founds))
        {
            for note in missing_event_lines(&side.traces, found) {
                text += &format!("{label}: {note}\n");
            }
        }
        text
    };
    let checked = sides.iter().try_for_each(|side| check_undamaged(&side.traces));
    exit::print_and_join(checked, &text, out)
}
