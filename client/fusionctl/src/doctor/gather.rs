//! Asks files and programs. What they say is judged elsewhere.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use fusion_client::failures::FailedStarts;
use fusion_client::state::crash_log;
use fusion_client::{SocketPath, state_directory, v1};
use fusion_service::manager::{Manager, ManagerKind, ManagerState};
use tokio::process::Command;

use super::facts::{Entry, Facts, Program, Ran, SelfTested, State, System};
use super::worker::Worker;
use crate::commands::program;

/// How long a program of the system may take: codesign reads whole files.
const PATIENCE: Duration = Duration::from_secs(20);
/// How much of the crash log is read: a panic with its backtrace takes some KiB.
const LAST_WORDS_BYTES: u64 = 64 << 10;
const PROGRAMS: [&str; 3] = ["fusionctl", "fusiond", "fusion-worker"];

/// Everything but the self-test, which the caller makes.
pub(crate) async fn facts(socket: &SocketPath, daemon: Result<v1::GetStatusReply, String>) -> Facts {
    let system = if cfg!(target_os = "macos") { System::Macos } else { System::Linux };
    let macos = system == System::Macos;
    let mut programs = Vec::new();
    for name in PROGRAMS {
        programs.push(look_at_program(name, macos).await);
    }
    let socket_path = socket.as_path().to_owned();
    let (manager_kind, manager) = ask_manager().await;
    Facts {
        system,
        release: release(system).await,
        worker: if daemon.is_err() { ask_worker().await } else { None },
        xcode: if macos { Some(run("xcode-select", &["-p"]).await) } else { None },
        metal: if macos { Some(run("xcrun", &["-f", "metal"]).await) } else { None },
        programs,
        socket: entry(&socket_path),
        socket_directory: socket_path.parent().and_then(entry),
        socket_path,
        user: rustix::process::geteuid().as_raw(),
        manager_kind,
        manager,
        failed_starts: FailedStarts::read(socket),
        state: state(daemon.as_ref().ok()),
        daemon,
        self_test: SelfTested::Unwanted,
    }
}

/// Which engine the worker that a daemon would start has.
async fn ask_worker() -> Option<Result<v1::Engine, String>> {
    let program = program::find("fusion-worker")?;
    let told = Worker::start(&program.to_string_lossy(), &[]).await;
    let engine = told.map(|(_, hello)| v1::Engine {
        os_build: hello.os_build,
        mlx_version: hello.mlx_version,
        library_hash: hello.library_hash,
    });
    Some(engine.map_err(|error| error.to_string()))
}

/// Who starts the daemon here, and what it does with it. One that hangs is no reason to tell nothing else.
async fn ask_manager() -> (ManagerKind, Result<ManagerState, String>) {
    let (answer, answered) = tokio::sync::oneshot::channel();
    // A thread of its own, since the runtime waits for its blocking ones in the end.
    std::thread::spawn(move || answer.send(ask_manager_now()));
    match tokio::time::timeout(PATIENCE, answered).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => (ManagerKind::NATIVE, Err("asking it failed".to_owned())),
        Err(_) => (ManagerKind::NATIVE, Err(format!("no answer within {} s", PATIENCE.as_secs()))),
    }
}

fn ask_manager_now() -> (ManagerKind, Result<ManagerState, String>) {
    match Manager::from_environment() {
        Ok(manager) => (manager.kind(), manager.state().map_err(|error| error.to_string())),
        Err(error) => (ManagerKind::NATIVE, Err(error.to_string())),
    }
}

async fn release(system: System) -> Ran {
    match system {
        System::Macos => run("sw_vers", &[]).await,
        System::Linux => match fs::read_to_string("/etc/os-release") {
            Ok(said) => Ran::Ended { code: 0, said },
            Err(error) => Ran::Not { why: format!("/etc/os-release: {error}") },
        },
    }
}

async fn look_at_program(name: &'static str, macos: bool) -> Program {
    let path = if name == PROGRAMS[0] { std::env::current_exe().ok() } else { program::find(name) };
    let file = path.as_deref().and_then(Path::to_str).filter(|_| macos);
    let (quarantine, signature) = match file {
        Some(file) => (
            Some(run("xattr", &["-p", "com.apple.quarantine", file]).await),
            Some(run("codesign", &["-v", file]).await),
        ),
        None => (None, None),
    };
    Program { name, path, quarantine, signature }
}

fn state(status: Option<&v1::GetStatusReply>) -> State {
    let told = status.map(|status| Path::new(&status.state_directory).to_owned());
    let path = told.or_else(|| state_directory(None).ok()).unwrap_or_default();
    let names =
        [path.clone(), path.join("calibrations")].iter().flat_map(|directory| names(directory)).collect();
    let last_words = end_of(&crash_log(&path)).unwrap_or_default();
    State { directory: entry(&path), free_bytes: free_bytes(&path), names, last_words, path }
}

/// The end of a file that may be long.
fn end_of(file: &Path) -> std::io::Result<String> {
    let mut file = File::open(file)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LAST_WORDS_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(LAST_WORDS_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn entry(path: &Path) -> Option<Entry> {
    let found = fs::symlink_metadata(path).ok()?;
    Some(Entry { is_socket: found.file_type().is_socket(), mode: found.mode(), owner: found.uid() })
}

/// Of the nearest directory that is there: the state's may not be yet.
fn free_bytes(path: &Path) -> Option<u64> {
    let there = path.ancestors().find(|path| path.exists())?;
    let found = rustix::fs::statvfs(there).ok()?;
    found.f_bavail.checked_mul(found.f_frsize)
}

async fn run(program: &str, arguments: &[&str]) -> Ran {
    let mut command = Command::new(program);
    // What it says is read, so it is asked for in English.
    command.args(arguments).env("LC_ALL", "C").stdin(Stdio::null()).kill_on_drop(true);
    match tokio::time::timeout(PATIENCE, command.output()).await {
        Err(_) => Ran::Not { why: format!("{program} did not end within {} s", PATIENCE.as_secs()) },
        Ok(Err(error)) => Ran::Not { why: format!("{program}: {error}") },
        Ok(Ok(output)) => Ran::Ended {
            code: output.status.code().unwrap_or(-1),
            said: String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
        },
    }
}
