//! What the sensors say beyond the conditions: part of `fusionctl.status/1`.

use fusion_client::v1;
use serde::Serialize;

use super::shared::{filled, time};

#[derive(Debug, Serialize)]
pub(crate) struct Readings {
    source: Option<String>,
    available_memory_bytes: Option<u64>,
    swapped_in_pages: Option<u64>,
    cpu_pressure: Option<f64>,
    gpu_busy: Option<f64>,
    user_idle_ms: Option<u64>,
    display_asleep: Option<bool>,
    dark_wake: Option<bool>,
    slept_ms: Option<u64>,
    throttle_events: Option<u64>,
    cpu_speed_limit: Option<f64>,
    woke_at: Option<String>,
}

impl From<&v1::Readings> for Readings {
    fn from(readings: &v1::Readings) -> Self {
        Self {
            source: filled(&readings.source),
            available_memory_bytes: readings.available_memory_bytes,
            swapped_in_pages: readings.swapped_in_pages,
            cpu_pressure: readings.cpu_pressure,
            gpu_busy: readings.gpu_busy,
            user_idle_ms: readings.user_idle_ms,
            display_asleep: readings.display_asleep,
            dark_wake: readings.dark_wake,
            slept_ms: readings.slept_ms,
            throttle_events: readings.throttle_events,
            cpu_speed_limit: readings.cpu_speed_limit,
            woke_at: readings.woke_at_unix_ms.map(time),
        }
    }
}
