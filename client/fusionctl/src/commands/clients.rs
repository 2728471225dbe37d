//! `fusionctl clients`.

use fusion_client::{AttachedClient, ServedLayer, SocketPath};

use super::connect;
use crate::arguments::Clients;
use crate::failure::Failure;
use crate::json::{self, Schema};
use crate::output::Output;
use crate::render;

/// A client, and its layers if they were asked for.
#[derive(Debug)]
pub(crate) struct Shown {
    /// The client.
    pub(crate) client: AttachedClient,
    /// What answers for each of its layers; `None` if nobody asked.
    pub(crate) layers: Option<Vec<ServedLayer>>,
}

pub(super) async fn run(command: &Clients, socket: &SocketPath, output: Output) -> Result<(), Failure> {
    let daemon = connect(socket).await?;
    let mut shown = Vec::new();
    for client in daemon.list_clients().await? {
        if !command.layers {
            shown.push(Shown { client, layers: None });
        } else if let Some(layers) = daemon.client_layers(client.number).await? {
            // Whoever left meanwhile is attached no more.
            shown.push(Shown { client, layers: Some(layers) });
        }
    }
    if output.json {
        return output.print(&json::document(Schema::Clients, &json::clients::List::from(&shown[..]))?);
    }
    output.print(&render::clients::list(&shown, output))
}
