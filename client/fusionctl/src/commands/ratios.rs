//! `fusionctl ratios`.

use fusion_calibrations::shape::Shape;
use fusion_client::{SocketPath, v1};

use super::{connect, write_picture};
use crate::arguments::{OneShape, Plot, Ratios};
use crate::failure::Failure;
use crate::json::{self, Schema};
use crate::output::Output;
use crate::plot::{self, Format};
use crate::render;

pub(super) async fn run(command: &Ratios, socket: &SocketPath, output: Output) -> Result<(), Failure> {
    match command {
        Ratios::List => list(socket, output).await,
        Ratios::Get(shape) => get(parse(shape)?, socket, output).await,
        Ratios::Explain(shape) => explain(parse(shape)?, socket, output).await,
        Ratios::Plot(plot) => self::plot(plot, socket, output).await,
    }
}

pub(super) fn parse(shape: &OneShape) -> Result<Shape, Failure> {
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
    output.print(&render::explanation::explanation(&shape, &reply, output))
}

async fn plot(command: &Plot, socket: &SocketPath, output: Output) -> Result<(), Failure> {
    let shape = parse(&command.shape)?;
    let file = match &command.file {
        Some(path) => Some((path, Format::of(path)?)),
        None if output.json => {
            return Err(Failure::Usage("--json tells where the picture is: name a file with -o".to_owned()));
        }
        None => None,
    };
    let reply = connect(socket).await?.explain_ratio(shape, None).await?;
    let shape = v1::Shape::from(shape);
    let Some((path, format)) = file else {
        let svg = plot::ratio(&shape, &reply, Format::Svg)?;
        return output.print(&String::from_utf8_lossy(&svg));
    };
    let bytes = plot::ratio(&shape, &reply, format)?;
    write_picture(path, &bytes)?;
    if output.json {
        let plot = json::ratios::Plot::new(&shape, path, format.word(), bytes.len());
        return output.print(&json::document(Schema::RatiosPlot, &plot)?);
    }
    output.tell(&format!("drawn: {}", path.display()));
    Ok(())
}
