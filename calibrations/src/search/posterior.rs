//! What a handful of total times says about all candidates: a small Bayesian model.
//!
//! The logarithm of a split's time over stock's is `ln(max(g (1 - r), c r) + o)` plus what the two lines don't explain. The parameters are a cloud
//! of weighted particles (quasi-random, from the start's prior), the rest is a Gaussian process: a smooth part, and a part of each
//! candidate's own (Rasmussen and Williams, 2006, sections 2.2 and 2.7). All particles share one covariance, so an update is one
//! small Cholesky factorisation. The next probe is the one with the largest expected gain per machine time of a
//! one-step look-ahead, the *knowledge gradient* (Frazier, Powell and Dayanik, 2009).

use statrs::distribution::{ContinuousCDF, Normal};

use crate::lines::Lines;

/// Particles of the cloud.
const PARTICLES: usize = 600;
/// Smooth deviation from the two lines: standard deviation in the logarithm, and length in shares.
const SMOOTH_DEVIATION: f64 = 0.035;
const SMOOTH_LENGTH: f64 = 0.12;
/// Deviation of a candidate on its own.
const OWN_DEVIATION: f64 = 0.02;
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
        Self { particles: (1..=PARTICLES).map(broad).collect() }
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
        Self { particles: particles.collect() }
    }

    /// What is believed of `candidates` (shares; 0 is stock) after `observations`; `None` if there are none, or they are beyond numbers.
    pub(super) fn update(&self, observations: &[Observation], candidates: &[f64]) -> Option<Belief> {
        let level = observations.iter().find(|o| o.share <= 0.0).or(observations.first())?.log_ms;
        let count = observations.len();
        let covariance: Vec<Vec<f64>> = (0..count)
            .map(|i| {
                (0..count)
                    .map(|j| {
                        kernel(observations[i].share, observations[j].share)
                            + if i == j { observations[i].variance } else { 0.0 }
                    })
                    .collect()
            })
            .collect();
        let factor = cholesky(&covariance)?;
        let residual = |particle: &Particle| -> Vec<f64> {
            observations.iter().map(|o| o.log_ms - level - particle.log_time(o.share)).collect()
        };
        let whitened: Vec<Vec<f64>> =
            self.particles.iter().map(|particle| forward(&factor, &residual(particle))).collect();
        let log_weights: Vec<f64> =
            whitened.iter().map(|z| -0.5 * z.iter().map(|v| v * v).sum::<f64>()).collect();
        let highest = log_weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if !highest.is_finite() {
            return None;
        }
        let weights: Vec<f64> = log_weights.iter().map(|log| (log - highest).exp()).collect();
        let total: f64 = weights.iter().sum();
        let weights: Vec<f64> = weights.into_iter().map(|weight| weight / total).collect();
        let gains: Vec<Vec<f64>> = candidates
            .iter()
            .map(|&candidate| {
                let row: Vec<f64> = observations.iter().map(|o| kernel(candidate, o.share)).collect();
                forward(&factor, &row)
            })
            .collect();
        Some(self.moments(&weights, &whitened, &gains, candidates, level))
    }

    /// Mean and covariance of the mixture over the particles.
    fn moments(
        &self,
        weights: &[f64],
        whitened: &[Vec<f64>],
        gains: &[Vec<f64>],
        candidates: &[f64],
        level: f64,
    ) -> Belief {
        let count = candidates.len();
        let (mut mean, mut covariance) = (vec![0.0; count], vec![vec![0.0; count]; count]);
        let mut lines = [0.0; 3];
        let mut each: Vec<(f64, Vec<f64>)> = Vec::new();
        for ((particle, weight), z) in self.particles.iter().zip(weights).zip(whitened) {
            if *weight < 1e-9 {
                continue;
            }
            let values: Vec<f64> = candidates
                .iter()
                .zip(gains)
                .map(|(&share, gain)| particle.log_time(share) + dot(gain, z))
                .collect();
            for (sum, value) in mean.iter_mut().zip(&values) {
                *sum += weight * value;
            }
            lines[0] += weight * particle.primary.ln();
            lines[1] += weight * particle.secondary.ln();
            lines[2] += weight * particle.overhead;
            each.push((*weight, values));
        }
        for i in 0..count {
            for j in 0..=i {
                let process = kernel(candidates[i], candidates[j]) - dot(&gains[i], &gains[j]);
                let cloud: f64 =
                    each.iter().map(|(weight, v)| weight * (v[i] - mean[i]) * (v[j] - mean[j])).sum();
                covariance[i][j] = process + cloud;
                covariance[j][i] = covariance[i][j];
            }
        }
        Belief {
            mean: mean.into_iter().map(|value| value + level).collect(),
            covariance,
            lines: [lines[0].exp(), lines[1].exp(), lines[2]],
        }
    }
}

/// What is believed of the candidates: logarithms of ms.
#[derive(Debug, Clone)]
pub(super) struct Belief {
    /// Expected logarithm of each candidate's time in ms.
    pub(super) mean: Vec<f64>,
    covariance: Vec<Vec<f64>>,
    lines: [f64; 3],
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

    /// Variance of what is believed of one candidate.
    pub(super) fn variance(&self, index: usize) -> f64 {
        self.covariance[index][index]
    }
}

fn kernel(a: f64, b: f64) -> f64 {
    let level = LEVEL_DEVIATION * LEVEL_DEVIATION;
    if a <= 0.0 || b <= 0.0 {
        return level;
    }
    let apart = (a - b) / SMOOTH_LENGTH;
    let own = if (a - b).abs() < 1e-9 { OWN_DEVIATION * OWN_DEVIATION } else { 0.0 };
    level + SMOOTH_DEVIATION * SMOOTH_DEVIATION * (-0.5 * apart * apart).exp() + own
}

/// A particle of the cloud that knows nothing.
fn broad(index: usize) -> Particle {
    let [a, b, c] = halton(index);
    let wild = index.is_multiple_of(7);
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
