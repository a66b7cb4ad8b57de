//! Conversion of integers to the shortest exact text, and of measured figures to three digits.

use super::scale::UnitScale;

/// Returns the shortest text that parses back to `value`. Among equally short texts, prefers a text
/// without a fraction, then the larger unit.
pub(super) fn format_shortest(value: u64, scale: &UnitScale) -> String {
    let candidates = scale.units.iter().filter_map(|unit| {
        let number = format_decimal(value, unit.factor)?;
        (value != 0 || unit.factor == 1).then(|| format!("{number}{}", unit.names[0]))
    });
    // min_by_key keeps the first of equals: the larger unit, as the units descend.
    let mut candidates: Vec<String> = candidates.collect();
    candidates.reverse();
    candidates
        .into_iter()
        .min_by_key(|text| (text.chars().count(), text.contains('.')))
        .unwrap_or_else(|| value.to_string())
}

/// Formats `value / factor` as a decimal number; `None` if it needs more than six decimals.
fn format_decimal(value: u64, factor: u64) -> Option<String> {
    /// Maximum number of decimals.
    const DECIMALS_MAX: usize = 6;
    let mut text = (value / factor).to_string();
    let mut rest = u128::from(value % factor);
    if rest == 0 {
        return Some(text);
    }
    text.push('.');
    for _ in 0..DECIMALS_MAX {
        rest *= 10;
        text.push(char::from(b'0' + (rest / u128::from(factor)) as u8));
        rest %= u128::from(factor);
        if rest == 0 {
            return Some(text);
        }
    }
    None
}

/// Formats a number with three significant digits; below 1 with two decimals.
fn format_three_digits(value: f64) -> String {
    let decimals = match value.abs() {
        // Above these bounds, rounding would carry into another digit.
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

/// Formats `value` in the largest unit that is not greater. `units` are names and factors,
/// ascending.
fn format_scaled(value: f64, units: &[(&str, f64)]) -> String {
    if !value.is_finite() {
        return format!("{value} {}", units[0].0).trim_end().to_owned();
    }
    let index = units.iter().skip(1).take_while(|unit| {
        let below = value.abs() / unit.1;
        below >= 0.9995
    });
    let (name, factor) = units[index.count()];
    format!("{} {name}", format_three_digits(value / factor)).trim_end().to_owned()
}

/// Formats a time in ns for a table, with three significant digits. Examples are `0.71 ns`,
/// `12.3 ns`, `1.20 µs`, `58.0 ms` and `2.50 s`. Below 1 ns with two decimals.
///
/// ```
/// # use handover_base::units::format_ns;
/// assert_eq!(format_ns(58_000_000.0), "58.0 ms");
/// ```
#[must_use]
pub fn format_ns(ns: f64) -> String {
    format_scaled(ns, &[("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)])
}

/// Formats a rate per second for a table: `2.16 M/s`, `950 k/s`, `12.0 /s`.
///
/// ```
/// # use handover_base::units::format_rate;
/// assert_eq!(format_rate(2_160_000.0), "2.16 M/s");
/// ```
#[must_use]
pub fn format_rate(per_s: f64) -> String {
    format_scaled(per_s, &[("/s", 1.0), ("k/s", 1e3), ("M/s", 1e6), ("G/s", 1e9), ("T/s", 1e12)])
}

/// Formats a throughput for a table, in binary multiples: `9.40 GiB/s`.
///
/// ```
/// # use handover_base::units::format_bytes_rate;
/// assert_eq!(format_bytes_rate(1536.0), "1.50 KiB/s");
/// ```
#[must_use]
pub fn format_bytes_rate(bytes_per_s: f64) -> String {
    const KIB: f64 = 1024.0;
    let units = [
        ("B/s", 1.0),
        ("KiB/s", KIB),
        ("MiB/s", KIB * KIB),
        ("GiB/s", KIB * KIB * KIB),
        ("TiB/s", KIB * KIB * KIB * KIB),
    ];
    format_scaled(bytes_per_s, &units)
}

/// Formats a count for a table, such as `20.0 M` or `1.50 k`. A whole number below a thousand stays
/// as it is: `12`.
///
/// ```
/// # use handover_base::units::format_count;
/// assert_eq!(format_count(12.0), "12");
/// assert_eq!(format_count(20_000_000.0), "20.0 M");
/// ```
#[must_use]
pub fn format_count(n: f64) -> String {
    if n.abs() < 999.5 && n.fract() == 0.0 {
        return format!("{n:.0}");
    }
    format_scaled(n, &[("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_significant_digits_and_carry_into_the_next_unit() {
        let cases = [
            (0.0, "0.00 ns"),
            (0.71, "0.71 ns"),
            (1.0, "1.00 ns"),
            (9.996, "10.0 ns"),
            (12.34, "12.3 ns"),
            (99.96, "100 ns"),
            (999.4, "999 ns"),
            (999.6, "1.00 µs"),
            (1204.0, "1.20 µs"),
            (58e6, "58.0 ms"),
            (2.5e9, "2.50 s"),
            (3.6e12, "3600 s"),
            (-1500.0, "-1.50 µs"),
            (f64::NAN, "NaN ns"),
            (f64::INFINITY, "inf ns"),
        ];
        for (ns, text) in cases {
            assert_eq!(format_ns(ns), text, "{ns}");
        }
    }

    #[test]
    fn rates_and_counts_use_decimal_multiples_and_bytes_binary_ones() {
        assert_eq!(format_rate(950_000.0), "950 k/s");
        assert_eq!(format_rate(12.0), "12.0 /s");
        assert_eq!(format_bytes_rate(9.4 * 1024.0 * 1024.0 * 1024.0), "9.40 GiB/s");
        assert_eq!(format_bytes_rate(100.0), "100 B/s");
        assert_eq!(format_count(1500.0), "1.50 k");
        assert_eq!(format_count(0.0), "0");
        assert_eq!(format_count(12.5), "12.5");
        assert_eq!(format_count(999.0), "999");
        assert_eq!(format_count(1000.0), "1.00 k");
    }
}
