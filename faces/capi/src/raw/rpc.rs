//! Remote procedure calls of plain bytes, and bulk transfers.

use super::handle::{
    CallbackContext, Exclusive, UserPointer, buffer, buffer_mut, copy_into, copy_struct,
    do_overlap, guard, limit, optional_text, require, take_back, text,
};
use crate::status::{Fault, Outcome, handover_status};
use handover_rpc::{
    AccessConfig, Address, AddressError, CallError, Calling, Config, ConnectionsConfig, Context,
    Endpoint, EndpointError, Failure, Method, Peer, PoolConfig, RegisterError, SharedMemoryConfig,
    Stopper, TlsFiles,
};
use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr::{NonNull, from_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use std::time::Duration;

use handover_status::*;

/// Limits of an endpoint. `handover_rpc_config_init` fills in the defaults. Strings are copied;
/// null means none.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct handover_rpc_config {
    /// Size of this structure in bytes, set by `handover_rpc_config_init`. Another size is refused.
    pub struct_bytes: usize,
    /// Path of the file with the shared secret for `tcp://`. Both ends of each `tcp://` connection
    /// must prove that they know it. Default null: anybody who can reach the port can call.
    pub secret_path: *const c_char,
    /// Path of a PEM file with this endpoint's certificate chain, for `tls://`. Default null.
    pub tls_certificates_path: *const c_char,
    /// Path of a PEM file with this endpoint's private key, for `tls://`. Default null.
    pub tls_key_path: *const c_char,
    /// Path of a PEM file with the root certificates that verify peers, for `tls://`. Default null.
    pub tls_roots_path: *const c_char,
    /// Maximum number of connected peers. Default 4,096.
    pub peers_max: u32,
    /// Maximum number of unfinished calls from this endpoint. Default 65,536.
    pub calls_max: u32,
    /// Maximum length of arguments and results in bytes, up to 128 MiB. Default 1 MiB. Each
    /// connection over `sm://` maps two buffers of twice this length, rounded up to a power of two
    /// and at least 4 MiB.
    pub message_bytes_max: u32,
    /// Maximum time for which a wait spins before it sleeps, in ns. Default 20,000.
    pub spin_ns_max: u32,
    /// 1 to spin forever instead of sleeping, for a thread with a CPU of its own. Default 0.
    pub should_spin_forever: u32,
    /// Maximum time for a handshake, in ms. Default 5,000.
    pub handshake_timeout_ms: u32,
    /// Maximum time between the first and the last byte of a message on a stream, in ms. 0 sets no
    /// limit. Default 30,000.
    pub message_timeout_ms: u32,
    /// 1 to let peers end `handover_rpc_serve` with `handover_rpc_stop_peer`. Default 0.
    pub allows_remote_stop: u32,
}

/// Identifier of a connected peer of an endpoint. It is valid for that endpoint only, and never
/// used for another peer.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct handover_rpc_peer {
    /// Index of the peer's slot.
    pub slot: u32,
    /// Number of earlier uses of the slot.
    pub generation: u32,
}

impl From<handover_rpc_peer> for Peer {
    fn from(peer: handover_rpc_peer) -> Self {
        let handover_rpc_peer { slot, generation } = peer;
        Self { slot, generation }
    }
}

impl From<Peer> for handover_rpc_peer {
    fn from(peer: Peer) -> Self {
        let Peer { slot, generation } = peer;
        Self { slot, generation }
    }
}

/// Call that a handler answers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct handover_rpc_request {
    /// Peer that made the call.
    pub peer: handover_rpc_peer,
    /// Arguments, which may be misaligned; valid until the handler returns.
    pub arguments: *const c_void,
    /// Length of the arguments in bytes.
    pub arguments_bytes: usize,
}

/// Response to a call, which its handler fills in; opaque, and valid until the handler returns.
pub struct handover_rpc_response {
    bytes: Vec<u8>,
    /// Text of the error, if the handler returns one.
    failure: String,
}

