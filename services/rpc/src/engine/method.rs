//! Which name means what: names are sent as numbers.

use crate::RegisterError;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

const PROVIDER_BITS: u32 = 16;

/// The name of a procedure and the provider that it is asked of, in one word: 48 bits of the name's hash,
/// 16 of the provider.
///
/// A provider is one of several services of a kind in one process, each with its own state.
///
/// ```
/// use handover_rpc::Method;
/// const PUT: Method = Method::named("store/put");
/// assert_ne!(PUT, PUT.of_provider(7));
/// assert_eq!(PUT.of_provider(7).provider(), 7);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Method(u64);

impl Method {
    /// That name, of provider 0. Usable in constants.
    #[must_use]
    pub const fn named(name: &str) -> Self {
        // FNV-1a (Fowler, Noll, Vo): names are few, and told apart when they are registered.
        let (mut hash, mut at) = (0xcbf2_9ce4_8422_2325u64, 0);
        while at < name.len() {
            hash = (hash ^ name.as_bytes()[at] as u64).wrapping_mul(0x0000_0100_0000_01b3);
            at += 1;
        }
        Self((hash ^ hash >> 48) << PROVIDER_BITS)
    }

    /// The same name, of that provider.
    #[must_use]
    pub const fn of_provider(self, provider: u16) -> Self {
        Self(self.0 >> PROVIDER_BITS << PROVIDER_BITS | provider as u64)
    }

    /// The provider.
    #[must_use]
    pub const fn provider(self) -> u16 {
        // Cut to its width.
        self.0 as u16
    }

    /// What was sent as that word.
    pub(crate) const fn of_word(word: u64) -> Self {
        Self(word)
    }

    /// As it is sent.
    #[inline]
    #[must_use]
    pub const fn word(self) -> u64 {
        self.0
    }
}

/// What is registered, by name and provider.
#[derive(Debug)]
pub struct Methods<H> {
    places: HashMap<u64, usize, BuildHasherDefault<Spread>>,
    /// By place; what was taken back leaves its place empty.
    known: Vec<Option<(String, H)>>,
    /// What was looked up last, and where it is: most callers want the same again.
    last: Option<(u64, usize)>,
}

impl<H> Default for Methods<H> {
    fn default() -> Self {
        Self { places: HashMap::default(), known: Vec::new(), last: None }
    }
}

impl<H> Methods<H> {
    /// Registers that name.
    ///
    /// # Errors
    /// [`RegisterError`] when it is registered, or one that looks the same.
    pub fn insert(&mut self, name: &str, provider: u16, handler: H) -> Result<(), RegisterError> {
        let word = Method::named(name).of_provider(provider).word();
        let other = self.places.get(&word).and_then(|&place| self.known[place].as_ref());
        match other {
            Some((other, _)) if other == name => {
                Err(RegisterError::Taken { name: name.into(), provider })
            }
            Some((other, _)) => {
                Err(RegisterError::Alike { name: name.into(), other: other.clone() })
            }
            None => {
                let free = self.known.iter().position(Option::is_none);
                let place = free.unwrap_or_else(|| {
                    self.known.push(None);
                    self.known.len() - 1
                });
                self.known[place] = Some((name.into(), handler));
                self.places.insert(word, place);
                Ok(())
            }
        }
    }

    /// What is registered for that word, which may come from anybody.
    #[inline]
    pub fn get_mut(&mut self, word: u64) -> Option<&mut H> {
        let place = match self.last {
            Some((last, place)) if last == word => place,
            _ => {
                let place = self.places.get(&word).copied()?;
                self.last = Some((word, place));
                place
            }
        };
        self.known.get_mut(place)?.as_mut().map(|(_, handler)| handler)
    }

    /// What is registered: names and providers.
    pub fn names(&self) -> impl Iterator<Item = (&str, u16)> {
        self.places.iter().filter_map(|(&word, &place)| {
            let (name, _) = self.known[place].as_ref()?;
            Some((name.as_str(), Method(word).provider()))
        })
    }

    /// Takes back what was registered.
    pub fn remove(&mut self, name: &str, provider: u16) -> Option<H> {
        let word = Method::named(name).of_provider(provider).word();
        let place = self.places.remove(&word)?;
        // Another may be given its place.
        self.last = None;
        self.known[place].take().map(|(_, handler)| handler)
    }
}

/// The words are hashes already: they are only spread over all bits. Strangers look words up, and cannot
/// insert any, so there is nothing to flood.
#[derive(Debug, Default)]
pub struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        // 2^64 over the golden ratio, odd; the upper bits are the good ones.
        self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_registered_once_for_each_provider() {
        let mut methods = Methods::default();
        assert_eq!(methods.insert("echo", 0, 'a'), Ok(()));
        assert_eq!(methods.insert("echo", 1, 'b'), Ok(()));
        let taken = methods.insert("echo", 1, 'c');
        assert_eq!(taken, Err(RegisterError::Taken { name: "echo".into(), provider: 1 }));
        let word = Method::named("echo").of_provider(1).word();
        assert_eq!(methods.get_mut(word).copied(), Some('b'));
        assert_eq!(methods.remove("echo", 1), Some('b'));
        assert_eq!(methods.get_mut(word), None);
        // Another in its place is not taken for it.
        assert_eq!(methods.insert("other", 1, 'd'), Ok(()));
        assert_eq!(methods.get_mut(word), None);
        let other = Method::named("other").of_provider(1).word();
        assert_eq!(
            [other, 0, other].map(|it| methods.get_mut(it).copied()),
            [Some('d'), None, Some('d')]
        );
        assert_eq!(methods.insert("echo", 1, 'e'), Ok(()));
        assert_eq!(methods.get_mut(word).copied(), Some('e'));
    }

    #[test]
    fn the_hash_is_the_published_one() {
        // FNV-1a of the empty text and of "a", folded as ours.
        let folded = |hash: u64| (hash ^ hash >> 48) << 16;
        assert_eq!(Method::named("").word(), folded(0xcbf2_9ce4_8422_2325));
        assert_eq!(Method::named("a").word(), folded(0xaf63_dc4c_8601_ec8c));
    }
}
