//! Table of counts per operation: hardware counters, and allocations.

use crate::columns::{Column, push_table};
use crate::format;
use crate::model::Model;
use crate::text::Line;
use handover_record::{ALLOCATED_BYTES_COUNTER, ALLOCATIONS_COUNTER, HardwareCounts, Record};

/// Columns in the order in which they are left out of a table that is too wide.
const LEAVING: [&str; 4] = ["contender", "cycles", "cache misses", "bytes allocated"];

/// Appends a table with a row for each listed record that has counts. Appends nothing if no record has counts.
pub(crate) fn push_counts(model: &Model<'_>, width: usize, lines: &mut Vec<Line>) {
    let rows: Vec<&Record> = model
        .rows()
        .filter(|it| it.hardware.is_some() || it.counters.contains_key(ALLOCATIONS_COUNTER))
        .collect();
    if rows.is_empty() {
        return;
    }
    let text = |header: &'static str, cell: fn(&Record) -> &str| Column {
        header,
        cells: rows.iter().map(|record| Line::plain(cell(record))).collect(),
        is_right: false,
    };
    let number = |header: &'static str, cell: &dyn Fn(&Record) -> Option<f64>| Column {
        header,
        cells: rows
            .iter()
            .map(|record| cell(record).map_or_else(Line::default, |it| Line::plain(count(it))))
            .collect(),
        is_right: true,
    };
    let hardware = |header, pick: fn(&HardwareCounts) -> f64| {
        number(header, &|record: &Record| record.hardware.as_ref().map(pick))
    };
    let counter =
        |header, name: &str| number(header, &|record: &Record| record.counters.get(name).copied());
    let mut columns = vec![
        text("per operation", |record| &record.id),
        text("contender", |record| &record.contender),
        hardware("instructions", |it| it.instructions),
        hardware("cycles", |it| it.cycles),
        hardware("cache misses", |it| it.cache_misses),
        counter("allocations", ALLOCATIONS_COUNTER),
        counter("bytes allocated", ALLOCATED_BYTES_COUNTER),
    ];
    columns.retain(|column| column.cells.iter().any(|cell| cell.width() > 0));
    lines.push(Line::default());
    push_table(columns, &LEAVING, width, lines);
}

/// Returns the names and values of a record's counts, for the details of a figure.
pub(crate) fn named_counts(record: &Record) -> impl Iterator<Item = (&str, f64)> {
    let hardware = record.hardware.iter().flat_map(|it| {
        [
            ("instructions", it.instructions),
            ("cycles", it.cycles),
            ("cache_misses", it.cache_misses),
        ]
    });
    hardware.chain(record.counters.iter().map(|(name, value)| (name.as_str(), *value)))
}

/// Formats a number of events per operation.
fn count(value: f64) -> String {
    if value == 0.0 { "0".to_string() } else { format::short(value) }
}
