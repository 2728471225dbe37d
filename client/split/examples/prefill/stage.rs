//! The model with all that a timed call needs.

use anyhow::{Result, ensure};
use fusion_calibrations::shape::Layer;
use fusion_split::{
    Arm, Policy, Units,
    model::{Cache, Model, Ran, Wanted},
};
use mlx_rs::Array;

use crate::{
    arguments::Arguments,
    gate::Sampler,
    log::Turns,
    rows::Rows,
    schedule::{Step, Turn},
};

/// A model, hidden states, and the cache that each call starts from.
pub(crate) struct Stage<'a> {
    units: &'a Units,
    model: Model,
    hidden: Array,
    cache: Cache,
    wanted: Wanted,
}

/// What the first calls showed.
pub(crate) struct WarmUp {
    /// The largest of other arms' results against the first's.
    pub(crate) relative_error: f64,
    /// An eager call.
    pub(crate) eager_ms: f64,
}

impl<'a> Stage<'a> {
    /// Fills the cache with the context.
    pub(crate) fn set(arguments: &Arguments, units: &'a Units, model: Model) -> Result<Self> {
        let hidden = model.synthetic_hidden(units, arguments.rows, 1)?;
        let cache = model.empty_cache();
        let wanted = if arguments.cache_only { Wanted::Cache } else { Wanted::Hidden };
        let mut stage = Self { units, model, hidden, cache, wanted };
        if arguments.context > 0 {
            let context = stage.model.synthetic_hidden(units, arguments.context, 2)?;
            let rows = Rows::Ratio(arguments.ratio);
            let mut eager = Turns::new(&rows, false, Sampler::new(0), None);
            stage.model.run(units, &context, &mut stage.cache, Wanted::Cache, &mut eager)?;
        }
        Ok(stage)
    }

    /// One timed call. The next one starts from the same cache.
    pub(crate) fn call(&mut self, policy: &mut dyn Policy) -> Result<Ran> {
        let mut cache = self.cache.clone();
        Ok(self.model.run(self.units, &self.hidden, &mut cache, self.wanted, policy)?)
    }

    /// Every fixed arm once, their results compared, and eager again: the very first call of a process is slow.
    pub(crate) fn warm_up(&mut self, arguments: &Arguments, rows: &Rows<'_>) -> Result<WarmUp> {
        let mut policy = Turns::new(rows, arguments.whole_ffn, Sampler::new(0), None);
        let mut call = |stage: &mut Self, turn| {
            policy.next_is(0, Step { turn, settles: true });
            stage.call(&mut policy)
        };
        let eager = Turn::Fixed(Arm::Eager);
        let reference = call(self, eager)?.hidden;
        let mut relative_error = 0f64;
        let others =
            arguments.turns().into_iter().filter(|turn| !matches!(turn, Turn::Gate) && *turn != eager);
        for turn in others {
            let hidden = call(self, turn)?.hidden;
            if let Some((hidden, reference)) = hidden.zip(reference.as_ref()) {
                relative_error = relative_error.max(self.units.relative_error(&hidden, reference)?);
            }
        }
        let bound = self.relative_error_bound();
        ensure!(
            relative_error <= bound,
            "the arms compute different results: {relative_error:.1e} apart, at most {bound:.1e}"
        );
        let again = [call(self, eager)?.total_ms, call(self, eager)?.total_ms];
        Ok(WarmUp { relative_error, eager_ms: again[0].min(again[1]) })
    }

    pub(crate) fn region(&self) -> &str {
        self.model.region(self.wanted)
    }

    pub(crate) fn blocks(&self) -> usize {
        self.model.blocks()
    }

    pub(crate) fn layers(&self) -> [Layer; 7] {
        self.model.geometry().layers()
    }

    pub(crate) fn relative_error_bound(&self) -> f64 {
        self.model.geometry().relative_error_bound() * self.model.blocks() as f64
    }
}
