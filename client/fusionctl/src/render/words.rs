//! Numbers and identities in words.

use std::ops::Range;

use fusion_calibrations::chip::Pair;
use fusion_calibrations::conditions::Conditions;
use fusion_calibrations::lookup::Source;
use fusion_client::v1;
use jiff::{Timestamp, tz::TimeZone};

use crate::json::shared;

/// What the MLX version of an engine begins with that is data: see fusiond's `machine`.
const DATA_ENGINE: &str = "data: ";

/// "1 shape", "2 shapes".
pub(crate) fn count(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Milliseconds to three digits, without the unit.
pub(crate) fn ms(ms: f64) -> String {
    match ms {
        ms if ms < 0.995 => format!("{ms:.3}"),
        ms if ms < 9.995 => format!("{ms:.2}"),
        ms if ms < 99.95 => format!("{ms:.1}"),
        ms => format!("{ms:.0}"),
    }
}

/// Milliseconds a row to three digits, however small.
pub(crate) fn fine_ms(ms: f64) -> String {
    if !(ms.is_finite() && ms > 0.0) {
        return "0".to_owned();
    }
    let digits = (2.0 - ms.log10().floor()).clamp(0.0, 9.0) as usize;
    format!("{ms:.digits$}")
}

/// "321 ms", "1.3 s", "2 min 5 s".
pub(crate) fn duration(ms: f64) -> String {
    let seconds = (ms / 1000.0).round() as u64;
    match seconds {
        0 => format!("{ms:.0} ms"),
        1..60 => format!("{:.1} s", ms / 1000.0),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86400, seconds / 3600 % 24),
    }
}

/// "0.438"; "0" where there is no split.
pub(crate) fn ratio(ratio: f64) -> String {
    if ratio == 0.0 { "0".to_owned() } else { format!("{ratio:.3}") }
}

/// "3.1e-7"; "0" where both results are the same.
pub(crate) fn error(error: f64) -> String {
    if error == 0.0 { "0".to_owned() } else { format!("{error:.1e}") }
}

/// "1.76 [1.71, 1.82]".
pub(crate) fn interval(interval: Option<v1::Interval>) -> String {
    interval.map_or_else(|| "-".to_owned(), |i| format!("{:.2} [{:.2}, {:.2}]", i.value, i.low, i.high))
}

/// "512x896x4864", with the weights where they are not told elsewhere.
pub(crate) fn shape(shape: &v1::Shape, with_weights: bool) -> String {
    let layer = shape.layer.clone().unwrap_or_default();
    let sizes = format!("{}x{}x{}", shape.rows, layer.inputs, layer.outputs);
    if with_weights { format!("{sizes} {} {}", layer.format, layer.layout) } else { sizes }
}

/// "Acme Turbo, 16 GiB".
pub(crate) fn chip(chip: &v1::Chip) -> String {
    let cores = chip.gpu_cores.map(|cores| format!(", {cores} GPU cores")).unwrap_or_default();
    format!("{}{cores}, {} GiB", chip.brand, chip.memory_gib)
}

/// What a person must be told about the pair that a chip's key ends with.
pub(crate) fn pair_label(chip_key: &str) -> Option<&'static str> {
    pair(chip_key)?.label()
}

fn pair(chip_key: &str) -> Option<Pair> {
    chip_key.rsplit('.').next()?.parse().ok()
}

/// "nominal, memory normal, AC, low-power mode off"; what no sensor tells is left out.
pub(crate) fn conditions(conditions: Option<&v1::Conditions>) -> String {
    let known = told(conditions, 0..4);
    if known.is_empty() { "no sensor tells".to_owned() } else { known }
}

/// The first half of [`conditions`]; "-" where no sensor tells.
pub(crate) fn heat_and_memory(conditions: Option<&v1::Conditions>) -> String {
    let known = told(conditions, 0..2);
    if known.is_empty() { "-".to_owned() } else { known }
}

/// The other half.
pub(crate) fn power(conditions: Option<&v1::Conditions>) -> String {
    let known = told(conditions, 2..4);
    if known.is_empty() { "-".to_owned() } else { known }
}

/// Of the four words of conditions (thermal, memory, power, low-power mode) those in `range` that a sensor tells.
fn told(conditions: Option<&v1::Conditions>, range: Range<usize>) -> String {
    let text = conditions.map(|wire| Conditions::from(wire).to_string()).unwrap_or_default();
    let words = text.split(", ").skip(range.start).take(range.len());
    words.filter(|word| !word.is_empty() && !word.ends_with("unknown")).collect::<Vec<_>>().join(", ")
}

/// "288+224": the primary unit's rows and the secondary unit's.
pub(crate) fn rows(estimate: &v1::Estimate) -> String {
    let rows = estimate.shape.as_ref().map_or(0, |shape| shape.rows);
    format!("{}+{}", rows.saturating_sub(estimate.secondary_rows), estimate.secondary_rows)
}

/// "26 of 28": kept of taken.
pub(crate) fn samples(estimate: &v1::Estimate) -> String {
    let kept = estimate.kept_samples;
    format!("{kept} of {}", kept.saturating_add(estimate.dropped_samples))
}

