//! Correction for multiple tests: the probability that chance alone makes *any* test look as
//! extreme.
//!
//! The corrections by Holm and by Benjamini and Hochberg multiply a p-value by the number of tests.
//! With five processes per side the smallest p-value is 2/252, so that beyond six tests no
//! difference could be significant, however clear. Permuting the processes over the sides, for all
//! tests at once, has no such limit: it shows how extreme the most extreme of all figures is by
//! chance, and accounts for correlated tests (a slow process is slow in many figures).
//!
//! Source: P. H. Westfall and S. S. Young, *Resampling-Based Multiple Testing*, 1993: the step-down
//! maxT.

use handover_base::random::SplitMix64;

/// Number of permutations up to which all of them are tested.
const PERMUTATIONS_ALL_MAX: usize = 13_000;
/// Number of random permutations that are tested if not all of them are. The seed is fixed, so that
/// equal runs give an equal p.
const PERMUTATIONS_RANDOM: usize = 4_999;
/// Constant added to each standard error of the logarithms. It keeps every statistic finite if all
/// values are equal.
const ERROR_MIN: f64 = 0.001;

/// Values of one test: one per process, side A's first; NaN for a process without the figure.
pub type TestValues = Vec<f64>;

/// Corrected p-values of a test, one for each direction of the difference. Each is the share of
/// permutations in which the most extreme of this and all less extreme tests is as extreme in the
/// same direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CorrectedPValues {
    /// p-value for side B above side A.
    pub above: f64,
    /// p-value for side B below side A.
    pub below: f64,
}

/// Returns the corrected p-values of all tests. The first `a_count` processes are side A, the rest
/// side B.
///
/// Both directions are tested separately, as changes that make no figure worse may make some
/// better. With five processes per side, one of the 252 permutations is the actual one, and one
/// more may be as extreme in its direction within the limit of a hundredth; in a two-sided test
/// none could.
///
/// # Cost
/// Tests × permutations × processes: 200 tests of 8 processes per side, 12,870 permutations, take
/// 0.1 s.
pub fn corrected_p_values(tests: &[TestValues], a_count: usize) -> Vec<CorrectedPValues> {
    // Without tests there are no processes to permute.
    let Some(all) = tests.first().map(Vec::len) else { return Vec::new() };
    let own: Vec<bool> = (0..all).map(|place| place < a_count).collect();
    let apart: Vec<f64> = tests.iter().map(|values| statistic(values, &own)).collect();
    let [mut above, mut below] = [Direction::new(&apart, 1.0), Direction::new(&apart, -1.0)];
    let mut permuted = vec![0.0; tests.len()];
    for permutation in permutations(all, a_count) {
        for (permuted, values) in permuted.iter_mut().zip(tests) {
            *permuted = statistic(values, &permutation);
        }
        above.count_permutation(&permuted);
        below.count_permutation(&permuted);
        if omits_mirror_images(all, a_count) {
            permuted.iter_mut().for_each(|it| *it = -*it);
            above.count_permutation(&permuted);
            below.count_permutation(&permuted);
        }
    }
    let p_values = above.p_values().into_iter().zip(below.p_values());
    p_values.map(|(above, below)| CorrectedPValues { above, below }).collect()
}

/// All tests in one direction of the difference, and their counts of extreme permutations.
struct Direction {
    /// 1 for tests of side B above side A, -1 for the reverse.
    sign: f64,
    /// Statistic of each test, positive in this direction.
    statistics: Vec<f64>,
    /// Indices of the tests, the most extreme first.
    order: Vec<usize>,
    /// For each test, the number of permutations that are at least as extreme as the actual one.
    extreme_counts: Vec<usize>,
    permutations_count: usize,
}

impl Direction {
    fn new(apart: &[f64], sign: f64) -> Direction {
        let statistics: Vec<f64> = apart.iter().map(|it| sign * it).collect();
        let mut order: Vec<usize> = (0..statistics.len()).collect();
        order.sort_by(|x, y| statistics[*y].total_cmp(&statistics[*x]));
        Direction {
            sign,
            extreme_counts: vec![0; statistics.len()],
            statistics,
            order,
            permutations_count: 0,
        }
    }

