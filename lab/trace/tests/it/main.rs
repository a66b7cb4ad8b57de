//! Traces recorded by real probes in this process, and the results computed from them.
#![cfg(not(any(handover_loom, miri)))]

mod calls;
mod damage;
mod formats;
mod perfetto;
mod samples;
