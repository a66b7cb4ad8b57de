//! Chart writer: series on two axes, as SVG or PNG.
//!
//! A [`Chart`] has two axes, each linear, logarithmic or of names, and any number of [`Series`].
//! Its output is deterministic, takes its colours from CSS classes (so that it is light or dark
//! with its page), has a description for screen readers, and shows the text of a point under the
//! pointer without any script.
//!
//! ```
//! use handover_report::svg::{Axis, Chart, Mark, Point, Quantity, SeriesRole, Series};
//!
//! let rate = Axis::log("offered", Quantity::PerSecond);
//! let latency = Axis::linear("latency", Quantity::Nanos);
//! let points = vec![Point::new(1e3, 120.0).with_span(118.0, 125.0), Point::new(1e6, 180.0)];
//! let chart = Chart::new("Latency by load", rate, latency)
//!     .with_series(Series::new("handover", SeriesRole::Ours, Mark::Line, points));
//! assert!(chart.to_svg().starts_with("<svg"));
//! ```

mod axis;
mod bitmap;
mod paint;

pub use axis::{Axis, AxisName, Quantity};
pub use paint::escape;

use axis::{AxisKind, DataRange, Scale};
use bitmap::Bitmap;
use paint::{Canvas, SvgCanvas, shorten, text_width};

/// Style sheet for a page with charts, with light and dark colours. It belongs in the `<style>` of
/// the page.
pub const CHART_STYLE_SHEET: &str = include_str!("svg/style.css");

const TEXT_PX: f64 = 12.0;
const ROW_PX: f64 = 22.0;
const ROW_WITH_LABEL_ABOVE_PX: f64 = 36.0;
const GROUP_GAP_PX: f64 = 8.0;
const LEGEND_ROW_PX: f64 = 20.0;
const HEAD_ROW_PX: f64 = 20.0;
const WIDTH_PX_MIN: f64 = 200.0;
/// Minimum space left of the plot area. It aligns charts that are below each other.
const VALUES_LEFT_PX_MIN: f64 = 72.0;
/// Maximum width of labels beside their rows, as a share of the chart's width. Wider labels are
/// placed above the rows.
const LABELS_BESIDE_MAX: f64 = 0.36;

/// Role of a series in its chart, which determines its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesRole {
    /// Main figure of the chart.
    Ours,
    /// Alternative with which the main figure is compared.
    Peer,
    /// Lower bound of the main figure.
    Floor,
    /// Secondary data, in a faint colour.
    Faint,
    /// One of several equal series, with the colour of this index in the palette.
    Nth(u8),
}

impl SeriesRole {
    /// Number of colours of [`SeriesRole::Nth`] in the style sheet.
    const PALETTE_COUNT: u8 = 8;

    fn css_class(self) -> String {
        match self {
            SeriesRole::Ours => "ours".to_string(),
            SeriesRole::Peer => "peer".to_string(),
            SeriesRole::Floor => "floor".to_string(),
            SeriesRole::Faint => "faint".to_string(),
            SeriesRole::Nth(place) => format!("nth{}", place % SeriesRole::PALETTE_COUNT),
        }
    }
}

/// Drawing style of the points of a series. Every mark except `Bar` and `Stacked` also draws the
/// points' spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Filled dot.
    Dot,
    /// Circle without filling.
    Ring,
    /// Diamond.
    Diamond,
    /// Short stroke across the row.
    Tick,
    /// Only the points' spans, without marks.
    Span,
    /// Line through the points in their order, with dots.
    Line,
    /// Line through the points, without dots.
    Curve,
    /// Dashed line through the points: an extrapolation.
    Dashed,
    /// Bars from zero (or from the edge of a logarithmic axis).
    Bar,
    /// Bars stacked on those of earlier series.
    Stacked,
}

/// Data point of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    x: f64,
    y: f64,
    /// Lower and upper bound of an interval or a range around the point; `None` without one.
    span: Option<(f64, f64)>,
    /// Text of the tooltip; empty for none.
    text: String,
}

impl Point {
    /// Creates a point. On an axis of names, the coordinate is the index of the name.
    pub fn new(x: f64, y: f64) -> Point {
        Point { x, y, span: None, text: String::new() }
    }

    /// Sets the span that is drawn around the point, along the axis of values. It is an interval or
    /// a range.
    #[must_use]
    pub fn with_span(mut self, low: f64, high: f64) -> Point {
        self.span = Some((low, high));
        self
    }

