//! The daemon: measures the ratios that matter, keeps them, and serves them to inference processes.
//!
//! ```text
//! service --> jobs --> measure --> worker process (the only one that loads MLX)
//!    |          |         |
//!    |          |         +--- search (calibrations)
//!    |          +--> store (sled + record files, one thread)
//!    +--> table (in memory) <--+
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`server`] | the daemon's life from lock to goodbye |
//! | [`instance`] | one daemon a user: lock and socket |
//! | [`activation`], [`starts`], [`refusal`], [`upgrade`] | life under launchd or systemd: their socket, failed starts, a replaced program |
//! | [`service`] | gRPC |
//! | [`jobs`], [`measure`], [`machine`], [`worker`] | measuring on demand |
//! | [`recalibration`] | measuring without being asked: drives the planner |
//! | [`planner`] | when to measure by itself, and what |
//! | [`client_worker`] | measuring with a client's own MLX |
//! | [`clients`], [`knowledge`], [`snapshot`] | who is attached, what they are told, what they report |
//! | [`gates`] | what all processes' gates know, and who may explore |
//! | [`canary`] | a tiny product that tells heat from what sensors claim |
//! | [`self_test`] | whether the daemon's surroundings slow its worker, and what follows |
//! | [`table`] | what is served |
//! | [`store`] | what is kept |
//! | [`sensors`] | the state of the machine |
//! | [`configuration`] | what the user wants: files that are watched |
//! | [`settings`], [`logs`] | what the daemon is told, what it tells |

pub mod activation;
pub mod canary;
pub mod client_worker;
pub mod clients;
pub mod clocks;
pub mod configuration;
pub mod gates;
pub mod instance;
pub mod jobs;
pub mod knowledge;
pub mod logs;
pub mod machine;
pub mod measure;
pub mod planner;
mod platform;
pub mod recalibration;
pub mod refusal;
pub mod self_test;
pub mod sensors;
pub mod server;
pub mod service;
pub mod settings;
pub mod snapshot;
pub mod starts;
pub mod store;
pub mod table;
pub mod upgrade;
pub mod worker;
