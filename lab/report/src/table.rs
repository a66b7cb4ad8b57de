//! Ladder, the table of figures, for a terminal of any width.
//!
//! Columns are dropped in a fixed order as the terminal narrows; if the remaining ones do not fit,
//! each figure becomes a card of lines. No line is wider than requested.

use crate::anatomy;
use crate::counts::push_counts;
use crate::format;
use crate::model::{self, Model};
use crate::text::{Line, Style, Tone, WIDTH_MIN, wrap};
use handover_record::{Document, FigureMode, Ratio, Record};
use std::cmp::Ordering;

/// Minimum width of the column that describes the timed operation.
const WHAT_WIDTH_MIN: usize = 24;
/// Maximum number of texts that are listed for one kind of warning.
const WARNING_LINES_MAX: usize = 8;
/// Maximum number of figures that are named for one text of a warning. Of more figures, only the
/// number is shown.
const WARNING_NAMES_MAX: usize = 4;

/// Renders the table of a document's figures, with its legend, at most `width` columns wide.
///
/// It has one row per figure of ours, with its fastest peer; floors and facts about the machine
/// have rows if there is no contender of ours. With [`Style::all`] every contender has a row. A
/// figure with two modes shows both with their shares instead of its median.
pub fn render_table(document: &Document, width: usize, style: Style) -> String {
    let model = Model::new(document, style.all);
    let laid_out = width.max(WIDTH_MIN);
    let mut lines = head(document, width);
    lines.push(Line::default());
    if document.records.is_empty() {
        lines.push(Line::plain("No figure was recorded."));
    } else {
        match TableLayout::fit(&model, laid_out, style) {
            Some(layout) => layout.draw(&model, style, &mut lines),
            None => push_figure_blocks(&model, &mut lines),
        }
        push_counts(&model, laid_out, &mut lines);
        for (record, anatomy) in anatomy::records_with_anatomy(document) {
            lines.push(Line::default());
            let name = format!(
                "{id} [{contender}], one hand-off: ",
                id = record.spec,
                contender = record.contender
            );
            let mut wrapped = wrap(&(name + &anatomy.line), Tone::Plain, 2, width);
            lines.append(&mut wrapped);
        }
        lines.push(Line::default());
        lines.extend(foot(document, &model, laid_out, style));
    }
    render(lines, width, style)
}

/// Renders one figure of one contender in one line, for printing as it is measured.
pub fn render_row(record: &Record, width: usize, style: Style) -> String {
    let mut line = Line::new(&record.id, Tone::Strong);
    line.push("  ", Tone::Plain);
    line.push(&record.contender, Tone::Plain);
    for fact in facts(record, &|peer| format::compare_with_one(peer, 0.0)) {
        line.push("  ", Tone::Plain);
        if !matches!(fact.label, "median" | "mean" | "floor" | "peer" | "warning") {
            line.push(format!("{} ", fact.label), Tone::Faint);
        }
        line.spans.extend(fact.value.spans);
    }
    render(vec![line], width, style)
}

/// Formats lines as text, each cut to `width` columns.
pub(crate) fn render(lines: Vec<Line>, width: usize, style: Style) -> String {
    let mut text = String::new();
    for line in lines {
        line.truncate(width, style).render(style, &mut text);
    }
    text
}

/// Returns the lines above the table, which describe the run and the machine.
fn head(document: &Document, width: usize) -> Vec<Line> {
    let mut lines = wrap(&model::run_line(document), Tone::Faint, 2, width);
    if let (false, Some(run)) = (document.run.complete, lines.last_mut()) {
        run.push(", not finished", Tone::Warning);
    }
    let host = model::host_line(document);
    if !host.is_empty() {
        lines.extend(wrap(&host, Tone::Faint, 2, width));
    }
    lines
}

