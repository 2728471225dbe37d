//! The keys of the index.
//!
//! ```text
//! chip key    text of [a-z0-9.+-], then one zero byte
//! engine key  text of [a-z0-9.+-], then one zero byte
//! layer       inputs u32, outputs u32, format u8, bits u8, group u8, layout u8
//! rows        u32
//! conditions  thermal u8, memory u8, power u8, low-power mode u8
//! revision    u64, in the history only
//! ```
//!
//! Numbers are big-endian, and text ends with a byte below every character of it, so the order of the bytes is the order
//! of (chip, engine, inputs, outputs, ..., revision), and everything of one chip, engine, layer or shape is one range.

use std::fmt;

use fusion_calibrations::conditions::Conditions;
use fusion_calibrations::record::Record;
use fusion_calibrations::shape::{Layer, Layout, Shape, WeightFormat};

use super::Revision;

/// What a calibration is stored under: where, with which code, of what, in which state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CalibrationKey {
    /// [`fusion_calibrations::chip::Chip::key`].
    pub chip: String,
    /// [`fusion_calibrations::engine::Engine::key`].
    pub engine: String,
    /// What was multiplied.
    pub shape: Shape,
    /// The state of the machine.
    pub conditions: Conditions,
}

/// Bytes after the two texts of a key.
const FIXED_BYTES: usize = 20;
/// Bytes of a revision at the end of a history key.
const REVISION_BYTES: usize = 8;

impl CalibrationKey {
    /// The key of a record.
    pub fn of(record: &Record) -> Self {
        Self {
            chip: record.chip.key(),
            engine: record.engine.key(),
            shape: record.estimate.shape,
            conditions: record.estimate.conditions,
        }
    }

    /// The key in the layout of this module.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Scope::Engine { chip: &self.chip, engine: &self.engine }.to_bytes();
        bytes.extend_from_slice(&layer_bytes(self.shape.layer()));
        bytes.extend_from_slice(&self.shape.rows().to_be_bytes());
        bytes.extend_from_slice(&self.conditions.to_key());
        bytes
    }

    /// Reads [`Self::to_bytes`] back; `None` for anything else, such as a key with codes of a newer fusiond.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (chip, rest) = text(bytes)?;
        let (engine, rest) = text(rest)?;
        let fixed: &[u8; FIXED_BYTES] = rest.try_into().ok()?;
        let word = |at: usize| u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
        let format = format_from([fixed[8], fixed[9], fixed[10]])?;
        let layer = Layer::new(word(0), word(4), format, layout_from(fixed[11])?).ok()?;
        Some(Self {
            chip,
            engine,
            shape: layer.with_rows(word(12)).ok()?,
            conditions: Conditions::from_key([fixed[16], fixed[17], fixed[18], fixed[19]])?,
        })
    }
}

impl fmt::Display for CalibrationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {} with {} ({})", self.shape, self.chip, self.engine, self.conditions)
    }
}

/// A range of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope<'a> {
    /// Everything.
    All,
    /// Everything of one chip.
    Chip(&'a str),
    /// Everything of one engine on one chip.
    Engine {
        /// The chip's key.
        chip: &'a str,
        /// The engine's key.
        engine: &'a str,
    },
    /// Every row count and condition of one layer.
    Layer {
        /// The chip's key.
        chip: &'a str,
        /// The engine's key.
        engine: &'a str,
        /// The layer.
        layer: Layer,
    },
}

impl Scope<'_> {
    /// The bytes that every key of this range begins with, and no other.
    pub fn to_bytes(&self) -> Vec<u8> {
        match *self {
            Self::All => Vec::new(),
            Self::Chip(chip) => terminated(&[chip]),
            Self::Engine { chip, engine } => terminated(&[chip, engine]),
            Self::Layer { chip, engine, layer } => {
                let mut bytes = terminated(&[chip, engine]);
                bytes.extend_from_slice(&layer_bytes(layer));
                bytes
            }
        }
    }
}

fn terminated(texts: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(160);
    for text in texts {
        bytes.extend_from_slice(text.as_bytes());
        bytes.push(0);
    }
    bytes
}

fn text(bytes: &[u8]) -> Option<(String, &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some((String::from_utf8(bytes[..end].to_vec()).ok()?, &bytes[end + 1..]))
}

fn layer_bytes(layer: Layer) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&layer.inputs().to_be_bytes());
    bytes[4..8].copy_from_slice(&layer.outputs().to_be_bytes());
    bytes[8..11].copy_from_slice(&format_bytes(layer.format()));
    bytes[11] = match layer.layout() {
        Layout::OutputsByInputs => 1,
        Layout::InputsByOutputs => 2,
    };
    bytes
}

fn layout_from(code: u8) -> Option<Layout> {
    match code {
        1 => Some(Layout::OutputsByInputs),
        2 => Some(Layout::InputsByOutputs),
        _ => None,
    }
}

