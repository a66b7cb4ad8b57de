//! Of these a result comes out, and none goes in: it may as well borrow for short.

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
