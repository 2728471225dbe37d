//! `fusionctl log-level`.

use fusion_client::SocketPath;

use super::connect;
use crate::arguments::LogLevel;
use crate::failure::Failure;
use crate::json::{self, Schema};
use crate::output::Output;

pub(super) async fn run(command: &LogLevel, socket: &SocketPath, output: Output) -> Result<(), Failure> {
    let filter = connect(socket).await?.set_log_filter(command.filter.as_deref()).await?;
    if output.json {
        return output.print(&json::document(Schema::LogLevel, &json::logs::LogLevel { filter })?);
    }
    let until = if command.reset { "" } else { ", until 'fusionctl log-level --reset' or a restart" };
    output.print(&format!("fusiond logs '{filter}' from now on{until}"))
}
