//! What the daemon is doing.

use fusion_client::{PROTOCOL, VERSION, v1};

use super::table::{Field, fields};
use super::{configuration, moments, planner, words};
use crate::json::shared;
use crate::output::Output;

/// What the daemon is doing, told at `now_unix_ms`. A line that an older daemon says nothing of is left out.
pub(crate) fn status(status: &v1::GetStatusReply, now_unix_ms: u64, output: Output) -> String {
    let groups = [
        machine(status, now_unix_ms, output),
        measuring(status, now_unix_ms, output),
        jobs(status),
        gain(status, output),
    ];
    format!(" {}\n{}", output.bold(&title(status, now_unix_ms)), fields(&groups.concat(), output))
}

/// Who measures what where.
fn machine(status: &v1::GetStatusReply, now_unix_ms: u64, output: Output) -> Vec<Field> {
    let chip = status.chip.as_ref();
    let label = chip.map(|chip| chip.pair_label.clone()).filter(|label| !label.is_empty());
    let filled = |text: &str| shared::filled(text);
    vec![
        ("draining", status.draining.then(|| output.yellow("the daemon is about to exit"))),
        ("mismatch", mismatch(status).map(|text| output.yellow(&text))),
        ("socket", filled(&status.socket)),
        ("state", filled(&status.state_directory)),
        ("config", status.configuration.as_ref().map(|known| configuration::line(known, output))),
        ("chip", Some(chip.map_or_else(|| "not known before the first calibration".to_owned(), words::chip))),
        ("pair", label.map(|label| output.yellow(&label))),
        ("units", filled(&status.units)),
        ("engine", status.engine.as_ref().map(words::engine)),
        ("conditions", Some(conditions(status, now_unix_ms))),
        ("worker", status.worker.as_ref().map(|worker| part(worker, output))),
        ("", last_trouble(status, now_unix_ms)),
        ("store", status.store.as_ref().map(|known| store(known, output))),
    ]
}

/// "last trouble 12 min ago: it died": said only while it is over, or else it stands there already.
fn last_trouble(status: &v1::GetStatusReply, now_unix_ms: u64) -> Option<String> {
    let trouble = status.last_worker_trouble.as_ref()?;
    let over = status.worker.as_ref().is_some_and(|worker| worker.health() == v1::Health::Ok);
    let when = moments::ago(trouble.at_unix_ms, now_unix_ms);
    over.then(|| format!("last trouble {when}: {}", words::plain(&trouble.reason)))
}

/// What is measured without being asked for, or why nothing is.
fn measuring(status: &v1::GetStatusReply, now_unix_ms: u64, output: Output) -> Vec<Field> {
    let Some(known) = status.planner.as_ref() else { return Vec::new() };
    let decision = planner::decision(known, now_unix_ms);
    let decision = if known.paused { output.yellow(&decision) } else { decision };
    let mut rows: Vec<Field> = vec![
        ("measuring", shared::filled(&decision)),
        ("budget", Some(planner::budget(known))),
        ("next", Some(planner::next(known, now_unix_ms))),
        ("stale", planner::stale(known)),
    ];
    let troubles = planner::troubles(known, now_unix_ms);
    rows.extend(troubles.iter().map(|trouble| ("trouble", Some(output.yellow(trouble)))));
    rows
}

fn jobs(status: &v1::GetStatusReply) -> Vec<Field> {
    vec![
        ("running", Some(status.running.as_ref().map_or_else(|| "nothing".to_owned(), running))),
        ("waiting", waiting(&status.waiting)),
        ("last job", status.last_job.as_ref().map(ended)),
    ]
}

/// Who is attached, and what that gained.
fn gain(status: &v1::GetStatusReply, output: Output) -> Vec<Field> {
    vec![
        ("clients", status.clients.as_ref().map(clients)),
        ("saved", status.clients.as_ref().and_then(|known| saved(known, output))),
    ]
}

/// "fusiond 0.1.0, process 4242, up 2 h 5 min".
pub(crate) fn title(status: &v1::GetStatusReply, now_unix_ms: u64) -> String {
    let up = now_unix_ms.saturating_sub(status.started_at_unix_ms);
    format!("fusiond {}, process {}, up {}", status.version, status.pid, words::duration(up as f64))
}

