//! What a handful of total times says about all candidates: a small Bayesian model.
//!
//! The logarithm of a split's time over stock's is `ln(max(g (1 - r), c r) + o)` plus what the two lines don't explain. The parameters are a cloud
//! of weighted particles (quasi-random, from the start's prior), the rest is a Gaussian process: a smooth part, and a part of each
//! candidate's own (Rasmussen and Williams, 2006, sections 2.2 and 2.7). All particles share one covariance per scale, so an
//! update is a few small Cholesky factorisations. The next probe is the one with the largest expected gain per machine time of a
//! one-step look-ahead, the *knowledge gradient* (Frazier, Powell and Dayanik, 2009).

use statrs::distribution::{ContinuousCDF, Normal};

use crate::lines::Lines;

/// Particles of the cloud.
const PARTICLES: usize = 400;
/// Smooth deviation from the two lines: standard deviation in the logarithm, and length in shares.
const SMOOTH_DEVIATION: f64 = 0.06;
const SMOOTH_LENGTH: f64 = 0.07;
/// Deviation of a candidate on its own. The three values, [`SCALES`] and the cold cloud are chosen on the recorded grids, for all chips and
/// shapes alike.
const OWN_DEVIATION: f64 = 0.045;
/// Some shapes follow the lines closely, small ones hardly: both deviations times each of these, weighed by what the samples say.
const SCALES: [f64; 3] = [0.5, 1.0, 2.0];
/// Uncertainty of the level of all times: large, only differences count.
const LEVEL_DEVIATION: f64 = 0.3;
/// Nodes and weights of the 7-point Gauss-Hermite rule for a standard normal (Abramowitz and Stegun, table 25.10, rescaled).
const HERMITE: [(f64, f64); 7] = [
    (-3.750_439_717_725_742, 0.000_548_268_855_972_218),
    (-2.366_759_410_734_541, 0.030_757_123_967_586_5),
    (-1.154_405_394_739_968, 0.240_123_178_605_013),
    (0.0, 0.457_142_857_142_857),
    (1.154_405_394_739_968, 0.240_123_178_605_013),
    (2.366_759_410_734_541, 0.030_757_123_967_586_5),
    (3.750_439_717_725_742, 0.000_548_268_855_972_218),
];

/// Weights below this are left out.
const NEGLIGIBLE: f64 = 1e-9;

/// How a start is believed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Trust {
    /// Relative standard deviation of the secondary line.
    pub(super) secondary: f64,
    /// Relative standard deviation of the primary line.
    pub(super) primary: f64,
    /// Share of the cloud that believes nothing of it, so that a wrong start is survived.
    pub(super) doubt: f64,
}

/// Parameters relative to stock's time: the primary and the secondary line, and the overhead.
#[derive(Debug, Clone, Copy)]
struct Particle {
    primary: f64,
    secondary: f64,
    overhead: f64,
}

impl Particle {
    /// Logarithm of the time at `share`, relative to stock.
    fn log_time(&self, share: f64) -> f64 {
        if share <= 0.0 {
            return 0.0;
        }
        ((self.primary * (1.0 - share)).max(self.secondary * share) + self.overhead).ln()
    }
}

/// The cloud before any sample.
#[derive(Debug, Clone)]
pub(super) struct Cloud {
    particles: Vec<Particle>,
    /// So many of them, the first ones, believe nothing of the start.
    doubters: usize,
}

/// One candidate's evidence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Observation {
    /// The secondary unit's share; 0 is stock.
    pub(super) share: f64,
    /// Logarithm of the time.
    pub(super) log_ms: f64,
    /// Its variance.
    pub(super) variance: f64,
}

impl Cloud {
    /// Knows nothing: the secondary unit is 0.8 to 9 times slower, the lines' primary about stock.
    pub(super) fn cold() -> Self {
        Self { particles: (1..=PARTICLES).map(broad).collect(), doubters: 0 }
    }

    /// Believes `lines` (of `rows` rows) as far as `trust` says.
    pub(super) fn around(lines: &Lines, rows: u32, trust: Trust) -> Self {
        let stock = lines.stock_ms_per_row;
        let centre = Particle {
            primary: lines.primary_ms_per_row / stock,
            secondary: lines.secondary_ms_per_row / stock,
            overhead: (lines.overhead_ms / (stock * f64::from(rows))).max(0.0),
        };
        if ![centre.primary, centre.secondary].iter().all(|v| v.is_finite() && *v > 0.0)
            || !centre.overhead.is_finite()
        {
            return Self::cold();
        }
        let doubters = (trust.doubt * PARTICLES as f64) as usize;
        let near = |index: usize| {
            let [a, b, c] = halton(index);
            Particle {
                primary: centre.primary * (trust.primary * normal(a)).exp(),
                secondary: centre.secondary * (trust.secondary * normal(b)).exp(),
                overhead: centre.overhead * (0.5 * normal(c)).exp() + 0.003 * c,
            }
        };
        let particles =
            (1..=PARTICLES).map(|index| if index <= doubters { broad(index) } else { near(index) });
        Self { particles: particles.collect(), doubters }
    }

