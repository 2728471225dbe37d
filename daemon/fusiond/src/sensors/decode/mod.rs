//! From what a system says to what it means: pure functions of text, numbers and property lists, the same on every system.
//!
//! The rule of all of them: what is absent, of another form or out of range means nothing (`None`, or "unknown"), never a default that
//! could be taken for a measurement.

pub mod cooling;
pub mod darwin;
pub mod memory;
pub mod pressure;
pub mod processor;
pub mod supply;
pub mod uevent;
pub mod video;

use std::time::Duration;

/// A percentage as a share; `None` beyond 0 to 100.
fn share_of_percent(percent: f64) -> Option<f64> {
    (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
}

/// How long a machine slept since it started: what a clock that runs through sleep is ahead of one that stops. `None` if it is behind,
/// which no clocks that were read in this order (the one that stops first) can be.
pub fn slept(through_sleep: Duration, while_awake: Duration) -> Option<Duration> {
    through_sleep.checked_sub(while_awake)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sleep_is_the_difference_of_the_clocks() {
        let seconds = Duration::from_secs;
        assert_eq!(slept(seconds(100), seconds(70)), Some(seconds(30)));
        assert_eq!(slept(seconds(70), seconds(70)), Some(Duration::ZERO));
        assert_eq!(slept(seconds(69), seconds(70)), None);
    }

    #[test]
    fn a_share_is_of_one() {
        assert_eq!((share_of_percent(0.0), share_of_percent(100.0)), (Some(0.0), Some(1.0)));
        for nonsense in [-0.1, 100.5, f64::NAN, f64::INFINITY] {
            assert_eq!(share_of_percent(nonsense), None);
        }
    }

    fn is_share(share: Option<f64>) -> bool {
        share.is_none_or(|share| (0.0..=1.0).contains(&share))
    }

    proptest! {
        /// No text can make a decoder panic, nor say what lies out of range.
        #[test]
        fn arbitrary_text_is_borne(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            more in "(some|full|MemAvailable:|pswpin|avg10=|[0-9.-]{1,25}|kB| |\n){0,40}",
        ) {
            for text in [String::from_utf8_lossy(&bytes).as_ref(), more.as_str()] {
                pressure::memory(text);
                prop_assert!(is_share(pressure::processor(text)));
                memory::available_bytes(text);
                memory::swapped_in_pages(text);
                cooling::zone(text, text, &[(text, text)]);
                cooling::device(text, text, text);
                supply::source([supply::Supply { kind: text, scope: text, status: text, online: text }]);
                supply::low_power_mode(text);
                processor::throttle_events([text, text], [text]);
                prop_assert!(is_share(processor::speed_limit([(text, text)])));
                prop_assert!(is_share(video::gpu_busy([text, text])));
                video::display_asleep([(text, text)]);
                darwin::power_source(text);
            }
            uevent::concerns_conditions(&bytes);
        }

        #[test]
        fn arbitrary_numbers_are_borne(state: u64, level: i32, number: i64, bytes in proptest::collection::vec(any::<u8>(), 0..20)) {
            darwin::thermal(state);
            darwin::low_power_mode(state);
            darwin::memory(level);
            darwin::dark_wake(&darwin::Property::Number(number));
            let key = "Device Utilization %".to_owned();
            let map = darwin::Property::Map(vec![(key, darwin::Property::Number(number))]);
            prop_assert!(is_share(darwin::gpu_busy(&map)));
            darwin::user_idle(&darwin::Property::Number(number));
            darwin::user_idle(&darwin::Property::Bytes(bytes));
        }

        #[test]
        fn available_memory_is_never_more_than_is_installed(
            free: u32, speculative: u32, purgeable: u32, external: u32, page in 0u64..1 << 40, installed: u64,
        ) {
            let pages = darwin::Pages {
                free: free.into(), speculative: speculative.into(), purgeable: purgeable.into(), file_backed: external.into(),
            };
            let available = darwin::available_bytes(&pages, page, installed);
            prop_assert!(available.is_none_or(|bytes| bytes <= installed));
        }
    }
}
