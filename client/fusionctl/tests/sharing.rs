//! `fusionctl export` and `import`: files, the APIs of S3, Google and Azure, and a plain HTTP server on loopback.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod runner;
#[path = "../../sdk/tests/support/mod.rs"]
mod support;

use std::fs;
use std::path::Path;

use fusion_client::v1::TakenAs;
use runner::{mistakes, run};
use support::{Fake, Script, canned};
use tonic::Code;

fn fake() -> Fake {
    Fake::start(Script::default())
}

#[test]
fn a_file_goes_out_and_comes_back() {
    let (fake, directory) = (fake(), support::directory());
    let path = directory.path().join("m4-pro.fcals");
    let file = path.to_str().unwrap();
    let out = run(&fake.path(), &["export", file, "--chip", "a-chip"]);
    assert_eq!(out.code, 0, "{}", out.stderr);
    assert_eq!(fs::read(&path).unwrap(), canned::BUNDLE);
    assert_eq!(fake.seen.exported.lock().unwrap().as_deref(), Some("a-chip"));
    for word in ["2 calibrations of Apple M4 Pro", file, "720 bytes"] {
        assert!(out.stdout.contains(word), "{word}: {}", out.stdout);
    }
    for (arguments, how) in
        [(&["import", file][..], TakenAs::Imported), (&["import", file, "--as-prior"], TakenAs::Prior)]
    {
        let back = run(&fake.path(), arguments);
        assert_eq!(back.code, 0, "{}", back.stderr);
        let (seen, bytes) = fake.seen.imported.lock().unwrap().take().unwrap();
        assert_eq!((seen, &bytes[..]), (how, canned::BUNDLE));
        assert!(back.stdout.contains("1 calibration: what is known here is better"), "{}", back.stdout);
    }
}

#[test]
fn nothing_is_replaced_without_being_asked() {
    let (fake, directory) = (fake(), support::directory());
    let path = directory.path().join("a.fcals");
    let file = path.to_str().unwrap();
    fs::write(&path, "mine").unwrap();
    let kept = run(&fake.path(), &["export", file]);
    assert_eq!(kept.code, 74);
    assert!(kept.stderr.contains("exists already: --replace"), "{}", kept.stderr);
    assert_eq!(fs::read(&path).unwrap(), b"mine");
    assert_eq!(run(&fake.path(), &["export", file, "--replace"]).code, 0);
    assert_eq!(fs::read(&path).unwrap(), canned::BUNDLE);
}

#[test]
fn what_is_no_bundle_is_65_before_the_daemon_is_asked() {
    let directory = support::directory();
    let path = directory.path().join("a.fcals");
    let file = path.to_str().unwrap();
    let nobody = Path::new("/nonexistent/s");
    for (bytes, words) in
        [(&canned::BUNDLE[..700], "damaged or was cut off"), (b"{}", "not a file of exported")]
    {
        fs::write(&path, bytes).unwrap();
        let refused = run(nobody, &["import", file]);
        assert_eq!(refused.code, 65, "{}", refused.stderr);
        assert!(refused.stderr.contains(words) && refused.stderr.contains(file), "{}", refused.stderr);
    }
    let missing = run(nobody, &["import", "/nonexistent/a.fcals"]);
    assert_eq!(missing.code, 74, "{}", missing.stderr);
}

#[test]
fn without_a_daemon_that_is_said() {
    let directory = support::directory();
    let path = directory.path().join("a.fcals");
    fs::write(&path, canned::BUNDLE).unwrap();
    let out = directory.path().join("b.fcals");
    for arguments in [["import", path.to_str().unwrap()], ["export", out.to_str().unwrap()]] {
        let run = run(Path::new("/nonexistent/s"), &arguments);
        assert_eq!(run.code, 69, "{}", run.stderr);
        assert!(run.stderr.contains("fusiond is not running"), "{}", run.stderr);
    }
    assert!(!out.exists());
}

#[test]
fn what_the_daemon_refuses_is_told_in_its_words() {
    let directory = support::directory();
    let path = directory.path().join("a.fcals");
    fs::write(&path, canned::BUNDLE).unwrap();
    for (code, exit) in [(Code::FailedPrecondition, 78), (Code::NotFound, 65)] {
        let fake = Fake::start(Script { refusal: Some((code, "so it is".to_owned())), ..Script::default() });
        let run = run(&fake.path(), &["import", path.to_str().unwrap()]);
        assert_eq!((run.code, run.stderr.as_str()), (exit, "fusionctl: so it is\n"));
    }
}

