//! What the sensors say at one moment.

use std::time::Duration;

use fusion_calibrations::conditions::Conditions;

/// What the machine says of itself. Everything is optional: a sensor that is absent or speaks nonsense says nothing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Readings {
    /// Heat, memory pressure, power source and low-power mode; each may be unknown.
    pub conditions: Conditions,
    /// Memory that a new process could use without making others swap, in bytes.
    pub available_memory_bytes: Option<u64>,
    /// Pages swapped in since the machine started: the difference across a call tells whether it was slowed by that.
    pub swapped_in_pages: Option<u64>,
    /// Share of the last 10 s in which some task waited for a core. Linux only.
    pub cpu_pressure: Option<f64>,
    /// Share of time that the GPU works, for whomever: others' share while nothing of ours runs. No process is told from another.
    pub gpu_busy: Option<f64>,
    /// Time since the last key or pointer event. macOS only: Linux tells it to the session's desktop alone.
    pub user_idle: Option<Duration>,
    /// Whether every display sleeps.
    pub display_asleep: Option<bool>,
    /// Whether the machine is awake for itself only, with the user away. macOS only.
    pub dark_wake: Option<bool>,
    /// Time asleep since the machine started: it grew if the machine slept in between.
    pub slept: Option<Duration>,
    /// How often processors throttled themselves since the machine started. x86 Linux only; a difference means heat or a current limit.
    pub throttle_events: Option<u64>,
    /// Share of its highest clock that the most limited processor may use. Linux only.
    pub cpu_speed_limit: Option<f64>,
}
