//! `handover anatomy`: the time of one hand-off by stage, from probes inside the mechanism.

use crate::app::{NameOption, PlanOptions, StoreOption, parse_seconds};
use crate::commands::{run, stored};
use crate::exit::{self, Interrupted, InterruptedBeforeResults, to_usage_error};
use anyhow::Context;
use clap::Args;
use handover_anatomy::{INSTRUMENTED_BENCHMARKS, InstrumentedBenchmark, MeasurementOptions};
use handover_harness::{Lab, Plan, PlanError, Profile};
use handover_program::{console, files};
use handover_record::{Document, Record};
use handover_store::Store;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

#[derive(Debug, Args)]
pub struct AnatomyArgs {
    /// Full id of the benchmark
    #[arg(value_name = "ID")]
    pub id: String,
    /// Contender to measure [default: the first one with probe sites]
    #[arg(long, value_name = "NAME")]
    pub contender: Option<String>,
    #[command(flatten)]
    pub plan: PlanOptions,
    /// Measuring time in seconds, instead of `--time`
    #[arg(long, value_name = "S", value_parser = parse_seconds, conflicts_with = "time")]
    #[arg(allow_hyphen_values = true)]
    pub seconds: Option<Duration>,
    /// Folder for the traces of the 10 slowest hand-offs, handover-outliers if none is given; the
    /// likely cause of each is printed
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "handover-outliers")]
    pub outliers: Option<PathBuf>,
    /// Subtract the cost of the probes from the stages that stay on one thread
    #[arg(long)]
    pub net: bool,
    /// File for a chart of the stages
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Print one JSON document instead of the table
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub name: NameOption,
    #[command(flatten)]
    pub db: StoreOption,
}

/// Measuring time with the profile `quick`.
const QUICK_TIME: Duration = Duration::from_secs(5);
/// Measuring time with the profile `full`.
const FULL_TIME: Duration = Duration::from_secs(30);

/// Width of the chart of the stages, in pixels.
const CHART_WIDTH_PX: f64 = 960.0;

pub fn anatomy(args: &AnatomyArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    if args.plan.no_peers {
        return Err(to_usage_error(
            "--no-peers: anatomy measures one contender and no peers; leave the option out",
        ));
    }
    let benchmark = find_benchmark(&args.id)?;
    let contender = contender_to_measure(benchmark, args.contender.as_deref())?;
    let time = measuring_time(args)?;
    let plan = Plan { profile: Profile::Quick, time: None, peers: false, ..args.plan.plan() };
    let lab = Lab::new(handover_suite::SUITES, std::slice::from_ref(&args.id), plan);
    let lab = lab.map_err(exit::plan_error)?;
    let svg = args.svg.as_deref().map(|path| run::check_writable(path, "--svg")).transpose()?;
    if let Some(folder) = &args.outliers {
        check_outliers_folder(folder)?;
    }
    let mut store =
        Store::open(stored::writable_store_path(&args.db)?).map_err(exit::store_error)?;
    if let Some(name) = &args.name.name {
        store.check_new_tag(name).map_err(exit::store_error)?;
    }
    let interrupted = console::interrupt_flag().context("cannot install the signal handlers")?;

    let mut run = run::new_run(&lab, "anatomy".to_string())?;
    let options = MeasurementOptions {
        benchmark,
        contender: contender.to_string(),
        time,
        net: args.net,
        outliers: args.outliers.clone(),
    };
    let measured = handover_anatomy::measure(&lab, handover_suite::SUITES, &options, &interrupted);
    // Relaxed: the flag publishes no other data.
    let is_interrupted = interrupted.load(Ordering::Relaxed);
    let (records, copied) = measured.map_err(|error| match is_interrupted {
        true => InterruptedBeforeResults.into(),
        false => anyhow::Error::new(error),
    })?;
    run.complete = !is_interrupted;
    // Stored only now: a run without figures is of no use.
    store.begin_run(&run)?;
    if let Some(name) = &args.name.name {
        store.add_tag(&run.id, name)?;
    }
    store.insert_records(&run.id, &records)?;
    store.finish_run(&run)?;
    let mut drawn = Ok(());
    if let (Some(path), Some(taken)) = (svg, find_record_with_anatomy(&records))
        && let Some(chart) = handover_report::anatomy_chart(taken, CHART_WIDTH_PX)
    {
        drawn = files::write_file(path, chart.to_standalone_svg().as_bytes())
            .with_context(|| format!("cannot write the chart {path}", path = path.display()));
    }
    let document = Document::new(run, records);
    let shown = show(&document, args.json, store.path(), out);
    let kept = copied.context("cannot keep the traces of the slowest hand-offs").and(drawn);
    let measured = kept.and_then(|()| match document.run.complete {
        true => Ok(()),
        false => Err(Interrupted.into()),
    });
    exit::join_results(measured, shown)
}

