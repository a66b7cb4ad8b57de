//! Table of a fleet for a terminal.

use super::{ApartNode, Fleet, NodeFinding, P_CORRECTED_MAX, Row, signed_share};
use crate::columns::{self, Column};
use crate::format;
use crate::model::format_utc;
use crate::table::render;
use crate::text::{Line, Style, Tone, WIDTH_MIN, wrap};
use handover_record::FindingLevel;
use std::collections::BTreeSet;

/// Minimum width of the column of ids. Otherwise the column takes at most two fifths of the table.
const ID_WIDTH_MIN: usize = 20;
/// Maximum number of nodes that are listed; the others are counted.
const NODES_LISTED_MAX: usize = 20;
/// Maximum number of findings that are listed for a node.
const FINDINGS_LISTED_MAX: usize = 3;
/// Indentation of the findings below their node.
const FINDING_INDENT: usize = 4;

impl Fleet {
    /// Renders the fleet for a terminal: a row for each figure, then the nodes that stand apart.
    /// These have the doctor's findings about them.
    pub fn render_text(&self, width: usize, style: Style) -> String {
        let laid_out = width.max(WIDTH_MIN);
        let mut lines = wrap(&self.head(), Tone::Faint, 2, laid_out);
        for note in &self.notes {
            lines.extend(wrap(note, Tone::Warning, 2, laid_out));
        }
        lines.push(Line::default());
        match self.rows.is_empty() {
            true => lines.push(Line::plain("No figure was recorded.")),
            false => self.push_rows(laid_out, style, &mut lines),
        }
        lines.push(Line::default());
        lines.extend(wrap(&self.apart_line(), Tone::Strong, 2, laid_out));
        for node in self.apart.iter().take(NODES_LISTED_MAX) {
            self.push_apart_node(node, laid_out, &mut lines);
        }
        if let Some(more @ 1..) = self.apart.len().checked_sub(NODES_LISTED_MAX) {
            let more_nodes = format::counted(more, "node");
            let text = format!("{more_nodes} more: not listed; --json lists all.");
            lines.extend(wrap(&text, Tone::Plain, 2, laid_out));
        }
        let whys: BTreeSet<&str> =
            self.rows.iter().map(|row| row.why.as_str()).filter(|why| !why.is_empty()).collect();
        for why in whys {
            lines.extend(wrap(&format!("Not compared: {why}."), Tone::Warning, 2, laid_out));
        }
        lines.extend(wrap(&self.guide(), Tone::Faint, 2, laid_out));
        render(lines, width, style)
    }

    /// Returns the line that describes the fleet: its name, number of nodes, profile, start and
    /// builds.
    fn head(&self) -> String {
        let builds: BTreeSet<&str> = self.nodes.iter().map(|it| it.build.as_str()).collect();
        let began = self.nodes.iter().map(|it| it.started_unix_ns).min().unwrap_or(0);
        format!(
            "{}: {}, {}, {}, {}",
            self.name,
            format::counted(self.nodes.len(), "node"),
            self.profile,
            format_utc(began),
            builds.first().copied().unwrap_or_default()
        )
    }

    fn push_rows(&self, width: usize, style: Style, lines: &mut Vec<Line>) {
        let column = |header, is_right_aligned, cell: &dyn Fn(&Row) -> Line| Column {
            header,
            cells: self.rows.iter().map(cell).collect(),
            is_right_aligned,
        };
        let id_width_max = (width * 2 / 5).max(ID_WIDTH_MIN);
        let from_median = |row: &Row, value: f64| match row.why.is_empty() {
            true => Line::new(signed_share(value / row.median), Tone::Faint),
            false => Line::plain("–"),
        };
        let apart = |row: &Row, count: usize, tone| match (row.why.is_empty(), count) {
            (false, _) => Line::plain("–"),
            (true, 0) => Line::new("0", Tone::Faint),
            (true, count) => Line::new(count.to_string(), tone),
        };
        let columns = vec![
            column("id", false, &|row| {
                Line::plain(self.row_name(row)).truncate(id_width_max, style)
            }),
            column("median", true, &|row| {
                Line::new(format::figure(row.unit, row.median), Tone::Strong)
            }),
            column("spread", true, &|row| match row.spread {
                Some(spread) => Line::plain(format::share(spread)),
                None => Line::plain("–"),
            }),
            column("least", true, &|row| from_median(row, row.least)),
            column("greatest", true, &|row| from_median(row, row.greatest)),
            column("nodes", true, &|row| Line::plain(row.figures.len().to_string())),
            column("slower", true, &|row| apart(row, row.slower_count, Tone::Bad)),
            column("faster", true, &|row| apart(row, row.faster_count, Tone::Good)),
        ];
        let leaving = ["least", "greatest", "nodes", "spread", "median", "faster"];
        columns::push_table(columns, &leaving, width, lines);
    }

    /// Appends the lines of a node that stands apart: its most distant figures, and its findings.
    fn push_apart_node(&self, apart: &ApartNode, width: usize, lines: &mut Vec<Line>) {
        let side = |is_slower: bool| {
            let names: Vec<String> = apart
                .figures
                .iter()
                .filter(|it| (it.ratio > 1.0) == is_slower)
                .map(|it| {
                    format!("{} {}", self.row_name(&self.rows[it.row]), signed_share(it.ratio))
                })
                .collect();
            let word = if is_slower { "slower" } else { "faster" };
            (!names.is_empty())
                .then(|| format!("{word} in {figures}", figures = format::listed(&names)))
        };
        let sides: Vec<String> = [side(true), side(false)].into_iter().flatten().collect();
        let is_slower = apart.figures.first().is_some_and(|it| it.ratio > 1.0);
        let tone = if is_slower { Tone::Bad } else { Tone::Good };
        let text = format!("{}: {}", self.nodes[apart.node].name, sides.join("; "));
        lines.extend(wrap(&text, tone, 2, width));
        // A finding on most nodes does not set this one apart.
        let is_own = |count: usize| 2 * count <= self.nodes.len();
        let mut own = apart.findings.iter().filter(|it| is_own(it.nodes_count)).peekable();
        let mut add = |text: &str, tone| {
            for line in wrap(text, tone, 2, width.saturating_sub(FINDING_INDENT)) {
                let mut indented = Line::default();
                indented.push_at(FINDING_INDENT, line);
                lines.push(indented);
            }
        };
        if own.peek().is_none() {
            add("doctor: no finding that is specific to this node", Tone::Faint);
        }
        for finding in own.take(FINDINGS_LISTED_MAX) {
            let tone = match finding.level {
                FindingLevel::Disturbs => Tone::Warning,
                _ => Tone::Plain,
            };
            let nodes = format!("{} of {} nodes", finding.nodes_count, self.nodes.len());
            let NodeFinding { code, found, .. } = finding;
            add(&format!("doctor: {code}: {found} ({nodes})"), tone);
        }
    }

    /// Returns the sentences below the table that explain it.
    fn guide(&self) -> String {
        format!(
            "median: of the nodes' figures. spread: their median absolute deviation, scaled to a standard deviation. \
             least, greatest: of a node, from the median. A node stands apart where it differs by more than {} from \
             the median, and chance moves any node so far in any figure in at most {} of cases (robust z by the \
             spread, or by the node's own interval if that is wider; Student's t; Holm).",
            format::share(self.threshold),
            format::share(P_CORRECTED_MAX)
        )
    }
}
