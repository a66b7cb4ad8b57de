//! Handlers that return when the test says so, and not after a time.

use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// Bound on a wait that a failed test would make endless.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Returns a function that blocks, in any number of threads, until the sender is dropped.
pub fn gate() -> (Sender<()>, impl Fn() + Send + Sync + 'static) {
    let (open, opened) = channel();
    let opened = Mutex::new(opened);
    let wait = move || {
        // An error either way: nothing is sent.
        let _ = opened.lock().unwrap().recv_timeout(WAIT_MAX);
    };
    (open, wait)
}
