//! The terminal: its width, colour and characters; and the signals that request the process to
//! stop.

use crate::raw;
use handover_report::Style;
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fmt;
use std::io::{self, IsTerminal, Read, Stdout, Write, stderr, stdout};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// Default width of the output in columns, without `COLUMNS` and a terminal.
const WIDTH_DEFAULT: usize = 120;
/// Minimum width of the output in columns, even on a narrower terminal.
const WIDTH_MIN: usize = 30;

/// Standard output, with errors whose messages name it.
pub struct StandardOutput(Stdout);

/// Returns a writer to standard output.
pub fn standard_output() -> StandardOutput {
    StandardOutput(stdout())
}

impl Write for StandardOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if raw::is_stdout_closed() {
            return Err(to_output_error(Errno::BADF.into()));
        }
        self.0.write(bytes).map_err(to_output_error)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(to_output_error)
    }
}

/// Writer that ignores writes to a standard output without a reader if the results of the program
/// are in a file as well.
pub struct OptionalOutput<'a> {
    out: &'a mut dyn Write,
    has_file: bool,
}

impl<'a> OptionalOutput<'a> {
    /// Creates a writer to `out`, the standard output. `has_file` means that the results are in a
    /// file as well.
    pub fn new(out: &'a mut dyn Write, has_file: bool) -> Self {
        Self { out, has_file }
    }

    /// Returns `value` if `error` is to be ignored.
    fn ignore_if_closed<T>(&self, error: io::Error, value: T) -> io::Result<T> {
        if self.has_file && is_output_closed(&error) { Ok(value) } else { Err(error) }
    }
}

impl Write for OptionalOutput<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes).or_else(|error| self.ignore_if_closed(error, bytes.len()))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush().or_else(|error| self.ignore_if_closed(error, ()))
    }
}

/// Prints the requested help or version, coloured on a terminal.
///
/// # Errors
/// If standard output fails.
pub fn print_help(help: &clap::Error) -> io::Result<()> {
    match raw::is_stdout_closed() {
        true => Err(to_output_error(Errno::BADF.into())),
        false => help.print().map_err(to_output_error),
    }
}

/// Error of a write to standard output.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to standard output: {0}")]
pub(crate) struct OutputError(io::Error);

/// Returns `true` if standard output is a pipe without a reader, and this is the error.
pub(crate) fn is_output_closed(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
        && error.get_ref().is_some_and(|it| it.is::<OutputError>())
}

/// Converts an error of standard output, so that it can be told from those of other files and
/// pipes.
pub(crate) fn to_output_error(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), OutputError(error))
}

/// Writes one line to standard error. Control characters are escaped, and the middle of a line
/// longer than 1,000 characters is omitted, as it may repeat an argument or a name from a file.
/// A failure to write (no reader, a full disk) is ignored.
pub fn print_error(line: impl fmt::Display) {
    let mut text = escape_control_characters(&shortened(&line.to_string()));
    text.push('\n');
    let _ = stderr().lock().write_all(text.as_bytes());
}

/// Maximum length of an error message, in characters. A longer message keeps its end, which names
/// cause and remedy.
const LINE_CHARS_MAX: usize = 1000;
/// Number of characters at the end of a message that shortening keeps.
const LINE_END_CHARS: usize = 400;

/// Replaces the middle of a message longer than [`LINE_CHARS_MAX`] by `…`.
fn shortened(line: &str) -> String {
    let count = line.chars().count();
    if count <= LINE_CHARS_MAX {
        return line.to_string();
    }
    let start: String = line.chars().take(LINE_CHARS_MAX - LINE_END_CHARS).collect();
    let end: String = line.chars().skip(count - LINE_END_CHARS).collect();
    format!("{start} … {end}")
}

/// Escapes the control characters of an untrusted text, so that it cannot control the
/// terminal.
pub fn escape_control_characters(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        match handover_report::is_control(char) {
            true => shown.extend(char.escape_default()),
            false => shown.push(char),
        }
    }
    shown
}

