//! Gates of several processes: what one learns the others know, one explores at a time, and a person has the last word.

use std::time::{Duration, Instant};

use fusion_calibrations::engine::Engine;
use fusion_calibrations::gate::{Arm, ArmSet, ArmState, Bucket, Level, RegionKey, RegionState, Standing};
use fusion_client::attach::{Attachment, Basis, LayerHandle, Options, RegionHandle};
use fusion_client::v1;
use fusion_client::v1::attach_reply::Message as Told;
use fusion_client::v1::attach_request::Message as Said;
use fusion_client::v1::attachment_client::AttachmentClient;
use fusion_client::v1::gates_client::GatesClient;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Streaming};

use crate::attachment::{self, attach, clients};
use crate::support::{Daemon, Place, entry, eventually, shape};

pub const WORKLOAD: &str = "a prefill";

/// Patient ones: what the daemon knows is asked for, not what its file says.
pub fn options(place: &Place) -> Options {
    Options { limit: Duration::from_secs(20), ..attachment::options(place) }
}

pub fn region(attachment: &Attachment, layer: LayerHandle) -> RegionHandle {
    attachment.region(WORKLOAD, ArmSet::mlx_lm(), &[(layer, 1)], 0.0)
}

/// The arm that a call of so many rows would get.
pub fn arm(region: &RegionHandle, rows: u32) -> Arm {
    let call = region.begin(rows);
    let arm = call.arm();
    call.abandon();
    arm
}

/// Calls of so many rows that take as long.
fn run(region: &RegionHandle, rows: u32, calls: usize, time: Duration) {
    for _ in 0..calls {
        let call = region.begin(rows);
        std::thread::sleep(time);
        call.end();
    }
}

fn observations(attachment: &Attachment, region: &RegionHandle, rows: u32, arm: Arm) -> u64 {
    let explanation = attachment.explain(region, rows).unwrap();
    explanation.arms.iter().find(|known| known.arm == arm).unwrap().observations
}

/// A client that speaks by hand.
pub struct Raw {
    say: mpsc::Sender<v1::AttachRequest>,
    told: Streaming<v1::AttachReply>,
    snapshot: v1::Snapshot,
}

impl Raw {
    pub async fn attach(daemon: &Daemon, layers: Vec<v1::Layer>) -> Self {
        let (say, requests) = mpsc::channel(16);
        let hello = v1::Hello { pid: 7, protocol: fusion_client::PROTOCOL, layers, ..Default::default() };
        say.send(v1::AttachRequest { message: Some(Said::Hello(hello)) }).await.unwrap();
        let mut client = AttachmentClient::connect(format!("unix://{}", daemon.socket)).await.unwrap();
        let mut told = client.attach(ReceiverStream::new(requests)).await.unwrap().into_inner();
        let Some(v1::AttachReply { message: Some(Told::Snapshot(snapshot)) }) = told.message().await.unwrap()
        else {
            panic!("no snapshot")
        };
        Self { say, told, snapshot }
    }

    pub async fn report(&self, report: v1::GateReport) {
        self.say.send(v1::AttachRequest { message: Some(Said::GateReport(report)) }).await.unwrap();
    }

    async fn delta(&mut self) -> v1::Delta {
        let told = tokio::time::timeout(Duration::from_secs(60), self.told.message());
        match told.await.expect("nothing was told").unwrap().unwrap().message.unwrap() {
            Told::Delta(delta) => delta,
            other => panic!("{other:?}"),
        }
    }

    /// Reports that the split won at 512 rows, as if that had been measured.
    pub async fn proves_the_split(&self) {
        let engine = Engine::from(self.snapshot.engine.clone().unwrap()).key();
        let level = |ms: f64| Some(Level { value: (ms / 512.0).ln(), deviation: 0.015, count: 16 });
        let arm = |level| ArmState { observations: 40, explored: 3, level, ..ArmState::default() };
        let region = RegionState {
            key: RegionKey {
                workload: WORKLOAD.to_owned(),
                bucket: Bucket::of(512),
                conditions: self.snapshot.conditions.as_ref().unwrap().into(),
            },
            arms: [arm(level(3.4)), arm(None), arm(level(5.1))],
            standing: Standing { arm: Arm::Split, changes: 1 },
        };
        let state =
            v1::GateState { engine_key: engine, regions: vec![(&region).into()], ..Default::default() };
        self.report(v1::GateReport { state: Some(state), ..Default::default() }).await;
    }
}

