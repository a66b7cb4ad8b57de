//! State of a run, drawn as a ladder into a buffer of terminal cells.
//!
//! A rung (row) is a benchmark with the figure of its first contender of ours, or of the machine if
//! there is none of ours. The figure is available after the first pass and is replaced by a more
//! accurate one after the last.

use handover_harness::Lab;
use handover_record::{ContenderKind, Record, Unit, WarningCode};
use handover_report::{ShortFigure, warning_name};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::{Rect, Size};
use ratatui_core::style::{Color, Modifier, Style};
use std::collections::BTreeMap;
use std::time::Duration;

/// Minimum terminal size for the view.
pub const SIZE_MIN: Size = Size::new(40, 10);

/// Length of the time axis in decades, from 1 ns to 1 s.
const DECADES: f64 = 9.0;
/// Ticks of the time axis, each with its distance from the start in decades.
const TICKS: [(f64, &str); 4] = [(0.0, "1 ns"), (3.0, "1 µs"), (6.0, "1 ms"), (9.0, "1 s")];
/// Minimum width of the axis; a narrower axis is not drawn.
const AXIS_COLUMNS_MIN: u16 = 24;
/// Widths of the columns for a figure, its interval, its ratio to the floor and its warnings. Each
/// includes the space before the column.
const FIGURE_COLUMNS: [u16; 4] = [10, 8, 8, 8];
/// Headings of the columns of [`FIGURE_COLUMNS`].
const FIGURE_HEADINGS: [&str; 4] = ["figure", "± 95 %", "× floor", "warning"];
/// Maximum width of labels; longer ones are cut.
const LABEL_COLUMNS_MAX: u16 = 34;
/// Number of lines above the rows: title, progress, current benchmark, a blank line, and the axis.
const HEAD_LINES: u16 = 5;
/// Maximum number of messages shown, the most recent ones.
const MESSAGE_LINES_MAX: usize = 3;

const NORMAL_STYLE: Style = Style::new();
const STRONG_STYLE: Style = Style::new().add_modifier(Modifier::BOLD);
const FAINT_STYLE: Style = Style::new().add_modifier(Modifier::DIM);
const CURRENT_ROW_STYLE: Style = Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD);
const WARNING_STYLE: Style = Style::new().fg(Color::Yellow);
const ERROR_STYLE: Style = Style::new().fg(Color::Red);

/// Characters used to draw the view.
struct ViewCharacters {
    /// Mark of the benchmark that is being measured.
    current: &'static str,
    /// Character of the done part of the progress bar.
    bar_done: &'static str,
    /// Character of the remaining part of the progress bar.
    bar_left: &'static str,
    /// Mark of the floor on the time axis.
    floor: &'static str,
    /// Line between the floor and the median.
    floor_to_median: &'static str,
    /// Mark of the median on the time axis.
    median: &'static str,
    /// Line from the median to the 99th percentile.
    p99: &'static str,
    /// Mark of a labelled time on the axis.
    tick: &'static str,
}

/// Characters that draw the view on a terminal with Unicode.
const UNICODE_CHARACTERS: ViewCharacters = ViewCharacters {
    current: "▸",
    bar_done: "█",
    bar_left: "░",
    floor: "│",
    floor_to_median: "─",
    median: "●",
    p99: "╴",
    tick: "┬",
};
/// Characters that draw the view on a terminal without Unicode.
const ASCII_CHARACTERS: ViewCharacters = ViewCharacters {
    current: ">",
    bar_done: "#",
    bar_left: ".",
    floor: "|",
    floor_to_median: "-",
    median: "o",
    p99: "-",
    tick: "+",
};

/// Figure as a row of the view shows it.
struct ShownFigure {
    /// Figure, interval, ratio and warnings as texts.
    texts: ShortFigure,
    unit: Unit,
    /// Median, in `unit`.
    median: f64,
    /// 99th percentile, in `unit`.
    p99: Option<f64>,
    /// Figure of the floor, in `unit`.
    floor: Option<f64>,
    warnings: Vec<WarningCode>,
    /// Arguments of the benchmark, by name.
    args: BTreeMap<String, u64>,
}

