//! Under a manager: its socket, failed starts, a program that is replaced. systemd's part is played by the test, with real descriptors.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fusion_client::failures::{FailedStarts, MOST_FAILED_STARTS};
use fusion_client::state::{crash_log, log_file};
use fusion_client::{Client, ClientError, Deadlines};
use std::time::Duration;

use crate::support::{Daemon, Place, copy_program, eventually};

/// "The program was replaced": `fusiond --help` documents it.
const REPLACED: i32 = 79;

/// The socket that the manager of `place` holds.
fn bound(place: &Place) -> UnixListener {
    std::fs::create_dir_all(place.socket().as_path().parent().unwrap()).unwrap();
    UnixListener::bind(place.socket().as_path()).unwrap()
}

/// Starts as the units of `fusionctl install` have systemd do it.
fn activated(command: &Command, socket: &UnixListener) -> Command {
    let mut activated = handed_over(command, socket);
    activated.arg("--systemd");
    activated
}

/// Starts as systemd does for any program: the socket as descriptor 3, and in the environment for whom it is.
fn handed_over(command: &Command, socket: &UnixListener) -> Command {
    let mut activated = Command::new("sh");
    let script = r#"exec 3<&0 0</dev/null; export LISTEN_FDS=1 LISTEN_PID=$$; exec "$@""#;
    activated.args(["-c", script, "sh"]).arg(command.get_program()).args(command.get_args());
    activated.stdin(Stdio::from(OwnedFd::from(socket.try_clone().unwrap()))).stderr(Stdio::piped());
    activated
}

/// Waits as long as it takes.
fn patient() -> Deadlines {
    let long = Duration::from_secs(60);
    Deadlines { connect: long, call: long, ..Deadlines::default() }
}

pub async fn on_the_managers_socket_clients_wait_for_the_daemon() {
    let place = Place::new();
    let socket = bound(&place);
    let mut before = 0;
    for _ in 0..2 {
        // Nobody accepts yet: the call is there before the daemon.
        let path = place.socket();
        let waiting =
            tokio::spawn(async move { Client::connect_with(&path, patient()).await.unwrap().status().await });
        let child = activated(&place.command("steady"), &socket).spawn().unwrap();
        let mut daemon = Daemon { child, socket: place.socket() };
        let status = waiting.await.unwrap().unwrap();
        assert_eq!(status.pid, daemon.child.id());
        assert_ne!(status.pid, before);
        before = status.pid;
        daemon.client().await.drain("a test").await.unwrap();
        assert!(daemon.ended().await.success());
        assert!(place.socket().as_path().exists(), "the manager's socket stays");
    }
}

pub async fn who_waits_for_a_daemon_that_can_not_start_is_told_why() {
    let place = Place::new();
    let socket = bound(&place);
    // No directory can be made there.
    std::fs::write(place.state(), "").unwrap();
    let start = async || {
        let path = place.socket();
        let waiting = tokio::spawn(async move { Client::connect_with(&path, patient()).await });
        let mut child = activated(&place.command("steady"), &socket).spawn().unwrap();
        let told = waiting.await.unwrap().unwrap_err();
        let ended = eventually("the daemon's end", async || child.try_wait().unwrap()).await;
        let ClientError::FailedPrecondition(told) = told else { panic!("{told}") };
        (ended.code().unwrap(), told)
    };
    for count in 1..=MOST_FAILED_STARTS {
        let (code, told) = start().await;
        assert!(told.contains("state directory"), "{told}");
        // The last one succeeds, so that nobody starts it again.
        assert_eq!(code == 0, count == MOST_FAILED_STARTS, "{code}: {told}");
    }
    let (code, told) = start().await;
    assert_eq!(code, 0);
    assert!(told.contains("gave up after 5 failed starts") && told.contains("'fusionctl start'"), "{told}");
    // What was wrong is mended, and a person says so.
    std::fs::remove_file(place.state()).unwrap();
    FailedStarts::clear(&place.socket()).unwrap();
    let child = activated(&place.command("steady"), &socket).spawn().unwrap();
    let daemon = Daemon { child, socket: place.socket() };
    Client::connect_with(&daemon.socket, patient()).await.unwrap();
}

