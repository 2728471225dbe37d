//! The checks: from facts to what they mean.

mod binaries;
mod daemon;
mod machine;
mod places;
mod self_test;

use super::Check;
use super::facts::Facts;

/// Every check that makes sense on this system, in the order that people look.
pub(crate) fn examine(facts: &Facts) -> Vec<Check> {
    let mut checks =
        vec![daemon::running(facts), daemon::versions(facts), daemon::manager(facts), daemon::crashes(facts)];
    checks.extend([machine::chip(facts), machine::release(facts), machine::mlx(facts)]);
    checks.extend(machine::build_tools(facts));
    checks.extend(binaries::all(facts));
    checks.extend([
        places::socket(facts),
        places::state_directory(facts),
        places::stale_files(facts),
        places::disk(facts),
    ]);
    checks.extend(daemon::store(facts));
    checks.push(self_test::check(facts));
    checks
}

#[cfg(test)]
mod tests {
    use fusion_client::failures::FailedStarts;
    use fusion_service::manager::{ManagerKind, ManagerState};
    use std::collections::BTreeSet;

    use super::super::facts::{Entry, Program, Ran, SelfTested, State, System};
    use super::super::{Outcome, worst};
    use super::*;
    use fusion_calibrations::self_test::{Pair, compare};
    use fusion_client::v1;

    fn ended(code: i32, said: &str) -> Option<Ran> {
        Some(Ran::Ended { code, said: said.to_owned() })
    }

    fn healthy() -> Facts {
        let ok = || Some(v1::PartStatus { health: v1::Health::Ok.into(), detail: String::new() });
        let status = v1::GetStatusReply {
            version: fusion_client::VERSION.to_owned(),
            protocol: fusion_client::PROTOCOL,
            pid: 42,
            chip: Some(v1::Chip {
                brand: "Apple M4 Pro".to_owned(),
                memory_gib: 24,
                gpu_cores: Some(20),
                ..Default::default()
            }),
            engine: Some(v1::Engine {
                mlx_version: "0.32.2".to_owned(),
                library_hash: "ab".to_owned(),
                os_build: "25G83".to_owned(),
            }),
            worker: ok(),
            store: Some(v1::StoreStatus { state: ok(), estimates: 3, ..Default::default() }),
            ..Default::default()
        };
        let program = |name| Program {
            name,
            path: Some(format!("/opt/fusion/{name}").into()),
            quarantine: ended(1, "xattr: x: No such xattr: com.apple.quarantine"),
            signature: ended(0, ""),
        };
        let directory = Entry { is_socket: false, mode: 0o40700, owner: 501 };
        Facts {
            system: System::Macos,
            release: ended(0, "ProductName: macOS\nProductVersion: 26.1\nBuildVersion: 25B78").unwrap(),
            daemon: Ok(status),
            xcode: ended(0, "/Applications/Xcode.app/Contents/Developer\n"),
            metal: ended(0, "/var/run/metal\n"),
            programs: ["fusionctl", "fusiond", "fusion-worker"].map(program).to_vec(),
            socket_path: "/Users/x/.fusion/run/fusiond.sock".into(),
            socket: Some(Entry { is_socket: true, mode: 0o140_600, owner: 501 }),
            socket_directory: Some(directory),
            user: 501,
            worker: None,
            manager_kind: ManagerKind::Launchd,
            manager: Ok(ManagerState::Running { pid: Some(42) }),
            failed_starts: None,
            state: State {
                path: "/Users/x/Library/Application Support/fusion".into(),
                directory: Some(directory),
                names: ["store", "store.lock", "store-manifest.json", "snapshot.fsnp"]
                    .map(str::to_owned)
                    .to_vec(),
                last_words: String::new(),
                free_bytes: Some(100 << 30),
            },
            self_test: SelfTested::Done(compare(&[Pair { terminal_ms: 5.0, daemon_ms: 5.0 }; 5]).unwrap()),
        }
    }

