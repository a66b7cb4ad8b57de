//! Anatomy of a hand-off, as lines of text and as stacked bars.

use crate::format;
use crate::svg::{Axis, AxisName, Chart, Mark, Point, Quantity, Series, SeriesRole};
use crate::text::{Line, Style, Tone, wrap};
use handover_record::{Anatomy, AnatomyOutlier, Document, OffCpuVerdict, Record, Unit};

/// Maximum mean duration of a drawn group of hand-offs, relative to the typical group's. A longer
/// bar would shrink the typical one to a line; only the table lists it.
const DRAWN_MAX: f64 = 6.0;
/// Number of unmatched events per evaluated hand-off above which a note is shown. It says that the
/// figures may not be typical.
const UNFIT_SHARE_MAX: f64 = 0.2;

/// Iterates over those records of a document that have an anatomy.
pub(crate) fn records_with_anatomy(
    document: &Document,
) -> impl Iterator<Item = (&Record, &Anatomy)> {
    document.records.iter().filter_map(|record| Some((record, record.anatomy.as_deref()?)))
}

/// Renders an anatomy for a terminal. Shows the stages of a hand-off, their sum in one line, and
/// notes. Empty for a record without an anatomy.
pub fn render_anatomy(record: &Record, width: usize, style: Style) -> String {
    let Some(anatomy) = &record.anatomy else { return String::new() };
    let mut lines = Vec::new();
    let mut head = Line::new(&record.spec, Tone::Strong);
    head.push(format!("  {}", record.contender), Tone::Plain);
    lines.push(head);
    lines.extend(wrap(&anatomy.total.what, Tone::Faint, 2, width));
    lines.push(Line::default());
    lines.extend(stage_table(anatomy, width));
    lines.push(Line::default());
    lines.extend(wrap(&anatomy.line, Tone::Strong, 2, width));
    lines.push(Line::default());
    for text in anatomy_notes(anatomy) {
        lines.extend(wrap(&text, Tone::Plain, 2, width));
    }
    if !anatomy.outliers.is_empty() {
        lines.push(Line::default());
        lines.push(Line::plain("The slowest:"));
        for outlier in &anatomy.outliers {
            lines.extend(wrap(&describe_outlier(outlier), Tone::Plain, 4, width));
        }
        let look = "`handover trace export FILE --to csv -o -` prints the events of such a file, each with its time.";
        lines.extend(wrap(look, Tone::Faint, 2, width));
    }
    crate::table::render(lines, width, style)
}

/// Returns the lines of the table of stages.
fn stage_table(anatomy: &Anatomy, width: usize) -> Vec<Line> {
    const NAME_WIDTH: usize = 10;
    const COLUMN_WIDTH: usize = 10;
    let mut head = Line::default();
    head.push("stage", Tone::Faint);
    for (place, name) in ["p50", "p99", "share", "passed"].into_iter().enumerate() {
        head.push_right(&Line::new(name, Tone::Faint), NAME_WIDTH + COLUMN_WIDTH * (place + 1));
    }
    let mut lines = vec![head];
    let all = anatomy.stages.iter().chain([&anatomy.total]);
    for stage in all {
        let tone = if stage.passed > 0.0 { Tone::Plain } else { Tone::Faint };
        let mut line = Line::new(&stage.name, tone);
        let figures = match stage.passed > 0.0 {
            true => [
                ns(stage.p50_ns),
                ns(stage.p99_ns),
                format::share(stage.share),
                format::share(stage.passed),
            ],
            false => ["-".into(), "-".into(), format::share(0.0), format::share(0.0)],
        };
        for (place, figure) in figures.iter().enumerate() {
            line.push_right(&Line::new(figure, tone), NAME_WIDTH + COLUMN_WIDTH * (place + 1));
        }
        let column = NAME_WIDTH + COLUMN_WIDTH * 4 + 2;
        if stage.name != anatomy.total.name && width > column + 20 {
            for what in wrap(&stage.what, Tone::Faint, 0, width - column) {
                line.push_at(column, what);
                lines.push(std::mem::take(&mut line));
            }
        } else {
            lines.push(line);
        }
    }
    lines
}

/// Formats a time in nanoseconds, with a unit.
fn ns(value: f64) -> String {
    format::figure(Unit::Ns, value)
}

