//! Lexer that splits Rust source into code and comments, so that text in strings and comments does
//! not trigger rules about code.
//!
//! Both parts keep the length and the line breaks of the source: bytes that do not belong to a part
//! are replaced by spaces. An offset or a line number therefore means the same location in the
//! source, in the code and in the comments. String and character literals belong to neither part.

use ra_ap_rustc_lexer::{FrontmatterAllowed, LiteralKind, TokenKind, tokenize};

/// Code and comments of a Rust source, each at the full length of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LexedSource {
    /// Source text with literals and comments replaced by spaces.
    pub code: String,
    /// Source text with everything but comments replaced by spaces.
    pub comments: String,
}

/// Splits `text` into code and comments. Never fails: an unterminated literal or comment extends to
/// the end of the text.
pub fn lex(text: &str) -> LexedSource {
    let mut lexed = LexedSource {
        code: String::with_capacity(text.len()),
        comments: String::with_capacity(text.len()),
    };
    let mut rest = text;
    for token in tokenize(text, FrontmatterAllowed::No) {
        let (piece, behind) = rest.split_at(token.len as usize);
        rest = behind;
        let blank: String = piece.bytes().map(|it| if it == b'\n' { '\n' } else { ' ' }).collect();
        let (code, comment) = match token.kind {
            TokenKind::LineComment { .. } | TokenKind::BlockComment { .. } => (&*blank, piece),
            TokenKind::Literal {
                kind: LiteralKind::Int { .. } | LiteralKind::Float { .. },
                ..
            } => (piece, &*blank),
            TokenKind::Literal { .. } => (&*blank, &*blank),
            _ => (piece, &*blank),
        };
        lexed.code.push_str(code);
        lexed.comments.push_str(comment);
    }
    lexed
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
    fn comment_sign_in_a_string_starts_no_comment() {
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
    fn unterminated_literal_or_comment_extends_to_the_end() {
        assert_code("a \"b", "a");
        assert_code("a r#\"b\"", "a");
        assert_code("a /* b /* c */", "a");
        assert_code("a '\\", "a");
    }

    /// Generates text from fragments that are difficult for a lexer.
    fn tricky() -> impl Strategy<Value = String> {
        let pieces = [
            "\"", "'", "\\", "r", "b", "c", "br", "#", "r#\"", "\"#", "//", "/*", "*/", "\n", "'a",
            "'a'", "é", "→", " ", "x", "unsafe", "{", "}", "\r\n", "b'", "0",
        ];
        proptest::collection::vec(proptest::sample::select(pieces.to_vec()), 0..40)
            .prop_map(|pieces| pieces.concat())
    }

    fn assert_parts(text: &str) {
        let LexedSource { code, comments } = lex(text);
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
        fn splitting_any_text_keeps_its_length_and_lines(text in any::<String>()) {
            assert_parts(&text);
        }

        #[test]
        fn splitting_tricky_text_keeps_its_length_and_lines(text in tricky()) {
            assert_parts(&text);
        }

        #[test]
        fn any_text_inside_a_raw_string_is_blanked(text in tricky()) {
            prop_assume!(!text.contains("\"####"), "the text ends the raw string");
            let code = lex(&format!("a r####\"{text}\"#### z")).code;
            prop_assert_eq!(code.split_whitespace().collect::<Vec<_>>(), ["a", "z"]);
        }
    }
}
