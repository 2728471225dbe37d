//! Looks at the daemon again and again, and tells it what a person decides. A daemon that went away is looked for until it is back.

use std::time::Duration;

use fusion_client::{Client, ClientError, SocketPath};
use tokio::sync::mpsc::{Receiver, Sender};

use crate::commands::service;
use crate::watch::Seen;

/// What a person decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Measure nothing by itself.
    Pause,
    /// Go on.
    Resume,
    /// Read the configuration again.
    Reload,
}

/// What is known now.
#[derive(Debug)]
pub(super) enum News {
    /// A look, or why there was none.
    Look(Result<Box<Seen>, String>),
    /// An order came to nothing, and why.
    Failed(String),
}

/// Goes on until nobody listens.
pub(super) async fn poll(
    socket: SocketPath,
    interval: Duration,
    mut orders: Receiver<Order>,
    news: Sender<News>,
) {
    let mut connection = None;
    loop {
        let look = look(&socket, &mut connection).await;
        if news.send(News::Look(look)).await.is_err() {
            return;
        }
        let order = tokio::select! {
            () = tokio::time::sleep(interval) => continue,
            order = orders.recv() => order,
        };
        let Some(order) = order else { return };
        if let Err(error) = obey(&socket, &mut connection, order).await
            && news.send(News::Failed(error.to_string())).await.is_err()
        {
            return;
        }
    }
}

async fn look(socket: &SocketPath, connection: &mut Option<Client>) -> Result<Box<Seen>, String> {
    if connection.is_none() {
        // Looking starts no daemon.
        service::awake(socket).map_err(|failure| failure.to_string())?;
    }
    let look = async {
        let client = connected(socket, connection).await?;
        let status = client.status().await?;
        let clients = match client.list_clients().await {
            // Such a daemon can be looked at all the same.
            Err(ClientError::Protocol { .. }) => Vec::new(),
            clients => clients?,
        };
        Ok::<_, ClientError>(Box::new(Seen { status, clients }))
    };
    let look = look.await;
    look.map_err(|error| {
        // The next look begins with a connection of its own.
        *connection = None;
        error.to_string()
    })
}

async fn connected<'a>(
    socket: &SocketPath,
    connection: &'a mut Option<Client>,
) -> Result<&'a Client, ClientError> {
    let client = match connection.take() {
        Some(client) => client,
        None => Client::connect(socket).await?,
    };
    Ok(connection.insert(client))
}

/// What became of it shows at the next look; only a failure is told.
async fn obey(socket: &SocketPath, connection: &mut Option<Client>, order: Order) -> Result<(), ClientError> {
    let client = connected(socket, connection).await?;
    match order {
        Order::Pause => client.pause(None).await.map(drop),
        Order::Resume => client.resume().await.map(drop),
        Order::Reload => client.reload_configuration().await.map(drop),
    }
}