/// Function that answers a call, on the thread that drives the endpoint. It returns 0 if it
/// succeeded, and otherwise a number that the caller gets with `HANDOVER_HANDLER_FAILED`.
///
/// It may call peers and transfer memory through its endpoint, and must not serve, connect through
/// or destroy it. Neither `longjmp` nor a C++ exception may leave it.
pub type handover_rpc_handler = Option<
    unsafe extern "C" fn(
        endpoint: *mut handover_rpc_endpoint,
        request: *const handover_rpc_request,
        response: *mut handover_rpc_response,
        context: *mut c_void,
    ) -> i32,
>;

/// State that an endpoint's handle shares with its handlers.
#[derive(Default)]
struct EndpointShared {
    /// Handle of the endpoint, an argument of handlers in C; null before the handle exists.
    handle: AtomicPtr<handover_rpc_endpoint>,
    /// Context of the running handler.
    callback: CallbackContext,
}

/// Endpoint that listens, connects, calls and serves; opaque.
pub struct handover_rpc_endpoint {
    endpoint: Exclusive<Endpoint>,
    stopper: Stopper,
    shared: Arc<EndpointShared>,
    /// Number that the handler of the last failed call returned; 0 if it panicked.
    failure_code: AtomicI32,
}

impl handover_rpc_endpoint {
    /// Stores the number of a failed call. Called while the call has the endpoint: afterwards,
    /// another thread may destroy it.
    fn store_failure_code(&self, error: &CallError) {
        let code = match error {
            CallError::Failed(failure) => failure.code,
            CallError::Panicked => 0,
            _ => return,
        };
        // Relaxed: read by the thread that called.
        self.failure_code.store(code, Ordering::Relaxed);
    }
}

fn endpoint_fault(error: EndpointError) -> Fault {
    match error {
        EndpointError::Config(_)
        | EndpointError::IncompleteAddress(_)
        | EndpointError::Security { .. } => HANDOVER_INVALID_ARGUMENT.because(error),
        EndpointError::UserNotAllowed { .. } => HANDOVER_REFUSED.because(error),
        EndpointError::Handshake { .. } => HANDOVER_DISCONNECTED.because(error),
        EndpointError::HandshakeTimeout { .. } => HANDOVER_TIMED_OUT.because(error),
        EndpointError::TooManyPeers { .. } => HANDOVER_FULL.because(error),
        _ => HANDOVER_SYSTEM.because(error),
    }
}

fn call_fault(error: CallError) -> Fault {
    match error {
        CallError::Deadline => HANDOVER_TIMED_OUT.because(error),
        CallError::Disconnected(_) | CallError::EndpointStopped | CallError::Stale => {
            HANDOVER_DISCONNECTED.because(error)
        }
        CallError::Unknown => HANDOVER_NOT_FOUND.because(error),
        CallError::Failed(_) | CallError::Panicked => HANDOVER_HANDLER_FAILED.because(error),
        CallError::TooLong { .. } | CallError::ResultTooLong => HANDOVER_TOO_LONG.because(error),
        CallError::Full => HANDOVER_FULL.because(error),
        CallError::PeerFull | CallError::ResultUnsent => HANDOVER_REFUSED.because(error),
        _ => HANDOVER_INVALID_ARGUMENT.because(error),
    }
}

/// Fills in the defaults of an endpoint's limits.
///
/// Threads: any. Blocking: never.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_rpc_config_init(
    config: Option<&mut MaybeUninit<handover_rpc_config>>,
) -> handover_status {
    guard(|| {
        let it = Config::default();
        require("config", config)?.write(handover_rpc_config {
            struct_bytes: size_of::<handover_rpc_config>(),
            secret_path: std::ptr::null(),
            tls_certificates_path: std::ptr::null(),
            tls_key_path: std::ptr::null(),
            tls_roots_path: std::ptr::null(),
            peers_max: it.connections.peers_max,
            calls_max: it.calls_max,
            message_bytes_max: it.connections.message_bytes_max,
            // The default times are some seconds at most.
            spin_ns_max: it.spin_max.as_nanos() as u32,
            should_spin_forever: it.spin_forever.into(),
            handshake_timeout_ms: it.connections.handshake_timeout.as_millis() as u32,
            message_timeout_ms: it.connections.message_timeout.as_millis() as u32,
            allows_remote_stop: it.access.remote_stop.into(),
        });
        Ok(())
    })
}

