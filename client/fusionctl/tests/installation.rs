//! Installing into homes of their own, with a launchd that behaves as launchd is known to, and being killed at every step of it.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "../../../launchd/tests/support/mod.rs"]
mod launchd;
mod runner;
#[path = "../../sdk/tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use launchd::FakeLaunchd;
use runner::Run;
use serde_json::{Value, json};
use support::{Fake, Script};
use tempfile::TempDir;

/// A home, programs to install, and a launchd.
struct Place {
    directory: TempDir,
    launchd: FakeLaunchd,
}

/// What there is.
#[derive(Debug, PartialEq)]
struct State {
    /// By path from the home; a directory has no content.
    files: BTreeMap<PathBuf, Option<String>>,
    /// The service that launchd holds, and its property list.
    held: Option<(String, String)>,
}

impl Place {
    fn new() -> Self {
        let place = Self { directory: tempfile::tempdir().unwrap(), launchd: FakeLaunchd::new() };
        place.build("1");
        fs::create_dir(place.home()).unwrap();
        // Something of the user's that must outlive everything.
        fs::create_dir(place.home().join("Library")).unwrap();
        fs::write(place.home().join("Library/notes"), "mine").unwrap();
        place
    }

    fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home().join(name)
    }

    /// Programs of a version in a folder that a compiler might have written.
    fn build(&self, version: &str) {
        let folder = self.directory.path().join("build");
        fs::create_dir_all(&folder).unwrap();
        for name in ["fusiond", "fusion-worker", "fusionctl", "mlx.metallib"] {
            fs::write(folder.join(name), format!("#!/bin/sh\n# {name} {version}\n")).unwrap();
            fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    /// "~/" at the beginning of an argument is the home.
    fn command(&self, arguments: &[&str]) -> Command {
        let home = |argument: &&str| match argument.strip_prefix("~/") {
            Some(name) => self.path(name).display().to_string(),
            None => (*argument).to_owned(),
        };
        let arguments: Vec<String> = arguments.iter().map(home).collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut command = runner::command(Path::new(""), &arguments);
        command.env("HOME", self.home()).env("PATH", std::env::var_os("PATH").unwrap());
        command.env("FUSION_SERVICE_MANAGER", self.launchd.name());
        command
    }

    fn run(&self, arguments: &[&str]) -> Run {
        self.command(arguments).output().unwrap().into()
    }

    fn fine(&self, arguments: &[&str]) -> String {
        let run = self.run(arguments);
        assert_eq!(run.code, 0, "{arguments:?}: {}", run.stderr);
        run.stdout
    }

    fn install(&self, more: &[&str]) -> String {
        let build = self.directory.path().join("build");
        // launchd is played, so no daemon comes.
        self.fine(&[&["install", "--no-wait", "--from", build.to_str().unwrap()], more].concat())
    }

    /// Every file with its content, every directory, and what launchd holds; told in the same words for every place.
    fn everything(&self) -> State {
        let own = self.directory.path().to_str().unwrap();
        let mut files = BTreeMap::new();
        let mut folders = vec![self.home()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(self.home()).unwrap().to_owned();
                if path.is_dir() {
                    files.insert(name, None);
                    folders.push(path);
                } else {
                    files.insert(name, Some(fs::read_to_string(&path).unwrap().replace(own, "/place")));
                }
            }
        }
        let held = self.launchd.loaded().map(|(service, text)| (service, text.replace(own, "/place")));
        State { files, held }
    }

    /// Runs to the first step, to the second and so on, each time killed there, and each time mended by the same command. `prepare` makes what is
    /// there before; `check` looks at what a killed run leaves.
    fn killed_everywhere(arguments: &[&str], prepare: fn(&Self), check: fn(&Self)) {
        let whole = Self::new();
        prepare(&whole);
        whole.with_build(arguments);
        let expected = &whole.everything();
        // Several at a time: they mostly wait for the disk and for launchd.
        for first in (0..).step_by(4) {
            let over = std::thread::scope(|scope| {
                let killed = |step| move || Self::killed_at(step, arguments, expected, prepare, check);
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
        prepare: fn(&Self),
        check: fn(&Self),
    ) -> bool {
        let place = Self::new();
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

    fn from(&self, arguments: &[&str]) -> Vec<String> {
        match arguments.first() {
            Some(&"install") => {
                let build = self.directory.path().join("build").display().to_string();
                vec!["--no-wait".to_owned(), "--from".to_owned(), build]
            }
            _ => Vec::new(),
        }
    }

    fn with_build(&self, arguments: &[&str]) {
        let from = self.from(arguments);
        let from: Vec<_> = from.iter().map(String::as_str).collect();
        self.fine(&[arguments, &from].concat());
    }

    /// What lies where programs are run from is whole: of one version or the other.
    fn programs_are_whole(&self) {
        for name in ["fusiond", "fusion-worker", "fusionctl", "mlx.metallib"] {
            let path = self.path(".fusion/bin").join(name);
            let Ok(text) = fs::read_to_string(&path) else { continue };
            let versions = ["1", "2"].map(|version| format!("#!/bin/sh\n# {name} {version}\n"));
            assert!(versions.contains(&text), "{}: {text}", path.display());
        }
    }
}

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
fn killed_at_any_step_of_an_install_the_next_one_mends_it() {
    Place::killed_everywhere(&["install", "--at-login"], |_| {}, Place::programs_are_whole);
}

#[test]
fn killed_at_any_step_of_an_upgrade_the_next_one_mends_it() {
    let prepare = |place: &Place| {
        place.install(&["--at-login"]);
        place.build("2");
    };
    Place::killed_everywhere(&["install", "--on-demand"], prepare, Place::programs_are_whole);
}

#[test]
fn killed_at_any_step_of_an_uninstall_the_next_one_mends_it() {
    let prepare = |place: &Place| {
        place.install(&["--at-login"]);
        fs::write(place.path(".fusion/run/fusiond.lock"), "").unwrap();
    };
    Place::killed_everywhere(&["uninstall", "--purge", "--yes"], prepare, |_| {});
}

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

/// What a daemon leaves where it is asked.
fn used_socket(place: &Place, name: &str) {
    fs::write(place.path(&format!("{name}.lock")), "").unwrap();
    fs::write(place.path(&format!("{name}.failures")), "{}").unwrap();
    drop(UnixListener::bind(place.path(&format!("{name}.sock"))).unwrap());
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
    used_socket(&place, "one/fusiond");
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
    used_socket(&place, "one/fusiond");
    let lock = fs::File::open(place.path("one/fusiond.lock")).unwrap();
    lock.lock().unwrap();
    place.install(&["--socket", "~/two/fusiond.sock"]);
    assert!(place.path("one/fusiond.sock").exists() && place.path("one/fusiond.lock").exists());
}

#[test]
fn killed_at_any_step_of_a_move_the_next_one_mends_it() {
    let prepare = |place: &Place| {
        place.install(&["--on-demand", "--socket", "~/one/fusiond.sock"]);
        used_socket(place, "one/fusiond");
    };
    let moved = ["install", "--at-login", "--socket", "~/two/fusiond.sock", "--bin-dir", "~/programs"];
    Place::killed_everywhere(&moved, prepare, |_| {});
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
fn looking_never_starts_a_daemon() {
    let place = Place::new();
    place.install(&["--on-demand"]);
    // launchd's socket: a connection would start the daemon.
    let socket = UnixListener::bind(place.path(".fusion/run/fusiond.sock")).unwrap();
    socket.set_nonblocking(true).unwrap();
    for verb in ["status", "metrics"] {
        let run = place.run(&[verb]);
        assert_eq!(run.code, 69, "{}", run.stderr);
        assert!(run.stderr.contains("launchd starts it with the first client"), "{}", run.stderr);
    }
    let failures = json!({"count": 5, "reason": "the disk is full", "at_unix_ms": 1, "version": "1"});
    fs::write(place.path(".fusion/run/fusiond.failures"), failures.to_string()).unwrap();
    let run = place.run(&["status"]);
    assert!(run.stderr.contains("(5 in a row): the disk is full"), "{}", run.stderr);
    place.fine(&["stop"]);
    let run = place.run(&["status"]);
    assert!(run.stderr.contains("it was stopped: 'fusionctl start'"), "{}", run.stderr);
    assert!(socket.accept().is_err(), "somebody connected");
    // What was stopped twice is stopped.
    assert!(place.fine(&["stop"]).contains("was not running"));
}

#[test]
fn starting_and_stopping_can_be_rehearsed() {
    let place = Place::new();
    place.install(&["--on-demand"]);
    let before = (place.everything(), place.launchd.state());
    let (start, stop) = ("would start dev.fusion.fusiond", "would stop dev.fusion.fusiond");
    for (verb, words) in [("start", &[start][..]), ("stop", &[stop]), ("restart", &[stop, start])] {
        let told = place.fine(&[verb, "--dry-run"]);
        assert!(words.iter().all(|words| told.contains(words)), "{verb}: {told}");
        assert_eq!(told.lines().count(), words.len(), "{verb}: {told}");
    }
    let failures = json!({"count": 5, "reason": "the disk is full", "at_unix_ms": 1, "version": "1"});
    fs::write(place.path(".fusion/run/fusiond.failures"), failures.to_string()).unwrap();
    let told = place.fine(&["start", "--dry-run"]);
    assert!(told.contains(stop) && told.contains("its 5 failed starts") && told.contains(start), "{told}");
    fs::remove_file(place.path(".fusion/run/fusiond.failures")).unwrap();
    assert_eq!((place.everything(), place.launchd.state()), before);

    place.fine(&["stop"]);
    assert_eq!(place.fine(&["stop", "--dry-run"]), "nothing would be done\n");
    let document: Value = serde_json::from_str(&place.fine(&["restart", "--dry-run", "--json"])).unwrap();
    assert_eq!(document["schema"], "fusionctl.dry-run/1");
    assert_eq!(document["steps"], json!(["start dev.fusion.fusiond through launchd"]));
}

#[test]
fn what_launchctl_refuses_is_told_with_command_code_and_meaning() {
    let place = Place::new();
    place.launchd.change(|state| state["domains"] = json!([]));
    let build = place.directory.path().join("build");
    let run = place.run(&["install", "--at-login", "--from", build.to_str().unwrap()]);
    assert_eq!(run.code, 78);
    for text in ["launchctl enable user/", "exit code 125", "log in on the screen"] {
        assert!(run.stderr.contains(text), "{text}: {}", run.stderr);
    }
    // The session is there: the same command goes on where it was.
    let user = launchd::user();
    place.launchd.change(|state| state["domains"] = json!([format!("gui/{user}"), format!("user/{user}")]));
    place.install(&["--at-login"]);
    assert!(place.launchd.loaded().is_some());
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
fn logs_are_printed_oldest_first_and_followed_over_a_roll() {
    use std::io::{BufRead as _, BufReader};

    let place = Place::new();
    let none = place.run(&["logs"]);
    assert_eq!(none.code, 69, "{}", none.stderr);
    let logs = place.path(".local/state/fusion/logs");
    fs::create_dir_all(&logs).unwrap();
    let log = logs.join("fusiond.log");
    fs::write(logs.join("fusiond.log.2"), "a\nb\n").unwrap();
    fs::write(logs.join("fusiond.log.1"), "c\n").unwrap();
    fs::write(&log, "d\ne\n").unwrap();
    assert_eq!(place.fine(&["logs"]), "a\nb\nc\nd\ne\n");
    assert_eq!(place.fine(&["logs", "-n", "3"]), "c\nd\ne\n");
    let document: Value = serde_json::from_str(&place.fine(&["logs", "-n", "1", "--json"])).unwrap();
    assert_eq!((&document["schema"], &document["lines"]), (&json!("fusionctl.logs/1"), &json!(["e"])));

    let mut following = place.command(&["logs", "-f", "-n", "1"]).stdout(Stdio::piped()).spawn().unwrap();
    let printed = BufReader::new(following.stdout.take().unwrap());
    let (sender, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || printed.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let next = || lines.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
    assert_eq!(next(), "e");
    let append = |text: &str| {
        fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(&log)
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    };
    append("f\n");
    assert_eq!(next(), "f");
    // Whatever the follower does at that moment: no line is lost.
    for round in 0..20 {
        append(&format!("g{round}\n"));
        fs::rename(&log, logs.join("fusiond.log.1")).unwrap();
        append(&format!("h{round}\n"));
        assert_eq!([next(), next()], [format!("g{round}"), format!("h{round}")]);
    }
    following.kill().unwrap();
    following.wait().unwrap();
    fs::write(logs.join("fusiond.crash.log"), "its last words\n").unwrap();
    assert_eq!(place.fine(&["logs", "--crashes"]), "its last words\n");
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
