//! `fusionctl config`.

use fusion_client::SocketPath;

use super::connect;
use crate::arguments::Config;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::json::configuration::Configuration;
use crate::json::{self, Schema};
use crate::output::Output;
use crate::render;

pub(super) async fn run(command: &Config, socket: &SocketPath, output: Output) -> Result<(), Failure> {
    match command {
        Config::Show => show(socket, output).await,
        Config::Reload => reload(socket, output).await,
    }
}

async fn show(socket: &SocketPath, output: Output) -> Result<(), Failure> {
    let client = connect(socket).await?;
    let Some(known) = client.status().await?.configuration else {
        let message = format!(
            "fusiond {} tells nothing of a configuration: stop it with 'fusionctl stop', then start the one of this version",
            client.daemon().version
        );
        return Err(Failure::ended(Exit::Config, message));
    };
    if output.json {
        return output.print(&json::document(Schema::ConfigShow, &Configuration::from(&known))?);
    }
    output.print(&render::configuration::show(&known, output))
}

async fn reload(socket: &SocketPath, output: Output) -> Result<(), Failure> {
    let known = connect(socket).await?.reload_configuration().await?;
    if output.json {
        return output.print(&json::document(Schema::ConfigReload, &Configuration::from(&known))?);
    }
    output.print(&format!("read again: {}", render::configuration::line(&known, output)))
}
