//! How much is kept.

/// Records that are kept for one (chip, engine, shape, conditions), the current one among them.
pub const HISTORY_PER_KEY: usize = 16;
/// The newest records of a key that keep their raw samples; older ones keep everything else.
pub const SAMPLES_PER_KEY: usize = 4;

/// What is to become of a key's records, given oldest first: how many of the first to remove, and how many of the rest to
/// strip of their samples.
pub(super) fn plan(records: usize) -> (usize, usize) {
    let remove = records.saturating_sub(HISTORY_PER_KEY);
    (remove, (records - remove).saturating_sub(SAMPLES_PER_KEY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_never_touched() {
        for records in 0..100 {
            let (remove, strip) = plan(records);
            assert!(remove + strip < records.max(1));
            assert!(records - remove <= HISTORY_PER_KEY);
            assert_eq!(records - remove - strip, records.min(SAMPLES_PER_KEY));
        }
    }
}