/// Returns the width of the output in columns, from `COLUMNS` or the terminal.
pub fn output_width() -> usize {
    requested_width().or_else(terminal_width).unwrap_or(WIDTH_DEFAULT).max(WIDTH_MIN)
}

/// Returns the maximum width of output lines, from `COLUMNS` or the terminal. Returns `None` for
/// output to a file or a pipe if `COLUMNS` is not set.
pub fn cut_width() -> Option<usize> {
    let of_terminal = || terminal_width().filter(|_| stdout().is_terminal());
    Some(requested_width().or_else(of_terminal)?.max(WIDTH_MIN))
}

/// Returns the value of `COLUMNS`, if it is a number.
fn requested_width() -> Option<usize> {
    std::env::var("COLUMNS").ok()?.parse().ok()
}

fn terminal_width() -> Option<usize> {
    Some(usize::from(terminal_size::terminal_size()?.0.0))
}

/// Shortens the lines of tables to `width` columns. Returns the text unchanged without a width. A
/// table begins at the start of the text or after an empty line, its first line is its head, and
/// columns are separated by two spaces. Only the last column is shortened.
pub fn cut_tables(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else { return text.to_string() };
    let mut cut = String::new();
    let (mut is_head, mut column) = (true, 0);
    for line in text.lines() {
        if is_head {
            column = line.trim_end().rfind("  ").map_or(0, |at| at + 2);
        }
        is_head = line.is_empty();
        cut.push_str(&cut_line(line, column, width));
        cut.push('\n');
    }
    cut
}

/// Shortens a line to `width` columns. Omits a part of its last column, which begins at `column`.
/// Two thirds of the rest of that column are its end, which tells most about a function.
pub fn cut_line(line: &str, column: usize, width: usize) -> String {
    let count = line.chars().count();
    if count <= width {
        return line.to_string();
    }
    let head = (column + width.saturating_sub(column + 1) / 3).min(width - 1);
    let end = width - 1 - head;
    let omitted = if is_unicode_locale() { '…' } else { '~' };
    let start: String = line.chars().take(head).collect();
    let end: String = line.chars().skip(count - end).collect();
    format!("{start}{omitted}{end}")
}

/// Returns the style for standard output: colour, Unicode, and all rows or some. Colour depends on
/// the terminal, and Unicode on the locale; `all` shows a row for every contender.
pub fn output_style(all: bool) -> Style {
    Style {
        color: stdout().is_terminal() && !is_color_disabled() && !is_terminal_dumb(),
        unicode: is_unicode_locale(),
        all,
    }
}

/// Returns `true` if standard error is a terminal with colours, so that the live view should be
/// used.
pub fn should_show_live_view() -> bool {
    stderr().is_terminal() && !is_color_disabled() && !is_terminal_dumb()
}

/// Returns `true` if standard error is a terminal, so that a progress bar is useful.
pub fn should_show_progress_bar() -> bool {
    stderr().is_terminal()
}

fn is_terminal_dumb() -> bool {
    std::env::var("TERM").is_ok_and(|term| term == "dumb")
}

fn is_color_disabled() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty())
}

/// Returns `true` if the locale is UTF-8 or unset.
fn is_unicode_locale() -> bool {
    let said = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|text| !text.is_empty()));
    said.is_none_or(|text| {
        let text = text.to_ascii_lowercase();
        text.contains("utf-8") || text.contains("utf8")
    })
}

/// Makes writes beyond the file size limit return an error. By default SIGXFSZ terminates the
/// process.
///
/// # Errors
/// If the signal handler cannot be installed.
pub fn ignore_file_size_signal() -> io::Result<()> {
    let unused_flag = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, unused_flag).map(drop)
}

/// Signals that ask a program to stop. A second one terminates it at once.
const STOP_SIGNALS: [i32; 2] = [SIGINT, SIGTERM];
/// Exit code of a process that a second signal terminated.
const INTERRUPTED_EXIT_CODE: i32 = 130;

