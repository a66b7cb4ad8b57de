//! Number of connections from each address.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;

/// Permit for one connection from an address, in 4 bytes; [`PerIpLimiter::release`] takes it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permit(u32);

impl Permit {
    /// Permit of a connection that does not count towards a limit.
    pub const NONE: Self = Self(u32::MAX);
}

/// Limiter of the number of open connections per peer address.
#[derive(Debug)]
pub struct PerIpLimiter {
    per_ip_max: u32,
    /// Index in `counts` of each peer address with open connections.
    index_by_address: HashMap<IpAddr, u32>,
    /// Peer addresses, each with its number of open connections.
    counts: Vec<(IpAddr, u32)>,
    /// Indices of unused entries in `counts`.
    vacant_indices: Vec<u32>,
}

impl PerIpLimiter {
    /// Creates a limiter that allows `per_ip_max` connections per address; 0 allows any number.
    #[must_use]
    pub fn new(per_ip_max: u32) -> Self {
        Self {
            per_ip_max,
            index_by_address: HashMap::new(),
            counts: Vec::new(),
            vacant_indices: Vec::new(),
        }
    }

    /// Returns `true` if there is a limit, so that connections are counted.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.per_ip_max > 0
    }

    /// Counts one more connection from `address` and returns its permit. Returns `None` if the
    /// address has reached the limit.
    pub fn acquire(&mut self, address: IpAddr) -> Option<Permit> {
        if !self.is_limited() {
            return Some(Permit::NONE);
        }
        match self.index_by_address.entry(address) {
            Entry::Occupied(index) => {
                let index = *index.get();
                let (_, count) = &mut self.counts[index as usize];
                if *count >= self.per_ip_max {
                    return None;
                }
                *count += 1;
                Some(Permit(index))
            }
            Entry::Vacant(entry) => {
                let index = match self.vacant_indices.pop() {
                    Some(index) => index,
                    None => {
                        self.counts.push((address, 0));
                        u32::try_from(self.counts.len() - 1).ok()?
                    }
                };
                self.counts[index as usize] = (address, 1);
                entry.insert(index);
                Some(Permit(index))
            }
        }
    }

    /// Counts one connection less for the address of `permit`.
    pub fn release(&mut self, permit: Permit) {
        if permit == Permit::NONE {
            return;
        }
        let (address, count) = &mut self.counts[permit.0 as usize];
        *count -= 1;
        if *count == 0 {
            self.index_by_address.remove(address);
            self.vacant_indices.push(permit.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn limiter_refuses_beyond_limit_and_frees_unused_entries() {
        let one = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
        let other = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
        let mut limiter = PerIpLimiter::new(2);
        let first = limiter.acquire(one).unwrap();
        let second = limiter.acquire(one).unwrap();
        assert_eq!(limiter.acquire(one), None);
        let third = limiter.acquire(other).unwrap();
        limiter.release(first);
        assert!(limiter.acquire(one).is_some());
        limiter.release(second);
        limiter.release(second);
        limiter.release(third);
        assert_eq!((limiter.index_by_address.len(), limiter.vacant_indices.len()), (0, 2));
    }
}
