//! Change points of a sequence: E-divisive.
//!
//! A segment is cut where the energy distance between the values left and right of the cut,
//! weighted by their numbers, is greatest; the cut is accepted if hardly any shuffled copy of the
//! segment has a cut as good; then both halves are searched. The method finds any change of
//! distribution, and needs neither the number of changes nor a noise model.
//!
//! Source: D. S. Matteson and N. A. James, *A nonparametric approach for multiple change point
//! analysis of multivariate data*, JASA 2014, with an exponent of 1; as used on benchmarks by D.
//! Daly et al., *The use of change point detection to identify software performance regressions in
//! a continuous integration system*, ICPE 2020.

use handover_base::random::SplitMix64;

/// Minimum number of values in a segment. Fewer values do not show a distribution.
pub const SEGMENT_VALUES_MIN: usize = 5;
/// Maximum p-value of a change point.
pub const P_VALUE_MAX: f64 = 0.01;
/// Number of shuffled copies of a segment with which its best cut is compared.
const SHUFFLES: usize = 999;

/// Change point of a sequence: the start of a new level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Index of the first value of the new level.
    pub place: usize,
    /// p-value of the change. It is the share of shuffled copies of the segment that have a cut as
    /// good as the change.
    pub p: f64,
}

/// Returns every change point of a sequence, in order. The result is deterministic.
///
/// # Cost
/// N log N per cut that is tried, a thousand times that per cut that is kept: 1,000 values with
/// some changes take some tenths of a second.
pub fn find_changes(values: &[f64]) -> Vec<Change> {
    let mut found = Vec::new();
    let mut parts = vec![(0, values.len())];
    let mut random = SplitMix64::new(0xed17);
    while let Some((from, to)) = parts.pop() {
        if let Some(change) = best_change(&values[from..to], &mut random) {
            let place = from + change.place;
            found.push(Change { place, p: change.p });
            parts.extend([(from, place), (place, to)]);
        }
    }
    found.sort_by_key(|change| change.place);
    found
}

/// Maximum energy distance of a cut that rounding alone may cause. It is relative to the spread of
/// the values.
const ROUNDING_NOISE_MAX: f64 = 1e-9;

/// Returns the best change point of a segment; `None` if it is not significant.
fn best_change(values: &[f64], random: &mut SplitMix64) -> Option<Change> {
    if values.len() < 2 * SEGMENT_VALUES_MIN {
        return None;
    }
    let mut scan = CutSearch::new(values);
    let mut order: Vec<usize> = (0..values.len()).collect();
    let (place, best) = scan.best_cut(&order);
    // Equal values differ by the rounding of their sums, which depends on the order of time.
    let spread = scan.sorted.last()? - scan.sorted.first()?;
    if best <= ROUNDING_NOISE_MAX * spread || spread == 0.0 {
        return None;
    }
    let as_good_max = (P_VALUE_MAX * (SHUFFLES + 1) as f64) as usize;
    let mut as_good = 1;
    for _ in 0..SHUFFLES {
        random.shuffle(&mut order);
        as_good += usize::from(scan.best_cut(&order).1 >= best * (1.0 - 1e-9));
        if as_good > as_good_max {
            return None;
        }
    }
    Some(Change { place, p: as_good as f64 / (SHUFFLES + 1) as f64 })
}

/// Search for the best cut of a segment. It has the values by rank, and sums over the values left
/// of the cut.
struct CutSearch {
    /// Rank of each value, in order of time.
    ranks: Vec<usize>,
    /// Values in ascending order.
    sorted: Vec<f64>,
    /// Numbers of the added values up to each rank, as a Fenwick tree.
    counts: Vec<f64>,
    /// Sums of the added values up to each rank, as a Fenwick tree.
    sums: Vec<f64>,
    /// For each value, the sum of its distances to all others.
    to_all: Vec<f64>,
}

impl CutSearch {
    fn new(values: &[f64]) -> CutSearch {
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_by(|x, y| values[*x].total_cmp(&values[*y]));
        let mut ranks = vec![0; values.len()];
        let sorted: Vec<f64> = order.iter().map(|place| values[*place]).collect();
        let all: f64 = sorted.iter().sum();
        let (mut below, mut to_all) = (0.0, vec![0.0; values.len()]);
        for (rank, place) in order.iter().enumerate() {
            ranks[*place] = rank;
            let (value, count) = (sorted[rank], values.len() as f64);
            let above = all - below - value;
            to_all[*place] =
                value * rank as f64 - below + above - value * (count - 1.0 - rank as f64);
            below += value;
        }
        let tree = vec![0.0; values.len() + 1];
        CutSearch { ranks, sorted, counts: tree.clone(), sums: tree, to_all }
    }

