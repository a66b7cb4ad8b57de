//! SVG canvas, with escaped text and numbers of one decimal.

use crate::text::is_control;
use std::fmt::Write;

/// Drawing surface: coordinates in pixels, appearance by CSS class.
pub(super) trait Canvas {
    /// Opens a group with a CSS class and a tooltip text; either may be empty.
    fn open_group(&mut self, class: &str, title: &str);
    fn close_group(&mut self);
    fn line(&mut self, x1: f64, y1: f64, x2: f64, y2: f64, class: &str);
    fn circle(&mut self, x: f64, y: f64, radius: f64, class: &str);
    fn rect(&mut self, x: f64, y: f64, width: f64, height: f64);
    /// Draws a closed and filled polygon.
    fn polygon(&mut self, points: &[(f64, f64)], class: &str);
    fn polyline(&mut self, points: &[(f64, f64)], class: &str);
    /// Draws a text, unless it is empty.
    fn text(&mut self, x: f64, y: f64, anchor: &str, class: &str, text: &str);
}

/// SVG document that is being written.
pub(super) struct SvgCanvas {
    out: String,
}

impl SvgCanvas {
    pub fn new(width_px: f64, height_px: f64, title: &str, description: &str) -> SvgCanvas {
        let mut paint = SvgCanvas { out: String::new() };
        paint.add(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" role=\"img\" \
             viewBox=\"0 0 {width_px:.0} {height_px:.0}\" width=\"{width_px:.0}\" \
             height=\"{height_px:.0}\" aria-label=\"{}\">\n<title>{}</title>\n",
            escape(title),
            escape(title)
        ));
        if !description.is_empty() {
            paint.add(format_args!("<desc>{}</desc>\n", escape(description)));
        }
        paint
    }

    pub fn finish(mut self) -> String {
        self.out.push_str("</svg>\n");
        self.out
    }

    /// Appends text that is already SVG.
    pub fn raw(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn add(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.out.write_fmt(text);
    }
}

impl Canvas for SvgCanvas {
    fn open_group(&mut self, class: &str, title: &str) {
        match class {
            "" => self.out.push_str("<g>"),
            class => self.add(format_args!("<g class=\"{class}\">")),
        }
        if !title.is_empty() {
            self.add(format_args!("<title>{}</title>", escape(title)));
        }
    }

    fn close_group(&mut self) {
        self.out.push_str("</g>\n");
    }

    fn line(&mut self, x1: f64, y1: f64, x2: f64, y2: f64, class: &str) {
        self.add(format_args!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        ));
    }

    fn circle(&mut self, x: f64, y: f64, radius: f64, class: &str) {
        self.add(format_args!(
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\"/>"
        ));
    }

    fn rect(&mut self, x: f64, y: f64, width: f64, height: f64) {
        self.add(format_args!(
            "<rect class=\"bar\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
             height=\"{height:.1}\"/>"
        ));
    }

    fn polygon(&mut self, points: &[(f64, f64)], class: &str) {
        self.add(format_args!("<path class=\"{class}\" d=\""));
        for (place, (x, y)) in points.iter().enumerate() {
            let command = if place == 0 { "M" } else { "L" };
            self.add(format_args!("{command}{x:.1} {y:.1}"));
        }
        self.out.push_str("Z\"/>");
    }

    fn polyline(&mut self, points: &[(f64, f64)], class: &str) {
        self.add(format_args!("<polyline class=\"{class}\" points=\""));
        for (place, (x, y)) in points.iter().enumerate() {
            let between = if place == 0 { "" } else { " " };
            self.add(format_args!("{between}{x:.1},{y:.1}"));
        }
        self.out.push_str("\"/>\n");
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, class: &str, text: &str) {
        if !text.is_empty() {
            self.add(format_args!(
                "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>\n",
                escape(text)
            ));
        }
    }
}

/// Escapes text for XML and HTML, as content or in an attribute. Replaces characters that these
/// cannot contain or that control the display.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(char),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            char if is_control(char) => escaped.push('\u{fffd}'),
            char => escaped.push(char),
        }
    }
    escaped
}

/// Estimates the width of a text in pixels, for a common sans-serif font, rounded up.
pub(super) fn text_width(text: &str, size_px: f64) -> f64 {
    let em = |char: char| match char {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '|' | '\'' | '!' => 0.3,
        'f' | 'r' | 't' | 'I' | ' ' | '/' | '(' | ')' | '-' => 0.4,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.92,
        'A'..='Z' => 0.7,
        ' '..='~' | 'µ' | '±' | '×' => 0.6,
        _ => 1.0,
    };
    text.chars().map(em).sum::<f64>() * size_px
}

/// Truncates a text to a width, with an ellipsis.
pub(super) fn shorten(text: &str, width_px: f64, size_px: f64) -> String {
    if text_width(text, size_px) <= width_px {
        return text.to_string();
    }
    let room_px = width_px - text_width("…", size_px);
    let mut short = String::new();
    let mut taken_px = 0.0;
    for char in text.chars() {
        taken_px += text_width(char.encode_utf8(&mut [0; 4]), size_px);
        if taken_px > room_px {
            break;
        }
        short.push(char);
    }
    short.push('…');
    short
}
