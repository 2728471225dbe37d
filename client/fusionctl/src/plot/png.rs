//! Turns a drawing into pixels.

use std::sync::Arc;

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

/// The letters: a subset of DejaVu Sans under its own free licence (`assets/DejaVuSans-LICENSE.txt`), so that a machine without fonts, or with
/// others, gives the same picture.
const FONT: &[u8] = include_bytes!("../../assets/DejaVuSans-subset.ttf");
const FAMILY: &str = "DejaVu Sans";
/// Pixels per pixel of the drawing: sharp on screens of today.
const SCALE: f32 = 2.0;

/// Why there are no pixels.
#[derive(Debug, thiserror::Error)]
pub(super) enum PngError {
    /// The drawing can't be read.
    #[error("{0}")]
    Drawing(#[from] resvg::usvg::Error),
    /// The picture has no size.
    #[error("it has no size")]
    Size,
    /// The pixels can't be encoded.
    #[error("{0}")]
    Encoding(String),
}

/// The drawing as a PNG file.
pub(super) fn png(svg: &str) -> Result<Vec<u8>, PngError> {
    let mut fonts = fontdb::Database::new();
    fonts.load_font_data(FONT.to_vec());
    fonts.set_sans_serif_family(FAMILY);
    let options = Options { fontdb: Arc::new(fonts), font_family: FAMILY.to_owned(), ..Options::default() };
    let tree = Tree::from_str(svg, &options)?;
    let size = tree.size().to_int_size().scale_by(SCALE).ok_or(PngError::Size)?;
    let mut pixels = Pixmap::new(size.width(), size.height()).ok_or(PngError::Size)?;
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| PngError::Encoding(error.to_string()))
}
