//! Every arm against the others, and one of them against arithmetic spelled out.

mod reference;

use fusion_calibrations::{
    models::{Linear, Model as Sizes},
    ratio::Ratio,
    rows::RowRule,
    sample::Unit,
    shape::{Shape, WeightFormat},
};

use super::*;
use crate::{Fixed, PairKind, WorkFactor};

/// Grouped queries (3 to a key), an intermediate width of its own, heads narrower than a share of the hidden width.
fn sizes() -> Sizes {
    let linear =
        |(name, inputs, outputs): (&str, u32, u32)| Linear { name: name.to_owned(), inputs, outputs };
    Sizes {
        name: "tiny".to_owned(),
        aliases: vec![],
        title: "Tiny".to_owned(),
        evidence: "made up".to_owned(),
        note: None,
        blocks: 3,
        hidden: 64,
        intermediate: 160,
        heads: 6,
        kv_heads: 2,
        head_dim: 16,
        vocabulary: 10,
        linears: [
            ("q", 64, 96),
            ("k", 64, 32),
            ("v", 64, 32),
            ("o", 96, 64),
            ("gate", 64, 160),
            ("up", 64, 160),
            ("down", 160, 64),
        ]
        .map(linear)
        .to_vec(),
    }
}

fn model(units: &Units, format: WeightFormat, blocks: usize) -> Model {
    Model::synthetic(units, &Geometry::new(&sizes(), format).unwrap(), blocks, 11).unwrap()
}

fn units() -> Units {
    Units::open(PairKind::Development).unwrap()
}

fn fixed(arm: Arm) -> Fixed {
    Fixed { arm, ratio: Ratio::new(0.4).unwrap(), rule: RowRule::default(), whole_ffn: false }
}

/// Always splits, by a rule of its own, and samples every second layer.
struct Rows {
    rows: fn(u32) -> u32,
    whole_ffn: bool,
    asked: u32,
    calls: Vec<(Arm, u32, usize)>,
}

impl Rows {
    fn new(rows: fn(u32) -> u32) -> Self {
        Self { rows, whole_ffn: false, asked: 0, calls: vec![] }
    }
}

impl Policy for Rows {
    fn arm(&mut self, region: &str, _: u32) -> Arm {
        assert!(region.starts_with("tiny/"), "{region}");
        Arm::Split
    }

    fn secondary_rows(&mut self, shape: Shape) -> u32 {
        (self.rows)(shape.rows())
    }

    fn ffn_rows(&mut self, [gate, up, down]: [Shape; 3]) -> u32 {
        assert_eq!((gate.layer().outputs(), up, down.layer().inputs()), (160, gate, 160));
        if self.whole_ffn { (self.rows)(gate.rows()) } else { 0 }
    }

    fn sample(&mut self, _: Shape) -> Option<Unit> {
        self.asked += 1;
        match self.asked % 4 {
            1 => Some(Unit::Primary),
            3 => Some(Unit::Secondary),
            _ => None,
        }
    }

    fn finished(&mut self, call: &Call<'_>) {
        for sampled in call.sampled {
            let observation = sampled.observation;
            assert_eq!(observation.rows, call.rows);
            assert_eq!(observation.secondary_rows, (self.rows)(call.rows));
            assert!(observation.total_ms <= call.total_ms);
        }
        self.calls.push((call.arm, call.rows, call.sampled.len()));
    }
}

/// A first chunk for the cache only, then one with its hidden states.
fn two_chunks(units: &Units, model: &mut Model, rows: (u32, u32), policy: &mut dyn Policy) -> (Array, Cache) {
    let mut cache = model.empty_cache();
    let (first, second) =
        [rows.0, rows.1].map(|rows| model.synthetic_hidden(units, rows, u64::from(rows)).unwrap()).into();
    let nothing = model.run(units, &first, &mut cache, Wanted::Cache, policy).unwrap();
    assert!(nothing.hidden.is_none());
    let some = model.run(units, &second, &mut cache, Wanted::Hidden, policy).unwrap();
    assert_eq!(cache.rows(), rows.0 + rows.1);
    (some.hidden.unwrap(), cache)
}

/// `worst` and `reference` agree everywhere, within the bound of one block for each.
fn assert_same(
    units: &Units,
    model: &Model,
    result: &(Array, Cache),
    reference: &(Array, Cache),
    what: &str,
) {
    let bound = model.geometry().relative_error_bound() * model.blocks() as f64;
    let close = |a: &Array, b: &Array| {
        assert_eq!(a.shape(), b.shape());
        let error = units.relative_error(a, b).unwrap();
        assert!(error <= bound, "{what}: error {error:e}, bound {bound:e}");
    };
    close(&result.0, &reference.0);
    for index in 0..model.blocks() {
        let ((keys, values), (other_keys, other_values)) =
            (result.1.block(index).unwrap(), reference.1.block(index).unwrap());
        close(keys, other_keys);
        close(values, other_values);
    }
}

