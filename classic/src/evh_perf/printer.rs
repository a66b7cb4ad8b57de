//! Output lines of the classic program.

use indicatif::HumanCount;
use serde_json::Value;
use std::fmt::Arguments;
use std::io::{self, Write};

/// Line that separates blocks of the output.
const RULE: &str = "----------------------------------------------------------------------------------------------------";

/// Printer of lines in the classic program's format. Prints nothing if JSON output is requested.
pub struct Printer<'a> {
    out: &'a mut dyn Write,
    is_quiet: bool,
}

impl<'a> Printer<'a> {
    pub fn new(out: &'a mut dyn Write, is_quiet: bool) -> Self {
        Self { out, is_quiet }
    }

    /// Prints the line that separates blocks.
    pub fn print_rule(&mut self) -> io::Result<()> {
        self.print_plain(format_args!("{RULE}"))
    }

    /// Prints a line without the time of day.
    pub fn print_plain(&mut self, text: Arguments<'_>) -> io::Result<()> {
        match self.is_quiet {
            true => Ok(()),
            false => writeln!(self.out, "{text}"),
        }
    }

    /// Prints a line that starts with the time of day.
    pub fn print_timed(&mut self, text: Arguments<'_>) -> io::Result<()> {
        let now = jiff::Zoned::now();
        self.print_plain(format_args!("[{}]: {text}", now.strftime("%Y-%m-%d %H:%M:%S%.3f")))
    }

    pub fn print_info(&mut self, text: Arguments<'_>) -> io::Result<()> {
        self.print_timed(format_args!("(INFO)  {text}"))
    }

    pub fn print_warn(&mut self, text: Arguments<'_>) -> io::Result<()> {
        self.print_timed(format_args!("(WARN)  {text}"))
    }

    pub fn print_error(&mut self, text: Arguments<'_>) -> io::Result<()> {
        self.print_timed(format_args!("(ERROR) {text}"))
    }

    pub fn print_debug(&mut self, text: Arguments<'_>) -> io::Result<()> {
        self.print_timed(format_args!("(DEBUG) {text}"))
    }

    /// Prints the program's role, and the settings by name.
    pub fn print_settings(&mut self, role: &str, settings: &[(&str, String)]) -> io::Result<()> {
        self.print_timed(format_args!("evh_perf {role}/{}", env!("CARGO_PKG_VERSION")))?;
        self.print_rule()?;
        for (name, value) in settings {
            self.print_timed(format_args!("{:<23} '{value}'", format!("{name}:")))?;
        }
        self.print_rule()
    }

    /// Prints a JSON document, which replaces all lines.
    pub fn print_document(&mut self, document: &Value) -> io::Result<()> {
        writeln!(self.out, "{document}")
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Formats a whole number with commas: `20,000,000`.
pub fn format_with_commas(number: u64) -> String {
    HumanCount(number).to_string()
}

/// Formats a time in ns as seconds with two decimals.
pub fn format_seconds(ns: u64) -> String {
    format!("{:.2}s", ns as f64 / 1e9)
}

/// Formats a time in ns as microseconds with two decimals.
pub fn format_micros(ns: f64) -> String {
    format!("{:.2}µs", ns / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_print_format_with_commas_and_two_decimals() {
        assert_eq!(format_with_commas(20_000_000), "20,000,000");
        assert_eq!(
            (format_with_commas(999), format_with_commas(1000), format_with_commas(0)),
            ("999".into(), "1,000".into(), "0".into())
        );
        assert_eq!(format_seconds(7_850_000_000), "7.85s");
        assert_eq!(format_micros(42_679_070.0), "42679.07µs");
    }

    #[test]
    fn setting_prints_a_line_with_its_value_in_quotes() {
        let mut out = Vec::new();
        let settings =
            [("max_handles_per_thread", format_with_commas(300)), ("min", "3".to_string())];
        Printer::new(&mut out, false).print_settings("Client", &settings).expect("write to memory");
        let text = String::from_utf8(out).expect("the output is not UTF-8");
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("]: evh_perf Client/"), "{text}");
        assert_eq!((lines[1].len(), lines[1], lines[4]), (100, RULE, RULE));
        assert!(lines[2].ends_with("]: max_handles_per_thread: '300'"), "{text}");
        assert!(lines[3].ends_with("]: min:                    '3'"), "{text}");
    }
}