#[test]
fn an_address_of_no_store_is_a_mistake() {
    let cases: [(&[&str], &str); 3] = [
        (&["export"], "FILE|URL"),
        (&["export", "ftp://host/a"], "s3://"),
        (&["import", "gopher://host/a"], "s3://"),
    ];
    if cfg!(feature = "cloud") {
        mistakes(Path::new("/nonexistent/s"), &cases);
    } else {
        mistakes(
            Path::new("/nonexistent/s"),
            &[(&["import", "s3://bucket/a"], "without the feature 'cloud'")],
        );
    }
}

#[cfg(feature = "cloud")]
mod cloud {
    //! Real servers, from PyPI and from Python itself.

    use std::io::{BufRead as _, BufReader};
    use std::path::{Path, PathBuf};
    use std::process::{Child, ChildStdout, Command, Stdio};

    use super::{TakenAs, canned, fake, support};
    use crate::runner::{Run, command};

    /// Set where the Python packages are required: `make test` installs them and says so.
    const REQUIRED: &str = "FUSION_REQUIRE_PYTHON";

    /// A server on a port of its own; ends with its standard input.
    struct Server {
        child: Child,
        address: String,
        _output: BufReader<ChildStdout>,
    }

    impl Server {
        fn start(mut python: Command) -> Self {
            let mut child = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let mut output = BufReader::new(child.stdout.take().unwrap());
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            let address = line.trim().to_owned();
            assert!(
                address.starts_with("http://127.0.0.1:"),
                "the server said '{address}' instead of its address"
            );
            Self { child, address, _output: output }
        }

        fn run(&self, socket: &Path, arguments: &[&str]) -> Run {
            let key = [("AWS_ACCESS_KEY_ID", "someone"), ("AWS_SECRET_ACCESS_KEY", "something")];
            let place = [("AWS_ENDPOINT_URL", self.address.as_str()), ("AWS_REGION", "us-east-1")];
            let environment = [("AWS_ALLOW_HTTP", "true")].into_iter().chain(key).chain(place);
            command(socket, arguments).envs(environment).output().unwrap().into()
        }
    }

    impl Drop for Server {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    fn script(name: &str) -> Command {
        let mut python = Command::new("python3");
        python.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers").join(name));
        python
    }

    /// moto's S3 with an empty bucket "team"; `None` where it isn't installed and nobody asked for it.
    fn s3() -> Option<Server> {
        let packages: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.python/site");
        if !packages.join("moto").exists() {
            assert!(std::env::var_os(REQUIRED).is_none(), "moto is missing in {}", packages.display());
            eprintln!("SKIPPED: 'cargo xtask python-deps' installs what this test needs");
            return None;
        }
        let mut python = script("s3_server.py");
        python.env("PYTHONPATH", packages);
        Some(Server::start(python))
    }

    /// Through a store that is empty: what isn't there is said, what is put is got, and nothing is replaced unasked.
    fn shared_through(scheme: &str, run: impl Fn(&Path, &[&str]) -> Run) {
        let fake = fake();
        let object = &format!("{scheme}://team/fusion/m4 pro.fcals");
        let missing = run(&fake.path(), &["import", object]);
        assert_eq!(missing.code, 74, "{}", missing.stderr);
        let nothing = format!("there is nothing at {scheme}://team/fusion");
        assert!(missing.stderr.contains(&nothing), "{}", missing.stderr);

        let out = run(&fake.path(), &["export", object, "--json"]);
        assert_eq!(out.code, 0, "{}", out.stderr);
        let location = format!("\"location\": \"{scheme}://team/fusion/m4%20pro.fcals\"");
        assert!(out.stdout.contains(&location), "{}", out.stdout);
        let back = run(&fake.path(), &["import", object]);
        assert_eq!(back.code, 0, "{}", back.stderr);
        let (how, bytes) = fake.seen.imported.lock().unwrap().take().unwrap();
        assert_eq!((how, &bytes[..]), (TakenAs::Imported, canned::BUNDLE));

        let again = run(&fake.path(), &["export", object]);
        assert_eq!(again.code, 74, "{}", again.stderr);
        assert!(again.stderr.contains("exists already: --replace"), "{}", again.stderr);
        assert_eq!(run(&fake.path(), &["export", object, "--replace"]).code, 0);
        let nowhere = run(&fake.path(), &["export", &format!("{scheme}://no-such-bucket/a")]);
        assert_eq!(nowhere.code, 74, "{}", nowhere.stderr);
        assert!(nowhere.stderr.contains("no such bucket"), "{}", nowhere.stderr);
        overtaken(scheme, &fake.path(), run);
    }