/// Row of the view: a benchmark, and its figure once it was measured.
struct LadderRow {
    /// Id of the benchmark.
    benchmark: &'static str,
    /// Label: the id and, in a sweep, the value of the argument.
    label: String,
    figure: Option<ShownFigure>,
}

/// State of a run in progress, drawn as a row for each benchmark.
pub struct LadderView {
    /// Title line: the profile, and the numbers of benchmarks and passes.
    title: String,
    /// Rows, one for each benchmark.
    rungs: Vec<LadderRow>,
    passes_count: usize,
    /// Time limit of the run.
    time_max: Option<Duration>,
    /// Name of the argument that a sweep varies; `None` in other runs.
    swept_argument: Option<String>,
    /// Index of the current visit, and the number of visits.
    visit: (usize, usize),
    /// Index of the benchmark that is being measured.
    benchmark_index: usize,
    /// Number of blocks measured in the visit, and the maximum number.
    blocks: (u32, u32),
    messages: Vec<String>,
    characters: &'static ViewCharacters,
    has_unicode: bool,
    /// `true` if keys that the user types can be read.
    pub has_keys: bool,
    /// `true` if the user has requested the end of the run.
    pub is_ending: bool,
}

impl LadderView {
    /// Creates the state of a run that starts now. `swept_argument` is the name of the argument
    /// that a sweep varies.
    pub fn new(
        lab: &Lab,
        profile: &str,
        swept_argument: Option<&str>,
        has_unicode: bool,
    ) -> LadderView {
        let specs: Vec<&'static str> = lab.groups().iter().map(|it| it.selection.spec.id).collect();
        let passes_count = lab.passes_count().max(1) as usize;
        LadderView::with_specs(
            &specs,
            profile,
            passes_count,
            lab.time_max(),
            swept_argument,
            has_unicode,
        )
    }

    /// Creates the state of a run of the benchmarks `specs`.
    fn with_specs(
        specs: &[&'static str],
        profile: &str,
        passes_count: usize,
        time_max: Option<Duration>,
        swept_argument: Option<&str>,
        has_unicode: bool,
    ) -> LadderView {
        let many = |count: usize, of: &str| match count {
            1 => format!("1 {of}"),
            _ => format!("{count} {of}{}", if of.ends_with('s') { "es" } else { "s" }),
        };
        let (benchmarks, passes) = (many(specs.len(), "benchmark"), many(passes_count, "pass"));
        let rung = |spec: &&'static str| LadderRow {
            benchmark: spec,
            label: spec.to_string(),
            figure: None,
        };
        LadderView {
            title: format!("handover, {profile} profile: {benchmarks} in {passes}"),
            rungs: specs.iter().map(rung).collect(),
            passes_count,
            time_max,
            swept_argument: swept_argument.map(str::to_string),
            visit: (0, 0),
            benchmark_index: 0,
            blocks: (0, 0),
            messages: Vec::new(),
            characters: if has_unicode { &UNICODE_CHARACTERS } else { &ASCII_CHARACTERS },
            has_unicode,
            has_keys: false,
            is_ending: false,
        }
    }

    /// Starts a visit (the measurement of one benchmark in one pass). `benchmark_index` is that of
    /// the benchmark; `visit` is the index of the visit and the number of visits.
    pub fn set_visit(&mut self, visit: (usize, usize), benchmark_index: usize) {
        (self.visit, self.benchmark_index) = (visit, benchmark_index);
        self.blocks = (0, 0);
    }

    /// Sets the number of measured blocks in the visit (`done`), and their maximum number (`most`).
    pub fn set_blocks(&mut self, done: u32, most: u32) {
        self.blocks = (done, most);
    }