    /// The outcome of one check once something is wrong.
    fn outcome(id: &str, wrong: impl FnOnce(&mut Facts)) -> Outcome {
        let mut facts = healthy();
        wrong(&mut facts);
        let checks = examine(&facts);
        let check = checks.iter().find(|check| check.id == id).unwrap_or_else(|| panic!("no check '{id}'"));
        assert_eq!(check.outcome == Outcome::Pass, check.remedy.is_none(), "{check:?}");
        check.outcome
    }

    fn status(facts: &mut Facts) -> &mut v1::GetStatusReply {
        facts.daemon.as_mut().unwrap()
    }

    #[test]
    fn a_healthy_machine_passes_everything() {
        let checks = examine(&healthy());
        assert_eq!(worst(&checks), Outcome::Pass, "{checks:#?}");
        let ids: BTreeSet<_> = checks.iter().map(|check| check.id).collect();
        assert_eq!(ids.len(), checks.len(), "an id is there twice");
        for id in [
            "chip",
            "os",
            "mlx",
            "xcode",
            "metal-compiler",
            "quarantine",
            "signature",
            "socket",
            "manager",
            "crashes",
            "versions",
            "stale-files",
            "disk",
            "self-test",
        ] {
            assert!(ids.contains(id), "{id}");
        }
    }

    #[test]
    fn what_is_wrong_with_the_daemon_is_found() {
        assert_eq!(
            outcome("daemon", |facts| facts.daemon = Err("fusiond is not running".to_owned())),
            Outcome::Fail
        );
        assert_eq!(outcome("versions", |facts| status(facts).version = "9.9.9".to_owned()), Outcome::Warn);
        assert_eq!(outcome("versions", |facts| status(facts).protocol = 9), Outcome::Fail);
        let manager = |state| outcome("manager", |facts| facts.manager = state);
        assert_eq!(manager(Ok(ManagerState::Waiting)), Outcome::Pass);
        assert_eq!(manager(Ok(ManagerState::Failed { code: Some(78) })), Outcome::Fail);
        assert_eq!(manager(Ok(ManagerState::NotLoaded)), Outcome::Warn);
        assert_eq!(manager(Err("no bus".to_owned())), Outcome::Warn);
        let failed =
            FailedStarts { count: 5, reason: "no disk".to_owned(), at_unix_ms: 1, version: "1".to_owned() };
        assert_eq!(
            outcome("manager", |facts| {
                facts.daemon = Err("fusiond is not running".to_owned());
                facts.failed_starts = Some(failed.clone());
            }),
            Outcome::Fail
        );
        // A daemon that has just started isn't well yet, and no trouble.
        assert_eq!(outcome("manager", |facts| facts.failed_starts = Some(failed)), Outcome::Pass);
        let panicked = |version: &str| {
            let words = format!(
                "fusiond {version} (process 42) at 2026-08-22T12:00:00Z, a panic:\n\nthread 'main' panicked at a.rs:1:2:\nno luck\n"
            );
            outcome("crashes", move |facts| facts.state.last_words = words)
        };
        assert_eq!(panicked(fusion_client::VERSION), Outcome::Warn);
        assert_eq!(panicked("0.0.1"), Outcome::Pass, "another version's is mended, or seen again");
        let damaged =
            Some(v1::PartStatus { health: v1::Health::Degraded.into(), detail: "rebuilt".to_owned() });
        assert_eq!(
            outcome("store", |facts| status(facts).store.as_mut().unwrap().state = damaged),
            Outcome::Warn
        );
    }

