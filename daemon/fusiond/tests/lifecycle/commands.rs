//! `fusionctl` as a process beside the daemon and attached clients: what a person sees, and what a decision does.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fusion_calibrations::engine::Engine;
use fusion_calibrations::gate::Arm;
use fusion_calibrations::live::Observation;
use fusion_calibrations::lookup::Source;
use fusion_calibrations::sample::{FinishTimes, Unit};
use fusion_client::attach::Options;
use fusion_client::v1;

use crate::attachment::attach;
use crate::gates::{self, Raw, WORKLOAD, arm, calibrated, region};
use crate::support::{Daemon, Place, eventually};

/// The `fusionctl` beside the daemon that is tested. Cargo builds it with the workspace's tests; who tests this crate alone gets the one
/// that was built last, or one that is built now.
fn program() -> PathBuf {
    let daemon = Path::new(env!("CARGO_BIN_EXE_fusiond"));
    let program = daemon.with_file_name("fusionctl");
    if !program.exists() {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let target = daemon.ancestors().nth(2).unwrap();
        let mut build = Command::new(cargo);
        build.args(["build", "--locked", "--package", "fusionctl", "--target-dir"]).arg(target);
        assert!(build.status().unwrap().success());
    }
    program
}

/// Runs it; its exit code, and what it says.
pub async fn fusionctl(daemon: &Daemon, arguments: &[&str]) -> (i32, String) {
    let mut command = Command::new(program());
    command.args(arguments).env("FUSION_SOCKET", daemon.socket.as_path()).env_remove("COLUMNS");
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    (output.status.code().unwrap(), said.concat())
}

async fn says(daemon: &Daemon, arguments: &[&str]) -> String {
    let (code, said) = fusionctl(daemon, arguments).await;
    assert_eq!(code, 0, "{arguments:?}: {said}");
    said
}

pub async fn a_person_sees_and_steers_what_attached_processes_do() {
    let place = Place::new();
    let daemon = calibrated(&place).await;
    let raw = Raw::attach(&daemon, Vec::new()).await;
    raw.proves_the_split().await;
    let (one, handle) = attach(gates::options(&place)).await;
    let own = region(&one, handle);
    eventually("the split", async || (arm(&own, 512) == Arm::Split).then_some(())).await;

    let clients = says(&daemon, &["clients", "--layers"]).await;
    // One layer is measured, with other rows than a chunk; of the other nothing is known.
    for text in
        ["a test", &std::process::id().to_string(), "idle", "1 other rows, 1 none", "2048x896x4864 f32 nk"]
    {
        assert!(clients.contains(text), "{text}: {clients}");
    }
    let busy = one.busy();
    eventually("busy", async || says(&daemon, &["clients"]).await.contains("busy").then_some(())).await;
    drop(busy);

    let list = says(&daemon, &["gates", "list"]).await;
    assert!(list.contains(WORKLOAD) && list.contains("512-639"), "{list}");
    let show = says(&daemon, &["gates", "show", WORKLOAD, "--rows", "600"]).await;
    for text in ["split, decided by measuring 1 time", "40 calls observed", "1.50 times as fast"] {
        assert!(show.contains(text), "{text}: {show}");
    }

    let locked = says(&daemon, &["gates", "lock", WORKLOAD, "eager", "--rows", "600"]).await;
    assert!(locked.contains("at 512 to 639 rows runs eager; 2 attached processes are told"), "{locked}");
    eventually("the lock", async || (arm(&own, 512) == Arm::Eager).then_some(())).await;
    assert!(says(&daemon, &["gates", "list"]).await.contains("eager"));
    says(&daemon, &["gates", "unlock", WORKLOAD]).await;
    eventually("unlocking", async || (arm(&own, 512) == Arm::Split).then_some(())).await;

    let reset = fusionctl(&daemon, &["gates", "reset", WORKLOAD]).await;
    assert!(reset.0 == 2 && reset.1.contains("add --yes"), "{reset:?}");
    let reset = says(&daemon, &["gates", "reset", WORKLOAD, "--yes"]).await;
    assert!(reset.contains("(1 region); 2 attached processes are told"), "{reset}");
    eventually("forgetting", async || (arm(&own, 512) == Arm::Eager).then_some(())).await;
    let show = says(&daemon, &["gates", "show", WORKLOAD]).await;
    assert!(show.contains("no gain is shown yet") && show.contains("3 calls to explore"), "{show}");
}

/// What answers for the only measured layer of each client, in the order of arrival.
async fn served(daemon: &Daemon) -> Vec<(Source, v1::Provenance)> {
    let client = daemon.client().await;
    let mut served = Vec::new();
    for attached in client.list_clients().await.unwrap() {
        let layers = client.client_layers(attached.number).await.unwrap().unwrap();
        assert_eq!(layers[1].source, Source::None);
        assert_eq!(attached.sources, [(layers[0].source, 1), (Source::None, 1)]);
        served.push((layers[0].source, layers[0].provenance));
    }
    served
}

