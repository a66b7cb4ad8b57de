//! Quantities as people write them.
#![cfg(not(miri))] // safe code only: takes a minute under Miri, which would find nothing

use handover_base::units::{BitRate, ByteSize, Count, TimeSpan, UnitError};
use proptest::prelude::*;

/// Test cases: kind, text and either the value or `error`, a line each.
const CASES: &str = include_str!("cases/units.tsv");

fn parse(kind: &str, text: &str) -> Result<u64, UnitError> {
    match kind {
        "rate" => text.parse().map(|BitRate(value)| value),
        "size" => text.parse().map(|ByteSize(value)| value),
        "duration" => text.parse().map(|TimeSpan(value)| value),
        "count" => text.parse().map(|Count(value)| value),
        other => panic!("units.tsv has a case of unknown kind: {other}"),
    }
}

const KINDS: [&str; 4] = ["rate", "size", "duration", "count"];

#[test]
fn every_case_of_the_table_parses_as_expected() {
    let mut cases_count = 0;
    for line in CASES.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let mut columns = line.split('\t');
        let (Some(kind), Some(text), Some(expected)) =
            (columns.next(), columns.next(), columns.next())
        else {
            panic!("not three columns: {line:?}")
        };
        match (parse(kind, text), expected) {
            (Err(error), "error") => {
                let message = error.to_string();
                assert!(message.contains(text), "{line:?}: {message}");
            }
            (Ok(value), expected) => assert_eq!(value.to_string(), expected, "{line:?}"),
            (Err(error), _) => panic!("{line:?}: {error}"),
        }
        cases_count += 1;
    }
    assert!(cases_count >= 19, "only {cases_count} cases were read");
}

#[test]
fn units_in_the_readme_are_parsed() {
    let cases = [
        ("rate", "7", 7),
        ("rate", "0.5k", 500),
        ("size", "1500B", 1500),
        ("size", "64k", 64_000),
        ("size", "3MB", 3_000_000),
        ("size", "3GB", 3_000_000_000),
        ("size", "1TB", 1_000_000_000_000),
        ("size", "1GiB", 1 << 30),
        ("size", "0.25TiB", 1 << 38),
        ("size", "64 KiB", 65_536),
        ("size", " 64KiB ", 65_536),
        ("size", "0", 0),
        ("duration", "5ns", 5),
        ("duration", "0", 0),
        ("duration", "0.000000001s", 1),
        ("duration", "1.50000000000000000000000000000000000s", 1_500_000_000),
        ("duration", "1h", 3_600_000_000_000),
        ("duration", "30\u{3bc}s", 30_000),
        ("count", "1.5k", 1_500),
        ("count", "20M", 20_000_000),
        ("count", "18446744073709551615", u64::MAX),
    ];
    for (kind, text, value) in cases {
        assert_eq!(parse(kind, text), Ok(value), "{kind} {text:?}");
    }
}

