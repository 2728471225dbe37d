//! One decoder block.

use fusion_calibrations::shape::Shape;
use mlx_rs::{
    Array,
    fast::{self, ScaledDotProductAttentionMask},
    ops,
};

use crate::{
    Policy, Sampled, SplitLinear, Units, Weight,
    error::{Doing as _, SplitError},
    linear::split_rows,
    operands::{noise, synthetic_weight},
    weight::activation_dtype,
};

use super::Geometry;

const EPSILON: f32 = 1e-5;

/// Llama 3's. Speed does not depend on it.
const ROPE_BASE: f32 = 500_000.0;

const DOING: &str = "building a decoder block";

/// Keys and values, `[1, kv_heads, rows, head_dim]` each.
type Past<'a> = Option<(&'a Array, &'a Array)>;

/// How a block's linear layers are multiplied, with `x` `[M, K]` and the primary unit's stream in scope.
pub(super) trait Linears {
    fn apply(&mut self, linear: &SplitLinear, x: &Array) -> Result<Array, SplitError>;

    /// All of a feed-forward part, or `None`: layer by layer.
    fn ffn(&mut self, ffn: Ffn<'_>, x: &Array) -> Result<Option<Array>, SplitError> {
        let _ = (ffn, x);
        Ok(None)
    }
}

/// The layers of a feed-forward part.
#[derive(Clone, Copy)]
pub(super) struct Ffn<'a> {
    gate: &'a SplitLinear,
    up: &'a SplitLinear,
    down: &'a SplitLinear,
}

impl Ffn<'_> {
    fn run(self, x: &Array, linears: &mut dyn Linears) -> Result<Array, SplitError> {
        let (gated, upped) = (linears.apply(self.gate, x)?, linears.apply(self.up, x)?);
        linears.apply(self.down, &swiglu(&gated, &upped)?)
    }

    fn shapes(self, rows: i32) -> Result<[Shape; 3], SplitError> {
        let shape = |linear: &SplitLinear| linear.weight().layer().with_rows(rows);
        Ok([shape(self.gate)?, shape(self.up)?, shape(self.down)?])
    }
}

/// On the stream in scope, lazily.
pub(super) struct Stock;

impl Linears for Stock {
    fn apply(&mut self, linear: &SplitLinear, x: &Array) -> Result<Array, SplitError> {
        linear.stock(x)
    }
}

/// As a policy says.
pub(super) struct Split<'a> {
    pub(super) units: &'a Units,
    pub(super) policy: &'a mut dyn Policy,
    pub(super) sampled: &'a mut Vec<Sampled>,
}

impl Linears for Split<'_> {
    fn apply(&mut self, linear: &SplitLinear, x: &Array) -> Result<Array, SplitError> {
        let shape = linear.weight().layer().with_rows(x.dim(0))?;
        let rows = self.policy.secondary_rows(shape);
        let sample = if rows == 0 { None } else { self.policy.sample(shape) };
        let Some(first) = sample else { return linear.split(self.units, x, rows) };
        let (result, sampled) = linear.split_sampled(self.units, x, rows, first)?;
        self.sampled.extend(sampled);
        Ok(result)
    }

    fn ffn(&mut self, ffn: Ffn<'_>, x: &Array) -> Result<Option<Array>, SplitError> {
        let shapes = ffn.shapes(x.dim(0))?;
        match self.policy.ffn_rows(shapes) {
            0 => Ok(None),
            rows if rows > shapes[0].rows() => {
                Err(SplitError::TooManyRows { secondary_rows: rows, shape: shapes[0] })
            }
            rows => split_rows(self.units, x, rows, &|x| ffn.run(x, &mut Stock)).map(Some),
        }
    }
}

/// The weights of one block.
#[derive(Debug)]
pub(super) struct Block {
    attention_norm: Array,
    ffn_norm: Array,
    /// q, k, v, o, gate, up, down.
    linears: [SplitLinear; 7],
}

impl Block {
    /// Random weights, materialised, made on the stream in scope.
    pub(super) fn synthetic(geometry: &Geometry, seed: u64) -> Result<Self, SplitError> {
        let mut seeds = (seed..).map(|seed| seed.wrapping_mul(10));
        let mut seed = || seeds.next().unwrap_or_default();
        let mut linear = |layer| SplitLinear::with_weight(synthetic_weight(layer, seed())?, None);
        let [q, k, v, o, gate, up, down] = geometry.layers();
        let linears =
            [linear(q)?, linear(k)?, linear(v)?, linear(o)?, linear(gate)?, linear(up)?, linear(down)?];
        let dtype = activation_dtype(geometry.format());
        let mut norm = || {
            let near_zero = noise(&[geometry.hidden() as i32], dtype, seed())?;
            let one = Array::from_f32(1.0).as_dtype(dtype).doing(DOING)?;
            let norm = near_zero.add(one).doing(DOING)?;
            norm.eval().doing(DOING)?;
            Ok::<_, SplitError>(norm)
        };
        Ok(Self { attention_norm: norm()?, ffn_norm: norm()?, linears })
    }

    /// The arrays of all weights, in a fixed order.
    pub(super) fn arrays(&self) -> impl Iterator<Item = &Array> {
        let weights = self.linears.iter().flat_map(|linear| linear.weight().arrays());
        [&self.attention_norm, &self.ffn_norm].into_iter().chain(weights)
    }

