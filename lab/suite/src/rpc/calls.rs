//! One caller and one server: empty calls, calls with bytes, and several calls at a time.

use super::PublishedAddress;
use crate::common::bytes_to_usize;
use crate::floor::relay::RelayMedium;
use handover_base::sync::shared::{AtomicU64, Ordering};
use handover_harness::{Fault, Region, Setup};
use handover_record::{Args, Bytes, Spec, args};
use handover_rpc::{Call, Calling, Config, Context, Endpoint, Failure, Method, Peer};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Procedure without arguments or a result.
pub(super) const NOOP_METHOD: Method = Method::new("noop");
/// Procedure that returns its argument.
const ECHO_METHOD: Method = Method::new("echo");
/// Procedure that stops the server.
const STOP_METHOD: Method = Method::new("stop");

/// Index in `ADDRESSES` of the transport by shared memory.
pub(super) const VIA_SM: usize = 0;
/// Index in `ADDRESSES` of the transport by loopback TCP.
pub(super) const VIA_TCP: usize = 1;
/// Index in `ADDRESSES` of the transport by a Unix socket.
pub(super) const VIA_UDS: usize = 2;
/// Address on which the server listens, by transport.
const ADDRESSES: [&str; 3] = ["sm://", "tcp://127.0.0.2:0", "uds://"];

/// Way of waiting: both participants poll for a while, then sleep. This is the default.
pub(super) const WAITS_BY_DEFAULT: usize = 0;
/// Way of waiting: both participants poll without end.
pub(super) const WAITS_SPINNING: usize = 1;
/// Way of waiting: both participants sleep at once, without polling.
pub(super) const WAITS_SLEEPING: usize = 2;

/// Kind of calls that a benchmark makes: without payload, with a payload, or several in flight.
pub(super) trait CallKind: Send + Sync + Sized + 'static {
    /// Arguments of the benchmarks of this kind of calls.
    type Args: Args;

    /// Declarations of the benchmarks of this kind of calls, one for each transport and way of
    /// waiting.
    const SPECS: &'static [Declared];

    fn new(args: &Self::Args) -> Self;

    /// Returns the number of providers that the server registers for each procedure.
    fn providers_count(&self) -> u16 {
        1
    }

    /// Completes one call. If several may be in flight, starts one instead, once fewer are in
    /// flight.
    fn call(&self, caller: &mut EndpointCaller) -> Result<(), Fault>;
}

/// Index of a transport, index of a way of waiting, and declaration of the benchmark with these
/// two.
type Declared = (usize, usize, Spec);

/// Lists declarations of benchmarks: transport, way of waiting, id, floor, and description of each,
/// or a declaration in brackets before both.
macro_rules! specs {
    ($([$spec:ident] $of:ident $in:ident;)* $($transport:ident $waits:ident: $id:literal,
        $floor:literal $(.$batched:ident())?, $what:literal;)*) => {
        &[$(($of, $in, $spec),)* $((
            $transport,
            $waits,
            Spec::new($id, $what).floor($floor).classic("margo-p2p-latency").hands_over()$(.$batched())?,
        ),)*]
    };
}

/// Returns the declaration for a transport and a way of waiting; fails to compile if there is none.
const fn find_spec(specs: &[Declared], transport: usize, waits: usize) -> Spec {
    let mut at = 0;
    while specs[at].0 != transport || specs[at].1 != waits {
        at += 1;
    }
    specs[at].2
}

/// Declaration of the benchmark `rpc/noop`: a call without arguments through shared memory.
const NOOP_SM: Spec =
    Spec::new("rpc/noop", "call without arguments and result through shared memory")
        .floor("floor/adaptive")
        .classic("margo-p2p-latency")
        .hands_over()
        .floors(&["floor/cache-line"])
        .ladder()
        .batched();

/// Calls without arguments or a result.
pub(super) struct Noop;

impl CallKind for Noop {
    type Args = ();

    const SPECS: &'static [Declared] = specs! {
        [NOOP_SM] VIA_SM WAITS_BY_DEFAULT;
        [NOOP_SM] VIA_SM WAITS_SPINNING;
        VIA_SM WAITS_SLEEPING: "rpc/noop-asleep", "floor/sleeping",
            "call without arguments and result through shared memory, both sides sleeping at once";
        VIA_TCP WAITS_SPINNING: "rpc/tcp-spin", "floor/socket-spin",
            "call without arguments and result over loopback TCP, both sides spinning";
        VIA_TCP WAITS_SLEEPING: "rpc/tcp", "floor/socket",
            "call without arguments and result over loopback TCP, both sides sleeping";
        VIA_UDS WAITS_SPINNING: "rpc/uds-spin", "floor/unix-socket-spin",
            "call without arguments and result over a Unix socket, both sides spinning";
        VIA_UDS WAITS_SLEEPING: "rpc/uds", "floor/unix-socket",
            "call without arguments and result over a Unix socket, both sides sleeping";
    };

    fn new((): &()) -> Self {
        Self
    }

    #[inline]
    fn call(&self, caller: &mut EndpointCaller) -> Result<(), Fault> {
        caller.endpoint.call(caller.peer, NOOP_METHOD, &()).map_err(Fault::from_error)
    }
}