/// "MLX 0.32.2 (library 1a2b3c4d) on debian-12 6.1.0"; data instead of MLX is named by its source.
pub(crate) fn engine(engine: &v1::Engine) -> String {
    if let Some(data) = engine.mlx_version.strip_prefix(DATA_ENGINE) {
        return format!("{data} from {} at commit {}, no MLX", engine.os_build, engine.library_hash);
    }
    format!("MLX {} (library {}) on {}", engine.mlx_version, engine.library_hash, engine.os_build)
}

/// "measured"; for numbers that no machine here gave, what they are instead.
pub(crate) fn provenance(estimate: &v1::Estimate) -> String {
    let word = match (estimate.provenance(), pair(&estimate.chip_key)) {
        (v1::Provenance::Measured, Some(stand_in @ (Pair::Recorded | Pair::Modelled))) => {
            stand_in.to_string()
        }
        (provenance, _) => shared::word(provenance.as_str_name(), "PROVENANCE_"),
    };
    if estimate.stale_reason.is_empty() { word } else { format!("{word}, stale") }
}

/// "measured", "observed, stale"; "-" where there are no numbers.
pub(crate) fn provenance_word(provenance: v1::Provenance, stale: bool) -> String {
    match provenance {
        v1::Provenance::Unspecified => "-".to_owned(),
        known if stale => shared::word(known.as_str_name(), "PROVENANCE_") + ", stale",
        known => shared::word(known.as_str_name(), "PROVENANCE_"),
    }
}

/// The word of a source in JSON.
pub(crate) fn source_key(source: Source) -> String {
    source.to_string().replace(' ', "_")
}

/// "1.5 %".
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// "12.3 s"; what was lost is said to be.
pub(crate) fn saved(ms: f64) -> String {
    if ms < 0.0 { format!("lost {}", duration(-ms)) } else { duration(ms) }
}

/// A moment in ms since 1970, where there is one: what never was is 0 or long before.
pub(crate) fn unix_ms(ms: f64) -> Option<u64> {
    (ms.is_finite() && ms >= 1.0).then_some(ms as u64)
}

/// A name that another process chose: nothing in it steers a terminal or breaks a line.
pub(crate) fn plain(name: &str) -> String {
    name.chars().map(|character| if character.is_control() { '?' } else { character }).collect()
}

/// A moment in the local time zone, to the minute.
pub(crate) fn moment(unix_ms: u64) -> String {
    moment_in(unix_ms, TimeZone::system())
}

/// A moment for a file that others read, to the minute.
pub(crate) fn moment_utc(unix_ms: u64) -> String {
    moment_in(unix_ms, TimeZone::UTC) + " UTC"
}

fn moment_in(unix_ms: u64, zone: TimeZone) -> String {
    let time = i64::try_from(unix_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    time.map_or_else(
        || "-".to_owned(),
        |time| time.to_zoned_datetime(zone).strftime("%Y-%m-%d %H:%M").to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        assert_eq!([0.0421, 8.216, 44.58, 512.4].map(ms), ["0.042", "8.22", "44.6", "512"]);
        assert_eq!([0.9996, 9.996, 99.96].map(ms), ["1.00", "10.0", "100"]);
        assert_eq!([0.0, 0.000_012_34, 0.0228, 1.5].map(fine_ms), ["0", "0.0000123", "0.0228", "1.50"]);
    }

    #[test]
    fn durations_are_for_people() {
        let cases = [
            (321.0, "321 ms"),
            (1284.0, "1.3 s"),
            (125_000.0, "2 min 5 s"),
            (1e7, "2 h 46 min"),
            (1e9, "11 d 13 h"),
        ];
        for (ms, text) in cases {
            assert_eq!(duration(ms), text);
        }
    }

    #[test]
    fn only_real_pairs_have_no_label() {
        assert_eq!(pair_label("apple-m4-pro.20gpu.24gib.mac16-8.active.gpu+cpu"), None);
        assert!(pair_label("x.nogpu.16gib.y.unknown.development").unwrap().starts_with("development pair"));
        assert!(pair_label("x.recorded").unwrap().starts_with("recorded"));
    }

    #[test]
    fn losses_are_called_so_and_names_are_harmless() {
        assert_eq!([12_345.0, -321.0, 0.0].map(saved), ["12.3 s", "lost 321 ms", "0 ms"]);
        assert_eq!(plain("a\u{1b}[31m\nb"), "a?[31m?b");
        assert_eq!([f64::NEG_INFINITY, f64::NAN, 0.0, 7.9].map(unix_ms), [None, None, None, Some(7)]);
        assert_eq!(source_key(Source::OtherConditions), "other_conditions");
    }

    #[test]
    fn silent_sensors_are_not_listed() {
        let wire = v1::Conditions { memory: v1::Memory::Normal.into(), ..Default::default() };
        assert_eq!(conditions(Some(&wire)), "memory normal");
        assert_eq!(conditions(Some(&v1::Conditions::default())), "no sensor tells");
        assert_eq!(
            (heat_and_memory(Some(&wire)).as_str(), power(Some(&wire)).as_str()),
            ("memory normal", "-")
        );
        let wire = v1::Conditions { power: v1::Power::Ac.into(), ..wire };
        assert_eq!((heat_and_memory(None).as_str(), power(Some(&wire)).as_str()), ("-", "AC"));
    }
}
