//! A linear layer whose rows two units share, for use inside a model.

use std::time::Instant;

use fusion_calibrations::{
    live::Observation,
    sample::Unit,
    shape::{Layer, Layout},
};
use mlx_rs::{Array, ops::indexing::IndexOp as _, transforms, with_stream};

use crate::{
    Units, Weight,
    error::{Doing as _, SplitError},
    parts::{self, Parts},
    product::ms_since,
};

/// What one sampled split tells about both units.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampled {
    /// What the rows went through.
    pub layer: Layer,
    /// The rows, both units' finish times, and when the joined result was there.
    pub observation: Observation,
}

/// `x · weight`, the first `secondary_rows` of its rows on the secondary unit, the rest on the primary one. `x` is `[..., K]`,
/// all but its last dimension are rows; the result is `[..., N]` and lazy, its parts already submitted.
///
/// `x` is materialised first: MLX runs both units at once only on what is already there. Several layers that read the same
/// `x` pay for that once. With `secondary_rows` 0 nothing is materialised or submitted: it is the stock product on the
/// primary unit.
///
/// The rows come from the caller, who has them from the row rule: never compute them here from a ratio.
///
/// # Errors
/// [`SplitError::Input`] or [`SplitError::TooManyRows`]; [`SplitError::Mlx`] if MLX fails.
pub fn split_matmul(
    units: &Units,
    x: &Array,
    weight: &Weight,
    secondary_rows: u32,
) -> Result<Array, SplitError> {
    run(units, x, weight, secondary_rows, None).map(|(result, _)| result)
}

/// [`split_matmul`] that waits for both units, `first` for the one named, to see when they finish, and for the joined result.
/// Before, it waits for all that was submitted earlier, so that the times are those of this product. Nothing is sampled
/// unless both units have rows.
///
/// # Errors
/// As [`split_matmul`].
pub fn split_matmul_sampled(
    units: &Units,
    x: &Array,
    weight: &Weight,
    secondary_rows: u32,
    first: Unit,
) -> Result<(Array, Option<Sampled>), SplitError> {
    run(units, x, weight, secondary_rows, Some(first))
}

fn run(
    units: &Units,
    x: &Array,
    weight: &Weight,
    secondary_rows: u32,
    sample: Option<Unit>,
) -> Result<(Array, Option<Sampled>), SplitError> {
    let input = Input::of(x, weight)?;
    if secondary_rows == 0 {
        let product = with_stream(units.primary(), || weight.product(&input.flat()?))?;
        return Ok((input.restored(units, product, weight)?, None));
    }
    let shape = weight.layer().with_rows(input.rows)?;
    if secondary_rows > shape.rows() {
        return Err(SplitError::TooManyRows { secondary_rows, shape });
    }
    materialise(x)?;
    let product = |rows: &Array| weight.product(rows);
    let (joined, observation) = if secondary_rows == shape.rows() {
        (submit_to_secondary(units, &input, secondary_rows, &product)?, None)
    } else if let Some(first) = sample {
        let (joined, observation) = both_sampled(units, &input, secondary_rows, first, &product)?;
        (joined, Some(observation))
    } else {
        (submit_to_both(units, &input, secondary_rows, &product)?.join(units)?, None)
    };
    let sampled = observation.map(|observation| Sampled { layer: weight.layer(), observation });
    Ok((input.restored(units, joined, weight)?, sampled))
}

fn submit_to_both(
    units: &Units,
    input: &Input<'_>,
    secondary_rows: u32,
    work: Work<'_>,
) -> Result<Parts, SplitError> {
    Parts::submit(
        units,
        || work(&input.part(secondary_rows as i32, input.rows)?),
        || secondary_work(units, input, secondary_rows, work),
    )
}

fn both_sampled(
    units: &Units,
    input: &Input<'_>,
    secondary_rows: u32,
    first: Unit,
    work: Work<'_>,
) -> Result<(Array, Observation), SplitError> {
    units.drain()?;
    let start = Instant::now();
    let parts = submit_to_both(units, input, secondary_rows, work)?;
    let joined = parts.submit_join(units)?;
    let finish_times = parts.wait(start, first)?;
    parts::wait(&joined)?;
    let total_ms = ms_since(start);
    let rows = input.rows as u32;
    Ok((joined, Observation { rows, secondary_rows, total_ms, finish_times }))
}

fn submit_to_secondary(
    units: &Units,
    input: &Input<'_>,
    rows: u32,
    work: Work<'_>,
) -> Result<Array, SplitError> {
    parts::submit(with_stream(units.secondary(), || secondary_work(units, input, rows, work))?)
}

/// The first `rows` rows on the stream in scope, with the ballast of an asymmetric pair. As long as there are enough rows the
/// ballast is part of the same work, as in [`crate::Operands`]; beyond them it is work of its own, which the stream runs
/// before.
fn secondary_work(units: &Units, input: &Input<'_>, rows: u32, work: Work<'_>) -> Result<Array, SplitError> {
    let worked = units.worked_rows(rows) as i32;
    let whole = worked.min(input.rows);
    let mut ballast = worked - whole;
    while ballast > 0 {
        let some = ballast.min(input.rows);
        parts::submit(work(&input.part(0, some)?)?)?;
        ballast -= some;
    }
    let result = work(&input.part(0, whole)?)?;
    Ok(if whole == rows as i32 { result } else { result.index(0..rows as i32) })
}

