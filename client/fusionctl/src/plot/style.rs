//! What all pictures share: size, colours, letters, the heading.

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::{Cartesian2d, ChartContext, DrawingArea, IntoFont as _, RGBColor, SVGBackend};
use plotters::style::{FontStyle, TextStyle};

/// Width and height in pixels.
pub(super) const SIZE: (u32, u32) = (960, 620);
/// Between the picture's content and its rim, in pixels.
pub(super) const MARGIN: i32 = 24;
const FONT: &str = "sans-serif";

// Told apart by colour-blind eyes as well (Okabe and Ito, 2008).
pub(super) const INK: RGBColor = RGBColor(34, 34, 34);
pub(super) const FAINT: RGBColor = RGBColor(110, 110, 110);
pub(super) const GRID: RGBColor = RGBColor(228, 228, 228);
pub(super) const PRIMARY: RGBColor = RGBColor(0, 114, 178);
pub(super) const SECONDARY: RGBColor = RGBColor(213, 94, 0);
pub(super) const STOCK: RGBColor = RGBColor(0, 158, 115);
pub(super) const CHOSEN: RGBColor = RGBColor(204, 121, 167);
const WARNING: RGBColor = RGBColor(176, 64, 0);

/// A part of the picture, in pixels.
pub(super) type Root<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// Two axes of numbers.
pub(super) type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
/// Drawing fails in many ways, none of which a caller tells apart.
pub(super) type Drawn<T = ()> = Result<T, Box<dyn std::error::Error>>;

pub(super) fn font(size: f64, colour: RGBColor) -> TextStyle<'static> {
    (FONT, size).into_font().color(&colour)
}

/// The title, what must be told of the pair, and where the picture holds.
pub(super) fn heading(area: &Root<'_>, title: &str, label: Option<&str>, notes: &[String]) -> Drawn {
    let bold = (FONT, 19.0).into_font().style(FontStyle::Bold).color(&INK);
    area.draw_text(title, &bold, (MARGIN, 14))?;
    let label = label.map(|label| (label, WARNING));
    let mut y = 42;
    for (line, colour) in label.into_iter().chain(notes.iter().map(|note| (note.as_str(), FAINT))) {
        area.draw_text(line, &font(13.0, colour), (MARGIN, y))?;
        y += 18;
    }
    Ok(())
}

/// Writes a legend's text in a picture's first line and says where the next entry begins.
pub(super) fn entry(area: &Root<'_>, text: &str, x: i32) -> Drawn<i32> {
    area.draw_text(text, &font(13.0, INK), (x, 7))?;
    Ok(x + width(text))
}

/// Pixels that a legend's text takes, with the gap behind it.
pub(super) fn width(text: &str) -> i32 {
    /// Width of a letter of this size, on average and generously.
    const LETTER: f64 = 6.4;
    (text.len() as f64 * LETTER) as i32 + 18
}