    /// Returns the best cut of the values in `order`: its index and weighted energy distance.
    fn best_cut(&mut self, order: &[usize]) -> (usize, f64) {
        self.counts.fill(0.0);
        self.sums.fill(0.0);
        let count = order.len();
        // Sums of distances within the left part, within the right part, and between: each pair
        // once.
        let (mut left, mut right, mut between) = (0.0, self.to_all.iter().sum::<f64>() / 2.0, 0.0);
        let (mut best, mut place, mut came) = (f64::MIN, 0, 0.0);
        for (index, value) in order.iter().enumerate().take(count - SEGMENT_VALUES_MIN) {
            let to_left = self.distance_to_added(self.ranks[*value], index as f64, came);
            let to_right = self.to_all[*value] - to_left;
            left += to_left;
            right -= to_right;
            between += to_right - to_left;
            came += self.sorted[self.ranks[*value]];
            self.add(self.ranks[*value]);
            let n = (index + 1) as f64;
            let m = (count - index - 1) as f64;
            if index + 1 >= SEGMENT_VALUES_MIN {
                let energy = 2.0 * between / (n * m)
                    - 2.0 * left / (n * (n - 1.0))
                    - 2.0 * right / (m * (m - 1.0));
                let weighted = n * m / (n + m) * energy;
                if weighted > best {
                    (best, place) = (weighted, index + 1);
                }
            }
        }
        (place, best)
    }

    /// Adds the value of this rank to those left of the cut.
    fn add(&mut self, rank: usize) {
        let value = self.sorted[rank];
        let mut place = rank + 1;
        while place < self.counts.len() {
            self.counts[place] += 1.0;
            self.sums[place] += value;
            place += place & place.wrapping_neg();
        }
    }

    /// Returns the sum of the distances from one value to all values left of the cut. The value is
    /// given by its rank.
    fn distance_to_added(&self, rank: usize, added_count: f64, added_sum: f64) -> f64 {
        let (mut count, mut sum, mut place) = (0.0, 0.0, rank + 1);
        while place > 0 {
            count += self.counts[place];
            sum += self.sums[place];
            place &= place - 1;
        }
        let value = self.sorted[rank];
        value * count - sum + (added_sum - sum) - value * (added_count - count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(seed: u64, count: usize, around: f64) -> Vec<f64> {
        let mut random = SplitMix64::new(seed);
        (0..count).map(|_| around + 0.01 * random.next_normal()).collect()
    }

    #[test]
    fn constant_values_have_no_change() {
        for value in [4096_f64, 3.0, 0.1, 1e-3, 12_345.678] {
            for count in [20, 60, 100, 300] {
                assert!(
                    find_changes(&vec![value.ln(); count]).is_empty(),
                    "{value}, {count} times"
                );
            }
        }
    }

    #[test]
    fn sums_equal_those_over_every_pair() {
        let values = noise(1, 30, 0.0);
        let mut scan = CutSearch::new(&values);
        let order: Vec<usize> = (0..30).collect();
        let (place, best) = scan.best_cut(&order);
        let apart = |from: &[f64], to: &[f64]| -> f64 {
            from.iter().flat_map(|x| to.iter().map(move |y| (x - y).abs())).sum()
        };
        let by_hand = |cut: usize| {
            let (x, y) = values.split_at(cut);
            let (n, m) = (x.len() as f64, y.len() as f64);
            n * m / (n + m)
                * (2.0 * apart(x, y) / (n * m)
                    - apart(x, x) / (n * (n - 1.0))
                    - apart(y, y) / (m * (m - 1.0)))
        };
        let best_by_hand = (SEGMENT_VALUES_MIN..=30 - SEGMENT_VALUES_MIN)
            .max_by(|a, b| by_hand(*a).total_cmp(&by_hand(*b)));
        assert_eq!(Some(place), best_by_hand);
        assert!((best - by_hand(place)).abs() < 1e-9);
    }

    #[test]
    fn each_step_of_a_staircase_is_found() {
        let values = [noise(2, 40, 4.0), noise(3, 30, 4.05), noise(4, 50, 3.9)].concat();
        let places: Vec<usize> = find_changes(&values).iter().map(|it| it.place).collect();
        assert!(matches!(places[..], [38..=42, 68..=72]), "{places:?}");
    }

    #[test]
    fn noise_is_rarely_cut() {
        let cut =
            (0..200).filter(|seed| !find_changes(&noise(100 + seed, 40, 4.0)).is_empty()).count();
        assert!(cut <= 7, "{cut} of 200 histories of noise have a change at a level of 1 %");
    }

    #[test]
    fn short_or_constant_values_have_no_change() {
        assert!(find_changes(&[]).is_empty());
        assert!(find_changes(&[1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0]).is_empty());
        assert!(find_changes(&[3.0; 100]).is_empty());
    }

    #[test]
    fn single_outlier_is_no_change() {
        let mut values = noise(5, 60, 4.0);
        values[30] = 9.0;
        assert!(find_changes(&values).is_empty());
    }
}
