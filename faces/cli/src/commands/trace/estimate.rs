//! `handover trace estimate`: the cost of a recording, and suggestions for a filter.

use super::{TraceSelection, check_undamaged, print_missing_events};
use crate::exit;
use clap::Args;
use handover_base::units::TimeSpan;
use handover_program::console;
use handover_trace::{ExclusionLimits, WalkCounts, estimate_table};
use serde_json::json;
use std::io::Write;

#[derive(Debug, Args)]
pub struct TraceEstimate {
    #[command(flatten)]
    pub selection: TraceSelection,
    /// Suggest to leave out only functions with at least this share of all events, in per cent
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = parse_percent)]
    pub share: f64,
    /// Suggest to leave out only functions with at most this mean duration
    #[arg(long, value_name = "TIME", default_value = "1us", value_parser = parse_duration_ns)]
    pub below: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').parse::<f64>().ok();
    let bounded = number.filter(|number| (0.0..=100.0).contains(number));
    bounded.ok_or_else(|| "must lie in 0..=100".to_string())
}

fn parse_duration_ns(text: &str) -> Result<u64, String> {
    text.parse::<TimeSpan>().map(|span| span.0).map_err(|refused| refused.to_string())
}

pub fn estimate(args: &TraceEstimate, out: &mut dyn Write) -> anyhow::Result<()> {
    let (traces, names) = args.selection.open()?;
    let limits = ExclusionLimits { share_percent_min: args.share, mean_ns_max: args.below };
    let mut estimate = handover_trace::estimate(&traces, &names, &limits)?;
    if let (Some(only), Some(filter)) = (&args.selection.only, &mut estimate.filter) {
        *filter = format!("{only},{filter}");
    }
    let text = if args.json {
        let mut document = json!({"schema": 1});
        document["estimate"] = serde_json::to_value(&estimate)?;
        format!("{document}\n")
    } else {
        let text = estimate_table(&estimate);
        // The text below the table ends with a filter, which must stay whole.
        let (table, below) = text.split_at(text.find("\n\n").map_or(text.len(), |at| at + 1));
        format!("{}{below}", console::cut_tables(table, console::cut_width()))
    };
    let printed = exit::print_and_join(check_undamaged(&traces), &text, out);
    print_missing_events(&traces, &WalkCounts::default());
    printed
}
