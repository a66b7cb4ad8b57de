//! Patterns over names: `*` matches any text, `?` one character; a comma separates alternatives,
//! and a leading `-` excludes.
//!
//! Not a library's glob: names are no paths (`*` crosses `::` and `/`), and a crate that many
//! programs link should have few dependencies.

/// Returns `true` if `pattern` selects `name`.
///
/// The parts between commas are tried in order, and the last one that matches decides:
/// `lock.*,-lock.spin` selects every name under `lock` except `lock.spin`. If the first part begins
/// with `-`, names that match no part are selected.
///
/// ```
/// use handover_probe::matches;
/// assert!(matches("lock.*", "lock.acquire"));
/// assert!(matches("a,b?", "b1"));
/// assert!(!matches("*,-*spin*", "lock.spin.begin"));
/// assert!(matches("-lock.*", "ring.push"));
/// ```
///
/// # Cost
/// At most the product of both lengths, without allocation.
#[must_use]
pub fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split(',').map(str::trim).filter(|part| !part.is_empty()).peekable();
    let mut decided = parts.peek().is_some_and(|first| first.starts_with('-'));
    for part in parts {
        match part.strip_prefix('-') {
            Some(part) if matches_glob(part.as_bytes(), name.as_bytes()) => decided = false,
            None if matches_glob(part.as_bytes(), name.as_bytes()) => decided = true,
            _ => {}
        }
    }
    decided
}

/// Returns `true` if the whole of `name` matches the glob `pattern`. Backtracks to the last `*`
/// only, as an earlier `*` need not match more.
fn matches_glob(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(b'?') => {
                p += 1;
                n += character_bytes(&name[n..]);
            }
            Some(byte) if *byte == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((star_p, star_n)) => {
                    star = Some((star_p, star_n + 1));
                    p = star_p + 1;
                    n = star_n + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// Returns the length, in bytes, of the first character of `text`.
fn character_bytes(text: &[u8]) -> usize {
    1 + text[1..].iter().take_while(|byte| **byte & 0xc0 == 0x80).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn wildcards_match_across_separators() {
        for (pattern, name) in
            [("*", ""), ("a*c", "a::b/c"), ("?", "µ"), ("**a", "ba"), ("a*b*c", "aXbbXc")]
        {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in
            [("", "a"), ("", ""), ("?", ""), ("a", "ab"), ("a*b", "ac"), ("?", "ab")]
        {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn last_matching_part_decides() {
        assert!(matches("*,-a*,ab", "ab"));
        assert!(!matches("*,-a*,ab", "ac"));
        assert!(matches(" a , b ", "b"));
    }

    /// Matches by trying every length for each `*`.
    fn matches_exhaustively(pattern: &[u8], name: &[u8]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some((b'*', rest)) => {
                (0..=name.len()).any(|skip| matches_exhaustively(rest, &name[skip..]))
            }
            Some((b'?', rest)) => !name.is_empty() && matches_exhaustively(rest, &name[1..]),
            Some((byte, rest)) => {
                name.first() == Some(byte) && matches_exhaustively(rest, &name[1..])
            }
        }
    }

    proptest! {
        #[test]
        fn glob_agrees_with_exhaustive_search(pattern in "[ab*?]{0,8}", name in "[ab]{0,10}") {
            prop_assert_eq!(
                matches_glob(pattern.as_bytes(), name.as_bytes()),
                matches_exhaustively(pattern.as_bytes(), name.as_bytes())
            );
        }
    }
}
