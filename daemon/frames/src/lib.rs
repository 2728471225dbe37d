//! The protocol between fusiond and a worker, over the worker's standard input and output.
//!
//! A worker is any program that speaks this; ours is `fusion-worker`. The daemon starts it for a job, asks for one timed call
//! at a time, and ends it by closing its standard input (or by a signal: measuring must stop within 50 ms). What to measure
//! next is the daemon's decision, so a worker needs no statistics and no store.
//!
//! ```text
//! daemon                              worker
//!   |                                   |  starts, loads MLX
//!   |  <----------------- Hello --------|  protocol, identity, pair
//!   |------- Prepare(shape) ----------> |  makes operands, materialises them
//!   |  <-------------- Prepared --------|  bytes it keeps
//!   |------- Stock | Split | Check ---> |  one timed call
//!   |  <------- Timed | Checked --------|
//!   |        ... any number ...         |
//!   |------- Prepare(next shape) -----> |
//!   |  (closes the pipe)                |  exits 0
//! ```
//!
//! Every answer may be [`Reply::Refused`] instead: the request can't be done, the worker lives on.
//!
//! # Frames
//! A frame is a length (u32, little-endian, of what follows) and a message in bincode's legacy layout: enum tags are u32, integers
//! fixed-width little-endian, floats IEEE 754, `Option` is one byte 0 or 1, a string is a u64 length and UTF-8 bytes. Nothing is
//! padded, so `struct.unpack("<...")` of Python reads it. [`PROTOCOL`] changes with any change of a message.

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

mod convert;
pub use convert::ContentError;

/// Version of the messages. A daemon ends a worker that says another.
pub const PROTOCOL: u32 = 1;

/// The largest message, in bytes. No message is near it; a length above it means the stream is not ours.
pub const MAX_MESSAGE_BYTES: u32 = 64 * 1024;

/// The environment variable that caps a worker's memory, in bytes beyond what the program itself maps. The daemon sets it for every worker.
pub const MEMORY_LIMIT_VARIABLE: &str = "FUSION_WORKER_MEMORY_LIMIT_BYTES";

/// A variable for a process that runs a development pair on Linux: each unit is one core, so OpenBLAS must not spread a product.
pub const ONE_BLAS_THREAD: (&str, &str) = ("OPENBLAS_NUM_THREADS", "1");
/// Another one: memory in pages of 2 MiB, where the system has such. On a virtual machine, whose addresses are translated twice, stock products of 4 ms to
/// 120 ms take 6 % less, and joining 16 MB takes 2.6 ms instead of 4.0 (Intel, 2 cores). glibc 2.35 and later; others ignore it.
pub const LARGE_PAGES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");

/// What the daemon asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Make synthetic operands of a shape, materialise them on both units, warm both up. Replaces earlier operands.
    Prepare(WireShape),
    /// One timed call of stock: the primary unit alone.
    Stock,
    /// One timed split.
    Split {
        /// The first rows, done by the secondary unit: 1 to rows.
        secondary_rows: u32,
        /// Which part to wait for first: alternating it makes both units' finish times exact in turn.
        secondary_first: bool,
    },
    /// Compute a split and stock, compare the results.
    Check {
        /// The first rows, done by the secondary unit: 1 to rows.
        secondary_rows: u32,
    },
}

/// What a worker answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// Sent once, unasked, first.
    Hello(Hello),
    /// The operands are there.
    Prepared {
        /// Bytes the worker's MLX holds now.
        active_bytes: u64,
    },
    /// One timed call.
    Timed(Timed),
    /// A compared result.
    Checked {
        /// max|split - stock| / max|stock|.
        relative_error: f64,
    },
    /// The request can't be done; the worker is as it was before it.
    Refused {
        /// What is wrong, for a person.
        reason: String,
    },
}

/// Who a worker is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`] of the worker. First, so that it can be read whatever follows.
    pub protocol: u32,
    /// Version of the worker program.
    pub worker_version: String,
    /// "Apple M4 Pro".
    pub brand: String,
    /// GPU cores, if a GPU is used.
    pub gpu_cores: Option<u16>,
    /// Installed memory, in bytes.
    pub memory_bytes: u64,
    /// "Mac16,8".
    pub model_identifier: String,
    /// The two units, as [`fusion_calibrations::chip::Pair`] writes them.
    pub pair: String,
    /// What a person should know of the units: which devices, which cores they are pinned to.
    pub units: String,
    /// Build of the operating system.
    pub os_build: String,
    /// MLX's version.
    pub mlx_version: String,
    /// Hash of the MLX library files, hexadecimal.
    pub library_hash: String,
}

/// A shape on the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WireShape {
    /// M.
    pub rows: u32,
    /// K.
    pub inputs: u32,
    /// N.
    pub outputs: u32,
    /// Weight format: "f32", "f16", "bf16", "q4/64".
    pub format: String,
    /// "nk" or "kn".
    pub layout: String,
}

/// One timed call; times in nanoseconds after submission.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Timed {
    /// Until the whole result was there, a split's parts joined.
    pub total_ns: u64,
    /// Until waiting for each part returned; `None` for stock.
    pub finish: Option<FinishNanoseconds>,
    /// How long threads of the units waited for a core meanwhile; `None` where the system doesn't tell.
    pub run_delay_ns: Option<u64>,
}

/// When waiting for each part of a split returned, in nanoseconds after submission.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FinishNanoseconds {
    /// The primary unit's part.
    pub primary: u64,
    /// The secondary unit's part.
    pub secondary: u64,
}

