//! The state of the machine, as a script tells it.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::SystemTime;

use fusion_calibrations::conditions::{Conditions, LowPowerMode, Memory, Power, Thermal};
use fusion_calibrations::shape::{Layout, Shape, WeightFormat};
use fusion_client::v1;
use fusiond::measure::unix_ms;

use crate::attachment::{attach, options};
use crate::support::{Daemon, Place, collect, eventually};

const COOL: &str = "thermal = \"nominal\"\nmemory = \"normal\"\npower = \"ac\"\nlow_power_mode = false\n";
const HOT: &str = "thermal = \"heavy\"\nmemory = \"warn\"\npower = \"battery\"\nlow_power_mode = true\n";

fn script(place: &Place) -> PathBuf {
    place.directory.path().join("sensors.toml")
}

fn command(place: &Place) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fusiond"));
    command.arg("--socket").arg(place.socket().as_path()).arg("--state-dir").arg(place.state());
    command.args(["--machine", "model:m4-pro", "--sensors"]);
    command.arg(format!("scripted:{}", script(place).display()));
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    command
}

async fn start(place: &Place, text: &str) -> Daemon {
    std::fs::write(script(place), text).unwrap();
    place.start_with(command(place)).await
}

fn conditions(status: &v1::GetStatusReply) -> Conditions {
    status.conditions.as_ref().unwrap().into()
}

const HOT_CONDITIONS: Conditions = Conditions {
    thermal: Thermal::Heavy,
    memory: Memory::Warn,
    power: Power::Battery,
    low_power_mode: LowPowerMode::On,
};

pub async fn a_script_counts_at_the_next_look() {
    let place = Place::new();
    let started_unix_ms = unix_ms(SystemTime::now());
    let daemon = start(&place, COOL).await;
    let client = daemon.client().await;
    let before = client.status().await.unwrap();
    assert_eq!(conditions(&before).thermal, Thermal::Nominal);
    assert!(before.conditions_since_unix_ms >= started_unix_ms);
    assert_eq!(before.readings.as_ref().unwrap().gpu_busy, None);

    std::fs::write(script(&place), format!("{HOT}gpu_busy = 0.5\nuser_idle_seconds = 2\n")).unwrap();
    let hot = client.status().await.unwrap();
    assert_eq!(conditions(&hot), HOT_CONDITIONS);
    assert!(hot.conditions_since_unix_ms >= before.conditions_since_unix_ms);
    let readings = hot.readings.unwrap();
    assert_eq!((readings.gpu_busy, readings.user_idle_ms), (Some(0.5), Some(2000)));
    assert!(readings.source.starts_with("scripted: "), "{}", readings.source);

    // The conditions stay, so does their age.
    std::fs::write(script(&place), format!("{HOT}gpu_busy = 0.1\n")).unwrap();
    let still = client.status().await.unwrap();
    assert_eq!(still.conditions_since_unix_ms, hot.conditions_since_unix_ms);
    assert_eq!(still.readings.unwrap().gpu_busy, Some(0.1));
}

pub async fn a_bad_script_changes_nothing_and_is_logged() {
    let place = Place::new();
    let daemon = start(&place, HOT).await;
    let client = daemon.client().await;
    std::fs::write(script(&place), "thermal = \"lukewarm\"\n").unwrap();
    assert_eq!(conditions(&client.status().await.unwrap()), HOT_CONDITIONS);
    let logs = place.state().join("logs");
    eventually("the word in the log", async || {
        let files = std::fs::read_dir(&logs).unwrap().flatten();
        let text: String = files.map(|file| std::fs::read_to_string(file.path()).unwrap()).collect();
        (text.contains("lukewarm") && text.contains("scripted: ")).then_some(())
    })
    .await;
    std::fs::write(script(&place), COOL).unwrap();
    assert_eq!(conditions(&client.status().await.unwrap()).thermal, Thermal::Nominal);
}

pub async fn sensors_that_cannot_be_are_refused() {
    let place = Place::new();
    let (code, message) = place.fails(command(&place));
    assert_eq!(code, 78);
    assert!(message.contains("sensors.toml"), "{message}");
    std::fs::write(script(&place), "gpu_busy = 7\n").unwrap();
    let (code, message) = place.fails(command(&place));
    assert_eq!(code, 78);
    assert!(message.contains("gpu_busy must be between 0 and 1"), "{message}");
    let mut unknown = Command::new(env!("CARGO_BIN_EXE_fusiond"));
    unknown.arg("--state-dir").arg(place.state()).args(["--sensors", "thermometer"]);
    let (code, message) = place.fails(unknown);
    assert_eq!(code, 78);
    assert!(message.contains("'thermometer'") && message.contains("scripted:FILE"), "{message}");
}

pub async fn attached_clients_hear_of_other_conditions() {
    let place = Place::new();
    let daemon = start(&place, COOL).await;
    let (runner, _) = attach(options(&place)).await;
    let (idle, _) = attach(options(&place)).await;
    assert_eq!(idle.conditions().unwrap().thermal, Thermal::Nominal);
    // Somebody asks.
    std::fs::write(script(&place), HOT).unwrap();
    daemon.client().await.status().await.unwrap();
    eventually("the news", async || (idle.conditions() == Some(HOT_CONDITIONS)).then_some(())).await;
    // Somebody works: nobody asks, and nobody turns again.
    let _busy = runner.busy();
    std::fs::write(script(&place), COOL).unwrap();
    eventually("the news", async || (idle.conditions()?.thermal == Thermal::Nominal).then_some(())).await;
}

pub async fn a_calibration_belongs_to_the_scripted_conditions() {
    let place = Place::new();
    let daemon = start(&place, HOT).await;
    let client = daemon.client().await;
    let shape = Shape::parse("777x4096x14336", WeightFormat::F16, Layout::default()).unwrap();
    collect(&client, &[shape], v1::Freshness::Reuse).await.unwrap();
    let known = client.get_ratio(shape, None).await.unwrap();
    assert_eq!(known.source(), v1::Source::Exact);
    assert_eq!(Conditions::from(known.estimate.unwrap().conditions.as_ref().unwrap()), HOT_CONDITIONS);
    std::fs::write(script(&place), COOL).unwrap();
    client.status().await.unwrap();
    assert_ne!(client.get_ratio(shape, None).await.unwrap().source(), v1::Source::Exact);
}
