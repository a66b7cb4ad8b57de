//! Periodic sweep for incomplete frames and oversized receive buffers.

use super::State;
use crate::{Gone, clock};

/// Maximum number of sweeps that may find the same frame incomplete.
const SWEEPS_MAX: u32 = 8;
/// Time between two sweeps if `message_timeout_ms` is 0, in ms.
const SWEEP_MS: u32 = 4_000;

impl State {
    #[cold]
    pub(super) fn sweep_later(&mut self) {
        let every_ms = match self.config.message_timeout_ms {
            0 => SWEEP_MS,
            timeout_ms => (timeout_ms / SWEEPS_MAX).max(1),
        };
        self.sweep_at_ns = clock::now_ns() + u64::from(every_ms) * 1_000_000;
    }

    /// Disconnects peers that do not finish a frame, and frees buffers that were not needed lately.
    /// The limit counts sweeps, not time: while this endpoint is not driven, peers are not blamed
    /// for bytes that were not read.
    #[cold]
    pub(super) fn sweep(&mut self) {
        self.sweep_at_ns = u64::MAX;
        let has_limit = self.config.message_timeout_ms > 0;
        let mut wanted = false;
        for at in (0..self.active.len()).rev() {
            let key = self.key(self.active[at]);
            let Some(link) = self.link(key) else { continue };
            let sweeps_count = link.sweep();
            wanted |= link.wants_sweep();
            if has_limit && sweeps_count > SWEEPS_MAX {
                self.close(key, &Gone::Stalled);
            }
        }
        if wanted {
            self.sweep_later();
        }
    }
}
