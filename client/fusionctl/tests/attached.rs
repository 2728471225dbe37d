//! Gates and clients on the command line: exit codes, messages, questions and manners.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod runner;
#[path = "../../sdk/tests/support/mod.rs"]
mod support;

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use fusion_client::v1;
use runner::{mistakes, run, run_in};
use support::{Fake, Script};
use tonic::Code;

#[test]
fn mistakes_are_2_with_a_remedy() {
    let fake = Fake::start(Script::default());
    let long = "x".repeat(201);
    let cases: [(&[&str], &str); 12] = [
        (&["gates", "lock", "a prefill", "spilt"], "a similar value exists: 'split'"),
        (&["gates", "lock", "a prefill", "fast"], "possible values: split, compiled, eager"),
        (&["gates", "lock", "a prefill"], "<ARM>"),
        (&["gates", "lock", "", "eager"], "has 1 to 200 bytes, this one has 0"),
        (&["gates", "show", &long], "this one has 201"),
        (&["gates", "show", "a prefill", "--rows", "0"], "0 is not in 1.."),
        (&["gates", "show", "a prefil"], "no gate knows the workload 'a prefil'; did you mean 'a prefill'?"),
        (&["gates", "list", "something else"], "there is 'a block', 'a prefill', 'never called'"),
        (
            &["gates", "show", "a prefill", "--rows", "5000"],
            "'a prefill' at 4096 to 5119 rows, but of 2 regions",
        ),
        (&["gates", "reset", "a prefill"], "there is no terminal to ask on: add --yes"),
        (&["gates", "forget"], "unrecognized subcommand"),
        (&["clients", "--layer"], "--layers"),
    ];
    mistakes(&fake.path(), &cases);
    assert!(fake.seen.reset.lock().unwrap().is_none() && fake.seen.lock.lock().unwrap().is_none());
}

const COMMANDS: [&[&str]; 6] = [
    &["gates", "list"],
    &["gates", "show", "a prefill"],
    &["gates", "reset", "a prefill", "--yes"],
    &["gates", "lock", "a prefill", "split"],
    &["gates", "unlock", "a prefill"],
    &["clients"],
];

#[test]
fn every_command_has_its_exit_codes() {
    let refusing = |code| Script { refusal: Some((code, "so it is".to_owned())), ..Script::default() };
    for arguments in COMMANDS {
        let nobody = run(Path::new("/nonexistent/s"), arguments);
        assert_eq!((nobody.code, nobody.stdout.as_str()), (69, ""), "{arguments:?}: {}", nobody.stderr);
        assert!(nobody.stderr.contains("not running"), "{}", nobody.stderr);
        let fake = Fake::start(Script { version: "9.9.9", protocol: 9, ..Script::default() });
        assert_eq!(run(&fake.path(), arguments).code, 78, "{arguments:?}");
        for (code, exit) in [(Code::InvalidArgument, 65), (Code::ResourceExhausted, 75)] {
            let fake = Fake::start(refusing(code));
            let run = run(&fake.path(), arguments);
            assert_eq!(run.code, exit, "{arguments:?}: {}", run.stderr);
            assert!(run.stderr.contains("so it is") && run.stderr.lines().count() == 1, "{}", run.stderr);
        }
    }
}

#[test]
fn an_answer_that_cannot_be_is_70() {
    let mut script = Script::default();
    script.gates.states[0].regions[0].standing = 9;
    let fake = Fake::start(script);
    let run = run(&fake.path(), &["gates", "list"]);
    assert_eq!(run.code, 70);
    assert!(run.stderr.contains("'standing' can't be 9"), "{}", run.stderr);
}

#[test]
fn decisions_say_what_they_reach() {
    let fake = Fake::start(Script::default());
    let say = |arguments: &[&str]| {
        let run = run(&fake.path(), arguments);
        assert_eq!(run.code, 0, "{}", run.stderr);
        (run.stdout, run.stderr)
    };
    let (locked, remark) = say(&["gates", "lock", "a prefill", "split", "--rows", "600"]);
    assert_eq!(locked, "locked: 'a prefill' at 512 to 639 rows runs split; 2 attached processes are told\n");
    assert_eq!(remark, "");
    let asked = fake.seen.lock.lock().unwrap().clone().unwrap();
    assert_eq!((asked.arm(), asked.rows), (v1::Arm::Split, Some(512)));
    let (_, remark) = say(&["gates", "lock", "a prefil", "split"]);
    assert_eq!(
        remark,
        "no attached process has told of the workload 'a prefil' yet; did you mean 'a prefill'?\n"
    );
    let (reset, _) = say(&["gates", "reset", "a prefill", "--yes"]);
    assert_eq!(reset, "forgotten: 'a prefill' (2 regions); 2 attached processes are told\n");
    let (reset, remark) = say(&["gates", "reset", "xyz", "-y"]);
    assert_eq!(reset, "forgotten: 'xyz' (0 regions); 2 attached processes are told\n");
    assert!(remark.contains("has told of the workload 'xyz' yet"), "{remark}");
}

#[test]
fn unlocking_says_what_still_decides() {
    let fake = Fake::start(Script::default());
    let say = |arguments: &[&str]| run(&fake.path(), arguments).stdout;
    assert_eq!(
        say(&["gates", "unlock", "a block"]),
        "unlocked: 'a block' (1 lock); 2 attached processes are told\n"
    );
    assert_eq!(
        say(&["gates", "unlock", "a block", "--rows", "64"]),
        "'a block' at 64 to 79 rows was not locked\n'a block' stays locked to eager at all rows: unlock it without --rows\n"
    );
    assert_eq!(say(&["gates", "unlock", "a prefill"]), "'a prefill' was not locked\n");
    let asked = fake.seen.lock.lock().unwrap().clone().unwrap();
    assert_eq!((asked.arm, asked.rows), (0, None));
}

