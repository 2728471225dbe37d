//! Every estimate, page by page.

use std::vec;

use fusion_proto::v1;

use crate::{Client, ClientError};

/// Estimates on a page: large enough that most stores are one, small enough to be far below the message limit.
const PAGE: u32 = 500;

/// The estimates of this machine, in the order of the store's keys. A page is fetched when it is needed.
#[derive(Debug)]
pub struct Estimates {
    client: Client,
    page: vec::IntoIter<v1::Estimate>,
    /// The next page; `None` after the last.
    token: Option<String>,
}

impl Estimates {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, page: Vec::new().into_iter(), token: Some(String::new()) }
    }

    /// The next estimate; `None` after the last.
    ///
    /// # Errors
    /// [`ClientError::Protocol`], and those of a connection: see [`ClientError`].
    pub async fn next(&mut self) -> Result<Option<v1::Estimate>, ClientError> {
        loop {
            if let Some(estimate) = self.page.next() {
                return Ok(Some(estimate));
            }
            let Some(token) = self.token.take() else { return Ok(None) };
            let reply = self.client.ratios_page(PAGE, token).await?;
            self.token = Some(reply.next_page_token).filter(|token| !token.is_empty());
            self.page = reply.estimates.into_iter();
        }
    }

    /// All that are left.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub async fn collect(mut self) -> Result<Vec<v1::Estimate>, ClientError> {
        let mut all = Vec::new();
        while let Some(estimate) = self.next().await? {
            all.push(estimate);
        }
        Ok(all)
    }
}
