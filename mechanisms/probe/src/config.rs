//! Configuration of a recording.

use crate::error::StartError;
use handover_base::range::{self, OutOfRange};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Policy of a recording: keep only each thread's newest events, or write all events to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Only each thread's newest events are kept, in memory of a fixed size. The rings are the
    /// trace file.
    Last,
    /// All events are written to the file during the recording, by a thread of this crate. Events
    /// are lost, and counted, if this thread is too slow.
    Stream,
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Policy::Last => "last",
            Policy::Stream => "stream",
        })
    }
}

/// Configuration of a [`Recording`](crate::Recording).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    path: PathBuf,
    policy: Policy,
    /// Size of each thread's ring in bytes, before rounding.
    pub(crate) ring_bytes: u64,
    /// Maximum number of rings, and so of threads recorded at a time.
    pub(crate) threads_max: u64,
    /// Path of the file of rings of a stream; `None` for the default.
    pub(crate) rings_path: Option<PathBuf>,
    /// Maximum time that a thread waits for space in its ring.
    pub(crate) wait_max: Duration,
}

/// Minimum size of a ring in bytes.
const RING_BYTES_MIN: u64 = 1 << 13;
/// Maximum size of a ring in bytes.
const RING_BYTES_MAX: u64 = 1 << 32;
/// Maximum of [`Config::threads_max`].
const THREADS_MAX: u64 = 1 << 16;
/// Maximum of [`Config::wait_max`], in ms.
const WAIT_MS_MAX: u64 = 3_600_000;

impl Config {
    /// Returns a configuration that records each thread's newest events into the trace `path`.
    /// Rings of 1 MiB a thread hold about 130,000 events.
    ///
    /// Events reach the file by stores to mapped memory. On a disk, the kernel's write-back can
    /// delay a thread now and then; in `/dev/shm` nothing does.
    #[must_use]
    pub fn last(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            policy: Policy::Last,
            ring_bytes: 1 << 20,
            threads_max: 256,
            rings_path: None,
            wait_max: Duration::ZERO,
        }
    }

    /// Returns a configuration that records all events into the trace `path`. Each thread has a
    /// ring of 4 MiB: at ten million events a second, enough for 50 ms in which the writing thread
    /// does not run.
    #[must_use]
    pub fn stream(path: impl Into<PathBuf>) -> Self {
        Self { policy: Policy::Stream, ring_bytes: 1 << 22, ..Self::last(path) }
    }

    /// Sets the size of each thread's ring in bytes, rounded up to a power of two. The range is
    /// `8 KiB..=4 GiB`.
    #[must_use]
    pub fn ring_bytes(self, ring_bytes: u64) -> Self {
        Self { ring_bytes, ..self }
    }

    /// Sets the maximum number of threads recorded at a time, `1..=65536`. Each has a ring. A
    /// further thread reuses the ring of a thread that has exited (with [`Policy::Last`] the old
    /// events are discarded, and counted as overwritten). If no thread has exited, the events of
    /// the further thread are lost and counted.
    #[must_use]
    pub fn threads_max(self, threads_max: u64) -> Self {
        Self { threads_max, ..self }
    }

    /// Sets the path of the file that holds the rings of a stream. The file exists while the stream
    /// is recorded. The default is a file in `/dev/shm`, or in the trace's folder if `/dev/shm`
    /// does not exist or is not writable.
    #[must_use]
    pub fn rings_path(self, path: impl Into<PathBuf>) -> Self {
        Self { rings_path: Some(path.into()), ..self }
    }

    /// Sets the maximum time that a thread waits for space in its ring. It is zero by default, and
    /// an hour at most. For [`Policy::Stream`]: a program that may be slowed down then loses
    /// nothing, however fast it is.
    ///
    /// After an unsuccessful wait (if the disk hangs, for example), the thread's events are lost
    /// without waiting until there is space again.
    #[must_use]
    pub fn wait_max(self, wait: Duration) -> Self {
        Self { wait_max: wait, ..self }
    }

    /// Returns the path of the trace.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the policy of the recording.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Returns this configuration with the trace's path `path`, and the default path for rings.
    pub(crate) fn with_path(&self, path: PathBuf) -> Self {
        Self { path, rings_path: None, ..self.clone() }
    }

    /// Returns the maximum number of rings.
    pub(crate) fn threads_count_max(&self) -> usize {
        usize::try_from(self.threads_max).unwrap_or(usize::MAX)
    }

    /// Returns the number of words of each thread's ring, a power of two.
    pub(crate) fn ring_words(&self) -> u64 {
        self.ring_bytes.next_power_of_two() / 8
    }

    /// Returns the maximum wait in milliseconds, rounded up.
    pub(crate) fn wait_ms(&self) -> u64 {
        u64::try_from(self.wait_max.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }

    /// Checks that all numbers are within their bounds.
    ///
    /// # Errors
    /// [`StartError::OutOfRange`] names the first number that is not.
    pub fn validate(&self) -> Result<(), StartError> {
        Ok(self.check_ranges()?)
    }

    /// Checks that all numbers are within their bounds. The error names the first number that is
    /// not.
    pub(crate) fn check_ranges(&self) -> Result<(), OutOfRange> {
        range::check("ring_bytes", self.ring_bytes, RING_BYTES_MIN, RING_BYTES_MAX)?;
        range::check("threads_max", self.threads_max, 1, THREADS_MAX)?;
        range::check("wait_max_ms", self.wait_ms(), 0, WAIT_MS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_of_range_setting_is_named_in_the_error() {
        let error = Config::last("x").ring_bytes(100).validate().unwrap_err().to_string();
        assert_eq!(error, "ring_bytes=100: must lie in 8192..=4294967296");
        assert!(Config::stream("x").threads_max(0).validate().is_err());
        let wait = Duration::from_secs(3601);
        let error = Config::stream("x").wait_max(wait).validate().unwrap_err().to_string();
        assert_eq!(error, "wait_max_ms=3601000: must lie in 0..=3600000");
        assert!(Config::stream("x").wait_max(Duration::MAX).validate().is_err());
        assert!(Config::stream("x").validate().is_ok());
    }
}
