//! Exit codes, messages and manners of the built program.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod runner;
#[path = "../../sdk/tests/support/mod.rs"]
mod support;

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use runner::{Run, command, copy_program, mistakes, run, run_in};
use support::{Ending, Fake, Hung, Script, directory};
use tonic::Code;

fn with(script: Script) -> Fake {
    Fake::start(script)
}

#[test]
fn without_a_daemon_status_says_so_and_starts_none() {
    let directory = directory();
    let socket = directory.path().join("s");
    let run = run(&socket, &["status"]);
    assert_eq!((run.code, run.stdout.as_str()), (69, ""));
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    for word in ["not running", &socket.display().to_string(), "'fusiond'", "make run"] {
        assert!(run.stderr.contains(word), "{word}: {}", run.stderr);
    }
    assert!(!socket.exists());
}

#[test]
fn mistakes_on_the_command_line_are_2_with_a_remedy() {
    let cases: [(&[&str], &str); 11] = [
        (&[], "Usage"),
        (&["frobnicate"], "unrecognized subcommand"),
        (&["calibrate"], "MODEL|MxKxN"),
        (&["calibrate", "qwen2.5-0.5"], "did you mean 'qwen2.5-0.5b'?"),
        (&["calibrate", "0x4x4"], "rows is 0, but must be at least 1"),
        (&["calibrate", "4x4"], "for example 512x896x4864"),
        (&["calibrate", "1x1x99999999999999999999"], "at most 16777216"),
        (&["calibrate", "gpt2-xl", "--rows", "-5"], "rows is -5, but must be at least 1"),
        (&["calibrate", "gpt2-xl", "--format", "f8"], "use one of f32, f16, bf16"),
        (&["ratios", "get", "1x1x1", "--layout", "mk"], "use 'nk'"),
        (&["store", "rebuild"], "add --yes"),
    ];
    mistakes(Path::new("/nonexistent/s"), &cases);
}

#[test]
fn a_socket_path_that_cannot_be_is_78() {
    let long = format!("/{}", "a".repeat(120));
    let too_long = run(Path::new("/x"), &["--socket", &long, "status"]);
    assert_eq!(too_long.code, 78);
    assert!(too_long.stderr.contains("121 bytes"), "{}", too_long.stderr);
    let relative = run(Path::new("relative/s"), &["status"]);
    assert_eq!(relative.code, 78);
    assert!(relative.stderr.contains("not absolute"), "{}", relative.stderr);
}

#[test]
fn what_the_daemon_refuses_becomes_an_exit_code() {
    let cases = [
        (Code::InvalidArgument, 65),
        (Code::OutOfRange, 65),
        (Code::Internal, 70),
        (Code::DataLoss, 74),
        (Code::AlreadyExists, 74),
        (Code::ResourceExhausted, 75),
        (Code::Aborted, 75),
        (Code::Cancelled, 75),
        (Code::Unavailable, 75),
        (Code::PermissionDenied, 77),
        (Code::FailedPrecondition, 78),
    ];
    for (code, exit) in cases {
        let fake = with(Script { refusal: Some((code, "so it is".to_owned())), ..Script::default() });
        let run = run(&fake.path(), &["ratios", "get", "8x8x8"]);
        assert_eq!(run.code, exit, "{code:?}: {}", run.stderr);
        assert!(run.stderr.contains("so it is"), "{}", run.stderr);
        assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    }
}

#[test]
fn a_hung_daemon_is_69_and_named() {
    let hung = Hung::start();
    let run = run(hung.socket().as_path(), &["status"]);
    assert_eq!(run.code, 69);
    assert!(run.stderr.contains("did not answer within 1 s"), "{}", run.stderr);
}

