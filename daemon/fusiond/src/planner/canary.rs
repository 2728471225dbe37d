//! The canary: a tiny fixed product whose time tells whether the machine is as fast as its sensors claim.
//!
//! Sensors lie in one direction more than the other: a Mac that throttles may say "nominal" for hours. So the canary only ever makes the heat that is
//! believed worse than the heat that is claimed, or known where no sensor says. Nothing makes a product too fast, so the reference is the
//! fastest that was seen: it falls at once and rises slowly.

use std::collections::BTreeMap;
use std::time::Duration;

use fusion_calibrations::conditions::{Conditions, Thermal};
use serde::{Deserialize, Serialize};

/// Slower than the reference by this factor: the first step of throttling. Three calls' fastest differs by about 1.5 %, so this is five deviations.
const SLOW: f64 = 1.08;
/// Slower by this factor: clearly throttled. The recorded M4 Pro slows by 1.14 under endless splitting, the M1 by 1.2.
const VERY_SLOW: f64 = 1.25;
/// Slower by this factor: the machine protects itself. Reported are 1.18-2.9 (an M5 Max while the sensors said nominal).
const CRAWLING: f64 = 1.8;
/// How fast the reference rises towards a slower canary, as a share of the difference: an engine or a machine that became slower for good is
/// the reference after some dozens of canaries, a hot afternoon isn't.
const RISE: f64 = 0.02;
/// Calls that one canary takes at least: of fewer, an accident can't be told from heat.
pub const CALLS: usize = 3;
/// Calls whose slowest takes longer than the fastest by more than this share disagree: five deviations of a quiet machine's call.
const AGREEMENT: f64 = 0.08;
/// How long a canary is believed: a heat memory. What it says is known again at the next job.
const HOLDS: Duration = Duration::from_secs(600);

/// How fast the machine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pace {
    /// As fast as it ever was.
    Full,
    /// Slower.
    Slow,
    /// Clearly slower.
    VerySlow,
    /// Hardly moves.
    Crawling,
}

impl Pace {
    /// The heat that explains it.
    pub fn implies(self) -> Thermal {
        match self {
            Self::Full => Thermal::Nominal,
            Self::Slow => Thermal::Moderate,
            Self::VerySlow => Thermal::Heavy,
            Self::Crawling => Thermal::Trapping,
        }
    }

    /// The conditions that are believed where the sensors claim `claimed`.
    pub fn corrects(self, claimed: Conditions) -> Conditions {
        Conditions { thermal: claimed.thermal.max(self.implies()), ..claimed }
    }

    /// What is believed so long after the canary that found this pace.
    pub fn corrects_after(self, age: Duration, claimed: Conditions) -> Conditions {
        // A full pace implies nothing that the sensors don't say.
        if self == Self::Full || age >= HOLDS { claimed } else { self.corrects(claimed) }
    }
}

/// The references of a machine, by engine.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct References(BTreeMap<String, Reference>);

impl References {
    /// Judges a canary's calls, and learns from them. Calls that disagree say nothing: a machine that others use is uneven, one that throttles is
    /// evenly slow.
    pub fn judge(&mut self, engine: &str, calls_ms: &[f64]) -> Option<Pace> {
        let fastest = calls_ms.iter().copied().fold(f64::INFINITY, f64::min);
        let slowest = calls_ms.iter().copied().fold(0.0, f64::max);
        if slowest.is_infinite() || slowest > fastest * (1.0 + AGREEMENT) {
            return None;
        }
        match self.0.get_mut(engine) {
            Some(reference) => reference.judge(calls_ms),
            None => {
                self.0.insert(engine.to_owned(), Reference::first(calls_ms)?);
                Some(Pace::Full)
            }
        }
    }
}

/// The time that a canary takes on this machine at its best, with one engine. Kept between runs of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Reference {
    ms: f64,
}

impl Reference {
    /// From the first canary of a machine; `None` without enough usable calls. It may be taken on a hot machine: the next cool one corrects it.
    pub fn first(calls_ms: &[f64]) -> Option<Self> {
        fastest(calls_ms).map(|ms| Self { ms })
    }

    /// Time of the canary at its best, in ms.
    pub fn ms(&self) -> f64 {
        self.ms
    }