pub async fn a_command_line_that_can_not_be_read_is_given_up_too() {
    let place = Place::new();
    let socket = bound(&place);
    for count in 1..=MOST_FAILED_STARTS + 1 {
        let path = place.socket();
        let waiting = tokio::spawn(async move { Client::connect_with(&path, patient()).await });
        let mut command = place.command("steady");
        // As the unit of another version may say.
        command.arg("--of-another-version");
        let mut child = activated(&command, &socket).spawn().unwrap();
        let told = waiting.await.unwrap().unwrap_err();
        let ended = eventually("the daemon's end", async || child.try_wait().unwrap()).await;
        let ClientError::FailedPrecondition(told) = told else { panic!("{told}") };
        assert!(told.contains("'--of-another-version'") && told.contains("'fusionctl install'"), "{told}");
        let expected = if count < MOST_FAILED_STARTS { Some(2) } else { Some(0) };
        assert_eq!(ended.code(), expected, "{count}: {told}");
    }
    assert_eq!(FailedStarts::read(&place.socket()).unwrap().count, MOST_FAILED_STARTS);
    // In a terminal it is clap's message, and nothing is counted; nor is asking for help a failed start.
    let (code, told) = place.fails({
        let mut command = place.command("steady");
        command.arg("--of-another-version");
        command
    });
    assert!(code == 2 && told.contains("Usage:"), "{code}: {told}");
    FailedStarts::clear(&place.socket()).unwrap();
    let mut help = place.command("steady");
    assert!(help.args(["--systemd", "--help"]).output().unwrap().status.success());
    assert_eq!(FailedStarts::read(&place.socket()), None);
}

pub async fn a_socket_that_is_handed_over_is_used_without_a_word() {
    let place = Place::new();
    let socket = bound(&place);
    let usual = place.command("steady");
    let mut command = Command::new(usual.get_program());
    // Neither its manager nor its socket is named.
    command.args(usual.get_args().skip_while(|argument| *argument != "--state-dir"));
    let child = handed_over(&command, &socket).spawn().unwrap();
    let daemon = Daemon { child, socket: place.socket() };
    let client = Client::connect_with(&daemon.socket, patient()).await.unwrap();
    assert_eq!(client.status().await.unwrap().pid, daemon.child.id());
    assert!(place.socket().lock_file().exists(), "another socket's lock was taken");
}

pub async fn a_panic_is_kept_with_its_time_and_counts() {
    let place = Place::new();
    let mut command = place.command("steady");
    command.arg("--systemd").env("FUSION_TEST_PANIC", "1");
    let (code, _) = place.fails(command);
    assert_eq!(code, 101);
    let words = std::fs::read_to_string(crash_log(&place.state())).unwrap();
    for word in ["Z, a panic:", "main.rs", "FUSION_TEST_PANIC is set"] {
        assert!(words.contains(word), "{word}: {words}");
    }
    let logged = std::fs::read_to_string(log_file(&place.state())).unwrap();
    assert!(logged.contains("a panic: FUSION_TEST_PANIC is set"), "{logged}");
    assert_eq!(FailedStarts::read(&place.socket()).unwrap().count, 1);
}

pub async fn a_socket_that_can_not_be_taken_over_is_given_up_too() {
    let place = Place::new();
    bound(&place);
    for count in 1..=MOST_FAILED_STARTS + 1 {
        // launchd didn't start it, so it holds no socket for it.
        let mut command = place.command("steady");
        let child = command.arg("--launchd").stderr(Stdio::piped()).spawn().unwrap();
        let ended = child.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&ended.stderr);
        let expected = if count < MOST_FAILED_STARTS { Some(78) } else { Some(0) };
        assert_eq!(ended.status.code(), expected, "{count}: {told}");
    }
    assert_eq!(FailedStarts::read(&place.socket()).unwrap().count, MOST_FAILED_STARTS);
}

