//! `handover history`: a figure over runs, and its change points.

use crate::app::StoreOption;
use crate::commands::run::check_writable;
use crate::commands::stored;
use crate::exit::to_usage_error;
use anyhow::Context;
use clap::Args;
use handover_program::{console, files};
use handover_record::{Unit, WarningCode};
use handover_report::comparable_key;
use handover_report::history::{History, RunFigure};
use handover_store::{Store, StoredFigure};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;

/// Arguments of `handover history`.
#[derive(Debug, Args)]
#[command(
    after_help = "Runs on another machine than the last, or than --host names, are left out; so are those with \
other arguments, placement or kind of timing than the last of this machine, and smoke runs, which measure nothing."
)]
pub struct HistoryArgs {
    /// Id of the figure, as `handover show` prints it
    #[arg(value_name = "ID")]
    id: String,
    /// Contender [default: ours]
    #[arg(long, value_name = "NAME")]
    contender: Option<String>,
    /// Host name of the machine [default: that of the last run with the figure]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Number of latest runs to show [default: all]
    #[arg(long, value_name = "COUNT")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    last: Option<u32>,
    /// SVG file for a chart
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    db: StoreOption,
}

pub fn history(args: &HistoryArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    if let Some(svg) = &args.svg {
        check_writable(svg, "--svg")?;
    }
    let store = stored::open_existing(&args.db)?;
    let (contender, host) = (args.contender.as_deref(), args.host.as_deref());
    let history = load_history(&store, &args.id, contender, host, args.last)?;
    if let Some(svg) = &args.svg {
        files::replace_file(svg, history.chart().to_standalone_svg())
            .with_context(|| format!("cannot write the chart {path}", path = svg.display()))?;
    }
    if args.json {
        serde_json::to_writer(&mut *out, &history).map_err(std::io::Error::from)?;
        return Ok(writeln!(out)?);
    }
    let drawn = history.render_text(console::output_width(), console::output_style(false));
    Ok(out.write_all(drawn.as_bytes())?)
}

/// Returns the history of a figure over the stored runs, as [`HistoryArgs`] selects them.
pub(super) fn load_history(
    store: &Store,
    id: &str,
    contender: Option<&str>,
    host: Option<&str>,
    last: Option<u32>,
) -> anyhow::Result<History> {
    let contender = store.resolve_contender(id, contender).map_err(stored::usage_error)?;
    let figures = without_smoke_figures(store.figures(id, &contender)?, host)?;
    let mut names: BTreeMap<String, Vec<String>> =
        store.runs()?.into_iter().map(|run| (run.id, run.tags)).collect();
    let names_of = |run: &str| names.remove(run).unwrap_or_default();
    Ok(history_of_figures(id, &contender, figures, last, names_of))
}

/// Removes the figures of smoke runs. Moves the figures of the machine `host`, if given, to the
/// end.
fn without_smoke_figures(
    mut figures: Vec<StoredFigure>,
    host: Option<&str>,
) -> anyhow::Result<Vec<StoredFigure>> {
    figures.retain(|it| !it.record.warnings.iter().any(|it| it.code == WarningCode::Smoke));
    let Some(host) = host else { return Ok(figures) };
    let hosts: BTreeSet<&str> = figures.iter().map(|it| it.host.as_str()).collect();
    if !hosts.contains(host) {
        let known = match hosts.is_empty() {
            true => "no machine has measured the figure".to_string(),
            false => {
                format!(
                    "machines that have measured it: {}",
                    hosts.into_iter().collect::<Vec<_>>().join(", ")
                )
            }
        };
        return Err(to_usage_error(format!(
            "--host {host}: this machine has not measured the figure; {known}"
        )));
    }
    // The history uses the last figure's machine; figures of others count as excluded.
    figures.sort_by_key(|it| it.host == host);
    Ok(figures)
}

/// Creates a history of those figures that have the machine, the settings and the kind of timing of
/// the last one. Counts the others.
fn history_of_figures(
    id: &str,
    contender: &str,
    mut figures: Vec<StoredFigure>,
    last: Option<u32>,
    mut names_of: impl FnMut(&str) -> Vec<String>,
) -> History {
    let all = figures.len();
    let unit = figures.last().map_or(Unit::Ns, |it| it.record.unit);
    let key = |it: &StoredFigure| (it.host.clone(), comparable_key(&it.record));
    let last_key = figures.last().map(key);
    figures.retain(|it| Some(key(it)) == last_key);
    let left_out = all - figures.len();
    if let Some(last) = last {
        figures.drain(..figures.len().saturating_sub(last as usize));
    }
    let dot = |it: StoredFigure| RunFigure {
        names: names_of(&it.run),
        run: it.run,
        started_unix_ns: it.started_unix_ns,
        build: match it.commit.as_str() {
            "" => it.version,
            commit => format!("{} ({commit})", it.version),
        },
        median: it.record.summary.median,
        low: it.record.summary.low,
        high: it.record.summary.high,
    };
    History::new(id, contender, unit, figures.into_iter().map(dot).collect(), left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_excludes_runs_that_timed_operations_in_another_way_than_the_last() {
        let json = include_str!("pool/document.json");
        let document: handover_record::Document = serde_json::from_str(json).expect("a document");
        let figure = |batch: u64| {
            let mut record = document.records[0].clone();
            record.summary.batch = batch;
            StoredFigure {
                run: String::new(),
                started_unix_ns: 0,
                host: "host".to_string(),
                version: String::new(),
                commit: String::new(),
                record,
            }
        };
        let figures = [90, 1, 80].map(figure).to_vec();
        let history = history_of_figures("lock/free", "handover", figures, None, |_| Vec::new());
        assert_eq!((history.runs.len(), history.left_out), (2, 1));
    }
}
