//! Cryptographically secure random numbers.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Returns a random number from the kernel, without using a descriptor.
pub(crate) fn random_u128() -> Result<u128, Errno> {
    let mut bytes = [0; 16];
    fill_with_random(&mut bytes)?;
    Ok(u128::from_ne_bytes(bytes))
}

/// Fills `bytes`, at most 256 of them, with random numbers from the kernel.
pub(crate) fn fill_with_random(bytes: &mut [u8]) -> Result<(), Errno> {
    #[cfg(test)]
    if simulated::try_fill(bytes) {
        return Ok(());
    }
    // getrandom() fills up to 256 bytes completely or fails.
    match getrandom(&mut *bytes, GetRandomFlags::empty())? {
        count if count == bytes.len() => Ok(()),
        _ => Err(Errno::IO),
    }
}

/// Random numbers of a thread in the simulation, determined by its seed.
#[cfg(test)]
pub(crate) mod simulated {
    use handover_base::random::SplitMix64;
    use std::cell::RefCell;

    thread_local! {
        static NUMBERS: RefCell<Option<SplitMix64>> = const { RefCell::new(None) };
    }

    /// Makes this thread's random numbers a sequence determined by `seed`.
    pub(crate) fn seed(seed: u64) {
        NUMBERS.set(Some(SplitMix64::new(seed)));
    }

    /// Fills `bytes` from this thread's seeded generator; returns `false` if the thread has none.
    pub(super) fn try_fill(bytes: &mut [u8]) -> bool {
        NUMBERS.with_borrow_mut(|numbers| match numbers {
            Some(numbers) => {
                bytes.fill_with(|| numbers.next_u64() as u8);
                true
            }
            None => false,
        })
    }
}
