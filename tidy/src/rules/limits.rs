//! Documentation of the services' limits: each limit of a configuration has a row in
//! docs/SECURITY.md with its default.

use crate::{Tree, Violation};

/// Name of the rule.
pub const RULE_NAME: &str = "limits";

/// Document with the tables of limits.
const LIMITS_PAGE: &str = "docs/SECURITY.md";

/// Start of the header row of each table, and the configuration file whose limits are in the table.
const TABLES: &[(&str, &str)] = &[
    ("| limit of rpc |", "services/rpc/src/config.rs"),
    ("| limit of net |", "services/net/src/config.rs"),
];

/// Name endings of configuration fields that are limits; durations are limits, too.
const LIMIT_ENDINGS: &[&str] = &["_max", "_bytes", "_count"];

/// Configuration fields with one of [`LIMIT_ENDINGS`], or durations, that do not limit a peer's
/// actions.
const NOT_LIMITS: &[&str] = &["housekeep_interval", "ready_max", "spin_max"];

/// Finds limits whose default is missing or wrong in the tables of docs/SECURITY.md.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for &(head, config) in TABLES {
        let Some(code) = tree.text(config) else { continue };
        let page = tree.text(LIMITS_PAGE).unwrap_or_default();
        let lines = page.lines().zip(1..).skip_while(|(line, _)| !line.starts_with(head));
        let table: Vec<(&str, usize)> =
            lines.take_while(|(line, _)| line.starts_with('|')).collect();
        for (name, default) in limits(code) {
            let quoted = format!("`{name}`");
            let mut rows = table.iter().filter(|(row, _)| row.contains(&quoted));
            let (problem, line) = match rows.clone().next() {
                None => ("has no row in the table of limits", table.first().map_or(1, |it| it.1)),
                Some(_) if rows.any(|(row, _)| has_number(row, &default)) => continue,
                Some(&(_, line)) => ("has another default in the table of limits", line),
            };
            let what = format!("the limit `{name}` ({default} in {config}) {problem}");
            let instead = "document the limit's default, and the effect of exceeding it";
            found.push(Violation::new(RULE_NAME, LIMITS_PAGE, line, what, instead));
        }
    }
    found
}

/// Returns the names and defaults of the limits in a configuration's source. The defaults have
/// commas between thousands.
fn limits(code: &str) -> Vec<(&str, String)> {
    let types = code.split("impl Default for ").skip(1);
    let defaults = types.flat_map(|rest| rest.lines().take_while(|line| *line != "}"));
    let fields = defaults.filter_map(|line| {
        let (name, value) = line.trim().strip_suffix(',')?.split_once(": ")?;
        let is_limit =
            value.starts_with("Duration::") || LIMIT_ENDINGS.iter().any(|end| name.ends_with(end));
        (is_limit && !NOT_LIMITS.contains(&name))
            .then_some((name, with_commas(parse_number(value)?)))
    });
    fields.collect()
}

/// Parses an integer or a shift, such as `65_536` or `1 << 16`, or a duration in ms. Returns `None`
/// for other text.
fn parse_number(text: &str) -> Option<u64> {
    let integer = |text: &str| text.replace('_', "").parse::<u64>().ok();
    if text == "Duration::ZERO" {
        return Some(0);
    }
    let text = text.trim_start_matches("Duration::from_millis(").trim_end_matches(')');
    match text.split_once(" << ") {
        Some((value, places)) => integer(value)?.checked_shl(places.parse().ok()?),
        None => integer(text),
    }
}

/// Formats a number with commas between thousands.
fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    groups.map(String::from_utf8_lossy).collect::<Vec<_>>().join(",")
}

/// Returns `true` if a table row contains `number`. A part of another number does not count.
fn has_number(row: &str, number: &str) -> bool {
    row.split(|c: char| !c.is_ascii_digit() && c != ',')
        .any(|word| word.trim_end_matches(',') == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_with_their_defaults() {
        let code = "const X_MAX: u32 = 1;\nimpl Default for Config {\n    fn default() -> Self {\n        \
                    Self {\n            peers_max: 4096,\n            read_bytes: 1 << 20,\n            \
                    spin_max: 5,\n            bulk_maps: true,\n            pool_threads: 2,\n            \
                    linger: Duration::from_millis(2_000),\n            idle: Duration::ZERO,\n        }\n    \
                    }\n}\nimpl X { last_max: 3,\n}\n";
        let expected = [
            ("peers_max", "4,096"),
            ("read_bytes", "1,048,576"),
            ("linger", "2,000"),
            ("idle", "0"),
        ];
        assert_eq!(limits(code), expected.map(|(name, value)| (name, value.to_string())));
    }

    #[test]
    fn limits_of_each_group_are_read() {
        let code = "\nimpl Default for Config {\n    calls_max: 1,\n    pool: PoolConfig::default(),\n}\n\
                    \nimpl Default for PoolConfig {\n    queue_max: 2,\n}\n";
        let expected = [("calls_max", "1"), ("queue_max", "2")];
        assert_eq!(limits(code), expected.map(|(name, value)| (name, value.to_string())));
    }

    #[test]
    fn a_number_is_found_as_a_whole() {
        assert!(has_number("| 16 MiB (16,777,216 bytes) |", "16,777,216"));
        assert!(has_number("| 64, of 128 bytes |", "64") && has_number("0: none", "0"));
        assert!(!has_number("| 16,777,216 |", "777") && !has_number("| 165 |", "16"));
    }
}
