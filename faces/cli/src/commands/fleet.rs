//! `handover fleet`: the nodes of a fleet, compared figure by figure.

use crate::app::TableOptions;
use crate::commands::compare::parse_share;
use crate::commands::run::check_writable;
use crate::commands::stored;
use crate::exit::to_usage_error;
use anyhow::Context;
use clap::Args;
use handover_program::{console, files};
use handover_report::compare::Rules;
use handover_report::fleet::Fleet;
use handover_store::Store;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

/// Prefix of the names of fleets. All runs of a fleet have its name.
pub(super) const NAME_PREFIX: &str = "fleet-";

/// Arguments of `handover fleet`.
#[derive(Debug, Args)]
#[command(
    after_help = "`mpiexec -n NODES --map-by node handover run --fleet` measures the nodes, and stores a run for each \
under one name, fleet-...; `handover import` adds nodes from files, whose runs share any name. Of several runs of one \
host the last counts.

A node stands apart in a figure if it differs by more than the threshold from the median of the nodes, and if, in fewer \
than 5 of 100 fleets of equal nodes, chance moves some node as far in some figure: robust z by the median absolute \
deviation of the nodes, or by the interval of the node's own measurement where that is wider; Student's t; Holm's \
correction. Below the node are the doctor's findings on it that at most half of the nodes have."
)]
pub struct FleetArgs {
    /// Fleet: name of its runs, or one of them (id, prefix of an id, or position from the end)
    /// [default: the last fleet]
    #[arg(value_name = "RUN", allow_negative_numbers = true)]
    run: Option<String>,
    /// Smallest relative difference from the median of the nodes that counts, 0% to 100%
    #[arg(long, value_name = "SHARE", default_value = "2%", value_parser = parse_share)]
    #[arg(allow_hyphen_values = true)]
    threshold: f64,
    /// SVG file for a chart with one dot for each node
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    table: TableOptions,
}

pub fn fleet(args: &FleetArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    if let Some(svg) = &args.svg {
        check_writable(svg, "--svg")?;
    }
    let store = stored::open_existing(&args.table.db)?;
    let name = match &args.run {
        Some(selector) => fleet_name(&store, selector)?,
        None => last_fleet(&store)?,
    };
    let fleet =
        load_fleet(&store, &name, Rules { threshold: args.threshold, all: args.table.all })?;
    if let Some(svg) = &args.svg {
        files::replace_file(svg, fleet.chart().to_standalone_svg())
            .with_context(|| format!("cannot write the chart {path}", path = svg.display()))?;
    }
    print(&fleet, args.table.json, args.table.all, out)
}

/// Prints a fleet as a table or as JSON.
pub(super) fn print(
    fleet: &Fleet,
    json: bool,
    all: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    if json {
        serde_json::to_writer(&mut *out, fleet).map_err(std::io::Error::from)?;
        return Ok(writeln!(out)?);
    }
    let text = fleet.render_text(console::output_width(), console::output_style(all));
    Ok(out.write_all(text.as_bytes())?)
}

/// Returns the name of the selected fleet. A name of runs selects itself; other selectors select
/// the fleet of a run.
pub(super) fn fleet_name(store: &Store, selector: &str) -> anyhow::Result<String> {
    if !store.ids_with_tag(selector)?.is_empty() {
        return Ok(selector.to_string());
    }
    let id = store.resolve_run_id(selector).map_err(stored::usage_error)?;
    let names = store.tags_by_run_id()?.remove(&id).unwrap_or_default();
    names.into_iter().find(|name| name.starts_with(NAME_PREFIX)).ok_or_else(|| {
        to_usage_error(format!(
            "{selector}: run {id} belongs to no fleet; name a run of one, or a name that runs of several hosts have"
        ))
    })
}

/// Returns the name of the latest fleet in the store.
fn last_fleet(store: &Store) -> anyhow::Result<String> {
    let is_fleet = |name: &String| name.starts_with(NAME_PREFIX);
    let runs = store.runs()?;
    let found = runs.into_iter().rev().find_map(|run| run.tags.into_iter().find(is_fleet));
    found.ok_or_else(|| {
        to_usage_error(format!(
            "{} has no run of `handover run --fleet`; measure a fleet with `mpiexec -n NODES --map-by node handover run \
             --fleet`, or give the name that runs of several hosts have: `handover fleet NAME`",
            store.path().display()
        ))
    })
}

/// Loads the runs of a fleet and compares their nodes. Of several runs of one host, only the last
/// is used.
pub(super) fn load_fleet(store: &Store, name: &str, rules: Rules) -> anyhow::Result<Fleet> {
    let runs = store.runs()?.into_iter().filter(|run| run.tags.iter().any(|tag| tag == name));
    let mut last_by_host: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let mut runs_count = 0;
    for (place, run) in runs.enumerate() {
        last_by_host.insert(run.host, (place, run.id));
        runs_count = place + 1;
    }
    let mut nodes: Vec<(usize, String)> = last_by_host.into_values().collect();
    nodes.sort_unstable();
    if nodes.len() < 2 {
        return Err(to_usage_error(format!(
            "{name}: its runs are of one host; a fleet has at least 2, each with a run of this name"
        )));
    }
    let left_out = runs_count - nodes.len();
    let documents = nodes.iter().map(|(_, id)| store.load_run(id));
    let mut fleet = Fleet::new(name, documents, rules)?;
    match left_out {
        0 => {}
        1 => fleet.notes.push("1 run is left out: its host has a later one.".to_string()),
        _ => {
            fleet.notes.push(format!("{left_out} runs are left out: their hosts have later runs."))
        }
    }
    Ok(fleet)
}
