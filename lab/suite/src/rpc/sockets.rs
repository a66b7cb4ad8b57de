//! What one would write by hand in place of a call.

use super::calls::{Called, Noop, SM, USUAL};
use crate::floor::relay::Medium;
use handover_harness::{Fault, Rig};
use handover_record::Spec;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

/// A byte over a pair of Unix sockets, and another back.
pub(super) struct Sockets {
    near: UnixStream,
    far: UnixStream,
}

/// In place of a call: the round is over.
const END: u8 = 0xff;

impl Medium for Sockets {
    type Args = ();
    const SPEC: Spec = Called::<Noop, SM, USUAL>::SPEC;
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
