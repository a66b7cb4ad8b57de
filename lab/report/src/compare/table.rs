//! Table of a comparison for a terminal.

use super::{
    Comparison, P_CORRECTED_MAX, P_UNCORRECTED_MAX, Row, Side, Statistic, Verdict, detectable_line,
    resolution_line,
};
use crate::columns::{self, Column};
use crate::format;
use crate::table::render;
use crate::text::{Line, Style, Tone, WIDTH_MIN, wrap};
use std::collections::{BTreeMap, BTreeSet};

/// Minimum width of the column of ids. Otherwise the column takes at most two fifths of the table.
const ID_WIDTH_MIN: usize = 20;

/// Renders the comparison as a table of at most `width` columns, with its resolution below.
pub fn render_comparison(comparison: &Comparison, width: usize, style: Style) -> String {
    let laid_out = width.max(WIDTH_MIN);
    let mut lines = Vec::new();
    for (letter, side) in [("A", &comparison.a), ("B", &comparison.b)] {
        lines.extend(wrap(&head(letter, side), Tone::Faint, 2, laid_out));
    }
    // Reasons to doubt all verdicts come before them.
    for note in &comparison.notes {
        lines.extend(wrap(note, Tone::Warning, 2, laid_out));
    }
    lines.push(Line::default());
    // The p99 has a row only if it differs, or if every contender has one.
    let differs = |row: &Row| matches!(row.verdict, Verdict::Better | Verdict::Worse);
    let is_shown = |row: &&Row| row.by != Statistic::P99 || style.all || differs(row);
    let shown: Vec<&Row> = comparison.rows.iter().filter(is_shown).collect();
    if shown.is_empty() {
        lines.push(Line::plain("The two sides have no figure in common."));
    } else {
        draw(&shown, laid_out, style, &mut lines);
    }
    lines.push(Line::default());
    lines.extend(foot(comparison, laid_out));
    render(lines, width, style)
}

/// Returns the line that describes a side: its name, number of processes, builds and hosts.
fn head(letter: &str, side: &Side) -> String {
    let list = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(", ");
    let (name, processes) = (&side.name, format::counted(side.runs.len(), "process"));
    let mut line = format!("{letter}: {name}, {processes}");
    for part in [list(&side.builds), list(&side.hosts)] {
        if !part.is_empty() {
            line.push_str(", ");
            line.push_str(&part);
        }
    }
    line
}

/// Appends the lines of the table, without the columns that do not fit.
fn draw(rows: &[&Row], width: usize, style: Style, lines: &mut Vec<Line>) {
    let column = |header, is_right_aligned, cell: &dyn Fn(&Row) -> Line| Column {
        header,
        cells: rows.iter().map(|row| cell(row)).collect(),
        is_right_aligned,
    };
    let several =
        |id: &str| rows.iter().filter(|row| row.id == id && row.by != Statistic::P99).count() > 1;
    let id_width_max = (width * 2 / 5).max(ID_WIDTH_MIN);
    let name = |row: &Row| {
        let mut line = Line::plain(&row.id);
        if several(&row.id) {
            line.push(format!(" [{}]", row.contender), Tone::Plain);
        }
        // The setting, if the contender was measured with several settings.
        let is_twin = |it: &&Row| (&it.id, &it.contender) == (&row.id, &row.contender);
        if rows.iter().copied().filter(|row| row.by != Statistic::P99).filter(is_twin).count() > 1 {
            line.push(format!(" {}", row.setting), Tone::Faint);
        }
        line.truncate(id_width_max, style)
    };
    let columns = vec![
        column("id", false, &name),
        column("A", true, &|row| Line::plain(format::figure(row.unit, row.a))),
        column("B", true, &|row| Line::plain(format::figure(row.unit, row.b))),
        column("B/A", true, &|row| match row.ratio {
            Some(ratio) => Line::new(fixed(ratio), Tone::Strong),
            None => Line::plain("–"),
        }),
        column("95 %", false, &|row| match (row.low, row.high) {
            (Some(low), Some(high)) => {
                Line::new(format!("{}..{}", fixed(low), fixed(high)), Tone::Faint)
            }
            _ => Line::plain("–"),
        }),
        column("finds", true, &|row| match row.found {
            Some(found) => Line::new(format!("+{}", format::share(found)), Tone::Faint),
            None => Line::plain("–"),
        }),
        column("by", false, &|row| Line::new(row.by.label(), Tone::Faint)),
        column("p", true, &|row| match row.verdict {
            Verdict::CannotSay => Line::plain("–"),
            _ => Line::plain(format_p_value(row.p)),
        }),
        column("p of any", true, &|row| match row.verdict {
            Verdict::CannotSay => Line::plain("–"),
            _ => Line::plain(format_p_value(row.p_corrected)),
        }),
        column("delta", true, &|row| match row.verdict {
            Verdict::CannotSay => Line::plain("–"),
            _ => Line::plain(format!("{:+.2}", row.delta)),
        }),
        column("verdict", false, &|row| Line::new(row.verdict.label(), tone(row.verdict))),
    ];
    let leaving = ["delta", "by", "finds", "p", "A", "B", "95 %", "p of any", "B/A"];
    columns::push_table(columns, &leaving, width, lines);
}

/// Returns the tone in which a verdict is printed.
fn tone(verdict: Verdict) -> Tone {
    match verdict {
        Verdict::Better => Tone::Good,
        Verdict::Worse => Tone::Bad,
        Verdict::Same => Tone::Plain,
        Verdict::TooNoisy | Verdict::CannotSay => Tone::Warning,
    }
}

