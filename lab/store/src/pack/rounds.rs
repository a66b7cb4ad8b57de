//! Rounds of a record, packed column by column: half the size of their JSON.
//!
//! A column of decimals is one exponent and integers. Values close to a known one are stored as
//! differences: the median to that of the middle round, the 99 % quantile and the mean to the
//! median, the block to the previous one. A column's bytes are grouped by significance, all lowest
//! ones first: these are noise, and the higher ones compress to almost nothing.
//!
//! Rounds that this does not restore bit for bit (-0.0, numbers of seventeen digits beside ones of
//! a hundred) are kept as JSON.

use crate::lines::LINE_BYTES_MAX;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use handover_record::Round;
use std::io::{Read, Write};

/// First byte of the packed form: JSON.
const AS_JSON: u8 = 0;
const AS_COLUMNS_OF_BLOCKS: u8 = 1;
const AS_COLUMNS: u8 = 2;

/// Maximum number of rounds in columns; more are kept as JSON, but exceed an export line.
const ROUNDS_MAX: usize = 1 << 16;
/// Maximum of the integers that floating-point numbers represent exactly.
const EXACT_MAX: u64 = 1 << 53;
/// Maximum power of ten that a floating-point number represents exactly.
const POWER_EXACT_MAX: usize = 22;

/// Packs rounds.
pub fn pack(rounds: &[Round]) -> std::io::Result<Vec<u8>> {
    let comes_back = |it: &Vec<u8>| read_columns(it, true).is_ok_and(|back| back == rounds);
    let (form, bytes) = match columns(rounds).filter(comes_back) {
        Some(columns) => (AS_COLUMNS, columns),
        None => (AS_JSON, serde_json::to_vec(rounds)?),
    };
    let mut packed = DeflateEncoder::new(vec![form], Compression::best());
    packed.write_all(&bytes)?;
    packed.finish()
}

/// Unpacks the rounds, or returns a description of the error.
pub fn unpack(packed: &[u8]) -> Result<Vec<Round>, String> {
    let Some((form, packed)) = packed.split_first() else { return Err("no rounds".to_string()) };
    let mut bytes = Vec::new();
    // Columns are shorter than JSON: at most nine of eight bytes for a round of two hundred
    // characters.
    let mut bounded = DeflateDecoder::new(packed).take(LINE_BYTES_MAX as u64 + 1);
    bounded.read_to_end(&mut bytes).map_err(|refused| refused.to_string())?;
    if bytes.len() > LINE_BYTES_MAX {
        return Err(format!("they inflate to more than {LINE_BYTES_MAX} bytes"));
    }
    match *form {
        AS_JSON => serde_json::from_slice(&bytes).map_err(|refused| refused.to_string()),
        // Written up to schema 4, without passes.
        AS_COLUMNS_OF_BLOCKS => read_columns(&bytes, false),
        AS_COLUMNS => read_columns(&bytes, true),
        other => Err(format!("their form is {other}")),
    }
}

/// Returns the rounds as columns; `None` if a number does not fit.
fn columns(rounds: &[Round]) -> Option<Vec<u8>> {
    if rounds.len() > ROUNDS_MAX {
        return None;
    }
    let of = |value: fn(&Round) -> f64| rounds.iter().map(value);
    let count = rounds.len();
    let times = of(|it| it.median).chain(of(|it| it.p99)).chain(of(|it| it.mean));
    let (times_exponent, times) = decimals(times)?;
    let (steal_exponent, steal) = decimals(of(|it| it.steal))?;
    let (slowed_exponent, slowed) = decimals(of(|it| it.slowed))?;
    let (medians, others) = times.split_at(count);
    let (p99s, means) = others.split_at(count);
    let level = medians.get(count / 2).copied().unwrap_or(0);

    let mut bytes = Vec::new();
    bytes.extend_from_slice(&(count as u32).to_le_bytes());
    for exponent in [times_exponent, steal_exponent, slowed_exponent] {
        bytes.extend_from_slice(&exponent.to_le_bytes());
    }
    bytes.extend_from_slice(&level.to_le_bytes());
    let less = |a: &[i64], b: &[i64]| a.iter().zip(b).map(|(a, b)| folded(a - b)).collect();
    let blocks = rounds.iter().map(|it| i64::from(it.block)).collect::<Vec<_>>();
    let blocks_before: Vec<i64> = std::iter::once(-1).chain(blocks.iter().copied()).collect();
    put(&mut bytes, less(&blocks, &blocks_before));
    put(&mut bytes, medians.iter().map(|it| folded(it - level)).collect());
    put(&mut bytes, less(p99s, medians));
    put(&mut bytes, less(means, medians));
    put(&mut bytes, steal.into_iter().map(folded).collect());
    put(&mut bytes, slowed.into_iter().map(folded).collect());
    put(&mut bytes, rounds.iter().map(|it| it.switches_involuntary).collect());
    put(&mut bytes, rounds.iter().map(|it| u64::from(it.marked)).collect());
    put(&mut bytes, rounds.iter().map(|it| u64::from(it.pass)).collect());
    Some(bytes)
}

