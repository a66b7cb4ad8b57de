//! Tests with peers that break the protocol: they are disconnected, and other peers are not
//! affected.

mod bulk;
mod calls;
pub mod peers;
mod strangers;
