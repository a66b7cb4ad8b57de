//! Rank statistics of two samples: Mann-Whitney test, Hodges-Lehmann shift, Cliff's delta.
//!
//! Exact for the sizes of a comparison, a few dozen values at most: the distribution of the rank
//! sum is computed, ties included, instead of approximated.

/// Maximum number of values of both sides for an exact test. Above it, the rank sum is approximated
/// by a normal distribution.
const EXACT_MAX: usize = 60;
/// Share of the distribution beyond each end of a 95 % interval.
const TAIL: f64 = 0.025;

/// Returns the two-sided p-value of the Mann-Whitney test of two samples; 1 if one is empty. It is
/// the probability that values of one distribution, divided into sides at random, differ at least
/// as much. Exact up to 60 values, with any ties; above, a normal approximation with correction for
/// ties.
///
/// Source: H. B. Mann and D. R. Whitney, *On a test of whether one of two random variables is
/// stochastically larger than the other*, 1947.
pub fn mann_whitney(a: &[f64], b: &[f64]) -> f64 {
    if a.is_empty() || b.is_empty() {
        return 1.0;
    }
    let ranks = doubled_ranks(a, b);
    let of_a: usize = ranks[..a.len()].iter().sum();
    if ranks.len() > EXACT_MAX {
        return normal_p_value(&ranks, a.len(), of_a);
    }
    let ways = ways_by_sum(&ranks, a.len());
    let all: f64 = ways.iter().sum();
    // The expected sum is n (N + 1) / 2 for plain ranks, twice that for doubled ones.
    let expected = (a.len() * (ranks.len() + 1)) as i64;
    let apart = (of_a as i64 - expected).abs();
    let as_far = |sum: &usize| (*sum as i64 - expected).abs() >= apart;
    let far: f64 = ways.iter().enumerate().filter(|(sum, _)| as_far(sum)).map(|it| it.1).sum();
    (far / all).min(1.0)
}

/// Returns the Hodges-Lehmann shift of `b` above `a` with its 95 % interval. The shift is the
/// median of all differences. The interval is exact for continuous values, and the full range if
/// there are too few values. `None` if a side is empty.
///
/// Source: J. L. Hodges and E. L. Lehmann, *Estimates of location based on rank tests*, 1963.
pub fn median_shift(a: &[f64], b: &[f64]) -> Option<(f64, f64, f64)> {
    let mut apart: Vec<f64> = b.iter().flat_map(|b| a.iter().map(move |a| b - a)).collect();
    let last = apart.len().checked_sub(1)?;
    apart.sort_unstable_by(f64::total_cmp);
    let median = (apart[last / 2] + apart[last.div_ceil(2)]) / 2.0;
    let cut = cut(a.len(), b.len()).min(last / 2);
    Some((median, apart[cut], apart[last - cut]))
}

/// Returns Cliff's delta of `b` against `a`. It is the share of pairs in which `b` is greater minus
/// the share in which it is less. It is 1 if each value of `b` is above each of `a`, and 0 if
/// neither is greater. (1 + delta) / 2 is A12 of Vargha and Delaney.
///
/// Source: N. Cliff, *Dominance statistics: ordinal analyses to answer ordinal questions*, 1993.
pub fn cliffs_delta(a: &[f64], b: &[f64]) -> f64 {
    let pairs = (a.len() * b.len()).max(1) as f64;
    let sum: i64 =
        b.iter().flat_map(|b| a.iter().map(move |a| i64::from(b > a) - i64::from(b < a))).sum();
    sum as f64 / pairs
}

/// Returns the median with the 95 % interval of the sign test; `None` for no values.
pub fn median_interval(values: &[f64]) -> Option<(f64, f64, f64)> {
    let last = values.len().checked_sub(1)?;
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let median = (sorted[last / 2] + sorted[last.div_ceil(2)]) / 2.0;
    // The largest count such that a fair coin shows at most so many heads with probability TAIL.
    let (mut ways, mut below, mut cut) = (0.5f64.powi(values.len() as i32), 0.0, 0);
    for heads in 0..=last / 2 {
        below += ways;
        if below > TAIL {
            break;
        }
        cut = heads;
        ways *= (values.len() - heads) as f64 / (heads + 1) as f64;
    }
    let cut = cut.min(last / 2);
    Some((median, sorted[cut], sorted[last - cut]))
}

/// Returns the number of sorted differences to omit at each end for a 95 % interval.
fn cut(a_count: usize, b_count: usize) -> usize {
    let count = a_count + b_count;
    if count > EXACT_MAX {
        let (n, m) = (a_count as f64, b_count as f64);
        let spread = (n * m * (n + m + 1.0) / 12.0).sqrt();
        return (n * m / 2.0 - 1.96 * spread - 1.0).max(0.0) as usize;
    }
    let ranks: Vec<usize> = (1..=count).collect();
    let ways = ways_by_sum(&ranks, a_count);
    let all: f64 = ways.iter().sum();
    let least = a_count * (a_count + 1) / 2;
    // U is the number of pairs in which a is greater; it starts at 0.
    let of_u = |u: usize| ways.get(least + u).copied().unwrap_or(0.0);
    let (mut below, mut cut) = (0.0, 0);
    for u in 0..a_count * b_count {
        below += of_u(u) / all;
        if below > TAIL {
            break;
        }
        cut = u;
    }
    cut
}