fn assert_arms_agree(units: &Units, format: WeightFormat, rows: (u32, u32)) {
    let mut model = model(units, format, 2);
    let reference = two_chunks(units, &mut model, rows, &mut fixed(Arm::Eager));
    for arm in [Arm::Split, Arm::Compiled] {
        let result = two_chunks(units, &mut model, rows, &mut fixed(arm));
        assert_same(units, &model, &result, &reference, &format!("{arm}, {format}, {rows:?} rows"));
    }
    let mut whole_ffn = Fixed { whole_ffn: true, ..fixed(Arm::Split) };
    let result = two_chunks(units, &mut model, rows, &mut whole_ffn);
    assert_same(units, &model, &result, &reference, &format!("whole ffn, {format}, {rows:?} rows"));
    let shares: [fn(u32) -> u32; 5] = [|_| 0, |_| 1, |rows| rows / 2, |rows| rows - 1, |rows| rows];
    for (index, share) in shares.into_iter().enumerate() {
        for whole_ffn in [false, true] {
            let mut policy = Rows { whole_ffn, ..Rows::new(share) };
            let result = two_chunks(units, &mut model, rows, &mut policy);
            let what = format!("share {index}, whole ffn {whole_ffn}, {format}, {rows:?} rows");
            assert_same(units, &model, &result, &reference, &what);
            assert_eq!(policy.calls.len(), 2);
        }
    }
}

#[test]
fn all_arms_agree_in_every_format() {
    let units = units();
    for format in [
        WeightFormat::F32,
        WeightFormat::F16,
        WeightFormat::Bf16,
        WeightFormat::Affine { bits: 8, group: 32 },
    ] {
        assert_arms_agree(&units, format, (24, 17));
    }
}

#[test]
fn all_arms_agree_at_odd_numbers_of_rows() {
    let units = units();
    for rows in [(1, 1), (2, 1), (1, 3), (65, 30)] {
        assert_arms_agree(&units, WeightFormat::F32, rows);
    }
}

#[test]
fn the_asymmetric_pair_computes_the_same() {
    for factor in [1.7, 3.5] {
        let units = Units::open(PairKind::Asymmetric(WorkFactor::new(factor).unwrap())).unwrap();
        // With all rows and a factor of 3.5, ballast takes products of its own.
        assert_arms_agree(&units, WeightFormat::F32, (24, 17));
    }
}

#[test]
fn splits_are_sampled_where_the_policy_says() {
    let units = units();
    let mut model = model(&units, WeightFormat::F32, 2);
    let mut policy = Rows::new(|rows| rows / 3);
    two_chunks(&units, &mut model, (30, 12), &mut policy);
    // 7 linears and the last block's k and v, then 14: every second one is sampled.
    assert_eq!(policy.asked, 9 + 14);
    assert_eq!(policy.calls, [(Arm::Split, 30, 5), (Arm::Split, 12, 7)]);
    let mut policy = Rows::new(|_| 0);
    two_chunks(&units, &mut model, (30, 12), &mut policy);
    assert_eq!(policy.asked, 0);
}

#[test]
fn more_rows_than_there_are_leave_the_cache_as_it_was() {
    let units = units();
    let mut model = model(&units, WeightFormat::F32, 1);
    let mut cache = model.empty_cache();
    let hidden = model.synthetic_hidden(&units, 4, 1).unwrap();
    let error =
        model.run(&units, &hidden, &mut cache, Wanted::Hidden, &mut Rows::new(|rows| rows + 1)).unwrap_err();
    assert!(matches!(error, SplitError::TooManyRows { .. }), "{error}");
    let mut whole_ffn = Rows { whole_ffn: true, ..Rows::new(|rows| rows + 1) };
    assert!(model.run(&units, &hidden, &mut cache, Wanted::Hidden, &mut whole_ffn).is_err());
    assert_eq!(cache.rows(), 0);
    let error =
        model.run(&units, &hidden, &mut Cache(vec![]), Wanted::Hidden, &mut fixed(Arm::Eager)).unwrap_err();
    assert!(matches!(error, SplitError::ForeignCache { found: 0, blocks: 1 }), "{error}");
}

#[test]
fn a_block_is_what_a_block_should_be() {
    let units = units();
    let mut model = model(&units, WeightFormat::F32, 3);
    let (first, second) = (7, 5);
    let (hidden, _) = two_chunks(&units, &mut model, (first, second), &mut fixed(Arm::Eager));
    let inputs = [first, second]
        .into_iter()
        .flat_map(|rows| reference::rows(&model.synthetic_hidden(&units, rows, u64::from(rows)).unwrap()));
    let mut expected: Vec<Vec<f64>> = inputs.collect();
    for block in &model.blocks {
        expected = reference::forward(model.geometry(), block, &expected);
    }
    let flat: Vec<f32> = expected[first as usize..].iter().flatten().map(|x| *x as f32).collect();
    let expected = Array::from_slice(&flat, hidden.shape());
    let error = units.relative_error(&hidden, &expected).unwrap();
    assert!(error < 1e-5, "{error:e}");
}

#[test]
fn only_llamas_can_be_built() {
    let shipped = |name| fusion_calibrations::models::find(name).unwrap();
    for name in ["llama-3.2-1b", "qwen2.5-0.5b", "mistral-7b-v0.3"] {
        let geometry = Geometry::new(shipped(name), WeightFormat::F16).unwrap();
        assert_eq!(geometry.hidden(), shipped(name).hidden);
        assert_eq!(geometry.layers()[6].outputs(), geometry.hidden());
    }
    let error = Geometry::new(shipped("phi-3-mini-4k"), WeightFormat::F16).unwrap_err();
    assert!(error.to_string().contains("has no layer 'q'"), "{error}");
}

#[test]
fn what_takes_another_time_has_another_name() {
    let units = units();
    let (part, whole) = (model(&units, WeightFormat::F32, 2), model(&units, WeightFormat::F32, 3));
    assert_eq!(whole.region(Wanted::Hidden), "tiny/prefill f32");
    assert_eq!(part.region(Wanted::Cache), "tiny/cache f32, 2 of 3 blocks");
}
