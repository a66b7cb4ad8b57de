//! Terminal text: lines of spans with a tone, measured in columns, cut and wrapped to a width.
//!
//! Text of a record may come from an import: characters that control a terminal are replaced.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Minimum width of the layout in columns. In narrower terminals, lines are cut.
pub(crate) const WIDTH_MIN: usize = 24;

/// Style of terminal output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// `true` to colour the text with escape sequences.
    pub color: bool,
    /// `true` to use `µ`, `±`, `×` and box-drawing characters; otherwise the output is plain ASCII.
    pub unicode: bool,
    /// `true` to list every contender of every figure.
    pub all: bool,
}

/// Meaning of a span of text, which determines its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    /// The most important figure.
    Strong,
    /// Secondary text.
    Faint,
    /// Result better than a peer's.
    Good,
    /// Result worse than a peer's.
    Bad,
    Warning,
}

impl Tone {
    /// Returns the escape sequence that starts text of this tone.
    fn sequence(self) -> &'static str {
        match self {
            Tone::Plain => "",
            Tone::Strong => "\x1b[1m",
            Tone::Faint => "\x1b[2m",
            Tone::Good => "\x1b[32m",
            Tone::Bad => "\x1b[31m",
            Tone::Warning => "\x1b[33m",
        }
    }
}

/// Part of a line that has one tone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TextSpan {
    pub text: String,
    pub tone: Tone,
}

/// Line of text, in spans of different tones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    pub spans: Vec<TextSpan>,
}

impl Line {
    /// Creates a line with one tone.
    pub fn new(text: impl AsRef<str>, tone: Tone) -> Line {
        let mut line = Line::default();
        line.push(text, tone);
        line
    }

    /// Creates a line of plain text.
    pub fn plain(text: impl AsRef<str>) -> Line {
        Line::new(text, Tone::Plain)
    }

    /// Appends text in a tone; control characters are replaced.
    pub fn push(&mut self, text: impl AsRef<str>, tone: Tone) {
        let text = replace_control_characters(text.as_ref());
        if !text.is_empty() {
            self.spans.push(TextSpan { text, tone });
        }
    }

    /// Appends spaces up to a column.
    pub fn pad_to(&mut self, column: usize) {
        let width = self.width();
        if width < column {
            self.push(" ".repeat(column - width), Tone::Plain);
        }
    }

    /// Appends another line's spans, starting at `column`.
    pub fn push_at(&mut self, column: usize, other: Line) {
        self.pad_to(column);
        self.spans.extend(other.spans);
    }

    /// Appends another line's spans, right-aligned to the column `end`.
    pub fn push_right(&mut self, other: &Line, end: usize) {
        self.pad_to(end.saturating_sub(other.width()));
        self.spans.extend(other.spans.iter().cloned());
    }

    /// Returns the line's width in columns.
    pub fn width(&self) -> usize {
        self.spans.iter().map(|span| span.text.width()).sum()
    }

    /// Truncates the line to a maximum width, with an ellipsis.
    pub fn truncate(mut self, width_max: usize, style: Style) -> Line {
        if self.width() <= width_max {
            return self;
        }
        let mark = if style.unicode { "…" } else { "..." };
        let mark = if mark.width() < width_max { mark } else { "" };
        let mut room = width_max - mark.width();
        let mut kept = Vec::new();
        for mut span in self.spans.drain(..) {
            let width = span.text.width();
            if width <= room {
                room -= width;
                kept.push(span);
                continue;
            }
            let mut text = String::new();
            for char in span.text.chars() {
                let width = char.width().unwrap_or(0);
                if width > room {
                    break;
                }
                room -= width;
                text.push(char);
            }
            text.push_str(mark);
            span.text = text;
            kept.push(span);
            break;
        }
        Line { spans: kept }
    }

