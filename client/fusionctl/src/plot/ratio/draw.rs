//! Draws the picture as SVG.

use fusion_calibrations::lines::Lines;
use plotters::prelude::{
    ChartBuilder, Circle, Color as _, DashedLineSeries, ErrorBar, IntoDrawingArea as _, LineSeries,
    PathElement, SVGBackend, ShapeStyle, Text,
};
use plotters::style::WHITE;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::picture::{Picture, Point};
use crate::plot::style::{
    CHOSEN, Chart, Drawn, FAINT, GRID, INK, MARGIN, PRIMARY, Root, SECONDARY, SIZE, STOCK, entry, font,
    heading,
};

const HEAD: u32 = 118;
const FOOT: u32 = 40;
/// How far text stands from the line that it belongs to, as a share of the width.
const BESIDE: f64 = 0.006;

/// The picture as SVG text.
pub(super) fn svg(picture: &Picture) -> Drawn<String> {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let (head, rest) = root.split_vertically(HEAD);
        let (body, foot) = rest.split_vertically(SIZE.1 - HEAD - FOOT);
        heading(&head, &picture.title, picture.label.as_deref(), &picture.notes)?;
        chart(&body, picture)?;
        legend(&foot, picture)?;
        root.present()?;
    }
    Ok(text)
}

fn chart(area: &Root<'_>, picture: &Picture) -> Drawn {
    let (rows, ms) = picture.ends;
    let share = rows / f64::from(picture.rows);
    let mut chart = ChartBuilder::on(area)
        .margin_right(MARGIN)
        .margin_left(8)
        .set_all_label_area_size(0)
        .x_label_area_size(46)
        .top_x_label_area_size(42)
        .y_label_area_size(62)
        .build_cartesian_2d(0.0..rows, 0.0..ms)?
        .set_secondary_coord(0.0..share, 0.0..ms);
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE)
        .bold_line_style(GRID)
        .axis_style(FAINT)
        .label_style(font(13.0, INK))
        .axis_desc_style(font(14.0, INK))
        .x_desc("rows on the secondary unit")
        .y_desc("time of one product, ms")
        .x_label_formatter(&|rows| format!("{rows:.0}"))
        .y_label_formatter(&|ms| short(*ms))
        .x_labels(11)
        .y_labels(8)
        .draw()?;
    chart
        .configure_secondary_axes()
        .axis_style(FAINT)
        .label_style(font(13.0, INK))
        .axis_desc_style(font(14.0, INK))
        .x_desc("ratio")
        .x_label_formatter(&|share| format!("{share:.2}"))
        .x_labels(11)
        .draw()?;
    cliffs(&mut chart, picture)?;
    stock(&mut chart, picture)?;
    if let Some(lines) = picture.lines {
        unit_lines(&mut chart, picture, &lines)?;
    }
    choice(&mut chart, picture)?;
    points(&mut chart, picture)
}

fn cliffs(chart: &mut Chart<'_, '_>, picture: &Picture) -> Drawn {
    let (end, top) = picture.ends;
    for rows in picture.cliffs.iter().map(|rows| f64::from(*rows)).filter(|rows| *rows < end) {
        let line = [(rows, 0.0), (rows, top)];
        chart.draw_series(DashedLineSeries::new(line, 2, 4, FAINT.stroke_width(1)))?;
        let style = font(12.0, FAINT).pos(Pos::new(HPos::Left, VPos::Top));
        chart.draw_series([Text::new("cliff: never chosen", (rows + end * BESIDE, top * 0.99), style)])?;
    }
    Ok(())
}

fn stock(chart: &mut Chart<'_, '_>, picture: &Picture) -> Drawn {
    if let Some(ms) = picture.stock_ms {
        let line = [(0.0, ms), (picture.ends.0, ms)];
        chart.draw_series(DashedLineSeries::new(line, 8, 5, STOCK.stroke_width(2)))?;
    }
    Ok(())
}