    /// A block from arrays in the order of [`Self::arrays`].
    pub(super) fn from_arrays(
        geometry: &Geometry,
        arrays: &mut impl Iterator<Item = Array>,
    ) -> Result<Self, SplitError> {
        let too_few = || SplitError::Weights { reason: "a block has more arrays".to_owned() };
        let (attention_norm, ffn_norm) = arrays.next().zip(arrays.next()).ok_or_else(too_few)?;
        let mut linear =
            |layer| SplitLinear::with_weight(Weight::from_arrays(layer, arrays).ok_or_else(too_few)?, None);
        let [q, k, v, o, gate, up, down] = geometry.layers();
        let linears =
            [linear(q)?, linear(k)?, linear(v)?, linear(o)?, linear(gate)?, linear(up)?, linear(down)?];
        Ok(Self { attention_norm, ffn_norm, linears })
    }

    /// `[M, hidden]` to `[M, hidden]`, and all keys and values with the new ones.
    pub(super) fn forward(
        &self,
        geometry: &Geometry,
        hidden: &Array,
        offset: &Array,
        past: Past<'_>,
        linears: &mut dyn Linears,
    ) -> Result<(Array, Array, Array), SplitError> {
        let [q, k, v, o, gate, up, down] = &self.linears;
        let normed = norm(hidden, &self.attention_norm)?;
        // One after the other: all parts are at work before the first result is joined.
        let (queries, keys, values) =
            (linears.apply(q, &normed)?, linears.apply(k, &normed)?, linears.apply(v, &normed)?);
        let queries = rotate(geometry, &heads(&queries, geometry.heads(), geometry)?, offset)?;
        let (keys, values) = extend(geometry, &keys, &values, offset, past)?;
        let attended = attend(geometry, &queries, &keys, &values)?;
        let hidden = hidden.add(linears.apply(o, &attended)?).doing(DOING)?;

        let normed = norm(&hidden, &self.ffn_norm)?;
        let ffn = Ffn { gate, up, down };
        let fed = match linears.ffn(ffn, &normed)? {
            Some(fed) => fed,
            None => ffn.run(&normed, linears)?,
        };
        let hidden = hidden.add(fed).doing(DOING)?;
        Ok((hidden, keys, values))
    }

    /// All keys and values with the new ones, and nothing else.
    pub(super) fn keys_and_values(
        &self,
        geometry: &Geometry,
        hidden: &Array,
        offset: &Array,
        past: Past<'_>,
        linears: &mut dyn Linears,
    ) -> Result<(Array, Array), SplitError> {
        let [_, k, v, ..] = &self.linears;
        let normed = norm(hidden, &self.attention_norm)?;
        let (keys, values) = (linears.apply(k, &normed)?, linears.apply(v, &normed)?);
        extend(geometry, &keys, &values, offset, past)
    }
}

fn norm(x: &Array, weight: &Array) -> Result<Array, SplitError> {
    fast::rms_norm(x, Some(weight), EPSILON).doing(DOING)
}

/// `[M, heads · head_dim]` to `[1, heads, M, head_dim]`.
fn heads(x: &Array, heads: i32, geometry: &Geometry) -> Result<Array, SplitError> {
    x.reshape(&[1, x.dim(0), heads, geometry.head_dim()])
        .and_then(|x| x.transpose_axes(&[0, 2, 1, 3]))
        .doing(DOING)
}

/// Positions count from `offset`, a scalar.
fn rotate(geometry: &Geometry, x: &Array, offset: &Array) -> Result<Array, SplitError> {
    fast::rope_dynamic(x, geometry.head_dim(), false, ROPE_BASE, 1.0, offset, None).doing(DOING)
}

/// The past with new keys and values `[M, kv_heads · head_dim]`.
fn extend(
    geometry: &Geometry,
    keys: &Array,
    values: &Array,
    offset: &Array,
    past: Past<'_>,
) -> Result<(Array, Array), SplitError> {
    let keys = rotate(geometry, &heads(keys, geometry.kv_heads(), geometry)?, offset)?;
    let values = heads(values, geometry.kv_heads(), geometry)?;
    let Some((old_keys, old_values)) = past else { return Ok((keys, values)) };
    let joined = |old: &Array, new: &Array| ops::concatenate(&[old, new], 2).doing(DOING);
    Ok((joined(old_keys, &keys)?, joined(old_values, &values)?))
}

/// Causal attention over all keys, `[M, heads · head_dim]`.
fn attend(geometry: &Geometry, queries: &Array, keys: &Array, values: &Array) -> Result<Array, SplitError> {
    let scale = 1.0 / (geometry.head_dim() as f32).sqrt();
    // The last query sees all keys, so a single one needs no mask.
    let mask = (queries.dim(2) > 1).then_some(ScaledDotProductAttentionMask::Causal);
    fast::scaled_dot_product_attention(queries, keys, values, scale, mask, None)
        .and_then(|x| x.transpose_axes(&[0, 2, 1, 3]))
        .and_then(|x| x.reshape(&[queries.dim(2), geometry.heads() * geometry.head_dim()]))
        .doing(DOING)
}

/// `silu(gate) · up`. Spelled out: mlx-rs's silu compiles itself anew in every call.
pub(crate) fn swiglu(gate: &Array, up: &Array) -> Result<Array, SplitError> {
    ops::sigmoid(gate).and_then(|x| x.multiply(gate)).and_then(|x| x.multiply(up)).doing(DOING)
}
