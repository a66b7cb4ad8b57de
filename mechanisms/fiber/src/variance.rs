//! Variance of the handles: a handle of a type with a long lifetime must not convert to a handle of
//! the same type with a shorter lifetime if values flow both in and out. The examples marked so
//! must not compile.

/// Checks that `Mutex` is invariant in its value type: this example must not compile.
///
/// ```compile_fail
/// use handover_fiber::Mutex;
/// fn shorten<'a>(long: Mutex<&'static str>) -> Mutex<&'a str> {
///     long
/// }
/// ```
struct MutexIsInvariant;

/// Checks that `Eventual` is invariant in its value type: this example must not compile.
///
/// ```compile_fail
/// use handover_fiber::Eventual;
/// fn shorten<'a>(long: Eventual<&'static str>) -> Eventual<&'a str> {
///     long
/// }
/// ```
struct EventualIsInvariant;

/// Checks that `Sender` is invariant in its value type: this example must not compile.
///
/// ```compile_fail
/// use handover_fiber::Sender;
/// fn shorten<'a>(long: Sender<&'static str>) -> Sender<&'a str> {
///     long
/// }
/// ```
struct SenderIsInvariant;

/// Checks that `Receiver` is invariant in its value type: this example must not compile.
///
/// ```compile_fail
/// use handover_fiber::Receiver;
/// fn shorten<'a>(long: Receiver<&'static str>) -> Receiver<&'a str> {
///     long
/// }
/// ```
struct ReceiverIsInvariant;

/// Checks that `MutexGuard` is invariant in its value type: this example must not compile.
///
/// ```compile_fail
/// use handover_fiber::MutexGuard;
/// fn shorten<'g, 'a>(long: MutexGuard<'g, &'static str>) -> MutexGuard<'g, &'a str> {
///     long
/// }
/// ```
struct MutexGuardIsInvariant;

/// Checks that `JoinHandle` is covariant in its value type. Values only leave a handle.
///
/// ```
/// use handover_fiber::JoinHandle;
/// fn shorten<'a>(long: JoinHandle<&'static str>) -> JoinHandle<&'a str> {
///     long
/// }
/// ```
struct JoinHandleIsCovariant;

/// Checks that the examples above fail only because of the conversion of lifetimes.
///
/// ```
/// use handover_fiber::{Eventual, Mutex, MutexGuard, Receiver, Sender};
/// type Value = &'static str;
/// fn keep<T>(it: T) -> T {
///     it
/// }
/// let _ = (keep::<Mutex<Value>>, keep::<Eventual<Value>>, keep::<Sender<Value>>);
/// let _ = (keep::<Receiver<Value>>, keep::<MutexGuard<'static, Value>>);
/// ```
struct OtherwiseValid;