fn read_columns(bytes: &[u8], has_passes: bool) -> Result<Vec<Round>, String> {
    let mut bytes = bytes;
    let count = u32::from_le_bytes(take(&mut bytes)?) as usize;
    if count > ROUNDS_MAX {
        return Err(format!("{count} rounds"));
    }
    let times_exponent = i16::from_le_bytes(take(&mut bytes)?);
    let steal_exponent = i16::from_le_bytes(take(&mut bytes)?);
    let slowed_exponent = i16::from_le_bytes(take(&mut bytes)?);
    let level = i64::from_le_bytes(take(&mut bytes)?);
    let mut column = || get(&mut bytes, count);
    let (blocks, medians, p99s, means) = (column()?, column()?, column()?, column()?);
    let (steal, slowed, switches, marked) = (column()?, column()?, column()?, column()?);
    let passes = if has_passes { column()? } else { vec![0; count] };
    if !bytes.is_empty() {
        return Err(format!("{} bytes behind the rounds", bytes.len()));
    }
    let mut rounds = Vec::with_capacity(count);
    let mut block = -1_i64;
    for place in 0..count {
        block = block.wrapping_add(unfolded(blocks[place]));
        let median = level.wrapping_add(unfolded(medians[place]));
        let time = |above: u64| number(median.wrapping_add(unfolded(above)), times_exponent);
        rounds.push(Round {
            pass: u32::try_from(passes[place]).map_err(|_| format!("pass {}", passes[place]))?,
            block: u32::try_from(block).map_err(|_| format!("block {block}"))?,
            median: number(median, times_exponent)?,
            p99: time(p99s[place])?,
            mean: time(means[place])?,
            steal: number(unfolded(steal[place]), steal_exponent)?,
            slowed: number(unfolded(slowed[place]), slowed_exponent)?,
            switches_involuntary: switches[place],
            marked: match marked[place] {
                0 => false,
                1 => true,
                other => return Err(format!("a mark is {other}")),
            },
        });
    }
    Ok(rounds)
}

/// Converts numbers exactly to integers with a common power of ten; `None` if that is not possible.
fn decimals(values: impl Iterator<Item = f64>) -> Option<(i16, Vec<i64>)> {
    let parts: Vec<(i64, i16)> = values.map(decimal).collect::<Option<_>>()?;
    let exponents = parts.iter().filter(|(digits, _)| *digits != 0).map(|part| part.1);
    let least = exponents.min().unwrap_or(0);
    let scaled = |(digits, exponent): (i64, i16)| {
        if digits == 0 {
            return Some(0);
        }
        let more = 10_i64.checked_pow(u32::try_from(exponent.checked_sub(least)?).ok()?)?;
        digits.checked_mul(more).filter(|it| it.unsigned_abs() <= EXACT_MAX)
    };
    Some((least, parts.into_iter().map(scaled).collect::<Option<_>>()?))
}

/// Returns the shortest decimal of a number: its digits, and the exponent of their power of ten.
fn decimal(value: f64) -> Option<(i64, i16)> {
    if value == 0.0 {
        return value.is_sign_positive().then_some((0, 0));
    }
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e')?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let exponent = exponent.parse::<i16>().ok()? - i16::try_from(fraction.len()).ok()?;
    Some((format!("{whole}{fraction}").parse().ok()?, exponent))
}

/// Returns the number with these digits and this exponent, as parsing its text would.
fn number(digits: i64, exponent: i16) -> Result<f64, String> {
    const POWERS: [f64; POWER_EXACT_MAX + 1] = [
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
        1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
    ];
    let places = usize::from(exponent.unsigned_abs());
    if exponent <= 0 && places <= POWER_EXACT_MAX && digits.unsigned_abs() <= EXACT_MAX {
        // Both are exact, so that the quotient is rounded once, like the parsed text.
        return Ok(digits as f64 / POWERS[places]);
    }
    let parsed = format!("{digits}e{exponent}").parse::<f64>().ok();
    parsed.filter(|it| it.is_finite()).ok_or_else(|| format!("a number is {digits}e{exponent}"))
}

