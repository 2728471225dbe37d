use super::*;
use crate::sample::FinishTimes;
use crate::shape::{Layer, Layout, WeightFormat};

/// A generator of noise for tests: 64-bit LCG, Box-Muller.
struct Noise(u64);

impl Noise {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn factor(&mut self, deviation: f64) -> f64 {
        let normal = (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos();
        (deviation * normal).exp()
    }
}

fn shape(rows: u32, inputs: u32) -> Shape {
    Layer::new(inputs, 2048, WeightFormat::F32, Layout::default()).unwrap().with_rows(rows).unwrap()
}

/// A machine that tells finish times: secondary rows cost `f` times a primary row.
fn two_units(shape: Shape, f: f64, noise: &mut Noise, ask: Ask) -> Sample {
    let row = 0.01;
    let secondary_rows = ask.secondary_rows();
    let primary_part = row * f64::from(shape.rows() - secondary_rows) * noise.factor(0.01);
    let Ask::Split { first_waited, .. } = ask else {
        return Sample { secondary_rows: 0, total_ms: primary_part, finish_times: None, dropped: None };
    };
    let secondary_part = row * f * f64::from(secondary_rows) * noise.factor(0.01);
    let later = primary_part.max(secondary_part);
    let (primary_ms, secondary_ms) = match first_waited {
        Unit::Primary => (primary_part, later),
        Unit::Secondary => (later, secondary_part),
    };
    Sample {
        secondary_rows,
        total_ms: later + 0.02,
        finish_times: Some(FinishTimes { primary_ms, secondary_ms, first_waited }),
        dropped: None,
    }
}

fn drive(search: &mut Search, mut machine: impl FnMut(Ask) -> Sample) -> Outcome {
    loop {
        match search.next() {
            Step::Measure(ask) => search.tell(machine(ask)).unwrap(),
            Step::Done(outcome) => return *outcome,
        }
    }
}

#[test]
fn finish_times_find_the_balance_in_four_split_calls_and_twelve_in_all() {
    for seed in 0..50 {
        for f in [1.0, 1.3, 1.7, 2.6, 3.5, 4.0] {
            for start in [0.1, 0.3, 0.5] {
                let shape = shape(1024, 2048);
                let options =
                    Options { first_ratio: Some(Ratio::new(start).unwrap()), seed, ..Options::default() };
                let (mut search, mut noise) = (Search::new(shape, options), Noise(seed));
                let outcome = drive(&mut search, |ask| two_units(shape, f, &mut noise, ask));
                let found = outcome.ratio.get();
                assert!((found - 1.0 / (1.0 + f)).abs() <= 0.02, "f {f} from {start}: {found}, {outcome:?}");
                assert!(search.calls() <= 12);
                assert!(outcome.confirmed());
            }
        }
    }
}

#[test]
fn what_was_not_asked_is_refused() {
    let mut search = Search::new(shape(1024, 2048), Options::default());
    let sample = Sample { secondary_rows: 7, total_ms: 1.0, finish_times: None, dropped: None };
    assert_eq!(search.tell(sample), Err(SearchError::NotAsked { asked: 0, answered: 7 }));
    assert_eq!(search.calls(), 0);
}