args! {
    /// Arguments of the benchmark of calls with a payload through shared memory.
    pub struct SharedPayload {
        /// Bytes of the arguments, and of the result.
        size_bytes: Bytes = 65536 (smoke 64, range 1 ..= 1048576),
    }
}

args! {
    /// Arguments of the benchmarks of calls with a payload over a socket.
    pub struct SocketPayload {
        /// Bytes of the arguments, and of the result.
        message_bytes: Bytes = 64 (smoke 1, range 1 ..= 1048576),
    }
}

/// Arguments of the benchmarks of calls with a payload.
pub(super) trait Payload: Args + Send + Sync + 'static {
    /// Declarations of the benchmarks, one for each transport and way of waiting.
    const SPECS: &'static [Declared];
    fn bytes(&self) -> Bytes;
}

impl Payload for SharedPayload {
    const SPECS: &'static [Declared] = specs! {
        VIA_SM WAITS_SPINNING: "rpc/payload", "floor/shared-copy".batched(),
            "call with size_bytes as argument and as result through shared memory, both sides spinning";
    };

    fn bytes(&self) -> Bytes {
        self.size_bytes
    }
}

impl Payload for SocketPayload {
    const SPECS: &'static [Declared] = specs! {
        VIA_TCP WAITS_SPINNING: "rpc/tcp-payload", "floor/socket-spin",
            "call with message_bytes as argument and as result over loopback TCP, both sides spinning";
        VIA_UDS WAITS_SPINNING: "rpc/uds-payload", "floor/unix-socket-spin",
            "call with message_bytes as argument and as result over a Unix socket, both sides spinning";
    };

    fn bytes(&self) -> Bytes {
        self.message_bytes
    }
}

/// Calls that send a payload and return the same payload.
pub(super) struct EchoCalls<A> {
    sent: Vec<u8>,
    args: std::marker::PhantomData<fn() -> A>,
}

impl<A: Payload> CallKind for EchoCalls<A> {
    type Args = A;

    const SPECS: &'static [Declared] = A::SPECS;

    fn new(args: &A) -> Self {
        let sent = (b'a'..=b'z').cycle().take(bytes_to_usize(args.bytes())).collect();
        Self { sent, args: std::marker::PhantomData }
    }

    #[inline]
    fn call(&self, caller: &mut EndpointCaller) -> Result<(), Fault> {
        // The first results are compared completely, later ones by length.
        let looked_at = if caller.calls_count < 4 { self.sent.len() } else { 0 };
        let is_right = |came: &[u8]| {
            came.len() == self.sent.len() && came[..looked_at] == self.sent[..looked_at]
        };
        match caller.endpoint.call_bytes(caller.peer, ECHO_METHOD, &self.sent, is_right) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Fault::new("the result differs from the arguments sent")),
            Err(error) => Err(Fault::from_error(error)),
        }
    }
}

args! {
    /// Arguments of the benchmarks of several calls in flight.
    pub struct ManyCallsArgs {
        /// Calls in flight.
        concurrency_count: u32 = 16 (smoke 4, range 1 ..= 10000),
        /// Providers of the procedure, called round robin.
        providers_count: u32 = 1 (smoke 2, range 1 ..= 1000),
    }
}

/// Calls of which several are in flight. Each operation starts a call; if the maximum number is in
/// flight, it first waits for the oldest.
pub(super) struct ManyCalls {
    concurrency_count: usize,
    providers_count: u16,
}

impl CallKind for ManyCalls {
    type Args = ManyCallsArgs;

    const SPECS: &'static [Declared] = specs! {
        VIA_SM WAITS_SPINNING: "rpc/many", "floor/pipelined".batched(),
            "call through shared memory, with concurrency_count calls in flight, both sides spinning";
        VIA_TCP WAITS_SPINNING: "rpc/tcp-many", "floor/socket-pipelined".batched(),
            "call over loopback TCP, with concurrency_count calls in flight, both sides spinning";
    };

    fn new(args: &ManyCallsArgs) -> Self {
        // Both are within their declared ranges.
        let providers_count = args.providers_count as u16;
        Self { concurrency_count: args.concurrency_count as usize, providers_count }
    }

    fn providers_count(&self) -> u16 {
        self.providers_count
    }

    #[inline]
    fn call(&self, caller: &mut EndpointCaller) -> Result<(), Fault> {
        if caller.calls_in_flight.len() >= self.concurrency_count {
            caller.wait_for_oldest()?;
        }
        let provider = (caller.calls_count % u64::from(self.providers_count)) as u16;
        let method = NOOP_METHOD.with_provider(provider);
        let call = caller.endpoint.start(caller.peer, method, &()).map_err(Fault::from_error)?;
        caller.calls_in_flight.push_back(call);
        Ok(())
    }
}

