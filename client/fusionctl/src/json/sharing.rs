//! `fusionctl.export/1` and `fusionctl.import/1`.

use fusion_calibrations::sharing::TakenAs;
use fusion_calibrations::sharing::bundle::Bundle;
use fusion_client::v1;
use serde::Serialize;

use super::shared::Chip;

#[derive(Debug, Serialize)]
pub(crate) struct Exported {
    location: String,
    chip: Chip,
    calibrations: usize,
    bytes: u64,
}

impl Exported {
    pub(crate) fn new(location: String, bundle: &Bundle, bytes: u64) -> Self {
        let chip = Chip::from(&v1::Chip::from(bundle.chip()));
        Self { location, chip, calibrations: bundle.records().len(), bytes }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Imported {
    location: String,
    chip: Option<Chip>,
    taken_as: &'static str,
    taken: u32,
    known_better: u32,
    already_there: u32,
}

impl Imported {
    pub(crate) fn new(location: String, taken: TakenAs, finished: &v1::ImportFinished) -> Self {
        let taken_as = match taken {
            TakenAs::Imported => "imported",
            TakenAs::Prior => "prior",
        };
        Self {
            location,
            chip: finished.chip.as_ref().map(Chip::from),
            taken_as,
            taken: finished.taken,
            known_better: finished.known_better,
            already_there: finished.already_there,
        }
    }
}