/// Prints the anatomy, as JSON or as a table.
fn show(
    document: &Document,
    is_json: bool,
    store: &Path,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    if is_json {
        return stored::write_json(document, out);
    }
    let Some(record) = find_record_with_anatomy(&document.records) else { return Ok(()) };
    let (width, style) = (console::output_width(), console::output_style(false));
    out.write_all(handover_report::render_anatomy(record, width, style).as_bytes())?;
    Ok(writeln!(out, "run {} is in {}", document.run.id, store.display())?)
}

/// Creates the folder of `--outliers`, and checks that files can be created in it.
fn check_outliers_folder(folder: &Path) -> anyhow::Result<()> {
    let created = std::fs::create_dir_all(folder).and_then(|()| tempfile::tempfile_in(folder));
    created.map(drop).map_err(|error| {
        to_usage_error(format!(
            "--outliers={}: cannot create files in the folder: {error}",
            folder.display()
        ))
    })
}

/// Returns the requested measuring time, or by default that of the profile.
fn measuring_time(args: &AnatomyArgs) -> anyhow::Result<Duration> {
    let (least, most) = Plan::BENCHMARK_TIME_RANGE;
    match args.plan.time.filter(|_| args.plan.profile != Profile::Smoke) {
        Some(time) if !(least..=most).contains(&time) => {
            Err(exit::plan_error(PlanError::Time(time)))
        }
        Some(time) => Ok(time),
        None => Ok(args.seconds.unwrap_or(match args.plan.profile {
            Profile::Smoke => least,
            Profile::Quick => QUICK_TIME,
            Profile::Full => FULL_TIME,
        })),
    }
}

/// Returns the first record that has an anatomy.
fn find_record_with_anatomy(records: &[Record]) -> Option<&Record> {
    records.iter().find(|record| record.anatomy.is_some())
}

/// Returns the instrumented benchmark with this id. If there is none, returns an error that lists
/// all ids.
fn find_benchmark(id: &str) -> anyhow::Result<&'static InstrumentedBenchmark> {
    handover_anatomy::find_instrumented_benchmark(id).ok_or_else(|| {
        let known: Vec<&str> =
            INSTRUMENTED_BENCHMARKS.iter().map(|benchmark| benchmark.spec).collect();
        let is_there =
            handover_suite::SUITES.iter().flat_map(|some| some.iter()).any(|it| it.spec().id == id);
        let why = match is_there {
            true => "this benchmark has no probe sites",
            false => "no benchmark has this id",
        };
        let ids = known.join(", ");
        to_usage_error(format!("{id}: {why}; benchmarks with probe sites: {ids}"))
    })
}

/// Returns the requested contender, or by default the first one with probe sites.
fn contender_to_measure(
    benchmark: &InstrumentedBenchmark,
    requested: Option<&str>,
) -> anyhow::Result<&'static str> {
    let known = benchmark.contenders();
    if known.is_empty() {
        return Err(to_usage_error(format!(
            "{}: its probe sites cost time even when disabled, and are not in this build; they are \
             in one with --features probes-hot",
            benchmark.spec
        )));
    }
    let chosen = match requested {
        None => known.first(),
        Some(requested) => known.iter().find(|name| **name == requested),
    };
    chosen.copied().ok_or_else(|| {
        to_usage_error(format!(
            "--contender {}: contenders of {} with probe sites in this build: {}",
            requested.unwrap_or_default(),
            benchmark.spec,
            known.join(", ")
        ))
    })
}