/// Returns the notes for the lines below an anatomy's table, of one or two sentences each.
pub(crate) fn anatomy_notes(anatomy: &Anatomy) -> Vec<String> {
    let mut facts = vec![
        "The line adds up the means of the middle half of the hand-offs; medians do not add up. A stage's p50 \
         and p99 are those of the hand-offs that pass it."
            .to_string(),
    ];
    if let (Some(floor), Some(stage)) =
        (&anatomy.floor, anatomy.stages.iter().find(|stage| stage.has_floor))
    {
        facts.push(format!(
            "The floor is a part of the stage {}: {}, measured in the same run, is {} for {}.",
            stage.name,
            floor.id,
            ns(floor.figure_ns),
            if floor.handoffs == 2.0 {
                "a round trip".to_string()
            } else {
                format!("{} hand-offs", floor.handoffs)
            },
        ));
    }
    if let (Some(off), Some(on)) = (anatomy.off_ns, anatomy.on_ns) {
        facts.push(format!(
            "By the benchmark's own figure a hand-off takes {} with the sites off, and {} with the sites on.",
            ns(off),
            ns(on)
        ));
    }
    let [none, one, two] = anatomy.site_ns.map(ns);
    let net = match anatomy.is_site_cost_subtracted {
        true => "this cost was subtracted from each stage that stays on one thread",
        false => "this cost is part of each stage that stays on one thread, and was not subtracted",
    };
    facts.push(format!(
        "An enabled site takes {none}, {one} with a value and {two} with two values: {net}. The clock advances in \
         steps of {}.",
        ns(anatomy.clock_step_ns)
    ));
    let unmatched = &anatomy.unmatched;
    let mut counts = format!(
        "{} hand-offs in {}; {} with contradictory events",
        anatomy.handoffs_count,
        format::counted(anatomy.rounds_count as usize, "round"),
        unmatched.mismatched
    );
    for (count, problem) in [
        (unmatched.without_start, "left out because the harness read the clock within them"),
        (unmatched.reacquired, "left out because the sender itself received the work"),
        (unmatched.received_early, "received before an event of their sender by the time stamps"),
        (unmatched.lost, "events lost"),
    ] {
        if count > 0 {
            counts.push_str(&format!(", {count} {problem}"));
        }
    }
    counts.push('.');
    facts.push(counts);
    let unfit = unmatched.mismatched + unmatched.received_early + unmatched.lost;
    if unfit as f64 > UNFIT_SHARE_MAX * anatomy.handoffs_count as f64 {
        facts.push(
            "Uncertain: so many hand-offs were left out that the others may not be typical. Measure for longer \
             (--seconds), with fewer other programs running."
                .to_string(),
        );
    }
    facts
}

/// Describes one of the slowest hand-offs in one line: its duration, slow stage and likely cause.
pub(crate) fn describe_outlier(outlier: &AnatomyOutlier) -> String {
    let waited = match (outlier.off_cpu_ns, outlier.run_delay_ns) {
        (Some(0), _) | (None, 0) => String::new(),
        (Some(off_ns), _) => {
            let but = if outlier.off_cpu == OffCpuVerdict::No { " but" } else { "" };
            format!("{but} for {off_time} of the hand-off", off_time = ns(off_ns as f64))
        }
        (None, delay) => {
            let delay = ns(delay as f64);
            format!(", the participants of its round waited {delay} for a CPU")
        }
    };
    format!(
        "{} by {} ({} above its median), {}{waited}; thread {} to {} at {} ns in {}",
        ns(outlier.total_ns),
        outlier.slow_stage,
        ns(outlier.excess_ns),
        outlier.off_cpu,
        outlier.from_tid,
        outlier.to_tid,
        outlier.begin_ns,
        outlier.file,
    )
}

/// Draws the stages of typical and slow hand-offs as stacked bars, `width_px` wide. Returns `None`
/// for a record without an anatomy.
pub fn anatomy_chart(record: &Record, width_px: f64) -> Option<Chart> {
    let anatomy = record.anatomy.as_ref()?;
    let sum = |stages_ns: &[f64]| stages_ns.iter().sum::<f64>();
    let typical = anatomy.bands.first().map_or(0.0, |band| sum(&band.stages_ns));
    let drawn = || anatomy.bands.iter().filter(|band| sum(&band.stages_ns) <= typical * DRAWN_MAX);
    let names = drawn().map(|band| AxisName {
        label: band.name.clone(),
        note: ns(sum(&band.stages_ns)),
        opens_group: false,
    });
    let time = Axis::linear("time of one hand-off", Quantity::Nanos).with_included_value(0.0);
    let mut chart = Chart::new(
        format!(
            "{id} [{contender}]: {sum}",
            id = record.spec,
            contender = record.contender,
            sum = anatomy.line
        ),
        time,
        Axis::with_names(names.collect()),
    )
    .with_description(format!(
        "The stages of one hand-off, stacked, of the typical half and of slow hand-offs. {}",
        anatomy.line
    ))
    .with_size_px(width_px, 0.0);
    let floor_ns = anatomy.floor.as_ref().map_or(0.0, |floor| floor.figure_ns / floor.handoffs);
    let mut colours = 0..;
    for (place, stage) in anatomy.stages.iter().enumerate() {
        if stage.passed == 0.0 {
            continue;
        }
        let bar = |row: usize, value: f64, name: &str| {
            Point::new(value, row as f64).with_tooltip(format!("{name} {}", ns(value)))
        };
        let of =
            |band: &handover_record::AnatomyBand| band.stages_ns.get(place).copied().unwrap_or(0.0);
        let in_it = |ns: f64| if stage.has_floor { ns.min(floor_ns) } else { 0.0 };
        if stage.has_floor && floor_ns > 0.0 {
            let points =
                drawn().enumerate().map(|(row, band)| bar(row, in_it(of(band)), "floor")).collect();
            chart =
                chart.with_series(Series::new("floor", SeriesRole::Floor, Mark::Stacked, points));
        }
        let rest = |(row, band)| bar(row, of(band) - in_it(of(band)), &stage.name);
        let points = drawn().enumerate().map(rest).collect();
        // The palette's last colour is that of the floor.
        let colour = colours.next().unwrap_or(0) % 7;
        chart = chart.with_series(Series::new(
            &stage.name,
            SeriesRole::Nth(colour),
            Mark::Stacked,
            points,
        ));
    }
    Some(chart)
}
