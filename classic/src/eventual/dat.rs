//! Parser of the lines that `abt-eventual-bench` prints.

use handover_program::files;
use std::io::ErrorKind;
use std::path::Path;

/// Result of one run of `abt-eventual-bench`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EventualsRow {
    pub fibers: f64,
    /// Duration of the run.
    pub seconds: f64,
    /// Duration of each sleep.
    pub interval_ms: f64,
    /// Number of eventuals a second.
    pub ops_per_s: f64,
    /// CPU time in user space, in seconds.
    pub cpu_s: f64,
}

impl EventualsRow {
    /// Returns the ideal rate, as if eventuals cost no time, in eventuals a second.
    pub fn ideal_per_s(&self) -> f64 {
        self.fibers * 1e3 / self.interval_ms
    }
}

/// Parses a line of output; returns `None` for a comment or an empty line.
pub fn parse_row(line: &str) -> Result<Option<EventualsRow>, String> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [fibers, seconds, interval_ms, ops_per_s, cpu_s] = fields[..] else {
        let count = fields.len();
        return Err(format!("found {count} columns, but abt-eventual-bench prints 5"));
    };
    let number = |column: &str, text: &str, is_positive: bool| match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 && (value > 0.0 || !is_positive) => {
            Ok(value)
        }
        _ => Err(format!("invalid {column} {text:?}: not a number in the column's range")),
    };
    Ok(Some(EventualsRow {
        fibers: number("num_ults", fibers, true)?,
        seconds: number("test_duration_sec", seconds, true)?,
        interval_ms: number("interval_msec", interval_ms, true)?,
        ops_per_s: number("ops/s", ops_per_s, false)?,
        cpu_s: number("cpu_time_sec", cpu_s, false)?,
    }))
}

/// Reads all rows of a file, sorted by the number of fibers.
///
/// # Errors
/// A message for the command line, if the file cannot be read, has another format, or has no row.
pub fn read_rows(path: &Path) -> Result<Vec<EventualsRow>, String> {
    let error = |why: &str| format!("{}: {why}", path.display());
    let text = files::read_text(path).map_err(|failed| match failed.kind() {
        ErrorKind::InvalidData => error("not a text file"),
        _ => error(&failed.to_string()),
    })?;
    let mut rows = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        match parse_row(line) {
            Ok(row) => rows.extend(row),
            Err(why) => return Err(error(&format!("line {number}: {why}"))),
        }
    }
    if rows.is_empty() {
        return Err(error("no rows; run sweep-abt-eventual-bench to write a file with rows"));
    }
    rows.sort_by(|a, b| a.fibers.total_cmp(&b.fibers));
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_parse_and_comments_are_skipped() {
        let read =
            parse_row("16\t5\t1\t15952.800000\t4.255606").expect("a row").expect("no comment");
        assert_eq!((read.fibers, read.ops_per_s, read.cpu_s), (16.0, 15952.8, 4.255606));
        assert_eq!(read.ideal_per_s(), 16_000.0);
        assert_eq!(parse_row("#<num_ults>\t<test_duration_sec>"), Ok(None));
        assert_eq!(parse_row("  "), Ok(None));
        assert_eq!(
            parse_row("16 5 0.1 1 0").expect("spaces, too").map(|it| it.interval_ms),
            Some(0.1)
        );
    }

    #[test]
    fn bad_row_is_refused_with_its_column() {
        for (line, why) in [
            ("1 2 3", "found 3 columns"),
            ("1 2 3 4 5 6", "found 6 columns"),
            ("x 5 1 1 1", "invalid num_ults \"x\""),
            ("0 5 1 1 1", "invalid num_ults \"0\""),
            ("1 5 -1 1 1", "invalid interval_msec \"-1\""),
            ("1 5 1 nan 1", "invalid ops/s \"nan\""),
            ("1 5 1 1 inf", "invalid cpu_time_sec \"inf\""),
        ] {
            let refused = parse_row(line).expect_err(line);
            assert!(refused.starts_with(why), "{refused}");
        }
    }
}
