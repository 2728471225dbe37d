//! `fusionctl metrics`.

use fusion_client::SocketPath;

use super::{connect, service};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::metrics;
use crate::output::Output;

pub(super) async fn run(socket: &SocketPath, output: Output) -> Result<(), Failure> {
    if output.json {
        let message =
            "metrics are text in Prometheus' format: 'fusionctl status --json' has the same as JSON";
        return Err(Failure::Usage(message.to_owned()));
    }
    match status(socket).await {
        Ok(status) => output.print(&metrics::metrics(&status)),
        Err(failure) => {
            // A scraper keeps what is printed, a person or a script sees why.
            if failure.exit() == Exit::NotRunning {
                output.print(&metrics::down())?;
            }
            Err(failure)
        }
    }
}

async fn status(socket: &SocketPath) -> Result<fusion_client::v1::GetStatusReply, Failure> {
    // Being scraped starts no daemon.
    service::awake(socket)?;
    Ok(connect(socket).await?.status().await?)
}