    /// Adds 1 to the count of each test in which this permutation is at least as extreme as the
    /// actual one. `permuted` has the tests' statistics in the permutation.
    fn count_permutation(&mut self, permuted: &[f64]) {
        let mut farthest = 0.0f64;
        for place in self.order.iter().rev() {
            farthest = farthest.max(self.sign * permuted[*place]);
            // Sums of the same numbers in another order differ in the last digit.
            self.extreme_counts[*place] +=
                usize::from(farthest >= self.statistics[*place] * (1.0 - 1e-9));
        }
        self.permutations_count += 1;
    }

    /// Returns the step-down p-values of the tests. Each is at least as large as that of every more
    /// extreme test.
    fn p_values(self) -> Vec<f64> {
        let mut p_values = vec![1.0; self.order.len()];
        let mut least = 0.0f64;
        for place in self.order {
            least = least
                .max(self.extreme_counts[place] as f64 / self.permutations_count.max(1) as f64);
            p_values[place] = least;
        }
        p_values
    }
}

/// Returns Student's t statistic: the distance of B above A, in standard errors.
fn statistic(values: &[f64], is_a: &[bool]) -> f64 {
    Sums::new(values, is_a, &[]).statistic(0.0)
}

/// Count, sum and sum of squares of a test's values on each of the two sides, in one permutation.
/// Side A has index 1.
#[derive(Clone, Copy, Default)]
struct Sums {
    count: [f64; 2],
    sum: [f64; 2],
    squares: [f64; 2],
    /// Number of values on each side that a shift moves.
    moved_count: [f64; 2],
    /// Sum of the values on each side that a shift moves.
    moved_sum: [f64; 2],
}

impl Sums {
    /// Adds up the finite values. A shift moves those with `true` in `moved`.
    fn new(values: &[f64], is_a: &[bool], moved: &[bool]) -> Sums {
        let mut it = Sums::default();
        // Relative to one of the values, to keep the squares precise.
        let around = values.iter().copied().find(|it| it.is_finite()).unwrap_or(0.0);
        for (place, (value, is_a)) in values.iter().zip(is_a).enumerate() {
            if value.is_finite() {
                let (side, value) = (usize::from(*is_a), value - around);
                it.count[side] += 1.0;
                it.sum[side] += value;
                it.squares[side] += value * value;
                if moved.get(place).is_some_and(|is_moved| *is_moved) {
                    it.moved_count[side] += 1.0;
                    it.moved_sum[side] += value;
                }
            }
        }
        it
    }

    /// Returns Student's t statistic as if `shift` was added to the moved values.
    fn statistic(&self, shift: f64) -> f64 {
        let Sums { count, moved_count, moved_sum, .. } = self;
        if count[0] < 2.0 || count[1] < 2.0 {
            return 0.0;
        }
        let sum = |side: usize| self.sum[side] + shift * moved_count[side];
        let squares = |side: usize| {
            self.squares[side] + shift * (2.0 * moved_sum[side] + shift * moved_count[side])
        };
        let within = |side: usize| (squares(side) - sum(side) * sum(side) / count[side]).max(0.0);
        let variance = (within(0) + within(1)) / (count[0] + count[1] - 2.0);
        let error = (variance * (1.0 / count[0] + 1.0 / count[1])).sqrt() + ERROR_MIN;
        (sum(0) / count[0] - sum(1) / count[1]) / error
    }
}

/// Maximum number of permutations in a search for the smallest detectable shift. The search need
/// not be as precise as a test.
const PERMUTATIONS_OF_SHIFT: usize = 1000;
/// Maximum shift of the logarithms that is tried.
const SHIFT_MAX: f64 = 8.0;
/// Relative precision to which the smallest shift is searched.
const SHIFT_PRECISION: f64 = 0.02;
/// Absolute precision to which the smallest shift is searched. Any shift of a figure that never
/// varies is significant.
const SHIFT_STEP_MIN: f64 = 1e-6;

