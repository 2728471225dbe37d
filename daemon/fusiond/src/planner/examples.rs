//! What the planner's tests share.

use fusion_calibrations::lines::Lines;

/// A primary unit three times as fast as the secondary one: 20 ms a call at 2000 rows.
pub(crate) const LINES: Lines =
    Lines { primary_ms_per_row: 0.01, secondary_ms_per_row: 0.03, overhead_ms: 0.2, stock_ms_per_row: 0.01 };
