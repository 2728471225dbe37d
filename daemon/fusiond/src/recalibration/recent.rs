//! Layers that clients ran lately: a program that is started again finds them known, also by a daemon that was started again.

use std::collections::HashMap;
use std::time::Duration;

use fusion_calibrations::shape::Shape;
use fusion_frames::WireShape;
use serde::{Deserialize, Serialize};

use crate::clients::Introduction;
use crate::knowledge::TYPICAL_ROWS;
use crate::planner::Moment;

/// How long after its client left a shape is still wanted.
const LATELY: Duration = Duration::from_secs(7 * 24 * 3600);
/// Shapes that are remembered; of more, those of the clients that left first are forgotten.
const MOST: usize = 4096;

/// Shapes of clients, with the moment they were last seen attached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recent {
    seen: HashMap<Shape, Moment>,
}

/// A shape as it is kept.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Seen {
    #[serde(flatten)]
    shape: WireShape,
    seen_at_unix_ms: Moment,
}

/// The shapes that a client runs.
pub fn shapes(client: &Introduction) -> impl Iterator<Item = Shape> {
    let rows = if client.typical_rows == 0 { TYPICAL_ROWS } else { client.typical_rows };
    client.layers.iter().filter_map(move |layer| layer.with_rows(rows).ok())
}

impl Recent {
    /// What was kept. A shape that can't be read is left out.
    pub(super) fn restore(kept: impl Iterator<Item = Seen>) -> Self {
        let read = |seen: Seen| Some((Shape::try_from(&seen.shape).ok()?, seen.seen_at_unix_ms));
        Self { seen: kept.filter_map(read).collect() }
    }

    /// What to keep, in an order of its own.
    pub(super) fn to_keep(&self) -> Vec<Seen> {
        let mut seen: Vec<(Shape, Moment)> = self.seen.iter().map(|(shape, at)| (*shape, *at)).collect();
        seen.sort_unstable();
        seen.into_iter().map(|(shape, at)| Seen { shape: shape.into(), seen_at_unix_ms: at }).collect()
    }

    /// A client is attached now; whether it runs a shape that wasn't remembered.
    pub fn see(&mut self, client: &Introduction, now: Moment) -> bool {
        let known = self.seen.len();
        self.seen.extend(shapes(client).map(|shape| (shape, now)));
        self.seen.len() > known
    }

    /// What was seen lately.
    pub fn shapes(&mut self, now: Moment) -> Vec<Shape> {
        for at in self.seen.values_mut() {
            // A clock that was wrong then must not keep a shape for ever.
            *at = (*at).min(now);
        }
        self.seen.retain(|_, at| now.since(*at) < LATELY);
        if self.seen.len() > MOST {
            let mut moments: Vec<Moment> = self.seen.values().copied().collect();
            moments.sort_unstable();
            let oldest_kept = moments[moments.len() - MOST];
            self.seen.retain(|_, at| *at >= oldest_kept);
        }
        self.seen.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fusion_calibrations::shape::{Layer, Layout, WeightFormat};

    fn client(outputs: u32, typical_rows: u32) -> Introduction {
        Introduction {
            pid: 1,
            name: "test".to_owned(),
            version: "0".to_owned(),
            engine: None,
            worker: None,
            layers: vec![Layer::new(64, outputs, WeightFormat::F16, Layout::default()).unwrap()],
            typical_rows,
        }
    }

    #[test]
    fn a_week_later_nobody_remembers() {
        let (mut recent, start) = (Recent::default(), Moment::from_unix_ms(1_000_000));
        recent.see(&client(64, 0), start);
        recent.see(&client(128, 512), start.after(Duration::from_secs(3600)));
        let mut rows: Vec<u32> =
            recent.shapes(start.after(LATELY / 2)).into_iter().map(Shape::rows).collect();
        rows.sort_unstable();
        assert_eq!(rows, [512, TYPICAL_ROWS]);
        assert_eq!(recent.shapes(start.after(LATELY)).len(), 1);
        assert_eq!(recent.shapes(start.after(LATELY * 2)).len(), 0);
    }

    #[test]
    fn only_what_is_new_is_news() {
        let (mut recent, start) = (Recent::default(), Moment::from_unix_ms(1_000_000));
        assert!(recent.see(&client(64, 0), start));
        assert!(!recent.see(&client(64, 0), start.after(LATELY / 2)));
        assert!(recent.see(&client(64, 512), start.after(LATELY / 2)));
    }

    #[test]
    fn what_is_kept_comes_back_and_nonsense_is_left_out() {
        let (mut recent, start) = (Recent::default(), Moment::from_unix_ms(1_000_000));
        recent.see(&client(64, 0), start);
        recent.see(&client(128, 512), start.after(LATELY));
        let mut kept = recent.to_keep();
        assert_eq!(Recent::restore(recent.to_keep().into_iter()), recent);
        kept[0].shape.format = "f3".to_owned();
        kept[1].shape.rows = 0;
        assert_eq!(Recent::restore(kept.into_iter()), Recent::default());
    }

    #[test]
    fn a_moment_that_never_was_is_no_reason_to_remember_for_ever() {
        let (mut recent, now) = (Recent::default(), Moment::from_unix_ms(1_000_000));
        recent.see(&client(64, 0), now.after(LATELY * 50));
        assert_eq!(recent.shapes(now).len(), 1);
        assert_eq!(recent.shapes(now.after(LATELY)).len(), 0);
    }
}