/// Calling endpoint, with its calls in flight and the number of calls so far.
pub(super) struct EndpointCaller {
    endpoint: Endpoint,
    peer: Peer,
    calls_in_flight: VecDeque<Call<()>>,
    calls_count: u64,
}

impl EndpointCaller {
    /// Waits until the oldest call in flight is complete.
    fn wait_for_oldest(&mut self) -> Result<(), Fault> {
        match self.calls_in_flight.pop_front() {
            Some(call) => self.endpoint.wait(call).map_err(Fault::from_error),
            None => Ok(()),
        }
    }
}

/// Medium of round trips: calls from an endpoint in one participant to an endpoint in the other.
pub(super) struct CallMedium<W, const TRANSPORT: usize, const WAITS: usize> {
    call_kind: W,
    server_address: Region<PublishedAddress>,
    config: Config,
}

impl<W: CallKind, const TRANSPORT: usize, const WAITS: usize> RelayMedium
    for CallMedium<W, TRANSPORT, WAITS>
{
    type Args = W::Args;
    const SPEC: Spec = find_spec(W::SPECS, TRANSPORT, WAITS);
    type PingState = EndpointCaller;

    fn setup(args: &W::Args, setup: &mut Setup) -> Result<Self, Fault> {
        // If both share a CPU, one that spins without end would keep the other from answering.
        let spin_forever = WAITS == WAITS_SPINNING && !setup.is_crowded();
        let mut config = Config::default().spin_forever(spin_forever);
        if WAITS == WAITS_SLEEPING {
            config.spin_max = Duration::ZERO;
        }
        Ok(Self { call_kind: W::new(args), server_address: setup.shared_region()?, config })
    }

    fn new_ping_state(&self) -> Result<EndpointCaller, Fault> {
        let address = self.server_address.wait()?.parse().map_err(Fault::from_error)?;
        let mut endpoint = Endpoint::new(self.config.clone()).map_err(Fault::from_error)?;
        let peer = endpoint.connect(&address).map_err(Fault::from_error)?;
        Ok(EndpointCaller { endpoint, peer, calls_in_flight: VecDeque::new(), calls_count: 0 })
    }

    #[inline]
    fn round_trip(&self, caller: &mut EndpointCaller) -> Result<(), Fault> {
        let done = self.call_kind.call(caller);
        caller.calls_count += 1;
        done
    }

    fn end(&self, caller: &mut EndpointCaller) -> Result<(), Fault> {
        while !caller.calls_in_flight.is_empty() {
            caller.wait_for_oldest()?;
        }
        caller.endpoint.call::<_, ()>(caller.peer, STOP_METHOD, &()).map_err(Fault::from_error)
    }

    fn echo(&self) -> Result<u64, Fault> {
        let mut endpoint = Endpoint::new(self.config.clone()).map_err(Fault::from_error)?;
        let turns = Arc::new(AtomicU64::new(0));
        // Relaxed: written by this thread alone, which reads it after serving.
        let count = |turns: &AtomicU64| {
            turns.store(turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        };
        for provider in 0..self.call_kind.providers_count() {
            let turns = Arc::clone(&turns);
            let noop = move |_: &mut Context<'_>, ()| -> Result<(), Failure> {
                count(&turns);
                Ok(())
            };
            endpoint.register("noop", provider, noop).map_err(Fault::from_error)?;
        }
        let its = Arc::clone(&turns);
        let echo = move |_: &mut Context<'_>, bytes: &[u8], result: &mut Vec<u8>| {
            count(&its);
            result.extend_from_slice(bytes);
            Ok(())
        };
        endpoint.register_bytes("echo", 0, echo).map_err(Fault::from_error)?;
        let stop = |context: &mut Context<'_>, ()| -> Result<(), Failure> {
            context.stop();
            Ok(())
        };
        endpoint.register("stop", 0, stop).map_err(Fault::from_error)?;
        let address = endpoint
            .listen(&ADDRESSES[TRANSPORT].parse().map_err(Fault::from_error)?)
            .map_err(Fault::from_error)?;
        self.server_address.publish(&address.to_string())?;
        // Nothing else ends it. The last answer is still on its way, in memory that lives as long
        // as the caller's, or in the kernel.
        endpoint.serve();
        Ok(turns.load(Ordering::Relaxed))
    }
}