/// Returns the lines below the table: the resolution, a guide to the columns, and the warnings.
fn foot(document: &Document, model: &Model<'_>, width: usize, style: Style) -> Vec<Line> {
    let run = &document.run;
    let mut lines = Vec::new();
    if run.profile != "smoke" {
        let null = format::null_line(run.null_one, run.null_several);
        lines.extend(wrap(&null, Tone::Plain, 2, width));
    }
    let guide = format!(
        "A figure is the median over passes: of medians of operations, or of means of batches. ± is half its 95 % \
         interval. p99 is of operations timed one by one{}. × floor: ratio to the floor's figure. × peer: ratio to the best \
         peer with the same waiting strategy; below 1, ours takes less. A peer with another strategy is shown with \
         its strategy and without a ratio.",
        format::clock_steps(document)
    );
    lines.extend(wrap(&guide, Tone::Faint, 2, width));
    if model.off_ladder_count > 0 {
        let count = model.off_ladder_count;
        let text = format!("Figures kept off the ladder: {count}; --all shows them.");
        lines.extend(wrap(&text, Tone::Faint, 2, width));
    }
    for group in model.warnings() {
        lines.push(Line::default());
        let mut legend = wrap(format::warning_text(group.code), Tone::Plain, 0, width - 4);
        for (place, text) in legend.drain(..).enumerate() {
            let mut line = Line::default();
            if place == 0 {
                line.push(group.code.table_letters(), Tone::Warning);
            }
            line.push_at(4, text);
            lines.push(line);
        }
        for (text, names) in group.texts.iter().take(WARNING_LINES_MAX) {
            let names = match names.len() {
                0..=WARNING_NAMES_MAX => names.join(", "),
                many => format!("{many} figures"),
            };
            let wrapped = wrap(&format!("{names}: {text}"), Tone::Faint, 2, width - 4);
            for text in wrapped {
                let mut line = Line::default();
                line.push_at(4, text);
                lines.push(line.truncate(width, style));
            }
        }
        if let Some(more) = group.texts.len().checked_sub(WARNING_LINES_MAX + 1) {
            let text = format!("    and {count} more of these warnings", count = more + 1);
            lines.push(Line::new(text, Tone::Faint));
        }
    }
    lines
}

/// One fact about a record, such as its rate: a label and a value.
struct RecordFact {
    label: &'static str,
    value: Line,
}

/// Returns the facts about a record in display order. `side` compares a ratio to a peer with 1.
fn facts(record: &Record, side: &dyn Fn(&Ratio) -> Ordering) -> Vec<RecordFact> {
    let mut facts = Vec::new();
    let mut say = |label, value: Line| facts.push(RecordFact { label, value });
    if record.modes.len() > 1 {
        let mut value = Line::default();
        for (place, [share, median]) in format::modes(record).into_iter().enumerate() {
            value.push(if place > 0 { " " } else { "" }, Tone::Plain);
            value.push(format!("{share} "), Tone::Plain);
            value.push(median, Tone::Strong);
        }
        say(format::statistic(record), value);
    } else {
        let mut value = median(record);
        value.push(" ", Tone::Plain);
        value.push(format::interval(record), Tone::Faint);
        say(format::statistic(record), value);
    }
    if record.summary.quantiles().is_some() {
        say("p99", Line::plain(format::p99(record)));
    }
    say("rate", Line::plain(format::rate(record)));
    if let Some(floor) = &record.floor {
        say(
            "floor",
            Line::plain(format!(
                "{} {}",
                format::ratio(floor.ratio),
                format::floor_name(record, floor)
            )),
        );
    }
    if let Some(peer) = record.best_peer() {
        let mut value = Line::new(format::ratio(peer.ratio), rival_tone(side(peer)));
        value.push(format!(" {}", peer.contender), Tone::Plain);
        say("peer", value);
    } else if let Some(peer) = record.best_peer_without_ratio() {
        say("peer", Line::plain(format!("{} {}", peer.contender, peer.waits.table_verb())));
    }
    say("CPUs", Line::plain(format::cpus(record)));
    let faults = format::faults(record);
    if !faults.is_empty() {
        say("faults", Line::plain(faults));
    }
    if !record.warnings.is_empty() {
        say("warning", Line::new(format::letters(record), Tone::Warning));
    }
    facts
}