/// Converts C's limits to the configuration of an endpoint. Returns an error if only some TLS paths
/// are set.
///
/// # Safety
/// The strings are null, or end with a zero byte.
unsafe fn config_from_c(config: &handover_rpc_config) -> Result<Config, Fault> {
    // SAFETY: the strings are null or end with a zero byte, as the caller guarantees.
    let path = |name, pointer| unsafe { optional_text(name, pointer) };
    let certificates = path("tls_certificates_path", config.tls_certificates_path)?;
    let private_key = path("tls_key_path", config.tls_key_path)?;
    let roots = path("tls_roots_path", config.tls_roots_path)?;
    let tls = match (certificates, private_key, roots) {
        (None, None, None) => None,
        (Some(certificates), Some(private_key), Some(roots)) => {
            let files = TlsFiles::default().certificates(certificates);
            Some(files.private_key(private_key).roots(roots))
        }
        _ => {
            return Err(
                HANDOVER_INVALID_ARGUMENT.because("config: set all three TLS paths, or none")
            );
        }
    };
    let access = AccessConfig::default()
        .secret_file(path("secret_path", config.secret_path)?)
        .tls(tls)
        .remote_stop(config.allows_remote_stop != 0);
    let connections = ConnectionsConfig::default()
        .peers_max(config.peers_max)
        .message_bytes_max(config.message_bytes_max)
        .handshake_timeout(Duration::from_millis(config.handshake_timeout_ms.into()))
        .message_timeout(Duration::from_millis(config.message_timeout_ms.into()));
    // An impossible size is reported for `message_bytes_max`, which is checked first.
    let shared_bytes_min = config.message_bytes_max.saturating_mul(2).checked_next_power_of_two();
    let shared_memory = SharedMemoryConfig::default();
    let shared_bytes = shared_memory.shared_bytes.max(shared_bytes_min.unwrap_or(0));
    Ok(default_config()
        .shared_memory(shared_memory.shared_bytes(shared_bytes))
        .calls_max(config.calls_max)
        .spin_max(Duration::from_nanos(config.spin_ns_max.into()))
        .spin_forever(config.should_spin_forever != 0)
        .access(access)
        .connections(connections))
}

/// Returns the default configuration, without threads of the pool: C's handlers run in the
/// endpoint's own thread.
fn default_config() -> Config {
    Config::default().pool(PoolConfig::default().threads(0))
}

/// Creates an endpoint. A null `config` stands for the defaults.
///
/// Errors: `HANDOVER_INVALID_ARGUMENT` for a limit outside its range, or a file that cannot be
/// used; `HANDOVER_SYSTEM`. Threads: any; an endpoint may move between threads, and one at a time
/// may use it. Blocking: never. Ownership: the caller destroys the endpoint.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn handover_rpc_create(
    config: *const handover_rpc_config,
    endpoint: Option<&mut MaybeUninit<*mut handover_rpc_endpoint>>,
) -> handover_status {
    guard(|| {
        let place = require("endpoint", endpoint)?;
        let config = if config.is_null() {
            default_config()
        } else {
            // SAFETY: the header demands a structure that begins with its size.
            let config = unsafe { copy_struct("config", config) }?;
            // SAFETY: the header demands strings that end with a zero byte.
            unsafe { config_from_c(&config) }?
        };
        let endpoint = Endpoint::new(config).map_err(endpoint_fault)?;
        let stopper = endpoint.stopper();
        let shared = Arc::<EndpointShared>::default();
        let handle = Box::into_raw(Box::new(handover_rpc_endpoint {
            endpoint: Exclusive::new(endpoint),
            stopper,
            shared: Arc::clone(&shared),
            failure_code: AtomicI32::new(0),
        }));
        // Relaxed: C passes the endpoint to another thread with its own synchronisation.
        shared.handle.store(handle, Ordering::Relaxed);
        place.write(handle);
        Ok(())
    })
}

