//! Many tests at once: how often chance alone would make *any* of them look as it does.
//!
//! Holm's and Benjamini and Hochberg's corrections multiply a p-value by the number of tests. Of five
//! processes a side the least p there is is 2/252, so beyond six tests nothing could ever be called, however
//! plain. Dealing the processes out anew, whole, for all tests at once, has no such limit: it is known how
//! far apart the farthest of all figures comes by chance, and tests that go together (a slow process is slow
//! in many figures) are counted together.
//!
//! Source: P. H. Westfall and S. S. Young, *Resampling-Based Multiple Testing*, 1993: the step-down maxT.

use handover_base::random::SplitMix64;

/// Up to so many ways to deal out the processes, each is tried.
const DEALS_ALL_MAX: usize = 13_000;
/// Beyond, so many at random, with a fixed seed, so that the same runs always give the same p.
const DEALS_RANDOM: usize = 4_999;
/// Added to the standard error (of logarithms): figures that happen to agree to the last digit are not
/// infinitely far from others.
const ERROR_MIN: f64 = 0.001;

/// One test: a value for each process, side A's first; NaN where a process has none.
pub type Values = Vec<f64>;

/// What chance makes of a test: how often the farthest apart of it and of all that are less far apart would be
/// as far apart the same way, if the processes of the two sides were dealt out anew.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chance {
    /// B as far above A.
    pub above: f64,
    /// B as far below A.
    pub below: f64,
}

/// The chances of all tests, of sides of `a_count` processes and the rest.
///
/// The two ways are two questions, each asked of its own: what makes nothing worse may make something better. Of
/// five processes a side one deal in 252 is the one that was, so that one more may be as far apart that way before
/// a hundredth is passed; with both ways in one question there would be none.
///
/// # Cost
/// Tests times deals times processes: 200 tests of 8 processes a side, 12,870 deals, take 0.1 s.
pub fn corrected(tests: &[Values], a_count: usize) -> Vec<Chance> {
    // Without a test there is nothing to deal out.
    let Some(all) = tests.first().map(Vec::len) else { return Vec::new() };
    let own: Vec<bool> = (0..all).map(|place| place < a_count).collect();
    let apart: Vec<f64> = tests.iter().map(|values| statistic(values, &own)).collect();
    let [mut above, mut below] = [Way::new(&apart, 1.0), Way::new(&apart, -1.0)];
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

/// The tests one way, and in how many deals chance has gone as far.
struct Way {
    sign: f64,
    /// How far each test goes this way.
    far: Vec<f64>,
    /// The tests, the farthest first.
    order: Vec<usize>,
    as_far: Vec<usize>,
    deals_count: usize,
}

impl Way {
    fn new(apart: &[f64], sign: f64) -> Way {
        let far: Vec<f64> = apart.iter().map(|it| sign * it).collect();
        let mut order: Vec<usize> = (0..far.len()).collect();
        order.sort_by(|x, y| far[*y].total_cmp(&far[*x]));
        Way { sign, as_far: vec![0; far.len()], far, order, deals_count: 0 }
    }

    fn count(&mut self, dealt: &[f64]) {
        let mut farthest = 0.0f64;
        for place in self.order.iter().rev() {
            farthest = farthest.max(self.sign * dealt[*place]);
            // The same numbers, summed in another order, differ in their last digit.
            self.as_far[*place] += usize::from(farthest >= self.far[*place] * (1.0 - 1e-9));
        }
        self.deals_count += 1;
    }

    /// No test is surer than one that goes farther.
    fn chances(self) -> Vec<f64> {
        let mut chances = vec![1.0; self.order.len()];
        let mut least = 0.0f64;
        for place in self.order {
            least = least.max(self.as_far[place] as f64 / self.deals_count.max(1) as f64);
            chances[place] = least;
        }
        chances
    }
}

/// How far B is above A, in standard errors: Student's statistic.
fn statistic(values: &[f64], is_a: &[bool]) -> f64 {
    let (mut count, mut sum, mut squares) = ([0.0; 2], [0.0; 2], [0.0; 2]);
    // Around one of them, so that little is lost in the squares.
    let around = values.iter().copied().find(|it| it.is_finite()).unwrap_or(0.0);
    for (value, is_a) in values.iter().zip(is_a) {
        if value.is_finite() {
            let (side, value) = (usize::from(*is_a), value - around);
            count[side] += 1.0;
            sum[side] += value;
            squares[side] += value * value;
        }
    }
    if count[0] < 2.0 || count[1] < 2.0 {
        return 0.0;
    }
    let within = |side: usize| (squares[side] - sum[side] * sum[side] / count[side]).max(0.0);
    let variance = (within(0) + within(1)) / (count[0] + count[1] - 2.0);
    let error = (variance * (1.0 / count[0] + 1.0 / count[1])).sqrt() + ERROR_MIN;
    (sum[0] / count[0] - sum[1] / count[1]) / error
}

/// Whether all deals are tried, and each deals the same two sides as another does, the other way round.
fn is_half(all: usize, chosen: usize) -> bool {
    2 * chosen == all && ways(all, chosen) <= DEALS_ALL_MAX as f64
}

/// In how many ways `all` processes can be dealt out so that side A has `chosen`.
fn ways(all: usize, chosen: usize) -> f64 {
    (1..=chosen).fold(1.0, |ways, it| ways * (all - chosen + it) as f64 / it as f64)
}

/// These ways, the one that was among them; of two that are each other's mirror, one.
fn deals(all: usize, chosen: usize) -> Vec<Vec<bool>> {
    if ways(all, chosen) <= DEALS_ALL_MAX as f64 {
        let mut deals = Vec::new();
        every(all, chosen, &mut Vec::new(), &mut deals);
        if is_half(all, chosen) {
            deals.truncate(deals.len().div_ceil(2));
        }
        return deals;
    }
    let mut deal: Vec<bool> = (0..all).map(|place| place < chosen).collect();
    let mut deals = vec![deal.clone()];
    let mut random = SplitMix64::new(0x5eed);
    for _ in 0..DEALS_RANDOM {
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
        assert_eq!(sides.len(), 126, "each two sides once");
        assert!(sides.iter().all(|deal| deal[0]));
        assert_eq!(super::deals(40, 20).len(), DEALS_RANDOM + 1);
    }

    #[test]
    fn one_plain_difference_among_many_tests_is_found_with_five_a_side() {
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
    fn of_many_tests_of_nothing_one_is_called_as_seldom_as_it_should_be() {
        let mut random = SplitMix64::new(2);
        let called = (0..200).filter(|_| {
            // Processes that are slow as a whole, and heavy tails.
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
    fn nothing_to_test_is_no_test() {
        assert!(corrected(&[], 0).is_empty());
        let never = Chance { above: 1.0, below: 1.0 };
        assert_eq!(corrected(&[vec![1.0; 10]], 5), [never]);
        assert_eq!(corrected(&[vec![f64::NAN; 10]], 5), [never]);
    }
}