/// What a unit does with its rows: `[m, K]` to `[m, N]`, each row for itself, lazily, on the stream in scope.
type Work<'a> = &'a dyn Fn(&Array) -> Result<Array, SplitError>;

fn materialise(x: &Array) -> Result<(), SplitError> {
    transforms::eval([x]).doing("materialising the input of a split")
}

/// Any work that does each row for itself, such as a whole feed-forward part: the first `secondary_rows` rows of `x` `[M, K]` on
/// the secondary unit, the rest on the primary one. One boundary and one joining for all of it.
pub(crate) fn split_rows(
    units: &Units,
    x: &Array,
    secondary_rows: u32,
    work: Work<'_>,
) -> Result<Array, SplitError> {
    let input = Input { array: x, rows: x.dim(0), inputs: x.dim(1) };
    materialise(x)?;
    if secondary_rows == input.rows as u32 {
        return submit_to_secondary(units, &input, secondary_rows, work);
    }
    submit_to_both(units, &input, secondary_rows, work)?.join(units)
}

/// An input as the rows that it is.
struct Input<'a> {
    array: &'a Array,
    rows: i32,
    inputs: i32,
}

impl<'a> Input<'a> {
    fn of(array: &'a Array, weight: &Weight) -> Result<Self, SplitError> {
        let layer = weight.layer();
        let inputs = layer.inputs() as i32;
        match array.shape().split_last() {
            Some((last, leading)) if *last == inputs => {
                Ok(Self { array, rows: leading.iter().product(), inputs })
            }
            _ => Err(SplitError::Input { shape: array.shape().to_vec(), layer }),
        }
    }

    /// `[M, K]`, on the stream in scope: a view that another unit made would have to be waited for.
    fn flat(&self) -> Result<Array, SplitError> {
        if self.array.ndim() == 2 {
            return Ok(self.array.clone());
        }
        self.array.reshape(&[self.rows, self.inputs]).doing("flattening an input")
    }

    /// The rows from `start` to before `end`, `[end - start, K]`, on the stream in scope.
    fn part(&self, start: i32, end: i32) -> Result<Array, SplitError> {
        let flat = self.flat()?;
        Ok(if end - start == self.rows { flat } else { flat.index(start..end) })
    }

    /// `[M, N]` with the input's leading dimensions again.
    fn restored(&self, units: &Units, product: Array, weight: &Weight) -> Result<Array, SplitError> {
        let Some((_, leading)) = self.array.shape().split_last().filter(|_| self.array.ndim() != 2) else {
            return Ok(product);
        };
        let shape: Vec<i32> = leading.iter().copied().chain([weight.layer().outputs() as i32]).collect();
        with_stream(units.primary(), || product.reshape(&shape)).doing("restoring a result's shape")
    }
}

/// A linear layer: weights and, if it has one, a bias.
#[derive(Debug, Clone)]
pub struct SplitLinear {
    weight: Weight,
    /// `[N]`.
    bias: Option<Array>,
}

impl SplitLinear {
    /// A layer of plain weights `[N, K]`, as `nn.Linear` keeps them, and a bias `[N]`.
    ///
    /// # Errors
    /// [`SplitError::Weights`] if these are not such arrays.
    pub fn new(weight: Array, bias: Option<Array>) -> Result<Self, SplitError> {
        Self::with_weight(Weight::plain(weight, Layout::OutputsByInputs)?, bias)
    }

    /// A layer of any weights and a bias `[N]`.
    ///
    /// # Errors
    /// [`SplitError::Weights`] if the bias has another shape.
    pub fn with_weight(weight: Weight, bias: Option<Array>) -> Result<Self, SplitError> {
        let outputs = weight.layer().outputs() as i32;
        match &bias {
            Some(bias) if bias.shape() != [outputs] => Err(SplitError::Weights {
                reason: format!("the bias has shape {:?}, not [{outputs}]", bias.shape()),
            }),
            _ => Ok(Self { weight, bias }),
        }
    }

    /// Its weights.
    pub fn weight(&self) -> &Weight {
        &self.weight
    }

    /// The stock layer, lazy, on the stream in scope: `x` `[M, K]` to `[M, N]`.
    pub(crate) fn stock(&self, x: &Array) -> Result<Array, SplitError> {
        self.with_bias(self.weight.product(x)?)
    }

    /// [`split_matmul`], and the bias.
    ///
    /// # Errors
    /// As [`split_matmul`].
    pub fn split(&self, units: &Units, x: &Array, secondary_rows: u32) -> Result<Array, SplitError> {
        let product = split_matmul(units, x, &self.weight, secondary_rows)?;
        with_stream(units.primary(), || self.with_bias(product))
    }

    /// [`split_matmul_sampled`], and the bias.
    ///
    /// # Errors
    /// As [`split_matmul`].
    pub fn split_sampled(
        &self,
        units: &Units,
        x: &Array,
        secondary_rows: u32,
        first: Unit,
    ) -> Result<(Array, Option<Sampled>), SplitError> {
        let (product, observation) = split_matmul_sampled(units, x, &self.weight, secondary_rows, first)?;
        Ok((with_stream(units.primary(), || self.with_bias(product))?, observation))
    }

    fn with_bias(&self, product: Array) -> Result<Array, SplitError> {
        match &self.bias {
            Some(bias) => product.add(bias).doing("adding a bias"),
            None => Ok(product),
        }
    }
}
