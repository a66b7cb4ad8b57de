//! Medians, their intervals, and the detection of two modes.
//!
//! The unit of every stored interval is the pass, a process of its own ([`median_over_passes`]):
//! operations of one round share its memory and its placement, and rounds of one process share its
//! address space and its moment. [`median_of_independent`] is for other values: it decides whether
//! a benchmark needs more time and whether its rounds drifted.

/// Returns the median of the values, or 0 for no values. For an even count, it is the mean of the
/// two middle values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    median_of(&mut sorted)
}

/// Returns the median like [`median`], and reorders the values.
fn median_of(values: &mut [f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let middle = values.len() / 2;
    let even = values.len().is_multiple_of(2);
    let (below, at, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    if !even {
        return *at;
    }
    let lower = below.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (lower + *at) / 2.0
}

/// Returns the quantile `q` (0 to 1) of sorted values, or 0 for no values. A share `q` of the
/// values is not greater.
pub fn quantile_sorted(sorted: &[f64], q: f64) -> f64 {
    if sorted.is_empty() {
        return 0.0;
    }
    let rank = (q.clamp(0.0, 1.0) * sorted.len() as f64).ceil() as usize;
    sorted[rank.saturating_sub(1).min(sorted.len() - 1)]
}

/// Minimum number of passes for a 95 % interval of their median. The smallest and the greatest of
/// five passes enclose it in only 94 of 100 cases.
pub const PASSES_MIN: usize = 6;
const CONFIDENCE: f64 = 0.95;
/// Maximum number of values for an exact interval. Above it, the normal approximation is used.
const EXACT_COUNT_MAX: usize = 200;

/// A median with its 95 % interval, if there are enough values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MedianEstimate {
    /// Median of the values.
    pub median: f64,
    /// Lower and upper bound of the 95 % interval; `None` for fewer than [`PASSES_MIN`] values.
    pub interval: Option<(f64, f64)>,
}

impl MedianEstimate {
    /// Returns half the interval's width relative to the median; infinity if only the median is 0,
    /// and `None` without an interval.
    pub fn half_width(&self) -> Option<f64> {
        let (low, high) = self.interval?;
        Some(if low == high { 0.0 } else { (high - low).abs() / 2.0 / self.median.abs() })
    }

    /// Applies an increasing function to the median and to both bounds of the interval.
    pub fn map(self, through: impl Fn(f64) -> f64) -> MedianEstimate {
        let interval = self.interval.map(|(low, high)| (through(low), through(high)));
        MedianEstimate { median: through(self.median), interval }
    }
}

/// Returns the median of the figures of passes, with its 95 % interval. The figures are given in
/// order of time.
///
/// The interval lies between two order statistics, interpolated (Hettmansperger and Sheather,
/// *Confidence intervals based on interpolated order statistics*, 1986), which assumes that passes
/// are independent, and nothing about the figures' distribution. If neighbouring passes are
/// correlated, as on a host whose other guests change by the minute, `n` passes are worth fewer,
/// and the bounds are moved outwards by the square root of that, at most to the extreme passes. An
/// interval cannot show a disturbance that is the same in all passes of its run.
///
/// The Hodges-Lehmann interval is narrower, but assumes symmetry, and noise only makes figures
/// greater: see the simulations among the tests.
pub fn median_over_passes(figures: &[f64]) -> MedianEstimate {
    estimate(figures, widening_factor(figures))
}

/// Returns the median of independent values, with its 95 % interval. Unlike that of
/// [`median_over_passes`], the interval is not widened for correlation.
pub fn median_of_independent(values: &[f64]) -> MedianEstimate {
    estimate(values, 1.0)
}

/// Returns the median of the values, with its 95 % interval widened by `factor`.
fn estimate(values: &[f64], factor: f64) -> MedianEstimate {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let median = median(&sorted);
    if sorted.len() < PASSES_MIN {
        return MedianEstimate { median, interval: None };
    }
    let middle = (sorted.len() - 1) as f64 / 2.0;
    let reach = ((middle - lower_bound_rank(sorted.len())) * factor).min(middle);
    let interval = (at_rank(&sorted, middle - reach), at_rank(&sorted, middle + reach));
    MedianEstimate { median, interval: Some(interval) }
}

/// Returns the rank of the lower bound of a median's 95 % interval. The median is that of `count`
/// values; the rank is interpolated, and counted from 0.
fn lower_bound_rank(count: usize) -> f64 {
    if count > EXACT_COUNT_MAX {
        let n = count as f64;
        return (n - 1.0 - 1.96 * n.sqrt()) / 2.0;
    }
    // `below` is the probability that fewer than `depth` of `count` fair coins show heads. The
    // interval from the `depth`th least to the `depth`th greatest value misses the median with
    // twice that probability.
    let mut term = 0.5f64.powi(count as i32);
    let (mut below, mut depth) = (term, 1);
    let covers = |below: f64| 1.0 - 2.0 * below;
    loop {
        term *= (count + 1 - depth) as f64 / depth as f64;
        if covers(below + term) < CONFIDENCE {
            break;
        }
        (below, depth) = (below + term, depth + 1);
    }
    let inward = (covers(below) - CONFIDENCE) / (covers(below) - covers(below + term));
    let (n, d) = (count as f64, depth as f64);
    d - 1.0 + (n - d) * inward / (d + (n - 2.0 * d) * inward)
}

/// Returns the value at a fractional rank, interpolated between two sorted values. Ranks count from
/// 0.
fn at_rank(sorted: &[f64], rank: f64) -> f64 {
    let below = rank as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (rank - below as f64) * (sorted[above] - sorted[below])
}

/// Returns the factor by which correlation between successive values widens the interval of their
/// median. It is at least 1. It is the square root of (1 + r) / (1 - r), with the serial
/// correlation r of their ranks (Bartels, *The rank version of von Neumann's ratio test for
/// randomness*, 1982).
fn widening_factor(values: &[f64]) -> f64 {
    let rank = |value: &f64| {
        let less = values.iter().filter(|it| *it < value).count();
        let equal = values.iter().filter(|it| *it == value).count();
        less as f64 + equal as f64 / 2.0
    };
    let ranks: Vec<f64> = values.iter().map(rank).collect();
    let middle = values.len() as f64 / 2.0;
    let steps: f64 = ranks.windows(2).map(|pair| (pair[1] - pair[0]).powi(2)).sum();
    let spread: f64 = ranks.iter().map(|rank| (rank - middle).powi(2)).sum();
    if spread == 0.0 {
        return 1.0;
    }
    let correlation = (1.0 - steps / (2.0 * spread)).max(0.0);
    ((1.0 + correlation) / (1.0 - correlation)).sqrt()
}

/// Two modes of a distribution, each given by its share of the values and its median.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Modes {
    /// Share and median of the faster mode.
    pub fast: (f64, f64),
    /// Share and median of the slower mode.
    pub slow: (f64, f64),
}

