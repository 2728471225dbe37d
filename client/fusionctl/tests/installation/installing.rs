//! Installing, upgrading and uninstalling: what is asked, told, placed and removed.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::launchd;
use crate::place::Place;
use crate::runner::Run;
use crate::support::{Fake, Script};

#[test]
fn an_installation_comes_is_changed_and_goes() {
    let place = Place::new();
    let before = place.everything();
    let dry = place.install(&["--at-login", "--dry-run"]);
    assert!(dry.lines().count() > 8 && dry.lines().all(|line| line.starts_with("would ")), "{dry}");
    assert_eq!(place.everything(), before);

    let told = place.install(&["--at-login"]);
    assert!(told.contains("starts at login") && told.contains("PATH"), "{told}");
    let (service, plist) = place.launchd.loaded().unwrap();
    assert_eq!(service, format!("gui/{}/dev.fusion.fusiond", launchd::user()));
    assert!(plist.contains(&format!("<string>{}</string>", place.path(".fusion/bin/fusiond").display())));
    let mode = fs::metadata(place.path(".fusion/run")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let installed = place.everything();

    // Again: nothing to do, and nothing is booted out for it.
    let calls = place.launchd.calls().len();
    assert!(place.install(&[]).contains("installed already: it starts at login"));
    assert_eq!(place.everything(), installed);
    assert!(place.launchd.calls()[calls..].iter().all(|call| call.starts_with("print")));

    // An upgrade changes the programs; launchd keeps what it has, and the daemon notices by itself.
    place.build("2");
    place.install(&[]);
    place.programs_are_whole();
    assert!(fs::read_to_string(place.path(".fusion/bin/fusiond")).unwrap().contains("fusiond 2"));
    assert!(place.launchd.calls()[calls..].iter().all(|call| call.starts_with("print")));

    // Another start is another definition, which launchd must be given anew.
    place.install(&["--on-demand"]);
    assert!(place.launchd.loaded().unwrap().1.contains("<key>RunAtLoad</key>\n\t<false/>"));

    // What was measured, and the user's configuration.
    fs::create_dir_all(place.path(".local/state/fusion/calibrations")).unwrap();
    fs::write(place.path(".local/state/fusion/calibrations/a"), "measured").unwrap();
    fs::create_dir_all(place.path(".config/fusion")).unwrap();
    let told = place.fine(&["uninstall"]);
    for text in ["removed ", "uninstalled", "kept ", "--purge"] {
        assert!(told.contains(text), "{text}: {told}");
    }
    assert_eq!(place.launchd.loaded(), None);
    assert!(!place.path(".fusion").exists());
    assert!(place.path(".local/state/fusion/calibrations/a").exists());

    // Back again, and all of it gone.
    place.install(&["--on-demand"]);
    assert_eq!(place.run(&["uninstall", "--purge"]).code, 2, "there is nobody to ask");
    place.fine(&["uninstall", "--purge", "--yes"]);
    assert!(!place.path(".local/state/fusion").exists());
    assert!(place.fine(&["uninstall"]).contains("not installed"));
    assert_eq!(fs::read_to_string(place.path("Library/notes")).unwrap(), "mine");
}

#[test]
fn a_home_is_afterwards_as_it_was() {
    let place = Place::new();
    let before = place.everything();
    place.install(&["--on-demand"]);
    // What a daemon leaves behind.
    for file in
        [".local/state/fusion/store/x", ".local/state/fusion/logs/fusiond.log", ".fusion/run/fusiond.lock"]
    {
        fs::create_dir_all(place.path(file).parent().unwrap()).unwrap();
        fs::write(place.path(file), "x").unwrap();
    }
    fs::create_dir_all(place.path(".config/fusion")).unwrap();
    place.fine(&["uninstall", "--purge", "--yes"]);
    assert_eq!(place.everything(), before);
}

#[test]
fn at_login_the_first_answer_is_waited_for() {
    let place = Place::new();
    let build = place.directory.path().join("build");
    let install = ["install", "--at-login", "--from", build.to_str().unwrap()];
    let silent = place.run(&install);
    assert_eq!(silent.code, 69, "{}", silent.stderr);
    assert!(silent.stdout.contains("is installed: it starts at login"), "{}", silent.stdout);
    for word in ["no daemon has answered", "within 20 s", "'fusionctl logs'", "'fusionctl doctor'"] {
        assert!(silent.stderr.contains(word), "{word}: {}", silent.stderr);
    }
    let fake = Fake::start(Script::default());
    let there = ["--socket", fake.path().to_str().unwrap()].map(str::to_owned);
    let there: Vec<&str> = there.iter().map(String::as_str).collect();
    let told = place.fine(&[&install[..], &there].concat());
    assert!(told.contains("(process ") && told.contains(" runs"), "{told}");
    let document: Value =
        serde_json::from_str(&place.fine(&[&install[..], &there, &["--json"]].concat())).unwrap();
    assert!(document["daemon"]["pid"].is_u64(), "{document}");
}

#[test]
fn manual_and_completions_go_where_they_are_looked_for() {
    let place = Place::new();
    let before = place.everything();
    let build = place.directory.path().join("build");
    let documents =
        ["man/fusionctl.1", "completions/fusionctl", "completions/_fusionctl", "completions/fusionctl.fish"];
    for name in documents {
        fs::create_dir_all(build.join(name).parent().unwrap()).unwrap();
        fs::write(build.join(name), name).unwrap();
    }
    let build_folder = build.to_str().unwrap();
    let mut install = place.command(&["install", "--on-demand", "--from", build_folder]);
    let told = String::from_utf8(install.env("SHELL", "/bin/zsh").output().unwrap().stdout).unwrap();
    let functions = place.path(".fusion/share/zsh/site-functions");
    assert!(
        told.contains(&format!("~/.zshrc, before compinit: fpath+=(\"{}\")", functions.display())),
        "{told}"
    );
    let installed = [
        "man/man1/fusionctl.1",
        "bash-completion/completions/fusionctl",
        "zsh/site-functions/_fusionctl",
        "fish/vendor_completions.d/fusionctl.fish",
    ];
    for (name, text) in installed.iter().zip(documents) {
        assert_eq!(fs::read_to_string(place.path(".fusion/share").join(name)).unwrap(), text);
    }
    // A build without them: those of another version go.
    fs::remove_dir_all(build.join("completions")).unwrap();
    place.install(&[]);
    assert!(place.path(".fusion/share/man/man1/fusionctl.1").exists());
    assert!(!place.path(".fusion/share/zsh").exists());
    place.fine(&["uninstall", "--purge", "--yes"]);
    assert_eq!(place.everything(), before);
}

#[test]
fn without_a_terminal_the_start_must_be_said_and_programs_must_be_there() {
    let place = Place::new();
    let run = place.run(&["install"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("--at-login") && run.stderr.contains("--on-demand"), "{}", run.stderr);
    let empty = place.path("Library");
    let run = place.run(&["install", "--at-login", "--from", empty.to_str().unwrap()]);
    assert_eq!(run.code, 78);
    assert!(run.stderr.contains("there is no 'fusion-worker'"), "{}", run.stderr);
    let run = place.run(&["start"]);
    assert_eq!(run.code, 78);
    assert!(run.stderr.contains("'fusionctl install'"), "{}", run.stderr);
}

/// `fusionctl install` on a terminal that script(1) makes, where somebody types `answer`; `None` where there is no script(1) that knows these flags.
fn asked(place: &Place, answer: &str) -> Option<Run> {
    let known = Command::new("script").args(["-qec", "true", "/dev/null"]).stdin(Stdio::null()).output();
    if !known.is_ok_and(|output| output.status.success()) {
        return None;
    }
    let build = place.directory.path().join("build");
    let line = format!("{} install --no-wait --from {}", env!("CARGO_BIN_EXE_fusionctl"), build.display());
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).env_clear();
    let own = place.command(&[]);
    script.envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    script.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
    Some(script.wait_with_output().unwrap().into())
}

#[test]
fn on_a_terminal_it_asks_when_the_daemon_shall_start() {
    for (answer, words) in
        [("\n", "starts at login"), ("1\n", "starts at login"), ("2\n", "starts on demand")]
    {
        let place = Place::new();
        let Some(run) = asked(&place, answer) else { return };
        assert_eq!(run.code, 0, "{}", run.stdout);
        assert!(run.stdout.contains("When shall fusiond start?"), "{}", run.stdout);
        assert!(run.stdout.contains(words), "{answer:?}: {}", run.stdout);
        // It isn't asked again for what is known.
        let again = asked(&place, "").unwrap();
        assert!(again.code == 0 && !again.stdout.contains("When shall"), "{}", again.stdout);
    }
    let place = Place::new();
    let before = place.everything();
    let unclear = asked(&place, "3\n").unwrap();
    assert_eq!(unclear.code, 2, "{}", unclear.stdout);
    assert_eq!(place.everything(), before);
}

#[test]
fn documents_tell_the_steps() {
    let place = Place::new();
    let build = place.directory.path().join("build");
    let from = build.to_str().unwrap();
    let installed: Value =
        serde_json::from_str(&place.fine(&["install", "--on-demand", "--from", from, "--json"])).unwrap();
    assert_eq!(installed["schema"], "fusionctl.install/1");
    assert_eq!((&installed["manager"], &installed["start"]), (&json!("launchd"), &json!("on_demand")));
    assert_eq!(installed["programs"], place.path(".fusion/bin").to_str().unwrap());
    assert!(installed["steps"].as_array().unwrap().len() > 8);
    let removed: Value = serde_json::from_str(&place.fine(&["uninstall", "--json"])).unwrap();
    assert_eq!(removed["schema"], "fusionctl.uninstall/1");
    assert_eq!((&removed["purge"], &removed["dry_run"]), (&json!(false), &json!(false)));
}

#[test]
fn two_runs_at_once_do_not_mix() {
    let place = Place::new();
    place.install(&["--on-demand"]);
    // Another run is at work: it holds the directory.
    let held = fs::File::open(place.path(".fusion")).unwrap();
    held.lock().unwrap();
    let build = place.directory.path().join("build");
    for arguments in [&["uninstall"][..], &["stop"], &["install", "--from", build.to_str().unwrap()]] {
        let run = place.run(arguments);
        assert_eq!(run.code, 75, "{arguments:?}: {}", run.stderr);
        assert!(run.stderr.contains("another fusionctl"), "{}", run.stderr);
    }
    drop(held);
    assert!(place.install(&[]).contains("already"));
}

#[test]
fn a_daemon_of_a_terminal_is_ended_before_the_manager_takes_the_socket() {
    let place = Place::new();
    fs::create_dir_all(place.path(".fusion/run")).unwrap();
    let lock = place.path(".fusion/run/fusiond.lock");
    let script = "import fcntl, os, sys, time\nlock = open(sys.argv[1], 'w')\nfcntl.flock(lock, fcntl.LOCK_EX)\nlock.write(str(os.getpid()))\nlock.flush()\ntime.sleep(600)";
    let mut daemon = Command::new("python3").args(["-c", script]).arg(&lock).spawn().unwrap();
    while fs::read_to_string(&lock).unwrap_or_default().is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let dry = place.install(&["--on-demand", "--dry-run"]);
    assert!(dry.contains("end the daemon that a terminal started"), "{dry}");
    assert_eq!(daemon.try_wait().unwrap(), None);
    place.install(&["--on-demand"]);
    assert_eq!(daemon.wait().unwrap().signal(), Some(15));
}

#[test]
fn a_package_that_is_unpacked_over_the_programs_keeps_their_libraries() {
    let place = Place::new();
    place.install(&["--on-demand"]);
    let (programs, record) = (place.path(".fusion/bin"), place.path(".fusion/installation.json"));
    // As an installation on Linux does.
    let library = programs.join("fusion-mlx/lib/libmlxc.so");
    fs::create_dir_all(library.parent().unwrap()).unwrap();
    fs::write(&library, "").unwrap();
    let text = fs::read_to_string(&record).unwrap();
    let mut known: Value = serde_json::from_str(&text).unwrap();
    known["placed"].as_array_mut().unwrap().push(json!("fusion-mlx/lib/libmlxc.so"));
    fs::write(&record, known.to_string()).unwrap();

    fs::create_dir(programs.join("man")).unwrap();
    fs::write(programs.join("man/fusionctl.1"), "").unwrap();
    place.fine(&["install", "--from", programs.to_str().unwrap()]);
    assert!(library.is_file() && place.path(".fusion/share/man/man1/fusionctl.1").is_file());
    place.fine(&["uninstall"]);
    assert!(!library.exists() && !programs.join("fusiond").exists());
}