pub async fn each_client_is_told_to_be_served_from_the_nearest_source() {
    let place = Place::new();
    let daemon = calibrated(&place).await;
    let options = |rows, engine| {
        let engine: Option<&str> = engine;
        let engine = engine.map(|version| Engine {
            os_build: "2".to_owned(),
            mlx_version: version.to_owned(),
            library_hash: "9".to_owned(),
        });
        Options { typical_rows: rows, engine, ..gates::options(&place) }
    };
    let (exact, handle) = attach(options(512, None)).await;
    let _other_rows = attach(options(0, None)).await;
    let _other_engine = attach(options(512, Some("9"))).await;
    let measured = v1::Provenance::Measured;
    let expected =
        [(Source::Exact, measured), (Source::OtherRows, measured), (Source::OtherEngine, measured)];
    assert_eq!(served(&daemon).await, expected);
    let clients = says(&daemon, &["clients"]).await;
    assert!(
        clients.contains("1 other engine, 1 none") && clients.contains("runs another: MLX 9"),
        "{clients}"
    );
    // A running client sees a slower secondary unit: those with its engine are told.
    let _busy = exact.busy();
    let times = FinishTimes { primary_ms: 3.41, secondary_ms: 5.13, first_waited: Unit::Primary };
    let slow = Observation { rows: 512, secondary_rows: 171, total_ms: 5.13, finish_times: times };
    let observed = v1::Provenance::Observed;
    let expected =
        [(Source::Exact, observed), (Source::OtherRows, observed), (Source::OtherEngine, measured)];
    eventually("the correction", async || {
        exact.observe(handle, slow);
        (served(&daemon).await == expected).then_some(())
    })
    .await;
}

pub async fn what_splitting_gained_is_told_with_its_basis() {
    let place = Place::new();
    let daemon = place.start("steady").await;
    assert!(says(&daemon, &["status"]).await.contains("clients     none attached"));
    let _one = attach(gates::options(&place)).await;
    assert!(says(&daemon, &["status"]).await.contains("1 attached"));
    let raw = Raw::attach(&daemon, Vec::new()).await;
    let report = |saved_ms, wants_lease| v1::GateReport {
        saved_ms,
        split_calls: 482,
        wants_lease,
        ..Default::default()
    };
    raw.report(report(12_345.0, true)).await;
    let basis = "in 482 split calls of 2 attached clients, against stock's reference times";
    let status = async || says(&daemon, &["status"]).await;
    eventually("the saving", async || status().await.contains(&format!("12.3 s {basis}")).then_some(()))
        .await;
    assert!(status().await.contains("2 attached, 0 busy; process 7 explores"), "{}", status().await);
    raw.report(report(-2_000.0, false)).await;
    eventually("the loss", async || status().await.contains(&format!("lost 2.0 s {basis}")).then_some(()))
        .await;
    let clients = says(&daemon, &["clients", "--json"]).await;
    assert!(
        clients.contains("\"saved_ms\": -2000.0") && clients.contains("\"explores\": false"),
        "{clients}"
    );
}

/// Waits until `fusionctl status` says so.
async fn status_says(daemon: &Daemon, text: &str) -> String {
    eventually(text, async || Some(says(daemon, &["status"]).await).filter(|status| status.contains(text)))
        .await
}

pub async fn a_person_sees_why_nothing_is_measured_and_decides() {
    const QUIET: &str = "thermal = 'nominal'\npower = 'ac'\ncpu_pressure = 0.0\n";
    const SHAPE: &str = "2048x4096x4096";
    let place = Place::new();
    let sensors = place.directory.path().join("sensors.toml");
    let sense = |text: &str| std::fs::write(&sensors, text).unwrap();
    let configure = |file: &str, text: &str| {
        let file = place.state().join("config").join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    };
    configure("config.toml", "[measure]\nsettle_seconds = 0\nquiet_seconds = 0\n");
    configure("shapes/mine.toml", &format!("shapes = ['{SHAPE}']\nformat = 'f16'\n"));
    sense("thermal = 'heavy'\npower = 'ac'\n");
    let mut command = Command::new(env!("CARGO_BIN_EXE_fusiond"));
    command.arg("--socket").arg(place.socket().as_path()).arg("--state-dir").arg(place.state());
    command.arg("--measuring-lock").arg(place.directory.path().join("measuring.lock"));
    command.args(["--machine", "model:m4-pro", "--sensors", &format!("scripted:{}", sensors.display())]);
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    let daemon = place.start_with(command).await;

    let hot = status_says(&daemon, "measuring   not now: the machine is hot (thermal pressure heavy)").await;
    for text in [
        "conditions  heavy, AC; for ",
        "next        2048x4096x4096 f16 nk, ",
        "stale       1 of 1 wanted shape: only the chip's prior is known",
        "config      ",
        ", 1 shape wanted",
    ] {
        assert!(hot.contains(text), "{text}: {hot}");
    }
    let metrics = says(&daemon, &["metrics"]).await;
    assert!(metrics.contains("\nfusiond_conditions{kind=\"thermal\",state=\"heavy\"} 1\n"), "{metrics}");

    // The very next look sees the change; then the planner does.
    says(&daemon, &["pause"]).await;
    sense(QUIET);
    let cool = says(&daemon, &["status"]).await;
    assert!(cool.contains("conditions  nominal, AC; for 0 s"), "{cool}");
    assert!(cool.contains("measuring   paused until 'fusionctl resume'"), "{cool}");
    says(&daemon, &["resume"]).await;
    status_says(&daemon, "stale       none of 1 wanted shape\n").await;
    let history = says(&daemon, &["history", SHAPE, "--format", "f16"]).await;
    assert!(history.ends_with("\n 1 calibration\n") && history.contains("modelled"), "{history}");

    configure("shapes/more.toml", "shapes = ['0x1x1']\n");
    let (code, refused) = fusionctl(&daemon, &["config", "reload"]).await;
    assert!(code == 78 && refused.contains("more.toml"), "{code}: {refused}");
    assert!(says(&daemon, &["status"]).await.contains(", 1 shape wanted; degraded: "));
    configure("shapes/more.toml", &format!("shapes = ['{SHAPE}']\nformat = 'bf16'\n"));
    assert!(says(&daemon, &["config", "reload"]).await.contains(", 2 shapes wanted"));
}
