//! How good the predicted gain of a region is: against the recorded blocks.

use super::super::arena;

#[test]
fn the_interval_covers_most_recorded_blocks() {
    let (mut covered, mut all, mut split_first_wrongly) = (0, 0, 0);
    for cell in arena::cells() {
        let Some(prediction) = cell.prediction() else { continue };
        let recorded = cell.eager_ms / cell.split_ms;
        let gain = prediction.gain;
        all += 1;
        let inside = (gain.low..=gain.high).contains(&recorded);
        covered += u32::from(inside);
        split_first_wrongly += u32::from(gain.low > 1.03 && recorded < 1.0);
        println!(
            "{:<7} {:<8} {:>5}: recorded {recorded:.3}, predicted {:.3} [{:.3}, {:.3}]{}",
            cell.chip,
            cell.model,
            cell.rows,
            gain.value,
            gain.low,
            gain.high,
            if inside { "" } else { "  outside" }
        );
    }
    println!("{covered} of {all} covered; {split_first_wrongly} would start with a split that loses");
    assert!(f64::from(covered) >= 0.7 * f64::from(all), "{covered} of {all}");
    assert!(split_first_wrongly <= 1, "{split_first_wrongly}");
}
