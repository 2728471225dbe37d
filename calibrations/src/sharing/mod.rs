//! Sharing: what a machine makes of calibrations that another one measured.
//!
//! [`bundle`] is the file that carries them. What is taken over never beats what was measured here: not in the store ([`decide`]) and not
//! when a question is answered ([`crate::lookup`]). Numbers of another pair of units (a development pair, recorded or modelled data) are
//! never taken over: they say nothing about this one.

pub mod bundle;

use crate::chip::Chip;
use crate::estimate::Provenance;
use crate::record::Record;

/// As what calibrations of another machine are taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TakenAs {
    /// As calibrations of an equal machine.
    Imported,
    /// As a first guess, trusted less than anything else: also from another chip.
    Prior,
}

/// Why calibrations of another machine can't be taken over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Foreign {
    /// Another chip, and nobody asked for priors.
    #[error(
        "they are of another chip: {theirs} ({}), this machine is {own} ({}); --as-prior takes them over as first guesses",
        theirs.key(), own.key()
    )]
    Chip {
        /// Where they were measured.
        theirs: Box<Chip>,
        /// This machine's.
        own: Box<Chip>,
    },
    /// Another pair of units: no number of it says anything about this one.
    #[error(
        "they are of another pair of units ({}, this machine's is {}): nothing of it holds here, not even as a first guess",
        theirs.pair, own.pair
    )]
    Pair {
        /// Where they were measured.
        theirs: Box<Chip>,
        /// This machine's.
        own: Box<Chip>,
    },
}

/// Whether calibrations of the chip `theirs` may be taken over on `own`.
///
/// # Errors
/// Every [`Foreign`].
pub fn admit(theirs: &Chip, own: &Chip, taken: TakenAs) -> Result<(), Foreign> {
    let both = || (Box::new(theirs.clone()), Box::new(own.clone()));
    if theirs.pair != own.pair {
        let (theirs, own) = both();
        return Err(Foreign::Pair { theirs, own });
    }
    if theirs != own && taken == TakenAs::Imported {
        let (theirs, own) = both();
        return Err(Foreign::Chip { theirs, own });
    }
    Ok(())
}

/// The record as it is kept on `own`, which [`admit`]ted its chip. A prior loses its samples: they would tell of the other chip's cliffs.
pub fn adapt(mut record: Record, own: &Chip, taken: TakenAs) -> Record {
    record.estimate.provenance = match taken {
        // What was a guess there is none the better for having travelled.
        TakenAs::Imported => record.estimate.provenance.min(Provenance::Imported),
        TakenAs::Prior => Provenance::Prior,
    };
    if taken == TakenAs::Prior {
        record.chip = own.clone();
        record.samples.clear();
    }
    record
}

/// What becomes of a record that is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decision {
    /// It is kept.
    Take,
    /// What is known of the same key is trusted more, or as much and not older.
    KeepOwn,
    /// It was taken over before.
    AlreadyThere,
}

/// Whether `offered` replaces `known`, the current record of the same key. Asked twice, the second answer is [`Decision::AlreadyThere`].
pub fn decide(known: Option<&Record>, offered: &Record) -> Decision {
    let Some(known) = known else { return Decision::Take };
    let (ours, theirs) = (&known.estimate, &offered.estimate);
    // Not the samples: retention takes them away.
    if ours == theirs {
        return Decision::AlreadyThere;
    }
    let trust = |estimate: &crate::estimate::Estimate| (estimate.provenance, estimate.measured_at_unix_ms);
    if trust(theirs) > trust(ours) { Decision::Take } else { Decision::KeepOwn }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chip::Pair;
    use crate::record::v1::example;
    use proptest::prelude::*;

    fn record(provenance: Provenance, measured_at_unix_ms: u64) -> Record {
        let mut record = example();
        record.estimate.provenance = provenance;
        record.estimate.measured_at_unix_ms = measured_at_unix_ms;
        record
    }

    #[test]
    fn another_chip_is_refused_unless_priors_are_asked_for() {
        let own = example().chip;
        let other = Chip { gpu_cores: Some(16), ..own.clone() };
        assert_eq!(admit(&own, &own, TakenAs::Imported), Ok(()));
        let refused = admit(&other, &own, TakenAs::Imported).unwrap_err().to_string();
        for word in [other.key(), own.key(), "--as-prior".to_owned()] {
            assert!(refused.contains(&word), "{word}: {refused}");
        }
        assert_eq!(admit(&other, &own, TakenAs::Prior), Ok(()));
    }

    #[test]
    fn numbers_of_another_pair_are_never_taken() {
        let own = example().chip;
        for pair in [Pair::Development, Pair::Recorded, Pair::Modelled] {
            let other = Chip { pair, ..own.clone() };
            for (theirs, own) in [(&other, &own), (&own, &other)] {
                for taken in [TakenAs::Imported, TakenAs::Prior] {
                    assert!(matches!(admit(theirs, own, taken), Err(Foreign::Pair { .. })));
                }
            }
        }
    }

    #[test]
    fn what_is_taken_over_says_so() {
        let own = Chip { memory_gib: 48, ..example().chip };
        let imported = adapt(example(), &own, TakenAs::Imported);
        assert_eq!(imported.estimate.provenance, Provenance::Imported);
        assert_eq!((&imported.chip, &imported.samples), (&example().chip, &example().samples));
        let guess = adapt(record(Provenance::Prior, 1), &own, TakenAs::Imported);
        assert_eq!(guess.estimate.provenance, Provenance::Prior);
        let prior = adapt(example(), &own, TakenAs::Prior);
        assert_eq!((prior.chip, prior.estimate.provenance), (own, Provenance::Prior));
        assert_eq!(prior.samples, []);
    }

    fn provenances() -> impl Strategy<Value = Provenance> {
        prop::sample::select(Provenance::ALL.to_vec())
    }

    proptest! {
        #[test]
        fn nothing_of_another_machine_replaces_what_was_measured_here(
            known in provenances(), offered in provenances(), ages in (0u64..9, 0u64..9), prior: bool,
        ) {
            let taken = if prior { TakenAs::Prior } else { TakenAs::Imported };
            let known = record(known, ages.0);
            let offered = adapt(record(offered, ages.1), &known.chip, taken);
            let decision = decide(Some(&known), &offered);
            if known.estimate.provenance > offered.estimate.provenance {
                prop_assert_eq!(decision, Decision::KeepOwn);
            }
            if decision == Decision::Take {
                prop_assert!(offered.estimate.provenance >= known.estimate.provenance);
            }
        }

        #[test]
        fn taking_over_twice_changes_nothing(known in provenances(), offered in provenances(), ages in (0u64..9, 0u64..9)) {
            let (known, offered) = (record(known, ages.0), record(offered, ages.1));
            let kept = match decide(Some(&known), &offered) {
                Decision::Take => &offered,
                Decision::KeepOwn | Decision::AlreadyThere => &known,
            };
            prop_assert_ne!(decide(Some(kept), &offered), Decision::Take);
            prop_assert_eq!(decide(Some(&offered), &offered), Decision::AlreadyThere);
            prop_assert_eq!(decide(None, &offered), Decision::Take);
        }
    }
}
