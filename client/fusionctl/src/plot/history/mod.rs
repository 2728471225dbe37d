//! A picture of how a shape's ratio and speed-up changed over time, under which conditions and by which engines.

mod draw;
mod picture;

use fusion_client::v1;

use self::picture::Picture;
use super::drawn;
use crate::failure::Failure;

pub(super) fn svg(
    shape: &v1::Shape,
    estimates: &[v1::Estimate],
    chip: Option<&v1::Chip>,
) -> Result<String, Failure> {
    drawn(draw::svg(&Picture::new(shape, estimates, chip)?))
}