    /// What is believed of `candidates` (shares; 0 is stock) after `observations`; `None` if there are none, or they are beyond numbers.
    pub(super) fn update(&self, observations: &[Observation], candidates: &[f64]) -> Option<Belief> {
        let level = observations.iter().find(|o| o.share <= 0.0).or(observations.first())?.log_ms;
        let fits: Vec<Fit> =
            SCALES.iter().filter_map(|&scale| self.fit(observations, candidates, level, scale)).collect();
        let highest =
            fits.iter().flat_map(|fit| fit.log_weights.iter().copied()).fold(f64::NEG_INFINITY, f64::max);
        if !highest.is_finite() {
            return None;
        }
        let total: f64 = fits.iter().flat_map(|fit| &fit.log_weights).map(|log| (log - highest).exp()).sum();
        Some(self.moments(&fits, highest + total.ln(), candidates, level))
    }

    /// The update under one scale of what the lines don't explain.
    fn fit(&self, observations: &[Observation], candidates: &[f64], level: f64, scale: f64) -> Option<Fit> {
        let count = observations.len();
        let covariance: Vec<Vec<f64>> = (0..count)
            .map(|i| {
                (0..count)
                    .map(|j| {
                        kernel(observations[i].share, observations[j].share, scale)
                            + if i == j { observations[i].variance } else { 0.0 }
                    })
                    .collect()
            })
            .collect();
        let factor = cholesky(&covariance)?;
        let log_determinant: f64 = (0..count).map(|i| factor[i][i].ln()).sum();
        let residual = |particle: &Particle| -> Vec<f64> {
            observations.iter().map(|o| o.log_ms - level - particle.log_time(o.share)).collect()
        };
        let whitened: Vec<Vec<f64>> =
            self.particles.iter().map(|particle| forward(&factor, &residual(particle))).collect();
        let log_weights =
            whitened.iter().map(|z| -0.5 * z.iter().map(|v| v * v).sum::<f64>() - log_determinant).collect();
        let gains = candidates
            .iter()
            .map(|&candidate| {
                let row: Vec<f64> = observations.iter().map(|o| kernel(candidate, o.share, scale)).collect();
                forward(&factor, &row)
            })
            .collect();
        Some(Fit { scale, log_weights, whitened, gains })
    }

    /// Mean and covariance of the mixture over scales and particles.
    fn moments(&self, fits: &[Fit], log_total: f64, candidates: &[f64], level: f64) -> Belief {
        let count = candidates.len();
        let mut belief = Belief {
            mean: vec![0.0; count],
            covariance: vec![vec![0.0; count]; count],
            lines: [0.0; 3],
            doubt: 0.0,
        };
        let mut each: Vec<(f64, Vec<f64>)> = Vec::new();
        for fit in fits {
            let mut share_of_scale = 0.0;
            let updated = self.particles.iter().zip(&fit.log_weights).zip(&fit.whitened);
            for (index, ((particle, log_weight), z)) in updated.enumerate() {
                let weight = (log_weight - log_total).exp();
                if weight < NEGLIGIBLE {
                    continue;
                }
                share_of_scale += weight;
                if index < self.doubters {
                    belief.doubt += weight;
                }
                let values: Vec<f64> = candidates
                    .iter()
                    .zip(&fit.gains)
                    .map(|(&share, gain)| particle.log_time(share) + dot(gain, z))
                    .collect();
                for (sum, value) in belief.mean.iter_mut().zip(&values) {
                    *sum += weight * value;
                }
                belief.lines[0] += weight * particle.primary.ln();
                belief.lines[1] += weight * particle.secondary.ln();
                belief.lines[2] += weight * particle.overhead;
                each.push((weight, values));
            }
            for i in 0..count {
                for j in 0..=i {
                    belief.covariance[i][j] += share_of_scale
                        * (kernel(candidates[i], candidates[j], fit.scale)
                            - dot(&fit.gains[i], &fit.gains[j]));
                }
            }
        }
        for i in 0..count {
            for j in 0..=i {
                let cloud: f64 = each
                    .iter()
                    .map(|(weight, v)| weight * (v[i] - belief.mean[i]) * (v[j] - belief.mean[j]))
                    .sum();
                belief.covariance[i][j] += cloud;
                belief.covariance[j][i] = belief.covariance[i][j];
            }
        }
        belief.mean.iter_mut().for_each(|mean| *mean += level);
        let [primary, secondary, overhead] = belief.lines;
        belief.lines = [primary.exp(), secondary.exp(), overhead];
        belief
    }
}

