//! A connection made, used for one echo, and closed: with a server, or as a floor with the kernel
//! alone.

use handover_base::sync::shared::{AtomicU64, Ordering};
use handover_harness::{Fault, Handover, Party, Region, Rig, Role, Samples};
use handover_record::{Bytes, Spec, args};
use std::io::{Read, Write};
use std::marker::PhantomData;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use zerocopy::FromZeros;

args! {
    /// Size of the message.
    pub struct Asked {
        /// Bytes in the message, its length of four bytes included, both ways.
        message_bytes: Bytes = 64 (smoke 16, range 8 ..= 65536),
    }
}

/// Value in place of the first byte after a message's length: this was the last connection.
pub(crate) const END: u8 = 0xff;
/// Length of the length prefix.
pub(crate) const LENGTH_BYTES: usize = 4;
/// Maximum time until the server listens.
const SOON: Duration = Duration::from_secs(10);

/// A server that accepts connections, echoes the message of each, and closes it.
pub(crate) trait Accepting: Send + Sync + 'static {
    /// The declaration.
    const SPEC: Spec;

    /// Listens at a port of its own, passes the port to `tell`, and serves until the last
    /// connection is closed. Returns the number of messages echoed, not counting the last.
    fn serve(message_bytes: usize, tell: impl FnOnce(u16)) -> Result<u64, Fault>;
}

/// State shared by the participants; each writes its own part once.
#[derive(FromZeros)]
#[repr(C)]
struct Told {
    port: AtomicU64,
    asked: AtomicU64,
    echoed: AtomicU64,
}

/// Workload: connections to a server of kind `A`.
pub(crate) struct Connect<A> {
    told: Region<Told>,
    message: Vec<u8>,
    accepts: PhantomData<fn() -> A>,
}

impl<A: Accepting> Connect<A> {
    /// Waits for the server's address.
    fn address(&self) -> Result<SocketAddr, Fault> {
        let begin = Instant::now();
        loop {
            // Relaxed: only the port is read; its socket listens already.
            let port = self.told.port.load(Ordering::Relaxed);
            // A port is 16 bits wide.
            match port as u16 {
                0 if begin.elapsed() < SOON => std::thread::sleep(Duration::from_micros(100)),
                0 => return Err(Fault::new("nobody accepts")),
                port => return Ok((Ipv4Addr::LOCALHOST, port).into()),
            }
        }
    }

    /// Connects, sends the message, reads the echo, and closes.
    fn ask(address: SocketAddr, message: &[u8], came: &mut [u8]) -> Result<(), Fault> {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(message)?;
        stream.read_exact(came)?;
        Ok(())
    }
}

impl<A: Accepting> Handover for Connect<A> {
    type Args = Asked;
    const SPEC: Spec = A::SPEC;
    const PROCESSES: bool = true;

    fn roles(_: &Asked) -> Vec<Role> {
        vec![Role::measured("client"), Role::serving("server")]
    }

    fn rig(args: &Asked, rig: &mut Rig) -> Result<Self, Fault> {
        let body_bytes = usize::try_from(args.message_bytes.0).unwrap_or(usize::MAX) - LENGTH_BYTES;
        let length = u32::try_from(body_bytes).unwrap_or(u32::MAX).to_be_bytes();
        let letters = (b'a'..=b'z').cycle().take(body_bytes);
        let message = length.into_iter().chain(letters).collect();
        Ok(Self { told: rig.region()?, message, accepts: PhantomData })
    }

    fn play(&self, party: Party, out: &mut Samples) -> Result<(), Fault> {
        if party.index > 0 {
            // Relaxed, both: the port is a number by itself, and the count is read when all have
            // ended.
            let tell = |port| self.told.port.store(u64::from(port), Ordering::Relaxed);
            let echoed = A::serve(self.message.len(), tell)?;
            self.told.echoed.store(echoed, Ordering::Relaxed);
            return Ok(());
        }
        let address = self.address()?;
        let mut came = vec![0; self.message.len()];
        let (mut asked, mut fault) = (0, None);
        out.batches(|n| {
            for _ in 0..n {
                if let Err(refused) = Self::ask(address, &self.message, &mut came) {
                    fault.get_or_insert(refused);
                    return;
                }
            }
            asked += n;
        });
        // The last echo is checked, untimed; every earlier one was read into the same buffer.
        if came != self.message {
            fault.get_or_insert(Fault::new("the echo is not what was sent"));
        }
        // Relaxed: read when all participants have ended.
        self.told.asked.store(asked, Ordering::Relaxed);
        let mut last = self.message.clone();
        last[LENGTH_BYTES] = END;
        TcpStream::connect(address)?.write_all(&last)?;
        fault.map_or(Ok(()), Err)
    }

    fn verify(&self) -> Result<(), Fault> {
        // Relaxed: both participants have ended.
        let asked = self.told.asked.load(Ordering::Relaxed);
        let echoed = self.told.echoed.load(Ordering::Relaxed);
        match asked > 0 && asked == echoed {
            true => Ok(()),
            false => Err(Fault::new(format!("{asked} were asked and {echoed} answered"))),
        }
    }
}

/// The floor: one connection at a time, and blocking calls.
pub(crate) struct Blocking;

/// The benchmark of that floor.
pub(crate) type Connects = Connect<Blocking>;

impl Accepting for Blocking {
    const SPEC: Spec = Spec {
        id: "floor/connect",
        what: "a connection over loopback TCP to who sleeps in accept, a message echoed, closed",
        hands_over: true,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };

    fn serve(message_bytes: usize, tell: impl FnOnce(u16)) -> Result<u64, Fault> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        tell(listener.local_addr()?.port());
        let mut message = vec![0; message_bytes];
        let mut echoed = 0;
        loop {
            let (mut stream, _) = listener.accept()?;
            stream.read_exact(&mut message)?;
            if message[LENGTH_BYTES] == END {
                return Ok(echoed);
            }
            stream.write_all(&message)?;
            echoed += 1;
        }
    }
}