pub async fn a_daemon_beside_another_says_which_one_runs() {
    let place = Place::new();
    let first = place.start("steady").await;
    // The manager puts its own socket in the place of the first one's.
    std::fs::remove_file(place.socket().as_path()).unwrap();
    let socket = bound(&place);
    let path = place.socket();
    let waiting = tokio::spawn(async move { Client::connect_with(&path, patient()).await });
    let mut second = activated(&place.command("steady"), &socket).spawn().unwrap();
    let told = waiting.await.unwrap().unwrap_err().to_string();
    assert!(told.contains(&format!("already running as process {}", first.child.id())), "{told}");
    let ended = eventually("the second one's end", async || second.try_wait().unwrap()).await;
    assert_eq!(ended.code(), Some(75));
}

/// A copy of the daemon's program that can be replaced.
fn own_program(place: &Place) -> PathBuf {
    let program = place.directory.path().join("fusiond");
    replace(&program);
    program
}

fn replace(program: &Path) {
    let fresh = program.with_extension("new");
    copy_program(env!("CARGO_BIN_EXE_fusiond"), &fresh);
    std::fs::rename(&fresh, program).unwrap();
}

pub async fn a_replaced_program_is_started_again_and_clients_ride_through() {
    let place = Place::new();
    let socket = bound(&place);
    let program = own_program(&place);
    let usual = place.command("steady");
    let mut command = Command::new(&program);
    command.args(usual.get_args());
    let child = activated(&command, &socket).spawn().unwrap();
    let mut daemon = Daemon { child, socket: place.socket() };
    let client = Client::connect_with(&daemon.socket, patient()).await.unwrap();
    assert_eq!(client.status().await.unwrap().pid, daemon.child.id());
    replace(&program);
    assert_eq!(daemon.ended().await.code(), Some(REPLACED), "{}", daemon.errors());
    assert_eq!(FailedStarts::read(&place.socket()), None, "that was no failed start");
    // The same client asks while nobody is there, and is answered by the next daemon.
    let asked = tokio::spawn(async move {
        loop {
            match client.status().await {
                Ok(status) => return status.pid,
                // The connection that the old daemon closed.
                Err(ClientError::Lost { .. } | ClientError::Draining { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    });
    let child = activated(&command, &socket).spawn().unwrap();
    let next = Daemon { child, socket: place.socket() };
    assert_eq!(asked.await.unwrap(), next.child.id());
}

pub async fn what_is_logged_can_be_changed_and_last_words_are_kept() {
    let place = Place::new();
    let mut command = place.command("steady");
    command.args(["--sensors", "scripted:/nonexistent", "--systemd"]);
    let (code, _) = place.fails(command);
    assert_eq!(code, 78);
    let words = std::fs::read_to_string(crash_log(&place.state())).unwrap();
    assert!(words.contains("/nonexistent"), "{words}");

    let daemon = place.start("steady").await;
    let client = daemon.client().await;
    let logged = || std::fs::read_to_string(log_file(&place.state())).unwrap();
    assert!(!logged().contains("DEBUG"));
    assert_eq!(client.set_log_filter(Some("debug")).await.unwrap(), "debug");
    eventually("a line at debug", async || {
        client.status().await.unwrap();
        logged().contains("DEBUG").then_some(())
    })
    .await;
    let refused = client.set_log_filter(Some("fusiond=loud")).await.unwrap_err();
    assert!(
        matches!(&refused, ClientError::InvalidArgument(text) if text.contains("stays as it was")),
        "{refused}"
    );
    assert_eq!(client.set_log_filter(None).await.unwrap(), "info");
}
