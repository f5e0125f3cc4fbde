//! Repeatable random choices. Tests print the seed, and the seed brings the run back.

/// A small generator (`SplitMix64`); good enough to choose, no good for secrets.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// A generator whose choices `seed` determines.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A seed that no earlier run had.
    ///
    /// # Panics
    ///
    /// If the clock stands before 1970.
    #[must_use]
    pub fn seed() -> u64 {
        let now = std::time::UNIX_EPOCH.elapsed().expect("a clock past 1970");
        now.as_nanos() as u64 ^ u64::from(std::process::id())
    }

    /// The next number.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 for a bound of 0.
    pub fn below(&mut self, bound: u32) -> u32 {
        // The high half of a product is evenly spread enough for bounds this small.
        ((u64::from(bound) * (self.next() >> 32)) >> 32) as u32
    }

    /// A number from 0 to 1.
    pub fn fraction(&mut self) -> f64 {
        f64::from((self.next() >> 32) as u32) / f64::from(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_brings_the_same_choices_back() {
        let choices = |seed| {
            let mut random = Random::new(seed);
            (0..20).map(|_| random.below(6)).collect::<Vec<_>>()
        };
        assert_eq!(choices(7), choices(7));
        assert_ne!(choices(7), choices(8));
    }

    #[test]
    fn a_choice_stays_below_its_bound() {
        let mut random = Random::new(1);
        assert!((0..1000).all(|_| random.below(5) < 5));
        assert_eq!(random.below(0), 0);
        assert!((0..1000).map(|_| random.fraction()).all(|part| (0.0..=1.0).contains(&part)));
    }
}
