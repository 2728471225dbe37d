//! The snapshot file: a [`v1::Snapshot`] behind a checked header, replaced by rename.
//!
//! ```text
//! magic "FSNP" | version u32 | length u32 | CRC-32 of the body u32 | body: an encoded fusion.v1.Snapshot     (little-endian)
//! ```

use prost::Message;

use crate::v1;

const MAGIC: [u8; 4] = *b"FSNP";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 16;

/// Why a file is no snapshot. A client that meets one runs stock.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// Another file, or another version's.
    #[error("not a snapshot that this version reads")]
    Header,
    /// Cut off, or damaged.
    #[error("the snapshot is damaged")]
    Damaged,
}

/// The bytes of a snapshot file.
pub fn encode(snapshot: &v1::Snapshot) -> Vec<u8> {
    let body = snapshot.encode_to_vec();
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
    bytes.extend_from_slice(&body);
    bytes
}

/// Reads the bytes of a snapshot file.
///
/// # Errors
/// Every [`SnapshotError`]; no damaged byte is believed.
pub fn decode(bytes: &[u8]) -> Result<v1::Snapshot, SnapshotError> {
    let (header, body) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(SnapshotError::Header)?;
    let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    if header[..4] != MAGIC || word(4) != VERSION {
        return Err(SnapshotError::Header);
    }
    if word(8) as usize != body.len() || word(12) != crc32fast::hash(body) {
        return Err(SnapshotError::Damaged);
    }
    v1::Snapshot::decode(body).map_err(|_| SnapshotError::Damaged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_survives_its_file_and_no_damage_is_believed() {
        let snapshot = v1::Snapshot { revision: 7, ..Default::default() };
        let bytes = encode(&snapshot);
        assert_eq!(decode(&bytes).unwrap(), snapshot);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(decode(&damaged).is_err(), "byte {at}");
            assert!(decode(&bytes[..at]).is_err());
        }
    }
}
