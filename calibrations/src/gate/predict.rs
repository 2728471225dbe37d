//! The first decision: what a region gains by splitting, predicted from its layers' lines.
//!
//! Layers measured alone promise more than a block keeps: its input must be materialised at each boundary, its parts joined, and the weights aren't
//! in the caches. Against the recorded blocks (`prefill_cells`, where the same chip's grids cover all its layers) the sum of the layers' best
//! times is too small by 1-2 ms a boundary, and by another 0-25 % of the split time (most on the M1). Both are in the interval, so it is wide for small
//! regions, where the first decision is stock.

use crate::lines::Lines;
use crate::stats::Interval;

/// What a materialised boundary costs inside a block beyond what a layer alone shows, in ms: least, expected, most.
const BOUNDARY_MS: [f64; 3] = [0.3, 1.2, 2.0];
/// What split layers take in a block beyond their time alone, as a share: least, expected, most.
const BLOCK_LOSS: [f64; 3] = [-0.03, 0.09, 0.25];

/// One layer of a region, as it would be split.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerPart {
    /// The layer's lines.
    pub lines: Lines,
    /// Rows of the call.
    pub rows: u32,
    /// The secondary unit's rows, by the row rule; 0 if this layer isn't split.
    pub secondary_rows: u32,
    /// How often the region runs it.
    pub times: u32,
}

/// What a region is predicted to gain by splitting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// Stock's time over split's, with the interval that covers nearly all recorded blocks.
    pub gain: Interval,
    /// Whether the lines were measured with the running engine. If not, stock runs first.
    pub fresh: bool,
}

impl Prediction {
    /// Of a region that consists of `parts` and of `other_ms` that is never split (attention, norms). `None` without a split layer.
    pub fn of_region(parts: &[LayerPart], other_ms: f64, fresh: bool) -> Option<Self> {
        let (mut stock, mut split, mut boundaries) = (other_ms.max(0.0), other_ms.max(0.0), 0.0);
        let mut divided = 0.0;
        for part in parts {
            let times = f64::from(part.times);
            stock += times * part.lines.stock_ms(part.rows);
            let ms = times * part.lines.split_ms(part.rows, part.secondary_rows);
            if part.secondary_rows == 0 {
                split += ms;
            } else {
                divided += ms;
                boundaries += times;
            }
        }
        if divided <= 0.0 || stock <= 0.0 {
            return None;
        }
        let gain = |case: usize| {
            stock / (split + divided * (1.0 + BLOCK_LOSS[case]) + boundaries * BOUNDARY_MS[case])
        };
        Some(Self { gain: Interval { low: gain(2), value: gain(1), high: gain(0) }, fresh })
    }
}
