//! `fusionctl pause` and `fusionctl resume`.

use fusion_client::SocketPath;

use super::{connect, now_unix_ms};
use crate::arguments::Pause;
use crate::failure::Failure;
use crate::json::{self, Schema};
use crate::output::Output;
use crate::render;

pub(super) async fn pause(command: &Pause, socket: &SocketPath, output: Output) -> Result<(), Failure> {
    let planner = connect(socket).await?.pause(command.seconds).await?;
    if output.json {
        return output.print(&json::document(Schema::Pause, &json::planner::Held::new(&planner))?);
    }
    let paused = render::planner::paused(&planner, now_unix_ms());
    output.print(&format!("{paused}; what 'fusionctl calibrate' asks for is measured all the same"))
}

pub(super) async fn resume(socket: &SocketPath, output: Output) -> Result<(), Failure> {
    let planner = connect(socket).await?.resume().await?;
    if output.json {
        return output.print(&json::document(Schema::Resume, &json::planner::Held::new(&planner))?);
    }
    // Not the decision: the daemon has yet to make the one that follows.
    output.print("resumed: 'fusionctl status' tells what is measured next")
}
