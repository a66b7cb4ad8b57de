//! Number of connections from each address.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;

/// Counted connection, in 4 bytes; [`Census::leave`] ends the count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seat(u32);

impl Seat {
    /// Value for a connection that is not counted.
    pub const NONE: Self = Self(u32::MAX);
}

/// Counter of connections by address that refuses those beyond a limit.
#[derive(Debug)]
pub struct Census {
    per_address_max: u32,
    places: HashMap<IpAddr, u32>,
    counts: Vec<(IpAddr, u32)>,
    vacant: Vec<u32>,
}

impl Census {
    /// Creates a counter that allows `per_address_max` connections per address; 0 neither counts
    /// nor refuses.
    #[must_use]
    pub fn new(per_address_max: u32) -> Self {
        Self { per_address_max, places: HashMap::new(), counts: Vec::new(), vacant: Vec::new() }
    }

    /// Returns `true` if connections are counted, that is, if there is a limit.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.per_address_max > 0
    }

    /// Counts one more connection from `address`; `None` if the address has reached the limit.
    pub fn enter(&mut self, address: IpAddr) -> Option<Seat> {
        if !self.counts() {
            return Some(Seat::NONE);
        }
        match self.places.entry(address) {
            Entry::Occupied(place) => {
                let place = *place.get();
                let (_, count) = &mut self.counts[place as usize];
                if *count >= self.per_address_max {
                    return None;
                }
                *count += 1;
                Some(Seat(place))
            }
            Entry::Vacant(entry) => {
                let place = match self.vacant.pop() {
                    Some(place) => place,
                    None => {
                        self.counts.push((address, 0));
                        u32::try_from(self.counts.len() - 1).ok()?
                    }
                };
                self.counts[place as usize] = (address, 1);
                entry.insert(place);
                Some(Seat(place))
            }
        }
    }

    /// Counts one connection less.
    pub fn leave(&mut self, seat: Seat) {
        if seat == Seat::NONE {
            return;
        }
        let (address, count) = &mut self.counts[seat.0 as usize];
        *count -= 1;
        if *count == 0 {
            self.places.remove(address);
            self.vacant.push(seat.0);
        }
    }

    /// Returns the number of addresses with connections.
    #[must_use]
    pub fn addresses_count(&self) -> usize {
        self.places.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn an_address_has_so_many_at_a_time_and_leaves_nothing_behind() {
        let one = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
        let other = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
        let mut census = Census::new(2);
        let first = census.enter(one).unwrap();
        let second = census.enter(one).unwrap();
        assert_eq!(census.enter(one), None);
        let third = census.enter(other).unwrap();
        census.leave(first);
        assert!(census.enter(one).is_some());
        census.leave(second);
        census.leave(second);
        census.leave(third);
        assert_eq!((census.addresses_count(), census.vacant.len()), (0, 2));
    }
}
