//! What happens on which day: drawn from a seed, so that a failing day can be lived again.

use fusion_calibrations::conditions::{LowPowerMode, Memory, Power};
use fusion_calibrations::noise::Noise;

pub const SECOND: f64 = 1e3;
pub const MINUTE: f64 = 60.0 * SECOND;
pub const HOUR: f64 = 60.0 * MINUTE;
pub const DAY: f64 = 24.0 * HOUR;

const GIB: u64 = 1 << 30;
const PLENTY: u64 = 8 * GIB;
/// Enough for the products of the simulated models, but not twice.
const TIGHT: u64 = GIB / 2;

/// Something that happens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event {
    /// A process starts and attaches.
    Attach(usize),
    /// It ends.
    Detach(usize),
    /// It makes so many calls in a row.
    Burst { client: usize, calls: u32 },
    /// The plug.
    Power(Power),
    /// The user's switch.
    LowPowerMode(LowPowerMode),
    /// Memory pressure, and what is available.
    Memory(Memory, u64),
    /// Whether the thermal sensor sticks to "nominal".
    SensorsLie(bool),
    /// The lid closes for so many ms.
    Sleep(f64),
    /// The wall clock is set by so many ms.
    ClockSet(f64),
    /// MLX is upgraded; every process starts anew.
    Upgrade,
    /// Another program uses so much of the GPU.
    OthersUse(f64),
    /// The daemon dies after so many more of its steps.
    CrashAfter(u32),
    /// Whether the disk is full.
    DiskFull(bool),
    /// The worker dies in so large a share of its calls.
    WorkerDies(f64),
    /// A person pauses measuring, or resumes it.
    Paused(bool),
    /// Another user's daemon holds the machine's lock, or lets it go.
    LockedElsewhere(bool),
    /// From here on conditions come and go for a while.
    FlappingBegins,
    /// Now they stay.
    FlappingEnds,
    /// The machine was left alone since the day began.
    QuietEnds,
}

impl Event {
    /// Whether a running job ends by it.
    pub fn disturbs(&self) -> bool {
        matches!(
            self,
            Self::Burst { .. } | Self::Power(_) | Self::LowPowerMode(_) | Self::Memory(..) | Self::Sleep(_)
        )
    }

    /// Whether it happens to the machine, also in the middle of a burst.
    pub fn happens_to_machine(&self) -> bool {
        !matches!(
            self,
            Self::Attach(_)
                | Self::Detach(_)
                | Self::Burst { .. }
                | Self::Sleep(_)
                | Self::Upgrade
                | Self::QuietEnds
        )
    }
}

/// A script: events with their times, in order.
pub fn script(days: u32, seed: u64) -> Vec<(f64, Event)> {
    let mut writer = Writer { noise: Noise::for_use(seed, "script"), events: Vec::new() };
    for day in 0..days {
        writer.day(f64::from(day) * DAY, day == 0);
    }
    writer.events.sort_by(|a, b| a.0.total_cmp(&b.0));
    writer.events
}

struct Writer {
    noise: Noise,
    events: Vec<(f64, Event)>,
}

impl Writer {
    fn at(&mut self, time: f64, event: Event) {
        self.events.push((time, event));
    }

    fn chance(&mut self, probability: f64) -> bool {
        self.noise.uniform() < probability
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.noise.uniform()
    }

    fn bursts(&mut self, client: usize, from: f64, to: f64, count: u32, most_calls: f64) {
        for _ in 0..count {
            let (time, calls) = (self.between(from, to), self.between(3.0, most_calls) as u32);
            self.at(time, Event::Burst { client, calls });
        }
    }

    fn day(&mut self, midnight: f64, first: bool) {
        if first {
            // Attached from the start and left alone: what an idle machine learns.
            self.at(midnight, Event::Attach(0));
            self.at(midnight + 7.0 * HOUR, Event::QuietEnds);
        } else if self.chance(0.5) {
            self.at(midnight + 8.0 * HOUR, Event::Attach(0));
        }
        self.morning(midnight);
        self.noon(midnight);
        self.afternoon(midnight);
        self.mishaps(midnight);
        self.evening(midnight);
    }

    fn morning(&mut self, midnight: f64) {
        self.bursts(0, midnight + 8.1 * HOUR, midnight + 11.5 * HOUR, 4, 40.0);
        // A conversation: short calls with short pauses, between which nothing should start.
        let start = midnight + 11.6 * HOUR;
        for turn in 0..8 {
            self.at(start + f64::from(turn) * 15.0 * SECOND, Event::Burst { client: 0, calls: 3 });
        }
    }

