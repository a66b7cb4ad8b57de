//! Instructions of the processor: x86_64's, or replacements that need none.

#[cfg(not(all(target_arch = "x86_64", not(any(miri, handover_portable)))))]
mod generic;

#[cfg(all(target_arch = "x86_64", not(any(miri, handover_portable))))]
pub(crate) use crate::raw::x86_64::*;
#[cfg(not(all(target_arch = "x86_64", not(any(miri, handover_portable)))))]
pub(crate) use generic::*;
