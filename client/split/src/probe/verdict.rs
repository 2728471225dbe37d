//! What the times mean. Pure: no MLX, no clock.

use fusion_calibrations::stats::{self, CONFIDENCE, Interval};

use super::{Timings, Way};

/// Two ways that differ by less are the same, and a machine whose equal ways differ by more is not quiet.
const MARGIN: f64 = 0.05;

/// The largest share of disturbed calls on a quiet machine.
const TOLERATED: f64 = 0.1;

/// What is true of two units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// A lazy graph runs them one after the other; materialising the input first brings the gain back.
    Serialises,
    /// A lazy graph costs a split its speed, and so far nothing brings it back: not even a materialised input.
    SerialisesAnyway,
    /// They run at once, whether the input is materialised or not.
    Concurrent,
    /// Even with a ready input a split is not faster than the primary unit alone.
    NoGain,
    /// The times do not tell.
    Unresolved,
}

impl Finding {
    /// Its name in outputs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Serialises => "serialises",
            Self::SerialisesAnyway => "serialises_anyway",
            Self::Concurrent => "concurrent",
            Self::NoGain => "no_gain",
            Self::Unresolved => "unresolved",
        }
    }
}

/// What the times of a probe mean. All intervals are of 95 %; a speed is that of a split relative to its unsplit counterpart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Verdict {
    /// What is true of these two units.
    pub finding: Finding,
    /// Whether two equal ways took the same time, and few calls were disturbed.
    pub quiet: bool,
    /// Share of the calls that another process disturbed.
    pub disturbed_share: f64,
    /// The first time of two equal ways over the second's.
    pub equal: Interval,
    /// Speed of a split whose input is ready.
    pub ready: Interval,
    /// Speed of a split in a lazy graph.
    pub lazy: Interval,
    /// Speed of a split whose input is materialised first, that included.
    pub boundary: Interval,
    /// Speed of the split in a lazy graph relative to the one with the input materialised first.
    pub lazy_to_boundary: Interval,
    /// Speed of a whole feed-forward part that is split, input ready.
    pub ffn_ready: Interval,
    /// Speed of a whole feed-forward part that is split in a lazy graph.
    pub ffn_lazy: Interval,
    /// What materialising the input costs an unsplit product, in ms a call.
    pub boundary_cost_ms: Interval,
}

impl Verdict {
    /// The verdict on these times; unresolved on none.
    pub fn of(timings: &Timings) -> Self {
        // How much less time the second way takes.
        let speed = |of: Way, to: Way| {
            let pairs: Vec<(f64, f64)> = timings.of(to).into_iter().zip(timings.of(of)).collect();
            stats::ratio_of_pairs(&pairs, CONFIDENCE).unwrap_or(UNKNOWN)
        };
        let mut verdict = Self {
            finding: Finding::Unresolved,
            quiet: false,
            disturbed_share: timings.disturbed_share(),
            equal: speed(Way::ReadyWholeAgain, Way::ReadyWhole),
            ready: speed(Way::ReadySplit, Way::ReadyWhole),
            lazy: speed(Way::LazySplit, Way::LazyWhole),
            boundary: speed(Way::BoundarySplit, Way::LazyWhole),
            lazy_to_boundary: speed(Way::LazySplit, Way::BoundarySplit),
            ffn_ready: speed(Way::FfnReadySplit, Way::FfnReadyWhole),
            ffn_lazy: speed(Way::FfnLazySplit, Way::FfnLazyWhole),
            boundary_cost_ms: cost(timings, speed(Way::LazyWhole, Way::BoundaryWhole)),
        };
        // The spread of the other intervals speaks for itself; this is about what they can't show, a drift.
        let within = |value: f64, margin: f64| (1.0 - margin..=1.0 + margin).contains(&value);
        verdict.quiet = within(verdict.equal.value, MARGIN)
            && within(verdict.equal.low, 2.0 * MARGIN)
            && within(verdict.equal.high, 2.0 * MARGIN)
            && verdict.disturbed_share <= TOLERATED;
        verdict.finding = verdict.conclude();
        verdict
    }

