//! Hooks at the start and the end of calls. Without the feature `monitoring` they compile to
//! nothing; with it, a call without monitoring checks a pointer.

#[cfg(feature = "monitoring")]
use super::monitor::Monitor;
use crate::engine::{Outcome, PeerKey, Refusal};
use serde::Serialize;

/// Role of an endpoint in a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The endpoint made the call.
    Caller,
    /// The endpoint received the call.
    Server,
}

/// Outcome of a call, as passed to observers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// The call returned a result; a one-way call was sent or handled, or passed to the pool.
    Result,
    /// The call was refused, for whatever reason.
    Refused,
    /// The connection was closed before the call was complete.
    Gone,
    /// The caller cancelled it, or its deadline passed.
    GivenUp,
}

impl From<&Outcome> for Ending {
    fn from(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Result => Ending::Result,
            Outcome::Refused(_) => Ending::Refused,
            Outcome::Gone(_) => Ending::Gone,
        }
    }
}

impl From<Result<(), Refusal>> for Ending {
    fn from(answer: Result<(), Refusal>) -> Self {
        if answer.is_ok() { Ending::Result } else { Ending::Refused }
    }
}

/// Monitor of an endpoint's calls; `None` without monitoring.
#[derive(Debug, Default)]
pub(crate) struct CallHooks {
    #[cfg(feature = "monitoring")]
    pub(crate) monitor: Option<Box<Monitor>>,
}

/// Defines hooks that call the monitor's methods of the same names.
macro_rules! hooks {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        impl CallHooks {$(
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

hooks! {
    begin(side: Side, peer: PeerKey, call: u64, method: u64, bytes: usize);
    end(side: Side, peer: PeerKey, call: u64, bytes: usize, ending: Ending);
    disconnected(peer: PeerKey);
}
