//! What the samples of `bench ttft` mean: medians with intervals, and whether the tokens are the same.

use fusion_calibrations::stats::{self, CONFIDENCE, Interval};
use serde::{Deserialize, Serialize};

/// What the Python program printed, as far as it is looked at here.
#[derive(Debug, Deserialize)]
pub(crate) struct Measured {
    pub(crate) model: String,
    pub(crate) pair: String,
    pub(crate) units: String,
    pub(crate) basis: String,
    pub(crate) lengths: Vec<Length>,
}

/// All rounds of one length of prompt.
#[derive(Debug, Deserialize)]
pub(crate) struct Length {
    prompt_tokens: u32,
    rounds: Vec<Round>,
    largest_error: f64,
    first_difference: Option<Difference>,
}

#[derive(Debug, Deserialize)]
struct Round {
    stock: Sample,
    accelerated: Sample,
    /// A second call of stock; older packages made none.
    #[serde(default)]
    stock_again: Option<Sample>,
    /// Decode steps in turn: stock, accelerated, accelerated, stock. Older packages made none.
    #[serde(default)]
    decode_steps_ms: Vec<[f64; 4]>,
}

#[derive(Debug, Deserialize)]
struct Sample {
    first_token_ms: f64,
    decode_tokens_per_second: Option<f64>,
    #[serde(default)]
    chunks: Chunks,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default)]
struct Chunks {
    split: u32,
    eager: u32,
}

/// Where two transcripts part.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub(crate) struct Difference {
    pub(crate) step: u32,
    pub(crate) stock_token: i64,
    pub(crate) other_token: i64,
    /// How much likelier stock holds its own token than the other, as a difference of logarithms.
    pub(crate) gap: f64,
}

/// A median with its 95 % interval; `null` without a sample.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Range {
    pub(crate) low: f64,
    pub(crate) value: f64,
    pub(crate) high: f64,
}

impl From<Interval> for Range {
    fn from(Interval { low, value, high }: Interval) -> Self {
        Self { low, value, high }
    }
}

/// Stock compared with itself; nothing, where it was called once a round.
#[derive(Debug, Serialize)]
pub(crate) struct SelfComparison {
    pub(crate) speed_up: Option<Range>,
    pub(crate) decode: Option<Range>,
}

/// What one length shows.
#[derive(Debug, Serialize)]
pub(crate) struct Verdict {
    pub(crate) prompt_tokens: u32,
    pub(crate) rounds: usize,
    pub(crate) stock_ms: Option<Range>,
    pub(crate) accelerated_ms: Option<Range>,
    /// Stock's time over the accelerated one, of calls made next to each other.
    pub(crate) speed_up: Option<Range>,
    /// Accelerated tokens per second over stock's while decoding: of single steps in turn, or else of whole calls.
    pub(crate) decode: Option<Range>,
    /// Pairs of steps that this is the middle of, or of calls.
    pub(crate) decode_pairs: usize,
    /// The same two of stock beside stock: what the machine's noise makes of a ratio that is 1.
    pub(crate) self_comparison: SelfComparison,
    pub(crate) split_chunks: u32,
    pub(crate) chunks: u32,
    pub(crate) first_difference: Option<Difference>,
    /// The largest change of a logarithm that splitting the prompt's products made.
    pub(crate) largest_error: f64,
}

impl Verdict {
    /// Whether the tokens are the same, or part only where both were equally likely within twice the measured error: each of the two may be off by it.
    pub(crate) fn is_faithful(&self) -> bool {
        self.first_difference.as_ref().is_none_or(|difference| difference.gap <= 2.0 * self.largest_error)
    }
}

impl From<&Length> for Verdict {
    fn from(length: &Length) -> Self {
        let rounds = &length.rounds;
        let accelerated = || rounds.iter().map(|round| (&round.stock, &round.accelerated));
        let again = || rounds.iter().filter_map(|round| Some((&round.stock, round.stock_again.as_ref()?)));
        let steps: Vec<[f64; 4]> = rounds.iter().flat_map(|round| round.decode_steps_ms.clone()).collect();
        let (decode, own_decode) = if steps.is_empty() {
            (speeds(accelerated()), speeds(again()))
        } else {
            (in_turn(&steps), stock_in_turn(&steps))
        };
        let chunks = rounds.iter().map(|round| round.accelerated.chunks);
        Self {
            prompt_tokens: length.prompt_tokens,
            rounds: rounds.len(),
            stock_ms: median_ms(rounds.iter().map(|round| &round.stock)),
            accelerated_ms: median_ms(rounds.iter().map(|round| &round.accelerated)),
            speed_up: speed_up(accelerated()),
            decode: range(&decode),
            decode_pairs: decode.len(),
            self_comparison: SelfComparison { speed_up: speed_up(again()), decode: range(&own_decode) },
            split_chunks: chunks.clone().map(|chunks| chunks.split).sum(),
            chunks: chunks.map(|chunks| chunks.split + chunks.eager).sum(),
            first_difference: length.first_difference.clone(),
            largest_error: length.largest_error,
        }
    }
}