    /// Appends the line as text for a terminal to `out`, without trailing spaces.
    pub fn render(&self, style: Style, out: &mut String) {
        let mut spans = self.spans.clone();
        while let Some(last) = spans.last_mut() {
            let end = last.text.trim_end().len();
            last.text.truncate(end);
            if end > 0 {
                break;
            }
            spans.pop();
        }
        for TextSpan { text, tone } in spans {
            let text = if style.unicode { text } else { to_ascii(&text) };
            if style.color && tone != Tone::Plain {
                out.push_str(tone.sequence());
                out.push_str(&text);
                out.push_str("\x1b[0m");
            } else {
                out.push_str(&text);
            }
        }
        out.push('\n');
    }
}

/// Wraps text at words to a width; lines after the first are indented by `indent`.
pub(crate) fn wrap(text: &str, tone: Tone, indent: usize, width_max: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        let room = width_max.saturating_sub(if lines.is_empty() { 0 } else { indent });
        if !line.is_empty() && line.width() + 1 + word.width() > room {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    let indented = |(place, text): (usize, String)| {
        let mut line = Line::default();
        line.pad_to(if place == 0 { 0 } else { indent });
        line.push(text, tone);
        line
    };
    lines.into_iter().enumerate().map(indented).collect()
}

/// Returns `true` for characters that can hide or reorder text in a terminal. They are control
/// characters and those that change the direction of writing.
#[must_use]
pub fn is_control(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

pub(crate) fn replace_control_characters(text: &str) -> String {
    text.chars().map(|char| if is_control(char) { '\u{fffd}' } else { char }).collect()
}

/// Converts text to ASCII of the same width, so that columns stay aligned.
fn to_ascii(text: &str) -> String {
    let mut ascii = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            ' '..='~' => ascii.push(char),
            'µ' => ascii.push('u'),
            '×' => ascii.push('x'),
            '±' => ascii.push('~'),
            '–' | '─' => ascii.push('-'),
            '≤' => ascii.push('<'),
            other => ascii.extend(std::iter::repeat_n('?', other.width().unwrap_or(0))),
        }
    }
    ascii
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Style = Style { color: false, unicode: true, all: false };

    fn text(line: &Line, style: Style) -> String {
        let mut out = String::new();
        line.render(style, &mut out);
        out
    }

    #[test]
    fn control_characters_are_replaced() {
        let line = Line::plain("a\x1b[31mb\r\nc\u{202e}d\u{9b}");
        assert_eq!(text(&line, PLAIN), "a\u{fffd}[31mb\u{fffd}\u{fffd}c\u{fffd}d\u{fffd}\n");
    }

    #[test]
    fn line_is_cut_by_columns_not_characters() {
        let mut line = Line::plain("日本");
        line.push("語x", Tone::Strong);
        assert_eq!(line.width(), 7);
        assert_eq!(
            text(&line.clone().truncate(6, PLAIN), PLAIN),
            "日本…\n",
            "the cut line differs: 語 and … together exceed 6 columns"
        );
        assert_eq!(text(&line.clone().truncate(7, PLAIN), PLAIN), "日本語x\n");
        assert_eq!(line.truncate(1, PLAIN).width(), 0);
    }

    #[test]
    fn words_are_wrapped_and_long_words_are_not_split() {
        let texts = |width| -> Vec<String> {
            wrap("one two threefour", Tone::Plain, 2, width)
                .iter()
                .map(|line| text(line, PLAIN))
                .collect()
        };
        assert_eq!(texts(7), ["one two\n", "  threefour\n"]);
        assert_eq!(texts(80), ["one two threefour\n"]);
    }

    #[test]
    fn ascii_text_has_the_same_width() {
        let line = Line::plain("1.20 µs ±2 % 3.1× 日");
        let ascii = text(&line, Style { unicode: false, ..PLAIN });
        assert_eq!(ascii, "1.20 us ~2 % 3.1x ??\n");
        assert_eq!(ascii.trim_end().len(), line.width());
    }
}
