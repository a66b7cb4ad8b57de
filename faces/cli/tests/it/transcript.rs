//! Comparison of output with a documented transcript: the text to the letter, figures by pattern.

use regex_lite::Regex;

/// Returns the pattern of a documented line: the same text, with any figures in the place of its
/// own. A figure keeps its number of decimals; what stands in single quotes stays as it is.
pub fn pattern(documented: &str) -> String {
    let figure = Regex::new(r"\d[\d,]*(\.\d+)?").expect("a pattern");
    let mut pattern = String::from("^");
    for (index, part) in documented.split('\'').enumerate() {
        if index > 0 {
            pattern.push('\'');
        }
        if index % 2 == 1 {
            pattern += &regex_lite::escape(part);
            continue;
        }
        let mut end = 0;
        for found in figure.captures_iter(part) {
            let (whole, decimals) = (found.get(0).expect("a match"), found.get(1));
            pattern += &regex_lite::escape(&part[end..whole.start()]);
            pattern += r"\d[\d,]*";
            if let Some(decimals) = decimals {
                pattern += &format!(r"\.\d{{{}}}", decimals.len() - 1);
            }
            end = whole.end();
        }
        pattern += &regex_lite::escape(&part[end..]);
    }
    pattern + "$"
}

/// Checks that there are as many lines as documented, each with its documented text.
#[track_caller]
pub fn assert_lines(lines: &[&str], documented: &[&str], all: &str) {
    assert_eq!(lines.len(), documented.len(), "{all}");
    for (line, documented) in lines.iter().zip(documented) {
        let pattern = pattern(documented);
        let is_match = Regex::new(&pattern).expect("a pattern").is_match(line);
        assert!(is_match, "not as documented:\n{line}\n{documented}\nin\n{all}");
    }
}

#[test]
fn pattern_matches_other_figures_but_no_other_text() {
    let line = "[2024-02-08 10:27:00.583]: (INFO)  total=[8,011],time=[3.01s] '1,000'";
    let is_match = |line: &str, other: &str| Regex::new(&pattern(line)).expect("").is_match(other);
    assert!(is_match(line, "[2026-11-23 09:00:01.000]: (INFO)  total=[7],time=[12.34s] '1,000'"));
    for wrong in [
        "[2026-11-23 09:00:01.000]: (INFO) total=[7],time=[12.34s] '1,000'",
        "[2026-11-23 09:00:01.000]: (INFO)  total=[7],time=[12.3s] '1,000'",
        "[2026-11-23 09:00:01.000]: (INFO)  total=[7],time=[12.34s] '1,001'",
        "[2026-11-23 09:00:01.000]: (INFO)  total=[7],time=[12.34s] '1,000' and more",
    ] {
        assert!(!is_match(line, wrong), "{wrong}");
    }
}
