//! A message over loopback TCP: the floor of whatever talks by sockets on one machine.

use super::relay::Medium;
use handover_harness::{Fault, Rig};
use handover_record::{Bytes, Spec, args};
use std::hint::spin_loop;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

args! {
    /// What a loopback echo sends.
    pub struct Echo {
        /// Bytes in each message, both ways.
        message_bytes: Bytes = 64 (smoke 1, range 1 ..= 1048576),
    }
}

/// The first byte of a message that is not to be echoed: the round is over.
const END: u8 = 0xff;

/// A stranger who connects in between is turned away at most so often.
const STRANGERS_MAX: u32 = 16;

/// The two ends of one connection, without Nagle's delay.
pub(crate) struct Loopback {
    near: TcpStream,
    far: TcpStream,
    message_bytes: usize,
}

impl Loopback {
    /// Connects two sockets of this process over 127.0.0.1.
    fn connect() -> Result<(TcpStream, TcpStream), Fault> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let near = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        let ours = near.local_addr()?;
        for _ in 0..STRANGERS_MAX {
            let (far, peer) = listener.accept()?;
            if peer == ours {
                near.set_nodelay(true)?;
                far.set_nodelay(true)?;
                return Ok((near, far));
            }
        }
        Err(Fault::new(format!("others keep connecting to {address}")))
    }

    /// The two ends, which the parties share though they may be processes.
    pub(crate) fn ends(rig: &mut Rig) -> Result<(TcpStream, TcpStream), Fault> {
        let mut made = None;
        let near = rig.fd(|| {
            let (near, far) = Self::connect()?;
            made = Some(far);
            Ok(near.into())
        })?;
        let far = rig.fd(|| match made {
            Some(far) => Ok(far.into()),
            None => Err(Fault::new("a connection without its far end")),
        })?;
        Ok((near.into(), far.into()))
    }
}

/// What the pinging party sends and what came back.
pub(crate) struct Messages {
    sent: Vec<u8>,
    came: Vec<u8>,
}

impl Medium for Loopback {
    type Args = Echo;
    const SPEC: Spec = Spec {
        id: "floor/socket",
        what: "a message to a party that sleeps in read, and back, over loopback TCP",
        ladder: true,
        hands_over: true,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };
    type Ping = Messages;

    fn rig(args: &Echo, rig: &mut Rig) -> Result<Loopback, Fault> {
        let (near, far) = Self::ends(rig)?;
        let message_bytes = usize::try_from(args.message_bytes.0).unwrap_or(usize::MAX);
        Ok(Loopback { near, far, message_bytes })
    }

    fn ping(&self) -> Messages {
        let letters = (b'a'..=b'z').cycle().take(self.message_bytes);
        Messages { sent: letters.collect(), came: vec![0; self.message_bytes] }
    }

    fn round_trip(&self, messages: &mut Messages) -> Result<(), Fault> {
        (&self.near).write_all(&messages.sent)?;
        (&self.near).read_exact(&mut messages.came)?;
        Ok(())
    }

    fn end(&self, messages: &mut Messages) -> Result<(), Fault> {
        // The last echo is looked at, untimed; every one before it was read into the same place.
        let right = messages.came == messages.sent;
        messages.sent[0] = END;
        (&self.near).write_all(&messages.sent)?;
        if right { Ok(()) } else { Err(Fault::new("the echo is not what was sent")) }
    }

    fn echo(&self) -> Result<u64, Fault> {
        let mut message = vec![0; self.message_bytes];
        let mut turns = 0;
        loop {
            (&self.far).read_exact(&mut message)?;
            if message[0] == END {
                return Ok(turns);
            }
            (&self.far).write_all(&message)?;
            turns += 1;
        }
    }
}

/// The same connection, and neither end ever sleeps: each asks the kernel again and again.
pub(crate) struct Spinning(Loopback);

impl Spinning {
    /// Reads so much, as often as it takes.
    fn read(mut stream: &TcpStream, mut into: &mut [u8]) -> Result<(), Fault> {
        while !into.is_empty() {
            match stream.read(into) {
                Ok(0) => return Err(Fault::new("the other end has ended")),
                Ok(count) => into = &mut into[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => spin_loop(),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn write(mut stream: &TcpStream, mut bytes: &[u8]) -> Result<(), Fault> {
        while !bytes.is_empty() {
            match stream.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => spin_loop(),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl Medium for Spinning {
    type Args = Echo;
    const SPEC: Spec = Spec {
        id: "floor/socket-spin",
        what: "a message to a party that asks for it without a pause, and back, over loopback TCP",
        hands_over: true,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };
    type Ping = Messages;

    fn rig(args: &Echo, rig: &mut Rig) -> Result<Self, Fault> {
        let link = <Loopback as Medium>::rig(args, rig)?;
        link.near.set_nonblocking(true)?;
        link.far.set_nonblocking(true)?;
        Ok(Self(link))
    }

    fn ping(&self) -> Messages {
        self.0.ping()
    }

    fn round_trip(&self, messages: &mut Messages) -> Result<(), Fault> {
        Self::write(&self.0.near, &messages.sent)?;
        Self::read(&self.0.near, &mut messages.came)
    }

    fn end(&self, messages: &mut Messages) -> Result<(), Fault> {
        let right = messages.came == messages.sent;
        messages.sent[0] = END;
        Self::write(&self.0.near, &messages.sent)?;
        if right { Ok(()) } else { Err(Fault::new("the echo is not what was sent")) }
    }

    fn echo(&self) -> Result<u64, Fault> {
        let mut message = vec![0; self.0.message_bytes];
        let mut turns = 0;
        loop {
            Self::read(&self.0.far, &mut message)?;
            if message[0] == END {
                return Ok(turns);
            }
            Self::write(&self.0.far, &message)?;
            turns += 1;
        }
    }
}
