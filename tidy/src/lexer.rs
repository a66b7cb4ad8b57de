//! Lexer that splits Rust source into code and comments, so that text in strings and comments does
//! not trigger rules about code.
//!
//! Both parts keep the length and the line breaks of the source: bytes that do not belong to a part
//! are replaced by spaces. An offset or a line number therefore means the same place in the source,
//! in the code and in the comments. String and character literals belong to neither part.

/// The two parts of a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lexed {
    /// The source with literals and comments blanked.
    pub code: String,
    /// The source with everything but comments blanked.
    pub comments: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

/// Splits `text` into code and comments. Never fails: an unterminated literal or comment extends to
/// the end of the text.
pub fn lex(text: &str) -> Lexed {
    let mut lexed = Lexed {
        code: String::with_capacity(text.len()),
        comments: String::with_capacity(text.len()),
    };
    let mut at = 0;
    while at < text.len() {
        let (kind, length) = token(&text[at..]);
        let token = &text[at..at + length];
        match kind {
            Kind::Code => {
                lexed.code.push_str(token);
                blank(token, &mut lexed.comments);
            }
            Kind::Comment => {
                blank(token, &mut lexed.code);
                lexed.comments.push_str(token);
            }
            Kind::Literal => {
                blank(token, &mut lexed.code);
                blank(token, &mut lexed.comments);
            }
        }
        at += length;
    }
    lexed
}

fn blank(token: &str, out: &mut String) {
    out.extend(token.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }));
}

/// Returns the kind and the length in bytes (at least 1) of the first token of `rest`.
fn token(rest: &str) -> (Kind, usize) {
    let Some(first) = rest.chars().next() else { return (Kind::Code, 0) };
    if rest.starts_with("//") {
        (Kind::Comment, rest.find('\n').unwrap_or(rest.len()))
    } else if rest.starts_with("/*") {
        (Kind::Comment, block_comment(rest))
    } else if first == '"' {
        (Kind::Literal, quoted(rest, 1, '"'))
    } else if first == '\'' {
        character(rest, 0)
    } else if is_word(first) {
        let word = &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())];
        prefixed_literal(rest, word).unwrap_or((Kind::Code, word.len()))
    } else {
        (Kind::Code, first.len_utf8())
    }
}