/// A reset on a real terminal, by way of script(1), where somebody answers.
fn answered(socket: &Path, answer: &str) -> Option<String> {
    let program = env!("CARGO_BIN_EXE_fusionctl");
    let mut child = Command::new("script")
        .args(["-qec", &format!("{program} gates reset 'a prefill'"), "/dev/null"])
        .env("FUSION_SOCKET", socket)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    child.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_reset_asks_first() {
    let fake = Fake::start(Script::default());
    // Not everywhere is there a script(1) that knows these flags; there this test says nothing.
    let Some(refused) = answered(&fake.path(), "n\n") else { return };
    let question =
        "Forget what was learned of 'a prefill' (2 regions), here and in 2 attached processes? [y/N]";
    assert!(refused.contains(question) && refused.contains("nothing was changed"), "{refused}");
    assert!(fake.seen.reset.lock().unwrap().is_none());
    let done = answered(&fake.path(), "y\n").unwrap();
    assert!(done.contains("forgotten: 'a prefill' (2 regions)"), "{done}");
    assert!(fake.seen.reset.lock().unwrap().is_some());
}

#[test]
fn nothing_is_said_to_be_nothing() {
    let nothing = Script {
        gates: v1::ListGatesReply::default(),
        clients: Vec::new(),
        summary: Some(v1::ClientsSummary::default()),
        ..Script::default()
    };
    let fake = Fake::start(nothing);
    for (arguments, says) in [
        (&["gates", "list"][..], "no gate is known yet"),
        (&["clients", "--layers"], "no client is attached"),
        (&["status"], "clients     none attached\n"),
        (&["gates", "lock", "w", "eager"], "no process is attached; whoever comes is told"),
    ] {
        let run = run(&fake.path(), arguments);
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert!(run.stdout.contains(says), "{arguments:?}: {}", run.stdout);
        assert!(!run.stdout.contains("\n saved"), "{}", run.stdout);
    }
    assert_eq!(run(&fake.path(), &["gates", "show", "w"]).code, 2);
    let list = run(&fake.path(), &["clients", "--json"]);
    assert!(list.stdout.contains("\"clients\": []"), "{}", list.stdout);
}

#[test]
fn the_status_says_what_was_saved_or_lost_and_against_what() {
    let status = |saved_ms, split_calls, exploring_pid| {
        let summary = v1::ClientsSummary { attached: 1, busy: 0, exploring_pid, saved_ms, split_calls };
        let fake = Fake::start(Script { summary: Some(summary), ..Script::default() });
        run(&fake.path(), &["status"]).stdout
    };
    let lost = status(-1200.0, 1, 0);
    let text = "lost 1.2 s in 1 split call of 1 attached client, against stock's reference times";
    assert!(lost.contains(text) && lost.contains("1 attached, 0 busy\n"), "{lost}");
    assert!(status(0.0, 0, 7).contains("nothing yet"), "{}", status(0.0, 0, 7));
    assert!(status(12_300.0, 482, 7).contains("12.3 s in 482 split calls of 1 attached client"));
    // A daemon that doesn't tell.
    let fake = Fake::start(Script { summary: None, ..Script::default() });
    let silent = run(&fake.path(), &["status"]).stdout;
    assert!(!silent.contains("\n clients") && !silent.contains("\n saved"), "{silent}");
}

#[test]
fn names_of_other_processes_steer_no_terminal() {
    let mut script = Script::default();
    script.clients[0].name = "a\u{1b}[31mb\nc".to_owned();
    script.gates.states[0].regions[0].workload = "w\u{7}".to_owned();
    let fake = Fake::start(script);
    let clients = run(&fake.path(), &["clients"]).stdout;
    assert!(clients.contains("a?[31mb?c"), "{clients}");
    let gates = run(&fake.path(), &["gates", "list"]).stdout;
    assert!(gates.contains("w?") && !gates.contains('\u{7}'), "{gates}");
}

#[test]
fn colour_changes_nothing_but_the_colour() {
    let fake = Fake::start(Script::default());
    for arguments in [&["gates", "list"][..], &["gates", "show", "a block"], &["clients", "--layers"]] {
        for columns in [80, 160] {
            let show =
                |color| run_in(&fake.path(), columns, &[&["--color", color], arguments].concat()).stdout;
            let (always, never) = (show("always"), show("never"));
            assert!(always.contains('\u{1b}') && !never.contains('\u{1b}'), "{always}");
            assert_eq!(without_escapes(&always), trimmed(&never), "{arguments:?}, {columns}");
        }
    }
}

fn without_escapes(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap().to_owned();
    trimmed(&parts.fold(first, |text, part| text + part.split_once('m').unwrap().1))
}

fn trimmed(text: &str) -> String {
    text.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

#[test]
fn the_help_has_examples_and_completions_know_the_words() {
    let nowhere = Path::new("/x");
    for (arguments, says) in [
        (&["gates", "--help"][..], "unlock"),
        (&["gates", "list", "--help"], "fusionctl gates list"),
        (&["gates", "show", "--help"], "fusionctl gates show 'llama prefill' --rows 2048"),
        (&["gates", "reset", "--help"], "--rows 2048 --yes"),
        (&["gates", "lock", "--help"], "fusionctl gates lock 'llama prefill' eager"),
        (&["gates", "unlock", "--help"], "fusionctl gates unlock 'llama prefill'"),
        (&["clients", "--help"], "fusionctl clients --layers"),
        (&["completions", "bash"], "split compiled eager"),
        (&["completions", "zsh"], "unlock"),
    ] {
        let run = run(nowhere, arguments);
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert!(run.stdout.contains(says), "{arguments:?}: {}", run.stdout);
    }
}
