//! `plot-abt-eventual-bench`: charts of a sweep's file.

use super::dat::{self, EventualsRow};
use clap::Args;
use handover_program::exit::to_usage_error;
use handover_program::files;
use handover_report::svg::{Axis, Chart, Mark, Point, Quantity, Series, SeriesRole};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

const WIDTH_PX: f64 = 800.0;
const HEIGHT_PX: f64 = 480.0;

/// Draws a file of sweep-abt-eventual-bench: FILE.rate.png, with the ideal rate, and FILE.cpu.png;
/// and both as .svg.
#[derive(Debug, Args)]
pub struct Plot {
    /// The file, as sweep-abt-eventual-bench has written it
    #[arg(value_name = "FILE.dat")]
    file: PathBuf,
}

/// Draws the pictures without printing their paths, as the original script does.
pub fn run(args: &Plot) -> anyhow::Result<()> {
    let mut prefix = args.file.clone().into_os_string();
    prefix.push(".");
    draw_plots(&args.file, &prefix, &mut String::new())
}

/// Draws pictures of a file of `sweep-abt-eventual-bench`. Their paths begin with `prefix`, and are
/// added to `text`, one a line.
///
/// # Errors
/// If the file is not one of `sweep-abt-eventual-bench`, or a picture cannot be written.
pub fn draw_plots(file: &Path, prefix: &OsStr, text: &mut String) -> anyhow::Result<()> {
    let rows = dat::read_rows(file).map_err(to_usage_error)?;
    for (name, chart) in [("rate", rates_chart(&rows)), ("cpu", cpu_chart(&rows))] {
        write_picture(prefix, &format!("{name}.png"), &chart.to_png(), text)?;
        let svg = chart.to_standalone_svg();
        write_picture(prefix, &format!("{name}.svg"), svg.as_bytes(), text)?;
    }
    Ok(())
}

/// Writes a picture to a file, and adds its path to `text`: `prefix`, followed by `name`.
fn write_picture(
    prefix: &OsStr,
    name: &str,
    bytes: &[u8],
    text: &mut String,
) -> anyhow::Result<()> {
    let mut path = prefix.to_os_string();
    path.push(name);
    let path = PathBuf::from(path);
    files::write_chart(&path, bytes)?;
    *text += &format!("{}\n", path.display());
    Ok(())
}

/// Describes the sleep and the duration of the runs. Omits a value that is not the same in all
/// rows.
fn conditions(rows: &[EventualsRow]) -> String {
    let same = |value: fn(&EventualsRow) -> f64| {
        let first = rows.first().map_or(0.0, value);
        rows.iter().all(|row| value(row) == first).then_some(first)
    };
    let interval = same(|row| row.interval_ms).map(|ms| format!("each fiber sleeps {ms} ms"));
    let time =
        same(|row| row.seconds).map(|seconds| format!("each point is measured for {seconds} s"));
    let said: Vec<String> = [interval, time].into_iter().flatten().collect();
    said.join(", ")
}

/// Creates a chart without series, with the number of fibers on the x axis.
fn chart(title: &str, y: Axis, rows: &[EventualsRow]) -> Chart {
    let fibers = Axis::linear("fibers", Quantity::Count).with_included_value(0.0);
    Chart::new(title, fibers, y.with_included_value(0.0))
        .with_description(conditions(rows))
        .with_size_px(WIDTH_PX, HEIGHT_PX)
        .with_heading()
}

/// Draws the measured and the ideal rate by number of fibers.
fn rates_chart(rows: &[EventualsRow]) -> Chart {
    let point = |row: &EventualsRow| {
        let share = 100.0 * row.ops_per_s / row.ideal_per_s();
        let title = format!(
            "{fibers} fibers: {rate:.0} eventuals/s, {share:.1} % of the ideal rate",
            fibers = row.fibers,
            rate = row.ops_per_s
        );
        Point::new(row.fibers, row.ops_per_s).with_tooltip(title)
    };
    let ideal = rows.iter().map(|row| Point::new(row.fibers, row.ideal_per_s())).collect();
    let rate = Axis::linear("eventuals", Quantity::PerSecond);
    let measured = rows.iter().map(point).collect();
    chart("Eventuals a second, by concurrent fibers", rate, rows)
        .with_series(Series::new("ideal", SeriesRole::Floor, Mark::Dashed, ideal))
        .with_series(Series::new("measured", SeriesRole::Ours, Mark::Line, measured))
}

/// Draws the CPU time by number of fibers.
fn cpu_chart(rows: &[EventualsRow]) -> Chart {
    let point = |row: &EventualsRow| {
        Point::new(row.fibers, row.cpu_s).with_tooltip(format!(
            "{} fibers: {cpu_s:.3} s of CPU time",
            row.fibers,
            cpu_s = row.cpu_s
        ))
    };
    let whole = rows.iter().map(|row| Point::new(row.fibers, row.seconds)).collect();
    let ideal = rows.iter().map(|row| Point::new(row.fibers, 0.0)).collect();
    let seconds = Axis::linear("seconds of CPU in user space", Quantity::Count);
    let measured = rows.iter().map(point).collect();
    chart("CPU time, by concurrent fibers", seconds, rows)
        .with_series(Series::new("one CPU, all the time", SeriesRole::Faint, Mark::Dashed, whole))
        .with_series(Series::new("ideal", SeriesRole::Floor, Mark::Dashed, ideal))
        .with_series(Series::new("measured", SeriesRole::Ours, Mark::Line, measured))
}
