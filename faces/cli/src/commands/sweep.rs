//! `handover sweep`: one benchmark with several values of one argument, stored as one run.

use super::run;
use crate::app::{StoreOption, parse_assignment, parse_duration};
use crate::commands::stored;
use crate::exit;
use clap::Args;
use handover_base::topology::Placement;
use handover_harness::{Lab, Plan, Profile};
use handover_program::console;
use handover_record::ArgRange;
use std::io::Write;
use std::time::Duration;

/// Arguments of `handover sweep`.
#[derive(Debug, Args)]
#[command(
    after_help = "All values are measured in each pass, so that a spell of noise falls on a few rounds of each. \
They are stored as one run, which `handover plot` draws."
)]
pub struct SweepArgs {
    /// Full id of the benchmark, as `handover list` shows it
    #[arg(value_name = "ID")]
    id: String,
    /// Argument and its values: ARG=a..b (about twelve), ARG=a..b:step, or ARG=a..b:log (doubling)
    #[arg(long, value_name = "ARG=A..B")]
    over: ArgRange,
    /// Length of the measurement: smoke (once, to check that it works), quick, full
    #[arg(long, value_name = "NAME", default_value = "quick")]
    profile: Profile,
    /// Do not measure the peers (alternative implementations)
    #[arg(long)]
    no_peers: bool,
    /// Placement of the participants relative to each other: near, far, smt or same
    #[arg(long, value_name = "NAME", default_value = "near")]
    place: Placement,
    /// Pause before each hand-over, 0 to 100ms
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = parse_duration)]
    #[arg(allow_hyphen_values = true)]
    idle_gap: Duration,
    /// Measuring time of each value, 100ms to 1h [default: given by the profile]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    time: Option<Duration>,
    /// Run a busy thread on a CPU next to those of the participants
    #[arg(long)]
    neighbour: bool,
    /// Run participants as processes instead of threads
    #[arg(long)]
    processes: bool,
    /// Set another argument of the benchmark
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_assignment)]
    set: Vec<(String, String)>,
    /// Print one JSON document instead of the table
    #[arg(long)]
    json: bool,
    /// Print a line for each value instead of the live view
    #[arg(long)]
    plain: bool,
    #[command(flatten)]
    db: StoreOption,
}

pub fn sweep(args: &SweepArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let plan = Plan {
        profile: args.profile,
        place: args.place,
        idle_gap: args.idle_gap,
        time: args.time,
        neighbour: args.neighbour,
        processes: args.processes,
        peers: !args.no_peers,
        set: args.set.clone(),
        ..Plan::default()
    };
    let lab = Lab::new_sweep(handover_suite::SUITES, &args.id, &args.over, plan)
        .map_err(exit::plan_error)?;
    let over = Some(args.over.name.as_str());
    let display = run::ProgressDisplay { quiet: args.json, plain: args.plain, over };
    let measured = run::measure(&lab, &args.profile.to_string(), &args.db, display, None)?;
    let shown = show(args, &measured, out);
    measured.into_result(shown)
}

fn show(args: &SweepArgs, measured: &run::MeasuredRun, out: &mut dyn Write) -> anyhow::Result<()> {
    let document = &measured.document;
    if args.json {
        return stored::write_json(document, out);
    }
    for sweep in handover_report::find_sweeps(document) {
        writeln!(
            out,
            "{}",
            sweep.render_text(console::output_width(), console::output_style(false)).trim_end()
        )?;
    }
    if let Some(store) = &measured.store {
        let id = &document.run.id;
        writeln!(out, "run {id} is in {}; `handover plot {id}` draws it", store.display())?;
    }
    Ok(())
}
