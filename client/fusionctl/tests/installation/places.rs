//! Where things lie: other directories than before, other names for the same ones, and what a purge takes.

use std::fs;
use std::path::Path;

use crate::place::Place;
use crate::runner::Run;

#[test]
fn programs_that_lie_where_they_are_run_from_stay() {
    let place = Place::new();
    let build = place.directory.path().join("build");
    place.install(&["--on-demand", "--bin-dir", build.to_str().unwrap()]);
    assert!(!place.path(".fusion/bin").exists());
    let told = place.fine(&["uninstall"]);
    assert!(told.contains("not put there"), "{told}");
    assert!(build.join("fusiond").exists());
}

#[test]
fn moving_the_programs_removes_them_where_they_were() {
    let place = Place::new();
    place.install(&["--on-demand"]);
    let elsewhere = place.path("elsewhere");
    place.install(&["--bin-dir", elsewhere.to_str().unwrap()]);
    assert!(elsewhere.join("fusiond").exists() && !place.path(".fusion/bin/fusiond").exists());
    assert!(place.launchd.loaded().unwrap().1.contains("elsewhere/fusiond"));
    place.fine(&["uninstall", "--purge", "--yes"]);
    assert!(!elsewhere.exists());
}

#[test]
fn another_socket_and_state_leave_nothing_behind_but_what_was_measured() {
    let place = Place::new();
    let before = place.everything();
    let run = |arguments: &[&str], state: &str| -> Run {
        let build = place.directory.path().join("build");
        let install = ["install", "--on-demand", "--from", build.to_str().unwrap()];
        let mut command = place.command(&[&install[..], arguments].concat());
        command.env("FUSION_STATE_DIR", place.path(state)).output().unwrap().into()
    };
    assert_eq!(run(&["--socket", "~/one/fusiond.sock"], "state-one").code, 0);
    place.use_socket("one/fusiond");
    fs::create_dir_all(place.path("state-one/calibrations")).unwrap();
    fs::write(place.path("state-one/calibrations/a"), "measured").unwrap();

    let another = ["--socket", "~/two/fusiond.sock", "--bin-dir", "~/programs"];
    let dry = run(&[&another[..], &["--dry-run"]].concat(), "state-two").stdout;
    for name in ["one/fusiond.sock", "one/fusiond.lock", "one/fusiond.failures", ".fusion/bin/fusiond"] {
        assert!(dry.contains(&format!("would remove {}\n", place.path(name).display())), "{name}: {dry}");
    }
    assert!(dry.contains(&format!("kept {}", place.path("state-one").display())), "{dry}");
    assert!(place.path("one/fusiond.sock").exists());

    let told = run(&another, "state-two");
    assert_eq!(told.code, 0, "{}", told.stderr);
    assert!(told.stdout.contains(&format!("kept {}", place.path("state-one").display())), "{}", told.stdout);
    assert!(!place.path("one").exists() && !place.path(".fusion/bin").exists());
    assert!(place.path("state-one/calibrations/a").exists());
    // Whoever names nothing keeps what is there.
    assert!(place.install(&[]).contains("installed already"));
    assert!(place.launchd.loaded().unwrap().1.contains("state-two"));

    let kept = place.fine(&["uninstall", "--dry-run"]);
    assert!(kept.contains(&format!("kept {}", place.path("state-one").display())), "{kept}");
    place.fine(&["uninstall", "--purge", "--yes"]);
    assert_eq!(place.everything(), before);
}

#[test]
fn a_daemon_of_a_terminal_on_the_earlier_socket_goes_on() {
    let place = Place::new();
    place.install(&["--on-demand", "--socket", "~/one/fusiond.sock"]);
    place.use_socket("one/fusiond");
    let lock = fs::File::open(place.path("one/fusiond.lock")).unwrap();
    lock.lock().unwrap();
    place.install(&["--socket", "~/two/fusiond.sock"]);
    assert!(place.path("one/fusiond.sock").exists() && place.path("one/fusiond.lock").exists());
}

