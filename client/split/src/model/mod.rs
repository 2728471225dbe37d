//! A stack of Llama decoder blocks with synthetic weights, which runs prefill chunks and decode steps through a [`Policy`].
//!
//! It has the geometry of a real model, grouped-query attention, rotary positions, RMSNorm, a causal mask and SwiGLU. It has no
//! embedding and no output head: hidden states go in and come out. Prefill drops the head anyway.
//!
//! A region is one call of [`Model::run`]: the stack, or the part of it that is wanted. It is timed from materialised hidden states and
//! cache to materialised results. What stock would never compute (everything after the last block's keys and values, if only the
//! cache is wanted) no arm computes.

mod block;
mod compiled;
mod geometry;

use std::time::Instant;

use mlx_rs::{Array, transforms, with_stream};

use crate::{
    Arm, Call, Policy, Sampled, Units,
    error::{Doing as _, SplitError},
    operands::noise,
    product::ms_since,
    weight::activation_dtype,
};

pub(crate) use block::swiglu;
use block::{Block, Linears, Split, Stock};
use compiled::CompiledBlock;
pub use geometry::Geometry;

/// What a call is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// The cache only, as for every prefill chunk but the last.
    Cache,
    /// The hidden states of all rows as well.
    Hidden,
}

/// What one call yields, materialised.
#[derive(Debug)]
pub struct Ran {
    /// `[M, hidden]`, if wanted.
    pub hidden: Option<Array>,
    /// The arm that ran.
    pub arm: Arm,
    /// Wall time between materialised boundaries, in ms.
    pub total_ms: f64,
    /// How many splits were sampled.
    pub sampled: usize,
}

/// Keys and values of the rows so far: one pair `[1, kv_heads, rows, head_dim]` a block, materialised.
#[derive(Debug, Clone)]
pub struct Cache(Vec<Option<(Array, Array)>>);

impl Cache {
    /// Rows that went through the model.
    pub fn rows(&self) -> u32 {
        self.0.iter().flatten().next().map_or(0, |(keys, _)| keys.dim(2) as u32)
    }

    /// Keys and values of one block, `[1, kv_heads, rows, head_dim]` each; `None` before the first rows, or if there is no such
    /// block.
    pub fn block(&self, index: usize) -> Option<(&Array, &Array)> {
        self.0.get(index)?.as_ref().map(|(keys, values)| (keys, values))
    }

    fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.0.iter().flatten().flat_map(|(keys, values)| [keys, values])
    }
}

/// The stack. Like all MLX objects it stays on one thread.
#[derive(Debug)]
pub struct Model {
    /// The regions' names: all rows' hidden states, and the cache only.
    regions: [String; 2],
    geometry: Geometry,
    blocks: Vec<Block>,
    compiled: CompiledBlock,
}

impl Model {
    /// The first `blocks` blocks of a model with random weights, the same for the same `seed`. All of them are made now.
    ///
    /// # Errors
    /// [`SplitError::Mlx`] if they cannot be made, for want of memory say.
    pub fn synthetic(
        units: &Units,
        geometry: &Geometry,
        blocks: usize,
        seed: u64,
    ) -> Result<Self, SplitError> {
        // Far enough apart that no two blocks share a seed.
        let seeds = (0..blocks as u64).map(|index| seed.wrapping_add(index * 1000));
        let made: Result<Vec<_>, _> =
            with_stream(units.primary(), || seeds.map(|seed| Block::synthetic(geometry, seed)).collect());
        Ok(Self {
            regions: region_names(geometry, blocks),
            blocks: made?,
            compiled: CompiledBlock::new(geometry, units.primary()),
            geometry: geometry.clone(),
        })
    }

    /// The name of the region that the policy is asked about. It says all that decides how long a row takes, since what is learned of a
    /// region is kept under its name.
    pub fn region(&self, wanted: Wanted) -> &str {
        match wanted {
            Wanted::Hidden => &self.regions[0],
            Wanted::Cache => &self.regions[1],
        }
    }

    /// What it is built of.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// A cache without rows.
    pub fn empty_cache(&self) -> Cache {
        Cache(vec![None; self.blocks.len()])
    }

