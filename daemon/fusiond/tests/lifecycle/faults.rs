//! Bad input and broken parts: one clear message each, and nothing lost.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

use fusion_client::ClientError;
use fusion_client::v1;
use tonic::Code;

use crate::serving::raw_ratios;
use crate::support::{Place, collect, copy_program, entry, eventually, failures, shape, tally};

fn wire(rows: u32, inputs: u32, outputs: u32, format: &str, layout: &str) -> v1::GetRatioRequest {
    let layer = v1::Layer { inputs, outputs, format: format.to_owned(), layout: layout.to_owned() };
    v1::GetRatioRequest { shape: Some(v1::Shape { rows, layer: Some(layer) }), engine: None }
}

pub async fn impossible_requests_are_refused_by_name() {
    let place = Place::new();
    let daemon = place.start("steady").await;
    let mut ratios = raw_ratios(&daemon.socket).await;
    let cases = [
        (wire(0, 1, 1, "f32", ""), "rows is 0"),
        (wire(1, 0, 1, "f32", ""), "inputs is 0"),
        (wire(1, 1, u32::MAX, "f32", ""), "outputs is 4294967295"),
        (wire(1, 1, 1, "f64", ""), "unknown weight format 'f64'"),
        (wire(1, 1, 1, "f32", "nn"), "unknown layout 'nn'"),
        (v1::GetRatioRequest::default(), "'shape' is missing"),
    ];
    for (request, message) in cases {
        let status = ratios.get_ratio(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(message), "{}", status.message());
    }
    let token = v1::ListRatiosRequest { page_size: 1, page_token: "not ours".to_owned() };
    assert_eq!(ratios.list_ratios(token).await.unwrap_err().code(), Code::InvalidArgument);
    let client = daemon.client().await;
    let nothing = client.calibrate(&[], v1::Freshness::Reuse, "").await.unwrap_err();
    assert!(matches!(nothing, ClientError::InvalidArgument(_)), "{nothing}");
    let relative = client.export_store("here").await.unwrap_err();
    assert!(matches!(&relative, ClientError::InvalidArgument(message) if message.contains("not absolute")));
}

pub async fn an_oversized_message_is_refused() {
    let place = Place::new();
    let daemon = place.start("steady").await;
    let mut ratios = raw_ratios(&daemon.socket).await;
    let request = v1::ListRatiosRequest { page_size: 1, page_token: "0".repeat(2 << 20) };
    let status = ratios.list_ratios(request).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status}");
    daemon.client().await.status().await.unwrap();
}

pub async fn garbage_on_the_socket_harms_nobody() {
    let place = Place::new();
    let daemon = place.start("steady").await;
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 4096], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0"]
    {
        let mut stream = UnixStream::connect(place.socket().as_path()).unwrap();
        let _ = stream.write_all(garbage);
    }
    daemon.client().await.status().await.unwrap();
}

pub async fn a_second_daemon_names_the_first() {
    let place = Place::new();
    let daemon = place.start("steady").await;
    let (code, message) = place.fails(place.command("steady"));
    assert_eq!(code, 75);
    assert!(message.contains(&format!("process {}", daemon.child.id())), "{message}");
    assert!(message.contains("fusionctl stop"), "{message}");
    daemon.client().await.status().await.unwrap();
}

pub async fn a_missing_worker_is_no_end() {
    let place = Place::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fusiond"));
    command.arg("--socket").arg(place.socket().as_path()).arg("--state-dir").arg(place.state());
    command.args(["--worker", "/nonexistent/fusion-worker"]);
    let daemon = place.start_with(command).await;
    let client = daemon.client().await;
    let error = collect(&client, &[shape("64x64x64")], v1::Freshness::Reuse).await.unwrap_err();
    assert!(
        matches!(&error, ClientError::FailedPrecondition(message) if message.contains("/nonexistent/fusion-worker") && message.contains("--worker")),
        "{error}"
    );
    let worker = client.status().await.unwrap().worker.unwrap();
    assert_eq!(worker.health(), v1::Health::Failed);
    let answer = client.get_ratio(shape("64x64x64"), None).await.unwrap();
    assert_eq!((answer.source(), answer.secondary_rows), (v1::Source::None, 0));
}