#[test]
fn purging_keeps_the_users_configuration_and_never_a_home() {
    let place = Place::new();
    let state = place.path("try");
    let run = |arguments: &[&str], state: &Path| -> Run {
        place.command(arguments).env("FUSION_STATE_DIR", state).output().unwrap().into()
    };
    let build = place.directory.path().join("build");
    let install = ["install", "--on-demand", "--from", build.to_str().unwrap()];
    assert_eq!(run(&install, &state).code, 0);
    fs::create_dir_all(state.join("config")).unwrap();
    fs::write(state.join("config/config.toml"), "").unwrap();
    fs::write(state.join("planner.json"), "{}").unwrap();
    let purged = run(&["uninstall", "--purge", "--yes"], &state);
    assert_eq!(purged.code, 0, "{}", purged.stderr);
    assert!(purged.stdout.contains("your own files"), "{}", purged.stdout);
    assert!(state.join("config/config.toml").exists() && !state.join("planner.json").exists());

    let shared = place.path("shared");
    assert_eq!(run(&install, &shared).code, 0);
    fs::create_dir_all(shared.join("logs")).unwrap();
    fs::create_dir(shared.join("store.corrupt-20260822T120000Z")).unwrap();
    for mine in ["logs/mine.log", "stored", "store.bak", "snapshot-2024"] {
        fs::write(shared.join(mine), "").unwrap();
    }
    fs::write(shared.join("logs/fusiond.log.1"), "").unwrap();
    let purged = run(&["uninstall", "--purge", "--yes"], &shared);
    assert_eq!(purged.code, 0, "{}", purged.stderr);
    assert!(purged.stdout.contains("isn't the daemon's"), "{}", purged.stdout);
    assert!(!shared.join("store.corrupt-20260822T120000Z").exists());
    assert!(!shared.join("logs/fusiond.log.1").exists());
    for mine in ["logs/mine.log", "stored", "store.bak", "snapshot-2024"] {
        assert!(shared.join(mine).exists(), "{mine}");
    }

    assert_eq!(run(&install, &place.home()).code, 0);
    fs::create_dir(place.home().join("calibrations")).unwrap();
    let refused = run(&["uninstall", "--purge", "--yes"], &place.home());
    assert_eq!(refused.code, 78, "{}", refused.stderr);
    assert!(refused.stderr.contains("holds your home"), "{}", refused.stderr);
    assert!(place.home().join("calibrations").exists() && place.path("Library/notes").exists());
    assert_eq!(run(&["uninstall"], &place.home()).code, 0);
}

#[test]
fn links_to_the_programs_are_in_place() {
    let place = Place::new();
    let links = place.path("opt");
    fs::create_dir(&links).unwrap();
    for name in ["fusiond", "fusion-worker", "fusionctl", "mlx.metallib"] {
        std::os::unix::fs::symlink(place.directory.path().join("build").join(name), links.join(name))
            .unwrap();
    }
    place.install(&["--on-demand", "--bin-dir", links.to_str().unwrap()]);
    assert!(links.join("fusiond").symlink_metadata().unwrap().is_symlink());
    place.fine(&["uninstall"]);
    assert!(links.join("fusiond").exists());
}

#[test]
fn the_same_directory_by_another_name_is_the_same_place() {
    let place = Place::new();
    place.install(&["--on-demand"]);
    let programs = place.path(".fusion/bin");
    std::os::unix::fs::symlink(&programs, place.path("other")).unwrap();
    for name in ["other", ".fusion/bin/../bin", "Library/../other"] {
        let other = place.path(name);
        place.fine(&["install", "--from", programs.to_str().unwrap(), "--bin-dir", other.to_str().unwrap()]);
        for program in ["fusiond", "fusion-worker", "fusionctl", "mlx.metallib"] {
            assert!(programs.join(program).is_file(), "{name}: {program}");
        }
        assert!(place.path("Library/LaunchAgents/dev.fusion.fusiond.plist").is_file(), "{name}");
    }
    place.fine(&["uninstall"]);
    assert!(!programs.exists() && place.launchd.loaded().is_none());
}

#[test]
fn a_linked_state_directory_is_emptied_and_no_obstacle() {
    let place = Place::new();
    let (disk, state) = (place.path("disk"), place.path("state"));
    fs::create_dir_all(disk.join("logs")).unwrap();
    std::os::unix::fs::symlink(&disk, &state).unwrap();
    let run = |arguments: &[&str]| -> Run {
        place.command(arguments).env("FUSION_STATE_DIR", &state).output().unwrap().into()
    };
    let build = place.directory.path().join("build");
    assert_eq!(run(&["install", "--on-demand", "--from", build.to_str().unwrap()]).code, 0);
    fs::create_dir(disk.join("calibrations")).unwrap();
    let purged = run(&["uninstall", "--purge", "--yes"]);
    assert_eq!(purged.code, 0, "{}", purged.stderr);
    assert!(!disk.join("calibrations").exists() && !place.path(".fusion").exists());
}
