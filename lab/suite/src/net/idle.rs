//! Server memory per idle connection: `RssAnon` of a process that serves `connections_count`,
//! compared with its value for one connection.

use crate::common::check_bytes_equal;
use crate::floor::connect::{SERVER_ADDRESS, wait_for_port};
use handover_base::sync::shared::{AtomicU64, Ordering};
use handover_harness::{Fault, Handover, Participant, Region, Role, Samples, Setup};
use handover_net::engine::LengthPrefixCodec;
use handover_net::{
    CloseReason, Config, Conn, ConnKey, Connections, Handler, ListenOptions, Reactor, Stopper,
};
use handover_record::{Spec, Unit, args};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;
use zerocopy::FromZeros;

args! {
    /// Arguments of the benchmark of idle connections' memory.
    pub struct IdleArgs {
        /// Connections, each used for one message; the client and the server need one descriptor
        /// for each connection.
        connections_count: u32 = 2000 (smoke 10, range 2..=1_000_000),
    }
}

/// Message of 9 bytes: a length field, and a text.
const MESSAGE: &[u8] = b"\0\0\0\x05hello";
/// Time after the last message in which the server frees that message's memory.
const SETTLE_TIME: Duration = Duration::from_millis(20);

/// Process id and port of the server, in memory that the participants share. The port is written
/// last.
#[derive(FromZeros)]
#[repr(C)]
struct IdleServer {
    process_id: AtomicU64,
    /// Port on which the server listens; 0 until it listens.
    port: AtomicU64,
}

/// Handler that echoes until the last connection is closed.
struct IdleHandler {
    open_count: u32,
    stopper: Option<Stopper<()>>,
}

impl Handler for IdleHandler {
    type Codec = LengthPrefixCodec;
    type Data = ();

    fn on_message(&mut self, conn: &mut Conn<'_, LengthPrefixCodec, ()>, message: &[u8]) {
        // Fails only if the peer has closed; the client then reports that.
        let _ = conn.send(message);
    }

    fn on_close(
        &mut self,
        _: &mut Connections<'_, LengthPrefixCodec, ()>,
        _: ConnKey,
        (): (),
        _: &CloseReason,
    ) {
        self.open_count = self.open_count.saturating_sub(1);
        if self.open_count == 0
            && let Some(stopper) = &self.stopper
        {
            stopper.stop(Duration::ZERO);
        }
    }
}

/// Protocol below the messages: TCP alone, or TLS.
pub(super) trait Link: Sized + Send + Sync + 'static {
    /// Creates the configuration of both ends.
    fn setup() -> Result<Self, Fault>;

    /// Adds the server's configuration to the options of its listener.
    fn configure_listener(&self, listen: ListenOptions) -> ListenOptions;

    /// Sends `message` over a new connection, and checks its echo.
    fn exchange(&self, stream: &mut TcpStream, message: &[u8]) -> Result<(), Fault>;
}

/// Link: TCP without TLS.
pub(super) struct PlainLink;

impl Link for PlainLink {
    fn setup() -> Result<Self, Fault> {
        Ok(Self)
    }

    fn configure_listener(&self, listen: ListenOptions) -> ListenOptions {
        listen
    }

    fn exchange(&self, stream: &mut TcpStream, message: &[u8]) -> Result<(), Fault> {
        let mut came = vec![0; message.len()];
        stream.write_all(message)?;
        stream.read_exact(&mut came)?;
        check_bytes_equal(&came, message)
    }
}

/// Workload: idle connections to a server.
pub(super) struct IdleConnections<L> {
    connections_count: u32,
    link: L,
    /// Process id and port of the server.
    server_state: Region<IdleServer>,
}

impl<L: Link> IdleConnections<L> {
    /// Runs the server until all connections are closed.
    fn serve(&self) -> Result<(), Fault> {
        let echo = IdleHandler { open_count: self.connections_count, stopper: None };
        let mut reactor = Reactor::new(Config::default(), LengthPrefixCodec::new(64), echo)
            .map_err(Fault::from_error)?;
        let stopper = reactor.stopper();
        reactor.handler_mut().stopper = Some(stopper);
        let mut port = 0;
        for index in (0..self.connections_count).step_by(CLIENTS_PER_ADDRESS as usize) {
            let listen = ListenOptions::new((server_address(index), port).into());
            let listen = self.link.configure_listener(listen);
            port = reactor.listen(listen).map_err(Fault::from_error)?.port();
        }
        // Relaxed: published by the store of the port below.
        self.server_state.process_id.store(u64::from(std::process::id()), Ordering::Relaxed);
        // Release: pairs with the Acquire in wait_for_port(), which makes the process id visible.
        self.server_state.port.store(u64::from(port), Ordering::Release);
        reactor.run().map_err(Fault::from_error).map(drop)
    }

    /// Waits until the server listens; returns its port and its process id.
    fn wait_for_server(&self) -> Result<(u16, u64), Fault> {
        let port = wait_for_port(&self.server_state.port)?.port();
        // Relaxed: ordered by the Acquire in wait_for_port().
        Ok((port, self.server_state.process_id.load(Ordering::Relaxed)))
    }

    /// Connects client `index` and exchanges one message, so that the connection has been active
    /// before it is idle.
    fn connect(&self, port: u16, index: u32) -> Result<TcpStream, Fault> {
        let mut stream = TcpStream::connect((server_address(index), port))?;
        self.link.exchange(&mut stream, MESSAGE).map(|()| stream)
    }
}

/// Number of clients of each address of the server. Linux has 28,232 ports for clients by default.
const CLIENTS_PER_ADDRESS: u32 = 20_000;

/// Returns the server's address for client `index`.
pub fn server_address(index: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(SERVER_ADDRESS.to_bits() + index / CLIENTS_PER_ADDRESS)
}

/// Returns the size of a process's resident anonymous memory, in bytes.
fn anonymous_bytes(process: u64) -> Result<u64, Fault> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| Fault::new("/proc/PID/status has no RssAnon"))
}

impl<L: Link> Handover for IdleConnections<L> {
    type Args = IdleArgs;
    const SPEC: Spec = Spec::new(
        "net/idle-bytes",
        "user-space memory of one of many idle connections of a server",
    )
    .unit(Unit::Bytes)
    .floor("floor/word")
    .classic("evh_perf");
    const ALWAYS_PROCESSES: bool = true;
    const ROLES: &'static [Role] = &[Role::measured("client"), Role::serving("server")];

    fn setup(args: &IdleArgs, setup: &mut Setup) -> Result<Self, Fault> {
        let (link, server_state) = (L::setup()?, setup.shared_region()?);
        Ok(Self { connections_count: args.connections_count, link, server_state })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        if participant.index > 0 {
            return self.serve();
        }
        let (port, process) = self.wait_for_server()?;
        let mut held = vec![self.connect(port, 0)?];
        std::thread::sleep(SETTLE_TIME);
        let before = anonymous_bytes(process)?;
        for index in 1..self.connections_count {
            held.push(self.connect(port, index)?);
        }
        std::thread::sleep(SETTLE_TIME);
        let grown = anonymous_bytes(process)?.saturating_sub(before);
        out.record_value(0, grown as f64 / f64::from(self.connections_count - 1));
        Ok(())
    }
}
