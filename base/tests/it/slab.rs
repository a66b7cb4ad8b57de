//! The slab beside a map, over its block boundary.

use handover_base::slab::{Key, Slab};
use proptest::prelude::*;
use std::collections::HashMap;

/// Values of the first block, and of two more.
const MANY: u32 = 3000;

#[test]
fn values_of_several_blocks_are_found_until_they_are_removed() {
    let mut slab = Slab::new(MANY);
    let keys: Vec<Key> = (0..MANY).map(|value| slab.insert(value).unwrap()).collect();
    assert_eq!(slab.insert(MANY), Err(MANY));
    assert!(slab.is_full() && slab.next_key().is_none());
    assert!(slab.keys().eq(keys.iter().copied()));
    for (value, &key) in (0..MANY).zip(&keys) {
        assert_eq!(slab.get_mut(key).copied(), Some(value));
        assert_eq!((slab.remove(key), slab.remove(key)), (Some(value), None));
    }
    assert_eq!((slab.len(), slab.slots_count(), slab.keys().count()), (0, MANY, 0));
    let again = slab.insert(7).unwrap();
    assert_eq!((again.generation, slab.get(keys[again.index as usize])), (1, None));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 256 },
        failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_sequence_of_calls_acts_as_a_map(steps in prop::collection::vec(0u32..40, 1..200)) {
        let mut slab = Slab::new(10);
        let (mut map, mut ended) = (HashMap::new(), Vec::new());
        for (number, step) in (0..).zip(steps) {
            let next = slab.next_key();
            if step < 20 {
                let inserted = slab.insert(number).ok();
                prop_assert_eq!(inserted, next);
                prop_assert_eq!(inserted.is_some(), map.len() < 10);
                if let Some(key) = inserted {
                    prop_assert!(map.insert(key, number).is_none() && !ended.contains(&key));
                }
            } else if let Some(key) = slab.key_at(step - 20) {
                prop_assert_eq!(slab.remove(key), map.remove(&key));
                ended.push(key);
            }
            prop_assert_eq!(slab.len() as usize, map.len());
            prop_assert_eq!(slab.keys().count(), map.len());
            for (key, value) in &map {
                prop_assert_eq!(slab.get(*key), Some(value));
            }
            prop_assert!(ended.iter().all(|&key| slab.get(key).is_none()));
        }
    }
}