fn median(record: &Record) -> Line {
    Line::new(format::figure(record.unit, record.summary.median), Tone::Strong)
}

/// Returns the tone of a ratio to a peer, which is good below 1 and bad above.
fn rival_tone(side: Ordering) -> Tone {
    match side {
        Ordering::Less => Tone::Good,
        Ordering::Equal => Tone::Plain,
        Ordering::Greater => Tone::Bad,
    }
}

/// Appends each figure as a block of lines, for a terminal that is too narrow for columns.
fn push_figure_blocks(model: &Model<'_>, lines: &mut Vec<Line>) {
    for (place, record) in model.rows().enumerate() {
        if place > 0 {
            lines.push(Line::default());
        }
        let mut title = Line::new(&record.id, Tone::Strong);
        title.push(format!("  {}", model.contender_label(record)), Tone::Plain);
        lines.push(title);
        for RecordFact { label, value } in
            facts(record, &|peer| model.compare_with_one(record, peer))
        {
            let mut line = Line::new(format!("  {label}"), Tone::Faint);
            line.push_at(10, value);
            lines.push(line);
        }
    }
}

/// Column of the table of figures.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LadderColumn {
    Id,
    Contender,
    /// Column of the waiting strategy; shown only if every contender has a row.
    Waits,
    /// Column of the arguments that vary in a sweep.
    Argument,
    Figure,
    Interval,
    /// Column of the figure's kind: a median or a mean.
    Statistic,
    P99,
    Rate,
    FloorRatio,
    FloorId,
    PeerRatio,
    PeerName,
    Cpus,
    /// Column of the page faults; shown only if some figure has many.
    Faults,
    Warning,
}

impl LadderColumn {
    /// All columns, in display order.
    const ALL: [TableColumn; 16] = [
        TableColumn::left(LadderColumn::Id, "id", 0),
        TableColumn::left(LadderColumn::Contender, "contender", 2),
        TableColumn::left(LadderColumn::Waits, "waits", 2),
        TableColumn::right(LadderColumn::Argument, "with", 2),
        TableColumn::right(LadderColumn::Figure, "figure", 2),
        TableColumn::left(LadderColumn::Interval, "± 95 %", 1),
        TableColumn::left(LadderColumn::Statistic, "is the", 1),
        TableColumn::right(LadderColumn::P99, "p99", 2),
        TableColumn::right(LadderColumn::Rate, "rate", 2),
        TableColumn::right(LadderColumn::FloorRatio, "× floor", 2),
        TableColumn::left(LadderColumn::FloorId, "floor", 1),
        TableColumn::right(LadderColumn::PeerRatio, "× peer", 2),
        TableColumn::left(LadderColumn::PeerName, "best peer", 1),
        TableColumn::right(LadderColumn::Cpus, "CPUs", 2),
        TableColumn::right(LadderColumn::Faults, "faults", 2),
        TableColumn::left(LadderColumn::Warning, "warning", 2),
    ];

    /// Columns in the order in which they are dropped as the terminal narrows. Other columns are
    /// never dropped. `None` stands for the ids' first component, which then becomes a heading
    /// above each group.
    const DROP_ORDER: [Option<LadderColumn>; 10] = [
        Some(LadderColumn::FloorId),
        Some(LadderColumn::Waits),
        Some(LadderColumn::Faults),
        Some(LadderColumn::Cpus),
        Some(LadderColumn::Rate),
        Some(LadderColumn::Contender),
        None,
        Some(LadderColumn::Statistic),
        Some(LadderColumn::P99),
        Some(LadderColumn::PeerName),
    ];

