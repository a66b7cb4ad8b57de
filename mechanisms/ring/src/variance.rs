//! Invariance of the ends: an end for values with a long lifetime must not convert to an end for
//! values with a shorter one, because both ends access the same values. None of the first examples
//! may compile; the last shows that nothing but the conversion is wrong with them.

/// Compile-fail test: `spsc::Producer` is invariant in its type parameter.
///
/// ```compile_fail
/// use handover_ring::spsc;
/// fn shorten<'a>(long: spsc::Producer<&'static str>) -> spsc::Producer<&'a str> {
///     long
/// }
/// ```
struct SpscProducerIsInvariant;

/// Compile-fail test: `spsc::Consumer` is invariant in its type parameter.
///
/// ```compile_fail
/// use handover_ring::spsc;
/// fn shorten<'a>(long: spsc::Consumer<&'static str>) -> spsc::Consumer<&'a str> {
///     long
/// }
/// ```
struct SpscConsumerIsInvariant;

/// Compile-fail test: `spsc::Drain` is invariant in its type parameter.
///
/// ```compile_fail
/// use handover_ring::spsc;
/// fn shorten<'d, 'a>(long: spsc::Drain<'d, &'static str>) -> spsc::Drain<'d, &'a str> {
///     long
/// }
/// ```
struct SpscDrainIsInvariant;

/// Compile-fail test: `mpsc::Producer` is invariant in its type parameter.
///
/// ```compile_fail
/// use handover_ring::mpsc;
/// fn shorten<'a>(long: mpsc::Producer<&'static str>) -> mpsc::Producer<&'a str> {
///     long
/// }
/// ```
struct MpscProducerIsInvariant;

/// Compile-fail test: `mpsc::Consumer` is invariant in its type parameter.
///
/// ```compile_fail
/// use handover_ring::mpsc;
/// fn shorten<'a>(long: mpsc::Consumer<&'static str>) -> mpsc::Consumer<&'a str> {
///     long
/// }
/// ```
struct MpscConsumerIsInvariant;

/// Compile-fail test: `mpsc::Drain` is invariant in its type parameter.
///
/// ```compile_fail
/// use handover_ring::mpsc;
/// fn shorten<'d, 'a>(long: mpsc::Drain<'d, &'static str>) -> mpsc::Drain<'d, &'a str> {
///     long
/// }
/// ```
struct MpscDrainIsInvariant;

/// Compile-fail test: `mpmc::Producer` is invariant in its type parameter.
///
/// ```compile_fail
/// use handover_ring::mpmc;
/// fn shorten<'a>(long: mpmc::Producer<&'static str>) -> mpmc::Producer<&'a str> {
///     long
/// }
/// ```
struct MpmcProducerIsInvariant;

/// Compile-fail test: `mpmc::Consumer` is invariant in its type parameter.
///
/// ```compile_fail
/// use handover_ring::mpmc;
/// fn shorten<'a>(long: mpmc::Consumer<&'static str>) -> mpmc::Consumer<&'a str> {
///     long
/// }
/// ```
struct MpmcConsumerIsInvariant;

/// Compile-fail test: `mailbox::Caller` is invariant in its type parameter.
///
/// ```compile_fail
/// use handover_ring::mailbox;
/// fn shorten<'a>(long: mailbox::Caller<&'static str, u8>) -> mailbox::Caller<&'a str, u8> {
///     long
/// }
/// ```
struct MailboxCallerIsInvariant;

/// Compile-fail test: `mailbox::Server` is invariant in its type parameter.
///
/// ```compile_fail
/// use handover_ring::mailbox;
/// fn shorten<'a>(long: mailbox::Server<&'static str, u8>) -> mailbox::Server<&'a str, u8> {
///     long
/// }
/// ```
struct MailboxServerIsInvariant;

/// Check that the types above compile where no conversion is needed.
///
/// ```
/// use handover_ring::{mailbox, mpmc, mpsc, spsc};
/// fn keep_0(it: spsc::Producer<&'static str>) -> spsc::Producer<&'static str> {
///     it
/// }
/// fn keep_1(it: spsc::Consumer<&'static str>) -> spsc::Consumer<&'static str> {
///     it
/// }
/// fn keep_2<'d>(it: spsc::Drain<'d, &'static str>) -> spsc::Drain<'d, &'static str> {
///     it
/// }
/// fn keep_3(it: mpsc::Producer<&'static str>) -> mpsc::Producer<&'static str> {
///     it
/// }
/// fn keep_4(it: mpsc::Consumer<&'static str>) -> mpsc::Consumer<&'static str> {
///     it
/// }
/// fn keep_5<'d>(it: mpsc::Drain<'d, &'static str>) -> mpsc::Drain<'d, &'static str> {
///     it
/// }
/// fn keep_8(it: mpmc::Producer<&'static str>) -> mpmc::Producer<&'static str> {
///     it
/// }
/// fn keep_9(it: mpmc::Consumer<&'static str>) -> mpmc::Consumer<&'static str> {
///     it
/// }
/// fn keep_6(it: mailbox::Caller<&'static str, u8>) -> mailbox::Caller<&'static str, u8> {
///     it
/// }
/// fn keep_7(it: mailbox::Server<&'static str, u8>) -> mailbox::Server<&'static str, u8> {
///     it
/// }
/// ```
struct EndsOfTheSameType;
