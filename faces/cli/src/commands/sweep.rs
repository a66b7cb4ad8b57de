//! `handover sweep`: one benchmark with several values of one argument, stored as one run.

use super::run;
use crate::app::{NameOption, PlanOptions, StoreOption};
use crate::commands::stored;
use crate::exit;
use clap::Args;
use handover_harness::Lab;
use handover_program::console;
use handover_record::ArgRange;
use std::io::Write;

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
    #[command(flatten)]
    plan: PlanOptions,
    #[command(flatten)]
    name: NameOption,
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
    let lab = Lab::new_sweep(handover_suite::SUITES, &args.id, &args.over, args.plan.plan())
        .map_err(exit::plan_error)?;
    let over = Some(args.over.name.as_str());
    let display = run::ProgressDisplay { quiet: args.json, plain: args.plain, over };
    let profile = args.plan.profile.to_string();
    let measured = run::measure(&lab, &profile, &args.db, display, args.name.name.as_deref())?;
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
