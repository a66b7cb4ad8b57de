//! Parts that all exported functions share: null checks, strings and buffers of C, exclusive access
//! to what a handle stands for, and the guard against panics.
//!
//! A handle that C passes is `Option<&T>`, where null is `None`, or `Option<Box<T>>` where the
//! function takes ownership. C guarantees, by the header, that any other pointer is one that this
//! library returned for that type and that was not destroyed. Values that C receives are
//! `Option<&mut MaybeUninit<T>>`, as their memory may be uninitialised.

use crate::status::{Fault, Outcome, handover_status, panic_fault, store_last_error};
use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::time::Duration;

use handover_status::*;

/// Pointer from C. The library stores and returns it, but never dereferences it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UserPointer(pub(super) *mut c_void);

// SAFETY: the library never dereferences the pointer; the header says on which thread C gets it
// back.
unsafe impl Send for UserPointer {}
// SAFETY: as for Send; the pointer is a plain value.
unsafe impl Sync for UserPointer {}

impl UserPointer {
    /// Returns the pointer. A closure that calls this captures the whole value, not only the field.
    pub(super) fn get(self) -> *mut c_void {
        self.0
    }
}

/// Runs the body of an exported function. Stores the message of its error, and turns a panic into
/// an error.
#[inline]
pub(super) fn guard(body: impl FnOnce() -> Outcome) -> handover_status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => HANDOVER_OK,
        Ok(outcome) => store_last_error(outcome),
        Err(payload) => store_last_error(Err(panic_fault(&*payload))),
    }
}

#[cold]
fn null_fault(name: &str) -> Fault {
    HANDOVER_NULL_ARGUMENT.because(format_args!("{name}: must not be null"))
}

/// Returns the status of a null argument after storing its message, for functions without a guard.
#[cold]
pub(super) fn refuse_null(name: &str) -> handover_status {
    guard(|| Err(null_fault(name)))
}

/// Returns the value of a pointer argument, which must not be null.
///
/// # Errors
/// `HANDOVER_NULL_ARGUMENT`, with the name of the argument.
#[inline]
pub(super) fn require<T>(name: &str, argument: Option<T>) -> Result<T, Fault> {
    argument.ok_or_else(|| null_fault(name))
}

/// Stores a result at `place`, unless that is null.
pub(super) fn put<T>(place: Option<&mut MaybeUninit<T>>, value: T) {
    if let Some(place) = place {
        place.write(value);
    }
}

/// Copies a structure from C, after checking the pointer and the size field.
///
/// # Errors
/// `HANDOVER_NULL_ARGUMENT` and `HANDOVER_INVALID_ARGUMENT`.
///
/// # Safety
/// A pointer that is neither null nor misaligned points to a `usize` and, if that is the size of
/// `T`, to a `T`.
pub(super) unsafe fn copy_struct<T: Copy>(name: &str, pointer: *const T) -> Result<T, Fault> {
    let Some(first) = std::ptr::NonNull::new(pointer.cast_mut()) else {
        return Err(null_fault(name));
    };
    if !first.is_aligned() {
        return Err(HANDOVER_INVALID_ARGUMENT.because(format_args!("{name}: misaligned")));
    }
    // SAFETY: the pointer is aligned, not null, and points to a `usize`, as the caller guarantees.
    let bytes = unsafe { first.cast::<usize>().read() };
    if bytes != size_of::<T>() {
        return Err(HANDOVER_INVALID_ARGUMENT.because(format_args!(
            "{name}.struct_bytes={bytes}: must be {}; initialise the structure with its `_init` function",
            size_of::<T>()
        )));
    }
    // SAFETY: the structure says that it is a `T`, which is then readable, as the caller
    // guarantees.
    Ok(unsafe { first.read() })
}

/// Converts a C string, which must not be null.
///
/// # Errors
/// `HANDOVER_NULL_ARGUMENT`, and `HANDOVER_INVALID_ARGUMENT` if it is not UTF-8.
///
/// # Safety
/// `pointer` is null, or points to a string that ends with a zero byte and does not change during
/// `'a`.
pub(super) unsafe fn text<'a>(name: &str, pointer: *const c_char) -> Result<&'a str, Fault> {
    if pointer.is_null() {
        return Err(null_fault(name));
    }
    // SAFETY: the pointer is not null, so that it points to such a string, as the caller
    // guarantees.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| HANDOVER_INVALID_ARGUMENT.because(format_args!("{name}: not UTF-8")))
}

