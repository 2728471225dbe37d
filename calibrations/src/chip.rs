//! The chip: the identity of the hardware, and of the two units that share a product on it.

use std::fmt;
use std::str::FromStr;

/// How a machine gets rid of its heat. `hw.model` names no cooling after 2022, so this comes from a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Cooling {
    /// A fan.
    Active,
    /// No fan: sustained load slows both units.
    Passive,
    /// The model identifier isn't in the table.
    #[default]
    Unknown,
}

impl fmt::Display for Cooling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Active => "active",
            Self::Passive => "passive",
            Self::Unknown => "unknown",
        })
    }
}

/// The two units that share a product. Numbers of one pair never answer for another, so it is part of the chip's key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pair {
    /// The real thing: the GPU is primary, the CPU helps.
    GpuAndCpu,
    /// Two CPU streams of one core each, for developing without a GPU. Says nothing about any product's user.
    Development,
    /// Two CPU streams, the secondary of which really does more work a row. `tag` tells two such pairs apart without
    /// giving away the factor.
    AsymmetricDevelopment {
        /// Opaque, chosen by the worker.
        tag: u32,
    },
    /// Replayed from recorded grids.
    Recorded,
    /// Computed by a machine model.
    Modelled,
}

impl Pair {
    /// Whether the numbers come from the hardware that a user of the product has: neither a development pair nor a replay.
    pub fn is_real(&self) -> bool {
        matches!(self, Self::GpuAndCpu)
    }

    /// What a person must be told wherever numbers of this pair are shown; `None` for the real thing.
    pub fn label(&self) -> Option<&'static str> {
        match self {
            Self::GpuAndCpu => None,
            Self::Development => Some("development pair: two CPU streams stand in for GPU and CPU"),
            Self::AsymmetricDevelopment { .. } => {
                Some("asymmetric development pair: two CPU streams, the secondary doing extra work a row")
            }
            Self::Recorded => {
                Some("recorded: replayed from published measurements, nothing was measured here")
            }
            Self::Modelled => Some("modelled: computed by a machine model, nothing was measured here"),
        }
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GpuAndCpu => f.write_str("gpu+cpu"),
            Self::Development => f.write_str("development"),
            Self::AsymmetricDevelopment { tag } => write!(f, "asymmetric-{tag:08x}"),
            Self::Recorded => f.write_str("recorded"),
            Self::Modelled => f.write_str("modelled"),
        }
    }
}

/// A text that names no pair.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' names no pair: gpu+cpu, development, asymmetric-<8 hex digits>, recorded or modelled")]
pub struct PairError(pub String);

impl FromStr for Pair {
    type Err = PairError;

    fn from_str(text: &str) -> Result<Self, PairError> {
        match text {
            "gpu+cpu" => Ok(Self::GpuAndCpu),
            "development" => Ok(Self::Development),
            "recorded" => Ok(Self::Recorded),
            "modelled" => Ok(Self::Modelled),
            other => other
                .strip_prefix("asymmetric-")
                .filter(|tag| tag.len() == 8)
                .and_then(|tag| u32::from_str_radix(tag, 16).ok())
                .map(|tag| Self::AsymmetricDevelopment { tag })
                .ok_or_else(|| PairError(other.to_owned())),
        }
    }
}

/// The identity of the hardware that a number was measured on.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Chip {
    /// "Apple M4 Pro": `machdep.cpu.brand_string`, or the model name in `/proc/cpuinfo`.
    pub brand: String,
    /// GPU cores: one brand is sold with several counts. `None` where there is no GPU that MLX can use.
    pub gpu_cores: Option<u16>,
    /// Installed memory in GiB, rounded.
    pub memory_gib: u32,
    /// "Mac16,8": `hw.model`, or the product name of the board.
    pub model_identifier: String,
    /// How the heat gets out.
    pub cooling: Cooling,
    /// The two units.
    pub pair: Pair,
}

impl Chip {
    /// The chip as one word of `[a-z0-9.+-]`, usable in file names and keys:
    /// `apple-m4-pro.20gpu.24gib.mac16-8.active.gpu+cpu`.
    pub fn key(&self) -> String {
        let gpu = self.gpu_cores.map_or_else(|| "nogpu".to_owned(), |cores| format!("{cores}gpu"));
        format!(
            "{}.{gpu}.{}gib.{}.{}.{}",
            slug(&self.brand),
            self.memory_gib,
            slug(&self.model_identifier),
            self.cooling,
            self.pair
        )
    }
}

impl fmt::Display for Chip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} GiB", self.brand, self.memory_gib)?;
        if let Some(cores) = self.gpu_cores {
            write!(f, ", {cores} GPU cores")?;
        }
        write!(f, " ({})", self.pair)
    }
}

/// `text` in lower case with every run of other characters than letters, digits and `.` turned into one `-`; "unknown"
/// where nothing is left.
pub(crate) fn slug(text: &str) -> String {
    let mut slug = String::with_capacity(text.len());
    let mut gap = false;
    for character in text.chars() {
        if character.is_ascii_alphanumeric() || character == '.' {
            if gap && !slug.is_empty() {
                slug.push('-');
            }
            gap = false;
            slug.push(character.to_ascii_lowercase());
        } else {
            gap = true;
        }
    }
    if slug.is_empty() { "unknown".to_owned() } else { slug }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_key_tells_what_matters_apart() {
        let chip = Chip {
            brand: "Apple M4 Pro".to_owned(),
            gpu_cores: Some(20),
            memory_gib: 24,
            model_identifier: "Mac16,8".to_owned(),
            cooling: Cooling::Active,
            pair: Pair::GpuAndCpu,
        };
        assert_eq!(chip.key(), "apple-m4-pro.20gpu.24gib.mac16-8.active.gpu+cpu");
        let recorded = Chip { pair: Pair::Recorded, ..chip.clone() };
        assert_ne!(recorded.key(), chip.key());
        assert!(recorded.pair.label().unwrap().starts_with("recorded"));
    }

    proptest! {
        #[test]
        fn pairs_survive_their_text(tag: u32) {
            for pair in [Pair::GpuAndCpu, Pair::Development, Pair::AsymmetricDevelopment { tag }, Pair::Recorded, Pair::Modelled] {
                prop_assert_eq!(pair.to_string().parse::<Pair>().unwrap(), pair);
            }
        }

        #[test]
        fn a_slug_is_a_file_name(text in ".{0,60}") {
            let slug = slug(&text);
            prop_assert!(!slug.is_empty());
            prop_assert!(slug.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-')));
        }
    }
}
