//! The clock, units, topology, affinity, futex and synchronisation facade.

mod affinity;
mod clock;
mod futex;
mod sync;
mod topology;
mod units;
mod usage;
