//! Draws the picture as SVG: the ratio above, the speed-up below, over the same time.

use std::ops::Range;

use jiff::Timestamp;
use plotters::prelude::{
    ChartBuilder, Circle, Color as _, DashedLineSeries, ErrorBar, IntoDrawingArea as _, LineSeries, RGBColor,
    SVGBackend, Text,
};
use plotters::style::WHITE;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::picture::{MOST_GROUPS, Picture, Point};
use crate::plot::style::{
    CHOSEN, Chart, Drawn, FAINT, GRID, INK, MARGIN, PRIMARY, Root, SECONDARY, SIZE, STOCK, font, heading,
    width,
};

const HEAD: u32 = 118;
/// The legend: a line's height, and its lines for the longest conditions.
const LINE: i32 = 20;
const FOOT: u32 = 66;
/// The time's axis, which only the lower chart has.
const TIME_AXIS: u32 = 46;
/// Where times of day say more than dates, in days.
const SHORT_DAYS: f64 = 2.0;
const MS_PER_DAY: f64 = 86_400_000.0;

const GROUPS: [RGBColor; MOST_GROUPS] = [PRIMARY, SECONDARY, CHOSEN, STOCK, FAINT];

/// The picture as SVG text.
pub(super) fn svg(picture: &Picture) -> Drawn<String> {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let (head, rest) = root.split_vertically(HEAD);
        let body = SIZE.1 - HEAD - FOOT;
        let (body, foot) = rest.split_vertically(body);
        let (above, below) = body.split_vertically((SIZE.1 - HEAD - FOOT - TIME_AXIS) / 2);
        heading(&head, &picture.title, picture.label.as_deref(), &picture.notes)?;
        ratios(&above, picture)?;
        speed_ups(&below, picture)?;
        legend(&foot, picture)?;
        root.present()?;
    }
    Ok(text)
}

fn ratios(area: &Root<'_>, picture: &Picture) -> Drawn {
    let mut chart = axes(area, picture, 0.0..picture.most_ratio, "ratio", false)?;
    joined(&mut chart, picture, |point| Some(point.ratio))?;
    for point in &picture.points {
        dot(&mut chart, point, point.ratio)?;
    }
    Ok(())
}

fn speed_ups(area: &Root<'_>, picture: &Picture) -> Drawn {
    let (low, high) = picture.speed_ups;
    let mut chart = axes(area, picture, low..high, "speed-up", true)?;
    let (from, to) = picture.days;
    chart.draw_series(DashedLineSeries::new([(from, 1.0), (to, 1.0)], 8, 5, STOCK.stroke_width(2)))?;
    joined(&mut chart, picture, |point| point.speed_up.map(|speed_up| speed_up.value))?;
    for (point, speed_up) in picture.points.iter().filter_map(|point| Some((point, point.speed_up?))) {
        let style = colour(point).stroke_width(1);
        let bar = ErrorBar::new_vertical(point.days, speed_up.low, speed_up.value, speed_up.high, style, 9);
        chart.draw_series([bar])?;
        dot(&mut chart, point, speed_up.value)?;
    }
    Ok(())
}

fn axes<'a, 'b>(
    area: &'a Root<'b>,
    picture: &Picture,
    values: Range<f64>,
    name: &str,
    with_time: bool,
) -> Drawn<Chart<'a, 'b>> {
    let (from, to) = picture.days;
    let mut chart = ChartBuilder::on(area)
        .margin_right(MARGIN)
        .margin_left(8)
        .margin_top(10)
        .set_all_label_area_size(0)
        .x_label_area_size(if with_time { TIME_AXIS } else { 0 })
        .y_label_area_size(62)
        .build_cartesian_2d(from..to, values)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE)
        .bold_line_style(GRID)
        .axis_style(FAINT)
        .label_style(font(13.0, INK))
        .axis_desc_style(font(14.0, INK))
        .x_desc(if with_time { "measured at, UTC" } else { "" })
        .y_desc(name)
        .x_label_formatter(&|days| time(picture, *days))
        .y_label_formatter(&|value| format!("{value:.2}"))
        .x_labels(if with_time { 8 } else { 0 })
        .y_labels(5)
        .draw()?;
    let top = chart.y_range().end;
    for (place, days) in picture.engine_changes.iter().enumerate() {
        let line = [(*days, chart.y_range().start), (*days, top)];
        chart.draw_series(DashedLineSeries::new(line, 2, 4, FAINT.stroke_width(1)))?;
        // Once is enough to know the line by.
        if place == 0 && !with_time {
            let style = font(12.0, FAINT).pos(Pos::new(HPos::Left, VPos::Top));
            let beside = days + (to - from) * 0.006;
            chart.draw_series([Text::new("another engine", (beside, top), style)])?;
        }
    }
    Ok(chart)
}

/// A faint line through the points of each group.
fn joined(chart: &mut Chart<'_, '_>, picture: &Picture, value: impl Fn(&Point) -> Option<f64>) -> Drawn {
    for group in 0..picture.groups.len() {
        let of_group = picture.points.iter().filter(|point| point.group == group);
        let line: Vec<_> = of_group.filter_map(|point| Some((point.days, value(point)?))).collect();
        if let Some((first, _)) = picture.points.iter().find(|point| point.group == group).zip(line.first()) {
            chart.draw_series(LineSeries::new(line, colour(first).mix(0.35).stroke_width(1)))?;
        }
    }
    Ok(())
}

fn dot(chart: &mut Chart<'_, '_>, point: &Point, value: f64) -> Drawn {
    chart.draw_series([Circle::new((point.days, value), 4, colour(point).filled())])?;
    Ok(())
}

fn colour(point: &Point) -> RGBColor {
    group_colour(point.group)
}

fn group_colour(group: usize) -> RGBColor {
    GROUPS.get(group).copied().unwrap_or(FAINT)
}

fn time(picture: &Picture, days: f64) -> String {
    let ms = (picture.first_day + days) * MS_PER_DAY;
    let format = if picture.days.1 - picture.days.0 > SHORT_DAYS { "%Y-%m-%d" } else { "%m-%d %H:%M" };
    Timestamp::from_millisecond(ms.round() as i64)
        .map_or_else(|_| String::new(), |time| time.strftime(format).to_string())
}

/// The conditions' colours, in as many lines as they take, and stock's.
fn legend(area: &Root<'_>, picture: &Picture) -> Drawn {
    let (mut x, mut y) = (MARGIN, 14);
    let mut place = |text: &str| {
        let needed = 24 + width(text);
        if x > MARGIN && x + needed > SIZE.0 as i32 {
            (x, y) = (MARGIN, y + LINE);
        }
        let at = (x, y);
        x += needed;
        at
    };
    for (group, text) in picture.groups.iter().enumerate() {
        let (x, y) = place(text);
        area.draw(&Circle::new((x + 8, y), 4, group_colour(group).filled()))?;
        area.draw_text(text, &font(13.0, INK), (x + 20, y - 6))?;
    }
    let text = "dashed at 1: stock; bars: 95 % interval";
    let (x, y) = place(text);
    area.draw_text(text, &font(13.0, FAINT), (x, y - 6))?;
    Ok(())
}
