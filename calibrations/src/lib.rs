//! The domain of fusiond: what is measured, believed, stored and served about the split of a matrix product's rows
//! between two units of one machine.
//!
//! Everything here is pure: no I/O, no clock, no async, no MLX. Time, randomness and hardware come in as arguments,
//! so the daemon, the replay of recorded machines and the tests drive the same code.
//!
//! | module | holds |
//! |---|---|
//! | [`shape`] | layers and shapes: what is multiplied |
//! | [`chip`], [`engine`], [`conditions`] | where, by which code, and in which state it is measured |
//! | [`ratio`] | the secondary unit's share of the rows |
//! | [`rows`] | the one rule that turns a ratio into row counts |
//! | [`lines`] | the fitted time of both units, from which ratios are derived |
//! | [`live`] | the lines followed while models run |
//! | [`gate`] | which arm runs next, with a floor by budget |
//! | [`sample`], [`stats`] | one timed call; medians, MAD, and intervals on a ratio of pairs |
//! | [`search`] | which measurement to ask for next, and what the answers mean |
//! | [`estimate`], [`lookup`] | what is believed of a shape, and which belief answers a question |
//! | [`self_test`] | whether the daemon's worker is throttled |
//! | [`record`] | the bytes a calibration is stored as |
//! | [`sharing`] | calibrations of other machines: the file that carries them, and what is made of them |
//! | [`recorded`] | published grids, served as a machine |
//! | [`replay`], [`drift`] | the search and the live lines, run on recorded grids |
//! | [`machine`] | the recorded chips as arithmetic, in virtual time |
//! | [`noise`] | seeded noise for machines that aren't real |
//! | [`models`], [`chips`] | shipped data: layer geometry of known models, priors and cliffs of known chips |

pub mod chip;
pub mod chips;
pub mod conditions;
pub mod drift;
pub mod engine;
pub mod estimate;
pub mod gate;
pub mod lines;
pub mod live;
pub mod lookup;
pub mod machine;
pub mod models;
pub mod noise;
pub mod ratio;
pub mod record;
pub mod recorded;
pub mod replay;
pub mod rows;
pub mod sample;
pub mod search;
pub mod self_test;
pub mod shape;
pub mod sharing;
pub mod stats;
