//! What should be known: by whom it is wanted, and what is served for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use fusion_calibrations::conditions::Conditions;
use fusion_calibrations::lookup::Query;
use fusion_calibrations::record::Record;
use fusion_calibrations::rows::RowRule;
use fusion_calibrations::shape::Shape;

use crate::planner::{Interest, Known, Want, measurable};
use crate::table::{self, Identity};

/// What is served, and for whom.
pub struct Served<'a> {
    /// Who measures.
    pub identity: &'a Identity,
    /// What is stored of the chip.
    pub records: &'a [Arc<Record>],
    /// Its row rule.
    pub rule: &'a RowRule,
    /// The state of the machine.
    pub conditions: Conditions,
}

impl Served<'_> {
    /// What an answer for `shape` rests on.
    pub fn known(&self, shape: Shape) -> Known {
        let Identity { chip, engine, .. } = self.identity;
        let query = Query { shape, chip, engine, conditions: self.conditions };
        Known::of(&table::answer(self.records, &query, self.rule))
    }

    /// The wants: each shape once, with its strongest interest, cut to what one submission can measure.
    pub fn wants(&self, wanted: impl IntoIterator<Item = (Shape, Interest)>) -> Vec<Want> {
        let mut strongest: BTreeMap<Shape, Interest> = BTreeMap::new();
        for (shape, interest) in wanted {
            let shape = measurable(shape, &self.known(shape));
            let known = strongest.entry(shape).or_insert(interest);
            *known = (*known).max(interest);
        }
        strongest
            .into_iter()
            .map(|(shape, interest)| Want { shape, interest, known: self.known(shape) })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fusion_calibrations::shape::{Layout, WeightFormat};

    use crate::machine::MachineChoice;

    #[test]
    fn each_shape_is_wanted_once_by_whoever_comes_first() {
        let machine: MachineChoice = "model:m4-pro".parse().unwrap();
        let identity = machine.stand_in().unwrap();
        let rule = RowRule::apple();
        let served =
            Served { identity: &identity, records: &[], rule: &rule, conditions: Conditions::default() };
        let shape = |text: &str| Shape::parse(text, WeightFormat::F16, Layout::default()).unwrap();
        let (one, other) = (shape("512x4096x4096"), shape("512x4096x14336"));
        let wants = served.wants([
            (one, Interest::Configured),
            (other, Interest::Recent),
            (one, Interest::Attached),
            (one, Interest::Recent),
        ]);
        let found: Vec<(Shape, Interest)> = wants.iter().map(|want| (want.shape, want.interest)).collect();
        assert_eq!(found, [(one, Interest::Attached), (other, Interest::Recent)]);
    }
}