    fn conclude(&self) -> Finding {
        if !self.quiet {
            return Finding::Unresolved;
        }
        if self.ready.low <= 1.0 {
            // A gain within the margin is none worth the trouble.
            return if self.ready.high < 1.0 + MARGIN { Finding::NoGain } else { Finding::Unresolved };
        }
        // Half of the gain that the boundary gives; what lies near it is neither one nor the other.
        let half_the_gain = self.boundary.value.sqrt();
        if self.lazy.low > half_the_gain && self.lazy_to_boundary.value > 1.0 - MARGIN {
            return Finding::Concurrent;
        }
        if self.lazy.high < half_the_gain && self.boundary.low > 1.0 {
            return Finding::Serialises;
        }
        if self.lazy.high < 1.0 && self.boundary.high < 1.0 {
            return Finding::SerialisesAnyway;
        }
        Finding::Unresolved
    }

    /// One paragraph for people.
    pub fn words(&self) -> String {
        format!("{} {} {}", self.finding_words(), self.ffn_words(), self.cost_words())
    }

    fn finding_words(&self) -> String {
        let (ready, lazy, boundary) = (shown(self.ready), shown(self.lazy), shown(self.boundary));
        match self.finding {
            Finding::Serialises => {
                let cost = if self.lazy.high < 1.0 { ", worse than no split" } else { "" };
                format!(
                    "Lazy graphs serialise these units: a split runs at {ready} times the primary unit's speed if its input is ready, at \
                     {lazy} in one graph with what makes its input{cost}, and at {boundary} if the input is materialised first. \
                     So materialise before splitting."
                )
            }
            Finding::SerialisesAnyway => format!(
                "A split gains only on inputs that are ready ({ready} times the primary unit's speed): it runs at {lazy} in one graph with \
                 what makes its input, and materialising first does not bring the gain back ({boundary}). Do not split here."
            ),
            Finding::Concurrent => format!(
                "These units run at once, lazy graph or not: a split runs at {ready} times the primary unit's speed if its input is \
                 ready, at {lazy} in one graph with what makes its input, and at {boundary} if the input is materialised first."
            ),
            Finding::NoGain => format!(
                "A split gains nothing here: even with a ready input it runs at {ready} times the primary unit's speed. Do not split."
            ),
            Finding::Unresolved if !self.quiet => format!(
                "Unresolved: the machine is not quiet. Two equal ways differ by a factor of {}, and other programs held a core in {:.0} % \
                 of the calls; close them and try again.",
                shown(self.equal),
                self.disturbed_share * 100.0
            ),
            Finding::Unresolved => format!(
                "Unresolved: the times do not tell whether these units run at once. A split runs at {ready} times the primary unit's \
                 speed if its input is ready, at {lazy} in a lazy graph, at {boundary} with the input materialised first. Try again on a quiet \
                 machine."
            ),
        }
    }

    fn ffn_words(&self) -> String {
        format!(
            "A whole feed-forward part split once runs at {} if its input is ready and at {} in a lazy graph.",
            shown(self.ffn_ready),
            shown(self.ffn_lazy)
        )
    }

    fn cost_words(&self) -> String {
        let Interval { low, value, high } = self.boundary_cost_ms;
        if low <= 0.0 {
            return format!(
                "Materialising an input costs less than can be told ({low:.2} to {high:.2} ms a call)."
            );
        }
        format!("Materialising an input costs {value:.2} ms a call ({low:.2} to {high:.2}).")
    }
}

/// What no times tell.
const UNKNOWN: Interval = Interval { low: 0.0, value: f64::NAN, high: f64::INFINITY };

/// The extra time of the way with a boundary, given how many times longer it takes.
fn cost(timings: &Timings, factor: Interval) -> Interval {
    let base = stats::median(&timings.of(Way::LazyWhole)).unwrap_or(f64::NAN);
    let extra = |factor: f64| base * (factor - 1.0);
    Interval { low: extra(factor.low), value: extra(factor.value), high: extra(factor.high) }
}

fn shown(interval: Interval) -> String {
    let Interval { low, value, high } = interval;
    format!("{value:.2} ({low:.2} to {high:.2})")
}

#[cfg(test)]
mod tests {
    use super::{super::Timed, *};

