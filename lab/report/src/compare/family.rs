//! Correction for multiple tests: the probability that chance alone makes *any* test look as
//! extreme.
//!
//! The corrections by Holm and by Benjamini and Hochberg multiply a p-value by the number of tests.
//! With five processes per side the smallest p-value is 2/252, so that beyond six tests no
//! difference could be significant, however clear. Dealing the processes out anew to the sides, for
//! all tests at once, has no such limit: it shows how extreme the most extreme of all figures is by
//! chance, and accounts for correlated tests (a slow process is slow in many figures).
//!
//! Source: P. H. Westfall and S. S. Young, *Resampling-Based Multiple Testing*, 1993: the step-down maxT.

use handover_base::random::SplitMix64;

/// Maximum number of deals for which all are tried.
const DEALS_ALL_MAX: usize = 13_000;
/// Number of random deals beyond that. The seed is fixed, so that the same runs give the same p.
const DEALS_RANDOM: usize = 4_999;
/// Added to the standard error (of logarithms), so that figures that happen to agree to the last
/// digit do not have an infinite statistic.
const ERROR_MIN: f64 = 0.001;

/// Values of one test: one per process, side A's first; NaN for a process without the figure.
pub type Values = Vec<f64>;

/// Corrected p-values of a test: the share of deals in which the most extreme of it and of all less
/// extreme tests is as extreme in the same direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chance {
    /// p-value of B being this far above A.
    pub above: f64,
    /// p-value of B being this far below A.
    pub below: f64,
}

/// Returns the corrected p-values of all tests, for a side A of `a_count` processes and a side B of
/// the rest.
///
/// Both directions are tested separately, as changes that make no figure worse may make some
/// better. With five processes per side, one of the 252 deals is the actual one, and one more may
/// be as extreme in its direction within the limit of a hundredth; in a two-sided test none could.
///
/// # Cost
/// Tests times deals times processes: 200 tests of 8 processes per side, 12,870 deals, take 0.1 s.
pub fn corrected(tests: &[Values], a_count: usize) -> Vec<Chance> {
    // Without tests there are no processes to deal out.
    let Some(all) = tests.first().map(Vec::len) else { return Vec::new() };
    let own: Vec<bool> = (0..all).map(|place| place < a_count).collect();
    let apart: Vec<f64> = tests.iter().map(|values| statistic(values, &own)).collect();
    let [mut above, mut below] = [Direction::new(&apart, 1.0), Direction::new(&apart, -1.0)];
    let mut dealt = vec![0.0; tests.len()];
    for deal in deals(all, a_count) {
        for (dealt, values) in dealt.iter_mut().zip(tests) {
            *dealt = statistic(values, &deal);
        }
        above.count(&dealt);
        below.count(&dealt);
        if is_half(all, a_count) {
            dealt.iter_mut().for_each(|it| *it = -*it);
            above.count(&dealt);
            below.count(&dealt);
        }
    }
    let chances = above.chances().into_iter().zip(below.chances());
    chances.map(|(above, below)| Chance { above, below }).collect()
}

/// Tests in one direction, with the number of deals that are as extreme.
struct Direction {
    sign: f64,
    /// Statistic of each test in this direction.
    statistics: Vec<f64>,
    /// Indices of the tests, the most extreme first.
    order: Vec<usize>,
    extreme_counts: Vec<usize>,
    deals_count: usize,
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
            deals_count: 0,
        }
    }

    fn count(&mut self, dealt: &[f64]) {
        let mut farthest = 0.0f64;
        for place in self.order.iter().rev() {
            farthest = farthest.max(self.sign * dealt[*place]);
            // Sums of the same numbers in another order differ in the last digit.
            self.extreme_counts[*place] +=
                usize::from(farthest >= self.statistics[*place] * (1.0 - 1e-9));
        }
        self.deals_count += 1;
    }

    /// Returns the p-values, made monotonic: no test has a smaller one than a more extreme test.
    fn chances(self) -> Vec<f64> {
        let mut chances = vec![1.0; self.order.len()];
        let mut least = 0.0f64;
        for place in self.order {
            least = least.max(self.extreme_counts[place] as f64 / self.deals_count.max(1) as f64);
            chances[place] = least;
        }
        chances
    }
}

/// Returns Student's statistic: the distance of B above A, in standard errors.
fn statistic(values: &[f64], is_a: &[bool]) -> f64 {
    Sums::of(values, is_a, &[]).statistic(0.0)
}

/// Sums of a test's values on both sides of a deal: A's at index 1.
#[derive(Clone, Copy, Default)]
struct Sums {
    count: [f64; 2],
    sum: [f64; 2],
    squares: [f64; 2],
    /// Number and sum of the values that a shift moves.
    moved_count: [f64; 2],
    moved_sum: [f64; 2],
}