/// Minimum share of the values in each of two modes.
const MODE_SHARE_MIN: f64 = 0.1;
/// Minimum ratio of the slower mode's median to the faster one's.
const MODES_RATIO_MIN: f64 = 1.5;
/// Maximum spread of a mode, relative to the distance between two modes. Both are of logarithms.
/// Above it, the values count as one mode.
const MODE_SPREAD_MAX: f64 = 0.5;

/// Minimum distance between two modes, in steps of the clock. Closer values are one mode, which the
/// clock's resolution divides.
const MODES_STEPS_MIN: f64 = 4.0;

/// Minimum number of values in which two modes can be detected.
const MODES_VALUES_MIN: u64 = 8;
/// Minimum number of values in each of two modes.
const MODE_VALUES_MIN: f64 = 2.0;

/// Detects two modes in the values of a clock with steps of `clock_step`. Returns `None` if they
/// have one mode. Splits the sorted logarithms where the variance between the halves is greatest
/// (Otsu, 1979), and accepts the split if both halves are large, distant and narrow.
pub fn find_modes(values: &[f64], clock_step: f64) -> Option<Modes> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let counted: Vec<(f64, u64)> = sorted.into_iter().map(|value| (value, 1)).collect();
    find_modes_of_counts(&counted, clock_step)
}

