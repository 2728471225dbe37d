//! Pictures: how a ratio comes about, and how it changed over time.
//!
//! In each, `picture` decides what is shown and `draw` draws it as SVG; `png` turns that into pixels. The same answer gives the same bytes.

mod history;
mod png;
mod ratio;
mod style;

use std::path::Path;

use fusion_client::v1;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::words;

/// What a picture can be kept as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Text that scales; its letters are drawn by whoever shows it.
    Svg,
    /// Pixels, letters included.
    Png,
}

impl Format {
    /// The format that a file name ends with.
    pub(crate) fn of(path: &Path) -> Result<Self, Failure> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some(extension) if extension.eq_ignore_ascii_case("svg") => Ok(Self::Svg),
            Some(extension) if extension.eq_ignore_ascii_case("png") => Ok(Self::Png),
            _ => Err(Failure::Usage(format!(
                "'{}' ends neither with .svg nor with .png: those can be drawn",
                path.display()
            ))),
        }
    }

    /// As the file name ends.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Svg => "svg",
            Self::Png => "png",
        }
    }
}

/// The picture of an explanation, as the bytes of a file.
pub(crate) fn ratio(
    shape: &v1::Shape,
    reply: &v1::ExplainRatioReply,
    format: Format,
) -> Result<Vec<u8>, Failure> {
    encode(ratio::svg(shape, reply)?, format)
}

/// The picture of past calibrations, the newest first, as the bytes of a file. `chip` is the one that is known by more than its key.
pub(crate) fn history(
    shape: &v1::Shape,
    estimates: &[v1::Estimate],
    chip: Option<&v1::Chip>,
    format: Format,
) -> Result<Vec<u8>, Failure> {
    encode(history::svg(shape, estimates, chip)?, format)
}

fn encode(svg: String, format: Format) -> Result<Vec<u8>, Failure> {
    match format {
        Format::Svg => Ok(svg.into_bytes()),
        Format::Png => png::png(&svg).map_err(|error| {
            Failure::ended(Exit::Internal, format!("cannot turn the drawing into pixels: {error}; take SVG"))
        }),
    }
}

fn drawn(svg: style::Drawn<String>) -> Result<String, Failure> {
    svg.map_err(|error| Failure::ended(Exit::Internal, format!("cannot draw: {error}; please report this")))
}

/// There is nothing in a picture.
fn nothing(shape: &v1::Shape) -> Failure {
    let shape = words::shape(shape, true);
    Failure::ended(
        Exit::BadData,
        format!("there is nothing to draw of {shape}: measure it with 'fusionctl calibrate'"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_name_says_the_format() {
        assert_eq!(Format::of(Path::new("/a/b.SVG")).unwrap(), Format::Svg);
        assert_eq!(Format::of(Path::new("b.png")).unwrap(), Format::Png);
        for name in ["b", "b.pdf", "svg", "b.svg.gz"] {
            assert!(Format::of(Path::new(name)).is_err(), "{name}");
        }
    }
}