impl Sums {
    /// Adds up the values that are finite; a shift moves those in `moved`.
    fn of(values: &[f64], is_a: &[bool], moved: &[bool]) -> Sums {
        let mut it = Sums::default();
        // Relative to one of the values, for the precision of the squares.
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

    /// Returns the statistic after `shift` is added to the moved values.
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

/// Maximum number of deals for a least shift, which is not needed as exactly as a p-value.
const DEALS_OF_SHIFT: usize = 1000;
/// Greatest shift that is tried, and the relative precision of the result.
const SHIFT_MAX: f64 = 8.0;
const SHIFT_PRECISION: f64 = 0.02;

/// Returns for each test how far B must lie above A for a corrected p-value of at most `most`, if no other test differs:
/// `None` if no distance is enough. Sides of `tests` must not differ, apart from noise.
pub fn least_shifts(tests: &[Values], a_count: usize, most: f64) -> Vec<Option<f64>> {
    let Some(all) = tests.first().map(Vec::len) else { return Vec::new() };
    let is_b: Vec<bool> = (0..all).map(|place| place >= a_count).collect();
    let deals = some_deals(all, a_count);
    let sums_of = |values: &Values| -> Vec<Sums> {
        deals.iter().map(|deal| Sums::of(values, deal, &is_b)).collect()
    };
    let sums: Vec<Vec<Sums>> = tests.iter().map(sums_of).collect();
    // The two greatest statistics of each deal: the greatest of all other tests is one of them.
    let mut greatest = vec![(0.0f64, 0.0f64); deals.len()];
    let dealt =
        |sums: &Vec<Sums>| -> Vec<f64> { sums.iter().map(|it| it.statistic(0.0)).collect() };
    let dealt: Vec<Vec<f64>> = sums.iter().map(dealt).collect();
    for dealt in &dealt {
        for (top, value) in greatest.iter_mut().zip(dealt) {
            *top = if *value > top.0 { (*value, top.0) } else { (top.0, top.1.max(*value)) };
        }
    }
    let is_found = |test: usize, shift: f64| {
        let own = sums[test][0].statistic(shift) * (1.0 - 1e-9);
        let extreme_counts = sums[test].iter().zip(&dealt[test]).zip(&greatest).filter(|it| {
            let ((sums, dealt), (first, second)) = it;
            let others = if *dealt == first { second } else { first };
            sums.statistic(shift).max(*others) >= own
        });
        own > 0.0 && extreme_counts.count() as f64 <= most * deals.len() as f64
    };
    let least = |test: usize| {
        let (mut low, mut high) = (0.0, 0.001);
        while !is_found(test, high) {
            (low, high) = (high, 2.0 * high);
            if high > SHIFT_MAX {
                return None;
            }
        }
        while high - low > SHIFT_PRECISION * high {
            let middle = (low + high) / 2.0;
            if is_found(test, middle) { high = middle } else { low = middle }
        }
        Some(high)
    };
    (0..tests.len()).map(least).collect()
}

/// Returns the actual deal, and all others or some at random.
fn some_deals(all: usize, chosen: usize) -> Vec<Vec<bool>> {
    if ways(all, chosen) > DEALS_OF_SHIFT as f64 {
        return random_deals(all, chosen, DEALS_OF_SHIFT - 1);
    }
    let mut deals = Vec::new();
    every(all, chosen, &mut Vec::new(), &mut deals);
    deals
}

/// Returns `true` if all deals are tried and each has a mirror image, with the sides exchanged.
fn is_half(all: usize, chosen: usize) -> bool {
    2 * chosen == all && ways(all, chosen) <= DEALS_ALL_MAX as f64
}

/// Returns the number of ways to deal `all` processes out so that side A has `chosen`.
fn ways(all: usize, chosen: usize) -> f64 {
    (1..=chosen).fold(1.0, |ways, it| ways * (all - chosen + it) as f64 / it as f64)
}

/// Returns the deals, including the actual one; of two mirror images only one.
fn deals(all: usize, chosen: usize) -> Vec<Vec<bool>> {
    if ways(all, chosen) <= DEALS_ALL_MAX as f64 {
        let mut deals = Vec::new();
        every(all, chosen, &mut Vec::new(), &mut deals);
        if is_half(all, chosen) {
            deals.truncate(deals.len().div_ceil(2));
        }
        return deals;
    }
    random_deals(all, chosen, DEALS_RANDOM)
}

/// Returns the actual deal and `count` others.
fn random_deals(all: usize, chosen: usize, count: usize) -> Vec<Vec<bool>> {
    let mut deal: Vec<bool> = (0..all).map(|place| place < chosen).collect();
    let mut deals = vec![deal.clone()];
    let mut random = SplitMix64::new(0x5eed);
    for _ in 0..count {
        random.shuffle(&mut deal);
        deals.push(deal.clone());
    }
    deals
}

fn every(all: usize, chosen: usize, begun: &mut Vec<bool>, deals: &mut Vec<Vec<bool>>) {
    if begun.len() == all {
        deals.push(begun.clone());
        return;
    }
    let left = all - begun.len();
    for (takes, fits) in [(true, chosen > 0), (false, chosen < left)] {
        if fits {
            begun.push(takes);
            every(all, chosen - usize::from(takes), begun, deals);
            begun.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_deal_is_tried_once() {
        let mut deals = deals(9, 5);
        assert_eq!(deals.len(), 126);
        assert!(deals.iter().all(|deal| deal.iter().filter(|it| **it).count() == 5));
        deals.sort();
        deals.dedup();
        assert_eq!(deals.len(), 126);
        let sides = super::deals(10, 5);
        assert_eq!(sides.len(), 126, "every partition once");
        assert!(sides.iter().all(|deal| deal[0]));
        assert_eq!(super::deals(40, 20).len(), DEALS_RANDOM + 1);
    }

    #[test]
    fn clear_difference_among_many_tests_is_found_with_five_a_side() {
        let mut random = SplitMix64::new(1);
        let mut noise =
            |count: usize| -> Values { (0..count).map(|_| 0.01 * random.normal()).collect() };
        let mut tests: Vec<Values> = (0..200).map(|_| noise(10)).collect();
        tests[17][5..].iter_mut().for_each(|it| *it += 0.3);
        let p = corrected(&tests, 5);
        assert!((p[17].above - 1.0 / 252.0).abs() < 1e-9 && p[17].below == 1.0, "{:?}", p[17]);
        let others = p.iter().enumerate().filter(|(place, _)| *place != 17);
        assert!(others.map(|it| it.1.above.min(it.1.below)).fold(1.0, f64::min) > 0.01);
        tests.iter_mut().flatten().for_each(|it| *it = -*it);
        assert_eq!(corrected(&tests, 5)[17], Chance { above: p[17].below, below: p[17].above });
    }

    #[test]
    fn false_positive_rate_of_many_null_tests_is_within_the_bound() {
        let mut random = SplitMix64::new(2);
        let called = (0..200).filter(|_| {
            // Processes that are slow in all figures, and heavy tails.
            let slow: Vec<f64> = (0..10).map(|_| 0.02 * random.normal()).collect();
            let tests: Vec<Values> = (0..12)
                .map(|_| slow.iter().map(|it| it + 0.01 * random.normal().powi(3)).collect())
                .collect();
            corrected(&tests, 5).iter().any(|p| p.above <= 0.05)
        });
        let called = called.count();
        assert!(called <= 20, "{called} of 200 at 5 %");
    }

    #[test]
    fn least_shift_is_the_smallest_detected_difference() {
        let mut random = SplitMix64::new(4);
        for a_count in [5, 6, 9] {
            let mut noise = |spread: f64| -> Values {
                (0..2 * a_count).map(|_| spread * random.normal()).collect()
            };
            let mut tests: Vec<Values> = (0..20).map(|_| noise(0.01)).collect();
            tests[7] = noise(0.1);
            let shifts = least_shifts(&tests, a_count, 0.01);
            for test in [3, 7] {
                let shift = shifts[test].expect("a shift is enough");
                let p_at = |shift: f64| {
                    let mut moved = tests.clone();
                    moved[test][a_count..].iter_mut().for_each(|it| *it += shift);
                    corrected(&moved, a_count)[test].above
                };
                assert!(p_at(1.1 * shift) <= 0.012, "{a_count}: {} at {shift}", p_at(1.1 * shift));
                assert!(p_at(0.9 * shift) > 0.008, "{a_count}: {} at {shift}", p_at(0.9 * shift));
            }
            assert!(shifts[7] > shifts[3], "{shifts:?}");
        }
    }

    #[test]
    fn no_values_give_no_tests() {
        assert!(corrected(&[], 0).is_empty() && least_shifts(&[], 0, 0.01).is_empty());
        assert_eq!(least_shifts(&[vec![f64::NAN; 10]], 5, 0.01), [None]);
        let never = Chance { above: 1.0, below: 1.0 };
        assert_eq!(corrected(&[vec![1.0; 10]], 5), [never]);
        assert_eq!(corrected(&[vec![f64::NAN; 10]], 5), [never]);
    }
}