/// The cloud under one scale, updated.
struct Fit {
    scale: f64,
    log_weights: Vec<f64>,
    whitened: Vec<Vec<f64>>,
    gains: Vec<Vec<f64>>,
}

/// What is believed of the candidates: logarithms of ms.
#[derive(Debug, Clone)]
pub(super) struct Belief {
    /// Expected logarithm of each candidate's time in ms.
    pub(super) mean: Vec<f64>,
    covariance: Vec<Vec<f64>>,
    lines: [f64; 3],
    /// Weight of the particles that believe nothing of the start.
    pub(super) doubt: f64,
}

impl Belief {
    /// The fitted lines of `rows` rows, given stock's time in ms.
    pub(super) fn lines(&self, stock_ms: f64, rows: u32) -> Lines {
        let stock = stock_ms / f64::from(rows);
        Lines {
            primary_ms_per_row: self.lines[0] * stock,
            secondary_ms_per_row: self.lines[1] * stock,
            overhead_ms: self.lines[2] * stock_ms,
            stock_ms_per_row: stock,
        }
    }

    /// The candidate with the smallest expected time among those that `eligible` accepts.
    pub(super) fn best(&self, eligible: impl Fn(usize) -> bool) -> Option<usize> {
        (0..self.mean.len())
            .filter(|&index| eligible(index))
            .min_by(|&a, &b| self.mean[a].total_cmp(&self.mean[b]))
    }

    /// By how much one more call of candidate `probe`, with `variance`, is expected to lower the time of the best choice: a share of that time.
    pub(super) fn knowledge_gradient(&self, probe: usize, variance: f64, choices: &[usize]) -> f64 {
        let spread = (self.covariance[probe][probe] + variance).max(1e-12).sqrt();
        let now = choices.iter().map(|&j| self.mean[j]).fold(f64::INFINITY, f64::min);
        let then: f64 = HERMITE
            .iter()
            .map(|(node, weight)| {
                let lowest = choices
                    .iter()
                    .map(|&j| self.mean[j] + self.covariance[j][probe] / spread * node)
                    .fold(f64::INFINITY, f64::min);
                weight * lowest
            })
            .sum();
        // The level is uncertain for all alike; what is left of its mean in the sum is rounding.
        now - then
    }
}

fn kernel(a: f64, b: f64, scale: f64) -> f64 {
    let level = LEVEL_DEVIATION * LEVEL_DEVIATION;
    if a <= 0.0 || b <= 0.0 {
        return level;
    }
    let apart = (a - b) / SMOOTH_LENGTH;
    let own = if (a - b).abs() < 1e-9 { OWN_DEVIATION * OWN_DEVIATION } else { 0.0 };
    level + scale * scale * (SMOOTH_DEVIATION * SMOOTH_DEVIATION * (-0.5 * apart * apart).exp() + own)
}

/// A particle of the cloud that knows nothing.
fn broad(index: usize) -> Particle {
    let [a, b, c] = halton(index);
    let wild = index.is_multiple_of(5);
    Particle {
        primary: (0.03 + if wild { 0.25 } else { 0.06 } * normal(a)).exp(),
        secondary: (0.8f64.ln() + b * (9.0f64 / 0.8).ln()).exp(),
        overhead: -0.025 * (1.0 - c).ln(),
    }
}

fn normal(uniform: f64) -> f64 {
    Normal::standard().inverse_cdf(uniform)
}

/// The point of the Halton sequence in bases 2, 3 and 5 (Halton, 1960).
fn halton(index: usize) -> [f64; 3] {
    [2, 3, 5].map(|base| {
        let (mut index, mut fraction, mut value) = (index, 1.0, 0.0);
        while index > 0 {
            fraction /= base as f64;
            value += fraction * (index % base) as f64;
            index /= base;
        }
        value
    })
}

/// The lower Cholesky factor; `None` if the matrix isn't positive definite.
fn cholesky(matrix: &[Vec<f64>]) -> Option<Vec<Vec<f64>>> {
    let size = matrix.len();
    let mut factor = vec![vec![0.0; size]; size];
    for i in 0..size {
        for j in 0..=i {
            let sum = matrix[i][j] - dot(&factor[i][..j], &factor[j][..j]);
            if i == j {
                if !(sum > 0.0 && sum.is_finite()) {
                    return None;
                }
                factor[i][i] = sum.sqrt();
            } else {
                factor[i][j] = sum / factor[j][j];
            }
        }
    }
    Some(factor)
}

/// Solves `factor x = vector` for a lower factor.
fn forward(factor: &[Vec<f64>], vector: &[f64]) -> Vec<f64> {
    let mut solution = Vec::with_capacity(vector.len());
    for (row, value) in factor.iter().zip(vector) {
        let index = solution.len();
        let known = dot(&row[..index], &solution);
        solution.push((value - known) / row[index]);
    }
    solution
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
