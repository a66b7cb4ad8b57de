//! Work between handlers: due timers, errands of other threads, and dumps requested by signal.

use super::{LOG, State};
use crate::LogLevel;
use crate::clock;
use crate::drive::dump::{OnSignal, PeerDump};
use crate::drive::poll::Whose;
use crate::drive::timing::Moment;
use rustix::io::Errno;

impl State {
    pub(in crate::drive) fn note_chores(&mut self, any: bool) {
        self.chores |= any;
        self.catch_up |= any;
    }

    /// Runs due timers and errands, and writes a dump if a signal has come. Returns `true` if there
    /// was any work.
    #[cold]
    pub(super) fn do_chores(&mut self) -> bool {
        self.chores = false;
        let mut did = std::mem::take(&mut self.dump);
        if did && let Some(on_signal) = &self.on_signal {
            let written = on_signal.write(&self.dump().to_json());
            if let Err(error) = written.as_ref()
                && self.logs(LogLevel::Error)
            {
                tracing::error!(target: LOG, %error, "the state could not be written");
            }
        }
        while let Some(errand) = self.others.errands.pop_front() {
            errand(&mut Moment { state: self });
            did = true;
        }
        // Timers that are started meanwhile and are due at once run next time.
        let now_ns = clock::now_ns();
        while let Some(callback) = self.timers.take_due(now_ns) {
            callback(&mut Moment { state: self });
            did = true;
        }
        did
    }

    /// Dumps the state whenever that signal comes.
    pub(crate) fn dump_on(&mut self, on_signal: OnSignal) -> Result<(), Errno> {
        self.poll.add(on_signal.bell(), Whose::Signal)?;
        self.on_signal = Some(on_signal);
        Ok(())
    }

    pub(crate) fn put_off_count(&self) -> usize {
        self.active.iter().map(|&place| self.places[place as usize].put_off.len()).sum()
    }

    pub(crate) fn peer_dumps(&self) -> Vec<PeerDump> {
        let dump = |&place: &u32| {
            let at = &self.places[place as usize];
            let link = at.link.as_ref()?;
            Some(PeerDump {
                place,
                is_in_memory: at.in_memory,
                pid: link.process(),
                queued_bytes: link.queued_bytes(),
                receive_buffer_bytes: link.receive_buffer_bytes(),
                message_bytes_max: at.message_bytes_max,
            })
        };
        self.active.iter().filter_map(dump).collect()
    }

    pub(crate) fn logs(&self, level: LogLevel) -> bool {
        self.config.log_level >= level
    }
}
