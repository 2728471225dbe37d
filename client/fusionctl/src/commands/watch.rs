//! `fusionctl watch`.

use fusion_client::SocketPath;

use crate::arguments::Watch;
use crate::failure::Failure;
use crate::output::Output;

pub(super) async fn run(_: &Watch, _: &SocketPath, _: Output) -> Result<(), Failure> {
    Err(Failure::Usage("not yet".to_owned()))
}
