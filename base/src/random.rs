//! Reproducible random numbers for resampling, shuffling and tests; not for secrets.
//!
//! ```
//! use handover_base::random::SplitMix64;
//! let mut random = SplitMix64::new(7);
//! let mut deck: Vec<u32> = (0..52).collect();
//! random.shuffle(&mut deck);
//! assert!(random.next_below(6) < 6);
//! ```

/// SplitMix64 pseudorandom number generator, with 64 bits of state; any seed is valid.
///
/// Source: Steele, Lea and Flood, *Fast splittable pseudorandom number generators*, 2014.
///
/// Cost: a nanosecond a number.
#[derive(Clone, Debug, Default)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Creates a generator; the same seed results in the same sequence of numbers.
    pub fn new(seed: u64) -> SplitMix64 {
        SplitMix64(seed)
    }

    /// Returns the next number, uniform over all of `u64`.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0. (For a large bound, the probabilities
    /// of values differ by up to one part in 2^64 / `bound`.)
    pub fn next_below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next_u64()) * bound as u128) >> 64) as usize
    }

    /// Shuffles `values` with the Fisher-Yates algorithm.
    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        for place in (1..values.len()).rev() {
            values.swap(place, self.next_below(place + 1));
        }
    }

    /// Returns an approximately normal number with mean 0 and standard deviation 1. It is the sum
    /// of twelve uniform numbers, less 6, and so within -6..=6.
    pub fn next_normal(&mut self) -> f64 {
        let uniform = |bits: u64| (bits >> 11) as f64 / (1_u64 << 53) as f64;
        (0..12).map(|_| uniform(self.next_u64())).sum::<f64>() - 6.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_equal_the_reference_sequence() {
        let mut random = SplitMix64::new(1_234_567);
        let numbers = [(); 3].map(|()| random.next_u64());
        let expected =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(numbers, expected);
    }

    #[test]
    fn bounded_numbers_are_uniform() {
        let mut random = SplitMix64::new(3);
        let mut counts = [0_u32; 6];
        for _ in 0..6000 {
            counts[random.next_below(6)] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        assert_eq!(random.next_below(0), 0);
        assert_eq!(random.next_below(1), 0);
    }

    #[test]
    fn shuffle_keeps_all_values() {
        let mut random = SplitMix64::new(4);
        let mut deck: Vec<u32> = (0..52).collect();
        random.shuffle(&mut deck);
        assert!(!deck.is_sorted());
        deck.sort_unstable();
        assert!(deck.into_iter().eq(0..52));
    }

    #[test]
    fn normal_numbers_have_mean_0_and_deviation_1() {
        let mut random = SplitMix64::new(5);
        let numbers: Vec<f64> = (0..10_000).map(|_| random.next_normal()).collect();
        let mean = numbers.iter().sum::<f64>() / 1e4;
        let deviation = (numbers.iter().map(|it| (it - mean).powi(2)).sum::<f64>() / 1e4).sqrt();
        assert!(mean.abs() < 0.05 && (deviation - 1.0).abs() < 0.05, "{mean} {deviation}");
    }
}