/// Returns, for each test, the smallest significant shift of B above A. It is `None` if no shift is
/// significant. A shift is significant if it would have a corrected p-value of at most `most` as
/// the only difference. The first `a_count` values of a test are of A, the others of B, and the two
/// must not differ, apart from noise.
pub fn least_shifts(tests: &[TestValues], a_count: usize, most: f64) -> Vec<Option<f64>> {
    let Some(all) = tests.first().map(Vec::len) else { return Vec::new() };
    let is_b: Vec<bool> = (0..all).map(|place| place >= a_count).collect();
    let permutations = some_permutations(all, a_count);
    let sums_of = |values: &TestValues| -> Vec<Sums> {
        permutations.iter().map(|permutation| Sums::new(values, permutation, &is_b)).collect()
    };
    let sums: Vec<Vec<Sums>> = tests.iter().map(sums_of).collect();
    // The two greatest statistics of each permutation: the greatest of all other tests is one of
    // them.
    let mut greatest = vec![(0.0f64, 0.0f64); permutations.len()];
    let permuted =
        |sums: &Vec<Sums>| -> Vec<f64> { sums.iter().map(|it| it.statistic(0.0)).collect() };
    let permuted: Vec<Vec<f64>> = sums.iter().map(permuted).collect();
    for permuted in &permuted {
        for (top, value) in greatest.iter_mut().zip(permuted) {
            *top = if *value > top.0 { (*value, top.0) } else { (top.0, top.1.max(*value)) };
        }
    }
    let is_found = |test: usize, shift: f64| {
        let own = sums[test][0].statistic(shift) * (1.0 - 1e-9);
        let extreme_counts = sums[test].iter().zip(&permuted[test]).zip(&greatest).filter(|it| {
            let ((sums, permuted), (first, second)) = it;
            let others = if *permuted == first { second } else { first };
            sums.statistic(shift).max(*others) >= own
        });
        own > 0.0 && extreme_counts.count() as f64 <= most * permutations.len() as f64
    };
    let least = |test: usize| {
        let (mut low, mut high) = (0.0, 0.001);
        while !is_found(test, high) {
            (low, high) = (high, 2.0 * high);
            if high > SHIFT_MAX {
                return None;
            }
        }
        while high - low > (SHIFT_PRECISION * high).max(SHIFT_STEP_MIN) {
            let middle = (low + high) / 2.0;
            if is_found(test, middle) { high = middle } else { low = middle }
        }
        Some(high)
    };
    (0..tests.len()).map(least).collect()
}

/// Returns the permutations for a search: all if they are few, or else the actual one and random
/// ones.
fn some_permutations(all: usize, chosen: usize) -> Vec<Vec<bool>> {
    if ways(all, chosen) > PERMUTATIONS_OF_SHIFT as f64 {
        return random_permutations(all, chosen, PERMUTATIONS_OF_SHIFT - 1);
    }
    let mut permutations = Vec::new();
    append_permutations(all, chosen, &mut Vec::new(), &mut permutations);
    permutations
}

/// Returns `true` if [`permutations`] returns only one of two mirror images, which have A and B
/// swapped.
fn omits_mirror_images(all: usize, chosen: usize) -> bool {
    2 * chosen == all && ways(all, chosen) <= PERMUTATIONS_ALL_MAX as f64
}

/// Returns the number of ways to choose `chosen` of `all` processes for side A.
fn ways(all: usize, chosen: usize) -> f64 {
    (1..=chosen).fold(1.0, |ways, it| ways * (all - chosen + it) as f64 / it as f64)
}

/// Returns the permutations to test, including the actual one. It returns only one of two mirror
/// images if [`omits_mirror_images`].
fn permutations(all: usize, chosen: usize) -> Vec<Vec<bool>> {
    if ways(all, chosen) <= PERMUTATIONS_ALL_MAX as f64 {
        let mut permutations = Vec::new();
        append_permutations(all, chosen, &mut Vec::new(), &mut permutations);
        if omits_mirror_images(all, chosen) {
            permutations.truncate(permutations.len().div_ceil(2));
        }
        return permutations;
    }
    random_permutations(all, chosen, PERMUTATIONS_RANDOM)
}

/// Returns the actual permutation and `count` random ones.
fn random_permutations(all: usize, chosen: usize, count: usize) -> Vec<Vec<bool>> {
    let mut permutation: Vec<bool> = (0..all).map(|place| place < chosen).collect();
    let mut permutations = vec![permutation.clone()];
    let mut random = SplitMix64::new(0x5eed);
    for _ in 0..count {
        random.shuffle(&mut permutation);
        permutations.push(permutation.clone());
    }
    permutations
}

