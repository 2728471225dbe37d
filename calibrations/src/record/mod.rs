//! The bytes a calibration is stored as.
//!
//! ```text
//! offset  size  field
//!      0     4  magic "FCR1"
//!      4     1  kind     1 = calibration
//!      5     1  version  of the body's layout
//!      6     2  flags    0, little-endian as everything here
//!      8     4  length   of the body in bytes
//!     12     4  CRC-32   (IEEE) of bytes 0..12 and the body
//!     16     …  body     bincode, legacy layout: fixed-width little-endian integers, u64 lengths, u32 enum tags
//! ```
//!
//! The check comes before the decoder: no byte of a damaged record is believed. bincode is not self-describing, so the
//! struct of a version is frozen for ever in a file of its own ([`v1`]); a change means a new version next to it and a
//! conversion. Bytes of every version are kept in `data/golden` and must decode for ever.
//!
//! A store value and a record file hold the same bytes: the store is an index that can be rebuilt from the files.

pub mod v1;

use crate::chip::Chip;
use crate::engine::Engine;
use crate::estimate::Estimate;
use crate::sample::Sample;

/// The first four bytes of every record.
pub const MAGIC: [u8; 4] = *b"FCR1";
/// Bytes before the body.
pub const HEADER_BYTES: usize = 16;
/// The largest encoded record: sled 0.34 keeps larger values in separate blobs, which it never frees.
pub const MAX_RECORD_BYTES: usize = 16 * 1024;
/// The file name extension of a record file.
pub const FILE_EXTENSION: &str = "fcal";

const KIND_CALIBRATION: u8 = 1;
const CURRENT_VERSION: u8 = 1;

/// One committed calibration: an estimate, where it holds, and the raw samples behind it.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The hardware it was measured on.
    pub chip: Chip,
    /// The code it was measured with.
    pub engine: Engine,
    /// What is believed.
    pub estimate: Estimate,
    /// The raw samples, in the order of the calls; empty after the retention limit.
    pub samples: Vec<Sample>,
    /// Version of the fusiond that wrote it.
    pub written_by: String,
}

/// Why bytes are no record, or a record no bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Fewer bytes than the header or the body needs.
    #[error("the record ends after {found} of {needed} bytes: it was cut off")]
    Truncated {
        /// Bytes there are.
        found: usize,
        /// Bytes there must be.
        needed: usize,
    },
    /// The first bytes aren't [`MAGIC`].
    #[error("not a calibration record: it begins with {found:02x?} instead of \"FCR1\"")]
    Magic {
        /// The first bytes.
        found: [u8; 4],
    },
    /// Header and body don't match the checksum.
    #[error("the record is damaged: its checksum is {found:08x}, the header says {stated:08x}")]
    Checksum {
        /// Computed from the bytes.
        found: u32,
        /// Stated in the header.
        stated: u32,
    },
    /// A version that this fusiond doesn't know.
    #[error(
        "the record was written by a newer fusiond (record version {version}, this one reads up to {CURRENT_VERSION}): upgrade fusiond, or export it with the newer one"
    )]
    Newer {
        /// The record's version.
        version: u8,
    },
    /// A kind that this fusiond doesn't know.
    #[error("unknown kind of record {kind}: it was written by a newer fusiond or by something else")]
    Kind {
        /// The record's kind.
        kind: u8,
    },
    /// The checksum is right, but the body means nothing: written by a faulty program.
    #[error("the record's body can't be read: {reason}")]
    Body {
        /// What is wrong with it.
        reason: String,
    },
    /// More than [`MAX_RECORD_BYTES`].
    #[error(
        "the record would take {bytes} bytes, at most {MAX_RECORD_BYTES} are allowed: keep fewer samples"
    )]
    TooLarge {
        /// Bytes it would take.
        bytes: usize,
    },
}

impl Record {
    /// The record in its current version.
    ///
    /// # Errors
    /// [`RecordError::TooLarge`] with too many samples.
    pub fn encode(&self) -> Result<Vec<u8>, RecordError> {
        let body = encode_body(&v1::Calibration::from(self))?;
        let bytes = seal(KIND_CALIBRATION, CURRENT_VERSION, &body);
        if bytes.len() > MAX_RECORD_BYTES {
            return Err(RecordError::TooLarge { bytes: bytes.len() });
        }
        Ok(bytes)
    }

    /// Reads a record of any known version.
    ///
    /// # Errors
    /// Every [`RecordError`] but `TooLarge`; which one tells damage from a newer version.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let (kind, version, body) = open(bytes)?;
        match (kind, version) {
            (KIND_CALIBRATION, 1) => v1::decode(body),
            (KIND_CALIBRATION, newer) => Err(RecordError::Newer { version: newer }),
            (other, _) => Err(RecordError::Kind { kind: other }),
        }
    }
}

