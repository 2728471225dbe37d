//! Objects of S3, Google, Azure and plain HTTP servers.
//!
//! Credentials and endpoints come from the environment, in the words that each provider's own tools use: `AWS_*`, `GOOGLE_*`, `AZURE_*` (see the
//! documentation of object_store's builders). What is written is there as a whole or not at all: all of these stores put objects in one step.

use std::env;
use std::error::Error as _;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use fusion_calibrations::sharing::bundle::MAX_BUNDLE_BYTES;
use object_store::path::Path;
use object_store::{
    Error, ObjectStore, ObjectStoreExt as _, ObjectStoreScheme, PutMode, PutPayload, PutResult,
};
use tokio::time::timeout;
use url::Url;

use super::{Action, Existing, LocationError, without_secrets};

/// How long a transfer may take, with all its retries: a bundle has a few hundred KiB.
const TRANSFER_LIMIT: Duration = Duration::from_secs(60);
/// What variables that are meant for stores begin with.
const VARIABLES: [&str; 3] = ["AWS_", "AZURE_", "GOOGLE_"];

/// The address of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remote(Url);

impl FromStr for Remote {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<Self, LocationError> {
        let unknown = |reason: String| LocationError::Address { address: without_secrets(text), reason };
        let url: Url = text.parse().map_err(|error: url::ParseError| unknown(error.to_string()))?;
        match ObjectStoreScheme::parse(&url) {
            Ok((ObjectStoreScheme::Memory | ObjectStoreScheme::Local, _)) | Err(_) => {
                Err(unknown("no store is reached that way".to_owned()))
            }
            Ok((_, path)) if path.is_root() => Err(unknown("it names no object".to_owned())),
            Ok(_) => Ok(Self(url)),
        }
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_secrets(self.0.as_str()))
    }
}

impl Remote {
    pub(super) async fn read(&self) -> Result<Vec<u8>, LocationError> {
        self.within(Action::Reading, async {
            let (store, path) = self.open()?;
            let found = store.get(&path).await?;
            if found.meta.size > MAX_BUNDLE_BYTES as u64 {
                return Ok(Err(LocationError::TooLarge { place: self.to_string() }));
            }
            Ok(Ok(found.bytes().await?.to_vec()))
        })
        .await?
    }

    pub(super) async fn write(&self, bytes: Vec<u8>, existing: Existing) -> Result<(), LocationError> {
        self.within(Action::Writing, async {
            let (store, path) = self.open()?;
            let placed = match existing {
                Existing::Replace => store.put(&path, bytes.into()).await,
                Existing::Keep => put_new(store.as_ref(), &path, bytes.into()).await,
            };
            match placed {
                Err(Error::AlreadyExists { .. }) => {
                    Ok(Err(LocationError::Exists { place: self.to_string() }))
                }
                other => other.map(|_| Ok(())),
            }
        })
        .await?
    }

    fn open(&self) -> Result<(Box<dyn ObjectStore>, Path), Error> {
        // Whoever installed one before installed this one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let told = env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let told = told.filter(|(name, _)| VARIABLES.iter().any(|prefix| name.starts_with(prefix)));
        // Whoever writes http:// means it.
        let plain = (self.0.scheme() == "http").then(|| ("allow_http".to_owned(), "true".to_owned()));
        object_store::parse_url_opts(&self.0, told.chain(plain))
    }

    async fn within<T>(
        &self,
        action: Action,
        transfer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, LocationError> {
        let failed = |reason| LocationError::Failed { action, place: self.to_string(), reason };
        match timeout(TRANSFER_LIMIT, transfer).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(Error::NotFound { .. })) => Err(match action {
                Action::Reading => LocationError::Missing { place: self.to_string() },
                Action::Writing => {
                    failed("there is no such bucket, container or folder: make it first".to_owned())
                }
            }),
            Ok(Err(error)) => Err(failed(self.words(&error))),
            Err(_) => Err(failed(format!(
                "no end within {} s; are the credentials (AWS_*, GOOGLE_*, AZURE_*) and the endpoint right?",
                TRANSFER_LIMIT.as_secs()
            ))),
        }
    }

    /// The error and what is behind it, without the secrets of the address, which HTTP libraries repeat.
    fn words(&self, error: &Error) -> String {
        let mut words = error.to_string();
        let mut behind = error.source();
        while let Some(cause) = behind {
            let text = cause.to_string();
            if !words.contains(&text) {
                words = format!("{words}: {text}");
            }
            behind = cause.source();
        }
        words.replace(self.0.as_str(), &self.to_string())
    }
}

/// Puts an object where there is none. Some servers can't be told that, and others don't listen: so it is looked before.
async fn put_new(store: &dyn ObjectStore, path: &Path, bytes: PutPayload) -> Result<PutResult, Error> {
    match store.head(path).await {
        Err(Error::NotFound { .. }) => {}
        Err(error) => return Err(error),
        Ok(_) => {
            let source = "it was looked for".into();
            return Err(Error::AlreadyExists { path: path.to_string(), source });
        }
    }
    match store.put_opts(path, bytes.clone(), PutMode::Create.into()).await {
        Err(Error::NotImplemented { .. } | Error::NotSupported { .. }) => store.put(path, bytes).await,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_every_kind_of_store_are_known() {
        for address in [
            "s3://bucket/team/m4-pro.fcals",
            "gs://bucket/a",
            "az://container/a",
            "abfs://container@account.dfs.core.windows.net/a",
            "https://account.blob.core.windows.net/container/a",
            "https://example.org/a",
            "http://127.0.0.1:8000/a",
        ] {
            assert_eq!(address.parse::<Remote>().unwrap().to_string(), address);
        }
        for address in ["ftp://host/a", "memory:///a", "s3://bucket", "https://", "s3:///a"] {
            assert!(address.parse::<Remote>().is_err(), "{address}");
        }
    }
}
