//! What the daemon is doing.

use fusion_client::{PROTOCOL, VERSION, v1};
use jiff::Timestamp;

use super::table::fields;
use super::words;
use crate::json::shared;
use crate::output::Output;

/// What the daemon is doing.
pub(crate) fn status(status: &v1::GetStatusReply, output: Output) -> String {
    let chip = status.chip.as_ref();
    let label = chip.map(|chip| chip.pair_label.clone()).filter(|label| !label.is_empty());
    let filled = |text: &str| shared::filled(text);
    let fields = fields(
        &[
            ("draining", status.draining.then(|| output.yellow("the daemon is about to exit"))),
            ("mismatch", mismatch(status).map(|text| output.yellow(&text))),
            ("socket", filled(&status.socket)),
            ("state", filled(&status.state_directory)),
            (
                "chip",
                Some(chip.map_or_else(|| "not known before the first calibration".to_owned(), words::chip)),
            ),
            ("pair", label.map(|label| output.yellow(&label))),
            ("units", filled(&status.units)),
            ("engine", status.engine.as_ref().map(words::engine)),
            ("conditions", Some(words::conditions(status.conditions.as_ref()))),
            ("worker", status.worker.as_ref().map(|worker| part(worker, output))),
            ("store", status.store.as_ref().map(|known| store(known, output))),
            ("running", Some(status.running.as_ref().map_or_else(|| "nothing".to_owned(), running))),
            ("waiting", waiting(&status.waiting)),
            ("last job", status.last_job.as_ref().map(ended)),
            ("clients", status.clients.as_ref().map(clients)),
            ("saved", status.clients.as_ref().and_then(|known| saved(known, output))),
        ],
        output,
    );
    format!(" {}\n{fields}", output.bold(&title(status)))
}

fn title(status: &v1::GetStatusReply) -> String {
    let now = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0);
    let up = now.saturating_sub(status.started_at_unix_ms);
    format!("fusiond {}, process {}, up {}", status.version, status.pid, words::duration(up as f64))
}

fn mismatch(status: &v1::GetStatusReply) -> Option<String> {
    (status.protocol != PROTOCOL).then(|| {
        format!(
            "the daemon speaks protocol {}, fusionctl {VERSION} speaks {PROTOCOL}: only status and stop work; 'fusionctl stop', then start the daemon of this version",
            status.protocol
        )
    })
}

fn part(part: &v1::PartStatus, output: Output) -> String {
    let word = shared::word(part.health().as_str_name(), "HEALTH_");
    let word = if part.health() == v1::Health::Ok { word } else { output.yellow(&word) };
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

fn running(job: &v1::JobStatus) -> String {
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

fn ended(ended: &v1::EndedJob) -> String {
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
