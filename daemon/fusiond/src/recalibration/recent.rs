//! Layers that clients ran lately: a program that is started again finds them known.

use std::collections::HashMap;
use std::time::Duration;

use fusion_calibrations::shape::Shape;

use crate::clients::Introduction;
use crate::knowledge::TYPICAL_ROWS;
use crate::planner::Moment;

/// How long after its client left a shape is still wanted.
const LATELY: Duration = Duration::from_secs(7 * 24 * 3600);
/// Shapes that are remembered; of more, those of the clients that left first are forgotten.
const MOST: usize = 4096;

/// Shapes of clients, with the moment they were last seen attached.
#[derive(Debug, Default)]
pub(super) struct Recent {
    seen: HashMap<Shape, Moment>,
}

/// The shapes that a client runs.
pub(super) fn shapes(client: &Introduction) -> impl Iterator<Item = Shape> {
    let rows = if client.typical_rows == 0 { TYPICAL_ROWS } else { client.typical_rows };
    client.layers.iter().filter_map(move |layer| layer.with_rows(rows).ok())
}

impl Recent {
    /// A client is attached now.
    pub(super) fn see(&mut self, client: &Introduction, now: Moment) {
        self.seen.extend(shapes(client).map(|shape| (shape, now)));
    }

    /// What was seen lately.
    pub(super) fn shapes(&mut self, now: Moment) -> impl Iterator<Item = Shape> {
        self.seen.retain(|_, at| now.since(*at) < LATELY);
        if self.seen.len() > MOST {
            let mut moments: Vec<Moment> = self.seen.values().copied().collect();
            moments.sort_unstable();
            let oldest_kept = moments[moments.len() - MOST];
            self.seen.retain(|_, at| *at >= oldest_kept);
        }
        self.seen.keys().copied()
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
        let mut rows: Vec<u32> = recent.shapes(start.after(LATELY / 2)).map(Shape::rows).collect();
        rows.sort_unstable();
        assert_eq!(rows, [512, TYPICAL_ROWS]);
        assert_eq!(recent.shapes(start.after(LATELY)).count(), 1);
        assert_eq!(recent.shapes(start.after(LATELY * 2)).count(), 0);
    }
}
