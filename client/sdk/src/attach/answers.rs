//! What an inference thread asks: the same of an attachment and of a copy that is driven by hand.

use std::sync::Arc;

use fusion_calibrations::conditions::Conditions;
use fusion_calibrations::engine::Engine;
use fusion_calibrations::gate::ArmSet;
use fusion_calibrations::lines::Lines;
use fusion_calibrations::shape::Layer;

use super::gates::Composition;
use super::local_copy::Shared;
use super::region::RegionHandle;
use super::table::Table;
use super::{Basis, LONGEST_NAME, LayerHandle};

/// The layers of a process, and what is known of them by now.
#[derive(Debug)]
pub struct Answers {
    pub(super) shared: Arc<Shared>,
    layers: Vec<Layer>,
}

impl Answers {
    pub(super) fn new(layers: &[Layer], engine: Option<&Engine>, working_set_bytes: Option<u64>) -> Self {
        let table = Table::stock(layers, engine, working_set_bytes);
        Self { shared: Arc::new(Shared::new(table)), layers: layers.to_vec() }
    }

    /// What the answers rest on now.
    pub fn basis(&self) -> Basis {
        self.shared.table.load().basis
    }

    /// The conditions as the daemon saw them last.
    pub fn conditions(&self) -> Option<Conditions> {
        self.shared.table.load().conditions
    }

    /// The layers, in the order of their handles.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// The handle of one of the layers.
    pub fn layer(&self, layer: Layer) -> Option<LayerHandle> {
        self.layers.iter().position(|known| *known == layer).map(LayerHandle)
    }

    /// The secondary unit's rows for `rows` rows of a layer; 0 is stock.
    pub fn secondary_rows(&self, layer: LayerHandle, rows: u32) -> u32 {
        self.shared.table.load().secondary_rows(layer.0, rows)
    }

    /// The same for rows that go through several layers before they are joined, a feed-forward part say: what balances all of them together. 0 where
    /// one of them isn't known to gain.
    pub fn secondary_rows_through(&self, layers: &[LayerHandle], rows: u32) -> u32 {
        let places: Vec<usize> = layers.iter().map(|layer| layer.0).collect();
        self.shared.table.load().secondary_rows_through(&places, rows)
    }

    /// The lines that a layer is believed to follow.
    pub fn lines(&self, layer: LayerHandle) -> Option<Lines> {
        self.shared.table.load().lines(layer.0)
    }

    /// A region: one workload, as a whole executed by one of `arms`. It consists of layers, each run so many `times` a call, and of `other_ms` of work that is
    /// never split, for 1 call. A name and arms that there are already give the same region.
    ///
    /// Not for every call: this waits for the background thread.
    pub fn region(
        &self,
        name: &str,
        arms: ArmSet,
        parts: &[(LayerHandle, u32)],
        other_ms: f64,
    ) -> RegionHandle {
        let parts = parts.iter().map(|(layer, times)| (layer.0, *times)).collect();
        let name = name.chars().take(LONGEST_NAME).collect();
        let composition = Composition { name, parts, other_ms };
        let (gate, workload) = self.shared.gates.region(composition, arms, &self.shared.table.load());
        RegionHandle { shared: Arc::clone(&self.shared), gate, workload }
    }
}