    /// Synthetic times: whole takes 20 ms; `ready`, `lazy` and `boundary` are the splits' speeds. Noise is a share of each.
    fn times(ready: f64, lazy: f64, boundary: f64, noise: f64) -> Timings {
        let mut state = 7u64;
        let mut jitter = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            1.0 + noise * ((state >> 11) as f64 / (1u64 << 52) as f64 - 1.0)
        };
        let mut timings = Timings::new();
        for _ in 0..12 {
            for way in Way::ALL {
                let ms = match way {
                    Way::ReadyWhole | Way::ReadyWholeAgain | Way::LazyWhole => 20.0,
                    Way::ReadySplit => 20.0 / ready,
                    Way::LazySplit => 20.0 / lazy,
                    Way::BoundaryWhole => 20.4,
                    Way::BoundarySplit => 20.0 / boundary,
                    Way::FfnReadyWhole | Way::FfnLazyWhole => 60.0,
                    Way::FfnReadySplit => 60.0 / ready,
                    Way::FfnLazySplit => 60.0 / lazy,
                };
                timings.push(way, Timed { ms: ms * jitter(), delay_ms: 0.0 });
            }
        }
        timings
    }

    fn finding(ready: f64, lazy: f64, boundary: f64) -> Finding {
        Verdict::of(&times(ready, lazy, boundary, 0.01)).finding
    }

    #[test]
    fn the_papers_m1_serialises() {
        let verdict = Verdict::of(&times(1.376, 0.658, 1.342, 0.01));
        assert_eq!(verdict.finding, Finding::Serialises);
        assert!(verdict.words().contains("worse than no split"), "{}", verdict.words());
        assert!(verdict.words().contains("materialise before splitting"), "{}", verdict.words());
        assert!((verdict.boundary_cost_ms.value - 0.4).abs() < 0.3, "{:?}", verdict.boundary_cost_ms);
        assert!(verdict.ffn_lazy.high < 1.0);
    }

    #[test]
    fn each_finding_has_its_times() {
        assert_eq!(finding(1.9, 1.9, 1.88), Finding::Concurrent);
        // Partly serial: still a gain, but far from what a boundary gives.
        assert_eq!(finding(1.4, 1.1, 1.35), Finding::Serialises);
        assert_eq!(finding(1.0, 0.7, 1.0), Finding::NoGain);
        assert_eq!(finding(0.5, 0.5, 0.5), Finding::NoGain);
        assert_eq!(finding(1.4, 0.6, 0.8), Finding::SerialisesAnyway);
        // Lazy is a little slower: within the margin, or neither one nor the other.
        assert_eq!(finding(1.4, 1.37, 1.4), Finding::Concurrent);
        assert_eq!(finding(1.4, 1.25, 1.4), Finding::Unresolved);
    }

    #[test]
    fn noise_is_not_a_finding() {
        let noisy = Verdict::of(&times(1.376, 0.658, 1.342, 0.6));
        assert_eq!((noisy.finding, noisy.quiet), (Finding::Unresolved, false));
        assert!(noisy.words().contains("not quiet"), "{}", noisy.words());
        assert_eq!(Verdict::of(&Timings::new()).finding, Finding::Unresolved);
    }

    #[test]
    fn a_held_core_is_not_a_finding() {
        let mut timings = times(1.9, 1.9, 1.9, 0.01);
        for _ in 0..2 {
            for way in Way::ALL {
                timings.push(way, Timed { ms: 20.0, delay_ms: 1.0 });
            }
        }
        let verdict = Verdict::of(&timings);
        assert_eq!(verdict.finding, Finding::Unresolved);
        assert!(verdict.words().contains("in 14 % of the calls"), "{}", verdict.words());
    }

    #[test]
    fn every_finding_has_words() {
        for (ready, lazy, boundary) in
            [(1.4, 0.6, 1.3), (1.9, 1.9, 1.9), (0.5, 0.5, 0.5), (1.4, 0.6, 0.8), (1.4, 1.25, 1.4)]
        {
            let words = Verdict::of(&times(ready, lazy, boundary, 0.01)).words();
            assert!(words.contains("feed-forward") && words.ends_with('.'), "{words}");
        }
    }
}
