//! Compared implementations: tarpc and tonic, over the same kinds of sockets as this project's
//! calls.
//!
//! Both sides have a single-threaded runtime, in which both libraries answer fastest: a call then
//! has one wake-up in each direction, like this project's. tarpc's messages use this project's
//! encoding.

pub(super) mod tarpc;
pub(super) mod tonic;

use super::PublishedAddress;
use super::calls::{CallMedium, Noop, VIA_TCP, VIA_UDS, WAITS_SLEEPING};
use crate::floor::connect::SERVER_ADDRESS;
use crate::floor::relay::RelayMedium;
use ::tonic::transport::server::Connected;
use handover_harness::{Fault, Region, ScratchFolder, Setup};
use handover_record::Spec;
use std::io;
use std::marker::PhantomData;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::runtime::{Builder, Runtime};

/// Payload of the untimed call that checks the echo of a library.
const ECHOED_PAYLOAD: &[u8] = b"correct before fast";

/// Kind of socket over which RPC libraries are measured.
pub(super) trait SocketKind: Send + Sync + 'static {
    /// Declaration of the benchmark, the same as for this project's calls.
    const SPEC: Spec;
    type Listener;
    type Stream: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static;

    /// Listens; returns the listener and its address as text.
    fn listen() -> Result<(Self::Listener, String), Fault>;
    async fn accept(listener: &Self::Listener) -> io::Result<Self::Stream>;
    async fn connect(address: &str) -> io::Result<Self::Stream>;
    /// Returns the address as a URI for tonic.
    fn uri(address: &str) -> String;
}

/// Connections over loopback TCP, without Nagle's delay.
pub(super) struct TcpSocket;

impl SocketKind for TcpSocket {
    const SPEC: Spec = CallMedium::<Noop, VIA_TCP, WAITS_SLEEPING>::SPEC;
    type Listener = TcpListener;
    type Stream = TcpStream;

    fn listen() -> Result<(TcpListener, String), Fault> {
        let listener = std::net::TcpListener::bind((SERVER_ADDRESS, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?.to_string();
        Ok((TcpListener::from_std(listener)?, address))
    }

    async fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    async fn connect(address: &str) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    fn uri(address: &str) -> String {
        format!("http://{address}")
    }
}

/// Connections over a Unix stream socket in a temporary folder.
pub(super) struct UnixSocket;

impl SocketKind for UnixSocket {
    const SPEC: Spec = CallMedium::<Noop, VIA_UDS, WAITS_SLEEPING>::SPEC;
    type Listener = (UnixListener, ScratchFolder);
    type Stream = UnixStream;

    fn listen() -> Result<((UnixListener, ScratchFolder), String), Fault> {
        let folder = ScratchFolder::new("handover-rpc-", &std::env::temp_dir())?;
        let path = folder.path().join("socket");
        let address =
            path.to_str().ok_or_else(|| Fault::new("the path of the socket is not UTF-8"))?.into();
        Ok(((UnixListener::bind(path)?, folder), address))
    }

    async fn accept((listener, _): &(UnixListener, ScratchFolder)) -> io::Result<UnixStream> {
        Ok(listener.accept().await?.0)
    }

    async fn connect(address: &str) -> io::Result<UnixStream> {
        UnixStream::connect(address).await
    }

    fn uri(address: &str) -> String {
        format!("unix:{address}")
    }
}

/// Client and server of an RPC library, with the procedures `echo` and `noop`.
pub(super) trait RpcLibrary: Send + Sync + 'static {
    type Client;

    async fn connect<K: SocketKind>(address: &str) -> Result<Self::Client, Fault>;
    async fn echo(client: &mut Self::Client, bytes: Vec<u8>) -> Result<Vec<u8>, Fault>;
    async fn noop(client: &mut Self::Client) -> Result<(), Fault>;
    /// Closes the connection, after the server has answered all calls.
    async fn end(client: Self::Client) -> Result<(), Fault>;
    /// Serves one connection until it is closed; returns the number of calls of `noop`.
    async fn serve<K: SocketKind>(stream: K::Stream) -> Result<u64, Fault>;
}

/// Medium of round trips: calls by an RPC library over one kind of socket.
pub(super) struct LibraryMedium<L, K> {
    server_address: Region<PublishedAddress>,
    library_and_socket: PhantomData<fn() -> (L, K)>,
}

/// A connected client with the runtime of its thread.
pub(super) struct LibraryCaller<C> {
    runtime: Runtime,
    client: C,
}

fn new_runtime() -> Result<Runtime, Fault> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

impl<L: RpcLibrary, K: SocketKind> LibraryMedium<L, K> {
    /// Connects a client, and checks one echo.
    fn connect_client(&self) -> Result<LibraryCaller<L::Client>, Fault> {
        let (address, runtime) = (self.server_address.wait()?, new_runtime()?);
        let client = runtime.block_on(async {
            let mut client = L::connect::<K>(&address).await?;
            match L::echo(&mut client, ECHOED_PAYLOAD.to_vec()).await? {
                came if came == ECHOED_PAYLOAD => Ok(client),
                came => Err(Fault::new(format!("the echo of {ECHOED_PAYLOAD:?} is {came:?}"))),
            }
        });
        Ok(LibraryCaller { client: client?, runtime })
    }
}

impl<L: RpcLibrary, K: SocketKind> RelayMedium for LibraryMedium<L, K> {
    type Args = ();
    const SPEC: Spec = K::SPEC;
    type PingState = Option<LibraryCaller<L::Client>>;

    fn setup((): &(), setup: &mut Setup) -> Result<Self, Fault> {
        Ok(Self { server_address: setup.shared_region()?, library_and_socket: PhantomData })
    }

    fn new_ping_state(&self) -> Result<Self::PingState, Fault> {
        self.connect_client().map(Some)
    }

    fn round_trip(&self, caller: &mut Self::PingState) -> Result<(), Fault> {
        match caller {
            Some(LibraryCaller { runtime, client }) => runtime.block_on(L::noop(client)),
            None => Err(Fault::new("the client is not connected")),
        }
    }

    fn end(&self, caller: &mut Self::PingState) -> Result<(), Fault> {
        match caller.take() {
            Some(LibraryCaller { runtime, client }) => runtime.block_on(L::end(client)),
            None => Ok(()),
        }
    }

    fn echo(&self) -> Result<u64, Fault> {
        new_runtime()?.block_on(async {
            let (listener, address) = K::listen()?;
            self.server_address.publish(&address)?;
            L::serve::<K>(K::accept(&listener).await?).await
        })
    }
}
