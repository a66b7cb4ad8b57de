//! Peers that do not keep to the protocol: they are disconnected, and nobody else is disturbed.

mod bulk;
mod calls;
mod peers;
mod strangers;