    /// Sets the figure of the row of the benchmark that `records` belong to.
    pub fn set_figure(&mut self, records: &[Record]) {
        let rank = |it: &&Record| (it.kind != ContenderKind::Ours, !it.ladder);
        let Some(record) = records.iter().min_by_key(rank) else { return };
        let is_its = |rung: &LadderRow| {
            rung.benchmark == record.spec
                && rung.figure.as_ref().is_some_and(|it| it.args == record.args)
        };
        let Some(place) = self.rungs.iter().position(is_its).or_else(|| self.current_row()) else {
            return;
        };
        let rung = &mut self.rungs[place];
        if let Some((name, value)) =
            self.swept_argument.as_ref().and_then(|name| Some((name, record.args.get(name)?)))
        {
            rung.label = format!("{} {name}={value}", rung.benchmark);
        }
        rung.figure = Some(ShownFigure {
            texts: ShortFigure::from_record(record),
            unit: record.unit,
            median: record.summary.median,
            p99: record.summary.quantiles().map(|it| it.p99),
            floor: record.floor.as_ref().map(|it| it.other),
            warnings: record.warnings.iter().map(|it| it.code).collect(),
            args: record.args.clone(),
        });
    }

    pub fn add_message(&mut self, line: String) {
        self.messages.push(line);
    }

    /// Returns the row index of the current benchmark; `None` if it has no row.
    fn current_row(&self) -> Option<usize> {
        (self.benchmark_index < self.rungs.len()).then_some(self.benchmark_index)
    }

    /// Returns the share of the run that is complete, 0.0 to 1.0.
    fn done_share(&self) -> f64 {
        let (index, count) = self.visit;
        let (done, most) = self.blocks;
        (index as f64 + f64::from(done) / f64::from(most.max(1))) / count.max(1) as f64
    }

    /// Estimates the remaining time of the run; `since` is the time since its start. The time limit
    /// counts, or the pace if that gives less or if the passes have exceeded their share of the
    /// limit. In the first pass, which also warms up, the limit counts unless it is exceeded.
    fn remaining_time(&self, since: Duration) -> Option<Duration> {
        let share = self.done_share();
        let by_pace = (share > 0.0).then(|| since.mul_f64((1.0 - share) / share));
        let pass = self.visit.0 / self.rungs.len().max(1);
        let share_of_passes = (pass + 1) as f64 / self.passes_count as f64;
        let is_kept = |limit: &Duration| since <= limit.mul_f64(share_of_passes);
        let by_limit = self.time_max.filter(is_kept).map(|limit| limit - since);
        match by_limit {
            Some(left) if pass == 0 => Some(left),
            _ => by_limit.into_iter().chain(by_pace).min(),
        }
    }

    /// Draws the view into `area`; `since` is the time since the start of the run.
    pub fn draw(&self, since: Duration, area: Rect, buffer: &mut Buffer) {
        let messages = &self.messages[self.messages.len().saturating_sub(MESSAGE_LINES_MAX)..];
        let has_room = usize::from(area.height) > usize::from(HEAD_LINES) + messages.len() + 2;
        let key = if has_room { self.warnings_legend() } else { String::new() };
        let foot_lines = messages.len() as u16 + 1 + u16::from(!key.is_empty());
        if area.width < SIZE_MIN.width || area.height < HEAD_LINES + foot_lines + 1 {
            buffer.set_stringn(area.x, area.y, &self.title, area.width.into(), NORMAL_STYLE);
            return;
        }
        let line = |y: u16| Rect { x: area.x + 1, y, width: area.width - 2, height: 1 };
        self.draw_title_and_progress(since, line(area.y), buffer);
        let rungs_height = area.height - HEAD_LINES - foot_lines;
        let rungs = Rect { height: rungs_height, ..line(area.y + HEAD_LINES) };
        self.draw_axis_and_rows(rungs, buffer);
        let mut foot = line(area.bottom() - foot_lines);
        for text in messages {
            put_text(buffer, foot, text, ERROR_STYLE);
            foot.y += 1;
        }
        if !key.is_empty() {
            put_text(buffer, foot, &key, FAINT_STYLE);
            foot.y += 1;
        }
        let hint = match (self.is_ending, self.has_keys) {
            (true, _) => "ending; the completed measurements are kept",
            (false, true) => "q ends the run and keeps the completed measurements",
            (false, false) => "Ctrl-C ends the run and keeps the completed measurements",
        };
        put_text(buffer, foot, hint, FAINT_STYLE);
    }

