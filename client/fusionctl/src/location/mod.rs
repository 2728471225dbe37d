//! Where a file of calibrations lies: a path of this machine, or an object somewhere else.
//!
//! Objects elsewhere (S3, Google, Azure, HTTP) are reached with the feature `cloud`.

#[cfg(feature = "cloud")]
mod cloud;
mod file;
#[cfg(not(feature = "cloud"))]
mod nowhere;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

#[cfg(feature = "cloud")]
use cloud::Remote;
#[cfg(not(feature = "cloud"))]
use nowhere::Remote;

use fusion_calibrations::sharing::bundle::MAX_BUNDLE_BYTES;

use crate::exit::Exit;
use crate::failure::Failure;

/// A path or an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Location {
    /// A file.
    File(PathBuf),
    /// An object of a store that speaks HTTP.
    Remote(Remote),
}

/// What happens to something that lies there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existing {
    /// It stays, and nothing is written.
    Keep,
    /// It is replaced.
    Replace,
}

/// Why a location can't be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LocationError {
    /// An address that none of the stores has.
    #[cfg_attr(not(feature = "cloud"), expect(dead_code, reason = "no address is looked at"))]
    #[error(
        "'{address}' is no address that is known ({reason}): name a file, or one of s3://, gs://, az://, https://, http://"
    )]
    Address {
        /// Without what is secret in it.
        address: String,
        /// What is wrong.
        reason: String,
    },
    /// An address, and no way to reach it.
    #[cfg_attr(feature = "cloud", expect(dead_code, reason = "there is a way"))]
    #[error(
        "'{address}' can't be reached: this fusionctl was built without the feature 'cloud'; copy the file here and name its path"
    )]
    Unreachable {
        /// Without what is secret in it.
        address: String,
    },
    /// Nothing lies there.
    #[error("there is nothing at {place}")]
    Missing {
        /// The location.
        place: String,
    },
    /// Something lies there.
    #[error("{place} exists already: --replace replaces it")]
    Exists {
        /// The location.
        place: String,
    },
    /// More than any bundle has.
    #[error("{place} has more than {} MiB: it is no file of exported calibrations", MAX_BUNDLE_BYTES >> 20)]
    TooLarge {
        /// The location.
        place: String,
    },
    /// Anything else.
    #[error("{action} {place} failed: {reason}")]
    Failed {
        /// What failed.
        action: Action,
        /// The location.
        place: String,
        /// What the system or the store said.
        reason: String,
    },
}

/// What is done to a location.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Reading,
    Writing,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reading => "reading",
            Self::Writing => "writing",
        })
    }
}

impl From<LocationError> for Failure {
    fn from(error: LocationError) -> Self {
        let exit = match error {
            LocationError::Address { .. } | LocationError::Unreachable { .. } => Exit::Usage,
            LocationError::TooLarge { .. } => Exit::BadData,
            LocationError::Missing { .. } | LocationError::Exists { .. } | LocationError::Failed { .. } => {
                Exit::Io
            }
        };
        Self::ended(exit, error.to_string())
    }
}

impl Location {
    /// What lies there, unless it is larger than any bundle.
    ///
    /// # Errors
    /// Every [`LocationError`] but `Address` and `Exists`.
    pub(crate) async fn read(&self) -> Result<Vec<u8>, LocationError> {
        match self {
            Self::File(path) => file::read(path),
            Self::Remote(remote) => remote.read().await,
        }
    }

    /// Puts the bytes there: whoever reads it sees what was there before, or all of them.
    ///
    /// # Errors
    /// Every [`LocationError`] but `Address`, `Missing` and `TooLarge`.
    pub(crate) async fn write(&self, bytes: Vec<u8>, existing: Existing) -> Result<(), LocationError> {
        match self {
            Self::File(path) => file::write(path, &bytes, existing),
            Self::Remote(remote) => remote.write(bytes, existing).await,
        }
    }
}

impl FromStr for Location {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<Self, LocationError> {
        match text.split_once("://") {
            None => Ok(Self::File(text.into())),
            Some(("file", path)) => Ok(Self::File(path.into())),
            Some(_) => text.parse().map(Self::Remote),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Remote(remote) => write!(f, "{remote}"),
        }
    }
}

/// An address as it may be shown: without the user and the query, where passwords and signatures are.
fn without_secrets(address: &str) -> String {
    let address = address.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = address.split_once("://") else { return address.to_owned() };
    let (authority, path) = rest.split_once('/').map_or((rest, ""), |(authority, path)| (authority, path));
    match authority.rsplit_once('@') {
        // abfs://container@account: no secret, and needed to tell what is meant.
        Some((user, _)) if !user.contains(':') => address.to_owned(),
        Some((_, host)) => format!("{scheme}://{host}/{path}"),
        None => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_path() {
        for (text, path) in
            [("a/b.fcals", "a/b.fcals"), ("file:///tmp/b", "/tmp/b"), ("odd:name", "odd:name")]
        {
            assert_eq!(text.parse::<Location>().unwrap(), Location::File(path.into()));
        }
    }

    #[test]
    fn what_is_secret_is_not_shown() {
        let cases = [
            ("https://anna:secret@host/a/b?sig=secret", "https://host/a/b"),
            ("s3://bucket/a", "s3://bucket/a"),
            (
                "abfs://container@account.dfs.core.windows.net/a",
                "abfs://container@account.dfs.core.windows.net/a",
            ),
            ("https://host?token=secret", "https://host"),
        ];
        for (address, shown) in cases {
            assert_eq!(without_secrets(address), shown);
        }
    }

    #[test]
    fn an_unknown_address_is_a_mistake_of_the_command_line() {
        let error = "ftp://anna:secret@host/a".parse::<Location>().unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
        assert_eq!(Failure::from(error).exit(), Exit::Usage);
    }
}