/// Destroys an endpoint: closes its connections, and ends its registrations. No callback runs
/// afterwards.
///
/// Errors: `HANDOVER_BUSY` within a handler of the endpoint, `HANDOVER_WRONG_THREAD` while another
/// thread uses it; then nothing is destroyed. Threads: any, while no other thread is about to use
/// it. Blocking: never. Ownership: the handle is invalid afterwards; memories stay valid.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn handover_rpc_destroy(
    endpoint: *mut handover_rpc_endpoint,
) -> handover_status {
    // SAFETY: the header demands a handle that was not destroyed.
    guard(|| unsafe { take_back("endpoint", endpoint, |it| &it.endpoint) }.map(drop))
}

/// Runs `act` with the endpoint; returns an error if a handler calls this.
fn outside_handlers<T>(
    endpoint: Option<&handover_rpc_endpoint>,
    act: impl FnOnce(&mut Endpoint) -> Result<T, Fault>,
) -> Result<T, Fault> {
    act(&mut *require("endpoint", endpoint)?.endpoint.enter("endpoint")?)
}

/// Evaluates an expression with a [`Calling`] and [`Bulk`]: the context of the handler if this is
/// called within one, and otherwise the endpoint. The traits are sealed and generic, so that no
/// function can take either.
macro_rules! with_driver {
    ($endpoint:expr, |$driver:ident| $expression:expr) => {{
        let endpoint: &handover_rpc_endpoint = $endpoint;
        match endpoint.endpoint.is_entered_here().then(|| endpoint.shared.callback.lend()).flatten()
        {
            Some(lent) => {
                // SAFETY: `register` lends its exclusive reference until the callback returns, to
                // one call at a time; this thread is within that callback, as it has the endpoint.
                let $driver = unsafe { &mut *lent.pointer().cast::<Context<'_>>() };
                $expression
            }
            None => {
                let $driver = &mut *endpoint.endpoint.enter("endpoint")?;
                $expression
            }
        }
    }};
}

mod bulk;

pub use bulk::*;

fn parse_address(address: &str) -> Result<Address, Fault> {
    address.parse().map_err(|error: AddressError| HANDOVER_INVALID_ARGUMENT.because(error))
}

/// Listens at `sm://NAME`, `tcp://HOST:PORT`, `tls://HOST:PORT` or `uds://PATH`. The address to
/// connect to goes to `resolved`, a buffer of `resolved_bytes` bytes, as a string: `sm://` listens
/// at a new name, port 0 at a free port.
///
/// Errors: `HANDOVER_INVALID_ARGUMENT` for an address that cannot be parsed; `HANDOVER_SYSTEM` if
/// it is in use, or needs UCX and its library is missing; `HANDOVER_TOO_LONG` if the buffer is too
/// small: 128 bytes are enough; the endpoint then listens all the same. Threads: one at a time, not
/// within a handler. Blocking: while a host name is looked up.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn handover_rpc_listen(
    endpoint: Option<&handover_rpc_endpoint>,
    address: *const c_char,
    resolved: *mut c_char,
    resolved_bytes: usize,
) -> handover_status {
    guard(|| {
        // SAFETY: the header demands a string that ends with a zero byte.
        let address = parse_address(unsafe { text("address", address) }?)?;
        // SAFETY: the header demands a buffer of that length.
        let resolved = unsafe { buffer_mut("resolved", resolved.cast(), resolved_bytes) }?;
        let listening =
            outside_handlers(endpoint, |it| it.listen(&address).map_err(endpoint_fault))?;
        if resolved.is_empty() {
            return Ok(());
        }
        copy_into("resolved", resolved, format!("{listening}\0").as_bytes())
    })
}

