//! What happened between two looks at the same daemon, in words.

use fusion_client::{AttachedClient, v1};

use crate::render::{status, words};

/// A status and who was attached then.
type Look<'a> = (&'a v1::GetStatusReply, &'a [AttachedClient]);

/// Whether these are of two daemons: a process's number may come again, at the same moment it won't.
pub(super) fn other_daemon(before: &v1::GetStatusReply, after: &v1::GetStatusReply) -> bool {
    (before.pid, before.started_at_unix_ms) != (after.pid, after.started_at_unix_ms)
}

/// What happened from `before` to `after`.
pub(super) fn between(before: Look<'_>, after: Look<'_>) -> Vec<String> {
    let mut texts = jobs(before.0, after.0);
    texts.extend(conditions(before.0, after.0));
    texts.extend(clients(before.1, after.1));
    texts.extend(pause(before.0, after.0));
    texts.extend(configuration(before.0, after.0));
    texts.extend(worker(before.0, after.0));
    let drains = after.0.draining && !before.0.draining;
    texts.extend(drains.then(|| "the daemon is about to exit".to_owned()));
    texts
}

/// Jobs that ended, started, and came to wait, in this order: a job that did all of it in between has ended.
fn jobs(before: &v1::GetStatusReply, after: &v1::GetStatusReply) -> Vec<String> {
    let number = |job: Option<&v1::JobStatus>| job.map(|job| job.job);
    let last =
        |status: &v1::GetStatusReply| number(status.last_job.as_ref().and_then(|last| last.job.as_ref()));
    let ended = after.last_job.as_ref().filter(|_| last(after) != last(before));
    let started = after.running.as_ref().filter(|job| Some(job.job) != number(before.running.as_ref()));
    let known = |job: &v1::JobStatus| {
        before.waiting.iter().chain(&before.running).any(|earlier| earlier.job == job.job)
    };
    let came = after.waiting.iter().filter(|job| !known(job)).map(|job| format!("{} waits", title(job)));
    let ended = ended.map(|ended| {
        let job = ended.job.clone().unwrap_or_default();
        let done = format!("{} of {} done", job.done, words::count(job.shapes as usize, "shape"));
        format!("{} ended, {done}: {}", title(&job), words::plain(&ended.outcome))
    });
    let started =
        started.map(|job| format!("{} starts, {}", title(job), words::count(job.shapes as usize, "shape")));
    ended.into_iter().chain(started).chain(came).collect()
}

fn title(job: &v1::JobStatus) -> String {
    format!("job {} ({})", job.job, words::plain(&job.title))
}

fn conditions(before: &v1::GetStatusReply, after: &v1::GetStatusReply) -> Option<String> {
    (before.conditions != after.conditions)
        .then(|| format!("conditions: {}", words::conditions(after.conditions.as_ref())))
}

fn clients(before: &[AttachedClient], after: &[AttachedClient]) -> Vec<String> {
    let without = |some: &[AttachedClient], others: &[AttachedClient], verb: &str| {
        let missing = |client: &&AttachedClient| !others.iter().any(|other| other.number == client.number);
        let text = |client: &AttachedClient| {
            format!("client {verb}: {}, process {}", words::plain(&client.name), client.pid)
        };
        some.iter().filter(missing).map(text).collect::<Vec<_>>()
    };
    [without(before, after, "went"), without(after, before, "came")].concat()
}

fn pause(before: &v1::GetStatusReply, after: &v1::GetStatusReply) -> Option<String> {
    match (before.planner.as_ref()?.paused, after.planner.as_ref()?.paused) {
        (false, true) => Some("measuring is paused".to_owned()),
        (true, false) => Some("measuring goes on".to_owned()),
        _ => None,
    }
}

fn configuration(before: &v1::GetStatusReply, after: &v1::GetStatusReply) -> Option<String> {
    let (before, after) = (before.configuration.as_ref()?, after.configuration.as_ref()?);
    let state = |known: &v1::ConfigurationStatus| known.state.clone().unwrap_or_default();
    let now = state(after);
    if now.health() != v1::Health::Ok && now != state(before) {
        return Some(format!("the configuration stays as it was: {}", words::plain(&now.detail)));
    }
    (before.read_at_unix_ms != after.read_at_unix_ms).then(|| {
        format!("the configuration was read: {} wanted", words::count(after.wanted_shapes as usize, "shape"))
    })
}