    fn noon(&mut self, midnight: f64) {
        // The plug is pulled in the middle of a burst.
        let unplugged = midnight + self.between(12.0, 12.5) * HOUR;
        self.at(unplugged - 2.0 * SECOND, Event::Burst { client: 0, calls: 30 });
        self.at(unplugged, Event::Power(Power::Battery));
        self.bursts(0, unplugged + MINUTE, unplugged + HOUR, 2, 30.0);
        if self.chance(0.3) {
            self.at(unplugged + 0.5 * HOUR, Event::LowPowerMode(LowPowerMode::On));
            self.at(unplugged + 0.9 * HOUR, Event::LowPowerMode(LowPowerMode::Off));
        }
        self.at(midnight + 14.0 * HOUR, Event::Power(Power::Ac));
    }

    fn afternoon(&mut self, midnight: f64) {
        let lies = self.chance(0.3);
        self.at(midnight + 14.9 * HOUR, Event::SensorsLie(lies));
        if self.chance(0.6) {
            let calls = self.between(200.0, 600.0) as u32;
            self.at(midnight + 15.0 * HOUR, Event::Burst { client: 0, calls });
        }
        if self.chance(0.4) {
            self.at(midnight + 16.0 * HOUR, Event::Memory(Memory::Warn, TIGHT));
            if self.chance(0.5) {
                self.at(midnight + 16.2 * HOUR, Event::Memory(Memory::Critical, TIGHT / 4));
            }
            self.bursts(0, midnight + 16.0 * HOUR, midnight + 16.5 * HOUR, 1, 20.0);
            self.at(midnight + 16.6 * HOUR, Event::Memory(Memory::Normal, PLENTY));
        }
        if self.chance(0.3) {
            self.flapping(midnight + 17.0 * HOUR);
        }
        if self.chance(0.2) {
            self.at(midnight + 18.0 * HOUR, Event::Upgrade);
        }
        self.bursts(0, midnight + 18.1 * HOUR, midnight + 19.5 * HOUR, 2, 40.0);
    }

    fn flapping(&mut self, from: f64) {
        let (mut time, mut power) = (from, Power::Battery);
        let mut changes = 0;
        while time < from + 20.0 * MINUTE {
            self.at(time, Event::Power(power));
            changes += 1;
            // The first may be none: the plug may have been pulled before.
            if changes == 2 {
                self.at(time, Event::FlappingBegins);
            }
            power = if power == Power::Ac { Power::Battery } else { Power::Ac };
            time += self.between(5.0, 25.0) * SECOND;
        }
        self.at(time, Event::FlappingEnds);
        self.at(time, Event::Power(Power::Ac));
    }

    fn mishaps(&mut self, midnight: f64) {
        for _ in 0..3 {
            if self.chance(0.5) {
                let (time, steps) = (self.between(7.1, 23.0) * HOUR, self.between(0.0, 60.0) as u32);
                self.at(midnight + time, Event::CrashAfter(steps));
            }
        }
        if self.chance(0.2) {
            let from = midnight + self.between(8.0, 20.0) * HOUR;
            let hours = self.between(0.2, 3.0);
            self.at(from, Event::DiskFull(true));
            self.at(from + hours * HOUR, Event::DiskFull(false));
        }
        if self.chance(0.3) {
            let from = midnight + self.between(8.0, 20.0) * HOUR;
            let share = self.between(0.0, 0.3);
            self.at(from, Event::WorkerDies(share));
            self.at(from + 2.0 * HOUR, Event::WorkerDies(0.0));
        }
        if self.chance(0.3) {
            let from = midnight + self.between(8.0, 20.0) * HOUR;
            self.at(from, Event::OthersUse(0.5));
            self.at(from + HOUR, Event::OthersUse(0.0));
        }
        if self.chance(0.2) {
            let from = midnight + self.between(8.0, 20.0) * HOUR;
            self.at(from, Event::Paused(true));
            self.at(from + HOUR, Event::Paused(false));
        }
        if self.chance(0.2) {
            let from = midnight + self.between(8.0, 20.0) * HOUR;
            self.at(from, Event::LockedElsewhere(true));
            self.at(from + HOUR, Event::LockedElsewhere(false));
        }
        if self.chance(0.3) {
            let by = self.between(-2.0, 2.0) * HOUR;
            let time = midnight + self.between(8.0, 20.0) * HOUR;
            self.at(time, Event::ClockSet(by));
        }
    }

    fn evening(&mut self, midnight: f64) {
        if self.chance(0.7) {
            self.at(midnight + 20.0 * HOUR, Event::Attach(1));
            self.bursts(1, midnight + 20.1 * HOUR, midnight + 22.0 * HOUR, 3, 40.0);
            self.at(midnight + 22.5 * HOUR, Event::Detach(1));
        }
        if self.chance(0.5) {
            self.at(midnight + 22.6 * HOUR, Event::Detach(0));
        }
        if self.chance(0.6) {
            let hours = self.between(6.0, 8.0);
            self.at(midnight + 23.5 * HOUR, Event::Sleep(hours * HOUR));
        }
    }
}
