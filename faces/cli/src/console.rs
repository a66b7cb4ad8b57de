//! The terminal: how wide, whether in colour, and who asked us to stop.

use handover_report::Style;
use std::fmt;
use std::io::{self, IsTerminal, Read, Stdout, Write, stderr, stdout};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// Width taken where there is no terminal to ask.
const WIDTH_DEFAULT: usize = 120;
const WIDTH_MIN: usize = 30;

/// Standard output. Its errors say that they are its own.
pub struct Out(Stdout);

/// Standard output.
pub fn out() -> Out {
    Out(stdout())
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(of_output)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(of_output)
    }
}

/// Makes an error of standard output say so.
pub fn of_output(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("standard output: {error}"))
}

/// Writes one line to standard error, whatever words of the user's it repeats: their control characters
/// are escaped. What cannot be told there (its reader has gone, its disk is full) is lost, and ends
/// nothing.
pub fn tell(line: impl fmt::Display) {
    let mut text = String::new();
    for c in line.to_string().chars() {
        if c.is_control() {
            text.extend(c.escape_default());
        } else {
            text.push(c);
        }
    }
    text.push('\n');
    let _ = stderr().lock().write_all(text.as_bytes());
}

/// Columns of the terminal, or of `COLUMNS`.
pub fn width() -> usize {
    let asked = std::env::var("COLUMNS").ok().and_then(|text| text.parse::<usize>().ok());
    let seen = || terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    asked.or_else(seen).unwrap_or(WIDTH_DEFAULT).max(WIDTH_MIN)
}

/// How standard output is written to.
pub fn style(all: bool) -> Style {
    Style { color: stdout().is_terminal() && !no_color() && !is_dumb(), unicode: unicode(), all }
}

/// Whether a view that fills the terminal is welcome: on one that can, and where colour is not declined.
pub fn live_wanted() -> bool {
    stderr().is_terminal() && !no_color() && !is_dumb()
}

/// Whether a progress bar makes sense.
pub fn bar_wanted() -> bool {
    stderr().is_terminal()
}

fn is_dumb() -> bool {
    std::env::var("TERM").is_ok_and(|term| term == "dumb")
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

/// Lets a write beyond the limit of a file's size fail, as one to a full disk does, where the signal
/// would end the process.
///
/// # Errors
/// The system refuses the handler.
pub fn outlive_file_size_limit() -> io::Result<()> {
    let nobody_asks = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, nobody_asks).map(drop)
}

/// What asks a program to end.
const SIGNALS: [i32; 2] = [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM];
/// The exit code of one that was asked twice.
const INTERRUPTED: i32 = 130;

/// A flag that SIGINT and SIGTERM raise. A second one ends the process at once, with 130.
///
/// # Errors
/// The system refuses the handler.
pub fn interrupted() -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in SIGNALS {
        // The order matters: the first signal only raises the flag, the second finds it raised.
        signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED, flag.clone())?;
        signal_hook::flag::register(signal, flag.clone())?;
    }
    Ok(flag)
}

/// The same, with something to be done before a second one ends the process: more than a signal's handler
/// may do, and hence in a thread that sleeps until there is a signal.
///
/// # Errors
/// The system refuses the handler, or the thread.
pub fn interrupted_after(farewell: fn()) -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let (mut signals, told) = UnixStream::pair()?;
    for signal in SIGNALS {
        signal_hook::flag::register(signal, flag.clone())?;
        signal_hook::low_level::pipe::register(signal, told.try_clone()?)?;
    }
    thread::Builder::new().name("signals".into()).spawn(move || {
        let mut one = [0];
        for _ in 0..2 {
            if signals.read_exact(&mut one).is_err() {
                return;
            }
        }
        let (said, heard) = channel();
        let last = thread::Builder::new().name("farewell".into()).spawn(move || {
            farewell();
            said.send(())
        });
        // A terminal that takes nothing any more does not keep the process.
        let _ = last.map(|_| heard.recv_timeout(FAREWELL_MAX));
        signal_hook::low_level::exit(INTERRUPTED);
    })?;
    Ok(flag)
}

/// What is to be done before the end may take so long.
const FAREWELL_MAX: Duration = Duration::from_millis(500);
