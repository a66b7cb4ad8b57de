//! Calls, bulk transfers, hostile peers and proxies.

mod api;
mod bulk;
#[cfg(feature = "tls")]
mod credentials;
mod halves;
mod hostile;
mod proxy;
mod threads;
mod watching;
