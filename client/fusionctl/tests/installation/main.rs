//! Installing into homes of their own, with a launchd that behaves as launchd is known to, and being killed at every step of it.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "the modules of one test program")]

#[path = "../../../../launchd/tests/support/mod.rs"]
mod launchd;
#[path = "../runner/mod.rs"]
mod runner;
#[path = "../../../sdk/tests/support/mod.rs"]
mod support;

mod installing;
mod killed;
mod place;
mod places;
mod verbs;