    /// Sets the text that is shown while the pointer is on the point.
    #[must_use]
    pub fn with_tooltip(mut self, text: impl Into<String>) -> Point {
        self.text = text.into();
        self
    }
}

/// Series of points with one name, colour and mark.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    name: String,
    role: SeriesRole,
    mark: Mark,
    points: Vec<Point>,
}

impl Series {
    /// Creates a series. The legend omits a series without a name.
    pub fn new(
        name: impl Into<String>,
        role: SeriesRole,
        mark: Mark,
        points: Vec<Point>,
    ) -> Series {
        Series { name: name.into(), role, mark, points }
    }
}

/// Chart of series on two axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    title: String,
    description: String,
    x: Axis,
    y: Axis,
    width_px: f64,
    height_px: f64,
    /// `true` to show the title and the description above the chart.
    has_heading: bool,
    series: Vec<Series>,
}

impl Chart {
    /// Creates an empty chart of 960 by 360 pixels.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Chart {
        Chart {
            title: title.into(),
            description: String::new(),
            x,
            y,
            width_px: 960.0,
            height_px: 360.0,
            has_heading: false,
            series: Vec::new(),
        }
    }

    /// Sets the description for screen readers.
    #[must_use]
    pub fn with_description(mut self, text: impl Into<String>) -> Chart {
        self.description = text.into();
        self
    }

    /// Sets the size. With names on the vertical axis, their number determines the height instead.
    #[must_use]
    pub fn with_size_px(mut self, width_px: f64, height_px: f64) -> Chart {
        self.width_px = width_px.max(WIDTH_PX_MIN);
        self.height_px = height_px.max(WIDTH_PX_MIN / 2.0);
        self
    }

    /// Shows the title and the description above the chart. This is for a picture that is not in a
    /// page.
    #[must_use]
    pub fn with_heading(mut self) -> Chart {
        self.has_heading = true;
        self
    }

    /// Adds a series, drawn on top of the earlier ones.
    #[must_use]
    pub fn with_series(mut self, series: Series) -> Chart {
        self.series.push(series);
        self
    }

    /// Draws the chart as SVG for a page that contains [`CHART_STYLE_SHEET`].
    pub fn to_svg(&self) -> String {
        self.paint("")
    }

    /// Draws the chart as a standalone SVG file, with its style.
    pub fn to_standalone_svg(&self) -> String {
        self.paint(CHART_STYLE_SHEET)
    }

    /// Draws the chart as a PNG file with two pixels per unit, in light colours.
    ///
    /// # Cost
    /// Some milliseconds.
    pub fn to_png(&self) -> Vec<u8> {
        let plan = ChartLayout::new(self);
        let mut bitmap = Bitmap::new(self.width_px, plan.height_px);
        self.paint_chart(&plan, &mut bitmap);
        bitmap.finish()
    }

    /// Draws the chart as SVG, with the style sheet `style`, which may be empty.
    fn paint(&self, style: &str) -> String {
        let plan = ChartLayout::new(self);
        let mut paint =
            SvgCanvas::new(self.width_px, plan.height_px, &self.title, &self.description);
        if !style.is_empty() {
            paint.raw("<style>");
            paint.raw(style);
            paint.raw("</style>");
        }
        self.paint_chart(&plan, &mut paint);
        paint.finish()
    }

    fn paint_chart(&self, plan: &ChartLayout, canvas: &mut dyn Canvas) {
        if self.has_heading {
            let room_px = self.width_px - 16.0;
            let title = shorten(&self.title, room_px, TEXT_PX);
            canvas.text(8.0, 17.0, "start", "name", &title);
            let description = shorten(&self.description, room_px, TEXT_PX);
            canvas.text(8.0, 35.0, "start", "label", &description);
        }
        self.paint_legend(canvas, plan);
        plan.paint_grid(self, canvas);
        let mut stacks = Stacks::default();
        for series in &self.series {
            self.paint_series(series, plan, &mut stacks, canvas);
        }
    }

    /// Returns the height of the chart's title and description in pixels.
    fn head_px(&self) -> f64 {
        match (self.has_heading, self.description.is_empty()) {
            (false, _) => 0.0,
            (true, true) => HEAD_ROW_PX,
            (true, false) => 2.0 * HEAD_ROW_PX,
        }
    }

    fn paint_legend(&self, paint: &mut dyn Canvas, plan: &ChartLayout) {
        for LegendEntry { series, x, y } in &plan.legend {
            let series = &self.series[*series];
            paint.open_group(&series.role.css_class(), "");
            match series.mark {
                Mark::Line | Mark::Curve => paint.line(x - 7.0, *y, x + 7.0, *y, "span"),
                Mark::Dashed => paint.polyline(&[(x - 7.0, *y), (x + 7.0, *y)], DASHED),
                Mark::Span => paint.line(x - 7.0, *y, x + 7.0, *y, "span"),
                Mark::Bar | Mark::Stacked => paint.rect(x - 5.0, y - 5.0, 10.0, 10.0),
                mark => paint_mark(paint, mark, *x, *y),
            }
            paint.close_group();
            paint.text(x + 11.0, y + 4.0, "start", "label", &series.name);
        }
    }

    fn paint_series(
        &self,
        series: &Series,
        plan: &ChartLayout,
        stacks: &mut Stacks,
        paint: &mut dyn Canvas,
    ) {
        let visible = |point: &&Point| point.x.is_finite() && point.y.is_finite();
        let points: Vec<&Point> = series.points.iter().filter(visible).collect();
        if points.is_empty() {
            return;
        }
        paint.open_group(&series.role.css_class(), "");
        let path =
            || points.iter().map(|point| plan.position_px(point.x, point.y)).collect::<Vec<_>>();
        match series.mark {
            Mark::Line | Mark::Curve => paint.polyline(&path(), JOINED),
            Mark::Dashed => paint.polyline(&path(), DASHED),
            _ => {}
        }
        for point in points {
            paint.open_group("", &point.text);
            match series.mark {
                Mark::Bar => plan.paint_bar(paint, point, 0.0),
                Mark::Stacked => {
                    plan.paint_bar(paint, point, stacks.push(point, plan.is_horizontal))
                }
                mark => {
                    if let Some((low, high)) = point.span.filter(|it| both_finite(*it)) {
                        let (from, to) = plan.span_ends_px(point, low, high);
                        paint.line(from.0, from.1, to.0, to.1, "span");
                    }
                    let (x, y) = plan.position_px(point.x, point.y);
                    paint_mark(paint, mark, x, y);
                }
            }
            paint.close_group();
        }
        paint.close_group();
    }
}

