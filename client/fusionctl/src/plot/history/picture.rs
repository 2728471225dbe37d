//! What is shown.

use fusion_client::v1;

use crate::failure::Failure;
use crate::plot::nothing;
use crate::render::words;

/// Colours that are told apart; what is rarer is shown as "other conditions".
pub(super) const MOST_GROUPS: usize = 5;
/// What those are called.
const OTHERS: &str = "other conditions";

const DAY_MS: f64 = 86_400_000.0;
/// A picture of one moment is an hour wide.
const SHORTEST_DAYS: f64 = 1.0 / 24.0;
/// How far axes go beyond the outermost point, as a share of their length.
const BEYOND: f64 = 0.04;

/// What is shown.
#[derive(Debug)]
pub(super) struct Picture {
    /// Whose past.
    pub(super) title: String,
    /// Where it holds: the chip, how much, the newest engine.
    pub(super) notes: Vec<String>,
    /// What must be told of the pair.
    pub(super) label: Option<String>,
    /// The calibrations, the oldest first.
    pub(super) points: Vec<Point>,
    /// The conditions in words, the most frequent first.
    pub(super) groups: Vec<String>,
    /// Between calibrations of different engines, in days.
    pub(super) engine_changes: Vec<f64>,
    /// Where the time's axis begins, as a day since 1970 (UTC).
    pub(super) first_day: f64,
    /// The time's axis, in days since `first_day`.
    pub(super) days: (f64, f64),
    /// Where the ratio's axis ends.
    pub(super) most_ratio: f64,
    /// The speed-up's axis.
    pub(super) speed_ups: (f64, f64),
}

/// A calibration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    /// When, in days since [`Picture::first_day`].
    pub(super) days: f64,
    /// The ratio.
    pub(super) ratio: f64,
    /// The speed-up of the best split.
    pub(super) speed_up: Option<v1::Interval>,
    /// Its conditions: a place in [`Picture::groups`].
    pub(super) group: usize,
}

impl Picture {
    pub(super) fn new(
        shape: &v1::Shape,
        newest_first: &[v1::Estimate],
        chip: Option<&v1::Chip>,
    ) -> Result<Self, Failure> {
        let (Some(newest), Some(oldest)) = (newest_first.first(), newest_first.last()) else {
            return Err(nothing(shape));
        };
        let first_day = (oldest.measured_at_unix_ms as f64 / DAY_MS).floor();
        let days = |estimate: &v1::Estimate| estimate.measured_at_unix_ms as f64 / DAY_MS - first_day;
        let groups = groups(newest_first);
        let points: Vec<Point> = newest_first
            .iter()
            .rev()
            .map(|estimate| Point {
                days: days(estimate),
                ratio: estimate.ratio,
                speed_up: estimate.speed_up,
                group: group(estimate, &groups),
            })
            .collect();
        let changes = newest_first.windows(2).filter(|pair| pair[0].engine != pair[1].engine);
        Ok(Self {
            title: format!("{}: ratio and speed-up over time", words::shape(shape, true)),
            notes: notes(newest_first, newest, oldest, chip),
            label: words::pair_label(&newest.chip_key).map(ToOwned::to_owned),
            groups,
            engine_changes: changes.map(|pair| (days(&pair[0]) + days(&pair[1])) / 2.0).collect(),
            first_day,
            days: time_axis(&points),
            most_ratio: points.iter().map(|point| point.ratio).fold(0.1, f64::max) * 1.15,
            speed_ups: speed_up_axis(&points),
            points,
        })
    }
}

/// The conditions that occur, the most frequent first; the rarest share a name.
fn groups(estimates: &[v1::Estimate]) -> Vec<String> {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for words in estimates.iter().map(conditions) {
        match counts.iter_mut().find(|(known, _)| *known == words) {
            Some((_, count)) => *count += 1,
            None => counts.push((words, 1)),
        }
    }
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let mut groups: Vec<String> = counts.into_iter().map(|(words, _)| words).collect();
    if groups.len() > MOST_GROUPS {
        groups.truncate(MOST_GROUPS - 1);
        groups.push(OTHERS.to_owned());
    }
    groups
}

fn conditions(estimate: &v1::Estimate) -> String {
    words::conditions(estimate.conditions.as_ref())
}

fn group(estimate: &v1::Estimate, groups: &[String]) -> usize {
    let words = conditions(estimate);
    groups.iter().position(|group| *group == words).unwrap_or(groups.len().saturating_sub(1))
}

