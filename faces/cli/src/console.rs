//! The terminal: how wide, whether in colour, and who asked us to stop.

use handover_report::Style;
use std::io::{IsTerminal, stderr, stdout};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Width taken where there is no terminal to ask.
const WIDTH_DEFAULT: usize = 120;
const WIDTH_MIN: usize = 30;

/// Columns of the terminal, or of `COLUMNS`.
pub fn width() -> usize {
    let asked = std::env::var("COLUMNS").ok().and_then(|text| text.parse::<usize>().ok());
    let seen = || terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    asked.or_else(seen).unwrap_or(WIDTH_DEFAULT).max(WIDTH_MIN)
}

/// How standard output is written to.
pub fn style(all: bool) -> Style {
    let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
    Style { color: stdout().is_terminal() && !no_color() && !dumb, unicode: unicode(), all }
}

/// Whether a progress bar makes sense.
pub fn bar_wanted() -> bool {
    stderr().is_terminal()
}

fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty())
}

/// The locale says UTF-8, or says nothing at all.
fn unicode() -> bool {
    let said = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|text| !text.is_empty()));
    said.is_none_or(|text| {
        let text = text.to_ascii_lowercase();
        text.contains("utf-8") || text.contains("utf8")
    })
}

/// A flag that SIGINT and SIGTERM raise. A second one ends the process at once, with 130.
///
/// # Errors
/// The system refuses the handler.
pub fn interrupted() -> std::io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The order matters: the first signal only raises the flag, the second finds it raised.
        signal_hook::flag::register_conditional_shutdown(signal, 130, flag.clone())?;
        signal_hook::flag::register(signal, flag.clone())?;
    }
    Ok(flag)
}
