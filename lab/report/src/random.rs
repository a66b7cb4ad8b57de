//! Random numbers that are the same every time.

/// Steele, Lea and Flood, *Fast splittable pseudorandom number generators*, 2014.
pub(crate) struct SplitMix64(u64);

impl SplitMix64 {
    pub fn new(seed: u64) -> SplitMix64 {
        SplitMix64(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// Fisher and Yates.
    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        for place in (1..values.len()).rev() {
            values.swap(place, self.below(place + 1));
        }
    }

    /// A standard normal value, near enough: twelve uniform ones.
    #[cfg(test)]
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.below(1 << 30) as f64 / f64::from(1 << 30)).sum::<f64>() - 6.0
    }
}
