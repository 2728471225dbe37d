//! Seeded noise for recorded and modelled machines. Not for secrets.

/// A stream of random numbers that depends on nothing but its seed: SplitMix64 (Steele, Lea and Flood, 2014).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noise {
    state: u64,
}

impl Noise {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A stream of its own for each of several uses of one seed.
    pub fn for_use(seed: u64, of: &str) -> Self {
        // FNV-1a keeps the streams of similar names apart.
        let hash = of.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        Self { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ hash }
    }

    fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in (0, 1).
    pub fn uniform(&mut self) -> f64 {
        ((self.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Standard normal (Box and Muller, 1958).
    pub fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// A factor on a time: lognormal with the relative standard `deviation`, and 1.5 times as much in 2 % of the calls.
    pub fn call_factor(&mut self, deviation: f64) -> f64 {
        let factor = (deviation * self.normal()).exp();
        if self.uniform() < OUTLIER_SHARE { factor * OUTLIER_FACTOR } else { factor }
    }
}

/// Share of calls that something disturbs.
pub const OUTLIER_SHARE: f64 = 0.02;
/// How much longer a disturbed call takes.
pub const OUTLIER_FACTOR: f64 = 1.5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_noise_is_what_it_says() {
        let mut noise = Noise::new(7);
        let factors: Vec<f64> = (0..20_000).map(|_| noise.call_factor(0.015)).collect();
        let outliers = factors.iter().filter(|factor| **factor > 1.3).count();
        assert!((300..500).contains(&outliers), "{outliers}");
        let kept: Vec<f64> = factors.into_iter().filter(|factor| *factor < 1.3).map(f64::ln).collect();
        let deviation = (kept.iter().map(|log| log * log).sum::<f64>() / kept.len() as f64).sqrt();
        assert!((deviation - 0.015).abs() < 0.0005, "{deviation}");
    }

    #[test]
    fn a_seed_is_a_stream() {
        let first = |mut noise: Noise| noise.uniform();
        assert_eq!(first(Noise::for_use(1, "a")), first(Noise::for_use(1, "a")));
        assert_ne!(first(Noise::for_use(1, "a")), first(Noise::for_use(1, "b")));
    }
}
