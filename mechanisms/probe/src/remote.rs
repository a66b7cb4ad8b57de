//! What another process asks of this one: it writes into this one's memory, and nobody here waits for it.

use crate::config::{Config, Policy};
use crate::environment;
use crate::format::checksum;
use crate::site::Meta;
use handover_base::sync::shared::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

/// Room for what the other process wants recorded, and how.
pub(crate) const CONTROL_BYTES: usize = 1024;
/// It is found by its entry in the section, and written to by `/proc/PID/mem`.
pub(crate) static CONTROL: Meta<[AtomicU8; CONTROL_BYTES]> = Meta::control();

/// Bytes of the line with the checksum.
const CHECKSUM_BYTES: usize = 17;
/// How often a text is read that is just being written, and how long is waited in between.
const READINGS_MAX: u32 = 20;
const READING_STEP: Duration = Duration::from_micros(50);

static IS_FORGOTTEN: AtomicBool = AtomicBool::new(false);

/// What was left there: a line for the file, one for the policy, one for the size of a ring, one for the
/// wait, and one for the checksum of these.
pub(crate) fn plan() -> Option<Config> {
    if IS_FORGOTTEN.load(Ordering::Relaxed) {
        return None;
    }
    for _ in 0..READINGS_MAX {
        let text = CONTROL.written();
        if text.is_empty() {
            return None;
        }
        if let Some(plan) = plan_of(text) {
            return Some(plan);
        }
        std::thread::sleep(READING_STEP);
    }
    None
}

/// The text that asks for `lines`; the last line is a checksum, as it may be read while it is written.
pub(crate) fn text_of(lines: &str) -> String {
    format!("{lines}{:016x}\n", checksum(lines.as_bytes()))
}

/// What such a text asks for; `None` if it is not whole.
pub(crate) fn plan_of(text: Vec<u8>) -> Option<Config> {
    let text = String::from_utf8(text).ok()?;
    let (text, sum) = text.split_at_checked(text.len().checked_sub(CHECKSUM_BYTES)?)?;
    if sum.trim_end() != format!("{:016x}", checksum(text.as_bytes())) {
        return None;
    }
    let mut lines = text.lines();
    let file = lines.next().filter(|file| !file.is_empty())?;
    let policy: Policy = lines.next()?.parse().ok()?;
    let ring_bytes = lines.next().and_then(|text| environment::bytes(text).ok());
    let wait = lines.next().and_then(|text| environment::milliseconds(text).ok());
    Some(environment::described(file, policy, ring_bytes).wait_max(wait.unwrap_or_default()))
}

/// It cannot be followed.
pub(crate) fn forget_plan() {
    IS_FORGOTTEN.store(true, Ordering::Relaxed);
}
