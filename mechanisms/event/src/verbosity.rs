//! Levels of logging, as in the classic event machines.

use core::fmt;
use core::str::FromStr;
use tracing::{Level, Metadata};

/// Level of logging: quiet, normal, verbose, trace or debug. Each word stands for a `tracing` level
/// and a choice of event targets. The classic event machines have the same levels.
///
/// | word | lets through | of this crate |
/// |---|---|---|
/// | quiet | ERROR | a handler panicked |
/// | normal | WARN and INFO too | a kind of message without handler; a signal that stops |
/// | verbose | DEBUG too | a run ends; a thread sleeps in epoll from now on |
/// | trace | TRACE of targets that end in `::stage` | nothing yet: for each stage of a hand-over |
/// | debug | all of TRACE | nothing yet |
///
/// A target is a module: `handover_event::machine`, `handover_event::descriptor`. The subscriber's
/// filter selects events by module; [`allows`](Self::allows) is the rule for one module, for a
/// subscriber without a filter of its own.
///
/// An event that is not printed costs a load and a branch. `tracing` asks the subscriber first;
/// only then does the subscriber read a clock or format text.
///
/// ```
/// use handover_event::Verbosity;
/// assert_eq!("verbose".parse(), Ok(Verbosity::Verbose));
/// assert!(Verbosity::Normal < Verbosity::Debug);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Verbosity {
    /// Only errors are logged.
    Quiet,
    /// Errors, warnings and information for operators are logged. This is the default.
    #[default]
    Normal,
    /// In addition to `Normal`, the main events of a run are logged.
    Verbose,
    /// In addition to `Verbose`, `TRACE` events of targets that end in `::stage` are logged.
    Trace,
    /// Events of all levels and targets are logged.
    Debug,
}

impl Verbosity {
    /// Returns the highest `tracing` level that this verbosity can log, for a static filter.
    #[must_use]
    pub fn level(self) -> Level {
        match self {
            Verbosity::Quiet => Level::ERROR,
            Verbosity::Normal => Level::INFO,
            Verbosity::Verbose => Level::DEBUG,
            Verbosity::Trace | Verbosity::Debug => Level::TRACE,
        }
    }

    /// Returns `true` if the event with this metadata is to be logged; for a subscriber's
    /// `enabled`.
    #[must_use]
    pub fn allows(self, metadata: &Metadata<'_>) -> bool {
        self.allows_at(*metadata.level(), metadata.target())
    }

    fn allows_at(self, level: Level, target: &str) -> bool {
        level <= self.level()
            && (level != Level::TRACE || self == Verbosity::Debug || target.ends_with("::stage"))
    }
}

/// Error of parsing a text that is not the name of a [`Verbosity`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a verbosity: write quiet, normal, verbose, trace or debug")]
pub struct VerbosityError {
    text: String,
}

impl FromStr for Verbosity {
    type Err = VerbosityError;

    fn from_str(text: &str) -> Result<Self, VerbosityError> {
        match text {
            "quiet" => Ok(Verbosity::Quiet),
            "normal" => Ok(Verbosity::Normal),
            "verbose" => Ok(Verbosity::Verbose),
            "trace" => Ok(Verbosity::Trace),
            "debug" => Ok(Verbosity::Debug),
            _ => Err(VerbosityError { text: text.to_owned() }),
        }
    }
}

impl fmt::Display for Verbosity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verbosity::Quiet => "quiet",
            Verbosity::Normal => "normal",
            Verbosity::Verbose => "verbose",
            Verbosity::Trace => "trace",
            Verbosity::Debug => "debug",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_verbosity_allows_more_than_the_previous_one() {
        let events = [
            (Level::ERROR, "m", Verbosity::Quiet),
            (Level::WARN, "m", Verbosity::Normal),
            (Level::INFO, "m", Verbosity::Normal),
            (Level::DEBUG, "m", Verbosity::Verbose),
            (Level::TRACE, "m::stage", Verbosity::Trace),
            (Level::TRACE, "m", Verbosity::Debug),
        ];
        let all = [
            Verbosity::Quiet,
            Verbosity::Normal,
            Verbosity::Verbose,
            Verbosity::Trace,
            Verbosity::Debug,
        ];
        for (level, target, first) in events {
            for word in all {
                assert_eq!(word.allows_at(level, target), word >= first, "{word} {level} {target}");
            }
        }
    }

    #[test]
    fn verbosity_round_trips_as_text_and_other_words_are_refused() {
        for word in ["quiet", "normal", "verbose", "trace", "debug"] {
            assert_eq!(word.parse::<Verbosity>().map(|word| word.to_string()), Ok(word.to_owned()));
        }
        let refused = "loud".parse::<Verbosity>().expect_err("no such word");
        assert_eq!(
            refused.to_string(),
            "\"loud\" is not a verbosity: write quiet, normal, verbose, trace or debug"
        );
    }
}
