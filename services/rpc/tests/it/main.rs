//! Tests of calls, bulk transfers, handles, hostile peers and proxies.

mod api;
mod bulk;
#[cfg(feature = "tls")]
mod credentials;
mod gate;
mod halves;
mod handles;
mod hostile;
mod proxy;
mod threads;
mod watching;