pub async fn a_dying_worker_is_a_result() {
    let place = Place::new();
    let daemon = place.start("dies-late").await;
    let events = daemon.calibrate(&["64x64x64"]).await;
    assert_eq!(tally(&events), (0, 0, 1));
    let reason = &failures(&events)[0];
    assert!(reason.contains("signal 6") && reason.contains("Insufficient Memory"), "{reason}");
    let status = daemon.client().await.status().await.unwrap();
    assert_eq!(status.last_job.unwrap().outcome, "finished, 1 shapes failed");
    assert!(status.worker.unwrap().detail.contains("Insufficient Memory"));
}

pub async fn a_dead_worker_is_remembered_when_the_next_is_well() {
    let place = Place::new();
    let deadly = place.state().with_extension("deadly");
    std::fs::write(&deadly, "").unwrap();
    let daemon = place.start(&format!("dies-if:{}", deadly.display())).await;
    assert_eq!(tally(&daemon.calibrate(&["64x64x64"]).await), (0, 0, 1));
    std::fs::remove_file(&deadly).unwrap();
    assert_eq!(tally(&daemon.calibrate(&["64x64x64"]).await), (1, 0, 0));
    let status = daemon.client().await.status().await.unwrap();
    assert_eq!(status.worker.unwrap().health(), v1::Health::Ok);
    let trouble = status.last_worker_trouble.unwrap();
    assert!(trouble.reason.contains("signal 6") && trouble.at_unix_ms > 0, "{trouble:?}");
}

pub async fn worker_after_worker_dies() {
    let place = Place::new();
    let daemon = place.start("dies").await;
    let client = daemon.client().await;
    let shapes: Vec<_> = (1..=6).map(|index| shape(&format!("{}x64x64", index * 64))).collect();
    let error = collect(&client, &shapes, v1::Freshness::Reuse).await.unwrap_err();
    assert!(
        matches!(&error, ClientError::FailedPrecondition(message) if message.contains("3 workers in a row"))
    );
    client.status().await.unwrap();
}

pub async fn a_hanging_worker_is_ended() {
    let place = Place::new();
    let mut command = place.command("hangs");
    command.args(["--worker-limit", "1"]);
    let daemon = place.start_with(command).await;
    let events = daemon.calibrate(&["64x64x64"]).await;
    assert!(failures(&events)[0].contains("did not answer within 1 s"), "{:?}", failures(&events));
    eventually("the worker's end", async || daemon.children().is_empty().then_some(())).await;
}

pub async fn a_worker_of_another_protocol_is_refused() {
    refused_worker("old", "speaks frame protocol 0").await;
}

pub async fn a_worker_that_speaks_no_frames_is_refused() {
    refused_worker("babbles", "speaks no frames").await;
}

async fn refused_worker(script: &str, message: &str) {
    let place = Place::new();
    let daemon = place.start(script).await;
    let client = daemon.client().await;
    let error = collect(&client, &[shape("64x64x64")], v1::Freshness::Reuse).await.unwrap_err();
    assert!(matches!(&error, ClientError::FailedPrecondition(text) if text.contains(message)), "{error}");
}

pub async fn a_wrong_product_is_not_stored() {
    let place = Place::new();
    let daemon = place.start("wrong").await;
    let events = daemon.calibrate(&["64x64x64"]).await;
    assert!(failures(&events)[0].contains("differs from the unsplit one"), "{:?}", failures(&events));
    assert_eq!(daemon.client().await.status().await.unwrap().store.unwrap().estimates, 0);
}

pub async fn a_shape_larger_than_memory_is_refused() {
    let place = Place::new();
    let daemon = place.start("steady").await;
    let client = daemon.client().await;
    let huge = shape("16777216x16777216x16777216");
    let error = collect(&client, &[shape("64x64x64"), huge], v1::Freshness::Reuse).await.unwrap_err();
    assert!(
        matches!(&error, ClientError::ResourceExhausted(message) if message.contains("16777216x16777216x16777216") && message.contains("MiB")),
        "{error}"
    );
}