/// Why a message can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The pipe broke, or ended inside a frame.
    #[error("the pipe between fusiond and its worker failed: {0}")]
    Io(#[from] io::Error),
    /// A length that no message has: something else writes to the pipe.
    #[error(
        "a frame of {length} bytes is announced, at most {MAX_MESSAGE_BYTES} are allowed: the other side speaks no frames"
    )]
    TooLong {
        /// The announced length.
        length: u32,
    },
    /// The bytes are no message of this protocol.
    #[error("a frame can't be read as protocol {PROTOCOL}: {reason}")]
    Malformed {
        /// What is wrong.
        reason: String,
    },
}

fn configuration() -> impl bincode::config::Config {
    bincode::config::legacy().with_limit::<{ MAX_MESSAGE_BYTES as usize }>()
}

/// The frame of a message: its length and its bytes.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, FrameError> {
    let malformed = |reason: String| FrameError::Malformed { reason };
    let body = bincode::serde::encode_to_vec(message, configuration())
        .map_err(|error| malformed(error.to_string()))?;
    let length = u32::try_from(body.len())
        .ok()
        .filter(|length| *length <= MAX_MESSAGE_BYTES)
        .ok_or_else(|| malformed(format!("it would take {} bytes", body.len())))?;
    let mut frame = length.to_le_bytes().to_vec();
    frame.extend_from_slice(&body);
    Ok(frame)
}

/// Checks the length that a frame begins with, and gives the bytes that follow it.
///
/// # Errors
/// [`FrameError::TooLong`].
pub fn body_length(prefix: [u8; 4]) -> Result<usize, FrameError> {
    let length = u32::from_le_bytes(prefix);
    if length > MAX_MESSAGE_BYTES { Err(FrameError::TooLong { length }) } else { Ok(length as usize) }
}

/// Reads the message in a frame's body; all of it must be used.
///
/// # Errors
/// [`FrameError::Malformed`].
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, FrameError> {
    let (message, used) = bincode::serde::decode_from_slice(body, configuration())
        .map_err(|error| FrameError::Malformed { reason: error.to_string() })?;
    if used != body.len() {
        return Err(FrameError::Malformed { reason: format!("{} bytes are left over", body.len() - used) });
    }
    Ok(message)
}

/// Writes one message and flushes.
///
/// # Errors
/// [`FrameError::Io`] if the other side is gone.
pub fn write<T: Serialize>(writer: &mut impl Write, message: &T) -> Result<(), FrameError> {
    writer.write_all(&encode(message)?)?;
    writer.flush()?;
    Ok(())
}

/// Reads one message; `None` if the other side closed the pipe between two frames.
///
/// # Errors
/// Every [`FrameError`].
pub fn read<T: DeserializeOwned>(reader: &mut impl Read) -> Result<Option<T>, FrameError> {
    let mut prefix = [0; 4];
    match reader.read(&mut prefix[..1])? {
        0 => return Ok(None),
        _ => reader.read_exact(&mut prefix[1..])?,
    }
    let mut body = vec![0; body_length(prefix)?];
    reader.read_exact(&mut body)?;
    decode(&body).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_split_request_has_these_bytes() {
        let frame = encode(&Request::Split { secondary_rows: 716, secondary_first: true }).unwrap();
        // length 9; tag 2; 716; true
        assert_eq!(frame, [9, 0, 0, 0, 2, 0, 0, 0, 204, 2, 0, 0, 1]);
    }

    #[test]
    fn a_timed_reply_has_these_bytes() {
        let finish = Some(FinishNanoseconds { primary: 1, secondary: 2 });
        let frame = encode(&Reply::Timed(Timed { total_ns: 3, finish, run_delay_ns: None })).unwrap();
        let mut expected = vec![30, 0, 0, 0, 2, 0, 0, 0];
        expected.extend_from_slice(&3u64.to_le_bytes());
        expected.push(1);
        expected.extend_from_slice(&1u64.to_le_bytes());
        expected.extend_from_slice(&2u64.to_le_bytes());
        expected.push(0);
        assert_eq!(frame, expected);
    }

    #[test]
    fn a_stream_of_something_else_is_noticed_at_once() {
        let error = read::<Reply>(&mut &b"Traceback (most recent call last):"[..]).unwrap_err();
        assert!(matches!(error, FrameError::TooLong { .. }), "{error}");
    }

    #[test]
    fn the_end_between_frames_is_no_error_and_inside_one_is() {
        assert_eq!(read::<Reply>(&mut &[][..]).unwrap(), None);
        let frame = encode(&Request::Stock).unwrap();
        for length in 1..frame.len() {
            assert!(matches!(read::<Request>(&mut &frame[..length]).unwrap_err(), FrameError::Io(_)));
        }
    }

    proptest! {
        #[test]
        fn any_body_is_read_or_refused(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode::<Reply>(&body);
            let _ = decode::<Request>(&body);
        }

        #[test]
        fn messages_follow_each_other(rows in prop::collection::vec((any::<u32>(), any::<bool>()), 0..20)) {
            let messages: Vec<Request> = rows
                .into_iter()
                .map(|(secondary_rows, secondary_first)| Request::Split { secondary_rows, secondary_first })
                .collect();
            let mut pipe = Vec::new();
            for message in &messages {
                write(&mut pipe, message).unwrap();
            }
            let mut reader = &pipe[..];
            for message in messages {
                prop_assert_eq!(read::<Request>(&mut reader).unwrap(), Some(message));
            }
            prop_assert_eq!(read::<Request>(&mut reader).unwrap(), None);
        }
    }
}
