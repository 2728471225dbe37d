//! `fusionctl status`. It never starts a daemon: looking must not change what is looked at.

use fusion_client::SocketPath;

use super::{connect, now_unix_ms};
use crate::failure::Failure;
use crate::json::{self, Schema};
use crate::output::Output;
use crate::render;

pub(super) async fn run(socket: &SocketPath, output: Output) -> Result<(), Failure> {
    let status = connect(socket).await?.status().await?;
    if output.json {
        return output.print(&json::document(Schema::Status, &json::status::Status::from(&status))?);
    }
    output.print(&render::status::status(&status, now_unix_ms(), output))
}
