//! A slab: values in slots that are reused, under keys that are not.
//!
//! ```
//! use handover_base::slab::Slab;
//! let mut slab = Slab::new(2);
//! let first = slab.insert("a").unwrap();
//! slab.insert("b").unwrap();
//! assert_eq!(slab.insert("c"), Err("c"), "a full slab accepted a value");
//! assert_eq!(slab.remove(first), Some("a"));
//! let third = slab.insert("c").unwrap();
//! assert_eq!(third.index, first.index, "the freed slot was not reused");
//! assert_eq!((slab.get(first), slab.get(third)), (None, Some(&"c")));
//! ```

/// Key of a value in a slab. A key is not reused before the generation of its slot has wrapped
/// around.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// Index of the value's slot.
    pub index: u32,
    /// Number of values that the slot contained before this value.
    pub generation: u32,
}

/// Slot of a slab: its value, and the number of values that it contained before.
#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

/// Number of entries per memory block. Only the first block grows, so that a large slab is never
/// moved in memory.
const BLOCK_ENTRIES: usize = 1024;

/// Collection that assigns a key to each inserted value. Its memory grows with the largest number
/// of values at a time.
#[derive(Debug)]
pub struct Slab<T> {
    /// Memory of the slots, in blocks of [`BLOCK_ENTRIES`].
    blocks: Vec<Vec<Entry<T>>>,
    /// Indices of the vacant slots, of which the last is used next.
    vacant_indices: Vec<u32>,
    len: u32,
    len_max: u32,
}

impl<T> Slab<T> {
    /// Size in bytes of the memory for one value and its slot.
    pub const ENTRY_BYTES: usize = size_of::<Entry<T>>();

    /// Creates an empty slab for at most `len_max` values.
    #[must_use]
    pub const fn new(len_max: u32) -> Self {
        Self { blocks: Vec::new(), vacant_indices: Vec::new(), len: 0, len_max }
    }

    /// Returns the number of values.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Returns `true` if there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns `true` if no further value can be inserted.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len >= self.len_max
    }

    /// Returns the number of slots, including vacant slots.
    #[inline]
    #[must_use]
    pub fn slots_count(&self) -> u32 {
        // At most `len_max`, a `u32`.
        self.blocks
            .last()
            .map_or(0, |last| ((self.blocks.len() - 1) * BLOCK_ENTRIES + last.len()) as u32)
    }

    /// Returns the key of the next inserted value; `None` if the slab is full.
    #[inline]
    #[must_use]
    pub fn next_key(&self) -> Option<Key> {
        if self.is_full() {
            return None;
        }
        match self.vacant_indices.last() {
            Some(&index) => Some(Key { index, generation: self.entry(index)?.generation }),
            None => Some(Key { index: self.slots_count(), generation: 0 }),
        }
    }

    /// Inserts a value and returns its key, which is [`next_key`](Self::next_key).
    ///
    /// # Errors
    /// The value, if the slab is full.
    #[inline]
    pub fn insert(&mut self, value: T) -> Result<Key, T> {
        let Some(key) = self.next_key() else { return Err(value) };
        self.len += 1;
        if self.vacant_indices.pop().is_some() {
            if let Some(entry) = self.entry_mut(key.index) {
                entry.value = Some(value);
            }
            return Ok(key);
        }
        if self.blocks.last().is_none_or(|last| last.len() == BLOCK_ENTRIES) {
            let reserved_count = if self.blocks.is_empty() { 0 } else { BLOCK_ENTRIES };
            self.blocks.push(Vec::with_capacity(reserved_count));
        }
        if let Some(last) = self.blocks.last_mut() {
            last.push(Entry { generation: key.generation, value: Some(value) });
        }
        Ok(key)
    }

    /// Returns a reference to the value with this key; `None` if the value was removed.
    #[inline]
    #[must_use]
    pub fn get(&self, key: impl Into<Key>) -> Option<&T> {
        let key = key.into();
        let entry = self.entry(key.index)?;
        if entry.generation == key.generation { entry.value.as_ref() } else { None }
    }

    /// Returns a mutable reference to the value with this key; `None` if the value was removed.
    #[inline]
    pub fn get_mut(&mut self, key: impl Into<Key>) -> Option<&mut T> {
        let key = key.into();
        let entry = self.entry_mut(key.index)?;
        if entry.generation == key.generation { entry.value.as_mut() } else { None }
    }

    /// Removes and returns the value with this key; `None` if the value was already removed.
    #[inline]
    pub fn remove(&mut self, key: impl Into<Key>) -> Option<T> {
        let key = key.into();
        let entry = self.entry_mut(key.index).filter(|it| it.generation == key.generation)?;
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.vacant_indices.push(key.index);
        self.len -= 1;
        Some(value)
    }

    /// Returns the key of the value in slot `index`; `None` if the slot is vacant.
    #[must_use]
    pub fn key_at(&self, index: u32) -> Option<Key> {
        let entry = self.entry(index)?;
        entry.value.as_ref().map(|_| Key { index, generation: entry.generation })
    }

    /// Returns an iterator over the keys of all values.
    pub fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        (0..self.slots_count()).filter_map(|index| self.key_at(index))
    }

    #[inline]
    fn entry(&self, index: u32) -> Option<&Entry<T>> {
        let index = index as usize;
        self.blocks.get(index / BLOCK_ENTRIES)?.get(index % BLOCK_ENTRIES)
    }

    #[inline]
    fn entry_mut(&mut self, index: u32) -> Option<&mut Entry<T>> {
        let index = index as usize;
        self.blocks.get_mut(index / BLOCK_ENTRIES)?.get_mut(index % BLOCK_ENTRIES)
    }
}
