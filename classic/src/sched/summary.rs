//! Results of a run: the closing table and the charts.

use super::record::{PacketWaits, STAGE_LABELS};
use anyhow::Context;
use handover_base::units::format_ns;
use handover_program::exit::to_usage_error;
use handover_program::files::FileReplacement;
use handover_report::svg::{Axis, AxisName, Chart, Mark, Point, Quantity, Series, SeriesRole};
use handover_sched::drive::Counts;
use hdrhistogram::Histogram;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Quantiles of waiting times that are printed, with their names.
const QUANTILES: [(f64, &str); 3] = [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9")];

/// Results of a client, or of all clients together.
#[derive(Default)]
pub struct ResultRow {
    /// The client's number, or `all`.
    pub name: String,
    /// Numbers of packets and bytes, by outcome.
    pub counts: Counts,
    /// Obtained and due share of all bytes; `None` if the algorithm has no weights.
    pub share: Option<Share>,
    /// Maximum number of bytes by which the client fell behind its due share. Only times at which
    /// it had packets queued count.
    pub lag_bytes: Option<f64>,
    /// Number of times that a flow of the client ran out of packets. `None` if fairness was not
    /// measured.
    pub emptied_count: Option<u64>,
    /// Waiting times of the client's packets; `None` without time stamps.
    pub waits: Option<PacketWaits>,
}

/// Share of all bytes that a client obtained, and the share due to the client. Both are between 0
/// and 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// Share that the client obtained.
    pub obtained: f64,
    /// Share due by the weights of the client's flows.
    pub due: f64,
}

/// Decimal prefix of the unit of a table column, with its factor.
struct UnitPrefix {
    prefix: &'static str,
    factor: f64,
}

impl UnitPrefix {
    /// Chooses the prefix for the largest value of a column.
    fn for_maximum(most: f64) -> UnitPrefix {
        let (prefix, factor) = match most {
            most if most >= 1e9 => ("G", 1e9),
            most if most >= 1e6 => ("M", 1e6),
            most if most >= 1e3 => ("k", 1e3),
            _ => ("", 1.0),
        };
        UnitPrefix { prefix, factor }
    }
}

/// Prints the table of rates and shares, then the table of waiting times.
pub fn print_table(rows: &[ResultRow], seconds: f64, out: &mut dyn Write) -> io::Result<()> {
    let per_second = |n: u64| n as f64 / seconds.max(1e-9);
    let most = |of: fn(&Counts) -> u64| rows.iter().map(|row| of(&row.counts)).max().unwrap_or(0);
    let packets = UnitPrefix::for_maximum(per_second(most(|it| it.transmitted)));
    let bits = UnitPrefix::for_maximum(per_second(most(|it| it.transmitted_bytes)) * 8.0);
    writeln!(
        out,
        "{:>6} {:>14} {:>9} {:>10} {:>10} {:>8} {:>8} {:>8} {:>12}",
        "client",
        "packets",
        format!("{}pps", packets.prefix),
        format!("{}bit/s", bits.prefix),
        "drops",
        "queued",
        "share",
        "due",
        "fair index"
    )?;
    for row in rows {
        let counts = &row.counts;
        let percent =
            |part: Option<f64>| part.map_or("-".into(), |it| format!("{:.2} %", it * 100.0));
        writeln!(
            out,
            "{:>6} {:>14} {:>9.3} {:>10.3} {:>10} {:>8} {:>8} {:>8} {:>12}",
            row.name,
            counts.transmitted,
            per_second(counts.transmitted) / packets.factor,
            per_second(counts.transmitted_bytes) * 8.0 / bits.factor,
            counts.dropped,
            counts.queued_count(),
            percent(row.share.map(|it| it.obtained)),
            percent(row.share.map(|it| it.due)),
            row.lag_bytes.map_or("-".into(), |bytes| format!("{bytes:.0} B")),
        )?;
    }
    if rows.iter().any(|row| row.waits.is_some()) {
        writeln!(out)?;
        write!(out, "{:>6}", "client")?;
        for stage in STAGE_LABELS {
            write!(out, "  {:>30}", format!("{stage}, {}", quantile_names().join("/")))?;
        }
        writeln!(out, " {:>12}", "stamped")?;
    }
    for row in rows {
        let Some(waits) = &row.waits else { continue };
        write!(out, "{:>6}", row.name)?;
        for stage in &waits.stages {
            write!(out, "  {:>30}", format_quantiles(stage))?;
        }
        writeln!(out, " {:>12}", waits.stages[0].len())?;
    }
    Ok(())
}

fn quantile_names() -> [&'static str; 3] {
    QUANTILES.map(|(_, name)| name)
}

/// Formats the quantiles of the waiting times at one stage.
fn format_quantiles(stage: &Histogram<u64>) -> String {
    if stage.is_empty() {
        return "-".into();
    }
    QUANTILES.map(|(q, _)| format_ns(stage.value_at_quantile(q) as f64)).join(" / ")
}

/// Files of the charts. They replace existing ones when they are drawn.
pub struct ChartFiles {
    shares: ChartFile,
    /// `None` if no packets are stamped.
    stages: Option<ChartFile>,
}

