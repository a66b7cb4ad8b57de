//! Instructions of the processor: x86_64's, aarch64's, or replacements that need none.

#[cfg(any(miri, handover_portable, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod generic;

#[cfg(all(target_arch = "aarch64", not(any(miri, handover_portable))))]
pub(crate) use crate::raw::aarch64::*;
#[cfg(all(target_arch = "x86_64", not(any(miri, handover_portable))))]
pub(crate) use crate::raw::x86_64::*;
#[cfg(any(
    miri,
    handover_portable,
    not(any(target_arch = "x86_64", target_arch = "aarch64"))
))]
pub(crate) use generic::*;
