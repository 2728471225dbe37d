//! Which machine: `--machine`.

use std::str::FromStr;

use fusion_calibrations::chip::{Chip, Pair};
use fusion_calibrations::chips::{self, ChipPrior};
use fusion_calibrations::engine::Engine;
use fusion_calibrations::recorded;

use crate::table::Identity;

const RECORDED: &str = "recorded:";
const MODELLED: &str = "model:";

/// Whose calls are timed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum MachineChoice {
    /// This machine's, by the worker.
    #[default]
    Worker,
    /// Those of published grids.
    Recorded(&'static recorded::Machine, &'static ChipPrior),
    /// Those of a machine model.
    Modelled(&'static ChipPrior),
}

/// No machine has that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no machine '{name}': choose one of {known} with --machine, or leave it out to measure this machine"
)]
pub struct MachineChoiceError {
    /// What was asked for.
    name: String,
    /// Every name.
    known: String,
}

impl FromStr for MachineChoice {
    type Err = MachineChoiceError;

    fn from_str(text: &str) -> Result<Self, MachineChoiceError> {
        let found = if let Some(name) = text.strip_prefix(RECORDED) {
            recorded::find(name).zip(chips::find(name)).map(|(machine, prior)| Self::Recorded(machine, prior))
        } else {
            text.strip_prefix(MODELLED).and_then(chips::find).map(Self::Modelled)
        };
        found.ok_or_else(|| MachineChoiceError { name: text.to_owned(), known: names().join(", ") })
    }
}

fn names() -> Vec<String> {
    let recorded =
        recorded::all().unwrap_or_default().iter().map(|machine| format!("{RECORDED}{}", machine.name));
    let modelled = chips::all().unwrap_or_default().iter().map(|prior| format!("{MODELLED}{}", prior.name));
    recorded.chain(modelled).collect()
}

impl MachineChoice {
    /// Who a stand-in is; `None` for the worker, which says so itself.
    pub fn stand_in(&self) -> Option<Identity> {
        match self {
            Self::Worker => None,
            Self::Recorded(_, prior) => {
                Some(identity(prior, Pair::Recorded, "replayed from recorded grids", "data: recorded grids"))
            }
            Self::Modelled(prior) => Some(identity(
                prior,
                Pair::Modelled,
                "computed by a machine model fitted to",
                "data: machine model",
            )),
        }
    }
}

/// Whether numbers of this chip come from data instead of a worker.
pub fn is_stand_in(chip: &Chip) -> bool {
    matches!(chip.pair, Pair::Recorded | Pair::Modelled)
}

fn identity(prior: &ChipPrior, pair: Pair, how: &str, kind: &str) -> Identity {
    let sources = sources(prior);
    let units = format!(
        "GPU ({} cores) and CPU of an {}, {how} {}, in virtual time",
        prior.gpu_cores,
        prior.brand,
        sources
            .iter()
            .map(|(repository, commit)| format!("{repository}@{commit}"))
            .collect::<Vec<_>>()
            .join(", ")
    );
    let joined = |part: fn(&(&str, &str)) -> String| sources.iter().map(part).collect::<Vec<_>>().join("+");
    // The code that produced the numbers is known by the data's source: another commit of it is another engine.
    let engine = Engine {
        os_build: joined(|(repository, _)| (*repository).to_owned()),
        mlx_version: kind.to_owned(),
        library_hash: joined(|(_, commit)| (*commit).to_owned()),
    };
    Identity { chip: prior.chip(pair), engine, units }
}

/// Repositories and commits behind a chip's data, each once.
fn sources(prior: &ChipPrior) -> Vec<(&str, &str)> {
    let mut sources: Vec<(&str, &str)> = prior
        .evidence
        .iter()
        .filter_map(|source| source.split_once('@'))
        .map(|(repository, rest)| (repository, rest.split(':').next().unwrap_or(rest)))
        .collect();
    sources.sort_unstable();
    sources.dedup();
    sources
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_that_is_listed_is_a_machine_of_its_own() {
        let keys: std::collections::BTreeSet<String> = names()
            .iter()
            .map(|name| name.parse::<MachineChoice>().unwrap().stand_in().unwrap())
            .map(|identity| {
                assert!(is_stand_in(&identity.chip) && !identity.chip.pair.is_real());
                assert!(identity.units.contains("FusionML@"), "{}", identity.units);
                assert_eq!(identity.engine.library_hash.len(), 12, "{}", identity.engine);
                identity.chip.key()
            })
            .collect();
        assert_eq!(keys.len(), 10);
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        for name in ["recorded:xyz", "model:", "m4", "", "recorded:m4 "] {
            let message = name.parse::<MachineChoice>().unwrap_err().to_string();
            assert!(message.contains("recorded:m4-pro, model:m1"), "{message}");
        }
    }
}
