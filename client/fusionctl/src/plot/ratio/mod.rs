//! A picture of how a ratio comes about: what was measured, both units' lines, and the choice.

mod draw;
mod picture;

use fusion_client::v1;

use self::picture::Picture;
use super::drawn;
use crate::failure::Failure;

pub(super) fn svg(shape: &v1::Shape, reply: &v1::ExplainRatioReply) -> Result<String, Failure> {
    drawn(draw::svg(&Picture::new(shape, reply)?))
}