#[test]
fn another_protocol_is_78_but_status_and_stop_work() {
    let fake = with(Script { version: "9.9.9", protocol: 9, ..Script::default() });
    let refused = run(&fake.path(), &["ratios", "list"]);
    assert_eq!(refused.code, 78);
    assert!(refused.stderr.contains("9.9.9 speaks protocol 9"), "{}", refused.stderr);
    let status = run(&fake.path(), &["status"]);
    assert_eq!(status.code, 0);
    assert!(status.stdout.contains("speaks protocol 9"), "{}", status.stdout);
    assert_eq!(run(&fake.path(), &["stop"]).code, 0);
}

#[test]
fn another_version_of_the_same_protocol_is_told_with_what_to_do() {
    for (version, words) in [("0.0.1", "'fusionctl stop'"), ("99.0.0", "beside the daemon's program")] {
        let fake = with(Script { version, ..Script::default() });
        let status = run(&fake.path(), &["status"]);
        assert_eq!(status.code, 0);
        assert!(status.stdout.contains("mismatch") && status.stdout.contains(words), "{}", status.stdout);
        assert_eq!(run(&fake.path(), &["ratios", "list"]).code, 0, "everything works");
        assert_eq!(run(&fake.path(), &["stop"]).code, 0);
    }
    let fake = with(Script { version: env!("CARGO_PKG_VERSION"), ..Script::default() });
    assert!(!run(&fake.path(), &["status"]).stdout.contains("mismatch"));
}

#[test]
fn an_older_protocol_names_the_command_that_replaces_the_daemon() {
    let fake = with(Script { version: "0.0.1", protocol: 0, ..Script::default() });
    let refused = run(&fake.path(), &["log-level", "debug"]);
    assert_eq!(refused.code, 78);
    for text in ["0.0.1 speaks protocol 0", "'fusionctl install'", "'fusionctl stop'"] {
        assert!(refused.stderr.contains(text), "{text}: {}", refused.stderr);
    }
    let status = run(&fake.path(), &["status"]);
    assert!(status.stdout.contains("only status and stop work; 'fusionctl install'"), "{}", status.stdout);
    assert_eq!(run(&fake.path(), &["stop"]).code, 0);
}

#[test]
fn stop_waits_until_the_daemon_is_gone() {
    let fake = with(Script::default());
    let rehearsed = run(&fake.path(), &["stop", "--dry-run"]);
    assert_eq!((rehearsed.code, rehearsed.stdout.as_str()), (0, "would end fusiond (process 4242)\n"));
    assert!(fake.path().exists());
    let stopped = run(&fake.path(), &["stop"]);
    assert_eq!((stopped.code, stopped.stdout.as_str()), (0, "fusiond (process 4242) has stopped\n"));
    assert!(!fake.path().exists());
    let again = run(&fake.path(), &["stop"]);
    assert_eq!(again.code, 69);
    assert!(again.stderr.contains("nothing to stop"), "{}", again.stderr);
    let stubborn = with(Script { stubborn: true, ..Script::default() });
    let stays = run(&stubborn.path(), &["stop"]);
    assert_eq!(stays.code, 75);
    assert!(stays.stderr.contains("kill 4242"), "{}", stays.stderr);
}

