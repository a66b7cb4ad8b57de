//! `handover list`.

use crate::app::ListArgs;
use crate::exit::to_usage_error;
use handover_harness::{Selection, select};
use handover_record::ContenderKind;
use serde_json::json;
use std::io::Write;

pub fn list(args: &ListArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let everything = ["*".to_string()];
    let patterns = if args.patterns.is_empty() { &everything[..] } else { &args.patterns };
    let selections = select(handover_suite::SUITES, patterns).map_err(to_usage_error)?;
    if args.json {
        let all: Vec<_> = selections.iter().map(benchmark_json).collect();
        writeln!(out, "{}", json!({"schema": 1, "benchmarks": all}))?;
        return Ok(());
    }
    for it in &selections {
        let spec = it.spec;
        let ladder = if spec.ladder { "  (ladder)" } else { "" };
        writeln!(out, "{}{ladder}", spec.id)?;
        writeln!(out, "    {}", spec.what)?;
        for part in spec.parts {
            writeln!(out, "    /{}  {}", part.name, part.what)?;
        }
        writeln!(
            out,
            "    unit {}; floor {}; {}",
            spec.unit,
            format_floors(it),
            format_contenders(it)
        )?;
        if let Some(classic) = spec.classic {
            writeln!(out, "    classic program: {classic}")?;
        }
        for param in params(it) {
            writeln!(out, "    --set {}", param.help_line())?;
        }
    }
    Ok(())
}

/// Returns the parameters that a benchmark accepts.
fn params(it: &Selection) -> &'static [handover_record::Param] {
    it.contenders.first().map_or(&[], |bench| bench.params())
}

fn format_contenders(it: &Selection) -> String {
    let names: Vec<String> = it
        .contenders
        .iter()
        .map(|bench| {
            let it = bench.contender();
            let waits = if it.waits.is_none() { "" } else { ", " };
            let allocates = if it.allocates { ", allocates" } else { "" };
            format!("{} ({}{waits}{}{allocates})", it.name, it.kind, it.waits.table_verb())
        })
        .collect();
    names.join("; ")
}

/// Formats the floors of a benchmark, those among its own contenders first.
fn format_floors(it: &Selection) -> String {
    let own = it.contenders.iter().map(|bench| bench.contender());
    let own = own.filter(|it| it.kind == ContenderKind::Floor).map(|it| it.name);
    let named = it.spec.floor.iter().chain(it.spec.floors).copied();
    let names: Vec<&str> = own.chain(named).collect();
    match names.is_empty() {
        true if it.spec.parts.iter().any(|part| part.floor.is_some()) => "by part".to_string(),
        true => "none".to_string(),
        false => names.join(", "),
    }
}

fn benchmark_json(it: &Selection) -> serde_json::Value {
    let spec = it.spec;
    let contenders: Vec<_> = it
        .contenders
        .iter()
        .map(|bench| {
            let it = bench.contender();
            json!({"name": it.name, "kind": it.kind, "waits": it.waits, "allocates": it.allocates})
        })
        .collect();
    let params: Vec<_> = params(it)
        .iter()
        .map(|param| {
            json!({
                "name": param.name, "help": param.help.trim(), "default": param.default,
                "smoke": param.smoke, "min": param.min, "max": param.max,
            })
        })
        .collect();
    let parts: Vec<_> =
        spec.parts.iter().map(|part| json!({"name": part.name, "what": part.what})).collect();
    json!({
        "id": spec.id, "what": spec.what, "unit": spec.unit, "floor": spec.floor,
        "floors": spec.floors,
        "classic": spec.classic, "ladder": spec.ladder, "parts": parts, "contenders": contenders,
        "params": params, "source": format!("{}:{}", spec.file, spec.line),
    })
}
