//! `handover anatomy`: the time of one hand-off by stage, from the probes inside the mechanism.

use crate::app::{Db, assignment, seconds};
use crate::commands::{run, stored};
use crate::exit::{self, Interrupted, usage};
use anyhow::Context;
use clap::Args;
use handover_anatomy::{
    AnatomyError, INSTRUMENTED_BENCHMARKS, InstrumentedBenchmark, MeasurementOptions,
};
use handover_base::topology::Placement;
use handover_harness::{Fault, Lab, Plan};
use handover_program::{console, files};
use handover_record::{Document, Record};
use handover_store::Store;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[derive(Debug, Args)]
pub struct Anatomy {
    /// The benchmark, by its whole id
    #[arg(value_name = "ID")]
    pub id: String,
    /// Contender, where several have sites
    #[arg(long, value_name = "NAME")]
    pub contender: Option<String>,
    /// Set an argument of the benchmark
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    pub set: Vec<(String, String)>,
    /// Duration
    #[arg(long, value_name = "S", default_value = "5", value_parser = seconds)]
    #[arg(allow_hyphen_values = true)]
    pub seconds: Duration,
    /// Placement of the participants to each other: near, far, smt or same
    #[arg(long, value_name = "NAME", default_value = "near")]
    pub place: Placement,
    /// Run parties as processes rather than threads
    #[arg(long)]
    pub processes: bool,
    /// Keep the traces around the 10 slowest, in a folder, and say what made each slow
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "handover-outliers")]
    pub outliers: Option<PathBuf>,
    /// Subtract what the probes take themselves from the stages that stay on one thread
    #[arg(long)]
    pub net: bool,
    /// Draw the stages, stacked
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Print one JSON document instead of the table
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub db: Db,
}

/// Width of a chart, in pixels.
const CHART_PX: f64 = 960.0;

pub fn anatomy(args: &Anatomy, out: &mut dyn Write) -> anyhow::Result<()> {
    let course = course(&args.id)?;
    let contender = contender(course, args.contender.as_deref())?;
    let plan = Plan {
        place: args.place,
        processes: args.processes,
        peers: false,
        set: args.set.clone(),
        ..Plan::default()
    };
    let lab = Lab::new(handover_suite::ALL, std::slice::from_ref(&args.id), plan);
    let lab = lab.map_err(exit::of_plan)?;
    let svg = args.svg.as_deref().map(|path| run::writable(path, "--svg")).transpose()?;
    let mut store = Store::open(stored::path_to_write(&args.db)?).map_err(exit::of_store)?;
    let interrupted = console::interrupted().context("listen for signals")?;

    let mut run = run::begin(&lab, "anatomy".to_string())?;
    store.begin(&run)?;
    let ask = MeasurementOptions {
        course,
        contender: contender.to_string(),
        time: args.seconds,
        net: args.net,
        outliers: args.outliers.clone(),
    };
    let records = handover_anatomy::watch(&lab, handover_suite::ALL, &ask, &interrupted);
    let records = records.map_err(|refused| match refused {
        AnatomyError::Fault(Fault::Interrupted) => Interrupted.into(),
        other => anyhow::Error::new(other),
    })?;
    // Relaxed: the flag publishes no other data.
    run.complete = !interrupted.load(Ordering::Relaxed);
    store.put(&run.id, &records)?;
    store.finish(&run)?;
    if let (Some(path), Some(taken)) = (svg, taken(&records))
        && let Some(chart) = handover_report::anatomy_chart(taken, CHART_PX)
    {
        files::write(path, chart.draw_alone().as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let document = Document::new(run, records);
    if args.json {
        stored::json(&document, out)?;
    } else if let Some(record) = taken(&document.records) {
        let text = handover_report::anatomy(record, console::width(), console::style(false));
        out.write_all(text.as_bytes())?;
        writeln!(out, "run {} is in {}", document.run.id, store.path().display())?;
    }
    if !document.run.complete {
        return Err(Interrupted.into());
    }
    Ok(())
}

fn taken(records: &[Record]) -> Option<&Record> {
    records.iter().find(|record| record.anatomy.is_some())
}

/// Returns the stages known of a benchmark's hand-offs; the error lists the benchmarks that have
/// any.
fn course(id: &str) -> anyhow::Result<&'static InstrumentedBenchmark> {
    handover_anatomy::find(id).ok_or_else(|| {
        let known: Vec<&str> = INSTRUMENTED_BENCHMARKS.iter().map(|course| course.spec).collect();
        let is_there =
            handover_suite::ALL.iter().flat_map(|some| some.iter()).any(|it| it.spec().id == id);
        let why = match is_there {
            true => "its hand-offs pass no sites",
            false => "no benchmark by this name",
        };
        usage(format!("{id}: {why}; those that can be taken apart: {}", known.join(", ")))
    })
}

fn contender(
    course: &InstrumentedBenchmark,
    requested: Option<&str>,
) -> anyhow::Result<&'static str> {
    let known = course.contenders();
    if known.is_empty() {
        return Err(usage(format!(
            "{}: its sites would cost something even when they are off, and are not in this build; they are \
             in one with --features probes-hot",
            course.spec
        )));
    }
    let chosen = match requested {
        None => known.first(),
        Some(requested) => known.iter().find(|name| **name == requested),
    };
    chosen.copied().ok_or_else(|| {
        usage(format!(
            "--contender {}: of {} these have sites in this build: {}",
            requested.unwrap_or_default(),
            course.spec,
            known.join(", ")
        ))
    })
}
