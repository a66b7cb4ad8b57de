//! Optional probe sites of the mechanisms, at the stages of a hand-over.
//!
//! A mechanism must be usable without a recorder: its sites are a feature of it, without which they
//! compile to nothing and the crate `handover-probe` is not needed. The macro here contains this
//! condition.

/// Defines a probe site, with a name and up to two values, if the mechanism's feature `$feature` is
/// on. The values are evaluated only while the site is on. Without the feature, in a loom model and
/// under Miri the macro compiles to nothing, but the compiler still checks its arguments.
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

/// Returns an address that identifies `thing` in probe events.
#[inline(always)]
pub fn address<T: ?Sized>(thing: &T) -> usize {
    core::ptr::from_ref(thing).addr()
}