    /// Random hidden states `[rows, hidden]`, materialised.
    ///
    /// # Errors
    /// [`SplitError::Mlx`] if MLX fails.
    pub fn synthetic_hidden(&self, units: &Units, rows: u32, seed: u64) -> Result<Array, SplitError> {
        let dtype = activation_dtype(self.geometry.format());
        with_stream(units.primary(), || noise(&[rows as i32, self.geometry.hidden() as i32], dtype, seed))
    }

    /// Sends `hidden` `[M, hidden]` through the stack, after the rows that `cache` holds, the way `policy` decides, and appends to
    /// the cache. The policy is told how long it took. If it fails the cache is as before.
    ///
    /// # Errors
    /// [`SplitError::ForeignCache`], [`SplitError::Input`], [`SplitError::TooManyRows`] if the policy asks for them;
    /// [`SplitError::Mlx`] if MLX fails.
    pub fn run(
        &mut self,
        units: &Units,
        hidden: &Array,
        cache: &mut Cache,
        wanted: Wanted,
        policy: &mut dyn Policy,
    ) -> Result<Ran, SplitError> {
        if cache.0.len() != self.blocks.len() {
            return Err(SplitError::ForeignCache { found: cache.0.len(), blocks: self.blocks.len() });
        }
        let inputs = std::iter::once(hidden).chain(cache.arrays());
        transforms::eval(inputs).doing("materialising the inputs of a region")?;
        let (rows, delay) = (hidden.dim(0) as u32, units.run_queue_delay());
        let mut sampled = Vec::new();

        let start = Instant::now();
        let arm = policy.arm(self.region(wanted), rows);
        let (out, grown) = self.build(units, hidden, cache, wanted, arm, policy, &mut sampled)?;
        let outputs = out.iter().chain(grown.arrays());
        transforms::eval(outputs).doing("computing a region")?;
        let total_ms = ms_since(start);

        *cache = grown;
        let run_queue_delay_ms = units.delay_since(delay);
        let region = self.region(wanted);
        policy.finished(&Call { region, rows, arm, total_ms, run_queue_delay_ms, sampled: &sampled });
        Ok(Ran { hidden: out, arm, total_ms, sampled: sampled.len() })
    }

    /// The lazy results; in the split, those after the last boundary.
    #[allow(clippy::too_many_arguments, reason = "one private call, and a struct would only rename it")]
    fn build(
        &mut self,
        units: &Units,
        hidden: &Array,
        cache: &Cache,
        wanted: Wanted,
        arm: Arm,
        policy: &mut dyn Policy,
        sampled: &mut Vec<Sampled>,
    ) -> Result<(Option<Array>, Cache), SplitError> {
        let offset = Array::from_int(cache.rows() as i32);
        let mut linears: Box<dyn Linears + '_> = match arm {
            Arm::Split => Box::new(Split { units, policy, sampled }),
            Arm::Compiled | Arm::Eager => Box::new(Stock),
        };
        let (mut hidden, mut grown) = (hidden.clone(), Vec::with_capacity(self.blocks.len()));
        for (index, block) in self.blocks.iter().enumerate() {
            let past = cache.block(index);
            let last = index + 1 == self.blocks.len();
            if last && wanted == Wanted::Cache {
                let attended = with_stream(units.primary(), || {
                    block.keys_and_values(&self.geometry, &hidden, &offset, past, &mut *linears)
                })?;
                grown.push(Some(attended));
                return Ok((None, Cache(grown)));
            }
            let (next, keys, values) = if arm == Arm::Compiled {
                self.compiled.run(block, &hidden, &offset, past)?
            } else {
                with_stream(units.primary(), || {
                    block.forward(&self.geometry, &hidden, &offset, past, &mut *linears)
                })?
            };
            hidden = next;
            grown.push(Some((keys, values)));
        }
        Ok(((wanted == Wanted::Hidden).then_some(hidden), Cache(grown)))
    }
}

fn region_names(geometry: &Geometry, blocks: usize) -> [String; 2] {
    let (name, format, all) = (geometry.name(), geometry.format(), geometry.blocks());
    let part = if blocks == all { String::new() } else { format!(", {blocks} of {all} blocks") };
    [format!("{name}/prefill {format}{part}"), format!("{name}/cache {format}{part}")]
}

#[cfg(test)]
mod tests;
