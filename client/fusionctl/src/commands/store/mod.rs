//! `fusionctl store`: through the daemon, which owns the store while it runs; else with `fusiond store`.

mod offline;

use std::path::{Path, absolute};

use fusion_client::{Client, ClientError, SocketPath};

use crate::arguments::Store;
use crate::commands::confirm;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::json::{self, Schema};
use crate::output::Output;
use crate::render;

pub(super) async fn run(command: &Store, socket: &SocketPath, output: Output) -> Result<(), Failure> {
    if let Store::Rebuild { yes: false } = command {
        confirm::possible("rebuilding replaces the store's index")?;
        let question = "Build the store's index anew from its record files? The old one is set aside.";
        if !confirm::asked(question)? {
            return output.print("nothing was changed");
        }
    }
    match Client::connect(socket).await {
        Ok(client) => online(command, &client, output).await,
        Err(ClientError::NotRunning { .. }) => Err(offline::exec(command, output)),
        Err(error) => Err(error.into()),
    }
}

async fn online(command: &Store, client: &Client, output: Output) -> Result<(), Failure> {
    match command {
        Store::Verify => verify(client, output).await,
        Store::Rebuild { .. } => rebuild(client, output).await,
        Store::Export { path } => export(client, path, output).await,
    }
}

async fn verify(client: &Client, output: Output) -> Result<(), Failure> {
    let reply = client.verify_store().await?;
    if output.json {
        output.print(&json::document(Schema::StoreVerify, &json::store::Verified::from(&reply))?)?;
    } else {
        output.print(&render::store::verified(&reply, output))?;
    }
    match reply.problems.len() {
        0 => Ok(()),
        count => {
            let message = format!(
                "the store has {}: 'fusionctl store rebuild' builds it anew from its record files",
                render::words::count(count, "problem")
            );
            Err(Failure::ended(Exit::BadData, message))
        }
    }
}

async fn rebuild(client: &Client, output: Output) -> Result<(), Failure> {
    let reply = client.rebuild_store().await?;
    if output.json {
        return output.print(&json::document(Schema::StoreRebuild, &json::store::Rebuilt::from(&reply))?);
    }
    output.print(&render::store::rebuilt(&reply))
}

async fn export(client: &Client, path: &Path, output: Output) -> Result<(), Failure> {
    // The daemon has another working directory.
    let full = absolute(path)
        .map_err(|error| Failure::Usage(format!("'{}' is no path: {error}", path.display())))?;
    let full = full
        .to_str()
        .ok_or_else(|| Failure::Usage(format!("'{}' is not UTF-8: choose another name", path.display())))?;
    let reply = client.export_store(full).await?;
    if output.json {
        return output.print(&json::document(Schema::StoreExport, &json::store::Exported::from(&reply))?);
    }
    output.print(&render::store::exported(&reply))
}
