//! One process at a time has the store open.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use super::error::{At, StoreError};

/// How long to wait for a holder that is just going away: locks outlive a killed process by milliseconds.
pub(super) const PATIENCE: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(20);

/// The lock on `store.lock`. The system lets go of it when the process ends, however it ends.
#[derive(Debug)]
pub(super) struct StoreLock {
    _file: File,
}

impl StoreLock {
    pub(super) fn acquire(path: &Path) -> Result<Self, StoreError> {
        let mut file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path)
            .at("opening", path)?;
        let begun = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(error)) => return Err(error).at("locking", path),
                Err(TryLockError::WouldBlock) if begun.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
                Err(TryLockError::WouldBlock) => {
                    return Err(StoreError::Locked { path: path.to_owned(), pid: holder(&mut file) });
                }
            }
        }
        note_holder(&mut file).at("writing", path)?;
        Ok(Self { _file: file })
    }
}

fn note_holder(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
