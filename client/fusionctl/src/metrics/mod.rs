//! The status as figures for Prometheus. Names end with their units; what a daemon or a sensor doesn't tell is left out, so that nobody
//! takes 0 for a figure.

mod exposition;

use fusion_client::v1;

use self::exposition::{Exposition, Kind, Label};
use crate::json::shared::word;

const UP: (&str, &str) = ("fusiond_up", "Whether the daemon answers.");

/// What is told where no daemon answers.
pub(crate) fn down() -> String {
    let mut exposition = Exposition::default();
    exposition.value(Kind::Gauge, UP.0, UP.1, 0.0);
    exposition.into_text()
}

/// The figures of a status.
pub(crate) fn metrics(status: &v1::GetStatusReply) -> String {
    let mut exposition = Exposition::default();
    daemon(&mut exposition, status);
    if let Some(store) = &status.store {
        self::store(&mut exposition, store);
    }
    if let Some(planner) = &status.planner {
        self::planner(&mut exposition, planner);
    }
    jobs(&mut exposition, status);
    if let Some(clients) = &status.clients {
        self::clients(&mut exposition, clients);
    }
    if let Some(conditions) = &status.conditions {
        self::conditions(&mut exposition, conditions);
    }
    exposition.known(
        Kind::Gauge,
        "fusiond_conditions_start_time_seconds",
        "Since when the conditions are the present ones, as Unix time.",
        Some(status.conditions_since_unix_ms).filter(|ms| *ms > 0).map(seconds),
    );
    if let Some(readings) = &status.readings {
        self::readings(&mut exposition, readings);
    }
    exposition.into_text()
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

fn flag(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

fn ok(part: Option<&v1::PartStatus>) -> Option<f64> {
    part.map(|part| flag(part.health() == v1::Health::Ok))
}

fn daemon(exposition: &mut Exposition, status: &v1::GetStatusReply) {
    exposition.value(Kind::Gauge, UP.0, UP.1, 1.0);
    let protocol = status.protocol.to_string();
    let labels: &[Label<'_>] = &[("version", &status.version), ("protocol", &protocol)];
    exposition.family(
        Kind::Gauge,
        "fusiond_build_info",
        "Version and protocol of the daemon; always 1.",
        [(labels, 1.0)],
    );
    exposition.value(
        Kind::Gauge,
        "fusiond_start_time_seconds",
        "When the daemon started, as Unix time.",
        seconds(status.started_at_unix_ms),
    );
    exposition.value(
        Kind::Gauge,
        "fusiond_draining",
        "Whether the daemon is about to exit.",
        flag(status.draining),
    );
    exposition.known(
        Kind::Gauge,
        "fusiond_worker_ok",
        "Whether the last worker was well.",
        ok(status.worker.as_ref()),
    );
    exposition.known(
        Kind::Gauge,
        "fusiond_configuration_ok",
        "Whether the configuration files are what holds.",
        ok(status.configuration.as_ref().and_then(|known| known.state.as_ref())),
    );
}

fn store(exposition: &mut Exposition, store: &v1::StoreStatus) {
    let state = ok(store.state.as_ref());
    exposition.known(Kind::Gauge, "fusiond_store_ok", "Whether the store is whole.", state);
    for (name, help, value) in [
        ("fusiond_estimates", "Estimates in the store.", store.estimates),
        ("fusiond_current_estimates", "Those of the present chip and engine.", store.current_estimates),
        ("fusiond_stale_estimates", "Those that are marked stale.", store.stale_estimates),
    ] {
        exposition.value(Kind::Gauge, name, help, value as f64);
    }
}

fn planner(exposition: &mut Exposition, planner: &v1::PlannerStatus) {
    let gauges = [
        (
            "fusiond_wanted_shapes",
            "Shapes that clients or the configuration want calibrated.",
            f64::from(planner.wanted),
        ),
        ("fusiond_stale_shapes", "Those that should be measured.", planner.stale.len() as f64),
        (
            "fusiond_troubled_subjects",
            "Shapes that keep failing, and the worker.",
            planner.troubles.len() as f64,
        ),
        (
            "fusiond_planner_credit_seconds",
            "Machine time that may be spent on measuring now; negative if overdrawn.",
            planner.credit_ms / 1000.0,
        ),
        (
            "fusiond_planner_duty_ratio",
            "Share of wall time that measuring may take under the present conditions.",
            planner.duty,
        ),
        ("fusiond_planner_paused", "Whether a person paused measuring.", flag(planner.paused)),
    ];
    for (name, help, value) in gauges {
        exposition.value(Kind::Gauge, name, help, value);
    }
}

fn jobs(exposition: &mut Exposition, status: &v1::GetStatusReply) {
    exposition.value(Kind::Gauge, "fusiond_jobs_waiting", "Jobs that wait.", status.waiting.len() as f64);
    exposition.value(
        Kind::Gauge,
        "fusiond_job_running",
        "Whether a job runs.",
        flag(status.running.is_some()),
    );
    if let Some(job) = &status.running {
        let (all, done) = (f64::from(job.shapes), f64::from(job.done));
        exposition.value(Kind::Gauge, "fusiond_job_shapes", "Shapes of the running job.", all);
        exposition.value(Kind::Gauge, "fusiond_job_done_shapes", "Those that are done.", done);
    }
}

/// Gauges, all of them: they are sums over the clients that are attached now, and fall when one leaves.
fn clients(exposition: &mut Exposition, clients: &v1::ClientsSummary) {
    let gauges = [
        ("fusiond_clients_attached", "Attached clients.", f64::from(clients.attached)),
        ("fusiond_clients_busy", "Those that are busy.", f64::from(clients.busy)),
        (
            "fusiond_saved_seconds",
            "Time that split calls of the attached clients took less than stock's reference; negative if more.",
            clients.saved_ms / 1000.0,
        ),
        ("fusiond_split_calls", "The split calls behind that.", clients.split_calls as f64),
    ];
    for (name, help, value) in gauges {
        exposition.value(Kind::Gauge, name, help, value);
    }
}

/// The words of an enum of the wire, in snake case.
macro_rules! words {
    ($prefix:literal, $($variant:path),+ $(,)?) => {
        [$(($variant as i32, word($variant.as_str_name(), $prefix))),+]
    };
}

/// A state's number on the wire, and its word.
type State = (i32, String);

/// One-hot: of each kind of condition exactly one state is 1.
fn conditions(exposition: &mut Exposition, conditions: &v1::Conditions) {
    use v1::{LowPowerMode, Memory, Power, Thermal};
    let thermal = words!(
        "THERMAL_",
        Thermal::Unknown,
        Thermal::Nominal,
        Thermal::Moderate,
        Thermal::Heavy,
        Thermal::Trapping,
    );
    let memory = words!("MEMORY_", Memory::Unknown, Memory::Normal, Memory::Warn, Memory::Critical);
    let power = words!("POWER_", Power::Unknown, Power::Ac, Power::Battery);
    let mode = words!("LOW_POWER_MODE_", LowPowerMode::Unknown, LowPowerMode::Off, LowPowerMode::On);
    // A newer word is unknown to us.
    let kinds: [(&str, i32, &[State]); 4] = [
        ("thermal", conditions.thermal().into(), &thermal),
        ("memory", conditions.memory().into(), &memory),
        ("power", conditions.power().into(), &power),
        ("low_power_mode", conditions.low_power_mode().into(), &mode),
    ];
    let samples: Vec<([Label<'_>; 2], f64)> = kinds
        .iter()
        .flat_map(|(kind, now, states)| {
            states
                .iter()
                .map(move |(state, word)| ([("kind", *kind), ("state", word.as_str())], flag(state == now)))
        })
        .collect();
    exposition.family(
        Kind::Gauge,
        "fusiond_conditions",
        "The present conditions: of each kind, the state that holds is 1.",
        samples.iter().map(|(labels, value)| (&labels[..], *value)),
    );
}

fn readings(exposition: &mut Exposition, readings: &v1::Readings) {
    let gauge = Kind::Gauge;
    exposition.known(
        gauge,
        "fusiond_available_memory_bytes",
        "Memory that a new process could use without making others swap.",
        readings.available_memory_bytes.map(|bytes| bytes as f64),
    );
    exposition.known(
        gauge,
        "fusiond_cpu_pressure_ratio",
        "Share of the last 10 s in which some task waited for a core.",
        readings.cpu_pressure,
    );
    exposition.known(gauge, "fusiond_gpu_busy_ratio", "Share of time that the GPU works.", readings.gpu_busy);
    exposition.known(
        gauge,
        "fusiond_cpu_speed_limit_ratio",
        "Share of its highest clock that the most limited processor may use.",
        readings.cpu_speed_limit,
    );
    exposition.known(
        Kind::Counter,
        "fusiond_swapped_in_pages_total",
        "Pages swapped in since the machine started.",
        readings.swapped_in_pages.map(|pages| pages as f64),
    );
    exposition.known(
        Kind::Counter,
        "fusiond_throttle_events_total",
        "How often processors throttled themselves since the machine started.",
        readings.throttle_events.map(|events| events as f64),
    );
}
