//! Invariance of the handles: a handle of a type with a long lifetime must not convert to a handle of the same type
//! with a shorter lifetime, because values flow both in and out. None of these examples may compile.

/// ```compile_fail
/// use handover_event::Address;
/// fn shorten<'a>(long: Address<&'static str>) -> Address<&'a str> {
///     long
/// }
/// ```
struct AddressIsInvariant;

/// ```compile_fail
/// use handover_event::Topic;
/// fn shorten<'a>(long: Topic<&'static str>) -> Topic<&'a str> {
///     long
/// }
/// ```
struct TopicIsInvariant;

/// ```compile_fail
/// use handover_event::Publisher;
/// fn shorten<'a>(long: Publisher<&'static str>) -> Publisher<&'a str> {
///     long
/// }
/// ```
struct PublisherIsInvariant;

/// ```compile_fail
/// use handover_event::Pool;
/// fn shorten<'a>(long: Pool<&'static str>) -> Pool<&'a str> {
///     long
/// }
/// ```
struct PoolIsInvariant;

/// ```compile_fail
/// use handover_event::PoolBox;
/// fn shorten<'a>(long: PoolBox<&'static str>) -> PoolBox<&'a str> {
///     long
/// }
/// ```
struct PoolBoxIsInvariant;

/// ```compile_fail
/// use handover_event::PoolArc;
/// fn shorten<'a>(long: PoolArc<&'static str>) -> PoolArc<&'a str> {
///     long
/// }
/// ```
struct PoolArcIsInvariant;

/// ```compile_fail
/// use handover_event::ThreadHandle;
/// fn shorten<'a>(long: ThreadHandle<&'static str>) -> ThreadHandle<&'a str> {
///     long
/// }
/// ```
struct ThreadHandleIsInvariant;

/// ```compile_fail
/// use handover_event::Context;
/// fn shorten<'c, 'a>(long: Context<'c, &'static str>) -> Context<'c, &'a str> {
///     long
/// }
/// ```
struct ContextIsInvariant;

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
/// type Value = &'static str;
/// fn keep<T>(it: T) -> T {
///     it
/// }
/// let _ = (keep::<Address<Value>>, keep::<Topic<Value>>, keep::<Publisher<Value>>);
/// let _ = (keep::<Pool<Value>>, keep::<PoolBox<Value>>, keep::<PoolArc<Value>>);
/// let _ = (keep::<ThreadHandle<Value>>, keep::<Context<'static, Value>>);
/// ```
struct SameTypes;