fn median_ms<'a>(samples: impl Iterator<Item = &'a Sample>) -> Option<Range> {
    let times: Vec<f64> = samples.map(|sample| sample.first_token_ms).collect();
    stats::median_interval(&times, CONFIDENCE).map(Range::from)
}

/// The time to the first token of the former over that of the latter.
fn speed_up<'a>(pairs: impl Iterator<Item = (&'a Sample, &'a Sample)>) -> Option<Range> {
    let times: Vec<_> = pairs.map(|(stock, other)| (stock.first_token_ms, other.first_token_ms)).collect();
    stats::ratio_of_pairs(&times, CONFIDENCE).map(Range::from)
}

/// Tokens per second of whole calls, (latter, former).
fn speeds<'a>(pairs: impl Iterator<Item = (&'a Sample, &'a Sample)>) -> Vec<(f64, f64)> {
    let speeds = |(stock, other): (&Sample, &Sample)| {
        other.decode_tokens_per_second.zip(stock.decode_tokens_per_second)
    };
    pairs.filter_map(speeds).collect()
}

/// Times of stock's and of accelerated steps; each the middle of two around, and between, the other's.
fn in_turn(steps: &[[f64; 4]]) -> Vec<(f64, f64)> {
    let pair = |[before, one, other, after]: &[f64; 4]| ((before * after).sqrt(), (one * other).sqrt());
    steps.iter().map(pair).collect()
}

/// Stock's own two, each first in every other pair.
fn stock_in_turn(steps: &[[f64; 4]]) -> Vec<(f64, f64)> {
    let pair = |(place, [before, .., after]): (usize, &[f64; 4])| {
        if place % 2 == 0 { (*before, *after) } else { (*after, *before) }
    };
    steps.iter().enumerate().map(pair).collect()
}

fn range(pairs: &[(f64, f64)]) -> Option<Range> {
    stats::ratio_of_pairs(pairs, CONFIDENCE).map(Range::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length(first_difference: Option<Difference>) -> Length {
        let sample =
            |first_token_ms, chunks| Sample { first_token_ms, decode_tokens_per_second: Some(50.0), chunks };
        let split = Chunks { split: 2, eager: 0 };
        let stock = |ms: f64| sample(ms * 1.5, Chunks::default());
        let round = |ms: f64| Round {
            stock: stock(ms),
            accelerated: sample(ms, split),
            stock_again: Some(stock(ms * 1.01)),
            decode_steps_ms: Vec::new(),
        };
        Length {
            prompt_tokens: 2048,
            rounds: [100.0, 101.0, 99.0, 140.0, 100.0].map(round).into(),
            largest_error: 1e-5,
            first_difference,
        }
    }

    #[test]
    fn medians_are_of_calls_next_to_each_other() {
        let verdict = Verdict::from(&length(None));
        let speed_up = verdict.speed_up.unwrap();
        assert!((speed_up.value - 1.5).abs() < 1e-9 && speed_up.low > 1.4 && speed_up.high < 1.6);
        assert!((verdict.accelerated_ms.unwrap().value - 100.0).abs() < 1e-9);
        assert!((verdict.decode.unwrap().value - 1.0).abs() < 1e-9);
        let own = &verdict.self_comparison;
        assert!((own.speed_up.unwrap().value - 1.0 / 1.01).abs() < 1e-9 && own.decode.is_some());
        assert_eq!((verdict.split_chunks, verdict.chunks, verdict.rounds), (10, 10, 5));
        assert!(verdict.is_faithful());
    }

    #[test]
    fn decoding_is_judged_by_steps_in_turn() {
        let mut length = length(None);
        // The machine slows down all the while; every accelerated step takes 2 % longer.
        let step = |place: u32, slower: f64| 20.0 * slower * 1.001_f64.powf(f64::from(place));
        for round in &mut length.rounds {
            let quadruple = |first| {
                [step(first, 1.0), step(first + 1, 1.02), step(first + 2, 1.02), step(first + 3, 1.0)]
            };
            round.decode_steps_ms = [0, 4, 8, 12].map(quadruple).into();
        }
        let verdict = Verdict::from(&length);
        assert!((verdict.decode.unwrap().value - 1.0 / 1.02).abs() < 1e-9);
        assert!((verdict.self_comparison.decode.unwrap().value - 1.0).abs() < 1e-9);
        assert_eq!(verdict.decode_pairs, 20);
    }

    #[test]
    fn without_a_second_call_of_stock_nothing_is_said_of_the_noise() {
        let mut length = length(None);
        length.rounds.iter_mut().for_each(|round| round.stock_again = None);
        let own = Verdict::from(&length).self_comparison;
        assert!(own.speed_up.is_none() && own.decode.is_none());
    }

    #[test]
    fn a_token_may_differ_within_the_measured_error_only() {
        let differs = |gap| {
            let difference = Difference { step: 3, stock_token: 1, other_token: 2, gap };
            Verdict::from(&length(Some(difference))).is_faithful()
        };
        assert!(differs(1.9e-5) && !differs(2.1e-5));
    }
}