/// Connects to the endpoint at `address`. The endpoint serves its own peers meanwhile.
///
/// Errors: `HANDOVER_INVALID_ARGUMENT` for an address that cannot be parsed; `HANDOVER_SYSTEM` if
/// nobody listens there, or it needs UCX and its library is missing; `HANDOVER_DISCONNECTED` or
/// `HANDOVER_TIMED_OUT` for a failed handshake; `HANDOVER_REFUSED`; `HANDOVER_FULL`;
/// `HANDOVER_BUSY` within a handler. Threads: one at a time, not within a handler. Blocking: while
/// a host name is looked up, then up to `handshake_timeout_ms`.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn handover_rpc_connect(
    endpoint: Option<&handover_rpc_endpoint>,
    address: *const c_char,
    peer: Option<&mut MaybeUninit<handover_rpc_peer>>,
) -> handover_status {
    guard(|| {
        let place = require("peer", peer)?;
        // SAFETY: the header demands a string that ends with a zero byte.
        let address = parse_address(unsafe { text("address", address) }?)?;
        let connected =
            outside_handlers(endpoint, |it| it.connect(&address).map_err(endpoint_fault))?;
        place.write(connected.into());
        Ok(())
    })
}

/// Closes the connection to a peer. Calls under way fail at both ends.
///
/// Errors: `HANDOVER_DISCONNECTED` if the peer is not connected.
/// Threads: one at a time, within a handler too. Blocking: never.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_rpc_disconnect(
    endpoint: Option<&handover_rpc_endpoint>,
    peer: handover_rpc_peer,
) -> handover_status {
    guard(|| {
        let endpoint = require("endpoint", endpoint)?;
        match with_driver!(endpoint, |driver| driver.disconnect(peer.into())) {
            true => Ok(()),
            false => Err(HANDOVER_DISCONNECTED.because("peer: not connected")),
        }
    })
}

/// Registers a procedure: calls with this name and provider run `handler` with `context`.
///
/// Errors: `HANDOVER_ALREADY_EXISTS` if the name and provider are taken. Threads: one at a time,
/// not within a handler. Blocking: never. Ownership: the name is copied; `context` stays the
/// program's, and must live until the procedure is unregistered or the endpoint destroyed.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn handover_rpc_register(
    endpoint: Option<&handover_rpc_endpoint>,
    name: *const c_char,
    provider: u16,
    handler: handover_rpc_handler,
    context: *mut c_void,
) -> handover_status {
    guard(|| {
        // SAFETY: the header demands a string that ends with a zero byte.
        let name = unsafe { text("name", name) }?;
        let function = require("handler", handler)?;
        let shared = Arc::clone(&require("endpoint", endpoint)?.shared);
        let argument = UserPointer(context);
        let handler = move |context: &mut Context<'_>, arguments: &[u8], into: &mut Vec<u8>| {
            let request = handover_rpc_request {
                peer: context.peer().into(),
                arguments: arguments.as_ptr().cast(),
                arguments_bytes: arguments.len(),
            };
            let start = into.len();
            let bytes = std::mem::take(into);
            let mut response = handover_rpc_response { bytes, failure: String::new() };
            let pointer = from_mut(&mut response);
            // Relaxed: stored before the endpoint was given to C.
            let endpoint = shared.handle.load(Ordering::Relaxed);
            let code = shared.callback.run_callback(from_mut(context).cast(), || {
                // SAFETY: the header demands a function that accepts these arguments, which are
                // valid until it returns.
                unsafe { function(endpoint, &raw const request, pointer, argument.get()) }
            });
            *into = response.bytes;
            if code == 0 {
                return Ok(());
            }
            into.truncate(start);
            Err(Failure::new(code, response.failure))
        };
        outside_handlers(endpoint, |it| {
            it.register_bytes(name, provider, handler)
                .map_err(|error: RegisterError| HANDOVER_ALREADY_EXISTS.because(error))
        })
    })
}

/// Removes a procedure. Its handler does not run afterwards.
///
/// Errors: `HANDOVER_NOT_FOUND` if it is not registered; `HANDOVER_BUSY` within a handler. Threads:
/// one at a time, not within a handler. Blocking: never. Ownership: the endpoint no longer keeps
/// the procedure's `context`.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn handover_rpc_unregister(
    endpoint: Option<&handover_rpc_endpoint>,
    name: *const c_char,
    provider: u16,
) -> handover_status {
    guard(|| {
        // SAFETY: the header demands a string that ends with a zero byte.
        let name = unsafe { text("name", name) }?;
        match outside_handlers(endpoint, |it| Ok(it.unregister(name, provider)))? {
            true => Ok(()),
            false => Err(HANDOVER_NOT_FOUND
                .because(format_args!("{name}, provider {provider}: not registered"))),
        }
    })
}

