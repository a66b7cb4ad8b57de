//! Table of counts per operation: hardware counters, and allocations.

use crate::columns::{Column, push_table};
use crate::format;
use crate::model::Model;
use crate::text::Line;
use handover_base::units;
use handover_record::{ALLOCATED_BYTES_COUNTER, ALLOCATIONS_COUNTER, HardwareCounts, Record};

/// Columns in the order in which they are left out of a table that is too wide.
const LEAVING: [&str; 4] = ["cycles", "cache misses", "bytes allocated", "contender"];

/// Appends a table with a row for each listed record that has counts. Appends nothing if no record
/// has counts.
pub(crate) fn push_counts(model: &Model<'_>, width: usize, lines: &mut Vec<Line>) {
    let rows: Vec<&Record> = model
        .rows()
        .filter(|it| it.hardware.is_some() || it.counters.contains_key(ALLOCATIONS_COUNTER))
        .collect();
    if rows.is_empty() {
        return;
    }
    let column =
        |header: &'static str, is_right_aligned: bool, cell: &dyn Fn(&Record) -> String| {
            let cells = rows.iter().map(|record| Line::plain(cell(record))).collect();
            Column { header, cells, is_right_aligned }
        };
    let number = |header: &'static str, value: &dyn Fn(&Record) -> Option<f64>| {
        column(header, true, &|record: &Record| value(record).map(count).unwrap_or_default())
    };
    let hardware = |header: &'static str, pick: fn(&HardwareCounts) -> f64| {
        number(header, &|record: &Record| record.hardware.as_ref().map(pick))
    };
    let counter = |header: &'static str, name: &str| {
        number(header, &|record: &Record| record.counters.get(name).copied())
    };
    let mut columns = vec![
        column("per operation", false, &|record: &Record| record.id.clone()),
        column("contender", false, &|record: &Record| model.contender_label(record)),
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

/// Formats a number of events per operation; whole numbers have no decimals.
fn count(value: f64) -> String {
    if value.fract() == 0.0 { units::format_count(value) } else { format::short(value) }
}
