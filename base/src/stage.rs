//! Where a mechanism lets itself be looked into: probe sites at the stages of a hand-over.
//!
//! A mechanism is to be usable without a recorder: its sites are a feature of it, and without that they are
//! nothing, nor is the crate `handover-probe` needed then. This is that "if", in one place.

/// A site of the mechanism's feature `$feature`, by name and with up to two values, which are looked at only
/// while it is on. Without the feature, in a model and under Miri it is nothing, and still everything in
/// it is checked by the compiler.
///
/// ```
/// # use handover_base::stage::{self, stage};
/// fn taken(word: &u32) {
///     // The caller's crate has the feature, and with it the dependency on handover-probe.
///     stage!("probes", "lock.taken", stage::address(word));
/// }
/// # taken(&1);
/// ```
#[doc(inline)]
pub use crate::__stage as stage;

#[doc(hidden)]
#[macro_export]
macro_rules! __stage {
    ($feature:tt, $name:literal $(, $value:expr)* $(,)?) => {
        #[cfg(all(feature = $feature, not(any(miri, handover_loom))))]
        ::handover_probe::probe!($name $(, $value)*);
        #[cfg(not(all(feature = $feature, not(any(miri, handover_loom)))))]
        let _ = || ($($value,)*);
    };
}

/// By what events at one and the same thing are known as such.
#[inline(always)]
pub fn address<T: ?Sized>(thing: &T) -> usize {
    core::ptr::from_ref(thing).addr()
}