/// Detects two modes like [`find_modes`], in sorted pairs of a value and its count.
pub fn find_modes_of_counts(values: &[(f64, u64)], clock_step: f64) -> Option<Modes> {
    let logs: Vec<(f64, u64)> =
        values.iter().filter(|it| it.0 > 0.0 && it.1 > 0).map(|it| (it.0.ln(), it.1)).collect();
    let count: u64 = logs.iter().map(|it| it.1).sum();
    if count < MODES_VALUES_MIN {
        return None;
    }
    let total: f64 = logs.iter().map(|(log, seen)| log * *seen as f64).sum();
    let (mut best, mut split, mut share) = (0.0, 0, 0.0);
    let (mut below, mut left) = (0.0, 0);
    for (index, (log, seen)) in logs.iter().enumerate().take(logs.len() - 1) {
        below += log * *seen as f64;
        left += seen;
        let right = (count - left) as f64;
        let apart = below / left as f64 - (total - below) / right;
        let between = left as f64 * right * apart * apart;
        if between > best {
            (best, split, share) = (between, index + 1, left as f64 / count as f64);
        }
    }
    let least = share.min(1.0 - share);
    if least < MODE_SHARE_MIN || least * (count as f64) < MODE_VALUES_MIN {
        return None;
    }
    let (fast, slow) = logs.split_at(split);
    let spread = |half| quantile_counted(half, 0.9) - quantile_counted(half, 0.1);
    let (middle_fast, middle_slow) = (quantile_counted(fast, 0.5), quantile_counted(slow, 0.5));
    let apart = middle_slow - middle_fast;
    if apart < MODES_RATIO_MIN.ln() || spread(fast).max(spread(slow)) > MODE_SPREAD_MAX * apart {
        return None;
    }
    let (faster, slower) = (middle_fast.exp(), middle_slow.exp());
    if slower - faster < MODES_STEPS_MIN * clock_step {
        return None;
    }
    Some(Modes { fast: (share, faster), slow: (1.0 - share, slower) })
}