    /// The servers put the object there once it was looked for in vain: the put itself must be on condition that there is none.
    fn overtaken(scheme: &str, socket: &Path, run: impl Fn(&Path, &[&str]) -> Run) {
        let object = &format!("{scheme}://team/late.fcals");
        let late = run(socket, &["export", object]);
        assert_eq!(late.code, 74, "{}", late.stderr);
        assert!(late.stderr.contains("late.fcals exists already: --replace"), "{}", late.stderr);
        let theirs = run(socket, &["import", object]);
        assert_eq!(theirs.code, 65, "{}", theirs.stderr);
        assert!(theirs.stderr.contains("not a file of exported"), "{}", theirs.stderr);
        assert_eq!(run(socket, &["export", object, "--replace"]).code, 0);
        assert_eq!(run(socket, &["import", object]).code, 0);
    }

    #[test]
    fn a_team_shares_through_s3() {
        let Some(s3) = s3() else { return };
        shared_through("s3", |socket, arguments| s3.run(socket, arguments));
    }

    /// A server that speaks a provider's API; `None` where there is no Python and nobody asked for it.
    fn cloud(provider: &str) -> Option<Server> {
        if Command::new("python3").arg("--version").output().is_err() {
            assert!(std::env::var_os(REQUIRED).is_none(), "python3 is missing");
            eprintln!("SKIPPED: there is no python3");
            return None;
        }
        let mut python = script("cloud_server.py");
        python.arg(provider);
        Some(Server::start(python))
    }

    #[test]
    fn a_team_shares_through_google() {
        let Some(google) = cloud("google") else { return };
        let run = |token: &str, socket: &Path, arguments: &[&str]| -> Run {
            let mut command = command(socket, arguments);
            command.env("GOOGLE_BASE_URL", &google.address).env("GOOGLE_ALLOW_HTTP", "true");
            command.env("GOOGLE_BEARER_TOKEN", token).output().unwrap().into()
        };
        shared_through("gs", |socket, arguments| run("a-token", socket, arguments));
        let refused = run("another-token", &fake().path(), &["import", "gs://team/fusion/m4 pro.fcals"]);
        assert_eq!(refused.code, 74, "{}", refused.stderr);
        assert!(!refused.stderr.contains("another-token"), "{}", refused.stderr);
    }

    #[test]
    fn a_team_shares_through_azure() {
        let Some(azure) = cloud("azure") else { return };
        // The server's ACCOUNT_KEY, and another one, in base64.
        let (key, other) = ("dGhlIGtleSBvZiBzb21lb25lJ3MgYWNjb3VudA==", "YW5vdGhlciBrZXk=");
        let run = |key: &str, socket: &Path, arguments: &[&str]| -> Run {
            let mut command = command(socket, arguments);
            command.env("AZURE_STORAGE_ENDPOINT", &azure.address).env("AZURE_ALLOW_HTTP", "true");
            command.env("AZURE_STORAGE_ACCOUNT_NAME", "someone").env("AZURE_STORAGE_ACCOUNT_KEY", key);
            command.output().unwrap().into()
        };
        shared_through("az", |socket, arguments| run(key, socket, arguments));
        let refused = run(other, &fake().path(), &["import", "az://team/fusion/m4 pro.fcals"]);
        assert_eq!(refused.code, 74, "{}", refused.stderr);
        assert!(!refused.stderr.contains(other), "{}", refused.stderr);
    }

    #[test]
    fn a_web_server_is_read_from() {
        let directory = support::directory();
        std::fs::write(directory.path().join("m4-pro.fcals"), canned::BUNDLE).unwrap();
        let mut python = script("web_server.py");
        python.current_dir(directory.path());
        let (web, fake) = (Server::start(python), fake());
        let found = web.run(&fake.path(), &["import", &format!("{}/m4-pro.fcals", web.address)]);
        assert_eq!(found.code, 0, "{}", found.stderr);
        assert_eq!(fake.seen.imported.lock().unwrap().take().unwrap().1, canned::BUNDLE);
        let secret = web.address.replace("http://", "http://anna:secret@") + "/none.fcals?sig=secret";
        let missing = web.run(&fake.path(), &["import", &secret]);
        assert_eq!(missing.code, 74, "{}", missing.stderr);
        assert!(!missing.stderr.contains("secret"), "{}", missing.stderr);
        let refused = web.run(&fake.path(), &["export", &format!("{}/new.fcals", web.address)]);
        assert_eq!(refused.code, 74, "{}", refused.stderr);
    }
}
