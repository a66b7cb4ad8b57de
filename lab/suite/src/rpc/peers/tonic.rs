//! tonic: gRPC, over HTTP/2. The code that its generator would write is written by hand, as the
//! generator needs the compiler of Protocol Buffers.

use super::{Fault, RpcLibrary, SocketKind};
use ::tonic::body::Body;
use ::tonic::client::Grpc;
use ::tonic::codegen::http::uri::PathAndQuery;
use ::tonic::codegen::tokio_stream::{self, StreamExt as _};
use ::tonic::codegen::{BoxFuture, Service, http};
use ::tonic::server::UnaryService;
use ::tonic::transport::{Channel, Endpoint, Server};
use ::tonic::{Request, Response, Status};
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use tokio::sync::Notify;
use tonic_prost::ProstCodec;

/// Path of the procedure without arguments.
const NOOP_PATH: &str = "/rpc.Peer/Noop";
const ECHO_PATH: &str = "/rpc.Peer/Echo";
const STOP_PATH: &str = "/rpc.Peer/Stop";

/// Protobuf message with bytes, used for all requests and responses.
#[derive(Clone, PartialEq, prost::Message)]
struct Payload {
    #[prost(bytes = "vec", tag = "1")]
    bytes: Vec<u8>,
}

/// Server of the procedures `Noop`, `Echo` and `Stop`.
#[derive(Debug, Clone, Default)]
struct PeerServer {
    /// Number of calls of [`NOOP_PATH`].
    calls_count: Arc<AtomicU64>,
    stop: Arc<Notify>,
}

/// Handler of the requests for one path of a [`PeerServer`].
struct Procedure {
    server: PeerServer,
    path: String,
}

impl UnaryService<Payload> for Procedure {
    type Response = Payload;
    type Future = Ready<Result<Response<Payload>, Status>>;

    fn call(&mut self, request: Request<Payload>) -> Self::Future {
        match self.path.as_str() {
            // Relaxed: used by one thread.
            NOOP_PATH => drop(self.server.calls_count.fetch_add(1, Ordering::Relaxed)),
            ECHO_PATH => {}
            STOP_PATH => self.server.stop.notify_one(),
            other => return ready(Err(Status::unimplemented(other))),
        }
        ready(Ok(Response::new(request.into_inner())))
    }
}

impl Service<http::Request<Body>> for PeerServer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let procedure = Procedure { server: self.clone(), path: request.uri().path().to_owned() };
        Box::pin(async move {
            let mut grpc = ::tonic::server::Grpc::new(ProstCodec::default());
            Ok(grpc.unary(procedure, request).await)
        })
    }
}

async fn call_procedure(
    client: &mut Grpc<Channel>,
    path: &'static str,
    bytes: Vec<u8>,
) -> Result<Vec<u8>, Fault> {
    client.ready().await.map_err(Fault::from_error)?;
    let (path, codec) = (PathAndQuery::from_static(path), ProstCodec::default());
    let answer: Response<Payload> = client
        .unary(Request::new(Payload { bytes }), path, codec)
        .await
        .map_err(Fault::from_error)?;
    Ok(answer.into_inner().bytes)
}

/// Compared implementation: the RPC library `tonic`.
pub(crate) struct Tonic;

impl RpcLibrary for Tonic {
    type Client = Grpc<Channel>;

    async fn connect<K: SocketKind>(address: &str) -> Result<Grpc<Channel>, Fault> {
        let endpoint = Endpoint::from_shared(K::uri(address)).map_err(Fault::from_error)?;
        Ok(Grpc::new(endpoint.connect().await.map_err(Fault::from_error)?))
    }

    async fn echo(client: &mut Grpc<Channel>, bytes: Vec<u8>) -> Result<Vec<u8>, Fault> {
        call_procedure(client, ECHO_PATH, bytes).await
    }

    async fn noop(client: &mut Grpc<Channel>) -> Result<(), Fault> {
        call_procedure(client, NOOP_PATH, Vec::new()).await.map(drop)
    }

    async fn end(mut client: Grpc<Channel>) -> Result<(), Fault> {
        call_procedure(&mut client, STOP_PATH, Vec::new()).await.map(drop)
    }

    async fn serve<K: SocketKind>(stream: K::Stream) -> Result<u64, Fault> {
        let peer = PeerServer::default();
        let (calls_count, stop) = (Arc::clone(&peer.calls_count), Arc::clone(&peer.stop));
        // The connection, followed by a stream without end: at the end of the stream the server
        // would shut down.
        let incoming =
            tokio_stream::once(Ok::<_, io::Error>(stream)).chain(tokio_stream::pending());
        let stopped = async move { stop.notified().await };
        let served = Server::builder().serve_with_incoming_shutdown(peer, incoming, stopped);
        served.await.map_err(Fault::from_error)?;
        // Relaxed: used by one thread.
        Ok(calls_count.load(Ordering::Relaxed))
    }
}
