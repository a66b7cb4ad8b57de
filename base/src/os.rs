//! Calls of the operating system: Linux's, or replacements in terms of `std`.

#[cfg(not(all(target_os = "linux", not(handover_portable))))]
mod generic;
#[cfg(all(target_os = "linux", not(handover_portable)))]
mod linux;

#[cfg(not(all(target_os = "linux", not(handover_portable))))]
pub(crate) use generic::*;
#[cfg(all(target_os = "linux", not(handover_portable)))]
pub(crate) use linux::*;