/// Returns twice the rank of each value: first the ranks of `a`, then those of `b`. Doubling makes
/// the mean rank of ties an integer.
fn doubled_ranks(a: &[f64], b: &[f64]) -> Vec<usize> {
    let values: Vec<f64> = a.iter().chain(b).copied().collect();
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by(|x, y| values[*x].total_cmp(&values[*y]));
    let mut ranks = vec![0; values.len()];
    let mut start = 0;
    while start < order.len() {
        let ties = order[start..].iter().take_while(|it| values[**it] == values[order[start]]);
        let end = start + ties.count().max(1);
        for place in &order[start..end] {
            ranks[*place] = start + end + 1;
        }
        start = end;
    }
    ranks
}

/// Returns, for each possible sum, the number of ways to choose `chosen` ranks with this sum. The
/// index is the sum.
fn ways_by_sum(ranks: &[usize], chosen: usize) -> Vec<f64> {
    let sum_max: usize = ranks.iter().sum();
    let width = sum_max + 1;
    let mut ways = vec![0.0; (chosen + 1) * width];
    ways[0] = 1.0;
    let mut reached = 0;
    for rank in ranks {
        for count in (1..=chosen).rev() {
            let (fewer, these) = ways.split_at_mut(count * width);
            let fewer = &fewer[(count - 1) * width..][..=reached];
            for (these, fewer) in these[*rank..].iter_mut().zip(fewer) {
                *these += fewer;
            }
        }
        reached += rank;
    }
    ways.split_off(chosen * width)
}

/// Returns the two-sided p-value of the rank sum `of_a` of side A, by the normal approximation.
fn normal_p_value(ranks: &[usize], a_count: usize, of_a: usize) -> f64 {
    let (n, m, all) = (a_count as f64, (ranks.len() - a_count) as f64, ranks.len() as f64);
    let mut sorted = ranks.to_vec();
    sorted.sort_unstable();
    let ties =
        sorted.chunk_by(|x, y| x == y).map(|tie| (tie.len() as f64).powi(3) - tie.len() as f64);
    let ties: f64 = ties.sum();
    let spread = (n * m / 12.0 * (all + 1.0 - ties / (all * (all - 1.0)))).sqrt();
    if spread == 0.0 {
        return 1.0;
    }
    let apart = (of_a as f64 / 2.0 - n * (all + 1.0) / 2.0).abs();
    let deviations = (apart - 0.5).max(0.0) / spread;
    (2.0 * above_normal(deviations)).min(1.0)
}

/// Returns the probability of a normal value above `deviations` standard deviations, exact to 1e-7.
/// Source: Abramowitz and Stegun, *Handbook of Mathematical Functions*, 26.2.17.
fn above_normal(deviations: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * deviations);
    let series = t
        * (0.319_381_530
            + t * (-0.356_563_782
                + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    (-deviations * deviations / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * series
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn p_of_five_a_side_without_overlap_is_2_of_252() {
        let (a, b) = ([1.0, 2.0, 3.0, 4.0, 5.0], [6.0, 7.0, 8.0, 9.0, 10.0]);
        assert!(near(mann_whitney(&a, &b), 2.0 / 252.0));
        assert!(near(mann_whitney(&b, &a), 2.0 / 252.0));
        assert_eq!((cliffs_delta(&a, &b), cliffs_delta(&b, &a)), (1.0, -1.0));
        let (shift, low, high) = median_shift(&a, &b).unwrap();
        // The third of 25 differences from either end: P(U <= 2) = 4/252, P(U <= 3) = 7/252.
        assert_eq!((shift, low, high), (5.0, 2.0, 8.0));
    }

    #[test]
    fn exact_p_equals_enumeration_of_all_permutations() {
        // With ties: of the 20 ways to divide 1 2 2 3 4 5 into two threes, 2 are as extreme as 1 2
        // 2.
        let p = mann_whitney(&[1.0, 2.0, 2.0], &[3.0, 4.0, 5.0]);
        assert!(near(p, 2.0 / 20.0), "{p}");
        let p = mann_whitney(&[1.0, 2.0], &[1.0, 2.0]);
        assert!(near(p, 1.0), "{p}");
    }

    #[test]
    fn equal_values_have_p_of_1_and_no_shift() {
        let same = [7.0; 8];
        assert_eq!(mann_whitney(&same, &same), 1.0);
        assert_eq!(median_shift(&same, &same), Some((0.0, 0.0, 0.0)));
        assert_eq!(cliffs_delta(&same, &same), 0.0);
        assert_eq!(mann_whitney(&[7.0; 50], &[7.0; 50]), 1.0);
    }

    #[test]
    fn normal_approximation_agrees_with_the_exact_test() {
        let a: Vec<f64> = (0..30).map(f64::from).collect();
        let b: Vec<f64> = (0..30).map(|it| f64::from(it) + 7.5).collect();
        let exact = mann_whitney(&a, &b);
        let ranks = doubled_ranks(&a, &b);
        let normal = normal_p_value(&ranks, 30, ranks[..30].iter().sum());
        assert!((exact - normal).abs() < 0.002, "{exact} {normal}");
        assert!((above_normal(1.959_964) - 0.025).abs() < 1e-6);
    }

    #[test]
    fn empty_side_has_p_of_1_and_no_shift() {
        assert_eq!(mann_whitney(&[], &[1.0]), 1.0);
        assert_eq!(median_shift(&[], &[1.0]), None);
        assert_eq!(median_shift(&[1.0], &[3.0]), Some((2.0, 2.0, 2.0)));
        assert_eq!(median_interval(&[]), None);
    }

    #[test]
    fn median_interval_of_ten_values_is_second_to_ninth() {
        let values: Vec<f64> = (1..=10).map(f64::from).collect();
        assert_eq!(median_interval(&values), Some((5.5, 2.0, 9.0)));
        assert_eq!(median_interval(&[4.0]), Some((4.0, 4.0, 4.0)));
    }
}