async fn gates(daemon: &Daemon) -> GatesClient<Channel> {
    GatesClient::connect(format!("unix://{}", daemon.socket)).await.unwrap()
}

async fn known(daemon: &Daemon) -> v1::ListGatesReply {
    gates(daemon).await.list_gates(v1::ListGatesRequest::default()).await.unwrap().into_inner()
}

/// A daemon that knows the layer's lines.
pub async fn calibrated(place: &Place) -> Daemon {
    let daemon = place.start("steady").await;
    daemon.calibrate(&["512x896x4864"]).await;
    daemon
}

pub async fn the_first_call_of_a_region_follows_the_stored_lines() {
    let place = Place::new();
    let _daemon = calibrated(&place).await;
    let (attachment, handle) = attach(options(&place)).await;
    let known = region(&attachment, handle);
    // 512 rows would win 1 or 2 ms, if that: too little to go by lines alone.
    assert_eq!((arm(&known, 4096), arm(&known, 512)), (Arm::Split, Arm::Eager));
    assert_eq!((arm(&known, 1), arm(&known, 40)), (Arm::Eager, Arm::Eager));
    let unknown = attachment.layer(shape("1x64x64").layer()).unwrap();
    let unknown = attachment.region("another", ArmSet::mlx_lm(), &[(unknown, 9)], 0.0);
    assert_eq!(arm(&unknown, 4096), Arm::Eager);
    // What isn't split makes the gain small.
    let diluted = attachment.region("a third", ArmSet::mlx_lm(), &[(handle, 1)], 1e4);
    assert_eq!(arm(&diluted, 4096), Arm::Eager);
    // Lines of another engine are a prior: stock first.
    let mut foreign = options(&place);
    foreign.engine =
        Some(Engine { os_build: "2".to_owned(), mlx_version: "9".to_owned(), library_hash: "9".to_owned() });
    let (attachment, handle) = attach(foreign).await;
    assert!(attachment.secondary_rows(handle, 4096) > 0);
    assert_eq!(arm(&region(&attachment, handle), 4096), Arm::Eager);
}

pub async fn what_one_process_learned_the_next_one_knows() {
    let place = Place::new();
    let daemon = calibrated(&place).await;
    let (first, handle) = attach(options(&place)).await;
    let own = region(&first, handle);
    run(&own, 512, 8, Duration::from_millis(5));
    assert_eq!(observations(&first, &own, 512, Arm::Eager), 7, "the first is not trusted");
    // A short life: its last words count.
    drop((first, own));
    eventually("the report", async || (!known(&daemon).await.states.is_empty()).then_some(())).await;
    let (second, handle) = attach(options(&place)).await;
    let kept = region(&second, handle);
    assert_eq!(arm(&kept, 512), Arm::Eager);
    assert_eq!(observations(&second, &kept, 512, Arm::Eager), 7);
    assert!(second.explain(&kept, 512).unwrap().reference_ms.is_some_and(|ms| ms >= 5.0));
    // What another one proves meanwhile is told at once, and the next process begins with it.
    let raw = Raw::attach(&daemon, Vec::new()).await;
    raw.proves_the_split().await;
    eventually("the split", async || (arm(&kept, 512) == Arm::Split).then_some(())).await;
    let (third, handle) = attach(options(&place)).await;
    assert_eq!(arm(&region(&third, handle), 512), Arm::Split);
}

/// Waits until the snapshot file says that the split stands.
async fn written(place: &Place) {
    let file = place.state().join("snapshot.fsnp");
    eventually("the file", async || {
        let snapshot = fusion_proto::snapshot::decode(&std::fs::read(&file).ok()?).ok()?;
        (!snapshot.gates.is_empty()).then_some(())
    })
    .await;
}

pub async fn what_gates_learned_survives_the_daemon() {
    let place = Place::new();
    let mut daemon = calibrated(&place).await;
    let raw = Raw::attach(&daemon, Vec::new()).await;
    raw.proves_the_split().await;
    written(&place).await;
    daemon.signal("-KILL");
    daemon.ended().await;
    let (alone, handle) = attach(attachment::options(&place)).await;
    assert_eq!((alone.basis(), arm(&region(&alone, handle), 512)), (Basis::Snapshot, Arm::Split));
    let mut daemon = place.start("steady").await;
    let (attached, handle) = attach(options(&place)).await;
    assert_eq!((attached.basis(), arm(&region(&attached, handle), 512)), (Basis::Attached, Arm::Split));
    daemon.signal("-TERM");
    daemon.ended().await;
    let daemon = place.start("steady").await;
    assert_eq!(known(&daemon).await.states[0].regions.len(), 1);
}

