//! Requests that another process writes into this process's memory; no thread here waits for them.

use crate::config::{Config, Policy};
use crate::environment;
use crate::format::checksum;
use crate::site::CONTROL;
use std::time::Duration;

/// Length in bytes of the last line of a request, which contains the checksum.
const CHECKSUM_BYTES: usize = 17;
/// Maximum number of attempts to read a request while another process is writing it.
const READ_ATTEMPTS_MAX: u32 = 20;
/// Delay between two attempts to read a request.
const READ_RETRY_DELAY: Duration = Duration::from_micros(50);

/// Returns the configuration of the recording that another process has requested in this process's
/// memory. Returns `None` if there is no request. The request has a line each for the file, the
/// policy, the ring's size, the wait, the maximum number of threads, the path of the rings (empty
/// for the default), the time of the request, and the checksum of these.
pub(crate) fn pending_request() -> Option<Config> {
    for _ in 0..READ_ATTEMPTS_MAX {
        let text = CONTROL.written_bytes();
        if text.is_empty() {
            return None;
        }
        if let Some(request) = parse_request(text) {
            return Some(request);
        }
        std::thread::sleep(READ_RETRY_DELAY);
    }
    None
}

/// Returns `lines` followed by a line with their checksum. A reader needs it because the text may
/// be incomplete when read.
pub(crate) fn with_checksum(lines: &str) -> String {
    format!("{lines}{:016x}\n", checksum(lines.as_bytes()))
}

/// Parses a request with its checksum; `None` if it is incomplete or invalid.
pub(crate) fn parse_request(text: Vec<u8>) -> Option<Config> {
    let text = String::from_utf8(text).ok()?;
    let (text, sum) = text.split_at_checked(text.len().checked_sub(CHECKSUM_BYTES)?)?;
    let checksum = checksum(text.as_bytes());
    if sum.trim_end() != format!("{checksum:016x}") {
        return None;
    }
    let mut lines = text.lines();
    let file = lines.next().filter(|file| !file.is_empty())?;
    let policy: Policy = lines.next()?.parse().ok()?;
    let ring_bytes = lines.next().and_then(|text| environment::parse_bytes(text).ok());
    let wait = lines.next().and_then(|text| environment::parse_milliseconds(text).ok());
    // These lines are missing in the request of an earlier version of this crate.
    let threads_max = lines.next().and_then(|text| text.parse().ok());
    let rings_path = lines.next().filter(|path| !path.is_empty());
    let mut config =
        environment::build_config(file, policy, ring_bytes).wait_max(wait.unwrap_or_default());
    if let Some(threads_max) = threads_max {
        config = config.threads_max(threads_max);
    }
    if let Some(path) = rings_path {
        config = config.rings_path(path);
    }
    Some(config)
}
