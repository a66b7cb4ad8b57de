//! Invariance of the handles: a handle of a type with a long lifetime must not convert to a handle
//! of the same type with a shorter lifetime, because values flow both in and out. None of these
//! examples may compile.

/// Compile-fail test: `Address` is invariant in its type parameter.
///
/// ```compile_fail
/// use handover_event::Address;
/// fn shorten<'a>(long: Address<&'static str>) -> Address<&'a str> {
///     long
/// }
/// ```
struct AddressIsInvariant;

/// Compile-fail test: `WeakAddress` is invariant in its type parameter.
///
/// ```compile_fail
/// use handover_event::WeakAddress;
/// fn shorten<'a>(long: WeakAddress<&'static str>) -> WeakAddress<&'a str> {
///     long
/// }
/// ```
struct WeakAddressIsInvariant;

/// Compile-fail test: `Reply` is invariant in its type parameter.
///
/// ```compile_fail
/// use handover_event::Reply;
/// fn shorten<'a>(long: Reply<&'static str>) -> Reply<&'a str> {
///     long
/// }
/// ```
struct ReplyIsInvariant;

/// Compile-fail test: `PendingReply` is invariant in its type parameter.
///
/// ```compile_fail
/// use handover_event::PendingReply;
/// fn shorten<'a>(long: PendingReply<&'static str>) -> PendingReply<&'a str> {
///     long
/// }
/// ```
struct PendingReplyIsInvariant;

/// Compile-fail test: `Sending` is invariant in its type parameter.
///
/// ```compile_fail
/// use handover_event::Sending;
/// fn shorten<'s, 'a>(long: Sending<'s, &'static str>) -> Sending<'s, &'a str> {
///     long
/// }
/// ```
#[cfg(feature = "async")]
struct SendingIsInvariant;

/// Compile-fail test: `Topic` is invariant in its type parameter.
///
/// ```compile_fail
/// use handover_event::Topic;
/// fn shorten<'a>(long: Topic<&'static str>) -> Topic<&'a str> {
///     long
/// }
/// ```
struct TopicIsInvariant;

/// Compile-fail test: `Publisher` is invariant in its type parameter.
///
/// ```compile_fail
/// use handover_event::Publisher;
/// fn shorten<'a>(long: Publisher<&'static str>) -> Publisher<&'a str> {
///     long
/// }
/// ```
struct PublisherIsInvariant;

/// Compile-fail test: `Pool` is invariant in its type parameter.
///
/// ```compile_fail
/// use handover_event::Pool;
/// fn shorten<'a>(long: Pool<&'static str>) -> Pool<&'a str> {
///     long
/// }
/// ```
struct PoolIsInvariant;

/// Compile-fail test: `PoolBox` is invariant in its type parameter.
///
/// ```compile_fail
/// use handover_event::PoolBox;
/// fn shorten<'a>(long: PoolBox<&'static str>) -> PoolBox<&'a str> {
///     long
/// }
/// ```
struct PoolBoxIsInvariant;

/// Compile-fail test: `PoolArc` is invariant in its type parameter.
///
/// ```compile_fail
/// use handover_event::PoolArc;
/// fn shorten<'a>(long: PoolArc<&'static str>) -> PoolArc<&'a str> {
///     long
/// }
/// ```
struct PoolArcIsInvariant;

/// Compile-fail test: `ThreadHandle` is invariant in its type parameter.
///
/// ```compile_fail
/// use handover_event::ThreadHandle;
/// fn shorten<'a>(long: ThreadHandle<&'static str>) -> ThreadHandle<&'a str> {
///     long
/// }
/// ```
struct ThreadHandleIsInvariant;

/// Compile-fail test: `Context` is invariant in its type parameter.
///
/// ```compile_fail
/// use handover_event::Context;
/// fn shorten<'c, 'a>(long: Context<'c, &'static str>) -> Context<'c, &'a str> {
///     long
/// }
/// ```
struct ContextIsInvariant;

/// Compile-fail test: `GroupMember` is invariant in its type parameter.
///
/// ```compile_fail
/// use handover_event::{Context, Handler, GroupMember};
/// struct Lent<'a>(&'a str);
/// impl<'a> Handler for Lent<'a> {
///     type Message = ();
///     fn handle(&mut self, (): (), _cx: &mut Context<'_, ()>) {}
/// }
/// fn shorten<'a>(long: GroupMember<Lent<'static>>) -> GroupMember<Lent<'a>> {
///     long
/// }
/// ```
struct GroupMemberIsInvariant;

/// Check that the types above compile where no conversion is needed.
///
/// ```
/// use handover_event::{Address, Context, PoolBox, Pool, Publisher, ThreadHandle, PoolArc, Topic};
/// use handover_event::{PendingReply, Reply, WeakAddress};
/// type Value = &'static str;
/// fn keep<T>(it: T) -> T {
///     it
/// }
/// let _ = (keep::<Address<Value>>, keep::<Topic<Value>>, keep::<Publisher<Value>>);
/// let _ = (keep::<Pool<Value>>, keep::<PoolBox<Value>>, keep::<PoolArc<Value>>);
/// let _ = (keep::<ThreadHandle<Value>>, keep::<Context<'static, Value>>);
/// let _ = (keep::<WeakAddress<Value>>, keep::<Reply<Value>>, keep::<PendingReply<Value>>);
/// ```
struct SameTypes;

/// Check that `Sending` compiles where no conversion is needed.
///
/// ```
/// use handover_event::Sending;
/// fn keep<'s>(it: Sending<'s, &'static str>) -> Sending<'s, &'static str> {
///     it
/// }
/// ```
#[cfg(feature = "async")]
struct SameSending;
