//! Measuring without being asked: what the configuration and attached clients want, when the machine allows it.

use std::fs;

use fusion_client::attach::Options;
use fusion_client::{ClientError, v1};

use crate::attachment;
use crate::support::{Daemon, Place, eventually};

pub const QUIET: &str = "power = 'ac'\ncpu_pressure = 0.0\n";
pub const AT_ONCE: &str = "[measure]\nsettle_seconds = 0\nquiet_seconds = 0\n";
const MINE: &str = "shapes = ['512x896x4864']\nformat = 'f32'\n";

pub fn configure(place: &Place, file: &str, text: &str) {
    let path = place.state().join("config").join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn sense(place: &Place, text: &str) {
    fs::write(place.directory.path().join("sensors.toml"), text).unwrap();
}

pub async fn start(place: &Place, script: &str, sensors: &str) -> Daemon {
    sense(place, sensors);
    configure(place, "config.toml", AT_ONCE);
    let mut command = place.command(script);
    let choice = format!("scripted:{}", place.directory.path().join("sensors.toml").display());
    command.args(["--sensors", &choice]);
    place.start_with(command).await
}

pub async fn planner(daemon: &Daemon) -> v1::PlannerStatus {
    daemon.client().await.status().await.unwrap().planner.unwrap()
}

async fn estimates(daemon: &Daemon) -> u64 {
    daemon.client().await.status().await.unwrap().store.unwrap().current_estimates
}

/// Waits until the planner says so; asking for the status looks at the sensors.
pub async fn says(daemon: &Daemon, words: &str) -> v1::PlannerStatus {
    eventually(words, async || Some(planner(daemon).await).filter(|planner| planner.decision.contains(words)))
        .await
}

pub async fn what_is_configured_is_measured_without_being_asked() {
    let place = Place::new();
    configure(&place, "shapes/mine.toml", MINE);
    let daemon = start(&place, "steady", QUIET).await;
    eventually("the calibration", async || (estimates(&daemon).await == 1).then_some(())).await;
    let planner = says(&daemon, "all 1 wanted shapes are known").await;
    assert_eq!((planner.wanted, planner.stale.len()), (1, 0));
    assert!(planner.credit_ms > 0.0 && planner.credit_ms < 36_000.0, "{}", planner.credit_ms);
    // What comes later is measured too.
    configure(&place, "shapes/more.toml", "shapes = ['512x64x64']\nformat = 'f32'\n");
    eventually("the next one", async || (estimates(&daemon).await == 2).then_some(())).await;
}

pub async fn an_attached_clients_layers_are_measured_while_it_rests() {
    let place = Place::new();
    let daemon = start(&place, "slow", QUIET).await;
    let options = Options { typical_rows: 512, ..attachment::options(&place) };
    let (attachment, handle) = attachment::attach(options).await;
    let busy = attachment.busy();
    says(&daemon, "a client is busy").await;
    assert_eq!((estimates(&daemon).await, daemon.children().len()), (0, 0));
    drop(busy);
    eventually("a worker", async || (!daemon.children().is_empty()).then_some(())).await;
    let busy = attachment.busy();
    eventually("its end", async || daemon.children().is_empty().then_some(())).await;
    // An interrupted shape waits a little: another one's turn may come first.
    drop(busy);
    eventually("what was measured", async || (estimates(&daemon).await > 0).then_some(())).await;
    let planner = planner(&daemon).await;
    assert_eq!((planner.wanted, planner.troubles.len()), (2, 1), "{planner:?}");
    assert_eq!(planner.troubles[0].reason, "interrupted");
    assert!(attachment.secondary_rows(handle, 512) <= 512);
}

pub async fn the_state_of_the_machine_holds_it_back() {
    let place = Place::new();
    configure(&place, "shapes/mine.toml", MINE);
    for (sensors, words) in [
        ("power = 'battery'\nlow_power_mode = true", "low-power mode"),
        ("power = 'ac'\nthermal = 'heavy'", "the machine is hot"),
        ("power = 'ac'\nmemory = 'critical'", "out of memory"),
        ("power = 'ac'\navailable_memory_bytes = 1000", "to be available"),
        ("power = 'ac'\ngpu_busy = 0.5", "other programs use 50 % of the GPU"),
        ("power = 'ac'\ncpu_pressure = 0.9", "other programs use 90 % of the CPU"),
    ] {
        let daemon = start(&place, "steady", sensors).await;
        says(&daemon, words).await;
        assert_eq!(estimates(&daemon).await, 0, "{words}");
    }
    let daemon = start(&place, "steady", "power = 'ac'\nthermal = 'heavy'").await;
    says(&daemon, "the machine is hot").await;
    sense(&place, QUIET);
    eventually("the calibration", async || (estimates(&daemon).await == 1).then_some(())).await;
}

pub async fn a_person_pauses_it_and_goes_on() {
    let place = Place::new();
    let daemon = start(&place, "steady", QUIET).await;
    let client = daemon.client().await;
    assert!(client.pause(None).await.unwrap().paused);
    configure(&place, "shapes/mine.toml", MINE);
    client.reload_configuration().await.unwrap();
    says(&daemon, "paused").await;
    // What a person asks for is measured all the same.
    daemon.calibrate(&["64x64x64"]).await;
    assert_eq!(estimates(&daemon).await, 1);
    assert!(!client.resume().await.unwrap().paused);
    eventually("the calibration", async || (estimates(&daemon).await == 2).then_some(())).await;
    let second = std::num::NonZeroU64::MIN;
    assert!(client.pause(Some(second)).await.unwrap().paused_until_unix_ms > 0);
    configure(&place, "shapes/more.toml", "shapes = ['512x64x64']\nformat = 'f32'\n");
    eventually("the end of the pause", async || (estimates(&daemon).await == 3).then_some(())).await;
}

pub async fn a_command_is_answered_with_the_decision_that_follows_it() {
    let place = Place::new();
    configure(&place, "shapes/mine.toml", MINE);
    // Something is due all the time, and nothing but the heat and the person decide.
    let daemon = start(&place, "steady", "power = 'ac'\nthermal = 'heavy'").await;
    let client = daemon.client().await;
    says(&daemon, "the machine is hot").await;
    for _ in 0..5 {
        let paused = client.pause(None).await.unwrap();
        assert_eq!(paused.verdict(), v1::PlannerVerdict::Paused, "{paused:?}");
        assert!(paused.paused && paused.because.contains("measuring is paused"), "{paused:?}");
        let resumed = client.resume().await.unwrap();
        assert_eq!(resumed.verdict(), v1::PlannerVerdict::Hot, "{resumed:?}");
        assert!(!resumed.paused && resumed.decision.contains(&resumed.because), "{resumed:?}");
    }
}

pub async fn what_clients_ran_lately_is_wanted_by_the_next_daemon() {
    let place = Place::new();
    let hot = "power = 'ac'\nthermal = 'heavy'";
    let mut daemon = start(&place, "steady", hot).await;
    let options = Options { typical_rows: 512, ..attachment::options(&place) };
    let (attachment, _) = attachment::attach(options).await;
    let wanted = async |daemon: &Daemon| planner(daemon).await.wanted;
    eventually("the client's layers", async || (wanted(&daemon).await == 2).then_some(())).await;
    drop(attachment);
    daemon.signal("-KILL");
    daemon.ended().await;
    let mut daemon = start(&place, "steady", hot).await;
    eventually("the layers of before", async || (wanted(&daemon).await == 2).then_some(())).await;
    daemon.signal("-KILL");
    daemon.ended().await;
    fs::write(place.state().join("planner.json"), "{").unwrap();
    let daemon = start(&place, "steady", hot).await;
    says(&daemon, "nobody wants anything measured").await;
}

pub async fn one_daemon_of_a_machine_measures() {
    let place = Place::new();
    configure(&place, "shapes/mine.toml", MINE);
    let lock = place.directory.path().join("measuring.lock");
    let held = fs::File::create(&lock).unwrap();
    held.lock().unwrap();
    let daemon = start(&place, "steady", QUIET).await;
    says(&daemon, "another fusiond of this machine measures").await;
    assert_eq!(estimates(&daemon).await, 0);
}

pub async fn a_worker_that_fails_is_left_alone_for_a_while() {
    let place = Place::new();
    configure(&place, "shapes/mine.toml", MINE);
    let daemon = start(&place, "dies", QUIET).await;
    let planner = says(&daemon, "failed").await;
    let trouble = planner.troubles.first().unwrap();
    assert!(trouble.reason.contains("Insufficient Memory"), "{}", trouble.reason);
    assert!(trouble.retry_at_unix_ms > 0 && planner.looks_again_at_unix_ms > 0);
}

pub async fn the_budget_outlives_the_daemon() {
    let place = Place::new();
    configure(&place, "shapes/mine.toml", MINE);
    let mut daemon = start(&place, "steady", QUIET).await;
    eventually("the calibration", async || (estimates(&daemon).await == 1).then_some(())).await;
    let before = says(&daemon, "known").await.credit_ms;
    daemon.signal("-KILL");
    daemon.ended().await;
    let after = planner(&start(&place, "steady", QUIET).await).await.credit_ms;
    // What came in since it was last kept is lost, and 1 % of the time in between came in: nobody waits a minute here.
    assert!((before - 10.0..before + 600.0).contains(&after), "{before} {after}");
}

pub async fn without_a_budget_that_is_kept_nothing_is_measured() {
    let place = Place::new();
    configure(&place, "shapes/mine.toml", MINE);
    // Something that can't be written to lies where the file is made.
    fs::create_dir_all(place.state().join("planner.json.new")).unwrap();
    let daemon = start(&place, "steady", QUIET).await;
    says(&daemon, "the planner's budget can't be kept").await;
    assert_eq!(estimates(&daemon).await, 0);
}

pub async fn a_bad_configuration_keeps_the_old_one() {
    let place = Place::new();
    configure(&place, "shapes/mine.toml", MINE);
    let daemon = start(&place, "steady", "power = 'ac'\nthermal = 'heavy'").await;
    let client = daemon.client().await;
    let configuration = async || client.status().await.unwrap().configuration.unwrap();
    assert_eq!(configuration().await.wanted_shapes, 1);
    configure(&place, "shapes/mine.toml", "shapes = ['0x1x1']");
    match client.reload_configuration().await {
        Err(ClientError::FailedPrecondition(message)) => assert!(message.contains("mine.toml"), "{message}"),
        other => panic!("{other:?}"),
    }
    let kept = configuration().await;
    let state = kept.state.unwrap();
    assert_eq!((kept.wanted_shapes, state.health()), (1, v1::Health::Degraded));
    assert!(state.detail.contains("mine.toml"), "{}", state.detail);
    configure(&place, "shapes/mine.toml", "shapes = ['8x8x8', '16x8x8']");
    daemon.signal("-HUP");
    eventually("the reload", async || (configuration().await.wanted_shapes == 2).then_some(())).await;
}

pub async fn a_slow_canary_tells_heat_that_the_sensors_deny() {
    let place = Place::new();
    let hot = place.directory.path().join("hot");
    let cool = "power = 'ac'\nthermal = 'nominal'";
    let daemon = start(&place, &format!("hot-if:{}", hot.display()), cool).await;
    let thermal = async || daemon.client().await.status().await.unwrap().conditions.unwrap().thermal();
    daemon.calibrate(&["64x64x64"]).await;
    assert_eq!(thermal().await, v1::Thermal::Nominal);
    fs::write(&hot, "").unwrap();
    daemon.calibrate(&["64x64x128"]).await;
    assert_eq!(thermal().await, v1::Thermal::Trapping);
    let past = daemon.client().await.history(crate::support::shape("64x64x128"), 0).await.unwrap();
    assert_eq!(past.estimates[0].conditions.unwrap().thermal(), v1::Thermal::Trapping);
    fs::remove_file(&hot).unwrap();
    daemon.calibrate(&["64x128x64"]).await;
    assert_eq!(thermal().await, v1::Thermal::Nominal);
}

pub async fn the_past_of_a_shape_is_told() {
    let place = Place::new();
    let daemon = place.start("steady").await;
    let client = daemon.client().await;
    let shape = crate::support::shape("64x64x64");
    assert_eq!(client.history(shape, 0).await.unwrap().total, 0);
    for _ in 0..3 {
        crate::support::collect(&client, &[shape], v1::Freshness::Remeasure).await.unwrap();
    }
    let past = client.history(shape, 2).await.unwrap();
    assert_eq!((past.total, past.estimates.len()), (3, 2));
    assert!(past.estimates[0].measured_at_unix_ms >= past.estimates[1].measured_at_unix_ms);
}
