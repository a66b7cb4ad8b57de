//! An echo server and its client.

use handover_net::{Conn, Handler, NetBuilder, engine::LengthPrefixCodec};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

struct Echo;

impl Handler for Echo {
    type Codec = LengthPrefixCodec;
    type Data = ();

    fn on_message(&mut self, conn: &mut Conn<'_, LengthPrefixCodec, ()>, message: &[u8]) {
        // Fails only if the peer is gone or does not read: the connection is closed then.
        let _ = conn.send(message);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let codec = LengthPrefixCodec::new(1 << 16);
    let here: SocketAddr = "127.0.0.1:0".parse()?;
    let net = NetBuilder::new().threads(2).listen(here).start(codec, |_thread| Echo)?;

    let mut peer = TcpStream::connect(net.addresses()[0])?;
    peer.write_all(b"\0\0\0\x05hello")?;
    let mut reply = [0; 9];
    peer.read_exact(&mut reply)?;
    assert_eq!(&reply, b"\0\0\0\x05hello");
    drop(peer);

    let (stats, _handlers) = net.stop(Duration::from_secs(1))?;
    println!(
        "{} message, {} reads, {} sends",
        stats.messages_count, stats.reads_count, stats.sends_count
    );
    Ok(())
}
