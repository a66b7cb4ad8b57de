//! The demos' log lines: `[45094.050127|21685|DEMO1EVM] QUIT timer set: 60 s`, on standard output
//! or in the system log.

use anyhow::Context;
use handover_event::{Stopper, Verbosity};
use handover_program::console;
use rustix::time::{ClockId, clock_gettime};
use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span;
use tracing::{Event, Level, Metadata, Subscriber};

/// Tracing target of the demos' own lines, which are shown with the demo's tag.
pub const TRACING_TARGET: &str = "handover::hello";

const SYSLOG_PATH: &str = "/dev/log";
/// Syslog facility of user-level programs, in the bits of a priority.
const FACILITY_USER: u8 = 1 << 3;

/// `tracing` subscriber that prints the demos' lines. It reads the clock only for lines that it
/// prints.
pub struct DemoLog {
    /// Name of the demo in the header of each line.
    tag: &'static str,
    verbosity: Verbosity,
    has_header: bool,
    /// Socket of the system log, if lines go there.
    syslog: Option<UnixDatagram>,
    first_write_error: Mutex<Option<io::Error>>,
    /// Handle that stops the machine when a line cannot be written.
    failure_stopper: OnceLock<Stopper>,
}

impl DemoLog {
    pub fn new(
        tag: &'static str,
        verbosity: Verbosity,
        has_header: bool,
        syslog: bool,
    ) -> anyhow::Result<DemoLog> {
        let syslog = match syslog {
            true => Some(connect_to_syslog(Path::new(SYSLOG_PATH)).with_context(|| {
                format!("-s: {SYSLOG_PATH} does not answer; start a syslog daemon, or omit -s")
            })?),
            false => None,
        };
        Ok(DemoLog {
            tag,
            verbosity,
            has_header,
            syslog,
            first_write_error: Mutex::default(),
            failure_stopper: OnceLock::new(),
        })
    }

    /// Sets the handle that stops the machine when a line cannot be written.
    pub fn set_failure_stopper(&self, stopper: Stopper) {
        // A process runs one demo, so the stopper is set only once.
        let _ = self.failure_stopper.set(stopper);
    }

    /// Removes the first write error, and returns it as `Err`.
    ///
    /// # Errors
    /// The first write error; a second call returns `Ok`.
    pub fn take_write_error(&self) -> io::Result<()> {
        self.locked_write_error().take().map_or(Ok(()), Err)
    }

    fn locked_write_error(&self) -> MutexGuard<'_, Option<io::Error>> {
        self.first_write_error.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Formats a line with a header of time, thread id and tag.
    fn format_line(&self, metadata: &Metadata<'_>, text: &str) -> String {
        let tag = if metadata.target().starts_with(TRACING_TARGET) {
            self.tag
        } else {
            metadata.target()
        };
        if !self.has_header {
            return format!("{text}\n");
        }
        let now = clock_gettime(ClockId::Monotonic);
        let (seconds, micros) = (now.tv_sec % 100_000, now.tv_nsec / 1000);
        let thread = rustix::thread::gettid();
        format!("[{seconds:05}.{micros:06}|{thread}|{tag}] {text}\n")
    }

    /// Writes a line to the system log; without it, to standard error or standard output.
    fn write(&self, level: Level, line: &str) -> io::Result<()> {
        if let Some(syslog) = &self.syslog {
            let head = syslog_header(level);
            let line = line.trim_end();
            return syslog.send(format!("{head}{line}").as_bytes()).map(drop);
        }
        if level <= Level::WARN {
            console::print_error(line.trim_end());
            return Ok(());
        }
        let mut out = console::standard_output();
        out.write_all(line.as_bytes())?;
        out.flush()
    }
}

fn connect_to_syslog(path: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    Ok(socket)
}

/// Returns the header of a syslog entry: `<13>Nov 22 01:02:03 handover[77]: `.
fn syslog_header(level: Level) -> String {
    let severity = match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 5, // severity "notice", as in the originals
        Level::DEBUG => 6,
        Level::TRACE => 7,
    };
    let now = jiff::Zoned::now().strftime("%b %e %H:%M:%S").to_string();
    format!("<{}>{now} handover[{}]: ", FACILITY_USER | severity, std::process::id())
}

/// Text of a log line: the event's message, then its other fields as ` name=value`.
#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

impl Subscriber for DemoLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && self.verbosity.allows(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::from_level(self.verbosity.level()))
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let line = self.format_line(event.metadata(), &text.0);
        if let Err(error) = self.write(*event.metadata().level(), &line) {
            self.locked_write_error().get_or_insert(error);
            if let Some(stopper) = self.failure_stopper.get() {
                stopper.stop();
            }
        }
    }

    // No spans: `enabled` accepts events only.
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Logs one line of each level, and returns the entries that a system log received.
    fn received(verbosity: Verbosity, has_header: bool) -> Vec<String> {
        let folder = tempfile::tempdir().expect("create a temporary folder");
        let path = folder.path().join("log");
        let listens = UnixDatagram::bind(&path).expect("bind a socket");
        let mut log = DemoLog::new("DEMO9EVM", verbosity, has_header, false).expect("a log");
        log.syslog = Some(connect_to_syslog(&path).expect("it listens"));
        tracing::subscriber::with_default(log, || {
            tracing::error!(target: TRACING_TARGET, "bad");
            tracing::info!(target: TRACING_TARGET, "QUIT timer set: {} s", 60);
            tracing::debug!(target: "other::module", kind = 7, "seen");
        });
        listens.set_nonblocking(true).expect("make the socket non-blocking");
        let mut buffer = [0; 512];
        let mut lines = Vec::new();
        while let Ok(count) = listens.recv(&mut buffer) {
            lines.push(
                String::from_utf8(buffer[..count].to_vec()).expect("the output is not UTF-8"),
            );
        }
        lines
    }

    #[test]
    fn syslog_line_has_priority_and_program_name() {
        let lines = received(Verbosity::Verbose, false);
        let form = |priority: u8, text: &str| {
            let head = r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d handover\[\d+\]: ";
            regex_lite::Regex::new(&format!("^<{priority}>{head}{text}$"))
                .expect("compile the pattern")
        };
        let texts = [(11, "bad"), (13, "QUIT timer set: 60 s"), (14, "seen kind=7")];
        assert_eq!(lines.len(), texts.len(), "{lines:?}");
        for (line, (priority, text)) in lines.iter().zip(texts) {
            assert!(form(priority, text).is_match(line), "{line}");
        }
    }

    #[test]
    fn header_has_time_thread_and_module() {
        let lines = received(Verbosity::Verbose, true);
        for (line, tag) in lines.iter().zip(["DEMO9EVM", "DEMO9EVM", "other::module"]) {
            let form = regex_lite::Regex::new(&format!(r": \[\d{{5}}\.\d{{6}}\|\d+\|{tag}\] \w"));
            assert!(form.expect("compile the pattern").is_match(line), "{line}");
        }
    }

    #[test]
    fn quiet_prints_errors_only_and_normal_no_details() {
        assert_eq!(received(Verbosity::Quiet, false).len(), 1);
        assert_eq!(received(Verbosity::Normal, false).len(), 2);
    }
}
