//! The client against a scripted daemon over a real socket.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use fusion_calibrations::gate::Arm;
use fusion_calibrations::lookup::Source;
use fusion_client::{
    Client, ClientActivity, ClientError, Deadlines, Event, GateScope, RowRange, SocketPath, v1,
    wait_until_gone,
};
use support::{Ending, Fake, Hung, Script, canned, directory};
use tonic::Code;

async fn connect(fake: &Fake) -> Client {
    Client::connect(&fake.socket()).await.unwrap()
}

#[tokio::test]
async fn every_call_is_answered() {
    let fake = Fake::start(Script::default());
    let client = connect(&fake).await;
    let shape = canned::shape("512x896x4864");
    assert_eq!(client.get_ratio(shape, None).await.unwrap().secondary_rows, 224);
    assert_eq!(client.explain_ratio(shape, None).await.unwrap().samples.len(), 3);
    assert_eq!(client.status().await.unwrap().pid, 4242);
    assert_eq!(client.verify_store().await.unwrap().record_files, 8);
    assert_eq!(client.rebuild_store().await.unwrap().records, 8);
    assert_eq!(client.export_store("/tmp/x").await.unwrap().path, "/tmp/x");
    assert!(client.health().await.unwrap());
    let asked = fake.seen.status.lock().unwrap().clone().unwrap();
    assert_eq!((asked.client_version.as_str(), asked.client_protocol), (fusion_client::VERSION, 1));
}

