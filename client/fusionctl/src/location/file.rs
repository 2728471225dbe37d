//! Files of this machine.

use std::fs::{File, Permissions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use fusion_calibrations::sharing::bundle::MAX_BUNDLE_BYTES;

use super::{Action, Existing, LocationError};

/// What the user's umask leaves of this: the file is for others, too.
const MODE: u32 = 0o666;

fn failed(action: Action, path: &Path, error: &std::io::Error) -> LocationError {
    let place = path.display().to_string();
    match error.kind() {
        ErrorKind::NotFound if action == Action::Reading => LocationError::Missing { place },
        ErrorKind::AlreadyExists => LocationError::Exists { place },
        _ => LocationError::Failed { action, place, reason: error.to_string() },
    }
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>, LocationError> {
    let failed = |error| failed(Action::Reading, path, &error);
    let mut bytes = Vec::new();
    // A device may have no end.
    File::open(path)
        .map_err(failed)?
        .take(MAX_BUNDLE_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() > MAX_BUNDLE_BYTES {
        return Err(LocationError::TooLarge { place: path.display().to_string() });
    }
    Ok(bytes)
}

/// Writes next to the place, then gives the file its name.
pub(super) fn write(path: &Path, bytes: &[u8], existing: Existing) -> Result<(), LocationError> {
    let failed = |error| failed(Action::Writing, path, &error);
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let mut file = tempfile::Builder::new()
        .prefix(".fusion-export-")
        .permissions(Permissions::from_mode(MODE))
        .tempfile_in(directory)
        .map_err(failed)?;
    file.write_all(bytes).and_then(|()| file.as_file().sync_all()).map_err(failed)?;
    let named = match existing {
        Existing::Keep => file.persist_noclobber(path),
        Existing::Replace => file.persist(path),
    };
    named.map(drop).map_err(|error| failed(error.error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_only_when_asked_and_nothing_else_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.fcals");
        write(&path, b"first", Existing::Keep).unwrap();
        let refused = write(&path, b"second", Existing::Keep).unwrap_err();
        assert!(matches!(refused, LocationError::Exists { .. }), "{refused}");
        assert_eq!(read(&path).unwrap(), b"first");
        write(&path, b"second", Existing::Replace).unwrap();
        assert_eq!(read(&path).unwrap(), b"second");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_cannot_be_read_or_written_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let nothing = directory.path().join("nothing");
        assert!(matches!(read(&nothing).unwrap_err(), LocationError::Missing { .. }));
        let error = write(&nothing.join("below"), b"", Existing::Keep).unwrap_err();
        assert!(error.to_string().contains("writing"), "{error}");
        let endless = read(Path::new("/dev/zero")).unwrap_err();
        assert!(matches!(endless, LocationError::TooLarge { .. }), "{endless}");
    }
}