#[test]
fn errors_name_text_problem_and_remedy() {
    let cases = [
        ("duration", "20", r#""20" has no unit: write 20ns, 20us, 20ms, 20s, 20min or 20h"#),
        (
            "duration",
            "99999999999h",
            r#""99999999999h" is too large: the maximum is 18446744073709551615 ns"#,
        ),
        ("duration", "1.5ns", r#""1.5ns" is too precise: the smallest step is 1 ns"#),
        ("duration", "5 MS", r#""5 MS" has an unknown unit: write 5ms"#),
        ("duration", "", r#""" is empty: write for example 30us"#),
        ("rate", "0", r#""0" is zero: the minimum is 1 bit/s, write for example 20M"#),
        ("rate", "-1M", r#""-1M" is negative: write for example 20M"#),
        ("rate", "1Q", r#""1Q" has an unknown unit: write 1, 1k, 1M, 1G or 1T"#),
        ("rate", "1K", r#""1K" has an unknown unit: write 1k"#),
        ("size", "1e3", r#""1e3" has an exponent: write for example 64KiB"#),
        ("size", "64K", r#""64K" has an unknown unit: write 64kB or 64KiB"#),
        ("size", "1.2.3k", r#""1.2.3k" is not a number with a unit: write for example 64KiB"#),
        ("count", "many", r#""many" is not a number with a unit: write for example 1.5k"#),
        ("count", "1.5", r#""1.5" is too precise: the smallest step is 1"#),
    ];
    for (kind, text, expected) in cases {
        match parse(kind, text) {
            Err(error) => assert_eq!(error.to_string(), expected, "{kind} {text:?}"),
            Ok(value) => panic!("{kind} {text:?} was parsed as {value}"),
        }
    }
}

#[test]
fn long_text_is_truncated_in_the_error() {
    let error = parse("size", &"é".repeat(100_000)).unwrap_err();
    assert!(error.to_string().len() < 250, "{error}");
    assert_eq!(error.text().chars().count(), 100_000);
}

#[test]
fn values_are_displayed_in_the_usual_notation() {
    assert_eq!(BitRate(20_000_000).to_string(), "20M");
    assert_eq!(BitRate(1_500_000_000).to_string(), "1.5G");
    assert_eq!(BitRate(1_234_567).to_string(), "1234567");
    assert_eq!(ByteSize(65_536).to_string(), "64KiB");
    assert_eq!(ByteSize(64_000).to_string(), "64kB");
    assert_eq!(ByteSize(1500).to_string(), "1500B");
    assert_eq!(ByteSize(0).to_string(), "0B");
    assert_eq!(TimeSpan(30_000).to_string(), "30us");
    assert_eq!(TimeSpan(1_500_000).to_string(), "1.5ms");
    assert_eq!(TimeSpan(120_000_000_000).to_string(), "2min");
    assert_eq!(TimeSpan(0).to_string(), "0ns");
    assert_eq!(Count(1_500_000).to_string(), "1.5M");
    assert_eq!(format!("[{:>6}]", Count(12)), "[    12]");
}

/// Any integer, and typical ones: few digits and many zeros, or multiples of a power of two.
fn values() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        (1u64..10_000, 0u32..16)
            .prop_map(|(digits, zeros)| digits.saturating_mul(10u64.pow(zeros))),
        (1u64..10_000, 0u32..50).prop_map(|(digits, bits)| digits << bits),
        Just(u64::MAX),
    ]
}

/// Texts that are almost valid, where mistakes are likely.
fn near_texts() -> impl Strategy<Value = String> {
    prop_oneof![
        "[0-9]{0,40}[.]{0,2}[0-9]{0,40} {0,2}[kKMGTmiBnuµsh]{0,4}",
        "[-+]?[0-9.eE]{0,12}[a-zA-Zµ]{0,3}",
        any::<String>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1024,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn displayed_value_parses_back(value in values()) {
        prop_assert_eq!(BitRate(value.max(1)).to_string().parse(), Ok(BitRate(value.max(1))));
        prop_assert_eq!(ByteSize(value).to_string().parse(), Ok(ByteSize(value)));
        prop_assert_eq!(TimeSpan(value).to_string().parse(), Ok(TimeSpan(value)));
        prop_assert_eq!(Count(value).to_string().parse(), Ok(Count(value)));
    }

    #[test]
    fn displayed_value_is_not_longer_than_the_plain_number(value in values()) {
        let digits = value.to_string().len();
        prop_assert!(Count(value).to_string().len() <= digits);
        prop_assert!(ByteSize(value).to_string().len() <= digits + "B".len());
        prop_assert!(TimeSpan(value).to_string().len() <= digits + "ns".len());
    }

    #[test]
    fn random_text_parses_or_fails_without_panic(text in near_texts()) {
        for kind in KINDS {
            if let Err(error) = parse(kind, &text) {
                prop_assert_eq!(error.text(), text.as_str());
                let message = error.to_string();
                prop_assert!(message.is_ascii() || !text.is_ascii(), "{}", message);
                prop_assert!(!message.contains('\n'), "{:?}", message);
            }
        }
    }

    #[test]
    fn fractions_are_exact_or_refused(digits in 0u64..1_000_000, decimals in 1u32..7) {
        let scale = 10u64.pow(decimals);
        let text = format!("{}.{:0width$}ms", digits / scale, digits % scale, width = decimals as usize);
        let exact = u128::from(digits) * 1_000_000;
        if exact.is_multiple_of(u128::from(scale)) {
            prop_assert_eq!(text.parse(), Ok(TimeSpan((exact / u128::from(scale)) as u64)));
        } else {
            prop_assert!(text.parse::<TimeSpan>().is_err());
        }
    }
}