fn worker(before: &v1::GetStatusReply, after: &v1::GetStatusReply) -> Option<String> {
    let worker = after.worker.as_ref().filter(|_| before.worker != after.worker)?;
    Some(format!("worker: {}", words::plain(&status::part_words(worker))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(job: u64) -> v1::JobStatus {
        v1::JobStatus { job, title: format!("title {job}"), shapes: 2, done: 1, ..Default::default() }
    }

    fn ended(number: u64) -> v1::EndedJob {
        v1::EndedJob { job: Some(job(number)), outcome: "finished".to_owned(), ended_at_unix_ms: 5 }
    }

    fn changes(before: &v1::GetStatusReply, after: &v1::GetStatusReply) -> Vec<String> {
        between((before, &[]), (after, &[]))
    }

    #[test]
    fn nothing_happened_where_nothing_changed() {
        let status = v1::GetStatusReply {
            running: Some(job(7)),
            waiting: vec![job(8)],
            last_job: Some(ended(6)),
            planner: Some(v1::PlannerStatus::default()),
            ..Default::default()
        };
        assert_eq!(changes(&status, &status), Vec::<String>::new());
        // Progress is shown elsewhere.
        let mut later = status.clone();
        later.running.as_mut().unwrap().done = 2;
        assert_eq!(changes(&status, &later), Vec::<String>::new());
    }

    #[test]
    fn jobs_end_start_and_wait() {
        let before = v1::GetStatusReply {
            running: Some(job(7)),
            waiting: vec![job(8)],
            last_job: Some(ended(6)),
            ..Default::default()
        };
        let after = v1::GetStatusReply {
            running: Some(job(8)),
            waiting: vec![job(9)],
            last_job: Some(ended(7)),
            ..Default::default()
        };
        let expected = [
            "job 7 (title 7) ended, 1 of 2 shapes done: finished",
            "job 8 (title 8) starts, 2 shapes",
            "job 9 (title 9) waits",
        ];
        assert_eq!(changes(&before, &after), expected);
        // One that was over before anybody looked has ended.
        let expected = ["job 6 (title 6) ended, 1 of 2 shapes done: finished"];
        let quick = v1::GetStatusReply { last_job: Some(ended(6)), ..Default::default() };
        assert_eq!(changes(&v1::GetStatusReply::default(), &quick), expected);
    }

    #[test]
    fn the_machine_and_the_user_change_things() {
        let part = |health: v1::Health, detail: &str| {
            Some(v1::PartStatus { health: health.into(), detail: detail.to_owned() })
        };
        let configuration = |state, read_at_unix_ms| {
            Some(v1::ConfigurationStatus { state, read_at_unix_ms, wanted_shapes: 1, ..Default::default() })
        };
        let before = v1::GetStatusReply {
            planner: Some(v1::PlannerStatus::default()),
            configuration: configuration(part(v1::Health::Ok, ""), 1),
            worker: part(v1::Health::Ok, ""),
            ..Default::default()
        };
        let after = v1::GetStatusReply {
            conditions: Some(v1::Conditions { thermal: v1::Thermal::Heavy.into(), ..Default::default() }),
            planner: Some(v1::PlannerStatus { paused: true, ..Default::default() }),
            configuration: configuration(part(v1::Health::Ok, ""), 2),
            worker: part(v1::Health::Failed, "signal\u{7} 9"),
            draining: true,
            ..Default::default()
        };
        let expected = [
            "conditions: heavy",
            "measuring is paused",
            "the configuration was read: 1 shape wanted",
            "worker: failed: signal? 9",
            "the daemon is about to exit",
        ];
        assert_eq!(changes(&before, &after), expected);
        assert!(changes(&after, &before).contains(&"measuring goes on".to_owned()));
        let broken = v1::GetStatusReply {
            configuration: configuration(part(v1::Health::Degraded, "a.toml: no"), 3),
            ..before.clone()
        };
        assert_eq!(changes(&before, &broken), ["the configuration stays as it was: a.toml: no"]);
    }

    #[test]
    fn clients_come_and_go_by_their_number() {
        let client = |number| {
            let wire = v1::ClientStatus {
                number,
                pid: 4711,
                name: "a\u{1b} test".to_owned(),
                activity: v1::ActivityState::Idle.into(),
                ..Default::default()
            };
            AttachedClient::try_from(&wire).unwrap()
        };
        let status = v1::GetStatusReply::default();
        let texts = between((&status, &[client(1), client(2)]), (&status, &[client(2), client(3)]));
        assert_eq!(texts, ["client went: a? test, process 4711", "client came: a? test, process 4711"]);
    }

    #[test]
    fn a_daemon_is_known_by_its_process_and_its_start() {
        let daemon =
            |pid, started_at_unix_ms| v1::GetStatusReply { pid, started_at_unix_ms, ..Default::default() };
        assert!(!other_daemon(&daemon(1, 2), &daemon(1, 2)));
        assert!(other_daemon(&daemon(1, 2), &daemon(1, 3)) && other_daemon(&daemon(1, 2), &daemon(2, 2)));
    }
}
