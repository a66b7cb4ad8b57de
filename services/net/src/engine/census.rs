//! How many connections each address has.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;

/// Who is counted, in 4 bytes; [`Census::leave`] takes it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seat(u32);

impl Seat {
    /// Of a connection that is not counted.
    pub const NONE: Self = Self(u32::MAX);
}

/// Counts connections by address, and refuses those beyond a limit.
#[derive(Debug)]
pub struct Census {
    per_address_max: u32,
    places: HashMap<IpAddr, u32>,
    counts: Vec<(IpAddr, u32)>,
    vacant: Vec<u32>,
}

impl Census {
    /// So many connections an address; 0 counts nothing and refuses nothing.
    #[must_use]
    pub fn new(per_address_max: u32) -> Self {
        Self { per_address_max, places: HashMap::new(), counts: Vec::new(), vacant: Vec::new() }
    }

    /// Whether anything is counted.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.per_address_max > 0
    }

    /// One more connection of that address; None when it has as many as it may.
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

    /// One connection less.
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

    /// How many addresses have connections.
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
