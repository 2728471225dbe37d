//! Every conversation with launchd, held with one that behaves as launchd is known to.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::path::PathBuf;

use fusion_proto::endpoint::SocketPath;
use fusion_service::definition::{Definition, definitions};
use fusion_service::manager::{ManagerKind, ManagerState};
use fusion_service::places::Places;
use fusion_service::{Checkpoints, LABEL, ServiceError, Start};
use serde_json::json;
use support::{FakeLaunchd, user};
use tempfile::TempDir;

struct Place {
    directory: TempDir,
    launchd: FakeLaunchd,
}

impl Place {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), launchd: FakeLaunchd::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Definitions in their files, with a daemon that could be run.
    fn definitions(&self, start: Start) -> Vec<Definition> {
        let places = Places {
            own: self.path("own"),
            programs: PathBuf::from("/bin"),
            definitions: self.path("agents"),
            socket: SocketPath::new(self.path("s.sock")).unwrap(),
            state: self.path("state"),
            configuration: self.path("config"),
        };
        let mut files = definitions(ManagerKind::Launchd, start, &places).unwrap();
        for file in &mut files {
            file.text = file.text.replace("/bin/fusiond", "/bin/sh");
            fs::create_dir_all(file.path.parent().unwrap()).unwrap();
            fs::write(&file.path, &file.text).unwrap();
        }
        files
    }

    fn register(&self, start: Start) -> Result<Vec<Definition>, ServiceError> {
        let files = self.definitions(start);
        self.launchd.manager().register(&files, start, &Checkpoints::default())?;
        Ok(files)
    }
}

#[test]
fn a_service_is_enabled_first_and_loaded_into_the_session() {
    let place = Place::new();
    let service = format!("gui/{}/{LABEL}", user());
    place.launchd.change(|state| state["disabled"] = json!([service]));
    let files = place.register(Start::OnDemand).unwrap();
    assert_eq!(place.launchd.loaded(), Some((service, files[0].text.clone())));
    assert_eq!(place.launchd.manager().state().unwrap(), ManagerState::Waiting);
}

#[test]
fn at_login_it_runs_at_once() {
    let place = Place::new();
    place.register(Start::AtLogin).unwrap();
    assert_eq!(place.launchd.manager().state().unwrap(), ManagerState::Running { pid: Some(4242) });
}

#[test]
fn a_new_definition_waits_for_the_old_one_to_be_gone_and_is_what_runs() {
    let place = Place::new();
    place.launchd.change(|state| state["lingers"] = json!(4));
    place.register(Start::AtLogin).unwrap();
    let files = place.register(Start::OnDemand).unwrap();
    place.launchd.manager().start(&files, &Checkpoints::default()).unwrap();
    let state = place.launchd.state();
    let ran = state["ran"].as_array().unwrap();
    assert_eq!(ran.last().unwrap(), &files[0].text, "the cached property list was run");
    let calls = place.launchd.calls();
    let bootout = calls.iter().position(|call| call.starts_with("bootout")).unwrap();
    let asked =
        calls[bootout..].iter().take_while(|call| call.starts_with("bootout") || call.starts_with("print"));
    assert!(asked.count() > 4, "{calls:?}");
}

#[test]
fn a_bootstrap_that_meets_the_old_one_is_tried_again() {
    let place = Place::new();
    place.launchd.change(|state| state["next"] = json!({"bootstrap": [5, 5, 0]}));
    let files = place.register(Start::OnDemand).unwrap();
    assert_eq!(place.launchd.loaded().unwrap().1, files[0].text);
}

#[test]
fn whoever_wins_a_race_is_booted_out_again() {
    let place = Place::new();
    let old =
        place.definitions(Start::OnDemand)[0].text.replace("<integer>10</integer>", "<integer>11</integer>");
    place.launchd.old_property_list(&old);
    place.launchd.change(|state| state["next"] = json!({"bootstrap": ["race"]}));
    let files = place.register(Start::OnDemand).unwrap();
    assert_eq!(place.launchd.loaded().unwrap().1, files[0].text, "the other's property list stayed");
}

#[test]
fn over_ssh_the_users_own_domain_takes_it() {
    let place = Place::new();
    let own = format!("user/{}", user());
    place.launchd.change(|state| state["domains"] = json!([own]));
    place.register(Start::OnDemand).unwrap();
    assert_eq!(place.launchd.loaded().unwrap().0, format!("{own}/{LABEL}"));
    // Somebody logs in on the screen: it is found where it is, and not loaded twice.
    place.launchd.change(|state| state["domains"] = json!([format!("gui/{}", user()), own]));
    assert_eq!(place.launchd.manager().state().unwrap(), ManagerState::Waiting);
    place.register(Start::OnDemand).unwrap();
    assert_eq!(place.launchd.loaded().unwrap().0, format!("gui/{}/{LABEL}", user()));
    place.launchd.manager().unregister(&Checkpoints::default()).unwrap();
    assert_eq!(place.launchd.loaded(), None);
}

#[test]
fn without_any_session_the_error_says_what_to_do() {
    let place = Place::new();
    place.launchd.change(|state| state["domains"] = json!([]));
    let error = place.register(Start::OnDemand).unwrap_err().to_string();
    for word in ["enable user/", "exit code 125", "log in"] {
        assert!(error.contains(word), "{word}: {error}");
    }
}

#[test]
fn a_property_list_that_can_not_be_used_is_named_after_all_tries() {
    let place = Place::new();
    let files = place.definitions(Start::OnDemand);
    fs::write(&files[0].path, "no property list").unwrap();
    let fast = fusion_service::manager::Patience {
        interval: std::time::Duration::from_millis(1),
        limit: std::time::Duration::from_millis(300),
    };
    let launchctl = fusion_service::manager::Launchctl::new(place.launchd.program(), fast);
    let manager = fusion_service::manager::Manager::Launchd(launchctl);
    let error = manager.register(&files, Start::OnDemand, &Checkpoints::default()).unwrap_err().to_string();
    for word in ["bootstrap gui/", ".plist", "exit code 5", "plutil -lint", "bootstrap failed: 5"] {
        assert!(error.contains(word), "{word}: {error}");
    }
    // One that never goes is an error that names it, too.
    fs::write(&files[0].path, &files[0].text).unwrap();
    manager.register(&files, Start::OnDemand, &Checkpoints::default()).unwrap();
    place.launchd.change(|state| state["lingers"] = json!(1_000_000));
    let error = manager.unregister(&Checkpoints::default()).unwrap_err().to_string();
    assert!(error.contains("still holds") && error.contains("launchctl print"), "{error}");
}

#[test]
fn every_verb_may_be_repeated() {
    let place = Place::new();
    let manager = place.launchd.manager();
    let none = Checkpoints::default();
    manager.unregister(&none).unwrap();
    manager.stop(&none).unwrap();
    let files = place.register(Start::OnDemand).unwrap();
    for _ in 0..2 {
        manager.start(&files, &none).unwrap();
        assert_eq!(manager.state().unwrap(), ManagerState::Running { pid: Some(4242) });
    }
    for _ in 0..2 {
        manager.stop(&none).unwrap();
        assert_eq!(manager.state().unwrap(), ManagerState::NotLoaded);
    }
    // Started after a stop: loaded again, and run.
    manager.start(&files, &none).unwrap();
    assert_eq!(manager.state().unwrap(), ManagerState::Running { pid: Some(4242) });
    // Somebody boots it out between our question and our command.
    place.launchd.change(|state| state["next"] = json!({"bootout": ["vanish"]}));
    manager.unregister(&none).unwrap();
}
