//! The way to the daemon: HTTP/2 over its Unix socket.

use std::io;

use fusion_proto::endpoint::SocketPath;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::{Deadlines, VERSION};

/// A channel that connects when it is first used, and again after a daemon was replaced.
pub(crate) fn channel(socket: &SocketPath, deadlines: &Deadlines) -> Channel {
    // The host is only what is sent as `:authority`; a path there is refused by many servers.
    let endpoint = Endpoint::from_static("http://localhost")
        .connect_timeout(deadlines.connect)
        .http2_keep_alive_interval(deadlines.keep_alive)
        .keep_alive_timeout(deadlines.keep_alive_answer);
    let endpoint = endpoint.clone().user_agent(format!("fusion-client/{VERSION}")).unwrap_or(endpoint);
    let path = socket.clone();
    endpoint.connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { open(&path).await.map(TokioIo::new) }
    }))
}

/// A connection to a process of this user.
///
/// # Errors
/// Those of the operating system; `PermissionDenied` if the process behind the socket is another user's.
pub(crate) async fn open(socket: &SocketPath) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(socket.as_path()).await?;
    let (theirs, ours) = (stream.peer_cred()?.uid(), rustix::process::geteuid().as_raw());
    if theirs == ours {
        Ok(stream)
    } else {
        let who = format!("the process behind it runs as user {theirs}, you are {ours}");
        Err(io::Error::new(io::ErrorKind::PermissionDenied, who))
    }
}
