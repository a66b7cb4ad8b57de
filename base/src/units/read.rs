//! Text to integer, exactly.

use super::Scale;
use std::fmt;

/// Why a text is no quantity: names the text, what is wrong with it, and a way out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} {wrong}", Quoted(.text))]
pub struct UnitError {
    text: String,
    wrong: String,
}

impl UnitError {
    /// The text as it was given.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// The text in quotes, control characters escaped, cut where it would flood a line.
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

/// With more decimals than this nothing comes out even (2^40 has 40 factors of two, but nobody
/// writes 2^-40 TiB), and the products below stay within 128 bits.
const DECIMALS_MAX: usize = 25;
/// u64::MAX has 20 digits.
const DIGITS_MAX: usize = 20;

pub(super) fn read(text: &str, scale: &Scale) -> Result<u64, UnitError> {
    read_or_why(text.trim(), scale).map_err(|wrong| UnitError { text: text.to_owned(), wrong })
}

fn read_or_why(text: &str, scale: &Scale) -> Result<u64, String> {
    let example = scale.example;
    let number_len = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = (&text[..number_len], text[number_len..].trim_start());
    if text.is_empty() {
        return Err(format!("is empty: write for example {example}"));
    }
    if text.starts_with('-') {
        return Err(format!("is negative: write for example {example}"));
    }
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || decimals.is_empty() || decimals.contains('.') {
        return Err(format!("does not start with a number: write for example {example}"));
    }
    let factor = factor(text, number, suffix, scale)?;

    let whole = whole.trim_start_matches('0');
    let decimals = decimals.trim_end_matches('0');
    let too_large =
        || format!("is too large: at most {} {}, for example {example}", u64::MAX, scale.base);
    let uneven = || format!("does not come out even: it must be a whole number of {}", scale.base);
    if whole.len() > DIGITS_MAX {
        return Err(too_large());
    }
    if decimals.len() > DECIMALS_MAX {
        return Err(uneven());
    }
    // Below 10^20 and 10^25, times at most 2^42: within 128 bits.
    let digits = |digits: &str| digits.bytes().fold(0u128, |n, d| n * 10 + u128::from(d - b'0'));
    let denominator = 10u128.pow(decimals.len() as u32);
    let fraction = digits(decimals) * u128::from(factor);
    if !fraction.is_multiple_of(denominator) {
        return Err(uneven());
    }
    let value = digits(whole) * u128::from(factor) + fraction / denominator;
    let value = u64::try_from(value).map_err(|_| too_large())?;
    if value == 0 && !scale.zero {
        return Err(format!(
            "is zero: it must be at least 1 {}, for example {example}",
            scale.base
        ));
    }
    Ok(value)
}

fn factor(text: &str, number: &str, suffix: &str, scale: &Scale) -> Result<u64, String> {
    if let Some(unit) = scale.units.iter().find(|unit| unit.names.contains(&suffix)) {
        return Ok(unit.factor);
    }
    let is_zero = number.bytes().all(|c| c == b'0' || c == b'.');
    let ways = |number: &str| {
        let mut ways: Vec<String> =
            scale.units.iter().map(|unit| format!("{number}{}", unit.names[0])).collect();
        let last = ways.pop().unwrap_or_default();
        format!("{} or {last}", ways.join(", "))
    };
    if suffix.is_empty() {
        // A scale without a bare unit: zero is zero in each.
        return if is_zero { Ok(1) } else { Err(format!("has no unit: write {}", ways(number))) };
    }
    let mut rest = suffix.chars();
    let exponent = matches!(rest.next(), Some('e' | 'E'))
        && rest.all(|c| c.is_ascii_digit() || c == '+' || c == '-');
    if exponent && suffix.len() > 1 {
        return Err(format!(
            "has an exponent: write the digits or a unit, for example {}",
            scale.example
        ));
    }
    let same_but_for_case: Vec<String> = scale
        .units
        .iter()
        .filter(|unit| {
            let close = |name: &&str| {
                name.eq_ignore_ascii_case(suffix)
                    // 64K: decimal or binary? We do not guess.
                    || (suffix.len() == 1 && name.len() == 3 && name[..1].eq_ignore_ascii_case(suffix))
            };
            unit.names.iter().any(close)
        })
        .map(|unit| format!("{number}{}", unit.names[0]))
        .collect();
    let _ = text;
    if same_but_for_case.is_empty() {
        Err(format!("ends in no unit that is known here: write {}", ways(number)))
    } else {
        Err(format!("ends in no unit that is known here: write {}", same_but_for_case.join(" or ")))
    }
}