fn notes(
    estimates: &[v1::Estimate],
    newest: &v1::Estimate,
    oldest: &v1::Estimate,
    chip: Option<&v1::Chip>,
) -> Vec<String> {
    let chip = chip.filter(|chip| chip.key == newest.chip_key);
    let count = words::count(estimates.len(), "calibration");
    let [from, to] = [oldest, newest].map(|estimate| words::moment_utc(estimate.measured_at_unix_ms));
    let mut notes = vec![
        chip.map_or_else(|| newest.chip_key.clone(), words::chip),
        if from == to { format!("{count}, {to}") } else { format!("{count}, {from} to {to}") },
    ];
    notes.extend(newest.engine.as_ref().map(|engine| format!("the newest with {}", words::engine(engine))));
    notes
}

fn time_axis(points: &[Point]) -> (f64, f64) {
    let low = points.iter().map(|point| point.days).fold(f64::INFINITY, f64::min);
    let high = points.iter().map(|point| point.days).fold(f64::NEG_INFINITY, f64::max);
    let missing = (SHORTEST_DAYS - (high - low)).max(0.0) / 2.0;
    let beyond = missing.max((high - low) * BEYOND);
    (low - beyond, high + beyond)
}

/// Stock, which is 1, is always in the picture.
fn speed_up_axis(points: &[Point]) -> (f64, f64) {
    let all = points.iter().filter_map(|point| point.speed_up);
    let (low, high) =
        all.fold((0.95, 1.05), |(low, high): (f64, f64), one| (low.min(one.low), high.max(one.high)));
    let beyond = (high - low) * BEYOND;
    (low - beyond, high + beyond)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400_000;

    fn estimate(day: u64, thermal: v1::Thermal, mlx_version: &str) -> v1::Estimate {
        v1::Estimate {
            measured_at_unix_ms: 20_000 * DAY + day * DAY + DAY / 2,
            conditions: Some(v1::Conditions { thermal: thermal.into(), ..Default::default() }),
            engine: Some(v1::Engine { mlx_version: mlx_version.to_owned(), ..Default::default() }),
            ratio: 0.4,
            speed_up: Some(v1::Interval { low: 1.1, value: 1.2, high: 1.3 }),
            ..Default::default()
        }
    }

    fn picture(newest_first: &[v1::Estimate]) -> Picture {
        Picture::new(&v1::Shape::default(), newest_first, None).unwrap()
    }

    #[test]
    fn time_runs_to_the_right_and_engines_change_between_points() {
        use v1::Thermal::{Heavy, Nominal};
        let past = [estimate(9, Nominal, "2"), estimate(4, Heavy, "1"), estimate(0, Nominal, "1")];
        let picture = picture(&past);
        assert_eq!(picture.points.iter().map(|point| point.days).collect::<Vec<_>>(), [0.5, 4.5, 9.5]);
        assert_eq!(picture.groups, ["nominal", "heavy"]);
        assert_eq!(picture.points.iter().map(|point| point.group).collect::<Vec<_>>(), [0, 1, 0]);
        assert_eq!((picture.engine_changes.as_slice(), picture.first_day), (&[7.0][..], 20_000.0));
        assert!(picture.days.0 < 0.5 && picture.days.1 > 9.5, "{:?}", picture.days);
        assert!(picture.speed_ups.0 < 1.0 && picture.speed_ups.1 > 1.3, "{:?}", picture.speed_ups);
    }

    #[test]
    fn one_moment_has_an_hour_around_it() {
        let picture = picture(&[estimate(0, v1::Thermal::Nominal, "1")]);
        let minutes = [picture.days.0, picture.days.1].map(|days| (days * 1440.0).round());
        assert_eq!(minutes, [690.0, 750.0]);
        assert!(Picture::new(&v1::Shape::default(), &[], None).is_err());
    }

    #[test]
    fn rare_conditions_share_a_colour() {
        let powers = [v1::Power::Ac, v1::Power::Battery];
        let thermals =
            [v1::Thermal::Nominal, v1::Thermal::Moderate, v1::Thermal::Heavy, v1::Thermal::Trapping];
        let past: Vec<_> = powers
            .iter()
            .flat_map(|power| thermals.iter().map(move |thermal| (*power, *thermal)))
            .map(|(power, thermal)| {
                let mut estimate = estimate(0, thermal, "1");
                estimate.conditions.as_mut().unwrap().power = power.into();
                estimate
            })
            .collect();
        let picture = picture(&past);
        assert_eq!(picture.groups.len(), MOST_GROUPS);
        assert_eq!(picture.groups.last().unwrap(), OTHERS);
        assert!(picture.points.iter().all(|point| point.group < MOST_GROUPS));
        assert_eq!(picture.points.iter().filter(|point| point.group == MOST_GROUPS - 1).count(), 4);
    }
}
