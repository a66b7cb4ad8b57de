//! Tests of the clock, units, topology, affinity, futex, slab, usage and the synchronisation
//! facade.

#[cfg(all(target_os = "linux", not(handover_portable)))]
mod affinity;
mod clock;
mod futex;
mod slab;
mod sync;
mod topology;
mod units;
#[cfg(all(target_os = "linux", not(handover_portable)))]
mod usage;
