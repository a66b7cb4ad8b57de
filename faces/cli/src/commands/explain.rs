//! `handover explain`: what a benchmark times, and what it is compared with.

use crate::exit::to_usage_error;
use clap::Args;
use handover_harness::{Bench, Selection, select};
use handover_record::{Contender, ContenderKind, Spec, Unit};
use std::io::Write;

/// Arguments of `handover explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Benchmarks: id, prefix of ids, or glob
    #[arg(value_name = "PATTERN", required = true)]
    patterns: Vec<String>,
}

pub fn explain(args: &ExplainArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let selections = select(handover_suite::SUITES, &args.patterns).map_err(to_usage_error)?;
    for (place, selection) in selections.iter().enumerate() {
        if place > 0 {
            writeln!(out)?;
        }
        explain_benchmark(selection, out)?;
    }
    Ok(())
}

fn explain_benchmark(selection: &Selection, out: &mut dyn Write) -> anyhow::Result<()> {
    let spec = selection.spec;
    writeln!(out, "{}: {}", spec.id, spec.what)?;
    for part in spec.parts {
        writeln!(out, "  {}/{}: {}", spec.id, part.name, part.what)?;
    }
    writeln!(out, "  source: {}", source_location(spec))?;
    writeln!(out, "  timed: {}", timing_method(spec))?;
    let ladder = if spec.ladder { "a default run measures it" } else { "not in a default run" };
    writeln!(out, "  {ladder}; `handover run {}` measures it alone", spec.id)?;
    if let Some(classic) = spec.classic {
        writeln!(out, "  classic program: {classic}")?;
    }
    for param in selection.contenders.first().map_or(&[][..], |bench| bench.params()) {
        writeln!(out, "  --set {}", param.help_line())?;
    }
    if selection.contenders.iter().any(|it| it.can_use_processes() && !it.must_use_processes()) {
        writeln!(out, "  participants are threads; `--processes` makes them processes")?;
    }
    if handover_anatomy::find_instrumented_benchmark(spec.id).is_some() {
        writeln!(out, "  `handover anatomy {}` divides it into stages", spec.id)?;
    }
    explain_floors(selection, out)?;
    writeln!(out, "  contenders:")?;
    let contenders: Vec<Contender> =
        selection.contenders.iter().map(|bench| bench.contender()).collect();
    let width = contenders.iter().map(|it| it.name.chars().count()).max().unwrap_or(0);
    for contender in &contenders {
        writeln!(out, "    {:<width$}  {}", contender.name, describe_contender(contender))?;
    }
    if contenders.iter().any(|it| it.kind == ContenderKind::Peer) {
        writeln!(
            out,
            "  Ratios are computed only between contenders that wait in the same way; the others are listed beside them."
        )?;
    }
    Ok(())
}

/// Prints the floors of a benchmark: its own contenders first, then other benchmarks.
fn explain_floors(selection: &Selection, out: &mut dyn Write) -> anyhow::Result<()> {
    let own = selection.contenders.iter().map(|bench| bench.contender());
    let own: Vec<&str> =
        own.filter(|it| it.kind == ContenderKind::Floor).map(|it| it.name).collect();
    if !own.is_empty() {
        writeln!(out, "  floor: its contender {}, the same work without our code", own.join(", "))?;
    }
    for (id, bench, _) in &selection.floors {
        let spec = bench.spec();
        writeln!(out, "  floor: {id}: {} ({})", description(bench, id), source_location(spec))?;
    }
    if own.is_empty() && selection.floors.is_empty() {
        writeln!(out, "  floor: none")?;
    }
    Ok(())
}

/// Returns the description of the part `id`, or of the benchmark if `id` is not a part.
fn description(bench: &Bench, id: &str) -> &'static str {
    let spec = bench.spec();
    let part = id.strip_prefix(spec.id).map(|part| part.trim_start_matches('/'));
    let part = spec.parts.iter().find(|it| Some(it.name) == part);
    part.map_or(spec.what, |part| part.what)
}

fn source_location(spec: &Spec) -> String {
    format!("{}:{}", spec.file, spec.line)
}

/// Describes how the operations of a benchmark are timed.
fn timing_method(spec: &Spec) -> &'static str {
    match spec.unit {
        Unit::Bytes => "not a time but bytes",
        Unit::Count => "not a time but a number",
        Unit::Ns if spec.pipelined => {
            "in batches, as operations overlap; the figure is a mean per operation, without quantiles"
        }
        Unit::Ns if spec.batched => {
            "in batches; the figure is a mean per operation, and some operations are also timed alone"
        }
        Unit::Ns => {
            "alone if an operation takes at least 20 clock readings (the figure is a median), else in batches (a mean)"
        }
    }
}

/// Describes a contender in one line: its kind, how it waits, and whether it allocates.
fn describe_contender(contender: &Contender) -> String {
    let mut words = vec![contender.kind.to_string()];
    words.push(match contender.waits.is_none() {
        true => "does not wait".to_string(),
        false => contender.waits.table_verb().to_string(),
    });
    if contender.allocates {
        words.push("allocates in each operation".to_string());
    }
    if let Some(rival) = contender.rival_of {
        words.push(format!("compared only with {rival}"));
    }
    words.join("; ")
}
