//! Being killed at every step, and mended by the same command.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;

use crate::place::{Place, State};

/// Runs to the first step, to the second and so on, each time killed there, and each time mended by the same command. `prepare` makes what is
/// there before; `check` looks at what a killed run leaves.
fn killed_everywhere(arguments: &[&str], prepare: fn(&Place), check: fn(&Place)) {
    let whole = Place::new();
    prepare(&whole);
    whole.with_build(arguments);
    let expected = &whole.everything();
    // Several at a time: they mostly wait for the disk and for launchd.
    for first in (0..).step_by(4) {
        let over = std::thread::scope(|scope| {
            let killed = |step| move || killed_at(step, arguments, expected, prepare, check);
            let runs: Vec<_> = (first..first + 4).map(|step| scope.spawn(killed(step))).collect();
            runs.into_iter().any(|run| run.join().unwrap())
        });
        if over {
            assert!(first > 4, "only {first} steps were seen");
            return;
        }
    }
}

/// Whether there was no such step.
fn killed_at(
    step: u32,
    arguments: &[&str],
    expected: &State,
    prepare: fn(&Place),
    check: fn(&Place),
) -> bool {
    let place = Place::new();
    prepare(&place);
    let mut command = place.command(arguments);
    command.args(place.from(arguments)).env("FUSION_CRASH_AT_STEP", step.to_string());
    let ended = command.output().unwrap();
    check(&place);
    if ended.status.success() {
        return true;
    }
    assert_eq!(ended.status.signal(), Some(9), "{}", String::from_utf8_lossy(&ended.stderr));
    place.with_build(arguments);
    assert_eq!(place.everything(), *expected, "killed at step {step}");
    false
}

#[test]
fn killed_at_any_step_of_an_install_the_next_one_mends_it() {
    killed_everywhere(&["install", "--at-login"], |_| {}, Place::programs_are_whole);
}

#[test]
fn killed_at_any_step_of_an_upgrade_the_next_one_mends_it() {
    let prepare = |place: &Place| {
        place.install(&["--at-login"]);
        place.build("2");
    };
    killed_everywhere(&["install", "--on-demand"], prepare, Place::programs_are_whole);
}

#[test]
fn killed_at_any_step_of_a_move_the_next_one_mends_it() {
    let prepare = |place: &Place| {
        place.install(&["--on-demand", "--socket", "~/one/fusiond.sock"]);
        place.use_socket("one/fusiond");
    };
    let moved = ["install", "--at-login", "--socket", "~/two/fusiond.sock", "--bin-dir", "~/programs"];
    killed_everywhere(&moved, prepare, |_| {});
}

#[test]
fn killed_at_any_step_of_an_uninstall_the_next_one_mends_it() {
    let prepare = |place: &Place| {
        place.install(&["--at-login"]);
        fs::write(place.path(".fusion/run/fusiond.lock"), "").unwrap();
    };
    killed_everywhere(&["uninstall", "--purge", "--yes"], prepare, |_| {});
}
