//! `handover list`.

use crate::app::List;
use crate::exit::usage;
use handover_harness::{Selection, select};
use serde_json::json;
use std::io::Write;

pub fn list(args: &List, out: &mut dyn Write) -> anyhow::Result<()> {
    let everything = ["*".to_string()];
    let patterns = if args.patterns.is_empty() { &everything[..] } else { &args.patterns };
    let selections = select(handover_suite::ALL, patterns).map_err(usage)?;
    if args.json {
        let all: Vec<_> = selections.iter().map(as_json).collect();
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
        let floor = spec.floor.unwrap_or("none: it is one");
        writeln!(out, "    unit {}; floor {floor}; {}", spec.unit, contenders(it))?;
        if let Some(classic) = spec.classic {
            writeln!(out, "    measured first by {classic}")?;
        }
        for param in params(it) {
            writeln!(out, "    --set {}", param.help_line())?;
        }
    }
    Ok(())
}

fn params(it: &Selection) -> &'static [handover_record::Param] {
    it.contenders.first().map_or(&[], |bench| bench.params())
}

fn contenders(it: &Selection) -> String {
    let names: Vec<String> = it
        .contenders
        .iter()
        .map(|bench| format!("{} ({})", bench.contender().name, bench.contender().kind))
        .collect();
    names.join(", ")
}

fn as_json(it: &Selection) -> serde_json::Value {
    let spec = it.spec;
    let contenders: Vec<_> = it
        .contenders
        .iter()
        .map(|bench| json!({"name": bench.contender().name, "kind": bench.contender().kind}))
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
        "classic": spec.classic, "ladder": spec.ladder, "parts": parts, "contenders": contenders,
        "params": params, "source": format!("{}:{}", spec.file, spec.line),
    })
}