/// Returns a flag that SIGINT, SIGTERM and SIGHUP (unless ignored) set. A second SIGINT or SIGTERM
/// terminates the process at once, with 130. A second SIGHUP does not: the kernel and a shell both
/// send one.
///
/// # Errors
/// If the system refuses a handler.
pub fn interrupt_flag() -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in STOP_SIGNALS {
        set_on_stop_signal(signal, &flag)?;
    }
    set_on_hangup(&flag)?;
    Ok(flag)
}

/// Returns the signals that set an [`interrupt_flag`]: SIGINT, SIGTERM, and SIGHUP unless ignored.
pub fn interrupt_signals() -> impl Iterator<Item = i32> {
    STOP_SIGNALS.into_iter().chain((!raw::is_ignored(SIGHUP)).then_some(SIGHUP))
}

/// Makes `signal` set a flag. If the flag is set already, the signal terminates the process at
/// once, with 130.
///
/// # Errors
/// If the signal handler cannot be installed.
pub fn set_on_stop_signal(signal: i32, flag: &Arc<AtomicBool>) -> io::Result<()> {
    // The order matters: the first signal only sets the flag, the second finds it set.
    signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED_EXIT_CODE, flag.clone())?;
    signal_hook::flag::register(signal, flag.clone()).map(drop)
}

/// Makes SIGHUP set a flag, unless SIGHUP is ignored.
///
/// # Errors
/// If the signal handler cannot be installed.
pub fn set_on_hangup(flag: &Arc<AtomicBool>) -> io::Result<()> {
    match raw::is_ignored(SIGHUP) {
        true => Ok(()),
        false => signal_hook::flag::register(SIGHUP, flag.clone()).map(drop),
    }
}

/// Returns a flag like [`interrupt_flag`]. Calls `last_action` before a second signal terminates
/// the process. `last_action` may do more than a signal handler may, and hence runs in a thread
/// that waits for signals.
///
/// # Errors
/// If a signal handler cannot be installed, or the thread not started.
pub fn interrupt_flag_with_cleanup(last_action: fn()) -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let (mut signals, told) = UnixStream::pair()?;
    for signal in STOP_SIGNALS {
        signal_hook::flag::register(signal, flag.clone())?;
        signal_hook::low_level::pipe::register(signal, told.try_clone()?)?;
    }
    set_on_hangup(&flag)?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        let mut one = [0];
        for _ in 0..2 {
            if signals.read_exact(&mut one).is_err() {
                return;
            }
        }
        let (said, printed) = channel();
        let last = thread::Builder::new().name("last_action".into()).spawn(move || {
            last_action();
            said.send(())
        });
        // A blocked terminal must not prevent the process from exiting.
        let _ = last.map(|_| printed.recv_timeout(LAST_ACTION_MAX));
        signal_hook::low_level::exit(INTERRUPTED_EXIT_CODE);
    })?;
    Ok(flag)
}

/// Maximum time to wait for `last_action` before the process is terminated.
const LAST_ACTION_MAX: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_line_is_cut_to_the_width_within_its_last_column() {
        let table = "self   name\n12 ns  std::vector<int>::push_back\n\ncount  mark\n    3  here\n";
        assert_eq!(cut_tables(table, None), table);
        assert_eq!(cut_tables(table, Some(34)), table);
        for width in 9..34 {
            let cut = cut_tables(table, Some(width));
            let long = cut.lines().nth(1).expect("the row");
            assert_eq!(long.chars().count(), width, "{cut}");
            assert!(long.starts_with("12 ns  "), "{cut}");
            assert!(cut.lines().all(|line| line.chars().count() <= width.max(11)), "{cut}");
        }
        let cut = cut_tables(table, Some(25));
        let long = cut.lines().nth(1).expect("the row");
        assert!(long.starts_with("12 ns  std::") && long.ends_with("::push_back"), "{cut}");
    }

    #[test]
    fn long_line_keeps_its_start_and_its_end() {
        assert_eq!(shortened("short"), "short");
        let line = format!("bad argument {}: write 1..=9", "é".repeat(100_000));
        let told = shortened(&line);
        assert_eq!(told.chars().count(), LINE_CHARS_MAX + 3);
        assert!(told.starts_with("bad argument é") && told.ends_with("é: write 1..=9"), "{told}");
    }
}
