//! `fusionctl history`.

use std::path::Path;

use fusion_client::{SocketPath, v1};

use super::{connect, ratios, write_picture};
use crate::arguments::History;
use crate::failure::Failure;
use crate::json::{self, Schema};
use crate::output::Output;
use crate::plot::{self, Format};
use crate::render;

pub(super) async fn run(command: &History, socket: &SocketPath, output: Output) -> Result<(), Failure> {
    let shape = ratios::parse(&command.shape)?;
    // Before anything else: a mistake is the same with and without a daemon.
    let file = match &command.plot {
        Some(path) => Some((path.as_path(), Format::of(path)?)),
        None => None,
    };
    let client = connect(socket).await?;
    let reply = client.history(shape, command.limit).await?;
    let chip = client.status().await?.chip;
    let shape = v1::Shape::from(shape);
    let plot = match file {
        Some((path, format)) => Some(draw(&shape, &reply, chip.as_ref(), (path, format))?),
        None => None,
    };
    if output.json {
        let history = json::history::History::new(&shape, &reply, plot);
        return output.print(&json::document(Schema::History, &history)?);
    }
    output.print(&render::history::history(&shape, &reply, chip.as_ref(), output))?;
    if let Some((path, _)) = file {
        output.tell(&format!("drawn: {}", path.display()));
    }
    Ok(())
}

fn draw(
    shape: &v1::Shape,
    reply: &v1::ListHistoryReply,
    chip: Option<&v1::Chip>,
    (path, format): (&Path, Format),
) -> Result<json::history::Plot, Failure> {
    let bytes = plot::history(shape, &reply.estimates, chip, format)?;
    write_picture(path, &bytes)?;
    Ok(json::history::Plot::new(path, format.word(), bytes.len()))
}