#[tokio::test]
async fn a_list_goes_over_all_pages() {
    let fake = Fake::start(Script::default());
    let all = connect(&fake).await.list_ratios().collect().await.unwrap();
    assert_eq!(all, canned::estimates());
    assert_eq!(fake.seen.pages.load(std::sync::atomic::Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_calibration_ends_with_its_last_event() {
    let fake = Fake::start(Script { failing: vec![1], ..Script::default() });
    let shapes = [canned::shape("512x896x896"), canned::shape("8x8x8")];
    let mut job = connect(&fake).await.calibrate(&shapes, v1::Freshness::Remeasure, "two").await.unwrap();
    let mut events = Vec::new();
    while let Some(event) = job.next().await.unwrap() {
        events.push(event);
    }
    assert!(matches!(events.first(), Some(Event::Queued(_))), "{events:?}");
    assert!(events.iter().any(|event| matches!(event, Event::ShapeFailed(failed) if failed.index == 1)));
    assert!(matches!(events.last(), Some(Event::Finished(last)) if (last.measured, last.failed) == (1, 1)));
    let asked = fake.seen.calibrate.lock().unwrap().clone().unwrap();
    assert_eq!((asked.title.as_str(), asked.freshness()), ("two", v1::Freshness::Remeasure));
}

#[tokio::test]
async fn dropping_a_calibration_cancels_it() {
    let fake = Fake::start(Script { ending: Ending::Hang, stop_after: Some(0), ..Script::default() });
    let client = connect(&fake).await;
    let mut job = client.calibrate(&[canned::shape("8x8x8")], v1::Freshness::Reuse, "one").await.unwrap();
    assert!(job.next().await.unwrap().is_some());
    drop(job);
    // The connection is driven by this runtime: let it say so.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(fake.seen.wait_for_cancel());
    client.status().await.unwrap();
}

#[tokio::test]
async fn a_daemon_that_dies_in_the_middle_is_a_lost_connection() {
    for (ending, stop_after) in [(Ending::Die, 1), (Ending::Close, 1)] {
        let fake = Fake::start(Script { ending, stop_after: Some(stop_after), ..Script::default() });
        let shapes = [canned::shape("8x8x8"), canned::shape("9x9x9")];
        let client = connect(&fake).await;
        let mut job = client.calibrate(&shapes, v1::Freshness::Reuse, "two").await.unwrap();
        let error = loop {
            match job.next().await {
                Ok(event) => assert!(event.is_some(), "ended well"),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, ClientError::Lost { .. }), "{error:?}");
        assert!(error.to_string().contains("what was acknowledged is kept"), "{error}");
        // Only once.
        assert!(job.next().await.unwrap().is_none());
        if ending == Ending::Die {
            let error = client.status().await.unwrap_err();
            assert!(matches!(error, ClientError::NotRunning { .. } | ClientError::Lost { .. }), "{error:?}");
            let error = client.status().await.unwrap_err();
            assert!(matches!(error, ClientError::NotRunning { .. }), "{error:?}");
        }
    }
}

#[tokio::test]
async fn without_a_daemon_it_is_said_where_and_what_to_do() {
    let directory = directory();
    let path = directory.path().join("s");
    let socket = SocketPath::new(&path).unwrap();
    let error = Client::connect(&socket).await.unwrap_err();
    assert!(matches!(error, ClientError::NotRunning { because: "no socket", .. }), "{error:?}");
    assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    assert!(error.to_string().contains("start it with 'fusionctl start' where it is installed"), "{error}");

    // A socket that its daemon left behind.
    drop(UnixListener::bind(&path).unwrap());
    let error = Client::connect(&socket).await.unwrap_err();
    assert!(matches!(error, ClientError::NotRunning { because: "nobody listens", .. }), "{error:?}");

    // A file that is no socket.
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "").unwrap();
    let error = Client::connect(&socket).await.unwrap_err();
    assert!(matches!(error, ClientError::NotRunning { .. } | ClientError::Socket { .. }), "{error:?}");
}

#[tokio::test]
async fn a_hung_daemon_costs_a_second() {
    let hung = Hung::start();
    let start = Instant::now();
    let error = Client::connect(&hung.socket()).await.unwrap_err();
    assert!(matches!(error, ClientError::NotAnswering { .. }), "{error:?}");
    assert!(error.to_string().contains("within 1 s"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}

#[tokio::test]
async fn another_protocol_can_be_looked_at_and_stopped_only() {
    for (version, protocol, remedy) in
        [("0.0.1", 0, "put this version in place with 'fusionctl install'"), ("9.0.0", 9, "update fusionctl")]
    {
        let fake = Fake::start(Script { version, protocol, ..Script::default() });
        let client = connect(&fake).await;
        assert_eq!(client.daemon().version, version);
        client.status().await.unwrap();
        let error = client.get_ratio(canned::shape("8x8x8"), None).await.unwrap_err();
        assert!(matches!(error, ClientError::Protocol { .. }), "{error:?}");
        assert!(error.to_string().contains(remedy) && error.to_string().contains(version), "{error}");
        let error = client.list_ratios().collect().await.unwrap_err();
        assert!(matches!(error, ClientError::Protocol { .. }), "{error:?}");
        client.drain("test").await.unwrap();
    }
}

#[tokio::test]
async fn the_daemons_words_arrive() {
    type Expected = fn(&ClientError) -> bool;
    let cases: [(Code, Expected); 10] = [
        (Code::InvalidArgument, |e| matches!(e, ClientError::InvalidArgument(_))),
        (Code::FailedPrecondition, |e| matches!(e, ClientError::FailedPrecondition(_))),
        (Code::ResourceExhausted, |e| matches!(e, ClientError::ResourceExhausted(_))),
        (Code::Aborted, |e| matches!(e, ClientError::Busy(_))),
        (Code::Cancelled, |e| matches!(e, ClientError::Cancelled(_))),
        (Code::AlreadyExists, |e| matches!(e, ClientError::AlreadyExists(_))),
        (Code::DataLoss, |e| matches!(e, ClientError::Store(_))),
        (Code::Unavailable, |e| matches!(e, ClientError::Draining { .. })),
        (Code::OutOfRange, |e| matches!(e, ClientError::TooLarge(_))),
        (Code::Internal, |e| matches!(e, ClientError::Other { .. })),
    ];
    for (code, expected) in cases {
        let fake = Fake::start(Script { refusal: Some((code, "so it is".to_owned())), ..Script::default() });
        let error = connect(&fake).await.get_ratio(canned::shape("8x8x8"), None).await.unwrap_err();
        assert!(expected(&error), "{code:?} became {error:?}");
        assert!(error.to_string().contains("so it is"), "{error}");
    }
}

#[tokio::test]
async fn a_message_over_the_limit_is_refused() {
    let mut estimates = canned::estimates();
    estimates[0].stale_reason = "x".repeat(2 << 20);
    let fake = Fake::start(Script { estimates, ..Script::default() });
    let error = connect(&fake).await.list_ratios().collect().await.unwrap_err();
    assert!(matches!(error, ClientError::TooLarge(_)), "{error:?}");
}

#[tokio::test]
async fn a_drained_daemon_is_waited_for() {
    let fake = Fake::start(Script::default());
    let reply = connect(&fake).await.drain("enough").await.unwrap();
    assert!(wait_until_gone(&fake.socket(), Duration::from_millis(reply.deadline_ms.into())).await);
    assert_eq!(fake.seen.drain.lock().unwrap().as_deref(), Some("enough"));
    let stubborn = Fake::start(Script { stubborn: true, ..Script::default() });
    connect(&stubborn).await.drain("enough").await.unwrap();
    assert!(!wait_until_gone(&stubborn.socket(), Duration::from_millis(100)).await);
}

#[tokio::test]
async fn deadlines_are_ones_own() {
    let hung = Hung::start();
    let deadlines = Deadlines { connect: Duration::from_millis(50), ..Deadlines::default() };
    let error = Client::connect_with(&hung.socket(), deadlines).await.unwrap_err();
    assert!(error.to_string().contains("within 0.05 s"), "{error}");
}

#[tokio::test]
async fn a_daemon_that_freezes_in_the_middle_is_noticed() {
    let fake = Fake::start(Script { ending: Ending::Freeze, stop_after: Some(0), ..Script::default() });
    let brief = Duration::from_millis(100);
    let deadlines = Deadlines { keep_alive: brief, keep_alive_answer: brief, ..Deadlines::default() };
    let client = Client::connect_with(&fake.socket(), deadlines).await.unwrap();
    let mut job = client.calibrate(&[canned::shape("8x8x8")], v1::Freshness::Reuse, "one").await.unwrap();
    let start = Instant::now();
    let error = loop {
        match job.next().await {
            Ok(event) => assert!(event.is_some(), "ended well"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, ClientError::Lost { .. }), "{error:?}");
    assert!(start.elapsed() < Duration::from_millis(1500), "{:?}", start.elapsed());
}

#[tokio::test]
async fn gates_are_listed_reset_and_locked() {
    let fake = Fake::start(Script::default());
    let client = connect(&fake).await;
    let all = client.list_gates(None).await.unwrap();
    assert_eq!((all.regions.len(), all.locks.len()), (3, 2));
    let workload = "a prefill".parse().unwrap();
    let known = client.list_gates(Some(&workload)).await.unwrap();
    assert_eq!((known.regions.len(), known.locks.len()), (2, 0));
    let split = &known.regions[1];
    assert_eq!((split.rows, split.state.standing.arm), (RowRange::around(512), Arm::Split));
    assert!((split.middle_ms(Arm::Split).unwrap() - 3.82).abs() < 1e-9);
    let scope = GateScope { workload, rows: Some(RowRange::around(600)) };
    let forgotten = client.reset_gate(&scope).await.unwrap();
    assert_eq!((forgotten.regions, forgotten.clients), (2, 2));
    let asked = fake.seen.reset.lock().unwrap().clone().unwrap();
    assert_eq!((asked.workload.as_str(), asked.rows), ("a prefill", Some(512)));
    for (arm, wire) in [(Some(Arm::Eager), v1::Arm::Eager), (None, v1::Arm::Unspecified)] {
        let told = match arm {
            Some(arm) => client.lock_gate(&scope, arm).await,
            None => client.unlock_gate(&scope).await,
        };
        assert_eq!(told.unwrap(), 2);
        let asked = fake.seen.lock.lock().unwrap().clone().unwrap();
        assert_eq!((asked.arm(), asked.rows), (wire, Some(512)));
    }
}

#[tokio::test]
async fn clients_are_listed_and_their_layers_on_request() {
    let fake = Fake::start(Script::default());
    let client = connect(&fake).await;
    let attached = client.list_clients().await.unwrap();
    assert_eq!((attached[0].pid, attached[0].activity), (4711, ClientActivity::Busy));
    assert_eq!(attached[0].sources, [(Source::Exact, 1), (Source::OtherRows, 1), (Source::None, 1)]);
    assert_eq!((attached[1].saved_ms, attached[1].split_calls), (-321.0, 12));
    let layers = client.client_layers(attached[0].number).await.unwrap().unwrap();
    assert_eq!((layers.len(), layers[1].source, layers[1].shape.rows()), (3, Source::OtherRows, 512));
    assert_eq!(client.client_layers(99).await.unwrap(), None);
}

#[tokio::test]
async fn an_answer_that_cannot_be_is_an_error() {
    let mut script = Script::default();
    script.gates.states[0].regions[0].standing = 9;
    script.clients[0].saved_ms = f64::INFINITY;
    let fake = Fake::start(script);
    let client = connect(&fake).await;
    let error = client.list_gates(None).await.unwrap_err();
    assert!(matches!(error, ClientError::Nonsense(_)), "{error:?}");
    assert!(error.to_string().contains("'standing' can't be 9"), "{error}");
    let error = client.list_clients().await.unwrap_err();
    assert!(error.to_string().contains("'saved_ms' can't be inf"), "{error}");
}