/// File of one chart, with its path.
struct ChartFile {
    file: FileReplacement,
    path: PathBuf,
}

impl ChartFiles {
    /// Creates `PREFIXshares.svg`, and `PREFIXstages.svg` if `has_stages`. Called before anything
    /// is measured.
    ///
    /// # Errors
    /// A usage error if a file cannot be created.
    pub fn create(prefix: &Path, has_stages: bool) -> anyhow::Result<ChartFiles> {
        let shares = ChartFile::create(prefix, "shares.svg")?;
        let stages = has_stages.then(|| ChartFile::create(prefix, "stages.svg")).transpose()?;
        Ok(ChartFiles { shares, stages })
    }

    /// Draws the charts; returns the paths of the drawn files.
    pub fn draw(self, rows: &[ResultRow]) -> anyhow::Result<Vec<PathBuf>> {
        let has_waits =
            |row: &ResultRow| row.waits.as_ref().is_some_and(|waits| !waits.stages[0].is_empty());
        let mut made = Vec::new();
        if let Some(stages) = self.stages
            && rows.iter().any(has_waits)
        {
            made.push(stages.write(&stages_chart(rows))?);
        }
        made.push(self.shares.write(&shares_chart(rows))?);
        Ok(made)
    }
}

impl ChartFile {
    /// Creates the file `prefix` + `name`.
    fn create(prefix: &Path, name: &str) -> anyhow::Result<ChartFile> {
        let mut path = OsString::from(prefix);
        path.push(name);
        let path = PathBuf::from(path);
        let file = FileReplacement::create(&path).map_err(|error| {
            to_usage_error(format!(
                "--plot: cannot create the chart {path}: {error}; name a prefix with -p in a folder in \
                 which files can be created",
                path = path.display()
            ))
        })?;
        Ok(ChartFile { file, path })
    }

    /// Writes a chart as SVG; returns the path of the file.
    fn write(self, chart: &Chart) -> anyhow::Result<PathBuf> {
        let ChartFile { mut file, path } = self;
        let written = file.write_all(chart.to_standalone_svg().as_bytes());
        written.and_then(|()| file.commit()).with_context(|| {
            format!("--plot: cannot write the chart {path}", path = path.display())
        })?;
        Ok(path)
    }
}

/// Draws a row for each stage of each client: the median, with a line to percentile 99.9.
fn stages_chart(rows: &[ResultRow]) -> Chart {
    let mut labels = Vec::new();
    let mut points = [Vec::new(), Vec::new(), Vec::new()];
    for row in rows {
        let Some(waits) = &row.waits else { continue };
        for (index, (stage, points)) in waits.stages.iter().zip(&mut points).enumerate() {
            let at = |q: f64| stage.value_at_quantile(q).max(1) as f64;
            let place = labels.len() as f64;
            labels.push(AxisName {
                label: format!("{} {}", row.name, STAGE_LABELS[index]),
                note: format_quantiles(stage),
                opens_group: index == 0,
            });
            if !stage.is_empty() {
                let point = Point::new(at(0.5), place).with_span(at(0.5), at(0.999));
                points.push(point.with_tooltip(format!(
                    "{}: {}",
                    quantile_names().join(" / "),
                    format_quantiles(stage)
                )));
            }
        }
    }
    let time = Axis::log("waited, p50 to p99.9", Quantity::Nanos);
    let mut chart = Chart::new("Where packets waited", time, Axis::with_names(labels))
        .with_description("For each client and stage the median wait, with a line to its p99.9.");
    for (index, points) in points.into_iter().enumerate() {
        chart = chart.with_series(Series::new(
            STAGE_LABELS[index],
            SeriesRole::Nth(index as u8),
            Mark::Dot,
            points,
        ));
    }
    chart
}

/// Draws a row for each client: the share obtained, with a tick at the share due.
fn shares_chart(rows: &[ResultRow]) -> Chart {
    let clients: Vec<(&ResultRow, Share)> =
        rows.iter().filter_map(|row| row.share.map(|share| (row, share))).collect();
    let name = |(row, share): &(&ResultRow, Share)| AxisName {
        label: format!("client {}", row.name),
        note: format!("{:.2} %", share.obtained * 100.0),
        opens_group: false,
    };
    let points = |part: fn(&Share) -> f64| {
        let place = |(index, (_, share)): (usize, &(&ResultRow, Share))| {
            let Share { obtained, due } = *share;
            let (got_percent, due_percent) = (obtained * 100.0, due * 100.0);
            let label = format!("got {got_percent:.2} % of all bytes, due {due_percent:.2} %");
            Point::new(part(share), index as f64).with_tooltip(label)
        };
        clients.iter().enumerate().map(place).collect::<Vec<_>>()
    };
    let axis = Axis::linear("share of all bytes", Quantity::Share).with_included_value(0.0);
    Chart::new("Shares", axis, Axis::with_names(clients.iter().map(name).collect()))
        .with_description(
            "For each client the share of all bytes that it got, and a tick at what was due.",
        )
        .with_series(Series::new(
            "obtained",
            SeriesRole::Ours,
            Mark::Bar,
            points(|share| share.obtained),
        ))
        .with_series(Series::new("due", SeriesRole::Floor, Mark::Tick, points(|share| share.due)))
}
