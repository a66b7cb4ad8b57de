//! Fairness, faults, handles, replies, TLS and simulation of the event handler.

#[cfg(feature = "tls")]
mod echo;
mod fairness;
mod faults;
mod handles;
mod replies;
#[cfg(feature = "tls")]
mod secured;
mod simulation;
#[cfg(feature = "tls")]
mod tls;