/// Appends bytes to the result of a call.
///
/// Errors: `HANDOVER_NULL_ARGUMENT`.
/// Threads: the handler's. Blocking: never. Ownership: the bytes are copied.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn handover_rpc_respond(
    response: Option<&mut handover_rpc_response>,
    bytes: *const c_void,
    bytes_count: usize,
) -> handover_status {
    guard(|| {
        let response = require("response", response)?;
        // SAFETY: the header demands a buffer of that length.
        response.bytes.extend_from_slice(unsafe { buffer("bytes", bytes, bytes_count) }?);
        Ok(())
    })
}

/// Sets the text of the error that the handler is going to return, in place of an earlier one.
///
/// Errors: `HANDOVER_NULL_ARGUMENT`, and `HANDOVER_INVALID_ARGUMENT` if the text is not UTF-8.
/// Threads: the handler's. Blocking: never. Ownership: the text is copied.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn handover_rpc_fail(
    response: Option<&mut handover_rpc_response>,
    message: *const c_char,
) -> handover_status {
    guard(|| {
        let response = require("response", response)?;
        // SAFETY: the header demands a string that ends with a zero byte.
        response.failure = unsafe { text("message", message) }?.to_owned();
        Ok(())
    })
}

/// Serves peers until `handover_rpc_stop` is called, or a peer stops it (if `allows_remote_stop` is
/// 1).
///
/// Errors: `HANDOVER_BUSY` within a handler; `HANDOVER_WRONG_THREAD` while another thread uses the
/// endpoint. Threads: one at a time, which runs the handlers. Blocking: until it is stopped.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_rpc_serve(endpoint: Option<&handover_rpc_endpoint>) -> handover_status {
    guard(|| {
        outside_handlers(endpoint, |it| {
            it.serve();
            Ok(())
        })
    })
}

/// Serves peers until some work was done, for at most `timeout_ns`: for a program that has a loop
/// of its own.
///
/// Errors: `HANDOVER_TIMED_OUT`, which sets no last error, if there was no work; otherwise as
/// `handover_rpc_serve`. Threads: one at a time, which runs the handlers. Blocking: up to
/// `timeout_ns`.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_rpc_progress(
    endpoint: Option<&handover_rpc_endpoint>,
    timeout_ns: u64,
) -> handover_status {
    guard(|| {
        let timeout = Duration::from_nanos(timeout_ns);
        match outside_handlers(endpoint, |it| Ok(it.progress(timeout)))? {
            true => Ok(()),
            false => Err(HANDOVER_TIMED_OUT.into()),
        }
    })
}

/// Asks the endpoint to stop serving. If it is not serving, its next `handover_rpc_serve` returns
/// at once.
///
/// Threads: any number at the same time, and within a handler. Blocking: never.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_rpc_stop(endpoint: Option<&handover_rpc_endpoint>) -> handover_status {
    guard(|| {
        // A clone: once it has stopped, another thread may destroy the endpoint.
        require("endpoint", endpoint)?.stopper.clone().stop();
        Ok(())
    })
}

/// Asks a peer that allows it (`allows_remote_stop`) to stop serving, and waits for its answer.
///
/// Errors: `HANDOVER_NOT_FOUND` if the peer does not allow it; otherwise as `handover_rpc_call`.
/// Threads: one at a time, within a handler too. Blocking: until the peer answers or the connection
/// ends.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_rpc_stop_peer(
    endpoint: Option<&handover_rpc_endpoint>,
    peer: handover_rpc_peer,
) -> handover_status {
    guard(|| {
        let endpoint = require("endpoint", endpoint)?;
        with_driver!(endpoint, |driver| driver.stop_peer(peer.into())).map_err(call_fault)
    })
}

