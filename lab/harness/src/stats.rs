//! Medians, bootstrap intervals, ratios within blocks, and two modes told apart.
//!
//! The unit of every interval is the round, never the operation: operations of one round share its
//! memory, its placement and its neighbours (see the book's page on method). Intervals are percentile
//! bootstraps (Efron, *Bootstrap methods: another look at the jackknife*, 1979) with a fixed seed, so
//! that the same rounds always give the same interval.

use handover_base::random::SplitMix64;

/// Resamples drawn for an interval.
const RESAMPLES_COUNT: usize = 1000;

/// The middle value; the mean of the two middle ones for an even count; 0 of nothing.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    median_of(&mut sorted)
}

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

/// The value below which a share `q` (0 to 1) of the sorted values lies; 0 of nothing.
pub fn quantile_sorted(sorted: &[f64], q: f64) -> f64 {
    if sorted.is_empty() {
        return 0.0;
    }
    let rank = (q.clamp(0.0, 1.0) * sorted.len() as f64).ceil() as usize;
    sorted[rank.saturating_sub(1).min(sorted.len() - 1)]
}

/// A figure with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The median.
    pub median: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Half the width relative to the figure.
    pub fn half_width(&self) -> f64 {
        if self.median == 0.0 {
            0.0
        } else {
            (self.high - self.low).abs() / 2.0 / self.median.abs()
        }
    }
}

/// The median of the rounds and its 95 % bootstrap interval.
pub fn interval(values: &[f64]) -> Interval {
    let median = median(values);
    if values.len() < 3 {
        let low = values.iter().copied().fold(median, f64::min);
        let high = values.iter().copied().fold(median, f64::max);
        return Interval { median, low, high };
    }
    let mut random = SplitMix64::new(0x9e37_79b9_7f4a_7c15 ^ values.len() as u64);
    let mut resample = vec![0.0; values.len()];
    let mut medians: Vec<f64> = (0..RESAMPLES_COUNT)
        .map(|_| {
            for slot in &mut resample {
                *slot = values[random.below(values.len())];
            }
            median_of(&mut resample)
        })
        .collect();
    medians.sort_unstable_by(f64::total_cmp);
    Interval {
        median,
        low: quantile_sorted(&medians, 0.025).min(median),
        high: quantile_sorted(&medians, 0.975).max(median),
    }
}

/// The ratio of two figures measured in the same blocks: the median of the blocks' ratios with its
/// interval, by logarithms, so that a/b and b/a agree. Pairs with a value that is not above 0 are
/// passed over; `None` if none is left.
pub fn ratio(pairs: &[(f64, f64)]) -> Option<Interval> {
    let logs: Vec<f64> = pairs
        .iter()
        .filter(|(ours, other)| *ours > 0.0 && *other > 0.0)
        .map(|(ours, other)| (ours / other).ln())
        .collect();
    if logs.is_empty() {
        return None;
    }
    let logs = interval(&logs);
    Some(Interval { median: logs.median.exp(), low: logs.low.exp(), high: logs.high.exp() })
}

/// Two modes of a sample: the share and median of each, the faster first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Modes {
    /// Share and median of the faster.
    pub fast: (f64, f64),
    /// Share and median of the slower.
    pub slow: (f64, f64),
}

/// Samples looked at for modes; more are thinned.
const MODES_SAMPLES_MAX: usize = 4096;
/// A mode holds at least this share.
const MODE_SHARE_MIN: f64 = 0.1;
/// The slower mode's median is at least this many times the faster's.
const MODES_RATIO_MIN: f64 = 1.5;
/// Within a mode the samples spread at most by this share of the distance between the modes, both by
/// logarithm; wider, and it is one broad distribution rather than two modes.
const MODE_SPREAD_MAX: f64 = 0.5;

/// Modes closer than so many steps of the clock are one, which the clock cuts in pieces.
const MODES_STEPS_MIN: f64 = 4.0;

