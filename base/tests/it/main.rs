//! Tests of the clock, units, topology, affinity, futex, usage and the synchronisation facade.

mod affinity;
mod clock;
mod futex;
mod sync;
mod topology;
mod units;
mod usage;