/// Returns the quantile `q` of sorted values, or 0 for no values. Each value is given with the
/// number of its occurrences.
fn quantile_counted(values: &[(f64, u64)], q: f64) -> f64 {
    let count: u64 = values.iter().map(|it| it.1).sum();
    let rank = (q * count as f64).ceil().max(1.0) as u64;
    let mut seen = 0;
    let reaches = |it: &&(f64, u64)| {
        seen += it.1;
        seen >= rank
    };
    values.iter().find(reaches).map_or(0.0, |it| it.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use handover_base::random::SplitMix64;

    fn noise(seed: u64, count: usize, around: f64, spread: f64) -> Vec<f64> {
        let mut random = SplitMix64::new(seed);
        (0..count)
            .map(|_| around * (1.0 + spread * (random.next_below(2001) as f64 / 1000.0 - 1.0)))
            .collect()
    }

    #[test]
    fn the_median_is_the_middle_value() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0]), 3.0);
        assert_eq!(median(&[3.0, 1.0]), 2.0);
        assert_eq!(median(&[9.0, 1.0, 2.0]), 2.0);
    }

    #[test]
    fn half_width_of_a_median_of_zero_is_not_zero() {
        let of = |interval| MedianEstimate { median: 0.0, interval: Some(interval) }.half_width();
        assert_eq!(of((0.0, 4096.0)), Some(f64::INFINITY));
        assert_eq!(of((0.0, 0.0)), Some(0.0));
    }

    #[test]
    fn an_interval_covers_the_truth_in_about_95_of_100_trials() {
        let covered = (0..400)
            .filter(|seed| {
                let interval = median_of_independent(&noise(*seed, 30, 100.0, 0.1)).interval;
                interval.is_some_and(|(low, high)| low <= 100.0 && 100.0 <= high)
            })
            .count();
        assert!((360..=398).contains(&covered), "{covered} of 400");
    }

    type Shape = fn(&mut SplitMix64) -> f64;

    /// Logarithms of pass figures around 0, their true median: bell-shaped, with tails so heavy
    /// that they have no mean, skewed upwards, and with every fifth pass disturbed.
    const SHAPES: [(&str, Shape); 4] = [
        ("normal", |random| 0.02 * random.next_normal()),
        ("cauchy", |random| 0.01 * random.next_normal() / random.next_normal().abs()),
        ("skewed", |random| 0.03 * (random.next_normal().exp() - 1.0)),
        ("disturbed", |random| {
            // The median of 80 % around 0 and 20 % far above: the 62.5 % quantile of the former.
            let quiet = 0.02 * (random.next_normal() - 0.318_639);
            if random.next_below(5) == 0 { quiet.abs() + 0.5 } else { quiet }
        }),
    ];

    /// Returns the exact signed-rank interval: the `rank`th least and greatest of the means of
    /// pairs.
    fn hodges_lehmann(values: &[f64], rank: usize) -> (f64, f64) {
        let pairs =
            (0..values.len()).flat_map(|one| (one..values.len()).map(move |two| (one, two)));
        let mut means: Vec<f64> =
            pairs.map(|(one, two)| (values[one] + values[two]) / 2.0).collect();
        means.sort_unstable_by(f64::total_cmp);
        (means[rank - 1], means[means.len() - rank])
    }

    const TRIALS: usize = 1500;

    /// Returns the share of trials in which the interval of `count` pass figures contains their
    /// true median, 0.
    fn coverage(
        count: usize,
        mut draw: impl FnMut() -> f64,
        interval: impl Fn(&[f64]) -> (f64, f64),
    ) -> f64 {
        let covers = |_: &usize| {
            let values: Vec<f64> = (0..count).map(|_| draw()).collect();
            let (low, high) = interval(&values);
            low <= 0.0 && 0.0 <= high
        };
        (0..TRIALS).filter(covers).count() as f64 / TRIALS as f64
    }

    fn ends_of(values: &[f64]) -> (f64, f64) {
        median_over_passes(values).interval.expect("too few passes")
    }

    #[test]
    fn interval_over_independent_passes_covers_the_median_whatever_the_distribution() {
        let mut least_of_other = 1.0f64;
        // Each count with the rank of its 95 % signed-rank interval.
        for (count, rank) in [(8, 4), (16, 30)] {
            for (seed, (name, draw)) in (1..).zip(&SHAPES) {
                let mut random = SplitMix64::new(seed);
                let covered = coverage(count, || draw(&mut random), ends_of);
                assert!((0.945..0.985).contains(&covered), "{name}, {count} passes: {covered}");
                let other = |values: &[f64]| hodges_lehmann(values, rank);
                least_of_other = least_of_other.min(coverage(count, || draw(&mut random), other));
            }
        }
        assert!(least_of_other < 0.92, "the signed-rank interval also covers {least_of_other}");
    }

    /// Returns a source of correlated pass figures: each contains `share` of its predecessor.
    fn spells(seed: u64, share: f64) -> impl FnMut() -> f64 {
        let (mut random, mut state) = (SplitMix64::new(seed), 0.0);
        move || {
            state = share * state + (1.0 - share * share).sqrt() * random.next_normal();
            0.03 * f64::exp(state) - 0.03
        }
    }

    #[test]
    fn interval_over_passes_that_resemble_their_neighbours_is_wider() {
        let plain =
            |values: &[f64]| median_of_independent(values).interval.expect("too few passes");
        // Number of passes, likeness, and the shares covered before and after the correction.
        for (count, share, before, after) in [
            (8, 0.3, 0.90, 0.91),
            (8, 0.5, 0.83, 0.86),
            (16, 0.3, 0.90, 0.92),
            (16, 0.5, 0.83, 0.88),
        ] {
            let uncorrected = coverage(count, spells(7, share), plain);
            let corrected = coverage(count, spells(7, share), ends_of);
            assert!(
                uncorrected < before && corrected > after,
                "{count} passes, {share}: {uncorrected}, {corrected}"
            );
        }
    }

    #[test]
    fn interval_of_equal_passes_is_empty_and_of_a_trend_spans_all_passes() {
        assert_eq!(ends_of(&[2.0; 8]), (2.0, 2.0));
        assert_eq!(ends_of(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]), (1.0, 8.0));
        let alternating = [1.0, 5.0, 2.0, 6.0, 3.0, 7.0, 4.0, 8.0];
        let (low, high) = ends_of(&alternating);
        assert!(1.5 < low && high < 7.5, "{low} to {high}");
    }

    #[test]
    fn an_interval_needs_six_passes_and_holds_the_figure() {
        assert_eq!(median_over_passes(&[]).interval, None);
        assert_eq!(
            median_over_passes(&[3.0, 1.0, 2.0, 5.0, 4.0]),
            MedianEstimate { median: 3.0, interval: None }
        );
        for count in PASSES_MIN..=40 {
            let values: Vec<f64> = (1..=count).map(|it| it as f64).collect();
            let it = median_over_passes(&values);
            let (low, high) = it.interval.expect("too few passes");
            assert!(1.0 <= low && low < it.median && it.median < high && high <= count as f64);
            assert!((low + high - (count + 1) as f64).abs() < 1e-9, "{count}: {low} to {high}");
        }
        // The normal distribution goes on where the binomial one ends.
        assert!((lower_bound_rank(201) - lower_bound_rank(200) - 0.5).abs() < 0.1);
        let turned = median_over_passes(&[-1.0, -2.0, -3.0, -4.0, -5.0, -6.0]).map(|it| -it);
        assert_eq!(turned.median, 3.5);
    }

    #[test]
    fn two_modes_are_separated_with_their_shares() {
        let mut samples = noise(3, 700, 300.0, 0.1);
        samples.extend(noise(4, 300, 4600.0, 0.2));
        let modes = find_modes(&samples, 0.0).unwrap();
        assert!((modes.fast.0 - 0.7).abs() < 0.01 && (modes.slow.0 - 0.3).abs() < 0.01);
        assert!(
            (modes.fast.1 / 300.0 - 1.0).abs() < 0.1 && (modes.slow.1 / 4600.0 - 1.0).abs() < 0.1
        );
    }

    #[test]
    fn outliers_of_one_mode_are_no_second_mode() {
        let mut samples = noise(5, 1000, 300.0, 0.2);
        assert_eq!(find_modes(&samples, 0.0), None);
        samples.extend(noise(6, 50, 9000.0, 0.1));
        assert_eq!(find_modes(&samples, 0.0), None);
        let broad: Vec<f64> = (1..1000).map(f64::from).collect();
        assert_eq!(find_modes(&broad, 0.0), None);
    }

    #[test]
    fn neighbouring_steps_of_the_clock_are_no_modes() {
        let steps: Vec<f64> = (0..1000).map(|it| if it % 3 == 0 { 20.0 } else { 40.0 }).collect();
        assert!(
            find_modes(&steps, 0.0).is_some(),
            "found no modes although the clock is finer than the steps"
        );
        assert_eq!(find_modes(&steps, 10.0), None);
        let apart: Vec<f64> = (0..1000).map(|it| if it % 3 == 0 { 20.0 } else { 70.0 }).collect();
        assert!(find_modes(&apart, 10.0).is_some());
    }
}