fn configuration() -> impl bincode::config::Config {
    bincode::config::legacy().with_limit::<MAX_RECORD_BYTES>()
}

fn encode_body<T: serde::Serialize>(body: &T) -> Result<Vec<u8>, RecordError> {
    // The limit of the configuration applies to decoding only; the size is checked on the sealed record.
    bincode::serde::encode_to_vec(body, bincode::config::legacy())
        .map_err(|error| RecordError::Body { reason: error.to_string() })
}

/// bincode reads newer bytes with an older struct and leaves the rest, so the whole body must have been used.
fn decode_body<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, RecordError> {
    let (value, used) = bincode::serde::decode_from_slice(body, configuration())
        .map_err(|error| RecordError::Body { reason: error.to_string() })?;
    if used != body.len() {
        return Err(RecordError::Body { reason: format!("{} bytes are left over", body.len() - used) });
    }
    Ok(value)
}

fn checksum(head: &[u8], body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(body);
    hasher.finalize()
}

fn seal(kind: u8, version: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("a record body is far below 4 GiB");
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&[kind, version, 0, 0]);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&checksum(&bytes, body).to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

fn open(bytes: &[u8]) -> Result<(u8, u8, &[u8]), RecordError> {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Err(RecordError::Truncated { found: bytes.len(), needed: HEADER_BYTES });
    };
    let word = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]];
    if word(0) != MAGIC {
        return Err(RecordError::Magic { found: word(0) });
    }
    let length = u32::from_le_bytes(word(8)) as usize;
    if rest.len() < length {
        return Err(RecordError::Truncated {
            found: bytes.len(),
            needed: HEADER_BYTES.saturating_add(length),
        });
    }
    if rest.len() > length {
        return Err(RecordError::Body { reason: format!("{} bytes follow the record", rest.len() - length) });
    }
    let (found, stated) = (checksum(&header[..12], rest), u32::from_le_bytes(word(12)));
    if found != stated {
        return Err(RecordError::Checksum { found, stated });
    }
    Ok((header[4], header[5], rest))
}

#[cfg(test)]
mod tests {
    use super::v1::example;
    use super::*;
    use proptest::prelude::*;

    const GOLDEN_V1: &[u8] = include_bytes!("../../data/golden/calibration-v1.fcal");

    #[test]
    fn the_current_version_encodes_to_its_golden_bytes() {
        let bytes = example().encode().unwrap();
        if std::env::var_os("FUSION_WRITE_GOLDEN").is_some() {
            std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/data/golden/calibration-v1.fcal"), &bytes)
                .unwrap();
        }
        assert_eq!(bytes, GOLDEN_V1, "a stored layout changed: make a new version instead");
    }

    #[test]
    fn golden_bytes_of_every_version_decode() {
        assert_eq!(Record::decode(GOLDEN_V1).unwrap(), example());
    }

    #[test]
    fn a_newer_version_says_so() {
        let newer = seal(KIND_CALIBRATION, 7, b"whatever");
        assert_eq!(Record::decode(&newer).unwrap_err(), RecordError::Newer { version: 7 });
        assert_eq!(Record::decode(&seal(9, 1, b"")).unwrap_err(), RecordError::Kind { kind: 9 });
    }

    #[test]
    fn too_many_samples_are_refused_on_the_way_in() {
        let mut record = example();
        record.samples = vec![record.samples[1]; 1000];
        assert!(matches!(record.encode().unwrap_err(), RecordError::TooLarge { .. }));
    }

    #[test]
    fn other_files_are_named_as_such() {
        assert!(matches!(
            Record::decode(b"#!/bin/sh\necho nothing\n").unwrap_err(),
            RecordError::Magic { .. }
        ));
        assert!(matches!(Record::decode(b"FCR1").unwrap_err(), RecordError::Truncated { .. }));
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_noticed(at in 0..GOLDEN_V1.len(), bit in 0u8..8) {
            let mut bytes = GOLDEN_V1.to_vec();
            bytes[at] ^= 1 << bit;
            prop_assert!(Record::decode(&bytes).is_err());
        }

        #[test]
        fn any_truncation_is_noticed(length in 0..GOLDEN_V1.len()) {
            let truncated = matches!(Record::decode(&GOLDEN_V1[..length]), Err(RecordError::Truncated { .. }));
            prop_assert!(truncated);
        }

        #[test]
        fn a_sealed_body_of_garbage_never_panics(body in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = Record::decode(&seal(KIND_CALIBRATION, 1, &body));
        }
    }
}