fn format_bytes(format: WeightFormat) -> [u8; 3] {
    match format {
        WeightFormat::F32 => [1, 0, 0],
        WeightFormat::F16 => [2, 0, 0],
        WeightFormat::Bf16 => [3, 0, 0],
        WeightFormat::Affine { bits, group } => [4, bits, group],
    }
}

fn format_from(bytes: [u8; 3]) -> Option<WeightFormat> {
    match bytes {
        [1, 0, 0] => Some(WeightFormat::F32),
        [2, 0, 0] => Some(WeightFormat::F16),
        [3, 0, 0] => Some(WeightFormat::Bf16),
        [4, bits, group] => Some(WeightFormat::Affine { bits, group }),
        _ => None,
    }
}

/// The key of one revision in the history.
pub(super) fn history_key(key: &[u8], revision: Revision) -> Vec<u8> {
    let mut bytes = key.to_vec();
    bytes.extend_from_slice(&revision.0.to_be_bytes());
    bytes
}

/// Takes a history key apart; `None` if it is too short to be one.
pub(super) fn split_history_key(bytes: &[u8]) -> Option<(&[u8], Revision)> {
    let (key, revision) = bytes.split_last_chunk::<REVISION_BYTES>()?;
    (!key.is_empty()).then(|| (key, Revision(u64::from_be_bytes(*revision))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn formats() -> impl Strategy<Value = WeightFormat> {
        prop_oneof![
            Just(WeightFormat::F32),
            Just(WeightFormat::F16),
            Just(WeightFormat::Bf16),
            (prop::sample::select(vec![2u8, 3, 4, 5, 6, 8]), prop::sample::select(vec![32u8, 64, 128]))
                .prop_map(|(bits, group)| WeightFormat::Affine { bits, group }),
        ]
    }

    prop_compose! {
        fn keys()(
            chip in "[a-z0-9.+-]{1,12}", engine in "[a-z0-9.+-]{1,12}", inputs in 1u32..1 << 24, outputs in 1u32..1 << 24,
            rows in 1u32..1 << 24, format in formats(), kn: bool, codes in (0u8..5, 0u8..4, 0u8..3, 0u8..3),
        ) -> CalibrationKey {
            let layout = if kn { Layout::InputsByOutputs } else { Layout::OutputsByInputs };
            let layer = Layer::new(inputs, outputs, format, layout).unwrap();
            let conditions = Conditions::from_key([codes.0, codes.1, codes.2, codes.3]).unwrap();
            CalibrationKey { chip, engine, shape: layer.with_rows(rows).unwrap(), conditions }
        }
    }

    proptest! {
        #[test]
        fn a_key_survives_its_bytes(key in keys(), revision: u64) {
            let bytes = key.to_bytes();
            prop_assert_eq!(CalibrationKey::from_bytes(&bytes), Some(key));
            let history = history_key(&bytes, Revision(revision));
            prop_assert_eq!(split_history_key(&history), Some((&bytes[..], Revision(revision))));
        }

        #[test]
        fn order_of_bytes_is_order_of_meaning(a in keys(), b in keys()) {
            let meaning = |key: &CalibrationKey| {
                let layer = key.shape.layer();
                (key.chip.clone(), key.engine.clone(), layer.inputs(), layer.outputs(), format_bytes(layer.format()), layer.layout(), key.shape.rows(), key.conditions.to_key())
            };
            prop_assert_eq!(a.to_bytes().cmp(&b.to_bytes()), meaning(&a).cmp(&meaning(&b)));
        }

        #[test]
        fn a_scope_holds_its_own_and_no_other(a in keys(), b in keys()) {
            let bytes = b.to_bytes();
            prop_assert_eq!(bytes.starts_with(&Scope::Chip(&a.chip).to_bytes()), a.chip == b.chip);
            let same = a.chip == b.chip && a.engine == b.engine;
            prop_assert_eq!(bytes.starts_with(&Scope::Engine { chip: &a.chip, engine: &a.engine }.to_bytes()), same);
            let layer = Scope::Layer { chip: &a.chip, engine: &a.engine, layer: a.shape.layer() }.to_bytes();
            prop_assert_eq!(bytes.starts_with(&layer), same && a.shape.layer() == b.shape.layer());
        }

        #[test]
        fn any_bytes_are_a_key_or_none(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Some(key) = CalibrationKey::from_bytes(&bytes) {
                prop_assert_eq!(key.to_bytes(), bytes);
            }
        }
    }

    #[test]
    fn later_revisions_sort_behind_earlier_ones() {
        let at = |revision| history_key(b"key", Revision(revision));
        assert!(at(1) < at(255) && at(255) < at(256) && at(256) < at(u64::MAX));
    }
}