/// Converts a C string; returns `None` for null.
///
/// # Errors
/// `HANDOVER_INVALID_ARGUMENT` if it is not UTF-8.
///
/// # Safety
/// As for [`text`].
pub(super) unsafe fn optional_text(
    name: &str,
    pointer: *const c_char,
) -> Result<Option<String>, Fault> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller guarantees what `text` demands.
    unsafe { text(name, pointer) }.map(|text| Some(text.to_owned()))
}

/// Returns an error if the pointer or the length of a buffer is invalid.
fn check_buffer(name: &str, is_null: bool, bytes: usize) -> Outcome {
    if is_null && bytes > 0 {
        return Err(null_fault(name));
    }
    if isize::try_from(bytes).is_err() {
        return Err(
            HANDOVER_INVALID_ARGUMENT.because(format_args!("{name}: {bytes} bytes are too many"))
        );
    }
    Ok(())
}

/// Returns an input buffer of C as a slice. The pointer may be null if `bytes` is 0.
///
/// # Errors
/// `HANDOVER_NULL_ARGUMENT`, and `HANDOVER_INVALID_ARGUMENT` for an impossible length.
///
/// # Safety
/// A pointer that is not null points to `bytes` readable bytes that do not change during `'a`.
pub(super) unsafe fn buffer<'a>(
    name: &str,
    pointer: *const c_void,
    bytes: usize,
) -> Result<&'a [u8], Fault> {
    check_buffer(name, pointer.is_null(), bytes)?;
    if bytes == 0 {
        return Ok(&[]);
    }
    // SAFETY: the pointer is not null and the length at most isize::MAX, as was checked; the caller
    // guarantees the rest.
    Ok(unsafe { std::slice::from_raw_parts(pointer.cast(), bytes) })
}

/// Returns an output buffer of C as a slice. The pointer may be null if `bytes` is 0.
///
/// # Errors
/// As [`buffer`].
///
/// # Safety
/// A pointer that is not null points to `bytes` writable bytes that nothing else accesses during
/// `'a`.
pub(super) unsafe fn buffer_mut<'a>(
    name: &str,
    pointer: *mut c_void,
    bytes: usize,
) -> Result<&'a mut [MaybeUninit<u8>], Fault> {
    check_buffer(name, pointer.is_null(), bytes)?;
    if bytes == 0 {
        return Ok(&mut []);
    }
    // SAFETY: the pointer is not null and the length at most isize::MAX, as was checked; the caller
    // guarantees the rest.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer.cast(), bytes) })
}

/// Returns `true` if two buffers of C, each with its length in bytes, have a byte in common.
pub(super) fn do_overlap(one: (*const c_void, usize), other: (*const c_void, usize)) -> bool {
    let (one_start, other_start) = (one.0.addr(), other.0.addr());
    let has_empty = one.1 == 0 || other.1 == 0;
    !has_empty
        && one_start < other_start.saturating_add(other.1)
        && other_start < one_start.saturating_add(one.1)
}

/// Copies `bytes` to the start of `into`.
///
/// # Errors
/// `HANDOVER_TOO_LONG` if they do not fit.
pub(super) fn copy_into(name: &str, into: &mut [MaybeUninit<u8>], bytes: &[u8]) -> Outcome {
    let Some(into) = into.get_mut(..bytes.len()) else {
        return Err(HANDOVER_TOO_LONG.because(format_args!(
            "{name}: {} bytes do not fit into {}",
            bytes.len(),
            into.len()
        )));
    };
    for (place, byte) in into.iter_mut().zip(bytes) {
        place.write(*byte);
    }
    Ok(())
}

/// Fills an output buffer with zeros, and returns it as initialised bytes.
pub(super) fn fill_with_zeros(into: &mut [MaybeUninit<u8>]) -> &mut [u8] {
    into.fill(MaybeUninit::new(0));
    // SAFETY: every byte was initialised one line above, and the length and the borrow are those of
    // `into`.
    unsafe { std::slice::from_raw_parts_mut(into.as_mut_ptr().cast(), into.len()) }
}

/// Time limit that never passes.
pub const HANDOVER_FOREVER: u64 = u64::MAX;

/// Converts a time limit in ns; `None` for `HANDOVER_FOREVER`.
pub(super) fn limit(timeout_ns: u64) -> Option<Duration> {
    (timeout_ns != HANDOVER_FOREVER).then(|| Duration::from_nanos(timeout_ns))
}

