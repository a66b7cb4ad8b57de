//! The C++ and C libraries behind `c/peers.cpp`, as far as build.rs has found them.

#[cfg(any(handover_boost_asio, handover_libuv, handover_openssl))]
pub(crate) mod servers;

#[cfg(any(handover_boost_lockfree, handover_moodycamel))]
pub(crate) mod queues;
