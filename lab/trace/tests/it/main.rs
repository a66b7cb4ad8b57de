//! Traces, recorded here by real probes, and what is made of them.
#![cfg(not(any(handover_loom, miri)))]

mod calls;
mod damage;
mod formats;
mod perfetto;
mod samples;