/// Returns a number of the calling thread: not 0, and unique among the living threads.
pub(super) fn thread_number() -> usize {
    thread_local! {
        /// Variable whose address is unique to the thread.
        static MARK: u8 = const { 0 };
    }
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

/// Value that one call at a time can access. A call that begins meanwhile, on any thread, returns
/// an error.
///
/// A callback runs while the call that it interrupts has the value: the error of the inner call
/// keeps C from destroying or re-entering a handle within its own callback.
#[derive(Debug)]
pub(super) struct Exclusive<T> {
    /// Number of the thread whose call accesses the value; 0 for none.
    owner: AtomicUsize,
    /// `true` once a call panicked, so that the state of the value is unknown.
    is_broken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `enter` gives one thread at a time access to the value, which may move between threads as
// T: Send.
unsafe impl<T: Send> Sync for Exclusive<T> {}

impl<T: Send> Exclusive<T> {
    pub(super) fn new(value: T) -> Self {
        let is_broken = AtomicBool::new(false);
        Self { owner: AtomicUsize::new(0), is_broken, value: UnsafeCell::new(value) }
    }
}

impl<T> Exclusive<T> {
    /// Starts an access to the value, which ends when the result is dropped.
    ///
    /// # Errors
    /// `HANDOVER_BUSY` if a call of this thread has it, `HANDOVER_WRONG_THREAD` if one of another
    /// thread has it, `HANDOVER_PANIC` if an earlier call panicked.
    pub(super) fn enter(&self, name: &str) -> Result<Entered<'_, T>, Fault> {
        let this = thread_number();
        // Acquire: pairs with the Release in Entered::drop(). Relaxed: a failure reads no value.
        match self.owner.compare_exchange(0, this, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) if self.is_broken.load(Ordering::Relaxed) => {
                // Release: gives the value back, as in Entered::drop().
                self.owner.store(0, Ordering::Release);
                Err(HANDOVER_PANIC
                    .because(format_args!("{name}: an earlier call panicked; destroy it")))
            }
            Ok(_) => Ok(Entered { exclusive: self }),
            Err(owner) if owner == this => Err(HANDOVER_BUSY.because(format_args!(
                "{name}: in use by a call of this thread; is this its callback?"
            ))),
            Err(_) => Err(HANDOVER_WRONG_THREAD
                .because(format_args!("{name}: in use by a call of another thread"))),
        }
    }

    /// Returns `true` if a running call of this thread accesses the value.
    pub(super) fn is_entered_here(&self) -> bool {
        // Relaxed: only this thread stores its own number.
        self.owner.load(Ordering::Relaxed) == thread_number()
    }

    /// Returns an error if a running call accesses the value. The handle must then not be
    /// destroyed.
    pub(super) fn check_idle(&self, name: &str) -> Outcome {
        match self.enter(name) {
            Err(fault) if fault.status != HANDOVER_PANIC => Err(fault),
            _ => Ok(()),
        }
    }

    pub(super) fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

/// Access to the value of an [`Exclusive`], until dropped.
pub(super) struct Entered<'a, T> {
    exclusive: &'a Exclusive<T>,
}

impl<T> Deref for Entered<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: `owner` names this thread until this guard is dropped, and `enter` makes no
        // second guard meanwhile.
        unsafe { &*self.exclusive.value.get() }
    }
}

impl<T> DerefMut for Entered<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in deref(); `&mut self` excludes another reference through this guard.
        unsafe { &mut *self.exclusive.value.get() }
    }
}

impl<T> Drop for Entered<'_, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Relaxed: ordered by the Release below.
            self.exclusive.is_broken.store(true, Ordering::Relaxed);
        }
        // Release: publishes the accesses to the value to the Acquire in enter().
        self.exclusive.owner.store(0, Ordering::Release);
    }
}

/// Pointer to the context of the running callback; null if none is running. Calls from within the
/// callback use it.
#[derive(Debug, Default)]
pub(super) struct CallbackContext(AtomicPtr<c_void>);

impl CallbackContext {
    /// Calls `callback`; meanwhile [`lend`](Self::lend) lends `context`.
    pub(super) fn run_callback<T>(&self, context: *mut c_void, callback: impl FnOnce() -> T) -> T {
        let _restore = ContextLoan { callback: self, pointer: self.replace(context) };
        callback()
    }