fn both_finite((low, high): (f64, f64)) -> bool {
    low.is_finite() && high.is_finite()
}

/// CSS class of a line through points.
const JOINED: &str = "joined";
/// CSS classes of a dashed line through points.
const DASHED: &str = "joined dashed";

fn paint_mark(paint: &mut dyn Canvas, mark: Mark, x: f64, y: f64) {
    match mark {
        Mark::Dot => paint.circle(x, y, 4.0, "dot"),
        Mark::Ring => paint.circle(x, y, 3.0, "ring"),
        Mark::Diamond => {
            paint.polygon(&[(x - 4.5, y), (x, y - 4.5), (x + 4.5, y), (x, y + 4.5)], "dot");
        }
        Mark::Tick => paint.line(x, y - 7.0, x, y + 7.0, "tick"),
        Mark::Line => paint.circle(x, y, 2.5, "dot"),
        Mark::Span | Mark::Bar | Mark::Stacked | Mark::Curve | Mark::Dashed => {}
    }
}

/// Heights of the stacked bars that were drawn so far.
#[derive(Default)]
struct Stacks {
    /// Position on the axis of names, and sum of the bars so far, of each stack.
    heights: Vec<(f64, f64)>,
}

impl Stacks {
    /// Puts a point's bar on top of its stack, and returns the value at the bar's base.
    fn push(&mut self, point: &Point, is_horizontal: bool) -> f64 {
        let (name, value) = if is_horizontal { (point.y, point.x) } else { (point.x, point.y) };
        match self.heights.iter_mut().find(|it| it.0 == name) {
            Some((_, height)) => {
                let base = *height;
                *height += value;
                base
            }
            None => {
                self.heights.push((name, value));
                0.0
            }
        }
    }
}

/// Entry of the legend: the index of a series, and the position of its mark.
struct LegendEntry {
    series: usize,
    x: f64,
    y: f64,
}

/// Layout of a chart: positions and scales in pixels.
struct ChartLayout {
    x: Scale,
    y: Scale,
    left: f64,
    right: f64,
    top: f64,
    /// Vertical coordinate of the lower edge of the plot area.
    bottom: f64,
    height_px: f64,
    /// `true` if the vertical axis has names, so that spans and bars are horizontal.
    is_horizontal: bool,
    /// `true` if the labels of rows are above them instead of left of them.
    has_labels_above: bool,
    /// Vertical coordinate of each row of an axis of names.
    rows: Vec<f64>,
    legend: Vec<LegendEntry>,
}

