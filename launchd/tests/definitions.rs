//! What the managers are told, held against files that people can read. `FUSION_UPDATE_GOLDEN=1 cargo test -p fusion-service` writes them anew.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use fusion_proto::endpoint::SocketPath;
use fusion_service::Start;
use fusion_service::definition::{Agent, definitions};
use fusion_service::manager::ManagerKind;
use fusion_service::places::Places;

/// Set where python3 is required: `make test` does.
const REQUIRED: &str = "FUSION_REQUIRE_PYTHON";

fn places() -> Places {
    let home = Path::new("/Users/ada");
    Places {
        own: home.join(".fusion"),
        programs: home.join(".fusion/bin"),
        definitions: home.join("Library/LaunchAgents"),
        socket: SocketPath::new(home.join(".fusion/run/fusiond.sock")).unwrap(),
        state: home.join("Library/Application Support/fusion"),
        configuration: home.join(".config/fusion"),
    }
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

#[test]
fn definitions_are_as_they_are_on_file() {
    for (kind, start, folder) in [
        (ManagerKind::Launchd, Start::AtLogin, "at_login"),
        (ManagerKind::Launchd, Start::OnDemand, "on_demand"),
        (ManagerKind::Systemd, Start::AtLogin, "systemd"),
    ] {
        for file in definitions(kind, start, &places()).unwrap() {
            let name = file.path.file_name().unwrap().to_str().unwrap();
            let path = golden(&format!("{folder}/{name}"));
            if env::var_os("FUSION_UPDATE_GOLDEN").is_some() {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(&path, &file.text).unwrap();
            }
            let text = fs::read_to_string(&path).unwrap_or_default();
            assert!(text == file.text, "{folder}/{name} has changed; it is:\n{}", file.text);
        }
    }
}

#[test]
fn the_agent_reads_as_it_was_written() {
    let agent = Agent::new(Start::AtLogin, &places()).unwrap();
    let read: Agent = plist::from_bytes(agent.to_xml().unwrap().as_bytes()).unwrap();
    assert_eq!(read, agent);
}

/// Each key as another reader, Python's plistlib, sees it: none more, none fewer.
#[test]
fn plistlib_reads_every_key() {
    let script = r#"
import plistlib, sys
found = plistlib.load(open(sys.argv[1], "rb"))
home = "/Users/ada"
wanted = {
    "Label": "dev.fusion.fusiond",
    "ProgramArguments": [
        f"{home}/.fusion/bin/fusiond", "--launchd",
        "--socket", f"{home}/.fusion/run/fusiond.sock",
        "--state-dir", f"{home}/Library/Application Support/fusion",
        "--config-dir", f"{home}/.config/fusion",
    ],
    "ProcessType": "Interactive",
    "RunAtLoad": sys.argv[2] == "at_login",
    "KeepAlive": {"SuccessfulExit": False},
    "ThrottleInterval": 10,
    "ExitTimeOut": 10,
    "Sockets": {"rpc": {"SockPathName": f"{home}/.fusion/run/fusiond.sock", "SockPathMode": 0o600}},
    "LimitLoadToSessionType": ["Aqua", "Background"],
    "StandardErrorPath": f"{home}/Library/Application Support/fusion/logs/fusiond.crash.log",
}
for key in sorted(wanted.keys() | found.keys()):
    assert found.get(key) == wanted.get(key) and type(found.get(key)) is type(wanted.get(key)), (key, found.get(key), wanted.get(key))
"#;
    for (start, word) in [(Start::AtLogin, "at_login"), (Start::OnDemand, "on_demand")] {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("agent.plist");
        fs::write(&path, Agent::new(start, &places()).unwrap().to_xml().unwrap()).unwrap();
        let Ok(output) = Command::new("python3").args(["-c", script]).arg(&path).arg(word).output() else {
            assert!(env::var_os(REQUIRED).is_none(), "python3 is missing");
            eprintln!("SKIPPED: there is no python3");
            return;
        };
        assert!(output.status.success(), "{word}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// systemd's own reader, where there is one.
#[test]
fn systemd_accepts_the_units() {
    let place = tempfile::tempdir().unwrap();
    let odd = place.path().join("100% of my $code");
    fs::create_dir(&odd).unwrap();
    let program = odd.join("fusiond");
    fs::write(&program, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let places = Places { programs: odd, definitions: place.path().to_owned(), ..places() };
    let verify = |files: &[PathBuf]| {
        let mut command = Command::new("systemd-analyze");
        command
            .args(["--user", "verify", "--man=no"])
            .args(files)
            .env("XDG_RUNTIME_DIR", place.path())
            .output()
            .ok()
    };
    let broken = place.path().join("broken.service");
    fs::write(&broken, "[Service]\nExecStart=/nonexistent/program\n").unwrap();
    match verify(&[broken]) {
        Some(output) if String::from_utf8_lossy(&output.stderr).contains("/nonexistent/program") => {}
        _ => {
            eprintln!("SKIPPED: there is no systemd-analyze that works");
            return;
        }
    }
    let files = definitions(ManagerKind::Systemd, Start::AtLogin, &places).unwrap();
    let write = |file: &fusion_service::definition::Definition| fs::write(&file.path, &file.text).unwrap();
    files.iter().for_each(write);
    let paths: Vec<_> = files.into_iter().map(|file| file.path).collect();
    let output = verify(&paths).unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !said.contains("fusiond"), "{said}");
}
