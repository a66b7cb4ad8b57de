//! Atomics, threads and cells that a model checker can replace.
//!
//! In a normal build, every item here is that of `core` or `std` and costs nothing. Built with
//! `RUSTFLAGS="--cfg handover_loom"`, [`atomic`], [`hint`], [`thread`], [`Arc`], [`Mutex`] and
//! [`UnsafeCell`] are loom's, so that a lock or a queue that uses this module is model-checked
//! unchanged. The flag is a `cfg` and not a feature, so that it applies to dependents too, and it
//! is not plain `--cfg loom`, which other crates of a dependency tree react to.
//!
//! [`shared`] is always `core`'s: words that the kernel, another process or foreign code accesses
//! cannot be modelled, and a futex waits on such a word.

/// Atomic integers: `core`'s, or loom's under `cfg(handover_loom)`.
pub mod atomic {
    #[cfg(not(handover_loom))]
    pub use core::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
    #[cfg(handover_loom)]
    pub use loom::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
}

/// Hint for loops that wait for another thread.
pub mod hint {
    /// Tells the processor that the caller is a spin loop; under loom, lets another thread run.
    ///
    /// Under the model, a spin loop without this call would be explored without end.
    #[inline]
    pub fn spin_loop() {
        #[cfg(not(handover_loom))]
        core::hint::spin_loop();
        #[cfg(handover_loom)]
        loom::thread::yield_now();
    }
}

/// Threads: `std`'s, or loom's under `cfg(handover_loom)`.
pub mod thread {
    #[cfg(handover_loom)]
    pub use loom::thread::{JoinHandle, spawn, yield_now};
    #[cfg(not(handover_loom))]
    pub use std::thread::{JoinHandle, spawn, yield_now};
}

#[cfg(handover_loom)]
pub use loom::sync::{Arc, Mutex, MutexGuard};
#[cfg(not(handover_loom))]
pub use std::sync::{Arc, Mutex, MutexGuard};

/// Atomic integers of `core`, also in loom models. They are for words shared with the kernel, with
/// other processes or with code that does not use the model.
pub mod shared {
    pub use core::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
        compiler_fence, fence,
    };
}

#[cfg(handover_loom)]
pub use loom::cell::UnsafeCell;

/// Cell whose value is accessed through closures, with the interface of loom's `UnsafeCell`.
///
/// Without the model this is [`core::cell::UnsafeCell`] and both methods compile to the bare
/// pointer. With it, loom checks that no two threads are in conflicting closures at the same time.
/// The closures receive raw pointers: dereferencing them is the caller's `unsafe`, and the pointer
/// must not be used after the closure.
#[cfg(not(handover_loom))]
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct UnsafeCell<T: ?Sized>(core::cell::UnsafeCell<T>);

#[cfg(not(handover_loom))]
impl<T> UnsafeCell<T> {
    /// Creates a cell that contains `value`.
    #[inline]
    pub const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    /// Consumes the cell and returns its value.
    #[inline]
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

#[cfg(not(handover_loom))]
impl<T: ?Sized> UnsafeCell<T> {
    /// Calls `f` with a pointer for reading and returns its result. No thread may write while `f`
    /// runs.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    /// Calls `f` with a pointer for writing and returns its result. No other thread may read or
    /// write while `f` runs.
    #[inline]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Defines a function that is `const`, except under loom, whose atomics cannot be created in
/// constants.
///
/// ```
/// use handover_base::sync::atomic::AtomicU32;
/// use handover_base::sync::const_unless_loom;
/// struct Word(AtomicU32);
/// impl Word {
///     const_unless_loom! {
///         /// Makes a word that holds `value`.
///         pub const fn new(value: u32) -> Self {
///             Word(AtomicU32::new(value))
///         }
///     }
/// }
/// # #[cfg(not(handover_loom))]
/// static WORD: Word = Word::new(7);
/// ```
#[doc(inline)]
pub use crate::__const_unless_loom as const_unless_loom;

#[doc(hidden)]
#[macro_export]
macro_rules! __const_unless_loom {
    ($(#[$attribute:meta])* $vis:vis const fn $($function:tt)*) => {
        #[cfg(not(handover_loom))]
        $(#[$attribute])* $vis const fn $($function)*
        #[cfg(handover_loom)]
        $(#[$attribute])* $vis fn $($function)*
    };
}

/// Expands to the auto traits of a type as text: `"Send + Sync"`, `"Send"`, `"Sync"` or
/// `"neither"`.
///
/// For tests of handles: a bound such as `fn send<T: Send>()` can show that a type is `Send`, but
/// not that it is not.
///
/// ```
/// use handover_base::sync::auto_traits;
/// assert_eq!(auto_traits!(std::sync::Arc<u8>), "Send + Sync");
/// assert_eq!(auto_traits!(std::cell::Cell<u8>), "Send");
/// assert_eq!(auto_traits!(std::sync::MutexGuard<'static, u8>), "Sync");
/// assert_eq!(auto_traits!(std::rc::Rc<u8>), "neither");
/// ```
#[doc(inline)]
pub use crate::__auto_traits as auto_traits;

#[doc(hidden)]
#[macro_export]
macro_rules! __auto_traits {
    ($type:ty) => {{
        /// Type whose constants tell if `T` is `Send`, and if it is `Sync`.
        #[allow(dead_code)]
        struct AutoTraits<T: ?Sized>(core::marker::PhantomData<T>);
        /// Default constants, for a type that is not `Send` or not `Sync`. For other types,
        /// inherent constants hide them.
        #[allow(dead_code)]
        trait AutoTraitDefaults {
            const IS_SEND: bool = false;
            const IS_SYNC: bool = false;
        }
        impl<T: ?Sized> AutoTraitDefaults for AutoTraits<T> {}
        impl<T: ?Sized + Send> AutoTraits<T> {
            const IS_SEND: bool = true;
        }
        impl<T: ?Sized + Sync> AutoTraits<T> {
            const IS_SYNC: bool = true;
        }
        match (AutoTraits::<$type>::IS_SEND, AutoTraits::<$type>::IS_SYNC) {
            (true, true) => "Send + Sync",
            (true, false) => "Send",
            (false, true) => "Sync",
            (false, false) => "neither",
        }
    }};
}

/// Value on separate cache lines, so that writes to it do not slow accesses to neighbouring values.
///
/// 128 bytes, not 64: Intel's spatial prefetcher fetches lines in pairs, and two words on such a
/// pair disturb each other like two words on one line.
///
/// ```
/// use handover_base::sync::CachePadded;
/// use handover_base::sync::shared::{AtomicU64, Ordering};
/// let heads = [const { CachePadded::new(AtomicU64::new(0)) }; 2];
/// heads[1].store(7, Ordering::Relaxed);
/// assert_eq!(size_of_val(&heads), 256);
/// ```
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[repr(align(128))]
pub struct CachePadded<T>(pub T);

impl<T> CachePadded<T> {
    /// Creates a padded value.
    #[inline]
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// Consumes the padding and returns the value.
    #[inline]
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> core::ops::Deref for CachePadded<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> core::ops::DerefMut for CachePadded<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> From<T> for CachePadded<T> {
    #[inline]
    fn from(value: T) -> Self {
        Self(value)
    }
}
