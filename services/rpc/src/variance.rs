//! Compile-time checks that handles to a pending result are covariant: they only yield a result, so
//! its lifetime may be shortened.

/// Example that compiles only if `Call` is covariant.
/// ```
/// use handover_rpc::Call;
/// fn shorten<'a>(long: Call<&'static str>) -> Call<&'a str> {
///     long
/// }
/// ```
struct CallIsCovariant;

/// Example that compiles only if `PendingCall` is covariant.
/// ```
/// use handover_rpc::PendingCall;
/// fn shorten<'a>(long: PendingCall<&'static str>) -> PendingCall<&'a str> {
///     long
/// }
/// ```
struct PendingCallIsCovariant;