    /// Returns the cell of a record, with several lines if the figure has several modes.
    fn cell(self, model: &Model<'_>, record: &Record) -> Vec<Line> {
        let line = match self {
            LadderColumn::Id => Line::plain(&record.id),
            LadderColumn::Contender => Line::plain(&record.contender),
            LadderColumn::Waits if model.all => Line::new(record.waits.table_verb(), Tone::Faint),
            LadderColumn::Waits => Line::default(),
            LadderColumn::Argument => Line::plain(model.varying_arguments(record)),
            LadderColumn::Figure if record.modes.len() > 1 => {
                let shown = |mode: &FigureMode| {
                    Line::new(format::figure(record.unit, mode.median), Tone::Strong)
                };
                return record.modes.iter().map(shown).collect();
            }
            LadderColumn::Figure => median(record),
            LadderColumn::Interval if record.modes.len() > 1 => {
                let shown = |mode: &FigureMode| {
                    Line::plain(format!(
                        "in {share_percent:.0} %",
                        share_percent = mode.share * 100.0
                    ))
                };
                return record.modes.iter().map(shown).collect();
            }
            LadderColumn::Interval => Line::new(format::interval(record), Tone::Faint),
            LadderColumn::Statistic => Line::new(format::statistic(record), Tone::Faint),
            LadderColumn::P99 => Line::plain(format::p99(record)),
            LadderColumn::Rate => Line::plain(format::rate(record)),
            LadderColumn::FloorRatio => match &record.floor {
                Some(floor) => Line::plain(format::ratio(floor.ratio)),
                None => Line::default(),
            },
            LadderColumn::FloorId => match &record.floor {
                Some(floor) => Line::new(format::floor(record, floor), Tone::Faint),
                None => Line::default(),
            },
            LadderColumn::PeerRatio => match record.best_peer() {
                Some(peer) => Line::new(
                    format::ratio(peer.ratio),
                    rival_tone(model.compare_with_one(record, peer)),
                ),
                None => record.best_peer_without_ratio().map_or_else(Line::default, |peer| {
                    Line::new(peer.waits.table_verb(), Tone::Faint)
                }),
            },
            LadderColumn::PeerName => match record.best_peer() {
                Some(peer) => Line::plain(&peer.contender),
                None => record.best_peer_without_ratio().map_or_else(Line::default, |peer| {
                    let figure = format::figure(record.unit, peer.other);
                    Line::plain(format!("{} {figure}", peer.contender))
                }),
            },
            LadderColumn::Cpus => Line::plain(format::cpus(record)),
            LadderColumn::Faults => Line::plain(format::faults(record)),
            LadderColumn::Warning => Line::new(format::letters(record), Tone::Warning),
        };
        vec![line]
    }
}

/// Column of the table, with its header, alignment and width.
struct TableColumn {
    column: LadderColumn,
    header: &'static str,
    is_right_aligned: bool,
    /// Width of the gap before the column. It is narrower if the column belongs to the previous
    /// one.
    gap: usize,
    width: usize,
}

impl TableColumn {
    const fn left(column: LadderColumn, header: &'static str, gap: usize) -> TableColumn {
        TableColumn { column, header, is_right_aligned: false, gap, width: 0 }
    }

    const fn right(column: LadderColumn, header: &'static str, gap: usize) -> TableColumn {
        TableColumn { is_right_aligned: true, ..TableColumn::left(column, header, gap) }
    }
}

/// Columns that fit into the terminal.
struct TableLayout {
    columns: Vec<TableColumn>,
    /// `true` if the first component of the ids is a heading above their rows.
    has_group_headings: bool,
    /// Width of the description of the timed operation; `None` if there is not enough space.
    what_width: Option<usize>,
}

