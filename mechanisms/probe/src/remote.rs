//! What another process asks of this one: it writes into this one's memory, and nobody here waits for it.

use crate::config::{Config, Policy};
use crate::environment;
use crate::site::Meta;
use handover_base::sync::shared::{AtomicBool, AtomicU8, Ordering};

/// Room for what the other process wants recorded, and how.
pub(crate) const CONTROL_BYTES: usize = 1024;
/// It is found by its entry in the section, and written to by `/proc/PID/mem`.
pub(crate) static CONTROL: Meta<[AtomicU8; CONTROL_BYTES]> = Meta::control();

static IS_FORGOTTEN: AtomicBool = AtomicBool::new(false);

/// What was left there: a line for the file, one for the policy, one for the size of a ring, and one for
/// the wait, which who does not know of waiting leaves out.
pub(crate) fn plan() -> Option<Config> {
    if IS_FORGOTTEN.load(Ordering::Relaxed) {
        return None;
    }
    let text = String::from_utf8(CONTROL.written()).ok()?;
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