    #[test]
    fn what_is_wrong_with_the_machine_is_found() {
        assert_eq!(outcome("mlx", |facts| status(facts).engine = None), Outcome::Warn);
        let alone = |worker: Option<Result<v1::Engine, String>>| {
            outcome("mlx", move |facts| {
                (facts.daemon, facts.worker) = (Err("fusiond is not running".to_owned()), worker);
            })
        };
        assert_eq!(alone(Some(Ok(v1::Engine::default()))), Outcome::Pass);
        assert_eq!(alone(Some(Err("no libmlx".to_owned()))), Outcome::Fail);
        assert_eq!(alone(None), Outcome::Warn);
        let dead = Some(v1::PartStatus {
            health: v1::Health::Failed.into(),
            detail: "the worker exited with code 127".to_owned(),
        });
        assert_eq!(outcome("mlx", |facts| status(facts).worker = dead), Outcome::Fail);
        assert_eq!(
            outcome("chip", |facts| status(facts).chip.as_mut().unwrap().pair_label =
                "development pair".to_owned()),
            Outcome::Warn
        );
        assert_eq!(outcome("xcode", |facts| facts.xcode = ended(2, "xcode-select: error")), Outcome::Warn);
        assert_eq!(outcome("metal-compiler", |facts| facts.metal = ended(72, "xcrun: error")), Outcome::Warn);
        assert_eq!(outcome("os", |facts| facts.release = ended(1, "?").unwrap()), Outcome::Warn);
    }

    #[test]
    fn what_is_wrong_with_the_programs_is_found() {
        assert_eq!(outcome("programs", |facts| facts.programs[2].path = None), Outcome::Fail);
        assert_eq!(
            outcome("quarantine", |facts| facts.programs[1].quarantine = ended(0, "0083;x;Safari;y")),
            Outcome::Fail
        );
        assert_eq!(
            outcome("signature", |facts| facts.programs[1].signature =
                ended(1, "invalid signature (code or signature have been modified)")),
            Outcome::Fail
        );
        assert_eq!(
            outcome("signature", |facts| facts.programs[0].signature =
                ended(1, "code object is not signed at all")),
            Outcome::Warn
        );
    }

    #[test]
    fn what_is_wrong_with_the_places_is_found() {
        let open = Entry { is_socket: false, mode: 0o40755, owner: 501 };
        assert_eq!(outcome("socket", |facts| facts.socket_directory = Some(open)), Outcome::Fail);
        assert_eq!(
            outcome("socket", |facts| facts.socket_directory =
                Some(Entry { owner: 0, mode: 0o40700, ..open })),
            Outcome::Fail
        );
        assert_eq!(outcome("socket", |facts| facts.socket = Some(open)), Outcome::Fail);
        let stale = |facts: &mut Facts| facts.daemon = Err("nobody listens".to_owned());
        assert_eq!(outcome("socket", stale), Outcome::Warn);
        let writable = Entry { mode: 0o40777, ..open };
        assert_eq!(outcome("state-directory", |facts| facts.state.directory = Some(writable)), Outcome::Fail);
        assert_eq!(
            outcome("stale-files", |facts| facts
                .state
                .names
                .push("store.corrupt-20260101T000000Z".to_owned())),
            Outcome::Warn
        );
        assert_eq!(outcome("disk", |facts| facts.state.free_bytes = Some(500 << 20)), Outcome::Warn);
        assert_eq!(outcome("disk", |facts| facts.state.free_bytes = Some(5 << 20)), Outcome::Fail);
    }

    #[test]
    fn a_throttled_worker_is_the_worst() {
        let tested =
            |daemon_ms| SelfTested::Done(compare(&[Pair { terminal_ms: 5.0, daemon_ms }; 5]).unwrap());
        assert_eq!(outcome("self-test", |facts| facts.self_test = tested(8.0)), Outcome::Fail);
        assert_eq!(outcome("self-test", |facts| facts.self_test = tested(5.5)), Outcome::Warn);
        assert_eq!(
            outcome("self-test", |facts| facts.self_test =
                SelfTested::Not { why: "clients are busy".to_owned() }),
            Outcome::Warn
        );
    }

    #[test]
    fn linux_has_no_checks_of_macos() {
        let mut facts = healthy();
        facts.system = System::Linux;
        (facts.xcode, facts.metal) = (None, None);
        facts.programs.iter_mut().for_each(|program| (program.quarantine, program.signature) = (None, None));
        facts.manager_kind = ManagerKind::Systemd;
        let checks = examine(&facts);
        assert_eq!(worst(&checks), Outcome::Pass, "{checks:#?}");
        for id in ["xcode", "metal-compiler", "quarantine", "signature"] {
            assert!(checks.iter().all(|check| check.id != id), "{id}");
        }
    }
}
