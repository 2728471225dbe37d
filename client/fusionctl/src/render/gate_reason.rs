//! Why an arm stands, as far as the kept state tells: what a process thinks by itself (a prediction, one call's doubt) is not kept.

use fusion_calibrations::gate::{Arm, Standing};
use fusion_client::{GateLock, GateRegion};

use super::words;

/// Why a region is executed as it is.
pub(crate) fn why(region: &GateRegion, lock: Option<&GateLock>) -> String {
    if let Some(lock) = lock {
        return format!("a person locked it to {}, in every process that can run that", lock.arm);
    }
    let reason = standing(region);
    gain(region).map_or_else(|| reason.clone(), |gain| format!("{reason}; {gain}"))
}

fn standing(region: &GateRegion) -> String {
    let Standing { arm, changes } = region.state.standing;
    let split = region.arm(Arm::Split);
    let refuted = || words::count(split.failures as usize, "time");
    match (arm, changes) {
        (Arm::Split, 0) => "kept from earlier processes, no measurement decided it".to_owned(),
        (Arm::Split, _) => "measured: it won by more than the margin and its uncertainty".to_owned(),
        (_, 0) if split.failures > 0 => format!(
            "measured: splitting did not win by more than the margin, {} in a row",
            refuted()
        ),
        (_, _) if split.failures > 0 => format!(
            "measured: splitting did not win by more than the margin, or lost its gain, {} in a row",
            refuted()
        ),
        (Arm::Compiled, _) if changes > 0 => "measured: it was faster than the other stock arm".to_owned(),
        (_, 0) if split.explored > 0 => {
            "stock: the split was tried, and no gain is shown yet".to_owned()
        }
        (_, 0) => {
            "stock: nothing else was tried; where the lines predict a gain, a process may begin with the split".to_owned()
        }
        (_, _) => "stock again: the arm that stood lost its gain, or the machine changed".to_owned(),
    }
}

/// The split against the faster of the stock arms that are known.
fn gain(region: &GateRegion) -> Option<String> {
    let split_ms = region.middle_ms(Arm::Split)?;
    let stock = [Arm::Compiled, Arm::Eager].into_iter();
    let (stock_ms, arm) = stock
        .filter_map(|arm| Some((region.middle_ms(arm)?, arm)))
        .min_by(|(one, _), (other, _)| one.total_cmp(other))?;
    Some(format!(
        "split takes {} ms, {arm} {} ms: {:.2} times as fast",
        words::ms(split_ms),
        words::ms(stock_ms),
        stock_ms / split_ms
    ))
}

#[cfg(test)]
mod tests {
    use fusion_calibrations::gate::{ArmState, Bucket, Level, RegionKey, RegionState};
    use fusion_client::RowRange;

    use super::*;

    fn region(standing: Arm, changes: u32, split: ArmState) -> GateRegion {
        let key =
            RegionKey { workload: "w".to_owned(), bucket: Bucket::of(512), conditions: Default::default() };
        let arms = [split, ArmState::default(), ArmState::default()];
        GateRegion {
            chip_key: String::new(),
            engine_key: String::new(),
            rows: RowRange::around(512),
            state: RegionState { key, arms, standing: Standing { arm: standing, changes } },
        }
    }

    #[test]
    fn each_history_has_its_words() {
        let fresh = ArmState::default();
        let refuted = ArmState { failures: 2, explored: 7, ..fresh };
        let tried = ArmState { explored: 1, ..fresh };
        let cases = [
            (Arm::Split, 1, fresh, "it won by more"),
            (Arm::Split, 0, fresh, "kept from earlier processes"),
            (Arm::Eager, 0, refuted, "did not win by more than the margin, 2 times in a row"),
            (Arm::Eager, 2, refuted, "or lost its gain, 2 times in a row"),
            (Arm::Compiled, 1, fresh, "faster than the other stock arm"),
            (Arm::Eager, 0, fresh, "nothing else was tried"),
            (Arm::Eager, 0, tried, "no gain is shown yet"),
            (Arm::Eager, 2, fresh, "stock again"),
        ];
        for (arm, changes, split, says) in cases {
            let reason = why(&region(arm, changes, split), None);
            assert!(reason.contains(says), "{arm}, {changes}: {reason}");
        }
    }

    #[test]
    fn a_lock_is_the_reason_and_levels_are_compared() {
        let level = |ms: f64| Some(Level { value: (ms / 575.0).ln(), deviation: 0.015, count: 16 });
        let mut known = region(Arm::Split, 1, ArmState { level: level(4.0), ..ArmState::default() });
        assert!(!why(&known, None).contains("takes"));
        known.state.arms[1].level = level(6.0);
        known.state.arms[2].level = level(5.0);
        let reason = why(&known, None);
        assert!(reason.ends_with("split takes 4.00 ms, eager 5.00 ms: 1.25 times as fast"), "{reason}");
        let lock = GateLock { workload: "w".to_owned(), rows: None, arm: Arm::Eager };
        assert_eq!(
            why(&known, Some(&lock)),
            "a person locked it to eager, in every process that can run that"
        );
    }
}