fn unit_lines(chart: &mut Chart<'_, '_>, picture: &Picture, lines: &Lines) -> Drawn {
    let (end, top) = picture.ends;
    let all = f64::from(picture.rows);
    let primary = |rows: f64| lines.primary_ms_per_row * (all - rows) + lines.overhead_ms;
    let secondary = |rows: f64| lines.secondary_ms_per_row * rows + lines.overhead_ms;
    let balance = lines.balanced_ratio().get() * all;
    // Where the secondary unit's line leaves the picture.
    let out = ((top - lines.overhead_ms) / lines.secondary_ms_per_row).min(end);
    let bend = balance.min(out);
    let split = [(0.0, primary(0.0)), (bend, primary(bend)), (out, secondary(out))];
    chart.draw_series(LineSeries::new(split, INK.mix(0.15).stroke_width(9)))?;
    chart
        .draw_series(LineSeries::new([(0.0, primary(0.0)), (end, primary(end))], PRIMARY.stroke_width(2)))?;
    chart.draw_series(LineSeries::new(
        [(0.0, secondary(0.0)), (out, secondary(out))],
        SECONDARY.stroke_width(2),
    ))?;
    Ok(())
}

fn choice(chart: &mut Chart<'_, '_>, picture: &Picture) -> Drawn {
    let Some((rows, ms)) = picture.chosen else { return Ok(()) };
    let at = f64::from(rows);
    chart.draw_series(LineSeries::new([(at, 0.0), (at, ms)], CHOSEN.stroke_width(2)))?;
    chart.draw_series([Circle::new((at, ms), 9, CHOSEN.stroke_width(3))])?;
    let style = font(13.0, INK).pos(Pos::new(HPos::Left, VPos::Bottom));
    let text = format!("{rows} rows, {} ms", short(ms));
    chart.draw_series([Text::new(text, (at + picture.ends.0 * BESIDE, picture.ends.1 * 0.02), style)])?;
    Ok(())
}

fn points(chart: &mut Chart<'_, '_>, picture: &Picture) -> Drawn {
    // The choice last, so that no neighbour hides it.
    let (last, first): (Vec<&Point>, Vec<&Point>) = picture.points.iter().partition(|point| point.counts);
    for Point { secondary_rows, ms, counts } in first.into_iter().chain(last) {
        let at = f64::from(*secondary_rows);
        chart.draw_series([ErrorBar::new_vertical(at, ms.low, ms.value, ms.high, INK.stroke_width(1), 9)])?;
        let fill = if *counts { INK } else { WHITE };
        chart.draw_series([
            Circle::new((at, ms.value), 4, fill.filled()),
            Circle::new((at, ms.value), 4, INK.stroke_width(1)),
        ])?;
    }
    Ok(())
}

/// What the signs mean; only those that occur.
fn legend(area: &Root<'_>, picture: &Picture) -> Drawn {
    let mut x = MARGIN;
    let lines = picture.lines.is_some();
    let split = INK.mix(0.15).stroke_width(9);
    let signs: [(bool, &str, ShapeStyle); 4] = [
        (lines, "primary unit's line", PRIMARY.stroke_width(2)),
        (lines, "secondary unit's line", SECONDARY.stroke_width(2)),
        (lines, "split, predicted", split),
        (picture.stock_ms.is_some(), "stock", STOCK.stroke_width(2)),
    ];
    for (_, text, style) in signs.into_iter().filter(|(shown, ..)| *shown) {
        let (from, to) = ((x, 14), (x + 26, 14));
        if text == "stock" {
            for dash in [0, 13] {
                area.draw(&PathElement::new([(x + dash, 14), (x + dash + 8, 14)], style))?;
            }
        } else {
            area.draw(&PathElement::new([from, to], style))?;
        }
        x = entry(area, text, x + 34)?;
    }
    let dots = [
        (!picture.points.is_empty(), "measured, 95 % interval", WHITE.filled(), INK.stroke_width(1), 4),
        (picture.chosen.is_some(), "chosen", WHITE.filled(), CHOSEN.stroke_width(3), 8),
    ];
    for (_, text, fill, rim, size) in dots.into_iter().filter(|(shown, ..)| *shown) {
        area.draw(&Circle::new((x + 8, 14), size, fill))?;
        area.draw(&Circle::new((x + 8, 14), size, rim))?;
        x = entry(area, text, x + 24)?;
    }
    Ok(())
}

/// Milliseconds without a unit, short enough for an axis.
fn short(ms: f64) -> String {
    let text = format!("{ms:.3}");
    let digits = match ms {
        ms if ms >= 100.0 => 0,
        ms if ms >= 10.0 => 1,
        ms if ms >= 1.0 => 2,
        _ => 3,
    };
    let text = if digits == 3 { text } else { format!("{ms:.digits$}") };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}
