//! `fusionctl ratios`.

use fusion_calibrations::shape::Shape;
use fusion_client::{SocketPath, v1};

use super::connect;
use crate::arguments::{OneShape, Ratios};
use crate::failure::Failure;
use crate::json::{self, Schema};
use crate::output::Output;
use crate::render;

pub(super) async fn run(command: &Ratios, socket: &SocketPath, output: Output) -> Result<(), Failure> {
    match command {
        Ratios::List => list(socket, output).await,
        Ratios::Get(shape) => get(parse(shape)?, socket, output).await,
        Ratios::Explain(shape) => explain(parse(shape)?, socket, output).await,
    }
}

fn parse(shape: &OneShape) -> Result<Shape, Failure> {
    Ok(Shape::parse(&shape.shape, shape.weights.format, shape.weights.layout)?)
}

async fn list(socket: &SocketPath, output: Output) -> Result<(), Failure> {
    let client = connect(socket).await?;
    let estimates = client.list_ratios().collect().await?;
    if output.json {
        return output.print(&json::document(Schema::RatiosList, &json::ratios::List::from(&estimates[..]))?);
    }
    let chip = client.status().await?.chip;
    output.print(&render::ratios::list(&estimates, chip.as_ref(), output))
}

async fn get(shape: Shape, socket: &SocketPath, output: Output) -> Result<(), Failure> {
    let reply = connect(socket).await?.get_ratio(shape, None).await?;
    let shape = v1::Shape::from(shape);
    if output.json {
        return output.print(&json::document(Schema::RatiosGet, &json::ratios::Answer::new(&shape, &reply))?);
    }
    output.print(&render::answer::answer(&shape, &reply, output))
}

async fn explain(shape: Shape, socket: &SocketPath, output: Output) -> Result<(), Failure> {
    let reply = connect(socket).await?.explain_ratio(shape, None).await?;
    let shape = v1::Shape::from(shape);
    if output.json {
        let explanation = json::ratios::Explanation::new(&shape, &reply);
        return output.print(&json::document(Schema::RatiosExplain, &explanation)?);
    }
    output.print(&render::answer::explanation(&shape, &reply, output))
}
