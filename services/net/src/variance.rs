//! Compile-fail tests: handles are invariant in the data type, because a handle can send values of
//! that type to the thread that keeps them.

/// Compile-fail test: `ConnHandle` is invariant in its type parameter.
///
/// ```compile_fail
/// use handover_net::ConnHandle;
/// fn shorten<'a>(long: ConnHandle<&'static str>) -> ConnHandle<&'a str> {
///     long
/// }
/// ```
struct HandleIsInvariant;

/// Compile-fail test: `Stopper` is invariant in its type parameter.
///
/// ```compile_fail
/// use handover_net::Stopper;
/// fn shorten<'a>(long: Stopper<&'static str>) -> Stopper<&'a str> {
///     long
/// }
/// ```
struct StopperIsInvariant;

/// Compile-fail test: `Conn` is invariant in its type parameter.
///
/// ```compile_fail
/// use handover_net::{Conn, engine::LinesCodec};
/// fn shorten<'c, 'a>(long: Conn<'c, LinesCodec, &'static str>) -> Conn<'c, LinesCodec, &'a str> {
///     long
/// }
/// ```
struct ConnIsInvariant;

/// Compile-fail test: `Connections` is invariant in its type parameter.
///
/// ```compile_fail
/// use handover_net::{Connections, engine::LinesCodec};
/// fn shorten<'c, 'a>(long: Connections<'c, LinesCodec, &'static str>) -> Connections<'c, LinesCodec, &'a str> {
///     long
/// }
/// ```
struct ConnectionsIsInvariant;

/// Check that the types above compile where no conversion is needed. The tests above therefore fail
/// only because of the conversion.
///
/// ```
/// use handover_net::{Conn, ConnHandle, Connections, Stopper, engine::LinesCodec};
/// type Value = &'static str;
/// fn keep<T>(it: T) -> T {
///     it
/// }
/// let _ = (keep::<ConnHandle<Value>>, keep::<Stopper<Value>>);
/// let _ = (keep::<Conn<'static, LinesCodec, Value>>, keep::<Connections<'static, LinesCodec, Value>>);
/// ```
struct SameTypes;
