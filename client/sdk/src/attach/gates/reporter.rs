//! What the daemon is told of gates: only what it doesn't know.

use std::collections::BTreeMap;

use fusion_calibrations::gate::{RegionKey, RegionState};

/// What the daemon was told last.
#[derive(Debug, Default)]
pub(in crate::attach) struct Reporter {
    told: BTreeMap<RegionKey, RegionState>,
    /// Whether a lease was wanted.
    pub(super) wanted: bool,
}

impl Reporter {
    pub(super) fn is_new(&mut self, region: &RegionState) -> bool {
        if self.told.get(&region.key) == Some(region) {
            return false;
        }
        let known = region.arms.iter().any(|arm| arm.observations > 0);
        if known {
            self.told.insert(region.key.clone(), region.clone());
        }
        known
    }
}