/// "nominal, memory normal, AC; for 12 min".
pub(crate) fn conditions(status: &v1::GetStatusReply, now_unix_ms: u64) -> String {
    let words = words::conditions(status.conditions.as_ref());
    match status.conditions_since_unix_ms {
        0 => words,
        since => format!("{words}; {}", moments::since(since, now_unix_ms)),
    }
}

pub(crate) fn mismatch(status: &v1::GetStatusReply) -> Option<String> {
    (status.protocol != PROTOCOL).then(|| {
        format!(
            "the daemon speaks protocol {}, fusionctl {VERSION} speaks {PROTOCOL}: only status and stop work; 'fusionctl stop', then start the daemon of this version",
            status.protocol
        )
    })
}

/// "ok", "failed: why".
pub(crate) fn part(part: &v1::PartStatus, output: Output) -> String {
    let word = health(part);
    let word = if part.health() == v1::Health::Ok { word } else { output.yellow(&word) };
    with_detail(word, part)
}

/// The same without colours.
pub(crate) fn part_words(part: &v1::PartStatus) -> String {
    with_detail(health(part), part)
}

fn health(part: &v1::PartStatus) -> String {
    shared::word(part.health().as_str_name(), "HEALTH_")
}

fn with_detail(word: String, part: &v1::PartStatus) -> String {
    if part.detail.is_empty() { word } else { format!("{word}: {}", part.detail) }
}

fn store(store: &v1::StoreStatus, output: Output) -> String {
    let numbers = format!(
        "{}, {} of this chip and engine, {} stale",
        words::count(store.estimates as usize, "estimate"),
        store.current_estimates,
        store.stale_estimates
    );
    store
        .state
        .as_ref()
        .map_or_else(|| numbers.clone(), |state| format!("{numbers}; {}", part(state, output)))
}

fn clients(known: &v1::ClientsSummary) -> String {
    if known.attached == 0 {
        return "none attached".to_owned();
    }
    let explores = match known.exploring_pid {
        0 => String::new(),
        pid => format!("; process {pid} explores"),
    };
    format!("{} attached, {} busy{explores}", known.attached, known.busy)
}

/// What splitting gained, and against what; nothing to say while nobody is attached.
fn saved(known: &v1::ClientsSummary, output: Output) -> Option<String> {
    let clients = words::count(known.attached as usize, "attached client");
    match (known.attached, known.split_calls) {
        (0, _) => None,
        (_, 0) => Some(format!(
            "nothing yet: of the {clients} no split call has a reference time of stock to stand against"
        )),
        (_, calls) => {
            let calls = words::count(usize::try_from(calls).unwrap_or(usize::MAX), "split call");
            let saved = words::saved(known.saved_ms);
            let saved = if known.saved_ms < 0.0 { output.yellow(&saved) } else { saved };
            Some(format!("{saved} in {calls} of {clients}, against stock's reference times"))
        }
    }
}

pub(crate) fn running(job: &v1::JobStatus) -> String {
    let now = if job.shape.is_empty() { String::new() } else { format!(", now {}", job.shape) };
    format!(
        "job {}: {}, {} of {} done{now}",
        job.job,
        job.title,
        job.done,
        words::count(job.shapes as usize, "shape")
    )
}

fn waiting(jobs: &[v1::JobStatus]) -> Option<String> {
    let words = jobs
        .iter()
        .map(|job| format!("job {}: {}, {}", job.job, job.title, words::count(job.shapes as usize, "shape")));
    let words: Vec<_> = words.collect();
    (!words.is_empty()).then(|| words.join("\n"))
}

pub(crate) fn ended(ended: &v1::EndedJob) -> String {
    let job = ended.job.clone().unwrap_or_default();
    format!(
        "job {}: {}, {} of {} done: {} at {}",
        job.job,
        job.title,
        job.done,
        words::count(job.shapes as usize, "shape"),
        ended.outcome,
        words::moment(ended.ended_at_unix_ms)
    )
}
