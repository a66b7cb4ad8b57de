//! Memory of an idle connection in a server: `RssAnon` of a process with many connections, compared
//! with a process that has one. The server is this same program in a process of its own.
//!
//! `net-idle-memory [CONNECTIONS]`: 1,000 by default; each takes one descriptor in each process.

use handover_net::engine::{LengthPrefixCodec, TlsState};
use handover_net::tls::{
    ClientOptions, Identity, ServerOptions, ServerVerification, TlsClientConfig, TlsServerConfig,
};
use handover_net::{Conn, Handler, ListenOptions, NetBuilder};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

struct Echo;

impl Handler for Echo {
    type Codec = LengthPrefixCodec;
    type Data = ();

    fn on_message(&mut self, conn: &mut Conn<'_, LengthPrefixCodec, ()>, message: &[u8]) {
        let _ = conn.send(message);
    }
}

type BoxedError = Box<dyn std::error::Error>;

/// Serves connections, with TLS if `transport` is `tls`, until the end of standard input.
fn serve(transport: &str) -> Result<(), BoxedError> {
    let mut listen = ListenOptions::new("127.0.0.1:0".parse()?);
    if transport == "tls" {
        let identity = Identity::generate(&["localhost"])?;
        listen = listen.with_tls(&TlsServerConfig::new(&identity, ServerOptions::default())?);
    }
    let codec = LengthPrefixCodec::new(1 << 16);
    let net = NetBuilder::new().listen(listen).start(codec, |_| Echo)?;
    println!("{}", net.addresses()[0]);
    std::io::stdin().read_to_end(&mut Vec::new())?;
    net.stop(Duration::ZERO)?;
    Ok(())
}

/// Connects and waits for the echo of one message. The connection was thus used before it is idle.
fn connect(
    address: SocketAddr,
    client: Option<&TlsClientConfig>,
) -> Result<(TcpStream, Option<TlsState>), BoxedError> {
    let mut stream = TcpStream::connect(address)?;
    let message = b"\0\0\0\x05hello";
    let mut buffer = [0; 4096];
    let Some(client) = client else {
        stream.write_all(message)?;
        stream.read_exact(&mut buffer[..message.len()])?;
        return Ok((stream, None));
    };
    let mut tls = TlsState::new_client(client, "localhost", 0)?;
    let (mut plain, mut out) = (Vec::new(), Vec::new());
    tls.open_records(&mut [], &mut plain, &mut out)?;
    tls.seal_messages(message, &[], &mut out)?;
    while plain.len() < message.len() {
        stream.write_all(&out)?;
        out.clear();
        let count = stream.read(&mut buffer)?;
        tls.open_records(&mut buffer[..count], &mut plain, &mut out)?;
    }
    Ok((stream, Some(tls)))
}

fn rss_anon_bytes(pid: u32) -> Result<u64, BoxedError> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|it| it.strip_prefix("RssAnon:"));
    let kb: u64 = line
        .ok_or("no RssAnon line in the status of the process")?
        .trim()
        .trim_end_matches(" kB")
        .parse()?;
    Ok(kb * 1024)
}

/// Starts a server process with `connections` idle connections; returns its anonymous resident
/// memory in bytes.
fn measure_server_memory(transport: &str, connections: u64) -> Result<u64, BoxedError> {
    let mut server = Command::new(std::env::current_exe()?)
        .args(["--serve", transport])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(server.stdout.take().ok_or("the server process has no standard output")?)
        .read_line(&mut line)?;
    let address = line.trim().parse()?;
    let client = TlsClientConfig::new(ServerVerification::Nothing, ClientOptions::default())?;
    let client = (transport == "tls").then_some(&client);
    let held: Result<Vec<_>, _> = (0..connections).map(|_| connect(address, client)).collect();
    let held = held?;
    // Gives the server time to free the last connection's buffers.
    std::thread::sleep(Duration::from_millis(50));
    let bytes = rss_anon_bytes(server.id())?;
    drop(held);
    drop(server.stdin.take());
    server.wait()?;
    Ok(bytes)
}

fn main() -> Result<(), BoxedError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, transport] = &arguments[..]
        && flag == "--serve"
    {
        return serve(transport);
    }
    let connections: u64 = arguments.first().map_or(Ok(1_000), |it| it.parse())?;
    for transport in ["plain", "tls"] {
        let (one, all) =
            (measure_server_memory(transport, 1)?, measure_server_memory(transport, connections)?);
        let each = all.saturating_sub(one) as f64 / connections.saturating_sub(1).max(1) as f64;
        println!(
            "{transport:5}  {one:>9} bytes with 1 connection, {all:>9} with {connections}: {each:.0} each"
        );
    }
    Ok(())
}
