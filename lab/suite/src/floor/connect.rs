//! A connection made, used for one echo, and closed: with a server, or as a floor with the kernel
//! alone.

use crate::common::{Tally, bytes_to_usize, check_bytes_equal};
use handover_base::sync::shared::{AtomicU64, Ordering};
use handover_harness::{Fault, Handover, Participant, Region, Role, Samples, Setup};
use handover_record::{Bytes, Spec, args};
use std::io::{Read, Write};
use std::marker::PhantomData;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

args! {
    /// Arguments of the benchmarks of connections that carry one message.
    pub struct ConnectArgs {
        /// Bytes in the message in each direction, including four bytes of its length.
        message_bytes: Bytes = 64 (smoke 16, range 8 ..= 65536),
    }
}

/// Byte that follows the length in the message that ends the round.
pub(crate) const END_MARK: u8 = 0xff;
pub(crate) const LENGTH_FIELD_BYTES: usize = 4;
/// Maximum time to wait for the server's port.
const LISTEN_WAIT_MAX: Duration = Duration::from_secs(10);

/// Address that the benchmarks' servers listen on.
///
/// Clients have the address 127.0.0.1. The kernel keeps the port of a closed client for a minute,
/// so that many clients would leave no port of that address to listen on.
pub(crate) const SERVER_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Returns a message of `message_bytes` bytes: a length field of four bytes, and text.
pub(crate) fn new_message(message_bytes: usize) -> Vec<u8> {
    let body_bytes = message_bytes - LENGTH_FIELD_BYTES;
    let length = u32::try_from(body_bytes).unwrap_or(u32::MAX);
    length.to_be_bytes().into_iter().chain((b'a'..=b'z').cycle().take(body_bytes)).collect()
}

/// Waits until `port` is not 0; returns the servers' address with this port.
pub(crate) fn wait_for_port(port: &AtomicU64) -> Result<SocketAddr, Fault> {
    let begin = Instant::now();
    loop {
        // Acquire: pairs with the Release of a server that publishes more than its port. A port is
        // 16 bits wide.
        match port.load(Ordering::Acquire) as u16 {
            0 if begin.elapsed() < LISTEN_WAIT_MAX => {
                std::thread::sleep(Duration::from_micros(100))
            }
            0 => {
                return Err(Fault::new(format!(
                    "the server published no port within {LISTEN_WAIT_MAX:?}"
                )));
            }
            port => return Ok((SERVER_ADDRESS, port).into()),
        }
    }
}

/// A server that accepts connections, and echoes one message over each.
pub(crate) trait ConnectServer: Send + Sync + 'static {
    const SPEC: Spec;

    /// Listens on a free port, and serves until a message starts with `END_MARK`. Passes the port
    /// to `publish_port`. Returns the number of messages echoed.
    fn serve(message_bytes: usize, publish_port: impl FnOnce(u16)) -> Result<u64, Fault>;
}

/// Benchmark of a [`ConnectServer`]: each operation connects, exchanges one message, and closes.
pub(crate) struct ConnectEcho<A> {
    /// Port of the server; 0 until the server listens.
    port: Region<AtomicU64>,
    tally: Region<Tally>,
    message: Vec<u8>,
    server: PhantomData<fn() -> A>,
}

impl<A: ConnectServer> ConnectEcho<A> {
    fn exchange_message(
        address: SocketAddr,
        message: &[u8],
        received: &mut [u8],
    ) -> Result<(), Fault> {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(message)?;
        stream.read_exact(received)?;
        Ok(())
    }
}

impl<A: ConnectServer> Handover for ConnectEcho<A> {
    type Args = ConnectArgs;
    const SPEC: Spec = A::SPEC;
    const PROCESSES: bool = true;

    const ROLES: &'static [Role] = &[Role::measured("client"), Role::serving("server")];

    fn setup(args: &ConnectArgs, setup: &mut Setup) -> Result<Self, Fault> {
        let message = new_message(bytes_to_usize(args.message_bytes));
        Ok(Self {
            port: setup.shared_region()?,
            tally: setup.shared_region()?,
            message,
            server: PhantomData,
        })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        if participant.index > 0 {
            // Relaxed: the port is a number by itself.
            let publish_port = |port| self.port.store(u64::from(port), Ordering::Relaxed);
            self.tally.add_received(A::serve(self.message.len(), publish_port)?);
            return Ok(());
        }
        let address = wait_for_port(&self.port)?;
        let mut received = vec![0; self.message.len()];
        let (mut asked, mut fault) = (0, None);
        out.time_batches(|n| {
            for _ in 0..n {
                if let Err(refused) = Self::exchange_message(address, &self.message, &mut received)
                {
                    fault.get_or_insert(refused);
                    return;
                }
            }
            asked += n;
        });
        // The last echo is checked, untimed; every earlier one was read into the same buffer.
        let fault = fault.or(check_bytes_equal(&received, &self.message).err());
        self.tally.add_sent(asked);
        let mut last = self.message.clone();
        last[LENGTH_FIELD_BYTES] = END_MARK;
        TcpStream::connect(address)?.write_all(&last)?;
        fault.map_or(Ok(()), Err)
    }

    fn check_round(&self) -> Result<(), Fault> {
        self.tally.verify()
    }
}

/// Floor: a server with blocking calls and one connection at a time.
pub(crate) struct BlockingServer;

impl ConnectServer for BlockingServer {
    const SPEC: Spec = Spec::new(
        "floor/connect",
        "TCP connection over loopback to a server that sleeps in accept: connect, echo one message, close",
    )
    .hands_over();

    fn serve(message_bytes: usize, publish_port: impl FnOnce(u16)) -> Result<u64, Fault> {
        let listener = TcpListener::bind((SERVER_ADDRESS, 0))?;
        publish_port(listener.local_addr()?.port());
        let mut message = vec![0; message_bytes];
        let mut echoed = 0;
        loop {
            let (mut stream, _) = listener.accept()?;
            stream.read_exact(&mut message)?;
            if message[LENGTH_FIELD_BYTES] == END_MARK {
                return Ok(echoed);
            }
            stream.write_all(&message)?;
            echoed += 1;
        }
    }
}
