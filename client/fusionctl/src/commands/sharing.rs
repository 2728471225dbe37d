//! `fusionctl export` and `fusionctl import`: through the daemon, which owns the store.

use fusion_calibrations::sharing::TakenAs;
use fusion_calibrations::sharing::bundle::{Bundle, BundleError};
use fusion_client::{Client, ImportEvent, SocketPath, v1};

use super::connect;
use crate::arguments::{Export, Import};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::json::{self, Schema};
use crate::output::Output;
use crate::render;
use crate::render::sharing::Progress;

pub(super) async fn export(command: &Export, socket: &SocketPath, output: Output) -> Result<(), Failure> {
    let client = connect(socket).await?;
    let bytes = client.export(command.chip.as_deref()).await?;
    // What leaves this machine is what another one will be able to read.
    let bundle = Bundle::decode(&bytes).map_err(|error| {
        Failure::ended(Exit::Internal, format!("fusiond's export can't be read: {error}; please report this"))
    })?;
    let size = bytes.len() as u64;
    command.location.write(bytes, command.existing()).await?;
    let location = command.location.to_string();
    if output.json {
        let exported = json::sharing::Exported::new(location, &bundle, size);
        return output.print(&json::document(Schema::Export, &exported)?);
    }
    output.print(&render::sharing::exported(&location, &bundle, size))
}

pub(super) async fn import(command: &Import, socket: &SocketPath, output: Output) -> Result<(), Failure> {
    let location = command.location.to_string();
    let bytes = command.location.read().await?;
    let damaged = |error: BundleError| Failure::ended(Exit::BadData, format!("{location}: {error}"));
    let records = Bundle::decode(&bytes).map_err(damaged)?.records().len();
    let taken = if command.as_prior { TakenAs::Prior } else { TakenAs::Imported };
    let client = connect(socket).await?;
    let finished = take_over(&client, &bytes, taken, Progress::new(records, output)).await?;
    if output.json {
        let imported = json::sharing::Imported::new(location, taken, &finished);
        return output.print(&json::document(Schema::Import, &imported)?);
    }
    output.print(&render::sharing::imported(&location, taken, &finished, output))
}

async fn take_over(
    client: &Client,
    bundle: &[u8],
    taken: TakenAs,
    progress: Progress,
) -> Result<v1::ImportFinished, Failure> {
    let mut import = client.import(bundle, taken).await?;
    while let Some(event) = import.next().await? {
        match event {
            ImportEvent::Progress(done) => progress.show(done),
            ImportEvent::Finished(finished) => return Ok(finished),
        }
    }
    Err(Failure::ended(Exit::Internal, "the import ended without saying how; please report this"))
}
