//! All unsafe code of this crate, by what it needs: Linux, or an aarch64 or x86_64 processor.

#[cfg(all(target_arch = "aarch64", not(any(miri, handover_portable))))]
pub(crate) mod aarch64;
#[cfg(all(target_os = "linux", not(handover_portable)))]
pub(crate) mod linux;
#[cfg(all(target_arch = "x86_64", not(any(miri, handover_portable))))]
pub(crate) mod x86_64;