/// Maps integers of either sign to unsigned ones, small where the integer is near zero (zigzag).
fn folded(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

fn unfolded(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

/// Appends a column: the width of its integers in bytes, then all lowest bytes, then the next ones.
fn put(bytes: &mut Vec<u8>, column: Vec<u64>) {
    let most = column.iter().copied().max().unwrap_or(0);
    let width = (u64::BITS - most.leading_zeros()).div_ceil(8);
    bytes.push(width as u8);
    for place in 0..width {
        bytes.extend(column.iter().map(|it| (it >> (8 * place)) as u8));
    }
}

fn get(bytes: &mut &[u8], count: usize) -> Result<Vec<u64>, String> {
    let [width] = take(bytes)?;
    if width > 8 {
        return Err(format!("a column of {width} bytes"));
    }
    let mut column = vec![0; count];
    for place in 0..width {
        let (of_it, rest) = bytes.split_at_checked(count).ok_or("they end too early")?;
        *bytes = rest;
        for (value, byte) in column.iter_mut().zip(of_it) {
            *value |= u64::from(*byte) << (8 * place);
        }
    }
    Ok(column)
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], String> {
    let (first, rest) = bytes.split_first_chunk().ok_or("they end too early")?;
    *bytes = rest;
    Ok(*first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn form(rounds: &[Round]) -> u8 {
        pack(rounds).expect("packed")[0]
    }

    fn usual(place: u32) -> Round {
        let noise = f64::from(place * 7919 % 101);
        Round {
            pass: place / 8,
            block: 2 * place,
            median: (2_430.0 + noise).round() / 1000.0,
            p99: (3_430.0 + 2.0 * noise).round() / 1000.0,
            mean: (2_500.0 + noise).round() / 1000.0,
            steal: 0.0,
            slowed: (place % 5 * 125) as f64 / 1000.0,
            switches_involuntary: u64::from(place % 3),
            marked: place % 5 == 4,
        }
    }

    #[test]
    fn what_a_run_measures_is_packed_in_columns() {
        let rounds: Vec<Round> = (0..64).map(usual).collect();
        let packed = pack(&rounds).expect("packed");
        assert_eq!(packed[0], AS_COLUMNS);
        assert!(unpack(&packed).as_ref() == Ok(&rounds));
        let json = serde_json::to_vec(&rounds).expect("JSON").len();
        assert!(packed.len() < json / 15, "{} of {json} bytes", packed.len());
        assert_eq!(unpack(&pack(&[]).expect("packed")), Ok(Vec::new()));
    }

    #[test]
    fn what_columns_cannot_hold_is_kept_as_json() {
        let with = |median: f64| Round { median, ..usual(1) };
        for value in [-0.0, 1e300, 0.1 + 0.2, f64::MIN_POSITIVE, f64::MAX] {
            let rounds = [usual(0), with(value)];
            assert_eq!(form(&rounds), AS_JSON, "{value:e}");
            let back = unpack(&pack(&rounds).expect("packed")).expect("unpacked");
            assert_eq!(back[1].median.to_bits(), value.to_bits(), "{value:e}");
        }
        for value in [0.0, 123_457_000.0, 5e-7, 1e12] {
            assert_eq!(form(&[with(value)]), AS_COLUMNS, "{value:e}");
        }
        assert_eq!(form(&vec![usual(0); ROUNDS_MAX + 1]), AS_JSON);
    }

    #[test]
    fn bytes_that_are_no_rounds_are_refused_with_what_is_wrong() {
        let packed = |form: u8, bytes: &[u8]| {
            let mut packed = DeflateEncoder::new(vec![form], Compression::best());
            packed.write_all(bytes).expect("packed");
            packed.finish().expect("packed")
        };
        let good = columns(&[usual(3)]).expect("columns");
        let many = [&u32::MAX.to_le_bytes()[..], &good[4..]].concat();
        let longer = [&good[..], &[0]].concat();
        for (bytes, why) in [
            (vec![], "no rounds"),
            (packed(3, &[]), "their form is 3"),
            (packed(AS_COLUMNS, &good[..good.len() - 1]), "too early"),
            (packed(AS_COLUMNS, &many), "4294967295 rounds"),
            (packed(AS_COLUMNS, &longer), "1 bytes behind"),
            (packed(AS_JSON, b"[{}]"), "missing field"),
            (packed(AS_JSON, &vec![b' '; LINE_BYTES_MAX + 1]), "inflate to more than"),
        ] {
            let refused = unpack(&bytes).expect_err(why);
            assert!(refused.contains(why), "{refused}, not {why}");
        }
    }

    proptest! {
        #[test]
        fn any_rounds_come_back_to_the_bit(
            parts in prop::collection::vec((any::<u32>(), any::<[f64; 5]>(), any::<u64>(), any::<bool>()), 0..9)
        ) {
            let finite = |it: f64| if it.is_finite() { it } else { -0.0 };
            let rounds: Vec<Round> = parts.iter().map(|(block, numbers, switches, marked)| {
                let [median, p99, mean, steal, slowed] = numbers.map(finite);
                Round {
                    pass: block.rotate_left(7), block: *block, median, p99, mean, steal, slowed,
                    switches_involuntary: *switches, marked: *marked,
                }
            }).collect();
            let back = unpack(&pack(&rounds).expect("packed")).expect("unpacked");
            prop_assert_eq!(format!("{back:?}"), format!("{rounds:?}"));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = (read_columns(&bytes, true), read_columns(&bytes, false));
            let _ = unpack(&bytes);
        }
    }
}
