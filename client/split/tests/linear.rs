//! `split_matmul` and `SplitLinear` on real MLX.

#![allow(clippy::unwrap_used)]

use fusion_calibrations::{
    sample::Unit,
    shape::{Layout, WeightFormat},
};
use fusion_split::{
    PairKind, SplitError, SplitLinear, Units, Weight, WorkFactor, split_matmul, split_matmul_sampled,
};
use mlx_rs::{Array, Dtype};

fn numbers(shape: &[i32], seed: u32, dtype: Dtype) -> Array {
    let count: i32 = shape.iter().product();
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    let numbers: Vec<f32> = (0..count).map(|_| next()).collect();
    Array::from_slice(&numbers, shape).as_dtype(dtype).unwrap()
}

fn development() -> Units {
    Units::open(PairKind::Development).unwrap()
}

fn assert_close(units: &Units, result: &Array, reference: &Array, weight: &Weight) {
    assert_eq!(result.shape(), reference.shape());
    let bound = weight.layer().format().relative_error_bound(weight.layer().inputs());
    let error = units.relative_error(result, reference).unwrap();
    assert!(error <= bound, "error {error:e}, bound {bound:e}");
}

#[test]
fn any_share_of_a_lazy_input_gives_the_stock_product() {
    let units = development();
    for dtype in [Dtype::Float32, Dtype::Float16, Dtype::Bfloat16] {
        let weight = Weight::plain(numbers(&[40, 64], 1, dtype), Layout::OutputsByInputs).unwrap();
        // Lazy: what a layer in the middle of a network gets.
        let x = numbers(&[37, 64], 2, dtype).multiply(numbers(&[64], 3, dtype)).unwrap();
        let whole = split_matmul(&units, &x, &weight, 0).unwrap();
        for rows in [1, 18, 36, 37] {
            assert_close(&units, &split_matmul(&units, &x, &weight, rows).unwrap(), &whole, &weight);
            for first in [Unit::Primary, Unit::Secondary] {
                let (result, sampled) = split_matmul_sampled(&units, &x, &weight, rows, first).unwrap();
                assert_close(&units, &result, &whole, &weight);
                assert_eq!(sampled.is_some(), rows < 37);
                let Some(sampled) = sampled else { continue };
                assert_eq!(sampled.layer, weight.layer());
                assert_eq!((sampled.observation.rows, sampled.observation.secondary_rows), (37, rows));
                assert_eq!(sampled.observation.finish_times.first_waited, first);
                assert!(sampled.observation.finish_times.primary_ms <= sampled.observation.total_ms);
            }
        }
    }
}

#[test]
fn leading_dimensions_are_rows_and_come_back() {
    let units = development();
    let weight = Weight::plain(numbers(&[64, 24], 1, Dtype::Float32), Layout::InputsByOutputs).unwrap();
    for leading in [vec![], vec![6], vec![2, 5], vec![3, 1, 4]] {
        let shape: Vec<i32> = leading.iter().copied().chain([64]).collect();
        let x = numbers(&shape, 2, Dtype::Float32);
        let whole = split_matmul(&units, &x, &weight, 0).unwrap();
        assert_eq!(whole.shape().split_last(), Some((&24, leading.as_slice())));
        assert_close(&units, &split_matmul(&units, &x, &weight, 1).unwrap(), &whole, &weight);
    }
}

#[test]
fn the_asymmetric_pair_computes_the_same() {
    let units = Units::open(PairKind::Asymmetric(WorkFactor::new(3.5).unwrap())).unwrap();
    let weight = Weight::plain(numbers(&[40, 64], 1, Dtype::Float32), Layout::OutputsByInputs).unwrap();
    let x = numbers(&[30, 64], 2, Dtype::Float32);
    let whole = split_matmul(&units, &x, &weight, 0).unwrap();
    for rows in [1, 6, 9, 20, 30] {
        assert_close(&units, &split_matmul(&units, &x, &weight, rows).unwrap(), &whole, &weight);
    }
}

#[test]
fn a_bias_is_added_once() {
    let units = development();
    let (weight, bias) = (numbers(&[40, 64], 1, Dtype::Float32), numbers(&[40], 4, Dtype::Float32));
    let (with, without) = (
        SplitLinear::new(weight.clone(), Some(bias.clone())).unwrap(),
        SplitLinear::new(weight, None).unwrap(),
    );
    let x = numbers(&[9, 64], 2, Dtype::Float32);
    for rows in [0, 4, 9] {
        let difference =
            with.split(&units, &x, rows).unwrap().subtract(without.split(&units, &x, rows).unwrap()).unwrap();
        let expected = bias.add(Array::from_slice(&[0f32; 9 * 40], &[9, 40])).unwrap();
        assert!(units.relative_error(&difference, &expected).unwrap() < 1e-5);
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let units = development();
    let weight = Weight::plain(numbers(&[40, 64], 1, Dtype::Float32), Layout::OutputsByInputs).unwrap();
    let x = numbers(&[9, 63], 2, Dtype::Float32);
    let error = split_matmul(&units, &x, &weight, 0).unwrap_err();
    assert!(error.to_string().contains("must be 64"), "{error}");
    let error = split_matmul(&units, &numbers(&[9, 64], 2, Dtype::Float32), &weight, 10).unwrap_err();
    assert!(matches!(error, SplitError::TooManyRows { secondary_rows: 10, .. }), "{error}");
    let integers = Array::from_slice(&[1, 2, 3, 4], &[2, 2]);
    assert!(Weight::plain(integers, Layout::OutputsByInputs).is_err());
    assert!(Weight::plain(numbers(&[4], 1, Dtype::Float32), Layout::OutputsByInputs).is_err());
    let bias = Some(numbers(&[39], 1, Dtype::Float32));
    assert!(SplitLinear::new(numbers(&[40, 64], 1, Dtype::Float32), bias).is_err());
}

#[test]
fn quantised_arrays_must_fit_together() {
    let units = development();
    let plain = numbers(&[64, 128], 1, Dtype::Float16);
    let (packed, scales, biases) = mlx_rs::ops::quantize(&plain, 64, 4).unwrap();
    let weight = Weight::affine(packed.clone(), scales.clone(), biases.clone(), 4, 64).unwrap();
    assert_eq!(weight.layer().format(), WeightFormat::Affine { bits: 4, group: 64 });
    assert_eq!((weight.layer().inputs(), weight.layer().outputs()), (128, 64));
    let x = numbers(&[11, 128], 2, Dtype::Float16);
    let whole = split_matmul(&units, &x, &weight, 0).unwrap();
    assert_close(&units, &split_matmul(&units, &x, &weight, 5).unwrap(), &whole, &weight);
    assert!(Weight::affine(packed, scales, biases, 8, 64).is_err());
}
