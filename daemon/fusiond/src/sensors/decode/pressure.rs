//! Pressure stall information: `/proc/pressure/*` (kernel documentation: accounting/psi).
//!
//! ```text
//! some avg10=0.22 avg60=0.17 avg300=1.11 total=58761459
//! full avg10=0.00 avg60=0.13 avg300=0.96 total=57979364
//! ```

use fusion_calibrations::conditions::Memory;

/// Share of the last 10 s in which some task waited for memory, in percent, from which on pressure is a warning.
pub const WARN_SOME_PERCENT: f64 = 10.0;
/// Share of the last 10 s in which all tasks waited, from which on it is critical. systemd-oomd acts at 60 % over 30 s, so both come long
/// before it does.
pub const CRITICAL_FULL_PERCENT: f64 = 20.0;
/// What asks the kernel for an event: 200 ms of waiting within 2 s, the share of [`WARN_SOME_PERCENT`]. Without privileges the window must
/// be a multiple of 2 s, and kernels before 6.5 refuse altogether (kernel commit d82caa273565).
pub const WARN_TRIGGER: &[u8] = b"some 200000 2000000\0";

/// The level that `/proc/pressure/memory` means.
pub fn memory(text: &str) -> Memory {
    match (average_percent(text, "some"), average_percent(text, "full")) {
        (_, Some(full)) if full >= CRITICAL_FULL_PERCENT => Memory::Critical,
        (Some(some), _) if some >= WARN_SOME_PERCENT => Memory::Warn,
        (Some(_), _) => Memory::Normal,
        (None, _) => Memory::Unknown,
    }
}

/// The share of the last 10 s in which some task waited for a core: `/proc/pressure/cpu`.
pub fn processor(text: &str) -> Option<f64> {
    super::share_of_percent(average_percent(text, "some")?)
}

fn average_percent(text: &str, kind: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
    let average: f64 =
        line.split_whitespace().find_map(|field| field.strip_prefix("avg10="))?.parse().ok()?;
    (0.0..=100.0).contains(&average).then_some(average)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pressure(some: &str, full: &str) -> String {
        format!(
            "some avg10={some} avg60=0.00 avg300=0.00 total=1\nfull avg10={full} avg60=0.00 avg300=0.00 total=1\n"
        )
    }

    #[test]
    fn pressure_is_read_and_nonsense_is_unknown() {
        assert_eq!(memory(&pressure("0.00", "0.00")), Memory::Normal);
        assert_eq!(memory(&pressure("12.50", "3.00")), Memory::Warn);
        assert_eq!(memory(&pressure("80.00", "40.00")), Memory::Critical);
        for text in ["", "some", "some avg10=x", "some avg10=NaN", "some avg10=-1", "Operation not supported"]
        {
            assert_eq!(memory(text), Memory::Unknown, "{text}");
        }
    }

    #[test]
    fn waiting_for_a_core_is_a_share() {
        // Of a machine with two busy cores; before kernel 5.13 there was no second line.
        let text = "some avg10=1.21 avg60=3.11 avg300=4.67 total=5414021080\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
        assert_eq!(processor(text), Some(0.0121));
        assert_eq!(processor("some avg10=50.00 avg60=3.11 avg300=4.67 total=54\n"), Some(0.5));
        for text in ["", "full avg10=1.00", "some avg10=101.00"] {
            assert_eq!(processor(text), None, "{text}");
        }
    }
}
