//! Fairness, faults, replies, TLS and simulation of the event handler.

#[cfg(feature = "tls")]
mod backends;
mod fairness;
mod faults;
mod replies;
#[cfg(feature = "tls")]
mod secured;
mod simulation;
#[cfg(feature = "tls")]
mod tls;