impl ChartLayout {
    fn new(chart: &Chart) -> ChartLayout {
        let is_horizontal = matches!(chart.y.kind, AxisKind::Names(_));
        let (x_ends, y_ends) = data_ranges(chart, is_horizontal);
        let y_labels: Vec<String> = match &chart.y.kind {
            AxisKind::Names(names) => names.iter().map(|name| name.label.clone()).collect(),
            _ => Scale::new(&chart.y, y_ends, (0.0, 1.0))
                .ticks(8)
                .into_iter()
                .map(|it| it.1)
                .collect(),
        };
        let widest = |labels: &mut dyn Iterator<Item = &str>| {
            labels.map(|label| text_width(label, TEXT_PX)).fold(0.0, f64::max)
        };
        let labels_px = widest(&mut y_labels.iter().map(String::as_str));
        let has_labels_above = is_horizontal && labels_px > chart.width_px * LABELS_BESIDE_MAX;
        let notes_px = match &chart.y.kind {
            AxisKind::Names(names) => widest(&mut names.iter().map(|name| name.note.as_str())),
            _ => 0.0,
        };
        // The labels of the first and the last tick, centred on them, need space at the sides.
        let left_min = if is_horizontal { 24.0 } else { VALUES_LEFT_PX_MIN };
        let left = if has_labels_above { 24.0 } else { (labels_px + 16.0).max(left_min) };
        let beside_px = if notes_px > 0.0 && !has_labels_above { notes_px + 16.0 } else { 0.0 };
        let right = chart.width_px - beside_px.max(24.0);
        let (legend, legend_rows) = lay_legend(chart);
        let upright_title = if chart.y.title.is_empty() || is_horizontal { 0.0 } else { 22.0 };
        let top = 8.0 + chart.head_px() + legend_rows as f64 * LEGEND_ROW_PX + upright_title;
        let below = if chart.x.title.is_empty() { 26.0 } else { 44.0 };
        let row_px = if has_labels_above { ROW_WITH_LABEL_ABOVE_PX } else { ROW_PX };
        let mut rows = Vec::new();
        let mut bottom = chart.height_px - below;
        if let AxisKind::Names(names) = &chart.y.kind {
            let mut y = top + 4.0;
            for (place, name) in names.iter().enumerate() {
                if name.opens_group && place > 0 {
                    y += GROUP_GAP_PX;
                }
                // With its label above, the row's line is in its lower half.
                rows.push(if has_labels_above { y + row_px - 11.0 } else { y + row_px / 2.0 });
                y += row_px;
            }
            bottom = y + 4.0;
        }
        ChartLayout {
            x: Scale::new(&chart.x, x_ends, (left, right)),
            y: Scale::new(&chart.y, y_ends, (bottom, top)),
            left,
            right,
            top,
            bottom,
            height_px: bottom + below,
            is_horizontal,
            has_labels_above,
            rows,
            legend,
        }
    }

    fn paint_grid(&self, chart: &Chart, paint: &mut dyn Canvas) {
        paint.open_group("grid", "");
        let x_ticks = self.x.ticks(((self.right - self.left) / 56.0) as usize);
        for (at, label) in &x_ticks {
            let x = self.x.position_px(*at);
            if !self.x.has_names() {
                paint.line(x, self.top, x, self.bottom, "rule");
            }
            let slot_px = if self.x.has_names() { self.slot_px() - 4.0 } else { 200.0 };
            let label = shorten(label, slot_px, TEXT_PX);
            paint.text(x, self.bottom + 17.0, "middle", "label", &label);
        }
        if let AxisKind::Names(names) = &chart.y.kind {
            for (name, y) in names.iter().zip(&self.rows) {
                paint.line(self.left, *y, self.right, *y, "row");
                if self.has_labels_above {
                    let room_px = chart.width_px - text_width(&name.note, TEXT_PX) - 20.0;
                    let label = shorten(&name.label, room_px, TEXT_PX);
                    paint.text(4.0, y - 12.0, "start", "name", &label);
                    paint.text(chart.width_px - 4.0, y - 12.0, "end", "note", &name.note);
                } else {
                    paint.text(self.left - 10.0, y + 4.0, "end", "name", &name.label);
                    paint.text(chart.width_px - 4.0, y + 4.0, "end", "note", &name.note);
                }
            }
        } else {
            for (at, label) in self.y.ticks(((self.bottom - self.top) / 40.0) as usize) {
                let y = self.y.position_px(at);
                paint.line(self.left, y, self.right, y, "rule");
                paint.text(self.left - 8.0, y + 4.0, "end", "label", &label);
            }
            paint.text(4.0, self.top - 14.0, "start", "label", &chart.y.title);
        }
        let middle = f64::midpoint(self.left, self.right);
        paint.text(middle, self.bottom + 36.0, "middle", "label", &chart.x.title);
        paint.close_group();
    }

