//! Tables of different sizes, and the allocations of their construction.

use handover_harness::{CountingAllocator, measure};
use std::collections::BTreeMap;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::system();

measure! {
    "table/find", "looking up the key in the middle", keys_count: u64 = 1000 in 2..=1_000_000:
        Vec<(u64, u64)> = (0..keys_count).map(|key| (key, key)).collect();
    ours "binary": |table| { let key = table.len() as u64 / 2; table.binary_search_by_key(&key, |it| it.0) };
    peer "linear": |table| { let key = table.len() as u64 / 2; table.iter().position(|it| it.0 == key) };

    "table/build", "building a map of 1000 keys": () = ();
    ours "btree": |()| (0..1000_u64).map(|key| (key, key)).collect::<BTreeMap<u64, u64>>();
    peer "vector": |()| (0..1000_u64).map(|key| (key, key)).collect::<Vec<(u64, u64)>>();
}
