//! Rules for ids and names, which make them displayable and valid on a command line.

use crate::error::StoreError;

/// Checks that a run's id is valid. It has 1 to 64 allowed characters, starts with a letter or
/// digit, and is not `last`. Allowed are letters, digits, `-`, `_` and `.`.
pub(crate) fn check_run_id(id: &str) -> Result<(), StoreError> {
    /// Maximum length of an id in bytes.
    const ID_BYTES_MAX: usize = 64;
    let fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let fits = (1..=ID_BYTES_MAX).contains(&id.len())
        && id.bytes().all(fit)
        && id.as_bytes()[0].is_ascii_alphanumeric()
        && id != "last";
    if fits { Ok(()) } else { Err(StoreError::BadRunId { id: truncated_for_error(id) }) }
}

/// Checks that a name for runs is valid. It has 1 to 64 allowed characters, starts with a letter,
/// and is not `last`. Allowed are letters, digits, `-`, `_`, `.`, `/`, `+` and `@`. Such a name is
/// valid on a command line, distinct from ids, `last` and `-1`, and displayable in a page.
///
/// # Errors
/// [`StoreError::BadTag`] if the name is not valid.
pub fn check_tag(name: &str) -> Result<(), StoreError> {
    /// Maximum length of a name in bytes.
    const NAME_BYTES_MAX: usize = 64;
    let fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./+@".contains(&byte);
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(fit)
        && name.as_bytes()[0].is_ascii_alphabetic()
        && name != "last";
    if fits { Ok(()) } else { Err(StoreError::BadTag { name: truncated_for_error(name) }) }
}

/// Checks that names have at most 200 characters, and no control characters.
pub(crate) fn check_names<'a>(
    subject: &str,
    names: impl IntoIterator<Item = (&'static str, &'a String)>,
) -> Result<(), StoreError> {
    const NAME_CHARS_MAX: usize = 200;
    for (field, name) in names {
        let is_short = name.chars().nth(NAME_CHARS_MAX).is_none();
        if !is_short || name.chars().any(char::is_control) {
            return Err(StoreError::BadName {
                subject: subject.to_string(),
                field,
                name: truncated_for_error(name),
            });
        }
    }
    Ok(())
}

/// Returns the first 64 characters of an untrusted text, for an error message.
pub(crate) fn truncated_for_error(text: &str) -> String {
    const CHARS_MAX: usize = 64;
    if text.chars().nth(CHARS_MAX).is_none() {
        return text.to_string();
    }
    let mut start: String = text.chars().take(CHARS_MAX).collect();
    start.push('…');
    start
}
