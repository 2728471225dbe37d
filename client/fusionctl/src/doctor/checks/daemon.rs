//! The daemon, its versions, its manager and its store.

use fusion_client::state::crash_log;
use fusion_client::{PROTOCOL, VERSION, v1};
use fusion_service::manager::ManagerState;

use crate::doctor::Check;
use crate::doctor::facts::Facts;
use crate::doctor::transcripts;

pub(super) fn running(facts: &Facts) -> Check {
    match &facts.daemon {
        Ok(status) => Check::pass("daemon", format!("fusiond runs (process {})", status.pid)),
        Err(why) => Check::fail(
            "daemon",
            why.clone(),
            "nothing is measured, and programs are served from the last snapshot, or run stock",
            "start it: 'fusionctl start' where it is installed, else 'fusiond'",
        ),
    }
}

pub(super) fn versions(facts: &Facts) -> Check {
    let Ok(status) = &facts.daemon else {
        return Check::pass("versions", format!("fusionctl {VERSION}, protocol {PROTOCOL}"));
    };
    let found = format!(
        "fusionctl {VERSION} (protocol {PROTOCOL}), fusiond {} (protocol {})",
        status.version, status.protocol
    );
    if status.protocol != PROTOCOL {
        return Check::fail(
            "versions",
            found,
            "the two can't speak with each other, but for 'status' and 'stop'",
            "'fusionctl stop', then start the daemon of this version; or update fusionctl",
        );
    }
    if status.version != VERSION {
        return Check::warn(
            "versions",
            found,
            "the daemon is of another release than fusionctl: they understand each other",
            "'fusionctl restart' starts the daemon that is installed now",
        );
    }
    Check::pass("versions", found)
}

pub(super) fn manager(facts: &Facts) -> Check {
    let name = facts.manager_kind;
    // A start that goes on counts as failed until it is well.
    if let (Some(failed), Err(_)) = (&facts.failed_starts, &facts.daemon) {
        return Check::fail(
            "manager",
            format!("{} starts under {name} failed, the last one because: {}", failed.count, failed.reason),
            "the daemon ends soon after it is started",
            "mend the reason, then 'fusionctl start'; 'fusionctl logs' may say more",
        );
    }
    match &facts.manager {
        Ok(ManagerState::Running { .. }) => Check::pass("manager", format!("{name} runs it")),
        Ok(ManagerState::Waiting) => Check::pass("manager", format!("{name} starts it when it is needed")),
        Ok(ManagerState::Failed { code }) => Check::fail(
            "manager",
            format!(
                "its last run under {name} failed{}",
                code.map_or_else(String::new, |code| format!(", with {code}"))
            ),
            "the next client starts it, and it may fail again",
            "'fusionctl logs' says why; 'fusionctl start' starts it now",
        ),
        Ok(ManagerState::NotLoaded) => Check::warn(
            "manager",
            format!("{name} doesn't know it"),
            "nobody starts the daemon again when it ends, or after a restart of the machine",
            "'fusionctl install' makes it a part of this machine",
        ),
        Err(why) => Check::warn(
            "manager",
            format!("{name} can't be asked: {why}"),
            "this session has no manager of its own, as over some ssh connections and in containers",
            "start 'fusiond' by hand, or ask again from a session of your own",
        ),
    }
}

/// `None` without a daemon: the store is its own.
pub(super) fn store(facts: &Facts) -> Option<Check> {
    let store = facts.daemon.as_ref().ok()?.store.as_ref()?;
    let part = store.state.clone().unwrap_or_default();
    if part.health() == v1::Health::Ok {
        return Some(Check::pass("store", format!("whole, {} estimates", store.estimates)));
    }
    Some(Check::warn(
        "store",
        part.detail,
        "what was damaged was set aside, and the index built anew from the record files",
        "'fusionctl store verify' looks again; remove what is set aside when nothing is missed",
    ))
}

pub(super) fn crashes(facts: &Facts) -> Check {
    let panic = transcripts::last_panic(&facts.state.last_words);
    match panic.filter(|panic| panic.version == VERSION) {
        None => Check::pass("crashes", "none of this version"),
        Some(panic) => Check::warn(
            "crashes",
            format!("fusiond panicked at {}: {}", panic.at, panic.words),
            "a mistake in fusiond ended it, or a part of it; nothing that was reported as done is lost",
            &format!(
                "report it with what 'fusionctl logs --crashes' prints; then remove {}",
                crash_log(&facts.state.path).display()
            ),
        ),
    }
}
