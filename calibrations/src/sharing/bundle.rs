//! A bundle: the file that carries the calibrations of one chip.
//!
//! ```text
//! offset  size  field
//!      0     4  magic "FCB1"
//!      4     1  version of this layout: 1
//!      5     3  0
//!      8     4  number of records, little-endian as everything here
//!     12     …  the records: the length (4) of each, and the bytes of a record file (see crate::record)
//!      …    32  SHA-256 of everything before
//! ```
//!
//! The check over the whole comes first, so that a file that was cut off or damaged on its way gives nothing at all; each record then passes
//! its own. The layout is frozen: a change is a new version beside it, and `data/golden` keeps bytes of each. The same records always give the
//! same bytes.

use sha2::{Digest, Sha256};

use crate::chip::Chip;
use crate::record::{MAX_RECORD_BYTES, Record, RecordError};

/// The first four bytes of every bundle.
pub const MAGIC: [u8; 4] = *b"FCB1";
/// The largest bundle, in bytes: more calibrations than one chip is ever measured for, and no danger to memory.
pub const MAX_BUNDLE_BYTES: usize = 32 << 20;
/// The file name extension of a bundle.
pub const FILE_EXTENSION: &str = "fcals";

const VERSION: u8 = 1;
const HEADER_BYTES: usize = 12;
const LENGTH_BYTES: usize = 4;
const CHECKSUM_BYTES: usize = 32;

/// Calibrations of one chip: at least one.
#[derive(Debug, Clone, PartialEq)]
pub struct Bundle {
    records: Vec<Record>,
}

/// Why bytes are no bundle, or calibrations make none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// Nothing to carry.
    #[error("there are no calibrations in it: measure some first, with 'fusionctl calibrate'")]
    Empty,
    /// Two chips in one bundle.
    #[error("calibrations of two chips, {first} and {other}: a bundle holds those of one")]
    SeveralChips {
        /// The key of the first one's chip.
        first: String,
        /// Another key.
        other: String,
    },
    /// The first bytes aren't [`MAGIC`].
    #[error("not a file of exported calibrations: it begins with other bytes than \"FCB1\"")]
    Magic,
    /// A layout that this fusiond doesn't know.
    #[error(
        "the file was written by a newer fusiond (layout {version}, this one reads up to {VERSION}): upgrade fusiond and fusionctl"
    )]
    Newer {
        /// The layout.
        version: u8,
    },
    /// Fewer bytes than there must be, or the checksum doesn't match.
    #[error(
        "the file is damaged or was cut off: its checksum doesn't match; copy it again, or export it anew"
    )]
    Checksum,
    /// The checksum is right, but the content means nothing: written by a faulty program.
    #[error("the file's content can't be read: {reason}")]
    Content {
        /// What is wrong with it.
        reason: String,
    },
    /// A record can't be read or written.
    #[error("record {number} of the file: {source}")]
    Record {
        /// Its number, from 1.
        number: usize,
        /// Why.
        source: RecordError,
    },
    /// More than [`MAX_BUNDLE_BYTES`].
    #[error("the file has more than {} MiB: no chip has that many calibrations", MAX_BUNDLE_BYTES >> 20)]
    TooLarge,
}

impl Bundle {
    /// Calibrations that travel together.
    ///
    /// # Errors
    /// [`BundleError::Empty`], [`BundleError::SeveralChips`].
    pub fn new(records: Vec<Record>) -> Result<Self, BundleError> {
        let chip = &records.first().ok_or(BundleError::Empty)?.chip;
        match records.iter().find(|record| record.chip != *chip) {
            Some(other) => Err(BundleError::SeveralChips { first: chip.key(), other: other.chip.key() }),
            None => Ok(Self { records }),
        }
    }

    /// Where they were measured.
    pub fn chip(&self) -> &Chip {
        &self.records.first().expect("a bundle holds at least one record").chip
    }

    /// The calibrations.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The calibrations.
    pub fn into_records(self) -> Vec<Record> {
        self.records
    }

    /// The bytes of the file.
    ///
    /// # Errors
    /// [`BundleError::Record`] for a record that has no bytes, [`BundleError::TooLarge`].
    pub fn encode(&self) -> Result<Vec<u8>, BundleError> {
        let count = u32::try_from(self.records.len()).map_err(|_| BundleError::TooLarge)?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&[VERSION, 0, 0, 0]);
        bytes.extend_from_slice(&count.to_le_bytes());
        for (index, record) in self.records.iter().enumerate() {
            let record =
                record.encode().map_err(|source| BundleError::Record { number: index + 1, source })?;
            let length = u32::try_from(record.len()).expect("a record has at most 16 KiB");
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(&record);
        }
        let checksum = Sha256::digest(&bytes);
        bytes.extend_from_slice(&checksum);
        if bytes.len() > MAX_BUNDLE_BYTES { Err(BundleError::TooLarge) } else { Ok(bytes) }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// Every [`BundleError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, BundleError> {
        if bytes.len() > MAX_BUNDLE_BYTES {
            return Err(BundleError::TooLarge);
        }
        let (count, mut rest) = open(bytes)?;
        let mut records = Vec::new();
        for number in 1..=count {
            let (record, behind) = next(rest, number)?;
            records.push(record);
            rest = behind;
        }
        if !rest.is_empty() {
            return Err(content(format!("{} bytes follow the last record", rest.len())));
        }
        Self::new(records)
    }
}

