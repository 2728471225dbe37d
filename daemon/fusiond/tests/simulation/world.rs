//! The machine and what surrounds it, in virtual time: truth, and what its sensors and clocks say.

use std::time::Duration;

use fusion_calibrations::chip::{Chip, Pair};
use fusion_calibrations::conditions::{Conditions, LowPowerMode, Memory, Power, Thermal};
use fusion_calibrations::engine::Engine;
use fusion_calibrations::machine::Machine;
use fusiond::planner::{Hold, Load, Lock, Moment};

/// The simulated machines.
pub const CHIPS: [&str; 5] = ["m1", "m2", "m3-pro", "m4", "m4-pro"];
/// Where the wall clock starts: 2026-07-01 00:00 UTC.
const START_UNIX_MS: f64 = 1_782_864_000_000.0;
/// What a power source, low-power mode and three engines do to the primary and the secondary unit: made up, but of the size of the recorded
/// differences between sessions (up to 1.5 times).
const ON_BATTERY: (f64, f64) = (1.0, 1.15);
const IN_LOW_POWER_MODE: (f64, f64) = (1.3, 1.6);
const ENGINES: [(f64, f64); 3] = [(1.0, 1.0), (0.85, 1.0), (0.95, 0.8)];
/// Heat from which on a truthful sensor claims moderate and heavy pressure.
const MODERATE: f64 = 0.4;
const HEAVY: f64 = 0.8;

/// A machine with its sensors and clocks.
pub struct World {
    /// Its units: times and heat.
    pub machine: Machine,
    /// Its chip, labelled as modelled.
    pub chip: Chip,
    /// Whether a person holds the planner back.
    pub hold: Hold,
    /// Who holds the machine's lock.
    pub lock: Lock,
    /// What the user's programs do.
    pub load: Load,
    /// Memory that is available, in bytes.
    pub available_memory_bytes: u64,
    /// Whether the thermal sensor says "nominal" whatever happens.
    pub sensors_lie: bool,
    conditions: Conditions,
    engine: usize,
    slept_ms: f64,
    clock_error_ms: f64,
}

impl World {
    /// One of [`CHIPS`], cool, on AC.
    pub fn new(chip: &str, seed: u64) -> Self {
        let machine = Machine::named(chip, seed).unwrap();
        let chip = machine.prior().chip(Pair::Modelled);
        let conditions = Conditions {
            thermal: Thermal::Nominal,
            memory: Memory::Normal,
            power: Power::Ac,
            low_power_mode: LowPowerMode::Off,
        };
        let mut world = Self {
            machine,
            chip,
            hold: Hold::Released,
            lock: Lock::Held,
            load: Load { cpu: Some(0.05), gpu: Some(0.0) },
            available_memory_bytes: 8 << 30,
            sensors_lie: false,
            conditions,
            engine: 0,
            slept_ms: 0.0,
            clock_error_ms: 0.0,
        };
        world.set_pace();
        world
    }

    /// True time since the start, in ms.
    pub fn now_ms(&self) -> f64 {
        self.machine.now_ms()
    }

    /// What the wall clock says.
    pub fn wall(&self) -> Moment {
        Moment::from_unix_ms((START_UNIX_MS + self.now_ms() + self.clock_error_ms).max(0.0) as u64)
    }

    /// What the monotonic clock says: it stands still in sleep.
    pub fn monotonic(&self) -> Duration {
        Duration::from_secs_f64((self.now_ms() - self.slept_ms) / 1e3)
    }

    /// What the sensors say.
    pub fn conditions(&self) -> Conditions {
        let thermal = match self.machine.heat() {
            _ if self.sensors_lie => Thermal::Nominal,
            heat if heat < MODERATE => Thermal::Nominal,
            heat if heat < HEAVY => Thermal::Moderate,
            _ => Thermal::Heavy,
        };
        Conditions { thermal, ..self.conditions }
    }

    /// The code that products run with now.
    pub fn engine(&self) -> Engine {
        Engine {
            os_build: "simulated".to_owned(),
            mlx_version: format!("0.3{}.0", self.engine),
            library_hash: "0".to_owned(),
        }
    }

    pub fn set_power(&mut self, power: Power) {
        self.conditions.power = power;
        self.set_pace();
    }

    pub fn set_low_power_mode(&mut self, mode: LowPowerMode) {
        self.conditions.low_power_mode = mode;
        self.set_pace();
    }

    pub fn set_memory(&mut self, memory: Memory, available_bytes: u64) {
        self.conditions.memory = memory;
        self.available_memory_bytes = available_bytes;
    }

    /// The next of the engines is installed.
    pub fn upgrade(&mut self) {
        self.engine += 1;
        self.set_pace();
    }

    /// Sets the wall clock.
    pub fn set_clock(&mut self, by_ms: f64) {
        self.clock_error_ms += by_ms;
    }

    /// Nothing runs, and monotonic time stands still.
    pub fn sleep(&mut self, ms: f64) {
        self.machine.rest(ms);
        self.slept_ms += ms;
    }

    fn set_pace(&mut self) {
        let mut pace = ENGINES[self.engine % ENGINES.len()];
        let mut slow = |by: (f64, f64)| pace = (pace.0 * by.0, pace.1 * by.1);
        if self.conditions.power == Power::Battery {
            slow(ON_BATTERY);
        }
        if self.conditions.low_power_mode == LowPowerMode::On {
            slow(IN_LOW_POWER_MODE);
        }
        self.machine.set_slowdown(pace.0, pace.1);
    }
}
