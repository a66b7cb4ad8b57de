//! Hooks at the start and the end of calls. Without the feature `monitoring` they compile to
//! nothing; with it, a call without monitoring checks a pointer.

#[cfg(feature = "monitoring")]
use super::monitor::Monitor;
use crate::engine::{CallCompletion, PeerKey, Refusal};
use serde::Serialize;

/// Role of an endpoint in a call: it made the call, or received it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CallRole {
    /// The endpoint made the call.
    Caller,
    /// The endpoint received the call.
    Server,
}

/// Outcome of a call, as passed to observers: result, refusal, disconnection or cancellation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallOutcome {
    /// The call succeeded. A one-way call succeeds when it was sent, handled, or passed to the
    /// pool.
    Result,
    /// The server refused the call, or its handler returned an error or panicked.
    Refused,
    /// The connection was closed before the call was complete.
    Disconnected,
    /// The caller cancelled the call, or the deadline of the call passed.
    Cancelled,
}

impl From<&CallCompletion> for CallOutcome {
    fn from(outcome: &CallCompletion) -> Self {
        match outcome {
            CallCompletion::Result => CallOutcome::Result,
            CallCompletion::Refused(_) => CallOutcome::Refused,
            CallCompletion::Disconnected(_) => CallOutcome::Disconnected,
        }
    }
}

impl From<Result<(), Refusal>> for CallOutcome {
    fn from(answer: Result<(), Refusal>) -> Self {
        if answer.is_ok() { CallOutcome::Result } else { CallOutcome::Refused }
    }
}

/// Optional monitor of an endpoint's calls.
#[derive(Default)]
pub(crate) struct CallMonitor {
    #[cfg(feature = "monitoring")]
    pub(crate) monitor: Option<Box<Monitor>>,
}

/// Defines methods that call the monitor's methods of the same names.
macro_rules! forward_to_monitor {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        impl CallMonitor {$(
            #[inline]
            pub(crate) fn $name(&mut self, $($argument: $type),*) {
                #[cfg(feature = "monitoring")]
                if let Some(monitor) = &mut self.monitor {
                    monitor.$name($($argument),*);
                }
                #[cfg(not(feature = "monitoring"))]
                let _ = ($($argument,)*);
            }
        )*}
    };
}

forward_to_monitor! {
    record_start(side: CallRole, peer: PeerKey, call: u64, method: u64, bytes: usize);
    record_end(side: CallRole, peer: PeerKey, call: u64, bytes: usize, ending: CallOutcome);
    remove_peer(peer: PeerKey);
}