    /// Judges a canary's calls, and learns from them; `None` without enough usable calls.
    pub fn judge(&mut self, calls_ms: &[f64]) -> Option<Pace> {
        let ms = fastest(calls_ms)?;
        let factor = ms / self.ms;
        self.ms = if factor < 1.0 { ms } else { self.ms + RISE * (ms - self.ms) };
        Some(match factor {
            // A reference that was read from a damaged file: begin anew.
            factor if !factor.is_finite() || factor <= 0.0 => {
                self.ms = ms;
                Pace::Full
            }
            factor if factor < SLOW => Pace::Full,
            factor if factor < VERY_SLOW => Pace::Slow,
            factor if factor < CRAWLING => Pace::VerySlow,
            _ => Pace::Crawling,
        })
    }
}

/// The fastest of enough calls: accidents only ever make calls longer.
fn fastest(calls_ms: &[f64]) -> Option<f64> {
    let usable = calls_ms.iter().copied().filter(|ms| ms.is_finite() && *ms > 0.0);
    (usable.clone().count() >= CALLS).then(|| usable.fold(f64::INFINITY, f64::min))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fusion_calibrations::noise::Noise;
    use fusion_calibrations::stats::PRIOR_RELATIVE_DEVIATION;

    #[test]
    fn a_throttled_machine_is_not_nominal_whatever_it_claims() {
        let mut reference = Reference::first(&[2.0, 2.1, 3.0]).unwrap();
        let claimed = Conditions { thermal: Thermal::Nominal, ..Conditions::default() };
        for (factor, thermal) in [
            (1.0, Thermal::Nominal),
            (1.15, Thermal::Moderate),
            (1.5, Thermal::Heavy),
            (2.9, Thermal::Trapping),
        ] {
            let calls = [2.0 * factor, 2.2 * factor, 9.0];
            assert_eq!(reference.clone().judge(&calls).unwrap().corrects(claimed).thermal, thermal);
        }
        let heavy = Conditions { thermal: Thermal::Heavy, ..claimed };
        assert_eq!(Pace::Full.corrects(heavy), heavy);
        assert_eq!(Pace::Full.corrects(Conditions::default()), claimed);
        assert_eq!(reference.judge(&[1.0, 1.0]), None);
        assert_eq!(reference.judge(&[f64::NAN, 0.0, -1.0, 2.0, 2.0]), None);
    }

    #[test]
    fn a_canary_is_believed_for_a_heat_memory() {
        let claimed = Conditions { thermal: Thermal::Nominal, ..Conditions::default() };
        let after = |pace: Pace, age| pace.corrects_after(age, claimed).thermal;
        assert_eq!(after(Pace::VerySlow, HOLDS / 2), Thermal::Heavy);
        assert_eq!(after(Pace::VerySlow, HOLDS), Thermal::Nominal);
        let unknown = Pace::Full.corrects_after(Duration::ZERO, Conditions::default());
        assert_eq!(unknown.thermal, Thermal::Unknown);
    }

    #[test]
    fn noise_and_accidents_are_no_heat() {
        let (mut noise, mut slow) = (Noise::new(3), 0);
        let mut canary = || [(); CALLS].map(|()| 2.0 * noise.call_factor(PRIOR_RELATIVE_DEVIATION));
        let mut reference = Reference::first(&canary()).unwrap();
        for _ in 0..2000 {
            slow += usize::from(reference.judge(&canary()) != Some(Pace::Full));
        }
        assert!(slow <= 2, "{slow} of 2000 cool canaries were called slow");
    }

    #[test]
    fn a_cool_canary_corrects_a_hot_start_and_a_lasting_change_becomes_the_reference() {
        let mut reference = Reference::first(&[3.0; CALLS]).unwrap();
        assert_eq!(reference.judge(&[2.0; CALLS]), Some(Pace::Full));
        assert_eq!(reference.judge(&[3.0; CALLS]), Some(Pace::VerySlow));
        let needed = (0..).take_while(|_| reference.judge(&[3.0; CALLS]) != Some(Pace::Full)).count();
        assert!((20..200).contains(&needed), "{needed}");
        let mut broken = Reference { ms: f64::NAN };
        assert_eq!((broken.judge(&[2.0; CALLS]), broken.ms()), (Some(Pace::Full), 2.0));
    }
}