    /// Lends the context to the calling function. Returns `None` if no callback is running, or if
    /// the context is lent.
    pub(super) fn lend(&self) -> Option<ContextLoan<'_>> {
        let pointer = self.replace(std::ptr::null_mut());
        (!pointer.is_null()).then_some(ContextLoan { callback: self, pointer })
    }

    /// Replaces the pointer; returns the earlier one.
    fn replace(&self, pointer: *mut c_void) -> *mut c_void {
        // Relaxed: only the thread that has the handle's Exclusive value reads or writes the
        // pointer.
        self.0.swap(pointer, Ordering::Relaxed)
    }
}

/// Loan of a context to a call. The context is given back on drop.
pub(super) struct ContextLoan<'a> {
    callback: &'a CallbackContext,
    pointer: *mut c_void,
}

impl ContextLoan<'_> {
    pub(super) fn pointer(&self) -> *mut c_void {
        self.pointer
    }
}

impl Drop for ContextLoan<'_> {
    fn drop(&mut self) {
        self.callback.replace(self.pointer);
    }
}

/// Takes ownership of a handle back from C. If a running call uses the value that `exclusive`
/// returns, C keeps the handle.
///
/// # Errors
/// As [`Exclusive::check_idle`], and `HANDOVER_NULL_ARGUMENT`.
///
/// # Safety
/// `handle` is null, or was returned by `Box::into_raw` and not taken back since.
pub(super) unsafe fn take_back<H, T>(
    name: &str,
    handle: *mut H,
    exclusive: impl FnOnce(&H) -> &Exclusive<T>,
) -> Result<Box<H>, Fault> {
    // SAFETY: the handle is null or valid, as the caller guarantees.
    let shared = require(name, unsafe { handle.as_ref() })?;
    exclusive(shared).check_idle(name)?;
    // SAFETY: the handle comes from Box::into_raw, as the caller guarantees, and no call of the
    // library uses it.
    Ok(unsafe { Box::from_raw(handle) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_access_is_refused_by_thread_and_a_panic_breaks_the_value() {
        let value = Exclusive::new(1);
        let mut first = value.enter("x").expect("the value is free");
        *first += 1;
        assert_eq!(value.enter("x").map(|it| *it).unwrap_err().status, HANDOVER_BUSY);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| value.enter("x").map(|it| *it).unwrap_err().status);
            assert_eq!(other.join().expect("no panic"), HANDOVER_WRONG_THREAD);
        });
        drop(first);
        assert_eq!(value.enter("x").map(|it| *it).expect("the value is free"), 2);
        let status = guard(|| {
            let _entered = value.enter("x")?;
            panic!("on purpose")
        });
        assert_eq!(status, HANDOVER_PANIC);
        assert_eq!(value.enter("x").map(|it| *it).unwrap_err().status, HANDOVER_PANIC);
        assert!(value.check_idle("x").is_ok(), "a broken value can be destroyed");
    }

    #[test]
    fn buffers_overlap_only_with_a_common_byte() {
        let at = std::ptr::without_provenance::<c_void>;
        for (one, other, expected) in [
            ((8, 8), (8, 8), true),
            ((8, 8), (15, 1), true),
            ((8, 8), (0, 9), true),
            ((8, 8), (16, 8), false),
            ((8, 8), (0, 8), false),
            ((0, 0), (0, 8), false),
            ((0, 8), (4, 0), false),
        ] {
            let (one, other) = ((at(one.0), one.1), (at(other.0), other.1));
            assert_eq!(do_overlap(one, other), expected, "{one:?} {other:?}");
            assert_eq!(do_overlap(other, one), expected, "{one:?} {other:?}");
        }
    }

    #[test]
    fn structure_of_another_size_is_refused() {
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        struct Sized {
            struct_bytes: usize,
            value: u32,
        }
        let mut it = Sized { struct_bytes: size_of::<Sized>(), value: 5 };
        // SAFETY: the pointer is that of a value on the stack.
        assert_eq!(unsafe { copy_struct("it", &raw const it) }.expect("valid").value, 5);
        it.struct_bytes += 8;
        // SAFETY: as above.
        let fault = unsafe { copy_struct("it", &raw const it) }.expect_err("another size");
        assert_eq!(fault.status, HANDOVER_INVALID_ARGUMENT);
        // SAFETY: a null pointer is not read.
        let fault = unsafe { copy_struct::<Sized>("it", std::ptr::null()) }.expect_err("null");
        assert_eq!(fault.status, HANDOVER_NULL_ARGUMENT);
        assert_eq!(it.struct_bytes, 24);
    }
}