/// The number of records, and their bytes.
fn open(bytes: &[u8]) -> Result<(usize, &[u8]), BundleError> {
    let begins = bytes.len().min(MAGIC.len());
    if bytes[..begins] != MAGIC[..begins] {
        return Err(BundleError::Magic);
    }
    let (body, stated) = bytes.split_last_chunk::<CHECKSUM_BYTES>().ok_or(BundleError::Checksum)?;
    let (header, records) = body.split_first_chunk::<HEADER_BYTES>().ok_or(BundleError::Checksum)?;
    if Sha256::digest(body)[..] != stated[..] {
        return Err(BundleError::Checksum);
    }
    if header[4] != VERSION {
        return Err(BundleError::Newer { version: header[4] });
    }
    if header[5..8] != [0; 3] {
        return Err(content("bytes 5 to 7 are not 0".to_owned()));
    }
    let count = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
    Ok((count as usize, records))
}

/// The first record of `bytes`, and what follows it.
fn next(bytes: &[u8], number: usize) -> Result<(Record, &[u8]), BundleError> {
    let missing = || content(format!("record {number} is not there"));
    let (length, rest) = bytes.split_first_chunk::<LENGTH_BYTES>().ok_or_else(missing)?;
    let length = u32::from_le_bytes(*length) as usize;
    if length > MAX_RECORD_BYTES {
        return Err(content(format!(
            "record {number} has {length} bytes, at most {MAX_RECORD_BYTES} are possible"
        )));
    }
    let (record, rest) = rest.split_at_checked(length).ok_or_else(missing)?;
    let record = Record::decode(record).map_err(|source| BundleError::Record { number, source })?;
    Ok((record, rest))
}

fn content(reason: String) -> BundleError {
    BundleError::Content { reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chip::Cooling;
    use crate::record::v1::example;
    use proptest::prelude::*;

    const GOLDEN_V1: &[u8] = include_bytes!("../../data/golden/bundle-v1.fcals");

    /// Two calibrations of one chip.
    fn bundle() -> Bundle {
        let mut second = example();
        second.estimate.conditions = crate::conditions::Conditions::default();
        second.samples.clear();
        Bundle::new(vec![example(), second]).unwrap()
    }

    /// The bytes with a checksum that fits.
    fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.truncate(bytes.len() - CHECKSUM_BYTES);
        let checksum = Sha256::digest(&bytes);
        bytes.extend_from_slice(&checksum);
        bytes
    }

    #[test]
    fn the_layout_has_its_golden_bytes() {
        let bytes = bundle().encode().unwrap();
        if std::env::var_os("FUSION_WRITE_GOLDEN").is_some() {
            std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/data/golden/bundle-v1.fcals"), &bytes)
                .unwrap();
        }
        assert_eq!(bytes, GOLDEN_V1, "a frozen layout changed: make a new version instead");
        assert_eq!(Bundle::decode(GOLDEN_V1).unwrap(), bundle());
    }

    #[test]
    fn a_bundle_holds_one_chip() {
        assert_eq!(Bundle::new(Vec::new()).unwrap_err(), BundleError::Empty);
        let mut other = example();
        other.chip.cooling = Cooling::Passive;
        let mixed = Bundle::new(vec![example(), other]).unwrap_err();
        assert!(matches!(mixed, BundleError::SeveralChips { .. }), "{mixed}");
    }

    #[test]
    fn other_files_and_newer_ones_are_named_as_such() {
        assert_eq!(Bundle::decode(b"{\"schema\": 1}").unwrap_err(), BundleError::Magic);
        assert_eq!(Bundle::decode(b"FCB1").unwrap_err(), BundleError::Checksum);
        let mut newer = GOLDEN_V1.to_vec();
        newer[4] = 2;
        assert_eq!(Bundle::decode(&sealed(newer)).unwrap_err(), BundleError::Newer { version: 2 });
    }

    #[test]
    fn a_sealed_bundle_still_checks_each_record() {
        let mut damaged = GOLDEN_V1.to_vec();
        damaged[HEADER_BYTES + LENGTH_BYTES + 40] ^= 1;
        let error = Bundle::decode(&sealed(damaged)).unwrap_err();
        assert!(
            matches!(error, BundleError::Record { number: 1, source: RecordError::Checksum { .. } }),
            "{error}"
        );
        for (at, byte) in [(8, 1u8), (8, 3), (HEADER_BYTES + 2, 1)] {
            let mut wrong = GOLDEN_V1.to_vec();
            wrong[at] = byte;
            let error = Bundle::decode(&sealed(wrong)).unwrap_err();
            assert!(matches!(error, BundleError::Content { .. }), "{at}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_noticed(at in 0..GOLDEN_V1.len(), bit in 0u8..8) {
            let mut bytes = GOLDEN_V1.to_vec();
            bytes[at] ^= 1 << bit;
            prop_assert!(Bundle::decode(&bytes).is_err());
        }

        #[test]
        fn any_truncation_is_noticed(length in 0..GOLDEN_V1.len()) {
            prop_assert_eq!(Bundle::decode(&GOLDEN_V1[..length]).unwrap_err(), BundleError::Checksum);
        }

        #[test]
        fn sealed_garbage_never_panics(body in prop::collection::vec(any::<u8>(), 0..300), count: u32) {
            let mut bytes = MAGIC.to_vec();
            bytes.extend_from_slice(&[VERSION, 0, 0, 0]);
            bytes.extend_from_slice(&count.to_le_bytes());
            bytes.extend_from_slice(&body);
            bytes.extend_from_slice(&[0; CHECKSUM_BYTES]);
            let _ = Bundle::decode(&sealed(bytes));
        }
    }
}
