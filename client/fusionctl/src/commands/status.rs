//! `fusionctl status`. It never starts a daemon: looking must not change what is looked at.

use fusion_client::SocketPath;

use super::{connect, now_unix_ms, service};
use crate::failure::Failure;
use crate::json::{self, Schema};
use crate::output::Output;
use crate::render;

pub(super) async fn run(socket: &SocketPath, output: Output) -> Result<(), Failure> {
    let managed = service::awake(socket)?;
    let status = connect(socket).await?.status().await?;
    if output.json {
        return output.print(&json::document(Schema::Status, &json::status::Status::new(&status, managed))?);
    }
    output.print(&render::status::status(&status, managed.as_ref(), now_unix_ms(), output))
}