/// Appends every permutation that starts with `begun` and assigns `chosen` more of `all` processes
/// to side A.
fn append_permutations(
    all: usize,
    chosen: usize,
    begun: &mut Vec<bool>,
    permutations: &mut Vec<Vec<bool>>,
) {
    if begun.len() == all {
        permutations.push(begun.clone());
        return;
    }
    let left = all - begun.len();
    for (takes, fits) in [(true, chosen > 0), (false, chosen < left)] {
        if fits {
            begun.push(takes);
            append_permutations(all, chosen - usize::from(takes), begun, permutations);
            begun.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_permutation_is_tried_once() {
        let mut permutations = permutations(9, 5);
        assert_eq!(permutations.len(), 126);
        assert!(
            permutations
                .iter()
                .all(|permutation| permutation.iter().filter(|it| **it).count() == 5)
        );
        permutations.sort();
        permutations.dedup();
        assert_eq!(permutations.len(), 126);
        let sides = super::permutations(10, 5);
        assert_eq!(sides.len(), 126, "wrong number of partitions");
        assert!(sides.iter().all(|permutation| permutation[0]));
        assert_eq!(super::permutations(40, 20).len(), PERMUTATIONS_RANDOM + 1);
    }

    #[test]
    fn clear_difference_among_many_tests_is_found_with_five_a_side() {
        let mut random = SplitMix64::new(1);
        let mut noise = |count: usize| -> TestValues {
            (0..count).map(|_| 0.01 * random.next_normal()).collect()
        };
        let mut tests: Vec<TestValues> = (0..200).map(|_| noise(10)).collect();
        tests[17][5..].iter_mut().for_each(|it| *it += 0.3);
        let p = corrected_p_values(&tests, 5);
        assert!((p[17].above - 1.0 / 252.0).abs() < 1e-9 && p[17].below == 1.0, "{:?}", p[17]);
        let others = p.iter().enumerate().filter(|(place, _)| *place != 17);
        assert!(others.map(|it| it.1.above.min(it.1.below)).fold(1.0, f64::min) > 0.01);
        tests.iter_mut().flatten().for_each(|it| *it = -*it);
        assert_eq!(
            corrected_p_values(&tests, 5)[17],
            CorrectedPValues { above: p[17].below, below: p[17].above }
        );
    }

    #[test]
    fn false_positive_rate_of_many_null_tests_is_within_the_bound() {
        let mut random = SplitMix64::new(2);
        let called = (0..200).filter(|_| {
            // Processes that are slow in all figures, and heavy tails.
            let slow: Vec<f64> = (0..10).map(|_| 0.02 * random.next_normal()).collect();
            let tests: Vec<TestValues> = (0..12)
                .map(|_| slow.iter().map(|it| it + 0.01 * random.next_normal().powi(3)).collect())
                .collect();
            corrected_p_values(&tests, 5).iter().any(|p| p.above <= 0.05)
        });
        let called = called.count();
        assert!(called <= 20, "{called} of 200 equal pairs differ at a level of 5 %");
    }

    #[test]
    fn least_shift_is_the_smallest_detected_difference() {
        let mut random = SplitMix64::new(4);
        for a_count in [5, 6, 9] {
            let mut noise = |spread: f64| -> TestValues {
                (0..2 * a_count).map(|_| spread * random.next_normal()).collect()
            };
            let mut tests: Vec<TestValues> = (0..20).map(|_| noise(0.01)).collect();
            tests[7] = noise(0.1);
            let shifts = least_shifts(&tests, a_count, 0.01);
            for test in [3, 7] {
                let shift = shifts[test].expect("no shift was detected");
                let p_at = |shift: f64| {
                    let mut moved = tests.clone();
                    moved[test][a_count..].iter_mut().for_each(|it| *it += shift);
                    corrected_p_values(&moved, a_count)[test].above
                };
                assert!(p_at(1.1 * shift) <= 0.012, "{a_count}: {} at {shift}", p_at(1.1 * shift));
                assert!(p_at(0.9 * shift) > 0.008, "{a_count}: {} at {shift}", p_at(0.9 * shift));
            }
            assert!(shifts[7] > shifts[3], "{shifts:?}");
        }
    }

    #[test]
    fn no_values_give_no_tests() {
        assert!(corrected_p_values(&[], 0).is_empty() && least_shifts(&[], 0, 0.01).is_empty());
        assert_eq!(least_shifts(&[vec![f64::NAN; 10]], 5, 0.01), [None]);
        let never = CorrectedPValues { above: 1.0, below: 1.0 };
        assert_eq!(corrected_p_values(&[vec![1.0; 10]], 5), [never]);
        assert_eq!(corrected_p_values(&[vec![f64::NAN; 10]], 5), [never]);
    }
}
