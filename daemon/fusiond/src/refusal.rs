//! A daemon that can't start answers those who wait on the manager's socket with the reason; else they would wait for nobody.

use std::io;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::Status;
use tonic::service::InterceptorLayer;
use tonic::transport::Server;

/// Nobody came for so long: all who waited have their answer.
const IDLE: Duration = Duration::from_secs(1);
/// At the latest: the next start may do better.
const LIMIT: Duration = Duration::from_secs(5);

/// Answers every call with `reason`, until nobody comes any more.
///
/// # Errors
/// The system refuses a runtime or the socket.
pub fn answer(listener: UnixListener, reason: &str) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(listener, reason.to_owned()))
}

async fn serve(listener: UnixListener, reason: String) -> io::Result<()> {
    let listener = tokio::net::UnixListener::from_std(listener)?;
    let came = Arc::new(Notify::new());
    let tell = Arc::clone(&came);
    let connections = UnixListenerStream::new(listener).map(move |connection| {
        tell.notify_one();
        connection
    });
    let (_, health) = tonic_health::server::health_reporter();
    let refuse = move |_| Err::<tonic::Request<()>, _>(Status::failed_precondition(reason.clone()));
    let serving = Server::builder()
        .layer(InterceptorLayer::new(refuse))
        .add_service(health)
        .serve_with_incoming(connections);
    let idle = async { while tokio::time::timeout(IDLE, came.notified()).await.is_ok() {} };
    tokio::select! {
        served = serving => served.map_err(io::Error::other),
        () = idle => Ok(()),
        () = tokio::time::sleep(LIMIT) => Ok(()),
    }
}