/// Tells two modes apart, if the samples, of a clock with steps of `clock_step`, have them: the split of the sorted logarithms with the
/// greatest variance between the halves (Otsu, 1979), accepted when both halves are large, distant and
/// narrow.
pub fn modes(samples: &[f64], clock_step: f64) -> Option<Modes> {
    let step = samples.len().div_ceil(MODES_SAMPLES_MAX).max(1);
    let mut logs: Vec<f64> =
        samples.iter().step_by(step).filter(|it| **it > 0.0).map(|it| it.ln()).collect();
    if logs.len() < 20 {
        return None;
    }
    logs.sort_unstable_by(f64::total_cmp);
    let total: f64 = logs.iter().sum();
    let count = logs.len() as f64;
    let (mut best, mut split, mut below) = (0.0, 0, 0.0);
    for (index, log) in logs.iter().enumerate().take(logs.len() - 1) {
        below += log;
        let left = (index + 1) as f64;
        let apart = below / left - (total - below) / (count - left);
        let between = left * (count - left) * apart * apart;
        if between > best {
            (best, split) = (between, index + 1);
        }
    }
    let (fast, slow) = logs.split_at(split);
    let share = fast.len() as f64 / count;
    if !(MODE_SHARE_MIN..=1.0 - MODE_SHARE_MIN).contains(&share) {
        return None;
    }
    let middle = |half: &[f64]| quantile_sorted(half, 0.5);
    let spread = |half: &[f64]| quantile_sorted(half, 0.9) - quantile_sorted(half, 0.1);
    let apart = middle(slow) - middle(fast);
    if apart < MODES_RATIO_MIN.ln() || spread(fast).max(spread(slow)) > MODE_SPREAD_MAX * apart {
        return None;
    }
    let (faster, slower) = (middle(fast).exp(), middle(slow).exp());
    if slower - faster < MODES_STEPS_MIN * clock_step {
        return None;
    }
    Some(Modes { fast: (share, faster), slow: (1.0 - share, slower) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(seed: u64, count: usize, around: f64, spread: f64) -> Vec<f64> {
        let mut random = SplitMix64::new(seed);
        (0..count)
            .map(|_| around * (1.0 + spread * (random.below(2001) as f64 / 1000.0 - 1.0)))
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
    fn an_interval_covers_the_truth_in_about_95_of_100_trials() {
        let covered = (0..400)
            .filter(|seed| {
                let it = interval(&noise(*seed, 30, 100.0, 0.1));
                it.low <= 100.0 && 100.0 <= it.high
            })
            .count();
        assert!((360..=398).contains(&covered), "{covered} of 400");
    }

    #[test]
    fn a_ratio_and_its_inverse_agree() {
        let pairs: Vec<_> =
            noise(1, 31, 50.0, 0.2).into_iter().zip(noise(2, 31, 100.0, 0.2)).collect();
        let turned: Vec<_> = pairs.iter().map(|(a, b)| (*b, *a)).collect();
        let (there, back) = (ratio(&pairs).unwrap(), ratio(&turned).unwrap());
        assert!((there.median * back.median - 1.0).abs() < 1e-9);
        assert!(there.low < 0.5 && 0.5 < there.high);
        assert_eq!(ratio(&[(0.0, 1.0)]), None);
    }

    #[test]
    fn drift_common_to_both_leaves_the_ratio_alone() {
        let pairs: Vec<_> =
            (1..=30).map(|block| (2.0 * f64::from(block), f64::from(block))).collect();
        let it = ratio(&pairs).unwrap();
        assert!((it.median - 2.0).abs() < 1e-9 && (it.high - it.low) < 1e-9);
    }

    #[test]
    fn two_modes_are_told_apart_with_their_shares() {
        let mut samples = noise(3, 700, 300.0, 0.1);
        samples.extend(noise(4, 300, 4600.0, 0.2));
        let modes = modes(&samples, 0.0).unwrap();
        assert!((modes.fast.0 - 0.7).abs() < 0.01 && (modes.slow.0 - 0.3).abs() < 0.01);
        assert!(
            (modes.fast.1 / 300.0 - 1.0).abs() < 0.1 && (modes.slow.1 / 4600.0 - 1.0).abs() < 0.1
        );
    }

    #[test]
    fn one_mode_with_a_few_outliers_stays_one() {
        let mut samples = noise(5, 1000, 300.0, 0.2);
        assert_eq!(modes(&samples, 0.0), None);
        samples.extend(noise(6, 50, 9000.0, 0.1));
        assert_eq!(modes(&samples, 0.0), None);
        let broad: Vec<f64> = (1..1000).map(f64::from).collect();
        assert_eq!(modes(&broad, 0.0), None);
    }

    #[test]
    fn neighbouring_steps_of_the_clock_are_no_modes() {
        let steps: Vec<f64> = (0..1000).map(|it| if it % 3 == 0 { 20.0 } else { 40.0 }).collect();
        assert!(modes(&steps, 0.0).is_some(), "of a finer clock they would be");
        assert_eq!(modes(&steps, 10.0), None);
        let apart: Vec<f64> = (0..1000).map(|it| if it % 3 == 0 { 20.0 } else { 70.0 }).collect();
        assert!(modes(&apart, 10.0).is_some());
    }
}
