//! Sorting of the entries of opened slots, at most a few hundred: by distribution over buckets,
//! then by insertion.

use super::entry::TimerEntry;

/// Number of entries below which they are sorted by insertion alone.
const DISTRIBUTED_ENTRIES_MIN: usize = 8;
/// Number of bits of the greatest bucket index.
const BUCKET_BITS_MAX: u32 = 9;
/// Maximum number of buckets.
const BUCKETS_MAX: usize = 1 << BUCKET_BITS_MAX;
/// Maximum number of moves of the insertion sort, for each entry. If it is exceeded, as the entries
/// of one bucket are many and in disorder, the standard library's sort replaces the insertion sort.
const MOVES_PER_ENTRY_MAX: usize = 8;

/// Replaces the elements of `sorted` by `entries`, in the order of their deadlines.
///
/// It takes linear time if the deadlines are spread evenly, since few entries then share a bucket,
/// and has few branches that are hard to predict.
pub(super) fn sort_into(sorted: &mut Vec<TimerEntry>, entries: &[TimerEntry]) {
    sorted.clear();
    if entries.len() < DISTRIBUTED_ENTRIES_MIN {
        sorted.extend_from_slice(entries);
        return sort_nearly_sorted(sorted);
    }
    let (lowest_ns, highest_ns) = entries.iter().fold((u64::MAX, 0), |(lowest, highest), entry| {
        (entry.deadline_ns.min(lowest), entry.deadline_ns.max(highest))
    });
    // More buckets than entries, up to the maximum, so that most hold one entry or none.
    let bucket_bits = (entries.len().ilog2() + 1).min(BUCKET_BITS_MAX);
    let span_bits = u64::BITS - (highest_ns - lowest_ns).leading_zeros();
    let shift = span_bits.saturating_sub(bucket_bits);
    // The index is below 1 << bucket_bits; the remainder only saves its check.
    let bucket_of =
        |entry: &TimerEntry| ((entry.deadline_ns - lowest_ns) >> shift) as usize % BUCKETS_MAX;

    // Number of entries of each bucket; from the second loop on, the index in `sorted` of the
    // bucket's next entry.
    let mut positions = [0_u32; BUCKETS_MAX];
    for entry in entries {
        positions[bucket_of(entry)] += 1;
    }
    let mut next = 0;
    for position in &mut positions[..1 << bucket_bits] {
        next += std::mem::replace(position, next);
    }
    sorted.resize(entries.len(), TimerEntry::NONE);
    for entry in entries {
        let position = &mut positions[bucket_of(entry)];
        sorted[*position as usize] = *entry;
        *position += 1;
    }
    sort_nearly_sorted(sorted);
}

/// Sorts `entries` by their deadlines. It is fast if they are few, or hardly any is out of order.
fn sort_nearly_sorted(entries: &mut [TimerEntry]) {
    let mut moves_left = MOVES_PER_ENTRY_MAX * entries.len();
    for at in 1..entries.len() {
        let entry = entries[at];
        let mut to = at;
        while to > 0 && entries[to - 1].deadline_ns > entry.deadline_ns {
            entries[to] = entries[to - 1];
            to -= 1;
        }
        if to == at {
            continue;
        }
        entries[to] = entry;
        let Some(left) = moves_left.checked_sub(at - to) else {
            return entries.sort_unstable_by_key(|entry| entry.deadline_ns);
        };
        moves_left = left;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sorts entries with these deadlines. Checks that they are in order, and that each is returned
    /// once.
    #[track_caller]
    fn check(deadlines_ns: impl IntoIterator<Item = u64>) {
        let entries: Vec<_> =
            deadlines_ns.into_iter().zip(1..).map(|(ns, key)| TimerEntry::new(ns, key)).collect();
        let mut sorted = vec![TimerEntry::NONE; 3];
        sort_into(&mut sorted, &entries);
        assert!(sorted.is_sorted_by_key(|entry| entry.deadline_ns));
        sorted.sort_unstable_by_key(|entry| entry.key);
        assert_eq!(sorted, entries);
    }

    #[test]
    fn entries_of_any_count_and_span_are_sorted() {
        // Fewer under Miri, which is slow.
        let (few_max, many) =
            if cfg!(miri) { (12, &[628][..]) } else { (69, &[531, 532, 627, 628, 2000][..]) };
        for count in (0..=few_max).chain(many.iter().copied()) {
            for bits in [0, 1, 6, 9, 10, 18, 24, 33, 63, 64] {
                let mask = u64::MAX.checked_shr(u64::BITS - bits).unwrap_or(0);
                let hash = |at: u64| at.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                check((0..count).map(|at| hash(at) & mask));
                check((0..count).map(|at| u64::MAX - (hash(at) & mask)));
            }
        }
    }

    #[test]
    fn clustered_entries_are_sorted() {
        // All but one are in one bucket, in ascending, descending, equal and mixed order.
        check((0..500).map(|at| at + 1).chain([u64::MAX]));
        check((0..500).rev().chain([1 << 40]));
        check((0..500).map(|_| 7).chain([1 << 40]));
        check((0..500).map(|at| at * 263 % 500).chain([1 << 40]));
    }
}
