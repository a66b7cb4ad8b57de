//! `handover sweep`: one benchmark with several values of one argument, stored as one run.

use super::run;
use crate::app::{NameOption, PlanOptions, StoreOption, parse_assignment};
use crate::commands::stored;
use crate::exit;
use clap::Args;
use handover_base::topology;
use handover_harness::Lab;
use handover_program::console;
use handover_record::{ArgRange, Document};
use handover_report::Sweep;
use handover_store::db_option;
use std::io::Write;

/// Minimum number of measured values for a prediction.
const VALUES_MIN: u64 = 5;

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
    /// Predict the rates for a value that was not measured, from the fitted law: ARG=VALUE. With
    /// cores=VALUE, the law is fitted only to values up to the number of CPUs of this machine
    #[arg(long, value_name = "ARG=VALUE", value_parser = parse_assignment, conflicts_with = "json")]
    simulate: Option<(String, String)>,
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
    let cpus_count = topology::allowed_cpus().len() as u64;
    let parse = |it| parse_prediction(it, &args.over.name, cpus_count);
    let prediction = args.simulate.as_ref().map(parse).transpose()?;
    let swept_argument = Some(args.over.name.as_str());
    let display =
        run::ProgressDisplay { is_quiet: args.json, is_plain: args.plain, swept_argument };
    let profile = args.plan.profile.to_string();
    let measured = run::measure(&lab, &profile, &args.db, display, args.name.name.as_deref())?;
    let shown = show(args, prediction, &measured, out);
    measured.into_result(shown)
}

/// Prediction that `--simulate` requests.
#[derive(Clone, Copy)]
pub(super) struct RequestedPrediction {
    /// Number of workers for which rates are predicted.
    workers_count: u64,
    /// Greatest value of the swept argument whose measurements the law is fitted to.
    measured_max: u64,
}

/// Parses the value of `--simulate` for a sweep over `argument`.
fn parse_prediction(
    (name, value): &(String, String),
    argument: &str,
    cpus_count: u64,
) -> anyhow::Result<RequestedPrediction> {
    let refuse =
        |why: String| Err(exit::to_usage_error(format!("--simulate {name}={value}: {why}")));
    let count = value.parse().ok().filter(|count| (1..=1_000_000_000).contains(count));
    let Some(workers_count) = count else {
        return refuse("must be a number in 1..=1000000000".to_string());
    };
    if !Sweep::can_predict(argument) {
        return refuse(format!(
            "{argument} does not count workers that share a load, so no law applies"
        ));
    }
    let measured_max = match name.as_str() {
        "cores" if cpus_count < VALUES_MIN => {
            return refuse(format!(
                "the law needs {VALUES_MIN} values of {argument} up to the number of CPUs, and this machine has \
                 {cpus_count}; {argument}={value} predicts the rate on this machine instead"
            ));
        }
        "cores" => cpus_count,
        name if name == argument => u64::MAX,
        _ => return refuse(format!("use {argument}={value} or cores={value}")),
    };
    Ok(RequestedPrediction { workers_count, measured_max })
}

/// Prints the sweep, and the predictions if they are requested.
fn show(
    args: &SweepArgs,
    prediction: Option<RequestedPrediction>,
    measured: &run::MeasuredRun,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let document = &measured.document;
    if args.json {
        return stored::write_json(document, out);
    }
    print_sweeps(document, prediction, out)?;
    if let Some(store) = &measured.store {
        let id = &document.run.id;
        let (path, db) = (store.display(), db_option(store));
        writeln!(out, "run {id} is in {path}; `handover plot {id}{db}` draws it")?;
    }
    Ok(())
}

/// Prints each sweep of a run as a table, and the rates predicted for `prediction`.
pub(super) fn print_sweeps(
    document: &Document,
    prediction: Option<RequestedPrediction>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let (width, style) = (console::output_width(), console::output_style(false));
    for sweep in handover_report::find_sweeps(document) {
        writeln!(out, "{}", sweep.render_text(width, style).trim_end())?;
        if let Some(RequestedPrediction { workers_count, measured_max }) = prediction {
            let text = sweep.render_predictions(workers_count, measured_max, width, style);
            writeln!(out, "\n{}", text.trim_end())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_simulated_from_values_up_to_the_number_of_cpus() {
        let simulate = |name: &str, cpus_count| {
            let option = (name.to_string(), "64".to_string());
            let parsed = parse_prediction(&option, "threads_count", cpus_count);
            parsed.map(|it| (it.workers_count, it.measured_max)).map_err(|error| error.to_string())
        };
        assert_eq!(simulate("cores", 16), Ok((64, 16)));
        assert_eq!(simulate("threads_count", 2), Ok((64, u64::MAX)));
        let refused = simulate("cores", 2).expect_err("two CPUs are too few");
        assert!(refused.contains("this machine has 2; threads_count=64 predicts"), "{refused}");
    }
}