pub async fn a_damaged_file_restores_nothing() {
    let place = Place::new();
    let mut daemon = calibrated(&place).await;
    let raw = Raw::attach(&daemon, Vec::new()).await;
    raw.proves_the_split().await;
    written(&place).await;
    daemon.signal("-KILL");
    daemon.ended().await;
    let file = place.state().join("snapshot.fsnp");
    let mut bytes = std::fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let mut daemon = place.start("steady").await;
    assert_eq!(known(&daemon).await, v1::ListGatesReply::default());
    daemon.signal("-TERM");
    daemon.ended().await;
    let log = std::fs::read_to_string(entry(&place.state().join("logs"), "fusiond.")).unwrap();
    assert!(log.contains("what gates learned is lost"), "{log}");
}

pub async fn calls_beside_a_busy_process_teach_nothing() {
    let place = Place::new();
    let daemon = calibrated(&place).await;
    let (one, handle) = attach(options(&place)).await;
    let (two, _) = attach(options(&place)).await;
    let one_region = region(&one, handle);
    let (_one_busy, two_busy) = (one.busy(), two.busy());
    let busy =
        async || clients(&daemon).await.iter().all(|client| client.activity() == v1::ActivityState::Busy);
    eventually("both being busy", async || busy().await.then_some(())).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    run(&one_region, 512, 8, Duration::from_millis(5));
    assert_eq!(observations(&one, &one_region, 512, Arm::Eager), 0);
    drop(two_busy);
    let rest =
        async || clients(&daemon).await.iter().any(|client| client.activity() == v1::ActivityState::Idle);
    eventually("one resting", async || rest().await.then_some(())).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    run(&one_region, 512, 8, Duration::from_millis(5));
    assert!(observations(&one, &one_region, 512, Arm::Eager) >= 7);
}