    fn position_px(&self, x: f64, y: f64) -> (f64, f64) {
        (self.x.position_px(x), self.y_px(y))
    }

    /// Returns the vertical coordinate of a value or, on an axis of names, of a row.
    fn y_px(&self, y: f64) -> f64 {
        if !self.is_horizontal {
            return self.y.position_px(y);
        }
        // The index of a name may have a fraction, which moves the point towards the row above or
        // below.
        let row = (y.max(0.0).round() as usize).min(self.rows.len().saturating_sub(1));
        self.rows.get(row).map_or(self.bottom, |at| at + (y - row as f64).clamp(-0.5, 0.5) * 14.0)
    }

    /// Returns the coordinates of both ends of a point's span.
    fn span_ends_px(&self, point: &Point, low: f64, high: f64) -> ((f64, f64), (f64, f64)) {
        if self.is_horizontal {
            (self.position_px(low, point.y), self.position_px(high, point.y))
        } else {
            (self.position_px(point.x, low), self.position_px(point.x, high))
        }
    }

    fn paint_bar(&self, paint: &mut dyn Canvas, point: &Point, base: f64) {
        if self.is_horizontal {
            let (from, to) = (self.x.position_px(base), self.x.position_px(base + point.x));
            let y = self.y_px(point.y);
            paint.rect(from.min(to), y - 7.0, (to - from).abs(), 14.0);
        } else {
            let (from, to) = (self.y.position_px(base), self.y.position_px(base + point.y));
            let width = if self.x.has_names() { self.slot_px() * 0.7 } else { 6.0 };
            paint.rect(
                self.x.position_px(point.x) - width / 2.0,
                from.min(to),
                width,
                (to - from).abs(),
            );
        }
    }

    /// Returns the width of a column of the horizontal axis of names.
    fn slot_px(&self) -> f64 {
        (self.right - self.left) / self.x.names_count().max(1) as f64
    }
}

/// Returns the ranges of the data on the horizontal and on the vertical axis.
fn data_ranges(chart: &Chart, is_horizontal: bool) -> (DataRange, DataRange) {
    let (mut x, mut y) = (DataRange::default(), DataRange::default());
    let mut stacks = Stacks::default();
    for series in &chart.series {
        for point in &series.points {
            let base = match series.mark {
                Mark::Stacked => stacks.push(point, is_horizontal),
                _ => 0.0,
            };
            let bar = matches!(series.mark, Mark::Bar | Mark::Stacked);
            let (along, across) = if is_horizontal { (&mut x, &mut y) } else { (&mut y, &mut x) };
            let (value, place) =
                if is_horizontal { (point.x, point.y) } else { (point.y, point.x) };
            across.extend(place);
            along.extend(base + value);
            if bar {
                along.extend(0.0);
            }
            if let Some((low, high)) = point.span {
                along.extend(low);
                along.extend(high);
            }
        }
    }
    (x, y)
}

/// Returns the legend's entries with their positions, row by row, and the number of rows. The main
/// figure, which is drawn last, comes first.
fn lay_legend(chart: &Chart) -> (Vec<LegendEntry>, usize) {
    let mut places = Vec::new();
    let (mut x, mut row) = (12.0, 0);
    let mut named: Vec<(usize, &Series)> =
        chart.series.iter().enumerate().filter(|(_, series)| !series.name.is_empty()).collect();
    named.sort_by_key(|(_, series)| series.role != SeriesRole::Ours);
    for (index, series) in named {
        let width = 16.0 + text_width(&series.name, TEXT_PX) + 18.0;
        if x + width > chart.width_px && x > 12.0 {
            (x, row) = (12.0, row + 1);
        }
        places.push(LegendEntry {
            series: index,
            x,
            y: chart.head_px() + 12.0 + row as f64 * LEGEND_ROW_PX,
        });
        x += width;
    }
    let rows = if places.is_empty() { 0 } else { row + 1 };
    (places, rows)
}