/// Formats a ratio with three decimals. The ratios of a comparison are near 1.
fn fixed(ratio: f64) -> String {
    match ratio {
        it if !(0.0995..99.95).contains(&it) => format::ratio(it).trim_end_matches('×').to_string(),
        it => format!("{it:.3}"),
    }
}

fn format_p_value(p: f64) -> String {
    if p < 0.0001 { "<0.0001".to_string() } else { format!("{p:.4}") }
}

/// Returns the id of a row, with its contender and its setting if the id has several.
fn row_name(comparison: &Comparison, row: &Row) -> String {
    let twins = || comparison.rows.iter().filter(|it| it.id == row.id);
    let mut name = row.id.clone();
    if twins().any(|it| it.contender != row.contender) {
        name.push_str(&format!(" [{}]", row.contender));
    }
    if !row.setting.is_empty() && twins().any(|it| it.setting != row.setting) {
        name.push_str(&format!(" {}", row.setting));
    }
    name
}

/// Returns the sentence about figures whose rows are not by all processes. `None` if there are
/// none.
fn partial_rows_line(comparison: &Comparison) -> Option<String> {
    let (a_count, b_count) = (comparison.a.runs.len(), comparison.b.runs.len());
    let is_partial = |row: &&Row| {
        row.by != Statistic::P99
            && row.why.is_empty()
            && (row.a_processes_count, row.b_processes_count) != (a_count, b_count)
    };
    let name = |row: &Row| {
        let (a, b) = (row.a_processes_count, row.b_processes_count);
        format!("{} ({a} of A, {b} of B)", row_name(comparison, row))
    };
    let names: Vec<String> = comparison.rows.iter().filter(is_partial).map(name).collect();
    (!names.is_empty()).then(|| {
        format!(
            "Not by all processes: {}. The others lack the figure, have too few rounds, or timed its operations in \
             another way (singly or in batches).",
            format::listed(&names)
        )
    })
}

/// Returns the sentence about further processes that would give verdicts. `None` if no figure has
/// an estimate. Figures with equal estimates are listed together.
fn further_processes_line(comparison: &Comparison) -> Option<String> {
    let mut by_count: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for row in comparison.rows.iter().filter(|row| row.by != Statistic::P99) {
        let Some(count) = row.further_processes else { continue };
        by_count.entry(count).or_default().push(row_name(comparison, row));
    }
    let parts: Vec<String> = by_count
        .into_iter()
        .map(|(processes_count, mut names)| {
            names.dedup();
            format!("{processes_count} for {rows}", rows = format::listed(&names))
        })
        .collect();
    if parts.is_empty() {
        return None;
    }
    Some(format!(
        "Estimated number of further processes a side for a verdict: {counts}.",
        counts = parts.join("; ")
    ))
}

/// Returns the sentences below the table: counts of verdicts, resolution, reasons for no verdict,
/// and a guide.
fn foot(comparison: &Comparison, width: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut add = |text: &str, tone| lines.extend(wrap(text, tone, 2, width));
    let counts =
        [Verdict::Worse, Verdict::Better, Verdict::Same, Verdict::TooNoisy, Verdict::CannotSay]
            .map(|verdict| (comparison.count(verdict), verdict));
    let counts: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, verdict)| format!("{count} {}", verdict.label()))
        .collect();
    if !counts.is_empty() {
        let tails = comparison.rows.iter().filter(|row| row.by == Statistic::P99);
        let (tails, figures) = (tails.clone().count(), comparison.rows.len() - tails.count());
        let of = match (figures, tails) {
            (figures, 0) => format!("Of {figures} figures"),
            (figures, tails) => {
                format!("Of {figures} figures, and {tails} of their 99th percentiles")
            }
        };
        add(&format!("{of}: {}.", counts.join(", ")), Tone::Strong);
    }
    add(&resolution_line(comparison), Tone::Plain);
    if let Some(line) = detectable_line(comparison) {
        add(&line, Tone::Plain);
    }
    let whys: BTreeSet<&str> =
        comparison.rows.iter().map(|row| row.why.as_str()).filter(|why| !why.is_empty()).collect();
    for why in whys {
        add(&format!("Cannot say: {why}."), Tone::Warning);
    }
    if let Some(line) = partial_rows_line(comparison) {
        add(&line, Tone::Warning);
    }
    if let Some(line) = further_processes_line(comparison) {
        add(&line, Tone::Plain);
    }
    for (letter, only) in [("A", &comparison.only_a), ("B", &comparison.only_b)] {
        if !only.is_empty() {
            let names = format::listed(only);
            add(&format!("Only side {letter} has the figures {names}."), Tone::Faint);
        }
    }
    let threshold = format::share(comparison.threshold);
    let guide = format!(
        "B/A above 1: B takes more; by the processes' medians, or by their rounds' best tenth where these differ \
         less; by p99 where operations were timed singly, in a row where it differs. A row is called better or worse \
         if it differs by more than {threshold} and by more than these runs can resolve, if p (Mann-Whitney) is at most \
         {P_UNCORRECTED_MAX}, and if p of any (Westfall-Young: that chance makes any row look so much worse, or so much \
         better) is at most {P_CORRECTED_MAX}. delta is Cliff's."
    );
    add(&guide, Tone::Faint);
    lines
}
