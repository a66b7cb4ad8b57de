//! Servers of TCP connections that echo whole messages.

#[cfg(handover_openssl)]
use std::ffi::{CStr, c_char};
use std::ffi::{c_int, c_void};
use std::io;
use std::net::TcpStream;
use std::os::fd::IntoRawFd;

/// C function that runs an echo server.
#[cfg(any(handover_boost_asio, handover_libuv))]
type Serve = unsafe extern "C" fn(
    fds: *const c_int,
    count: usize,
    buffer_bytes: usize,
    set_up: extern "C" fn(*mut c_void),
    context: *mut c_void,
) -> i64;

// SAFETY: `c/peers.cpp` defines each function with this signature if build.rs sets its flag.
unsafe extern "C" {
    #[cfg(handover_boost_asio)]
    fn handover_asio_serve(
        fds: *const c_int,
        count: usize,
        buffer_bytes: usize,
        set_up: extern "C" fn(*mut c_void),
        context: *mut c_void,
    ) -> i64;
    #[cfg(handover_libuv)]
    fn handover_libuv_serve(
        fds: *const c_int,
        count: usize,
        buffer_bytes: usize,
        set_up: extern "C" fn(*mut c_void),
        context: *mut c_void,
    ) -> i64;
    #[cfg(handover_openssl)]
    fn handover_openssl_serve(
        fds: *const c_int,
        count: usize,
        buffer_bytes: usize,
        pem: *const c_char,
        set_up: extern "C" fn(*mut c_void),
        context: *mut c_void,
    ) -> i64;
}

/// Echo server with the event loop of Boost.Asio.
#[cfg(handover_boost_asio)]
pub(crate) const ASIO_SERVER: Server = Server(handover_asio_serve);
/// Echo server with the event loop of libuv.
#[cfg(handover_libuv)]
pub(crate) const LIBUV_SERVER: Server = Server(handover_libuv_serve);

/// Echo server that runs on the calling thread.
#[cfg(any(handover_boost_asio, handover_libuv))]
#[derive(Clone, Copy)]
pub(crate) struct Server(Serve);

/// Calls the closure of type `F` at the address `closure`.
extern "C" fn call_closure<F: FnMut()>(closure: *mut c_void) {
    // SAFETY: run() passes a pointer to its own closure of this type, and uses the closure no more
    // until the library has returned.
    let closure = unsafe { &mut *closure.cast::<F>() };
    closure();
}

/// Calls `serve` with the descriptors of the streams, and with a function and its argument that
/// call `set_up`. `serve` returns the number of messages, or a negated errno.
fn run<F: FnMut()>(
    streams: Vec<TcpStream>,
    mut set_up: F,
    serve: impl FnOnce(&[c_int], extern "C" fn(*mut c_void), *mut c_void) -> i64,
) -> io::Result<u64> {
    let fds: Vec<c_int> = streams.into_iter().map(IntoRawFd::into_raw_fd).collect();
    let count = serve(&fds, call_closure::<F>, (&raw mut set_up).cast());
    u64::try_from(count).map_err(|_| io::Error::from_raw_os_error(-count as i32))
}

#[cfg(any(handover_boost_asio, handover_libuv))]
impl Server {
    /// Echoes complete messages until all streams are closed; returns the number of messages. No
    /// message may be longer than `buffer_bytes`. Calls `set_up` when all streams are in the loop.
    pub(crate) fn serve<F: FnMut()>(
        self,
        streams: Vec<TcpStream>,
        buffer_bytes: usize,
        set_up: F,
    ) -> io::Result<u64> {
        run(streams, set_up, |fds, set_up, context| {
            // SAFETY: the library owns the descriptors from here on; `fds` and the closure behind
            // `context` outlive the call.
            unsafe { (self.0)(fds.as_ptr(), fds.len(), buffer_bytes, set_up, context) }
        })
    }
}

/// Echoes complete messages with OpenSSL until all streams are closed; returns the number of
/// messages. No message may be longer than `buffer_bytes`; the streams are non-blocking. `pem`
/// holds the certificate and its key. Calls `set_up` when all handshakes are complete.
#[cfg(handover_openssl)]
pub(crate) fn serve_by_openssl<F: FnMut()>(
    streams: Vec<TcpStream>,
    buffer_bytes: usize,
    pem: &CStr,
    set_up: F,
) -> io::Result<u64> {
    run(streams, set_up, |fds, set_up, context| {
        let (first, count) = (fds.as_ptr(), fds.len());
        // SAFETY: the function owns the descriptors from here on; `fds`, `pem` and the closure
        // behind `context` outlive the call.
        unsafe { handover_openssl_serve(first, count, buffer_bytes, pem.as_ptr(), set_up, context) }
    })
}
