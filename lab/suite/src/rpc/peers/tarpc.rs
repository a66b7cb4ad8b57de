//! tarpc: procedures as methods of a trait.

use super::{Fault, RpcLibrary, SocketKind};
use ::tarpc::server::{BaseChannel, Channel as _};
use ::tarpc::tokio_serde::{Deserializer, Serializer};
use ::tarpc::tokio_util::bytes::{Bytes, BytesMut};
use ::tarpc::tokio_util::codec::LengthDelimitedCodec;
use ::tarpc::{client, context, serde_transport};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tonic::codegen::tokio_stream::StreamExt as _;

/// Procedures of the measured service: `noop` and `echo`.
#[tarpc::service]
pub(crate) trait Peer {
    async fn noop();
    async fn echo(bytes: Vec<u8>) -> Vec<u8>;
}

/// Server of the procedures `noop` and `echo`.
#[derive(Clone)]
struct Server {
    /// Number of calls of `noop`.
    calls_count: Arc<AtomicU64>,
}

impl Peer for Server {
    async fn noop(self, _: context::Context) {
        // Relaxed: used by one thread.
        self.calls_count.fetch_add(1, Ordering::Relaxed);
    }

    async fn echo(self, _: context::Context, bytes: Vec<u8>) -> Vec<u8> {
        bytes
    }
}

/// Message encoding by `postcard`, because the encodings that tarpc offers are unmaintained or
/// textual.
#[derive(Debug, Clone, Copy)]
struct Postcard;

impl<T: Serialize> Serializer<T> for Postcard {
    type Error = io::Error;

    fn serialize(self: Pin<&mut Self>, item: &T) -> Result<Bytes, io::Error> {
        postcard::to_extend(item, Vec::new()).map(Bytes::from).map_err(io::Error::other)
    }
}

impl<T: DeserializeOwned> Deserializer<T> for Postcard {
    type Error = io::Error;

    fn deserialize(self: Pin<&mut Self>, from: &BytesMut) -> Result<T, io::Error> {
        postcard::from_bytes(from).map_err(io::Error::other)
    }
}

/// Compared implementation: the RPC library `tarpc`.
pub(crate) struct Tarpc;

impl RpcLibrary for Tarpc {
    type Client = PeerClient;

    async fn connect<K: SocketKind>(address: &str) -> Result<PeerClient, Fault> {
        let frames = LengthDelimitedCodec::builder().new_framed(K::connect(address).await?);
        let transport = serde_transport::new(frames, Postcard);
        Ok(PeerClient::new(client::Config::default(), transport).spawn())
    }

    async fn echo(client: &mut PeerClient, bytes: Vec<u8>) -> Result<Vec<u8>, Fault> {
        client.echo(context::current(), bytes).await.map_err(Fault::from_error)
    }

    async fn noop(client: &mut PeerClient) -> Result<(), Fault> {
        client.noop(context::current()).await.map_err(Fault::from_error)
    }

    async fn end(_: PeerClient) -> Result<(), Fault> {
        Ok(())
    }

    async fn serve<K: SocketKind>(stream: K::Stream) -> Result<u64, Fault> {
        let frames = LengthDelimitedCodec::builder().new_framed(stream);
        let channel = BaseChannel::with_defaults(serde_transport::new(frames, Postcard));
        let server = Server { calls_count: Arc::default() };
        let mut requests = pin!(channel.execute(server.clone().serve()));
        while let Some(request) = requests.next().await {
            tokio::spawn(request);
        }
        // Relaxed: used by one thread.
        Ok(server.calls_count.load(Ordering::Relaxed))
    }
}
