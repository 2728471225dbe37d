//! A log file with a cap. Crates that roll by size hide a file that can't be opened, or name the newest file differently each time, which
//! nobody could follow.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use fs_err as fs;
use fusion_proto::state::rolled;

/// A file that is set aside once it holds `limit` bytes; so are a number of its predecessors.
#[derive(Debug)]
pub(super) struct RollingFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    limit: u64,
}

impl RollingFile {
    /// Goes on at the end of `path`.
    pub(super) fn open(path: PathBuf, limit: u64) -> io::Result<Self> {
        let file = append(&path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { path, file, bytes, limit })
    }

    fn roll(&mut self) -> io::Result<()> {
        set_aside(&self.path)?;
        self.file = append(&self.path)?;
        self.bytes = 0;
        Ok(())
    }
}

impl Write for RollingFile {
    /// What comes in one piece, a line, stays in one file.
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.bytes > 0 && self.bytes + piece.len() as u64 > self.limit {
            self.roll()?;
        }
        let written = self.file.write(piece)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A file to write at the end of, for its owner alone.
pub(super) fn append(path: &Path) -> io::Result<File> {
    use fs_err::os::unix::fs::OpenOptionsExt as _;

    let file = fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    Ok(file.into_file())
}

/// Renames `path` to its first older part, that one to the second, and so on; the oldest goes.
pub(super) fn set_aside(path: &Path) -> io::Result<()> {
    let mut parts: Vec<_> = std::iter::once(path.to_owned()).chain(rolled(path)).collect();
    parts.reverse();
    for pair in parts.windows(2) {
        match fs::rename(&pair[1], &pair[0]) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fusion_proto::state::KEPT_PARTS;

    #[test]
    fn no_file_exceeds_the_cap_no_line_is_torn_and_the_oldest_goes() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x.log");
        let line = |number: usize| format!("line {number:04}\n");
        for half in [0..100, 100..200] {
            // Opened again in between, as by the next daemon.
            let mut log = RollingFile::open(path.clone(), 95).unwrap();
            half.for_each(|number| log.write_all(line(number).as_bytes()).unwrap());
        }
        let mut parts: Vec<_> = rolled(&path).collect();
        parts.reverse();
        parts.push(path.clone());
        let kept: String = parts.iter().map(|part| fs::read_to_string(part).unwrap()).collect();
        assert!(parts.iter().all(|part| fs::metadata(part).unwrap().len() <= 95));
        let first = 200 - kept.lines().count();
        assert_eq!(kept, (first..200).map(line).collect::<String>());
        assert!(kept.lines().count() > 9 * KEPT_PARTS, "{kept}");
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), KEPT_PARTS + 1);
    }
}
