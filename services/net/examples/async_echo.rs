//! An echo server whose answers await something:
//! `cargo run -p handover-net --example net-async-echo`.
//!
//! A handler does not wait. It gives a message to a task of an executor, here tokio's, with a
//! handle of the connection, through which the task sends the answer. The connection is suspended
//! meanwhile, so that its peer has at most one read of messages in progress.

use handover_net::engine::{Codec, LengthPrefixCodec};
use handover_net::{Conn, Handler, NetBuilder};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Handle};

const CODEC: LengthPrefixCodec = LengthPrefixCodec::new(1 << 16);
const CLIENTS_COUNT: usize = 100;
/// Simulated duration of a database query; each answer waits for one.
const QUERY_DURATION: Duration = Duration::from_millis(20);

struct Echo {
    executor: Handle,
}

impl Handler for Echo {
    type Codec = LengthPrefixCodec;
    type Data = ();

    fn on_message(&mut self, conn: &mut Conn<'_, LengthPrefixCodec, ()>, message: &[u8]) {
        conn.suspend();
        let mut answer = Vec::new();
        CODEC.encode(message, &mut answer).expect("a received message is too long to be sent back");
        let handle = conn.handle();
        self.executor.spawn(async move {
            tokio::time::sleep(QUERY_DURATION).await;
            // They fail only if the server has stopped, or its queue of commands is full. The
            // answer is dropped without an error while the server stops, and once the peer has
            // ended its stream.
            if handle.write(answer).is_err() || handle.resume().is_err() {
                eprintln!("an answer was lost");
            }
        });
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_time().build()?;
    let executor = runtime.handle().clone();
    let here: SocketAddr = "127.0.0.1:0".parse()?;
    let net =
        NetBuilder::new().listen(here).start(CODEC, |_| Echo { executor: executor.clone() })?;

    let begin = Instant::now();
    let peers: Vec<TcpStream> = (0..CLIENTS_COUNT)
        .map(|_| {
            let mut peer = TcpStream::connect(net.addresses()[0])?;
            peer.write_all(b"\0\0\0\x05hello")?;
            Ok(peer)
        })
        .collect::<std::io::Result<_>>()?;
    for mut peer in peers {
        let mut answer = [0; 9];
        peer.read_exact(&mut answer)?;
        assert_eq!(&answer, b"\0\0\0\x05hello");
    }
    let took_ms = begin.elapsed().as_millis();
    println!("{CLIENTS_COUNT} answers of {} ms each in {took_ms} ms", QUERY_DURATION.as_millis());
    net.stop(Duration::from_secs(1))?;
    Ok(())
}
