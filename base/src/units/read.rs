//! Exact parsing of text to integers.

use super::scale::UnitScale;
use std::fmt;

/// Error of parsing a quantity. Its message contains the text, the mistake and a valid example.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} {problem}", Quoted(.text))]
pub struct UnitError {
    text: String,
    problem: String,
}

impl UnitError {
    /// Returns the text that was parsed.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Formatter of a text in quotes, with control characters escaped, truncated to 40 characters.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const CHARS_MAX: usize = 40;
        match self.0.char_indices().nth(CHARS_MAX) {
            None => write!(f, "{:?}", self.0),
            Some((cut, _)) => write!(f, "{:?}...", &self.0[..cut]),
        }
    }
}

/// Maximum number of decimals, so that products fit in 128 bits. Fractions with more decimals are
/// practically never whole numbers of base units.
const DECIMALS_MAX: usize = 25;
/// Maximum number of digits before the decimal point, as u64::MAX has 20.
const DIGITS_MAX: usize = 20;

/// Parses a quantity, such as `1.5ms`; returns its value in base units.
pub(super) fn parse_quantity(text: &str, scale: &UnitScale) -> Result<u64, UnitError> {
    parse_trimmed(text.trim(), scale)
        .map_err(|problem| UnitError { text: text.to_owned(), problem })
}

/// Parses a quantity without surrounding spaces; the error is the mistake as text.
fn parse_trimmed(text: &str, scale: &UnitScale) -> Result<u64, String> {
    let example = scale.example;
    if text.is_empty() {
        return Err(format!("is empty: write for example {example}"));
    }
    if text.starts_with('-') {
        return Err(format!("is negative: write for example {example}"));
    }
    let number_len = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = (&text[..number_len], text[number_len..].trim_start());
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || decimals.is_empty() || decimals.contains('.') {
        return Err(format!("is not a number with a unit: write for example {example}"));
    }
    let factor = factor(number, suffix, scale)?;

    let unit = scale.base;
    let too_large = || format!("is too large: the maximum is {}{unit}", u64::MAX);
    let too_precise = || format!("is too precise: the smallest step is 1{unit}");
    let whole = whole.trim_start_matches('0');
    let decimals = decimals.trim_end_matches('0');
    if whole.len() > DIGITS_MAX {
        return Err(too_large());
    }
    if decimals.len() > DECIMALS_MAX {
        return Err(too_precise());
    }
    // Below 10^20 and 10^25, times less than 2^42: within 128 bits.
    let digits = |digits: &str| digits.bytes().fold(0u128, |n, d| n * 10 + u128::from(d - b'0'));
    let denominator = 10u128.pow(decimals.len() as u32);
    let fraction = digits(decimals) * u128::from(factor);
    if !fraction.is_multiple_of(denominator) {
        return Err(too_precise());
    }
    let value = digits(whole) * u128::from(factor) + fraction / denominator;
    let value = u64::try_from(value).map_err(|_| too_large())?;
    if value == 0 && !scale.allows_zero {
        return Err(format!("is zero: the minimum is 1{unit}, write for example {example}"));
    }
    Ok(value)
}

/// Returns the size of the unit `suffix` in base units; the error is the mistake as text.
fn factor(number: &str, suffix: &str, scale: &UnitScale) -> Result<u64, String> {
    if let Some(unit) = scale.units.iter().find(|unit| unit.names.contains(&suffix)) {
        return Ok(unit.factor);
    }
    if suffix.is_empty() {
        // Zero needs no unit.
        let is_zero = number.bytes().all(|c| matches!(c, b'0' | b'.'));
        return if is_zero {
            Ok(1)
        } else {
            let with_units = alternatives(number, scale, |_| true);
            Err(format!("has no unit: write {with_units}"))
        };
    }
    if let Some(exponent) = suffix.strip_prefix(['e', 'E'])
        && exponent.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-'))
    {
        return Err(format!(
            "has an exponent: write for example {example}",
            example = scale.example
        ));
    }
    let is_similar = |name: &str| {
        let differs_in_case = name.eq_ignore_ascii_case(suffix);
        // 64K and 64m may be decimal or binary: the error offers both rather than guess.
        let prefix_only = suffix.len() == 1
            && name.len() > 1
            && name.chars().zip(suffix.chars()).all(|(a, b)| a.eq_ignore_ascii_case(&b));
        differs_in_case || prefix_only
    };
    let any = scale.units.iter().any(|unit| unit.names.iter().any(|name| is_similar(name)));
    let with_units = alternatives(number, scale, |name| !any || is_similar(name));
    Err(format!("has an unknown unit: write {with_units}"))
}

/// Lists the number with each fitting unit, for an error message, as in `20ns, 20us or 20ms`. A
/// unit fits if `fits` accepts one of its names.
fn alternatives(number: &str, scale: &UnitScale, fits: impl Fn(&str) -> bool) -> String {
    // A number longer than any valid one is replaced by an example.
    let number = if number.len() > 2 * DIGITS_MAX { "1" } else { number };
    let fitting = scale.units.iter().filter(|unit| unit.names.iter().any(|name| fits(name)));
    let mut texts: Vec<String> = fitting.map(|unit| format!("{number}{}", unit.names[0])).collect();
    let last = texts.pop().unwrap_or_default();
    if texts.is_empty() { last } else { format!("{others} or {last}", others = texts.join(", ")) }
}