pub async fn an_exploring_client_holds_the_only_lease() {
    let place = Place::new();
    let daemon = calibrated(&place).await;
    let (one, handle) = attach(options(&place)).await;
    let own = region(&one, handle);
    // Once stock is known, a split that the lines don't rule out is worth a try; but only with a lease.
    let until = Instant::now() + Duration::from_secs(30);
    let mut explored = false;
    while !explored && Instant::now() < until {
        let call = own.begin(512);
        explored = call.explores();
        assert!(!explored || call.arm() == Arm::Split);
        tokio::time::sleep(Duration::from_millis(5)).await;
        call.end();
    }
    assert!(explored);
    assert!(clients(&daemon).await[0].explores);
    let status = daemon.client().await.status().await.unwrap().clients.unwrap();
    assert_eq!((status.attached, status.exploring_pid), (1, std::process::id()));
    // Without a daemon nobody explores.
    drop(daemon);
    eventually("noticing", async || (one.basis() == Basis::Snapshot).then_some(())).await;
    for _ in 0..20 {
        let call = own.begin(512);
        assert!(!call.explores());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// As in a program that answers one prompt after the other: each call is decided before an answer to its wish could come.
pub async fn a_client_that_makes_a_call_now_and_then_explores_too() {
    let place = Place::new();
    let daemon = calibrated(&place).await;
    let (one, handle) = attach(options(&place)).await;
    let own = region(&one, handle);
    let until = Instant::now() + Duration::from_secs(60);
    let explored = loop {
        let call = own.begin(512);
        if call.explores() || Instant::now() > until {
            break call.explores();
        }
        std::thread::sleep(Duration::from_millis(5));
        call.end();
        eventually("resting", async || {
            let clients = clients(&daemon).await;
            (clients[0].activity() == v1::ActivityState::Idle).then_some(())
        })
        .await;
    };
    assert!(explored);
}

fn wants() -> v1::GateReport {
    v1::GateReport { wants_lease: true, time_ms: 1000.0, ..Default::default() }
}

/// Two clients, of which the first one holds the lease.
async fn holder_and_other(daemon: &Daemon) -> (Raw, Raw) {
    let mut holder = Raw::attach(daemon, Vec::new()).await;
    holder.report(wants()).await;
    assert!(holder.delta().await.gate_lease.unwrap().ms > 100.0);
    (holder, Raw::attach(daemon, Vec::new()).await)
}

pub async fn a_lease_is_taken_from_a_client_that_rests() {
    let place = Place::new();
    let daemon = calibrated(&place).await;
    let (mut one, mut two) = holder_and_other(&daemon).await;
    for _ in 0..4 {
        two.report(wants()).await;
    }
    assert!(two.delta().await.gate_lease.unwrap().ms > 100.0);
    assert_eq!(one.delta().await.gate_lease.unwrap().ms.to_bits(), 0.0_f64.to_bits());
}

pub async fn a_lease_comes_back_when_its_holder_leaves() {
    let place = Place::new();
    let daemon = calibrated(&place).await;
    let (one, mut two) = holder_and_other(&daemon).await;
    two.report(wants()).await;
    assert!(tokio::time::timeout(Duration::from_millis(300), two.delta()).await.is_err());
    drop(one);
    eventually("the end", async || (clients(&daemon).await.len() == 1).then_some(())).await;
    two.report(wants()).await;
    assert!(two.delta().await.gate_lease.is_some());
    assert!(clients(&daemon).await[0].explores);
    two.report(v1::GateReport::default()).await;
    eventually("giving it back", async || (!clients(&daemon).await[0].explores).then_some(())).await;
}

/// A daemon that died would come back with what it had leased.
pub async fn nobody_explores_while_that_cant_be_written_down() {
    let place = Place::new();
    let daemon = calibrated(&place).await;
    let (mut holder, _) = holder_and_other(&daemon).await;
    let in_the_way = fusion_proto::state::snapshot_file(&place.state()).with_extension("tmp");
    eventually("no write under way", async || std::fs::create_dir(&in_the_way).ok()).await;
    let something = v1::LockGateRequest { workload: "another".to_owned(), rows: None, arm: 1 };
    gates(&daemon).await.lock_gate(something).await.unwrap();
    // The holder is told, and asks in vain.
    while holder.delta().await.gate_lease.is_none_or(|lease| lease.ms > 0.0) {}
    holder.report(wants()).await;
    assert!(tokio::time::timeout(Duration::from_millis(1500), holder.delta()).await.is_err());
    std::fs::remove_dir(&in_the_way).unwrap();
    eventually("a lease", async || {
        holder.report(wants()).await;
        clients(&daemon).await.iter().any(|client| client.explores).then_some(())
    })
    .await;
}

pub async fn a_lock_reaches_every_client() {
    let place = Place::new();
    let daemon = calibrated(&place).await;
    let (one, handle) = attach(options(&place)).await;
    let own = region(&one, handle);
    assert_eq!(arm(&own, 512), Arm::Eager);
    let mut gates = gates(&daemon).await;
    let mut lock = async |rows: Option<u32>, arm: v1::Arm| {
        let request = v1::LockGateRequest { workload: WORKLOAD.to_owned(), rows, arm: arm.into() };
        gates.lock_gate(request).await.unwrap().into_inner().clients
    };
    assert_eq!(lock(Some(512), v1::Arm::Split).await, 1);
    eventually("the lock", async || (arm(&own, 512) == Arm::Split).then_some(())).await;
    // One bucket only; and a client that comes later is told, too.
    assert_eq!(arm(&own, 1024), Arm::Eager);
    let (late, handle) = attach(options(&place)).await;
    assert_eq!(arm(&region(&late, handle), 512), Arm::Split);
    lock(None, v1::Arm::Eager).await;
    // Each region learns of it for itself.
    eventually("all rows", async || {
        [4096, 512].iter().all(|rows| arm(&own, *rows) == Arm::Eager).then_some(())
    })
    .await;
    lock(None, v1::Arm::Unspecified).await;
    eventually("unlocking", async || (arm(&own, 4096) == Arm::Split).then_some(())).await;
    assert_eq!(known(&daemon).await.locks, []);
}

pub async fn a_reset_reaches_every_client() {
    let place = Place::new();
    let daemon = calibrated(&place).await;
    let raw = Raw::attach(&daemon, Vec::new()).await;
    raw.proves_the_split().await;
    let (one, handle) = attach(options(&place)).await;
    let own = region(&one, handle);
    eventually("the split", async || (arm(&own, 512) == Arm::Split).then_some(())).await;
    run(&own, 512, 3, Duration::from_millis(4));
    let request = v1::ResetGateRequest { workload: WORKLOAD.to_owned(), rows: None };
    let reply = gates(&daemon).await.reset_gate(request).await.unwrap().into_inner();
    assert_eq!((reply.regions, reply.clients), (1, 2));
    // On a loaded machine a call may have been so slow that stock runs already: that is not yet forgetting.
    eventually("forgetting", async || {
        let explanation = one.explain(&own, 512).unwrap();
        explanation.arms.iter().all(|arm| arm.ms.is_none()).then_some(())
    })
    .await;
    assert_eq!(arm(&own, 512), Arm::Eager);
    drop((one, own));
    let (next, handle) = attach(options(&place)).await;
    assert_eq!(arm(&region(&next, handle), 512), Arm::Eager);
    let standing = known(&daemon).await.states[0].regions[0].standing();
    assert_eq!(standing, v1::Arm::Eager);
}

pub async fn impossible_decisions_are_refused() {
    let place = Place::new();
    let daemon = place.start("steady").await;
    let mut gates = gates(&daemon).await;
    let lock =
        |workload: &str, arm: i32| v1::LockGateRequest { workload: workload.to_owned(), rows: None, arm };
    for (request, says) in [
        (lock("", 1), "1 to 200 bytes"),
        (lock(&"x".repeat(201), 1), "this one has 201"),
        (lock("w", 9), "no arm 9"),
    ] {
        let status = gates.lock_gate(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(says), "{}", status.message());
    }
    for number in 0..256 {
        gates.lock_gate(lock(&number.to_string(), 1)).await.unwrap();
    }
    assert_eq!(gates.lock_gate(lock("one more", 1)).await.unwrap_err().code(), Code::ResourceExhausted);
    let nothing = v1::ResetGateRequest { workload: "unknown".to_owned(), rows: Some(5) };
    assert_eq!(gates.reset_gate(nothing).await.unwrap().into_inner().regions, 0);
}

pub async fn a_client_that_does_not_read_is_dropped_and_nobody_notices() {
    const READERS: usize = 50;
    let place = Place::new();
    let daemon = calibrated(&place).await;
    let layer =
        |inputs: u32| v1::Layer { inputs, outputs: 64, format: "f32".to_owned(), layout: String::new() };
    let (tell, mut heard) = mpsc::channel(READERS);
    for _ in 0..READERS {
        let mut raw = Raw::attach(&daemon, Vec::new()).await;
        let tell = tell.clone();
        tokio::spawn(async move {
            loop {
                let locks = raw.delta().await.gate_locks.unwrap_or_default();
                tell.send(locks.locks.len()).await.unwrap();
            }
        });
    }
    // Its snapshot is larger than what its connection takes without being read.
    let layers: Vec<v1::Layer> = (1..=4096).map(layer).collect();
    let (say, requests) = mpsc::channel(1);
    let hello = v1::Hello { protocol: fusion_client::PROTOCOL, layers, ..Default::default() };
    say.send(v1::AttachRequest { message: Some(Said::Hello(hello)) }).await.unwrap();
    let endpoint = Endpoint::try_from(format!("unix://{}", daemon.socket)).unwrap();
    let channel = endpoint.initial_stream_window_size(4096).connect().await.unwrap();
    let mut silent =
        AttachmentClient::new(channel).attach(ReceiverStream::new(requests)).await.unwrap().into_inner();
    eventually("all", async || (clients(&daemon).await.len() == READERS + 1).then_some(())).await;
    let mut gates = gates(&daemon).await;
    for round in 1..=4 {
        let request = v1::LockGateRequest { workload: round.to_string(), rows: None, arm: 1 };
        gates.lock_gate(request).await.unwrap();
        let start = Instant::now();
        for _ in 0..READERS {
            assert_eq!(heard.recv().await, Some(round));
        }
        // Alone on a machine this takes a few ms.
        assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    eventually("its end", async || (clients(&daemon).await.len() == READERS).then_some(())).await;
    // What had been sent is there, and no more comes.
    while let Ok(Some(_)) = silent.message().await {}
}