pub(crate) fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// Returns the length of the block comment at the start of `rest`. Block comments nest.
fn block_comment(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        let here = &rest.as_bytes()[at..];
        if here.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// Returns the length up to and including the closing `quote`. The quoted text begins at `from`; a
/// backslash escapes the next character.
fn quoted(rest: &str, from: usize, quote: char) -> usize {
    let mut chars = rest[from..].char_indices();
    while let Some((at, c)) = chars.next() {
        if c == '\\' {
            chars.next();
        } else if c == quote {
            return from + at + 1;
        }
    }
    rest.len()
}

/// Lexes a character literal, or the quote of a lifetime; `from` is the offset of the quote.
fn character(rest: &str, from: usize) -> (Kind, usize) {
    let mut chars = rest[from + 1..].chars();
    match (chars.next(), chars.next()) {
        (Some('\\'), _) => (Kind::Literal, quoted(rest, from + 1, '\'')),
        (Some(c), Some('\'')) => (Kind::Literal, from + 1 + c.len_utf8() + 1),
        _ => (Kind::Code, from + 1),
    }
}

/// Lexes `b"..."`, `c"..."`, `b'.'`, and the raw forms `r"..."`, `r#"..."#`, `br"..."`, `cr"..."`.
fn prefixed_literal(rest: &str, word: &str) -> Option<(Kind, usize)> {
    let behind = &rest[word.len()..];
    match word {
        "b" | "c" if behind.starts_with('"') => {
            Some((Kind::Literal, quoted(rest, word.len() + 1, '"')))
        }
        "b" if behind.starts_with('\'') => match character(rest, word.len()) {
            (Kind::Literal, length) => Some((Kind::Literal, length)),
            _ => None,
        },
        "r" | "br" | "cr" => {
            let hashes = behind.bytes().take_while(|&byte| byte == b'#').count();
            let text = behind[hashes..].strip_prefix('"')?;
            let close = format!("\"{}", "#".repeat(hashes));
            let from = rest.len() - text.len();
            let end = text.find(&close).map_or(rest.len(), |at| from + at + close.len());
            Some((Kind::Literal, end))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn assert_code(text: &str, code: &str) {
        let lexed = lex(text);
        let squeezed: Vec<&str> = lexed.code.split_whitespace().collect();
        assert_eq!(squeezed.join(" "), code, "code of {text:?}");
    }

    #[test]
    fn literals_are_not_code() {
        assert_code(r#"f("todo!(", 'x', b'"', b"a\"b", c"c") "#, "f( , , , , )");
        assert_code("r\"a\\\" x r#\"q\" \"# y br##\"\"# \"## z", "x y z");
        assert_code(r"'\'' 'a' '\u{1f600}' 'é' end", "end");
    }

    #[test]
    fn comments_are_not_code_and_nest() {
        assert_code("a // \"b\nc /* d /* e */ f */ g", "a c g");
        assert_eq!(lex("a // b\nc").comments, "  // b\n ");
    }

    #[test]
    fn a_comment_sign_inside_a_string_opens_no_comment() {
        assert_code("let url = \"http://x\"; y", "let url = ; y");
        assert_eq!(lex("\"// no\" // yes").comments.trim(), "// yes");
    }

    #[test]
    fn lifetimes_labels_and_raw_identifiers_are_code() {
        assert_code(
            "fn f<'a>(x: &'a str) { 'outer: loop {} }",
            "fn f<'a>(x: &'a str) { 'outer: loop {} }",
        );
        assert_code("r#type + bar + b", "r#type + bar + b");
        assert_code("'\"' + \"x\"", "+");
    }

    #[test]
    fn what_is_not_finished_reaches_to_the_end() {
        assert_code("a \"b", "a");
        assert_code("a r#\"b\"", "a");
        assert_code("a /* b /* c */", "a");
        assert_code("a '\\", "a");
    }

    /// Generates text from fragments that are hard for a lexer.
    fn tricky() -> impl Strategy<Value = String> {
        let pieces = [
            "\"", "'", "\\", "r", "b", "c", "br", "#", "r#\"", "\"#", "//", "/*", "*/", "\n", "'a",
            "'a'", "é", "→", " ", "x", "unsafe", "{", "}", "\r\n", "b'", "0",
        ];
        proptest::collection::vec(proptest::sample::select(pieces.to_vec()), 0..40)
            .prop_map(|pieces| pieces.concat())
    }

    fn assert_parts(text: &str) {
        let Lexed { code, comments } = lex(text);
        assert_eq!(code.len(), text.len());
        assert_eq!(comments.len(), text.len());
        for (at, byte) in text.bytes().enumerate() {
            let parts = [code.as_bytes()[at], comments.as_bytes()[at]];
            if byte == b'\n' {
                assert_eq!(parts, [b'\n'; 2], "a line break is lost at {at} of {text:?}");
            } else {
                assert!(parts.iter().all(|&part| part == byte || part == b' '));
                assert!(parts.contains(&b' '), "byte {at} of {text:?} is code and comment");
            }
        }
    }

    proptest! {
        #[test]
        fn parting_any_text_keeps_its_length_and_lines(text in any::<String>()) {
            assert_parts(&text);
        }

        #[test]
        fn parting_tricky_text_keeps_its_length_and_lines(text in tricky()) {
            assert_parts(&text);
        }

        #[test]
        fn any_text_inside_a_raw_string_is_blanked(text in tricky()) {
            prop_assume!(!text.contains("\"####"), "it ends the string itself");
            let code = lex(&format!("a r####\"{text}\"#### z")).code;
            prop_assert_eq!(code.split_whitespace().collect::<Vec<_>>(), ["a", "z"]);
        }
    }
}
