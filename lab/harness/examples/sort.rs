//! Two ways of sorting.

handover_harness::measure! {
    "sort/reversed", "sorting 1000 numbers": Vec<u64> = (0..1000).rev().collect();
    ours "unstable": |numbers| { let mut copy = numbers.clone(); copy.sort_unstable(); copy };
    peer "stable": |numbers| { let mut copy = numbers.clone(); copy.sort(); copy };
}