#[test]
fn calibrate_shows_every_layer_and_where_it_was_measured() {
    let fake = with(Script::default());
    let run = run(&fake.path(), &["calibrate", "qwen2.5-0.5b", "64x64x64", "--rows", "256"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    for text in
        ["q,o", "k,v", "gate,up", "down", "256x896x4864", "64x64x64", "development pair", "memory normal"]
    {
        assert!(run.stdout.contains(text), "{text} is missing:\n{}", run.stdout);
    }
    assert!(run.stdout.contains("5 measured, 0 from the store, 0 failed"), "{}", run.stdout);
    let asked = fake.seen.calibrate.lock().unwrap().clone().unwrap();
    assert_eq!(asked.title, "qwen2.5-0.5b, 64x64x64 at 256 rows, f32");
    assert_eq!(asked.shapes.len(), 5);
}

#[test]
fn a_shape_that_fails_is_1_and_the_rest_is_shown() {
    let fake = with(Script { failing: vec![1], ..Script::default() });
    let run = run(&fake.path(), &["calibrate", "qwen2.5-0.5b"]);
    assert_eq!(run.code, 1);
    assert!(run.stdout.contains("k,v 512x896x128 f32 nk: the worker ended"), "{}", run.stdout);
    assert!(run.stdout.contains("3 measured, 0 from the store, 1 failed"), "{}", run.stdout);
    assert!(run.stderr.contains("1 shape could not be calibrated"), "{}", run.stderr);
}

#[test]
fn where_nothing_could_be_measured_it_is_still_said_where() {
    let fake = with(Script { failing: vec![0], ..Script::default() });
    let run = run(&fake.path(), &["calibrate", "8x8x8"]);
    assert_eq!(run.code, 1);
    for text in ["Acme Turbo", "development pair", "0 measured", "; 0 ms of machine time"] {
        assert!(run.stdout.contains(text), "{text}: {}", run.stdout);
    }
}

#[test]
fn what_the_store_knows_is_counted_apart() {
    let fake = with(Script { from_store: true, ..Script::default() });
    let run = run(&fake.path(), &["calibrate", "qwen2.5-0.5b"]);
    assert!(run.stdout.contains("0 measured, 4 from the store"), "{}", run.stdout);
}

#[test]
fn a_daemon_that_dies_in_the_middle_is_69_and_what_is_known_is_shown() {
    let fake = with(Script { stop_after: Some(2), ending: Ending::Die, ..Script::default() });
    let run = run(&fake.path(), &["calibrate", "qwen2.5-0.5b"]);
    assert_eq!(run.code, 69, "{}", run.stderr);
    assert!(run.stdout.contains("2 measured, 0 from the store, 0 failed, 2 not reached"), "{}", run.stdout);
    assert!(run.stderr.contains("what was acknowledged is kept"), "{}", run.stderr);
}

#[test]
fn ctrl_c_cancels_and_says_what_is_kept() {
    let fake = with(Script { stop_after: Some(1), ending: Ending::Hang, ..Script::default() });
    let mut child = command(&fake.path(), &["calibrate", "qwen2.5-0.5b"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let (mut stdout, mut stderr) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert!(stderr.contains("cancelled: 1 shape kept in the store, 3 not reached"), "{stderr}");
    assert!(stdout.contains("q,o"), "{stdout}");
    assert!(fake.seen.wait_for_cancel());
}

#[test]
fn a_damaged_store_is_65_with_its_problems() {
    let problems = vec!["index: wrong checksum at key 3".to_owned()];
    let fake = with(Script { problems, ..Script::default() });
    let run = run(&fake.path(), &["store", "verify"]);
    assert_eq!(run.code, 65);
    assert!(run.stdout.contains("wrong checksum at key 3"), "{}", run.stdout);
    assert!(run.stderr.contains("fusionctl store rebuild"), "{}", run.stderr);
}

#[test]
fn without_a_daemon_the_store_is_opened_by_fusiond() {
    let directory = directory();
    let folder = |name: &str| {
        let path = directory.path().join(name);
        fs::create_dir(&path).unwrap();
        path
    };
    let (installed, elsewhere) = (folder("installed"), folder("elsewhere"));
    // A copy, because the real fusiond may lie beside the built one.
    let program = installed.join("fusionctl");
    copy_program(env!("CARGO_BIN_EXE_fusionctl"), &program);
    let store = |arguments: &[&str]| -> Run {
        let mut command = Command::new(&program);
        command.args(["store"]).args(arguments).env("PATH", &elsewhere);
        command.env("FUSION_SOCKET", directory.path().join("s")).output().unwrap().into()
    };

    let missing = store(&["verify"]);
    assert_eq!(missing.code, 69);
    assert!(missing.stderr.contains("no 'fusiond' beside fusionctl or in PATH"), "{}", missing.stderr);

    script(&elsewhere.join("fusiond"), "echo elsewhere \"$@\"; exit 74");
    let found = store(&["export", "/x", "--json", "-q"]);
    assert_eq!(
        (found.code, found.stdout.as_str(), found.stderr.as_str()),
        (74, "elsewhere store export /x --json\n", "")
    );

    script(&installed.join("fusiond"), "echo beside \"$@\"");
    let found = store(&["rebuild", "--yes"]);
    assert_eq!((found.code, found.stdout.as_str()), (0, "beside store rebuild\n"));
    assert!(found.stderr.contains("without it"), "{}", found.stderr);
}

fn script(path: &Path, body: &str) {
    fs::write(path, format!("#!/bin/sh\n{body}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn the_probe_is_the_workers() {
    let directory = directory();
    let program = directory.path().join("fusionctl");
    // A copy, because the real worker may lie beside the built one.
    copy_program(env!("CARGO_BIN_EXE_fusionctl"), &program);
    let probe = |arguments: &[&str], variables: &[(&str, &Path)]| -> Run {
        let mut command = Command::new(&program);
        command.args(arguments).env_clear().envs(variables.iter().copied()).output().unwrap().into()
    };
    let missing = probe(&["probe"], &[]);
    assert_eq!((missing.code, missing.stdout.as_str()), (78, ""));
    assert!(missing.stderr.contains("no 'fusion-worker' beside fusionctl or in PATH"), "{}", missing.stderr);

    script(&directory.path().join("fusion-worker"), "echo beside \"$@\"; exit 1");
    let beside = probe(&["probe", "--json", "-q", "--development"], &[]);
    assert_eq!(
        (beside.code, beside.stdout.as_str()),
        (1, "beside --probe --pair development --json --quiet\n")
    );
    let named = directory.path().join("another");
    script(&named, "echo another \"$@\"");
    let named = probe(&["probe"], &[("FUSION_WORKER", &named)]);
    assert_eq!((named.code, named.stdout.as_str()), (0, "another --probe\n"));
}

#[test]
fn models_need_no_daemon() {
    let nowhere = Path::new("/nonexistent/s");
    let list = run(nowhere, &["models", "list"]);
    assert_eq!(list.code, 0);
    assert!(list.stdout.contains("qwen2.5-0.5b"), "{}", list.stdout);
    let unknown = run(nowhere, &["models", "show", "gpt2-xxl"]);
    assert_eq!(unknown.code, 2);
    assert!(unknown.stderr.contains("did you mean 'gpt2-xl'?"), "{}", unknown.stderr);
}

#[test]
fn the_help_lists_the_exit_codes_and_examples() {
    let help = run(Path::new("/x"), &["--help"]);
    assert_eq!(help.code, 0);
    for text in ["Exit codes:", "69 ", "not running", "78 ", "Examples:", "FUSION_SOCKET"] {
        assert!(help.stdout.contains(text), "{text}: {}", help.stdout);
    }
    assert!(
        run(Path::new("/x"), &["calibrate", "--help"]).stdout.contains("fusionctl calibrate qwen2.5-0.5b")
    );
}

#[test]
fn a_pipe_gets_no_escape_codes_unless_it_asks() {
    let fake = with(Script::default());
    let arguments = ["status"];
    let plain = run(&fake.path(), &arguments);
    assert!(!plain.stdout.contains('\u{1b}') && !plain.stderr.contains('\u{1b}'), "{}", plain.stdout);
    let calibration = run(&fake.path(), &["calibrate", "8x8x8"]);
    assert!(!calibration.stdout.contains('\u{1b}'), "{}", calibration.stdout);
    assert_eq!(calibration.stderr, "");
    let asked = run(&fake.path(), &["--color", "always", "status"]);
    assert!(asked.stdout.contains("\u{1b}[1m"), "{}", asked.stdout);
    let never = run(&fake.path(), &["--color", "never", "status"]);
    assert_eq!(never.stdout, plain.stdout);
}

#[test]
fn colour_changes_nothing_but_the_colour() {
    let fake = with(Script { failing: vec![1], ..Script::default() });
    for arguments in [&["status"][..], &["calibrate", "qwen2.5-0.5b"], &["ratios", "list"]] {
        for columns in [40, 80, 120] {
            let show =
                |color| run_in(&fake.path(), columns, &[&["--color", color], arguments].concat()).stdout;
            assert_eq!(without_escapes(&show("always")), untimed(&show("never")), "{arguments:?}, {columns}");
        }
    }
}

fn without_escapes(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap().to_owned();
    untimed(&parts.fold(first, |text, part| text + part.split_once('m').unwrap().1))
}

/// Without the lines that hold how long something took.
fn untimed(text: &str) -> String {
    text.lines()
        .filter(|line| !line.contains(" up ") && !line.contains("machine time"))
        .map(|line| line.trim_end().to_owned() + "\n")
        .collect()
}

/// `fusionctl` with a real terminal as its stdout, by way of script(1).
fn on_a_terminal(socket: &Path, variables: &[(&str, &str)]) -> Option<String> {
    let program = env!("CARGO_BIN_EXE_fusionctl");
    let output = Command::new("script")
        .args(["-qec", &format!("{program} status"), "/dev/null"])
        .env("FUSION_SOCKET", socket)
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_terminal_gets_colour_unless_no_color_is_set() {
    let fake = with(Script::default());
    // Not everywhere is there a script(1) that knows these flags; there this test says nothing.
    let Some(colored) = on_a_terminal(&fake.path(), &[]) else { return };
    assert!(colored.contains("\u{1b}[1m"), "{colored:?}");
    let plain = on_a_terminal(&fake.path(), &[("NO_COLOR", "1")]).unwrap();
    assert!(!plain.contains('\u{1b}'), "{plain:?}");
    let dumb = on_a_terminal(&fake.path(), &[("TERM", "dumb")]).unwrap();
    assert!(!dumb.contains('\u{1b}'), "{dumb:?}");
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    for arguments in [&["models", "list"][..], &["completions", "bash"], &["--help"]] {
        let mut child = command(Path::new("/x"), arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
    }
}

#[test]
fn an_output_that_cannot_be_written_is_74() {
    let Ok(full) = fs::OpenOptions::new().write(true).open("/dev/full") else { return };
    let output = command(Path::new("/x"), &["models", "list"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(74));
}

#[test]
fn the_manual_has_a_page_for_every_command() {
    let directory = directory();
    let man = directory.path().join("man1");
    let run = run(Path::new("/x"), &["man", man.to_str().unwrap()]);
    assert_eq!((run.code, run.stdout.as_str()), (0, ""), "{}", run.stderr);
    let mut commands = vec![Vec::new()];
    let mut pages = 0;
    while let Some(path) = commands.pop() {
        let name = path.iter().fold("fusionctl".to_owned(), |name, part| format!("{name}-{part}"));
        let page = fs::read_to_string(man.join(format!("{name}.1")))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(page.contains(".TH") && page.contains("SYNOPSIS"), "{name}: {page}");
        pages += 1;
        commands.extend(subcommands(&path).into_iter().map(|next| [path.clone(), vec![next]].concat()));
    }
    assert_eq!(fs::read_dir(&man).unwrap().count(), pages);
    assert!(pages > 30, "only {pages} commands were found");
}

/// The commands below a command, as its help lists them.
fn subcommands(path: &[String]) -> Vec<String> {
    let mut arguments: Vec<&str> = path.iter().map(String::as_str).collect();
    arguments.push("--help");
    let help = run(Path::new("/x"), &arguments).stdout;
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = listed
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn there_are_completions_for_each_shell() {
    for (shell, text) in
        [("bash", "complete -F"), ("zsh", "#compdef fusionctl"), ("fish", "complete -c fusionctl")]
    {
        let run = run(Path::new("/x"), &["completions", shell]);
        assert!(run.code == 0 && run.stdout.contains(text), "{shell}: {}", run.stderr);
    }
}
