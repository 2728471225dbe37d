//! A stamp is a hash of everything a prepared folder was made from. It is written last: a folder without its
//! stamp was interrupted and is made again.

use std::{
    fs::{self, File},
    io::ErrorKind,
    path::Path,
};

use anyhow::{Context, Result};

const STAMP: &str = "stamp";
const LOCK: &str = "lock";

/// FNV-1a, 64 bits: it tells versions apart, it does not protect from anybody.
pub(super) struct Stamp(u64);

impl Stamp {
    pub(super) fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Adds one input; its length is part of it, so that neighbours cannot trade bytes.
    pub(super) fn bytes(mut self, input: &[u8]) -> Self {
        for byte in (input.len() as u64).to_le_bytes().iter().chain(input) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self
    }

    /// As [`Stamp::bytes`].
    pub(super) fn text(self, input: &str) -> Self {
        self.bytes(input.as_bytes())
    }

    /// Whether `folder` was made, to the end, from these inputs.
    pub(super) fn matches(&self, folder: &Path) -> bool {
        fs::read_to_string(folder.join(STAMP)).is_ok_and(|stamp| stamp.trim() == self.to_string())
    }

    /// Declares `folder` complete.
    ///
    /// # Errors
    /// If the stamp cannot be written.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        write_whole(&folder.join(STAMP), &format!("{self}\n"))
    }
}

impl std::fmt::Display for Stamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Creates `folder` and waits until no other run is at work in it. Held until the result is dropped.
///
/// # Errors
/// If the folder cannot be created or locked.
pub(super) fn lock(folder: &Path) -> Result<File> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let path = folder.join(LOCK);
    let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    if file.try_lock().is_err() {
        eprintln!("waiting for another set-up in {}", folder.display());
        file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    }
    Ok(file)
}

/// Removes everything in `folder` but the lock, the stamp first.
///
/// # Errors
/// If something cannot be removed.
pub(super) fn clear(folder: &Path) -> Result<()> {
    remove(&folder.join(STAMP))?;
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        if entry.file_name() != LOCK {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Removes a file or a folder; one that is not there is fine.
///
/// # Errors
/// If it is there and cannot be removed.
pub(super) fn remove(path: &Path) -> Result<()> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Writes a file so that a reader sees the old or the new text, never a part.
///
/// # Errors
/// If it cannot be written.
pub(super) fn write_whole(path: &Path, text: &str) -> Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text).with_context(|| format!("cannot write {}", new.display()))?;
    fs::rename(&new, path).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(std::path::PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("fusion-xtask-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_hash_is_fnv_1a_over_length_and_bytes() {
        // FNV-1a of eight zero bytes: the length of an empty input.
        assert_eq!(Stamp::new().text("").to_string(), "a8c7f832281a39c5");
    }

    #[test]
    fn neighbouring_inputs_cannot_trade_bytes() {
        let (left, right) = (Stamp::new().text("ab").text("c"), Stamp::new().text("a").text("bc"));
        assert_ne!(left.to_string(), right.to_string());
    }

    #[test]
    fn a_folder_matches_only_after_its_stamp_is_written() {
        let scratch = Scratch::new("stamp");
        let stamp = Stamp::new().text("inputs");
        assert!(!stamp.matches(&scratch.0));
        stamp.write(&scratch.0).unwrap();
        assert!(stamp.matches(&scratch.0));
        assert!(!Stamp::new().text("other inputs").matches(&scratch.0));
    }

    #[test]
    fn clearing_keeps_only_the_lock() {
        let scratch = Scratch::new("clear");
        let _alone = lock(&scratch.0).unwrap();
        fs::create_dir_all(scratch.0.join("half/done")).unwrap();
        Stamp::new().write(&scratch.0).unwrap();
        clear(&scratch.0).unwrap();
        let left: Vec<_> = fs::read_dir(&scratch.0).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, [LOCK]);
    }
}