pub async fn a_refusal_concerns_one_shape() {
    let place = Place::new();
    let daemon = place.start("refuses").await;
    let events = daemon.calibrate(&["65x64x64", "64x64x64"]).await;
    assert_eq!(tally(&events), (1, 0, 1));
    assert!(failures(&events)[0].contains("an odd number of rows"));
}

/// Needs to be root, to become somebody else.
pub async fn a_foreign_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can connect as another user");
        return;
    }
    let place = Place::new();
    let daemon = place.start("steady").await;
    // Opened on purpose: the directory's mode would keep others out before the daemon sees them.
    for (path, mode) in [(place.directory.path(), 0o755), (place.socket().as_path().parent().unwrap(), 0o755)]
    {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    std::fs::set_permissions(place.socket().as_path(), std::fs::Permissions::from_mode(0o666)).unwrap();
    let copy = place.directory.path().join("fusiond-tests");
    copy_program(std::env::current_exe().unwrap(), &copy);
    let output = Command::new(&copy)
        .args(["--ask-status", place.socket().as_path().to_str().unwrap()])
        .uid(65534)
        .current_dir("/")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        said.contains("PermissionDenied: this fusiond serves user 0, you are user 65534"),
        "{said} {output:?}"
    );
    daemon.client().await.status().await.unwrap();
}

/// The other side of [`a_foreign_user_is_refused`]: says what the daemon answers.
pub async fn ask_status(socket: &str) {
    // The typed client would notice by itself that the daemon is another user's.
    let channel =
        tonic::transport::Endpoint::try_from(format!("unix://{socket}")).unwrap().connect().await.unwrap();
    let mut control = v1::control_client::ControlClient::new(channel);
    match control.get_status(v1::GetStatusRequest::default()).await {
        Ok(_) => println!("admitted"),
        Err(status) => println!("{:?}: {}", status.code(), status.message()),
    }
}

pub async fn a_socket_path_that_is_too_long_is_refused() {
    let place = Place::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fusiond"));
    command
        .arg("--state-dir")
        .arg(place.state())
        .arg("--socket")
        .arg(format!("/tmp/{}/x.sock", "a".repeat(120)));
    command.stderr(std::process::Stdio::piped());
    let (code, message) = place.fails(command);
    assert_eq!(code, 78);
    assert!(message.contains("holds 103"), "{message}");
}

pub async fn a_state_directory_that_cannot_be_is_named() {
    let place = Place::new();
    let file = place.directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fusiond"));
    command.arg("--socket").arg(place.socket().as_path()).arg("--state-dir").arg(file.join("state"));
    command.stderr(std::process::Stdio::piped());
    let (code, message) = place.fails(command);
    assert_eq!(code, 73);
    assert!(message.contains("--state-dir") && message.contains("file/state"), "{message}");
    assert!(!place.socket().as_path().exists());
}

pub async fn a_corrupted_index_is_set_aside_and_rebuilt() {
    let place = Place::new();
    let mut daemon = place.start("steady").await;
    daemon.calibrate(&["64x64x64", "128x64x64"]).await;
    daemon.signal("-TERM");
    daemon.ended().await;
    let index = place.state().join("store/db");
    let mut bytes = std::fs::read(&index).unwrap();
    bytes.iter_mut().for_each(|byte| *byte ^= 0x55);
    std::fs::write(&index, bytes).unwrap();
    let daemon = place.start("steady").await;
    let client = daemon.client().await;
    let store = client.status().await.unwrap().store.unwrap();
    let state = store.state.unwrap();
    assert_eq!((store.estimates, state.health()), (2, v1::Health::Degraded));
    assert!(state.detail.contains("store.corrupt-"), "{}", state.detail);
    assert!(entry(&place.state(), "store.corrupt-").is_dir());
    let verified = client.verify_store().await.unwrap();
    assert!(verified.problems.is_empty(), "{:?}", verified.problems);
    assert_eq!(verified.set_aside.len(), 1);
    let answer = client.get_ratio(shape("128x64x64"), None).await.unwrap();
    assert_eq!(answer.source(), v1::Source::Exact);
}
