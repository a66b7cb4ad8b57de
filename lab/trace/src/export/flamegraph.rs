//! Flame graph as an SVG page: a bar for each call stack, as wide as its time, below the bar of its
//! caller.

use super::sink::ExportBuffer;
use crate::names::SiteNames;
use crate::text::saturating_sum;
use crate::tree::{CallTree, TreeLine};
use handover_base::units::format_ns;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Height of a bar in pixels.
const BAR_PX: usize = 18;
/// Minimum share of the whole time for which a bar is drawn. A smaller bar would be narrower
/// than a quarter of a pixel.
const SHARE_MIN: f64 = 0.0002;

/// Beginning of the SVG page: styles and a script. The script enlarges a bar to the whole width
/// when it is clicked.
const HEAD: &str = include_str!("flamegraph-head.svg");

/// Writes all call stacks as a flame graph, an SVG page. A click on a bar enlarges it.
pub fn write_flamegraph<W: Write>(
    tree: &CallTree,
    names: &SiteNames,
    sink: &mut ExportBuffer<W>,
) -> io::Result<()> {
    let lines = tree.lines(names, usize::MAX);
    let roots = lines.iter().filter(|line| line.level == 0);
    let whole_ns = saturating_sum(roots.map(|line| line.total_ns)).max(1);
    let levels_count = lines.iter().map(|line| line.level + 1).max().unwrap_or(0);
    let height_px = levels_count * BAR_PX;
    sink.buffer_mut().extend(HEAD.replace("HEIGHT", &height_px.to_string()).into_bytes());
    // Time at which the next bar of each level begins.
    let mut next_ns = vec![0u64];
    for line in &lines {
        let begin_ns = next_ns[line.level];
        next_ns.truncate(line.level);
        next_ns.extend([begin_ns.saturating_add(line.total_ns), begin_ns]);
        if line.total_ns as f64 >= SHARE_MIN * whole_ns as f64 {
            let bar = format_bar(line, begin_ns, whole_ns);
            sink.buffer_mut().extend(bar.into_bytes());
            sink.flush_if_full()?;
        }
    }
    sink.buffer_mut().extend(b"</svg>\n");
    Ok(())
}

/// Returns the SVG element of a line's bar.
fn format_bar(line: &TreeLine, begin_ns: u64, whole_ns: u64) -> String {
    let percent = |ns: u64| ns as f64 * 100.0 / whole_ns as f64;
    let (x, width, y) = (percent(begin_ns), percent(line.total_ns), line.level * BAR_PX);
    // A hue between red and yellow, the same for all bars of a function.
    let hash = |hash: u32, byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte));
    let hue = line.name.bytes().fold(0, hash) % 55;
    let name = escape(&line.name);
    let (total, own) = (format_ns(line.total_ns as f64), format_ns(line.self_ns as f64));
    let mut bar = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        bar,
        "<svg data-x=\"{x:.4}\" data-w=\"{width:.4}\" x=\"{x:.4}%\" y=\"{y}\" width=\"{width:.4}%\" height=\"{BAR_PX}\">\
         <title>{name}: {total}, {width:.2} %; self {own}; {} calls</title>\
         <rect width=\"100%\" height=\"100%\" fill=\"hsl({hue} 80% 70%)\"/><text x=\"3\" y=\"13\">{name}</text></svg>",
        line.calls
    );
    bar
}

/// Escapes the text for XML. Replaces control characters, which XML forbids.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_with_a_long_name_and_markup_has_a_bar() {
        let name = format!("map<{}>", "\u{fe}&".repeat(100));
        let line = TreeLine { level: 2, name, calls: 3, total_ns: 50, self_ns: 20 };
        let bar = format_bar(&line, 25, 100);
        assert!(bar.contains("x=\"25.0000%\" y=\"36\" width=\"50.0000%\""), "{bar}");
        assert!(bar.contains("<title>map&lt;\u{fe}&amp;") && bar.contains("; 3 calls"), "{bar}");
    }
}
