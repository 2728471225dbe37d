//! The probe on real MLX, small: what it runs is right, whatever its times say.

#![allow(clippy::unwrap_used)]

use fusion_calibrations::shape::{Layout, Shape, WeightFormat};
use fusion_split::{
    PairKind, Units, WorkFactor,
    probe::{self, Scale, Way},
};

#[test]
fn every_way_runs_and_every_split_is_right() {
    let asymmetric = PairKind::Asymmetric(WorkFactor::new(2.5).unwrap());
    for kind in [PairKind::Development, asymmetric] {
        let units = Units::open(kind).unwrap();
        let shape = Shape::parse("64x96x160", WeightFormat::F32, Layout::default()).unwrap();
        let mut rounds = vec![];
        let probe =
            probe::run(&units, Scale { shape, rounds: 3 }, |round, of| rounds.push((round, of))).unwrap();
        assert_eq!(rounds, [(1, 3), (2, 3), (3, 3)]);
        assert!(probe.secondary_rows > 0 && probe.secondary_rows < 64, "{}", probe.secondary_rows);
        let bound = WeightFormat::F32.relative_error_bound(160);
        assert!(probe.relative_error <= bound, "{:e}", probe.relative_error);
        for way in Way::ALL {
            assert!(probe.timings.of(way).iter().all(|ms| *ms > 0.0));
            assert_eq!(probe.timings.of(way).len(), 3, "{}", way.name());
        }
        assert!(!probe.verdict.words().is_empty());
    }
}
