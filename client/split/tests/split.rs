//! Real products on real MLX: what is split must equal what is not.

#![allow(clippy::unwrap_used)]

use fusion_calibrations::{
    chip::Pair,
    sample::Unit,
    shape::{Layout, Shape, WeightFormat},
};
use fusion_split::{Operands, PairKind, SplitError, Units, WorkFactor, identity};

fn shape(text: &str, format: WeightFormat, layout: Layout) -> Shape {
    Shape::parse(text, format, layout).unwrap()
}

fn f32_shape(text: &str) -> Shape {
    shape(text, WeightFormat::F32, Layout::default())
}

fn asymmetric(factor: f64) -> Units {
    Units::open(PairKind::Asymmetric(WorkFactor::new(factor).unwrap())).unwrap()
}

/// Splits at several row counts, both wait orders, and checks every result against stock.
fn assert_split_is_right(units: &Units, shape: Shape) {
    let operands = Operands::synthetic(units, shape, 7).unwrap();
    let (_, whole) = units.stock(&operands).unwrap();
    let bound = shape.layer().format().relative_error_bound(shape.layer().inputs());
    let rows = shape.rows();
    for secondary_rows in [0, 1, rows / 3, rows / 2, rows - 1, rows] {
        for first in [Unit::Primary, Unit::Secondary] {
            let (timing, joined) = units.split(&operands, secondary_rows, first).unwrap();
            let error = units.compare(&joined, &whole).unwrap();
            assert!(error <= bound, "{shape}, {secondary_rows} rows: error {error:e}, bound {bound:e}");
            assert_eq!(timing.secondary_rows, secondary_rows);
            let both = secondary_rows > 0 && secondary_rows < rows;
            assert_eq!(timing.finish_times.is_some(), both);
            if let Some(times) = timing.finish_times {
                assert_eq!(times.first_waited, first);
                assert!(times.primary_ms <= timing.total_ms && times.secondary_ms <= timing.total_ms);
            }
        }
    }
}

#[test]
fn every_format_and_layout_splits_right() {
    let units = Units::open(PairKind::Development).unwrap();
    for layout in [Layout::OutputsByInputs, Layout::InputsByOutputs] {
        for format in [WeightFormat::F32, WeightFormat::F16, WeightFormat::Bf16] {
            assert_split_is_right(&units, shape("48x64x96", format, layout));
        }
        assert_split_is_right(&units, shape("333x256x200", WeightFormat::F32, layout));
    }
}

#[test]
fn ballast_changes_no_result() {
    for factor in [1.0, 1.7, 3.55] {
        assert_split_is_right(&asymmetric(factor), f32_shape("97x64x80"));
    }
}

#[test]
fn two_rows_are_enough_to_split() {
    assert_split_is_right(&Units::open(PairKind::Development).unwrap(), f32_shape("2x8x8"));
}

#[test]
fn more_rows_than_there_are_is_an_error() {
    let units = Units::open(PairKind::Development).unwrap();
    let operands = Operands::synthetic(&units, f32_shape("4x8x8"), 1).unwrap();
    let error = units.split(&operands, 5, Unit::Primary).unwrap_err();
    assert!(matches!(error, SplitError::TooManyRows { secondary_rows: 5, .. }), "{error}");
}

#[test]
fn quantised_weights_split_in_their_own_layout_only() {
    let units = Units::open(PairKind::Development).unwrap();
    for (bits, group) in [(4, 64), (8, 32)] {
        let format = WeightFormat::Affine { bits, group };
        assert_split_is_right(&units, shape("40x128x96", format, Layout::OutputsByInputs));
        let other = shape("40x128x96", format, Layout::InputsByOutputs);
        let error = Operands::synthetic(&units, other, 1).unwrap_err();
        assert!(error.to_string().contains("only supported in layout nk"), "{error}");
    }
}

#[test]
fn a_wrong_result_is_noticed() {
    let units = Units::open(PairKind::Development).unwrap();
    let product =
        |seed| units.stock(&Operands::synthetic(&units, f32_shape("16x32x32"), seed).unwrap()).unwrap().1;
    assert_eq!(units.compare(&product(1), &product(1)).unwrap(), 0.0);
    assert!(units.compare(&product(1), &product(2)).unwrap() > 0.1);
}

#[test]
fn results_of_different_shapes_do_not_compare() {
    let units = Units::open(PairKind::Development).unwrap();
    let product = |text| units.stock(&Operands::synthetic(&units, f32_shape(text), 1).unwrap()).unwrap().1;
    assert!(matches!(
        units.compare(&product("4x8x8"), &product("5x8x8")).unwrap_err(),
        SplitError::DifferentShapes { .. }
    ));
}

/// A loose check of the mechanism, not of the machine: fourfold work takes longer, the best of several tries.
#[test]
fn the_asymmetric_pairs_secondary_unit_really_works_more() {
    let units = asymmetric(4.0);
    let operands = Operands::synthetic(&units, f32_shape("256x512x512"), 1).unwrap();
    let fastest = |rows: u32| {
        let once = |_| units.split(&operands, rows, Unit::Primary).unwrap().0.total_ms;
        (0..12).map(once).fold(f64::INFINITY, f64::min)
    };
    let factor = fastest(256) / fastest(0);
    assert!(factor > 1.5, "the secondary unit took {factor:.2} times the primary's time, 4 was set");
}

#[test]
fn pairs_say_what_they_are() {
    let units = Units::open(PairKind::Development).unwrap();
    assert_eq!(units.pair(), Pair::Development);
    assert!(units.description().contains("development pair"), "{}", units.description());
    let (one, other) = (asymmetric(1.7), asymmetric(2.6));
    assert!(matches!(one.pair(), Pair::AsymmetricDevelopment { .. }));
    assert_ne!(one.pair(), other.pair());
    assert!(!one.description().contains("1.7"), "{}", one.description());
}

#[test]
fn the_engine_and_the_chip_are_identified() {
    let units = Units::open(PairKind::Development).unwrap();
    let engine = identity::engine().unwrap();
    assert_eq!(engine, identity::engine().unwrap());
    assert!(engine.mlx_version.starts_with("0.32."), "{engine:?}");
    assert_eq!(engine.library_hash.len(), 8, "{engine:?}");
    let chip = identity::chip(&units);
    assert_eq!(chip.pair, Pair::Development);
    assert!(chip.memory_gib > 0 && !chip.brand.is_empty(), "{chip:?}");
}