impl TableLayout {
    /// Chooses the columns that fit into `width`; `None` if not even the narrowest table fits.
    fn fit(model: &Model<'_>, width: usize, style: Style) -> Option<TableLayout> {
        let mut layout =
            TableLayout { columns: Vec::new(), has_group_headings: false, what_width: None };
        for it in LadderColumn::ALL {
            let widest = layout.widest(it.column, model);
            // A column with empty cells only is omitted.
            if widest > 0 {
                let width = widest.max(Line::plain(it.header).width());
                layout.columns.push(TableColumn { width, ..it });
            }
        }
        let rows: Vec<&Record> = model.rows().collect();
        let has_twins = rows.windows(2).any(|two| two[0].id == two[1].id);
        for dropped in LadderColumn::DROP_ORDER {
            // The description is more useful than the floor's name, and is placed after it.
            let wanted = match dropped {
                Some(LadderColumn::FloorId) => layout.width() + 2 + WHAT_WIDTH_MIN,
                _ => layout.width(),
            };
            // If a figure has several rows, the contender's name distinguishes them.
            if wanted <= width
                || ((style.all || has_twins) && dropped == Some(LadderColumn::Contender))
            {
                continue;
            }
            match dropped {
                Some(dropped) => layout.columns.retain(|it| it.column != dropped),
                None => {
                    layout.has_group_headings = true;
                    layout.columns[0].width = layout.widest(LadderColumn::Id, model).max(2);
                }
            }
        }
        let left = width.checked_sub(layout.width())?;
        layout.what_width = left.checked_sub(2).filter(|left| *left >= WHAT_WIDTH_MIN);
        Some(layout)
    }

    fn width(&self) -> usize {
        self.columns.iter().map(|it| it.gap + it.width).sum()
    }

    /// Returns the width of the widest cell of a column.
    fn widest(&self, column: LadderColumn, model: &Model<'_>) -> usize {
        let cells = model.rows().flat_map(|record| self.cell(column, model, record));
        cells.map(|line| line.width()).max().unwrap_or(0)
    }

    /// Returns the cell of a record; shortens an id that is below a heading.
    fn cell(&self, column: LadderColumn, model: &Model<'_>, record: &Record) -> Vec<Line> {
        match (column, record.id.split_once('/')) {
            (LadderColumn::Id, Some((_, rest))) if self.has_group_headings => {
                vec![Line::plain(format!("  {rest}"))]
            }
            _ => column.cell(model, record),
        }
    }

    /// Appends the lines of the table, with its header and the headings of groups.
    fn draw(&self, model: &Model<'_>, style: Style, lines: &mut Vec<Line>) {
        let headers = self.columns.iter().map(|it| vec![Line::new(it.header, Tone::Faint)]);
        let what = self.what_width.map(|_| Line::new("what is timed", Tone::Faint));
        lines.extend(self.row_lines(headers.collect(), what, style));
        let rule = "─".repeat(self.width() + self.what_width.map_or(0, |what| what + 2));
        lines.push(Line::new(rule, Tone::Faint));
        for (place, group) in model.groups.iter().enumerate() {
            if place > 0 {
                lines.push(Line::default());
            }
            if self.has_group_headings {
                lines.push(Line::plain(group.name));
            }
            for record in group.figures.iter().flat_map(|figure| &figure.rows) {
                let cells = self.columns.iter().map(|it| self.cell(it.column, model, record));
                let what = self.what_width.map(|_| Line::new(&record.what, Tone::Faint));
                lines.extend(self.row_lines(cells.collect(), what, style));
            }
        }
    }

    /// Returns the lines of one row of the table. They have its cells and the description of the
    /// operation.
    fn row_lines(&self, cells: Vec<Vec<Line>>, what: Option<Line>, style: Style) -> Vec<Line> {
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        let mut lines = vec![Line::default(); height];
        let mut start = 0;
        for (column, cell) in self.columns.iter().zip(cells) {
            start += column.gap;
            for (line, content) in lines.iter_mut().zip(cell) {
                if column.is_right_aligned {
                    line.push_right(&content, start + column.width);
                } else {
                    line.push_at(start, content);
                }
            }
            start += column.width;
        }
        if let (Some(what), Some(width), Some(first)) = (what, self.what_width, lines.first_mut()) {
            first.push_at(start + 2, what.truncate(width, style));
        }
        lines
    }
}