    /// Returns the legend of the warning letters in the rows, such as `w wide, sw disturbed`. It is
    /// empty if no row has a warning.
    fn warnings_legend(&self) -> String {
        let figures = self.rungs.iter().filter_map(|it| it.figure.as_ref());
        let mut entries: Vec<String> = Vec::new();
        for code in figures.flat_map(|it| &it.warnings) {
            let entry = format!("{} {}", code.table_letters(), warning_name(*code));
            if !entries.contains(&entry) {
                entries.push(entry);
            }
        }
        entries.join(", ")
    }

    fn draw_title_and_progress(&self, since: Duration, mut line: Rect, buffer: &mut Buffer) {
        put_text(buffer, line, &self.title, STRONG_STYLE);
        line.y += 1;
        let share = self.done_share().clamp(0.0, 1.0);
        let mut progress = format!(
            " {done_percent:>3.0} %  {elapsed} elapsed",
            done_percent = share * 100.0,
            elapsed = format_minutes(since)
        );
        if let Some(left) = self.remaining_time(since) {
            progress += &format!(", about {time_left} left", time_left = format_minutes(left));
        }
        let columns = usize::from(line.width).saturating_sub(progress.len()).min(40);
        let done_columns = (share * columns as f64).round() as usize;
        let bar = self.characters.bar_done.repeat(done_columns)
            + &self.characters.bar_left.repeat(columns - done_columns);
        put_text(buffer, line, &(bar + &progress), NORMAL_STYLE);
        line.y += 1;
        let Some(row) = self.current_row().filter(|_| self.visit.1 > 0) else { return };
        let pass = self.visit.0 / self.rungs.len() + 1;
        let (passes_count, benchmark) = (self.passes_count, &self.rungs[row].label);
        let mut state = format!("pass {pass} of {passes_count}: {benchmark}");
        match self.blocks {
            (0, _) => state += if pass == 1 { ", checked and warmed up" } else { "" },
            (block, blocks_max) => state += &format!(", block {block} of at most {blocks_max}"),
        }
        put_text(buffer, line, &state, NORMAL_STYLE);
    }

    /// Draws the axis, and below it as many rows as fit. The current row is among them.
    fn draw_axis_and_rows(&self, area: Rect, buffer: &mut Buffer) {
        let widest = self.rungs.iter().map(|it| it.label.chars().count()).max().unwrap_or(0);
        // Including the mark before the label, and the spaces.
        let label_columns = (widest as u16 + 3).min(LABEL_COLUMNS_MAX).min(area.width / 2);
        let mut columns = FIGURE_COLUMNS;
        // Columns that do not fit are dropped, the rightmost first.
        for place in (1..columns.len()).rev() {
            if label_columns + columns.iter().sum::<u16>() > area.width {
                columns[place] = 0;
            }
        }
        let taken = label_columns + columns.iter().sum::<u16>();
        let axis = Some(area.width.saturating_sub(taken + 1)).filter(|it| *it >= AXIS_COLUMNS_MIN);
        let axis = axis.map(|width| Rect { x: area.x + label_columns, width, ..area });
        if let Some(axis) = axis {
            self.draw_axis(Rect { y: area.y - 1, height: 1, ..axis }, buffer);
        }
        let line = |y: u16| Rect { y, height: 1, ..area };
        let headings = FIGURE_HEADINGS.map(|heading| (heading, FAINT_STYLE));
        self.draw_columns(headings, columns, line(area.y - 1), buffer);
        let height = usize::from(area.height);
        let first = self.current_row().unwrap_or(0).saturating_sub(height / 2);
        let first = first.min(self.rungs.len().saturating_sub(height));
        for (row, rung) in (area.y..).zip(self.rungs.iter().enumerate().skip(first).take(height)) {
            let (place, rung) = rung;
            let is_current = self.visit.1 > 0 && self.current_row() == Some(place);
            let style = match (&rung.figure, is_current) {
                (_, true) => CURRENT_ROW_STYLE,
                (Some(_), false) => NORMAL_STYLE,
                (None, false) => FAINT_STYLE,
            };
            let mark = if is_current { self.characters.current } else { " " };
            let label = Rect { width: label_columns - 1, ..line(row) };
            put_text(buffer, label, &format!("{mark} {}", rung.label), style);
            let Some(figure) = &rung.figure else { continue };
            if let (Some(axis), Unit::Ns) = (axis, figure.unit) {
                self.draw_figure(figure, Rect { y: row, height: 1, ..axis }, buffer);
            }
            let short = &figure.texts;
            let cells = [
                (&*short.figure, STRONG_STYLE),
                (&*short.interval, FAINT_STYLE),
                (&*short.by_floor, NORMAL_STYLE),
                (&*short.warnings, WARNING_STYLE),
            ];
            self.draw_columns(cells, columns, line(row), buffer);
        }
    }

