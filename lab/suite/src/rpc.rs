//! Calls of procedures in another process, through memory that both share.

use crate::floor::relay::{Medium, Relay};
use handover_base::sync::shared::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use handover_harness::{Bench, Fault, Region, Rig};
use handover_record::{Contender, Spec};
use handover_rpc::{Address, Calling, Config, Endpoint, Method, Peer};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zerocopy::FromZeros;

const NOOP: Method = Method::named("noop");
const STOP: Method = Method::named("stop");
/// How long the parties look for each other.
const MEETING: Duration = Duration::from_secs(10);
/// The longest name that a server tells.
const NAME_BYTES: usize = 64;

/// Where the server listens, as it tells the caller.
#[derive(FromZeros)]
#[repr(C)]
pub(crate) struct Place {
    /// How many letters there are; 0 while it does not listen.
    length: AtomicU64,
    letters: [AtomicU8; NAME_BYTES],
}

impl Place {
    pub(crate) fn tell(&self, name: &str) -> Result<(), Fault> {
        if name.len() > NAME_BYTES {
            return Err(Fault::new(format!("a name too long to tell: {name}")));
        }
        for (slot, letter) in self.letters.iter().zip(name.bytes()) {
            slot.store(letter, Ordering::Relaxed);
        }
        // Release: publishes the letters to the Acquire in hear().
        self.length.store(name.len() as u64, Ordering::Release);
        Ok(())
    }

    pub(crate) fn hear(&self) -> Result<String, Fault> {
        let began = Instant::now();
        loop {
            // Acquire: pairs with the Release in tell().
            let length = self.length.load(Ordering::Acquire) as usize;
            if length > 0 {
                let letters = self.letters.iter().take(length);
                let bytes = letters.map(|letter| letter.load(Ordering::Relaxed)).collect();
                return String::from_utf8(bytes).map_err(|_| Fault::new("no name was told"));
            }
            if began.elapsed() > MEETING {
                return Err(Fault::new("the server does not listen"));
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// Two endpoints, one in each party.
struct Shared<const SPINS: bool> {
    place: Region<Place>,
    config: Config,
}

/// The caller's endpoint, and what went wrong when it connected, which has no other way to say so.
struct Caller {
    connected: Result<(Endpoint, Peer), Fault>,
}

pub(crate) fn fault(error: impl std::fmt::Display) -> Fault {
    Fault::new(error.to_string())
}

impl<const SPINS: bool> Medium for Shared<SPINS> {
    type Args = ();
    const SPEC: Spec = Spec {
        id: "rpc/noop",
        what: "a procedure without arguments or a result, called through shared memory",
        floor: Some("floor/cache-line-2"),
        classic: Some("margo-p2p-latency"),
        ladder: true,
        hands_over: true,
        batched: true,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };
    type Ping = Caller;

    fn rig((): &(), rig: &mut Rig) -> Result<Self, Fault> {
        // Where both share a CPU, whoever spins for ever keeps the other from answering.
        let crowded = matches!(rig.cpus(), [first, second, ..] if first == second);
        let config = Config { spin_forever: SPINS && !crowded, ..Config::default() };
        Ok(Self { place: rig.region()?, config })
    }

    fn ping(&self) -> Caller {
        let connect = || {
            let name = self.place.hear()?;
            let mut endpoint = Endpoint::new(self.config.clone()).map_err(fault)?;
            let peer = endpoint.connect(&Address::Sm(name)).map_err(fault)?;
            Ok((endpoint, peer))
        };
        Caller { connected: connect() }
    }

    fn round_trip(&self, caller: &mut Caller) -> Result<(), Fault> {
        match &mut caller.connected {
            Ok((endpoint, peer)) => endpoint.call(*peer, NOOP, &()).map_err(fault),
            Err(_) => Err(Fault::new("not connected")),
        }
    }

    fn end(&self, caller: &mut Caller) -> Result<(), Fault> {
        let never = Err(Fault::new("ended already"));
        let (mut endpoint, peer) = std::mem::replace(&mut caller.connected, never)?;
        endpoint.call::<_, ()>(peer, STOP, &()).map_err(fault)
    }

    fn echo(&self) -> Result<u64, Fault> {
        let mut endpoint = Endpoint::new(self.config.clone()).map_err(fault)?;
        let turns = Arc::new(AtomicU64::new(0));
        let stopped = Arc::new(AtomicBool::new(false));
        let (count, stops) = (Arc::clone(&turns), Arc::clone(&stopped));
        let noop = move |_: &mut handover_rpc::Context<'_>, ()| {
            // Relaxed: this thread is the only one, and reads it when it has served.
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            Ok(())
        };
        let stop = move |context: &mut handover_rpc::Context<'_>, ()| {
            stops.store(true, Ordering::Relaxed);
            context.stop();
            Ok(())
        };
        endpoint.register("noop", 0, noop).map_err(fault)?;
        endpoint.register("stop", 0, stop).map_err(fault)?;
        let address = endpoint.listen(&Address::Sm(String::new())).map_err(fault)?;
        self.place.tell(address.place())?;
        endpoint.serve();
        // What was answered last is on its way, in memory that lives as long as the caller's.
        match stopped.load(Ordering::Relaxed) {
            true => Ok(turns.load(Ordering::Relaxed)),
            false => Err(Fault::new("it stopped serving for no reason")),
        }
    }
}

/// What one would write by hand: a byte over a pair of Unix sockets, and another back.
struct Sockets {
    near: UnixStream,
    far: UnixStream,
}

/// In place of a call: the round is over.
const END: u8 = 0xff;

impl Medium for Sockets {
    type Args = ();
    const SPEC: Spec = Shared::<false>::SPEC;
    type Ping = ();

    fn rig((): &(), rig: &mut Rig) -> Result<Self, Fault> {
        let mut made = None;
        let near = rig.fd(|| {
            let (near, far) = UnixStream::pair()?;
            made = Some(far);
            Ok(near.into())
        })?;
        let far = rig.fd(|| match made {
            Some(far) => Ok(far.into()),
            None => Err(Fault::new("a pair without its far end")),
        })?;
        Ok(Self { near: near.into(), far: far.into() })
    }

    fn ping(&self) {}

    fn round_trip(&self, (): &mut ()) -> Result<(), Fault> {
        (&self.near).write_all(&[1])?;
        (&self.near).read_exact(&mut [0])?;
        Ok(())
    }

    fn end(&self, (): &mut ()) -> Result<(), Fault> {
        Ok((&self.near).write_all(&[END])?)
    }

    fn echo(&self) -> Result<u64, Fault> {
        let (mut turns, mut byte) = (0, [0]);
        loop {
            (&self.far).read_exact(&mut byte)?;
            if byte[0] == END {
                return Ok(turns);
            }
            (&self.far).write_all(&byte)?;
            turns += 1;
        }
    }
}

/// The benchmarks of this file.
pub const ALL: &[Bench] = &[
    Bench::many::<Relay<Shared<false>>>(Contender::ours("handover")),
    Bench::many::<Relay<Shared<true>>>(Contender::ours("spin")),
    Bench::many::<Relay<Sockets>>(Contender::peer("socket")),
];
