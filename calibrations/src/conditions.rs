//! Conditions: the state a machine was in. A dimension of the key with a nearest neighbour, not a reason to miss.

use std::fmt;

macro_rules! condition {
    ($(#[$doc:meta])* $name:ident, $unknown:literal { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub enum $name {
            /// No sensor says.
            #[default]
            Unknown,
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// Every value, in the order of the codes.
            pub const ALL: &'static [Self] = &[Self::Unknown, $(Self::$variant,)*];

            /// The stable number of this value in keys and records: 0 is unknown, then upwards with severity.
            pub fn code(self) -> u8 {
                self as u8
            }

            /// The value of a stable number.
            pub fn from_code(code: u8) -> Option<Self> {
                Self::ALL.get(usize::from(code)).copied()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    Self::Unknown => $unknown,
                    $(Self::$variant => $word,)*
                })
            }
        }
    };
}

condition! {
    /// Thermal pressure, in the words of macOS' `OSThermalNotification.h`.
    Thermal, "thermal unknown" {
        /// Full speed.
        Nominal = "nominal",
        /// The first step of throttling.
        Moderate = "moderate",
        /// Clearly slower.
        Heavy = "heavy",
        /// The machine protects itself.
        Trapping = "trapping",
    }
}

condition! {
    /// Memory pressure, in the levels of `kern.memorystatus_vm_pressure_level`.
    Memory, "memory unknown" {
        /// Enough memory.
        Normal = "memory normal",
        /// Memory is compressed or reclaimed under load.
        Warn = "memory warn",
        /// Processes are about to be stopped.
        Critical = "memory critical",
    }
}

condition! {
    /// Where the current comes from.
    Power, "power unknown" {
        /// From the wall.
        Ac = "AC",
        /// From the battery.
        Battery = "battery",
    }
}

condition! {
    /// The user's low-power mode.
    LowPowerMode, "low-power mode unknown" {
        /// Off.
        Off = "low-power mode off",
        /// On: nothing is measured.
        On = "low-power mode on",
    }
}

/// The state of a machine that changes the right ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Conditions {
    /// Thermal pressure.
    pub thermal: Thermal,
    /// Memory pressure.
    pub memory: Memory,
    /// Power source.
    pub power: Power,
    /// Low-power mode.
    pub low_power_mode: LowPowerMode,
}

impl Conditions {
    /// The conditions as four bytes for a key: thermal, memory, power, low-power mode.
    pub fn to_key(self) -> [u8; 4] {
        [self.thermal.code(), self.memory.code(), self.power.code(), self.low_power_mode.code()]
    }

    /// Reads [`Self::to_key`] back; `None` if a code is unknown to this version.
    pub fn from_key(key: [u8; 4]) -> Option<Self> {
        Some(Self {
            thermal: Thermal::from_code(key[0])?,
            memory: Memory::from_code(key[1])?,
            power: Power::from_code(key[2])?,
            low_power_mode: LowPowerMode::from_code(key[3])?,
        })
    }

    /// How far two conditions are apart, for choosing the nearest known ones; 0 only for equal ones.
    ///
    /// Heat moves the best ratio most (a slow M3 Pro wanted .30-.35 where a cool one wants .25, FusionML's grids), then low-power
    /// mode and the power source, which cap the clocks; memory pressure mostly decides whether to split at all. A value that no sensor
    /// gives is half a step from everything: it may well be the same state.
    pub fn distance(self, other: Self) -> u32 {
        fn step(a: u8, b: u8, weight: u32) -> u32 {
            match (a, b) {
                (a, b) if a == b => 0,
                (0, _) | (_, 0) => weight / 2,
                (a, b) => weight * u32::from(a.abs_diff(b)),
            }
        }
        let (a, b) = (self.to_key(), other.to_key());
        step(a[0], b[0], 8) + step(a[3], b[3], 6) + step(a[2], b[2], 4) + step(a[1], b[1], 2)
    }
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {}, {}", self.thermal, self.memory, self.power, self.low_power_mode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Conditions> {
        let mut all = Vec::new();
        for &thermal in Thermal::ALL {
            for &memory in Memory::ALL {
                for &power in Power::ALL {
                    for &low_power_mode in LowPowerMode::ALL {
                        all.push(Conditions { thermal, memory, power, low_power_mode });
                    }
                }
            }
        }
        all
    }

    #[test]
    fn keys_read_back_and_unknown_codes_do_not() {
        for conditions in all() {
            assert_eq!(Conditions::from_key(conditions.to_key()), Some(conditions));
        }
        assert_eq!(Conditions::from_key([9, 1, 1, 1]), None);
    }

    #[test]
    fn distance_is_symmetric_and_zero_only_for_equals() {
        for a in all() {
            for b in all() {
                assert_eq!(a.distance(b), b.distance(a));
                assert_eq!(a.distance(b) == 0, a == b);
            }
        }
    }
}
