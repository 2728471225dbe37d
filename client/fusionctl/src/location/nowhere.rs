//! Without the feature `cloud`: no address can be reached, so none can be made.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use super::{Existing, LocationError, without_secrets};

/// There is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remote(Infallible);

impl FromStr for Remote {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<Self, LocationError> {
        Err(LocationError::Unreachable { address: without_secrets(text) })
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {}
    }
}

#[expect(clippy::unused_async, reason = "as with the feature")]
impl Remote {
    pub(super) async fn read(&self) -> Result<Vec<u8>, LocationError> {
        match self.0 {}
    }

    pub(super) async fn write(&self, _: Vec<u8>, _: Existing) -> Result<(), LocationError> {
        match self.0 {}
    }
}