/// Calls a procedure of a peer, and waits for its result for at most `timeout_ns`.
///
/// `*result_bytes` is the size of the buffer `result` before the call, and the length of the result
/// after it. Both may be null if the result is not wanted. While the call waits, the endpoint
/// serves its own peers, except within a handler.
///
/// Errors: `HANDOVER_TIMED_OUT`; `HANDOVER_DISCONNECTED`; `HANDOVER_NOT_FOUND` for no such
/// procedure; `HANDOVER_HANDLER_FAILED`, whose number `handover_rpc_failure_code` returns;
/// `HANDOVER_TOO_LONG` for a result that does not fit into the buffer (it is lost, and
/// `*result_bytes` is its length), and for arguments, a result or an error's text above the
/// `message_bytes_max` of either end (`*result_bytes` is then 0); `HANDOVER_FULL`;
/// `HANDOVER_REFUSED` by a peer that is full; `HANDOVER_INVALID_ARGUMENT` for arguments that a
/// procedure in Rust cannot decode. Threads: one at a time, within a handler too. Blocking: up to
/// `timeout_ns`, and while a handler runs. Ownership: all buffers stay the program's.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn handover_rpc_call(
    endpoint: Option<&handover_rpc_endpoint>,
    peer: handover_rpc_peer,
    name: *const c_char,
    provider: u16,
    arguments: *const c_void,
    arguments_bytes: usize,
    result: *mut c_void,
    result_bytes: *mut usize,
    timeout_ns: u64,
) -> handover_status {
    guard(|| {
        let endpoint = require("endpoint", endpoint)?;
        // SAFETY: the header demands a string that ends with a zero byte.
        let method = Method::new(unsafe { text("name", name) }?).with_provider(provider);
        let result_bytes = NonNull::new(result_bytes);
        // SAFETY: the header demands a length, or null.
        let room = result_bytes.map_or(0, |it| unsafe { it.read() });
        let is_in_place = do_overlap((arguments, arguments_bytes), (result.cast_const(), room));
        // SAFETY: the header demands a buffer of that length.
        let arguments = unsafe { buffer("arguments", arguments, arguments_bytes) }?;
        // The result may replace the arguments, of which there is no other reference then.
        let copied = is_in_place.then(|| arguments.to_vec());
        let arguments = copied.as_deref().unwrap_or(arguments);
        // SAFETY: the header demands a buffer of that length; `arguments` does not overlap it.
        let result = unsafe { buffer_mut("result", result, room) }?;
        let mut answer_bytes = None;
        let read = |answer: &[u8]| -> Outcome {
            answer_bytes = Some(answer.len());
            match result_bytes {
                Some(_) => copy_into("result", result, answer),
                None => Ok(()),
            }
        };
        let answer = with_driver!(endpoint, |driver| {
            let answer = match limit(timeout_ns) {
                Some(timeout) => {
                    driver.call_bytes_within(peer.into(), method, arguments, timeout, read)
                }
                None => driver.call_bytes(peer.into(), method, arguments, read),
            };
            answer.inspect_err(|error| endpoint.store_failure_code(error))
        });
        if let Err(CallError::TooLong { .. } | CallError::ResultTooLong) = &answer {
            answer_bytes = Some(0);
        }
        if let (Some(place), Some(bytes)) = (result_bytes, answer_bytes) {
            // SAFETY: as for the read; the buffers, which may contain it, are not used any more.
            unsafe { place.write(bytes) };
        }
        answer.map_err(call_fault)?
    })
}

/// Returns the number that the peer's handler returned for the last call that ended with
/// `HANDOVER_HANDLER_FAILED`; 0 if that handler panicked, if there was no such call, or if
/// `endpoint` is null.
///
/// Threads: one at a time. Blocking: never.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_rpc_failure_code(endpoint: Option<&handover_rpc_endpoint>) -> i32 {
    // Relaxed: stored by the thread that called.
    endpoint.map_or(0, |it| it.failure_code.load(Ordering::Relaxed))
}
