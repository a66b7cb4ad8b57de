//! Numbers that nobody guesses.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// From the kernel, which needs no descriptor for it.
pub(crate) fn random() -> Result<u128, Errno> {
    let mut bytes = [0; 16];
    // So few come whole, or not at all.
    match getrandom(&mut bytes, GetRandomFlags::empty())? {
        16 => Ok(u128::from_ne_bytes(bytes)),
        _ => Err(Errno::IO),
    }
}
