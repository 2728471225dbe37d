//! `store-manifest.json`: what the index must hold, written down outside the index.
//!
//! sled 0.34 can lose flushed records, or open as an empty store, without an error. The manifest is how that is noticed.

use std::io;
use std::path::Path;

use fusion_calibrations::chip::{Chip, Cooling};
use fusion_calibrations::engine::Engine;
use serde::{Deserialize, Serialize};

use super::error::{At, StoreError};
use super::files::write_durably;
use super::steps::Steps;
use super::{Identity, Revision};

/// The layout of the manifest and of the index that this fusiond knows.
pub(super) const FORMAT: u32 = 1;

/// The content of the manifest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) format: u32,
    pub(super) written_by: String,
    /// Whether the store was closed in an orderly way since.
    pub(super) clean: bool,
    pub(super) state: IndexState,
    pub(super) identity: Option<StoredIdentity>,
}

/// What the index says of itself, changed in the same transaction as its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct IndexState {
    /// Grows with every change of the index.
    pub(super) generation: u64,
    pub(super) last_revision: u64,
    /// Records in the history.
    pub(super) records: u64,
}

impl IndexState {
    pub(super) fn last(self) -> Revision {
        Revision(self.last_revision)
    }
}

/// The result of reading the manifest.
#[derive(Debug)]
pub(super) enum Found {
    Nothing,
    Manifest(Box<Manifest>),
    Newer { format: u32 },
    Unreadable { reason: String },
}

impl Manifest {
    pub(super) fn new(state: IndexState, identity: Option<&Identity>) -> Self {
        Self {
            format: FORMAT,
            written_by: env!("CARGO_PKG_VERSION").to_owned(),
            clean: false,
            state,
            identity: identity.map(StoredIdentity::from),
        }
    }

    pub(super) fn read(path: &Path) -> Result<Found, StoreError> {
        #[derive(Deserialize)]
        struct OnlyFormat {
            format: u32,
        }
        let text = match std::fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
            other => other.at("reading", path)?,
        };
        Ok(match serde_json::from_slice::<OnlyFormat>(&text) {
            Ok(OnlyFormat { format }) if format > FORMAT => Found::Newer { format },
            Err(error) => Found::Unreadable { reason: error.to_string() },
            Ok(_) => match serde_json::from_slice(&text) {
                Ok(manifest) => Found::Manifest(Box::new(manifest)),
                Err(error) => Found::Unreadable { reason: error.to_string() },
            },
        })
    }

    pub(super) fn write(&self, path: &Path, steps: &Steps) -> Result<(), StoreError> {
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::other).at("writing", path)?;
        write_durably(path, &text, steps)
    }
}

/// An identity as text, for the manifest and the index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredIdentity {
    brand: String,
    gpu_cores: Option<u16>,
    memory_gib: u32,
    model_identifier: String,
    cooling: String,
    pair: String,
    os_build: String,
    mlx_version: String,
    library_hash: String,
}

impl From<&Identity> for StoredIdentity {
    fn from(identity: &Identity) -> Self {
        let Identity { chip, engine } = identity;
        Self {
            brand: chip.brand.clone(),
            gpu_cores: chip.gpu_cores,
            memory_gib: chip.memory_gib,
            model_identifier: chip.model_identifier.clone(),
            cooling: chip.cooling.to_string(),
            pair: chip.pair.to_string(),
            os_build: engine.os_build.clone(),
            mlx_version: engine.mlx_version.clone(),
            library_hash: engine.library_hash.clone(),
        }
    }
}

impl StoredIdentity {
    /// The identity, unless it holds words of a newer fusiond: it is only a memory of the last worker and soon replaced.
    pub(super) fn read(self) -> Option<Identity> {
        let cooling = [Cooling::Active, Cooling::Passive, Cooling::Unknown]
            .into_iter()
            .find(|cooling| cooling.to_string() == self.cooling)?;
        Some(Identity {
            chip: Chip {
                brand: self.brand,
                gpu_cores: self.gpu_cores,
                memory_gib: self.memory_gib,
                model_identifier: self.model_identifier,
                cooling,
                pair: self.pair.parse().ok()?,
            },
            engine: Engine {
                os_build: self.os_build,
                mlx_version: self.mlx_version,
                library_hash: self.library_hash,
            },
        })
    }
}
