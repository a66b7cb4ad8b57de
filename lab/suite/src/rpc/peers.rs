//! What users would pick instead: tarpc and tonic, over the same kinds of sockets as ours.
//!
//! Either side has a runtime of one thread, in which both libraries answer soonest: a call is then one
//! wake-up each way, as ours is. tarpc's messages are in the encoding of ours.

mod tarpc;
mod tonic;

use super::calls::{Called, Noop, SLEEPS, TCP, UDS};
use super::{Place, fault};
use crate::floor::relay::Medium;
use ::tonic::transport::server::Connected;
use handover_harness::{Fault, Region, Rig};
use handover_record::Spec;
use std::io;
use std::marker::PhantomData;
use std::net::Ipv4Addr;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::runtime::{Builder, Runtime};

pub(super) use tarpc::Tarpc;
pub(super) use tonic::Tonic;

/// What is sent once, before anything is timed, and must come back as it was.
const SAID: &[u8] = b"correct before fast";

/// A kind of socket, and what it is measured as.
pub(super) trait Kind: Send + Sync + 'static {
    /// The declaration of our own contender's benchmark.
    const SPEC: Spec;
    /// What listens.
    type Listener;
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static;

    /// Listens; where, in words.
    fn listen() -> Result<(Self::Listener, String), Fault>;
    async fn accept(listener: &Self::Listener) -> io::Result<Self::Stream>;
    async fn connect(place: &str) -> io::Result<Self::Stream>;
    /// That place as tonic's users write it.
    fn uri(place: &str) -> String;
}

/// Loopback TCP, without Nagle's delay.
pub(super) struct Tcp;

impl Kind for Tcp {
    const SPEC: Spec = Called::<Noop, TCP, SLEEPS>::SPEC;
    type Listener = TcpListener;
    type Stream = TcpStream;

    fn listen() -> Result<(TcpListener, String), Fault> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let place = listener.local_addr()?.to_string();
        Ok((TcpListener::from_std(listener)?, place))
    }

    async fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    async fn connect(place: &str) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(place).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    fn uri(place: &str) -> String {
        format!("http://{place}")
    }
}

/// A Unix stream socket, in a folder of its own.
pub(super) struct Unix;

impl Kind for Unix {
    const SPEC: Spec = Called::<Noop, UDS, SLEEPS>::SPEC;
    type Listener = (UnixListener, TempDir);
    type Stream = UnixStream;

    fn listen() -> Result<((UnixListener, TempDir), String), Fault> {
        let folder = TempDir::with_prefix("rpc-")?;
        let path = folder.path().join("socket");
        let place = path.to_str().ok_or_else(|| Fault::new("a folder that is no text"))?.into();
        Ok(((UnixListener::bind(path)?, folder), place))
    }

    async fn accept((listener, _): &(UnixListener, TempDir)) -> io::Result<UnixStream> {
        Ok(listener.accept().await?.0)
    }

    async fn connect(place: &str) -> io::Result<UnixStream> {
        UnixStream::connect(place).await
    }

    fn uri(place: &str) -> String {
        format!("unix:{place}")
    }
}

/// A library for calling procedures of other processes.
pub(super) trait Library: Send + Sync + 'static {
    /// A caller that is connected.
    type Client;

    async fn connect<K: Kind>(place: &str) -> Result<Self::Client, Fault>;
    /// Has bytes sent back.
    async fn echo(client: &mut Self::Client, bytes: Vec<u8>) -> Result<Vec<u8>, Fault>;
    /// The call that is timed.
    async fn noop(client: &mut Self::Client) -> Result<(), Fault>;
    /// Hangs up; the server has answered everything by then.
    async fn end(client: Self::Client) -> Result<(), Fault>;
    /// Serves one connection to its end; how many of the timed calls there were.
    async fn serve<K: Kind>(stream: K::Stream) -> Result<u64, Fault>;
}

/// That library over that kind of socket.
pub(super) struct Instead<L, K> {
    place: Region<Place>,
    over: PhantomData<fn() -> (L, K)>,
}

/// Who calls, and the thread's runtime.
pub(super) struct Caller<C> {
    runtime: Runtime,
    client: C,
}

fn runtime() -> Result<Runtime, Fault> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

impl<L: Library, K: Kind> Instead<L, K> {
    fn call(&self) -> Result<Caller<L::Client>, Fault> {
        let (place, runtime) = (self.place.hear()?, runtime()?);
        let client = runtime.block_on(async {
            let mut client = L::connect::<K>(&place).await?;
            match L::echo(&mut client, SAID.to_vec()).await? {
                came if came == SAID => Ok(client),
                came => Err(Fault::new(format!("sent were {SAID:?}, back came {came:?}"))),
            }
        });
        Ok(Caller { client: client?, runtime })
    }
}

impl<L: Library, K: Kind> Medium for Instead<L, K> {
    type Args = ();
    const SPEC: Spec = K::SPEC;
    /// What went wrong when it connected has no other way to say so.
    type Ping = Result<Caller<L::Client>, Fault>;

    fn rig((): &(), rig: &mut Rig) -> Result<Self, Fault> {
        Ok(Self { place: rig.region()?, over: PhantomData })
    }

    fn ping(&self) -> Self::Ping {
        self.call()
    }

    fn round_trip(&self, caller: &mut Self::Ping) -> Result<(), Fault> {
        match caller {
            Ok(Caller { runtime, client }) => runtime.block_on(L::noop(client)),
            Err(_) => Err(Fault::new("not connected")),
        }
    }

    fn end(&self, caller: &mut Self::Ping) -> Result<(), Fault> {
        let Caller { runtime, client } =
            std::mem::replace(caller, Err(Fault::new("ended already")))?;
        runtime.block_on(L::end(client))
    }

    fn echo(&self) -> Result<u64, Fault> {
        runtime()?.block_on(async {
            let (listener, place) = K::listen()?;
            self.place.tell(&place)?;
            L::serve::<K>(K::accept(&listener).await?).await
        })
    }
}
