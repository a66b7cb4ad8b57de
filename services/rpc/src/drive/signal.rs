//! Signal at which a snapshot of the endpoint is passed to a callback.

use super::dump::Dump;
use crate::EndpointError;
use signal_hook::SigId;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;

/// Signal registration, with a callback that gets a dump of the endpoint's state.
pub(crate) struct SignalDump {
    /// Id of the signal handler's registration.
    id: SigId,
    /// Socket that receives one byte for each signal.
    socket: UnixStream,
    pub(crate) callback: Box<dyn FnMut(&Dump) + Send>,
    /// `true` if the signal was received and the callback was not called yet.
    pub(crate) is_due: bool,
}

impl SignalDump {
    pub(crate) fn new(
        signal: i32,
        callback: Box<dyn FnMut(&Dump) + Send>,
    ) -> Result<Self, EndpointError> {
        let failed = |call| move |error| system_call_error(call, error);
        let (socket, sender) = UnixStream::pair().map_err(failed("socketpair"))?;
        socket.set_nonblocking(true).map_err(failed("fcntl"))?;
        // signal-hook makes this end nonblocking. If the socket's buffer is full, a wake-up is
        // already pending.
        let id = signal_hook::low_level::pipe::register(signal, sender);
        let id = id.map_err(failed("sigaction"))?;
        Ok(Self { id, socket, callback, is_due: false })
    }

    pub(crate) fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// Reads the bytes of received signals, and marks the dump as due if there were any.
    pub(crate) fn handle_signals(&mut self) {
        let mut bytes = [0; 64];
        while let Ok(1..) = self.socket.read(&mut bytes) {
            self.is_due = true;
        }
    }
}

impl Drop for SignalDump {
    fn drop(&mut self) {
        signal_hook::low_level::unregister(self.id);
    }
}

pub(crate) fn system_call_error(call: &'static str, error: io::Error) -> EndpointError {
    EndpointError::SystemCall { call, subject: "a signal".into(), error }
}
