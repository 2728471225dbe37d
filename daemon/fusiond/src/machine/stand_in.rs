//! A machine that is data: recorded grids, or a model of a machine. Its calls take no time.

use fusion_calibrations::machine;
use fusion_calibrations::noise::Noise;
use fusion_calibrations::recorded::{self, Grid};
use fusion_calibrations::sample::Sample;
use fusion_calibrations::search::{Ask, Budget, Candidates, Evidence};
use fusion_calibrations::shape::{Layer, Shape};
use fusion_calibrations::stats::PRIOR_RELATIVE_DEVIATION;

use super::{MachineChoice, Terms};
use crate::table::Identity;
use crate::worker::WorkerError;

/// A shape that there is no data of.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this {machine} has no data of it: {instead}")]
pub struct UnknownShape {
    machine: &'static str,
    instead: String,
}

/// A machine that is data, for one job: it starts cool, and its noise is that of the job's number.
#[derive(Debug)]
pub struct StandIn {
    identity: Identity,
    source: Source,
    prepared: Option<Prepared>,
}

#[derive(Debug)]
enum Source {
    Recorded(&'static recorded::Machine, Noise),
    Modelled(Box<machine::Machine>),
}

#[derive(Debug, Clone, Copy)]
struct Prepared {
    shape: Shape,
    grid: Option<&'static Grid>,
}

impl StandIn {
    /// The stand-in that was chosen, for job number `job`; `None` if the worker was.
    pub fn new(choice: &MachineChoice, job: u64) -> Option<Self> {
        let identity = choice.stand_in()?;
        let source = match choice {
            MachineChoice::Worker => return None,
            MachineChoice::Recorded(machine, _) => {
                Source::Recorded(machine, Noise::for_use(job, &machine.name))
            }
            MachineChoice::Modelled(prior) => {
                Source::Modelled(Box::new(machine::Machine::named(&prior.name, job)?))
            }
        };
        Some(Self { identity, source, prepared: None })
    }

    /// Who it is.
    pub fn identity(&self) -> Identity {
        self.identity.clone()
    }

    /// Gets ready for calls of `shape`.
    ///
    /// # Errors
    /// [`UnknownShape`], naming what there is instead.
    pub fn prepare(&mut self, shape: Shape) -> Result<Terms, UnknownShape> {
        let (grid, terms) = match &self.source {
            Source::Recorded(machine, _) => {
                let unknown = |_| UnknownShape {
                    machine: "recorded machine",
                    instead: recorded_instead(machine, shape),
                };
                let grid = machine.grid(shape).map_err(unknown)?;
                // A grid knows nothing but totals, at a handful of ratios.
                let terms = Terms {
                    evidence: Evidence::Totals,
                    candidates: Candidates::Rows(grid.split_rows()),
                    budget: Budget::totals(),
                };
                (Some(grid), terms)
            }
            Source::Modelled(machine) if machine.lines(shape).is_some() => (None, Terms::with_finish_times()),
            Source::Modelled(_) => {
                let instead = "it knows f16 and bf16 weights, so repeat with --format f16".to_owned();
                return Err(UnknownShape { machine: "machine model", instead });
            }
        };
        self.prepared = Some(Prepared { shape, grid });
        Ok(terms)
    }

    /// Makes one call.
    ///
    /// # Errors
    /// [`WorkerError::Nonsense`] for a call that [`Self::prepare`] did not allow.
    pub fn call(&mut self, ask: Ask) -> Result<Sample, WorkerError> {
        let sample = self.prepared.and_then(|prepared| match &mut self.source {
            Source::Recorded(_, noise) => prepared.grid?.call(ask, noise, PRIOR_RELATIVE_DEVIATION),
            Source::Modelled(machine) => machine.call(prepared.shape, ask),
        });
        sample.ok_or_else(|| WorkerError::Nonsense(format!("there is no data for {ask:?}")))
    }
}

/// What was recorded, nearest to what was asked for.
fn recorded_instead(machine: &recorded::Machine, shape: Shape) -> String {
    let sizes = |layer: Layer| (layer.inputs(), layer.outputs());
    let mut all: Vec<Shape> = machine.grids.iter().map(|grid| grid.shape).collect();
    all.sort_by_key(|known| (known.layer(), known.rows()));
    all.dedup();
    let of_layer: Vec<Shape> =
        all.iter().copied().filter(|known| sizes(known.layer()) == sizes(shape.layer())).collect();
    let Some(first) = of_layer.first() else {
        let mut layers: Vec<String> = all
            .iter()
            .map(|known| format!("{}x{}", known.layer().inputs(), known.layer().outputs()))
            .collect();
        layers.dedup();
        return format!("recorded are the layers {} (inputs x outputs)", layers.join(", "));
    };
    let rows: Vec<String> = of_layer.iter().map(|known| known.rows().to_string()).collect();
    let layer = first.layer();
    format!(
        "of a layer of this size are recorded {} rows, {} weights in layout {}",
        rows.join(", "),
        layer.format(),
        layer.layout()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use fusion_calibrations::sample::Unit;
    use fusion_calibrations::shape::{Layout, WeightFormat};

    fn shape(text: &str, format: WeightFormat) -> Shape {
        Shape::parse(text, format, Layout::default()).unwrap()
    }

    fn stand_in(name: &str) -> StandIn {
        StandIn::new(&name.parse().unwrap(), 1).unwrap()
    }

    #[test]
    fn what_was_not_recorded_is_refused_with_what_was() {
        let mut machine = stand_in("recorded:m4-pro");
        let mut refused = |text, format| machine.prepare(shape(text, format)).unwrap_err().to_string();
        let rows = refused("2000x4096x14336", WeightFormat::F16);
        assert!(rows.contains("recorded 1024, 2048, 4096, 8192 rows, f16 weights"), "{rows}");
        let format = refused("2048x4096x14336", WeightFormat::F32);
        assert!(format.contains("f16 weights in layout nk"), "{format}");
        let layer = refused("2048x4096x1024", WeightFormat::F16);
        assert!(layer.contains("the layers 1600x1600, 1600x6400, 4096x4096"), "{layer}");
        let modelled = stand_in("model:m1").prepare(shape("64x64x64", WeightFormat::F32)).unwrap_err();
        assert!(modelled.to_string().contains("--format f16"), "{modelled}");
    }

    #[test]
    fn a_grid_answers_at_its_ratios_only_and_with_totals_only() {
        let mut machine = stand_in("recorded:m4-pro");
        let terms = machine.prepare(shape("1024x4096x4096", WeightFormat::F16)).unwrap();
        let Candidates::Rows(rows) = terms.candidates else { panic!("{terms:?}") };
        assert_eq!((terms.evidence, rows.len()), (Evidence::Totals, 9));
        let split = |secondary_rows| Ask::Split { secondary_rows, first_waited: Unit::Primary };
        assert_eq!(machine.call(split(rows[0])).unwrap().finish_times, None);
        assert!(machine.call(split(rows[0] + 1)).is_err());
        assert!(stand_in("recorded:m1").call(Ask::Stock).is_err());
    }

    #[test]
    fn a_job_is_repeatable_and_another_one_is_noisy_in_its_own_way() {
        let first = |job| {
            let mut machine = StandIn::new(&"model:m4".parse().unwrap(), job).unwrap();
            machine.prepare(shape("512x4096x4096", WeightFormat::Bf16)).unwrap();
            machine.call(Ask::Stock).unwrap().total_ms
        };
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
    }
}