    /// Draws the cells of the columns for a figure flush right into a line, of which they take the
    /// right end. `columns` are their widths; those of width 0 are not drawn.
    fn draw_columns(
        &self,
        cells: [(&str, Style); 4],
        columns: [u16; 4],
        line: Rect,
        buffer: &mut Buffer,
    ) {
        let mut end = line.right() - columns.iter().sum::<u16>();
        for ((text, style), columns) in cells.into_iter().zip(columns) {
            end += columns;
            let shown = self.in_charset(text);
            let width = (shown.chars().count() as u16).min(columns.saturating_sub(1));
            put_text(buffer, Rect { x: end - width, width, ..line }, &shown, style);
        }
    }

    fn draw_axis(&self, line: Rect, buffer: &mut Buffer) {
        for (decades, text) in TICKS {
            let x = axis_column(line, 10f64.powf(decades));
            let text = self.in_charset(text);
            let width = text.chars().count() as u16;
            put_text(
                buffer,
                Rect { x, y: line.y, width: 1, height: 1 },
                self.characters.tick,
                FAINT_STYLE,
            );
            // The label goes to the right of its tick, or to the left at the end.
            let x = if x + 1 + width <= line.right() { x + 1 } else { x - width };
            put_text(buffer, Rect { x, width, ..line }, &text, FAINT_STYLE);
        }
    }

    /// Draws a figure's floor, median and 99th percentile in the columns of the time axis.
    fn draw_figure(&self, figure: &ShownFigure, line: Rect, buffer: &mut Buffer) {
        let cell = |x: u16| Rect { x, y: line.y, width: 1, height: 1 };
        let median = axis_column(line, figure.median);
        let p99 = figure.p99.map_or(median, |p99| axis_column(line, p99));
        for x in median..=p99.max(median) {
            put_text(buffer, cell(x), self.characters.p99, FAINT_STYLE);
        }
        if let Some(floor) = figure.floor.map(|floor| axis_column(line, floor)) {
            for x in floor.min(median)..median {
                put_text(buffer, cell(x), self.characters.floor_to_median, NORMAL_STYLE);
            }
            put_text(buffer, cell(floor), self.characters.floor, NORMAL_STYLE);
        }
        put_text(buffer, cell(median), self.characters.median, STRONG_STYLE);
    }

    /// Returns `text`; on a terminal without Unicode, with µ, ±, × and dashes replaced by ASCII.
    fn in_charset(&self, text: &str) -> String {
        match self.has_unicode {
            true => text.to_string(),
            false => text.replace('µ', "u").replace('±', "~").replace('×', "x").replace('–', "-"),
        }
    }
}

/// Returns the terminal column of a time on the logarithmic axis.
fn axis_column(axis: Rect, ns: f64) -> u16 {
    let share = (ns.max(1.0).log10() / DECADES).clamp(0.0, 1.0);
    axis.x + (share * f64::from(axis.width - 1)).round() as u16
}

/// Writes text into a line of cells, truncated at the line's end.
fn put_text(buffer: &mut Buffer, line: Rect, text: &str, style: Style) {
    buffer.set_stringn(line.x, line.y, text, line.width.into(), style);
}

/// Formats a time as `m:ss` or `h:mm:ss`.
fn format_minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds / 3600 {
        0 => format!("{}:{:02}", seconds / 60, seconds % 60),
        hours => format!("{hours}:{:02}:{:02}", seconds / 60 % 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests;
