//! Variance of the handles: a handle of a type with a long lifetime must not convert to a handle of the same type with
//! a shorter lifetime if values flow both in and out. The examples marked so must not compile.

/// ```compile_fail
/// use handover_fiber::Mutex;
/// fn shorten<'a>(long: Mutex<&'static str>) -> Mutex<&'a str> {
///     long
/// }
/// ```
struct MutexIsInvariant;

/// ```compile_fail
/// use handover_fiber::Eventual;
/// fn shorten<'a>(long: Eventual<&'static str>) -> Eventual<&'a str> {
///     long
/// }
/// ```
struct EventualIsInvariant;

/// ```compile_fail
/// use handover_fiber::Sender;
/// fn shorten<'a>(long: Sender<&'static str>) -> Sender<&'a str> {
///     long
/// }
/// ```
struct SenderIsInvariant;

/// ```compile_fail
/// use handover_fiber::Receiver;
/// fn shorten<'a>(long: Receiver<&'static str>) -> Receiver<&'a str> {
///     long
/// }
/// ```
struct ReceiverIsInvariant;

/// ```compile_fail
/// use handover_fiber::MutexGuard;
/// fn shorten<'g, 'a>(long: MutexGuard<'g, &'static str>) -> MutexGuard<'g, &'a str> {
///     long
/// }
/// ```
struct MutexGuardIsInvariant;

/// Checks that a join handle is covariant, as values only leave it.
///
/// ```
/// use handover_fiber::JoinHandle;
/// fn shorten<'a>(long: JoinHandle<&'static str>) -> JoinHandle<&'a str> {
///     long
/// }
/// ```
struct JoinHandleIsCovariant;

/// Checks that the examples above compile without the conversion of lifetimes.
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
struct SameTypes;
