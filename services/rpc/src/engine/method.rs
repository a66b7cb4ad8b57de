//! Procedure names, sent as hashes, and the table of registered procedures.

use crate::RegisterError;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Number of bits for the provider in a [`Method`].
const PROVIDER_BITS: u32 = 16;

/// Identifier of a procedure in one word. It has 48 bits of the hash of the procedure's name, and
/// 16 bits of the provider.
///
/// A provider is one of several services of a kind in one process, each with its own state.
///
/// ```
/// use handover_rpc::Method;
/// const PUT: Method = Method::new("store/put");
/// assert_ne!(PUT, PUT.with_provider(7));
/// assert_eq!(PUT.with_provider(7).provider(), 7);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Method(u64);

impl Method {
    /// Returns the identifier of the procedure with that name and provider 0. Usable in constants.
    #[must_use]
    pub const fn new(name: &str) -> Self {
        // FNV-1a (Fowler, Noll, Vo): names are few, and `Methods::insert` refuses collisions.
        let (mut hash, mut at) = (0xcbf2_9ce4_8422_2325u64, 0);
        while at < name.len() {
            hash = (hash ^ name.as_bytes()[at] as u64).wrapping_mul(0x0000_0100_0000_01b3);
            at += 1;
        }
        Self((hash ^ hash >> 48) << PROVIDER_BITS)
    }

    /// Returns the identifier of the procedure with the same name and that provider.
    #[must_use]
    pub const fn with_provider(self, provider: u16) -> Self {
        Self(self.0 >> PROVIDER_BITS << PROVIDER_BITS | provider as u64)
    }

    /// Returns the provider number.
    #[must_use]
    pub const fn provider(self) -> u16 {
        // Truncates to the lower 16 bits, which hold the provider.
        self.0 as u16
    }

    /// Decodes the identifier from a word of a frame.
    #[cfg(feature = "monitoring")]
    pub(crate) const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// Returns the identifier as encoded in a frame.
    #[inline]
    #[must_use]
    pub const fn word(self) -> u64 {
        self.0
    }
}

/// Table of registered handlers by name and provider.
#[derive(Debug)]
pub struct Methods<H> {
    /// Indices of the registered procedures in `entries`, by [`Method::word`].
    indices: HashMap<u64, usize, BuildHasherDefault<WordHasher>>,
    /// Names and handlers by index; a removed entry leaves its index vacant.
    entries: Vec<Option<(String, H)>>,
    /// Word and index of the last lookup, cached because most callers repeat the same call.
    last_lookup: Option<(u64, usize)>,
}

impl<H> Default for Methods<H> {
    fn default() -> Self {
        Self { indices: HashMap::default(), entries: Vec::new(), last_lookup: None }
    }
}

impl<H> Methods<H> {
    /// Registers a handler for that name and provider.
    ///
    /// # Errors
    /// [`RegisterError`] if the name is registered, or another one has the same hash.
    pub fn insert(&mut self, name: &str, provider: u16, handler: H) -> Result<(), RegisterError> {
        let word = Method::new(name).with_provider(provider).word();
        let other = self.indices.get(&word).and_then(|&index| self.entries[index].as_ref());
        match other {
            Some((other, _)) if other == name => {
                Err(RegisterError::Taken { name: name.into(), provider })
            }
            Some((other, _)) => {
                Err(RegisterError::HashCollision { name: name.into(), other: other.clone() })
            }
            None => {
                let free = self.entries.iter().position(Option::is_none);
                let index = free.unwrap_or_else(|| {
                    self.entries.push(None);
                    self.entries.len() - 1
                });
                self.entries[index] = Some((name.into(), handler));
                self.indices.insert(word, index);
                Ok(())
            }
        }
    }

    /// Returns the handler of the method encoded as `word`. Returns `None` if it is not registered.
    /// The word may come from an untrusted peer.
    #[inline]
    pub fn get_mut(&mut self, word: u64) -> Option<&mut H> {
        let index = match self.last_lookup {
            Some((last, index)) if last == word => index,
            _ => {
                let index = self.indices.get(&word).copied()?;
                self.last_lookup = Some((word, index));
                index
            }
        };
        self.entries.get_mut(index)?.as_mut().map(|(_, handler)| handler)
    }

    /// Iterates over the registered names and providers.
    pub fn names(&self) -> impl Iterator<Item = (&str, u16)> {
        self.indices.iter().filter_map(|(&word, &index)| {
            let (name, _) = self.entries[index].as_ref()?;
            Some((name.as_str(), Method(word).provider()))
        })
    }

    /// Removes and returns the handler of that name and provider; `None` if it is not registered.
    pub fn remove(&mut self, name: &str, provider: u16) -> Option<H> {
        let word = Method::new(name).with_provider(provider).word();
        let index = self.indices.remove(&word)?;
        // The index may be reused for another name.
        self.last_lookup = None;
        self.entries[index].take().map(|(_, handler)| handler)
    }
}

/// Hasher for words that already contain a hash. It only spreads their bits over the whole word.
/// Peers can look words up but not insert any, so they cannot provoke collisions.
#[derive(Debug, Default)]
pub struct WordHasher(u64);

impl Hasher for WordHasher {
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
        // 2^64 divided by the golden ratio, odd. The upper bits are the best mixed ones.
        self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_registered_at_most_once_per_provider() {
        let mut methods = Methods::default();
        assert_eq!(methods.insert("echo", 0, 'a'), Ok(()));
        assert_eq!(methods.insert("echo", 1, 'b'), Ok(()));
        let taken = methods.insert("echo", 1, 'c');
        assert_eq!(taken, Err(RegisterError::Taken { name: "echo".into(), provider: 1 }));
        let word = Method::new("echo").with_provider(1).word();
        assert_eq!(methods.get_mut(word).copied(), Some('b'));
        assert_eq!(methods.remove("echo", 1), Some('b'));
        assert_eq!(methods.get_mut(word), None);
        // A later handler at the same index is not found under the old word.
        assert_eq!(methods.insert("other", 1, 'd'), Ok(()));
        assert_eq!(methods.get_mut(word), None);
        let other = Method::new("other").with_provider(1).word();
        assert_eq!(
            [other, 0, other].map(|it| methods.get_mut(it).copied()),
            [Some('d'), None, Some('d')]
        );
        assert_eq!(methods.insert("echo", 1, 'e'), Ok(()));
        assert_eq!(methods.get_mut(word).copied(), Some('e'));
    }

    #[test]
    fn hash_equals_the_published_test_vectors() {
        // FNV-1a of the empty text and of "a", folded as in `Method::new`.
        let folded = |hash: u64| (hash ^ hash >> 48) << 16;
        assert_eq!(Method::new("").word(), folded(0xcbf2_9ce4_8422_2325));
        assert_eq!(Method::new("a").word(), folded(0xaf63_dc4c_8601_ec8c));
    }
}
