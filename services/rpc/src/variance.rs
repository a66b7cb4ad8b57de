//! Compile-time checks that handles to a pending result are covariant: they only yield a result, so
//! its lifetime may be shortened.

/// ```
/// use handover_rpc::Call;
/// fn shorten<'a>(long: Call<&'static str>) -> Call<&'a str> {
///     long
/// }
/// ```
struct CallIsCovariant;

/// ```
/// use handover_rpc::Pending;
/// fn shorten<'a>(long: Pending<&'static str>) -> Pending<&'a str> {
///     long
/// }
/// ```
struct PendingIsCovariant;
