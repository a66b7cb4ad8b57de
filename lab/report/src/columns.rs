//! Table of columns that are as wide as their cells.

use crate::text::{Line, Tone};

/// Column of a table: header, cell of each row, alignment.
pub(crate) struct Column {
    pub header: &'static str,
    pub cells: Vec<Line>,
    pub is_right_aligned: bool,
}

impl Column {
    fn width(&self) -> usize {
        let widest = self.cells.iter().map(Line::width).max().unwrap_or(0);
        widest.max(Line::plain(self.header).width())
    }
}

/// Returns the width of a table with these columns.
fn total_width(columns: &[Column]) -> usize {
    columns.iter().map(|column| column.width() + 2).sum::<usize>().saturating_sub(2)
}

/// Appends the lines of a table: header, rule and rows. While the table is wider than `width`, the
/// columns named in `leaving` are left out in this order.
pub(crate) fn push_table(
    mut columns: Vec<Column>,
    leaving: &[&str],
    width: usize,
    lines: &mut Vec<Line>,
) {
    for leaving in leaving {
        if total_width(&columns) > width {
            columns.retain(|column| column.header != *leaving);
        }
    }
    let rows_count = columns.first().map_or(0, |column| column.cells.len());
    let mut header = Line::default();
    let mut start = 0;
    let mut drawn = vec![Line::default(); rows_count];
    for column in &columns {
        let end = start + column.width();
        let cells = std::iter::once(Line::new(column.header, Tone::Faint))
            .chain(column.cells.iter().cloned());
        for (line, cell) in std::iter::once(&mut header).chain(&mut drawn).zip(cells) {
            if column.is_right_aligned {
                line.push_right(&cell, end);
            } else {
                line.push_at(start, cell);
            }
        }
        start = end + 2;
    }
    lines.push(header);
    lines.push(Line::new("─".repeat(total_width(&columns).min(width)), Tone::Faint));
    lines.append(&mut drawn);
}
